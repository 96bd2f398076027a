//! Who has the CPUs: the kernel's switches, merged into what the dispatchers are told and decide.
//!
//! Everything here happens on the thread that polls, below the lanes. What is kept between two
//! polls is bounded; what the kernel's ring lost is told as a gap, and counted.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_model::{Instant, Span};
use hyoshi_os::switches::{SwitchSource, SwitchVisibility, Switched, sees_every_thread, thread_name};
use hyoshi_os::{BlockedOn, Clock, MonotonicClock};
use hyoshi_trace::recording::MOST_NAMES;
use hyoshi_trace::{Event, RingDrain, Seen, Who};

/// What is seen waits so long for what the dispatcher was told before it: a section may be preempted
/// between reading the clock and telling.
const HOLD: Span = Span::from_millis(20);

/// What one processor holds back at most: switches beyond it are lost, and a gap says so.
const MOST_PENDING: usize = 1 << 16;

/// A thread that is seen to go, and one that is seen to come so soon, are one switch.
const ONE_SWITCH: Span = Span::from_micros(20);

/// A thread's name is asked again after so long: its number may be another's by then.
const FRESH: Span = Span::from_secs(1);

/// Threads whose names are remembered.
const MOST_REMEMBERED: usize = 4_096;

/// The names of threads that are none of ours, by the numbers of [`Who::Other`]. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Names(Arc<Mutex<Vec<String>>>);

impl Names {
    /// Those from number `first` on.
    pub fn since(&self, first: usize) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(first..).unwrap_or_default().to_vec()
    }

    /// The number of a new name.
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
struct Others {
    names: Names,
    numbers: HashMap<String, u32>,
    /// By thread: its number, and when its name was asked.
    threads: HashMap<u32, (u32, Instant)>,
}

impl Others {
    fn who(&mut self, tid: u32, now: Instant, ask: impl FnOnce(u32) -> Option<String>) -> Who {
        if let Some((number, asked)) = self.threads.get(&tid)
            && now.since(*asked) < FRESH
        {
            return Who::Other(*number);
        }
        let name = ask(tid).unwrap_or_else(|| "(ended)".to_owned());
        let number = match self.numbers.get(&name) {
            Some(number) => *number,
            None => {
                let number = self.names.push(&name);
                // Beyond the most that a recording names all are the last one.
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
        Who::Other(number)
    }
}

/// What was seen of one processor's CPU and is not yet handed over.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// The processor's own threads.
    own: HashMap<u32, Who>,
    seen: VecDeque<(Instant, Seen)>,
    has: Option<Who>,
}

impl Pending {
    /// `who` is a thread of this processor.
    pub fn know(&mut self, tid: u32, who: Who) {
        self.own.insert(tid, who);
    }

    /// Hands over what was seen until `at`.
    #[inline]
    pub fn until(&mut self, at: Instant, each: &mut impl FnMut(Instant, Seen)) {
        while let Some((seen_at, seen)) = self.seen.front().copied().filter(|(seen_at, _)| *seen_at <= at) {
            self.seen.pop_front();
            each(seen_at, seen);
        }
    }

    /// Something was seen at `at`, which may lie before what was seen already.
    pub fn tell(&mut self, at: Instant, seen: Seen) {
        let place = self.seen.partition_point(|(before, _)| *before <= at);
        self.seen.insert(place, (at, seen));
    }

    /// What was seen last, beyond what is kept: how many switches are given up. What is told in no order of
    /// its own, what was used and stolen, stays.
    fn give_up(&mut self) -> u64 {
        if self.seen.len() <= MOST_PENDING {
            return 0;
        }
        let beyond = self.seen.split_off(MOST_PENDING / 2);
        let is_switch = |seen: &Seen| matches!(seen, Seen::Switch { .. } | Seen::Waits(_) | Seen::Gap);
        let Some((at, _)) = beyond.iter().find(|(_, seen)| is_switch(seen)).copied() else {
            self.seen.extend(beyond);
            return 0;
        };
        let switches = beyond.iter().filter(|(_, seen)| is_switch(seen)).count();
        self.gap(at);
        beyond.into_iter().filter(|(_, seen)| !is_switch(seen)).for_each(|(at, seen)| self.tell(at, seen));
        switches as u64
    }

    fn switched(&mut self, at: Instant, to: Who, preempted: bool) {
        if let Some((before, Seen::Switch { to: last, preempted: went })) = self.seen.back_mut() {
            // Before the run began only who has the CPU at its begin matters.
            let started = *before == Instant::ZERO && at == Instant::ZERO;
            let gone = *last == Who::Unknown && at.since(*before) <= ONE_SWITCH;
            if started || gone {
                (*last, self.has) = (to, Some(to));
                *went &= gone;
                return;
            }
        }
        if self.has.replace(to) == Some(to) && !matches!(to, Who::Lane(_)) {
            return;
        }
        self.seen.push_back((at, Seen::Switch { to, preempted }));
    }

    /// The thread that has the CPU is about to wait. Only this processor's own threads, which have jobs, are reported.
    fn waits(&mut self, at: Instant, wait: BlockedOn) {
        let own = matches!(self.has, Some(Who::Lane(_) | Who::Below));
        if own && at > Instant::ZERO {
            let wait = match wait {
                BlockedOn::Sleep => hyoshi_trace::Wait::Sleep,
                BlockedOn::Lock => hyoshi_trace::Wait::Lock,
                BlockedOn::Page => hyoshi_trace::Wait::Page,
                BlockedOn::Io => hyoshi_trace::Wait::Io,
            };
            self.seen.push_back((at, Seen::Waits(wait)));
        }
    }

    fn gap(&mut self, at: Instant) {
        self.has = None;
        self.seen.push_back((at, Seen::Gap));
    }
}

/// Watches one CPU for the processors on it.
#[derive(Debug)]
pub(crate) struct Watched {
    pub cpu: u32,
    pub source: Box<dyn SwitchSource>,
}

/// Watches the CPUs of a run.
#[derive(Debug)]
pub(crate) struct Lookout {
    watched: Vec<Watched>,
    others: Others,
    /// Thread 0 is the idle one, for sure.
    sees_all: bool,
    lost: u64,
}

impl Lookout {
    pub fn new(watched: Vec<Watched>) -> Self {
        Lookout { watched, others: Others::default(), sees_all: sees_every_thread(), lost: 0 }
    }

    pub fn names(&self) -> Names {
        self.others.names.clone()
    }

    /// Records that did not fit into the kernel's rings, or were given up here.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// So many switches were given up.
    pub fn gave_up(&mut self, switches: u64) {
        self.lost = self.lost.saturating_add(switches);
    }

    /// What is seen of a CPU.
    pub fn visibility(&self, cpu: u32) -> SwitchVisibility {
        let watched = self.watched.iter().find(|watched| watched.cpu == cpu);
        watched.map_or(SwitchVisibility::Nothing, |watched| watched.source.visibility())
    }

    /// Takes what the kernel has told since the last time. `parts` are the processors' CPUs and
    /// what is pending of them.
    pub fn look(&mut self, clock: &MonotonicClock, parts: &mut [(u32, &mut Pending)]) {
        let Lookout { watched, others, sees_all, lost } = self;
        let now = clock.now();
        for Watched { cpu, source } in watched {
            source.drain(&mut |nanos, switched| {
                let at = clock.instant_of(nanos);
                for (_, pending) in parts.iter_mut().filter(|(of, _)| of == cpu) {
                    match switched {
                        Switched::To { tid, preempted } => {
                            let to = match pending.own.get(&tid) {
                                Some(who) => *who,
                                None if tid == 0 && *sees_all => Who::Idle,
                                None if tid == 0 => Who::Unknown,
                                None => others.who(tid, now, thread_name),
                            };
                            pending.switched(at, to, preempted);
                        }
                        Switched::From { preempted, .. } => pending.switched(at, Who::Unknown, preempted),
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

/// Until when what was seen can be handed over, at `now`: nothing that the dispatcher was told
/// earlier is still to come.
pub(crate) fn settled(now: Instant) -> Instant {
    now.saturating_sub(HOLD)
}

/// Hands over what a dispatcher told until `told`, and what was seen of its CPU until `settled`, in the order
/// of time: how many events those were, and how many switches had to be given up.
pub(crate) fn merge(
    drain: &mut RingDrain,
    pending: &mut Pending,
    told: Instant,
    settled: Instant,
    mut each: impl FnMut(Instant, Event),
) -> (usize, u64) {
    let mut events = 0;
    let mut each = |at, event| {
        events += 1;
        each(at, event);
    };
    drain.drain_until(told, |now, event| {
        pending.until(now, &mut |at, seen| each(at, Event::Seen(seen)));
        each(now, event);
    });
    pending.until(settled, &mut |at, seen| each(at, Event::Seen(seen)));
    (events, pending.give_up())
}

#[cfg(test)]
mod tests {
    use hyoshi_os::fake::FakeSwitches;
    use hyoshi_trace::Probe;

    use super::*;

    const CLOCK: MonotonicClock = MonotonicClock::from_origin(1_000);

    /// What one processor with lane 0 in thread 10 and lane 1 in thread 11 is told.
    fn told(visibility: SwitchVisibility, switches: &[(u64, Switched)]) -> Vec<(u64, Seen)> {
        let mut source = FakeSwitches::new(visibility);
        switches.iter().for_each(|(at, switched)| source.push(*at, *switched));
        let mut lookout = Lookout::new(vec![Watched { cpu: 3, source: Box::new(source) }]);
        lookout.sees_all = true;
        let (mut pending, mut elsewhere) = (Pending::default(), Pending::default());
        pending.know(10, Who::Lane(0));
        pending.know(11, Who::Lane(1));
        lookout.look(&CLOCK, &mut [(3, &mut pending), (4, &mut elsewhere)]);
        assert!(elsewhere.seen.is_empty());
        let mut seen = Vec::new();
        pending.until(Instant::NEVER, &mut |at, what| seen.push((at.as_nanos(), what)));
        seen
    }

    fn to(who: Who, preempted: bool) -> Seen {
        Seen::Switch { to: who, preempted }
    }

    #[test]
    fn every_switch_of_a_cpu_says_who_has_it() {
        let switch = |at, tid, preempted| (at, Switched::To { tid, preempted });
        // 4294967295 is no thread: its name cannot be had.
        let switches = [
            switch(2_000, 10, false),
            switch(2_500, u32::MAX, true),
            switch(2_600, 0, false),
            switch(2_700, 11, false),
        ];
        let seen = told(SwitchVisibility::Everything, &switches);
        let expected = [
            (1_000, to(Who::Lane(0), false)),
            (1_500, to(Who::Other(0), true)),
            (1_600, to(Who::Idle, false)),
            (1_700, to(Who::Lane(1), false)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn before_the_run_only_the_last_switch_counts() {
        let switch = |at, tid| (at, Switched::To { tid, preempted: false });
        let seen =
            told(SwitchVisibility::Everything, &[switch(10, 10), switch(500, 0), switch(900, 11), switch(1_400, 0)]);
        assert_eq!(seen, [(0, to(Who::Lane(1), false)), (400, to(Who::Idle, false))]);
    }

    #[test]
    fn of_own_threads_a_going_and_a_coming_are_one_switch_if_they_are_close() {
        let from = |at, tid, preempted| (at, Switched::From { tid, preempted });
        let come = |at, tid| (at, Switched::To { tid, preempted: false });
        let switches =
            [come(2_000, 11), from(3_000, 11, true), come(4_000, 10), from(90_000, 10, false), come(190_000, 11)];
        let expected = [
            (1_000, to(Who::Lane(1), false)),
            (2_000, to(Who::Lane(0), true)),
            (89_000, to(Who::Unknown, false)),
            (189_000, to(Who::Lane(1), false)),
        ];
        assert_eq!(told(SwitchVisibility::OwnThreads, &switches), expected);
    }

    #[test]
    fn what_the_kernel_lost_is_a_gap_and_the_next_switch_is_told() {
        let switch = |at| (at, Switched::To { tid: 0, preempted: false });
        let seen = told(SwitchVisibility::Everything, &[switch(2_000), (3_000, Switched::Lost(7)), switch(4_000)]);
        let idle = to(Who::Idle, false);
        assert_eq!(seen, [(1_000, idle), (2_000, Seen::Gap), (3_000, idle)]);
    }

    #[test]
    fn a_thread_is_asked_for_its_name_once_in_a_while_and_equal_names_share_a_number() {
        let mut others = Others::default();
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        let named = |name: &'static str| move |_| Some(name.to_owned());
        assert_eq!(others.who(7, at(0), named("cc1")), Who::Other(0));
        assert_eq!(others.who(7, at(0), |_| panic!("asked again")), Who::Other(0));
        assert_eq!(others.who(8, at(0), named("cc1")), Who::Other(0));
        assert_eq!(others.who(7, at(2), named("kworker/1:2")), Who::Other(1));
        assert_eq!(others.who(9, at(2), |_| None), Who::Other(2));
        assert_eq!(others.names.since(1), ["kworker/1:2", "(ended)"]);
    }

    #[test]
    fn what_is_told_late_finds_its_place() {
        let mut pending = Pending::default();
        pending.switched(Instant::from_nanos(5), Who::Idle, false);
        pending.switched(Instant::from_nanos(9), Who::Lane(0), false);
        pending.tell(Instant::from_nanos(7), Seen::Gap);
        let mut times = Vec::new();
        pending.until(Instant::from_nanos(8), &mut |at, _| times.push(at.as_nanos()));
        assert_eq!((times, pending.seen.len()), (vec![5, 7], 1));
    }

    /// What two polls hand over of a dispatcher that told at these instants, the last one after the first poll,
    /// and of switches that were seen between.
    fn handed_over(switches: std::ops::Range<u64>, told: [u64; 3], until: u64) -> (Vec<u64>, u64) {
        let (mut probe, mut drain) = hyoshi_trace::ring::ring(16);
        let mut tell = |at| probe.event(Instant::from_nanos(at), Event::Input(hyoshi_trace::Input::Tick));
        let (mut pending, mut times, mut lost) = (Pending::default(), Vec::new(), 0);
        for at in switches {
            let who = if at % 2 == 0 { Who::Idle } else { Who::Lane(0) };
            pending.switched(Instant::from_nanos(at), who, false);
        }
        tell(told[0]);
        tell(told[1]);
        let mut poll = |until| {
            let until = Instant::from_nanos(until);
            let each = |at: Instant, _| times.push(at.as_nanos());
            lost += merge(&mut drain, &mut pending, until, settled(until), each).1;
        };
        poll(until);
        tell(told[2]);
        poll(u64::MAX);
        (times, lost)
    }

    #[test]
    fn what_is_handed_over_is_in_the_order_of_time_however_much_waits() {
        let hold = HOLD.as_nanos();
        let (few, many) = (hold..hold + 1_000, hold..hold + 3 * MOST_PENDING as u64);
        for (switches, gives_up) in [(few, false), (many, true)] {
            let last = switches.end;
            // The dispatcher tells of something that happened before the last switches, and they are known already.
            let (times, lost) = handed_over(switches.clone(), [hold / 2, hold + 10, hold + 500], last);
            assert!(times.is_sorted(), "{:?}", times.windows(2).find(|pair| pair[0] > pair[1]));
            assert_eq!(lost > 0, gives_up);
            assert_eq!(times.len() as u64 + lost, switches.count() as u64 + 3 + u64::from(gives_up));
        }
        // What the dispatcher tells after the present waits for the switches before it.
        let (times, _) = handed_over(0..100, [10, 200, 300], 150);
        assert!(times.is_sorted());
        assert_eq!(times.len(), 103);
    }
}
