//! The links to other hosts, for contracts: what the connections have counted.

use std::sync::Weak;

use hyoshi_model::HostId;
use hyoshi_os::TcpCounts;
use hyoshi_runtime::{LinkAccess, LinkCounts};

use crate::peer::{OtherHost, PeerLink};
use crate::shared::NodeState;

/// Weak: the run, which holds it, is part of the node's state.
pub(crate) struct PeerLinks(pub Weak<NodeState>);

impl LinkAccess for PeerLinks {
    fn counts(&self, host: HostId) -> Option<LinkCounts> {
        let shared = self.0.upgrade()?;
        let (_, peer) = shared.peer_at(host)?;
        let is_joined = peer.known.lock().link == PeerLink::Joined;
        if is_joined { peer.link.lock().counts() } else { None }
    }
}

impl NodeState {
    /// What the kernel has counted of the TCP connections that were opened to a peer.
    pub fn tcp_counts(&self, at: usize) -> TcpCounts {
        let dials = [&self.dials[at], &self.bulk_dials[at]];
        let counts = dials.into_iter().filter_map(|dial| dial.get()).map(|dial| dial.orb.tcp_counts());
        counts.fold(TcpCounts::default(), |sum, one| sum + one)
    }

    /// The peer of a host.
    pub fn peer_at(&self, host: HostId) -> Option<(usize, &OtherHost)> {
        self.peers.iter().enumerate().find(|(_, peer)| peer.host == host)
    }
}
