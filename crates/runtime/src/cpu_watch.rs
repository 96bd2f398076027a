//! Watches the CPUs of a run: merges the kernel's context switches into the events of the dispatchers.
//!
//! It runs on the polling thread, below the lanes. Memory between two polls is bounded. Records that the kernel's ring
//! lost are counted, and reported as a gap.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_model::{Instant, Span};
use hyoshi_os::switches::{SwitchSource, SwitchVisibility, Switched, sees_every_thread, thread_name};
use hyoshi_os::{BlockedOn, Clock, MonotonicClock};
use hyoshi_trace::recording::MOST_NAMES;
use hyoshi_trace::{CpuEvent, CpuUser, RingDrain, TraceEvent};

/// The delay of observations, so that earlier events of the dispatcher precede them: a section may be preempted between
/// reading the clock and recording.
const HOLD: Span = Span::from_millis(20);

/// The most pending observations of a processor. Further switches are lost and reported as a gap.
const MOST_PENDING: usize = 1 << 16;

/// The departure of a thread and the arrival of the next within this time are one switch.
const ONE_SWITCH: Span = Span::from_micros(20);

/// The age at which a thread's name is read again: its number may be reused.
const FRESH: Span = Span::from_secs(1);

/// The most threads with stored names.
const MOST_REMEMBERED: usize = 4_096;

/// The names of threads outside the run, by the numbers of [`CpuUser::Other`]. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ThreadNames(Arc<Mutex<Vec<String>>>);

impl ThreadNames {
    /// The names from number `first` on.
    pub fn since(&self, first: usize) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(first..).unwrap_or_default().to_vec()
    }

    /// Adds a name. Returns its number.
    fn push(&self, name: &str) -> u32 {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() < MOST_NAMES {
            let last = names.len() == MOST_NAMES - 1;
            names.push(if last { "others" } else { name }.to_owned());
        }
        names.len() as u32 - 1
    }
}

/// Numbers the names of other threads.
#[derive(Debug, Default)]
struct OtherThreads {
    names: ThreadNames,
    numbers: HashMap<String, u32>,
    /// By thread: its number, and the time at which its name was read.
    threads: HashMap<u32, (u32, Instant)>,
}

impl OtherThreads {
    fn user_of(&mut self, tid: u32, now: Instant, ask: impl FnOnce(u32) -> Option<String>) -> CpuUser {
        if let Some((number, asked)) = self.threads.get(&tid)
            && now.since(*asked) < FRESH
        {
            return CpuUser::Other(*number);
        }
        let name = ask(tid).unwrap_or_else(|| "(ended)".to_owned());
        let number = match self.numbers.get(&name) {
            Some(number) => *number,
            None => {
                let number = self.names.push(&name);
                // Beyond the limit of a recording, all threads share the last name.
                if self.numbers.len() < MOST_NAMES {
                    self.numbers.insert(name, number);
                }
                number
            }
        };
        if self.threads.len() >= MOST_REMEMBERED {
            self.threads.clear();
        }
        self.threads.insert(tid, (number, now));
        CpuUser::Other(number)
    }
}

/// Observations of one processor's CPU that are not delivered yet.
#[derive(Debug, Default)]
pub(crate) struct PendingCpuEvents {
    /// The processor's own threads.
    own: HashMap<u32, CpuUser>,
    seen: VecDeque<(Instant, CpuEvent)>,
    has: Option<CpuUser>,
}

impl PendingCpuEvents {
    /// Registers a thread of this processor.
    pub fn add_own_thread(&mut self, tid: u32, who: CpuUser) {
        self.own.insert(tid, who);
    }

    /// Delivers the observations until `at`.
    #[inline]
    pub fn until(&mut self, at: Instant, each: &mut impl FnMut(Instant, CpuEvent)) {
        while let Some((seen_at, seen)) = self.seen.front().copied().filter(|(seen_at, _)| *seen_at <= at) {
            self.seen.pop_front();
            each(seen_at, seen);
        }
    }

    /// Adds an observation, which may be older than others.
    pub fn insert(&mut self, at: Instant, seen: CpuEvent) {
        let place = self.seen.partition_point(|(before, _)| *before <= at);
        self.seen.insert(place, (at, seen));
    }

    /// Drops the latest switches beyond the limit. Returns their number. Other observations stay.
    fn drop_excess(&mut self) -> u64 {
        if self.seen.len() <= MOST_PENDING {
            return 0;
        }
        let beyond = self.seen.split_off(MOST_PENDING / 2);
        let is_switch = |seen: &CpuEvent| matches!(seen, CpuEvent::Switch { .. } | CpuEvent::Waits(_) | CpuEvent::Gap);
        let Some((at, _)) = beyond.iter().find(|(_, seen)| is_switch(seen)).copied() else {
            self.seen.extend(beyond);
            return 0;
        };
        let switches = beyond.iter().filter(|(_, seen)| is_switch(seen)).count();
        self.gap(at);
        beyond.into_iter().filter(|(_, seen)| !is_switch(seen)).for_each(|(at, seen)| self.insert(at, seen));
        switches as u64
    }

    fn switched(&mut self, at: Instant, to: CpuUser, preempted: bool) {
        if let Some((before, CpuEvent::Switch { to: last, preempted: went })) = self.seen.back_mut() {
            // Before the run begins, only the latest switch matters.
            let started = *before == Instant::ZERO && at == Instant::ZERO;
            let gone = *last == CpuUser::Unknown && at.since(*before) <= ONE_SWITCH;
            if started || gone {
                (*last, self.has) = (to, Some(to));
                *went &= gone;
                return;
            }
        }
        if self.has.replace(to) == Some(to) && !matches!(to, CpuUser::Lane(_)) {
            return;
        }
        self.seen.push_back((at, CpuEvent::Switch { to, preempted }));
    }

    /// The current thread will block. Only this processor's own threads, which have jobs, are recorded.
    fn waits(&mut self, at: Instant, wait: BlockedOn) {
        let own = matches!(self.has, Some(CpuUser::Lane(_) | CpuUser::Below));
        if own && at > Instant::ZERO {
            let wait = match wait {
                BlockedOn::Sleep => hyoshi_trace::Wait::Sleep,
                BlockedOn::Lock => hyoshi_trace::Wait::Lock,
                BlockedOn::Page => hyoshi_trace::Wait::Page,
                BlockedOn::Io => hyoshi_trace::Wait::Io,
            };
            self.seen.push_back((at, CpuEvent::Waits(wait)));
        }
    }

    fn gap(&mut self, at: Instant) {
        self.has = None;
        self.seen.push_back((at, CpuEvent::Gap));
    }
}

/// The source of one CPU's switches.
#[derive(Debug)]
pub(crate) struct WatchedCpu {
    pub cpu: u32,
    pub source: Box<dyn SwitchSource>,
}

/// Watches the CPUs of a run.
#[derive(Debug)]
pub(crate) struct CpuWatch {
    watched: Vec<WatchedCpu>,
    others: OtherThreads,
    /// Thread 0 is certainly the idle thread.
    sees_all: bool,
    lost: u64,
}

impl CpuWatch {
    pub fn new(watched: Vec<WatchedCpu>) -> Self {
        CpuWatch { watched, others: OtherThreads::default(), sees_all: sees_every_thread(), lost: 0 }
    }

    pub fn names(&self) -> ThreadNames {
        self.others.names.clone()
    }

    /// Records lost in the kernel's rings or dropped here.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Counts dropped switches.
    pub fn count_lost(&mut self, switches: u64) {
        self.lost = self.lost.saturating_add(switches);
    }

    /// The visibility of a CPU's switches.
    pub fn visibility(&self, cpu: u32) -> SwitchVisibility {
        let watched = self.watched.iter().find(|watched| watched.cpu == cpu);
        watched.map_or(SwitchVisibility::Nothing, |watched| watched.source.visibility())
    }

    /// Reads the kernel's records since the last call. `parts` are the processors' CPUs with their pending
    /// observations.
    pub fn sample(&mut self, clock: &MonotonicClock, parts: &mut [(u32, &mut PendingCpuEvents)]) {
        let CpuWatch { watched, others, sees_all, lost } = self;
        let now = clock.now();
        for WatchedCpu { cpu, source } in watched {
            source.drain(&mut |nanos, switched| {
                let at = clock.instant_of(nanos);
                for (_, pending) in parts.iter_mut().filter(|(of, _)| of == cpu) {
                    match switched {
                        Switched::To { tid, preempted } => {
                            let to = match pending.own.get(&tid) {
                                Some(who) => *who,
                                None if tid == 0 && *sees_all => CpuUser::Idle,
                                None if tid == 0 => CpuUser::Unknown,
                                None => others.user_of(tid, now, thread_name),
                            };
                            pending.switched(at, to, preempted);
                        }
                        Switched::From { preempted, .. } => pending.switched(at, CpuUser::Unknown, preempted),
                        Switched::Waits(wait) => pending.waits(at, wait),
                        Switched::Lost(_) => pending.gap(at),
                    }
                }
                if let Switched::Lost(records) = switched {
                    *lost = lost.saturating_add(records);
                }
            });
        }
    }
}

/// The time until which observations can be delivered at `now`: no earlier event of a dispatcher will follow.
pub(crate) fn settled(now: Instant) -> Instant {
    now.saturating_sub(HOLD)
}

/// Delivers a dispatcher's events until `events_until` and the observations until `settled`, in the order of time.
/// Returns the number of events and of dropped switches.
pub(crate) fn merge(
    drain: &mut RingDrain,
    pending: &mut PendingCpuEvents,
    events_until: Instant,
    settled: Instant,
    mut each: impl FnMut(Instant, TraceEvent),
) -> (usize, u64) {
    let mut events = 0;
    let mut each = |at, event| {
        events += 1;
        each(at, event);
    };
    drain.drain_until(events_until, |now, event| {
        pending.until(now, &mut |at, seen| each(at, TraceEvent::Cpu(seen)));
        each(now, event);
    });
    pending.until(settled, &mut |at, seen| each(at, TraceEvent::Cpu(seen)));
    (events, pending.drop_excess())
}

#[cfg(test)]
mod tests {
    use hyoshi_os::fake::FakeSwitches;
    use hyoshi_trace::Probe;

    use super::*;

    const CLOCK: MonotonicClock = MonotonicClock::from_origin(1_000);

    /// The observations of a processor with lane 0 in thread 10 and lane 1 in thread 11.
    fn observations(visibility: SwitchVisibility, switches: &[(u64, Switched)]) -> Vec<(u64, CpuEvent)> {
        let mut source = FakeSwitches::new(visibility);
        switches.iter().for_each(|(at, switched)| source.push(*at, *switched));
        let mut cpu_watch = CpuWatch::new(vec![WatchedCpu { cpu: 3, source: Box::new(source) }]);
        cpu_watch.sees_all = true;
        let (mut pending, mut elsewhere) = (PendingCpuEvents::default(), PendingCpuEvents::default());
        pending.add_own_thread(10, CpuUser::Lane(0));
        pending.add_own_thread(11, CpuUser::Lane(1));
        cpu_watch.sample(&CLOCK, &mut [(3, &mut pending), (4, &mut elsewhere)]);
        assert!(elsewhere.seen.is_empty());
        let mut seen = Vec::new();
        pending.until(Instant::NEVER, &mut |at, what| seen.push((at.as_nanos(), what)));
        seen
    }

    fn to(who: CpuUser, preempted: bool) -> CpuEvent {
        CpuEvent::Switch { to: who, preempted }
    }

    #[test]
    fn every_switch_of_a_cpu_names_the_thread_that_gets_it() {
        let switch = |at, tid, preempted| (at, Switched::To { tid, preempted });
        // 4294967295 is not a thread: it has no name.
        let switches = [
            switch(2_000, 10, false),
            switch(2_500, u32::MAX, true),
            switch(2_600, 0, false),
            switch(2_700, 11, false),
        ];
        let seen = observations(SwitchVisibility::Everything, &switches);
        let expected = [
            (1_000, to(CpuUser::Lane(0), false)),
            (1_500, to(CpuUser::Other(0), true)),
            (1_600, to(CpuUser::Idle, false)),
            (1_700, to(CpuUser::Lane(1), false)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn before_the_run_only_the_last_switch_counts() {
        let switch = |at, tid| (at, Switched::To { tid, preempted: false });
        let seen = observations(
            SwitchVisibility::Everything,
            &[switch(10, 10), switch(500, 0), switch(900, 11), switch(1_400, 0)],
        );
        assert_eq!(seen, [(0, to(CpuUser::Lane(1), false)), (400, to(CpuUser::Idle, false))]);
    }

    #[test]
    fn of_own_threads_a_going_and_a_coming_are_one_switch_if_they_are_close() {
        let from = |at, tid, preempted| (at, Switched::From { tid, preempted });
        let come = |at, tid| (at, Switched::To { tid, preempted: false });
        let switches =
            [come(2_000, 11), from(3_000, 11, true), come(4_000, 10), from(90_000, 10, false), come(190_000, 11)];
        let expected = [
            (1_000, to(CpuUser::Lane(1), false)),
            (2_000, to(CpuUser::Lane(0), true)),
            (89_000, to(CpuUser::Unknown, false)),
            (189_000, to(CpuUser::Lane(1), false)),
        ];
        assert_eq!(observations(SwitchVisibility::OwnThreads, &switches), expected);
    }

    #[test]
    fn records_that_the_kernel_lost_are_a_gap_and_the_next_switch_is_reported() {
        let switch = |at| (at, Switched::To { tid: 0, preempted: false });
        let seen =
            observations(SwitchVisibility::Everything, &[switch(2_000), (3_000, Switched::Lost(7)), switch(4_000)]);
        let idle = to(CpuUser::Idle, false);
        assert_eq!(seen, [(1_000, idle), (2_000, CpuEvent::Gap), (3_000, idle)]);
    }

    #[test]
    fn a_thread_is_asked_for_its_name_once_in_a_while_and_equal_names_share_a_number() {
        let mut others = OtherThreads::default();
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        let named = |name: &'static str| move |_| Some(name.to_owned());
        assert_eq!(others.user_of(7, at(0), named("cc1")), CpuUser::Other(0));
        assert_eq!(others.user_of(7, at(0), |_| panic!("asked again")), CpuUser::Other(0));
        assert_eq!(others.user_of(8, at(0), named("cc1")), CpuUser::Other(0));
        assert_eq!(others.user_of(7, at(2), named("kworker/1:2")), CpuUser::Other(1));
        assert_eq!(others.user_of(9, at(2), |_| None), CpuUser::Other(2));
        assert_eq!(others.names.since(1), ["kworker/1:2", "(ended)"]);
    }

    #[test]
    fn a_late_observation_is_inserted_in_order() {
        let mut pending = PendingCpuEvents::default();
        pending.switched(Instant::from_nanos(5), CpuUser::Idle, false);
        pending.switched(Instant::from_nanos(9), CpuUser::Lane(0), false);
        pending.insert(Instant::from_nanos(7), CpuEvent::Gap);
        let mut times = Vec::new();
        pending.until(Instant::from_nanos(8), &mut |at, _| times.push(at.as_nanos()));
        assert_eq!((times, pending.seen.len()), (vec![5, 7], 1));
    }

    /// The order of delivery of two polls. A dispatcher's events are at the instants `events_at`, the last one after
    /// the first poll; switches happen between them.
    fn delivered(switches: std::ops::Range<u64>, events_at: [u64; 3], until: u64) -> (Vec<u64>, u64) {
        let (mut probe, mut drain) = hyoshi_trace::ring::ring(16);
        let mut record = |at| probe.event(Instant::from_nanos(at), TraceEvent::Input(hyoshi_trace::Input::Tick));
        let (mut pending, mut times, mut lost) = (PendingCpuEvents::default(), Vec::new(), 0);
        for at in switches {
            let who = if at % 2 == 0 { CpuUser::Idle } else { CpuUser::Lane(0) };
            pending.switched(Instant::from_nanos(at), who, false);
        }
        record(events_at[0]);
        record(events_at[1]);
        let mut poll = |until| {
            let until = Instant::from_nanos(until);
            let each = |at: Instant, _| times.push(at.as_nanos());
            lost += merge(&mut drain, &mut pending, until, settled(until), each).1;
        };
        poll(until);
        record(events_at[2]);
        poll(u64::MAX);
        (times, lost)
    }

    #[test]
    fn what_is_delivered_is_in_the_order_of_time_however_much_waits() {
        let hold = HOLD.as_nanos();
        let (few, many) = (hold..hold + 1_000, hold..hold + 3 * MOST_PENDING as u64);
        for (switches, gives_up) in [(few, false), (many, true)] {
            let last = switches.end;
            // The dispatcher reports an event that is older than the last switches.
            let (times, lost) = delivered(switches.clone(), [hold / 2, hold + 10, hold + 500], last);
            assert!(times.is_sorted(), "{:?}", times.windows(2).find(|pair| pair[0] > pair[1]));
            assert_eq!(lost > 0, gives_up);
            assert_eq!(times.len() as u64 + lost, switches.count() as u64 + 3 + u64::from(gives_up));
        }
        // The dispatcher's future events wait for the switches before them.
        let (times, _) = delivered(0..100, [10, 200, 300], 150);
        assert!(times.is_sorted());
        assert_eq!(times.len(), 103);
    }
}
