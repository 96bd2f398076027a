//! A client of naming services: names as text, and errors that name the invalid part.

use std::fmt;

use hyoshi_orb::{Interface, Object, ObjectRef, Orb, Reference};
use hyoshi_wire::ior::ReferenceError;
use hyoshi_wire::{SystemException, ToIor};

use crate::generated::cos_naming::naming_context::NotFoundReason;
use crate::generated::cos_naming::*;
use crate::name;

/// The number of bindings requested at a time.
const CHUNK: u32 = 500;

/// A naming context, here or elsewhere.
///
/// ```no_run
/// use hyoshi_naming::Naming;
/// use hyoshi_orb::{Object, ObjectRef, Orb};
///
/// let orb = Orb::client()?;
/// let names = Naming::at(&orb, "corbaloc:iiop:1.2@plant.example:2809/NameService")?;
/// let tracker: ObjectRef = names.resolve::<dyn Object>("plant/tracker.service")?;
/// names.rebind("plant/spare", &tracker)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Naming {
    context: NamingContextStub,
}

/// What a context has bound.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name in the context, as text.
    pub name: String,
    /// Whether names lead through it.
    pub is_context: bool,
}

/// The reason why an operation on a name failed.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum NameError {
    /// It is no name as text.
    Text {
        /// What was given.
        name: String,
        /// What is wrong.
        error: ReferenceError,
    },
    /// It is empty, or the service takes no such names.
    Invalid(String),
    /// It does not exist.
    NotFound {
        /// The name.
        name: String,
        /// From the step on that failed.
        rest: String,
        /// What is wrong with that step.
        why: NotFoundReason,
    },
    /// The way leads through a context that does not answer.
    CannotProceed {
        /// The name.
        name: String,
        /// What is left to be asked there.
        rest: String,
        /// That context.
        context: Option<NamingContextStub>,
    },
    /// Something is bound to it.
    AlreadyBound(String),
    /// The context has bindings.
    NotEmpty(String),
    /// What is bound has another interface, or is nil.
    Interface {
        /// The name.
        name: String,
        /// The interface asked for.
        wanted: &'static str,
    },
    /// The service does not answer, or cannot do it.
    System(SystemException),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Text { name, error } => write!(f, "`{name}` is no name: {error}"),
            NameError::Invalid(name) => write!(f, "the service rejects the name `{name}`"),
            NameError::NotFound { name, rest, why } => {
                let what = match why {
                    NotFoundReason::MissingNode => "nothing is bound to the first part of",
                    NotFoundReason::NotContext => "no context is bound to the first part of",
                    NotFoundReason::NotObject => "a context, not an object, is bound to the first part of",
                };
                write!(f, "`{name}` is not found: {what} `{rest}`")
            }
            NameError::CannotProceed { name, rest, .. } => {
                write!(f, "the way to `{name}` leads through a context that does not answer; it was to find `{rest}`")
            }
            NameError::AlreadyBound(name) => write!(f, "something is bound to `{name}` already"),
            NameError::NotEmpty(name) => write!(f, "the context `{name}` has bindings: unbind them first"),
            NameError::Interface { name, wanted } => write!(f, "what is bound to `{name}` is no {wanted}"),
            NameError::System(exception) => exception.fmt(f),
        }
    }
}

impl std::error::Error for NameError {}

impl From<SystemException> for NameError {
    fn from(exception: SystemException) -> Self {
        NameError::System(exception)
    }
}

impl Naming {
    /// The context at an address: `corbaloc:iiop:1.2@host:2809/NameService`, `corbaname::host#plant`, `IOR:...`.
    /// Nothing is sent unless names are to be resolved.
    ///
    /// # Errors
    ///
    /// INV_OBJREF of text that is no address.
    pub fn at(orb: &Orb, address: &str) -> Result<Naming, SystemException> {
        Ok(Naming { context: orb.resolve_unchecked::<dyn NamingContext>(address)? })
    }

    /// The ORB's initial reference `NameService` ([`OrbBuilder::initial`](hyoshi_orb::OrbBuilder::initial)).
    ///
    /// # Errors
    ///
    /// INV_OBJREF if the ORB has none.
    pub fn initial(orb: &Orb) -> Result<Naming, SystemException> {
        Naming::at(orb, "corbaloc:rir:/NameService")
    }

    /// The context.
    pub fn context(&self) -> &NamingContextStub {
        &self.context
    }

    /// Binds an object to a name.
    ///
    /// # Errors
    ///
    /// If something is bound to it, or the contexts on the way are not there.
    pub fn bind<T: Interface + ?Sized>(&self, name: &str, to: &impl AsRef<Reference<T>>) -> Result<(), NameError> {
        let steps = steps(name)?;
        self.context.bind(&steps, Some(&object(to))).map_err(|error| error.told(name))
    }

    /// Binds an object to a name, in place of another object if one is bound.
    ///
    /// # Errors
    ///
    /// If a context is bound to it, or the contexts on the way are not there.
    pub fn rebind<T: Interface + ?Sized>(&self, name: &str, to: &impl AsRef<Reference<T>>) -> Result<(), NameError> {
        let steps = steps(name)?;
        self.context.rebind(&steps, Some(&object(to))).map_err(|error| error.told(name))
    }

    /// Binds a context of this or another service to a name. Names can then lead through it.
    ///
    /// # Errors
    ///
    /// If something is bound to it, or the contexts on the way are not there.
    pub fn bind_context(&self, name: &str, to: &Naming) -> Result<(), NameError> {
        let steps = steps(name)?;
        self.context.bind_context(&steps, Some(&to.context)).map_err(|error| error.told(name))
    }

    /// Makes a context and binds it to a name.
    ///
    /// # Errors
    ///
    /// If something is bound to it, or the contexts on the way are not there.
    pub fn new_context(&self, name: &str) -> Result<Naming, NameError> {
        let steps = steps(name)?;
        let made = self.context.bind_new_context(&steps).map_err(|error| error.told(name))?;
        let wanted = <dyn NamingContext>::ID;
        Ok(Naming { context: made.ok_or_else(|| NameError::Interface { name: name.to_owned(), wanted })? })
    }

    /// Makes all contexts on the way to a name that are not there.
    ///
    /// # Errors
    ///
    /// If something on the way is no context.
    pub fn make_way(&self, name: &str) -> Result<(), NameError> {
        let steps = steps(name)?;
        for end in 1..steps.len() {
            let way = name::print(&steps[..end]);
            match self.new_context(&way) {
                Ok(_) | Err(NameError::AlreadyBound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The object bound to a name. Checks that the object has the interface.
    ///
    /// # Errors
    ///
    /// If the name is not bound, the object has another interface, or it does not answer.
    pub fn resolve<T: Interface + ?Sized>(&self, name: &str) -> Result<T::Stub, NameError> {
        let found = self.context.resolve(&steps(name)?).map_err(|error| error.told(name))?;
        let other = || NameError::Interface { name: name.to_owned(), wanted: T::ID };
        found.ok_or_else(other)?.as_ref().narrow::<T>()?.ok_or_else(other)
    }

    /// The context that a name is bound to.
    ///
    /// # Errors
    ///
    /// If none is, or it does not answer.
    pub fn enter(&self, name: &str) -> Result<Naming, NameError> {
        Ok(Naming { context: self.resolve::<dyn NamingContext>(name)? })
    }

    /// Unbinds a name. The bound object continues to exist.
    ///
    /// # Errors
    ///
    /// If nothing is bound to it.
    pub fn unbind(&self, name: &str) -> Result<(), NameError> {
        self.context.unbind(&steps(name)?).map_err(|error| error.told(name))
    }

    /// Ends the empty context that a name is bound to, and unbinds the name.
    ///
    /// # Errors
    ///
    /// If it has bindings, or is no context.
    pub fn remove_context(&self, name: &str) -> Result<(), NameError> {
        let context = self.resolve::<dyn NamingContext>(name)?;
        context.destroy().map_err(|error| match error {
            DestroyError::NotEmpty(_) => NameError::NotEmpty(name.to_owned()),
            DestroyError::System(exception) => exception.into(),
        })?;
        self.unbind(name)
    }

    /// What the context has bound, at most so many, sorted; and whether there is more.
    ///
    /// # Errors
    ///
    /// If the service cannot be called.
    pub fn list(&self, most: usize) -> Result<(Vec<Listed>, bool), NameError> {
        let chunk = |have: usize| u32::try_from(most - have).unwrap_or(CHUNK).min(CHUNK);
        let (mut bindings, rest) = self.context.list(chunk(0))?;
        let mut more = rest.is_some();
        if let Some(rest) = rest {
            while more && bindings.len() < most {
                let (some, next) = rest.next_n(chunk(bindings.len()))?;
                // Some services say that nothing is left together with the last ones.
                more = some && !next.is_empty();
                bindings.extend(next);
            }
            // It may be gone by itself.
            let _ = rest.destroy();
        }
        bindings.truncate(most);
        let listed = bindings.into_iter().map(|binding| Listed {
            name: name::print(&binding.binding_name),
            is_context: binding.binding_type == BindingType::Ncontext,
        });
        let mut listed: Vec<_> = listed.collect();
        listed.sort();
        Ok((listed, more))
    }
}

fn object<T: Interface + ?Sized>(of: &impl AsRef<Reference<T>>) -> ObjectRef {
    of.as_ref().widen::<dyn Object>().into()
}

fn steps(name: &str) -> Result<Name, NameError> {
    name::parse(name).map_err(|error| NameError::Text { name: name.to_owned(), error })
}

/// Converts an operation's exception to an error with the name.
trait Told {
    fn told(self, name: &str) -> NameError;
}

macro_rules! told {
    ($($error:ident $(, $bound:ident)?;)*) => {
        $(impl Told for $error {
            fn told(self, name: &str) -> NameError {
                match self {
                    $error::NotFound(raised) => {
                        NameError::NotFound { name: name.to_owned(), rest: name::print(&raised.rest_of_name), why: raised.why }
                    }
                    $error::CannotProceed(raised) => {
                        let rest = name::print(&raised.rest_of_name);
                        NameError::CannotProceed { name: name.to_owned(), rest, context: raised.cxt }
                    }
                    $error::InvalidName(_) => NameError::Invalid(name.to_owned()),
                    $($error::$bound(_) => NameError::AlreadyBound(name.to_owned()),)?
                    $error::System(exception) => NameError::System(exception),
                }
            }
        })*
    };
}

told! {
    BindError, AlreadyBound;
    BindContextError, AlreadyBound;
    BindNewContextError, AlreadyBound;
    RebindError;
    ResolveError;
    UnbindError;
}

/// As the reference of its context.
impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.context.to_ior().fmt(f)
    }
}
