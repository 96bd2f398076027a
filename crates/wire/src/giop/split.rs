//! Cuts messages into fragments, to be sent.

use super::{Header, MessageKind};
use crate::cdr::Version;

/// A part of a message on the wire: its own header, and octets of the message. Nothing is copied: a gathering write
/// sends both.
#[derive(Clone, Copy, Debug)]
pub struct MessageFragment<'a> {
    head: [u8; Header::LEN + 4],
    length: usize,
    body: &'a [u8],
}

impl<'a> MessageFragment<'a> {
    /// The first part.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.length]
    }

    /// The second part.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

/// Cuts a message, header included, into pieces of at most `most` octets each, headers included: a multiple of eight,
/// at least 64 (others are rounded). A message that cannot have fragments, or needs none, is one piece: only requests,
/// replies and their locate counterparts in 1.2 are cut, because few peers support fragments of 1.1.
///
/// Each piece but the last is a multiple of eight long, so alignment within a piece equals that within the message.
pub fn split(message: &[u8], most: usize) -> impl Iterator<Item = MessageFragment<'_>> {
    let most = most.max(64) & !7;
    let header = message.first_chunk().and_then(|octets| Header::decode(octets).ok());
    let cut = header.filter(|header| {
        header.version == Version::V1_2
            && header.kind.fragmentable(header.version)
            && header.kind != MessageKind::Fragment
            && message.len() > most
    });
    let mut rest = Some(message);
    core::iter::from_fn(move || {
        let body = rest.take()?;
        let Some(header) = cut else { return Some(MessageFragment { head: [0; 16], length: 0, body }) };
        let first = body.len() == message.len();
        let (body, length, kind) = if first {
            (&body[Header::LEN..], Header::LEN, header.kind)
        } else {
            (body, Header::LEN + 4, MessageKind::Fragment)
        };
        let room = most - length;
        let more = body.len() > room;
        let (body, after) = body.split_at(room.min(body.len()));
        rest = more.then_some(after);
        let size = (body.len() + length - Header::LEN) as u32;
        let mut head = [0; Header::LEN + 4];
        head[..Header::LEN].copy_from_slice(&Header { more, kind, size, ..header }.encode());
        head[Header::LEN..].copy_from_slice(&message[Header::LEN..Header::LEN + 4]);
        Some(MessageFragment { head, length, body })
    })
}
