//! A device belongs to one process at a time: two would remove each other's classes.
//!
//! Each device of a network namespace has a claim there, for processes of all users. Without it no process changes the
//! device. A process without privileges can hold a claim, too: then no run divides the device, and nothing changes.

use std::thread;
use std::time::{Duration, Instant};

use hyoshi_os::{NamespaceLock, users};

use crate::error::NetworkError;

/// How long the guard of a killed run may need to remove its classes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Claims have this name, and the number of their device.
pub(crate) const CLAIMS: &str = "hyoshi-network-";

/// The claim of a device, until it is dropped.
#[derive(Debug)]
pub(crate) struct DeviceClaim(#[allow(dead_code, reason = "it is held, not read")] NamespaceLock);

impl DeviceClaim {
    /// Claims a device of this network namespace, by its number.
    pub fn take(device: &str, index: i32) -> Result<DeviceClaim, NetworkError> {
        let name = format!("{CLAIMS}{index}");
        let until = Instant::now() + PATIENCE;
        loop {
            match NamespaceLock::take(&name) {
                Ok(Some(lock)) => return Ok(DeviceClaim(lock)),
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                Ok(None) => break,
                Err(error) => {
                    return Err(NetworkError::Kernel { device: device.to_owned(), step: "set a claim", error });
                }
            }
        }
        let holder = NamespaceLock::holder(&name);
        // A process of another PID namespace has no number here.
        let pid = holder.as_ref().map(|holder| holder.pid).filter(|pid| *pid != 0);
        let user = holder.map(|holder| users::name_of(holder.uid));
        Err(NetworkError::InUse { device: device.to_owned(), pid, user })
    }
}
