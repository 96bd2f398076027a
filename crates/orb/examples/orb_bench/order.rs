//! An empty call, by reading and running thread.

use hyoshi_orb::{Orb, Order, OrderedRequest, OwnedLane};

use crate::tracking::{Tracker, TrackerStub};
use crate::{Server, compare};

/// Runs each request at once, on the thread that read it.
pub struct AtOnce;

impl Order for AtOnce {
    fn arrived(&self, _: u32, request: OrderedRequest) {
        request.run();
    }
}

/// Serves a lane until its ORB ends.
pub fn serve(lane: &OwnedLane) {
    loop {
        lane.wait(None);
        lane.turn();
    }
}

pub fn order(server: &Server, client: &Orb, tracker: &TrackerStub) {
    let stub = |ior: &str| client.resolve::<dyn Tracker>(ior).expect("the server answers");
    let (threads, owned, ordered) = (stub(&server.threads), stub(&server.owned), stub(&server.ordered));
    compare(&[
        ("an ORB thread", tracker),
        ("an ORB thread, ordered", &threads),
        ("its owner", &owned),
        ("its owner, ordered", &ordered),
    ]);
}
