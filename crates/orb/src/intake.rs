//! Octets from a connection into whole messages, with as little copying and as few system calls as there can be.

use std::io;

use hyoshi_os::May;
use hyoshi_wire::giop::{Header, Reassembler};

use crate::link::Link;

/// What a thread reads at once. Its pages are used only as far as messages reach.
pub(crate) const BUFFER: usize = 128 << 10;

/// What has arrived, into the buffer, until the first message in it is whole; or into the message that has begun.
/// Returns how much the buffer holds, and how much came. `more` is for what follows a first part.
#[inline]
pub(crate) fn read(
    stream: &Link,
    messages: &mut Reassembler,
    buffer: &mut [u8],
    wait: May,
    more: May,
) -> io::Result<(usize, usize)> {
    if let Some(room) = messages.room() {
        let count = some(stream.read(room, wait)?)?;
        messages.filled(count);
        return Ok((0, count));
    }
    let mut count = some(stream.read(buffer, wait)?)?;
    if messages.is_waiting() {
        return Ok((count, count));
    }
    // A few reads bring a message that is on its way; one that dribbles must not keep the thread.
    for _ in 0..8 {
        match buffer[..count].first_chunk().and_then(|octets| Header::decode(octets).ok()) {
            Some(header) if header.whole() > count && header.whole() <= buffer.len() => {}
            _ => break,
        }
        match stream.read(&mut buffer[count..], more) {
            Ok(0) => break,
            Ok(further) => count += further,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok((count, count))
}

/// Nothing at all means that the peer has ended.
fn some(count: usize) -> io::Result<usize> {
    if count == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(count) }
}
