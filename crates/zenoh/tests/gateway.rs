//! Gateways in one process with programs of Zenoh, some of them hostile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyoshi_events::{EventChannel, PublishError, Subscriber, Subscription};
use hyoshi_model::{HostId, Span, System};
use hyoshi_node::CarrierError;
use hyoshi_runtime::{Node, Rejected, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_zenoh::{EVENT_HEADER, GatewayKeys, ZenohGateway, ZenohTls};
use rcgen::DnType;
use zenoh::pubsub::Publisher;
use zenoh::qos::Priority;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

use crate::authority::{Authority, Papers};
use crate::common::{folder, system, until, unused_address};

/// A run of two hosts, both in this process, and the gateway of the first one.
struct Run {
    channel: EventChannel,
    gateway: ZenohGateway,
    keys: GatewayKeys,
    endpoint: String,
    _running: RunningNode,
}

fn text(gateway: &str) -> String {
    format!(
        r#"
        name = "the rover"
        duration = "60s"
        [host.rover.gateway]
        {gateway}
        [host.base]
        [processor.here]
        host = "rover"
        [processor.there]
        host = "base"
        [event."sensor/gps 1"]
        payload = "16B"
        keep = 2
        [event."status"]
        [event."goto"]
        [operation.gps]
        on = "here"
        called = true
        min_interval = "20ms"
        wcet = "0.05ms"
        queue = {{ limit = 4 }}
        critical = true
        supplies = ["sensor/gps 1", "status"]
        [operation.base]
        on = "there"
        called = true
        min_interval = "1ms"
        wcet = "0.05ms"
        supplies = ["status", "goto"]
        "#
    )
}

fn start(mode: &str) -> Run {
    let endpoint = format!("tcp/{}", unused_address());
    let gateway = format!("mode = '{mode}'\nlisten = ['{endpoint}']\nevents = ['**']\npublish = ['sensor/**']");
    let (channel, system, running) = channel(&text(&gateway));
    let gateway = ZenohGateway::open(&channel, HostId(0), None).unwrap().unwrap();
    until("it runs", || channel.now() > hyoshi_model::Instant::ZERO);
    let keys = GatewayKeys::new(&system);
    Run { channel, gateway, keys, endpoint, _running: running }
}

fn channel(text: &str) -> (EventChannel, Arc<System>, RunningNode) {
    let system = system(text);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let mut node = Node::new(system.clone(), plan).prepare().unwrap();
    (EventChannel::start(&mut node).unwrap(), system, node.start())
}

/// A program that connects to the endpoint.
fn program(endpoint: &str) -> Session {
    let config = format!(
        r#"{{ mode: "client", connect: {{ endpoints: ["{endpoint}"] }}, scouting: {{ multicast: {{ enabled: false }} }} }}"#
    );
    zenoh::open(Config::from_json5(&config).unwrap()).wait().unwrap()
}

fn publisher(session: &Session, key: String) -> Publisher<'static> {
    let publisher = session.declare_publisher(key).wait().unwrap();
    until("the gateway is found", || publisher.matching_status().wait().unwrap().matching());
    publisher
}

type Heard = Arc<Mutex<Vec<Sample>>>;

fn listener(session: &Session, key: &str) -> (Heard, zenoh::pubsub::Subscriber<()>) {
    let heard = Heard::default();
    let own = heard.clone();
    let hear = move |sample| own.lock().unwrap().push(sample);
    (heard, session.declare_subscriber(key.to_owned()).callback(hear).wait().unwrap())
}

fn texts(heard: &Heard) -> Vec<(String, String)> {
    let text = |sample: &Sample| {
        (sample.key_expr().to_string(), String::from_utf8_lossy(&sample.payload().to_bytes()).into_owned())
    };
    heard.lock().unwrap().iter().map(text).collect()
}

fn publish(channel: &EventChannel, name: &str, payload: &[u8]) {
    loop {
        match channel.publish(name, payload) {
            Ok(()) => return,
            Err(PublishError::Rejected { because: Rejected::Idle | Rejected::Full | Rejected::TooSoon, .. }) => {
                std::thread::yield_now();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn subscribed(channel: &EventChannel, pattern: &str) -> Subscriber {
    channel.subscribe(&[pattern], Subscription::default()).unwrap()
}

#[test]
fn a_program_reads_events_with_their_times_and_only_those_of_the_gateway_s_host() {
    let run = start("peer");
    let session = program(&run.endpoint);
    let (heard, _subscriber) = listener(&session, "hyoshi/the%20rover/events/**");
    let witness = subscribed(&run.channel, "status");
    // Until the subscription has arrived.
    until("an event arrives", || {
        publish(&run.channel, "sensor/gps 1", b"48.1N");
        std::thread::sleep(Duration::from_millis(20));
        heard.lock().unwrap().len() >= 2
    });
    publish(&run.channel, "goto", b"");
    while &*witness.receive(Span::from_secs(20)).expect("a status").supplier != "base" {}
    publish(&run.channel, "sensor/gps 1", b"the last");
    until("the last one arrives", || texts(&heard).iter().any(|(_, payload)| payload == "the last"));
    let mut keys: Vec<String> = texts(&heard).into_iter().map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys, [run.keys.event("sensor/gps 1"), run.keys.event("status")]);
    assert_eq!(run.keys.event("sensor/gps 1"), "hyoshi/the%20rover/events/sensor/gps%201");
    let heard = heard.lock().unwrap();
    let of_gps = heard.iter().filter(|sample| sample.key_expr().as_str().ends_with("gps%201"));
    for (sample, before) in of_gps.clone().skip(1).zip(of_gps) {
        assert_eq!(sample.priority(), Priority::RealTime);
        let [header, earlier] = [sample, before].map(|one| one.attachment().unwrap().to_bytes().into_owned());
        assert_eq!((header.len(), header[0], header[1]), (EVENT_HEADER, 1, 1));
        let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(&header, 12), word(&earlier, 12) + 1, "the sequence");
        assert_eq!(word(&header, 20), word(&earlier, 20) + 1, "the number");
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        assert!((word(&earlier, 28)..now).contains(&word(&header, 28)), "the time");
        let (age, response, lateness) = (word(&header, 36), word(&header, 44), word(&header, 52).cast_signed());
        assert!(age == response && age < 20_000_000_000, "{age} {response}");
        assert_eq!(lateness, age as i64 - 20_000_000);
    }
}

#[test]
fn publications_that_are_wrong_or_too_many_are_refused_and_counted() {
    let run = start("peer");
    let session = program(&run.endpoint);
    let gps = publisher(&session, run.keys.publication("sensor/gps 1"));
    let events = subscribed(&run.channel, "sensor/**");
    let next = || events.receive(Span::from_secs(20)).map(|event| event.payload.to_vec());
    gps.put("48.1N").attachment(vec![7; 1_000]).wait().unwrap();
    assert_eq!(next().as_deref(), Some(&b"48.1N"[..]));
    let counts = || run.gateway.standing().publications[0].clone();
    gps.put(vec![0; 17]).wait().unwrap();
    gps.put(vec![0; 200_000]).wait().unwrap();
    gps.delete().wait().unwrap();
    until("they are counted", || counts().refused() == 3);
    assert_eq!((counts().too_long, counts().malformed, counts().accepted), (2, 1, 1));
    // No message is longer than 256 KiB. The connection may close; it is made again.
    gps.put(vec![0; 1 << 20]).wait().unwrap();
    until("the gateway reads on", || {
        gps.delete().wait().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        counts().malformed > 1
    });
    std::thread::sleep(Duration::from_millis(100));
    let before = counts();
    for _ in 0..500 {
        gps.put("flood").wait().unwrap();
    }
    until("the flood is over", || counts().accepted + counts().refused() >= before.accepted + before.refused() + 500);
    let after = counts();
    let [accepted, too_fast, full] =
        [after.accepted - before.accepted, after.too_fast - before.too_fast, after.full - before.full];
    assert_eq!(accepted + too_fast + full, 500);
    // One in 20 ms while it lasts.
    assert!(accepted >= 1 && too_fast > 50, "{accepted} {too_fast} {full}");
    // Others are not accepted: an event without `publish`, an unknown one, and one that only this host supplies.
    let (heard, _subscriber) = listener(&program(&run.endpoint), "**");
    let received = texts(&heard).len();
    for key in [run.keys.publication("status"), run.keys.publication("x"), run.keys.event("sensor/gps 1")] {
        session.put(key, "forged").wait().unwrap();
    }
    let refused = counts().refused();
    gps.delete().wait().unwrap();
    until("the last one is refused", || counts().refused() > refused);
    assert_eq!(texts(&heard).len(), received);
    // `base` supplies the status, too.
    assert_eq!(run.channel.standing()[2].pushed, 0);
}

#[test]
fn only_a_router_forwards_between_programs_and_never_forged_events() {
    for (mode, forwards) in [("peer", false), ("router", true)] {
        let run = start(mode);
        let (one, other) = (program(&run.endpoint), program(&run.endpoint));
        let (heard, _subscriber) = listener(&other, "**");
        let gps = publisher(&one, run.keys.publication("sensor/gps 1"));
        let put = |key: &str, payload: &str| one.put(key.to_owned(), payload).wait().unwrap();
        let event = run.keys.event("sensor/gps 1");
        until("an event is read", || {
            put("chat", "hello");
            put(&event, "forged");
            put(&run.keys.event("status"), "of another host");
            gps.put("48.1N").wait().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            texts(&heard).iter().filter(|(key, payload)| *key == event && payload == "48.1N").count() >= 3
        });
        let texts = texts(&heard);
        let has = |key: &str, payload: &str| texts.iter().any(|one| one.0 == key && one.1 == payload);
        assert_eq!(has("chat", "hello"), forwards, "{mode}");
        assert_eq!(has(&run.keys.publication("sensor/gps 1"), "48.1N"), forwards, "{mode}");
        // The base supplies it, too, and may have a gateway of its own.
        assert_eq!(has(&run.keys.event("status"), "of another host"), forwards, "{mode}");
        assert!(!has(&event, "forged"), "{mode}");
    }
}

#[test]
fn programs_that_come_late_get_the_kept_events_and_see_the_node() {
    let run = start("peer");
    let events = subscribed(&run.channel, "sensor/**");
    for number in 0..3 {
        publish(&run.channel, "sensor/gps 1", format!("fix {number}").as_bytes());
        events.receive(Span::from_secs(20)).unwrap();
    }
    until("they are published", || run.gateway.standing().published == 6);
    let session = program(&run.endpoint);
    let get = |key: String| {
        let replies = session.get(key).consolidation(zenoh::query::ConsolidationMode::None).wait().unwrap();
        let text = |reply: zenoh::query::Reply| {
            let sample = reply.result().unwrap();
            assert_eq!(sample.attachment().unwrap().len(), EVENT_HEADER);
            String::from_utf8_lossy(&sample.payload().to_bytes()).into_owned()
        };
        replies.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(get(run.keys.event("sensor/gps 1")), ["fix 1", "fix 2"]);
    assert_eq!(get("**".to_owned()), ["fix 1", "fix 2"]);
    assert_eq!(get(run.keys.event("status")), [""; 0]);
    let tokens = || session.liveliness().get("hyoshi/*/alive/*").wait().unwrap().iter().count();
    assert_eq!(tokens(), 1);
    assert_eq!(run.keys.alive("rover"), "hyoshi/the%20rover/alive/rover");
    let last = run.gateway.end();
    assert_eq!((last.host.as_str(), last.connected, last.published, last.lost), ("rover", true, 6, 0));
    until("its token is gone", || tokens() == 0);
}

#[test]
fn a_gateway_without_its_router_opens_and_ends_and_one_at_a_used_address_does_not() {
    for mode in ["peer", "client"] {
        // Not a router: it closes each connection.
        let closing = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = closing.local_addr().unwrap();
        let gateway = format!("mode = '{mode}'\nconnect = ['tcp/{address}']\nevents = ['**']");
        let (channel, _, running) = channel(&text(&gateway));
        let gateway = ZenohGateway::open(&channel, HostId(0), None).unwrap().unwrap();
        (0..2).for_each(|_| drop(closing.accept().unwrap()));
        let last = gateway.end();
        assert!(!last.connected && last.failed.is_none(), "{last:?}");
        assert!(ZenohGateway::open(&channel, HostId(1), None).unwrap().is_none());
        drop(running);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (channel, _, running) = channel(&text(&format!("listen = ['tcp/{address}']\nevents = ['**']")));
    let CarrierError { message, remedy } = ZenohGateway::open(&channel, HostId(0), None).err().unwrap();
    assert!(message.contains(&address) && remedy.contains("[host.rover]"), "{message} {remedy}");
    drop(running);
}

#[test]
fn over_tls_only_the_named_certificates_read_and_publish() {
    let (authority, folder, endpoint) = (Authority::new("plant"), folder(), format!("tls/{}", unused_address()));
    let roots = authority.file(&folder);
    let papers = |authority: &Authority, name: &str| -> Papers {
        authority.papers_with(&[name], |params| {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
        })
    };
    let file = |authority: &Authority, name: &str| papers(authority, name).file(&folder, &format!("{name}.pem"));
    let gateway = format!(
        "listen = ['{endpoint}']\nevents = ['**']\npublish = ['sensor/**']\nreaders = ['display']\npublishers = ['pilot']"
    );
    let (channel, system, running) = channel(&text(&gateway));
    let error = ZenohGateway::open(&channel, HostId(0), None).err().unwrap();
    assert!(error.message.contains("needs a certificate") && error.remedy.contains("--tls-cert"), "{error:?}");
    let own = file(&authority, "rover");
    let tls = ZenohTls::from_files(&own, &own, &roots).unwrap();
    let gateway = ZenohGateway::open(&channel, HostId(0), Some(tls)).unwrap().unwrap();
    until("it runs", || channel.now() > hyoshi_model::Instant::ZERO);
    let open = |pem: &std::path::Path| {
        let [pem, roots] = [pem, &roots].map(|path| path.display().to_string());
        let config = format!(
            r#"{{
                mode: "client", connect: {{ endpoints: ["{endpoint}"] }}, scouting: {{ multicast: {{ enabled: false }} }},
                transport: {{ link: {{ tls: {{
                    enable_mtls: true, verify_name_on_connect: false, root_ca_certificate: "{roots}",
                    connect_certificate: "{pem}", connect_private_key: "{pem}",
                }} }} }},
            }}"#
        );
        zenoh::open(Config::from_json5(&config).unwrap()).wait()
    };
    let [display, pilot, guest] =
        ["display", "pilot", "guest"].map(|name| open(&file(&authority, name)).expect("its authority is trusted"));
    let stranger = Authority::new("elsewhere");
    assert!(open(&file(&stranger, "stranger")).is_err());
    let keys = GatewayKeys::new(&system);
    let (by_display, _one) = listener(&display, "**");
    let (by_pilot, _other) = listener(&pilot, "hyoshi/**");
    let (by_guest, _third) = listener(&guest, "hyoshi/**");
    let gps = publisher(&pilot, keys.publication("sensor/gps 1"));
    let event = keys.event("sensor/gps 1");
    let of_gateway = |heard: &Heard| -> Vec<String> {
        texts(heard).into_iter().filter(|(key, _)| *key == event).map(|(_, payload)| payload).collect()
    };
    until("the display reads", || {
        for session in [&display, &guest] {
            session.put(keys.publication("sensor/gps 1"), "forged").wait().unwrap();
        }
        gps.put("48.1N").wait().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        of_gateway(&by_display).len() >= 3
    });
    assert!(of_gateway(&by_display).iter().all(|payload| payload == "48.1N"), "{:?}", texts(&by_display));
    assert_eq!((of_gateway(&by_pilot), of_gateway(&by_guest)), (vec![], vec![]));
    assert_eq!(gateway.standing().publications[0].refused(), 0);
    drop((gateway, running));
    std::fs::remove_dir_all(folder).unwrap();
}
