//! Whether two connections belong to the same client.

use std::sync::Arc;

use hyoshi_wire::ior::IorEndpoint;

use super::points::{Announcer, is_way_back};
use crate::stream::MaybeTlsStream;

/// The best that is known of the other end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PeerIdentity {
    /// The owner of this certificate's key.
    Certificate(Arc<[u8]>),
    /// A process of this machine, as the kernel reports it.
    Process { pid: u32, uid: u32 },
    /// Any process there.
    Machine(Announcer),
}

impl PeerIdentity {
    pub(crate) fn of(stream: &MaybeTlsStream, from: Announcer) -> PeerIdentity {
        match (stream.certificate(), stream.credentials()) {
            (Some(certificate), _) => PeerIdentity::Certificate(certificate.clone()),
            // Process 0 is any that cannot be seen from here.
            (None, Some(it)) if it.pid != 0 => PeerIdentity::Process { pid: it.pid, uid: it.uid },
            _ => PeerIdentity::Machine(from),
        }
    }

    /// The identity that connections need to share an address. All processes of a machine may announce its address, but
    /// only one process its generated name.
    pub(crate) fn for_address(&self, endpoint: &IorEndpoint) -> Option<PeerIdentity> {
        let made_up = match endpoint {
            IorEndpoint::Tcp { host, .. } | IorEndpoint::Tls { host, .. } => is_way_back(host),
            IorEndpoint::Unix { .. } => false,
        };
        (!made_up || !matches!(self, PeerIdentity::Machine(_))).then(|| self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_made_up_is_shared_by_those_only_that_show_who_they_are() {
        let tcp = |host: &str| IorEndpoint::Tcp { host: host.to_owned(), port: 1, priority: None };
        let (own, made_up) = (tcp("10.0.0.7"), super::super::way_back(7));
        let machine = PeerIdentity::Machine(Announcer::There("10.0.0.7".parse().unwrap()));
        assert_eq!(machine.for_address(&own), Some(machine.clone()));
        assert_eq!(machine.for_address(&made_up), None);
        for shown in [PeerIdentity::Process { pid: 7, uid: 8 }, PeerIdentity::Certificate([9][..].into())] {
            assert_eq!(shown.for_address(&own), Some(shown.clone()));
            assert_eq!(shown.for_address(&made_up), Some(shown.clone()));
        }
    }
}
