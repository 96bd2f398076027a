//! Figures 4 and 5 of the CPU Broker's paper: arbiter and advocates in virtual time, as the paper set them up.

use hyoshi_control::{Arbiter, Chain, Joining, Spec, Status, Strict, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn chain(words: &str) -> Chain {
    Spec::chain(&[Spec::from_words(words.split_whitespace()).unwrap()]).unwrap()
}

fn budget(arbiter: &Arbiter, task: u32) -> u64 {
    arbiter.held(TaskId(task)).map_or(0, |held| held.budget().as_nanos())
}

/// A task with a period of 300 ms goes through phases of 100, 150 and 200 ms, ten periods each.
#[test]
fn figure_4_reservations_track_a_changing_demand() {
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::from_percent(95));
    let declared = Reservation::new(ms(110), ms(300)).unwrap();
    let joining = Joining::new("hourglass", declared, chain("max-decay --reports 3 --headroom 5%"));
    arbiter.join(TaskId(1), joining, Instant::ZERO).unwrap();
    let (mut over, mut demanded) = (0, 0);
    for cycle in 0..120u64 {
        let (phase, within) = (cycle / 10 % 3, cycle % 10);
        let demand = ms([100, 150, 200][phase as usize]);
        let held = budget(&arbiter, 1);
        assert!(held >= demand.as_nanos() || within < 2, "cycle {cycle} of {demand} had {held} ns");
        over += held.saturating_sub(demand.as_nanos());
        demanded += demand.as_nanos();
        arbiter.report(TaskId(1), Status::of_cycle(Instant::ZERO + ms(300 * (cycle + 1)), demand)).unwrap();
    }
    let percent = over as f64 * 100.0 / demanded as f64;
    println!("mean over-reservation {percent:.1} %");
    assert!(percent < 15.0, "{percent}");
}

/// Tasks of 95, 125 and 40 ms in 250 ms under Strict with a cap of 75 %; the third's importance rises and falls.
#[test]
fn figure_5_the_important_are_served_and_the_sum_stays_at_the_cap() {
    let mut arbiter = Arbiter::new(Box::new(Strict), Share::from_percent(75));
    for (task, budget, rate, importance) in [(1, 95, "38%", 10), (2, 125, "50%", 5), (3, 40, "16%", 1)] {
        let declared = Reservation::new(ms(budget), ms(250)).unwrap();
        let joining = Joining::new(format!("task {task}"), declared, chain(&format!("rate {rate}")));
        arbiter.join(TaskId(task), Joining { importance, ..joining }, Instant::ZERO).unwrap();
    }
    let held = |arbiter: &Arbiter| [1, 2, 3].map(|task| budget(arbiter, task) as f64 / 1e6);
    let is_at_the_cap = |arbiter: &Arbiter| assert_eq!(arbiter.reserved(), Share::from_percent(75));
    assert_eq!(held(&arbiter), [95.0, 92.5, 0.0]);
    is_at_the_cap(&arbiter);

    // At 16.6 s: within the same event, first what makes room, then what takes it.
    let decision = arbiter.set_importance(TaskId(3), 7).unwrap();
    let changed: Vec<_> = decision.changes.iter().map(|change| (change.task.0, change.to.unwrap().budget())).collect();
    assert_eq!(changed, [(2, Span::from_micros(52_500)), (3, ms(40))]);
    assert_eq!(held(&arbiter), [95.0, 52.5, 40.0]);
    is_at_the_cap(&arbiter);

    // At 22.5 s.
    arbiter.set_importance(TaskId(3), 1).unwrap();
    assert_eq!(held(&arbiter), [95.0, 92.5, 0.0]);
    is_at_the_cap(&arbiter);
}
