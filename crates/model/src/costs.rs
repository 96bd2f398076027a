//! The costs of the middleware itself: the CPU time that a processor uses for an operation outside its body.

use crate::time::Span;

/// The period of the runtime's watchdog, which checks each processor above every other thread.
pub const WATCHDOG_PERIOD: Span = Span::from_millis(50);

/// The costs of scheduling on one processor, in CPU time. All zero: no overhead.
///
/// `check` charges them as worst cases, `sim` spends them, and `hyoshi calibrate` measures them. Kokyu's paper calls
/// them infrastructure overhead and names them as the cause of isolated misses (section V-B).
///
/// ```text
///   timer expires                      a lane gets the CPU
///   ├─ timer ─┬─ enqueue × jobs due ─┬─ switch ─┬─ dequeue ─┬─ cancel ─┬─ the body ─┬─ enqueue × successors ─┬─ switch
///   └──── above every lane ──────────┘          └────────── at the lane's priority ─────────────────────────┘
/// ```
///
/// Work above every lane is not interrupted. The releases and the watchdog checks that fall due meanwhile are handled
/// after it, all releases in one more expiry. A lane decides when it has the CPU. A job holds resources only in its
/// body. A job completes, and its successors are released, when its enqueues are paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Costs {
    /// One expiry of the release timer: interrupt, wake-up of the release thread, its return and the next timer. It
    /// occurs once for each instant at which the release thread releases anything (dropped or not). Above every lane.
    pub timer: Span,
    /// A job enters its lane's queue. This is above every lane for releases by a timer or by another processor. (A
    /// timer releases what a guard or an offset delayed; releases at an idle point pay this without `timer`.) Otherwise
    /// it is part of the triggering job. That job pays for its next leg, or for each operation of its own processor
    /// that it triggers, released at once or not.
    pub enqueue: Span,
    /// A lane dequeues its next job. The cost is paid before the job, at its priority, once a job (the return to
    /// a preempted job is only a switch). A job that is then cancelled pays this and `cancel` before the next job of
    /// its lane.
    pub dequeue: Span,
    /// The decision whether a job can still finish in time, whatever the result. Only for jobs that can be cancelled:
    /// non-critical ones of a processor that cancels.
    pub cancel: Span,
    /// The CPU switches from one lane's thread to another's (in a fully preemptive lane, from one job's to another's;
    /// also to and from demoted jobs), at the priority of the new thread. An idle CPU keeps its thread, which continues
    /// without a switch. A switch that a third lane interrupts starts again. So at most two are charged to a job: one
    /// to it, one back from it.
    pub switch: Span,
    /// One check by the watchdog, each [`WATCHDOG_PERIOD`]. Above everything.
    pub watchdog: Span,
}

impl Costs {
    /// No costs.
    pub const NONE: Costs = Costs {
        timer: Span::ZERO,
        enqueue: Span::ZERO,
        dequeue: Span::ZERO,
        cancel: Span::ZERO,
        switch: Span::ZERO,
        watchdog: Span::ZERO,
    };

    /// Each cost by its name in files.
    pub const fn named(&self) -> [(&'static str, Span); 6] {
        [
            ("timer", self.timer),
            ("enqueue", self.enqueue),
            ("dequeue", self.dequeue),
            ("cancel", self.cancel),
            ("switch", self.switch),
            ("watchdog", self.watchdog),
        ]
    }

    /// True if all costs are zero.
    pub fn is_none(&self) -> bool {
        *self == Costs::NONE
    }
}
