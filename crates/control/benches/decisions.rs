//! The cost of decisions: of the broker, a report and the arbitration of many tasks; of feedback control, a sample.
//! `cargo bench -p hyoshi-control --features eucon`

use divan::{Bencher, black_box};
use hyoshi_control::advocate::KINDS;
use hyoshi_control::feedback::{
    ASSIGNERS, AdaptiveTask, ControllerGains, Feedback, FeedbackSample, FeedbackSettings, RateAssignerKind,
};
use hyoshi_control::window::placement::{Cpu, WindowPlacement};
use hyoshi_control::{AdvocateChain, Arbiter, Joining, PolicySpec, Spec, Status, TaskId, Window};
use hyoshi_model::{FeedbackAlgorithm, Instant, Reservation, Share, Span, StartRates};

fn main() {
    divan::main();
}

/// The parts of the requests that policies can grant.
const POLICIES: [&str; 4] = ["fair", "strict", "weighted", "partition(a 30% strict, b 30% weighted)"];

fn chain(words: &str) -> AdvocateChain {
    if words.is_empty() {
        return AdvocateChain::default();
    }
    Spec::chain(&[Spec::from_words(words.split_whitespace()).expect("an advocate")]).expect("one")
}

/// This many tasks with a period of 33 ms that request 100 % together.
fn arbiter(tasks: u32, policy: &str, cap: u64, words: &str) -> Arbiter {
    let policy = policy.parse::<PolicySpec>().expect("a policy");
    let mut arbiter = Arbiter::new(policy.build(), Share::from_percent(cap));
    let period = Span::from_millis(33);
    let budget = Span::from_nanos(period.as_nanos() / u64::from(tasks));
    let declared = Reservation::new(budget, period).expect("within the period");
    for task in 0..tasks {
        let joining = Joining::new("task", declared, chain(words));
        let (importance, weight) = (task * 7 % 10, 1 + task * 3 % 10);
        let group = hyoshi_control::GroupId(task % 2);
        arbiter.join(TaskId(task), Joining { importance, weight, group, ..joining }, Instant::ZERO).expect("room");
    }
    arbiter
}

/// A thousand tasks in contention, all arbitrated again.
#[divan::bench(args = POLICIES)]
fn arbitrate_1000(bencher: Bencher<'_, '_>, policy: &str) {
    let mut arbiter = arbiter(1_000, policy, 66, "");
    bencher.bench_local(|| black_box(arbiter.reconsider(|_| ())).changes.len());
}

/// A thousand tasks in contention; one task's request changes with each report, and with it the grants of others.
#[divan::bench(args = POLICIES)]
fn report_in_contention_1000(bencher: Bencher<'_, '_>, policy: &str) {
    let mut arbiter = arbiter(1_000, policy, 66, "max-decay --reports 1");
    let mut step = 0u64;
    bencher.bench_local(|| {
        step += 1;
        let consumed = Span::from_micros(20 + 20 * (step % 2));
        let status = Status::of_cycle(Instant::from_nanos(step), consumed);
        black_box(arbiter.report(TaskId(500), status)).map(|decision| decision.changes.len())
    });
}

/// A thousand tasks; a report that changes nothing.
#[divan::bench]
fn report_without_a_change_1000(bencher: Bencher<'_, '_>) {
    let mut arbiter = arbiter(1_000, "weighted", 66, "max-decay --reports 10");
    let mut step = 0u64;
    bencher.bench_local(|| {
        step += 1;
        let status = Status::of_cycle(Instant::from_nanos(step), Span::from_micros(31));
        black_box(arbiter.report(TaskId((step % 1_000) as u32), status)).map(|decision| decision.changes.len())
    });
}

/// A thousand tasks that all fit; each report changes its task's reservation.
#[divan::bench]
fn report_with_a_change_1000(bencher: Bencher<'_, '_>) {
    let mut arbiter = arbiter(1_000, "weighted", 1_000, "max-decay --reports 1");
    let mut step = 0u64;
    bencher.bench_local(|| {
        step += 1;
        let consumed = Span::from_micros(20 + 20 * (step / 1_000 % 2));
        let status = Status::of_cycle(Instant::from_nanos(step), consumed);
        black_box(arbiter.report(TaskId((step % 1_000) as u32), status)).map(|decision| decision.changes.len())
    });
}

/// One status for each kind of advocate, with its memory full.
#[divan::bench(args = KINDS.iter().map(|kind| kind.name).filter(|name| !["cap", "floor", "rate", "value"].contains(name)))]
fn advise(bencher: Bencher<'_, '_>, name: &str) {
    let mut chain = chain(name);
    let declared = Reservation::new(Span::from_millis(10), Span::from_millis(33)).expect("within the period");
    let mut step = 0u64;
    let mut advise = || {
        step += 1;
        let consumed = Span::from_micros(if step.is_multiple_of(17) { 25_000 } else { 9_000 + step * 7_919 % 1_000 });
        chain.advise(&Status::of_cycle(Instant::from_nanos(step), consumed), declared, |_| ())
    };
    (0..2_000).for_each(|_| {
        advise();
    });
    bencher.bench_local(|| black_box(advise()));
}

/// One check of a window.
#[divan::bench]
fn check(bencher: Bencher<'_, '_>) {
    let reservation = Reservation::new(Span::from_millis(10), Span::from_millis(33)).expect("within the period");
    let mut window = Window::new(reservation);
    let mut now = 0u64;
    bencher.bench_local(|| {
        now += 1_000_000;
        black_box(window.check(Instant::from_nanos(now), Span::from_nanos(now / 2), None))
    });
}

/// The twentieth window on one of four CPUs, placed and removed.
#[divan::bench]
fn admit_with_20_on_each_of_4(bencher: Bencher<'_, '_>) {
    let cpu = |number| Cpu { number, promises: Vec::new(), cap: Share::from_percent(95) };
    let mut placement = WindowPlacement::new((0..4).map(cpu), Span::from_micros(20));
    let window = |task: u32| {
        let period = Span::from_millis([33, 50, 100, 250][task as usize % 4] + u64::from(task) / 4);
        Reservation::new(Span::from_micros(800), period).expect("within the period")
    };
    for task in 0..80 {
        placement.admit(TaskId(task), window(task), &[]).expect("room");
    }
    bencher.bench_local(|| {
        placement.release(TaskId(79));
        black_box(placement.admit(TaskId(79), window(79), &[]))
    });
}

/// A sample of feedback control with a thousand tasks, whose rates all change.
#[divan::bench(args = ASSIGNERS.iter().map(|kind| kind.name))]
fn feedback_sample_1000(bencher: Bencher<'_, '_>, assigner: &str) {
    let settings = FeedbackSettings {
        algorithm: FeedbackAlgorithm::FcUm,
        utilisation: Share::from_percent(75),
        miss_ratio: Share::from_millionths(15_000),
        gains: ControllerGains::placed(2.0, 0.447).expect("the paper's"),
        unlimited: false,
    };
    let task = |number: u64| {
        let (shortest, longest) = (Span::from_micros(5_000 + 7 * number), Span::from_millis(1_000 + number));
        AdaptiveTask::new(Span::from_micros(50), shortest, longest, number as u32 % 7).expect("a range")
    };
    let tasks = (0..1_000).map(task).collect();
    let assigner = (RateAssignerKind::named(assigner).expect("a kind").build)();
    let mut feedback = Feedback::new(settings, assigner, tasks, StartRates::Lowest).expect("a loop");
    let mut step = 0u64;
    bencher.bench_local(|| {
        step += 1;
        let utilisation = if step % 60 < 30 { 0.2 } else { 1.0 };
        black_box(feedback.sample(FeedbackSample {
            utilisation: Some(utilisation),
            miss_ratio: Some(0.0),
            latency: None,
        }))
    });
}

/// A step of EUCON on this number of processors. Three times as many tasks have stages on three of them.
/// The last case is the largest.
#[cfg(feature = "eucon")]
#[divan::bench(args = [4, 8, 21])]
fn eucon_step(bencher: Bencher<'_, '_>, processors: u64) {
    use hyoshi_control::feedback::{EndToEndTask, Eucon, EuconSettings};
    let task = |number: u64| {
        let mut demand = vec![Span::ZERO; processors as usize];
        (0..3).for_each(|stage| demand[((number * 5 + stage) % processors) as usize] = Span::from_millis(10 + stage));
        EndToEndTask::new(demand, Span::from_millis(40), Span::from_millis(640)).expect("a range")
    };
    let tasks: Vec<EndToEndTask> = (0..3 * processors).map(task).collect();
    let settings = EuconSettings::new(vec![Share::from_percent(70); processors as usize]);
    let mut eucon = Eucon::new(settings, &tasks, StartRates::Lowest).expect("a controller");
    let mut step = 0u64;
    bencher.bench_local(|| {
        step += 1;
        let utilisation = |place| Some(if (step + place) % 60 < 30 { 0.4 } else { 0.9 });
        let utilisations: Vec<Option<f64>> = (0..processors).map(utilisation).collect();
        black_box(eucon.sample(&utilisations))
    });
}

/// A plan for this number of tasks, each with a stage on each of this number of processors; also with shares, as in
/// DEUCON.
#[cfg(feature = "eucon")]
#[divan::bench(args = [(2, 2), (12, 4), (24, 8), (32, 16), (64, 1), (64, 32)], consts = [false, true], sample_count = 60)]
fn dense_plan<const SHARES: bool>(bencher: Bencher<'_, '_>, (tasks, processors): (u64, u64)) {
    use hyoshi_control::feedback::{EndToEndTask, Eucon, EuconSettings};
    let task = |number: u64| {
        let stage = |at: u64| Span::from_millis(10 + (number * 7 + at * 3) % 5);
        let demand = (0..processors).map(stage).collect();
        EndToEndTask::new(demand, Span::from_millis(40), Span::from_millis(6_400)).expect("a range")
    };
    let tasks: Vec<EndToEndTask> = (0..tasks).map(task).collect();
    let shares = SHARES.then(|| vec![0.3; processors as usize]);
    let settings = EuconSettings { shares, ..EuconSettings::new(vec![Share::from_percent(70); processors as usize]) };
    let mut eucon = Eucon::new(settings, &tasks, StartRates::Lowest).expect("a controller");
    let mut step = 0u64;
    bencher.bench_local(|| {
        step += 1;
        let utilisation = |at| Some(if (step * 7 + at * 13) % 17 < 9 { 0.4 } else { 0.9 });
        let utilisations: Vec<Option<f64>> = (0..processors).map(utilisation).collect();
        black_box(eucon.sample(&utilisations))
    });
}

/// A step of all controllers of DEUCON in a ring of this number of processors, each with two tasks.
#[cfg(feature = "eucon")]
#[divan::bench(args = [10, 100, 1_000], sample_count = 10)]
fn deucon_step(bencher: Bencher<'_, '_>, processors: u64) {
    use hyoshi_control::feedback::Coordinator;
    use hyoshi_model::{Instant, ProcessorId};
    let mut text = String::from("name = 'ring'\n");
    for at in 0..processors {
        text += &format!(
            "[processor.p{at}]\n[feedback.p{at}]\nalgorithm = 'DEUCON'\nutilisation = '60%'\nperiod = '10s'\n\
             [operation.a{at}]\non = 'p{at}'\nrate = ['2Hz', '25Hz']\nwcet = '8ms'\n\
             [operation.b{at}]\non = 'p{}'\nafter = {{ all = ['a{at}'] }}\nwcet = '6ms'\n\
             [operation.c{at}]\non = 'p{}'\nafter = {{ all = ['b{at}'] }}\nwcet = '7ms'\n\
             [operation.d{at}]\non = 'p{at}'\nrate = ['2Hz', '50Hz']\nwcet = '5ms'\n",
            (at + 1) % processors,
            (at + 4) % processors,
        );
    }
    let system = hyoshi_model::read(&text, "ring.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let mut coordinator = Coordinator::of(&system).expect("a controller").remove(0);
    let mut step = 0u32;
    bencher.bench_local(|| {
        step += 1;
        let now = Instant::ZERO + Span::from_secs(step.into());
        for at in (0..processors as u32).map(ProcessorId) {
            coordinator.collect(now, at, Some(if (step + at.0) % 60 < 30 { 400_000 } else { 900_000 }));
        }
        coordinator.step(&system, now, |_, root, period| _ = black_box((root, period)))
    });
}
