//! The run-time state of one processor: the crew behind its lock, and its sections.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hyoshi_model::{Instant, ProcessorId};
use hyoshi_os::{PiMutex, ThreadHandle, Wake};

use crate::common::{BodyOrder, CommonState, ThreadControl};
use crate::crew::Crew;
use crate::ended::{EndedBy, panic_text};
use crate::requests::Requests;
use crate::wakeups::PendingWakeups;

/// The shared state of one processor's threads.
#[derive(Debug)]
pub(crate) struct ProcessorState {
    pub id: ProcessorId,
    pub common: Arc<CommonState>,
    pub crew: PiMutex<Crew<ThreadHandle>>,
    /// By thread.
    pub control: Vec<Arc<ThreadControl>>,
    pub background: Arc<Wake>,
    /// The source of requests, if any.
    pub requests: Arc<OnceLock<Requests>>,
}

impl ProcessorState {
    pub fn wakeups(&self) -> PendingWakeups {
        PendingWakeups::new(self.common.clone(), self.control.clone(), self.background.clone(), self.requests.clone())
    }

    /// Runs a section: `act` gets the crew and the time, which is read under the lock. The changes of threads'
    /// priorities that it decided are applied before this returns, outside the lock.
    ///
    /// # Panics
    ///
    /// If `act` panics. The run then ends, and no thread uses the crew again.
    #[inline]
    pub fn section<R>(&self, act: impl FnOnce(&mut Crew<ThreadHandle>, Instant) -> R) -> R {
        let mut crew = self.crew.lock();
        let now = self.common.now();
        let result = catch_unwind(AssertUnwindSafe(|| act(&mut crew, now)));
        let changed = crew.has_changed();
        match result {
            Ok(result) => {
                drop(crew);
                if changed {
                    self.apply_policies();
                }
                result
            }
            Err(panic) => {
                crew.break_off();
                drop(crew);
                self.end_broken(panic)
            }
        }
    }

    /// Applies the changes of priorities that sections decided, outside the lock.
    #[cold]
    pub fn apply_policies(&self) {
        loop {
            // A separate statement, or the lock would be held during the kernel call.
            let changed = self.crew.lock().take_changed();
            let Some(policy_control) = changed else { return };
            if !policy_control.apply() {
                self.common.refused_later.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ends the run with an error: its dispatcher is broken.
    #[cold]
    fn end_broken(&self, panic: Box<dyn Any + Send>) -> ! {
        let processor = self.common.system.processor(self.id).name.clone();
        self.common.end(EndedBy::Broken { processor, message: panic_text(&*panic) });
        self.common.releases.iter().for_each(|release| release.wake.post());
        self.background.post();
        self.poke_reader();
        resume_unwind(panic)
    }

    /// Makes the thread that waits for requests check whether it was woken.
    pub fn poke_reader(&self) {
        if let Some(requests) = self.requests.get() {
            requests.poke();
        }
    }

    /// True if the job of a thread should end now.
    #[inline]
    pub fn must_end(&self, me: u16) -> bool {
        self.control[usize::from(me)].ordered() == BodyOrder::Stop || self.common.stopping.load(Ordering::Relaxed)
    }
}
