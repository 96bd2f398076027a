//! Makes the lanes of an ORB: binds their endpoints, and starts their threads.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyoshi_os::{Listener, SocketAddress, TcpProperties};
use hyoshi_wire::ior::IorEndpoint;

use super::OrbError;
use crate::bidir::Claims;
use crate::endpoint::Listening;
use crate::rt::PoolLane;
use crate::server::{Buffer, Lane, LaneOptions, Order};
use crate::shared::Shared;
use crate::tls::TlsServer;

/// The settings that all lanes of an ORB share.
pub(super) struct LaneMaker {
    pub(super) advertised: Option<String>,
    pub(super) tls: Option<TlsServer>,
    /// Of accepted connections.
    pub(super) tcp: TcpProperties,
    pub(super) claims: Option<Claims>,
    pub(super) order: Option<(Arc<dyn Order>, usize)>,
    /// The ORB's first endpoint.
    pub(super) beside: Option<Listening>,
}

/// The place of a lane in a thread pool, and its buffer with room for so many requests, if it has one.
pub(super) struct LaneInPool {
    pub(super) place: PoolLane,
    pub(super) buffer: Option<(Arc<Buffer>, usize)>,
}

/// The bound endpoints of a lane.
#[derive(Default)]
pub(super) struct LanePlaces {
    listeners: Vec<Listener>,
    /// Over TLS.
    secure: Vec<Listener>,
    /// As in references.
    pub(super) endpoints: Vec<IorEndpoint>,
    pub(super) bound: Vec<SocketAddr>,
}

impl LaneMaker {
    pub(super) fn bind(&self, listening: Vec<Listening>) -> Result<LanePlaces, OrbError> {
        let requires = self.tls.as_ref().map_or(0, |tls| tls.options().1);
        let mut places = LanePlaces::default();
        for listening in listening {
            let address = listening.address.clone();
            if listening.secure && self.tls.is_none() {
                return Err(OrbError::NoCertificate(address));
            }
            let listener = Listener::bind_with(&address, &self.tcp);
            let listener = listener.map_err(|error| OrbError::Listen { address, error })?;
            if let SocketAddress::Tcp(address) = listener.address() {
                places.bound.push(*address);
            }
            places.endpoints.push(listening.advertise(listener.address(), self.advertised.as_deref(), requires));
            if listening.secure { places.secure.push(listener) } else { places.listeners.push(listener) }
        }
        Ok(places)
    }

    /// A lane that does not accept clients yet. It has all its threads from the start, or one.
    pub(super) fn make(
        &self,
        shared: &Arc<Shared>,
        options: LaneOptions,
        places: LanePlaces,
        pool: Option<LaneInPool>,
        all_at_once: bool,
    ) -> io::Result<Arc<Lane>> {
        let orb = Arc::downgrade(shared);
        let place = pool.as_ref().map(|pool| pool.place);
        let buffer = pool.and_then(|pool| pool.buffer);
        let order = match &buffer {
            Some((buffer, requests)) => Some((buffer.clone() as Arc<dyn Order>, *requests)),
            None => self.order.clone(),
        };
        let lane = Lane::new(orb, options, places.listeners, &shared.server, self.claims, order, place)?;
        buffer.into_iter().for_each(|(buffer, _)| lane.buffer_requests(buffer));
        let begin = || {
            if self.claims.is_some() {
                lane.carry_both()?;
            }
            lane.start(all_at_once)?;
            self.tls.as_ref().map_or(Ok(()), |tls| lane.secure(places.secure, tls, &shared.server))
        };
        if let Err(error) = begin() {
            lane.stop_accepting();
            lane.close_rest();
            return Err(error);
        }
        Ok(lane)
    }
}
