use super::*;
use alloc::string::ToString;
use alloc::vec;
use proptest::prelude::*;

fn window(budget: u64, period: u64) -> Reservation {
    Reservation::new(Span::from_millis(budget), Span::from_millis(period)).unwrap()
}

/// Without overhead, and without slices.
fn on(cpus: u32) -> WindowPlacement {
    let cpu = |number| Cpu { number, promises: vec![], cap: Share::from_percent(95) };
    WindowPlacement {
        overhead: Span::ZERO,
        run: Span::from_secs(1_000),
        ..WindowPlacement::new((0..cpus).map(cpu), Span::ZERO)
    }
}

#[test]
fn a_sum_under_the_cap_proves_nothing() {
    let mut placement = on(1);
    placement.admit(TaskId(1), window(15, 30), &[]).unwrap();
    // 50 % and 38 % are below 95 %, but the other window can use 15 ms at each end of those 40 ms.
    let refused = placement.admit(TaskId(2), window(15, 40), &[]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "15ms of 40ms does not fit beside the reservations on the CPUs: the most that fits is 10ms of 40ms"
    );
    assert_eq!(placement.seat(TaskId(2)), None);
    placement.admit(TaskId(2), refused.most.unwrap(), &[]).unwrap();
    assert_eq!(placement.response(TaskId(2)), Some(Span::from_millis(40)));
}

#[test]
fn windows_of_one_period_fill_a_cpu() {
    // Figure 5 of the paper, all three on one CPU.
    let mut placement = on(1);
    placement.admit(TaskId(1), window(95, 250), &[]).unwrap();
    placement.admit(TaskId(3), window(40, 250), &[]).unwrap();
    placement.admit(TaskId(2), window(100, 250), &[]).unwrap();
    assert_eq!(placement.response(TaskId(2)), Some(Span::from_millis(235)));
}

#[test]
fn shorter_deadlines_are_more_urgent_and_lanes_are_above_all() {
    let mut placement = on(1);
    placement.admit(TaskId(1), window(10, 100), &[]).unwrap();
    placement.admit(TaskId(2), window(10, 200).within(Span::from_millis(50)).unwrap(), &[]).unwrap();
    assert_eq!(placement.seat(TaskId(2)), Some(Seat { cpu: 0, level: 0, slices: 1 }));
    assert_eq!(placement.seat(TaskId(1)), Some(Seat { cpu: 0, level: 1, slices: 1 }));
    let lane = |budget| {
        let (budget, period) = (Span::from_millis(budget), Span::from_millis(20));
        vec![CpuPromise { budget, period, jitter: Span::ZERO }]
    };
    assert_eq!(placement.promise(0, &lane(14), &[]), []);
    assert_eq!(placement.response(TaskId(2)), Some(Span::from_millis(38)));
    // 85 % are the lanes', 95 % the cap: the order determines who gets the rest.
    let (mut one, mut other) = (placement.clone(), placement);
    let of = |refused: &[(TaskId, NoRoom)]| -> Vec<_> { refused.iter().map(|(task, no)| (task.0, no.most)).collect() };
    let urgent = window(6, 200).within(Span::from_millis(50)).unwrap();
    let refused = one.promise(0, &lane(17), &[TaskId(2), TaskId(1)]);
    assert_eq!(of(&refused), [(2, Some(urgent)), (1, Some(window(7, 100)))]);
    let refused = other.promise(0, &lane(17), &[TaskId(1), TaskId(2)]);
    assert_eq!(of(&refused), [(2, None)]);
    assert_eq!(other.promise(0, &lane(20), &[]).len(), 1);
    assert_eq!(other.seats().count(), 0, "nothing is left of the CPU");
}

#[test]
fn steps_are_as_long_as_there_is_room_for_them() {
    let mut placement = on(1);
    placement.admit(TaskId(1), window(1, 32), &[]).unwrap();
    assert_eq!((placement.part(0), placement.part(1)), (Some(8), None));
    placement.admit(TaskId(2), window(26, 32), &[]).unwrap();
    assert_eq!(placement.part(0), Some(32), "two steps of 1 ms fit beside 27 of 32 ms; of 2 ms, the cap is reached");
    placement.admit(TaskId(2), window(28, 32), &[]).unwrap();
    assert_eq!(placement.part(0), Some(64));
    placement.admit(TaskId(2), window(29, 32), &[]).unwrap();
    assert_eq!(placement.part(0), Some(128));
    placement.release(TaskId(2));
    assert_eq!(placement.part(0), Some(8));
}

#[test]
fn a_window_follows_its_task_to_the_cpus_that_are_left_to_it() {
    let mut placement = on(2);
    placement.admit(TaskId(1), window(60, 100), &[]).unwrap();
    placement.admit(TaskId(2), window(30, 100), &[1]).unwrap();
    placement.confine(TaskId(1), &[0]).unwrap();
    assert_eq!(placement.seat(TaskId(1)).unwrap().cpu, 0);
    placement.confine(TaskId(1), &[1]).unwrap();
    assert_eq!(placement.seat(TaskId(1)).unwrap().cpu, 1);
    placement.admit(TaskId(3), window(70, 100), &[]).unwrap();
    let refused = placement.confine(TaskId(2), &[0]).unwrap_err();
    assert_eq!((refused.most, placement.seat(TaskId(2)).unwrap().cpu), (Some(window(25, 100)), 1));
    placement.confine(TaskId(9), &[0]).unwrap();
}

#[test]
fn if_a_window_fits_nowhere_all_are_placed_again() {
    let mut placement = on(2);
    for (task, budget) in [(1, 30), (2, 30), (3, 30), (4, 50)] {
        placement.admit(TaskId(task), window(budget, 100), &[]).unwrap();
    }
    assert_eq!(placement.seat(TaskId(3)).unwrap().cpu, 0);
    // 5 + 90 on one CPU and 50 + ... cannot be without a move: 30, 30, 30 | 50 becomes 50, 45 | 30, 30, 30.
    placement.admit(TaskId(5), window(45, 100), &[]).unwrap();
    let moved = placement.seat(TaskId(4)).unwrap().cpu;
    assert_eq!(moved, placement.seat(TaskId(5)).unwrap().cpu);
    assert!(placement.admit(TaskId(6), window(10, 100), &[]).is_err());
    assert_eq!(placement.release(TaskId(1)), Some(1 - moved as usize));
    placement.admit(TaskId(6), window(10, 100), &[]).unwrap();
}

#[test]
fn a_window_is_placed_only_where_its_threads_may_run() {
    let mut placement = on(3);
    assert_eq!(placement.admit(TaskId(1), window(60, 100), &[2]).unwrap().cpu, 2);
    assert_eq!(placement.admit(TaskId(2), window(60, 100), &[]).unwrap().cpu, 0);
    let refused = placement.admit(TaskId(3), window(60, 100), &[2, 7]).unwrap_err();
    assert_eq!(refused.most, Some(window(35, 100)));
    assert!(placement.admit(TaskId(3), window(1, 100), &[7]).unwrap_err().most.is_none());
    // All are placed again: the one with a single allowed CPU gets it.
    assert_eq!(placement.admit(TaskId(4), window(60, 100), &[0]).unwrap().cpu, 0);
    assert_eq!(placement.seat(TaskId(2)).unwrap().cpu, 1);
}

#[test]
fn more_deadlines_than_levels_share_them() {
    let mut placement = on(1);
    for task in 0..45 {
        placement.admit(TaskId(task), window(1, 100 + u64::from(task)), &[]).unwrap();
    }
    let levels: Vec<u8> = (0..45).map(|task| placement.seat(TaskId(task)).unwrap().level).collect();
    assert!(levels.is_sorted() && levels[0] == 0 && levels[44] == 19);
}

/// Simulates one CPU tick by tick: of the windows with budget left and work, the most urgent runs. Returns whether the
/// watched window, which always has work, gets its budget in time in each of its periods.
fn served(placement: &WindowPlacement, watched: TaskId, wants: &[bool]) -> bool {
    const TICK: u64 = 1_000_000;
    let windows = &placement.cpus[0].1;
    let levels = levels(windows);
    let mut left = vec![0; windows.len()];
    let mut turn: Vec<usize> = (0..windows.len()).collect();
    // Most urgent first; the watched window is the last of its level.
    turn.sort_by_key(|index| (levels[*index], windows[*index].task == watched));
    let own = windows.iter().position(|window| window.task == watched).unwrap();
    for tick in 0..20_000u64 {
        for (left, window) in left.iter_mut().zip(windows) {
            if tick.is_multiple_of(window.reservation.period().as_nanos() / TICK) {
                *left = window.reservation.budget().as_nanos() / TICK;
            }
        }
        let reservation = windows[own].reservation;
        let begun = tick % (reservation.period().as_nanos() / TICK);
        if begun == reservation.deadline().as_nanos() / TICK && left[own] > 0 {
            return false;
        }
        let wanting = |index: usize| index == own || wants[(tick as usize / 3 * 7 + index * 13) % wants.len()];
        if let Some(runs) = turn.iter().copied().find(|index| left[*index] > 0 && wanting(*index)) {
            left[runs] -= 1;
        }
        let next = begun + 1 == reservation.period().as_nanos() / TICK;
        if next && left[own] > 0 {
            return false;
        }
    }
    true
}

fn windows() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    prop::collection::vec((1u64..20, prop_oneof![Just(20u64), Just(40), 10u64..90], 0u64..100), 1..6)
}

fn placed(windows: &[(u64, u64, u64)]) -> WindowPlacement {
    let mut placement = on(1);
    for (task, (budget, period, sooner)) in windows.iter().enumerate() {
        let reservation = window(*budget.min(period), *period);
        let deadline = reservation.budget().as_nanos() / 1_000_000;
        let deadline = deadline + (period - deadline) * sooner / 100;
        let reservation = reservation.within(Span::from_millis(deadline)).unwrap();
        let _ = placement.admit(TaskId(task as u32), reservation, &[]);
    }
    placement
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn an_admitted_window_is_served_in_every_period(
        windows in windows(),
        wants in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let placement = placed(&windows);
        for (task, _) in placement.seats() {
            prop_assert!(served(&placement, task, &wants), "{:?} of {:?}", task, placement);
            prop_assert!(served(&placement, task, &[true]), "{:?} of {:?}", task, placement);
        }
    }

    #[test]
    fn with_longer_steps_admitted_windows_are_still_served(
        windows in windows(),
        wants in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let placement = placed(&windows);
        let Some(part) = placement.part(0) else { return Ok(()) };
        // As if each budget were as much longer; in whole milliseconds, the simulation's step.
        let mut longer = placement.clone();
        for window in &mut longer.cpus[0].1 {
            let held = window.reservation;
            let step = Window::step(held.period(), part).as_nanos() / 1_000_000;
            let budget = held.budget() + Span::from_millis(step);
            prop_assert!(budget <= held.deadline());
            window.reservation = held.with_budget(budget);
        }
        for (task, _) in longer.seats() {
            prop_assert!(served(&longer, task, &wants), "{:?} of {:?}", task, longer);
            prop_assert!(served(&longer, task, &[true]), "{:?} of {:?}", task, longer);
        }
    }

    #[test]
    fn who_asks_for_less_is_never_refused(windows in windows(), task in 0u32..6, less in 1u64..100) {
        let mut placement = placed(&windows);
        let held = placement.cpus[0].1.iter().find(|window| window.task == TaskId(task)).map(|w| w.reservation);
        if let Some(held) = held {
            let budget = Span::from_nanos(held.budget().as_nanos() * less / 100);
            prop_assert!(placement.admit(TaskId(task), held.with_budget(budget), &[]).is_ok());
        }
    }

    #[test]
    fn the_reported_largest_budget_fits(windows in windows(), more in (5u64..20, 20u64..60)) {
        let mut placement = placed(&windows);
        if let Err(NoRoom { most: Some(most), asked }) = placement.admit(TaskId(99), window(more.0, more.1), &[]) {
            prop_assert!(most.budget() < asked.budget());
            prop_assert!(placement.admit(TaskId(99), most, &[]).is_ok());
        }
    }

    #[test]
    fn a_confined_window_is_served_where_it_may_run_or_stays_with_the_largest_fitting_budget_reported(
        windows in windows(), task in 0u32..6, allowed in 1u8..8, more in windows(),
    ) {
        let mut placement = WindowPlacement { cpus: on(3).cpus, ..placed(&windows) };
        for (number, (budget, period, _)) in windows.iter().chain(&more).enumerate() {
            let _ = placement.admit(TaskId(number as u32), window(*budget.min(period), *period), &[]);
        }
        let before: Vec<_> = placement.seats().collect();
        let allowed: Vec<u32> = (0..3).filter(|cpu| allowed >> cpu & 1 == 1).collect();
        let Some(seat) = placement.seat(TaskId(task)) else { return Ok(()) };
        match placement.confine(TaskId(task), &allowed) {
            Ok(()) => {
                let now = placement.seat(TaskId(task)).unwrap();
                prop_assert!(allowed.contains(&now.cpu));
                prop_assert!(now.cpu == seat.cpu || !allowed.contains(&seat.cpu), "it moves only if it must");
            }
            Err(refused) => {
                prop_assert_eq!(&placement.seats().collect::<Vec<_>>(), &before);
                if let Some(most) = refused.most {
                    prop_assert!(placement.admit(TaskId(task), most, &allowed).is_ok());
                }
            }
        }
        prop_assert_eq!(placement.seats().count(), before.len());
        prop_assert!(placement.seats().all(|(task, _)| placement.response(task).is_some()));
    }

    #[test]
    fn under_any_promises_to_lanes_all_remaining_windows_are_served_and_the_first_loses_least(
        windows in windows(), lanes in prop::collection::vec((1u64..20, 20u64..60), 0..4), first in 0u32..6,
    ) {
        let lanes: Vec<CpuPromise> = lanes.iter().map(|(budget, period)| {
            let (budget, period) = (Span::from_millis(*budget), Span::from_millis(*period));
            CpuPromise { budget, period, jitter: period - budget.min(period) }
        }).collect();
        let mut placement = placed(&windows);
        let held: Vec<(TaskId, Reservation)> =
            placement.cpus[0].1.iter().map(|window| (window.task, window.reservation)).collect();
        let refused = placement.promise(0, &lanes, &[TaskId(first)]);
        prop_assert!(placement.holds(&placement.cpus[0].0, &placement.cpus[0].1));
        for (task, reservation) in &held {
            let now = placement.cpus[0].1.iter().find(|window| window.task == *task).map(|window| window.reservation);
            match refused.iter().find(|(refused, _)| refused == task) {
                Some((_, NoRoom { asked, most })) => prop_assert!(asked == reservation && now == *most),
                None => prop_assert_eq!(now, Some(*reservation)),
            }
        }
        if let Some((_, reservation)) = held.iter().find(|(task, _)| task.0 == first) && !refused.is_empty() {
            let mut alone = on(1);
            alone.promise(0, &lanes, &[]);
            let most = alone.admit(TaskId(first), *reservation, &[]).map_or_else(|no| no.most, |_| Some(*reservation));
            let now = placement.cpus[0].1.iter().find(|window| window.task.0 == first).map(|window| window.reservation);
            prop_assert_eq!(now, most);
        }
    }

    #[test]
    fn promises_in_a_few_take_no_less_in_any_time(
        promises in prop::collection::vec((1u64..50, 1u64..400, 0u64..100), 0..300), length in 1u64..5_000,
    ) {
        let promises: Vec<CpuPromise> = promises.iter().map(|(budget, period, jitter)| {
            let [budget, period, jitter] = [*budget, *period, *jitter].map(Span::from_millis);
            CpuPromise { budget, period, jitter }
        }).collect();
        let takes = |promises: &[CpuPromise]| -> u64 {
            let one = |one: &CpuPromise| {
                (length + one.jitter.as_nanos() / 1_000_000).div_ceil(one.period.as_nanos() / 1_000_000)
                    * (one.budget.as_nanos() / 1_000_000)
            };
            promises.iter().map(one).sum()
        };
        let few = merged(&promises);
        prop_assert!(few.len() <= 64 && takes(&few) >= takes(&promises), "{} of {}", few.len(), promises.len());
    }
}

/// As [`on`], with slices.
fn on_with_slices(cpus: u32) -> WindowPlacement {
    WindowPlacement { run: WindowPlacement::RUN, ..on(cpus) }
}

#[test]
fn windows_go_to_the_cpu_of_which_least_is_taken_and_have_their_budgets_in_slices() {
    let mut placement = on_with_slices(2);
    let seat = |placement: &WindowPlacement, task| placement.seat(TaskId(task)).map(|seat| (seat.cpu, seat.slices));
    for (task, (budget, period)) in [(1, (10, 33)), (2, (20, 100)), (3, (5, 50))] {
        placement.admit(TaskId(task), window(budget, period), &[]).unwrap();
    }
    assert_eq!([1, 2, 3].map(|task| seat(&placement, task)), [Some((0, 3)), Some((1, 8)), Some((1, 2))]);
    for cpu in [0, 1] {
        assert!(placement.longest_run(cpu).unwrap() <= WindowPlacement::RUN, "{:?}", placement.longest_run(cpu));
    }
    // One with its own deadline has its budget at once.
    placement.admit(TaskId(1), window(10, 33).within(Span::from_millis(20)).unwrap(), &[]).unwrap();
    assert_eq!(seat(&placement, 1), Some((0, 1)));
}

#[test]
fn slices_divide_the_period_and_lose_nothing_of_the_budget() {
    let odd = Reservation::new(Span::from_millis(10), Span::from_nanos(33_333_333)).unwrap();
    assert_eq!(
        (slices(odd, Span::from_millis(4)), slices(odd, Span::from_millis(3))),
        (3, 1),
        "4 to 8 do not divide it"
    );
    let slice = sliced(odd, 3);
    assert_eq!((slice.budget().as_nanos(), slice.period().as_nanos()), (3_333_334, 11_111_111));
    assert_eq!(slices(window(4, 40), Span::from_millis(4)), 1);
}

/// Simulates one CPU with windows that are served in slices. Windows without work keep their budget until the slice
/// ends. Returns the longest time in which windows ran back to back, and whether `watched`, which always has work, had
/// its whole budget in each period.
fn played(placement: &WindowPlacement, watched: TaskId, wants: &[bool]) -> (u64, bool) {
    const CHANGE: u64 = 3_000_000;
    let windows = &placement.cpus[0].1;
    let levels = levels(windows);
    let mut turn: Vec<usize> = (0..windows.len()).collect();
    turn.sort_by_key(|index| (levels[*index], windows[*index].task == watched));
    let own = windows.iter().position(|window| window.task == watched).unwrap();
    let (budget, period) = (windows[own].reservation.budget().as_nanos(), windows[own].reservation.period().as_nanos());
    let mut left = vec![0; windows.len()];
    let (mut now, mut had, mut run, mut longest, mut all) = (0u64, 0u64, 0u64, 0u64, true);
    while now < 4_000_000_000 {
        if now.is_multiple_of(period) {
            all &= now == 0 || had >= budget;
            had = 0;
        }
        let mut next = now - now % CHANGE + CHANGE;
        for (left, window) in left.iter_mut().zip(windows) {
            let slice = window.served().period().as_nanos();
            if now.is_multiple_of(slice) {
                *left = window.served().budget().as_nanos();
            }
            next = next.min(now - now % slice + slice);
        }
        next = next.min(now - now % period + period);
        let wanting = |index: usize| index == own || wants[((now / CHANGE) as usize * 7 + index * 13) % wants.len()];
        match turn.iter().copied().find(|index| left[*index] > 0 && wanting(*index)) {
            None => run = 0,
            Some(runs) => {
                next = next.min(now + left[runs]);
                left[runs] -= next - now;
                had += if runs == own { next - now } else { 0 };
                run += next - now;
                longest = longest.max(run);
            }
        }
        now = next;
    }
    (longest, all)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Each window has its whole budget in each of its periods, although in slices, whatever else runs. Windows do not
    /// run back to back for longer than the bound, which is at most [`WindowPlacement::RUN`] if finer slices fit.
    #[test]
    fn in_slices_each_has_its_budget_by_its_deadline_and_ordinary_threads_find_gaps(
        windows in prop::collection::vec((1u64..30, prop_oneof![Just(20u64), Just(40), Just(33), Just(100)]), 1..5),
        wants in prop::collection::vec(any::<bool>(), 1..40),
    ) {
        let mut placement = on_with_slices(1);
        for (task, (budget, period)) in windows.iter().enumerate() {
            let _ = placement.admit(TaskId(task as u32), window(*budget.min(period), *period), &[]);
        }
        let (place, held) = &placement.cpus[0];
        prop_assert!(placement.holds(place, held) && placement.holds(place, &whole(held)));
        for (task, _) in placement.seats() {
            prop_assert!(placement.response(task).is_some());
            for wants in [&wants[..], &[true]] {
                let (longest, all) = played(&placement, task, wants);
                prop_assert!(all, "{:?} of {:?}", task, placement);
                if let Some(most) = placement.longest_run(0) {
                    prop_assert!(longest <= most.as_nanos(), "{} beyond {} of {:?}", longest, most, placement);
                }
            }
        }
        if placement.longest_run(0).is_none_or(|run| run > WindowPlacement::RUN) {
            let finest = |window: &Placed| Placed { slices: slices(window.reservation, WindowPlacement::SLOTS[3]), ..window.clone() };
            let finest: Vec<Placed> = held.iter().map(finest).collect();
            let run = placement.run_of(&finest);
            prop_assert!(!placement.holds(place, &finest) || run.is_none_or(|run| run > WindowPlacement::RUN), "{:?}", placement);
        }
    }
}

#[test]
fn room_for_more_is_kept_and_released_when_it_is_needed() {
    let mut placement = on(1);
    placement.admit(TaskId(1), window(20, 100), &[]).unwrap();
    placement.enlarge(TaskId(1), Span::from_millis(25));
    assert!(placement.covers(TaskId(1), window(25, 100), &[]) && placement.covers(TaskId(1), window(13, 100), &[]));
    assert!(!placement.covers(TaskId(1), window(26, 100), &[]) && !placement.covers(TaskId(1), window(12, 100), &[]));
    assert!(!placement.covers(TaskId(1), window(20, 50), &[]) && !placement.covers(TaskId(2), window(20, 100), &[]));
    assert!(!placement.covers(TaskId(1), window(20, 100), &[0]));
    assert!(placement.admit(TaskId(2), window(71, 100), &[]).is_err());
    placement.lessen([(TaskId(1), window(20, 100)), (TaskId(7), window(1, 100))]);
    placement.admit(TaskId(2), window(71, 100), &[]).unwrap();
    placement.enlarge(TaskId(1), Span::from_millis(25));
    assert!(!placement.covers(TaskId(1), window(21, 100), &[]), "there is no room");
    placement.lessen([(TaskId(1), window(30, 100))]);
    assert!(!placement.covers(TaskId(1), window(21, 100), &[]), "it makes nothing larger");
}
