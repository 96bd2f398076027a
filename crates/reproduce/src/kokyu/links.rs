//! Links with delay and jitter: the paper's future work (section VII) on distributed systems, under RMS, EDF, MLF and MUF.
//!
//! The flight program runs beside a pod with sensors on another host. Three chains cross the link between them; one of
//! them crosses it twice. Every signal has a random delay between the link's delay and the delay plus its jitter. The
//! same seed draws the same delays under every strategy.

use std::cell::RefCell;

use hyoshi_model::{Guard, HardCap, Instant, ProcessorId, Span, System, read};
use hyoshi_replay::{Feed, Observer};
use hyoshi_report::figures::{count, nanos, percent};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use serde::Serialize;

use super::experiment::each;
use super::program::{FIXED, MOST_WAITING, is_route};
use super::tally::Deadlines;
use super::trial::Stop;
use crate::control::{ExperimentControl, Stopped};

/// The pod, its chains and the link.
const POD: &str = include_str!("links.toml");

/// The strategies, in the order of tables.
pub const STRATEGIES: [&str; 4] = ["RMS", "EDF", "MLF", "MUF"];

/// Delays of the link, in milliseconds.
pub const DELAYS: [u64; 5] = [0, 5, 10, 15, 20];

/// The jitter of the link, in milliseconds.
pub const JITTERS: [u64; 5] = [0, 5, 10, 15, 20];

/// Legs of the route: with five the aircraft's processor is full, with six it is overloaded.
const LEGS: [u16; 2] = [5, 6];

/// Release guards of operations behind the link: rules 1 and 2, or none.
pub const GUARDS: [Guard; 2] = [Guard::On, Guard::Off];

/// The longest trial.
const LONGEST: Span = Span::from_secs(30);

/// The link of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LinkTrial {
    legs: u16,
    guard: Guard,
    strategy: &'static str,
    delay: Span,
    jitter: Span,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRow {
    /// The strategy of both processors.
    pub strategy: &'static str,
    /// Declared load of the aircraft's processor, in parts per million.
    pub load_ppm: u64,
    /// Whether operations behind the link have release guards.
    pub guarded: bool,
    /// The least delay of the link.
    pub delay_ns: u64,
    /// How much longer a delay may be.
    pub jitter_ns: u64,
    /// Deadlines of critical operations.
    pub critical: Deadlines,
    /// Deadlines of the other operations.
    pub non_critical: Deadlines,
    /// The chains across the link.
    pub chains: Vec<LinkedChain>,
}

/// A chain across the link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkedChain {
    /// Its name.
    pub name: String,
    /// 99 % of its end-to-end latencies are at most this; 0 without outputs.
    pub p99_ns: u64,
}

impl LinkRow {
    /// Its load, and whether it has guards.
    pub fn group(&self) -> (u64, bool) {
        (self.load_ppm, self.guarded)
    }

    /// As tables show its missed deadlines: `critical/non-critical`.
    pub fn missed(&self) -> String {
        format!("{}/{}", count(self.critical.missed), count(self.non_critical.missed))
    }

    /// The latency of a chain.
    pub fn p99_ns(&self, chain: &str) -> u64 {
        self.chains.iter().find(|one| one.name == chain).map_or(0, |one| one.p99_ns)
    }
}

/// The chain with its latency in the tables: it is critical, and crosses the link twice.
pub const ROUND_TRIP: &str = "response";

/// The rows of one delay and jitter, in the order of the strategies.
pub fn points(rows: &[LinkRow]) -> impl Iterator<Item = &[LinkRow]> {
    rows.chunks(STRATEGIES.len())
}

/// Every delay and jitter under every strategy. A trial is at most a minute long.
pub fn links(region: Span, seed: u64, control: ExperimentControl<'_>) -> Result<Vec<LinkRow>, Stopped> {
    let system = program(region.min(LONGEST), seed);
    let points = || JITTERS.iter().flat_map(|jitter| DELAYS.iter().map(move |delay| (*delay, *jitter)));
    let points = GUARDS.iter().flat_map(|guard| points().map(move |point| (*guard, point)));
    let points = || points.clone();
    let points = LEGS.iter().flat_map(|legs| points().map(move |point| (*legs, point)));
    let trials = points.flat_map(|(legs, (guard, (delay, jitter)))| {
        let (delay, jitter) = (Span::from_millis(delay), Span::from_millis(jitter));
        STRATEGIES.map(|strategy| LinkTrial { legs, guard, strategy, delay, jitter })
    });
    let rows = each(&trials.collect::<Vec<_>>(), |trial| row(&system, trial, control.stop));
    if (control.stop)() { Err(Stopped) } else { Ok(rows) }
}

/// The flight program with the pod.
fn program(duration: Span, seed: u64) -> System {
    let text = FIXED
        .replace("[processor.mission]", "[processor.mission]\nhost = \"aircraft\"")
        .replace("\nevery", "\non = \"mission\"\nevery");
    let text = text + POD;
    let system = match read(&text, "links.toml", None) {
        Ok(loaded) => loaded.system,
        Err(errors) => unreachable!("the built-in program is read by every test: {errors}"),
    };
    system.with(|system| {
        (system.seed, system.duration) = (seed, duration);
        system.processors.iter_mut().for_each(|processor| processor.hard_cap = HardCap::OFF);
        for (operation, setting) in system.operations.iter_mut().zip(&*system.epochs[0].settings) {
            // Nothing is dropped.
            let releases = duration.as_nanos() / setting.period.as_nanos().max(1) + 1;
            operation.queue.limit = releases.min(MOST_WAITING) as u32;
        }
    })
}

fn row(system: &System, trial: &LinkTrial, stop: Stop<'_>) -> LinkRow {
    let LinkTrial { legs, guard, strategy, delay, jitter } = *trial;
    let system = system.clone().with(|system| {
        system.links[0].delay = (delay, delay + jitter);
        system.processors.iter_mut().for_each(|processor| processor.strategy = strategy.into());
        let guarded = system.operations.iter_mut().filter(|operation| operation.guard != Guard::Off);
        guarded.for_each(|operation| operation.guard = guard);
        let mut settings = system.epochs[0].settings.to_vec();
        let of = system.operations.iter().zip(&mut settings);
        of.filter(|(operation, _)| is_route(&operation.name)).for_each(|(_, setting)| setting.legs = legs);
        system.epochs[0].settings = settings.into();
    });
    let plan = match Plan::new(&system, &Strategies::built_in()) {
        Ok(plan) => plan,
        Err(unknown) => unreachable!("trials name built-in strategies: {unknown}"),
    };
    let observer = RefCell::new(Observer::new(&system));
    let until = Instant::ZERO + system.duration;
    simulate(&system, &plan, until, |processor| Feed::new(processor, &observer), |_| !stop());
    let mut observer = observer.into_inner();
    let stats = observer.stats();
    let deadlines = |critical| Deadlines::of(&stats.counts(None, |row| row.critical() == critical));
    let chains = system.chains.iter().zip(stats.chains()).map(|(chain, stats)| LinkedChain {
        name: chain.name.clone(),
        p99_ns: stats.latency.quantile(0.99).map_or(0, Span::as_nanos),
    });
    LinkRow {
        strategy,
        load_ppm: system.utilisation_ppm(0, ProcessorId(0)),
        guarded: guard != Guard::Off,
        delay_ns: delay.as_nanos(),
        jitter_ns: jitter.as_nanos(),
        critical: deadlines(true),
        non_critical: deadlines(false),
        chains: chains.collect(),
    }
}

/// The greatest sum of delay and jitter up to which a strategy misses no critical deadline; `None` if it misses some
/// without delay and jitter.
fn safe(rows: &[LinkRow], group: (u64, bool), strategy: &str) -> Option<u64> {
    let these = || rows.iter().filter(|row| row.group() == group && row.strategy == strategy);
    let sum = |row: &LinkRow| row.delay_ns + row.jitter_ns;
    let unsafe_from = these().filter(|row| row.critical.missed > 0).map(sum).min().unwrap_or(u64::MAX);
    these().map(sum).filter(|sum| *sum < unsafe_from).max()
}

/// The loads, each with and without guards, in the order of the rows.
pub fn groups(rows: &[LinkRow]) -> Vec<(u64, bool)> {
    let mut groups: Vec<(u64, bool)> = rows.iter().map(LinkRow::group).collect();
    groups.dedup();
    groups
}

/// A load, with or without guards, in words.
pub fn words((load_ppm, guarded): (u64, bool)) -> String {
    format!("{} load, {}", percent(load_ppm), if guarded { "release guards" } else { "no guards" })
}

/// The result of the trials: the sums of delay and jitter that each strategy tolerates.
pub fn sentences(rows: &[LinkRow]) -> Vec<String> {
    let sentence = |group: (u64, bool)| {
        let safe = STRATEGIES.map(|strategy| match safe(rows, group, strategy) {
            Some(sum) => format!("{strategy} {}", nanos(sum)),
            None => format!("{strategy} none"),
        });
        format!("{}: largest delay + jitter without a critical miss: {}.", words(group), safe.join(", "))
    };
    groups(rows).into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(strategy: &'static str, delay: u64, jitter: u64, missed: u64) -> LinkRow {
        LinkRow {
            strategy,
            load_ppm: 900_000,
            guarded: true,
            delay_ns: delay * 1_000_000,
            jitter_ns: jitter * 1_000_000,
            critical: Deadlines { made: 10, missed, cancelled: 0 },
            non_critical: Deadlines::default(),
            chains: Vec::new(),
        }
    }

    #[test]
    fn a_strategy_is_safe_up_to_the_first_sum_with_a_miss() {
        let rows =
            [row("RMS", 0, 0, 0), row("RMS", 5, 0, 0), row("RMS", 0, 5, 1), row("RMS", 10, 0, 0), row("MUF", 0, 0, 1)];
        assert_eq!(safe(&rows, (900_000, true), "RMS"), Some(0));
        assert_eq!(safe(&rows[..2], (900_000, true), "RMS"), Some(5_000_000));
        assert_eq!(safe(&rows, (900_000, true), "MUF"), None);
        let expected = "90.0 % load, release guards: largest delay + jitter without a critical miss: RMS 0";
        assert!(sentences(&rows)[0].starts_with(expected), "{:?}", sentences(&rows));
    }

    /// A longer delay of the link is a longer latency under every strategy, and MUF protects critical work longest.
    #[test]
    fn delays_reach_the_chains_and_muf_protects_critical_work_longest() {
        let control = ExperimentControl { step: &|_| (), stop: &|| false };
        let rows = links(Span::from_secs(6), 1, control).unwrap();
        assert_eq!(rows.len(), LEGS.len() * GUARDS.len() * DELAYS.len() * JITTERS.len() * STRATEGIES.len());
        assert_eq!(groups(&rows).len(), LEGS.len() * GUARDS.len());
        for point in points(&rows) {
            assert_eq!(point.iter().map(|row| row.strategy).collect::<Vec<_>>(), STRATEGIES);
            assert!(point.iter().all(|row| row.p99_ns(ROUND_TRIP) >= 2 * row.delay_ns + 12_000_000), "{point:#?}");
            let muf = &point[3].critical;
            assert!(point.iter().all(|row| muf.missed <= row.critical.missed), "{point:#?}");
        }
        let loads: Vec<u64> = [&rows[0], &rows[rows.len() - 1]].map(|row| row.load_ppm).into();
        assert!(loads[0] < 1_000_000 && loads[1] > 1_000_000, "{loads:?}");
    }
}
