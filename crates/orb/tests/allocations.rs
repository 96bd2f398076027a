//! A call of fixed size allocates nothing once it is under way at the client; collocated ones neither.

use crate::tracking;

use std::sync::Arc;

use hyoshi_orb::rt::{CallTiming, Priority, PriorityModel, with_timing};
use hyoshi_orb::{Orb, SyncScope};
use tracking::*;

fn both() -> (Orb, Orb, TrackerStub) {
    let server = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    server.ready();
    let tracker = server.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let client = Orb::client().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&tracker.ior().to_string()).unwrap();
    (server, client, tracker)
}

#[test]
fn a_client_that_calls_allocates_nothing() {
    let (server, client, tracker) = both();
    tracker.locate(1).unwrap();
    with_timing(CallTiming::default(), || tracker.nothing()).unwrap();
    let propagated = server.adapter("p").priority_model(PriorityModel::ClientPropagated { default: Priority::MIN });
    let propagated = propagated.build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let propagated = client.resolve::<dyn Tracker>(&propagated.ior().to_string()).unwrap();
    propagated.nothing().unwrap();
    let oneways = tracker.oneways(SyncScope::Transport);
    let counted = allocation_counter::measure(|| {
        for id in 0..50 {
            tracker.locate(id).unwrap();
            tracker.nothing().unwrap();
            propagated.nothing().unwrap();
            with_timing(CallTiming::default(), || tracker.nothing()).unwrap();
        }
        oneways.hint("", &[1, 2, 3]).unwrap();
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_collocated_call_allocates_nothing() {
    let orb = Orb::client().unwrap();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    tracker.locate(1).unwrap(); // the thread's first makes room to remember which object it is in
    let counted = allocation_counter::measure(|| {
        (0..10).for_each(|_| assert!(tracker.locate(1).is_ok()));
    });
    assert_eq!(counted.count_total, 0);
}
