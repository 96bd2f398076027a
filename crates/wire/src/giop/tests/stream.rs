use super::*;
use crate::cdr::Limits;

const LIMITS: Limits = Limits { message: 4096, depth: 8 };

/// All messages of a stream that comes in chunks of these sizes (again and again), by `next` or through `room`.
fn receive(stream: &[u8], chunks: &[usize], room: bool) -> Result<Vec<Vec<u8>>, Fault> {
    let mut messages = Reassembler::new(LIMITS);
    let mut got = Vec::new();
    let mut rest = stream;
    for chunk in chunks.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (mut now, later) = rest.split_at((*chunk).min(rest.len()));
        if let Some(room) = messages.room().filter(|_| room) {
            let count = room.len().min(now.len());
            room[..count].copy_from_slice(&now[..count]);
            messages.filled(count);
            rest = &rest[count..];
            now = &[];
        } else {
            rest = later;
        }
        while let Some(message) = messages.next(&mut now)? {
            got.push(message.octets().to_vec());
        }
        assert!(now.is_empty());
    }
    messages.settle();
    assert!(!messages.is_waiting(), "everything was whole");
    Ok(got)
}

/// A message of a stream, and the size of its pieces.
fn sent() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let kinds = (version(), order(), any::<u32>(), contexts(), octets(400), 0..8u8);
    (kinds, 64..300usize).prop_map(|((version, order, id, contexts, body, kind), most)| {
        let message = match kind {
            0 => cancel(version, order, id),
            1 => message_error(version).to_vec(),
            _ => request(version, order, id, &contexts, &body),
        };
        (message, most)
    })
}

/// What IDL might put one after the other.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Octet(u8),
    Short(u16),
    Long(u32),
    Double(f64),
    Octets(Vec<u8>),
    Doubles(Vec<f64>),
    Three([u32; 3]),
}

impl Part {
    fn write(&self, to: &mut Encoder) {
        match self {
            Part::Octet(it) => it.encode(to),
            Part::Short(it) => it.encode(to),
            Part::Long(it) => it.encode(to),
            Part::Double(it) => it.encode(to),
            Part::Octets(it) => it.encode(to),
            Part::Doubles(it) => it.encode(to),
            Part::Three(it) => it.encode(to),
        }
        .expect("numbers");
    }

    fn read(&self, from: &mut crate::Decoder<'_>) -> Result<Part, crate::DecodeError> {
        use crate::cdr::Decode;
        Ok(match self {
            Part::Octet(_) => Part::Octet(Decode::decode(from)?),
            Part::Short(_) => Part::Short(Decode::decode(from)?),
            Part::Long(_) => Part::Long(Decode::decode(from)?),
            Part::Double(_) => Part::Double(Decode::decode(from)?),
            Part::Octets(_) => Part::Octets(Decode::decode(from)?),
            Part::Doubles(_) => Part::Doubles(Decode::decode(from)?),
            Part::Three(_) => Part::Three(Decode::decode(from)?),
        })
    }
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        any::<u8>().prop_map(Part::Octet),
        any::<u16>().prop_map(Part::Short),
        any::<u32>().prop_map(Part::Long),
        any::<i32>().prop_map(|it| Part::Double(it.into())),
        octets(20).prop_map(Part::Octets),
        prop::collection::vec(any::<i32>().prop_map(f64::from), 0..5).prop_map(Part::Doubles),
        any::<[u32; 3]>().prop_map(Part::Three),
    ]
}

proptest! {
    #[test]
    fn fragments_of_1_1_are_aligned_each_for_itself(
        order in order(), fragments in prop::collection::vec(prop::collection::vec(part(), 0..6), 1..5), chunk in 1..100usize,
    ) {
        let parts: Vec<Part> = fragments.iter().flatten().cloned().collect();
        let mut stream = Vec::new();
        for (at, parts) in fragments.iter().enumerate() {
            let mut to = encoder(Version::V1_1, order);
            if at == 0 {
                let header = ReplyHeader { id: 7, status: ReplyStatus::NoException, contexts: &[] };
                let begun = header.begin(&mut to).unwrap();
                parts.iter().for_each(|part| part.write(&mut to));
                begun.end(&mut to).unwrap();
            } else {
                to.raw(&Header { version: Version::V1_1, order, more: false, kind: Kind::Fragment, size: 0 }.encode());
                parts.iter().for_each(|part| part.write(&mut to));
                to.patch_u32(8, to.len() as u32 - 12);
            }
            let mut octets = to.into_bytes();
            octets[6] |= if at + 1 < fragments.len() { 2 } else { 0 };
            stream.extend(octets);
        }
        let mut messages = Reassembler::new(LIMITS);
        let mut got = 0;
        for mut now in stream.chunks(chunk) {
            while let Some(received) = messages.next(&mut now).unwrap() {
                let Ok(Message::Reply(mut reply)) = received.decode() else { panic!("a reply") };
                for part in &parts {
                    prop_assert_eq!(&part.read(&mut reply.body).unwrap(), part);
                }
                prop_assert_eq!(reply.body.left(), 0);
                got += 1;
            }
        }
        prop_assert_eq!(got, 1);
    }

    #[test]
    fn any_split_of_a_stream_gives_the_same_messages(
        sent in prop::collection::vec(sent(), 1..8), chunks in prop::collection::vec(1..200usize, 1..6), room: bool,
    ) {
        let stream: Vec<u8> = sent.iter().flat_map(|(message, _)| message.iter().copied()).collect();
        let messages: Vec<_> = sent.into_iter().map(|(message, _)| message).collect();
        prop_assert_eq!(receive(&stream, &chunks, room).unwrap(), messages);
    }

    #[test]
    fn fragments_come_together_however_they_interleave(
        sent in prop::collection::vec((order(), octets(600), 64..300usize), 1..8),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..60),
        chunks in prop::collection::vec(1..200usize, 1..6), room: bool,
    ) {
        let messages: Vec<_> = sent.iter().enumerate()
            .map(|(id, (order, body, _))| request(Version::V1_2, *order, id as u32, &[], body)).collect();
        let mut waiting: Vec<Vec<Vec<u8>>> =
            messages.iter().zip(&sent).map(|(message, (.., most))| pieces(message, *most)).collect();
        waiting.iter_mut().for_each(|pieces| pieces.reverse());
        let mut stream = Vec::new();
        for pick in picks.iter().cycle() {
            waiting.retain(|pieces| !pieces.is_empty());
            if waiting.is_empty() { break }
            let at = pick.index(waiting.len());
            stream.extend(waiting[at].pop().expect("not empty"));
        }
        let mut got = receive(&stream, &chunks, room).unwrap();
        let mut messages = messages;
        got.sort();
        messages.sort();
        prop_assert_eq!(got, messages);
    }

    #[test]
    fn no_stream_makes_the_reassembler_panic_or_hold_more_than_its_limits(
        sent in prop::collection::vec(sent(), 1..6), changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        chunk in 1..300usize,
    ) {
        let mut stream: Vec<u8> = sent.iter()
            .flat_map(|(message, most)| pieces(message, *most)).flatten().collect();
        for (at, to) in changes {
            let at = at.index(stream.len());
            stream[at] = to;
        }
        let mut messages = Reassembler::new(LIMITS).bounded(2, 1000);
        'stream: for mut now in stream.chunks(chunk) {
            loop {
                match messages.next(&mut now) {
                    Ok(Some(received)) => {
                        assert!(received.octets().len() <= LIMITS.message + Header::LEN);
                        drop(received.decode());
                    }
                    Ok(None) => break,
                    Err(fault) => {
                        assert!(!std::format!("{fault}").is_empty());
                        fault.answer(Version::V1_2);
                        break 'stream;
                    }
                }
            }
        }
    }

    #[test]
    fn pieces_are_as_large_as_asked_and_aligned(order in order(), body in octets(2000), most in 64..600usize) {
        let message = request(Version::V1_2, order, 5, &[], &body);
        let pieces = pieces(&message, most);
        for (at, piece) in pieces.iter().enumerate() {
            prop_assert!(piece.len() <= most);
            let header = Header::decode(piece.first_chunk().unwrap()).unwrap();
            prop_assert_eq!(header.whole(), piece.len());
            prop_assert_eq!(header.more, at + 1 < pieces.len());
            prop_assert!(!header.more || piece.len() % 8 == 0);
            prop_assert_eq!(header.kind == Kind::Fragment, at > 0);
        }
    }
}

/// The fault of a stream.
fn fault(stream: &[&[u8]]) -> Fault {
    receive(&stream.concat(), &[7], false).expect_err("a stream that is wrong")
}

#[test]
fn what_is_wrong_is_told_and_answered() {
    let big = |version, id, body: &[u8]| request(version, ByteOrder::Big, id, &[], body);
    let whole = big(Version::V1_2, 1, &[0; 100]);
    let parts = pieces(&whole, 64);
    let mut little = pieces(&request(Version::V1_2, ByteOrder::Little, 1, &[], &[0; 100]), 64);
    little.remove(0);
    let edit = |at: usize, to: u8| {
        let mut octets = whole.clone();
        octets[at] = to;
        octets
    };
    let mut old = big(Version::V1_1, 1, b"");
    old[6] |= 2;
    let huge = big(Version::V1_2, 1, &[0; 5000]);
    let halves = pieces(&huge, 2048);
    let table: &[(Fault, Answer, &str)] = &[
        (fault(&[b"GET / HTTP/1.1\r\n"]), Answer::Close, r#""GET " is no GIOP: another protocol"#),
        (
            fault(&[b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03aaa"]),
            Answer::Close,
            "the peer speaks TLS where plain GIOP is expected: use ssliop, or its other port",
        ),
        (fault(&[&edit(5, 3)]), Answer::MessageError(Version::V1_2), "GIOP 1.3 is not spoken here, 1.0 to 1.2 are"),
        (fault(&[&edit(4, 2)]), Answer::MessageError(Version::V1_0), "GIOP 2.2 is not spoken here, 1.0 to 1.2 are"),
        (fault(&[&edit(7, 8)]), Answer::MessageError(Version::V1_2), "GIOP 1.2 has no message of kind 8"),
        (
            fault(&[b"GIOP\x01\0\0\x07\0\0\0\0"]),
            Answer::MessageError(Version::V1_0),
            "GIOP 1.0 has no message of kind 7",
        ),
        (
            fault(&[b"GIOP\x01\x01\x02\x03\0\0\0\0"]),
            Answer::MessageError(Version::V1_1),
            "GIOP 1.1 has no fragments of LocateRequest",
        ),
        (
            fault(&[b"GIOP\x01\x02\0\0\xff\xff\xff\xff"]),
            Answer::MessageError(Version::V1_2),
            "a message of 4294967295 octets, the limit is 4096",
        ),
        (
            fault(&[&halves[0], &halves[1], &halves[2]]),
            Answer::MessageError(Version::V1_2),
            "a message of 5036 octets, the limit is 4096",
        ),
        (fault(&[&parts[1]]), Answer::MessageError(Version::V1_2), "a fragment of message 1, which has not begun"),
        (
            fault(&[b"GIOP\x01\x01\0\x07\0\0\0\0"]),
            Answer::MessageError(Version::V1_2),
            "a fragment of a message that has not begun",
        ),
        (
            fault(&[&parts[0], &parts[0]]),
            Answer::MessageError(Version::V1_2),
            "message 1 begins anew before its last fragment has come",
        ),
        (
            fault(&[&old, &old]),
            Answer::MessageError(Version::V1_2),
            "a message begins before the last fragment of another",
        ),
        (
            fault(&[&parts[0], &little[0]]),
            Answer::MessageError(Version::V1_2),
            "a fragment in another byte order than the message it belongs to",
        ),
        (
            fault(&[b"GIOP\x01\x02\0\x07\0\0\0\x03abc"]),
            Answer::MessageError(Version::V1_2),
            "a Fragment of 3 octets is too short to be one",
        ),
    ];
    for (fault, answer, text) in table {
        assert_eq!(std::format!("{fault}"), *text);
        assert_eq!(fault.answer(Version::V1_2), *answer, "{text}");
    }
    let large = Fault::TooLarge { size: 2, most: 1 };
    assert_eq!(large.answer(Version::V1_0), Answer::MessageError(Version::V1_0), "in what the peer speaks");
}

#[test]
fn only_so_many_messages_may_be_in_fragments_at_once() {
    let first = |id| pieces(&request(Version::V1_2, ByteOrder::Big, id, &[], &[0; 100]), 64).remove(0);
    let mut messages = Reassembler::new(LIMITS).bounded(2, 1000);
    for id in 0..2 {
        assert!(messages.next(&mut &first(id)[..]).unwrap().is_none());
    }
    assert!(messages.is_waiting());
    assert_eq!(messages.next(&mut &first(2)[..]).unwrap_err(), Fault::TooMany { most: 2 });

    let mut messages = Reassembler::new(LIMITS).bounded(20, 100);
    assert!(messages.next(&mut &first(0)[..]).unwrap().is_none());
    assert_eq!(messages.next(&mut &first(1)[..]).unwrap_err(), Fault::TooMuch { size: 128, most: 100 });
}

#[test]
fn what_is_cancelled_halfway_makes_room_and_its_late_fragments_are_dropped() {
    let parts = |id| pieces(&request(Version::V1_2, ByteOrder::Big, id, &[], &[id as u8; 100]), 64);
    let mut messages = Reassembler::new(LIMITS).bounded(2, 1000);
    assert!(messages.next(&mut &parts(0)[0][..]).unwrap().is_none());
    assert!(messages.next(&mut &parts(1)[0][..]).unwrap().is_none());
    assert!(messages.next(&mut &cancel(Version::V1_2, ByteOrder::Little, 0)[..]).unwrap().is_some());
    for part in &parts(0)[1..] {
        assert!(messages.next(&mut &part[..]).unwrap().is_none());
    }
    assert!(messages.next(&mut &cancel(Version::V1_2, ByteOrder::Little, 1)[..]).unwrap().is_some());
    assert!(!messages.is_waiting());
    // Its id can be used again, and it stands in nobody's way.
    for id in [1, 2] {
        assert!(messages.next(&mut &parts(id)[0][..]).unwrap().is_none());
    }
}

#[test]
fn fragments_of_1_1_and_empty_ones_are_taken() {
    let mut head = request(Version::V1_1, ByteOrder::Big, 1, &[], b"abcd");
    head[6] |= 2;
    let stream = [&head[..], b"GIOP\x01\x01\x02\x07\0\0\0\x04efgh", b"GIOP\x01\x01\0\x07\0\0\0\0"].concat();
    let got = receive(&stream, &[5], false).unwrap();
    assert_eq!(got, [request(Version::V1_1, ByteOrder::Big, 1, &[], b"abcdefgh")]);

    let mut head = request(Version::V1_2, ByteOrder::Big, 1, &[], b"abcd");
    head[6] |= 2;
    let stream = [&head[..], b"GIOP\x01\x02\0\x07\0\0\0\x04\0\0\0\x01"].concat();
    let got = receive(&stream, &[1000], false).unwrap();
    assert_eq!(got, [request(Version::V1_2, ByteOrder::Big, 1, &[], b"abcd")]);
}

#[test]
fn a_claim_of_a_large_message_takes_no_more_memory_than_has_come() {
    let mut messages = Reassembler::new(Limits { message: 1 << 30, depth: 8 });
    let header =
        Header { version: Version::V1_2, order: ByteOrder::Big, more: false, kind: Kind::Request, size: (1 << 30) - 5 };
    assert!(messages.next(&mut &header.encode()[..]).unwrap().is_none());
    let room = messages.room().expect("a message has begun").len();
    assert_eq!(room, 64 << 10);
    messages.filled(room);
    assert!(messages.next(&mut &[][..]).unwrap().is_none());
    assert_eq!(messages.room().expect("it goes on").len(), (64 << 10) + 12);
}

#[test]
fn a_message_that_came_whole_is_not_copied() {
    let octets = request(Version::V1_2, ByteOrder::Big, 1, &[], b"abcd");
    let mut messages = Reassembler::new(LIMITS);
    let received = messages.next(&mut &octets[..]).unwrap().unwrap();
    assert_eq!(received.octets().as_ptr(), octets.as_ptr());
}
