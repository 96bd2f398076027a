//! Properties of a channel under any sequence of events. A script is a sequence of octets, from tests or the fuzzer.

use std::io;
use std::ops::ControlFlow;

use hyoshi_wire::Limits;
use hyoshi_wire::giop::{Fault, Header, Reassembler};

use super::{Incoming, Pace, Parked, ReadBudget, ReceiveError, Receiver, SendQueue, TurnEnd, Whole, receive};

const LIMITS: Limits = Limits { message: 300, depth: 8 };
const BUFFER: usize = 200;
const PACE: Pace = Pace { stalled: 3, slowest: 10 };

/// The rest of a script; zeros follow forever.
#[derive(Debug)]
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn next(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn is_over(&self) -> bool {
        self.0.is_empty()
    }
}

/// Octets that are messages for the most part: whole ones, fragments, other versions, broken headers.
fn stream(script: &mut Script<'_>) -> Vec<u8> {
    let mut all = Vec::new();
    for _ in 0..script.next() % 16 {
        let [flags, kind, size] = [(); 3].map(|()| script.next());
        if flags == 0xff {
            all.push(kind);
        }
        let size = u32::from(size) % 128;
        let claimed = if flags == 0xfe { u32::MAX } else { size };
        all.extend_from_slice(&[b'G', b'I', b'O', b'P', 1, flags >> 4 & 3, flags & 3, kind & 7]);
        all.extend(if flags & 1 == 1 { claimed.to_le_bytes() } else { claimed.to_be_bytes() });
        all.extend((0..size).map(|at| if at < 4 { kind >> 6 } else { at as u8 }));
    }
    // Something may be cut off at the end.
    all.truncate(all.len().saturating_sub(usize::from(script.next() % 8)));
    all
}

/// A reader of a socket that stops, passes octets on and waits as its script says.
#[derive(Debug)]
struct Reader<'a, 's> {
    script: &'a mut Script<'s>,
    /// Octets that have not arrived.
    rest: &'a [u8],
    got: Vec<Vec<u8>>,
    now: u64,
    /// Of this turn.
    reads: usize,
    messages: usize,
}

impl Receiver for Reader<'_, '_> {
    /// The octets that the next reader begins with, if not those that are left.
    type Stop = Option<Parked>;

    fn read(&mut self, place: &mut [u8], more: bool) -> io::Result<usize> {
        let size = usize::from(self.script.next() % 64);
        if size == 63 || (self.rest.is_empty() && size.is_multiple_of(2)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.reads += usize::from(!more);
        let count = (size + 1).min(place.len()).min(self.rest.len());
        let (come, rest) = self.rest.split_at(count);
        place[..count].copy_from_slice(come);
        self.rest = rest;
        Ok(count)
    }

    fn leave(&mut self, _: bool) -> Option<Self::Stop> {
        (self.script.next() % 8 == 1).then_some(None)
    }

    fn message(&mut self, Whole { received, rest, .. }: Whole<'_>) -> ControlFlow<Self::Stop, Option<Parked>> {
        self.messages += 1;
        match self.script.next() % 5 {
            1 => return ControlFlow::Break(Some(rest.park_with(&received))),
            2 => {
                self.got.push(received.octets().to_vec());
                return ControlFlow::Break(None);
            }
            _ => self.got.push(received.octets().to_vec()),
        }
        // Another thread could have taken them.
        ControlFlow::Continue((!rest.is_empty() && self.script.next().is_multiple_of(4)).then(|| rest.park()))
    }

    fn handled_all(&mut self, incoming: &mut Incoming) -> Option<Self::Stop> {
        assert!(!incoming.holds_some());
        incoming.await_rest(self.now);
        let deadline = incoming.deadline(self.now, PACE);
        assert_eq!(deadline.is_some(), incoming.has_begun(), "{incoming:?}");
        assert!(deadline.is_none_or(|at| at <= self.now + PACE.stalled));
        self.now += u64::from(self.script.next() % 3);
        None
    }
}

/// For any splitting, parking and passing on of a stream: its messages come out once, in order, up to the same fault.
/// Memory is at most the announced and admitted size. A deadline runs only while the rest of a message is awaited. A turn
/// does no more than its budget allows.
pub fn incoming(script: &[u8]) {
    let script = &mut Script(script);
    let octets = stream(script);
    let mut expected = Vec::new();
    let mut whole = Reassembler::new(LIMITS);
    let mut all = &octets[..];
    let fault: Option<Fault> = loop {
        match whole.next(&mut all) {
            Ok(Some(message)) => expected.push(message.octets().to_vec()),
            Ok(None) => break None,
            Err(fault) => break Some(fault),
        }
    };
    let mut reader = Reader { script, rest: &octets, got: Vec::new(), now: 0, reads: 0, messages: 0 };
    let (mut incoming, mut buffer) = (Incoming::new(LIMITS), [0; BUFFER]);
    let found = loop {
        // Between turns: another thread, and so another buffer, may go on.
        match reader.script.next() % 4 {
            0 => {
                incoming.park(&buffer);
                buffer = [0xee; BUFFER];
            }
            1 => {
                incoming.pause();
                assert_eq!(incoming.deadline(reader.now, PACE), None, "the timer stops while reading is paused");
            }
            _ => {}
        }
        assert!(incoming.held() <= BUFFER + 2 * (LIMITS.message + Header::LEN), "{} are held", incoming.held());
        (reader.reads, reader.messages) = (0, 0);
        let [reads, messages, octets] = [(); 3].map(|()| usize::from(reader.script.next() % 16) + 1);
        let mut budget = ReadBudget { reads, messages, octets };
        let end = receive(&mut reader, &mut incoming, &mut buffer, &mut budget);
        assert!(reader.reads <= reads && reader.messages <= messages, "{reader:?}");
        match end {
            Ok(TurnEnd::Idle) if reader.rest.is_empty() => break None,
            Ok(TurnEnd::Idle | TurnEnd::Stopped(None)) => {}
            Ok(TurnEnd::Spent) => assert!(budget.is_spent()),
            Ok(TurnEnd::Stopped(Some(again))) => incoming.resume(again),
            Err(ReceiveError::Ended) => break None,
            Err(ReceiveError::Stream(fault)) => break Some(fault),
            Err(error @ (ReceiveError::Tls | ReceiveError::Socket(_))) => panic!("{error:?}"),
        }
    };
    assert!(reader.rest.is_empty() || found.is_some());
    assert_eq!(found, fault);
    assert_eq!(reader.got, expected);
}

/// For any sizes that the socket accepts and any callers that give up: every message is sent whole, once and in order.
/// Messages that were taken back are not sent. Only waiting messages are held; a deadline runs while one waits.
pub fn outgoing(script: &[u8]) {
    let script = &mut Script(script);
    let sticky = script.next() & 1 == 1;
    let mut out = SendQueue::new(sticky);
    let (mut wire, mut room) = (Vec::<u8>::new(), 0usize);
    // By number: the messages to send, and those of them that wait with a ticket.
    let (mut expected, mut open) = (Vec::<(u8, usize)>::new(), Vec::<(u64, u8)>::new());
    // Other messages may overtake delayed ones.
    let mut put_off = Vec::new();
    let (mut now, mut number, mut begun) = (0, 0u8, None);
    while !script.is_over() && number < u8::MAX {
        let (what, size) = (script.next(), usize::from(script.next() % 40) + 1);
        let mut write = |octets: &[u8]| {
            let count = octets.len().min(room);
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            room -= count;
            wire.extend_from_slice(&octets[..count]);
            Ok(count)
        };
        let message = vec![number; size];
        match what % 8 {
            0 | 1 => {
                let all = out.send(&message, || now, &mut write).unwrap();
                expected.push((number, size));
                assert_eq!(all, !out.is_behind());
            }
            2 | 3 => {
                let own = out.to.len();
                out.to.raw(&message);
                put_off.push((number, size));
                if what % 8 == 2 {
                    expected.append(&mut put_off);
                    open.extend(out.post(own, now, &mut write).unwrap().map(|ticket| (ticket, number)));
                }
            }
            4 | 5 => {
                room += size * 2;
                let mut write = |octets: &[u8]| {
                    let count = octets.len().min(room);
                    if count == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    room -= count;
                    wire.extend_from_slice(&octets[..count]);
                    Ok(count)
                };
                out.flush(now, &mut write).unwrap();
            }
            6 if size < open.len() + 1 => {
                let (ticket, number) = open.remove(size - 1);
                let some = wire.contains(&number);
                if out.take_back(ticket) {
                    assert!(!some, "some of it was sent");
                    expected.retain(|(other, _)| *other != number);
                }
            }
            _ => now += 1,
        }
        number += 1;
        for (ticket, number) in &open {
            let length = expected.iter().find(|(other, _)| other == number).map_or(0, |(_, length)| *length);
            assert_eq!(out.is_gone(*ticket), wire.iter().filter(|octet| *octet == number).count() == length);
        }
        let all = expected.iter().map(|(_, length)| length).sum::<usize>();
        assert!(wire.len() + out.held() >= all, "what waits is held");
        assert_eq!(out.held() == 0, !out.is_behind());
        assert_eq!(out.deadline(PACE).is_some(), out.is_behind());
        assert_eq!(out.since().is_some(), out.is_behind());
        begun = out.is_behind().then(|| begun.unwrap_or(now));
        assert!(out.deadline(PACE).is_none_or(|at| at <= now + PACE.stalled && at >= begun.unwrap_or(0)));
    }
    expected.append(&mut put_off);
    let rest = |octets: &[u8]| {
        wire.extend_from_slice(octets);
        Ok(octets.len())
    };
    assert_eq!(out.post(out.to.len(), now, rest).unwrap(), None);
    assert!(!out.is_behind() && out.held() == 0 && out.to.is_empty());
    let whole: Vec<u8> = expected.iter().flat_map(|(number, length)| vec![*number; *length]).collect();
    assert_eq!(wire, whole);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn messages_come_out_of_any_pieces_once_and_in_order(script in proptest::collection::vec(any::<u8>(), 0..200)) {
            incoming(&script);
        }

        #[test]
        fn messages_are_sent_whole_once_and_in_order_if_senders_give_up(script in proptest::collection::vec(any::<u8>(), 0..300)) {
            outgoing(&script);
        }
    }

    #[test]
    fn what_is_parked_is_not_copied_for_each_request_that_is_taken_of_it() {
        let octets = hyoshi_wire::giop::close_connection(hyoshi_wire::Version::V1_2).repeat(4);
        let mut incoming = Incoming::new(LIMITS);
        incoming.place(&mut [0; 4]);
        let mut buffer = octets.clone();
        incoming.came(octets.len());
        incoming.park(&buffer);
        buffer.fill(0);
        let first = incoming.next(&buffer).unwrap().unwrap().rest.park();
        incoming.resume(first);
        let counted = allocation_counter::measure(|| {
            let second = incoming.next(&buffer).unwrap().unwrap().rest.park();
            incoming.resume(second);
        });
        assert_eq!(counted.count_total, 0);
        assert_eq!(incoming.held(), 24);
    }

    #[test]
    fn a_large_message_is_given_back_in_pieces_as_it_goes() {
        let mut out = SendQueue::new(false);
        let mut room = 3 << 20;
        let mut write = |octets: &[u8]| {
            let count = octets.len().min(room).min(100_000);
            room -= count;
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        };
        assert!(!out.send(&vec![0; 4 << 20], || 0, &mut write).unwrap());
        out.flush(0, &mut write).unwrap();
        assert!(out.held() < 3 << 20, "{} are held", out.held());
        out.abandon();
        assert_eq!((out.held(), out.is_behind(), out.deadline(PACE)), (0, false, None));
    }
}
