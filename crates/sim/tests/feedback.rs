//! Feedback control of rates on executed jobs, not on the linear model.

use crate::common;

use std::fmt::Write;

use common::*;
use hyoshi_model::*;
use hyoshi_replay::{Observer, replay};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{DispatchDecision, FeedbackHistory, Input, TraceEvent};

/// FCS/nORB's tasks (section 4.1), with execution times of `gain` times the estimate.
fn fcs(settings: &str, gain: f64, epochs: &str) -> System {
    let mut text = format!(
        "name = 'fcs'\n{epochs}[processor.server]\nstrategy = 'RMS'\ncap = '100%'\nhard_cap = '100%'\n\
         [feedback.server]\n{settings}\n"
    );
    let methods = [("8.4ms", 8.4, 1.6, 35, 6), ("1.2ms", 1.2, 1.6, 50, 2), ("7ms", 7.0, 1.7, 40, 4)];
    for (method, (wcet, ms, slowest, fastest, count)) in methods.into_iter().enumerate() {
        for task in 0..count {
            let rate = slowest + f64::from(task) * 0.05;
            let _ = write!(
                text,
                "[operation.m{method}-{task}]\nrate = ['{rate:.2}Hz', '{fastest}Hz']\nwcet = '{wcet}'\n\
                 takes = {{ uniform = ['{time}us', '{time}us'] }}\n",
                time = (ms * gain * 1_000.0).round()
            );
        }
    }
    read(&text, "fcs.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

/// The samples of the only loop, and the events.
fn run(system: &System, seconds: u64) -> (FeedbackHistory, Vec<(ProcessorId, Instant, TraceEvent)>) {
    let all = events(system, Instant::ZERO + Span::from_secs(seconds));
    let mut observer = Observer::new(system);
    all.iter().for_each(|(processor, at, event)| observer.event(*processor, *at, event));
    let figures = observer.figures(Instant::ZERO + Span::from_secs(seconds));
    (figures.feedback[system.feedback[0].processor.index()].clone(), all)
}

const FC_U: &str = "algorithm = 'FC-U'\nutilisation = '70%'";
const FC_M: &str = "algorithm = 'FC-M'\nmiss_ratio = '1.5%'";
const FC_UM: &str = "algorithm = 'FC-UM'\nutilisation = '75%'\nmiss_ratio = '1.5%'";

/// The number of the first sample with 99 % of a utilisation.
fn settled(history: &FeedbackHistory, level: f64) -> usize {
    let reached = |sample: Option<f64>| sample.is_some_and(|utilisation| utilisation >= 0.99 * level);
    history.points().iter().position(|point| reached(point.utilisation())).map_or(usize::MAX, |place| place + 1)
}

fn steady(history: &FeedbackHistory, from: u64) -> (f64, f64) {
    let steady = history.steady(Instant::ZERO + Span::from_secs(from)).unwrap();
    (steady.utilisation.unwrap().0, steady.miss_ratio)
}

#[test]
fn fc_u_holds_its_set_point_with_execution_times_twice_as_long() {
    let (history, _) = run(&fcs(FC_U, 2.0, ""), 800);
    let (utilisation, misses) = steady(&history, 400);
    assert!((utilisation - 0.70).abs() < 0.005, "{utilisation}");
    assert_eq!(misses, 0.0);
    // The linear model settles at the tenth sample.
    assert!((9..=11).contains(&settled(&history, 0.70)), "{}", settled(&history, 0.70));
}

#[test]
fn fc_m_and_fc_um_rise_slowly_because_no_miss_shows_how_far_to_go() {
    let (um, _) = run(&fcs(FC_UM, 2.0, ""), 800);
    let (utilisation, misses) = steady(&um, 400);
    assert!((utilisation - 0.75).abs() < 0.005, "{utilisation}");
    assert_eq!(misses, 0.0);
    assert!((36..=46).contains(&settled(&um, 0.75)), "{}", settled(&um, 0.75));
    let (m, _) = run(&fcs(FC_M, 2.0, ""), 1_600);
    let (utilisation, misses) = steady(&m, 800);
    assert!(utilisation > 0.9, "{utilisation}");
    assert!((misses - 0.015).abs() < 0.003, "{misses}");
    let fast = FC_UM.replace("FC-UM", "FC-UM-fast");
    let (fast, _) = run(&fcs(&fast, 2.0, ""), 400);
    assert!(settled(&fast, 0.75) <= 15, "{}", settled(&fast, 0.75));
}

/// FCS/nORB, footnotes 2 and 3: FC-M is FC-EDF there, and FC-UM FC-EDF2. And section 2.2.3: with a set point of the
/// utilisation above the load at which misses begin, FC-UM holds the miss ratio.
#[test]
fn the_laws_hold_their_set_points_under_edf_and_fc_um_above_the_bound() {
    let run = |settings: &str, strategy: &str, preemption: &str| {
        let system = fcs(settings, 2.0, "").with(|system| {
            system.processors[0].strategy = strategy.into();
            system.processors[0].preemption = if preemption == "full" { Preemption::Full } else { Preemption::Levels };
        });
        steady(&run(&system, 1_600).0, 800)
    };
    // In overload nearly all jobs are late, so the slope of the miss ratio is greater.
    let (utilisation, misses) = run(&format!("{FC_M}\ngains = {{ gm = 1 }}"), "EDF", "full");
    assert!(utilisation > 0.9 && (misses - 0.015).abs() < 0.003, "{utilisation} {misses}");
    let (utilisation, misses) = run(FC_UM, "EDF", "full");
    assert!((utilisation - 0.75).abs() < 0.005 && misses == 0.0, "{utilisation} {misses}");
    let high = FC_UM.replace("75%", "99%");
    let (utilisation, misses) = run(&high, "RMS", "levels");
    assert!(utilisation > 0.9 && (misses - 0.015).abs() < 0.005, "{utilisation} {misses}");
}

#[test]
fn steps_up_and_down_are_absorbed() {
    let step = |at: u64, factor: f64| {
        let takes = (8.4 * 2.0 * factor * 1_000.0).round();
        let set = |task| format!("'operation.m0-{task}.takes' = {{ uniform = ['{takes}us', '{takes}us'] }}");
        format!("[[epoch]]\nat = '{at}s'\nset = {{ {} }}\n", (0..6).map(set).collect::<Vec<_>>().join(", "))
    };
    let (history, _) = run(&fcs(FC_U, 2.0, &(step(200, 1.5) + &step(600, 0.25))), 1_000);
    let of = |from: u64, to: u64| {
        let within =
            |at: Instant| at > Instant::ZERO + Span::from_secs(from) && at <= Instant::ZERO + Span::from_secs(to);
        let points: Vec<f64> =
            history.points().iter().filter(|point| within(point.at)).filter_map(|one| one.utilisation()).collect();
        points.iter().sum::<f64>() / points.len() as f64
    };
    assert!(of(200, 204) > 0.75, "the step is visible");
    assert!((of(400, 600) - 0.70).abs() < 0.005, "{}", of(400, 600));
    assert!(of(600, 604) < 0.60, "the second step is visible");
    assert!((of(800, 1_000) - 0.70).abs() < 0.005, "{}", of(800, 1_000));
}

#[test]
fn a_recording_fed_back_sets_the_same_rates() {
    for settings in [FC_U, FC_UM] {
        let system = fcs(settings, 2.0, "");
        let (_, all) = run(&system, 60);
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let own = all.iter().map(|(_, at, event)| (*at, *event));
        replay(&system, &plan.processors[0], own).unwrap_or_else(|divergence| panic!("{divergence}"));
        let rates =
            all.iter().filter(|(.., event)| matches!(event, TraceEvent::Decision(DispatchDecision::Retime { .. })));
        assert!(rates.count() > 100);
    }
}

#[test]
fn an_epoch_moves_the_limits_and_the_rates_stay_within() {
    let narrow = "[[epoch]]\nat = '40s'\nset = { 'operation.m1-0.rate' = ['1.6Hz', '2Hz'] }\n";
    let system = fcs(FC_U, 1.0, narrow);
    let (_, all) = run(&system, 100);
    let root = system.operation_ids().find(|id| system.operation(*id).name == "m1-0").unwrap();
    let releases: Vec<Instant> = ends(&all).filter(|end| end.job.operation == root).map(|end| end.release).collect();
    let from = Instant::ZERO + Span::from_secs(45);
    let gaps = releases.windows(2).filter(|pair| pair[0] > from).map(|pair| pair[1].since(pair[0]));
    let gaps: Vec<Span> = gaps.collect();
    assert!(gaps.len() > 50);
    assert!(gaps.iter().all(|gap| (500..=625).contains(&(gap.as_nanos() / 1_000_000))), "{gaps:?}");
}

#[test]
fn one_loop_sets_the_rate_of_a_chain_over_processors_and_hosts() {
    let text = "name = 'chain'\n\
        [host.client]\n[host.server]\n[[link]]\nbetween = ['client', 'server']\ndelay = '3ms'\n\
        [processor.client]\nhost = 'client'\n[processor.server]\nhost = 'server'\nhard_cap = '100%'\ncap = '100%'\n\
        [feedback.server]\nalgorithm = 'FC-U'\nutilisation = '60%'\nperiod = '1s'\n\
        [operation.poll]\non = 'client'\nrate = ['2Hz', '100Hz']\nwcet = '1ms'\n\
        [operation.serve]\non = 'server'\nafter = { all = ['poll'] }\nwcet = '8ms'\n\
        takes = { uniform = ['16ms', '16ms'] }\n";
    let system = read(text, "chain.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let (history, all) = run(&system, 120);
    let (utilisation, misses) = steady(&history, 60);
    assert!((utilisation - 0.60).abs() < 0.01, "{utilisation}");
    assert_eq!(misses, 0.0);
    let client = ProcessorId(0);
    let retimed = all.iter().filter(|(processor, at, event)| {
        let is_rate = matches!(event, TraceEvent::Input(Input::Adapt { .. })) && *processor == client;
        // After the delay of the link.
        is_rate && at.as_nanos() % 1_000_000_000 == 3_000_000
    });
    assert!(retimed.count() > 10);
}

#[test]
fn the_caps_leave_time_for_other_work_under_fc_m() {
    let system = fcs(FC_M, 2.0, "").with(|contents| {
        contents.processors[0].hard_cap.ppm = 940_000;
        contents.processors[0].cap_ppm = 940_000;
    });
    let all = events(&system, Instant::ZERO + Span::from_secs(1_200));
    let busy: Span =
        ends(&all).filter(|end| end.end > Instant::ZERO + Span::from_secs(1_000)).map(|end| end.consumed).sum();
    let used = busy.as_nanos() as f64 / 200e9;
    assert!((0.85..0.95).contains(&used), "{used}");
}

#[test]
fn the_cap_reserves_time_for_adapted_rates_not_for_the_highest() {
    // At the highest rates they need 155 % by their estimates: the least urgent lanes would be closed.
    let system = fcs(FC_U, 2.0, "").with(|contents| contents.processors[0].cap_ppm = 940_000);
    let (history, _) = run(&system, 400);
    assert!((steady(&history, 200).0 - 0.70).abs() < 0.005);
    assert_eq!(steady(&history, 0).1, 0.0);
}
