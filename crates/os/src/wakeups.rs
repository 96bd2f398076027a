//! The wake-ups of threads of other programs.
//!
//! The kernel records each switch of a watched thread (perf_event_open(2), `context_switch`): one that was not
//! preempted sleeps, so the next time it gets the CPU it has woken up. If that is refused
//! (`kernel.perf_event_paranoid`, another user's process, no memory to lock), the count of its voluntary switches in
//! /proc/PID/task/TID/status is sampled: coarser, and more expensive.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;

use hyoshi_model::{Instant, Span};

use crate::proc;
use crate::switches::{Switched, ThreadSwitches};

/// The source of wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeupSource {
    /// Each, by the kernel's records of context switches.
    Switches,
    /// Samples: whether there was a wake-up since the last one.
    Samples,
}

impl WakeupSource {
    /// The longest time between two collections. A ring holds the switches of a thread that wakes up 3,400 times a
    /// second.
    pub const fn every(self) -> Span {
        match self {
            WakeupSource::Switches => Span::from_millis(100),
            WakeupSource::Samples => Span::from_millis(2),
        }
    }

    /// At most this many threads of one program are watched: those that have computed most.
    pub const fn most(self) -> usize {
        match self {
            WakeupSource::Switches => 32,
            WakeupSource::Samples => 4,
        }
    }

    /// The cost of watching one thread, as a multiple of that of a thread with recorded switches.
    pub const fn cost(self) -> usize {
        match self {
            WakeupSource::Switches => 1,
            WakeupSource::Samples => 8,
        }
    }

    /// Shorter periods cannot be distinguished from random wake-ups.
    pub const fn shortest(self) -> Span {
        match self {
            WakeupSource::Switches => Span::from_micros(200),
            WakeupSource::Samples => Span::from_millis(10),
        }
    }
}

impl fmt::Display for WakeupSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WakeupSource::Switches => "the kernel's records of context switches",
            WakeupSource::Samples => "samples every 2 ms, because the kernel refuses its records of context switches",
        })
    }
}

/// An event of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// It woke up: the instants of one thread can be compared with each other.
    At(Instant),
    /// Some of its wake-ups were not recorded.
    Lost,
    /// It has consumed this much since the last time.
    Ran(Span),
}

/// Watches some threads.
#[derive(Debug)]
pub struct Wakeups {
    threads: BTreeMap<u32, WatchedThread>,
    seen: WakeupSource,
}

struct WatchedThread {
    process: u32,
    /// `None` if it is sampled.
    switches: Option<ThreadSwitches>,
    asleep: bool,
    /// Voluntary switches so far.
    count: Option<u64>,
    /// Samples in a row with a wake-up.
    running: u32,
    consumed: Option<Span>,
}

impl Wakeups {
    /// Without threads, as closely as the kernel allows.
    pub fn new() -> Self {
        Wakeups { threads: BTreeMap::new(), seen: WakeupSource::Switches }
    }

    /// Without threads, only by samples.
    pub fn sampled() -> Self {
        Wakeups { seen: WakeupSource::Samples, ..Wakeups::new() }
    }

    /// Sets the present threads, pairs of process and thread; at most `most` of them are watched, those that have
    /// computed most, and no others. Returns whether the source of wake-ups changes now; earlier instants must then not
    /// be compared with later ones. `each` is called with the consumption of each thread.
    pub fn watch(&mut self, threads: &[(u32, u32)], most: usize, each: &mut dyn FnMut(u32, Woken)) -> bool {
        let consumed = |(process, thread): &(u32, u32)| (consumed(*process, *thread), *process, *thread);
        let mut there: Vec<_> = threads.iter().map(consumed).collect();
        there.sort_unstable_by(|one, other| other.cmp(one));
        there.truncate(most.min(self.seen.most()));
        self.threads.retain(|tid, _| there.iter().any(|(_, _, thread)| thread == tid));
        for (consumed, process, tid) in there {
            let watched = match self.threads.get_mut(&tid) {
                Some(watched) => watched,
                None => match self.open(process, tid) {
                    Ok(watched) => self.threads.entry(tid).or_insert(watched),
                    // It has ended since.
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(_) => {
                        *self = Wakeups::sampled();
                        // Within the memory that was granted for records.
                        self.watch(threads, most / self.seen.cost(), each);
                        return true;
                    }
                },
            };
            if let Some(before) = watched.consumed.replace(consumed) {
                each(tid, Woken::Ran(consumed.saturating_sub(before)));
            }
        }
        false
    }

    /// The threads that are watched, sorted.
    pub fn watched(&self) -> Vec<u32> {
        self.threads.keys().copied().collect()
    }

    /// Passes on the events since the last time. `now` is the time of this call.
    pub fn collect(&mut self, now: Instant, each: &mut dyn FnMut(u32, Woken)) {
        for (tid, watched) in &mut self.threads {
            match &mut watched.switches {
                Some(switches) => {
                    let asleep = &mut watched.asleep;
                    switches.drain(&mut |at, switched| {
                        if let Some(woken) = woken(asleep, at, switched) {
                            each(*tid, woken);
                        }
                    });
                }
                None => {
                    if let Some(woken) = watched.sample(*tid, now) {
                        each(*tid, woken);
                    }
                }
            }
        }
    }

    /// The cost of watching them, as in [`WakeupSource::cost`].
    pub fn cost(&self) -> usize {
        self.threads.len() * self.seen.cost()
    }

    /// The source of wake-ups.
    pub fn source(&self) -> WakeupSource {
        self.seen
    }

    fn open(&self, process: u32, tid: u32) -> io::Result<WatchedThread> {
        let switches = match self.seen {
            WakeupSource::Samples => None,
            WakeupSource::Switches => Some(ThreadSwitches::of(tid)?),
        };
        Ok(WatchedThread { process, switches, asleep: false, count: None, running: 0, consumed: None })
    }
}

impl Default for Wakeups {
    fn default() -> Self {
        Wakeups::new()
    }
}

fn woken(asleep: &mut bool, at: u64, switched: Switched) -> Option<Woken> {
    match switched {
        Switched::From { preempted, .. } => {
            *asleep |= !preempted;
            None
        }
        Switched::To { .. } => std::mem::take(asleep).then_some(Woken::At(Instant::from_nanos(at))),
        Switched::Waits(_) => None,
        Switched::Lost(_) => {
            *asleep = false;
            Some(Woken::Lost)
        }
    }
}

impl WatchedThread {
    /// A thread that has slept since the last sample has woken up, or will.
    fn sample(&mut self, tid: u32, now: Instant) -> Option<Woken> {
        /// A thread that sleeps in each sample sleeps more often than it is sampled.
        const TOO_OFTEN: u32 = 3;
        let count = voluntary_switches(&fs::read_to_string(format!("/proc/{}/task/{tid}/status", self.process)).ok()?)?;
        let before = self.count.replace(count)?;
        if count == before {
            self.running = 0;
            return None;
        }
        self.running += 1;
        Some(if self.running >= TOO_OFTEN { Woken::Lost } else { Woken::At(now) })
    }
}

fn voluntary_switches(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// CPU time of a thread; none if the kernel does not report it: then all threads rank equal.
fn consumed(process: u32, tid: u32) -> Span {
    proc::ran(&format!("/proc/{process}/task/{tid}")).unwrap_or_default()
}

impl fmt::Debug for WatchedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedThread")
            .field("process", &self.process)
            .field("asleep", &self.asleep)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::{Clock, MonotonicClock, Spawn};

    #[test]
    fn a_preempted_thread_has_not_slept() {
        let mut asleep = false;
        let mut seen = |at, switched| woken(&mut asleep, at, switched);
        let from = |preempted| Switched::From { tid: 1, preempted };
        let to = Switched::To { tid: 1, preempted: false };
        assert_eq!(seen(1, to), None, "what it did before is not known");
        assert_eq!((seen(2, from(true)), seen(3, to)), (None, None));
        assert_eq!((seen(4, from(false)), seen(5, to)), (None, Some(Woken::At(Instant::from_nanos(5)))));
        assert_eq!((seen(6, from(false)), seen(7, Switched::Lost(3))), (None, Some(Woken::Lost)));
        assert_eq!(seen(8, to), None);
    }

    #[test]
    fn voluntary_switches_are_read_and_nothing_else() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(voluntary_switches(status), Some(42));
        assert_eq!(voluntary_switches("nonvoluntary_ctxt_switches:\t7\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_again_and_again_is_seen_to_wake_up() {
        const NAPS: usize = 20;
        let clock = MonotonicClock::start();
        for mut wakeups in [Wakeups::new(), Wakeups::sampled()] {
            let wanted = wakeups.source();
            let done = Arc::new(AtomicBool::new(false));
            let until = done.clone();
            let thread = Spawn::new("naps").spawn(move || {
                let own = MonotonicClock::start();
                let mut next = Instant::ZERO;
                while !until.load(Ordering::Relaxed) {
                    next += Span::from_millis(10);
                    own.sleep_until(next);
                }
            });
            let thread = thread.unwrap();
            let tid = thread.handle.tid();
            wakeups.watch(&[(std::process::id(), tid)], 8, &mut |_, _| {});
            if wakeups.source() != wanted {
                println!("not tested: records of switches are refused here");
            }
            // A busy machine needs longer.
            let (mut instants, until) = (Vec::new(), clock.now() + Span::from_secs(30));
            while instants.len() < NAPS && clock.now() < until {
                clock.sleep_until(clock.now() + WakeupSource::Samples.every());
                wakeups.collect(clock.now(), &mut |thread, woken| {
                    assert_eq!(thread, tid);
                    if let Woken::At(at) = woken {
                        instants.push(at);
                    }
                });
            }
            done.store(true, Ordering::Relaxed);
            thread.join().unwrap();
            assert!(instants.is_sorted());
            assert!(instants.len() >= NAPS, "{} by {:?}", instants.len(), wakeups.source());
        }
    }
}
