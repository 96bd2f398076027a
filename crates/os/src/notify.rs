//! Reports a service's state to the service manager (sd_notify(3)): a datagram to the socket in the environment. A
//! process started by hand has none, and reports nothing.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use hyoshi_model::Span;

use crate::environment::{secure_var, secure_var_os};

/// The receiver of messages.
#[derive(Debug, Default)]
pub struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// The manager assumes that a service hangs if it is silent for this long.
    watchdog: Option<Span>,
}

impl Notifier {
    /// No receiver.
    pub fn none() -> Notifier {
        Notifier::default()
    }

    /// The manager that started this process, if it wants reports (`NOTIFY_SOCKET`; `WATCHDOG_USEC`, if it is for this
    /// process).
    ///
    /// # Errors
    ///
    /// If the address is invalid.
    pub fn of_environment() -> io::Result<Notifier> {
        let Some(name) = secure_var_os("NOTIFY_SOCKET") else { return Ok(Notifier::none()) };
        let number = |name| secure_var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|micros| ours && *micros > 0).map(Span::from_micros);
        Ok(Notifier { watchdog, ..Notifier::to(name.as_encoded_bytes())? })
    }

    /// A socket: a path, or, after `@`, a name of the abstract kind (unix(7)).
    fn to(name: &[u8]) -> io::Result<Notifier> {
        let address = match name {
            [b'/', ..] => SocketAddr::from_pathname(std::str::from_utf8(name).map_err(io::Error::other)?)?,
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => return Err(io::Error::other("NOTIFY_SOCKET is neither a path nor an abstract name")),
        };
        let socket = UnixDatagram::unbound()?;
        // A manager that does not read must not block the service.
        socket.set_nonblocking(true)?;
        Ok(Notifier { to: Some((socket, address)), watchdog: None })
    }

    /// The service is ready. `status` is one line of text for users.
    ///
    /// # Errors
    ///
    /// If the manager cannot be reached.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.send(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")))
    }

    /// The interval at which to call [`Notifier::alive`]; none if no manager watches.
    pub fn watched(&self) -> Option<Span> {
        // Half of it, as sd_watchdog_enabled(3) recommends.
        self.watchdog.map(|span| Span::from_nanos(span.as_nanos() / 2))
    }

    /// The service is alive. A failure to report it is for the manager to detect.
    pub fn alive(&self) {
        let _ = self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) -> io::Result<()> {
        let Some((socket, address)) = &self.to else { return Ok(()) };
        socket.send_to_addr(message.as_bytes(), address).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_at_a_path_and_at_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("hyoshi-os-notify-{}", std::process::id()));
        let name = format!("hyoshi-os-notify-{}", std::process::id());
        let both = [
            (UnixDatagram::bind(&path).unwrap(), path.display().to_string()),
            (UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(), format!("@{name}")),
        ];
        for (manager, address) in both {
            let notifier = Notifier::to(address.as_bytes()).unwrap();
            notifier.ready("serves\nat /run").unwrap();
            let mut message = [0; 64];
            let length = manager.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1\nSTATUS=serves at /run");
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn without_a_service_manager_no_report_is_sent_and_a_bad_address_is_an_error() {
        Notifier::none().ready("alone").unwrap();
        assert!(Notifier::to(b"here").is_err() && Notifier::to(b"").is_err());
    }
}
