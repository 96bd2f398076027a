//! The costs of scheduling, spent on the CPU by the rules of [`Costs`]. They delay the inputs of the dispatcher and the
//! jobs after its decisions.
//!
//! ```text
//!                release or watchdog due                        nothing is due any more
//!   lanes run ───────────────────────────► held (above lanes) ───────────────────────────► lanes run
//!       ▲                                     │      ▲
//!       │                                     └──────┘ what has become due meanwhile, together
//!       │  another lane's turn                paid                    a body ends
//!       └─────────────────────► switching ──────────► owing ─► body ──────────────► owing ─► complete
//! ```
//!
//! Switching and the costs of a lane or job are spent at the lane's priority: more urgent lanes interrupt them.

use hyoshi_dispatch::LaneMask;
use hyoshi_dispatch::kernel::BACKGROUND;
use hyoshi_model::costs::WATCHDOG_PERIOD;
use hyoshi_model::{Costs, Instant, Span};
use hyoshi_trace::{CpuUser, Slot};

/// No lane: the next user of the CPU pays a switch.
const NOBODY: u8 = u8::MAX - 1;

/// The use of the CPU while it runs no body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spending {
    /// It idles, or a body runs.
    Nothing,
    /// Above every lane, until `held_until`.
    Above(CpuUser),
    /// A switch to the thread of this lane.
    Switch(u8),
    /// Before or after this job's body, at its lane's priority.
    Job(Slot, u8),
    /// For cancelled jobs of this lane.
    Lane(u8),
}

/// A CPU's overhead: the present spending, and the outstanding costs.
#[derive(Debug)]
pub(crate) struct CpuOverhead {
    pub costs: Costs,
    spending: Spending,
    /// No lane runs, and no release is handled, before.
    held_until: Instant,
    /// The next check by the watchdog.
    watchdog: Instant,
    /// The thread that had the CPU last; an idle CPU keeps it.
    thread: Option<u8>,
    /// Whether that thread has run nothing since its switch.
    fresh: bool,
    /// The rest of a switch, and its target.
    switch: (u8, Span),
    /// The outstanding costs of each lane for cancelled jobs, and the lanes that have any.
    lanes: Vec<Span>,
    indebted: LaneMask,
    /// By slot: the outstanding costs of each started job before or after its body.
    jobs: Vec<Span>,
    /// All costs spent.
    pub spent: Span,
}

impl CpuOverhead {
    /// `None` if all costs are zero.
    pub fn of(costs: Costs, lanes: usize) -> Option<Box<CpuOverhead>> {
        let watchdog = if costs.watchdog.is_zero() { Instant::NEVER } else { Instant::ZERO + WATCHDOG_PERIOD };
        (!costs.is_none()).then(|| {
            Box::new(CpuOverhead {
                costs,
                spending: Spending::Nothing,
                held_until: Instant::ZERO,
                watchdog,
                thread: None,
                fresh: false,
                switch: (NOBODY, Span::ZERO),
                lanes: vec![Span::ZERO; lanes],
                indebted: LaneMask::EMPTY,
                jobs: Vec::new(),
                spent: Span::ZERO,
            })
        })
    }

    /// Whether scheduling has the CPU.
    pub fn is_spending(&self) -> bool {
        !matches!(self.spending, Spending::Nothing)
    }

    /// Accounts `ran` to the present spending. Returns its owner.
    pub fn account(&mut self, ran: Span) -> Option<CpuUser> {
        let who = match self.spending {
            _ if ran.is_zero() => return None,
            Spending::Nothing => return None,
            Spending::Above(who) => who,
            Spending::Switch(lane) => {
                self.switch.1 = self.switch.1.saturating_sub(ran);
                if self.switch.1.is_zero() {
                    self.arrived(lane);
                }
                thread_of(lane)
            }
            Spending::Job(slot, lane) => {
                let owed = &mut self.jobs[slot.0 as usize];
                *owed = owed.saturating_sub(ran);
                thread_of(lane)
            }
            Spending::Lane(lane) => {
                let owed = &mut self.lanes[usize::from(lane)];
                *owed = owed.saturating_sub(ran);
                self.indebted.set(lane, !owed.is_zero());
                thread_of(lane)
            }
        };
        self.spent += ran;
        Some(who)
    }

    fn arrived(&mut self, lane: u8) {
        (self.thread, self.fresh, self.switch) = (Some(lane), true, (NOBODY, Span::ZERO));
    }

    // ---- above every lane ----

    /// Until when no lane runs, if that is later than `now`.
    #[inline]
    pub fn held(&self, now: Instant) -> Option<Instant> {
        (self.held_until > now).then_some(self.held_until)
    }

    /// No lane runs for this much longer.
    pub fn hold(&mut self, now: Instant, who: CpuUser, span: Span) {
        if !span.is_zero() {
            self.held_until = self.held_until.max(now).saturating_add(span);
            self.spending = Spending::Above(who);
        }
    }

    /// The release thread has enqueued `released` jobs, in an expiry of its timer or not.
    pub fn released(&mut self, now: Instant, expired: bool, released: u32) {
        let expiry = if expired { self.costs.timer } else { Span::ZERO };
        self.hold(now, CpuUser::Release, sum(expiry, times(self.costs.enqueue, released)));
    }

    /// The watchdog checks, if it is due.
    pub fn watchdog(&mut self, now: Instant) {
        if self.watchdog <= now {
            let missed = now.since(self.watchdog).as_nanos() / WATCHDOG_PERIOD.as_nanos();
            self.watchdog += times(WATCHDOG_PERIOD, missed + 1);
            self.hold(now, CpuUser::Watchdog, self.costs.watchdog);
        }
    }

    /// The next check by the watchdog.
    pub fn next(&self) -> Instant {
        self.watchdog
    }

    // ---- at the lanes' priorities ----

    /// Lanes with costs to pay before they decide again.
    #[inline]
    pub fn indebted(&self) -> LaneMask {
        self.indebted
    }

    /// The spending of `lane` from `now` on before it can decide; `None` if there is none. To be called when it has the
    /// CPU.
    pub fn before_lane(&mut self, lane: u8) -> Option<Span> {
        if let Some(left) = self.come_to(lane) {
            return Some(left);
        }
        let owed = self.lanes.get(usize::from(lane)).copied().unwrap_or_default();
        self.spending = if owed.is_zero() { Spending::Nothing } else { Spending::Lane(lane) };
        (!owed.is_zero()).then_some(owed)
    }

    /// The spending before the body of a started job, or its end, can continue.
    pub fn before_job(&mut self, slot: Slot, lane: u8) -> Option<Span> {
        if let Some(left) = self.come_to(lane) {
            return Some(left);
        }
        let owed = self.owed(slot);
        self.spending = if owed.is_zero() { Spending::Nothing } else { Spending::Job(slot, lane) };
        self.fresh = false;
        (!owed.is_zero()).then_some(owed)
    }

    fn come_to(&mut self, lane: u8) -> Option<Span> {
        if self.thread == Some(lane) {
            self.switch = (NOBODY, Span::ZERO);
            return None;
        }
        if self.switch.0 != lane {
            // One that was begun for another is lost. The first thread of all needs no switch.
            self.switch = (lane, if self.thread.is_none() { Span::ZERO } else { self.costs.switch });
        }
        if self.switch.1.is_zero() {
            self.arrived(lane);
            return None;
        }
        self.spending = Spending::Switch(lane);
        Some(self.switch.1)
    }

    /// The CPU idles.
    pub fn idle(&mut self) {
        self.spending = Spending::Nothing;
    }

    /// Within a lane the CPU switches to the thread of another job, unless it has just switched to the lane.
    pub fn another_thread(&mut self) {
        if !self.fresh {
            self.thread = Some(NOBODY);
        }
    }

    /// A lane has dequeued `taken` jobs and decided for `asked` whether they can still finish.
    pub fn took(&mut self, lane: u8, running: Option<Slot>, taken: u32, asked: u32) {
        let cost = sum(times(self.costs.dequeue, taken), times(self.costs.cancel, asked));
        match running {
            Some(slot) => self.owe(slot, cost),
            None if cost.is_zero() => {}
            None => {
                let owed = &mut self.lanes[usize::from(lane)];
                *owed = sum(*owed, cost);
                self.indebted.insert(lane);
            }
        }
    }

    /// The body of a job has ended, and triggers this many jobs here.
    pub fn triggers(&mut self, slot: Slot, jobs: u32) {
        self.owe(slot, times(self.costs.enqueue, jobs));
    }

    fn owe(&mut self, slot: Slot, cost: Span) {
        let place = slot.0 as usize;
        if place >= self.jobs.len() {
            self.jobs.resize(place + 1, Span::ZERO);
        }
        self.jobs[place] = sum(self.jobs[place], cost);
    }

    /// The outstanding costs of a job.
    #[inline]
    pub fn owed(&self, slot: Slot) -> Span {
        self.jobs.get(slot.0 as usize).copied().unwrap_or_default()
    }

    /// A job has ended, paid or not.
    pub fn forget(&mut self, slot: Slot) {
        if let Some(owed) = self.jobs.get_mut(slot.0 as usize) {
            *owed = Span::ZERO;
        }
        self.spending = Spending::Nothing;
    }

    /// The job that has just paid its costs.
    pub fn paid(&self) -> Option<Slot> {
        match self.spending {
            Spending::Job(slot, _) if self.owed(slot).is_zero() => Some(slot),
            _ => None,
        }
    }
}

fn sum(one: Span, other: Span) -> Span {
    one.checked_add(other).unwrap_or(Span::from_nanos(u64::MAX))
}

fn times(cost: Span, count: impl Into<u64>) -> Span {
    cost.checked_mul(count.into()).unwrap_or(Span::from_nanos(u64::MAX))
}

fn thread_of(lane: u8) -> CpuUser {
    if lane == BACKGROUND { CpuUser::Below } else { CpuUser::Lane(lane) }
}
