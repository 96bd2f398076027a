//! Locks of a network namespace: for a device, which processes of all users share.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

use crate::net::{BACKLOG, Credentials, SocketStream};

/// A lock that one process of this network namespace holds, until it is dropped or the process ends: the name of an
/// abstract Unix socket (unix(7)). It needs no privilege, so any process of the namespace can hold any lock.
#[derive(Debug)]
pub struct NamespaceLock(#[allow(dead_code, reason = "it is held, not read")] OwnedFd);

impl NamespaceLock {
    /// Takes the lock of this name. `None` if it is held.
    ///
    /// # Errors
    ///
    /// If there can be no such socket.
    pub fn take(name: &str) -> io::Result<Option<NamespaceLock>> {
        let (socket, address) = unbound(name)?;
        match bind(&socket, &address) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Nothing is accepted: the queue of connections shows the holder to other processes.
        listen(&socket, BACKLOG)?;
        Ok(Some(NamespaceLock(socket)))
    }

    /// The process that holds the lock of this name, if the kernel reports one.
    pub fn holder(name: &str) -> Option<Credentials> {
        let (socket, address) = unbound(name).ok()?;
        connect(&socket, &address).ok()?;
        SocketStream::new(socket, false).credentials()
    }
}

/// A socket that never blocks: the queue of a holder may be full.
fn unbound(name: &str) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((socket, SocketAddrUnix::new_abstract_name(name.as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_has_one_holder_until_it_is_dropped() {
        let name = format!("hyoshi-os-lock-{}", std::process::id());
        assert_eq!(NamespaceLock::holder(&name), None);
        let lock = NamespaceLock::take(&name).unwrap().unwrap();
        assert!(NamespaceLock::take(&name).unwrap().is_none());
        assert_eq!(NamespaceLock::holder(&name), Some(Credentials::own()));
        // Other names are free.
        assert!(NamespaceLock::take(&format!("{name}-1")).unwrap().is_some());
        drop(lock);
        // A child that another test forks may still have a copy.
        while NamespaceLock::take(&name).unwrap().is_none() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_holder_with_a_full_queue_does_not_block() {
        let name = format!("hyoshi-os-full-{}", std::process::id());
        let (socket, address) = unbound(&name).unwrap();
        bind(&socket, &address).unwrap();
        assert_eq!(NamespaceLock::holder(&name), None, "it does not listen");
        listen(&socket, 0).unwrap();
        assert_eq!(NamespaceLock::holder(&name), Some(Credentials::own()));
        while NamespaceLock::holder(&name).is_some() {}
        assert!(NamespaceLock::take(&name).unwrap().is_none());
    }
}
