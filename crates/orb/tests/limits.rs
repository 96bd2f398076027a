//! Servers among bad clients: whatever one of them does, the others are served, and nothing grows without bound.

use crate::peer;
use crate::tracking;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_model::Span;
use hyoshi_orb::{
    ByteOrder, Decode, Decoder, Encode, Encoder, LaneOptions, Orb, ServerLimits, SystemException, SystemKind, Version,
    minor,
};
use hyoshi_os::Wake;
use hyoshi_wire::giop::{
    CONTEXT_CODE_SETS, Reply, ReplyStatus, RequestHeader, Response, ServiceContext, Target, cancel_request,
};
use hyoshi_wire::tagged::encapsulation;
use peer::{connect, id, message, request};
use tracking::*;

fn serve(limits: ServerLimits, threads: usize) -> (Orb, TrackerStub) {
    let lane = LaneOptions { threads, ..LaneOptions::default() };
    let builder = Orb::builder().collocation(false).server_limits(limits).lane(lane);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.publish("Tracker", &tracker).unwrap();
    (orb, tracker)
}

/// The exception in a reply.
fn raised(message: &[u8]) -> SystemException {
    let mut from = Decoder::new(message, ByteOrder::from_flag(message[6]));
    from.raw(12).unwrap();
    let mut reply = Reply::decode(from).unwrap();
    assert_eq!(reply.status, ReplyStatus::SystemException);
    SystemException::decode(&mut reply.body).unwrap()
}

#[test]
fn octets_that_are_no_giop_end_their_connection_and_nothing_else() {
    let (orb, tracker) = serve(ServerLimits::default(), 4);
    let mut header = b"GIOP\x01\x02\x00\x00\xff\xff\xff\xff".to_vec();
    header.extend([0; 100]);
    let rubbish: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0x00],
        &[0; 64],
        b"GIOP\x01\x03\x00\x00\x00\x00\x00\x00",
        b"GIOP\x01\x02\x00\x09\x00\x00\x00\x00",
        // Of 4 GiB.
        &header,
        // A fragment of nothing.
        b"GIOP\x01\x02\x00\x07\x00\x00\x00\x04\x00\x00\x00\x01",
    ];
    for octets in rubbish {
        let mut stream = connect(&orb);
        stream.write_all(octets).unwrap();
        let mut answer = Vec::new();
        // Reset counts as an end too: there were octets that nobody read.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer[7] == 6, "MessageError or nothing: {answer:?}");
        tracker.nothing().unwrap();
    }
}

#[test]
fn a_client_with_all_connections_keeps_none_of_other_addresses_out() {
    let limits = ServerLimits { connections: 8, ..ServerLimits::default() };
    let builder = Orb::builder().collocation(false).server_limits(limits);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().listen("iiop://[::1]:0").unwrap().build().unwrap();
    orb.ready();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let own = tracker.ior().iiop().next().unwrap().unwrap().key;
    let calls = |stream: &mut std::net::TcpStream| {
        let _ = stream.write_all(&request(4, own, "nothing", Response::Target));
        message(stream).is_some_and(|reply| reply[7] == 1)
    };
    // An open connection of another address stays open, and a new one is accepted, however often the flood tries again.
    let mut port = orb.endpoints().iter().map(|endpoint| match endpoint {
        hyoshi_orb::IorEndpoint::Tcp { port, .. } => *port,
        other => panic!("{other:?}"),
    });
    let (v4, v6) = (port.next().unwrap(), port.next().unwrap());
    let mut early = std::net::TcpStream::connect(("::1", v6)).unwrap();
    assert!(calls(&mut early));
    let mut flood = Vec::new();
    for _ in 0..3 {
        for _ in 0..20 {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", v4)).unwrap();
            if calls(&mut stream) {
                flood.push(stream);
            }
        }
        assert!(calls(&mut early));
        assert!(calls(&mut std::net::TcpStream::connect(("::1", v6)).unwrap()));
    }
    assert!(flood.len() >= 6, "{}: one address may have what others do not use", flood.len());
    assert!(orb.refused_connections().load(std::sync::atomic::Ordering::Relaxed) >= 30);
}

#[test]
fn what_a_request_gets_wrong_is_told_by_a_system_exception() {
    let (orb, tracker) = serve(ServerLimits::default(), 4);
    let mut stream = connect(&orb);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key;
    let mut ask = |octets: Vec<u8>| {
        stream.write_all(&octets).unwrap();
        let answer = message(&mut stream).unwrap();
        assert_eq!(id(&answer), 4);
        raised(&answer)
    };
    let not_there = |minor| SystemKind::ObjectNotExist.not_done(minor);
    assert_eq!(ask(request(4, b"Nobody", "locate", Response::Target)), not_there(minor::NO_USABLE_PROFILE));
    assert_eq!(ask(request(4, b"", "locate", Response::Target)), not_there(minor::NO_USABLE_PROFILE));
    assert_eq!(ask(request(4, b"\xc5Hy\x02\x01b", "locate", Response::Target)), not_there(minor::NO_ADAPTER));
    assert_eq!(ask(request(4, own, "dance", Response::Target)), SystemKind::BadOperation.not_done(minor::NO_OPERATION));
    // Without its argument, and with a string of 4 GiB.
    assert_eq!(ask(request(4, own, "locate", Response::Target)), SystemKind::Marshal.not_done(minor::ARGUMENTS));
    let mut to = Encoder::new(ByteOrder::Big);
    let target = Target::Key(own);
    let header = RequestHeader { id: 4, response: Response::Target, target, operation: "hint", contexts: &[] };
    let begun = header.begin(&mut to).unwrap();
    u32::MAX.encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    assert_eq!(ask(to.into_bytes()), SystemKind::Marshal.not_done(minor::ARGUMENTS));
    assert_eq!(
        ask(request(4, own, "_interface", Response::Target)),
        SystemKind::IntfRepos.not_done(minor::NO_REPOSITORY)
    );
}

/// A request for `_get_name`, which answers "yard ä", that tells code sets.
fn name_in(version: Version, key: &[u8], sets: Option<[u32; 2]>) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Big);
    to.speak(version, Default::default());
    let data = sets.map(|sets| encapsulation(ByteOrder::Big, |to| sets.iter().try_for_each(|set| set.encode(to))));
    let data = data.transpose().unwrap();
    let contexts: Vec<_> = data.iter().map(|data| ServiceContext { tag: CONTEXT_CODE_SETS, data }).collect();
    let (response, target) = (Response::Target, Target::Key(key));
    let header = RequestHeader { id: 4, response, target, operation: "_get_name", contexts: &contexts };
    header.begin(&mut to).unwrap().end(&mut to).unwrap();
    to.into_bytes()
}

#[test]
fn a_client_that_means_a_code_set_which_is_not_spoken_is_refused_until_it_means_another() {
    let (orb, tracker) = serve(ServerLimits::default(), 4);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key;
    let incompatible = SystemKind::CodesetIncompatible.not_done(minor::CODE_SET_REFUSED);
    const UTF16: u32 = 0x0001_0109;
    // EBCDIC, ISO 8859-2, one that nobody knows; and wide characters of four octets.
    for sets in [[0x1002_0025, UTF16], [0x0001_0002, UTF16], [0x7777_7777, UTF16], [0x0501_0001, 0x0001_0106]] {
        let mut stream = connect(&orb);
        let mut ask = |sets| {
            stream.write_all(&name_in(Version::V1_2, own, sets)).unwrap();
            message(&mut stream).unwrap()
        };
        assert_eq!(raised(&ask(Some(sets))), incompatible);
        assert_eq!(raised(&ask(None)), incompatible, "what it writes then is still in that set");
        assert!(ask(Some([0x0501_0001, UTF16])).windows(3).any(|octets| octets == "ä\0".as_bytes()));
        assert!(ask(None).windows(3).any(|octets| octets == "ä\0".as_bytes()), "agreed upon for the connection");
    }
    // In 1.0 nothing is agreed upon.
    let mut stream = connect(&orb);
    stream.write_all(&name_in(Version::V1_0, own, Some([0x1002_0025, UTF16]))).unwrap();
    assert!(message(&mut stream).unwrap().windows(2).any(|octets| octets == b"\xe4\0"));
}

#[test]
fn what_a_server_says_by_itself_is_in_the_version_of_its_client() {
    let (orb, tracker) = serve(ServerLimits::default(), 4);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut streams: Vec<_> = [Version::V1_0, Version::V1_1, Version::V1_2]
        .into_iter()
        .map(|version| {
            let mut stream = connect(&orb);
            stream.write_all(&name_in(version, &own, None)).unwrap();
            message(&mut stream).unwrap();
            (version, stream)
        })
        .collect();
    // A message of 4 GiB: MessageError in the version that was spoken before.
    for (version, _) in &streams {
        let mut broken = connect(&orb);
        broken.write_all(&name_in(*version, &own, None)).unwrap();
        message(&mut broken).unwrap();
        broken.write_all(b"GIOP\x01\x00\x00\x00\xff\xff\xff\xff").unwrap();
        assert_eq!(message(&mut broken).unwrap()[4..8], [1, version.octets()[1], 0, 6]);
    }
    let mut silent = connect(&orb);
    tracker.nothing().unwrap();
    orb.shutdown();
    for (version, stream) in &mut streams {
        assert_eq!(message(stream).unwrap()[4..8], [1, version.octets()[1], 0, 5], "CloseConnection");
    }
    assert_eq!(message(&mut silent).unwrap()[4..8], [1, 0, 0, 5], "who said nothing may be of 1.0");
}

#[test]
fn locate_requests_are_answered_and_cancellations_of_nothing_ignored() {
    let (orb, tracker) = serve(ServerLimits::default(), 4);
    let mut stream = connect(&orb);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key;
    for (key, status) in [(own, 1), (b"Tracker", 1), (b"Nobody", 0)] {
        let mut to = Encoder::new(ByteOrder::Big);
        cancel_request(77, &mut to).unwrap();
        hyoshi_wire::giop::LocateRequest { id: 9, target: Target::Key(key) }.encode(&mut to).unwrap();
        stream.write_all(to.bytes()).unwrap();
        let answer = message(&mut stream).unwrap();
        assert_eq!((answer[7], id(&answer)), (4, 9));
        let status_at = if answer[6] & 1 == 1 { answer[16] } else { answer[19] };
        assert_eq!(status_at, status, "{}", key.escape_ascii());
    }
}

#[test]
fn connections_that_say_nothing_make_room_for_those_that_do() {
    let limits = ServerLimits { connections: 20, ..ServerLimits::default() };
    let (orb, tracker) = serve(limits, 4);
    let mut silent: Vec<_> = (0..100).map(|_| connect(&orb)).collect();
    tracker.nothing().unwrap();
    let mut ended = 0;
    for stream in &mut silent[..80] {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        ended += usize::from(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
    assert_eq!(ended, 80, "the oldest were closed");
    tracker.nothing().unwrap();
}

#[test]
fn connections_that_stop_within_a_message_are_closed_and_silent_ones_in_the_orderly_way() {
    let (silent, stalled) = (Span::from_secs(2), Span::from_secs(1));
    let (orb, tracker) = serve(ServerLimits { silent, stalled, ..ServerLimits::default() }, 4);
    let (mut quiet, mut half) = (connect(&orb), connect(&orb));
    let own = tracker.ior().iiop().next().unwrap().unwrap().key;
    half.write_all(&request(2, own, "nothing", Response::Target)[..20]).unwrap();
    assert_eq!(half.read(&mut [0; 12]).unwrap_or(0), 0);
    assert_eq!(message(&mut quiet).unwrap()[7], 5, "CloseConnection");
    tracker.nothing().unwrap();
}

#[test]
fn those_who_dribble_keep_no_thread_from_others() {
    let (orb, tracker) = serve(ServerLimits::default(), 2);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let whole = request(2, &own, "nothing", Response::Target);
    let mut slow: Vec<_> = (0..8).map(|_| connect(&orb)).collect();
    for octet in &whole {
        slow.iter_mut().for_each(|stream| stream.write_all(&[*octet]).unwrap());
        tracker.nothing().unwrap();
    }
    for stream in &mut slow {
        assert_eq!(message(stream).unwrap()[7], 1, "each gets its reply at last");
    }
}

#[test]
fn what_is_unfinished_is_bounded_over_all_connections() {
    let limits = ServerLimits { unfinished: 1 << 20, ..ServerLimits::default() };
    let (orb, tracker) = serve(limits, 4);
    let mut header = b"GIOP\x01\x02\x00\x00\x00\x10\x00\x00".to_vec();
    header.resize(300 << 10, 0);
    let mut streams: Vec<_> = (0..8).map(|_| connect(&orb)).collect();
    for stream in &mut streams {
        // Those that are closed meanwhile cannot take it all.
        let _ = stream.write_all(&header);
    }
    let mut ended = 0;
    for stream in &mut streams {
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let timeout = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        ended += usize::from(!stream.read(&mut [0]).is_err_and(|error| timeout(&error)));
    }
    assert!((1..8).contains(&ended), "{ended} were closed, some were kept");
    tracker.nothing().unwrap();
}

#[test]
fn unfinished_messages_of_one_client_do_not_end_the_connection_of_another() {
    let path = std::env::temp_dir().join(format!("hyoshi-orb-unfinished-{}.sock", std::process::id()));
    let limits = ServerLimits { unfinished: 1 << 20, ..ServerLimits::default() };
    let builder = Orb::builder().server_limits(limits).listen("iiop://127.0.0.1:0").unwrap();
    let orb = builder.listen(&format!("unix:{}", path.display())).unwrap().build().unwrap();
    let adapter = orb.adapter("a").build().unwrap();
    let tracker = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    orb.ready();
    let mut header = b"GIOP\x01\x02\x00\x00\x00\x10\x00\x00".to_vec();
    header.resize(250 << 10, 0);
    let mut floods = [(); 4].map(|()| connect(&orb));
    floods.iter_mut().for_each(|flood| flood.write_all(&header).unwrap());
    tracker.nothing().unwrap();
    // Together they hold less than the limit; with the half of this request more.
    let mut other = std::os::unix::net::UnixStream::connect(&path).unwrap();
    other.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let key = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut to = Encoder::new(ByteOrder::Big);
    let target = Target::Key(&key);
    let asked = RequestHeader { id: 2, response: Response::Target, target, operation: "echo", contexts: &[] };
    let begun = asked.begin(&mut to).unwrap();
    vec![7u8; 200 << 10].encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    let (first, rest) = to.bytes().split_at(100 << 10);
    other.write_all(first).unwrap();
    floods.iter().for_each(|flood| flood.set_nonblocking(true).unwrap());
    let is_open =
        |flood: &mut TcpStream| flood.read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    let end = Instant::now() + Duration::from_secs(20);
    while floods.iter_mut().all(is_open) {
        assert!(Instant::now() < end, "none of those with the most was closed");
        std::thread::yield_now();
    }
    other.write_all(rest).unwrap();
    assert_eq!(message(&mut other).expect("it was not closed")[7], 1, "a reply");
}

#[test]
fn a_client_that_takes_no_replies_is_not_read_and_at_last_closed() {
    let limits = ServerLimits { stalled: Span::from_secs(1), ..ServerLimits::default() };
    let (orb, tracker) = serve(limits, 2);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut to = Encoder::new(ByteOrder::Big);
    let target = Target::Key(&own);
    let header = RequestHeader { id: 2, response: Response::Target, target, operation: "echo", contexts: &[] };
    let begun = header.begin(&mut to).unwrap();
    vec![7u8; 4 << 20].encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    let greedy: Vec<_> = (0..3).map(|_| connect(&orb)).collect();
    std::thread::scope(|scope| {
        for mut stream in greedy {
            let octets = to.bytes();
            scope.spawn(move || {
                let begun = Instant::now();
                // Never reads: the server stops to read too, and ends it.
                while stream.write_all(octets).is_ok() {
                    assert!(begun.elapsed() < Duration::from_secs(60), "it is never closed");
                }
            });
        }
        for _ in 0..200 {
            tracker.nothing().unwrap();
        }
    });
    tracker.nothing().unwrap();
}

#[test]
fn requests_of_one_connection_run_side_by_side_up_to_the_limit() {
    let (orb, tracker) = serve(ServerLimits { in_flight: 2, ..ServerLimits::default() }, 8);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut stream = connect(&orb);
    let mut to = Encoder::new(ByteOrder::Big);
    for id in 0..6 {
        let target = Target::Key(&own);
        let header = RequestHeader { id, response: Response::Target, target, operation: "locate", contexts: &[] };
        let begun = header.begin(&mut to).unwrap();
        999u32.encode(&mut to).unwrap(); // 199 ms
        begun.end(&mut to).unwrap();
    }
    let begun = Instant::now();
    stream.write_all(to.bytes()).unwrap();
    let mut ids: Vec<_> = (0..6).map(|_| id(&message(&mut stream).unwrap())).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
    let took = begun.elapsed().as_millis();
    assert!((2 * 199..6 * 199).contains(&took), "not one by one, and not all at once: {took} ms");
    tracker.nothing().unwrap();
}

/// Says that it has begun, and ends when it may.
#[derive(Default)]
struct Gated(Wake, Wake);

impl Named for Gated {
    fn name(&self) -> Result<String, SystemException> {
        self.0.post();
        self.1.wait();
        Ok("ended".to_owned())
    }
}

#[test]
fn a_server_that_ends_closes_in_the_orderly_way_behind_its_last_reply() {
    let orb = Orb::builder().collocation(false).listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let gated = Arc::new(Gated::default());
    let named = orb.adapter("a").build().unwrap().activate::<dyn Named>(gated.clone()).unwrap();
    let own = named.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let (mut idle, mut busy) = (connect(&orb), connect(&orb));
    busy.write_all(&request(8, &own, "_get_name", Response::Target)).unwrap();
    gated.0.wait();
    std::thread::scope(|scope| {
        scope.spawn(|| orb.shutdown());
        assert_eq!(message(&mut idle).unwrap()[7], 5);
        gated.1.post();
        assert_eq!(message(&mut busy).unwrap()[7], 1, "the reply");
        assert_eq!(message(&mut busy).unwrap()[7], 5, "then the end");
        assert!(message(&mut busy).is_none());
    });
    assert_eq!(Version::V1_2.octets(), [1, 2]);
}

#[test]
fn threads_that_linger_are_called_back_when_a_request_has_none() {
    // Who is not called back lingers for longer than the test waits.
    let limits = ServerLimits { linger: Span::from_secs(120), ..ServerLimits::default() };
    let lane = LaneOptions { threads: 3, ..LaneOptions::default() };
    let builder = Orb::builder().collocation(false).server_limits(limits).lane(lane);
    let orb = builder.listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let gated = Arc::new(Gated::default());
    let adapter = orb.adapter("a").build().unwrap();
    let named = adapter.activate::<dyn Named>(gated.clone()).unwrap();
    let tracker = adapter.activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    let key = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let own = named.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut others: Vec<_> = (0..6).map(|_| connect(&orb)).collect();
    let mut busy = connect(&orb);
    for round in 0..20 {
        // Some threads stay with these.
        for stream in &mut others {
            stream.write_all(&request(2, &key, "nothing", Response::Target)).unwrap();
            assert_eq!(message(stream).unwrap()[7], 1);
        }
        busy.write_all(&request(4, &own, "_get_name", Response::Target)).unwrap();
        gated.0.wait();
        for stream in &mut others {
            stream.write_all(&request(2, &key, "nothing", Response::Target)).unwrap();
            assert_eq!(message(stream).expect("nobody is without a thread for long")[7], 1, "round {round}");
        }
        gated.1.post();
        assert_eq!(message(&mut busy).unwrap()[7], 1);
    }
}

#[test]
fn a_servant_that_ends_its_orb_replies_first() {
    struct Ends(Orb);
    impl Named for Ends {
        fn name(&self) -> Result<String, SystemException> {
            self.0.shutdown();
            Ok("ended".to_owned())
        }
    }
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let named = orb.adapter("a").build().unwrap().activate::<dyn Named>(Arc::new(Ends(orb.clone()))).unwrap();
    let key = named.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let mut stream = connect(&orb);
    stream.write_all(&request(2, &key, "_get_name", Response::Target)).unwrap();
    orb.run();
    let kinds: Vec<_> = std::iter::from_fn(|| message(&mut stream)).map(|message| message[7]).collect();
    assert_eq!(kinds, [1, 5], "the reply, then CloseConnection");
}

#[test]
fn a_connection_in_use_is_not_silent_however_long_one_thread_reads_it() {
    let (orb, tracker) = serve(ServerLimits { silent: Span::from_secs(1), ..ServerLimits::default() }, 4);
    let own = tracker.ior().iiop().next().unwrap().unwrap().key.to_vec();
    let (mut stream, begun) = (connect(&orb), Instant::now());
    while begun.elapsed() < Duration::from_secs(4) {
        stream.write_all(&request(2, &own, "nothing", Response::Target)).unwrap();
        assert_eq!(message(&mut stream).unwrap()[7], 1, "a reply, no CloseConnection");
        std::thread::sleep(Duration::from_millis(1)); // many calls, but no load
    }
}
