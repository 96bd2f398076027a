//! What counts as one client when connections are shared out.

use super::handshakes::ClientNetwork;
use crate::stream::MaybeTlsStream;

/// Where a client is: a program can choose neither its user nor, over TCP, many of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ClientSource {
    Network(ClientNetwork),
    User(u32),
}

impl ClientSource {
    pub(super) fn of(link: &MaybeTlsStream) -> ClientSource {
        let user = || ClientSource::User(link.credentials().map_or(u32::MAX, |client| client.uid));
        link.addresses().0.map_or_else(user, |address| ClientSource::Network(ClientNetwork::of(address.ip())))
    }
}
