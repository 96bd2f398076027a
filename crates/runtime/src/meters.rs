//! What a processor's threads have used, and what a hypervisor took, told now and then: what a
//! reader needs to say where the time went, where the kernel's switches cannot be seen.

use hyoshi_model::{Instant, Span};
use hyoshi_os::{StealReader, ThreadHandle};
use hyoshi_trace::{Seen, Who};

use crate::lookout::Pending;

/// Between two readings of all clocks: each thread's costs 0.3 us.
const EVERY: Span = Span::from_millis(500);

/// The clocks of one processor.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    groups: Vec<Group>,
    steal: Option<StealReader>,
    stolen: Option<Span>,
    last: Instant,
}

#[derive(Debug)]
struct Group {
    who: Who,
    threads: Vec<ThreadHandle>,
    told: Span,
}

impl Meters {
    pub fn new(steal: Option<StealReader>) -> Self {
        Meters { steal, ..Meters::default() }
    }

    /// A thread of `who` is to be told of.
    pub fn add(&mut self, who: Who, thread: ThreadHandle) {
        match self.groups.iter_mut().find(|group| group.who == who) {
            Some(group) => group.threads.push(thread),
            None => self.groups.push(Group { who, threads: vec![thread], told: Span::ZERO }),
        }
    }

    /// What was used until here is nobody's business: the run begins.
    pub fn begin(&mut self) {
        self.groups.iter_mut().for_each(|group| group.told = group.used());
        self.stolen = self.steal.as_mut().and_then(StealReader::stolen);
    }

    /// Tells, if it is time to.
    pub fn poll(&mut self, now: Instant, pending: &mut Pending) {
        if now.since(self.last) >= EVERY {
            self.tell(now, pending);
        }
    }

    /// Tells what was used since the last time.
    pub fn tell(&mut self, now: Instant, pending: &mut Pending) {
        self.last = now;
        for group in &mut self.groups {
            let used = group.used();
            let span = used.saturating_sub(group.told);
            if !span.is_zero() {
                group.told = used;
                pending.tell(now, Seen::Used { who: group.who, span });
            }
        }
        if let Some((before, stolen)) = self.stolen.zip(self.steal.as_mut().and_then(StealReader::stolen)) {
            let span = stolen.saturating_sub(before);
            if !span.is_zero() {
                self.stolen = Some(stolen);
                pending.tell(now, Seen::Stolen { span });
            }
        }
    }
}

impl Group {
    fn used(&self) -> Span {
        self.threads.iter().map(ThreadHandle::used).sum()
    }
}
