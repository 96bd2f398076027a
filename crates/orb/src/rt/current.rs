//! The CORBA priority of the calling thread (`RTCORBA::Current`), and the kernel's priority that follows it.
//!
//! A thread of a lane has a home: the priority to which it returns after a request. Within a request both values
//! change without a system call if the kernel's is right already.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use hyoshi_os::scheduling::Scheduling;
use hyoshi_os::{PiMutex, Refused, ThreadPolicy, own_thread, set_own_policy};
use hyoshi_wire::{SystemException, SystemKind};

use super::{ClientPolicies, LinearMapping, Priority, PriorityMapping};
use crate::current::runs_ordered;
use crate::minor;
use crate::shared::used_orb;

thread_local! {
    static THREAD: Cell<ThreadRtState> = const { Cell::new(ThreadRtState { priority: None, policy: None, home: None }) };
    /// Whether the servant that runs has called [`set_priority`].
    static IS_CHANGED: Cell<bool> = const { Cell::new(false) };
    /// The states before the first call of each servant, the innermost last.
    static BEFORE: RefCell<Vec<ThreadRtState>> = const { RefCell::new(Vec::new()) };
    /// The kernel's scheduling of the thread before its first [`set_priority`].
    static FOUND: Cell<Option<Scheduling>> = const { Cell::new(None) };
    /// Of the thread's calls, instead of those of the ORB.
    static POLICIES: RefCell<Option<Arc<ClientPolicies>>> = const { RefCell::new(None) };
}

/// The mapping of the last ORB that was built with one, for threads that have used no ORB.
static LATEST: PiMutex<Option<Arc<dyn PriorityMapping>>> = PiMutex::new(None);

#[derive(Clone, Copy)]
struct ThreadRtState {
    priority: Option<Priority>,
    /// The kernel's policy, as far as it was set here.
    policy: Option<ThreadPolicy>,
    home: Option<Home>,
}

/// The priority of a lane's thread between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) priority: Option<Priority>,
    pub(crate) policy: ThreadPolicy,
}

/// The reason why a thread's priority was not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetPriorityError {
    /// The mapping has no native priority for it. The thread keeps its own.
    NotMapped(Priority),
    /// The kernel refuses the native priority. The thread's requests carry the CORBA priority nevertheless.
    Refused(Priority, Refused),
}

impl fmt::Display for SetPriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetPriorityError::NotMapped(priority) => {
                write!(f, "CORBA priority {priority}: the priority mapping has no native priority for it")
            }
            SetPriorityError::Refused(priority, refused) => {
                write!(f, "CORBA priority {priority}: {refused}; requests carry it nevertheless")
            }
        }
    }
}

impl std::error::Error for SetPriorityError {}

/// DATA_CONVERSION, or NO_PERMISSION if the kernel refuses.
impl From<SetPriorityError> for SystemException {
    fn from(error: SetPriorityError) -> Self {
        match error {
            SetPriorityError::NotMapped(_) => SystemKind::DataConversion.not_done(minor::RT_UNMAPPED),
            SetPriorityError::Refused(..) => SystemKind::NoPermission.not_done(minor::RT_PRIVILEGE),
        }
    }
}

/// The thread's CORBA priority: set with [`set_priority`], or that of the request that it serves. `None` if it has none.
#[inline]
pub fn priority() -> Option<Priority> {
    THREAD.get().priority
}

/// Sets the thread's CORBA priority, which its requests carry, and its kernel priority (SCHED_FIFO). Within a servant it
/// holds until the end of the request; if an [order](crate::Order) runs that, the kernel's priority remains.
///
/// The mapping is that of the ORB that this thread used last; before that, of the ORB that was last built with
/// [`priority_mapping`](crate::OrbBuilder::priority_mapping); else [`LinearMapping`].
///
/// # Errors
///
/// If the mapping has no native priority for it, or the kernel refuses that (without CAP_SYS_NICE or RLIMIT_RTPRIO).
pub fn set_priority(priority: Priority) -> Result<(), SetPriorityError> {
    let mapping = used_orb().map(|orb| orb.rt.mapping.clone()).or_else(|| LATEST.lock().clone());
    let native = mapping.map_or_else(|| LinearMapping::default().to_native(priority), |of| of.to_native(priority));
    let native = native.ok_or(SetPriorityError::NotMapped(priority))?;
    let ThreadRtState { policy, home, .. } = THREAD.get();
    if !IS_CHANGED.replace(true) {
        BEFORE.with_borrow_mut(|before| before.push(THREAD.get()));
    }
    // The program's order decides at which policy its threads run.
    if home.is_none() && runs_ordered() {
        THREAD.set(ThreadRtState { priority: Some(priority), ..THREAD.get() });
        return Ok(());
    }
    if policy.is_none() {
        FOUND.set(Scheduling::of(own_thread()).ok());
    }
    THREAD.set(ThreadRtState { priority: Some(priority), ..THREAD.get() });
    // Always by a call: another program may have changed it.
    set_own_policy(ThreadPolicy::Fifo(native)).map_err(|refused| SetPriorityError::Refused(priority, refused))?;
    THREAD.set(ThreadRtState { policy: Some(ThreadPolicy::Fifo(native)), ..THREAD.get() });
    Ok(())
}

/// The calls of this thread use these policies instead of those of the ORB, until the result is dropped
/// (`CORBA::PolicyCurrent`). Policies of a reference count before them. Drop several in reverse order.
///
/// ```
/// # use hyoshi_orb::rt::{ClientPolicies, current};
/// let _private = current::override_policies(&ClientPolicies { private_connection: true, ..Default::default() });
/// ```
pub fn override_policies(policies: &ClientPolicies) -> PolicyOverride {
    PolicyOverride { before: POLICIES.replace(Some(Arc::new(policies.clone()))), _of_thread: PhantomData }
}

/// Policies of the thread's calls, until it is dropped ([`override_policies`]).
#[must_use = "the policies end when it is dropped"]
#[derive(Debug)]
pub struct PolicyOverride {
    before: Option<Arc<ClientPolicies>>,
    _of_thread: PhantomData<*const ()>,
}

impl Drop for PolicyOverride {
    fn drop(&mut self) {
        POLICIES.set(self.before.take());
    }
}

/// The policies of the thread's calls, if it has some.
#[inline]
pub(crate) fn policies() -> Option<Arc<ClientPolicies>> {
    POLICIES.with_borrow(Clone::clone)
}

/// The mapping for threads that have used no ORB.
pub(crate) fn use_mapping(mapping: Arc<dyn PriorityMapping>) {
    *LATEST.lock() = Some(mapping);
}

/// The calling thread serves a lane from now on, at this policy, which it has. Returns its former home.
pub(crate) fn settle(home: Option<Home>) -> Option<Home> {
    let before = THREAD.get();
    if let Some(Home { priority, policy }) = home {
        THREAD.set(ThreadRtState { priority, policy: before.policy.or(Some(policy)), home });
    } else {
        THREAD.set(ThreadRtState { home, ..before });
    }
    before.home
}

/// A request on a thread that may not be a lane's. Dropping it restores the thread's priority, even if the servant called
/// [`set_priority`].
pub(crate) struct ServantScope {
    /// The same of the caller's request.
    outer: bool,
}

impl ServantScope {
    #[inline]
    pub(crate) fn enter() -> Self {
        ServantScope { outer: IS_CHANGED.replace(false) }
    }
}

impl Drop for ServantScope {
    #[inline]
    fn drop(&mut self) {
        if IS_CHANGED.replace(self.outer) {
            restore();
        }
    }
}

/// Undoes the servant's [`set_priority`].
#[cold]
fn restore() {
    let Some(before) = BEFORE.with_borrow_mut(Vec::pop) else { return };
    let known = THREAD.get().policy;
    match before.policy {
        Some(policy) => drop(put(known, policy)),
        None if known.is_some() => {
            let _ = FOUND.take().map(|found| found.restore(own_thread()));
        }
        None => {}
    }
    THREAD.set(before);
}

/// A request that the thread runs at a priority, until it is dropped. The kernel's priority holds longer, for the reply:
/// until [`go_home`].
pub(crate) struct AtPriority(Option<Priority>);

impl Drop for AtPriority {
    fn drop(&mut self) {
        THREAD.set(ThreadRtState { priority: self.0, ..THREAD.get() });
        if IS_CHANGED.get() {
            BEFORE.with_borrow_mut(|before| before.last_mut().into_iter().for_each(|last| last.priority = self.0));
        }
    }
}

/// The thread runs a request. A thread that is not a lane's keeps its kernel priority: its owner schedules it.
pub(crate) fn run_at(priority: Priority, native: u8) -> AtPriority {
    let before = THREAD.get();
    let policy = match before.home {
        Some(_) => put(before.policy, ThreadPolicy::Fifo(native)),
        None => before.policy,
    };
    THREAD.set(ThreadRtState { priority: Some(priority), policy, ..before });
    AtPriority(before.priority)
}

/// The request's reply was sent: the thread of a lane returns to its priority.
#[inline]
pub(crate) fn go_home() {
    let ThreadRtState { priority, policy, home } = THREAD.get();
    if let Some(home) = home
        && (policy != Some(home.policy) || priority != home.priority)
    {
        let policy = put(policy, home.policy);
        THREAD.set(ThreadRtState { priority: home.priority, policy, home: Some(home) });
    }
}

/// Changes the kernel's policy if it is another. Without the privilege the thread keeps the one it has.
fn put(known: Option<ThreadPolicy>, wanted: ThreadPolicy) -> Option<ThreadPolicy> {
    if known != Some(wanted) {
        let _ = set_own_policy(wanted);
    }
    Some(wanted)
}

#[cfg(test)]
mod tests {
    use hyoshi_os::scheduling::SchedulingClass;

    use super::*;

    #[test]
    fn a_priority_that_is_not_mapped_leaves_the_threads() {
        let error = SetPriorityError::NotMapped(Priority::MAX);
        assert_eq!(error.to_string(), "CORBA priority 32767: the priority mapping has no native priority for it");
        assert_eq!(SystemException::from(error).kind, SystemKind::DataConversion);
        assert_eq!(priority(), None);
    }

    #[test]
    fn a_request_has_its_priority_and_the_thread_its_own_again() {
        let run = || {
            assert_eq!(settle(None), None);
            let outer = run_at(Priority::new(5).unwrap(), 40);
            {
                let _inner = run_at(Priority::new(9).unwrap(), 41);
                assert_eq!(priority(), Priority::new(9));
            }
            assert_eq!(priority(), Priority::new(5));
            drop(outer);
            assert_eq!(priority(), None);
        };
        std::thread::spawn(run).join().unwrap();
    }

    #[test]
    fn the_kernel_is_called_only_if_the_priority_differs() {
        let run = || {
            let policy = ThreadPolicy::Fifo(45);
            if set_own_policy(policy).is_err() {
                let required = std::env::var_os("HYOSHI_PRIVILEGES").is_some_and(|value| value == "required");
                assert!(!required, "real-time priorities are refused");
                return println!("skipped: needs real-time priorities");
            }
            let class = || Scheduling::of(own_thread()).unwrap().class;
            settle(Some(Home { priority: Priority::new(5), policy }));
            // Bypasses the cached policy, to show whether the kernel is called.
            set_own_policy(ThreadPolicy::Fifo(50)).unwrap();
            drop(run_at(Priority::new(5).unwrap(), 45));
            go_home();
            assert_eq!(class(), SchedulingClass::Fifo(50));
            let higher = run_at(Priority::new(9).unwrap(), 49);
            assert_eq!(class(), SchedulingClass::Fifo(49));
            drop(higher);
            assert_eq!((class(), priority()), (SchedulingClass::Fifo(49), Priority::new(5)), "for the reply");
            go_home();
            assert_eq!(class(), SchedulingClass::Fifo(45));
        };
        std::thread::spawn(run).join().unwrap();
    }
}
