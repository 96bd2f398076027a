//! References to objects, local or remote.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{Arc, Weak};

use hyoshi_model::Span;
use hyoshi_wire::giop::Response;
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{Decode, DecodeError, Decoder, Encode, EncodeError, Encoder, SystemException, SystemKind};

use super::{Interface, StubOperation};
use crate::current;
use crate::invocation::{CallerPriority, Invocation, Pending, RemoteObject, connect, invoke};
use crate::key::ObjectKey;
use crate::limits::{SyncScope, Timeouts};
use crate::objects::ActiveObject;
use crate::outcome::CallOutcome;
use crate::raises::Raises;
use crate::rt::current::ServantScope;
use crate::rt::{self, AdapterRt, ClientPolicies, EffectivePolicies};
use crate::shared::{Collocation, Shared, used_orb};

/// A reference to an object with the interface `T`. Stubs wrap one. Cloning is cheap.
pub struct Reference<T: ?Sized> {
    object: Arc<RemoteObject>,
    /// The object, if it is active in this process.
    local: Option<Arc<Local<T>>>,
    timeouts: Timeouts,
    scope: SyncScope,
    policies: Option<Arc<ClientPolicies>>,
}

/// An object of this process.
struct Local<T: ?Sized> {
    slot: Arc<ActiveObject>,
    servant: Arc<T>,
    key: Box<[u8]>,
    /// The policies of its adapter, if only threads of a thread pool run its requests.
    elsewhere: Option<Arc<AdapterRt>>,
}

impl<T: Interface + ?Sized> Reference<T> {
    fn of(object: Arc<RemoteObject>, local: Option<Arc<Local<T>>>) -> Self {
        let orb = object.upgrade();
        let (timeouts, scope) = orb.map_or_else(Default::default, |orb| (orb.timeouts, orb.scope));
        Reference { object, local, timeouts, scope, policies: None }
    }

    /// To an object of this ORB.
    pub(crate) fn own(orb: &Arc<Shared>, ior: Ior, key: &[u8]) -> Self {
        let object = RemoteObject::new(Arc::downgrade(orb), ior);
        Reference::of(object, Local::find(orb, key))
    }

    pub(crate) fn new(orb: &Arc<Shared>, ior: Ior) -> Self {
        let local = orb.own_key(&ior).and_then(|key| Local::find(orb, &key));
        Reference::of(RemoteObject::new(Arc::downgrade(orb), ior), local)
    }

    /// The reference as on the wire. Its `Display` is the stringified form, `IOR:...`.
    pub fn ior(&self) -> &Ior {
        self.object.ior()
    }

    /// The same object with a time limit for whole calls: `stub.within(Span::from_millis(5)).locate(7)`.
    pub fn within(&self, round_trip: Span) -> T::Stub {
        let timeouts = Timeouts { round_trip: Some(round_trip), ..self.timeouts };
        Reference { timeouts, ..self.clone() }.into()
    }

    /// The same object, with other timeouts.
    pub fn timeouts(&self, timeouts: Timeouts) -> T::Stub {
        Reference { timeouts, ..self.clone() }.into()
    }

    /// The same object with another scope of oneways.
    pub fn oneways(&self, scope: SyncScope) -> T::Stub {
        Reference { scope, ..self.clone() }.into()
    }

    /// The same object, with connections by these policies instead of those of the thread or the ORB.
    pub fn client_policies(&self, policies: &ClientPolicies) -> T::Stub {
        Reference { policies: Some(Arc::new(policies.clone())), ..self.clone() }.into()
    }

    /// Connects to the object's server for requests of the calling thread's priority, if it is not yet connected. An
    /// object of this process needs no connection.
    ///
    /// # Errors
    ///
    /// `INV_POLICY` if the policies of the reference and the client contradict each other, or no endpoint has the
    /// priority and protocol; otherwise the reason why there is no connection.
    pub fn validate_connection(&self) -> Result<(), SystemException> {
        if self.collocated().is_some() {
            return Ok(());
        }
        let orb = self.object.orb()?;
        connect(&orb, &self.object, &self.timeouts, &self.request("_validate_connection", Response::None, &|_| Ok(())))
    }

    /// The policies of requests that the calling thread sends now, and which of them contradict each other: the
    /// priority model of the reference, and the reference's [`client_policies`](Self::client_policies), else those of
    /// the thread ([`override_policies`](rt::current::override_policies)), else those of the ORB. It sends nothing.
    /// Direct calls within the process have no conflicts.
    ///
    /// # Errors
    ///
    /// `DATA_CONVERSION` if the program's transform refuses the thread's priority.
    pub fn effective_policies(&self) -> Result<EffectivePolicies, SystemException> {
        let orb = self.object.orb()?;
        let request = self.request("_get_policy", Response::None, &|_| Ok(()));
        let mut policies = self.object.target().effective(&orb, &request)?;
        if self.collocated().is_some() {
            policies.conflicts.clear();
        }
        Ok(policies)
    }

    /// Its policies, or those of the thread, if one has some.
    #[inline]
    fn policies(&self) -> Option<Cow<'_, Arc<ClientPolicies>>> {
        self.policies.as_ref().map(Cow::Borrowed).or_else(|| rt::current::policies().map(Cow::Owned))
    }

    /// A request that is sent at once.
    fn request<'r>(
        &'r self,
        operation: &'r str,
        response: Response,
        arguments: &'r dyn Fn(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Invocation<'r> {
        let policies = self.policies();
        Invocation { operation, response, put_off: false, arguments, policies, caller: CallerPriority::OfThread }
    }

    /// The same object through an interface that it has, which is not checked.
    pub fn widen<B: Interface + ?Sized>(&self) -> Reference<B> {
        let local = self.local.as_ref().and_then(|local| {
            let servant = local.slot.servant.cast::<B>()?;
            let (slot, key, elsewhere) = (local.slot.clone(), local.key.clone(), local.elsewhere.clone());
            Some(Arc::new(Local { slot, servant, key, elsewhere }))
        });
        let (timeouts, scope, policies) = (self.timeouts, self.scope, self.policies.clone());
        Reference { object: self.object.clone(), local, timeouts, scope, policies }
    }

    /// The same object through this interface. `None` if the object does not have it; fails if it does not answer.
    pub fn narrow<B: Interface + ?Sized>(&self) -> Result<Option<B::Stub>, SystemException> {
        Ok(self.is_a(B::ID)?.then(|| self.widen::<B>().into()))
    }

    /// The servant for direct calls, if the object is active in this process and accepts calls now.
    #[inline]
    pub fn collocated(&self) -> Option<Collocated<'_, T>> {
        let local = self.local.as_deref()?;
        if local.elsewhere.as_ref().is_some_and(|rt| !rt.runs_at(local.id(), current::pool_lane())) {
            return None;
        }
        if !local.slot.enter_if_passing() {
            return None;
        }
        Some(Collocated { local, _within: current::within(&local.key), _scope: ServantScope::enter() })
    }

    /// Calls an operation, for stubs. The error is the raised exception, or the reason why there is no reply.
    #[inline]
    pub fn call<R, E: Raises>(
        &self,
        operation: &StubOperation,
        arguments: impl Fn(&mut Encoder) -> Result<(), EncodeError>,
        results: impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
    ) -> Result<R, E> {
        let orb = self.object.orb()?;
        let mut outcome = CallOutcome::new(results);
        let request = self.request(operation.name, Response::Target, &arguments);
        invoke(&orb, &self.object, &self.timeouts, &request, &mut |reply| outcome.accept(reply))?;
        outcome.take()
    }

    /// Calls a oneway: returns when it has reached the reference's scope, or the reason why it has not.
    pub fn send<E: Raises>(
        &self,
        operation: &StubOperation,
        arguments: impl Fn(&mut Encoder) -> Result<(), EncodeError>,
    ) -> Result<(), E> {
        let response = match self.scope {
            SyncScope::None | SyncScope::Transport => Response::None,
            SyncScope::Server => Response::Server,
            SyncScope::Target => Response::Target,
        };
        let put_off = self.scope == SyncScope::None;
        let request = Invocation { put_off, ..self.request(operation.name, response, &arguments) };
        let orb = self.object.orb()?;
        let mut outcome = CallOutcome::<(), E, _>::new(|_: &mut Decoder<'_>| Ok(()));
        invoke(&orb, &self.object, &self.timeouts, &request, &mut |reply| outcome.accept(reply))?;
        if response.expected() { outcome.take() } else { Ok(()) }
    }

    /// Calls an operation without waiting for its end.
    pub fn call_async<R, E: Raises>(
        &self,
        operation: &StubOperation,
        arguments: impl Fn(&mut Encoder) -> Result<(), EncodeError>,
        results: impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Send + 'static,
    ) -> Pending<R, E> {
        let (timeouts, policies) = (&self.timeouts, self.policies());
        let sent = Pending::send(&self.object, timeouts, policies, operation.name, &arguments, Box::new(results));
        match sent {
            Ok(Ok(pending)) => pending,
            // For GIOP 1.0 or 1.1, or without a server: a synchronous call.
            Ok(Err(results)) => Pending::over(self.call(operation, arguments, results)),
            Err(exception) => Pending::over(Err(exception.into())),
        }
    }

    /// Whether the object has this interface. Asks the object, which may fail, if the reference does not name the interface.
    pub fn is_a(&self, id: &str) -> Result<bool, SystemException> {
        if self.ior().type_id == id || id == "IDL:omg.org/CORBA/Object:1.0" {
            return Ok(true);
        }
        if let Some(local) = &self.local {
            return Ok(local.slot.servant.is_a(id));
        }
        self.call(&StubOperation::new("_is_a"), |to| id.encode(to), yes_or_no)
    }

    /// True if its server reports that the object does not exist any more. Fails if the server does not answer.
    pub fn non_existent(&self) -> Result<bool, SystemException> {
        match self.call(&StubOperation::new("_non_existent"), |_| Ok(()), yes_or_no) {
            Err(SystemException { kind: SystemKind::ObjectNotExist, .. }) => Ok(true),
            answer => answer,
        }
    }
}

fn yes_or_no(from: &mut Decoder<'_>) -> Result<bool, DecodeError> {
    bool::decode(from)
}

impl<T: Interface + ?Sized> Local<T> {
    fn find(orb: &Arc<Shared>, key: &[u8]) -> Option<Arc<Local<T>>> {
        // Interceptors run for every call.
        if orb.collocation == Collocation::Never {
            return None;
        }
        let (adapter, id) = orb.adapters.adapter(key).ok()?;
        let slot = adapter.active(id)?;
        let servant = slot.servant.cast::<T>()?;
        let pooled = |rt: &&Arc<AdapterRt>| rt.pool.is_some() && orb.collocation != Collocation::Direct;
        let elsewhere = adapter.rt.as_ref().filter(pooled).cloned();
        Some(Arc::new(Local { slot, servant, key: key.into(), elsewhere }))
    }
}

impl<T: ?Sized> Local<T> {
    /// The object's id in its adapter.
    fn id(&self) -> &[u8] {
        ObjectKey::parse(&self.key).map_or(&[], |key| key.id)
    }
}

/// A servant in this process, for direct calls. It counts as a running call until it is dropped.
pub struct Collocated<'a, T: ?Sized> {
    local: &'a Local<T>,
    /// The servant can read its object's id, and deactivate the object.
    _within: current::Within,
    /// Restores the thread's priority after the call.
    _scope: ServantScope,
}

impl<T: ?Sized> Deref for Collocated<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.local.servant
    }
}

impl<T: ?Sized> Drop for Collocated<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.local.slot.leave();
    }
}

impl<T: ?Sized> Clone for Reference<T> {
    fn clone(&self) -> Self {
        let (object, local) = (self.object.clone(), self.local.clone());
        Reference { object, local, timeouts: self.timeouts, scope: self.scope, policies: self.policies.clone() }
    }
}

/// Equivalence as in CORBA: if true, it is the same object; if false, it may still be.
impl<T: ?Sized> PartialEq for Reference<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.object, &other.object) || self.object.ior().profiles == other.object.ior().profiles
    }
}

impl<T: ?Sized> Eq for Reference<T> {}

impl<T: ?Sized> Hash for Reference<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.object.ior().profiles.hash(state);
    }
}

impl<T: ?Sized> fmt::Debug for Reference<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ior = self.object.ior();
        let at: Vec<_> = ior.iiop().flatten().map(|profile| format!("{}:{}", profile.host, profile.port)).collect();
        let mut fields = f.debug_struct("Reference");
        fields.field("type_id", &ior.type_id).field("at", &at).field("collocated", &self.local.is_some()).finish()
    }
}

/// As on the wire.
impl<T: ?Sized> Encode for Reference<T> {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.object.ior().encode(to)
    }
}

impl<T: Interface + ?Sized> From<Ior> for Reference<T> {
    /// Belongs to the ORB whose call this thread made or served last. Without one, it cannot be called.
    fn from(ior: Ior) -> Self {
        match used_orb() {
            Some(orb) => Reference::new(&orb, ior),
            None => Reference::of(RemoteObject::new(Weak::new(), ior), None),
        }
    }
}
