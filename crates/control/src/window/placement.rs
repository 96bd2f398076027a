//! The placement of windows: their CPUs, their levels, and how much fits.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use hyoshi_model::{Reservation, Share, Span};

use super::Window;
use crate::task::TaskId;

/// The promised CPU time of something above the windows: a lane, or a release thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPromise {
    /// Its most CPU time in each period.
    pub budget: Span,
    /// The period.
    pub period: Span,
    /// How much later than its period's start it can start: the period less the budget is always safe.
    pub jitter: Span,
}

impl CpuPromise {
    /// The share of the CPU.
    pub fn share(&self) -> Share {
        part(self.budget, self.period)
    }
}

/// A CPU for windows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub number: u32,
    /// The promises above the windows.
    pub promises: Vec<CpuPromise>,
    /// The most that windows and promises may use together: the rest is for the kernel and ordinary threads.
    pub cap: Share,
}

/// The position of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The kernel's number of the CPU.
    pub cpu: u32,
    /// Its level among the windows there: 0 is the most urgent, below [`WindowPlacement::LEVELS`].
    pub level: u8,
    /// The number of equal parts of its period in which its budget is served: see [`WindowPlacement::RUN`].
    pub slices: u32,
}

/// A window does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// The request.
    pub asked: Reservation,
    /// The largest budget that would fit with this period and deadline; `None`: less than a thousandth of the period.
    pub most: Option<Reservation>,
}

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not fit beside the reservations on the CPUs: ", self.asked)?;
        match self.most {
            None => f.write_str("no budget of this period fits"),
            Some(most) => write!(f, "the most that fits is {most}"),
        }
    }
}

impl core::error::Error for NoRoom {}

/// The windows of one machine on their CPUs.
///
/// On each CPU they are ranked by deadline, shortest first (deadline monotonic: Leung and Whitehead 1982), and one is
/// admitted only if every window there still gets its budget within its deadline of each period's start. That is proved
/// by response times (Joseph and Pandya 1986; Audsley et al. 1993), not by a sum under a cap, which proves nothing. A
/// window keeps its budget until it is used, so it interferes like a deferrable server, with a jitter of period less
/// budget (Strosnider, Lehoczky and Sha 1995); if one period divides the other, the periods begin together ([`Window`])
/// and there is no jitter.
///
/// A budget is served in [slices](sliced) if windows would otherwise run long back to back and delay ordinary threads
/// of that CPU: a periodic resource of the same share and a shorter period supplies no less in any time (Shin and Lee,
/// RTSS 2003).
///
/// Each budget is lengthened by the cost of switching and by [`Window::LEAST_STEP`], by which a window may overshoot.
/// The room for more overshoot is what remains when all are admitted: [`WindowPlacement::part`].
#[derive(Clone, Debug)]
pub struct WindowPlacement {
    cpus: Vec<(Cpu, Vec<Placed>)>,
    overhead: Span,
    /// Windows overshoot by this part of their periods, if that is longer.
    part: Option<u64>,
    /// Windows are divided into slices if they could run longer than this back to back.
    run: Span,
}

#[derive(Clone, Debug)]
struct Placed {
    task: TaskId,
    reservation: Reservation,
    /// The CPUs on which it may be; empty: any.
    allowed: Arc<[u32]>,
    slices: u32,
}

impl Placed {
    fn new(task: TaskId, reservation: Reservation, allowed: &[u32]) -> Self {
        Placed { task, reservation, allowed: allowed.into(), slices: 1 }
    }

    /// The served reservation: the budget in equal parts of the period.
    fn served(&self) -> Reservation {
        sliced(self.reservation, self.slices)
    }
}

/// A reservation in this many slices: each has its part of the budget, rounded up, in its part of the period. A period
/// without that divisor stays whole, because some slices would be outside it.
pub fn sliced(reservation: Reservation, slices: u32) -> Reservation {
    let (budget, period, slices) =
        (reservation.budget().as_nanos(), reservation.period().as_nanos(), u64::from(slices));
    if slices < 2 || !period.is_multiple_of(slices) {
        return reservation;
    }
    let slice = Reservation::new(Span::from_nanos(budget.div_ceil(slices)), Span::from_nanos(period / slices));
    slice.unwrap_or(reservation)
}

/// The fewest slices that are no longer than `slot` and divide the period. 1 if there are none, if the budget is no
/// longer, or if the deadline is before the period's end: then the budget is served at once.
fn slices(reservation: Reservation, slot: Span) -> u32 {
    let (budget, period) = (reservation.budget().as_nanos(), reservation.period().as_nanos());
    if budget <= slot.as_nanos() || reservation.deadline() != reservation.period() {
        return 1;
    }
    let fewest = budget.div_ceil(slot.as_nanos().max(1));
    let slices = (fewest..=fewest.saturating_mul(2)).take(1_000).find(|slices| period.is_multiple_of(*slices));
    let slices = slices.and_then(|slices| u32::try_from(slices).ok()).unwrap_or(1);
    if sliced(reservation, slices) == reservation { 1 } else { slices }
}

impl WindowPlacement {
    /// The cost of raising and lowering a window's threads in each period, with some twenty of them.
    pub const SWITCHING: Span = Span::from_micros(100);
    /// The kernel's limit of real-time threads of a CPU, unless it was configured otherwise.
    pub const KERNELS_LIMIT: Share = Share::from_percent(95);
    /// Windows of one CPU run no longer than this back to back, if there is room for slices. Each slice costs what a
    /// window does in a period, so they are as long as possible, and no finer than the last of these:
    pub const RUN: Span = Span::from_millis(12);
    const SLOTS: [Span; 4] = [Span::from_millis(4), Span::from_millis(3), Span::from_millis(2), Span::from_millis(1)];
    /// The number of levels for windows: real-time priorities 39 down to 20.
    pub const LEVELS: u8 = 20;
    /// The most windows of one CPU.
    pub const MOST_ON_A_CPU: usize = 128;
    /// After this many steps a response time counts as too long.
    const MOST_STEPS: usize = 10_000;

    /// Without windows; one period's raising and lowering of a window's threads costs `switching`.
    pub fn new(cpus: impl IntoIterator<Item = Cpu>, switching: Span) -> Self {
        let cpus = cpus.into_iter().map(|cpu| (cpu, Vec::new())).collect();
        WindowPlacement { cpus, overhead: switching + Window::LEAST_STEP, part: None, run: WindowPlacement::RUN }
    }

    /// Places a task's window, or changes it: on its present CPU if it fits there, else on the least reserved CPU where
    /// it fits, else by placing all windows again, the largest first. Other windows' seats may change. The threads of a
    /// task may be bound to some CPUs, `allowed` by the kernel's numbers; empty means any.
    pub fn admit(&mut self, task: TaskId, reservation: Reservation, allowed: &[u32]) -> Result<Seat, NoRoom> {
        let before = self.cpus.clone();
        let home = self.release(task);
        if let Err(refused) = self.put(home, Placed::new(task, reservation, allowed)) {
            self.cpus = before;
            return Err(refused);
        }
        self.slice_all();
        self.seat(task).ok_or(NoRoom { asked: reservation, most: None })
    }

    /// Whether a task's window is placed with at least this budget and at most twice as much, for the same period,
    /// deadline and allowed CPUs: then no placement is needed.
    pub fn covers(&self, task: TaskId, reservation: Reservation, allowed: &[u32]) -> bool {
        let placed = self.cpus.iter().flat_map(|(_, windows)| windows).find(|window| window.task == task);
        placed.is_some_and(|window| {
            let placed = window.reservation;
            *window.allowed == *allowed
                && placed.with_budget(reservation.budget()) == reservation
                && placed.budget() >= reservation.budget()
                && placed.budget() <= reservation.budget() * 2
        })
    }

    /// Places these windows with smaller budgets than they have, which needs no test; others stay.
    pub fn lessen(&mut self, smaller: impl IntoIterator<Item = (TaskId, Reservation)>) {
        for (task, reservation) in smaller {
            let mut windows = self.cpus.iter_mut().flat_map(|(_, windows)| windows);
            if let Some(window) = windows.find(|window| window.task == task)
                && window.reservation.with_budget(reservation.budget()) == reservation
            {
                window.reservation =
                    window.reservation.with_budget(reservation.budget().min(window.reservation.budget()));
            }
        }
        self.slice_all();
    }

    /// Places a task's window with a larger budget on its CPU, if all fit then.
    pub fn enlarge(&mut self, task: TaskId, budget: Span) {
        for cpu in 0..self.cpus.len() {
            let (place, windows) = &self.cpus[cpu];
            let Some(at) = windows.iter().position(|window| window.task == task) else { continue };
            let mut larger = whole(windows);
            larger[at].reservation = larger[at].reservation.with_budget(budget.max(larger[at].reservation.budget()));
            if self.holds(place, &larger) {
                self.cpus[cpu].1 = larger;
                self.slice(cpu);
            }
        }
    }

    /// From now on a task may run only on these CPUs: its window stays on its CPU if that is one of them, else it is
    /// placed again as by [`WindowPlacement::admit`].
    ///
    /// # Errors
    ///
    /// If it fits none of them; then it stays on its CPU.
    pub fn confine(&mut self, task: TaskId, allowed: &[u32]) -> Result<(), NoRoom> {
        let mut windows =
            self.cpus.iter_mut().flat_map(|(cpu, windows)| windows.iter_mut().map(|one| (cpu.number, one)));
        let Some((number, window)) = windows.find(|(_, window)| window.task == task) else { return Ok(()) };
        if allowed.is_empty() || allowed.contains(&number) {
            window.allowed = allowed.into();
            return Ok(());
        }
        let reservation = window.reservation;
        self.admit(task, reservation, allowed).map(|_| ())
    }

    /// On its present CPU if it fits there, else on the least reserved CPU where it fits, to leave room for ordinary
    /// threads on each CPU; else by placing all again.
    fn put(&mut self, home: Option<usize>, placed: Placed) -> Result<(), NoRoom> {
        // The test for room uses the whole window.
        let placed = Placed { slices: 1, ..placed };
        let mut order: Vec<usize> = (0..self.cpus.len()).collect();
        order.sort_by_cached_key(|cpu| {
            let (place, windows) = &self.cpus[*cpu];
            let promised: Share = place.promises.iter().map(CpuPromise::share).sum();
            let taken: Share = windows.iter().map(|window| self.share(window.reservation)).sum();
            (Some(*cpu) != home, taken.saturating_add(promised), *cpu)
        });
        if let Some(cpu) = order.iter().copied().find(|cpu| self.fits(*cpu, &placed)) {
            self.cpus[cpu].1.push(placed);
            return Ok(());
        }
        if self.place_again(&placed) {
            return Ok(());
        }
        let most = order.iter().filter_map(|cpu| self.most(*cpu, &placed)).max_by_key(|most| most.budget());
        Err(NoRoom { asked: placed.reservation, most })
    }

    /// Removes a task's window, and returns its CPU.
    pub fn release(&mut self, task: TaskId) -> Option<usize> {
        for (index, (_, windows)) in self.cpus.iter_mut().enumerate() {
            if let Some(at) = windows.iter().position(|window| window.task == task) {
                windows.remove(at);
                self.slice(index);
                return Some(index);
            }
        }
        None
    }

    /// Replaces the promises above the windows of a CPU. If one of them is late then, all of them are placed again in
    /// the order of `first`, others behind; a window that no longer fits keeps the most that does, or is removed, and
    /// is returned.
    pub fn promise(&mut self, number: u32, promises: &[CpuPromise], first: &[TaskId]) -> Vec<(TaskId, NoRoom)> {
        let Some(home) = self.cpus.iter().position(|(cpu, _)| cpu.number == number) else { return Vec::new() };
        self.cpus[home].0.promises = merged(promises);
        if self.holds(&self.cpus[home].0, &whole(&self.cpus[home].1)) {
            self.slice(home);
            return Vec::new();
        }
        let mut displaced = core::mem::take(&mut self.cpus[home].1);
        let place = |task| first.iter().position(|other| *other == task).unwrap_or(first.len());
        displaced.sort_by_cached_key(|window| (place(window.task), window.task));
        let mut refused = Vec::new();
        for window in displaced {
            let Err(refusal) = self.put(Some(home), window.clone()) else { continue };
            if let Some(most) = refusal.most {
                // A fitting window is not refused.
                let _ = self.put(Some(home), Placed { reservation: most, ..window });
            }
            refused.push((window.task, refusal));
        }
        self.slice_all();
        refused
    }

    /// The seat of a task's window.
    pub fn seat(&self, task: TaskId) -> Option<Seat> {
        self.seats().find(|(owner, _)| *owner == task).map(|(_, seat)| seat)
    }

    /// The seats of all windows: levels of others change when one is added or removed.
    pub fn seats(&self) -> impl Iterator<Item = (TaskId, Seat)> {
        self.cpus.iter().flat_map(|(cpu, windows)| {
            let levels = levels(windows);
            let seat = |level, slices| Seat { cpu: cpu.number, level, slices };
            windows.iter().zip(levels).map(move |(window, level)| (window.task, seat(level, window.slices)))
        })
    }

    /// The longest wait of a task for its whole budget, from a period's start; `None` if it has no window, or no bound
    /// within its deadline.
    pub fn response(&self, task: TaskId) -> Option<Span> {
        let (cpu, windows) = self.cpus.iter().find(|(_, windows)| windows.iter().any(|window| window.task == task))?;
        let index = windows.iter().position(|window| window.task == task)?;
        let slice = self.response_of(cpu, windows, &levels(windows), index)?;
        let window = &windows[index];
        // The start of the last slice.
        let before = window.reservation.period().saturating_sub(window.served().period());
        Some(if window.slices > 1 { before + slice } else { slice })
    }

    /// How long the windows of a CPU can run back to back at most: the longest busy period of deferrable servers.
    /// Each server may keep its budget until its period ends and then have the next at once. `None`: no bound below a
    /// second.
    pub fn longest_run(&self, number: u32) -> Option<Span> {
        let (_, windows) = self.cpus.iter().find(|(cpu, _)| cpu.number == number)?;
        self.run_of(windows)
    }

    fn run_of(&self, windows: &[Placed]) -> Option<Span> {
        // Bounds the time of a decision.
        const MOST_STEPS: usize = 200;
        let mut run: u64 = windows.iter().map(|window| self.lengthened(window.served()).as_nanos()).sum();
        for _ in 0..MOST_STEPS {
            if run > Span::from_secs(1).as_nanos() {
                return None;
            }
            let demand = windows.iter().fold(0u64, |demand, window| {
                let (served, budget) = (window.served(), self.lengthened(window.served()).as_nanos());
                let period = served.period().as_nanos();
                // A window that opens at that instant extends it.
                let openings = run.saturating_add(period.saturating_sub(budget)) / period + 1;
                demand.saturating_add(openings.saturating_mul(budget))
            });
            if demand <= run {
                return Some(Span::from_nanos(run));
            }
            run = demand;
        }
        None
    }

    fn slice_all(&mut self) {
        (0..self.cpus.len()).for_each(|cpu| self.slice(cpu));
    }

    /// Divides the windows of a CPU into the longest slices with which they run no longer than [`WindowPlacement::RUN`]
    /// back to back. If there are none, it uses the slices with the shortest run. All windows keep their deadlines.
    fn slice(&mut self, cpu: usize) {
        let (place, windows) = &self.cpus[cpu];
        let mut best = whole(windows);
        if best.iter().any(|window| slices(window.reservation, WindowPlacement::SLOTS[3]) > 1) {
            let run = |windows: &[Placed]| self.run_of(windows).map_or(u64::MAX, Span::as_nanos);
            let mut shortest = run(&best);
            for slot in WindowPlacement::SLOTS {
                if shortest <= self.run.as_nanos() {
                    break;
                }
                let mut with = whole(windows);
                with.iter_mut().for_each(|window| window.slices = slices(window.reservation, slot));
                let so_long = run(&with);
                if so_long < shortest && self.holds(place, &with) {
                    (best, shortest) = (with, so_long);
                }
            }
        }
        self.cpus[cpu].1 = best;
    }

    fn response_of(&self, cpu: &Cpu, windows: &[Placed], levels: &[u8], index: usize) -> Option<Span> {
        let own = windows[index].served();
        let deadline = own.deadline().as_nanos();
        let alone = self.lengthened(own).as_nanos();
        let mut response = alone;
        for _ in 0..WindowPlacement::MOST_STEPS {
            if response > deadline {
                return None;
            }
            let mut demand = alone;
            for (other, window) in windows.iter().enumerate() {
                if other != index && levels[other] <= levels[index] {
                    demand = demand.saturating_add(self.interference(window.served(), own, response));
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

    /// The most CPU time of a window in `length` nanoseconds from the start of one of `own`'s periods.
    fn interference(&self, window: Reservation, own: Reservation, length: u64) -> u64 {
        let (period, budget) = (window.period().as_nanos(), window.budget().as_nanos());
        let together = period.is_multiple_of(own.period().as_nanos()) || own.period().as_nanos().is_multiple_of(period);
        let jitter = if together { 0 } else { period - budget };
        let openings = length.saturating_add(jitter).div_ceil(period);
        openings.saturating_mul(self.lengthened(window).as_nanos())
    }

    /// Whether one more fits a CPU.
    fn fits(&self, cpu: usize, more: &Placed) -> bool {
        let (cpu, windows) = &self.cpus[cpu];
        let is_allowed = more.allowed.is_empty() || more.allowed.contains(&cpu.number);
        if !is_allowed || windows.len() >= WindowPlacement::MOST_ON_A_CPU {
            return false;
        }
        let mut all = whole(windows);
        all.push(more.clone());
        self.holds(cpu, &all)
    }

    /// Whether all of them are served in time on a CPU, within its cap.
    fn holds(&self, cpu: &Cpu, windows: &[Placed]) -> bool {
        let taken: Share = windows.iter().map(|window| self.share(window.served())).sum();
        let promised: Share = cpu.promises.iter().map(CpuPromise::share).sum();
        if !windows.is_empty() && taken.saturating_add(promised) > cpu.cap {
            return false;
        }
        let levels = levels(windows);
        // Windows of one period and deadline have the same response time: each of them interferes once.
        let mut all: Vec<(Reservation, usize)> = windows.iter().map(Placed::served).zip(0..).collect();
        all.sort_unstable_by_key(|(served, index)| (served.period(), served.deadline(), *index));
        all.dedup_by_key(|(served, _)| (served.period(), served.deadline()));
        all.iter().all(|(_, index)| self.response_of(cpu, windows, &levels, *index).is_some())
    }

    fn share(&self, reservation: Reservation) -> Share {
        part(self.lengthened(reservation), reservation.period())
    }

    /// A budget, with the overhead of its window.
    fn lengthened(&self, reservation: Reservation) -> Span {
        let step = self.part.map_or(Window::LEAST_STEP, |part| Window::step(reservation.period(), part));
        reservation.budget() + self.overhead + step.saturating_sub(Window::LEAST_STEP)
    }

    /// The longest steps of the windows of a CPU, as a part of their periods, with which they all still keep their
    /// deadlines; `None`: there is only room for the least.
    pub fn part(&self, number: u32) -> Option<u64> {
        let (cpu, windows) = self.cpus.iter().find(|(cpu, _)| cpu.number == number)?;
        let with = |part: &u64| WindowPlacement {
            cpus: Vec::new(),
            overhead: self.overhead,
            part: Some(*part),
            run: self.run,
        };
        [8, 16, 32, 64, 128].into_iter().find(|part| with(part).holds(cpu, windows))
    }

    /// All windows and one more on empty CPUs, each on the first that it fits: first those with restricted CPUs, then
    /// the largest first.
    fn place_again(&mut self, more: &Placed) -> bool {
        let mut all: Vec<Placed> = self.cpus.iter().flat_map(|(_, windows)| whole(windows)).collect();
        all.push(more.clone());
        all.sort_by_key(|window| (window.allowed.is_empty(), Reverse(window.reservation.share()), window.task));
        let mut anew = WindowPlacement {
            cpus: self.cpus.iter().map(|(cpu, _)| (cpu.clone(), Vec::new())).collect(),
            overhead: self.overhead,
            part: self.part,
            run: self.run,
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

/// The same windows without slices, to test whether they fit.
fn whole(windows: &[Placed]) -> Vec<Placed> {
    windows.iter().map(|window| Placed { slices: 1, ..window.clone() }).collect()
}

/// Combines promises to a few that use at least as much in any time: those of one period are one, and neighbours if
/// there are too many.
fn merged(promises: &[CpuPromise]) -> Vec<CpuPromise> {
    /// Bounds the time of a decision in a system with many operations.
    const MOST: usize = 64;
    let mut sorted = promises.to_vec();
    sorted.sort_by_key(|promise| promise.period);
    let join = |together: &[CpuPromise]| {
        together.iter().copied().reduce(|one, other| CpuPromise {
            budget: Span::from_nanos(one.budget.as_nanos().saturating_add(other.budget.as_nanos())),
            period: one.period.min(other.period),
            jitter: one.jitter.max(other.jitter),
        })
    };
    let few: Vec<CpuPromise> = sorted.chunk_by(|one, next| one.period == next.period).filter_map(join).collect();
    few.chunks(few.len().div_ceil(MOST).max(1)).filter_map(join).collect()
}

/// Budget over period, rounded up, of any size.
fn part(budget: Span, period: Span) -> Share {
    let millionths = u128::from(budget.as_nanos()) * u128::from(Share::CPU.as_millionths());
    let millionths = millionths.div_ceil(u128::from(period.as_nanos().max(1)));
    Share::from_millionths(u64::try_from(millionths).unwrap_or(u64::MAX))
}

/// Each window's level by its deadline; where there are more deadlines than levels, neighbours share one.
fn levels(windows: &[Placed]) -> Vec<u8> {
    let mut deadlines: Vec<Span> = windows.iter().map(|window| window.served().deadline()).collect();
    deadlines.sort_unstable();
    deadlines.dedup();
    let most = usize::from(WindowPlacement::LEVELS);
    let level = |window: &Placed| {
        let rank = deadlines.binary_search(&window.served().deadline()).unwrap_or_else(|rank| rank);
        let level = if deadlines.len() <= most { rank } else { rank * most / deadlines.len() };
        level as u8 // below 20
    };
    windows.iter().map(level).collect()
}

#[cfg(test)]
mod tests;
