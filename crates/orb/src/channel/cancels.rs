//! CancelRequests among octets whose other messages no thread handles yet.

use hyoshi_wire::ByteOrder;
use hyoshi_wire::giop::{Header, MessageKind};

/// Octets of a CancelRequest.
const LEN: usize = Header::LEN + 4;

/// Passes the request id of each complete CancelRequest to `cancel`, and removes the message if that returns true. `octets`
/// begin with a message. Incomplete messages, and octets that are not GIOP, remain.
pub(crate) fn extract_cancels(octets: &mut Vec<u8>, mut cancel: impl FnMut(u32) -> bool) {
    let mut at = 0;
    while let Some((header, message)) = first_message(&octets[at..]) {
        let end = at + message.len();
        match cancelled(&header, message) {
            Some(id) if cancel(id) => drop(octets.drain(at..end)),
            _ => at = end,
        }
    }
}

/// The request id, if a whole CancelRequest stands first.
pub(super) fn first_cancel(octets: &[u8]) -> Option<u32> {
    let (header, message) = first_message(octets)?;
    cancelled(&header, message)
}

/// The first message, if it is whole.
fn first_message(octets: &[u8]) -> Option<(Header, &[u8])> {
    let header = Header::decode(octets.first_chunk()?).ok()?;
    Some((header, octets.get(..header.whole())?))
}

fn cancelled(header: &Header, message: &[u8]) -> Option<u32> {
    let id = message.get(Header::LEN..LEN)?.try_into().ok().filter(|_| header.kind == MessageKind::CancelRequest)?;
    Some(match header.order {
        ByteOrder::Big => u32::from_be_bytes(id),
        ByteOrder::Little => u32::from_le_bytes(id),
    })
}

#[cfg(test)]
mod tests {
    use hyoshi_wire::giop::{cancel_request, close_connection};
    use hyoshi_wire::{CharSet, Encoder, Version};
    use proptest::prelude::*;

    use super::*;

    fn message(id: Option<u32>) -> Vec<u8> {
        let Some(id) = id else { return close_connection(Version::V1_2).to_vec() };
        let mut to = Encoder::new(ByteOrder::NATIVE);
        to.speak(Version::V1_2, CharSet::default());
        cancel_request(id, &mut to).unwrap();
        to.into_bytes()
    }

    proptest! {
        #[test]
        fn whole_cancels_are_found_in_order_and_all_other_octets_stay(
            ids in prop::collection::vec(prop::option::of(0..9u32), 0..12), cut in 0..20usize,
        ) {
            let all = ids.iter().flat_map(|id| message(*id)).collect::<Vec<_>>();
            let mut octets = all.clone();
            octets.truncate(octets.len().saturating_sub(cut));
            let (mut whole, mut end) = (Vec::new(), 0);
            for id in &ids {
                end += message(*id).len();
                if end <= octets.len() {
                    whole.extend(*id);
                }
            }
            let (mut found, before) = (Vec::new(), octets.len());
            extract_cancels(&mut octets, |id| {
                found.push(id);
                id % 2 == 0
            });
            let removed = found.iter().filter(|id| *id % 2 == 0).count();
            prop_assert_eq!(before - octets.len(), removed * LEN);
            prop_assert_eq!(found, whole);
            let first = ids.first().copied().flatten();
            prop_assert_eq!(first_cancel(&all), first);
        }

        #[test]
        fn any_octets_end(mut octets in prop::collection::vec(any::<u8>(), 0..80), sized in any::<u32>()) {
            extract_cancels(&mut octets, |_| true);
            let mut header = close_connection(Version::V1_2).to_vec();
            header[8..12].copy_from_slice(&sized.to_ne_bytes());
            header.extend(octets);
            extract_cancels(&mut header, |_| true);
        }
    }
}
