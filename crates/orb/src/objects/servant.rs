//! Servants of any interface, and the life of an active object.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hyoshi_os::{PiMutex, Wake};
use hyoshi_wire::{Decode, Encode, SystemException, SystemKind};

use super::gate::{Gate, Passage};
use crate::call::Call;
use crate::rt::AdapterRt;
use crate::{minor, promise};

thread_local! {
    /// The index of the operation that this thread found last, perhaps of another interface.
    static LATEST: Cell<usize> = const { Cell::new(0) };
}

/// An object's implementation, such as an `Arc<dyn Tracker>`. Its interface is known at run time.
#[derive(Clone)]
pub struct Servant {
    facts: &'static Facts,
    skeleton: Arc<dyn Skeleton>,
}

/// The constants of an interface.
pub(crate) struct Facts {
    pub(crate) id: &'static str,
    pub(crate) bases: &'static [&'static str],
    pub(crate) operations: &'static [&'static str],
    pub(crate) oneways: &'static [&'static str],
}

/// An `Arc<dyn Tracker>` without its type.
pub(crate) trait Skeleton: Send + Sync {
    fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException>;
    fn cast(&self, wanted: TypeId) -> Option<Box<dyn Any>>;
}

impl Servant {
    pub(crate) fn of(facts: &'static Facts, skeleton: Arc<dyn Skeleton>) -> Self {
        Servant { facts, skeleton }
    }

    /// The repository id of its interface.
    pub fn interface(&self) -> &'static str {
        self.facts.id
    }

    /// True if it has this interface, itself or inherited.
    pub fn is_a(&self, id: &str) -> bool {
        id == self.facts.id || id == "IDL:omg.org/CORBA/Object:1.0" || self.facts.bases.contains(&id)
    }

    /// The index of an operation among those of its interface.
    #[inline]
    pub(crate) fn operation(&self, name: &str) -> Option<usize> {
        let latest = LATEST.get();
        if self.facts.operations.get(latest) == Some(&name) {
            return Some(latest);
        }
        self.facts.operations.binary_search(&name).ok().inspect(|found| LATEST.set(*found))
    }

    pub(crate) fn is_oneway(&self, name: &str) -> bool {
        self.facts.oneways.contains(&name)
    }

    #[inline]
    pub(crate) fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
        self.skeleton.dispatch(operation, call)
    }

    /// The servant for a stub of `T`, if it has that interface.
    pub(crate) fn cast<T: ?Sized + 'static>(&self) -> Option<Arc<T>> {
        self.skeleton.cast(TypeId::of::<Arc<T>>())?.downcast::<Arc<T>>().ok().map(|servant| *servant)
    }
}

impl fmt::Debug for Servant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Servant").field(&self.interface()).finish()
    }
}

/// Carries out an operation that every object has (CORBA 3.3 part 1, 8.3; on the wire part 2, 9.4.2); `None` if it is another.
#[cold]
pub(crate) fn special(servant: &Servant, call: &mut Call<'_>) -> Option<Result<(), SystemException>> {
    Some(match call.operation() {
        "_is_a" => Cow::<str>::decode(&mut call.arguments())
            .map_err(Into::into)
            .and_then(|id| call.reply::<_, SystemException>(Ok(servant.is_a(&id)), |yes, to| yes.encode(to))),
        // It was found, so it exists. The second name is that of CORBA 2.0.
        "_non_existent" | "_not_existent" => call.reply::<_, SystemException>(Ok(false), |no, to| no.encode(to)),
        "_repository_id" => call.reply::<_, SystemException>(Ok(servant.interface()), |id, to| id.encode(to)),
        "_interface" => Err(SystemKind::IntfRepos.not_done(minor::NO_REPOSITORY)),
        // Nil: the object has no component.
        "_component" => call.reply::<_, SystemException>(Ok(()), |(), to| {
            "".encode(to)?;
            to.length(0)
        }),
        _ => return None,
    })
}

/// An active object: its servant, and how many calls run.
///
/// ```text
///          enter, leave                  close                         the last leaves
///   Open ◄─────────────► Open, n run ───────────► Closed, n run ─────────────────► Closed, quiet
///                                                     (enter is refused)
/// ```
pub(crate) struct ActiveObject {
    /// [`CLOSED`], and the number of calls that run.
    life: AtomicU64,
    quiet: Wake,
    /// Runs after the last call.
    last: PiMutex<Option<Last>>,
    pub(crate) servant: Servant,
    /// The binding of its requests to an order.
    pub(super) binding: Option<u32>,
    /// The policies of its adapter.
    pub(crate) rt: Option<Arc<AdapterRt>>,
    /// That of its adapter.
    gate: Arc<Gate>,
}

type Last = Box<dyn FnOnce() + Send>;

const CLOSED: u64 = 1 << 63;

impl ActiveObject {
    pub(crate) fn new(
        servant: Servant,
        binding: Option<u32>,
        rt: Option<Arc<AdapterRt>>,
        gate: Arc<Gate>,
    ) -> Arc<ActiveObject> {
        Arc::new(ActiveObject {
            life: AtomicU64::new(0),
            quiet: Wake::new(),
            last: PiMutex::new(None),
            servant,
            binding,
            rt,
            gate,
        })
    }

    /// Counts a call in, if the adapter lets requests pass now and the object was not deactivated.
    #[inline]
    pub(crate) fn enter_if_passing(&self) -> bool {
        self.gate.passage() == Passage::Active && self.enter()
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
        // By each call: a thread that deactivates the object within a call waits for all calls but its own.
        self.quiet.post();
        if before & !CLOSED == 1
            && let Some(last) = self.last.lock().take()
        {
            // Another panic may unwind the stack just now. The panic hook has reported this one.
            let _ = catch_unwind(AssertUnwindSafe(last));
        }
    }

    /// Runs `last` after the last call of a closed object: now, or on the thread of that call.
    pub(crate) fn when_quiet(&self, last: Last) {
        *self.last.lock() = Some(last);
        // A call that ended before `last` was visible has been counted out by now.
        if self.life.load(Ordering::Acquire) & !CLOSED == 0
            && let Some(last) = self.last.lock().take()
        {
            last();
        }
    }

    /// Lets no further call in. False if it was closed already.
    pub(crate) fn close(&self) -> bool {
        self.life.fetch_or(CLOSED, Ordering::AcqRel) & CLOSED == 0
    }

    /// Waits until at most `own` calls run: those of the calling thread. False if more run at `until`.
    pub(crate) fn wait_until_quiet(&self, own: u64, until: Option<Instant>) -> bool {
        while self.life.load(Ordering::Acquire) & !CLOSED > own {
            if !promise::wait(&self.quiet, until) {
                return false;
            }
        }
        true
    }
}

/// A running call, counted until it is dropped.
pub(crate) struct Entered(Arc<ActiveObject>);

impl Entered {
    #[inline]
    pub(crate) fn new(slot: Arc<ActiveObject>) -> Option<Entered> {
        // `then`, not `then_some`: an unused one would count a call out when dropped, and open a closed object.
        slot.enter().then(|| Entered(slot))
    }

    /// If the adapter lets requests pass now.
    #[inline]
    pub(crate) fn if_passing(slot: Arc<ActiveObject>) -> Option<Entered> {
        slot.enter_if_passing().then(|| Entered(slot))
    }

    #[inline]
    pub(crate) fn object(&self) -> &Arc<ActiveObject> {
        &self.0
    }

    #[inline]
    pub(crate) fn servant(&self) -> &Servant {
        &self.0.servant
    }

    #[inline]
    pub(crate) fn rt(&self) -> Option<&Arc<AdapterRt>> {
        self.0.rt.as_ref()
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

    struct Nothing;

    impl Skeleton for Nothing {
        fn dispatch(&self, _: usize, _: &mut Call<'_>) -> Result<(), SystemException> {
            unreachable!("it has no operations")
        }

        fn cast(&self, _: TypeId) -> Option<Box<dyn Any>> {
            None
        }
    }

    #[test]
    fn a_refused_call_leaves_a_closed_object_closed() {
        let servant = Servant::of(&Facts { id: "", bases: &[], operations: &[], oneways: &[] }, Arc::new(Nothing));
        let slot = ActiveObject::new(servant, None, None, Arc::new(Gate::new(0)));
        assert!(Entered::new(slot.clone()).is_some());
        assert!(slot.close());
        for _ in 0..3 {
            assert!(Entered::new(slot.clone()).is_none());
            assert!(Entered::if_passing(slot.clone()).is_none());
        }
        assert!(slot.wait_until_quiet(0, Some(Instant::now())));
    }

    #[test]
    fn a_thread_that_deactivates_within_a_call_waits_for_all_other_calls() {
        for _ in 0..200 {
            let servant = Servant::of(&Facts { id: "", bases: &[], operations: &[], oneways: &[] }, Arc::new(Nothing));
            let slot = ActiveObject::new(servant, None, None, Arc::new(Gate::new(0)));
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
