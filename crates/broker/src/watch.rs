//! Wake-ups of one task's threads, from the kernel to what finds its period.

use hyoshi_control::Finder;
use hyoshi_model::{Instant, Span};
use hyoshi_os::wakeups::{Seen, Wakeups, Woken};

use crate::members::Members;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    wakeups: Wakeups,
    /// When it is seen again which threads there are.
    next: Instant,
}

/// How often new threads are looked for, and how much each has computed.
const THREADS: Span = Span::from_millis(250);

impl Watch {
    pub fn seen(&self) -> Seen {
        self.wakeups.seen()
    }

    pub fn collect(&mut self, members: &mut Members, now: Instant, finder: &mut Finder) {
        if now >= self.next {
            self.next = now.saturating_add(THREADS);
            self.look_at_threads(members, finder);
        }
        self.wakeups.collect(now, &mut |thread, woken| hear(finder, thread, woken));
    }

    fn look_at_threads(&mut self, members: &mut Members, finder: &mut Finder) {
        members.look_at_threads();
        let threads: Vec<_> = members.threads().iter().map(|member| (member.process.number, member.tid)).collect();
        let mut consumed = Vec::new();
        if self.wakeups.watch(&threads, &mut |thread, woken| consumed.push((thread, woken))) {
            *finder = Finder::new(self.seen().shortest());
        }
        finder.keep(&self.wakeups.watched());
        consumed.into_iter().for_each(|(thread, woken)| hear(finder, thread, woken));
    }
}

fn hear(finder: &mut Finder, thread: u32, woken: Woken) {
    match woken {
        Woken::At(at) => finder.woke(thread, at),
        Woken::Ran(span) => finder.ran(thread, span),
        Woken::Lost => finder.lost(thread),
    }
}
