//! The cost of a request and its reply in addition to their octets. `cargo bench -p hyoshi-wire --bench messages`

use divan::{Bencher, black_box};
use hyoshi_wire::giop::{
    Message, Reassembler, ReplyHeader, ReplyStatus, RequestHeader, Response, ServiceContext, Target, split,
};
use hyoshi_wire::{ByteOrder, Encode, Encoder, Limits};

const CONTEXT: ServiceContext<'static> = ServiceContext { tag: 10, data: &[1, 0, 0, 7] };

fn request(to: &mut Encoder, contexts: &[ServiceContext<'_>], body: &[u8]) {
    let target = Target::Key(b"\x14plant\0trackers\0\0\0\0\x07");
    let header = RequestHeader { id: 6, response: Response::Target, target, operation: "locate", contexts };
    let begun = header.begin(to).expect("1.2 carries it");
    body.encode(to).expect("small");
    begun.end(to).expect("small");
}

#[divan::bench(args = [0, 1])]
fn write_request(bencher: Bencher, contexts: usize) {
    let mut to = Encoder::new(ByteOrder::NATIVE);
    bencher.bench_local(|| {
        to.clear();
        request(&mut to, black_box(&[CONTEXT][..contexts]), b"12345678");
    });
}

#[divan::bench]
fn write_reply(bencher: Bencher) {
    let mut to = Encoder::new(ByteOrder::NATIVE);
    bencher.bench_local(|| {
        to.clear();
        let header = ReplyHeader { id: black_box(6), status: ReplyStatus::NoException, contexts: &[] };
        let begun = header.begin(&mut to).expect("1.2 carries it");
        7u32.encode(&mut to).expect("small");
        begun.end(&mut to).expect("small");
    });
}

#[divan::bench(args = [0, 1])]
fn receive_request(bencher: Bencher, contexts: usize) {
    let mut to = Encoder::new(ByteOrder::NATIVE);
    request(&mut to, &[CONTEXT][..contexts], b"12345678");
    let mut messages = Reassembler::new(Limits::default());
    bencher.bench_local(|| {
        let mut octets = black_box(to.bytes());
        let received = messages.next(&mut octets).expect("sound").expect("whole");
        let Ok(Message::Request(request)) = received.decode() else { panic!("a request") };
        black_box((request.id, request.target.key().expect("a key"), request.operation));
        assert!(octets.is_empty());
    });
}

#[divan::bench]
fn receive_64_kib_in_chunks_of_16(bencher: Bencher) {
    let mut to = Encoder::new(ByteOrder::NATIVE);
    request(&mut to, &[], &vec![7; 65536]);
    let mut messages = Reassembler::new(Limits::default());
    bencher.bench_local(|| {
        for mut chunk in black_box(to.bytes()).chunks(16384) {
            while let Some(received) = messages.next(&mut chunk).expect("sound") {
                black_box(received.octets());
            }
        }
    });
}

#[divan::bench]
fn receive_64_kib_in_8_fragments(bencher: Bencher) {
    let mut to = Encoder::new(ByteOrder::NATIVE);
    request(&mut to, &[], &vec![7; 65536]);
    let stream: Vec<u8> = split(to.bytes(), 8192).flat_map(|piece| [piece.head(), piece.body()].concat()).collect();
    let mut messages = Reassembler::new(Limits::default());
    bencher.bench_local(|| {
        let mut octets = black_box(&stream[..]);
        while let Some(received) = messages.next(&mut octets).expect("sound") {
            black_box(received.octets());
        }
    });
}

fn main() {
    divan::main();
}
