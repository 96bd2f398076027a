//! The event channel on real nodes. Order and counts only: the machine is shared.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_events::{
    ChannelError, EventChannel, PublishError, Publisher, ReceivedEvent, RegisterError, Registration, SubscribeError,
    Subscriber, Subscription,
};
use hyoshi_model::{Span, WhenFull, read};
use hyoshi_runtime::{Node, Rejected, RunningNode};
use hyoshi_sched::{Plan, Strategies};

const SYSTEM: &str = r#"
    name     = "channel"
    duration = "60s"
    [event."sensor/gps"]
    payload = "16B"
    keep    = 3
    [event."sensor/raw"]
    [event."status"]
    [event."state/map"]
    payload = "1B"
    [operation.gps]
    called       = true
    deadline     = "1ms"
    wcet         = "0.05ms"
    supplies     = ["sensor/gps", "sensor/raw"]
    [operation.map]
    called       = true
    deadline     = "1ms"
    wcet         = "0.05ms"
    supplies     = ["state/map"]
    [operation.beat]
    every    = "10ms"
    wcet     = "0.05ms"
    supplies = ["status"]
    [operation.log]
    after = { event = "sensor/*" }
    wcet  = "0.05ms"
"#;

fn start() -> (EventChannel, RunningNode) {
    let system = Arc::new(read(SYSTEM, "channel.toml", None).unwrap().system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut node = Node::new(system, plan).prepare().unwrap();
    let channel = EventChannel::start(&mut node).unwrap();
    assert!(matches!(EventChannel::start(&mut node), Err(ChannelError::Taken)));
    (channel, node.start())
}

/// Publishes when the run has begun and the supplier has room.
fn publish(channel: &EventChannel, name: &str, payload: &[u8]) {
    loop {
        match channel.publish(name, payload) {
            Ok(()) => return,
            Err(PublishError::Rejected { because: Rejected::Idle | Rejected::Full, .. }) => thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn next(subscriber: &Subscriber) -> ReceivedEvent {
    subscriber.receive(Span::from_secs(20)).expect("an event is on its way")
}

/// Receives `count` events, as names and payloads.
fn texts(subscriber: &Subscriber, count: usize) -> Vec<(String, String)> {
    let text = |event: ReceivedEvent| (event.name.to_string(), String::from_utf8_lossy(&event.payload).into_owned());
    (0..count).map(|_| text(next(subscriber))).collect()
}

/// Waits until the gps has pushed `count` events and the channel has passed them on.
fn settled(channel: &EventChannel, witness: &Subscriber, count: usize) {
    (0..count).for_each(|_| drop(next(witness)));
    assert_eq!(channel.standing()[0].lost, 0);
}

#[test]
fn subscribers_receive_the_events_that_they_select_with_their_times() {
    let (channel, running) = start();
    let gps = channel.subscribe(&["sensor/gps", "status/**"], Subscription::default()).unwrap();
    let all = channel.subscribe(&["sensor/*"], Subscription::default()).unwrap();
    publish(&channel, "sensor/gps", b"48.1N");
    assert_eq!(texts(&all, 2), [("sensor/gps", "48.1N"), ("sensor/raw", "48.1N")].map(|(a, b)| (a.into(), b.into())));
    let mut seen = (0, 0);
    while seen.0 == 0 || seen.1 < 3 {
        let event = next(&gps);
        assert!(event.release <= event.pushed && event.origin <= event.release);
        let late = event.pushed > event.deadline;
        assert_eq!(event.lateness() > 0, late);
        match &*event.name {
            "sensor/gps" => seen.0 += 1,
            "status" => seen.1 += 1,
            other => panic!("{other}"),
        }
    }
    let standing = channel.standing();
    let [gps, _, status, map] = &standing[..] else { panic!() };
    assert_eq!((gps.open, gps.pushed, gps.payload, gps.consumers), (true, 1, 16, 1));
    assert!(!status.open && status.pushed >= 3 && status.last.is_some());
    assert_eq!((map.pushed, map.last), (0, None));
    drop(running);
}

#[test]
fn a_slow_subscriber_loses_its_own_events_only() {
    let (channel, running) = start();
    let slow = Subscription { limit: 2, when_full: WhenFull::DropOldest, ..Subscription::default() };
    let slow = channel.subscribe(&["state/map"], slow).unwrap();
    let first = Subscription { limit: 2, when_full: WhenFull::DropNewest, ..Subscription::default() };
    let first = channel.subscribe(&["state/map"], first).unwrap();
    let quick = channel.subscribe(&["state/map"], Subscription::default()).unwrap();
    for number in 0..10u8 {
        publish(&channel, "state/map", &[b'0' + number]);
        assert_eq!(*next(&quick).payload, [b'0' + number]);
    }
    let payloads = |subscriber: &Subscriber| [0, 1].map(|_| next(subscriber).payload[0]);
    assert_eq!((payloads(&slow), slow.counts().lost), ([b'8', b'9'], 8));
    assert_eq!((payloads(&first), first.counts().lost), ([b'0', b'1'], 8));
    assert_eq!((quick.counts().lost, quick.counts().delivered), (0, 10));
    drop(running);
}

#[test]
fn a_suspended_subscriber_receives_nothing_until_it_resumes() {
    let (channel, running) = start();
    let paused = channel.subscribe(&["state/map"], Subscription::default()).unwrap();
    // It subscribes last, so the other one has an event before it.
    let witness = channel.subscribe(&["state/map"], Subscription::default()).unwrap();
    publish(&channel, "state/map", b"a");
    settled(&channel, &witness, 1);
    paused.suspend();
    publish(&channel, "state/map", b"b");
    settled(&channel, &witness, 1);
    paused.resume();
    publish(&channel, "state/map", b"c");
    assert_eq!([0, 1].map(|_| next(&paused).payload[0]), [b'a', b'c']);
    assert_eq!(paused.counts().suspended, 1);
    drop(running);
}

#[test]
fn late_subscribers_receive_the_kept_events_first() {
    let (channel, running) = start();
    let witness = channel.subscribe(&["sensor/gps"], Subscription::default()).unwrap();
    for text in ["a", "b", "c", "d"] {
        publish(&channel, "sensor/gps", text.as_bytes());
        settled(&channel, &witness, 1);
    }
    let late = channel.subscribe(&["sensor/*"], Subscription::default()).unwrap();
    publish(&channel, "sensor/gps", b"e");
    let names = |event: &str, text: &str| (event.to_owned(), text.to_owned());
    let expected = [("gps", "b"), ("gps", "c"), ("gps", "d"), ("gps", "e"), ("raw", "e")];
    assert_eq!(texts(&late, 5), expected.map(|(event, text)| names(&format!("sensor/{event}"), text)));
    drop(running);
}

#[test]
fn a_subscriber_that_does_not_ask_is_disconnected() {
    let (channel, running) = start();
    let idle = Subscription { idle: Some(Span::from_millis(1)), ..Subscription::default() };
    let idle = channel.subscribe(&["status"], idle).unwrap();
    let other = channel.subscribe(&["status"], Subscription::default()).unwrap();
    while idle.is_connected() {
        thread::yield_now();
    }
    assert!(other.is_connected());
    drop(running);
}

#[test]
fn what_the_file_does_not_have_is_refused_with_a_remedy() {
    let (channel, running) = start();
    let unknown = channel.subscribe(&["status", "sensors/*"], Subscription::default()).unwrap_err();
    assert_eq!(unknown, SubscribeError::Unknown { pattern: "sensors/*".into() });
    let long = Subscription { limit: 65_537, ..Subscription::default() };
    assert_eq!(channel.subscribe(&["status"], long).unwrap_err(), SubscribeError::TooLong { limit: 65_537 });
    let refusal = |name: &str, payload: &[u8]| channel.publish(name, payload).unwrap_err().to_string();
    assert_eq!(refusal("sensor/*", b""), "unknown event `sensor/*`");
    assert!(refusal("status", b"").ends_with("no supplier on this node has `called = true`"));
    publish(&channel, "state/map", b"1");
    assert!(refusal("state/map", b"12").contains("operation `map` rejected event `state/map`: payload longer"));
    let many: Vec<Subscriber> =
        (0..256).map(|_| channel.subscribe(&["status"], Subscription::default()).unwrap()).collect();
    assert_eq!(channel.subscribe(&["status"], Subscription::default()).unwrap_err(), SubscribeError::TooMany);
    drop(many);
    channel.subscribe(&["status"], Subscription::default()).unwrap();
    drop(running);
}

#[test]
fn the_end_of_the_channel_ends_the_waits_of_its_subscribers() {
    let (channel, running) = start();
    let subscriber = channel.subscribe(&["state/map"], Subscription::default()).unwrap();
    let waiting = thread::spawn(move || subscriber.receive(Span::from_secs(1_000)));
    drop(running);
    drop(channel);
    assert_eq!(waiting.join().unwrap(), None);
}

#[test]
fn a_disconnected_subscription_ends_the_waits_of_other_threads() {
    let (channel, running) = start();
    let subscriber = Arc::new(channel.subscribe(&["state/map"], Subscription::default()).unwrap());
    let waiting = {
        let (subscriber, long) = (subscriber.clone(), Span::from_secs(300));
        thread::spawn(move || (subscriber.receive(long), subscriber.ends_within(long)))
    };
    assert!(!subscriber.ends_within(Span::from_millis(20)) && subscriber.is_connected());
    subscriber.disconnect();
    assert_eq!(waiting.join().unwrap(), (None, true));
    assert!(!subscriber.is_connected());
    drop(running);
}

/// The loop allows 200 jobs of `fuse` a second.
const RATED: &str = r#"
    name     = "rated"
    duration = "120s"
    [event.detection]
    payload = "16B"
    [event.status]
    [feedback.main]
    algorithm   = "FC-U"
    utilisation = "40%"
    period      = "100ms"
    measure     = "lanes"
    [processor.main]
    strategy = "EDF"
    [operation.receive]
    called   = true
    clients  = { rate = ["2Hz", "1kHz"], most = 2 }
    wcet     = "0.01ms"
    supplies = ["detection"]
    [operation.fuse]
    after = { event = "detection" }
    wcet  = "2ms"
    queue = { limit = 8 }
    [operation.beat]
    every    = "10ms"
    wcet     = "0.05ms"
    supplies = ["status"]
"#;

fn rated() -> (EventChannel, RunningNode) {
    let system = read(RATED, "rated.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let system = Arc::new(system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut node = Node::new(system, plan).share_cpu(true).prepare().unwrap();
    let channel = EventChannel::start(&mut node).unwrap();
    (channel, node.start())
}

/// Registers when the run has begun.
fn register(channel: &EventChannel, asked: &Registration) -> Publisher {
    loop {
        match channel.publisher("detection", asked) {
            Ok(publisher) => return publisher,
            Err(RegisterError::Refused(error)) if !error.is_full() => thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_registered_publisher_has_the_rate_of_the_loop_and_no_other_publication_is_accepted() {
    let (channel, running) = rated();
    let publisher = register(&channel, &Registration { longest: Span::from_millis(200), ..Registration::default() });
    assert_eq!(publisher.range(), (Span::from_millis(1), Span::from_millis(200)));
    match channel.publish("detection", b"x") {
        Err(error @ PublishError::Rejected { because: Rejected::Unregistered, .. }) => {
            assert!(error.remedy().contains("--rate"), "{}", error.remedy());
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(channel.publisher("status", &Registration::default()), Err(RegisterError::NoClients { .. })));
    assert!(matches!(channel.publisher("fog", &Registration::default()), Err(RegisterError::Unknown { .. })));
    // The load is low, so the rate rises.
    let mut period = publisher.period();
    until("its rate rises", || {
        thread::sleep(Duration::from_nanos(period.as_nanos()));
        if let Ok(next) = publisher.publish(b"x") {
            period = next;
        }
        period < Span::from_millis(20)
    });
    let refused = (0..100).filter(|_| matches!(publisher.publish(b"x"), Err(PublishError::Rejected { .. }))).count();
    assert!(refused > 50, "{refused}");
    let second = register(&channel, &Registration::default());
    let third = channel.publisher("detection", &Registration::default());
    assert!(matches!(third, Err(RegisterError::Refused(error)) if error.is_full()));
    assert!(channel.publisher_reports().is_empty());
    drop(publisher);
    let reports = channel.publisher_reports();
    assert!(reports.len() == 1 && reports[0].contains("above its rate were rejected"), "{reports:?}");
    let third = register(&channel, &Registration::default());
    drop((second, third, running));
}

#[test]
fn a_silent_publisher_is_removed_and_its_place_is_free() {
    let (channel, running) = rated();
    let idle = Some(Span::from_millis(50));
    let silent = register(&channel, &Registration { idle, label: "ghost".to_owned(), ..Registration::default() });
    let stays = register(&channel, &Registration::default());
    until("it is removed", || !silent.is_registered());
    assert!(matches!(silent.publish(b"x"), Err(PublishError::Ended { .. })));
    let reports = channel.publisher_reports();
    assert!(reports[0].starts_with("client 0 of receive (ghost) was removed: it published nothing for"), "{reports:?}");
    let again = register(&channel, &Registration::default());
    // Leaving once more has no effect on the new client of the place.
    drop(silent);
    assert!(again.publish(b"x").is_ok() && stays.is_registered() && again.is_registered());
    drop((stays, again, running));
}
