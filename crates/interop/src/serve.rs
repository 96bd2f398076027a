//! The server of `peers.idl`: the object, a reference that forwards to it, and a reference without an object.

use std::sync::Arc;

use hyoshi_orb::{Around, Elsewhere, Locator, Orb, Servant as Incarnation};

use crate::peers::{Peer, PeerDelegate, PeerStub};
use crate::servant::{PeerServant, ServerReferences};

/// Forwards every request to the object.
struct Forwarder(Arc<ServerReferences>);

impl Locator for Forwarder {
    fn before(&self, _: &[u8], _: &str) -> Result<Incarnation, Elsewhere> {
        let to = self.0.myself.get().expect("known before the adapter is");
        Err(Elsewhere::Forward(Box::new(to.ior().clone())))
    }
}

/// Serves on an ORB that listens; the object is also known as `corbaloc:...:/Peer`.
///
/// # Errors
///
/// If the ORB serves already.
pub fn serve(orb: &Orb) -> Result<PeerStub, hyoshi_orb::AdapterError> {
    serve_within(orb, ())
}

/// The same; every request to the object runs within `around`.
///
/// # Errors
///
/// If the ORB serves already.
pub fn serve_within(orb: &Orb, around: impl Around + 'static) -> Result<PeerStub, hyoshi_orb::AdapterError> {
    let known = Arc::new(ServerReferences::default());
    let servant = Arc::new(PeerDelegate::new(PeerServant::new(orb.clone(), known.clone()), around));
    let peer = orb.adapter("peers").persistent().build()?.activate_as::<dyn Peer>("Peer", servant)?;
    let set = known.myself.set(peer.clone());
    let forwarding = orb.adapter("forwarding").locator(Forwarder(known.clone())).build()?;
    let more = known.forwarded.set(forwarding.reference::<dyn Peer>("forwarded")?);
    let deserted = orb.adapter("deserted").build()?;
    let most = known.missing.set(deserted.reference::<dyn Peer>("missing")?);
    debug_assert!(set.is_ok() && more.is_ok() && most.is_ok(), "this is where they are set");
    orb.publish("Peer", &peer)?;
    Ok(peer)
}
