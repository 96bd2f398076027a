//! What counts as one client when connections and places for requests are shared out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::handshakes::ClientNetwork;
use crate::stream::MaybeTlsStream;
use crate::tls::certificate_names;

/// Where a client is. A program cannot choose its user, and over TCP it has few addresses. Of this machine it has 127/8,
/// which is one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ClientSource {
    /// Over TLS with a certificate: a hash of the names in it.
    Certificate(u64),
    Network(ClientNetwork),
    User(u32),
}

impl ClientSource {
    pub(crate) fn of(link: &MaybeTlsStream) -> ClientSource {
        let names = link.certificate().and_then(|der| certificate_names(der).ok());
        if let Some(names) = names.filter(|names| !names.is_empty()) {
            let mut hasher = DefaultHasher::new();
            names.hash(&mut hasher);
            return ClientSource::Certificate(hasher.finish());
        }
        let user = || ClientSource::User(link.credentials().map_or(u32::MAX, |client| client.uid));
        let network = |address: SocketAddr| {
            let own = |address: IpAddr| address.is_loopback() && address.is_ipv4();
            let address = Some(address.ip().to_canonical()).filter(|address| !own(*address));
            ClientSource::Network(ClientNetwork::of(address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))))
        };
        link.addresses().0.map_or_else(user, network)
    }
}
