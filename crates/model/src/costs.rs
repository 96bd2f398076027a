//! What the middleware itself costs: the time that a CPU spends on an operation's behalf outside its body.

use crate::time::Span;

/// How often the runtime's watchdog looks at each processor, above everything else.
pub const WATCHDOG_PERIOD: Span = Span::from_millis(50);

/// What scheduling costs on one processor, in CPU time. All zero: overheads are left out.
///
/// `check` charges them as worst cases, `sim` spends them, `hyoshi calibrate` measures them.
/// Kokyu's paper calls them infrastructure overhead and puts isolated misses down to it
/// (section V-B).
///
/// ```text
///   timer expires                      a lane takes the CPU
///   ├─ timer ─┬─ enqueue × jobs due ─┬─ switch ─┬─ dequeue ─┬─ cancel ─┬─ the body ─┬─ enqueue × successors ─┬─ switch back
///   └──── above every lane ──────────┘          └────────── at the lane's priority ─────────────────────────┘
/// ```
///
/// What is spent above every lane is not interrupted; whatever falls due meanwhile (releases of
/// any number of instants, the watchdog) is seen when it is over, the releases in one more expiry. A
/// lane decides once the CPU has come to it. A job holds resources in its body only. It
/// completes, and what it triggers is released, when its enqueues are paid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Costs {
    /// One expiry of the release timer: interrupt, wake-up of the release thread, its return and
    /// the next timer; once for each instant at which the release thread releases anything (dropped or not).
    /// Above every lane.
    pub timer: Span,
    /// A job enters its lane's queue. Above every lane for what a timer or another processor
    /// releases (what a guard or an offset held is released by a timer; what an idle point
    /// releases pays this without `timer`). Else part of the job that triggers it, which pays for
    /// its next leg, or for each operation of its own processor that it triggers, whether or not
    /// that one is released at once.
    pub enqueue: Span,
    /// A lane takes its next job from the queue. Before the job, at its priority; once a job (the
    /// return to one that was preempted is a switch and no more). One that is then cancelled has
    /// this and `cancel` paid before the next of its lane.
    pub dequeue: Span,
    /// Whether a job can still finish in time is decided, whatever the answer; only for jobs that
    /// can be cancelled: non-critical ones of a processor that cancels.
    pub cancel: Span,
    /// The CPU goes from one lane's thread to another's (or, in a fully preemptive lane, from one
    /// job's to another's, and to and from what was demoted), at the priority of the one that it
    /// goes to. An idle CPU keeps the thread: it goes on without a switch. One that is interrupted by
    /// a third lane begins anew. So a job has two at most charged to it: one to it, one from it back.
    pub switch: Span,
    /// One look of the watchdog, each [`WATCHDOG_PERIOD`]. Above everything.
    pub watchdog: Span,
}

impl Costs {
    /// Nothing costs anything.
    pub const NONE: Costs = Costs {
        timer: Span::ZERO,
        enqueue: Span::ZERO,
        dequeue: Span::ZERO,
        cancel: Span::ZERO,
        switch: Span::ZERO,
        watchdog: Span::ZERO,
    };

    /// Each cost by the name that files use.
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

    /// True if overheads are left out.
    pub fn is_none(&self) -> bool {
        *self == Costs::NONE
    }
}
