//! The departures to a peer and their sender. A thread above the lanes sends them. If threads of chains move to the peer,
//! a lane that completes a segment sends it on its own thread: no other thread wakes up.
//!
//! ```text
//!   lane: completes a segment ─► try_send ─► sent ─────────────────────────────────► (network)
//!                                   │ the sender is busy, the socket is full, ...       ▲
//!                                   └────► wakes the sender's thread ─► run ────────────┘
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, PiMutex, Wake};
use hyoshi_runtime::LaneSender;

use crate::contact::{DepartureSender, LATER};
use crate::departures::{Departing, Departures};
use crate::shared::NodeState;

/// The most completions in one batch.
const BATCH: usize = 64;
/// Adapted rates are sent again after this time.
const REPEAT: Span = Span::from_secs(1);
/// The most departures that a lane sends at a time: beyond it, the sender's thread sends.
const MOST_AT_ONCE: usize = 8;

/// See the module.
pub(crate) struct PeerOutlet<D> {
    shared: Arc<NodeState>,
    at: usize,
    wake: Arc<Wake>,
    /// Opens the connection, and keeps it from becoming idle.
    keeps: bool,
    state: PiMutex<PeerOutletState<D>>,
}

struct PeerOutletState<D> {
    departures: D,
    sender: Box<dyn DepartureSender>,
    /// A departure that a lane could not send.
    left: Option<Departing>,
    /// Its payload.
    payload: Vec<u8>,
}

impl<D> fmt::Debug for PeerOutlet<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerOutlet").field("to", &self.shared.peers[self.at].name).finish_non_exhaustive()
    }
}

impl<D: Departures> PeerOutlet<D> {
    /// `wake` is posted when departures are present.
    pub fn new(
        (shared, at): (Arc<NodeState>, usize),
        departures: D,
        wake: Arc<Wake>,
        sender: Box<dyn DepartureSender>,
        keeps: bool,
    ) -> Arc<PeerOutlet<D>> {
        // Lanes allocate nothing.
        let most = shared.system.operations.iter().map(|operation| operation.payload as usize).max().unwrap_or(0);
        let state = PeerOutletState { departures, sender, left: None, payload: Vec::with_capacity(most) };
        Arc::new(PeerOutlet { shared, at, wake, keeps, state: PiMutex::new(state) })
    }

    /// Ends a wait of [`run`](Self::run).
    pub fn wake(&self) -> Arc<Wake> {
        self.wake.clone()
    }

    /// Sends departures until the node ends. It sends all that are present at a wake-up together.
    pub fn run(&self) {
        let (peer, clock) = (&self.shared.peers[self.at], MonotonicClock::start());
        let session = || peer.sends_as.load(Ordering::Acquire);
        let (mut knows_rates, mut repeated) = (0, Instant::ZERO);
        while !self.shared.is_over() {
            let most = self.state.lock().departures.longest_wait(LATER);
            self.wake.wait_until(&clock, clock.now() + most);
            let PeerOutletState { departures, sender, left, payload } = &mut *self.state.lock();
            if let Some(late) = departures.late_outputs() {
                peer.outputs.late.store(late, Ordering::Relaxed);
            }
            let (mut put_off, mut idle) = (0, true);
            let present = session();
            // Samples and values of contracts without a session are dropped: later ones replace them.
            let samples = departures.take_samples();
            if present != 0 && !samples.is_empty() && sender.send_samples(present, samples) {
                sender.flush();
            }
            let updates = departures.take_contract_updates();
            if present != 0 && !updates.is_empty() && sender.send_contract_updates(present, updates) {
                sender.flush();
            }
            if present != 0 {
                // A node that has started anew does not know its rates, and a message may be lost.
                let is_new = std::mem::replace(&mut knows_rates, present) != present;
                if is_new || clock.now().since(repeated) >= REPEAT {
                    repeated = clock.now();
                    departures.repeat_rates();
                }
                let rates = departures.take_rates();
                if !rates.is_empty() {
                    // Rates first: they are most important if there is too much to send.
                    if sender.send_rates(present, rates) {
                        sender.flush();
                        departures.rates_sent();
                    } else {
                        departures.repeat_rates();
                    }
                }
            }
            let mut send = |departing: &Departing, payload: &[u8]| {
                let session = session();
                let sent = session != 0 && sender.send(session, departing, payload);
                peer.count_sent(departing, sent);
                put_off += usize::from(sent);
                idle = false;
                if put_off == BATCH {
                    sender.flush();
                    put_off = 0;
                }
            };
            if let Some(departing) = left.take() {
                send(&departing, payload);
            }
            while departures.next(&mut send) {}
            if self.keeps && idle && session() != 0 {
                put_off += usize::from(sender.keep(session()));
            }
            if put_off > 0 {
                sender.flush();
            }
        }
    }
}

impl<D: Departures> LaneSender for PeerOutlet<D> {
    fn try_send(&self) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        let PeerOutletState { departures, sender, left, payload: kept } = &mut *state;
        let peer = &self.shared.peers[self.at];
        let session = peer.sends_as.load(Ordering::Acquire);
        if session == 0 || left.is_some() {
            return false;
        }
        for _ in 0..MOST_AT_ONCE {
            let more = departures.next(|departing, payload| {
                if sender.send_at_once(session, departing, payload) {
                    return peer.count_sent(departing, true);
                }
                kept.clear();
                kept.extend_from_slice(payload);
                *left = Some(departing.clone());
            });
            if left.is_some() || !more {
                return left.is_none();
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::AtomicBool;

    use hyoshi_model::{HostId, OperationId, ProcessorId, read};
    use hyoshi_os::Interrupt;
    use hyoshi_runtime::GroupSample;
    use hyoshi_trace::Signal;

    use super::*;

    const SYSTEM: &str = r#"
        name = "outlet"
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
        payload = "4B"
        [operation.steer]
        on = "pb"
        after = { all = ["sense"] }
        wcet = "0.1ms"
    "#;

    /// Departures by number, one rate, and samples.
    #[derive(Clone, Default)]
    struct Numbers(Arc<PiMutex<VecDeque<u64>>>, Arc<AtomicBool>, Samples);

    /// The new samples, and those that were taken.
    #[derive(Clone, Default)]
    struct Samples(Arc<PiMutex<Vec<GroupSample>>>, Vec<GroupSample>);

    const RATES: [(OperationId, Span); 1] = [(OperationId(0), Span::from_millis(20))];

    impl Departures for Numbers {
        fn longest_wait(&self, most: Span) -> Span {
            most
        }

        fn next(&mut self, mut send: impl FnMut(&Departing, &[u8])) -> bool {
            let Some(number) = self.0.lock().pop_front() else { return false };
            let (from, to, at) = (OperationId(0), OperationId(1), Instant::ZERO);
            let signal =
                Signal { from, to, position: 0, number, origin: at, period: Span::ZERO, due: at, ticket: None };
            send(&Departing::Completion(signal), &number.to_le_bytes()[..4]);
            true
        }

        fn take_rates(&mut self) -> &[(OperationId, Span)] {
            if self.1.swap(false, Ordering::Relaxed) { &RATES } else { &[] }
        }

        fn repeat_rates(&self) {
            self.1.store(true, Ordering::Relaxed);
        }

        fn take_samples(&mut self) -> &[GroupSample] {
            self.2.1 = std::mem::take(&mut *self.2.0.lock());
            &self.2.1
        }
    }

    /// A session, and the rates that were sent in it.
    type SentRates = (u64, Vec<(OperationId, Span)>);

    /// Records what was sent, and whether by a lane.
    #[derive(Clone, Default)]
    struct Recorded {
        sent: Arc<PiMutex<Vec<(u64, bool)>>>,
        /// By session.
        rates: Arc<PiMutex<Vec<SentRates>>>,
        /// The numbers of samples, by session.
        samples: Arc<PiMutex<Vec<(u64, u64)>>>,
        /// The socket has no room.
        is_full: Arc<AtomicBool>,
    }

    impl Recorded {
        fn note(&self, departing: &Departing, payload: &[u8], at_once: bool) {
            let Departing::Completion(signal) = departing else { panic!("{departing:?}") };
            assert_eq!(payload, &signal.number.to_le_bytes()[..4]);
            self.sent.lock().push((signal.number, at_once));
        }
    }

    impl DepartureSender for Recorded {
        fn send(&mut self, _: u64, departing: &Departing, payload: &[u8]) -> bool {
            self.note(departing, payload, false);
            true
        }

        fn send_at_once(&mut self, _: u64, departing: &Departing, payload: &[u8]) -> bool {
            let room = !self.is_full.load(Ordering::Relaxed);
            if room {
                self.note(departing, payload, true);
            }
            room
        }

        fn send_samples(&mut self, session: u64, samples: &[GroupSample]) -> bool {
            self.samples.lock().extend(samples.iter().map(|one| (session, one.number)));
            true
        }

        fn send_contract_updates(&mut self, _: u64, _: &[(u16, i64)]) -> bool {
            true
        }

        fn send_rates(&mut self, session: u64, rates: &[(OperationId, Span)]) -> bool {
            let room = !self.is_full.load(Ordering::Relaxed);
            if room {
                self.rates.lock().push((session, rates.to_vec()));
            }
            room
        }

        fn keep(&mut self, _: u64) -> bool {
            false
        }

        fn flush(&mut self) {}
    }

    /// Ends the outlet's thread, also if the test fails.
    struct EndsRun<'a>(&'a NodeState, &'a Wake);

    impl Drop for EndsRun<'_> {
        fn drop(&mut self) {
            self.0.over.store(true, Ordering::Release);
            self.1.post();
        }
    }

    fn wait_until(thread: &std::thread::ScopedJoinHandle<'_, ()>, mut holds: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !holds() {
            assert!(!thread.is_finished() && began.elapsed().as_secs() < 60, "it takes too long");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_lane_sends_in_order_or_leaves_it_to_the_senders_thread() {
        let system = Arc::new(read(SYSTEM, "outlet.toml", None).unwrap().system);
        let interrupt = Interrupt::manual(Arc::new(Wake::new()));
        let shared = Arc::new(NodeState::new(system, HostId(0), String::new(), interrupt, false, None));
        let (numbers, sent, wake) = (Numbers::default(), Recorded::default(), Arc::new(Wake::new()));
        let sender = Box::new(sent.clone());
        let outlet = PeerOutlet::new((shared.clone(), 0), numbers.clone(), wake.clone(), sender, false);
        let depart = |new: std::ops::Range<u64>| numbers.0.lock().extend(new);
        depart(0..1);
        assert!(!outlet.try_send(), "it has not joined");
        assert_eq!(numbers.0.lock().len(), 1);
        shared.peers[0].sends_as.store(7, Ordering::Release);
        assert!(outlet.try_send());
        depart(1..3);
        let busy = outlet.state.lock();
        assert!(!outlet.try_send(), "the sender's thread is sending");
        drop(busy);
        assert!(outlet.try_send());
        depart(3..5);
        sent.is_full.store(true, Ordering::Relaxed);
        assert!(!outlet.try_send() && !outlet.try_send(), "one is left: later ones must not pass it");
        sent.is_full.store(false, Ordering::Relaxed);
        assert!(!outlet.try_send());
        depart(5..6);
        std::thread::scope(|scope| {
            let ends = EndsRun(&shared, &wake);
            let thread = scope.spawn(|| outlet.run());
            wake.post();
            wait_until(&thread, || sent.sent.lock().len() >= 6);
            drop(ends);
            thread.join().unwrap();
        });
        depart(6..6 + MOST_AT_ONCE as u64 + 1);
        assert!(!outlet.try_send(), "a lane sends a limited number at a time");
        assert!(outlet.try_send());
        let all = sent.sent.lock().clone();
        assert!(all.iter().map(|(number, _)| *number).eq(0..7 + MOST_AT_ONCE as u64), "{all:?}");
        let by_thread: Vec<_> = all.iter().filter(|(_, at_once)| !at_once).map(|(number, _)| *number).collect();
        assert_eq!(by_thread, [3, 4, 5]);
        assert_eq!(shared.peers[0].sent.load(Ordering::Relaxed), 7 + MOST_AT_ONCE as u64);
    }

    #[test]
    fn a_sample_is_sent_once_and_only_in_a_session() {
        let system = Arc::new(read(SYSTEM, "outlet.toml", None).unwrap().system);
        let interrupt = Interrupt::manual(Arc::new(Wake::new()));
        let shared = Arc::new(NodeState::new(system, HostId(0), String::new(), interrupt, false, None));
        let (numbers, sent, wake) = (Numbers::default(), Recorded::default(), Arc::new(Wake::new()));
        let outlet = PeerOutlet::new((shared.clone(), 0), numbers.clone(), wake.clone(), Box::new(sent.clone()), false);
        std::thread::scope(|scope| {
            let ends = EndsRun(&shared, &wake);
            let thread = scope.spawn(|| outlet.run());
            for (session, number) in [(0, 1), (7, 2), (7, 3), (0, 4), (8, 5)] {
                let sending = outlet.state.lock();
                shared.peers[0].sends_as.store(session, Ordering::Release);
                numbers.2.0.lock().push(GroupSample { processor: ProcessorId(0), number, utilisation: None });
                drop(sending);
                wait_until(&thread, || {
                    wake.post();
                    numbers.2.0.lock().is_empty()
                });
                // It has left, if at all, before the next one is taken.
                drop(outlet.state.lock());
            }
            drop(ends);
            thread.join().unwrap();
        });
        assert_eq!(*sent.samples.lock(), [(7, 2), (7, 3), (8, 5)]);
    }

    #[test]
    fn rates_are_sent_again_until_they_are_accepted_and_to_each_new_session() {
        let system = Arc::new(read(SYSTEM, "outlet.toml", None).unwrap().system);
        let interrupt = Interrupt::manual(Arc::new(Wake::new()));
        let shared = Arc::new(NodeState::new(system, HostId(0), String::new(), interrupt, false, None));
        let (numbers, sent, wake) = (Numbers::default(), Recorded::default(), Arc::new(Wake::new()));
        let outlet = PeerOutlet::new((shared.clone(), 0), numbers.clone(), wake.clone(), Box::new(sent.clone()), false);
        sent.is_full.store(true, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let ends = EndsRun(&shared, &wake);
            let thread = scope.spawn(|| outlet.run());
            let until = |session: u64, count: usize| {
                shared.peers[0].sends_as.store(session, Ordering::Release);
                wake.post();
                wait_until(&thread, || sent.rates.lock().len() >= count);
            };
            until(7, 0);
            wait_until(&thread, || numbers.1.load(Ordering::Relaxed));
            sent.is_full.store(false, Ordering::Relaxed);
            until(7, 1);
            until(8, 2);
            numbers.1.store(true, Ordering::Relaxed);
            until(8, 3);
            drop(ends);
            thread.join().unwrap();
        });
        let all = sent.rates.lock().clone();
        let sessions: Vec<u64> = all.iter().map(|(session, _)| *session).collect();
        assert!(sessions.is_sorted() && sessions[0] == 7 && sessions.ends_with(&[8, 8]), "{all:?}");
        assert!(all.iter().all(|(_, rates)| *rates == RATES));
    }
}
