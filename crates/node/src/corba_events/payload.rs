//! Conversion of payloads to `any`, and of `any` to payloads.

use hyoshi_orb::{Any, ByteOrder, Decode, Decoder, Encode, EncodeError, Encoder};

/// Payloads that contain an `any` begin like this. Its encapsulation (CORBA 3.3 part 2, 9.3.3) follows.
const MARK: &[u8; 8] = b"CORBAany";

/// The payload of an event that a CORBA program pushes. For a sequence of octets these are the octets. For all other
/// types it is `CORBAany` and the encapsulation of the any.
///
/// # Errors
///
/// If its value cannot be encoded in GIOP 1.2.
pub fn payload_of_any(any: &Any) -> Result<Vec<u8>, EncodeError> {
    if let Ok(octets) = any.get::<&[u8]>()
        && !octets.starts_with(MARK)
    {
        return Ok(octets.to_vec());
    }
    let mut to = Encoder::new(ByteOrder::NATIVE);
    to.encapsulate(|to| any.encode(to))?;
    // Without the length: the payload has one.
    Ok([MARK, &to.into_bytes()[4..]].concat())
}

/// The `any` that CORBA programs receive: the one from [`payload_of_any`], or the payload as a sequence of octets.
pub fn any_of_payload(payload: &[u8]) -> Any {
    let marked = payload.strip_prefix(MARK).and_then(|octets| {
        let mut from = Decoder::encapsulated(octets).ok()?;
        let any = Any::decode(&mut from).ok()?;
        (from.left() == 0).then_some(any)
    });
    // Octets of at most 64 KiB can always be encoded.
    marked.unwrap_or_else(|| Any::of(payload).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use hyoshi_orb::{Any, Value};
    use proptest::prelude::*;

    use super::{MARK, any_of_payload, payload_of_any};

    #[test]
    fn every_any_arrives_as_it_was_pushed() {
        let octets: &[u8] = b"48.1N";
        let marked = [MARK, &b"\0\0\0\0\0\0\0\0"[..]].concat();
        for any in [
            Any::default(),
            Any::of(octets).unwrap(),
            Any::of(&marked[..]).unwrap(),
            Any::of(&7i32).unwrap(),
            Any::of("48.1N").unwrap(),
            Any::of(&vec![1.5, f64::NAN]).unwrap(),
            Any::of(&Any::of(&true).unwrap()).unwrap(),
        ] {
            assert_eq!(any_of_payload(&payload_of_any(&any).unwrap()), any);
        }
        assert_eq!(payload_of_any(&Any::of(octets).unwrap()).unwrap(), octets);
        assert_eq!(any_of_payload(b"").value().unwrap(), Value::Octets(Vec::new()));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Programs can publish any octets, also ones that begin like an any.
        #[test]
        fn octets_of_every_kind_arrive(octets in prop::collection::vec(any::<u8>(), 0..64), is_marked in any::<bool>()) {
            let payload = if is_marked { [MARK, &octets[..]].concat() } else { octets };
            let any = any_of_payload(&payload);
            if any.get::<&[u8]>() == Ok(&payload[..]) {
                prop_assert_eq!(any_of_payload(&payload_of_any(&any).unwrap()), any);
            } else {
                prop_assert!(is_marked);
            }
        }
    }
}
