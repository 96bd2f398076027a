//! Objects with requests that are jobs, the ceilings of their clients, and clients with adapted rates.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use crate::endpoint::Endpoint;
use crate::ids::OperationId;
use crate::time::Span;

/// An object that a program serves: requests to it release jobs of operations.
#[derive(Clone, Debug, PartialEq)]
pub struct ServedObject {
    /// Name in the file; clients find the object by it.
    pub name: String,
    /// The operations whose jobs serve its requests: one that requests release, or the instances of a method, one for
    /// each operation that calls it.
    pub operations: Vec<OperationId>,
    /// Operations of its interface with jobs of other operations, all on one processor.
    pub methods: Vec<(String, Vec<OperationId>)>,
    /// Where clients call it. Objects of different processors share none.
    pub endpoints: Vec<Endpoint>,
    /// True if other machines may call it without encryption.
    pub insecure: bool,
    /// The most requests that are read and not answered.
    pub requests: u32,
    /// The ceilings of its clients. If there are none, the operations' own values are the ceilings; otherwise a client
    /// that is not named has the lowest.
    pub clients: Vec<ClientCeiling>,
}

/// What a client of an object may ask for.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientCeiling {
    /// The client.
    pub client: ClientName,
    /// The highest importance of its requests; `None`: the operation's.
    pub importance: Option<u32>,
    /// Whether its requests may be critical.
    pub critical: bool,
    /// The minimum time between two of its requests, on average; `None` for no limit.
    pub min_interval: Option<Span>,
    /// Requests beyond the ceiling are refused; otherwise they get what is allowed.
    pub refuses: bool,
}

/// The clients of an operation that register with the feedback loop of its processor: the loop sets their rates. They
/// call the object that has the operation, or publish the events that it supplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRates {
    /// The most clients that are registered at a time, at least 1.
    pub most: u16,
    /// The period at the highest rate that a client may have.
    pub shortest: Span,
    /// The period at the lowest rate, which the loop can keep for all clients at once.
    pub longest: Span,
}

/// How an object knows a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientName {
    /// A name in its certificate, over TLS.
    Certificate(String),
    /// Its user, by name or number, over a Unix socket.
    User(String),
    /// Its address, and how many bits of it count.
    Address(IpAddr, u8),
}

impl ServedObject {
    /// All operations with jobs for its requests; one may occur twice.
    pub fn all_operations(&self) -> impl Iterator<Item = OperationId> + '_ {
        let methods = self.methods.iter().flat_map(|(_, operations)| operations);
        self.operations.iter().chain(methods).copied()
    }

    /// Whether the file names users among its clients.
    pub fn has_users(&self) -> bool {
        self.clients.iter().any(|one| matches!(one.client, ClientName::User(_)))
    }

    /// The operations that serve one of its interface.
    pub fn serving(&self, idl: &str) -> &[OperationId] {
        self.methods.iter().find(|(name, _)| name == idl).map_or(&self.operations, |(_, operations)| operations)
    }
}

impl ClientName {
    /// A network by its address and bits: `10.0.0.0/8`; without bits, one address.
    pub fn address(text: &str) -> Option<ClientName> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(most), |bits| bits.parse().ok())?;
        (bits <= most).then_some(ClientName::Address(address, bits))
    }

    /// Whether an address is in the network.
    pub fn has_address(&self, address: IpAddr) -> bool {
        let octets = |address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32u8),
            IpAddr::V6(address) => (u128::from(address), 128),
        };
        let ClientName::Address(network, bits) = self else { return false };
        let ((network, width), (address, other)) = (octets(*network), octets(address));
        // The shift by all bits compares nothing: every address is in a network of 0 bits.
        let differing = (network ^ address).checked_shr(128 - u32::from(*bits)).unwrap_or(0);
        width == other && differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_like_it() {
        let has =
            |network: &str, address: &str| ClientName::address(network).unwrap().has_address(address.parse().unwrap());
        assert!(has("10.0.0.0/8", "10.2.3.4") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.4"));
        assert!(has("10.0.0.0/8", "::ffff:10.1.1.1"), "an IPv4 address within an IPv6 one");
        assert!(has("fd00::/8", "fd12::1") && !has("fd00::/8", "fe80::1") && !has("0.0.0.0/0", "::1"));
        assert!(has("0.0.0.0/0", "203.0.113.9") && has("::/0", "fd00::1"));
        assert_eq!(ClientName::address("10.0.0.0/33"), None);
        assert_eq!(ClientName::address("ten"), None);
    }
}
