//! Servants, whatever interface they have, and the lives of the objects they incarnate.

use std::any::{Any, TypeId};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hyoshi_os::{PiMutex, Wake};
use hyoshi_wire::SystemException;

use crate::call::Call;
use crate::promise;

/// Something that carries out requests: an `Arc<dyn Tracker>`, its interface known only at run time.
#[derive(Clone)]
pub struct Servant(pub(crate) Arc<dyn Skeleton>);

impl Servant {
    /// The repository id of its interface.
    pub fn interface(&self) -> &'static str {
        self.0.id()
    }

    /// True if it has this interface, itself or inherited.
    pub fn is_a(&self, id: &str) -> bool {
        id == self.0.id() || id == "IDL:omg.org/CORBA/Object:1.0" || self.0.bases().contains(&id)
    }

    /// Where the operation of this name stands among those of its interface.
    #[inline]
    pub(crate) fn operation(&self, name: &str) -> Option<usize> {
        self.0.operations().binary_search(&name).ok()
    }

    pub(crate) fn is_oneway(&self, name: &str) -> bool {
        self.0.oneways().contains(&name)
    }

    #[inline]
    pub(crate) fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
        self.0.dispatch(operation, call)
    }
}

impl fmt::Debug for Servant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servant").field(&self.interface()).finish()
    }
}

/// An interface without its type.
pub(crate) trait Skeleton: Send + Sync {
    fn id(&self) -> &'static str;
    fn bases(&self) -> &'static [&'static str];
    fn operations(&self) -> &'static [&'static str];
    fn oneways(&self) -> &'static [&'static str];
    fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException>;
    fn cast(&self, wanted: TypeId) -> Option<Box<dyn Any>>;
}

/// An active object: its servant, and how many calls run.
///
/// ```text
///          enter, leave                  close                         the last leaves
///   Open ◄─────────────► Open, n run ───────────► Closed, n run ─────────────────► Closed, quiet
///                                                     (enter is refused)
/// ```
pub(crate) struct Slot {
    /// [`CLOSED`], and the number of calls that run.
    life: AtomicU64,
    quiet: Wake,
    /// What is to be done behind the last call.
    last: PiMutex<Option<Last>>,
    pub(crate) servant: Servant,
    /// What its requests are bound to an order with.
    pub(super) binding: Option<u32>,
}

/// Something that is done once.
type Last = Box<dyn FnOnce() + Send>;

const CLOSED: u64 = 1 << 63;

impl Slot {
    pub(crate) fn new(servant: Servant, binding: Option<u32>) -> Arc<Slot> {
        Arc::new(Slot { life: AtomicU64::new(0), quiet: Wake::new(), last: PiMutex::new(None), servant, binding })
    }

    /// Counts a call in, unless the object was deactivated.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        if self.life.fetch_add(1, Ordering::Acquire) & CLOSED == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Counts it out.
    #[inline]
    pub(crate) fn leave(&self) {
        let before = self.life.fetch_sub(1, Ordering::Release);
        if before & CLOSED != 0 {
            self.left(before);
        }
    }

    #[cold]
    fn left(&self, before: u64) {
        // Not only by the last one: who deactivates from within a call waits for all but its own.
        self.quiet.post();
        if before & !CLOSED == 1
            && let Some(last) = self.last.lock().take()
        {
            // Perhaps while another panic unwinds the stack. The panic hook has told of this one.
            let _ = catch_unwind(AssertUnwindSafe(last));
        }
    }

    /// Does something behind the last call of an object that is closed: at once, or by the thread of that call.
    pub(crate) fn when_quiet(&self, last: Last) {
        *self.last.lock() = Some(last);
        // Who left before this was to be seen has been counted out by now.
        if self.life.load(Ordering::Acquire) & !CLOSED == 0
            && let Some(last) = self.last.lock().take()
        {
            last();
        }
    }

    /// Lets no further call in. True for the one who did.
    pub(crate) fn close(&self) -> bool {
        self.life.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// Waits until at most `own` calls run: those of the thread that asks. False if they still do at `until`.
    pub(crate) fn wait_until_quiet(&self, own: u64, until: Option<Instant>) -> bool {
        while self.life.load(Ordering::Acquire) & !CLOSED > own {
            if !promise::wait(&self.quiet, until) {
                return false;
            }
        }
        true
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("life", &self.life).field("servant", &self.servant).finish_non_exhaustive()
    }
}

/// A call that is counted in.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Slot>);

impl Entered {
    #[inline]
    pub(crate) fn new(slot: Arc<Slot>) -> Option<Entered> {
        slot.enter().then_some(Entered(slot))
    }

    #[inline]
    pub(crate) fn servant(&self) -> &Servant {
        &self.0.servant
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    struct Thing;
    impl Object for Thing {}

    #[test]
    fn whoever_deactivates_from_within_a_call_hears_of_each_other_call_that_ends() {
        for _ in 0..200 {
            let slot = Slot::new(Servant::new::<dyn Object>(Arc::new(Thing)), None);
            (0..3).for_each(|_| assert!(slot.enter()));
            assert!(slot.close());
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| slot.wait_until_quiet(1, None));
                slot.leave();
                // A call that is refused counts for a moment too.
                assert!(!slot.enter());
                slot.leave();
                waiting.join().unwrap();
            });
        }
    }
}
