//! The priority that a client may claim, by its identity. The standard has no such limit: every client may claim the
//! highest priority.

use std::net::IpAddr;

use super::Priority;
use crate::tls::certificate_names;

/// What happens to a request above its client's ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AboveCeiling {
    /// It runs at the ceiling. A client can still occupy the threads of a higher lane, because it chooses the endpoint.
    Clamp,
    /// It gets NO_PERMISSION, as does each request on a lane above both the ceiling and the default priority.
    Refuse,
}

/// The highest priority that each client may claim. Of several entries for one client the highest counts. Clients without
/// an entry have the lowest priority: that of the adapter's lowest lane, or of the mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityCeilings {
    pub(crate) above: AboveCeiling,
    certificates: Vec<(String, Priority)>,
    users: Vec<(u32, Priority)>,
    addresses: Vec<(IpAddr, Priority)>,
}

impl PriorityCeilings {
    /// Without entries.
    pub fn new(above: AboveCeiling) -> Self {
        PriorityCeilings { above, certificates: Vec::new(), users: Vec::new(), addresses: Vec::new() }
    }

    /// The ceiling of clients over TLS whose certificate has this name
    /// ([`certificate_names`](crate::certificate_names)).
    #[must_use]
    pub fn certificate(mut self, name: &str, ceiling: Priority) -> Self {
        self.certificates.push((name.to_owned(), ceiling));
        self
    }

    /// The ceiling of clients of this user, over a Unix socket.
    #[must_use]
    pub fn user(mut self, uid: u32, ceiling: Priority) -> Self {
        self.users.push((uid, ceiling));
        self
    }

    /// The ceiling of clients at this address, over TCP and TLS. Calls of the server's own program between lanes come
    /// from an address of this machine, too.
    #[must_use]
    pub fn address(mut self, address: IpAddr, ceiling: Priority) -> Self {
        self.addresses.push((address.to_canonical(), ceiling));
        self
    }

    /// The ceiling of a client; `None` if it has no entry.
    pub(crate) fn of(
        &self,
        certificate: Option<&[u8]>,
        user: Option<u32>,
        address: Option<IpAddr>,
    ) -> Option<Priority> {
        let names = certificate.and_then(|der| certificate_names(der).ok()).unwrap_or_default();
        let address = address.map(|address| address.to_canonical());
        let certificates =
            self.certificates.iter().filter(|(name, _)| names.contains(name)).map(|(_, ceiling)| *ceiling);
        let users = self.users.iter().filter(|(uid, _)| Some(*uid) == user).map(|(_, ceiling)| *ceiling);
        let addresses = self.addresses.iter().filter(|(at, _)| Some(*at) == address).map(|(_, ceiling)| *ceiling);
        certificates.chain(users).chain(addresses).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_entry_of_a_client_counts_and_a_stranger_has_none() {
        let priority = |number| Priority::new(number).unwrap();
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let ceilings = PriorityCeilings::new(AboveCeiling::Clamp)
            .user(1000, priority(5))
            .user(1000, priority(9))
            .address("::ffff:127.0.0.1".parse().unwrap(), priority(7));
        assert_eq!(ceilings.of(None, Some(1000), None), Some(priority(9)));
        assert_eq!(ceilings.of(None, None, Some(here)), Some(priority(7)));
        assert_eq!(ceilings.of(Some(b"no certificate"), Some(0), Some("10.0.0.1".parse().unwrap())), None);
    }
}
