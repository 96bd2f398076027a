//! Decides which strategy of a processor is in force: the first or the second.
//!
//! ```text
//!            some critical job is endangered
//!   First ─────────────────────────────────────► Second ──┐ endangered again
//!     ▲                                           │  ▲    │
//!     └───────────────────────────────────────────┘  └────┘
//!            endangered by none for the calm interval
//! ```
//!
//! A contract may pin one of both: then the trigger only observes.
//!
//! The trigger predicts. At every release and completion it tests whether each critical job would still finish in time,
//! by worst cases, if the second strategy were in force from now on. It counts the work ahead of the job under that
//! strategy (waiting jobs, started jobs that finish at their old level, jobs that will be released before its
//! deadline), one more job of each operation at its level or above, and the longest job that could start before the
//! next test. While the test passes no switch is needed, however late the first strategy would finish: the switch
//! occurs at the last instant at which it still helps. That is the zero-slack instant of de Niz, Lakshmanan and
//! Rajkumar (RTSS 2009), and the promotion of Davis and Wellings' dual priorities (RTSS 1995), for all critical jobs
//! together and found at run time instead of before.
//!
//! Why not test the work ahead under the *first* strategy? That test uses worst cases for a whole period ahead, and
//! reports overload where the mean load is not: the flight program at 98 % would lose the non-critical deadlines that
//! rate monotonic meets there. A hysteresis on load, or on misses, reacts after the miss.

use hyoshi_model::{Instant, Span};

/// The present load of one level of the second strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelLoad {
    /// Worst-case work that waits at this level, including legs that will follow.
    pub waiting: Span,
    /// The earliest deadline of the critical jobs that wait here.
    pub due: Option<Instant>,
    /// The remaining worst case of the job that the lane of this level has started.
    pub started: Span,
    /// Its deadline, if it is critical.
    pub started_due: Option<Instant>,
}

/// The possible releases at one level and above it, in the present operating region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpcomingLoad {
    /// Work a second that can precede a job of this level, in parts per million of the CPU.
    pub share_ppm: u64,
    /// One job of each operation at this level or above it.
    pub once: Span,
    /// The shortest relative deadline of a critical operation at this level.
    pub deadline: Option<Span>,
}

/// True if some critical job could miss its deadline if the second strategy were in force from now on. `spare` is the
/// time until the next test, and the margin. `levels` are in order, most urgent first.
pub fn endangered(now: Instant, levels: impl Iterator<Item = (LevelLoad, UpcomingLoad)>, spare: Span) -> bool {
    let mut ahead = u128::from(spare.as_nanos());
    for (level, coming) in levels {
        let late = |ahead: u128, left: Span| {
            let left = u128::from(left.as_nanos());
            ahead + u128::from(coming.once.as_nanos()) + left * u128::from(coming.share_ppm) / 1_000_000 > left
        };
        ahead += u128::from(level.started.as_nanos());
        let started = level.started_due.is_some_and(|due| late(ahead, due.since(now)));
        ahead += u128::from(level.waiting.as_nanos());
        let waiting = level.due.is_some_and(|due| late(ahead, due.since(now)));
        // The next released job finds all this before it.
        if started || waiting || coming.deadline.is_some_and(|deadline| late(ahead, deadline)) {
            return true;
        }
    }
    false
}

/// The strategy in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    calm: Span,
    second: bool,
    /// When a critical job was last endangered.
    last: Instant,
    /// The strategy that a contract has pinned: whether it is the second one.
    pinned: Option<bool>,
}

impl Switch {
    /// The first strategy is in force, until a job is endangered.
    pub fn new(calm: Span) -> Switch {
        Switch { calm, second: false, last: Instant::ZERO, pinned: None }
    }

    /// True while the second strategy is in force.
    #[inline]
    pub fn second(&self) -> bool {
        self.second
    }

    /// Pins a strategy, the second one if true, or lets the trigger decide again. The next [`ask`](Self::ask) applies it.
    pub fn pin(&mut self, second: Option<bool>) {
        self.pinned = second;
    }

    /// Applies the trigger's result at `now`; true if from now on the other strategy is in force.
    pub fn ask(&mut self, now: Instant, endangered: bool) -> bool {
        if endangered {
            self.last = now;
        }
        let triggered = endangered || (self.second && now.since(self.last) < self.calm);
        let second = self.pinned.unwrap_or(triggered);
        core::mem::replace(&mut self.second, second) != second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + ms(millis)
    }

    fn one(waiting: u64, due: u64) -> (LevelLoad, UpcomingLoad) {
        (LevelLoad { waiting: ms(waiting), due: Some(at(due)), ..LevelLoad::default() }, UpcomingLoad::default())
    }

    #[test]
    fn a_job_is_endangered_when_its_laxity_is_less_than_the_work_ahead() {
        // 10 ms of work, its own included, before a deadline 10 ms away.
        assert!(!endangered(at(5), [one(10, 15)].into_iter(), Span::ZERO));
        assert!(endangered(at(6), [one(10, 15)].into_iter(), Span::ZERO));
        assert!(endangered(at(5), [one(10, 15)].into_iter(), Span::from_nanos(1)));
    }

    #[test]
    fn what_will_be_released_before_the_deadline_counts() {
        let (level, _) = one(40, 100);
        let coming = |share_ppm| UpcomingLoad { share_ppm, ..UpcomingLoad::default() };
        assert!(!endangered(at(0), [(level, coming(600_000))].into_iter(), Span::ZERO));
        assert!(endangered(at(0), [(level, coming(600_100))].into_iter(), Span::ZERO));
    }

    #[test]
    fn work_of_less_urgent_levels_is_not_ahead() {
        assert!(!endangered(at(0), [one(10, 10), one(80, 100)].into_iter(), Span::ZERO));
        assert!(endangered(at(0), [one(80, 100), one(30, 100)].into_iter(), Span::ZERO));
    }

    #[test]
    fn the_first_strategy_returns_after_a_calm_interval_and_no_earlier() {
        let mut switch = Switch::new(ms(100));
        assert!(!switch.ask(at(0), false) && switch.ask(at(10), true) && switch.second());
        assert!(!switch.ask(at(50), true) && !switch.ask(at(149), false) && switch.second());
        assert!(switch.ask(at(150), false) && !switch.second());
    }

    proptest! {
        #[test]
        fn a_pinned_strategy_stays_and_the_trigger_decides_afterwards(
            dangers in prop::collection::vec((0..50u64, any::<bool>(), prop::option::of(any::<bool>())), 1..60),
        ) {
            let (mut switch, mut now, mut last) = (Switch::new(ms(100)), 0, None);
            for (step, endangered, pinned) in dangers {
                now += step;
                last = if endangered { Some(now) } else { last };
                let before = switch.second();
                switch.pin(pinned);
                let changed = switch.ask(at(now), endangered);
                prop_assert_eq!(changed, before != switch.second());
                let recent = last.is_some_and(|last| now - last < 100);
                match pinned {
                    Some(second) => prop_assert_eq!(switch.second(), second),
                    None => prop_assert_eq!(switch.second(), endangered || before && (recent || last.is_none() && now < 100)),
                }
            }
        }

        #[test]
        fn more_work_or_less_time_never_makes_anything_safer(
            levels in prop::collection::vec((0u64..50, prop::option::of(0u64..200), 0u64..20, 0u64..500_000, 0u64..10), 1..6),
            more in 0usize..6, spare in 0u64..20, later in 0u64..50,
        ) {
            let levels: Vec<(LevelLoad, UpcomingLoad)> = levels.into_iter().map(|(waiting, due, started, share_ppm, once)| {
                let level = LevelLoad { waiting: ms(waiting), due: due.map(at), started: ms(started), started_due: None };
                (level, UpcomingLoad { share_ppm, once: ms(once), deadline: None })
            }).collect();
            let before = endangered(at(0), levels.iter().copied(), ms(spare));
            let mut worse = levels.clone();
            let last = worse.len() - 1;
            worse[more.min(last)].0.waiting += ms(5);
            prop_assert!(!before || endangered(at(later), worse.into_iter(), ms(spare)));
        }

        #[test]
        fn a_switch_back_is_a_calm_interval_after_the_last_danger(asked in prop::collection::vec((0u64..80, any::<bool>()), 1..60)) {
            let mut switch = Switch::new(ms(100));
            let (mut now, mut last) = (0, None);
            for (gap, danger) in asked {
                now += gap;
                let was = switch.second();
                let changed = switch.ask(at(now), danger);
                prop_assert_eq!(changed, was != switch.second());
                last = if danger { Some(now) } else { last };
                prop_assert_eq!(switch.second(), last.is_some_and(|last| danger || now - last < 100 ));
            }
        }
    }
}
