//! Figure 6: a proactive advocate predicts spikes such as garbage collections. It is compared with MaxDecay for many
//! kinds of programs.

use hyoshi_control::Status;
use hyoshi_control::advocate::{Advocate, MaxDecay, Spec};
use hyoshi_model::{Instant, Reservation, Span};
use serde::Serialize;

use crate::control::{ExperimentControl, Stopped};

/// The number of reports of each program.
pub const REPORTS: usize = 1_200;
/// The numbers of reports of the compared MaxDecays.
pub const MEMORIES: [usize; 12] = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 50, 64];
/// With at most so many reports MaxDecay holds hardly any spike, so its smaller reservation does not count.
pub const FORGETFUL: usize = 2;
/// MaxDecay's own default.
const USUAL_MEMORY: usize = 5;
const HEADROOM_PPM: u32 = 50_000;
const PERIOD: Span = Span::from_secs(1);
const USUAL: u64 = 100_000_000; // ns of the period

/// The demand of a program: usual work that varies, and regular spikes.
#[derive(Clone, Copy, Debug)]
pub struct SpikeProgram {
    /// Reports from one spike to the next.
    pub every: u64,
    /// The largest deviation of an interval, in reports.
    pub jitter: u64,
    /// The size of a spike in percent of the usual work.
    pub size: u64,
    /// The length of a spike, in reports.
    pub lasts: u64,
    /// The largest deviation of the usual work, in percent.
    pub noise: u64,
}

/// The CPU time of a reported cycle.
#[derive(Clone, Copy, Debug)]
struct CycleDemand {
    ns: u64,
    spike: bool,
}

/// The quality of an advocate's predictions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// The advocate, as written on the command line.
    pub advocate: String,
    /// Time reserved beyond the demand, in all cycles.
    pub over_ns: u64,
    /// The sum of the demands.
    pub demanded_ns: u64,
    /// Cycles with a spike.
    pub spikes: u64,
    /// Spikes for which the reservation was too small.
    pub missed: u64,
}

/// One program, report by report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trace {
    /// The demand of each cycle.
    pub demand_ns: Vec<u64>,
    /// The request of the proactive advocate for each cycle.
    pub proactive_ns: Vec<u64>,
    /// The request of MaxDecay for each cycle.
    pub max_decay_ns: Vec<u64>,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Predicted {
    /// The number of programs.
    pub programs: usize,
    /// The score of the proactive advocate.
    pub proactive: Score,
    /// The scores of MaxDecay, by number of reports.
    pub max_decay: Vec<Score>,
    /// Programs for which it is better in both than MaxDecay over the default five reports.
    pub better_in_both: usize,
    /// Programs for which it is worse in both.
    pub worse_in_both: usize,
    /// An example: an image recogniser that collects garbage about every ten images.
    pub trace: Trace,
}

/// SplitMix64: small and portable.
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

impl SpikeProgram {
    fn play(&self, seed: u64) -> Vec<CycleDemand> {
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
            CycleDemand { ns: vary(&mut dice, mean), spike }
        };
        (0..REPORTS as u64).map(cycle).collect()
    }
}

/// Many kinds of programs: frequency, regularity, size and length of the spikes, and steadiness of the rest.
pub fn programs() -> Vec<SpikeProgram> {
    let mut programs = Vec::new();
    for every in [4, 5, 7, 8, 10, 13, 16, 20, 25, 31, 40, 50, 60] {
        for jitter in [0, 1, every / 10, every / 5] {
            for (size, lasts) in [(180, 1), (250, 1), (400, 1), (250, 2), (300, 3)] {
                if every >= 2 * lasts + jitter {
                    for noise in [0, 4, 8] {
                        programs.push(SpikeProgram { every, jitter, size, lasts, noise });
                    }
                }
            }
        }
    }
    programs
}

/// The advocate's request before each cycle.
fn asked(advocate: &mut dyn Advocate, demands: &[CycleDemand]) -> Vec<u64> {
    let declared = Reservation::new(Span::from_millis(110), PERIOD).expect("a budget within its period");
    let mut held = declared;
    let ask = |(cycle, demand): (usize, &CycleDemand)| {
        let before = held.budget().as_nanos();
        let at = Instant::ZERO + Span::from_secs(cycle as u64 + 1);
        held = advocate.advise(&Status::of_cycle(at, Span::from_nanos(demand.ns)), declared).ask;
        before
    };
    demands.iter().enumerate().map(ask).collect()
}

fn judge(advocate: &mut dyn Advocate, demands: &[CycleDemand]) -> Score {
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

/// Plays every program with every advocate.
pub fn play(control: ExperimentControl<'_>) -> Result<Predicted, Stopped> {
    let programs = programs();
    let plays: Vec<_> = programs.iter().enumerate().map(|(seed, program)| program.play(seed as u64)).collect();
    let mut proactive_score = Score { advocate: "proactive".into(), ..Score::default() };
    let (mut better_in_both, mut worse_in_both) = (0, 0);
    for play in &plays {
        let (one, other) = (judge(&mut *proactive(), play), judge(&mut max_decay(USUAL_MEMORY), play));
        better_in_both += usize::from(one.over_ns < other.over_ns && one.missed < other.missed);
        worse_in_both += usize::from(one.over_ns >= other.over_ns && one.missed >= other.missed);
        proactive_score.add(&one);
    }
    let mut max_decay_scores = Vec::new();
    for reports in MEMORIES {
        let mut score = Score { advocate: format!("max-decay --reports {reports}"), ..Score::default() };
        plays.iter().for_each(|play| score.add(&judge(&mut max_decay(reports), play)));
        max_decay_scores.push(score);
        if (control.stop)() {
            return Err(Stopped);
        }
    }
    let programs = programs.len();
    Ok(Predicted {
        programs,
        proactive: proactive_score,
        max_decay: max_decay_scores,
        better_in_both,
        worse_in_both,
        trace: trace(),
    })
}

/// An image recogniser that collects garbage about every ten images, after its rhythm is known.
fn trace() -> Trace {
    const FROM: usize = 200;
    const LENGTH: usize = 60;
    let demands = SpikeProgram { every: 10, jitter: 1, size: 250, lasts: 1, noise: 4 }.play(1);
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

    /// Time reserved beyond the demand, in parts per million of the demand.
    pub fn over_ppm(&self) -> u64 {
        (u128::from(self.over_ns) * 1_000_000 / u128::from(self.demanded_ns.max(1))) as u64
    }

    /// Missed spikes in parts per million of all.
    pub fn missed_ppm(&self) -> u64 {
        self.missed * 1_000_000 / self.spikes.max(1)
    }
}

impl Predicted {
    /// The MaxDecays that reserve no more (if they hold spikes at all) or that miss no more.
    pub fn unbeaten(&self) -> Vec<&str> {
        let unbeaten = self.max_decay.iter().zip(MEMORIES).filter(|(max_decay_scores, reports)| {
            self.proactive.over_ns >= max_decay_scores.over_ns && *reports > FORGETFUL
                || self.proactive.missed >= max_decay_scores.missed
        });
        unbeaten.map(|(max_decay_scores, _)| max_decay_scores.advocate.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_misses_fewer_spikes_than_every_max_decay_and_reserves_less_than_those_that_hold_any() {
        let predicted = play(ExperimentControl { step: &|_| (), stop: &|| false }).unwrap();
        assert_eq!(predicted.unbeaten(), Vec::<&str>::new(), "no better than these: {predicted:?}");
    }

    /// By program, against the default MaxDecay: it can miss fewer only if spikes are within its memory, and then it
    /// reserves more.
    #[test]
    fn program_by_program_it_is_nowhere_worse_in_both() {
        let predicted = play(ExperimentControl { step: &|_| (), stop: &|| false }).unwrap();
        assert_eq!(predicted.worse_in_both, 0);
        let (better, all) = (predicted.better_in_both, predicted.programs);
        assert!(10 * better >= 6 * all, "better in both in only {better} of {all}");
    }

    /// Random spikes have no rhythm: it then reserves like a MaxDecay of a quarter of its memory.
    #[test]
    fn without_a_rhythm_it_is_careful() {
        let mut dice = Dice(7);
        let demand = |_| {
            let spike = dice.roll(20) == 0;
            CycleDemand { ns: if spike { 3 * USUAL } else { USUAL }, spike }
        };
        let play: Vec<_> = (0..REPORTS).map(demand).collect();
        let (proactive_score, careful) = (judge(&mut *proactive(), &play), judge(&mut max_decay(64), &play));
        assert!(proactive_score.over_ns <= careful.over_ns);
        assert!(
            20 * proactive_score.missed <= proactive_score.spikes,
            "{} of {} missed",
            proactive_score.missed,
            proactive_score.spikes
        );
    }
}
