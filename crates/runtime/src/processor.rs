//! One processor at run time: the crew behind its lock, and the threads' ways to it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hyoshi_model::{Instant, ProcessorId};
use hyoshi_os::{Clock, PiMutex, ThreadHandle, Wake};

use crate::common::{Common, Order, Signs};
use crate::crew::Crew;
use crate::ended::{EndedBy, panic_text};
use crate::posts::Posts;
use crate::requests::Requests;

/// What the threads of one processor share.
#[derive(Debug)]
pub(crate) struct Processor {
    pub id: ProcessorId,
    pub common: Arc<Common>,
    pub crew: PiMutex<Crew<ThreadHandle>>,
    /// By thread.
    pub signs: Vec<Arc<Signs>>,
    pub background: Arc<Wake>,
    /// The source of requests, if any.
    pub requests: Arc<OnceLock<Requests>>,
}

impl Processor {
    pub fn posts(&self) -> Posts {
        Posts::new(self.common.clone(), self.signs.clone(), self.background.clone(), self.requests.clone())
    }

    /// A section: `act` has the crew and the time, which is read under the lock. What it decided about threads'
    /// priorities is done when this returns, outside the lock.
    ///
    /// # Panics
    ///
    /// If `act` does, after it ends the run; no thread uses the crew again.
    #[inline]
    pub fn section<R>(&self, act: impl FnOnce(&mut Crew<ThreadHandle>, Instant) -> R) -> R {
        let mut crew = self.crew.lock();
        let now = self.common.clock().now();
        let result = catch_unwind(AssertUnwindSafe(|| act(&mut crew, now)));
        let changed = crew.has_changed();
        match result {
            Ok(result) => {
                drop(crew);
                if changed {
                    self.ask_the_kernel();
                }
                result
            }
            Err(panic) => {
                crew.break_off();
                drop(crew);
                self.broke(panic)
            }
        }
    }

    /// Changes threads' priorities as sections decided, outside the lock.
    #[cold]
    pub fn ask_the_kernel(&self) {
        loop {
            // In a statement of its own, or the lock would be held for as long as the kernel takes.
            let changed = self.crew.lock().take_changed();
            let Some(seat) = changed else { return };
            if !seat.settle() {
                self.common.refused_later.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The run ends with an error: its dispatcher cannot go on.
    #[cold]
    fn broke(&self, panic: Box<dyn Any + Send>) -> ! {
        let processor = self.common.system.processor(self.id).name.clone();
        self.common.end(EndedBy::Broken { processor, message: panic_text(&*panic) });
        self.common.releases.iter().for_each(|release| release.wake.post());
        self.background.post();
        self.poke_reader();
        resume_unwind(panic)
    }

    /// The thread that waits for requests checks whether it was posted.
    pub fn poke_reader(&self) {
        if let Some(requests) = self.requests.get() {
            requests.poke();
        }
    }

    /// True once the job of a thread is to end where it is.
    #[inline]
    pub fn must_end(&self, me: u16) -> bool {
        self.signs[usize::from(me)].ordered() == Order::Stop || self.common.stopping.load(Ordering::Relaxed)
    }
}
