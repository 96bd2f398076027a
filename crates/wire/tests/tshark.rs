//! Wireshark's GIOP dissector reads this crate's messages: each message of each version and byte order, whole and in
//! fragments. Skipped if `tshark` is not installed.

use std::path::PathBuf;
use std::process::Command;

use hyoshi_wire::giop::{
    Addressing, CodeSets, Context, LocateReplyHeader, LocateRequest, LocateStatus, ReplyHeader, ReplyStatus,
    RequestHeader, Response, ServiceContext, Target, Transmission, cancel_request, close_connection, message_error,
    split,
};
use hyoshi_wire::ior::{Component, Ior, ORB_HYOSHI, Profile};
use hyoshi_wire::tagged::Tagged;
use hyoshi_wire::{ByteOrder, CharSet, Encode, Encoder, SystemKind, Version};

/// The port to dissect as GIOP.
const PORT: u16 = 2809;

/// Packets of one TCP connection in a capture file, headers written by hand (libpcap's format, raw IPv4).
struct Capture {
    bytes: Vec<u8>,
    /// Of the client and the server.
    sequence: [u32; 2],
}

impl Capture {
    fn new() -> Capture {
        let mut bytes = Vec::new();
        for field in [0xa1b2_c3d4u32, 2 | 4 << 16, 0, 0, 1 << 20, 101] {
            bytes.extend(field.to_le_bytes());
        }
        Capture { bytes, sequence: [1, 1] }
    }

    /// A segment of the client's (0) or the server's (1).
    fn add(&mut self, from: usize, payload: &[u8]) {
        let ports = [40000u16, PORT];
        let mut packet = vec![0x45, 0];
        packet.extend((40 + payload.len() as u16).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
        packet.extend([127, 0, 0, 1 + from as u8, 127, 0, 0, 2 - from as u8]);
        packet.extend(ports[from].to_be_bytes());
        packet.extend(ports[1 - from].to_be_bytes());
        packet.extend(self.sequence[from].to_be_bytes());
        packet.extend(self.sequence[1 - from].to_be_bytes());
        packet.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
        packet.extend(payload);
        self.sequence[from] += payload.len() as u32;
        let length = packet.len() as u32;
        for field in [self.bytes.len() as u32, 0, length, length] {
            self.bytes.extend(field.to_le_bytes());
        }
        self.bytes.extend(packet);
    }

    /// These fields of each packet.
    fn dissected(&self, name: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::write(&path, &self.bytes).expect("the capture is written");
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&path).args([
            "-d",
            &format!("tcp.port=={PORT},giop"),
            "-T",
            "fields",
            "-E",
            "separator=|",
        ]);
        for field in fields {
            tshark.args(["-e", field]);
        }
        let output = tshark.output().expect("tshark runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
    }
}

fn is_there() -> bool {
    let there = Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("SKIPPED: tshark is not installed (apt install tshark)");
    }
    there
}

fn encoder(version: Version, order: ByteOrder) -> Encoder {
    let mut to = Encoder::new(order);
    to.speak(version, CharSet::Utf8);
    to
}

fn reference() -> Ior {
    let components = [Component::OrbType(ORB_HYOSHI), Component::CodeSets(CodeSets::ours())];
    let data: Vec<_> = components.iter().map(|component| (component.tag(), component.data().unwrap())).collect();
    let components: Vec<_> = data.iter().map(|(tag, data)| Tagged { tag: *tag, data }).collect();
    let profile = Profile::iiop(Version::V1_2, "localhost", PORT, b"Tracker", &components).unwrap();
    Ior { type_id: "IDL:Tracking/Tracker:1.0".into(), profiles: vec![profile] }
}

/// A message, and the expected output of the dissector.
struct Sent {
    /// The client (0) or the server (1).
    from: usize,
    octets: Vec<u8>,
    kind: u8,
    id: Option<u32>,
    /// The operation or the reply status.
    shows: &'static str,
}

/// All messages of a version.
fn messages(version: Version, order: ByteOrder) -> Vec<Sent> {
    let sets = Transmission::choose(&CodeSets::ours()).unwrap();
    let sets = Context::CodeSets(sets).data().unwrap();
    let priority = Context::Priority(7).data().unwrap();
    let contexts = [ServiceContext { tag: 1, data: &sets }, ServiceContext { tag: 10, data: &priority }];
    let mut all = Vec::new();
    let mut id = 0;
    let mut message = |from, kind, shows, write: &dyn Fn(u32, &mut Encoder)| {
        id += 2;
        let mut to = encoder(version, order);
        write(id, &mut to);
        all.push(Sent { from, octets: to.into_bytes(), kind, id: Some(id), shows });
    };
    for (target, arguments) in [(Target::Key(b"Tracker"), true), (Target::Key(b""), false)] {
        message(0, 0, "locate", &|id, to| {
            let contexts = if arguments { &contexts[..] } else { &[] };
            let response = Response::Target;
            let header = RequestHeader { id, response, target: target.clone(), operation: "locate", contexts };
            let begun = header.begin(to).unwrap();
            if arguments {
                1.5f64.encode(to).unwrap();
                "text".encode(to).unwrap();
            }
            begun.end(to).unwrap();
        });
    }
    let reply = |status: ReplyStatus, body: &'static dyn Fn(&mut Encoder)| {
        move |id: u32, to: &mut Encoder| {
            let begun = ReplyHeader { id, status, contexts: &[] }.begin(to).unwrap();
            body(to);
            begun.end(to).unwrap();
        }
    };
    message(1, 1, "0", &reply(ReplyStatus::NoException, &|to| 1.5f64.encode(to).unwrap()));
    message(1, 1, "0", &reply(ReplyStatus::NoException, &|_| {}));
    message(1, 1, "1", &reply(ReplyStatus::UserException, &|to| "IDL:Tracking/Unknown:1.0".encode(to).unwrap()));
    message(
        1,
        1,
        "2",
        &reply(ReplyStatus::SystemException, &|to| SystemKind::Transient.not_done(2).encode(to).unwrap()),
    );
    message(1, 1, "3", &reply(ReplyStatus::LocationForward, &|to| reference().encode(to).unwrap()));
    message(0, 2, "", &|id, to| cancel_request(id, to).unwrap());
    message(0, 3, "", &|id, to| LocateRequest { id, target: Target::Key(b"Tracker") }.encode(to).unwrap());
    message(1, 4, "", &|id, to| {
        let begun = LocateReplyHeader { id, status: LocateStatus::ObjectHere }.begin(to).unwrap();
        begun.end(to).unwrap();
    });
    // In 1.2 the dissector expects the body at a multiple of eight; the standard (9.4.6.2), JacORB and omniORB do not.
    if version < Version::V1_2 {
        message(1, 4, "", &|id, to| {
            let begun = LocateReplyHeader { id, status: LocateStatus::ObjectForward }.begin(to).unwrap();
            reference().encode(to).unwrap();
            begun.end(to).unwrap();
        });
    }
    if version == Version::V1_2 {
        message(1, 1, "5", &reply(ReplyStatus::NeedsAddressingMode, &|to| Addressing::Key.encode(to).unwrap()));
        let ior = reference();
        let profile = ior.profiles[0].tagged();
        message(0, 3, "", &|id, to| LocateRequest { id, target: Target::Profile(profile) }.encode(to).unwrap());
    }
    for (kind, octets) in [(5, close_connection(version)), (6, message_error(version))] {
        all.push(Sent { from: 1, octets: octets.to_vec(), kind, id: None, shows: "" });
    }
    all
}

#[test]
fn wiresharks_dissector_reads_every_message() {
    if !is_there() {
        return;
    }
    for version in [Version::V1_0, Version::V1_1, Version::V1_2] {
        for order in [ByteOrder::Big, ByteOrder::Little] {
            let messages = messages(version, order);
            let mut capture = Capture::new();
            messages.iter().for_each(|sent| capture.add(sent.from, &sent.octets));
            let fields =
                ["giop.type", "giop.request_id", "giop.request_op", "giop.replystatus", "_ws.malformed", "_ws.expert"];
            let seen = capture.dissected(&format!("messages-{version}-{order:?}.pcap"), &fields);
            assert_eq!(seen.len(), messages.len(), "{version} {order:?}");
            for (Sent { kind, id, shows, .. }, seen) in messages.iter().zip(&seen) {
                let what = format!("GIOP {version} {order:?} {seen:?}");
                assert_eq!(number(&seen[0]), Some(u32::from(*kind)), "{what}");
                // Some versions of the dissector do not show the id of short messages.
                assert!(seen[1].is_empty() || number(&seen[1]) == *id, "{what}");
                assert!(!matches!(kind, 0 | 1) || !seen[1].is_empty(), "{what}");
                match kind {
                    0 => assert_eq!(seen[2], *shows, "{what}"),
                    1 => assert_eq!(number(&seen[3]), shows.parse().ok(), "{what}"),
                    _ => {}
                }
                assert!(seen[4].is_empty(), "malformed: {what}");
            }
        }
    }
}

#[test]
fn wiresharks_dissector_puts_our_fragments_together() {
    if !is_there() {
        return;
    }
    for order in [ByteOrder::Big, ByteOrder::Little] {
        let mut to = encoder(Version::V1_2, order);
        let contexts = [];
        let header = RequestHeader {
            id: 8,
            response: Response::Target,
            target: Target::Key(b"Tracker"),
            operation: "store",
            contexts: &contexts,
        };
        let begun = header.begin(&mut to).unwrap();
        vec![7u8; 3000].encode(&mut to).unwrap();
        begun.end(&mut to).unwrap();
        let mut capture = Capture::new();
        let mut pieces = 0;
        for piece in split(to.bytes(), 1024) {
            capture.add(0, &[piece.head(), piece.body()].concat());
            pieces += 1;
        }
        assert_eq!(pieces, 4);
        let fields = ["giop.type", "giop.request_id", "giop.request_op", "_ws.malformed", "giop.fragment.count"];
        let seen = capture.dissected(&format!("fragments-{order:?}.pcap"), &fields);
        assert!(seen.iter().all(|seen| seen[3].is_empty()), "{seen:?}");
        let kinds: Vec<_> = seen.iter().map(|seen| seen[0].split(',').next_back().and_then(number)).collect();
        assert_eq!(kinds, [Some(0), Some(7), Some(7), Some(7)], "{seen:?}");
        assert!(seen.iter().any(|seen| seen[2].contains("store")), "{seen:?}");
    }
}

/// Decimal or hexadecimal, as versions of tshark differ.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
