use std::string::ToString;

use super::*;
use crate::cdr::{Decode, DecodeErrorKind, EncodeError, Limits};
use crate::tagged::Tagged;
use crate::{SystemException, SystemKind};

/// The one message of these octets.
fn whole(octets: &[u8], check: impl FnOnce(Received<'_>)) {
    let mut messages = Reassembler::new(Limits::default());
    let mut rest = octets;
    check(messages.next(&mut rest).expect("a message").expect("a whole one"));
    assert!(rest.is_empty());
    assert!(messages.next(&mut rest).expect("no more").is_none());
}

fn iiop_profile(key: &[u8]) -> Vec<u8> {
    let mut to = Encoder::new(ByteOrder::Little);
    to.raw(&[1, 1, 2]);
    "host".encode(&mut to).unwrap();
    2809u16.encode(&mut to).unwrap();
    key.encode(&mut to).unwrap();
    to.into_bytes()
}

proptest! {
    #[test]
    fn requests_come_back_as_they_were(
        version in version(), order in order(), id: u32, response in 0..3usize, key in octets(30), op in operation(),
        contexts in contexts(), body in octets(40),
    ) {
        let response = [Response::None, Response::Server, Response::Target][response];
        let list = borrowed(&contexts);
        let mut to = encoder(version, order);
        let header = RequestHeader { id, response, target: Target::Key(&key), operation: &op, contexts: &list };
        let begun = header.begin(&mut to).unwrap();
        to.raw(&body);
        begun.end(&mut to).unwrap();
        whole(to.bytes(), |received| {
            assert_eq!((received.header().version, received.header().order), (version, order));
            assert_eq!(received.id(), Some(id));
            assert_eq!(received.wants_reply(), response.expected());
            let Message::Request(request) = received.decode().unwrap() else { panic!("a request") };
            assert_eq!((request.id, request.target.key().unwrap(), request.operation), (id, &key[..], &op[..]));
            assert_eq!(request.response.expected(), response.expected());
            if version == Version::V1_2 {
                assert_eq!(request.response, response);
                assert!(body.is_empty() || request.arguments.at() % 8 == 0);
            }
            assert_eq!(request.contexts.collect::<Vec<_>>(), list);
            assert_eq!(request.arguments.rest(), body);
        });
    }

    #[test]
    fn replies_come_back_as_they_were(
        version in version(), order in order(), id: u32, status in 0..6usize, contexts in contexts(), body in octets(40),
    ) {
        let statuses = [
            ReplyStatus::NoException, ReplyStatus::UserException, ReplyStatus::SystemException,
            ReplyStatus::LocationForward, ReplyStatus::LocationForwardPerm, ReplyStatus::NeedsAddressingMode,
        ];
        let list = borrowed(&contexts);
        let mut to = encoder(version, order);
        let begun = ReplyHeader { id, status: statuses[status], contexts: &list }.begin(&mut to);
        if version < Version::V1_2 && status > 3 {
            prop_assert!(matches!(begun, Err(EncodeError::NotInVersion(_))));
            return Ok(());
        }
        let begun = begun.unwrap();
        to.raw(&body);
        begun.end(&mut to).unwrap();
        whole(to.bytes(), |received| {
            assert_eq!(received.id(), Some(id));
            assert!(!received.wants_reply());
            let Message::Reply(reply) = received.decode().unwrap() else { panic!("a reply") };
            assert_eq!((reply.id, reply.status), (id, statuses[status]));
            assert_eq!(reply.contexts.collect::<Vec<_>>(), list);
            assert_eq!(reply.body.rest(), body);
        });
    }

    #[test]
    fn locating_messages_are_decoded_as_encoded(version in version(), order in order(), id: u32, key in octets(30)) {
        let mut to = encoder(version, order);
        LocateRequest { id, target: Target::Key(&key) }.encode(&mut to).unwrap();
        whole(to.bytes(), |received| {
            let Message::LocateRequest(request) = received.decode().unwrap() else { panic!("a locate request") };
            assert_eq!(request, LocateRequest { id, target: Target::Key(&key) });
        });
        to.clear();
        let begun = LocateReplyHeader { id, status: LocateStatus::ObjectForward }.begin(&mut to).unwrap();
        key.encode(&mut to).unwrap();
        begun.end(&mut to).unwrap();
        whole(to.bytes(), |received| {
            let Message::LocateReply(mut reply) = received.decode().unwrap() else { panic!("a locate reply") };
            assert_eq!((reply.id, reply.status), (id, LocateStatus::ObjectForward));
            assert_eq!(<&[u8]>::decode(&mut reply.body).unwrap(), &key[..]);
        });
    }

    #[test]
    fn no_octets_make_decoding_panic(
        version in version(), order in order(), kind in 0..8usize, body in octets(120),
    ) {
        let header = Header { version, order, more: false, kind: MessageKind::ALL[kind], size: body.len() as u32 };
        let octets = [&header.encode()[..], &body].concat();
        if let Ok(Some(received)) = Reassembler::new(Limits::default()).next(&mut &octets[..]) {
            received.id();
            if let Ok(Message::Request(request)) = received.decode() {
                drop(request.target.key());
                assert!(request.contexts.count() < 16);
            }
        }
    }

    #[test]
    fn a_cut_or_changed_request_is_an_error_or_another_request(
        version in version(), order in order(), contexts in contexts(), at: prop::sample::Index, to: u8, cut: bool,
    ) {
        let mut octets = request(version, order, 7, &contexts, b"arguments");
        let at = at.index(octets.len());
        if cut { octets.truncate(at) } else { octets[at] = to }
        // Its size in the header, so the body is cut.
        if let Some(size) = (octets.len() as u32).checked_sub(12).filter(|_| cut) {
            octets[8..12].copy_from_slice(&match order {
                ByteOrder::Big => size.to_be_bytes(),
                ByteOrder::Little => size.to_le_bytes(),
            });
        }
        if let Ok(Some(received)) = Reassembler::new(Limits::default()).next(&mut &octets[..]) {
            drop(received.decode());
        }
    }
}

#[test]
fn a_target_can_be_a_profile_or_a_reference() {
    let profile = iiop_profile(b"the key");
    let mut list = Encoder::new(ByteOrder::Big);
    Vec::from([Tagged { tag: 9, data: b"other" }, Tagged { tag: 0, data: &profile }]).encode(&mut list).unwrap();
    let profiles = ServiceContexts::decode(&mut crate::Decoder::new(list.bytes(), ByteOrder::Big)).unwrap();
    let selected = Tagged { tag: 0, data: &profile };
    for target in [Target::Profile(selected), Target::Reference { type_id: "IDL:A:1.0", profiles, selected }] {
        let mut to = encoder(Version::V1_2, ByteOrder::Big);
        LocateRequest { id: 1, target: target.clone() }.encode(&mut to).unwrap();
        whole(to.bytes(), |received| {
            let Message::LocateRequest(request) = received.decode().unwrap() else { panic!("a locate request") };
            assert_eq!(request.target, target);
            assert_eq!(request.target.key().unwrap(), b"the key");
        });
        let mut old = encoder(Version::V1_1, ByteOrder::Big);
        let refused = LocateRequest { id: 1, target }.encode(&mut old);
        assert_eq!(refused, Err(EncodeError::NotInVersion("addressing by profile or reference")));
    }
    let other = Target::Profile(Tagged { tag: 1, data: &profile }).key().unwrap_err();
    assert!(matches!(other.kind, DecodeErrorKind::Unsupported(_)));
}

#[test]
fn a_system_exception_is_a_replys_body() {
    let mut to = encoder(Version::V1_2, ByteOrder::Little);
    let begun = ReplyHeader { id: 3, status: ReplyStatus::SystemException, contexts: &[] }.begin(&mut to).unwrap();
    let thrown = SystemKind::Transient.not_done(2);
    thrown.encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    whole(to.bytes(), |received| {
        let Message::Reply(mut reply) = received.decode().unwrap() else { panic!("a reply") };
        assert_eq!(SystemException::decode(&mut reply.body).unwrap(), thrown);
    });
}

#[test]
fn an_empty_body_leaves_no_padding_and_padding_alone_is_an_empty_body() {
    let octets = request(Version::V1_2, ByteOrder::Little, 1, &[(1, Vec::from([1, 2, 3]))], b"");
    assert_ne!(octets.len() % 8, 0, "the case is to be one with padding");
    for pad in 0..8u8 {
        let mut octets = octets.clone();
        octets.extend(core::iter::repeat_n(0xff, usize::from(pad)));
        let size = octets.len() as u32 - 12;
        octets[8..12].copy_from_slice(&size.to_le_bytes());
        whole(&octets, |received| {
            let Message::Request(request) = received.decode().unwrap() else { panic!("a request") };
            assert!(request.arguments.left() < 8);
        });
    }
}

#[test]
fn several_messages_fit_in_one_encoder() {
    let mut to = encoder(Version::V1_2, ByteOrder::Big);
    for id in 0..3 {
        let header =
            RequestHeader { id, response: Response::None, target: Target::Key(b"k"), operation: "push", contexts: &[] };
        let begun = header.begin(&mut to).unwrap();
        if id != 1 {
            1.5f64.encode(&mut to).unwrap();
        }
        begun.end(&mut to).unwrap();
    }
    let header = ReplyHeader { id: 9, status: ReplyStatus::NoException, contexts: &[] };
    let before = to.len();
    header.begin(&mut to).unwrap().undo(&mut to);
    assert_eq!(to.len(), before);
    let mut messages = Reassembler::new(Limits::default());
    let mut octets = to.bytes();
    for id in 0..3 {
        let received = messages.next(&mut octets).unwrap().unwrap();
        let Message::Request(mut request) = received.decode().unwrap() else { panic!("a request") };
        assert_eq!(request.id, id);
        if id != 1 {
            assert_eq!(f64::decode(&mut request.arguments).unwrap(), 1.5);
        }
    }
}

#[test]
fn fixed_messages_are_twelve_octets() {
    assert_eq!(close_connection(Version::V1_2), *b"GIOP\x01\x02\x00\x05\0\0\0\0");
    assert_eq!(message_error(Version::V1_0), *b"GIOP\x01\x00\x00\x06\0\0\0\0");
    whole(&close_connection(Version::V1_1), |received| {
        assert!(matches!(received.decode(), Ok(Message::CloseConnection)));
        assert_eq!(received.id(), None);
    });
    whole(&cancel(Version::V1_0, ByteOrder::Big, 77), |received| {
        assert!(matches!(received.decode(), Ok(Message::CancelRequest(77))));
    });
}

#[test]
fn the_octets_of_a_request_are_as_the_standard_lays_them() {
    let mut to = encoder(Version::V1_2, ByteOrder::Little);
    let header = RequestHeader {
        id: 2,
        response: Response::Target,
        target: Target::Key(b"NameService"),
        operation: "_is_a",
        contexts: &[Tagged { tag: 1, data: b"\x01\0\0\0\x01\0\x01\0\x09\x01\x01\0" }],
    };
    let begun = header.begin(&mut to).unwrap();
    "IDL:A:1.0".encode(&mut to).unwrap();
    begun.end(&mut to).unwrap();
    let expected: [&[u8]; 8] = [
        b"GIOP\x01\x02\x01\x00\x52\0\0\0",
        b"\x02\0\0\0\x03\0\0\0",
        b"\0\0\0\0\x0b\0\0\0NameService\0",
        b"\x06\0\0\0_is_a\0\0\0",
        b"\x01\0\0\0\x01\0\0\0\x0c\0\0\0",
        b"\x01\0\0\0\x01\0\x01\0\x09\x01\x01\0",
        b"\0\0\0\0",
        b"\x0a\0\0\0IDL:A:1.0\0",
    ];
    assert_eq!(to.bytes().escape_ascii().to_string(), expected.concat().escape_ascii().to_string());
}

#[test]
fn contexts_that_are_known_come_back_as_they_were() {
    let chosen = Transmission { narrow: CodeSet::UTF8, wide: CodeSet::UTF16 };
    let all = [
        Context::CodeSets(chosen),
        Context::BiDirectional(Vec::from([ListenPoint { host: "here", port: 7 }, ListenPoint { host: "", port: 0 }])),
        Context::Priority(-3),
        Context::ExceptionDetail("at line 7: ä𝄞".into()),
        Context::Other(Tagged { tag: 99, data: b"\x05whatever" }),
    ];
    for context in all {
        let data = context.data().unwrap();
        assert_eq!(Context::decode(Tagged { tag: context.id(), data: &data }).unwrap(), context);
    }
    // With a mark, little-endian, as omniORB writes wide strings.
    let data = b"\x01\0\0\0\x06\0\0\0\xff\xfea\0b\0";
    let detail = Context::decode(Tagged { tag: CONTEXT_EXCEPTION_DETAIL, data }).unwrap();
    assert_eq!(detail, Context::ExceptionDetail("ab".into()));
    assert!(Context::decode(Tagged { tag: CONTEXT_RT_PRIORITY, data: b"" }).is_err());
}

proptest! {
    #[test]
    fn a_readdressed_request_has_its_arguments_at_an_equal_place(
        version in version(),
        order in order(),
        contexts in contexts(),
        extra in octets(12),
        key in octets(20),
        principal in 0..9u8,
        body in octets(40),
    ) {
        let mut sent = request(version, order, 7, &contexts, &body);
        if version != Version::V1_2 {
            // That of a client.
            let at = sent.len() - body.len();
            let length = if order == ByteOrder::Big { at - 1 } else { at - 4 };
            sent[length] = principal;
            sent.splice(at..at, (0..principal).map(|_| 0xee));
            let size = (sent.len() - Header::LEN) as u32;
            sent[8..12].copy_from_slice(&if order == ByteOrder::Big { size.to_be_bytes() } else { size.to_le_bytes() });
        }
        let mut messages = Reassembler::new(Limits::default());
        let mut octets = &sent[..];
        let received = messages.next(&mut octets).unwrap().unwrap();
        let Message::Request(before) = received.decode().unwrap() else { panic!() };
        let mut to = encoder(version, order);
        to.raw(b"abc");
        before.readdress(&key, &[ServiceContext { tag: 77, data: &extra }], &mut to).unwrap();
        let mut messages = Reassembler::new(Limits::default());
        let mut octets = &to.bytes()[3..];
        let received = messages.next(&mut octets).unwrap().unwrap();
        let Message::Request(after) = received.decode().unwrap() else { panic!() };
        prop_assert_eq!((after.id, after.operation, after.response), (before.id, before.operation, before.response));
        prop_assert_eq!(after.target.key().unwrap(), &key[..]);
        prop_assert_eq!(after.arguments.rest(), &body[..]);
        if !body.is_empty() {
            prop_assert_eq!(after.arguments.at() % 8, before.arguments.at() % 8);
        }
        let mut expected = borrowed(&contexts);
        expected.push(ServiceContext { tag: 77, data: &extra });
        prop_assert_eq!(after.contexts.collect::<Vec<_>>(), expected);
    }
}
