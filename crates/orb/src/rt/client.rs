//! Policies of a client: which connections carry its requests (Real-time CORBA 1.2, sections 5.13 to 5.15).

use hyoshi_os::TcpProperties;
use hyoshi_wire::{SystemException, SystemKind};

use super::{Priority, PriorityBands, RtSettings, current};
use crate::transport::Transport;

/// The connections of a client's requests: of an ORB
/// ([`OrbBuilder::client_policies`](crate::OrbBuilder::client_policies)) or a reference
/// ([`Reference::client_policies`](crate::Reference::client_policies)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientPolicies {
    /// A connection for each band of priorities (`PriorityBandedConnectionPolicy`), to a lane in the band. A reference
    /// without a priority model has one connection nevertheless.
    pub bands: Option<PriorityBands>,
    /// Connections that other references do not use (`PrivateConnectionPolicy`).
    pub private_connection: bool,
    /// The protocols of its requests, the preferred one first (`ClientProtocolPolicy`): if the reference has several
    /// endpoints, those of the first protocol are tried first. Other protocols are not used. Empty: all, Unix sockets
    /// first. A reference that offers TLS is never used over plain TCP by an ORB with
    /// [`tls_client`](crate::OrbBuilder::tls_client).
    pub protocols: Vec<Transport>,
    /// Properties of connections over TCP, also with TLS (`ClientProtocolPolicy`).
    pub tcp: TcpProperties,
}

/// The CORBA priority of the calling thread's requests, changed by the program's transform if it runs a servant.
pub(crate) fn outgoing(settings: &RtSettings) -> Result<Option<Priority>, SystemException> {
    let Some(priority) = current::priority() else { return Ok(None) };
    if !settings.transforms() {
        return Ok(Some(priority));
    }
    match crate::current::object_id() {
        Some(id) => settings.outbound(priority, &id).map(Some),
        None => Ok(Some(priority)),
    }
}

/// INV_POLICY with this minor code.
#[cold]
pub(crate) fn conflict(minor: u32) -> SystemException {
    SystemKind::InvPolicy.not_done(minor)
}
