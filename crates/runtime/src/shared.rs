//! The value of a declared resource.

use std::fmt;
use std::sync::Arc;

use hyoshi_model::{ResourceId, System};
use hyoshi_os::PiMutex;

use crate::context::JobContext;

/// The value of a `[resource.NAME]`, for the bodies of operations that declare it under `uses`.
///
/// A job that holds it runs at the level of the resource's most urgent user on its processor (immediate priority
/// ceiling). So no other user starts, and no job in between delays it. Users on other CPUs wait with priority
/// inheritance. `check` counts the declared span as blocking: a longer hold invalidates the analysis.
///
/// A job holds one resource at a time, as in the file: meanwhile the body's context is borrowed.
///
/// Clones share one value: move one into each body.
#[derive(Debug)]
pub struct SharedValue<T> {
    resource: ResourceId,
    name: Arc<str>,
    value: Arc<PiMutex<T>>,
}

impl<T> Clone for SharedValue<T> {
    fn clone(&self) -> Self {
        SharedValue { resource: self.resource, name: self.name.clone(), value: self.value.clone() }
    }
}

/// The reason why a value is not available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedError {
    /// The system has no resource of that name.
    Unknown {
        /// The name.
        resource: String,
        /// The system's resources.
        known: Vec<String>,
    },
    /// The operation does not declare the resource, so no analysis includes its use.
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
                write!(f, "unknown resource `{resource}`; known: {}", known.join(", "))
            }
            SharedError::NotDeclared { operation, resource } => write!(
                f,
                "operation `{operation}` does not declare resource `{resource}`: add uses = {{ {resource} = \"...\" \
                 }} with its longest holding time"
            ),
        }
    }
}

impl std::error::Error for SharedError {}

impl<T> SharedValue<T> {
    /// Creates the value of a resource of `system`.
    pub fn new(system: &System, resource: &str, value: T) -> Result<Self, SharedError> {
        let position = system.resources.iter().position(|declared| declared.name == resource);
        let position = position.ok_or_else(|| SharedError::Unknown {
            resource: resource.to_owned(),
            known: system.resources.iter().map(|declared| declared.name.clone()).collect(),
        })?;
        Ok(SharedValue {
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

    /// Accesses the value outside a job, before or after a run.
    pub fn peek<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.value.lock())
    }
}
