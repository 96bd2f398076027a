//! Rates the paper's claims: for each, a pure function from figures to a verdict with its reason.

use hyoshi_report::figures::{count, nanos, percent};

use super::example::{ExampleSchedule, ReleaseProtocol};
use super::table::HostRow;
use super::workload::{CommunicationModel, EXECUTION, Topology, Workload};
use super::{DtEcFigures, DtEcKernel};
use crate::claim::{Claim, ClaimFinding, Judgement};
use CommunicationModel::{Events, Threads};

/// Every claim, in order.
pub const CLAIMS: [Claim; 8] = [
    Claim {
        id: "D1",
        says: "in the example, greedy releases miss a deadline and lose a job; release guards prevent both",
        paper: "section 3.4, figures 4 and 5: T2 responds in 4 or 6 s without guards, always in 6 s with them",
    },
    Claim {
        id: "D2",
        says: "release guards cost little in both models",
        paper: "section 4.1, tables 2 and 3: 92.5 of 555 us for events, 20.1 of 665 us for threads",
    },
    Claim {
        id: "D3",
        says: "sending costs a thread more than an event, because it carries more",
        paper: "section 4.1, tables 2 and 3: 243 us against 82 us",
    },
    Claim {
        id: "D4",
        says: "a release guard costs a thread less than an event",
        paper: "section 4.1, tables 2 and 3: 20.1 us against 92.5 us",
    },
    Claim {
        id: "D5",
        says: "each branch costs the sender time, more with threads",
        paper: "section 4.2, tables 1 and 4: 114 us for events, 213 us for threads",
    },
    Claim {
        id: "D6",
        says: "the dynamic graph works in both models; threads switch without prepared subscriptions",
        paper: "section 4.3, table 5: the secondary host runs 727 of 1,500 jobs",
    },
    Claim {
        id: "D7",
        says: "with many tasks threads cost clearly more, because each subtask has a thread",
        paper: "section 5.2, table 7: 13.6 s against 9.7 s of overhead in 300 s",
    },
    Claim {
        id: "D8",
        says: "execution times stay near 50 ms in both models",
        paper: "figure 1, tables 1, 4 and 5: means from 49.92 to 50.15 ms",
    },
];

/// On the kernel a job of the example may start so much later or earlier than in virtual time: a tenth of T2's response.
const NEAR_NS: u64 = 600_000_000;
/// A guard costs little up to this part of the overhead.
const LITTLE_PPM: u64 = 170_000;
/// Costs that differ by at most this are equal: runs differ by about as much.
const SAME_PPM: u64 = 100_000;
/// The largest distance of mean execution times from the nominal one.
const NOMINAL_PPM: u64 = 10_000;

/// Rates every claim.
pub fn judge(figures: &DtEcFigures) -> Vec<Judgement> {
    let kernel = figures.kernel.as_ref();
    let of = |claim: Claim| {
        let measured = |rate: fn(&DtEcKernel) -> Option<ClaimFinding>| kernel.and_then(rate).unwrap_or_else(nothing);
        let (finding, on_kernel) = match claim.id {
            "D1" => (d1(&figures.simulated), kernel.and_then(d1_on_kernel)),
            "D2" => (measured(d2), None),
            "D3" => (measured(d3), None),
            "D4" => (measured(d4), None),
            "D5" => (measured(d5), None),
            "D6" => (measured(d6), None),
            "D7" => (measured(d7), None),
            "D8" => (measured(d8), None),
            other => unreachable!("{other} has a rule"),
        };
        Judgement { claim, finding, on_kernel }
    };
    CLAIMS.into_iter().map(of).collect()
}

/// The finding if the required experiment was left out or refused.
fn nothing() -> ClaimFinding {
    ClaimFinding::not_measured("it requires nodes on the kernel, which were left out or refused")
}

fn schedule(schedules: &[ExampleSchedule], protocol: ReleaseProtocol) -> Option<&ExampleSchedule> {
    schedules.iter().find(|one| one.protocol == protocol)
}

fn outcome(schedule: &ExampleSchedule) -> String {
    let (least, most) = schedule.response_ns;
    let response = if least == most { nanos(least) } else { format!("{} to {}", nanos(least), nanos(most)) };
    format!("{} missed and {} dropped, T2 responds in {response}", schedule.missed, schedule.dropped)
}

fn d1(schedules: &[ExampleSchedule]) -> ClaimFinding {
    let [Some(greedy), Some(guarded), Some(idle)] = ReleaseProtocol::ALL.map(|one| schedule(schedules, one)) else {
        return nothing();
    };
    let rule_3 = if idle.deviation_from(greedy) == Some(0) { "the greedy one again" } else { "another one" };
    let reason =
        format!("greedy: {}; guarded: {}; with rule 3 the schedule is {rule_3}", outcome(greedy), outcome(guarded));
    match (greedy.is_the_figure(), guarded.is_the_figure()) {
        (true, true) => ClaimFinding::reproduced(format!("both schedules are those of the figures; {reason}")),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    }
}

fn d1_on_kernel(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let deviation = |protocol| schedule(&kernel.example, protocol).map(|one| (outcome(one), one.deviation_ns));
    let ((greedy, first), (guarded, second)) =
        (deviation(ReleaseProtocol::Greedy)?, deviation(ReleaseProtocol::Guarded)?);
    let most = first.zip(second).map(|(one, other)| one.max(other));
    let distance = most.map_or_else(
        || "jobs or outcomes differ from a simulation".to_owned(),
        |most| format!("jobs start within {} of a simulation, in the paper's time", nanos(most)),
    );
    let reason = format!("greedy: {greedy}; guarded: {guarded}; {distance}");
    Some(match most {
        Some(most) if most <= NEAR_NS => ClaimFinding::reproduced(reason),
        Some(_) => ClaimFinding::in_part(reason),
        None => ClaimFinding::not_reproduced(reason),
    })
}

/// The rows of a workload.
fn rows(kernel: &DtEcKernel, workload: Workload) -> Option<&[HostRow]> {
    kernel.of(&workload).map(|measured| measured.hosts.as_slice())
}

fn overhead(row: &HostRow) -> i64 {
    row.overhead_ns[0] as i64
}

/// The cost of the guard for each job of the hosts behind the client: with it, less without it.
fn guard_cost(kernel: &DtEcKernel, model: CommunicationModel) -> Option<(i64, i64)> {
    let guarded = rows(kernel, Workload::paper(Topology::Chain, model))?;
    let without = Workload { protocol: ReleaseProtocol::Greedy, ..Workload::paper(Topology::Chain, model) };
    let greedy = rows(kernel, without)?;
    let behind = |rows: &[HostRow]| rows[1..].iter().map(overhead).sum::<i64>() / (rows.len() as i64 - 1).max(1);
    Some((behind(guarded) - behind(greedy), behind(greedy)))
}

/// A cost that may be below zero, because it is a difference of measurements.
fn signed(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    format!("{sign}{}", nanos(ns.unsigned_abs()))
}

fn ppm(part: i64, whole: i64) -> u64 {
    (part.max(0) as u64).saturating_mul(1_000_000) / whole.max(1) as u64
}

fn d2(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let (events, threads) = (guard_cost(kernel, Events)?, guard_cost(kernel, Threads)?);
    let reason = format!(
        "for each job {} of {} with events and {} of {} with threads, as a difference of runs with and without guard",
        signed(events.0),
        signed(events.1),
        signed(threads.0),
        signed(threads.1)
    );
    let little = |(cost, whole): (i64, i64)| ppm(cost, whole) <= LITTLE_PPM;
    Some(match (little(events), little(threads)) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    })
}

/// Whether a cost is above, equal to, or below another.
fn compared(one: i64, other: i64) -> std::cmp::Ordering {
    if ppm((one - other).abs(), one.max(other)) <= SAME_PPM { std::cmp::Ordering::Equal } else { one.cmp(&other) }
}

fn d3(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    // The client only sends.
    let sending = |model| Some(overhead(rows(kernel, Workload::paper(Topology::Chain, model))?.first()?));
    let (events, threads) = (sending(Events)?, sending(Threads)?);
    let reason = format!(
        "the client, which only sends, needs {} for each job with events and {} with threads",
        signed(events),
        signed(threads)
    );
    Some(match compared(threads, events) {
        std::cmp::Ordering::Greater => ClaimFinding::reproduced(reason),
        std::cmp::Ordering::Equal => ClaimFinding::not_reproduced(format!("{reason}: no difference beyond the noise")),
        std::cmp::Ordering::Less => ClaimFinding::not_reproduced(format!(
            "{reason}: a thread carries more, but its lane sends it without waking another thread"
        )),
    })
}

fn d4(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let ((events, whole), (threads, _)) = (guard_cost(kernel, Events)?, guard_cost(kernel, Threads)?);
    let reason = format!("{} with events, {} with threads", signed(events), signed(threads));
    let differs = ppm((events - threads).abs(), whole) > SAME_PPM;
    Some(match differs {
        true if threads < events => ClaimFinding::reproduced(reason),
        true => ClaimFinding::not_reproduced(reason),
        false => ClaimFinding::not_reproduced(format!("{reason}: both use the same guard, in the dispatcher")),
    })
}

fn d5(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let branch = |model| {
        let client = |topology| Some(overhead(rows(kernel, Workload::paper(topology, model))?.first()?));
        Some(client(Topology::Graph)? - client(Topology::Chain)?)
    };
    let (events, threads) = (branch(Events)?, branch(Threads)?);
    let reason =
        format!("a second branch costs the client {} with events and {} with threads", signed(events), signed(threads));
    Some(match (events > 0 && threads > 0, compared(threads, events).is_gt()) {
        (true, true) => ClaimFinding::reproduced(reason),
        (true, false) => ClaimFinding::in_part(format!("{reason}: not more with threads")),
        (false, _) => ClaimFinding::not_reproduced(reason),
    })
}

fn d6(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let works = |model: CommunicationModel| {
        let rows = rows(kernel, Workload::paper(Topology::DynamicGraph, model))?;
        let [client, _, secondary, server] = rows else { return None };
        let words = format!(
            "with {} the secondary host ran {} of {} jobs, the server {}",
            model.words(),
            count(secondary.jobs),
            count(client.jobs),
            count(server.jobs)
        );
        // The last jobs of a run may be cut off.
        let each_once = server.jobs <= client.jobs && server.jobs * 10 >= client.jobs * 8;
        let about_half = (client.jobs / 4..=client.jobs * 3 / 4 + 1).contains(&secondary.jobs);
        Some((words, each_once && about_half))
    };
    let ((events, first), (threads, second)) = (works(Events)?, works(Threads)?);
    let reason = format!(
        "{events}; {threads}. Both declare the hop in the file, and its body chooses it: neither prepares a subscription"
    );
    Some(match (first, second) {
        (true, true) => ClaimFinding::reproduced(reason),
        (false, false) => ClaimFinding::not_reproduced(reason),
        _ => ClaimFinding::in_part(reason),
    })
}

fn d7(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let sum = |lane_for_each, model| {
        let workload = Workload { lane_for_each, ..Workload::paper(Topology::Random, model) };
        Some(rows(kernel, workload)?.iter().map(overhead).sum::<i64>())
    };
    let (events, threads) = (sum(false, Events)?, sum(false, Threads)?);
    let cause = match sum(true, Threads) {
        Some(each) => {
            let change = 1_000_000 * (each - threads) / threads.max(1);
            format!(
                "; a lane for each subtask changes threads to {} ({}{})",
                signed(each),
                if change < 0 { "-" } else { "+" },
                percent(change.unsigned_abs())
            )
        }
        None => String::new(),
    };
    let reason =
        format!("in 300 s {} with events and {} with threads, on all hosts{cause}", signed(events), signed(threads));
    Some(match compared(threads, events) {
        std::cmp::Ordering::Greater => ClaimFinding::reproduced(reason),
        _ => ClaimFinding::not_reproduced(format!("{reason}. Here a distributable thread has no thread of its own")),
    })
}

fn d8(kernel: &DtEcKernel) -> Option<ClaimFinding> {
    let topologies = [Topology::Chain, Topology::Graph, Topology::DynamicGraph];
    let of = |model| topologies.map(|topology| rows(kernel, Workload::paper(topology, model)));
    let [events, threads] = [of(Events), of(Threads)].map(|rows| rows.into_iter().flatten().flatten());
    let means: Vec<u64> = events.chain(threads).filter(|row| row.jobs > 0).map(|row| row.execution_ns).collect();
    let (least, most) = (*means.iter().min()?, *means.iter().max()?);
    let reason = format!("means of {} hosts from {} to {}", means.len(), nanos(least), nanos(most));
    let near = |mean: u64| ppm(mean.abs_diff(EXECUTION.as_nanos()) as i64, EXECUTION.as_nanos() as i64) <= NOMINAL_PPM;
    Some(if near(least) && near(most) {
        ClaimFinding::reproduced(reason)
    } else {
        ClaimFinding::not_reproduced(reason)
    })
}

#[cfg(test)]
mod tests {
    use super::super::MeasuredWorkload;
    use super::*;
    use crate::claim::ClaimVerdict;
    use crate::nodes::NodeParts;

    fn row(host: &str, jobs: u64, overhead: u64) -> HostRow {
        HostRow {
            host: host.to_owned(),
            jobs,
            missed: 0,
            dropped: 0,
            execution_ns: EXECUTION.as_nanos(),
            idle_ns: 0,
            overhead_ns: [overhead; 3],
            parts: NodeParts::default(),
            threads: 20,
            paper: None,
        }
    }

    /// Overheads in microseconds: of the client and the hosts behind it.
    fn measured(workload: Workload, client: u64, behind: u64) -> MeasuredWorkload {
        let hosts = workload.topology.hosts().iter().enumerate();
        let jobs = |host: &str| if host == "middle2" { 48 } else { 100 };
        let row = |(at, host): (usize, &&str)| row(host, jobs(host), 1_000 * if at == 0 { client } else { behind });
        MeasuredWorkload { workload, hosts: hosts.map(row).collect() }
    }

    fn kernel(of: impl Fn(Workload) -> (u64, u64)) -> DtEcKernel {
        let workloads = super::super::workloads().into_iter();
        let workloads = workloads.map(|workload| {
            let (client, behind) = of(workload);
            measured(workload, client, behind)
        });
        DtEcKernel { workloads: workloads.collect(), ..DtEcKernel::default() }
    }

    fn verdicts(kernel: DtEcKernel) -> Vec<ClaimVerdict> {
        let figures = DtEcFigures { simulated: super::super::example::simulated(60), kernel: Some(kernel) };
        judge(&figures).into_iter().map(|judgement| judgement.finding.verdict).collect()
    }

    #[test]
    fn the_papers_figures_reproduce_every_claim() {
        let paper = |workload: Workload| {
            let threads = workload.model == Threads;
            match (workload.topology, workload.protocol) {
                (Topology::Chain, ReleaseProtocol::Greedy) => {
                    if threads {
                        (420, 624)
                    } else {
                        (350, 470)
                    }
                }
                (Topology::Chain, _) => {
                    if threads {
                        (420, 644)
                    } else {
                        (350, 544)
                    }
                }
                (Topology::Graph, _) => {
                    if threads {
                        (633, 352)
                    } else {
                        (464, 363)
                    }
                }
                (Topology::DynamicGraph, _) => (450, 600),
                (Topology::Random, _) => {
                    if threads {
                        (2_834, 3_600)
                    } else {
                        (2_125, 2_500)
                    }
                }
            }
        };
        assert_eq!(verdicts(kernel(paper)), [ClaimVerdict::Reproduced; 8]);
    }

    #[test]
    fn equal_costs_reproduce_no_difference() {
        use ClaimVerdict::{NotReproduced, Reproduced};
        let equal = |workload: Workload| if workload.topology == Topology::Graph { (130, 90) } else { (90, 90) };
        let expected = [
            Reproduced,
            Reproduced,
            NotReproduced,
            NotReproduced,
            ClaimVerdict::InPart,
            Reproduced,
            NotReproduced,
            Reproduced,
        ];
        assert_eq!(verdicts(kernel(equal)), expected);
    }

    #[test]
    fn without_the_kernel_only_the_example_is_rated() {
        let judged = judge(&DtEcFigures { simulated: super::super::example::simulated(60), kernel: None });
        let verdicts: Vec<_> = judged.iter().map(|judgement| judgement.finding.verdict).collect();
        assert_eq!(verdicts[0], ClaimVerdict::Reproduced);
        assert!(verdicts[1..].iter().all(|verdict| *verdict == ClaimVerdict::NotMeasured));
    }
}
