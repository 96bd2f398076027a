//! Events that leave a run through its feed, and publications through the inputs of suppliers.

use std::sync::{Arc, Mutex};

use hyoshi_model::{OperationId, Span, System};
use hyoshi_runtime::{EventFeed, EventInput, JobContext, Node, Rejected, RunningNode, SuppliedEvent};

use crate::common::{plan, system, undisturbed::undisturbed};

const CHANNEL: &str = r#"
    duration = "60s"
    [event."sensor/gps"]
    payload = "8B"
    [operation.gps]
    called       = true
    deadline     = "10ms"
    wcet         = "0.1ms"
    supplies     = ["sensor/gps"]
    queue        = { limit = 2 }
    [operation.fuse]
    after = { event = "sensor/gps" }
    wcet  = "0.5ms"
    queue = { limit = 100 }
"#;

/// The payloads that `fuse` received.
type Received = Arc<Mutex<Vec<Vec<u8>>>>;

fn start(with_body: bool) -> (Arc<System>, RunningNode, EventFeed, EventInput, Received) {
    let system = system(CHANNEL);
    let received = Received::default();
    let sink = received.clone();
    let mut node = Node::new(system.clone(), plan(&system)).body("fuse", move |job: &mut JobContext<'_>| {
        sink.lock().unwrap().push(job.payload().unwrap_or_default().to_vec());
    });
    if with_body {
        node = node.body("gps", |job: &mut JobContext<'_>| {
            let reversed: Vec<u8> = job.payload().unwrap_or_default().iter().rev().copied().collect();
            job.emit(&reversed).unwrap();
        });
    }
    let mut prepared = node.prepare().unwrap();
    let (feed, mut inputs) = prepared.take_events().unwrap();
    assert!(prepared.take_events().is_none());
    let mut input = inputs.remove(0);
    assert_eq!(input.publish(b"early", None), Err(Rejected::Idle), "the run has not begun");
    (system, prepared.start(), feed, input, received)
}

/// Publishes once the run has begun, and a place is free.
fn publish(input: &mut EventInput, payload: &[u8]) {
    loop {
        match input.publish(payload, None) {
            Ok(()) => return,
            Err(Rejected::Idle | Rejected::Full) => std::thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

/// Receives events until there are `count`.
fn take(feed: &mut EventFeed, count: usize) -> Vec<SuppliedEvent> {
    let mut events = Vec::new();
    while events.len() < count {
        feed.wait(Span::from_secs(10));
        feed.take(|event| events.push(event));
    }
    events
}

fn gps(system: &System) -> OperationId {
    system.events[0].suppliers[0]
}

#[test]
fn a_publication_releases_its_supplier_and_its_payload_reaches_consumers_and_the_feed() {
    for with_body in [false, true] {
        let (system, running, mut feed, mut input, received) = start(with_body);
        let control = feed.control();
        control.want(gps(&system), true);
        let mut expected = Vec::new();
        for number in 0..20u8 {
            publish(&mut input, &[number, 7]);
            let [event] = &take(&mut feed, 1)[..] else { panic!() };
            expected.push(if with_body { vec![7, number] } else { vec![number, 7] });
            assert_eq!((event.payload(), event.number), (&expected[usize::from(number)][..], u64::from(number)));
            assert!(event.origin <= event.pushed && event.release <= event.deadline);
        }
        while received.lock().unwrap().len() < expected.len() {
            std::thread::yield_now();
        }
        assert_eq!(*received.lock().unwrap(), expected);
        let counts = control.counts(gps(&system)).unwrap();
        assert_eq!((counts.pushed, counts.lost, counts.last.is_some()), (20, 0, true));
        running.stop(&mut |_, _, _| ());
        assert_eq!(input.publish(b"late", None), Err(Rejected::Idle), "the run is over");
    }
}

#[test]
fn events_that_nobody_wants_are_counted_and_a_feed_that_is_not_read_loses_only_its_own() {
    let (system, running, mut feed, mut input, received) = start(false);
    let control = feed.control();
    for number in 0..100u8 {
        publish(&mut input, &[number]);
    }
    while received.lock().unwrap().len() < 100 {
        std::thread::yield_now();
    }
    feed.take(|event| panic!("{event:?}"));
    control.want(gps(&system), true);
    for number in 0..100u8 {
        publish(&mut input, &[number]);
    }
    while received.lock().unwrap().len() < 200 {
        std::thread::yield_now();
    }
    let mut kept = Vec::new();
    feed.take(|event| kept.push(event.payload().to_vec()));
    assert_eq!(kept, (0..64u8).map(|number| vec![number]).collect::<Vec<_>>(), "the first 64 fit");
    let counts = control.counts(gps(&system)).unwrap();
    assert_eq!((counts.pushed, counts.lost), (200, 36));
    assert_eq!(control.counts(OperationId(1)), None, "it supplies nothing");
    drop(running);
}

#[test]
fn a_long_payload_and_a_flood_are_rejected() {
    undisturbed(|| {
        let (_, running, _feed, mut input, received) = start(false);
        publish(&mut input, b"first");
        assert_eq!(input.publish(b"nine byte", None), Err(Rejected::TooLong));
        let mut accepted = 1;
        // The lane needs 0.1 ms for each, the queue has room for two.
        loop {
            match input.publish(b"again", None) {
                Ok(()) => accepted += 1,
                Err(rejected) => break assert_eq!(rejected, Rejected::Full),
            }
        }
        while received.lock().unwrap().len() < accepted {
            std::thread::yield_now();
        }
        publish(&mut input, b"last");
        while received.lock().unwrap().len() <= accepted {
            std::thread::yield_now();
        }
        assert_eq!(received.lock().unwrap().last().unwrap(), b"last");
        drop(running);
    });
}

#[test]
fn publications_closer_than_the_min_interval_are_refused() {
    let system = system(&CHANNEL.replace("deadline     = \"10ms\"", "min_interval = \"1h\""));
    let mut prepared = Node::new(system.clone(), plan(&system)).prepare().unwrap();
    let (feed, mut inputs) = prepared.take_events().unwrap();
    let running = prepared.start();
    publish(&mut inputs[0], b"first");
    assert_eq!(inputs[0].publish(b"second", None), Err(Rejected::TooSoon));
    assert_eq!(inputs[0].publish(b"nine byte", None), Err(Rejected::TooLong));
    let control = feed.control();
    while control.counts(gps(&system)).unwrap().pushed == 0 {
        std::thread::yield_now();
    }
    assert_eq!(inputs[0].publish(b"", None), Err(Rejected::TooSoon));
    assert_eq!(control.counts(gps(&system)).unwrap().pushed, 1);
    running.stop(&mut |_, _, _| ());
}
