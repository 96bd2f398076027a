//! On which CPU, and above whom: the placement of windows, and how much fits.

use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use hyoshi_model::{Reservation, Share, Span};

use super::Window;
use crate::task::TaskId;

/// What somebody above the windows was promised on a CPU: a lane, or a release thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Time that it may take in each period.
    pub budget: Span,
    /// The period.
    pub period: Span,
    /// How much later than its period's begin it can start: the period less the budget is always safe.
    pub jitter: Span,
}

/// A CPU that windows may be placed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number of it.
    pub number: u32,
    /// What is promised above the windows.
    pub promises: Vec<Promise>,
    /// The most that windows and promises may take together: the rest is the kernel's and everybody else's.
    pub cap: Share,
}

/// Where a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// How urgent it is among the windows there: 0 is the most, below [`Placement::LEVELS`].
    pub level: u8,
}

/// A window does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// What was asked.
    pub asked: Reservation,
    /// The largest budget that would fit with this period and deadline; `None`: not a thousandth of the period.
    pub most: Option<Reservation>,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not fit beside what the CPUs hold: ", self.asked)?;
        match self.most {
            None => f.write_str("nothing of this period does"),
            Some(most) => write!(f, "{most} is the most"),
        }
    }
}

impl core::error::Error for NoRoom {}

/// The windows of one machine on their CPUs.
///
/// On each CPU they are ranked by deadline, shortest first (deadline monotonic: Leung and Whitehead 1982), and one is
/// admitted only if every window there still gets its budget within its deadline of each period's begin. That is
/// shown by response times (Joseph and Pandya 1986; Audsley et al. 1993), not by a sum under a cap, which proves
/// nothing. A window keeps its budget until it is wanted, so it interferes as a deferrable server does, with a
/// jitter of period less budget (Strosnider, Lehoczky and Sha 1995); where one period divides the
/// other, the periods begin together ([`Window`]) and there is no jitter.
///
/// Each budget is lengthened by what switching costs and by [`Window::LEAST_STEP`], by which a window may overshoot.
#[derive(Clone, Debug)]
pub struct Placement {
    cpus: Vec<(Cpu, Vec<Placed>)>,
    overhead: Span,
}

#[derive(Clone, Debug)]
struct Placed {
    task: TaskId,
    reservation: Reservation,
    /// Where it may be; empty: anywhere.
    allowed: Vec<u32>,
}

impl Placement {
    /// What raising and lowering a window's threads costs of each period, with some twenty of them.
    pub const SWITCHING: Span = Span::from_micros(100);
    /// What the kernel leaves real-time threads of a CPU, unless somebody has set that otherwise.
    pub const KERNELS_LIMIT: Share = Share::from_percent(95);
    /// How many levels there are for windows: real-time priorities 39 down to 20.
    pub const LEVELS: u8 = 20;
    /// How many windows one CPU can have.
    pub const MOST_ON_A_CPU: usize = 128;
    /// After so many steps a response time counts as too long.
    const MOST_STEPS: usize = 10_000;

    /// Without windows; one period's raising and lowering of a window's threads costs `switching`.
    pub fn new(cpus: impl IntoIterator<Item = Cpu>, switching: Span) -> Self {
        let cpus = cpus.into_iter().map(|cpu| (cpu, Vec::new())).collect();
        Placement { cpus, overhead: switching + Window::LEAST_STEP }
    }

    /// Gives a task its window, or another one: on its present CPU if it fits there, else on the first that it
    /// fits, else by placing all anew, the largest first. Other windows' seats may change. The threads of a task
    /// may be bound to some CPUs, `allowed` by the kernel's numbers; empty means any.
    pub fn admit(&mut self, task: TaskId, reservation: Reservation, allowed: &[u32]) -> Result<Seat, NoRoom> {
        let before = self.cpus.clone();
        let home = self.release(task);
        let placed = Placed { task, reservation, allowed: allowed.to_vec() };
        let mut order: Vec<usize> = home.into_iter().collect();
        order.extend((0..self.cpus.len()).filter(|cpu| Some(*cpu) != home));
        let found = order.iter().copied().find(|cpu| self.fits(*cpu, &placed));
        match found {
            Some(cpu) => self.cpus[cpu].1.push(placed),
            None if self.place_anew(&placed) => (),
            None => {
                let most = order.iter().filter_map(|cpu| self.most(*cpu, &placed)).max_by_key(|most| most.budget());
                self.cpus = before;
                return Err(NoRoom { asked: reservation, most });
            }
        }
        self.seat(task).ok_or(NoRoom { asked: reservation, most: None })
    }

    /// Takes a task's window away, and says which of the CPUs it was on.
    pub fn release(&mut self, task: TaskId) -> Option<usize> {
        for (index, (_, windows)) in self.cpus.iter_mut().enumerate() {
            if let Some(at) = windows.iter().position(|window| window.task == task) {
                windows.remove(at);
                return Some(index);
            }
        }
        None
    }

    /// Replaces what is promised above the windows of a CPU; windows that no longer fit keep their place and
    /// are named, the longest deadline first: refuse them or make them smaller.
    pub fn promise(&mut self, number: u32, promises: Vec<Promise>) -> Vec<TaskId> {
        let Some(index) = self.cpus.iter().position(|(cpu, _)| cpu.number == number) else { return Vec::new() };
        self.cpus[index].0.promises = promises;
        let mut late: Vec<Placed> = self.cpus[index].1.clone();
        late.retain(|window| self.response(window.task).is_none());
        late.sort_by_key(|window| (Reverse(window.reservation.deadline()), window.task));
        late.iter().map(|window| window.task).collect()
    }

    /// Where a task's window is.
    pub fn seat(&self, task: TaskId) -> Option<Seat> {
        self.seats().find(|(owner, _)| *owner == task).map(|(_, seat)| seat)
    }

    /// Where all windows are: levels of others change when one comes or goes.
    pub fn seats(&self) -> impl Iterator<Item = (TaskId, Seat)> {
        self.cpus.iter().flat_map(|(cpu, windows)| {
            let levels = levels(windows);
            windows.iter().zip(levels).map(|(window, level)| (window.task, Seat { cpu: cpu.number, level }))
        })
    }

    /// How long after a period's begin a task can have to wait for its whole budget; `None` if it has no
    /// window, or no bound within its deadline.
    pub fn response(&self, task: TaskId) -> Option<Span> {
        let (cpu, windows) = self.cpus.iter().find(|(_, windows)| windows.iter().any(|window| window.task == task))?;
        let index = windows.iter().position(|window| window.task == task)?;
        self.response_of(cpu, windows, &levels(windows), index)
    }

    fn response_of(&self, cpu: &Cpu, windows: &[Placed], levels: &[u8], index: usize) -> Option<Span> {
        let own = windows[index].reservation;
        let deadline = own.deadline().as_nanos();
        let alone = own.budget().as_nanos() + self.overhead.as_nanos();
        let mut response = alone;
        for _ in 0..Placement::MOST_STEPS {
            if response > deadline {
                return None;
            }
            let mut demand = alone;
            for (other, window) in windows.iter().enumerate() {
                if other != index && levels[other] <= levels[index] {
                    demand = demand.saturating_add(self.interference(window.reservation, own, response));
                }
            }
            for promise in &cpu.promises {
                let releases =
                    response.saturating_add(promise.jitter.as_nanos()).div_ceil(promise.period.as_nanos().max(1));
                demand = demand.saturating_add(releases.saturating_mul(promise.budget.as_nanos()));
            }
            if demand == response {
                return Some(Span::from_nanos(response));
            }
            response = demand;
        }
        None
    }

    /// What a window takes at most in `length` nanoseconds from the begin of one of `own`'s periods.
    fn interference(&self, window: Reservation, own: Reservation, length: u64) -> u64 {
        let (period, budget) = (window.period().as_nanos(), window.budget().as_nanos());
        let together = period.is_multiple_of(own.period().as_nanos()) || own.period().as_nanos().is_multiple_of(period);
        let jitter = if together { 0 } else { period - budget };
        let openings = length.saturating_add(jitter).div_ceil(period);
        openings.saturating_mul(budget.saturating_add(self.overhead.as_nanos()))
    }

    /// Whether one more fits a CPU.
    fn fits(&self, cpu: usize, more: &Placed) -> bool {
        let (cpu, windows) = &self.cpus[cpu];
        let is_allowed = more.allowed.is_empty() || more.allowed.contains(&cpu.number);
        if !is_allowed || windows.len() >= Placement::MOST_ON_A_CPU {
            return false;
        }
        let mut all = windows.clone();
        all.push(more.clone());
        let taken: Share = all.iter().map(|window| self.share(window.reservation)).sum();
        let promised: Share = cpu.promises.iter().map(|promise| part(promise.budget, promise.period)).sum();
        if taken.saturating_add(promised) > cpu.cap {
            return false;
        }
        let levels = levels(&all);
        (0..all.len()).all(|index| self.response_of(cpu, &all, &levels, index).is_some())
    }

    fn share(&self, reservation: Reservation) -> Share {
        part(reservation.budget() + self.overhead, reservation.period())
    }

    /// All windows and one more on empty CPUs, each on the first that it fits: those that may not go everywhere first,
    /// then the largest first.
    fn place_anew(&mut self, more: &Placed) -> bool {
        let mut all: Vec<Placed> = self.cpus.iter().flat_map(|(_, windows)| windows.iter().cloned()).collect();
        all.push(more.clone());
        all.sort_by_key(|window| (window.allowed.is_empty(), Reverse(window.reservation.share()), window.task));
        let mut anew = Placement {
            cpus: self.cpus.iter().map(|(cpu, _)| (cpu.clone(), Vec::new())).collect(),
            overhead: self.overhead,
        };
        for window in all {
            match (0..anew.cpus.len()).find(|cpu| anew.fits(*cpu, &window)) {
                Some(cpu) => anew.cpus[cpu].1.push(window),
                None => return false,
            }
        }
        *self = anew;
        true
    }

    /// The largest budget that fits a CPU, in thousandths of the period.
    fn most(&self, cpu: usize, asked: &Placed) -> Option<Reservation> {
        let grain = (asked.reservation.period().as_nanos() / 1_000).max(1);
        let of = |steps: u64| Placed {
            reservation: asked.reservation.with_budget(Span::from_nanos(steps * grain)),
            ..asked.clone()
        };
        // Fits at `least`, if that is not zero; does not at `beyond`.
        let (mut least, mut beyond) = (0, asked.reservation.budget().as_nanos().div_ceil(grain));
        while beyond - least > 1 {
            let middle = least + (beyond - least) / 2;
            if self.fits(cpu, &of(middle)) { least = middle } else { beyond = middle }
        }
        (least > 0).then(|| of(least).reservation)
    }
}

/// Budget over period, rounded up, of any size.
fn part(budget: Span, period: Span) -> Share {
    let millionths = u128::from(budget.as_nanos()) * u128::from(Share::CPU.as_millionths());
    let millionths = millionths.div_ceil(u128::from(period.as_nanos().max(1)));
    Share::from_millionths(u64::try_from(millionths).unwrap_or(u64::MAX))
}

/// Each window's level by its deadline; where there are more deadlines than levels, neighbours share one.
fn levels(windows: &[Placed]) -> Vec<u8> {
    let mut deadlines: Vec<Span> = windows.iter().map(|window| window.reservation.deadline()).collect();
    deadlines.sort_unstable();
    deadlines.dedup();
    let most = usize::from(Placement::LEVELS);
    let level = |window: &Placed| {
        let rank = deadlines.binary_search(&window.reservation.deadline()).unwrap_or_else(|rank| rank);
        let level = if deadlines.len() <= most { rank } else { rank * most / deadlines.len() };
        level as u8 // below 20
    };
    windows.iter().map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;
    use proptest::prelude::*;

    fn window(budget: u64, period: u64) -> Reservation {
        Reservation::new(Span::from_millis(budget), Span::from_millis(period)).unwrap()
    }

    fn on(cpus: u32) -> Placement {
        let cpu = |number| Cpu { number, promises: vec![], cap: Share::from_percent(95) };
        Placement { overhead: Span::ZERO, ..Placement::new((0..cpus).map(cpu), Span::ZERO) }
    }

    #[test]
    fn a_sum_under_the_cap_proves_nothing() {
        let mut placement = on(1);
        placement.admit(TaskId(1), window(15, 30), &[]).unwrap();
        // 50 % and 38 % are below 95 %, but the other window can take 15 ms at each end of those 40 ms.
        let refused = placement.admit(TaskId(2), window(15, 40), &[]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "15ms of 40ms does not fit beside what the CPUs hold: 10ms of 40ms is the most"
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
    fn shorter_deadlines_are_more_urgent_and_lanes_come_before_all() {
        let mut placement = on(1);
        placement.admit(TaskId(1), window(10, 100), &[]).unwrap();
        placement.admit(TaskId(2), window(10, 200).within(Span::from_millis(50)).unwrap(), &[]).unwrap();
        assert_eq!(placement.seat(TaskId(2)), Some(Seat { cpu: 0, level: 0 }));
        assert_eq!(placement.seat(TaskId(1)), Some(Seat { cpu: 0, level: 1 }));
        let lane = |budget| {
            let (budget, period) = (Span::from_millis(budget), Span::from_millis(20));
            vec![Promise { budget, period, jitter: Span::ZERO }]
        };
        assert_eq!(placement.promise(0, lane(14)), []);
        assert_eq!(placement.response(TaskId(2)), Some(Span::from_millis(38)));
        assert_eq!(placement.promise(0, lane(17)), [TaskId(1), TaskId(2)]);
    }

    #[test]
    fn where_nothing_fits_as_they_stand_all_are_placed_anew() {
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
    fn a_window_goes_only_where_its_threads_may() {
        let mut placement = on(3);
        assert_eq!(placement.admit(TaskId(1), window(60, 100), &[2]).unwrap().cpu, 2);
        assert_eq!(placement.admit(TaskId(2), window(60, 100), &[]).unwrap().cpu, 0);
        let refused = placement.admit(TaskId(3), window(60, 100), &[2, 7]).unwrap_err();
        assert_eq!(refused.most, Some(window(35, 100)));
        assert!(placement.admit(TaskId(3), window(1, 100), &[7]).unwrap_err().most.is_none());
        // All anew: the one that may go nowhere else gets its CPU.
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

    /// Plays one CPU tick by tick: of the windows with budget left and something to do, the most urgent runs. Whether
    /// the watched window, which always has something to do, gets its budget in time in each of its periods.
    fn served(placement: &Placement, watched: TaskId, wants: &[bool]) -> bool {
        const TICK: u64 = 1_000_000;
        let windows = &placement.cpus[0].1;
        let levels = levels(windows);
        let mut left = vec![0; windows.len()];
        let mut turn: Vec<usize> = (0..windows.len()).collect();
        // Most urgent first; the watched window is the last of its level, whatever its turn would be.
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

    fn placed(windows: &[(u64, u64, u64)]) -> Placement {
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
        fn whoever_is_admitted_is_served_in_every_period(
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
        fn who_asks_for_less_is_never_refused(windows in windows(), task in 0u32..6, less in 1u64..100) {
            let mut placement = placed(&windows);
            let held = placement.cpus[0].1.iter().find(|window| window.task == TaskId(task)).map(|w| w.reservation);
            if let Some(held) = held {
                let budget = Span::from_nanos(held.budget().as_nanos() * less / 100);
                prop_assert!(placement.admit(TaskId(task), held.with_budget(budget), &[]).is_ok());
            }
        }

        #[test]
        fn the_most_that_is_told_fits(windows in windows(), more in (5u64..20, 20u64..60)) {
            let mut placement = placed(&windows);
            if let Err(NoRoom { most: Some(most), asked }) = placement.admit(TaskId(99), window(more.0, more.1), &[]) {
                prop_assert!(most.budget() < asked.budget());
                prop_assert!(placement.admit(TaskId(99), most, &[]).is_ok());
            }
        }
    }
}
