//! Reads a socket into its [`Incoming`], with as few system calls as there can be.

use std::io;

use hyoshi_os::May;

use crate::channel::Incoming;
use crate::link::Link;

/// What a thread reads at once. Its pages are used only as far as messages reach.
pub(crate) const BUFFER: usize = 128 << 10;
/// Reads that may bring the rest of a message: one that dribbles must not keep the thread.
const READS: usize = 8;

/// Reads what has arrived, until the first message in the buffer is whole. Returns how much came. `more` is for what follows a first part.
#[inline]
pub(crate) fn read(
    stream: &Link,
    incoming: &mut Incoming,
    buffer: &mut [u8],
    wait: May,
    more: May,
) -> io::Result<usize> {
    let mut came = stream.read(incoming.place(buffer), wait)?;
    if came == 0 {
        // The peer has ended.
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    incoming.came(came);
    for _ in 0..READS {
        if !incoming.is_worth_reading_on(buffer) {
            break;
        }
        match stream.read(incoming.place(buffer), more) {
            Ok(0) => break,
            Ok(count) => {
                incoming.came(count);
                came += count;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(came)
}
