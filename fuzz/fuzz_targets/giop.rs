//! Any octets as a message of any version and kind: it is read, or refused; never a panic. A request that was
//! read is written again and read back the same.

#![no_main]

use hyoshi_wire::giop::{
    Context, Header, Message, MessageKind, Reassembler, Received, ReplyHeader, RequestHeader, ServiceContext, split,
};
use hyoshi_wire::ior::{IiopProfile, Ior};
use hyoshi_wire::{ByteOrder, CharSet, Decode, Encoder, Limits, Version};
use libfuzzer_sys::fuzz_target;

const VERSIONS: [Version; 3] = [Version::V1_0, Version::V1_1, Version::V1_2];

fuzz_target!(|octets: &[u8]| {
    let Some(([kind, version], body)) = octets.split_first_chunk() else { return };
    let version = VERSIONS[usize::from(version >> 1) % 3];
    let order = ByteOrder::from_flag(octets[1]);
    let kind = MessageKind::ALL[usize::from(*kind) % 7];
    let header = Header { version, order, more: false, kind, size: body.len() as u32 };
    let message = [&header.encode()[..], body].concat();
    let mut messages = Reassembler::new(Limits::default());
    let mut rest = &message[..];
    let Ok(Some(received)) = messages.next(&mut rest) else { panic!("a whole message was not found") };
    received.id();
    match received.decode() {
        Ok(Message::Request(request)) => {
            drop(request.target.key());
            let contexts: Vec<ServiceContext<'_>> = request.contexts.clone().collect();
            contexts.iter().for_each(|context| drop(Context::decode(*context)));
            let mut to = Encoder::new(order);
            to.speak(version, CharSet::Latin1);
            let header = RequestHeader {
                id: request.id,
                response: request.response,
                target: request.target.clone(),
                operation: request.operation,
                contexts: &contexts,
            };
            let begun = header.begin(&mut to).expect("what was read can be written");
            to.raw(request.arguments.rest());
            begun.end(&mut to).expect("not 4 GiB");
            same(to.bytes(), |again| {
                let Ok(Message::Request(again)) = again.decode() else { panic!("no request") };
                assert_eq!(
                    (again.id, again.response, again.operation),
                    (request.id, request.response, request.operation)
                );
                assert_eq!(again.target, request.target);
                assert!(again.contexts == request.contexts);
                assert_eq!(again.arguments.rest(), request.arguments.rest());
            });
        }
        Ok(Message::Reply(reply)) => {
            let contexts: Vec<ServiceContext<'_>> = reply.contexts.clone().collect();
            if let Ok(ior) = Ior::decode(&mut reply.body.clone()) {
                ior.iiop().flatten().for_each(|profile: IiopProfile<'_>| drop(profile.endpoints()));
            }
            let mut to = Encoder::new(order);
            to.speak(version, CharSet::Latin1);
            let header = ReplyHeader { id: reply.id, status: reply.status, contexts: &contexts };
            let begun = header.begin(&mut to).expect("what was read can be written");
            to.raw(reply.body.rest());
            begun.end(&mut to).expect("not 4 GiB");
            same(to.bytes(), |again| {
                let Ok(Message::Reply(again)) = again.decode() else { panic!("no reply") };
                assert_eq!((again.id, again.status, again.body.rest()), (reply.id, reply.status, reply.body.rest()));
            });
        }
        _ => {}
    }
});

/// Reads a message again, whole and in pieces.
fn same(message: &[u8], check: impl Fn(Received<'_>)) {
    let stream: Vec<u8> = split(message, 64).flat_map(|piece| [piece.head(), piece.body()].concat()).collect();
    for mut octets in [message, &stream] {
        let mut messages = Reassembler::new(Limits::default());
        check(messages.next(&mut octets).expect("a message of ours").expect("a whole one"));
        assert!(octets.is_empty());
    }
}
