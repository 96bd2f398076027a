//! The proactive advocate against MaxDecay, over spikes of many kinds (the paper's figure 6 in virtual time).

use hyoshi_control::Status;
use hyoshi_control::advocate::{Advocate, MaxDecay, Spec};
use hyoshi_model::{Instant, Reservation, Span};

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

/// A program's demand: some usual work that varies, and a spike every so often.
#[derive(Clone, Copy, Debug)]
struct Program {
    /// Reports from one spike to the next.
    every: u64,
    /// By how many of them each interval can differ, either way.
    jitter: u64,
    /// How many times the usual a spike takes, in percent.
    size: u64,
    /// For how many reports a spike lasts.
    lasts: u64,
    /// By how much the usual varies, in percent, either way.
    noise: u64,
}

const REPORTS: usize = 1_200;
const USUAL: u64 = 100_000_000; // ns, of a period of 1 s

impl Program {
    /// Demand of each cycle, and whether it is a spike's.
    fn play(&self, seed: u64) -> Vec<(u64, bool)> {
        let mut dice = Dice(seed);
        let mut next = dice.roll(self.every) + 1;
        let mut left = 0;
        (0..REPORTS as u64)
            .map(|cycle| {
                if cycle == next {
                    left = self.lasts;
                    next += self.every - self.jitter + dice.roll(2 * self.jitter + 1);
                }
                let vary = |dice: &mut Dice, mean: u64| {
                    mean - mean * self.noise / 100 + dice.roll(2 * mean * self.noise / 100 + 1)
                };
                let spikes = left > 0;
                left = left.saturating_sub(1);
                let mean = if spikes { USUAL * self.size / 100 } else { USUAL };
                (vary(&mut dice, mean), spikes)
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Score {
    /// Nanoseconds reserved beyond the demand, all cycles.
    over: u64,
    demanded: u64,
    spikes: u64,
    missed: u64,
}

impl Score {
    fn over_percent(&self) -> f64 {
        self.over as f64 * 100.0 / self.demanded as f64
    }

    fn add(&mut self, other: Score) {
        self.over += other.over;
        self.demanded += other.demanded;
        self.spikes += other.spikes;
        self.missed += other.missed;
    }
}

/// Lets an advocate ask before each cycle and holds its ask against the cycle's demand.
fn judge(advocate: &mut dyn Advocate, demands: &[(u64, bool)]) -> Score {
    let mut score = Score::default();
    let declared = Reservation::new(Span::from_millis(110), Span::from_secs(1)).unwrap();
    let mut held = declared;
    for (cycle, (demand, spikes)) in demands.iter().enumerate() {
        score.over += held.budget().as_nanos().saturating_sub(*demand);
        score.demanded += demand;
        score.spikes += u64::from(*spikes);
        score.missed += u64::from(*spikes && held.budget().as_nanos() < *demand);
        let at = Instant::ZERO + Span::from_secs(cycle as u64 + 1);
        held = advocate.advise(&Status::of_cycle(at, Span::from_nanos(*demand)), declared).ask;
    }
    score
}

fn programs() -> Vec<Program> {
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

fn proactive() -> Box<dyn Advocate> {
    Spec::from_words(["proactive"]).unwrap().build()
}

#[test]
fn it_beats_every_max_decay_in_over_reservation_and_in_missed_spikes() {
    let programs = programs();
    let plays: Vec<_> = programs.iter().enumerate().map(|(seed, program)| program.play(seed as u64)).collect();
    let total = |make: &dyn Fn() -> Box<dyn Advocate>| {
        let mut total = Score::default();
        for play in &plays {
            total.add(judge(&mut *make(), play));
        }
        total
    };
    let ours = total(&proactive);
    println!("{} programs, {} spikes", plays.len(), ours.spikes);
    let line = |name: &str, score: &Score| {
        println!(
            "{name:>14}: {:6.1} % over, {:5} missed ({:.2} %)",
            score.over_percent(),
            score.missed,
            score.missed as f64 * 100.0 / score.spikes as f64
        );
    };
    line("proactive", &ours);
    let mut bad = Vec::new();
    for reports in [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 50, 64] {
        let theirs = total(&|| Box::new(MaxDecay::new(reports, 50_000)));
        line(&format!("max-decay {reports}"), &theirs);
        if ours.over >= theirs.over && reports > 2 || ours.missed >= theirs.missed {
            bad.push(reports);
        }
    }
    assert!(bad.is_empty(), "no better than MaxDecay over {bad:?} reports");
}

/// Program by program against the MaxDecay of the default: only where spikes come within its memory can that
/// one miss fewer, and it reserves more for it then.
#[test]
fn program_by_program_it_is_nowhere_worse_in_both() {
    let (mut better, mut alike, mut all) = (0, 0, 0);
    for (seed, program) in programs().iter().enumerate() {
        let play = program.play(seed as u64);
        let (ours, theirs) = (judge(&mut *proactive(), &play), judge(&mut MaxDecay::new(5, 50_000), &play));
        assert!(ours.over < theirs.over || ours.missed < theirs.missed, "{program:?}: {ours:?} against {theirs:?}");
        all += 1;
        better += usize::from(ours.over < theirs.over && ours.missed < theirs.missed);
        alike += usize::from(ours.over < theirs.over && ours.missed == theirs.missed);
    }
    println!("of {all} programs better in both in {better}, with less reserved and as many missed in {alike}");
    assert!(10 * better >= 6 * all, "better in both in only {better} of {all}");
}

/// Spikes at random have no rhythm: it is then as careful as a MaxDecay of a quarter of its memory.
#[test]
fn without_a_rhythm_it_is_careful() {
    let mut dice = Dice(7);
    let play: Vec<_> = (0..REPORTS)
        .map(|_| {
            let spikes = dice.roll(20) == 0;
            (if spikes { 3 * USUAL } else { USUAL }, spikes)
        })
        .collect();
    let ours = judge(&mut *proactive(), &play);
    let careful = judge(&mut MaxDecay::new(64, 50_000), &play);
    println!("{ours:?} against {careful:?}");
    assert!(ours.over <= careful.over);
    assert!(20 * ours.missed <= ours.spikes, "{} of {} missed", ours.missed, ours.spikes);
}
