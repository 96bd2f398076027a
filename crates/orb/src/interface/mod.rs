//! The traits and types that generated code uses.

mod reference;
mod servant;

use std::any::{Any, TypeId};
use std::sync::Arc;

use hyoshi_wire::ior::Ior;
use hyoshi_wire::{FromIor, SystemException, SystemKind, ToIor};

use crate::call::Call;
use crate::minor;
use crate::raises::Raises;
pub use reference::{Collocated, Reference};

/// An IDL interface. Implemented for `dyn Tracker`, where `Tracker` is the trait of its operations.
pub trait Interface: Send + Sync + 'static {
    /// The stub type, which wraps a [`Reference`].
    type Stub: From<Reference<Self>> + AsRef<Reference<Self>>;
    /// `IDL:Tracking/Tracker:1.0`.
    const ID: &'static str;
    /// The ids of all interfaces it inherits from.
    const BASES: &'static [&'static str];
    /// All operations by their names on the wire, inherited ones among them, sorted by their octets.
    const OPERATIONS: &'static [&'static str];

    /// The oneways among them, sorted. If a client asks for it, their arrival is confirmed before they run.
    const ONEWAYS: &'static [&'static str] = &[];

    /// Carries out the operation with this index in [`OPERATIONS`](Interface::OPERATIONS): decodes the
    /// arguments, calls the method, and replies through `call`.
    ///
    /// # Errors
    ///
    /// The exception for the caller, if the arguments cannot be decoded, for example.
    fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException>;

    /// The servant as a boxed `Arc<dyn Base>`, if `wanted` is `TypeId::of::<Arc<dyn Base>>()`. Stubs of bases use it for
    /// direct calls.
    fn upcast(servant: Arc<Self>, wanted: TypeId) -> Option<Box<dyn Any>>;
}

/// An operation, for stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StubOperation {
    /// Its name on the wire: that of IDL; for attributes `_get_name` and `_set_name`.
    pub name: &'static str,
    /// Whether it has no reply.
    pub oneway: bool,
}

impl StubOperation {
    /// An operation with a reply.
    pub const fn new(name: &'static str) -> Self {
        StubOperation { name, oneway: false }
    }

    /// A oneway.
    pub const fn oneway(name: &'static str) -> Self {
        StubOperation { name, oneway: true }
    }
}

/// The code that a delegate runs around calls, to measure or to lock for example.
pub trait Around: Send + Sync {
    /// Runs the call, or code before and after it.
    fn around<R>(&self, call: &Invoked<'_>, run: impl FnOnce() -> R) -> R;

    /// The same for an operation with its outcome; generated delegates call this. It may raise an exception instead of
    /// running the call. Default: [`around`](Self::around).
    ///
    /// # Errors
    ///
    /// Those of the call, or its own.
    #[inline]
    fn invoke<R, E: Raises>(&self, call: &Invoked<'_>, run: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.around(call, run)
    }
}

/// A call within a delegate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invoked<'a> {
    /// The repository id of the interface.
    pub interface: &'a str,
    /// The operation.
    pub operation: &'a StubOperation,
}

/// Runs only the call.
impl Around for () {
    fn around<R>(&self, _: &Invoked<'_>, run: impl FnOnce() -> R) -> R {
        run()
    }
}

/// The root of all interfaces, without operations of its own.
pub trait Object: Send + Sync {}

impl Interface for dyn Object {
    type Stub = ObjectRef;
    const ID: &'static str = "IDL:omg.org/CORBA/Object:1.0";
    const BASES: &'static [&'static str] = &[];
    const OPERATIONS: &'static [&'static str] = &[];

    fn dispatch(&self, _: usize, _: &mut Call<'_>) -> Result<(), SystemException> {
        Err(SystemKind::BadOperation.not_done(minor::NO_OPERATION))
    }

    fn upcast(_: Arc<Self>, _: TypeId) -> Option<Box<dyn Any>> {
        None
    }
}

/// A reference to an object of any interface. [`narrow`](Reference::narrow) converts it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectRef(Reference<dyn Object>);

impl From<Reference<dyn Object>> for ObjectRef {
    fn from(reference: Reference<dyn Object>) -> Self {
        ObjectRef(reference)
    }
}

impl AsRef<Reference<dyn Object>> for ObjectRef {
    fn as_ref(&self) -> &Reference<dyn Object> {
        &self.0
    }
}

impl ToIor for ObjectRef {
    fn to_ior(&self) -> &Ior {
        self.0.ior()
    }
}

impl FromIor for ObjectRef {
    fn from_ior(ior: Ior) -> Self {
        ObjectRef(ior.into())
    }
}
