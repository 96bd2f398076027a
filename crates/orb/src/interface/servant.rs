//! Servants of an [`Interface`].

use std::any::{Any, TypeId};
use std::sync::Arc;

use hyoshi_wire::SystemException;

use super::Interface;
use crate::call::Call;
use crate::objects::{Facts, Servant, Skeleton};

struct TypedServant<T: ?Sized>(Arc<T>);

impl<T: Interface + ?Sized> TypedServant<T> {
    const FACTS: Facts = Facts { id: T::ID, bases: T::BASES, operations: T::OPERATIONS, oneways: T::ONEWAYS };
}

impl<T: Interface + ?Sized> Skeleton for TypedServant<T> {
    fn dispatch(&self, operation: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
        self.0.dispatch(operation, call)
    }

    fn cast(&self, wanted: TypeId) -> Option<Box<dyn Any>> {
        if wanted == TypeId::of::<Arc<T>>() {
            return Some(Box::new(self.0.clone()));
        }
        T::upcast(self.0.clone(), wanted)
    }
}

impl Servant {
    /// `Servant::new::<dyn Tracker>(Arc::new(MyTracker))`.
    pub fn new<T: Interface + ?Sized>(servant: Arc<T>) -> Self {
        Servant::of(&TypedServant::<T>::FACTS, Arc::new(TypedServant(servant)))
    }
}
