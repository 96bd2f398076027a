//! The flight program of Kokyu's paper behaves as the paper says where it can (claims K1, K2, K6,
//! K7), at the full 150 s a region.

mod common;

use std::path::Path;

use hyoshi_model::*;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_sim::simulate;
use hyoshi_trace::{Decision, Event, Outcome, Probe};

/// Per region.
#[derive(Clone, Copy, Debug, Default)]
struct Region {
    requests: u64,
    critical_missed: u64,
    other_made: u64,
    other_missed: u64,
    cancelled: u64,
}

struct Regions(Vec<Region>);

impl Probe for Regions {
    fn event(&mut self, _: Instant, event: Event) {
        let Event::Decision(Decision::End(end)) = event else { return };
        let region = &mut self.0[usize::from(end.epoch)];
        // Requests: TAO's queues had no limit, so what a full queue refuses counts.
        region.requests += 1;
        match end.outcome {
            Outcome::Made => region.other_made += u64::from(!end.critical),
            Outcome::Cancelled => region.cancelled += 1,
            _ if end.critical => region.critical_missed += 1,
            _ => region.other_missed += 1,
        }
    }
}

fn regions(strategy: &str, cancel: bool) -> Vec<Region> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/flight-program.toml");
    let mut system = read_file(file).unwrap_or_else(|errors| panic!("{}", errors.render(false))).system;
    let processor = &mut system.processors[0];
    (processor.strategy, processor.cancel, processor.cap_ppm) = (strategy.into(), cancel, 1_000_000);
    let length = Span::from_secs(150);
    for (index, epoch) in system.epochs.iter_mut().enumerate() {
        epoch.at = Instant::ZERO + length * index as u64;
    }
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let until = Instant::ZERO + length * 12;
    simulate(&system, &plan, until, |_| Regions(vec![Region::default(); 12]), |_| true).processors.remove(0).probe.0
}

#[test]
fn rate_monotonic_meets_every_critical_deadline_up_to_region_six_and_not_beyond() {
    let regions = regions("RMS", false);
    assert!(regions[..7].iter().all(|region| region.critical_missed == 0), "{regions:#?}");
    assert!(regions[7..].iter().all(|region| region.critical_missed > 0), "{regions:#?}");
}

#[test]
fn the_hybrids_meet_every_critical_deadline_in_all_regions() {
    for (strategy, cancel) in [("MUF", false), ("MUF", true), ("RMS+MLF", false), ("RMS+MLF", true)] {
        let regions = regions(strategy, cancel);
        assert!(regions.iter().all(|region| region.critical_missed == 0), "{strategy} {cancel}: {regions:#?}");
        assert!(!cancel || regions[8..].iter().all(|region| region.cancelled > 0), "{strategy}: {regions:#?}");
    }
}

#[test]
fn rate_monotonic_with_cancellation_cancels_nothing() {
    assert_eq!(regions("RMS", true).iter().map(|region| region.cancelled).sum::<u64>(), 0);
}

#[test]
fn requests_rise_from_3100_to_4500_in_a_sample_of_seven_seconds() {
    // Under RMS, which runs the legs first. A strategy that lets them wait has fewer from region 7
    // on: a leg is requested only when the one before has run.
    let per_sample = |region: Region| region.requests * 7 / 150;
    let regions = regions("RMS", false);
    let (first, last) = (per_sample(regions[0]), per_sample(regions[11]));
    assert!((3_095..=3_105).contains(&first), "{first}");
    assert!((4_490..=4_510).contains(&last), "{last}");
}
