//! From what the tree refuses to what the operations raise.

use hyoshi_orb::{Raises, minor};
use hyoshi_wire::{SystemException, SystemKind};

use crate::naming_context::CannotProceed;
use crate::tree::Refusal;
use crate::{
    BindContextError, BindError, BindNewContextError, DestroyError, NameComponent, NamingContextStub,
    RebindContextError, RebindError, ResolveError, ResolveStrError, UnbindError,
};

impl Refusal {
    /// For operations that do not declare it.
    pub(crate) fn system(&self) -> SystemException {
        match self {
            Refusal::Root => SystemKind::NoPermission.not_done(minor::NAMING_ROOT),
            Refusal::Gone => SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT),
            Refusal::Limit(_) => SystemKind::ImpLimit.not_done(minor::NAMING_LIMIT),
            Refusal::Unstored(exception) => *exception,
            _ => SystemKind::Internal.not_done(minor::UNDECLARED),
        }
    }
}

macro_rules! raise {
    ($($error:ident: $($declared:ident)*;)*) => {
        $(impl From<Refusal> for $error {
            fn from(refusal: Refusal) -> Self {
                match refusal {
                    $(Refusal::$declared(raised) => raised.into(),)*
                    other => other.system().into(),
                }
            }
        })*
    };
}

raise! {
    BindError: NotFound InvalidName AlreadyBound;
    BindContextError: NotFound InvalidName AlreadyBound;
    BindNewContextError: NotFound InvalidName AlreadyBound;
    RebindError: NotFound InvalidName;
    RebindContextError: NotFound InvalidName;
    ResolveError: NotFound InvalidName;
    UnbindError: NotFound InvalidName;
    DestroyError: NotEmpty;
}

impl From<ResolveError> for ResolveStrError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::NotFound(raised) => raised.into(),
            ResolveError::CannotProceed(raised) => raised.into(),
            ResolveError::InvalidName(raised) => raised.into(),
            ResolveError::System(raised) => raised.into(),
        }
    }
}

/// What another naming service answered: its own exceptions are passed on; that it did not answer means that the
/// caller may go on there another time (Naming Service 1.3, 2.2.2).
pub(crate) fn beyond<E: Raises + From<CannotProceed>>(
    error: E,
    context: NamingContextStub,
    rest: Vec<NameComponent>,
) -> E {
    match error.system() {
        Some(_) => CannotProceed { cxt: Some(context), rest_of_name: rest }.into(),
        None => error,
    }
}
