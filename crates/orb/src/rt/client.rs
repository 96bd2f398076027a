//! Policies of a client: which connections carry its requests (Real-time CORBA 1.2, sections 5.13 to 5.15).

use hyoshi_os::{Dscp, TcpProperties};
use hyoshi_wire::{SystemException, SystemKind};

use super::{Priority, PriorityBands, PriorityModel, RtSettings, current};
use crate::transport::Transport;

/// The connections of a client's requests, and how it waits for them: of an ORB
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
    /// The DSCP of packets over TCP. `None`: the DSCP of the request's priority
    /// ([`OrbBuilder::network_priority`](crate::OrbBuilder::network_priority)).
    pub dscp: Option<Dscp>,
    /// What a call of a oneway does without room for its request.
    pub oneway_overflow: OnewayOverflow,
}

/// What a call of a oneway does if the server does not read, and unsent requests fill the socket. It applies to the
/// scopes [`None`](crate::SyncScope::None) and [`Transport`](crate::SyncScope::Transport); other calls wait.
///
/// With `Drop` and `Transient` oneways to an endpoint share a connection, and calls do not wait, except to connect.
/// Requests that the socket does not accept wait in memory, up to
/// [`ClientLimits::backlog`](crate::ClientLimits::backlog) and one request more. A request is sent whole or not at
/// all. If the connection ends, those in memory are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnewayOverflow {
    /// It waits for room, up to its timeout.
    #[default]
    Wait,
    /// The request is dropped and counted ([`RtOrb::dropped_oneways`](super::RtOrb::dropped_oneways)).
    Drop,
    /// It raises `TRANSIENT` with the minor code [`BACKLOG`](crate::minor::BACKLOG): not carried out.
    Transient,
}

/// The policies of a reference's requests ([`Reference::effective_policies`](crate::Reference::effective_policies)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EffectivePolicies {
    /// The priority model that the reference shows.
    pub model: Option<PriorityModel>,
    /// The client's policies, with the bands of the reference if only that has some. Without a model there are no
    /// bands.
    pub client: ClientPolicies,
    /// Policies that contradict each other for requests of the calling thread, which raise `INV_POLICY`.
    pub conflicts: Vec<PolicyKind>,
}

/// A kind of policy of a reference and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// The priority model, and with it the priorities of lanes.
    PriorityModel,
    /// The priority bands.
    PriorityBands,
    /// The client's protocols.
    Protocols,
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
