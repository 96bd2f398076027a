//! Delegates around the servants of a file's objects (`[delegate.NAME]` with `object`): they decide about each request
//! before it becomes a job, and measure it.
//!
//! ```text
//!   request ─► RequestDelegate::admit ─┬─ PassedRequest ─► job ─► ended: answered, failed
//!                                      └─ refused, thinned out: an exception; a oneway is dropped
//! ```
//!
//! The thread that reads requests decides under a lock with priority inheritance, which nothing holds for long. A request
//! allocates nothing: the interface's operations are known at the start, and all other names share one delegate.

use std::sync::Arc;

use hyoshi_model::{ALL_OPERATIONS, DeclaredBehaviour, DeclaredDelegate, DelegateTotals, Instant};
use hyoshi_orb::behaviour::{Behaviour, DelegateDecision, DelegateId, DelegateOutcome, Delegates, OperationDelegate};
use hyoshi_orb::{SystemException, SystemKind, minor};
use hyoshi_os::PiMutex;
use hyoshi_os::clock::monotonic;
use hyoshi_wire::ior::{Ior, ObjectUrl};

/// A delegate, with its position in the system.
#[derive(Debug)]
pub(crate) struct RequestDelegate {
    place: u16,
    declared: DeclaredDelegate,
    /// Where it redirects requests.
    redirect: Option<Arc<Ior>>,
    state: PiMutex<Delegates>,
}

/// The answer to a request that a delegate does not pass on.
#[derive(Debug)]
pub(crate) enum TurnedAway {
    /// An exception.
    Raise(SystemException),
    /// Its client shall call this object.
    Forward(Arc<Ior>),
}

/// A request that a delegate has passed on. Dropped without an outcome, it has failed.
#[derive(Debug)]
pub(crate) struct PassedRequest {
    delegate: Arc<RequestDelegate>,
    id: DelegateId,
    began: Instant,
    outcome: DelegateOutcome,
    /// Nobody waits for its reply: its latency is unknown.
    is_oneway: bool,
}

/// The behaviour of an operation that a region sets, or that of the file.
pub(crate) fn behaviour_of(
    declared: &DeclaredDelegate,
    operation: &str,
    set: Option<DeclaredBehaviour>,
) -> Option<Behaviour> {
    let of_file = || declared.behaviours.iter().find(|(one, _)| **one == *operation).map(|(_, one)| *one);
    set.or_else(of_file).map(|behaviour| Behaviour::of_file(behaviour, declared.redirect.as_deref()))
}

impl RequestDelegate {
    pub fn new(place: u16, declared: &DeclaredDelegate, operations: &[&str]) -> Self {
        let state = PiMutex::new(Delegates::of_interface(operations.iter().copied()));
        let redirect = declared.redirect.as_deref().and_then(|text| reference(text).ok()).map(Arc::new);
        let delegate = RequestDelegate { place, declared: declared.clone(), redirect, state };
        declared.behaviours.iter().for_each(|(operation, _)| delegate.set(operation, None));
        delegate
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.declared.name
    }

    /// Its position in the system.
    pub fn place(&self) -> u16 {
        self.place
    }

    /// Its object in the system.
    pub fn object(&self) -> Option<u16> {
        self.declared.object()
    }

    /// The counts of all operations.
    pub fn totals(&self) -> DelegateTotals {
        self.state.lock().totals()
    }

    /// What it has measured.
    pub fn measured(&self) -> Vec<OperationDelegate> {
        // Requests wait for one copy at a time.
        let count = self.state.lock().all().len();
        let copy = |place: usize| self.state.lock().all().get(place).map(|one| OperationDelegate::clone(one));
        (0..count).filter_map(copy).collect()
    }

    /// Sets a behaviour, or that of the file.
    pub fn set(&self, operation: &str, behaviour: Option<DeclaredBehaviour>) {
        let behaviour = behaviour_of(&self.declared, operation, behaviour);
        let mut state = self.state.lock();
        if operation == ALL_OPERATIONS {
            state.set_others(behaviour.unwrap_or_default());
        } else {
            state.set(operation, behaviour);
        }
    }

    /// Decides about a request that has just arrived.
    ///
    /// # Errors
    ///
    /// The answer to its client.
    pub fn admit(self: &Arc<Self>, operation: &str, is_oneway: bool) -> Result<PassedRequest, TurnedAway> {
        let (began, id, decision) = {
            let mut state = self.state.lock();
            // Under the lock: times of requests must not go back.
            let now = Instant::from_nanos(monotonic().as_nanos());
            let (id, decision) = state.request(now, operation, is_oneway);
            (now, id, decision)
        };
        let outcome = DelegateOutcome::Failed;
        match decision {
            DelegateDecision::Refuse(exception) => Err(TurnedAway::Raise(exception)),
            // No reply is sent.
            DelegateDecision::Drop => Err(TurnedAway::Raise(SystemKind::Transient.not_done(minor::DELEGATE))),
            // A oneway has no reply that could forward its client.
            DelegateDecision::Redirect if !is_oneway && let Some(ior) = &self.redirect => {
                Err(TurnedAway::Forward(ior.clone()))
            }
            _ => Ok(PassedRequest { delegate: self.clone(), id, began, outcome, is_oneway }),
        }
    }
}

/// The object of a reference: `IOR:` or `corbaloc:`.
///
/// # Errors
///
/// What is wrong with it.
pub(crate) fn reference(text: &str) -> Result<Ior, String> {
    let ior = match text.parse::<ObjectUrl>().map_err(|error| error.to_string())? {
        ObjectUrl::Ior(ior) => Some(ior),
        ObjectUrl::Corbaloc(corbaloc) => corbaloc.ior("").map_err(|error| error.to_string())?,
        ObjectUrl::Corbaname(_) => None,
    };
    ior.filter(|ior| !ior.is_nil()).ok_or_else(|| "no object in the reference".to_owned())
}

impl PassedRequest {
    /// Its job has ended.
    pub fn ended(mut self, outcome: DelegateOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for PassedRequest {
    fn drop(&mut self) {
        if !self.is_oneway {
            let mut state = self.delegate.state.lock();
            let now = Instant::from_nanos(monotonic().as_nanos());
            state.replied(self.id, self.began, now, self.outcome);
        }
    }
}
