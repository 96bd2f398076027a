//! Errors of requests to the broker, each with a remedy.

use std::fmt;

use hyoshi_os::cgroup::NoGroup;
use hyoshi_os::process::NoProcess;

use crate::idl::cpu_broker::{NoSuchTask, NotAllowed, Refused};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The broker cannot do it.
    Refused {
        /// The error.
        message: String,
        /// The remedy.
        remedy: String,
    },
    /// The caller lacks the right.
    NotAllowed {
        /// The error.
        message: String,
        /// The remedy.
        remedy: String,
    },
    /// There is no task of that name.
    NoSuchTask {
        /// The requested name.
        name: String,
        /// The most similar name; empty if there is none.
        nearest: String,
    },
}

impl RequestError {
    /// A refusal.
    pub fn refused(message: impl fmt::Display, remedy: impl fmt::Display) -> RequestError {
        RequestError::Refused { message: message.to_string(), remedy: remedy.to_string() }
    }

    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            RequestError::Refused { remedy, .. } | RequestError::NotAllowed { remedy, .. } => remedy.clone(),
            RequestError::NoSuchTask { nearest, .. } if nearest.is_empty() => {
                "`hyoshi broker list` shows all tasks; a task ends with its processes".to_owned()
            }
            RequestError::NoSuchTask { nearest, .. } => format!("did you mean `{nearest}`?"),
        }
    }

    /// Converts to the exception of an operation that raises all three.
    pub(crate) fn raise<E: From<Refused> + From<NotAllowed> + From<NoSuchTask>>(self) -> E {
        match self {
            RequestError::Refused { message, remedy } => Refused { message, remedy }.into(),
            RequestError::NotAllowed { message, remedy } => NotAllowed { message, remedy }.into(),
            RequestError::NoSuchTask { name, nearest } => NoSuchTask { name, nearest }.into(),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Refused { message, .. } | RequestError::NotAllowed { message, .. } => f.write_str(message),
            RequestError::NoSuchTask { name, .. } => write!(f, "there is no task `{name}`"),
        }
    }
}

impl std::error::Error for RequestError {}

/// The printable start of a client's text.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut shown = hyoshi_model::printable(&text.chars().take(MOST).collect::<String>());
    if text.chars().nth(MOST).is_some() {
        shown.push('…');
    }
    shown
}

impl From<NoGroup> for RequestError {
    fn from(error: NoGroup) -> Self {
        let remedy = error.remedy();
        RequestError::refused(error, remedy)
    }
}

impl From<NoProcess> for RequestError {
    fn from(error: NoProcess) -> Self {
        let remedy = match &error {
            NoProcess::Gone(_) | NoProcess::Reused(_) => "name a running process, or start one with `hyoshi exec`",
            NoProcess::Kernel(..) => "name the process of a program",
            NoProcess::Unreadable(..) => "run the broker as root, or as that process's user",
        };
        RequestError::refused(error, remedy)
    }
}
