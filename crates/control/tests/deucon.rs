//! DEUCON on models of processors: the random workload of the paper on distributable threads (table 6), and chains over
//! up to 1,000 processors.

use std::fmt::Write;

use hyoshi_control::feedback::Coordinator;
use hyoshi_model::{Instant, ProcessorId, Span, System, read};
use proptest::prelude::*;

use crate::eucon::WORKLOAD;

/// A chain: the processors of its stages with their execution times in milliseconds, and its range of periods.
type Chain = (Vec<(usize, f64)>, f64, f64);

/// A system of this number of processors with these chains.
fn system(algorithm: &str, processors: usize, set_point: u64, chains: &[Chain]) -> System {
    let mut text = String::from("name = 'model'\n");
    // More processors need more time for a step.
    let period = processors.div_ceil(100);
    for at in 0..processors {
        let _ = write!(
            text,
            "[processor.p{at}]\nhard_cap = '100%'\n\
             [feedback.p{at}]\nalgorithm = '{algorithm}'\nutilisation = '{set_point}%'\nperiod = '{period}s'\n"
        );
    }
    for (place, (stages, shortest, longest)) in chains.iter().enumerate() {
        for (stage, (at, time)) in stages.iter().enumerate() {
            let release = match stage {
                0 => format!("rate = ['{}Hz', '{}Hz']", 1_000.0 / longest, 1_000.0 / shortest),
                _ => format!("after = {{ all = ['t{place}-{}'] }}", stage - 1),
            };
            let _ = write!(text, "[operation.t{place}-{stage}]\non = 'p{at}'\nwcet = '{time}ms'\n{release}\n");
        }
    }
    read(&text, "model.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

/// Processors with execution times of `gains` times the declared ones.
struct Plant {
    system: System,
    coordinator: Coordinator,
    gains: Vec<f64>,
    now: Instant,
}

impl Plant {
    fn new(system: System) -> Plant {
        let mut coordinators = Coordinator::of(&system).unwrap_or_else(|error| panic!("{error}"));
        let gains = vec![1.0; system.processors.len()];
        Plant { system, coordinator: coordinators.remove(0), gains, now: Instant::ZERO }
    }

    /// The utilisation of each processor, at most 1.
    fn utilisations(&self) -> Vec<f64> {
        let mut utilisations = vec![0.0; self.gains.len()];
        for (task, period) in self.coordinator.group().tasks.iter().zip(self.coordinator.periods()) {
            for id in task.operations() {
                let at = self.system.operation(id).on.index();
                let work = self.system.setting(0, id).wcet.as_nanos() as f64;
                utilisations[at] += self.gains[at] * work / period.as_nanos() as f64;
            }
        }
        utilisations.into_iter().map(|one| one.min(1.0)).collect()
    }

    fn run(&mut self, samples: usize) -> Vec<f64> {
        for _ in 0..samples {
            self.now += Span::from_secs(1);
            for (place, utilisation) in (0..).map(ProcessorId).zip(self.utilisations()) {
                self.coordinator.collect(self.now, place, Some((utilisation * 1e6).round() as u32));
            }
            assert_eq!(self.coordinator.due(), self.now);
            assert!(self.coordinator.step(&self.system, self.now, |_, _, _| ()));
            for (task, period) in self.coordinator.group().tasks.iter().zip(self.coordinator.periods()) {
                let setting = self.system.setting(0, task.root);
                assert!((setting.period..=setting.slowest).contains(period));
            }
        }
        self.utilisations()
    }
}

/// The random workload with rates from a quarter to four times the nominal.
fn workload() -> Vec<Chain> {
    let chain = |(times, places, period): &crate::eucon::Row| {
        let stages = times.iter().zip(*places).map(|(time, place)| (place - 1, *time as f64)).collect();
        (stages, *period as f64 / 4.0, *period as f64 * 4.0)
    };
    WORKLOAD.iter().map(chain).collect()
}

/// The greatest distance of a utilisation from its set point.
fn distance(plant: &Plant) -> f64 {
    let set = |place: usize| f64::from(plant.system.feedback[place].utilisation_ppm) / 1e6;
    plant.utilisations().iter().enumerate().map(|(place, one)| (one - set(place)).abs()).fold(0.0, f64::max)
}

#[test]
fn all_processors_reach_their_set_points_when_execution_times_double_on_processor_1_2_or_3_and_return() {
    let mut plant = Plant::new(system("DEUCON", 4, 70, &workload()));
    plant.run(60);
    assert!(distance(&plant) < 0.01, "{:?}", plant.utilisations());
    for place in 0..3 {
        for gain in [2.0, 1.0] {
            plant.gains[place] = gain;
            plant.run(50);
            assert!(distance(&plant) < 0.01, "processor {place} times {gain}: {:?}", plant.utilisations());
        }
    }
}

#[test]
fn set_points_that_cannot_all_be_reached_are_exceeded_by_little() {
    let mut plant = Plant::new(system("DEUCON", 4, 70, &workload()));
    plant.gains[3] = 2.0;
    let utilisations = plant.run(500);
    assert!(utilisations.iter().all(|one| (0.65..0.71).contains(one)), "{utilisations:?}");
}

#[test]
fn a_stalled_monitor_delays_a_step_by_half_a_period_and_moves_no_rate_by_much() {
    for algorithm in ["EUCON", "DEUCON"] {
        let mut plant = Plant::new(system(algorithm, 4, 70, &workload()));
        plant.run(100);
        let before = plant.utilisations();
        for _ in 0..20 {
            plant.now += Span::from_secs(1);
            assert_eq!(plant.coordinator.due(), Instant::NEVER);
            for (place, utilisation) in (0..3).map(ProcessorId).zip(plant.utilisations()) {
                plant.coordinator.collect(plant.now, place, Some((utilisation * 1e6) as u32));
            }
            assert_eq!(plant.coordinator.due(), plant.now + Span::from_millis(500));
            plant.coordinator.step(&plant.system, plant.coordinator.due(), |_, _, _| ());
        }
        let after = plant.utilisations();
        assert!(after.iter().zip(&before).all(|(after, before)| (after - before).abs() < 0.01), "{before:?} {after:?}");
    }
}

#[test]
fn an_epoch_changes_demands_and_ranges_and_can_disable_a_task() {
    let text = |algorithm: &str| {
        let feedback = |at: &str| {
            format!(
                "[processor.{at}]\nhard_cap = '100%'\n[feedback.{at}]\nalgorithm = '{algorithm}'\n\
                 utilisation = '50%'\nperiod = '1s'\n"
            )
        };
        format!(
            "name = 'epochs'\n{}{}\
             [operation.a]\non = 'one'\nwcet = '10ms'\nrate = ['1Hz', '100Hz']\n\
             [operation.b]\non = 'two'\nwcet = '10ms'\nafter = {{ all = ['a'] }}\n\
             [operation.c]\non = 'two'\nwcet = '10ms'\nrate = ['1Hz', '100Hz']\n\
             [[epoch]]\nat = '100s'\nset = {{ 'operation.c.enabled' = false, 'operation.a.rate' = ['1Hz', '20Hz'] }}\n",
            feedback("one"),
            feedback("two")
        )
    };
    for algorithm in ["EUCON", "DEUCON"] {
        let system = read(&text(algorithm), "epochs.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let mut coordinator = Coordinator::of(&system).unwrap().remove(0);
        let mut changed = Vec::new();
        for second in 1..=200 {
            let now = Instant::ZERO + Span::from_secs(second);
            for place in [0, 1].map(ProcessorId) {
                coordinator.collect(now, place, Some(100_000));
            }
            changed.clear();
            coordinator.step(&system, now, |_, root, period| changed.push((root, period)));
        }
        // At the limit of the second epoch; the other rate does not move there.
        let least = coordinator.periods()[0];
        assert!(least >= Span::from_millis(50) && least < Span::from_micros(50_001), "{algorithm}: {least}");
        assert!(coordinator.periods()[1] < Span::from_millis(20) && changed.is_empty(), "{algorithm}: {changed:?}");
    }
}

/// A chain of three stages from each processor on, and one operation that is only there.
fn ring(processors: usize) -> Vec<Chain> {
    let chain = |at: usize| {
        let stage = |offset: usize| ((at + offset * offset) % processors, 2.0 + ((at * 7 + offset * 3) % 5) as f64);
        [((0..3).map(stage).collect(), 20.0, 500.0), (vec![(at, 4.0)], 5.0, 500.0)]
    };
    (0..processors).flat_map(chain).collect()
}

#[test]
fn the_problem_of_a_node_does_not_grow_with_the_number_of_processors() {
    let sizes = |processors| {
        let coordinator = Coordinator::of(&system("DEUCON", processors, 70, &ring(processors))).unwrap().remove(0);
        let sizes: Vec<_> = coordinator.sizes().collect();
        assert_eq!(sizes.len(), processors);
        (sizes.iter().map(|(tasks, _)| *tasks).max(), sizes.iter().map(|(_, members)| *members).max())
    };
    // Two tasks, on three processors.
    assert_eq!(sizes(10), (Some(2), Some(3)));
    assert_eq!(sizes(100), sizes(10));
    assert_eq!(sizes(1_000), sizes(10));
}

fn reach_their_set_points(processors: usize) {
    let mut plant = Plant::new(system("DEUCON", processors, 70, &ring(processors)));
    plant.gains = (0..processors).map(|at| 0.75 + (at * 37 % 100) as f64 / 100.0).collect();
    let began = std::time::Instant::now();
    plant.run(60);
    let took = began.elapsed() / 60 / processors as u32;
    println!("{processors} processors: {took:?} for a step of one of them");
    assert!(distance(&plant) < 0.01, "{}", distance(&plant));
}

#[test]
fn a_hundred_processors_reach_their_set_points() {
    reach_their_set_points(100);
}

/// `cargo test -p hyoshi-control --features eucon --test suite deucon:: -- --ignored --nocapture`
#[test]
#[ignore = "lasts half a minute"]
fn a_thousand_processors_reach_their_set_points() {
    reach_their_set_points(1_000);
}

#[test]
fn a_group_beyond_the_limit_of_one_controller_is_refused() {
    let chains = ring(40);
    let error = Coordinator::of(&system("DEUCON", 40, 70, &chains).with(|contents| {
        contents.feedback.iter_mut().for_each(|one| one.algorithm = hyoshi_model::FeedbackAlgorithm::Eucon);
    }));
    let error = error.unwrap_err();
    assert_eq!(
        format!("{error}; {}", error.remedy),
        "EUCON cannot start: one controller cannot set the rates of 80 tasks on 40 processors; the limit is 64 tasks on \
         32 processors; use DEUCON, which has a controller for each processor"
    );
}

prop_compose! {
    /// Chains over four to seven processors with a rate within each range: their utilisations can be reached.
    fn reachable()(processors in 4usize..8)(
        chains in prop::collection::vec(
            (prop::collection::vec((0..processors, 1u64..6), 1..4), 5.0..20.0f64, 2.0..20.0f64, 0.1..0.9f64), processors..12,
        ),
        processors in Just(processors),
    ) -> (usize, Vec<Chain>, Vec<f64>) {
        let mut set = vec![0.0; processors];
        let chains: Vec<Chain> = chains.into_iter().map(|(stages, shortest, ratio, part)| {
            let longest = shortest * ratio;
            let rate = 1.0 / longest + part * (1.0 / shortest - 1.0 / longest);
            let stages: Vec<(usize, f64)> = stages.into_iter().map(|(at, time)| (at, time as f64 / 10.0)).collect();
            stages.iter().for_each(|(at, time)| set[*at] += time * rate);
            (stages, shortest, longest)
        }).collect();
        (processors, chains, set)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // A wrong sign moves rates to their limits, away from the set points.
    #[test]
    fn with_a_perfect_model_reachable_set_points_are_reached((processors, chains, set) in reachable(), highest: bool, gain in 0.6..1.6f64) {
        let used: Vec<usize> = (0..processors).filter(|at| set[*at] > 0.0).collect();
        prop_assume!(used.len() == processors && set.iter().all(|set| set * gain < 0.95));
        for (algorithm, allowed) in [("EUCON", 0.005f64), ("DEUCON", 0.02)] {
            let system = system(algorithm, processors, 100, &chains).with(|contents| {
                for (one, set) in contents.feedback.iter_mut().zip(&set) {
                    one.utilisation_ppm = (set * gain * 1e6).round() as u32;
                    one.start = if highest { hyoshi_model::StartRates::Highest } else { hyoshi_model::StartRates::Lowest };
                }
            });
            let mut plant = Plant::new(system);
            plant.gains.fill(gain);
            let before = distance(&plant);
            plant.run(250);
            prop_assert!(distance(&plant) < allowed.max(before * 0.05), "{} {:?}", algorithm, plant.utilisations());
        }
    }
}
