//! The links to other hosts, for contracts: what the connections have counted, and the class of their packets.

use std::sync::Weak;

use hyoshi_model::{Dscp, HostId};
use hyoshi_os::TcpCounts;
use hyoshi_runtime::{LinkAccess, LinkReading, SettingRefusal};

use crate::peer::{OtherHost, PeerLink};
use crate::shared::NodeState;

/// Weak: the run, which holds it, is part of the node's state.
pub(crate) struct PeerLinks(pub Weak<NodeState>);

impl LinkAccess for PeerLinks {
    fn counts(&self, host: HostId) -> Option<LinkReading> {
        let shared = self.0.upgrade()?;
        let (_, peer) = shared.peer_at(host)?;
        let is_joined = peer.known.lock().link == PeerLink::Joined;
        if is_joined { peer.link.lock().counts() } else { None }
    }

    fn set_dscp(&self, host: HostId, dscp: Option<Dscp>) -> Result<(), SettingRefusal> {
        let shared = self.0.upgrade().ok_or_else(|| SettingRefusal::last("the node has ended"))?;
        let (at, _) = shared.peer_at(host).ok_or_else(|| SettingRefusal::last("that host has no node"))?;
        if let Some(class) = shared.carried_classes[at].get() {
            class.set(dscp);
            return Ok(());
        }
        // Without it, no completions go there, or only critical ones.
        let Some(dial) = shared.bulk_dials[at].get() else { return Ok(()) };
        let refused = |error| SettingRefusal::for_now(format!("the kernel refused the class: {error}"));
        dial.orb.set_client_dscp(dscp).map_err(refused)
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
