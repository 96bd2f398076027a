//! Explanations in words: each situation is explained as in the file beside this one, and names the true blocker. After
//! a change of wording: `BLESS=1 cargo test -p hyoshi-control --test suite explain::`, then read the diff.

use std::fs;
use std::path::Path;

use hyoshi_control::{Arbiter, Confirmation, GroupId, Joining, PolicySpec, Spec, Status, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn of(budget: u64, period: u64) -> Reservation {
    Reservation::new(ms(budget), ms(period)).unwrap()
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + ms(millis)
}

fn arbiter(policy: &str, cap: u64) -> Arbiter {
    Arbiter::new(policy.parse::<PolicySpec>().unwrap().build(), Share::from_percent(cap))
}

fn join(
    arbiter: &mut Arbiter,
    task: u32,
    name: &str,
    reservation: Reservation,
    chain: &[&str],
    set: impl Fn(&mut Joining),
) {
    let specs: Vec<_> = chain.iter().map(|words| Spec::from_words(words.split_whitespace()).unwrap()).collect();
    let mut joining = Joining::new(name, reservation, Spec::chain(&specs).unwrap());
    set(&mut joining);
    arbiter.join(TaskId(task), joining, Instant::ZERO).unwrap();
}

fn report(arbiter: &mut Arbiter, task: u32, millis: u64, consumed: u64) {
    arbiter.report(TaskId(task), Status::of_cycle(at(millis), ms(consumed))).unwrap();
}

fn explanation(arbiter: &Arbiter, task: u32) -> String {
    let reported = arbiter.explain(TaskId(task), Instant::ZERO).unwrap().status.map_or(Instant::ZERO, |last| last.at);
    format!("{}\n", arbiter.explain(TaskId(task), reported + ms(33)).unwrap())
}

/// Name of the situation and its explanation.
fn situations() -> Vec<(&'static str, String)> {
    let mut all = Vec::new();

    // Figure 5 of the paper, at first.
    let mut figure = arbiter("strict", 75);
    for (task, budget, importance) in [(1, 95, 10), (2, 125, 5), (3, 40, 1)] {
        let name = format!("hourglass-{task}");
        join(&mut figure, task, &name, of(budget, 250), &["max-decay 10 --headroom 0%"], |joining| {
            joining.importance = importance
        });
        report(&mut figure, task, 250, budget);
    }
    figure.confirmed(TaskId(2), Confirmation { at: at(251), proxy: "window", held: figure.held(TaskId(2)) });
    all.push(("strict-granted", explanation(&figure, 1)));
    all.push(("strict-cut", explanation(&figure, 2)));
    all.push(("strict-starved", explanation(&figure, 3)));
    figure.set_least(TaskId(2), Share::from_percent(40)).unwrap();
    all.push(("strict-below-least", explanation(&figure, 2)));
    figure.set_least(TaskId(2), Share::ZERO).unwrap();
    figure.refused(TaskId(1), Some(of(50, 250))).unwrap();
    all.push(("scheduler-takes-less", explanation(&figure, 1)));
    figure.refused(TaskId(1), None).unwrap();
    all.push(("scheduler-takes-nothing", explanation(&figure, 1)));

    let mut weighted = arbiter("weighted", 75);
    for task in 1..=9 {
        let name = format!("worker-{task}");
        join(&mut weighted, task, &name, of(20, 100), &[], |joining| joining.weight = task);
    }
    all.push(("weighted-cut", explanation(&weighted, 3)));

    let mut parted = arbiter("partition(video 40% strict, rest 35% weighted)", 75);
    join(&mut parted, 1, "player", of(20, 33), &["cap 50%"], |joining| joining.importance = 5);
    join(&mut parted, 2, "preview", of(10, 33), &["percentile", "floor 10%"], |joining| joining.importance = 1);
    join(&mut parted, 3, "indexer", of(30, 100), &["glacial", "log"], |joining| joining.group = GroupId(1));
    join(&mut parted, 4, "lost", of(30, 100), &[], |joining| joining.group = GroupId(7));
    report(&mut parted, 3, 100, 25);
    all.push(("partition-cut", explanation(&parted, 1)));
    all.push(("partition-starved", explanation(&parted, 2)));
    all.push(("partition-granted", explanation(&parted, 3)));
    all.push(("partition-no-group", explanation(&parted, 4)));

    let mut spikes = arbiter("strict", 90);
    join(&mut spikes, 1, "recogniser", of(110, 500), &["proactive", "watchdog"], |joining| joining.importance = 1);
    for cycle in 1..=45 {
        report(&mut spikes, 1, 500 * cycle, if cycle % 10 == 0 { 300 } else { 100 });
    }
    all.push(("proactive-between", explanation(&spikes, 1)));
    for cycle in 46..=49 {
        report(&mut spikes, 1, 500 * cycle, 100);
    }
    all.push(("proactive-due", explanation(&spikes, 1)));
    spikes.report(TaskId(1), Status::overdue(at(25_500), ms(400))).unwrap();
    all.push(("watchdog-raised", explanation(&spikes, 1)));

    // A camera of 60 frames a second, metered to the nanosecond.
    let mut fine = arbiter("strict", 90);
    let frame = Reservation::new(Span::from_nanos(5_025_006), Span::from_nanos(16_666_667)).unwrap();
    join(&mut fine, 1, "camera", frame, &["max-decay 10", "glacial"], |_| {});
    let status = Status::of_cycle(at(17), Span::from_nanos(5_313_373));
    fine.report(TaskId(1), status).unwrap();
    all.push(("fine", explanation(&fine, 1)));
    all
}

#[test]
fn each_situation_is_explained_as_in_its_golden_file() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/explained");
    let bless = std::env::var_os("BLESS").is_some();
    let mut differing = Vec::new();
    for (name, text) in situations() {
        let file = dir.join(name).with_extension("txt");
        if bless {
            fs::write(&file, &text).unwrap();
        } else if fs::read_to_string(&file).unwrap_or_default() != text {
            differing.push(format!("{name}:\n{text}"));
        }
    }
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
