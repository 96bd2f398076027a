//! Conversions between refusals of the tree, the operations' exceptions, and the client's errors.

use hyoshi_orb::minor;
use hyoshi_wire::{SystemException, SystemKind};

use crate::client::NameError;
use crate::name;
use crate::tree::NamingRefusal;
use crate::{
    BindContextError, BindError, BindNewContextError, DestroyError, RebindContextError, RebindError, ResolveError,
    ResolveStrError, UnbindError,
};

impl NamingRefusal {
    /// For operations that do not declare it.
    pub(crate) fn system(&self) -> SystemException {
        match self {
            NamingRefusal::Root => SystemKind::NoPermission.not_done(minor::NAMING_ROOT),
            NamingRefusal::Gone => SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT),
            NamingRefusal::Limit(_) => SystemKind::ImpLimit.not_done(minor::NAMING_LIMIT),
            NamingRefusal::Unstored(exception) => *exception,
            _ => SystemKind::Internal.not_done(minor::UNDECLARED),
        }
    }
}

/// Converts an operation's exception to an error with the name.
pub(crate) trait Named {
    fn named(self, name: &str) -> NameError;
}

macro_rules! operations {
    ($($error:ident $($bound:ident)?;)*) => {
        $(impl From<NamingRefusal> for $error {
            fn from(refusal: NamingRefusal) -> Self {
                match refusal {
                    NamingRefusal::NotFound(raised) => raised.into(),
                    NamingRefusal::InvalidName(raised) => raised.into(),
                    $(NamingRefusal::$bound(raised) => raised.into(),)?
                    other => other.system().into(),
                }
            }
        }

        impl Named for $error {
            fn named(self, name: &str) -> NameError {
                let name = name.to_owned();
                match self {
                    $error::NotFound(raised) => {
                        NameError::NotFound { name, rest: name::print(&raised.rest_of_name), why: raised.why }
                    }
                    $error::CannotProceed(raised) => {
                        let rest = name::print(&raised.rest_of_name);
                        NameError::CannotProceed { name, rest, context: raised.cxt }
                    }
                    $error::InvalidName(_) => NameError::Invalid(name),
                    $($error::$bound(_) => NameError::AlreadyBound(name),)?
                    $error::System(exception) => NameError::System(exception),
                }
            }
        })*
    };
}

operations! {
    BindError AlreadyBound;
    BindContextError AlreadyBound;
    BindNewContextError AlreadyBound;
    RebindError;
    RebindContextError;
    ResolveError;
    UnbindError;
}

impl From<NamingRefusal> for DestroyError {
    fn from(refusal: NamingRefusal) -> Self {
        match refusal {
            NamingRefusal::NotEmpty(raised) => raised.into(),
            other => other.system().into(),
        }
    }
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
