//! A client of naming services: names as text, and errors that name the invalid part.

use std::fmt;

use hyoshi_orb::{Interface, Object, ObjectRef, Orb, Reference};
use hyoshi_wire::ior::ReferenceError;
use hyoshi_wire::{SystemException, ToIor};

use crate::generated::cos_naming::naming_context::NotFoundReason;
use crate::generated::cos_naming::*;
use crate::name;
use crate::refused::Named;

/// The number of bindings requested at a time.
const CHUNK: u32 = 500;

/// A naming context, here or elsewhere. Its operations fail with a [`NameError`] that names the part of the name which
/// is not bound, or is bound to something else.
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

/// A binding of a context.
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
    /// A text that is not a name, and the mistake.
    Text(String, ReferenceError),
    /// The name is empty, or the service does not accept it.
    Invalid(String),
    /// The name is not bound.
    NotFound {
        /// The name.
        name: String,
        /// The name from the step on that failed.
        rest: String,
        /// The mistake in that step.
        why: NotFoundReason,
    },
    /// The name leads through a context that does not answer.
    CannotProceed {
        /// The name.
        name: String,
        /// The steps that are not resolved.
        rest: String,
        /// That context.
        context: Option<NamingContextStub>,
    },
    /// Something is bound to it.
    AlreadyBound(String),
    /// The context has bindings.
    NotEmpty(String),
    /// The object bound to this name does not have this interface, or is nil.
    Interface(String, &'static str),
    /// The service does not answer, or reports a standard exception.
    System(SystemException),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Text(name, error) => write!(f, "`{name}` is not a name: {error}"),
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
                write!(f, "cannot resolve `{name}`: the context that should resolve `{rest}` does not answer")
            }
            NameError::AlreadyBound(name) => write!(f, "`{name}` is bound already"),
            NameError::NotEmpty(name) => write!(f, "the context `{name}` has bindings: unbind them first"),
            NameError::Interface(name, wanted) => write!(f, "the object bound to `{name}` is not a {wanted}"),
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
    /// Nothing is sent, except to resolve the names of a corbaname.
    ///
    /// # Errors
    ///
    /// INV_OBJREF if the text is not an address.
    pub fn at(orb: &Orb, address: &str) -> Result<Naming, SystemException> {
        Ok(Naming { context: orb.resolve_unchecked::<dyn NamingContext>(address)? })
    }

    /// The ORB's initial reference `NameService` ([`OrbBuilder::initial`](hyoshi_orb::OrbBuilder::initial)); INV_OBJREF
    /// if it has none.
    pub fn initial(orb: &Orb) -> Result<Naming, SystemException> {
        Naming::at(orb, "corbaloc:rir:/NameService")
    }

    /// The context.
    pub fn context(&self) -> &NamingContextStub {
        &self.context
    }

    /// Binds an object to a name that is not bound.
    pub fn bind<T: Interface + ?Sized>(&self, name: &str, to: &impl AsRef<Reference<T>>) -> Result<(), NameError> {
        at(name, |steps| self.context.bind(steps, Some(&object(to))))
    }

    /// Binds an object to a name that is not bound to a context. Replaces another object.
    pub fn rebind<T: Interface + ?Sized>(&self, name: &str, to: &impl AsRef<Reference<T>>) -> Result<(), NameError> {
        at(name, |steps| self.context.rebind(steps, Some(&object(to))))
    }

    /// Binds a context of this or another service to a name that is not bound. Names can then lead through it.
    pub fn bind_context(&self, name: &str, to: &Naming) -> Result<(), NameError> {
        at(name, |steps| self.context.bind_context(steps, Some(&to.context)))
    }

    /// Makes a context and binds it to a name that is not bound.
    pub fn new_context(&self, name: &str) -> Result<Naming, NameError> {
        let made = at(name, |steps| self.context.bind_new_context(steps))?;
        let nil = || NameError::Interface(name.to_owned(), <dyn NamingContext>::ID);
        Ok(Naming { context: made.ok_or_else(nil)? })
    }

    /// Makes the missing contexts on the way to a name.
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

    /// The object bound to a name. Asks the object whether it has the interface.
    pub fn resolve<T: Interface + ?Sized>(&self, name: &str) -> Result<T::Stub, NameError> {
        let found = at(name, |steps| self.context.resolve(steps))?;
        let other = || NameError::Interface(name.to_owned(), T::ID);
        found.ok_or_else(other)?.as_ref().narrow::<T>()?.ok_or_else(other)
    }

    /// The context that a name is bound to.
    pub fn enter(&self, name: &str) -> Result<Naming, NameError> {
        Ok(Naming { context: self.resolve::<dyn NamingContext>(name)? })
    }

    /// Unbinds a name. The bound object continues to exist.
    pub fn unbind(&self, name: &str) -> Result<(), NameError> {
        at(name, |steps| self.context.unbind(steps))
    }

    /// Ends the empty context that a name is bound to, and unbinds the name.
    pub fn remove_context(&self, name: &str) -> Result<(), NameError> {
        let context = self.resolve::<dyn NamingContext>(name)?;
        context.destroy().map_err(|error| match error {
            DestroyError::NotEmpty(_) => NameError::NotEmpty(name.to_owned()),
            DestroyError::System(exception) => exception.into(),
        })?;
        self.unbind(name)
    }

    /// The bindings of the context, at most `most`, sorted; and whether there are more.
    pub fn list(&self, most: usize) -> Result<(Vec<Listed>, bool), NameError> {
        let chunk = |have: usize| u32::try_from(most - have).unwrap_or(CHUNK).min(CHUNK);
        let (mut bindings, rest) = self.context.list(chunk(0))?;
        let mut more = rest.is_some();
        if let Some(rest) = rest {
            while more && bindings.len() < most {
                let (some, next) = rest.next_n(chunk(bindings.len()))?;
                // Some services report the end together with the last bindings.
                more = some && !next.is_empty();
                bindings.extend(next);
            }
            // It may have ended by itself.
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

/// Runs an operation on a name.
fn at<R, E: Named>(name: &str, run: impl FnOnce(&Name) -> Result<R, E>) -> Result<R, NameError> {
    run(&steps(name)?).map_err(|error| error.named(name))
}

fn steps(name: &str) -> Result<Name, NameError> {
    name::parse(name).map_err(|error| NameError::Text(name.to_owned(), error))
}

/// As the reference of its context.
impl fmt::Display for Naming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.context.to_ior().fmt(f)
    }
}
