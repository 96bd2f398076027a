use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

fn at(micros: u64) -> Instant {
    Instant::from_nanos(micros * 1_000)
}

fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

fn window(budget: u64, period: u64) -> Window {
    Window::new(Reservation::new(us(budget), us(period)).unwrap())
}

#[test]
fn it_sleeps_for_what_is_left_and_lowers_when_nothing_is() {
    let mut window = window(3_000, 10_000);
    assert_eq!(window.check(at(10_000), us(500), None), WindowStep::Raise(at(13_000)));
    // It ran half of the time: half is left.
    assert_eq!(window.check(at(13_000), us(2_000), None), WindowStep::Check(at(14_500)));
    assert_eq!(window.check(at(14_500), us(3_480), None), WindowStep::Check(at(14_600)), "the least step");
    assert_eq!(window.check(at(14_600), us(3_580), None), WindowStep::Lower(at(20_000)));
    assert_eq!(window.check(at(15_000), us(3_980), None), WindowStep::Wait(at(20_000)));
    assert_eq!(
        window.check(at(20_000), us(8_000), None),
        WindowStep::Raise(at(23_000)),
        "what it took lowered does not count"
    );
}

#[test]
fn what_is_not_wanted_is_kept_until_the_period_ends_and_then_forfeited() {
    let mut window = window(3_000, 10_000);
    window.check(at(0), us(0), None);
    assert_eq!(window.check(at(3_000), us(0), None), WindowStep::Check(at(6_000)));
    assert_eq!(window.check(at(9_000), us(0), None), WindowStep::Check(at(10_000)), "not past the period's end");
    assert_eq!(window.check(at(10_000), us(1_000), None), WindowStep::Check(at(13_000)));
}

#[test]
fn a_late_look_opens_the_period_it_is_in() {
    let mut window = window(3_000, 10_000);
    window.check(at(0), us(0), None);
    assert_eq!(window.check(at(34_000), us(9_000), None), WindowStep::Check(at(37_000)));
    assert_eq!(window.check(at(37_000), us(12_000), None), WindowStep::Lower(at(40_000)));
}

#[test]
fn another_reservation_counts_what_was_consumed() {
    let mut window = window(3_000, 10_000);
    let of = |budget, period| Reservation::new(us(budget), us(period)).unwrap();
    window.check(at(0), us(0), None);
    assert_eq!(window.reserve(of(2_000, 10_000), at(2_500), us(2_500)), WindowStep::Lower(at(10_000)));
    assert_eq!(window.reserve(of(4_000, 10_000), at(3_000), us(2_500)), WindowStep::Raise(at(4_500)));
    // A shorter period begins at its own first multiple at which what was consumed is earned: 2.5 ms at 3 of 10, then
    // 0.5 ms at 4 of 10, would have been by 9.6 ms.
    assert_eq!(window.reserve(of(2_000, 4_000), at(3_500), us(3_000)), WindowStep::Lower(at(12_000)));
    assert_eq!(window.check(at(12_000), us(3_000), None), WindowStep::Raise(at(14_000)));
    // A task that changes to a longer one and at once back to the shorter one has lost and gained nothing.
    assert_eq!(window.reserve(of(10_000, 20_000), at(12_500), us(3_500)), WindowStep::Check(at(22_000)));
    assert_eq!(window.reserve(of(2_000, 4_000), at(12_600), us(3_600)), WindowStep::Check(at(14_000)));
    assert_eq!(window.check(at(14_000), us(5_000), None), WindowStep::Lower(at(16_000)));
    assert_eq!(window.check(at(16_000), us(5_000), None), WindowStep::Raise(at(18_000)));
}

#[test]
fn a_larger_share_for_a_moment_earns_nothing_of_what_was_consumed_before() {
    let mut window = window(1_000, 10_000);
    let of = |budget, period| Reservation::new(us(budget), us(period)).unwrap();
    window.check(at(0), us(0), None);
    window.check(at(1_000), us(1_000), None);
    assert_eq!(window.reserve(of(9_000, 11_000), at(1_000), us(1_000)), WindowStep::Raise(at(9_000)));
    assert_eq!(window.reserve(of(200, 2_000), at(1_100), us(1_000)), WindowStep::Lower(at(10_000)));
    // A task that has consumed nothing waits for its next multiple, or until its own length has passed, whatever was
    // held before.
    assert_eq!(window.check(at(35_000), us(1_000), None), WindowStep::Raise(at(35_200)));
    assert_eq!(window.reserve(of(1_000, 500_000), at(35_100), us(1_000)), WindowStep::Check(at(36_100)));
    assert_eq!(window.reserve(of(1_000, 10_000), at(36_100), us(1_000)), WindowStep::Check(at(37_100)));
    assert_eq!(window.reserve(of(200, 2_000), at(77_100), us(1_000)), WindowStep::Check(at(77_300)));
}

#[test]
fn a_hard_one_pays_back_what_it_had_too_much_and_not_what_it_had_while_it_was_soft() {
    let mut window = window(3_000, 10_000);
    window.check(at(0), us(0), None);
    window.check(at(3_000), us(3_000), None);
    window.harden(true, us(9_000));
    assert_eq!(
        window.check(at(10_000), us(9_000), None),
        WindowStep::Raise(at(13_000)),
        "what it had soft is not owed"
    );
    assert_eq!(window.check(at(14_000), us(13_000), None), WindowStep::Lower(at(20_000)), "a look too late");
    assert_eq!(window.check(at(20_000), us(13_000), None), WindowStep::Raise(at(22_000)));
    assert_eq!(window.check(at(29_000), us(22_000), None), WindowStep::Lower(at(30_000)));
    assert_eq!(
        window.check(at(30_000), us(22_000), None),
        WindowStep::Wait(at(40_000)),
        "it owes more than two budgets"
    );
    assert_eq!(window.check(at(40_000), us(22_000), None), WindowStep::Wait(at(50_000)), "and has paid one of them");
    assert_eq!(window.check(at(50_000), us(22_000), None), WindowStep::Raise(at(52_000)));
    // Periods without a check pay, too; their unused budget is forfeited.
    assert_eq!(window.check(at(75_000), us(27_000), None), WindowStep::Check(at(78_000)));
    window.harden(false, us(32_000));
    assert_eq!(window.check(at(80_000), us(32_000), None), WindowStep::Check(at(83_000)), "a soft one owes nothing");
}

#[test]
fn what_a_hard_one_owes_is_bounded() {
    let mut window = window(3_000, 10_000);
    window.check(at(0), us(0), None);
    window.harden(true, us(0));
    // Real-time by its own choice for a minute.
    window.check(at(60_000_000), us(60_000_000), None);
    let closed = (1..).take_while(|period| {
        let step = window.check(at(60_000_000 + period * 10_000), us(60_000_000), None);
        matches!(step, WindowStep::Lower(_) | WindowStep::Wait(_))
    });
    assert_eq!(closed.count(), 9, "ten budgets, the first of them where it was seen");
}

#[test]
fn what_was_granted_before_a_cut_is_not_owed() {
    let of = |budget, period| Reservation::new(us(budget), us(period)).unwrap();
    let mut one = window(20_000, 40_000);
    one.harden(true, us(0));
    one.check(at(0), us(0), None);
    let mut other = one;
    assert_eq!(one.check(at(20_000), us(20_000), None), WindowStep::Lower(at(40_000)));
    assert_eq!(one.reserve(of(2_000, 40_000), at(30_000), us(20_000)), WindowStep::Wait(at(40_000)));
    assert_eq!(one.check(at(40_000), us(20_000), None), WindowStep::Raise(at(42_000)));
    // The same, if the cut is before the check that would have closed the period.
    assert_eq!(other.reserve(of(2_000, 40_000), at(41_000), us(20_500)), WindowStep::Check(at(42_500)));
    // The excess over the old budget is 500 us.
    assert_eq!(other.reserve(of(400, 40_000), at(41_000), us(20_500)), WindowStep::Lower(at(80_000)));
}

#[test]
fn an_idle_task_is_looked_at_ever_less() {
    let mut window = window(33, 33_000);
    let (mut now, mut checks) = (0, Vec::new());
    for period in 1..=200 {
        checks.push(0);
        while now < period * 33_000 {
            now = window.check(at(now), us(7), Some(8)).at().as_nanos() / 1_000;
            checks[period as usize - 1] += 1;
        }
    }
    assert_eq!((checks[0], checks[199]), (330, 8));
    assert!(checks.is_sorted_by(|one, next| one >= next));
    assert!(checks.iter().sum::<u32>() < 5_500, "{checks:?}");
    // It wakes up: after this much consumption, then after as little as ever.
    window.check(at(now), us(7), Some(8));
    let at_last = window.check(at(now + 4_000), us(4_007), Some(8));
    assert_eq!(at_last, WindowStep::Lower(at(now + 33_000)));
    window.check(at(now + 33_000), us(4_007), Some(8));
    assert!(window.check(at(now + 33_100), us(4_007), Some(8)).at() <= at(now + 34_200));
}

#[test]
fn with_alarms_a_task_that_sleeps_is_looked_at_four_times_a_second_and_one_that_wakes_has_its_budget_at_once() {
    let mut window = window(3_000, 10_000);
    let mut look = |now: u64, meter: u64| {
        let step = window.check(at(now), us(meter), None);
        (window.next_alarm(step, 1), window.sleeps())
    };
    assert_eq!(look(0, 0), (WindowAlarm { at: at(10_000), alarm: Some(us(3_000)) }, false));
    let (mut now, mut checks) = (10_000, 0);
    while now < 2_000_000 {
        let (rest, sleeps) = look(now, 0);
        assert!(sleeps && rest.alarm == Some(Window::WAKES_AFTER), "{rest:?}");
        (now, checks) = (rest.at.as_nanos() / 1_000, checks + 1);
    }
    assert!(checks < 16, "{checks}");
    // The alarm rings in the middle of a later period.
    assert_eq!(look(now - 129_000 + 7, 50), (WindowAlarm { at: at(now - 120_000), alarm: Some(us(3_000)) }, false));
    assert_eq!(look(now - 129_000 + 3_007, 3_050), (WindowAlarm { at: at(now - 120_000), alarm: None }, false));
}

#[test]
fn of_several_threads_the_first_alarm_rings_when_all_can_have_consumed_the_budget() {
    let mut window = window(3_000, 10_000);
    let mut look = |now: u64, meter: u64| {
        let step = window.check(at(now), us(meter), None);
        window.next_alarm(step, 3)
    };
    assert_eq!(look(0, 0), WindowAlarm { at: at(10_000), alarm: Some(us(3_000)) });
    assert_eq!(look(2_000, 1_800), WindowAlarm { at: at(3_200), alarm: None }, "watched by looks from then on");
    assert_eq!(look(3_200, 3_000), WindowAlarm { at: at(10_000), alarm: None });
    assert_eq!(look(10_000, 3_000), WindowAlarm { at: at(20_000), alarm: Some(us(3_000)) });
}

proptest! {
    /// Of the rest, threads have consumed at most all before one is reported, except for the shortest alarms.
    #[test]
    fn parts_of_the_rest_are_the_rest(left in 0u64..10_000_000, threads in 1usize..17) {
        let (most, other) = WindowAlarm::parts(Span::from_nanos(left), threads);
        prop_assert!(most.as_nanos() + other.as_nanos() * (threads as u64 - 1) <= left);
        prop_assert!(most >= other && (threads > 1 || most.as_nanos() == left));
        if left > 1_000_000 {
            prop_assert!(most.as_nanos() * 4 >= left * 3, "{most} of {left}");
        }
    }

    /// For any behaviour of a task with one thread: with alarms alone it is raised until its budget is consumed, and
    /// longer only by the end of its sleep and the lateness of alarms. It is checked at most three times in a period.
    #[test]
    fn alarms_end_windows_as_looks_do(
        budget in 100u64..9_000,
        late in 0u64..100,
        stretches in prop::collection::vec((any::<bool>(), 1u64..60_000), 1..20),
    ) {
        let mut window = window(budget, 10_000);
        let mut runs = stretches.iter().cycle().flat_map(|(runs, long)| core::iter::repeat_n(*runs, *long as usize));
        let (mut meter, mut raised, mut checks, mut wanted) = (0u64, 0u64, 0u64, true);
        let (mut look_at, mut alarm) = (0u64, None::<u64>);
        for now in 0..600_000u64 {
            if now % 10_000 == 0 {
                prop_assert!(!wanted || now == 0 || raised >= budget, "{} of {} at {}", raised, budget, now);
                prop_assert!(raised <= budget + 50 + 2 * late + 2, "{} of {} at {}", raised, budget, now);
                (raised, wanted) = (0, true);
            }
            if now >= look_at || alarm == Some(0) {
                let step = window.check(at(now), us(meter), None);
                let rest = window.next_alarm(step, 1);
                look_at = rest.at.as_nanos().div_ceil(1_000);
                // Rings when it has run for this long, and is reported later.
                alarm = rest.alarm.map(|after| after.as_nanos().div_ceil(1_000) + late);
                checks += 1;
            }
            let ran = runs.next() == Some(true);
            wanted &= ran;
            if ran {
                meter += 1;
                raised += u64::from(window.is_raised());
                alarm = alarm.map(|left| left.saturating_sub(1));
            }
        }
        prop_assert!(checks <= 60 * 3 + 10, "{}", checks);
    }

    /// Under any load, a task has its budgets in total, and in no period more than the budget and one longest step; one
    /// that never sleeps is served as if there were no longer steps.
    #[test]
    fn longer_steps_are_paid_with_what_was_left(
        budget in 1u64..9_000,
        part in 8u64..129,
        stretches in prop::collection::vec((any::<bool>(), 1u64..40_000), 1..20),
    ) {
        let mut all = window(budget, 10_000);
        let longest = Window::step(us(10_000), part).as_nanos().div_ceil(1_000);
        let (mut now, mut meter, mut raised, mut in_period, mut closed) = (0u64, 0u64, 0u64, 0u64, 0u64);
        let mut run = stretches.iter().cycle().flat_map(|(runs, long)| core::iter::repeat_n(*runs, *long as usize));
        while now < 400_000 {
            if now % 10_000 == 0 {
                (in_period, closed) = (0, closed + 1);
            }
            let step = all.check(at(now), us(meter), Some(part));
            let next = step.at().as_nanos().div_ceil(1_000);
            let ran = (now..next).filter(|_| run.next() == Some(true)).count() as u64;
            if all.is_raised() {
                (raised, in_period) = (raised + ran, in_period + ran);
                prop_assert!(in_period <= budget + longest.max(100), "{} of {}", in_period, budget);
                prop_assert!(raised <= closed * (budget + 100), "{} in {} periods", raised, closed);
            }
            (now, meter) = (next, meter + ran);
        }
        let (mut one, mut other) = (window(budget, 10_000), all);
        meter += 1;
        for _ in 0..20 {
            let step = one.check(at(now), us(meter), None);
            prop_assert_eq!(step.at(), other.check(at(now), us(meter), Some(part)).at());
            (meter, now) = (meter + step.at().as_nanos() / 1_000 - now, step.at().as_nanos() / 1_000);
        }
    }

    /// A task that uses only its windows owes nothing: it has one in each period, however its budget changes.
    #[test]
    fn changes_of_a_budget_leave_no_debt(
        changes in prop::collection::vec((200u64..9_000, 1u64..25_000), 1..40),
    ) {
        let mut one = window(changes[0].0, 10_000);
        one.harden(true, us(0));
        let (mut now, mut meter) = (0u64, 0u64);
        let mut step = one.check(at(0), us(0), None);
        for (budget, after) in changes {
            let then = now + after;
            loop {
                let next = (step.at().as_nanos() / 1_000).min(then);
                meter += if one.is_raised() { next - now } else { 0 };
                now = next;
                if now == then {
                    break;
                }
                let begins = now % 10_000 == 0;
                step = one.check(at(now), us(meter), None);
                prop_assert!(one.is_raised() || !begins, "closed at the begin of a period, at {}", now);
            }
            let begins = now % 10_000 == 0;
            step = one.reserve(Reservation::new(us(budget), us(10_000)).unwrap(), at(now), us(meter));
            prop_assert!(one.is_raised() || !begins, "closed at the begin of a period, at {}", now);
        }
    }

    /// However late checks are, as long as ten budgets pay for one, over all periods together a hard window has its
    /// budgets, and at most its last overshoot; with a smaller budget, ten periods are closed after an overshoot.
    #[test]
    fn a_hard_one_has_its_budgets_in_the_long_run(
        budget in 100u64..5_000,
        part in prop::option::of(8u64..129),
        lateness in prop::collection::vec(0u64..6_000, 1..20),
    ) {
        let mut window = window(budget, 10_000);
        window.harden(true, us(0));
        let (mut now, mut meter, mut checks) = (0u64, 0u64, 0usize);
        while now < 2_000_000 {
            let step = window.check(at(now), us(meter), part);
            let next = (step.at().as_nanos() / 1_000).max(now + 1) + lateness[checks % lateness.len()];
            meter += if window.is_raised() { next - now } else { 0 };
            (now, checks) = (next, checks + 1);
        }
        let periods = now / 10_000 + 1;
        let beyond = if budget * 10 >= 100 + 6_000 { 1 } else { periods.div_ceil(10) };
        prop_assert!(meter <= periods * budget + beyond * (100 + 6_000), "{} in {}", meter, periods);
    }

    /// For any load of a task and any lateness of checks, a window that is always wanted is raised until its budget is
    /// consumed and for at most one step and one lateness longer.
    #[test]
    fn it_is_raised_for_the_budget_and_at_most_a_step_longer(
        budget in 1u64..9_000,
        lateness in prop::collection::vec(0u64..150, 1..20),
        speeds in prop::collection::vec(1u64..=4, 1..20),
    ) {
        let mut window = window(budget, 10_000);
        let (mut now, mut meter, mut raised_in_period, mut checks) = (0u64, 0u64, 0u64, 0usize);
        let (mut period, mut was_raised) = (0, false);
        while now < 200_000 {
            let step = window.check(at(now), us(meter), None);
            checks += 1;
            if now / 10_000 != period {
                let most = budget + 100 + 150;
                prop_assert!(raised_in_period <= most, "{} of {}", raised_in_period, budget);
                (period, raised_in_period) = (now / 10_000, 0);
            }
            was_raised = window.is_raised();
            let next = (step.at().as_nanos() / 1_000).max(now + 1) + lateness[checks % lateness.len()];
            // While raised it runs a quarter, half, three quarters or all of the time; lowered, all of it.
            let speed = if was_raised { speeds[checks % speeds.len()] } else { 4 };
            let ran = (next - now) * speed / 4;
            let until_end = (period + 1) * 10_000 - now.min((period + 1) * 10_000);
            raised_in_period += if was_raised { ran.min(until_end) } else { 0 };
            (now, meter) = (next, meter + ran);
        }
        prop_assert!(checks < 20 * (2 + 100), "{} looks", checks);
        let _ = was_raised;
    }

    /// A task that keeps its share of a CPU and changes its period, at any times, consumes raised at most the share of
    /// the time, and one budget: with each closed period also the overshoot of its late check, which a hard one pays
    /// back.
    #[test]
    fn changes_of_the_period_gain_nothing(
        hard: bool,
        share in 10u64..=90,
        changes in prop::collection::vec((20u64..300, 1u64..40_000), 1..60),
        first in 0u64..30_000,
        lateness in prop::collection::vec(0u64..100, 1..20),
        speeds in prop::collection::vec(0u64..=4, 1..20),
    ) {
        let of = |period: u64| (share * period, 100 * period);
        let largest = changes.iter().map(|(period, _)| of(*period).0).max().unwrap();
        let mut greedy = Greedy::new(of(changes[0].0), hard, first, &lateness, &speeds);
        let since = first - first % of(changes[0].0).1;
        for (period, after) in &changes {
            greedy.reserve(of(*period));
            greedy.go_on(*after, |greedy| {
                let late = (100 + 100) * if hard { 1 } else { greedy.served.len() as u64 };
                let most = (greedy.now - since) * share / 100 + largest + late;
                prop_assert!(greedy.raised <= most, "{} of {most} at {}", greedy.raised, greedy.now);
                Ok(())
            })?;
        }
    }

    /// In each served period a task has at most the part of it that the largest share held meanwhile allows, and the
    /// period is no shorter than the last one held: for any changes, however often.
    #[test]
    fn whatever_is_changed_each_period_has_what_was_granted_for_it(
        hard: bool,
        changes in prop::collection::vec((1u64..=95, 20u64..300, any::<bool>(), 1u64..40_000), 1..60),
        speeds in prop::collection::vec(0u64..=4, 1..20),
    ) {
        let mut held = (changes[0].0 * changes[0].1, changes[0].1 * 100);
        let mut greedy = Greedy::new(held, hard, 0, &[0], &speeds);
        for (share, period, keeps, after) in &changes {
            let period = if *keeps { held.1 } else { period * 100 };
            held = (share * period / 100, period);
            greedy.reserve(held);
            greedy.go_on(*after, |_| Ok(()))?;
        }
        for served in &greedy.served[..greedy.served.len() - 1] {
            let length = served.ended - served.begun;
            let most = length * served.most.0 / served.most.1 + 100;
            prop_assert!(served.raised <= most && length >= served.period, "{served:?}, {most} at most");
        }
    }
}

/// A task that consumes whenever it is raised, or a part of that time; lowered it gets nothing.
struct Greedy<'a> {
    window: Window,
    step: WindowStep,
    now: u64,
    meter: u64,
    raised: u64,
    served: Vec<Served>,
    checks: usize,
    lateness: &'a [u64],
    speeds: &'a [u64],
}

/// A served period, in microseconds: its consumption, the largest budget and its period, the last period.
#[derive(Clone, Copy, Debug)]
struct Served {
    begun: u64,
    ended: u64,
    raised: u64,
    most: (u64, u64),
    period: u64,
}

impl<'a> Greedy<'a> {
    fn new(of: (u64, u64), hard: bool, now: u64, lateness: &'a [u64], speeds: &'a [u64]) -> Self {
        let mut window = window(of.0, of.1);
        window.harden(hard, us(0));
        let step = window.check(at(now), us(0), None);
        let mut greedy =
            Greedy { window, step, now, meter: 0, raised: 0, served: Vec::new(), checks: 0, lateness, speeds };
        greedy.note();
        greedy
    }

    fn reserve(&mut self, (budget, period): (u64, u64)) {
        let ends = self.window.ends;
        self.step =
            self.window.reserve(Reservation::new(us(budget), us(period)).unwrap(), at(self.now), us(self.meter));
        // Then, or once the new length has passed, it is at most one more until its next multiple.
        let latest = ends.max(at(self.now + period)) + us(period);
        assert!(self.window.ends <= latest, "{:?} after {ends:?}, at {}", self.window.ends, self.now);
        self.note();
    }

    /// This much longer, with checks at the steps' instants, each late as given.
    fn go_on(&mut self, long: u64, check: impl Fn(&Self) -> Result<(), TestCaseError>) -> Result<(), TestCaseError> {
        let then = self.now + long;
        while self.now < then {
            self.checks += 1;
            let late = self.lateness[self.checks % self.lateness.len()];
            let look = (self.step.at().as_nanos().div_ceil(1_000)).max(self.now) + late;
            let next = look.min(then);
            if self.window.is_raised() {
                let ran = (next - self.now) * self.speeds[self.checks % self.speeds.len()] / 4;
                (self.meter, self.raised) = (self.meter + ran, self.raised + ran);
                self.served.last_mut().unwrap().raised += ran;
            }
            self.now = next;
            check(self)?;
            if look == next {
                self.step = self.window.check(at(self.now), us(self.meter), None);
                self.note();
            }
        }
        Ok(())
    }

    /// Records the served period and its reservation.
    fn note(&mut self) {
        let held = self.window.reservation();
        let [budget, period] = [held.budget(), held.period()].map(|span| span.as_nanos() / 1_000);
        let ends = self.window.ends.as_nanos() / 1_000;
        match self.served.last_mut() {
            Some(served) if self.now < served.ended => {
                if budget * served.most.1 > served.most.0 * period {
                    served.most = (budget, period);
                }
                (served.ended, served.period) = (ends, period);
            }
            _ => {
                let begun = self.now - self.now % period;
                self.served.push(Served { begun, ended: ends, raised: 0, most: (budget, period), period });
            }
        }
    }
}
