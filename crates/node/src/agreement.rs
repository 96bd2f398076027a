//! The agreement on the start of a run: pure decisions, without a clock or a network.
//!
//! ```text
//!                 every host present, or a node's maximum wait is over: the first present host proposes
//!   Gathering ──────────────────────────────────────────────────────────────────────────────────────► Running
//!       │                                                                                                ▲
//!       └────────────────────────────────────────────────────────────────────────────────────────────────┘
//!                 a present host runs already: join its run
//! ```

use hyoshi_model::HostId;

/// The state of a node, for other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeProgress {
    /// It waits for the other hosts.
    Gathering {
        /// Its maximum wait is over.
        impatient: bool,
    },
    /// It is part of a run.
    Running(AgreedRun),
}

/// One run of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreedRun {
    /// Its number.
    pub id: [u8; 16],
    /// Instant 0 on the clock of the reporting node, in ns. Negative if its machine was started later.
    pub origin: i64,
}

/// Another host that is present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present {
    /// The host.
    pub host: HostId,
    /// The state of its node.
    pub progress: NodeProgress,
    /// Its clock has been compared often enough to convert an instant 0 from it.
    pub compared: bool,
}

/// The next step of a node that waits for hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgreementStep {
    /// It waits.
    Wait,
    /// It is the first host present: it begins a run.
    Propose,
    /// It joins the run of this host; instant 0 is on that host's clock.
    Join(HostId, AgreedRun),
    /// These hosts began separate runs: it can join neither.
    Apart(HostId, HostId),
}

/// How long a node has waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitState {
    /// Its maximum wait is not over.
    Waits,
    /// It is over.
    Over,
    /// It is over, and so is the time that a host needs to join after its introduction.
    Exhausted,
}

/// The next step of the node of host `own`, of `hosts`, if it sees these other hosts. `arriving`: a further host has
/// introduced itself, and its node is not reached yet. Without it there would be two runs.
pub fn step(own: HostId, hosts: usize, patience: WaitState, arriving: bool, others: &[Present]) -> AgreementStep {
    let running = others.iter().filter_map(|other| match other.progress {
        NodeProgress::Running(run) => Some((other, run)),
        NodeProgress::Gathering { .. } => None,
    });
    let mut first: Option<(&Present, AgreedRun)> = None;
    for (other, run) in running {
        match first {
            Some((known, one)) if one.id != run.id => return AgreementStep::Apart(known.host, other.host),
            Some((known, _)) if known.compared => {}
            _ => first = Some((other, run)),
        }
    }
    if let Some((other, run)) = first {
        return if other.compared { AgreementStep::Join(other.host, run) } else { AgreementStep::Wait };
    }
    if arriving && patience != WaitState::Exhausted {
        return AgreementStep::Wait;
    }
    let impatient = patience != WaitState::Waits;
    let one_is_impatient = others.iter().any(|other| other.progress == NodeProgress::Gathering { impatient: true });
    // The other hosts have compared clocks about as often: they join before instant 0.
    let complete = others.len() + 1 >= hosts && others.iter().all(|other| other.compared);
    let is_first = others.iter().all(|other| own < other.host);
    if is_first && (complete || impatient || one_is_impatient) { AgreementStep::Propose } else { AgreementStep::Wait }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A step with no host arriving.
    fn step(own: HostId, hosts: usize, impatient: bool, others: &[Present]) -> AgreementStep {
        super::step(own, hosts, if impatient { WaitState::Over } else { WaitState::Waits }, false, others)
    }

    fn gathering(host: u32, impatient: bool) -> Present {
        Present { host: HostId(host), progress: NodeProgress::Gathering { impatient }, compared: true }
    }

    fn running(host: u32, id: u8) -> Present {
        Present {
            host: HostId(host),
            progress: NodeProgress::Running(AgreedRun { id: [id; 16], origin: 7 }),
            compared: true,
        }
    }

    #[test]
    fn the_first_host_proposes_once_all_are_present_or_one_has_waited_long_enough() {
        let own = HostId(0);
        assert_eq!(step(own, 3, false, &[gathering(1, false)]), AgreementStep::Wait);
        assert_eq!(step(own, 3, false, &[gathering(1, false), gathering(2, false)]), AgreementStep::Propose);
        assert_eq!(step(own, 3, true, &[gathering(1, false)]), AgreementStep::Propose);
        let unmeasured = Present { compared: false, ..gathering(2, false) };
        assert_eq!(step(own, 3, false, &[gathering(1, false), unmeasured]), AgreementStep::Wait);
        assert_eq!(step(own, 3, true, &[gathering(1, false), unmeasured]), AgreementStep::Propose);
        assert_eq!(step(own, 3, false, &[gathering(1, true)]), AgreementStep::Propose);
        assert_eq!(step(own, 3, true, &[]), AgreementStep::Propose);
        assert_eq!(step(HostId(1), 3, true, &[gathering(0, false)]), AgreementStep::Wait, "the first one knows");
        assert_eq!(step(HostId(1), 3, true, &[gathering(2, true)]), AgreementStep::Propose);
    }

    #[test]
    fn a_host_that_arrives_is_waited_for_but_not_for_ever_and_keeps_no_node_from_a_run_that_has_begun() {
        let with = |patience, others: &[Present]| super::step(HostId(0), 3, patience, true, others);
        assert_eq!(with(WaitState::Over, &[]), AgreementStep::Wait);
        assert_eq!(with(WaitState::Waits, &[gathering(1, true)]), AgreementStep::Wait);
        assert_eq!(with(WaitState::Exhausted, &[]), AgreementStep::Propose);
        assert!(matches!(with(WaitState::Over, &[running(1, 1)]), AgreementStep::Join(HostId(1), _)));
    }

    #[test]
    fn a_run_that_has_begun_is_joined_and_two_are_not() {
        let own = HostId(0);
        let run = AgreedRun { id: [1; 16], origin: 7 };
        assert_eq!(step(own, 3, false, &[running(2, 1)]), AgreementStep::Join(HostId(2), run));
        assert_eq!(step(own, 3, true, &[gathering(1, true), running(2, 1)]), AgreementStep::Join(HostId(2), run));
        assert_eq!(step(own, 3, false, &[running(1, 1), running(2, 2)]), AgreementStep::Apart(HostId(1), HostId(2)));
        let unmeasured = Present { compared: false, ..running(1, 1) };
        assert_eq!(step(own, 3, true, &[unmeasured]), AgreementStep::Wait);
        assert_eq!(step(own, 3, true, &[unmeasured, running(2, 1)]), AgreementStep::Join(HostId(2), run));
    }

    proptest! {
        /// Nodes that see each other join one run, in whatever order they check.
        #[test]
        fn nodes_that_see_each_other_run_together(
            hosts in 1usize..6, order in prop::collection::vec((0usize..6, any::<bool>()), 0..60),
        ) {
            let mut nodes = vec![NodeProgress::Gathering { impatient: false }; hosts];
            let everybody = (0..hosts).map(|node| (node, true)).cycle().take(hosts * 3);
            for (node, impatient) in order.into_iter().map(|(node, is)| (node % hosts, is)).chain(everybody) {
                let NodeProgress::Gathering { impatient: before } = nodes[node] else { continue };
                nodes[node] = NodeProgress::Gathering { impatient: before || impatient };
                let others: Vec<Present> = (0..hosts).filter(|other| *other != node).map(|other| Present {
                    host: HostId(other as u32), progress: nodes[other], compared: true,
                }).collect();
                match step(HostId(node as u32), hosts, before || impatient, &others) {
                    AgreementStep::Wait => {}
                    AgreementStep::Propose => nodes[node] = NodeProgress::Running(AgreedRun { id: [node as u8; 16], origin: 0 }),
                    AgreementStep::Join(_, run) => nodes[node] = NodeProgress::Running(run),
                    AgreementStep::Apart(..) => prop_assert!(false, "two runs"),
                }
            }
            for node in &nodes {
                prop_assert!(matches!(node, NodeProgress::Running(run) if NodeProgress::Running(*run) == nodes[0]));
            }
        }
    }
}
