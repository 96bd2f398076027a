//! A value behind a declared resource.

use std::fmt;
use std::sync::Arc;

use hyoshi_model::{ResourceId, System};
use hyoshi_os::PiMutex;

use crate::context::JobContext;

/// The value of a `[resource.NAME]`, for the bodies of operations that declare it under `uses`.
///
/// While a job holds it, it runs at the most urgent level among all users on its processor
/// (immediate priority ceiling), so that whoever else needs it does not even start, and a job in
/// between delays nobody. Users on other CPUs wait for it with priority inheritance. `check`
/// counts the declared span as blocking: holding it longer falsifies the analysis.
///
/// One resource at a time, as in the file: while it is held, the body's context is borrowed.
///
/// Clones share one value: give one to each body.
#[derive(Debug)]
pub struct Shared<T> {
    resource: ResourceId,
    name: Arc<str>,
    value: Arc<PiMutex<T>>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared { resource: self.resource, name: self.name.clone(), value: self.value.clone() }
    }
}

/// Why a shared value was not handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedError {
    /// The system has no resource of that name.
    Unknown {
        /// The name.
        resource: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// The operation does not say that it uses the resource, so no analysis knows.
    NotDeclared {
        /// The operation.
        operation: String,
        /// The resource.
        resource: String,
    },
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SharedError::Unknown { resource, known } if known.is_empty() => {
                write!(f, "the system declares no resources: add [resource.{resource}]")
            }
            SharedError::Unknown { resource, known } => {
                write!(f, "the system has no resource {resource:?}; it declares {}", known.join(", "))
            }
            SharedError::NotDeclared { operation, resource } => write!(
                f,
                "operation {operation:?} does not declare that it uses {resource:?}: add \
                 uses = {{ {resource} = \"...\" }} to it, with the longest time it holds it"
            ),
        }
    }
}

impl std::error::Error for SharedError {}

impl<T> Shared<T> {
    /// The value of a resource of `system`.
    pub fn new(system: &System, resource: &str, value: T) -> Result<Self, SharedError> {
        let position = system.resources.iter().position(|declared| declared.name == resource);
        let position = position.ok_or_else(|| SharedError::Unknown {
            resource: resource.to_owned(),
            known: system.resources.iter().map(|declared| declared.name.clone()).collect(),
        })?;
        Ok(Shared {
            resource: ResourceId(position as u32),
            name: resource.into(),
            value: Arc::new(PiMutex::new(value)),
        })
    }

    /// Holds the resource while `act` uses the value.
    pub fn lock<R>(&self, context: &mut JobContext<'_>, act: impl FnOnce(&mut T) -> R) -> Result<R, SharedError> {
        if !context.uses(self.resource) {
            return Err(SharedError::NotDeclared {
                operation: context.operation().to_owned(),
                resource: self.name.to_string(),
            });
        }
        Ok(context.hold(self.resource, || act(&mut self.value.lock())))
    }

    /// Looks at the value from outside a job, before or after a run.
    pub fn peek<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.value.lock())
    }
}
