//! Reads the streams of other ORBs: omniORB 4.2.5's client and server over one connection, in GIOP 1.0, 1.1 and 1.2,
//! JacORB 3.9's answers to omniORB, and omniORBpy 4.3.1's in 1.1.
//!
//! `peers/ORB-VERSION-SIDE.bin` are streams between the peers of `crates/orb/tests/peers`, shortened to some
//! messages of each kind: requests, replies of every status, locating, fragments, the end of a connection.

use std::collections::BTreeMap;

use hyoshi_wire::giop::{CodeSet, Context, LocateStatus, Message, Reassembler, ReplyStatus, Response};
use hyoshi_wire::ior::Ior;
use hyoshi_wire::{Decode, Limits, SystemException, SystemKind};

/// How many messages of each kind are in a stream that arrives in pieces of this size.
fn read(stream: &[u8], piece: usize, mut check: impl FnMut(&Message<'_>)) -> BTreeMap<String, usize> {
    let mut messages = Reassembler::new(Limits::default());
    let mut counts = BTreeMap::new();
    for mut now in stream.chunks(piece) {
        while let Some(received) = messages.next(&mut now).expect("a stream of messages") {
            let message = received.decode().expect("a sound message");
            check(&message);
            let kind = match message {
                Message::Request(request) => format!("request {}", request.operation),
                Message::Reply(reply) => format!("reply {:?}", reply.status),
                Message::LocateRequest(_) => "locate request".into(),
                Message::LocateReply(reply) => format!("locate reply {:?}", reply.status),
                Message::CancelRequest(_) => "cancel request".into(),
                Message::CloseConnection => "close connection".into(),
                Message::MessageError => "message error".into(),
            };
            *counts.entry(kind).or_default() += 1;
        }
    }
    counts
}

const CLIENTS: [(&str, &[u8]); 3] = [
    ("1.0", include_bytes!("peers/omniorb-1.0-client.bin")),
    ("1.1", include_bytes!("peers/omniorb-1.1-client.bin")),
    ("1.2", include_bytes!("peers/omniorb-1.2-client.bin")),
];

const SERVERS: [(&str, &[u8]); 3] = [
    ("1.0", include_bytes!("peers/omniorb-1.0-server.bin")),
    ("1.1", include_bytes!("peers/omniorb-1.1-server.bin")),
    ("1.2", include_bytes!("peers/omniorb-1.2-server.bin")),
];

/// As the peer made them.
fn octets() -> Vec<u8> {
    (0..8192u32).map(|i| (i * 7 + i / 256) as u8).collect()
}

#[test]
fn its_clients_messages_are_read_in_any_pieces() {
    for (version, stream) in CLIENTS {
        for piece in [1, 7, 1000, stream.len()] {
            let mut sets = None;
            let mut large = 0;
            let counts = read(stream, piece, |message| {
                let Message::Request(request) = message else { return };
                assert_eq!((request.target.key().unwrap(), request.response), (&b"Peer"[..], Response::Target));
                for context in request.contexts.clone() {
                    if let Context::CodeSets(chosen) = Context::decode(context).unwrap() {
                        sets = Some((chosen.narrow, chosen.wide));
                    }
                }
                if request.operation == "echo_octets" {
                    let mut arguments = request.arguments.clone();
                    assert_eq!(<&[u8]>::decode(&mut arguments).unwrap(), octets());
                    assert_eq!(<&[u8]>::decode(&mut arguments).unwrap(), []);
                    large += 1;
                }
            });
            assert_eq!(counts["locate request"], 2);
            assert!(counts.values().sum::<usize>() >= 8, "{version}: {counts:?}");
            assert_eq!(large, usize::from(version != "1.0"), "{version}");
            // Its native set, which its server shares.
            let agreed = (version == "1.2").then_some((CodeSet::LATIN1, CodeSet::UTF16));
            assert_eq!(sets, agreed, "{version}");
        }
    }
}

#[test]
fn its_servers_messages_are_read_in_any_pieces() {
    for (version, stream) in SERVERS {
        for piece in [1, 7, 1000, stream.len()] {
            let mut kinds = Vec::new();
            let mut large = 0;
            let counts = read(stream, piece, |message| {
                let Message::Reply(reply) = message else { return };
                let mut body = reply.body.clone();
                match reply.status {
                    ReplyStatus::SystemException => kinds.push(SystemException::decode(&mut body).unwrap().kind),
                    ReplyStatus::UserException => {
                        let id = String::decode(&mut body).unwrap();
                        assert!(id.starts_with("IDL:hyoshi/Peers/"), "{id}");
                    }
                    ReplyStatus::LocationForward => {
                        let ior = Ior::decode(&mut body).unwrap();
                        assert_eq!(ior.type_id, "IDL:hyoshi/Peers/Peer:1.0");
                        assert!(!ior.iiop().next().unwrap().unwrap().endpoints().is_empty());
                    }
                    _ if body.left() > 8192 => {
                        for expected in [octets(), octets(), Vec::new()] {
                            assert_eq!(<&[u8]>::decode(&mut body).unwrap(), expected);
                        }
                        large += 1;
                    }
                    _ => {}
                }
            });
            for kind in ["locate reply ObjectHere", "reply LocationForward", "reply UserException"] {
                assert!(counts.contains_key(kind), "{version}: {counts:?}");
            }
            assert!(kinds.contains(&SystemKind::NoMemory) && kinds.contains(&SystemKind::ImpLimit), "{kinds:?}");
            assert_eq!(large, usize::from(version != "1.0"), "{version}");
        }
    }
}

#[test]
fn jacorbs_messages_are_read_in_any_pieces() {
    let stream = include_bytes!("peers/jacorb-1.2-server.bin");
    for piece in [1, 7, 1000, stream.len()] {
        let mut details = 0;
        let counts = read(stream, piece, |message| match message {
            Message::Reply(reply) => {
                for context in reply.contexts.clone() {
                    if let Context::ExceptionDetail(text) = Context::decode(context).unwrap() {
                        assert!(text.is_ascii(), "{text}");
                        details += 1;
                    }
                }
                let mut body = reply.body.clone();
                match reply.status {
                    ReplyStatus::SystemException => drop(SystemException::decode(&mut body).unwrap()),
                    ReplyStatus::LocationForward => drop(Ior::decode(&mut body).unwrap()),
                    _ => {}
                }
            }
            // Its bodies follow at once, without padding to eight.
            Message::LocateReply(reply) => match reply.status {
                LocateStatus::ObjectForward => {
                    let ior = Ior::decode(&mut reply.body.clone()).unwrap();
                    assert_eq!(ior.type_id, "IDL:hyoshi/Peers/Peer:1.0");
                }
                LocateStatus::SystemException => {
                    let thrown = SystemException::decode(&mut reply.body.clone()).unwrap();
                    assert_eq!(thrown.kind, SystemKind::ObjectNotExist);
                }
                _ => {}
            },
            _ => {}
        });
        for kind in ["locate reply ObjectForward", "locate reply SystemException", "reply SystemException"] {
            assert!(counts.contains_key(kind), "{counts:?}");
        }
        assert!(details > 0, "JacORB adds details to its exceptions");
    }
}

/// In 1.1 a number is aligned by its position in the fragment, which differs from that in the whole message. In
/// sequences omniORBpy aligns each number so, omniORB only the first.
#[test]
fn numbers_behind_a_fragment_of_1_1_are_read() {
    let streams = [
        &include_bytes!("peers/omniorb-1.1-doubles-client.bin")[..],
        include_bytes!("peers/omniorb-1.1-doubles-server.bin"),
        include_bytes!("peers/omniorbpy-1.1-doubles-client.bin"),
        include_bytes!("peers/omniorbpy-1.1-doubles-server.bin"),
    ];
    let long: Vec<f64> = (0..1100).map(|i| f64::from(i) + 0.5).collect();
    for (side, stream) in streams.into_iter().enumerate() {
        for piece in [1, 1000, stream.len()] {
            let mut large = 0;
            read(stream, piece, |message| {
                let (mut body, expected) = match message {
                    Message::Request(request) => (request.arguments.clone(), vec![long.clone(), vec![1.0, 2.0, 3.0]]),
                    // The result, which was the first argument; then the second one.
                    Message::Reply(reply) => {
                        (reply.body.clone(), vec![long.clone(), long.clone(), vec![1.0, 2.0, 3.0]])
                    }
                    _ => return,
                };
                let found = body.whole(|from| expected.iter().map(|_| Vec::<f64>::decode(from)).collect());
                let found: Vec<Vec<f64>> = found.unwrap();
                assert!(found == expected, "stream {side}: {} sequences of doubles", found.len());
                assert_eq!(body.left(), 0);
                large += 1;
            });
            assert_eq!(large, 1);
        }
    }
}
