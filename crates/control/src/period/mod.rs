//! Finds the period of a program's work from the wake-ups of its threads.
//!
//! A periodic thread sleeps until its next cycle, so each wake-up is followed by another one period later ([`rhythm`]).
//! Extra wake-ups within a cycle, missed ones, jitter and a second, rarer rhythm lower the confidence; random wake-ups
//! have no period, and none is reported. Of several threads the one that computes most counts.

pub mod rhythm;
pub mod watch_budget;

use alloc::collections::{BTreeMap, VecDeque};

use hyoshi_model::{Instant, Reservation, Span};

use self::rhythm::{Rhythm, Rhythms};

/// The estimate of a program's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodEstimate {
    /// The period; the last one if the program has lost its rhythm.
    pub period: Option<Span>,
    /// The part of the wake-ups that it explains beyond chance, in thousandths; 0 if there is none.
    pub confidence: u32,
    /// The number of wake-ups behind it.
    pub wakeups: u32,
    /// Their thread.
    pub thread: u32,
    /// When the period was found, changed, or lost.
    pub since: Instant,
}

/// Finds the period of one program, and follows it.
///
/// ```text
///                  update: a rhythm is certain
///   Searching ───────────────────────────────► Found ──┐ update: another rhythm is certain (a change of period)
///       ▲                                       │  ▲   │
///       └───────────────────────────────────────┘  └───┘
///         update: it no longer explains the last wake-ups
/// ```
///
/// It reads no clock. Instants of wake-ups may be of another clock than those of checks.
#[derive(Clone, Debug)]
pub struct Finder {
    threads: BTreeMap<u32, Thread>,
    rhythms: Rhythms,
    finding: PeriodEstimate,
    shortest: Span,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// In ns, the latest last.
    wakeups: VecDeque<u64>,
    /// Since the last judgement.
    fresh: usize,
    rhythm: Option<Rhythm>,
    /// CPU time, halved at each check.
    load: u64,
}

/// The memory of wake-ups of each thread.
pub const MEMORY: usize = 128;
/// The most threads that are distinguished; further ones are ignored.
pub const MOST_THREADS: usize = 32;
/// A change is found in this many wake-ups if it is certain; else in more of them.
const LATEST: [usize; 3] = [24, 64, MEMORY];
/// A thread is judged again after so many wake-ups.
const FRESH: usize = 4;
/// Below that, in thousandths, a period no longer explains the last wake-ups.
const LOST: u32 = 250;
/// A period that differs by less than one part in this many is the same one, already reported.
const SAME: u64 = 100;
/// One that differs by less than that is now more exact, not another.
const EXACTER: u64 = 20;

impl Finder {
    /// Without a period yet. It does not find shorter ones than `shortest`: the sampling of wake-ups is too coarse for
    /// them.
    pub fn new(shortest: Span) -> Self {
        let finding = PeriodEstimate { period: None, confidence: 0, wakeups: 0, thread: 0, since: Instant::ZERO };
        let shortest = shortest.max(Reservation::SHORTEST);
        Finder { threads: BTreeMap::new(), rhythms: Rhythms::default(), finding, shortest }
    }

    /// A thread woke up. Instants of one thread never decrease.
    pub fn woke(&mut self, thread: u32, at: Instant) {
        let Some(thread) = self.thread(thread) else { return };
        if thread.wakeups.back().is_some_and(|last| *last >= at.as_nanos()) {
            return;
        }
        if thread.wakeups.len() == MEMORY {
            thread.wakeups.pop_front();
        }
        thread.wakeups.push_back(at.as_nanos());
        thread.fresh += 1;
    }

    /// A thread has computed for this long.
    pub fn ran(&mut self, thread: u32, span: Span) {
        if let Some(thread) = self.thread(thread) {
            thread.load = thread.load.saturating_add(span.as_nanos());
        }
    }

    /// Wake-ups of a thread were not recorded: earlier ones do not count.
    pub fn lost(&mut self, thread: u32) {
        if let Some(thread) = self.threads.get_mut(&thread) {
            (thread.wakeups, thread.fresh) = (VecDeque::new(), 0);
        }
    }

    /// The present threads, sorted; others have ended.
    pub fn keep(&mut self, threads: &[u32]) {
        self.threads.retain(|thread, _| threads.binary_search(thread).is_ok());
    }

    /// Judges the wake-ups since the last check. True if the period changed, or was lost.
    pub fn update(&mut self, now: Instant) -> bool {
        for thread in self.threads.values_mut() {
            if thread.fresh >= FRESH {
                thread.fresh = 0;
                thread.judge(&mut self.rhythms, self.shortest);
            }
        }
        let chosen = self.choose().map(|(number, rhythm)| (*number, rhythm));
        self.threads.values_mut().for_each(|thread| thread.load /= 2);
        match chosen {
            Some((thread, rhythm)) => self.found(thread, rhythm, now),
            None => self.lose(now),
        }
    }

    /// The present estimate.
    pub fn finding(&self) -> PeriodEstimate {
        self.finding
    }

    /// The recent wake-ups of the thread that woke most.
    pub fn seen(&self) -> usize {
        self.threads.values().map(|thread| thread.wakeups.len()).max().unwrap_or(0)
    }

    fn thread(&mut self, thread: u32) -> Option<&mut Thread> {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&thread) {
            return None;
        }
        Some(self.threads.entry(thread).or_default())
    }

    /// The thread with a rhythm that computes most. One that hardly computes beside the others does not represent the
    /// program; the former choice stays while it computes half as much.
    fn choose(&self) -> Option<(&u32, Rhythm)> {
        let most = self.threads.values().map(|thread| thread.load).max()?;
        let rhythmic = self.threads.iter().filter(|(_, thread)| thread.load >= most / 8);
        let rhythmic = rhythmic.filter_map(|(number, thread)| Some((number, thread.load, thread.rhythm?)));
        let best = rhythmic.clone().max_by_key(|(_, load, rhythm)| (*load, rhythm.confidence))?;
        let before = rhythmic.clone().find(|(number, ..)| **number == self.finding.thread);
        let (number, _, rhythm) = before.filter(|(_, load, _)| *load >= best.1 / 2).unwrap_or(best);
        Some((number, rhythm))
    }

    fn found(&mut self, thread: u32, rhythm: Rhythm, now: Instant) -> bool {
        let Rhythm { period, confidence, instants: wakeups } = rhythm;
        let before = self.finding;
        let is = |parts| before.period.is_some_and(|before| is_same(before, period, parts));
        let (same, changed) = (is(SAME), !is(EXACTER) || before.confidence == 0);
        let since = if changed { now } else { before.since };
        let period = rounded(period);
        // A small change is not reported, also after many of them: the report stays that of the first estimate.
        let period = before.period.filter(|_| same).unwrap_or(period);
        self.finding = PeriodEstimate { period: Some(period), confidence, wakeups, thread, since };
        changed
    }

    fn lose(&mut self, now: Instant) -> bool {
        let had = self.finding.confidence > 0;
        if had {
            self.finding = PeriodEstimate { confidence: 0, since: now, ..self.finding };
        }
        self.finding.wakeups = u32::try_from(self.seen()).unwrap_or(u32::MAX);
        had
    }
}

/// Rounded within a thousandth: programs have round periods, and finer digits are chance.
fn rounded(period: Span) -> Span {
    let nanos = period.as_nanos();
    let unit = 10_u64.pow((nanos / 500).max(1).ilog10());
    Span::from_nanos((nanos + unit / 2) / unit * unit)
}

fn is_same(one: Span, other: Span, parts: u64) -> bool {
    one.as_nanos().abs_diff(other.as_nanos()) <= one.as_nanos() / parts
}

impl Thread {
    /// The latest wake-ups first: they show a change soonest. If they are not certain, more of them may be.
    fn judge(&mut self, rhythms: &mut Rhythms, shortest: Span) {
        let all = &*self.wakeups.make_contiguous();
        let from = |latest: usize| &all[all.len().saturating_sub(latest)..];
        let certain = LATEST.iter().filter(|latest| all.len() > **latest / 2).find_map(|latest| {
            rhythms.find(from(*latest)).filter(|found| found.is_certain() && found.period >= shortest)
        });
        let kept = || {
            let before = self.rhythm?;
            let explained =
                rhythm::explained(from(LATEST[1]), before.period).filter(|rhythm| rhythm.confidence >= LOST);
            // So few can confirm a period, but not identify it.
            explained.map(|rhythm| Rhythm { period: before.period, ..rhythm })
        };
        self.rhythm = match (certain, self.rhythm) {
            // More of them are more exact, unless an earlier period is among them.
            (Some(found), _) => {
                let exact = rhythm::explained(all, found.period);
                exact.filter(|exact| exact.confidence + 100 >= found.confidence).or(Some(found))
            }
            (None, _) => kept(),
        };
    }
}
