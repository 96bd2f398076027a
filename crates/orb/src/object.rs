//! `CORBA::Object`: an object of unknown interface.

use std::any::{Any, TypeId};
use std::sync::Arc;

use hyoshi_wire::ior::Ior;
use hyoshi_wire::{FromIor, SystemException, SystemKind, ToIor};

use crate::call::Call;
use crate::interface::{Interface, Reference};
use crate::minor;

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
