//! Merges the recordings of several hosts into one, on the clock of the *reference* host.
//!
//! The other hosts have measured the offset of the reference's clock ([`CpuEvent::Clock`]), with an error bound.
//! Between two measurements the offset is interpolated; before the first and after the last it is constant. If a signal
//! would arrive before it was sent, the receiver's events move to the time of sending. The reference's clock does not
//! move: if the reference is the receiver, the sender's events move to the time of arrival. The true times lie within
//! the error bounds, so no event's error exceeds the largest bound plus [`QUANTUM`].
//!
//! Only events read ahead to find a send stay in memory, so memory does not grow with the recordings.

use std::collections::{HashMap, VecDeque};

use hyoshi_model::{HostId, Instant, OperationId, Span, time::LONGEST_SPAN};

use crate::event::{CpuEvent, DispatchDecision, Signal, TraceEvent};

/// Offsets that differ by at most this are merged, so that a merged recording contains few of them.
pub const QUANTUM: Span = Span::from_micros(1);

/// The most measurements kept for one host; above that, every second one is dropped.
const MOST_KNOTS: usize = 1 << 16;
/// The most events of one processor that are read ahead to find a send.
const MOST_AHEAD: usize = 1 << 16;
/// The most signals that have been sent and not yet received.
const MOST_SENT: usize = 1 << 16;

/// The lead of the reference's clock over a host's own clock, over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// Sorted by time.
    knots: Vec<Knot>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Knot {
    local: i128,
    offset: i128,
    error: u64,
}

impl Offsets {
    /// Adds a measurement: at `local` on the host's own clock, the reference's clock was ahead by `offset` nanoseconds,
    /// plus or minus `error`.
    pub fn add(&mut self, local: Instant, offset: i64, error: Span) {
        if self.knots.len() == MOST_KNOTS {
            let mut place = 0;
            self.knots.retain(|_| {
                place += 1;
                place % 2 == 1
            });
        }
        let knot = Knot { local: local.as_nanos().into(), offset: offset.into(), error: error.as_nanos() };
        self.knots.push(knot);
    }

    /// The same offsets from the other host's view: the lead of this host's clock, at times of the other host's clock.
    pub fn reversed(&self) -> Offsets {
        let reversed = |knot: &Knot| Knot { local: knot.local + knot.offset, offset: -knot.offset, error: knot.error };
        Offsets { knots: self.knots.iter().map(reversed).collect() }
    }

    /// True if there are no measurements.
    pub fn is_empty(&self) -> bool {
        self.knots.is_empty()
    }

    /// Prepares for queries: sorts by time, and makes the reference's time monotonic.
    pub fn settle(&mut self) {
        self.knots.sort_by_key(|knot| knot.local);
        self.knots.dedup_by_key(|knot| knot.local);
        let mut before = i128::MIN / 2;
        for knot in &mut self.knots {
            knot.offset = knot.offset.max(before - knot.local);
            before = knot.local + knot.offset;
        }
    }

    /// The offset at an instant of the host's own clock, and its error bound.
    fn at(&self, local: Instant) -> (i128, u64) {
        let local = i128::from(local.as_nanos());
        let after = self.knots.partition_point(|knot| knot.local <= local);
        match (after.checked_sub(1).map(|before| self.knots[before]), self.knots.get(after)) {
            (Some(before), Some(after)) => {
                let (part, whole) = (local - before.local, after.local - before.local);
                // Rounded down: the reference's time never decreases.
                let offset = before.offset + ((after.offset - before.offset) * part).div_euclid(whole);
                (offset, before.error.max(after.error))
            }
            (Some(only), None) => (only.offset, only.error),
            (None, Some(only)) => (only.offset, only.error),
            // Not measured: it may be anything.
            (None, None) => (0, LONGEST_SPAN.as_nanos()),
        }
    }
}

/// The identity of a signal in transit.
type Key = (OperationId, u16, u64);

fn sent(event: &TraceEvent) -> Option<Key> {
    match event {
        TraceEvent::Decision(DispatchDecision::Send(signal)) => Some(key(signal)),
        _ => None,
    }
}

fn key(signal: &Signal) -> Key {
    (signal.to, signal.position, signal.number)
}

/// The reason why recordings do not merge.
#[derive(Debug, PartialEq, Eq)]
pub enum Conflict<E> {
    /// One of them cannot be read, or the merged one cannot be written.
    Failed(E),
    /// The order of their signals contradicts all possible clocks.
    Order {
        /// The signal that would be received before it was sent.
        from: OperationId,
        /// The triggered operation.
        to: OperationId,
        /// The time of receipt.
        at: Instant,
    },
}

/// The events of one processor.
pub struct EventStream<S> {
    source: S,
    /// Of its host; `None` for the reference.
    offsets: Option<Offsets>,
    ahead: VecDeque<(Instant, TraceEvent)>,
    /// Sends among the events read ahead, by the number of events read before them.
    sendings: HashMap<Key, u64>,
    read: u64,
    over: bool,
    /// The last offset handed out, and its error bound; none yet.
    shift: Option<(i128, u64)>,
    last: Instant,
    pulled: bool,
}

impl<S> EventStream<S> {
    /// The events that `source` returns one by one, of a host with these offsets; `None` for the reference.
    pub fn new(source: S, offsets: Option<Offsets>) -> Self {
        EventStream {
            source,
            offsets,
            ahead: VecDeque::new(),
            sendings: HashMap::new(),
            read: 0,
            over: false,
            shift: None,
            last: Instant::ZERO,
            pulled: false,
        }
    }

    /// The time of an instant on the reference's clock, before correction by signals.
    fn natural(&self, local: Instant) -> Instant {
        let shifted = self.offsets.as_ref().map_or(0, |offsets| offsets.at(local).0) + i128::from(local.as_nanos());
        Instant::from_nanos(u64::try_from(shifted.max(0)).unwrap_or(u64::MAX - 1)).max(self.last)
    }
}

/// Merges streams into one order. `of` finds the stream of an operation's processor. `out` receives the events one by
/// one: the stream, the time on the reference's clock, the time on the host's own clock, and the event. If a stream's
/// offset changes, a [`CpuEvent::Clock`] with the host `reference` precedes the event. Measured offsets are not output.
pub struct Merge<S, F, O> {
    streams: Vec<EventStream<S>>,
    reference: HostId,
    of: F,
    out: O,
    /// The next event of the other streams: none before it is output later.
    next: Instant,
    /// Sending times of signals not yet received.
    sent: HashMap<Key, Instant>,
    order: VecDeque<Key>,
}

/// An event of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The stream.
    pub stream: usize,
    /// The time on the reference's clock.
    pub at: Instant,
    /// The time on its host's clock.
    pub local: Instant,
    /// The event.
    pub event: TraceEvent,
}

impl<S, F, O, E> Merge<S, F, O>
where
    S: FnMut() -> Result<Option<(Instant, TraceEvent)>, E>,
    F: Fn(OperationId) -> Option<usize>,
    O: FnMut(Merged) -> Result<(), E>,
{
    /// Creates a merge.
    pub fn new(streams: Vec<EventStream<S>>, reference: HostId, of: F, out: O) -> Self {
        Merge { streams, reference, of, out, next: Instant::NEVER, sent: HashMap::new(), order: VecDeque::new() }
    }

    /// Merges all events.
    pub fn run(mut self) -> Result<(), Conflict<E>> {
        loop {
            let (mut first, mut second) = (None, Instant::NEVER);
            for index in 0..self.streams.len() {
                self.read_ahead(index, 1)?;
                let stream = &self.streams[index];
                let Some((local, _)) = stream.ahead.front() else { continue };
                let head = (stream.natural(*local), index);
                let (least, later) = first.map_or((head, Instant::NEVER), |first| (head.min(first), head.max(first).0));
                (first, second) = (Some(least), second.min(later));
            }
            let Some((_, index)) = first else { return Ok(()) };
            self.next = second;
            self.emit(index, None)?;
        }
    }

    /// Reads until `events` are there, or until the end.
    fn read_ahead(&mut self, index: usize, events: usize) -> Result<(), Conflict<E>> {
        let stream = &mut self.streams[index];
        while !stream.over && stream.ahead.len() < events {
            match (stream.source)().map_err(Conflict::Failed)? {
                Some((_, TraceEvent::Cpu(CpuEvent::Clock { .. }))) => {}
                Some((local, event)) => {
                    if let Some(key) = sent(&event) {
                        stream.sendings.insert(key, stream.read);
                    }
                    stream.read += 1;
                    stream.ahead.push_back((local, event));
                }
                None => stream.over = true,
            }
        }
        Ok(())
    }

    /// Outputs the next event of a stream, no later than `cap`.
    fn emit(&mut self, index: usize, cap: Option<Instant>) -> Result<(), Conflict<E>> {
        self.read_ahead(index, 1)?;
        let Some((local, event)) = self.streams[index].ahead.front().copied() else { return Ok(()) };
        let natural = self.streams[index].natural(local);
        let natural = cap.map_or(natural, |cap| natural.min(cap).max(self.streams[index].last));
        let fixed = self.streams[index].offsets.is_none();
        let mut least = self.streams[index].last;
        let signal = match event {
            TraceEvent::Input(input) => input.arrival().copied(),
            _ => None,
        };
        if let Some(signal) = signal {
            let by = if fixed { Some(natural) } else { cap };
            self.send_first(index, &signal, by)?;
            if let Some(sent) = self.sent.remove(&key(&signal)) {
                least = least.max(sent);
            }
        }
        let at = natural.max(least);
        if (fixed && at > natural) || cap.is_some_and(|cap| at > cap) {
            let (from, to) = signal.map_or((OperationId(0), OperationId(0)), |signal| (signal.from, signal.to));
            return Err(Conflict::Order { from, to, at: natural });
        }
        let stream = &mut self.streams[index];
        stream.ahead.pop_front();
        let shift = |at: Instant| i128::from(at.as_nanos()) - i128::from(local.as_nanos());
        let error = stream.offsets.as_ref().map(|offsets| offsets.at(local).1);
        let (shifted, known) = stream.shift.unwrap_or_default();
        let as_before = i128::from(local.as_nanos()) + shifted;
        let most = i128::from(cap.unwrap_or(self.next).as_nanos());
        let near = (as_before - i128::from(at.as_nanos())).unsigned_abs() <= u128::from(QUANTUM.as_nanos());
        // The first event of a host has the source of its clock's offset.
        let known = error.is_none_or(|error| stream.shift.is_some() && error <= known);
        let at = if known && near && as_before >= i128::from(least.as_nanos()) && as_before <= most {
            Instant::from_nanos(as_before as u64)
        } else {
            let error = Span::from_nanos(error.unwrap_or(0).saturating_add(QUANTUM.as_nanos())).min(LONGEST_SPAN);
            stream.shift = Some((shift(at), error.as_nanos()));
            let offset = i64::try_from(shift(at)).unwrap_or(i64::MAX);
            let clock = CpuEvent::Clock { host: self.reference, offset, error };
            (self.out)(Merged { stream: index, at, local, event: TraceEvent::Cpu(clock) }).map_err(Conflict::Failed)?;
            at
        };
        self.streams[index].last = at;
        if let Some(key) = sent(&event) {
            self.streams[index].sendings.remove(&key);
            self.remember(key, at);
        }
        (self.out)(Merged { stream: index, at, local, event }).map_err(Conflict::Failed)
    }

    /// Outputs the events up to the sending of a signal, if it has not been output yet.
    fn send_first(&mut self, index: usize, signal: &Signal, cap: Option<Instant>) -> Result<(), Conflict<E>> {
        let key = key(signal);
        let Some(sender) = (self.of)(signal.from).filter(|sender| *sender != index) else { return Ok(()) };
        if self.sent.contains_key(&key) {
            return Ok(());
        }
        let mut wanted = 64;
        while !self.streams[sender].sendings.contains_key(&key) && !self.streams[sender].over && wanted <= MOST_AHEAD {
            self.read_ahead(sender, wanted)?;
            wanted *= 2;
        }
        let stream = &mut self.streams[sender];
        let Some(place) = stream.sendings.get(&key).copied() else { return Ok(()) };
        let at = cap.unwrap_or(stream.last);
        if std::mem::replace(&mut stream.pulled, true) {
            return Err(Conflict::Order { from: signal.from, to: signal.to, at });
        }
        let cap = cap.filter(|_| stream.offsets.is_some());
        let until = place + 1;
        while self.streams[sender].read - (self.streams[sender].ahead.len() as u64) < until {
            self.emit(sender, cap)?;
        }
        self.streams[sender].pulled = false;
        Ok(())
    }

    fn remember(&mut self, key: Key, at: Instant) {
        if self.order.len() == MOST_SENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.sent.remove(&oldest);
        }
        self.order.push_back(key);
        self.sent.insert(key, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Input;
    use proptest::prelude::*;

    const NANOS: i128 = 1_000_000_000;

    fn signal(number: u64, from: usize, to: usize) -> Signal {
        let operation = |host: usize| OperationId(host as u32);
        Signal {
            from: operation(from),
            to: operation(to),
            position: 0,
            number,
            origin: Instant::ZERO,
            period: Span::ZERO,
            due: Instant::ZERO,
            ticket: None,
        }
    }

    /// A host's clock: its reading as a function of true time.
    #[derive(Clone, Copy, Debug)]
    struct Clock {
        ahead: i128,
        drift_ppm: i128,
    }

    impl Clock {
        fn local(self, at: i128) -> i128 {
            at + self.ahead + at * self.drift_ppm / 1_000_000
        }
    }

    /// Signals between hosts, `(true time, from, to, delay)`, by the clocks of the hosts; the first host's is true.
    fn streams(clocks: &[Clock], signals: &[(u32, usize, usize, u32)]) -> Vec<Vec<(i128, Instant, TraceEvent)>> {
        let mut streams = vec![Vec::new(); clocks.len()];
        for (number, (at, from, to, delay)) in signals.iter().enumerate() {
            let (from, to) = (from % clocks.len(), to % clocks.len());
            let (sent, received) = (NANOS + i128::from(*at), NANOS + i128::from(*at) + i128::from(*delay));
            let signal = signal(number as u64, from, to);
            let local = |host: usize, at| Instant::from_nanos(clocks[host].local(at) as u64);
            streams[from].push((sent, local(from, sent), TraceEvent::Decision(DispatchDecision::Send(signal))));
            if from != to {
                streams[to].push((received, local(to, received), TraceEvent::Input(Input::Signal(signal))));
            }
        }
        streams.iter_mut().for_each(|stream| stream.sort_by_key(|(at, ..)| *at));
        streams
    }

    fn offsets(clock: Clock, error: i128, noise: &[i16]) -> Offsets {
        let mut offsets = Offsets::default();
        for (place, noise) in (0..).zip(noise) {
            let at = NANOS / 2 + place * NANOS / 20;
            let local = clock.local(at);
            let wrong = error * i128::from(*noise) / 32_768;
            offsets.add(Instant::from_nanos(local as u64), (at - local + wrong) as i64, Span::from_nanos(error as u64));
        }
        offsets.settle();
        offsets
    }

    fn merged(streams: &[Vec<(i128, Instant, TraceEvent)>], all: Vec<Option<Offsets>>) -> Vec<Merged> {
        let mut merged = Vec::new();
        let sources = streams.iter().zip(all).map(|(stream, offsets)| {
            let mut events = stream.iter().map(|(_, local, event)| (*local, *event));
            EventStream::new(move || Ok::<_, ()>(events.next()), offsets)
        });
        let of = |operation: OperationId| Some(operation.index());
        let sources: Vec<_> = sources.collect();
        let merge = Merge::new(sources, HostId(0), of, |one| {
            merged.push(one);
            Ok(())
        });
        merge.run().expect("the true clocks explain it");
        merged
    }

    fn clocks() -> impl Strategy<Value = Vec<Clock>> {
        let clock = (-50_000_000i64..50_000_000, -200i64..200)
            .prop_map(|(ahead, drift)| Clock { ahead: ahead.into(), drift_ppm: drift.into() });
        prop::collection::vec(clock, 1..4).prop_map(|others| {
            let mut clocks = vec![Clock { ahead: 0, drift_ppm: 0 }];
            clocks.extend(others);
            clocks
        })
    }

    fn signals() -> impl Strategy<Value = Vec<(u32, usize, usize, u32)>> {
        prop::collection::vec((0u32..500_000_000, 0usize..4, 0usize..4, 0u32..400_000), 0..120)
    }

    proptest! {
        #[test]
        fn merged_time_never_decreases_shows_no_receipt_before_sending_and_is_within_the_error(
            clocks in clocks(), signals in signals(), error in 0i64..5_000_000, noise in prop::collection::vec(any::<i16>(), 24),
        ) {
            let streams = streams(&clocks, &signals);
            let mut all = vec![None];
            all.extend(clocks[1..].iter().map(|clock| Some(offsets(*clock, error.into(), &noise))));
            let merged = merged(&streams, all);
            let mut sent = HashMap::new();
            for (index, stream) in streams.iter().enumerate() {
                let own = merged.iter().filter(|one| one.stream == index);
                let own: Vec<_> = own.filter(|one| !matches!(one.event, TraceEvent::Cpu(_))).collect();
                prop_assert!(own.is_sorted_by_key(|one| one.at));
                prop_assert_eq!(own.len(), stream.len());
                for (one, (truth, local, event)) in own.iter().zip(stream) {
                    prop_assert_eq!((one.local, one.event), (*local, *event));
                    let wrong = (i128::from(one.at.as_nanos()) - truth).abs();
                    // Rounding of the drift to whole nanoseconds.
                    prop_assert!(wrong <= i128::from(error) + i128::from(QUANTUM.as_nanos()) + 4, "{wrong} of {error}");
                    if let Some(key) = super::sent(event) {
                        sent.insert(key, one.at);
                    }
                }
            }
            for one in &merged {
                if let TraceEvent::Input(Input::Signal(signal)) = one.event {
                    prop_assert!(sent[&key(&signal)] <= one.at);
                }
            }
            // In the order of output, too.
            let place = |wanted: &TraceEvent| merged.iter().position(|one| one.event == *wanted);
            for one in &merged {
                if let TraceEvent::Input(Input::Signal(signal)) = one.event {
                    prop_assert!(place(&TraceEvent::Decision(DispatchDecision::Send(signal))) < place(&one.event));
                }
            }
        }

        #[test]
        fn clocks_that_agree_leave_everything_as_it_is(signals in signals(), hosts in 2usize..4) {
            let clocks = vec![Clock { ahead: 0, drift_ppm: 0 }; hosts];
            let streams = streams(&clocks, &signals);
            let mut all = vec![None];
            all.extend(clocks[1..].iter().map(|clock| Some(offsets(*clock, 1_000, &[0; 24]))));
            let mut stated = vec![0; hosts];
            for one in merged(&streams, all) {
                prop_assert_eq!(one.at, one.local);
                if let TraceEvent::Cpu(seen) = one.event {
                    let error = Span::from_micros(1) + QUANTUM;
                    prop_assert_eq!(seen, CpuEvent::Clock { host: HostId(0), offset: 0, error });
                    stated[one.stream] += 1;
                }
            }
            prop_assert!(stated[0] == 0 && stated.iter().all(|stated| *stated <= 1), "the error is stated once");
        }

        #[test]
        fn the_reference_time_of_offsets_never_decreases(
            knots in prop::collection::vec((any::<u32>(), any::<i32>()), 0..40), asked in prop::collection::vec(any::<u32>(), 2..40),
        ) {
            let mut offsets = Offsets::default();
            knots.iter().for_each(|(at, offset)| offsets.add(Instant::from_nanos(u64::from(*at)), (*offset).into(), Span::ZERO));
            offsets.settle();
            let mut asked = asked;
            asked.sort_unstable();
            let times = asked.iter().map(|at| i128::from(*at) + offsets.at(Instant::from_nanos(u64::from(*at))).0);
            prop_assert!(times.is_sorted());
        }
    }

    #[test]
    fn an_event_that_keeps_its_shift_comes_before_what_follows_on_other_hosts() {
        // Within the quantum, an event keeps the shift of the one before, here 800 ns. But the signal is received 300 ns
        // after it was sent.
        let mut clock = Offsets::default();
        clock.add(Instant::from_nanos(1_000_000), 800, Span::from_micros(50));
        clock.add(Instant::from_nanos(2_000_000), 0, Span::from_micros(50));
        clock.settle();
        let signal = signal(0, 1, 0);
        let at = Instant::from_nanos;
        let reference = vec![(0, at(2_000_300), TraceEvent::Input(Input::Signal(signal)))];
        let other = vec![
            (0, at(1_000_000), TraceEvent::Input(Input::Tick)),
            (0, at(2_000_000), TraceEvent::Input(Input::Tick)),
            (0, at(2_000_000), TraceEvent::Decision(DispatchDecision::Send(signal))),
        ];
        let merged = merged(&[reference, other], vec![None, Some(clock)]);
        let events: Vec<_> = merged.iter().filter(|one| !matches!(one.event, TraceEvent::Cpu(_))).collect();
        assert_eq!(events.iter().map(|one| one.stream).collect::<Vec<_>>(), [1, 1, 1, 0]);
        assert!(events.is_sorted_by_key(|one| one.at), "{events:?}");
    }

    #[test]
    fn signals_that_no_clock_explains_are_a_conflict() {
        // Each is received before the other host sends the next one, in a circle.
        let [one, two] = [signal(1, 0, 1), signal(2, 1, 0)];
        let at = Instant::from_nanos;
        let first = vec![
            (at(5), TraceEvent::Input(Input::Signal(two))),
            (at(6), TraceEvent::Decision(DispatchDecision::Send(one))),
        ];
        let second = vec![
            (at(5), TraceEvent::Input(Input::Signal(one))),
            (at(6), TraceEvent::Decision(DispatchDecision::Send(two))),
        ];
        let source = |events: Vec<(Instant, TraceEvent)>| {
            let mut events = events.into_iter();
            move || Ok::<_, ()>(events.next())
        };
        let streams =
            vec![EventStream::new(source(first), None), EventStream::new(source(second), Some(Offsets::default()))];
        let merge = Merge::new(streams, HostId(0), |operation| Some(operation.index()), |_| Ok(()));
        assert!(matches!(merge.run(), Err(Conflict::Order { .. })));
    }
}
