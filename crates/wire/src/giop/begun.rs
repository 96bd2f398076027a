//! A message under construction.

use super::{Header, MessageKind};
use crate::cdr::{EncodeError, Encoder};

/// A message after its header is written and before its size is known.
#[derive(Debug)]
#[must_use = "the size in the header is wrong until `end` is called is called"]
pub struct Begun {
    /// Where the message begins in the encoder.
    start: usize,
    /// The end of its header, and the start of its body after the padding.
    header: usize,
    body: usize,
}

impl Begun {
    /// Writes the header, and counts alignment from it.
    #[inline]
    pub(super) fn new(kind: MessageKind, to: &mut Encoder) -> Begun {
        let start = to.restart();
        to.raw(&Header { version: to.version(), order: to.order(), more: false, kind, size: 0 }.encode());
        Begun { start, header: 0, body: 0 }
    }

    /// The body begins at a multiple of eight octets (requests and replies of 1.2).
    #[inline]
    pub(super) fn align_body(&mut self, to: &mut Encoder) {
        self.header = to.len();
        to.align(8);
        self.body = to.len();
    }

    /// Writes the size into the header. The padding before an empty body is removed.
    ///
    /// # Errors
    ///
    /// For a message beyond 4 GiB.
    #[inline]
    pub fn end(self, to: &mut Encoder) -> Result<(), EncodeError> {
        if to.len() == self.body {
            to.truncate(self.header);
        }
        let size = to.len() - self.start - Header::LEN;
        to.patch_u32(self.start + 8, u32::try_from(size).map_err(|_| EncodeError::TooLong(size))?);
        Ok(())
    }

    /// Removes the message, if its body could not be written.
    pub fn undo(self, to: &mut Encoder) {
        to.truncate(self.start);
    }
}
