//! An empty call, by reading and running thread.

use hyoshi_orb::{Orb, Order, OrderedRequest, OwnedLane};

use crate::tracking::{Tracker, TrackerStub};
use crate::{Server, median, quantile, times};

/// Calls of a round.
const CALLS: usize = 20_000;

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
    let variants = [
        ("an ORB thread", tracker),
        ("an ORB thread, ordered", &threads),
        ("its owner", &owned),
        ("its owner, ordered", &ordered),
    ];
    // Alternating: changes on the machine affect all of them.
    let rounds: Vec<Vec<f64>> = (0..5)
        .map(|_| {
            let p50 =
                |tracker: &TrackerStub| quantile(&mut times(CALLS, || tracker.nothing().expect("it answers")), 50);
            variants.iter().map(|(_, tracker)| p50(tracker) as f64 / 1e3).collect()
        })
        .collect();
    for (at, (name, _)) in variants.iter().enumerate() {
        let p50 = median(rounds.iter().map(|round| round[at]).collect());
        let ratio = median(rounds.iter().map(|round| round[at] / round[0]).collect());
        println!("{:<28} p50 {p50:.1} us   ratio {ratio:.2}", format!("served by {name}"));
    }
}
