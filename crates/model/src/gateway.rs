//! The gateway of a host: a session of Zenoh by which programs outside the system read and publish events.

use alloc::{string::String, vec::Vec};

use crate::endpoint::Endpoint;

/// A gateway, with at least one endpoint and one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Its part in the network of Zenoh.
    pub mode: GatewayMode,
    /// Where programs and routers connect to it, each `tcp/` or `tls/`. None for a client.
    pub listen: Vec<Endpoint>,
    /// The programs and routers to which it connects, each `tcp/` or `tls/`.
    pub connect: Vec<Endpoint>,
    /// The events that programs read, by their positions, in order. Each has a supplier on this host.
    pub events: Vec<u32>,
    /// The events that programs publish, by their positions, in order. Each has a supplier on this host that is released
    /// by requests. No event is published by two gateways.
    pub publish: Vec<u32>,
    /// The common names of the certificates that may read; `None`: all. If there are any, all endpoints are `tls/`.
    pub readers: Option<Vec<String>>,
    /// The same for publishing.
    pub publishers: Option<Vec<String>>,
}

impl Gateway {
    /// Whether it needs a certificate.
    pub fn uses_tls(&self) -> bool {
        self.listen.iter().chain(&self.connect).any(|endpoint| matches!(endpoint, Endpoint::Tls(_)))
    }
}

/// The part of a gateway in the network of Zenoh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GatewayMode {
    /// It forwards nothing between programs.
    #[default]
    Peer,
    /// It has one connection, to the first router that it reaches.
    Client,
    /// It forwards between programs, too.
    Router,
}

impl GatewayMode {
    /// The name in the file, and in Zenoh.
    pub fn name(self) -> &'static str {
        match self {
            GatewayMode::Peer => "peer",
            GatewayMode::Client => "client",
            GatewayMode::Router => "router",
        }
    }
}
