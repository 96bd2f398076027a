use super::*;
use crate::cdr::Limits;
use crate::{TypeCode, Value};

const LIMITS: Limits = Limits { message: 4096, depth: 8 };

/// All messages of a stream that arrives in chunks of these sizes (repeatedly), by `next` or through `room`.
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

/// Types that IDL might list in a sequence.
#[derive(Clone, Debug, PartialEq)]
enum StreamItem {
    Octet(u8),
    Short(u16),
    Long(u32),
    Double(f64),
    Octets(Vec<u8>),
    Doubles(Vec<f64>),
    /// The same, read by a type code.
    Typed(Vec<f64>),
    Three([u32; 3]),
}

impl StreamItem {
    fn write(&self, to: &mut Peer) {
        match self {
            StreamItem::Octet(it) => to.octets(&[*it]),
            StreamItem::Short(it) => to.numbers(&[it.to_be_bytes()], false),
            StreamItem::Long(it) => to.numbers(&[it.to_be_bytes()], false),
            StreamItem::Double(it) => to.numbers(&[it.to_be_bytes()], false),
            StreamItem::Octets(it) => {
                to.numbers(&[(it.len() as u32).to_be_bytes()], false);
                to.octets(it);
            }
            StreamItem::Doubles(it) | StreamItem::Typed(it) => {
                to.numbers(&[(it.len() as u32).to_be_bytes()], false);
                to.numbers(&it.iter().map(|it| it.to_be_bytes()).collect::<Vec<_>>(), true);
            }
            StreamItem::Three(it) => to.numbers(&it.map(u32::to_be_bytes), true),
        }
    }

    fn read(&self, from: &mut crate::Decoder<'_>) -> Result<StreamItem, crate::DecodeError> {
        use crate::cdr::Decode;
        Ok(match self {
            StreamItem::Octet(_) => StreamItem::Octet(Decode::decode(from)?),
            StreamItem::Short(_) => StreamItem::Short(Decode::decode(from)?),
            StreamItem::Long(_) => StreamItem::Long(Decode::decode(from)?),
            StreamItem::Double(_) => StreamItem::Double(Decode::decode(from)?),
            StreamItem::Octets(_) => StreamItem::Octets(Decode::decode(from)?),
            StreamItem::Doubles(_) => StreamItem::Doubles(Decode::decode(from)?),
            StreamItem::Typed(_) => {
                let Value::Sequence(items) = Value::decode_as(&TypeCode::of::<Vec<f64>>(), from)? else { panic!() };
                let number = |item| if let Value::Double(it) = item { it } else { panic!("{item:?}") };
                StreamItem::Typed(items.into_iter().map(number).collect())
            }
            StreamItem::Three(_) => StreamItem::Three(Decode::decode(from)?),
        })
    }
}

fn part() -> impl Strategy<Value = StreamItem> {
    prop_oneof![
        any::<u8>().prop_map(StreamItem::Octet),
        any::<u16>().prop_map(StreamItem::Short),
        any::<u32>().prop_map(StreamItem::Long),
        any::<i32>().prop_map(|it| StreamItem::Double(it.into())),
        octets(20).prop_map(StreamItem::Octets),
        prop::collection::vec(any::<i32>().prop_map(f64::from), 0..5).prop_map(StreamItem::Doubles),
        prop::collection::vec(any::<i32>().prop_map(f64::from), 0..5).prop_map(StreamItem::Typed),
        any::<[u32; 3]>().prop_map(StreamItem::Three),
    ]
}

/// How a peer aligns numbers in fragments of GIOP 1.1.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aligned {
    InFragment,
    /// The same, but the numbers of a sequence or array follow each other without padding.
    OnceInFragment,
    InMessage,
}

fn aligned() -> impl Strategy<Value = Aligned> {
    prop_oneof![Just(Aligned::InFragment), Just(Aligned::OnceInFragment), Just(Aligned::InMessage)]
}

/// A peer that sends a reply of GIOP 1.1 in fragments.
struct Peer {
    aligned: Aligned,
    order: ByteOrder,
    /// The starts of fragments, in the following data.
    seams: Vec<usize>,
    octets: Vec<u8>,
    /// The positions, among the possible ones, at which the peer begins a new fragment, repeatedly.
    cuts: Vec<bool>,
    asked: usize,
}

impl Peer {
    fn new(aligned: Aligned, order: ByteOrder, cuts: &[bool]) -> Peer {
        let mut to = encoder(Version::V1_1, order);
        let header = ReplyHeader { id: 7, status: ReplyStatus::NoException, contexts: &[] };
        header.begin(&mut to).unwrap().end(&mut to).unwrap();
        Peer { aligned, order, seams: Vec::new(), octets: to.into_bytes(), cuts: cuts.into(), asked: 0 }
    }

    fn cut(&mut self) {
        self.asked += 1;
        if self.cuts.get(self.asked % self.cuts.len().max(1)) == Some(&true) {
            self.seams.push(self.octets.len());
        }
    }

    fn align(&mut self, to: usize) {
        let place = match (self.aligned, self.seams.last()) {
            (Aligned::InMessage, _) | (_, None) => self.octets.len(),
            (_, Some(seam)) => self.octets.len() - seam + Header::LEN,
        };
        // Peers do not clear their padding.
        self.octets.resize(self.octets.len() + place.next_multiple_of(to) - place, 0x3f);
    }

    fn octets(&mut self, octets: &[u8]) {
        for octet in octets {
            self.cut();
            self.octets.push(*octet);
        }
    }

    /// In big-endian order.
    fn numbers<const N: usize>(&mut self, numbers: &[[u8; N]], many: bool) {
        for (at, number) in numbers.iter().enumerate() {
            let follows = self.aligned == Aligned::OnceInFragment && at > 0;
            for _ in 0..2 {
                self.cut();
                if !follows {
                    self.align(N);
                }
            }
            let mut number = *number;
            if self.order == ByteOrder::Little {
                number.reverse();
            }
            self.octets.extend(&number[..N / 2]);
            if many && self.aligned == Aligned::OnceInFragment {
                self.cut();
            }
            self.octets.extend(&number[N / 2..]);
        }
    }

    fn stream(&self) -> Vec<u8> {
        let mut stream = Vec::new();
        let starts = [0].into_iter().chain(self.seams.iter().copied());
        let ends = self.seams.iter().copied().chain([self.octets.len()]);
        for (at, (start, end)) in starts.zip(ends).enumerate() {
            let from = stream.len();
            let header =
                Header { version: Version::V1_1, order: self.order, more: false, kind: MessageKind::Fragment, size: 0 };
            if at > 0 {
                stream.extend(header.encode());
            }
            stream.extend(&self.octets[start..end]);
            let size = (stream.len() - from - Header::LEN) as u32;
            let size = if self.order == ByteOrder::Big { size.to_be_bytes() } else { size.to_le_bytes() };
            stream[from + 8..from + 12].copy_from_slice(&size);
            stream[from + 6] |= if at < self.seams.len() { 2 } else { 0 };
        }
        stream
    }
}

/// Reads the only message of a stream.
fn parts(stream: &[u8], chunk: usize, like: &[StreamItem]) -> Result<Vec<StreamItem>, crate::DecodeError> {
    let mut messages = Reassembler::new(LIMITS);
    let mut got = None;
    for mut now in stream.chunks(chunk) {
        while let Some(received) = messages.next(&mut now).unwrap() {
            let Ok(Message::Reply(mut reply)) = received.decode() else { panic!("a reply") };
            let read = reply.body.whole(|from| like.iter().map(|part| part.read(from)).collect::<Result<Vec<_>, _>>());
            assert!(read.is_err() || reply.body.left() == 0);
            assert!(got.replace(read).is_none(), "one message");
        }
    }
    got.expect("a whole message")
}

/// The only message of a stream, as a peer sends it on.
fn sent_on(stream: &[u8]) -> Vec<u8> {
    let mut messages = Reassembler::new(LIMITS);
    let mut octets = stream;
    let mut sent = Vec::new();
    let received = messages.next(&mut octets).unwrap().unwrap();
    received.send_to(&mut sent);
    if received.is_one_piece() {
        assert_eq!(sent, received.octets());
    }
    sent
}

const TWO_WAYS: crate::DecodeErrorKind = crate::DecodeErrorKind::Value("fragments of GIOP 1.1 with ambiguous numbers");

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn numbers_in_fragments_of_1_1_are_read_right_or_not_at_all(
        order in order(), once: bool, sent in prop::collection::vec(part(), 0..12),
        cuts in prop::collection::vec(prop::bool::weighted(0.2), 0..20), chunk in 1..100usize,
    ) {
        // Aligned by the message, it could be read as if it were one of these.
        let aligned = if once { Aligned::OnceInFragment } else { Aligned::InFragment };
        let mut peer = Peer::new(aligned, order, &cuts);
        sent.iter().for_each(|part| part.write(&mut peer));
        let got = parts(&peer.stream(), chunk, &sent);
        prop_assert_eq!(&parts(&sent_on(&peer.stream()), chunk, &sent), &got);
        match got {
            Ok(got) => prop_assert_eq!(got, sent),
            Err(error) => prop_assert_eq!(error.kind, TWO_WAYS),
        }
    }

    #[test]
    fn a_sequence_at_the_end_of_fragments_of_1_1_is_read_in_each_alignment(
        order in order(), aligned in aligned(), octets in octets(20),
        numbers in prop::collection::vec(any::<i32>().prop_map(f64::from), 0..20),
        cuts in prop::collection::vec(prop::bool::weighted(0.2), 0..20), chunk in 1..100usize,
    ) {
        let sent = [StreamItem::Octets(octets), StreamItem::Doubles(numbers)];
        let mut peer = Peer::new(aligned, order, &[]);
        sent[0].write(&mut peer);
        peer.cuts = cuts;
        sent[1].write(&mut peer);
        prop_assert_eq!(parts(&peer.stream(), chunk, &sent).unwrap(), sent);
    }
}

#[test]
fn fragments_of_1_1_that_two_peers_write_alike_are_refused() {
    // A sequence of doubles and a double, as omniORB and omniORBpy write them: padding after the sequence or in it.
    let doubles = [1.5f64, 2.5];
    let sent = [StreamItem::Doubles(doubles.into()), StreamItem::Double(3.5)];
    let streams = [Aligned::InFragment, Aligned::OnceInFragment].map(|aligned| {
        let mut peer = Peer::new(aligned, ByteOrder::Little, &[]);
        peer.numbers(&[2u32.to_be_bytes()], false);
        peer.numbers(&[doubles[0].to_be_bytes()], false);
        peer.seams.push(peer.octets.len());
        if aligned == Aligned::InFragment {
            peer.align(8);
        }
        peer.octets.extend(doubles[1].to_le_bytes());
        sent[1].write(&mut peer);
        peer.stream()
    });
    assert_eq!(streams[0].len(), streams[1].len());
    for stream in streams {
        assert_eq!(parts(&stream, 100, &sent).unwrap_err().kind, TWO_WAYS);
    }
}

proptest! {
    #[test]
    fn any_split_of_a_stream_returns_the_same_messages(
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
            prop_assert_eq!(header.kind == MessageKind::Fragment, at > 0);
        }
    }
}

/// The fault of a stream.
fn fault(stream: &[&[u8]]) -> Fault {
    receive(&stream.concat(), &[7], false).expect_err("a stream that is wrong")
}

#[test]
fn faults_are_reported_and_answered() {
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
        (fault(&[b"GET / HTTP/1.1\r\n"]), Answer::Close, r#""GET " is not GIOP: another protocol"#),
        (
            fault(&[b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03aaa"]),
            Answer::Close,
            "the peer uses TLS where plain GIOP is expected: use ssliop, or its other port",
        ),
        (fault(&[&edit(5, 3)]), Answer::MessageError(Version::V1_2), "GIOP 1.3 is not supported; 1.0 to 1.2 are"),
        (fault(&[&edit(4, 2)]), Answer::MessageError(Version::V1_0), "GIOP 2.2 is not supported; 1.0 to 1.2 are"),
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
            "message 1 begins again before its last fragment",
        ),
        (
            fault(&[&old, &old]),
            Answer::MessageError(Version::V1_2),
            "a message begins before the last fragment of another",
        ),
        (
            fault(&[&parts[0], &little[0]]),
            Answer::MessageError(Version::V1_2),
            "a fragment in another byte order than its message",
        ),
        (
            fault(&[b"GIOP\x01\x02\0\x07\0\0\0\x03abc"]),
            Answer::MessageError(Version::V1_2),
            "a Fragment of 3 octets is too short",
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
    // Its id can be reused, and it does not disturb others.
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
fn a_header_that_claims_a_large_message_allocates_only_the_received_octets() {
    let mut messages = Reassembler::new(Limits { message: 1 << 30, depth: 8 });
    let header = Header {
        version: Version::V1_2,
        order: ByteOrder::Big,
        more: false,
        kind: MessageKind::Request,
        size: (1 << 30) - 5,
    };
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
