//! Servants of an interface, as the objects of an ORB hold them.

use std::any::{Any, TypeId};
use std::sync::Arc;

use hyoshi_wire::SystemException;

use super::Interface;
use crate::call::Call;
use crate::objects::{Servant, Skeleton};

impl Servant {
    /// `Servant::new::<dyn Tracker>(Arc::new(MyTracker))`.
    pub fn new<T: Interface + ?Sized>(servant: Arc<T>) -> Self {
        Servant(Arc::new(Typed(servant)))
    }

    /// It as what a stub of `T` calls, if it has that interface and is in this process.
    pub(crate) fn cast<T: Interface + ?Sized>(&self) -> Option<Arc<T>> {
        self.0.cast(TypeId::of::<Arc<T>>())?.downcast::<Arc<T>>().ok().map(|servant| *servant)
    }
}

struct Typed<T: ?Sized>(Arc<T>);

impl<T: Interface + ?Sized> Skeleton for Typed<T> {
    fn id(&self) -> &'static str {
        T::ID
    }

    fn bases(&self) -> &'static [&'static str] {
        T::BASES
    }

    fn operations(&self) -> &'static [&'static str] {
        T::OPERATIONS
    }

    fn oneways(&self) -> &'static [&'static str] {
        T::ONEWAYS
    }

    fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
        self.0.dispatch(operation, call)
    }

    fn cast(&self, wanted: TypeId) -> Option<Box<dyn Any>> {
        if wanted == TypeId::of::<Arc<T>>() {
            Some(Box::new(self.0.clone()))
        } else {
            T::upcast(self.0.clone(), wanted)
        }
    }
}
