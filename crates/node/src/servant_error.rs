//! Errors of the objects and proxies of a file.

use std::fmt;

/// The reason why a program cannot serve the objects of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServantError {
    /// The file has no such object.
    Unknown {
        /// Its name.
        object: String,
        /// Those that the file has.
        known: Vec<String>,
    },
    /// The file names an operation for its delegate that its interface does not have.
    NoOperation {
        /// The name of the delegate.
        delegate: String,
        /// The operation.
        operation: String,
        /// Those of the interface.
        known: Vec<String>,
    },
    /// The proxy of a delegate cannot start.
    Proxy {
        /// The name of the delegate.
        delegate: String,
        /// Its endpoint.
        at: String,
        /// The reason, and a remedy.
        why: String,
    },
    /// A reference of a delegate is wrong.
    Reference {
        /// The name of the delegate.
        delegate: String,
        /// `to` or `redirect`.
        key: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The program has two servants for it.
    Twice {
        /// Its name.
        object: String,
    },
}

impl fmt::Display for ServantError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServantError::Unknown { object, known } if known.is_empty() => {
                write!(
                    f,
                    "the program has a servant for object `{object}`, but the file has no objects: add [object.{object}]"
                )
            }
            ServantError::Unknown { object, known } => {
                let known = known.join(", ");
                write!(
                    f,
                    "the program has a servant for object `{object}`, but the file has no such object; it has {known}"
                )
            }
            ServantError::NoOperation { delegate, operation, known } => {
                let known = known.join(", ");
                write!(
                    f,
                    "delegate `{delegate}` has a behaviour for `{operation}`, but the interface of its object has no such operation; it has {known}"
                )
            }
            ServantError::Proxy { delegate, at, why } => {
                write!(f, "the proxy of delegate `{delegate}` at {at} cannot start: {why}")
            }
            ServantError::Reference { delegate, key, why } => write!(
                f,
                "`{key}` of delegate `{delegate}` is not a reference: {why}; write IOR:... or corbaloc::HOST:PORT/KEY"
            ),
            ServantError::Twice { object } => write!(f, "the program has two servants for object `{object}`"),
        }
    }
}

impl std::error::Error for ServantError {}
