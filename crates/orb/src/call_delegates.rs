//! Delegates around the calls of a stub, or of a servant without a system file.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyoshi_model::{ALL_OPERATIONS, DelegateTotals, Instant};
use hyoshi_os::PiMutex;
use hyoshi_os::clock::monotonic;
use hyoshi_wire::{SystemException, SystemKind};

use crate::behaviour::{Behaviour, DelegateDecision, DelegateOutcome, Delegates, OperationDelegate};
use crate::interface::{Around, Interface, Invoked};
use crate::raises::Raises;
use crate::{minor, waits};

/// Behaviours and measurements of all operations of an interface, for a generated delegate around a stub or servant.
/// Clones share them, so a callback of a contract can set behaviours:
///
/// ```ignore
/// let delegates = CallDelegates::of::<dyn Tracker>();
/// let tracker = TrackerDelegate::new(stub, delegates.clone());
/// delegates.set("locate", "thin:10Hz".parse()?)?;
/// tracker.locate(7)?;                                       // at most once in 100 ms, otherwise TRANSIENT
/// ```
///
/// A call that passes adds two short sections under a lock with priority inheritance, and allocates nothing.
#[derive(Clone, Debug)]
pub struct CallDelegates(Arc<PiMutex<Delegates>>);

/// Why a behaviour was not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallDelegateError {
    /// The interface has no such operation.
    NoOperation {
        /// The operation.
        operation: String,
    },
    /// It redirects, marks or caches, which only proxies do.
    OnlyProxies {
        /// The behaviour.
        behaviour: Behaviour,
    },
}

impl fmt::Display for CallDelegateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallDelegateError::NoOperation { operation } => {
                write!(
                    f,
                    "the interface has no operation `{operation}`; use its name in IDL, or `*` for all other operations"
                )
            }
            CallDelegateError::OnlyProxies { behaviour } => {
                write!(f, "a delegate of calls cannot have the behaviour `{behaviour}`; use `hyoshi proxy`")
            }
        }
    }
}

impl std::error::Error for CallDelegateError {}

impl CallDelegates {
    /// Of an interface: all calls pass.
    pub fn of<T: Interface + ?Sized>() -> CallDelegates {
        CallDelegates(Arc::new(PiMutex::new(Delegates::of_interface(T::OPERATIONS.iter().copied()))))
    }

    /// Sets the behaviour of an operation from its next call on; `*` is for all operations without a behaviour of their
    /// own.
    ///
    /// # Errors
    ///
    /// If the interface has no such operation, or the behaviour is to redirect, mark or cache.
    pub fn set(&self, operation: &str, behaviour: Behaviour) -> Result<(), CallDelegateError> {
        if matches!(behaviour, Behaviour::Redirect(_) | Behaviour::Mark(_) | Behaviour::Cached(_)) {
            return Err(CallDelegateError::OnlyProxies { behaviour });
        }
        let mut delegates = self.0.lock();
        if operation == ALL_OPERATIONS {
            delegates.set_others(behaviour);
        } else if !delegates.set(operation, Some(behaviour)) {
            return Err(CallDelegateError::NoOperation { operation: operation.to_owned() });
        }
        Ok(())
    }

    /// Removes the own behaviour of an operation: that of `*` applies.
    pub fn clear(&self, operation: &str) {
        self.0.lock().set(operation, None);
    }

    /// The counts of all operations.
    pub fn totals(&self) -> DelegateTotals {
        self.0.lock().totals()
    }

    /// What each operation has measured.
    pub fn measured(&self) -> Vec<OperationDelegate> {
        // Calls wait for one copy at a time.
        let count = self.0.lock().all().len();
        (0..count).filter_map(|place| self.0.lock().all().get(place).map(|one| (*one).clone())).collect()
    }
}

fn now() -> Instant {
    Instant::from_nanos(monotonic().as_nanos())
}

impl Around for CallDelegates {
    fn around<R>(&self, _: &Invoked<'_>, run: impl FnOnce() -> R) -> R {
        run()
    }

    /// A call that does not pass raises its exception, also if it is a oneway. A delayed call waits first: a job releases
    /// its lane meanwhile.
    #[inline]
    fn invoke<R, E: Raises>(&self, call: &Invoked<'_>, run: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        let began = now();
        let (id, decision) = self.0.lock().request(began, call.operation.name, call.operation.oneway);
        match decision {
            DelegateDecision::Refuse(exception) => return Err(refused(exception)),
            DelegateDecision::Drop => return Err(refused(SystemKind::Transient.not_done(minor::DELEGATE))),
            DelegateDecision::Delay(span) => {
                waits::wait(|| std::thread::sleep(Duration::from_nanos(span.as_nanos())));
            }
            _ => {}
        }
        let result = run();
        let outcome = match &result {
            Err(raised) if raised.system().is_some() => DelegateOutcome::Failed,
            _ => DelegateOutcome::Answered,
        };
        if !call.operation.oneway {
            self.0.lock().replied(id, began, now(), outcome);
        }
        result
    }
}

#[cold]
fn refused<E: Raises>(exception: SystemException) -> E {
    exception.into()
}
