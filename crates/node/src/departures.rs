//! Completions and outputs that depart to another host, in two classes: critical ones do not wait for non-critical
//! ones. The class of a completion is that of its target. An output is critical if its operation is, or an operation of the
//! other host that reads it or is triggered by it: so it does not arrive after the completion of its job. Adapted rates
//! and samples for groups are critical.
//!
//! ```text
//!   ring ─► critical sender ═ a connection with DSCP EF ═► host
//!              │ non-critical
//!              ▼
//!            ring ─► other sender ═ a connection without DSCP ═► host
//! ```
//!
//! If all completions to a host are of one class, one thread sends them. Where threads of chains move to the host, lanes
//! use the first sender themselves ([`PeerOutlet`](crate::outlet::PeerOutlet)).

use std::sync::Arc;

use hyoshi_model::{HostId, OperationId, Span, System};
use hyoshi_os::Wake;
use hyoshi_runtime::{Departure, GroupSample, OutgoingCompletions, OutgoingOutput};
use hyoshi_trace::Signal;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::idl::hyoshi_node as wire;
use crate::shared::NodeState;

/// The maximum number of non-critical departures that wait for their sender. Further ones are dropped and counted.
const WAITING: usize = 1024;

/// A completion or output that departs; its payload is beside it.
#[derive(Clone, Debug)]
pub(crate) enum Departing {
    /// A completion.
    Completion(Signal),
    /// An output for a replica, and the time since its flush point.
    Output(wire::Output, Span),
}

/// Where a sender's completions and outputs come from.
pub(crate) trait Departures: Send {
    /// The longest time until some are due, with this time limit, unless the wake-up is posted before.
    fn longest_wait(&self, most: Span) -> Span;

    /// Passes the next departure to `send`. False if none is present.
    fn next(&mut self, send: impl FnMut(&Departing, &[u8])) -> bool;

    /// Outputs that were not flushed because they were late; `None` if another source counts them.
    fn late_outputs(&self) -> Option<u64> {
        None
    }

    /// The adapted rates of the host, if some have changed. Lanes do not call it.
    fn take_rates(&mut self) -> &[(OperationId, Span)] {
        &[]
    }

    /// Those were sent.
    fn rates_sent(&self) {}

    /// The adapted rates must be sent again.
    fn repeat_rates(&self) {}

    /// The new samples of processors here, for groups that the other host computes. Lanes do not call it.
    fn take_samples(&mut self) -> &[GroupSample] {
        &[]
    }

    /// The new values of contracts for the other host. Lanes do not call it.
    fn take_contract_updates(&mut self) -> &[(u16, i64)] {
        &[]
    }
}

impl Departures for OutgoingCompletions {
    fn longest_wait(&self, most: Span) -> Span {
        OutgoingCompletions::longest_wait(self, most)
    }

    fn next(&mut self, mut send: impl FnMut(&Departing, &[u8])) -> bool {
        match self.take() {
            Some(Departure::Completion(one)) => send(&Departing::Completion(one.signal), one.payload()),
            Some(Departure::Output(one)) => send(&Departing::Output(output(&one), one.lateness()), one.payload()),
            None => return false,
        }
        true
    }

    fn late_outputs(&self) -> Option<u64> {
        Some(OutgoingCompletions::late_outputs(self))
    }

    fn take_rates(&mut self) -> &[(OperationId, Span)] {
        OutgoingCompletions::take_rates(self)
    }

    fn rates_sent(&self) {
        OutgoingCompletions::rates_sent(self);
    }

    fn repeat_rates(&self) {
        OutgoingCompletions::repeat_rates(self);
    }

    fn take_samples(&mut self) -> &[GroupSample] {
        OutgoingCompletions::take_samples(self)
    }

    fn take_contract_updates(&mut self) -> &[(u16, i64)] {
        OutgoingCompletions::take_contract_updates(self)
    }
}

/// Whether some completions, outputs, rates, samples and values of contracts from one host to another are critical, and
/// whether some are not.
pub(crate) fn classes(system: &System, from: HostId, to: HostId) -> (bool, bool) {
    let host = |id: OperationId| system.processor(system.operation(id).on).host;
    let targets = system.operation_ids().filter(|id| host(*id) == to);
    let arrive = targets.filter(|id| system.operation(*id).trigger.predecessors().iter().any(|one| host(*one) == from));
    let own = system.operation_ids().filter(|id| host(*id) == from);
    let replicated = own.filter(|id| system.replica_on(*id, to).is_some());
    let arrive = arrive.map(|id| system.operation(id).critical);
    let control = !system.rates_between(from, to).is_empty()
        || system.samples_between(from, to).next().is_some()
        || !system.contract_routes_between(from, to).is_empty();
    let classes = arrive.chain(replicated.map(|id| is_critical_output(system, id, to))).chain(control.then_some(true));
    classes.fold((false, false), |(critical, others), is_critical| (critical || is_critical, others || !is_critical))
}

/// The class of an operation's outputs for its replica on a host.
fn is_critical_output(system: &System, source: OperationId, to: HostId) -> bool {
    let uses = |id: OperationId| {
        let operation = system.operation(id);
        let there = system.processor(operation.on).host == to;
        there && (operation.reads.contains(&source) || operation.trigger.predecessors().contains(&source))
    };
    let users = system.operation_ids().filter(|id| uses(*id));
    users.chain([source]).any(|id| system.operation(id).critical)
}

/// Splits the completions for a peer.
pub(crate) fn split<D: Departures>(
    all: D,
    shared: &Arc<NodeState>,
    peer: usize,
) -> (CriticalDepartures<D>, OtherDepartures) {
    let ((others, ring), (used, spare)) = (RingBuffer::new(WAITING), RingBuffer::new(WAITING));
    let wake = Arc::new(Wake::new());
    let (system, to) = (&shared.system, shared.peers[peer].host);
    let outputs = system.operation_ids().map(|id| is_critical_output(system, id, to)).collect();
    let critical = CriticalDepartures { all, shared: shared.clone(), peer, outputs, others, spare, wake: wake.clone() };
    (critical, OtherDepartures { ring, used, wake })
}

/// The critical completions and outputs. Passes on the non-critical ones.
#[derive(Debug)]
pub(crate) struct CriticalDepartures<D> {
    all: D,
    shared: Arc<NodeState>,
    peer: usize,
    /// By operation: whether its outputs are critical there.
    outputs: Vec<bool>,
    others: Producer<(Departing, Vec<u8>)>,
    spare: Consumer<Vec<u8>>,
    wake: Arc<Wake>,
}

impl<D: Departures> Departures for CriticalDepartures<D> {
    fn longest_wait(&self, most: Span) -> Span {
        self.all.longest_wait(most)
    }

    fn late_outputs(&self) -> Option<u64> {
        self.all.late_outputs()
    }

    fn take_rates(&mut self) -> &[(OperationId, Span)] {
        self.all.take_rates()
    }

    fn rates_sent(&self) {
        self.all.rates_sent();
    }

    fn repeat_rates(&self) {
        self.all.repeat_rates();
    }

    fn take_samples(&mut self) -> &[GroupSample] {
        self.all.take_samples()
    }

    fn take_contract_updates(&mut self) -> &[(u16, i64)] {
        self.all.take_contract_updates()
    }

    fn next(&mut self, mut send: impl FnMut(&Departing, &[u8])) -> bool {
        let CriticalDepartures { all, shared, peer, outputs, others, spare, wake } = self;
        let (mut sent, mut passed) = (false, false);
        while !sent {
            let more = all.next(|departing, payload| {
                sent = match departing {
                    Departing::Completion(signal) => shared.system.operation(signal.to).critical,
                    Departing::Output(what, _) => outputs[what.source as usize],
                };
                if sent {
                    return send(departing, payload);
                }
                // Copied: a peer that does not read must not hold the payload buffers of critical completions.
                let mut copy = spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(payload);
                match others.push((departing.clone(), copy)) {
                    Ok(()) => passed = true,
                    Err(_) => shared.peers[*peer].count_sent(departing, false),
                }
            });
            if !more {
                break;
            }
        }
        if passed {
            wake.post();
        }
        sent
    }
}

/// The non-critical completions and outputs.
#[derive(Debug)]
pub(crate) struct OtherDepartures {
    ring: Consumer<(Departing, Vec<u8>)>,
    used: Producer<Vec<u8>>,
    wake: Arc<Wake>,
}

impl OtherDepartures {
    /// Ends a wait.
    pub fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }
}

impl Departures for OtherDepartures {
    fn longest_wait(&self, most: Span) -> Span {
        most
    }

    fn next(&mut self, mut send: impl FnMut(&Departing, &[u8])) -> bool {
        let Ok((departing, payload)) = self.ring.pop() else { return false };
        send(&departing, &payload);
        // The next payload uses the buffer.
        drop(self.used.push(payload));
        true
    }
}

fn output(output: &OutgoingOutput) -> wire::Output {
    let (number, leg) = output.job();
    wire::Output { source: output.operation().0, number, leg, release: output.release().as_nanos() }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::Ordering;

    use hyoshi_model::{Instant, read};
    use hyoshi_os::Interrupt;

    use super::*;

    const SYSTEM: &str = r#"
        name = "split"
        [host.a]
        endpoints = ["tcp/127.0.0.1:1"]
        [host.b]
        endpoints = ["tcp/127.0.0.1:2"]
        [processor.pa]
        host = "a"
        [processor.pb]
        host = "b"
        [operation.sense]
        on = "pa"
        every = "10ms"
        wcet = "0.1ms"
        [operation.steer]
        on = "pb"
        after = { all = ["sense"] }
        wcet = "0.1ms"
        critical = true
        [operation.log]
        on = "pb"
        after = { all = ["sense"] }
        wcet = "0.1ms"
    "#;

    struct Queue(VecDeque<(Departing, Vec<u8>)>);

    impl Departures for Queue {
        fn longest_wait(&self, most: Span) -> Span {
            most
        }

        fn next(&mut self, mut send: impl FnMut(&Departing, &[u8])) -> bool {
            let Some((departing, payload)) = self.0.pop_front() else { return false };
            send(&departing, &payload);
            true
        }
    }

    fn signal(to: u32, number: u64) -> Departing {
        Departing::Completion(Signal {
            from: OperationId(0),
            to: OperationId(to),
            position: 0,
            number,
            origin: Instant::ZERO,
            period: Span::ZERO,
            due: Instant::ZERO,
            ticket: None,
        })
    }

    fn drain(departures: &mut impl Departures) -> Vec<(u32, u64, Vec<u8>)> {
        let mut all = Vec::new();
        while departures.next(|departing, payload| match departing {
            Departing::Completion(signal) => all.push((signal.to.0, signal.number, payload.to_vec())),
            Departing::Output(what, _) => panic!("{what:?}"),
        }) {}
        all
    }

    #[test]
    fn critical_completions_pass_others_and_a_full_ring_is_counted() {
        let system = Arc::new(read(SYSTEM, "split.toml", None).unwrap().system);
        assert_eq!(classes(&system, HostId(0), HostId(1)), (true, true));
        assert_eq!(classes(&system, HostId(1), HostId(0)), (false, false));
        let interrupt = Interrupt::manual(Arc::new(Wake::new()));
        let shared = Arc::new(NodeState::new(system, HostId(0), String::new(), interrupt, false, None));
        let most = WAITING as u64 + 7;
        let all = (0..most).flat_map(|number| [(signal(2, number), vec![2; 3]), (signal(1, number), vec![1; 5])]);
        let (mut critical, mut others) = split(Queue(all.collect()), &shared, 0);
        let sent = drain(&mut critical);
        assert!(sent.iter().map(|(to, number, _)| (*to, *number)).eq((0..most).map(|number| (1, number))));
        assert!(sent.iter().all(|(.., payload)| *payload == [1; 5]));
        assert_eq!(shared.peers[0].unsent.load(Ordering::Relaxed), 7);
        let sent = drain(&mut others);
        assert!(sent.iter().map(|(to, number, _)| (*to, *number)).eq((0..WAITING as u64).map(|number| (2, number))));
        assert!(sent.iter().all(|(.., payload)| *payload == [2; 3]));
        // Used buffers return.
        critical.all.0.push_back((signal(2, 0), vec![4]));
        assert!(drain(&mut critical).is_empty() && drain(&mut others) == [(2, 0, vec![4])]);
    }
}
