//! Periodic records of the CPU time of a processor's threads and of the hypervisor. They show the use of time if
//! switches are not visible.

use hyoshi_model::{Instant, Span};
use hyoshi_os::{StealReader, ThreadHandle};
use hyoshi_trace::{CpuEvent, CpuUser};

use crate::cpu_watch::PendingCpuEvents;

/// The time between two readings of all clocks. Each thread costs 0.3 us.
const EVERY: Span = Span::from_millis(500);

/// The clocks of one processor.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    groups: Vec<MeteredThreads>,
    steal: Option<StealReader>,
    stolen: Option<Span>,
    last: Instant,
}

#[derive(Debug)]
struct MeteredThreads {
    who: CpuUser,
    threads: Vec<ThreadHandle>,
    reported: Span,
}

impl Meters {
    pub fn new(steal: Option<StealReader>) -> Self {
        Meters { steal, ..Meters::default() }
    }

    /// Adds a thread of `who`.
    pub fn add(&mut self, who: CpuUser, thread: ThreadHandle) {
        match self.groups.iter_mut().find(|group| group.who == who) {
            Some(group) => group.threads.push(thread),
            None => self.groups.push(MeteredThreads { who, threads: vec![thread], reported: Span::ZERO }),
        }
    }

    /// The run begins: earlier use does not count.
    pub fn begin(&mut self) {
        self.groups.iter_mut().for_each(|group| group.reported = group.used());
        self.stolen = self.steal.as_mut().and_then(StealReader::stolen);
    }

    /// Records the use, if it is due.
    pub fn poll(&mut self, now: Instant, pending: &mut PendingCpuEvents) {
        if now.since(self.last) >= EVERY {
            self.record(now, pending);
        }
    }

    /// Records the use since the last record.
    pub fn record(&mut self, now: Instant, pending: &mut PendingCpuEvents) {
        self.last = now;
        for group in &mut self.groups {
            let used = group.used();
            let span = used.saturating_sub(group.reported);
            if !span.is_zero() {
                group.reported = used;
                pending.insert(now, CpuEvent::Used { who: group.who, span });
            }
        }
        if let Some((before, stolen)) = self.stolen.zip(self.steal.as_mut().and_then(StealReader::stolen)) {
            let span = stolen.saturating_sub(before);
            if !span.is_zero() {
                self.stolen = Some(stolen);
                pending.insert(now, CpuEvent::Stolen { span });
            }
        }
    }
}

impl MeteredThreads {
    fn used(&self) -> Span {
        self.threads.iter().map(ThreadHandle::used).sum()
    }
}
