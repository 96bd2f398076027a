//! A server as its clients see it: an endpoint, and the connections to it.

use std::io;
use std::sync::Arc;

use hyoshi_os::clock::coarse;
use hyoshi_wire::giop::Transmission;
use hyoshi_wire::ior::IorEndpoint;
use hyoshi_wire::{CharSet, Version};

use super::back::WaysBack;
use super::crowd::{Crowd, Guest};
use super::dial::{Common, ConnectionSettings, Dialling, Patience, no_connection};
use super::line::Line;
use super::mux::{BidirOffer, BothWays, Mux};
use super::names;
use super::pool::Pool;
use super::shared_connection::SharedConnection;
use crate::failure::CallFailure;
use crate::stream::MaybeTlsStream;

/// See the module.
#[derive(Debug)]
pub(crate) struct Peer {
    dialling: Dialling,
    sets: Option<Transmission>,
    pub(crate) pool: Pool,
    /// The first carries delayed oneways, asynchronous calls, and calls both ways.
    shared: Box<[SharedConnection]>,
    crowd: Crowd,
    /// Connections that it opened itself.
    pub(super) back: Arc<WaysBack>,
}

/// An endpoint, the code sets that its connections agree upon, and their settings. What characters are there holds for
/// each request on a connection: references with other code sets, or none, need connections of their own.
pub(crate) type PeerKey = (IorEndpoint, Option<Transmission>, ConnectionSettings);

/// The connection of a call.
pub(crate) enum Over<'a> {
    /// A connection of its own.
    Line(Box<Line>),
    /// A shared connection, and the call's place there.
    Mux(Arc<Mux>, Option<Guest<'a>>),
}

impl Peer {
    pub(super) fn new(dialling: Dialling, sets: Option<Transmission>, back: Arc<WaysBack>) -> Self {
        let crowd = Crowd::new(dialling.common.limits.connections);
        let shared = (0..crowd.connections()).map(|_| SharedConnection::new()).collect();
        let pool = Pool::new(dialling.common.limits.connections);
        Peer { dialling, sets, pool, shared, crowd, back }
    }

    pub(super) fn way(&self) -> PeerKey {
        (self.dialling.endpoint.clone(), self.sets, self.dialling.settings.clone())
    }

    /// Its address, for exceptions. `without_plain` if the reference also has plain addresses, which are not used.
    #[cold]
    pub(crate) fn name(&self, without_plain: bool) -> Option<&'static str> {
        names::of(&self.dialling.endpoint, without_plain)
    }

    /// The connection that carries calls both ways, if calls to this peer go over one: one that it opened itself, or,
    /// where that is offered, one to it.
    #[inline]
    pub(crate) fn both_ways(
        &self,
        version: Version,
        chars: CharSet,
        patience: &Patience,
    ) -> Result<Option<Arc<Mux>>, CallFailure> {
        let offers = self.dialling.common.offer.get().is_some();
        if (!self.has_way_back() && !offers) || version < Version::V1_2 {
            return Ok(None);
        }
        match self.back.way(chars) {
            None if offers => self.mux(patience).map(Some),
            way => Ok(way),
        }
    }

    #[inline]
    pub(crate) fn has_way_back(&self) -> bool {
        self.back.is_there()
    }

    /// A connection for a call.
    #[inline]
    pub(crate) fn take(&self, patience: &Patience) -> Result<Over<'_>, CallFailure> {
        if self.crowd.is_crowded() {
            return self.join(patience);
        }
        match self.pool.take() {
            Some(line) => Ok(Over::Line(line)),
            None => self.connect(patience),
        }
    }

    #[cold]
    fn connect(&self, patience: &Patience) -> Result<Over<'_>, CallFailure> {
        let most = self.dialling.common.limits.message;
        let connect = || self.dialling.connect(patience, |stream| Line::new(stream, most));
        match self.pool.add(connect) {
            Some(line) => line.map(Over::Line),
            None => self.join(patience),
        }
    }

    /// The call shares a connection.
    #[cold]
    fn join(&self, patience: &Patience) -> Result<Over<'_>, CallFailure> {
        let guest = self.crowd.join();
        let mux = self.mux_at(guest.at(), patience)?;
        Ok(Over::Mux(mux, Some(guest)))
    }

    /// The first connection that calls share.
    pub(crate) fn mux(&self, patience: &Patience) -> Result<Arc<Mux>, CallFailure> {
        self.mux_at(0, patience)
    }

    fn mux_at(&self, at: usize, patience: &Patience) -> Result<Arc<Mux>, CallFailure> {
        self.shared[at].get(patience, || {
            let link = self.dialling.connect(patience, Ok)?;
            self.start_shared(link).map_err(|error| no_connection(&error))
        })
    }

    fn start_shared(&self, stream: MaybeTlsStream) -> io::Result<Arc<Mux>> {
        let Common { limits, housekeeping, offer, .. } = &*self.dialling.common;
        let Some(BidirOffer { lane, context }) = offer.get() else {
            return Mux::start(stream, limits, housekeeping);
        };
        let calls = |socket, lane| {
            let both = BothWays { lane, offer: Some(context.clone()) };
            Mux::new(socket, Some(both), limits, housekeeping)
        };
        lane.take_in(stream, limits.message, &calls)
    }

    /// The existing shared connections.
    fn open_muxes(&self) -> impl Iterator<Item = Arc<Mux>> {
        self.shared.iter().filter_map(SharedConnection::open)
    }

    /// Closes what was not used for long. Returns whether anything is open.
    pub(super) fn close_idle(&self) -> bool {
        let now = coarse();
        let open = self.pool.retire(now, self.dialling.common.limits.idle);
        self.shared.iter().fold(open, |open, slot| slot.retire(crate::channel::now()) | open)
    }

    /// Sends the oneways that were put off.
    pub(crate) fn flush(&self) {
        self.open_muxes().for_each(|mux| mux.flush());
        self.back.all().iter().for_each(|mux| mux.flush());
    }

    /// The same without waiting. True if some is left.
    pub(super) fn try_flush(&self) -> bool {
        let back = self.back.all();
        back.iter().cloned().chain(self.open_muxes()).fold(false, |left, mux| mux.try_flush() | left)
    }

    /// Closes what calls are waiting on.
    pub(crate) fn abandon(&self) {
        self.pool.abandon();
    }

    /// Closes all that is idle, for good.
    pub(super) fn close(&self) {
        self.pool.close();
        self.shared.iter().for_each(SharedConnection::end);
        self.back.all().iter().for_each(|mux| mux.end());
    }
}
