//! Figure 6: a proactive advocate foresees spikes such as garbage collections, and is held against MaxDecay over
//! programs of many kinds.

use hyoshi_control::Status;
use hyoshi_control::advocate::{Advocate, MaxDecay, Spec};
use hyoshi_model::{Instant, Reservation, Span};
use serde::Serialize;

use crate::watch::{Stopped, Watch};

/// Reports of each program.
pub const REPORTS: usize = 1_200;
/// How many reports MaxDecay is given, one after the other.
pub const MEMORIES: [usize; 12] = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 50, 64];
/// Over so many reports or fewer MaxDecay holds hardly any spike: to reserve less than it is no merit, nor a fault.
pub const FORGETFUL: usize = 2;
/// MaxDecay's own default.
const USUAL_MEMORY: usize = 5;
const HEADROOM_PPM: u32 = 50_000;
const PERIOD: Span = Span::from_secs(1);
const USUAL: u64 = 100_000_000; // ns of the period

/// A program's demand: some usual work that varies, and a spike every so often.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Reports from one spike to the next.
    pub every: u64,
    /// By how many of them each interval can differ, either way.
    pub jitter: u64,
    /// How many times the usual a spike takes, in percent.
    pub size: u64,
    /// For how many reports a spike lasts.
    pub lasts: u64,
    /// By how much the usual varies, in percent, either way.
    pub noise: u64,
}

/// What a report says that its cycle took.
#[derive(Clone, Copy, Debug)]
struct Demand {
    ns: u64,
    spike: bool,
}

/// How well an advocate foresaw.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// The advocate, as on the command line.
    pub advocate: String,
    /// What was reserved beyond the demand, over all cycles.
    pub over_ns: u64,
    /// What was demanded.
    pub demanded_ns: u64,
    /// Cycles that were a spike's.
    pub spikes: u64,
    /// Of which too little was reserved for.
    pub missed: u64,
}

/// One program, report by report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// What each cycle took.
    pub demand_ns: Vec<u64>,
    /// What the proactive advocate asked for it before.
    pub proactive_ns: Vec<u64>,
    /// What MaxDecay did.
    pub max_decay_ns: Vec<u64>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Predicted {
    /// Programs that were played.
    pub programs: usize,
    /// The proactive advocate's.
    pub proactive: Score,
    /// MaxDecay's, by how many reports it looks back.
    pub max_decay: Vec<Score>,
    /// Programs for which it is better in both than MaxDecay over its usual five reports.
    pub better_in_both: usize,
    /// Programs for which it is worse in both.
    pub worse_in_both: usize,
    /// One of them: a recogniser with a collection every ten images or so.
    pub trace: Trace,
}

/// SplitMix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

impl Program {
    fn play(&self, seed: u64) -> Vec<Demand> {
        let mut dice = Dice(seed);
        let mut next = dice.roll(self.every) + 1;
        let mut left = 0;
        let vary =
            |dice: &mut Dice, mean: u64| mean - mean * self.noise / 100 + dice.roll(2 * mean * self.noise / 100 + 1);
        let cycle = |cycle: u64| {
            if cycle == next {
                left = self.lasts;
                next += self.every - self.jitter + dice.roll(2 * self.jitter + 1);
            }
            let spike = left > 0;
            left = left.saturating_sub(1);
            let mean = if spike { USUAL * self.size / 100 } else { USUAL };
            Demand { ns: vary(&mut dice, mean), spike }
        };
        (0..REPORTS as u64).map(cycle).collect()
    }
}

/// Programs of many kinds: how often, how regular, how large and long their spikes are, and how steady the rest.
pub fn programs() -> Vec<Program> {
    let mut programs = Vec::new();
    for every in [4, 5, 7, 8, 10, 13, 16, 20, 25, 31, 40, 50, 60] {
        for jitter in [0, 1, every / 10, every / 5] {
            for (size, lasts) in [(180, 1), (250, 1), (400, 1), (250, 2), (300, 3)] {
                if every >= 2 * lasts + jitter {
                    for noise in [0, 4, 8] {
                        programs.push(Program { every, jitter, size, lasts, noise });
                    }
                }
            }
        }
    }
    programs
}

/// The advocate asks before each cycle; what it asks for, cycle by cycle.
fn asked(advocate: &mut dyn Advocate, demands: &[Demand]) -> Vec<u64> {
    let declared = Reservation::new(Span::from_millis(110), PERIOD).expect("a budget within its period");
    let mut held = declared;
    let ask = |(cycle, demand): (usize, &Demand)| {
        let before = held.budget().as_nanos();
        let at = Instant::ZERO + Span::from_secs(cycle as u64 + 1);
        held = advocate.advise(&Status::of_cycle(at, Span::from_nanos(demand.ns)), declared).ask;
        before
    };
    demands.iter().enumerate().map(ask).collect()
}

fn judge(advocate: &mut dyn Advocate, demands: &[Demand]) -> Score {
    let mut score = Score::default();
    for (held, demand) in asked(advocate, demands).into_iter().zip(demands) {
        score.over_ns += held.saturating_sub(demand.ns);
        score.demanded_ns += demand.ns;
        score.spikes += u64::from(demand.spike);
        score.missed += u64::from(demand.spike && held < demand.ns);
    }
    score
}

fn proactive() -> Box<dyn Advocate> {
    Spec::from_words(["proactive"]).expect("a kind of the table").build()
}

fn max_decay(reports: usize) -> MaxDecay {
    MaxDecay::new(reports, HEADROOM_PPM)
}

/// Plays every program under every advocate.
pub fn play(watch: Watch<'_>) -> Result<Predicted, Stopped> {
    let programs = programs();
    let plays: Vec<_> = programs.iter().enumerate().map(|(seed, program)| program.play(seed as u64)).collect();
    let mut ours = Score { advocate: "proactive".into(), ..Score::default() };
    let (mut better_in_both, mut worse_in_both) = (0, 0);
    for play in &plays {
        let (one, other) = (judge(&mut *proactive(), play), judge(&mut max_decay(USUAL_MEMORY), play));
        better_in_both += usize::from(one.over_ns < other.over_ns && one.missed < other.missed);
        worse_in_both += usize::from(one.over_ns >= other.over_ns && one.missed >= other.missed);
        ours.add(&one);
    }
    let mut theirs = Vec::new();
    for reports in MEMORIES {
        let mut score = Score { advocate: format!("max-decay --reports {reports}"), ..Score::default() };
        plays.iter().for_each(|play| score.add(&judge(&mut max_decay(reports), play)));
        theirs.push(score);
        if (watch.stop)() {
            return Err(Stopped);
        }
    }
    let programs = programs.len();
    Ok(Predicted { programs, proactive: ours, max_decay: theirs, better_in_both, worse_in_both, trace: trace() })
}

/// What a recogniser of images may take that collects garbage after ten of them or so, once its rhythm is known.
fn trace() -> Trace {
    const FROM: usize = 200;
    const LENGTH: usize = 60;
    let demands = Program { every: 10, jitter: 1, size: 250, lasts: 1, noise: 4 }.play(1);
    let part = |values: Vec<u64>| values[FROM..FROM + LENGTH].to_vec();
    Trace {
        demand_ns: part(demands.iter().map(|demand| demand.ns).collect()),
        proactive_ns: part(asked(&mut *proactive(), &demands)),
        max_decay_ns: part(asked(&mut max_decay(USUAL_MEMORY), &demands)),
    }
}

impl Score {
    fn add(&mut self, other: &Score) {
        self.over_ns += other.over_ns;
        self.demanded_ns += other.demanded_ns;
        self.spikes += other.spikes;
        self.missed += other.missed;
    }

    /// What was reserved beyond the demand, in parts per million of the demand.
    pub fn over_ppm(&self) -> u64 {
        (u128::from(self.over_ns) * 1_000_000 / u128::from(self.demanded_ns.max(1))) as u64
    }

    /// Missed spikes in parts per million of all.
    pub fn missed_ppm(&self) -> u64 {
        self.missed * 1_000_000 / self.spikes.max(1)
    }
}

impl Predicted {
    /// The MaxDecays that reserve no more, though they hold spikes at all, or that miss no more.
    pub fn unbeaten(&self) -> Vec<&str> {
        let unbeaten = self.max_decay.iter().zip(MEMORIES).filter(|(theirs, reports)| {
            self.proactive.over_ns >= theirs.over_ns && *reports > FORGETFUL || self.proactive.missed >= theirs.missed
        });
        unbeaten.map(|(theirs, _)| theirs.advocate.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_misses_fewer_spikes_than_every_max_decay_and_reserves_less_than_those_that_hold_any() {
        let predicted = play(Watch { step: &|_| (), stop: &|| false }).unwrap();
        assert_eq!(predicted.unbeaten(), Vec::<&str>::new(), "no better than these: {predicted:?}");
    }

    /// Program by program against the MaxDecay of the default: only where spikes come within its memory can that
    /// one miss fewer, and it reserves more for it then.
    #[test]
    fn program_by_program_it_is_nowhere_worse_in_both() {
        let predicted = play(Watch { step: &|_| (), stop: &|| false }).unwrap();
        assert_eq!(predicted.worse_in_both, 0);
        let (better, all) = (predicted.better_in_both, predicted.programs);
        assert!(10 * better >= 6 * all, "better in both in only {better} of {all}");
    }

    /// Spikes at random have no rhythm: it is then as careful as a MaxDecay of a quarter of its memory.
    #[test]
    fn without_a_rhythm_it_is_careful() {
        let mut dice = Dice(7);
        let demand = |_| {
            let spike = dice.roll(20) == 0;
            Demand { ns: if spike { 3 * USUAL } else { USUAL }, spike }
        };
        let play: Vec<_> = (0..REPORTS).map(demand).collect();
        let (ours, careful) = (judge(&mut *proactive(), &play), judge(&mut max_decay(64), &play));
        assert!(ours.over_ns <= careful.over_ns);
        assert!(20 * ours.missed <= ours.spikes, "{} of {} missed", ours.missed, ours.spikes);
    }
}
