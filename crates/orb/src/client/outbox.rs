//! What is to go over a connection that calls share: whole messages, one after the other, whatever the socket takes at
//! a time. It never waits; those who do take turns in pushing it on, each for as long as it has.
//!
//! ```text
//!   build in `to` ──► post ──► all taken at once
//!        │                └──► the rest in the queue ──► flush, again and again ──► gone
//!        │                                └──► take_back: its caller gave up, and none of it was sent
//!        └──► put off: goes with the next that is posted
//! ```

use std::collections::VecDeque;
use std::io;

use hyoshi_model::Span;
use hyoshi_os::clock::coarse;
use hyoshi_wire::{ByteOrder, Encoder};

/// See the module.
#[derive(Debug)]
pub(super) struct Outbox {
    /// Where messages are built, and those that are put off wait.
    pub(super) to: Encoder,
    queue: VecDeque<Parcel>,
    /// Octets in the queue that are not sent.
    held: usize,
    next: u64,
    /// When the socket last took some, or the queue began.
    since: Span,
    /// Even octets of which none was taken must be the next that are written: TLS has enciphered them.
    sticky: bool,
}

/// Messages that the socket did not take at once.
#[derive(Debug)]
struct Parcel {
    ticket: u64,
    octets: Vec<u8>,
    sent: usize,
    /// From here on it can be taken back, while none of it was sent.
    own: usize,
    begun: bool,
}

impl Outbox {
    pub(super) fn new(sticky: bool) -> Self {
        let to = Encoder::new(ByteOrder::NATIVE);
        Outbox { to, queue: VecDeque::new(), held: 0, next: 0, since: coarse(), sticky }
    }

    /// True if nothing is to be sent.
    pub(super) fn is_empty(&self) -> bool {
        self.to.is_empty() && self.queue.is_empty()
    }

    /// Octets that wait.
    pub(super) fn len(&self) -> usize {
        self.held + self.to.len()
    }

    /// How long the socket has taken nothing of what waits for it.
    pub(super) fn stalled(&self) -> Span {
        if self.queue.is_empty() { Span::from_nanos(0) } else { coarse().saturating_sub(self.since) }
    }

    /// Sends what was built, behind what waits already. Returns a ticket if some of it is left: see
    /// [`is_gone`](Self::is_gone). What begins at `own` can be taken back.
    pub(super) fn post(
        &mut self,
        own: usize,
        mut write: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Option<u64>> {
        self.flush(&mut write)?;
        let (mut sent, mut begun) = (0, false);
        if self.queue.is_empty() {
            let octets = self.to.bytes();
            while sent < octets.len() {
                match write(&octets[sent..]) {
                    Ok(count) => sent += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
            if sent == octets.len() {
                self.to.clear();
                return Ok(None);
            }
            begun = sent > 0 || self.sticky;
            self.since = coarse();
        }
        let octets = std::mem::replace(&mut self.to, Encoder::new(ByteOrder::NATIVE)).into_bytes();
        if octets.is_empty() {
            return Ok(self.queue.back().map(|last| last.ticket));
        }
        self.next += 1;
        self.held += octets.len() - sent;
        self.queue.push_back(Parcel { ticket: self.next, octets, sent, own, begun });
        Ok(Some(self.next))
    }

    /// Sends what is left, as far as the socket takes it.
    pub(super) fn flush(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while let Some(parcel) = self.queue.front_mut() {
            match write(&parcel.octets[parcel.sent..]) {
                Ok(count) => {
                    parcel.sent += count;
                    parcel.begun = true;
                    self.held -= count;
                    self.since = coarse();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    parcel.begun |= self.sticky;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if parcel.sent == parcel.octets.len() {
                self.queue.pop_front();
            }
        }
        Ok(())
    }

    /// True once all that was posted with this ticket, and before, is sent.
    pub(super) fn is_gone(&self, ticket: u64) -> bool {
        self.queue.front().is_none_or(|first| first.ticket > ticket)
    }

    /// Takes a message back of which nothing was sent. False if some was, or it must go for others' sake: it will be
    /// completed.
    pub(super) fn take_back(&mut self, ticket: u64) -> bool {
        let Some(at) = self.queue.iter().position(|parcel| parcel.ticket == ticket) else { return false };
        let parcel = &mut self.queue[at];
        if parcel.begun || parcel.own == parcel.octets.len() {
            return false;
        }
        self.held -= parcel.octets.len() - parcel.own;
        parcel.octets.truncate(parcel.own);
        if parcel.octets.is_empty() {
            self.queue.remove(at);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What happens to an outbox: a message of this length is posted or put off, the socket takes so much, or a caller
    /// gives up.
    #[derive(Clone, Debug)]
    enum Step {
        Post(usize),
        PutOff(usize),
        Room(usize),
        GiveUp(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (1usize..40).prop_map(Step::Post),
            (1usize..10).prop_map(Step::PutOff),
            (0usize..60).prop_map(Step::Room),
            (0usize..8).prop_map(Step::GiveUp),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        /// Every message goes once, whole and in order; but those that were taken back do not go at all.
        #[test]
        fn messages_go_whole_once_and_in_order_whoever_gives_up(steps in steps(), sticky: bool) {
            let mut outbox = Outbox::new(sticky);
            let (mut wire, mut room) = (Vec::<u8>::new(), 0usize);
            let (mut expected, mut open) = (Vec::<(u8, usize)>::new(), Vec::<(u64, u8)>::new());
            let mut number = 0u8;
            for step in steps {
                let write = |octets: &[u8]| {
                    let count = octets.len().min(room);
                    if count == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    room -= count;
                    wire.extend_from_slice(&octets[..count]);
                    Ok(count)
                };
                match step {
                    Step::Post(length) | Step::PutOff(length) => {
                        let own = outbox.to.len();
                        outbox.to.raw(&vec![number; length]);
                        expected.push((number, length));
                        if let Step::Post(_) = step
                            && let Some(ticket) = outbox.post(own, write).unwrap()
                        {
                            open.push((ticket, number));
                        }
                        number += 1;
                    }
                    Step::Room(more) => {
                        room += more;
                        let write = |octets: &[u8]| {
                            let count = octets.len().min(room);
                            if count == 0 {
                                return Err(io::ErrorKind::WouldBlock.into());
                            }
                            room -= count;
                            wire.extend_from_slice(&octets[..count]);
                            Ok(count)
                        };
                        outbox.flush(write).unwrap();
                    }
                    Step::GiveUp(which) if which < open.len() => {
                        let (ticket, number) = open.remove(which);
                        let some = wire.contains(&number);
                        if outbox.take_back(ticket) {
                            prop_assert!(!some, "none of it was sent");
                            expected.retain(|(other, _)| *other != number);
                        }
                    }
                    Step::GiveUp(_) => {}
                }
                for (ticket, number) in &open {
                    let length = expected.iter().find(|(other, _)| other == number).map_or(0, |(_, length)| *length);
                    let sent = wire.iter().filter(|octet| *octet == number).count();
                    prop_assert_eq!(outbox.is_gone(*ticket), sent == length);
                }
            }
            let rest = |octets: &[u8]| {
                wire.extend_from_slice(octets);
                Ok(octets.len())
            };
            prop_assert_eq!(outbox.post(outbox.to.len(), rest).unwrap(), None);
            prop_assert!(outbox.is_empty() && outbox.held == 0);
            let whole: Vec<u8> = expected.iter().flat_map(|(number, length)| vec![*number; *length]).collect();
            prop_assert_eq!(wire, whole);
        }
    }
}
