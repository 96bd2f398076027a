//! The reasons why a device has no classes.

use std::fmt;
use std::io;

use crate::claim::CLAIMS;
use crate::plan::HANDLE;

/// The reason why a device has no classes.
#[derive(Debug)]
#[non_exhaustive]
pub enum NetworkError {
    /// The network namespace has no device of that name.
    NoDevice {
        /// The name.
        device: String,
    },
    /// Another program or a user has set a queueing discipline.
    Occupied {
        /// The device.
        device: String,
        /// The discipline with its number, as `tc` prints it.
        found: String,
    },
    /// Another process of the network namespace has claimed the device.
    InUse {
        /// The device.
        device: String,
        /// The process, if it is known and visible.
        pid: Option<u32>,
        /// Its user, if known.
        user: Option<String>,
    },
    /// The process lacks CAP_NET_ADMIN in the network namespace.
    NotPermitted {
        /// The device.
        device: String,
    },
    /// The kernel lacks a feature.
    Unsupported {
        /// The device.
        device: String,
        /// The module.
        module: &'static str,
    },
    /// The rates in the kernel differ from the plan, or a class is missing.
    NotAsPlanned {
        /// The device.
        device: String,
    },
    /// Another error.
    Kernel {
        /// The device.
        device: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl fmt::Display for NetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NetworkError::NoDevice { device } => write!(f, "no network device `{device}`"),
            NetworkError::Occupied { device, found } => {
                write!(f, "device `{device}` has a queueing discipline of another program: {found}")
            }
            NetworkError::InUse { device, pid, user } => {
                let process = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
                let of_user = user.as_ref().map(|user| format!(" of user {user}")).unwrap_or_default();
                write!(f, "device `{device}` is in use by {process}{of_user}")
            }
            NetworkError::NotPermitted { device } => {
                write!(f, "no permission to set classes on device `{device}` (CAP_NET_ADMIN)")
            }
            NetworkError::Unsupported { device, module } => {
                write!(f, "cannot set classes on device `{device}`: this kernel has no {module}")
            }
            NetworkError::NotAsPlanned { device } => {
                write!(f, "the kernel changed the rates of the classes on device `{device}`")
            }
            NetworkError::Kernel { device, step, error } => write!(f, "cannot {step} on device `{device}`: {error}"),
        }
    }
}

impl std::error::Error for NetworkError {}

impl NetworkError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            NetworkError::NoDevice { .. } => "write a name that `ip link` prints".to_owned(),
            NetworkError::Occupied { device, .. } => {
                format!("if no program needs it: tc qdisc del dev {device} root")
            }
            NetworkError::InUse { pid: Some(_), .. } => "stop this process, or use another device".to_owned(),
            NetworkError::InUse { pid: None, .. } => {
                format!("stop the process that `ss -xap | grep {CLAIMS}` prints, or use another device")
            }
            NetworkError::NotPermitted { .. } => {
                "run as root, or grant it: setcap cap_net_admin+ep on the program".to_owned()
            }
            NetworkError::Unsupported { module, .. } => {
                format!("load it: modprobe {module}; or use a kernel that has it")
            }
            NetworkError::NotAsPlanned { .. } => "report this with the output of `uname -r`".to_owned(),
            NetworkError::Kernel { device, .. } => {
                format!("see `tc qdisc show dev {device}`; Hyoshi's classes have the number {HANDLE:x}:")
            }
        }
    }
}
