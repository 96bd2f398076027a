use super::*;
use alloc::format;
use proptest::prelude::*;

/// Three processors with chains between them, and an operation on each.
fn system(algorithm: &str, set_points: [u32; 3]) -> hyoshi_model::System {
    let mut text = String::from("name = 'three'\n");
    for (at, set_point) in set_points.iter().enumerate() {
        let next = (at + 1) % 3;
        text += &format!(
            "[processor.p{at}]\nhard_cap = '100%'\n\
             [feedback.p{at}]\nalgorithm = '{algorithm}'\nutilisation = '{set_point}%'\nperiod = '1s'\nstart = 'highest'\n\
             [operation.a{at}]\non = 'p{at}'\nwcet = '2ms'\nrate = ['1Hz', '100Hz']\n\
             [operation.b{at}]\non = 'p{next}'\nwcet = '3ms'\nafter = {{ all = ['a{at}'] }}\n\
             [operation.c{at}]\non = 'p{at}'\nwcet = '1ms'\nrate = ['2Hz', '70Hz']\n"
        );
    }
    hyoshi_model::read(&text, "three.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

fn coordinator(system: &hyoshi_model::System) -> Coordinator {
    Coordinator::of(system).unwrap_or_else(|error| panic!("{error}")).remove(0)
}

/// A sampling period with these utilisations in parts per million.
fn sample(one: &mut Coordinator, second: u64, utilisations: [Option<u32>; 3]) -> Instant {
    let now = Instant::ZERO + Span::from_secs(second);
    (0..).map(ProcessorId).zip(utilisations).for_each(|(at, each)| one.collect(now, at, each));
    now
}

fn utilisation() -> impl Strategy<Value = Option<u32>> {
    prop::option::weighted(0.9, 0u32..1_200_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Whether the solver fails or a step is skipped.
    #[test]
    fn without_solutions_no_rate_rises_or_leaves_its_range_and_those_of_overloaded_processors_fall(
        deucon: bool,
        set_points in prop::array::uniform3(20u32..90),
        solved in prop::collection::vec(prop::array::uniform3(utilisation()), 0..4),
        steps in prop::collection::vec((any::<bool>(), prop::array::uniform3(utilisation())), 1..20),
    ) {
        let system = system(if deucon { "DEUCON" } else { "EUCON" }, set_points);
        let mut one = coordinator(&system);
        let mut second = 0;
        for utilisations in solved {
            second += 1;
            let now = sample(&mut one, second, utilisations);
            prop_assert!(one.step(&system, now, |_, _, _| ()));
        }
        let before = one.counts();
        one.controllers.iter_mut().for_each(|controller| controller.law.fail());
        let (mut unsolved, mut skipped) = (0, 0);
        for (skips, utilisations) in steps {
            second += 1;
            let now = sample(&mut one, second, utilisations);
            let old = one.periods().to_vec();
            if skips {
                one.skip(&system, now, |_, _, _| ());
                skipped += 1;
            } else {
                prop_assert!(!one.step(&system, now, |_, _, _| ()));
                unsolved += 1;
            }
            prop_assert_eq!(one.due(), Instant::NEVER);
            for ((task, period), old) in one.group().tasks.iter().zip(one.periods()).zip(&old) {
                let setting = system.setting(0, task.root);
                prop_assert!((setting.period..=setting.slowest).contains(period) && period >= old);
                let is_above = |(member, _): &(usize, OperationId)| {
                    utilisations[*member].is_some_and(|ppm| ppm.min(1_000_000) > set_points[*member] * 10_000)
                };
                let falls = task.parts.iter().any(is_above);
                let has_fallen = period.as_nanos() > old.as_nanos() + 1;
                // The slowest rate may be less than a nanosecond away.
                prop_assert!(has_fallen == falls || falls && *period == setting.slowest, "from {} to {}", old, period);
            }
        }
        let counts = one.counts();
        prop_assert_eq!((counts.unsolved, counts.skipped), (unsolved, skipped));
        prop_assert_eq!(counts.steps, before.steps + unsolved + skipped);
    }

    #[test]
    fn a_rate_on_a_processor_without_a_sample_does_not_rise_and_all_problems_have_solutions(
        deucon: bool,
        set_points in prop::array::uniform3(20u32..90),
        steps in prop::collection::vec(prop::array::uniform3(prop::option::weighted(0.7, 0u32..1_200_000)), 1..40),
    ) {
        let system = system(if deucon { "DEUCON" } else { "EUCON" }, set_points);
        let mut one = coordinator(&system);
        for (second, utilisations) in (1..).zip(steps) {
            let now = sample(&mut one, second, utilisations);
            let old = one.periods().to_vec();
            prop_assert!(one.step(&system, now, |_, _, _| ()));
            for ((task, period), old) in one.group().tasks.iter().zip(one.periods()).zip(&old) {
                let is_held = task.parts.iter().any(|(member, _)| utilisations[*member].is_none());
                prop_assert!(period >= old || !is_held, "from {} to {} in {}", old, period, second);
            }
        }
    }
}

#[test]
fn without_solutions_measured_utilisations_fall_to_their_set_points() {
    for algorithm in ["EUCON", "DEUCON"] {
        let system = system(algorithm, [30; 3]);
        let mut one = coordinator(&system);
        one.controllers.iter_mut().for_each(|controller| controller.law.fail());
        let measure = |one: &Coordinator| {
            // A tenth of each processor is other load.
            let mut utilisations = [0.1; 3];
            for (task, period) in one.group().tasks.iter().zip(one.periods()) {
                for (member, id) in &task.parts {
                    let work = 2.0 * system.setting(0, *id).wcet.as_secs_f64();
                    utilisations[*member] += work / period.as_secs_f64();
                }
            }
            utilisations
        };
        for second in 1..=100 {
            let utilisations = measure(&one).map(|each: f64| Some((each * 1e6) as u32));
            let now = sample(&mut one, second, utilisations);
            one.step(&system, now, |_, _, _| ());
        }
        assert!(measure(&one).iter().all(|each| (0.295..0.301).contains(each)), "{:?}", measure(&one));
    }
}
