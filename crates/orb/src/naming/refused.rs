//! From what the tree refuses to what the operations raise.

use hyoshi_wire::ior;
use hyoshi_wire::{SystemException, SystemKind};

use super::generated::cos_naming::naming_context::{
    AlreadyBound, CannotProceed, InvalidName, NotEmpty, NotFound, NotFoundReason,
};
use super::generated::cos_naming::{
    BindContextError, BindError, BindNewContextError, DestroyError, NameComponent, NamingContextStub,
    RebindContextError, RebindError, ResolveError, ResolveStrError, UnbindError,
};
use super::tree::{Refusal, Why};
use crate::Raises;
use crate::minor;

/// All that operations of a context raise.
enum Declared {
    NotFound(NotFound),
    InvalidName(InvalidName),
    AlreadyBound(AlreadyBound),
    NotEmpty(NotEmpty),
    System(SystemException),
}

fn declared(refusal: Refusal) -> Declared {
    let system = |kind: SystemKind, minor| Declared::System(kind.not_done(minor));
    match refusal {
        Refusal::NotFound { why, rest } => {
            let why = match why {
                Why::MissingNode => NotFoundReason::MissingNode,
                Why::NotContext => NotFoundReason::NotContext,
                Why::NotObject => NotFoundReason::NotObject,
            };
            Declared::NotFound(NotFound { why, rest_of_name: to_wire(rest) })
        }
        Refusal::InvalidName => Declared::InvalidName(InvalidName),
        Refusal::AlreadyBound => Declared::AlreadyBound(AlreadyBound),
        Refusal::NotEmpty => Declared::NotEmpty(NotEmpty),
        Refusal::Root => system(SystemKind::NoPermission, minor::NAMING_ROOT),
        Refusal::Gone => system(SystemKind::ObjectNotExist, minor::NO_OBJECT),
        Refusal::Limit(_) => system(SystemKind::ImpLimit, minor::NAMING_LIMIT),
        // Asked for there instead of being raised.
        Refusal::Elsewhere { .. } => system(SystemKind::Internal, minor::NO_REPLY),
    }
}

macro_rules! raise {
    ($($error:ident: $($declared:ident)*;)*) => {
        $(impl From<Refusal> for $error {
            fn from(refusal: Refusal) -> Self {
                match declared(refusal) {
                    $(Declared::$declared(raised) => raised.into(),)*
                    Declared::System(raised) => raised.into(),
                    // The tree does not refuse this operation so.
                    _ => SystemKind::Internal.not_done(minor::UNDECLARED).into(),
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

/// A name as the wire has it.
pub(crate) fn to_wire(name: Vec<ior::NameComponent>) -> Vec<NameComponent> {
    name.into_iter().map(|ior::NameComponent { id, kind }| NameComponent { id, kind }).collect()
}

/// A name as text is made of it.
pub(crate) fn from_wire(name: &[NameComponent]) -> Vec<ior::NameComponent> {
    name.iter().map(|step| ior::NameComponent { id: step.id.clone(), kind: step.kind.clone() }).collect()
}
