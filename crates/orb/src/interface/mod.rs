//! What generated code implements, so that servants can be called and stubs can call.

mod reference;
mod servant;

use std::any::{Any, TypeId};
use std::sync::Arc;

use hyoshi_wire::SystemException;

use crate::call::Call;
pub use reference::{Collocated, Reference};

/// An IDL interface. Implemented for `dyn Tracker`, where `Tracker` is the trait of its operations.
pub trait Interface: Send + Sync + 'static {
    /// What calls such objects: wraps a [`Reference`].
    type Stub: From<Reference<Self>> + AsRef<Reference<Self>>;
    /// `IDL:Tracking/Tracker:1.0`.
    const ID: &'static str;
    /// The ids of all interfaces it inherits from.
    const BASES: &'static [&'static str];
    /// All operations by their names on the wire, inherited ones among them, sorted by their octets.
    const OPERATIONS: &'static [&'static str];

    /// Those of them that are oneways, sorted: a client that asks for it hears of their arrival before they run.
    const ONEWAYS: &'static [&'static str] = &[];

    /// Carries out the operation with this index in [`OPERATIONS`](Interface::OPERATIONS): decodes the
    /// arguments, calls the method, and replies through `call`.
    ///
    /// # Errors
    ///
    /// What the caller is to be told instead of a reply, such as that the arguments cannot be decoded.
    fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException>;

    /// The servant as an `Arc<dyn Base>` (boxed), if `wanted` is `TypeId::of::<Arc<dyn Base>>()`: a call through a base's stub
    /// need not go over the wire either.
    fn upcast(servant: Arc<Self>, wanted: TypeId) -> Option<Box<dyn Any>>;
}

/// An operation as stubs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name on the wire: that of IDL, of attributes `_get_name` and `_set_name`.
    pub name: &'static str,
    /// Whether nobody waits for a result.
    pub oneway: bool,
}

impl Operation {
    /// One with a result, or at least an end.
    pub const fn new(name: &'static str) -> Self {
        Operation { name, oneway: false }
    }

    /// A oneway.
    pub const fn oneway(name: &'static str) -> Self {
        Operation { name, oneway: true }
    }
}

/// What a delegate wraps around calls: measure, refuse to wait, time out, lock.
pub trait Around: Send + Sync {
    /// Runs the call, or code before and after it.
    fn around<R>(&self, call: &Invoked<'_>, run: impl FnOnce() -> R) -> R;
}

/// The call that a delegate has around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invoked<'a> {
    /// The repository id of the interface.
    pub interface: &'a str,
    /// The operation.
    pub operation: &'a Operation,
}

/// Nothing around it.
impl Around for () {
    fn around<R>(&self, _: &Invoked<'_>, run: impl FnOnce() -> R) -> R {
        run()
    }
}
