//! Payloads of events with IDL types.

use hyoshi_wire::cdr::{ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};

/// Encodes payloads of IDL types into one buffer: a CDR encapsulation (CORBA 3.3 part 2, 9.3.3), whose first octet is
/// the byte order. It allocates only if a value is longer than all earlier ones.
///
/// ```
/// use hyoshi_node::IdlPayload;
///
/// let mut payload = IdlPayload::default();
/// let octets = payload.encode(&48.1f64)?; // a type that hyoshi-idl generates, or a type of CDR
/// assert_eq!(IdlPayload::decode::<f64>(octets)?, 48.1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct IdlPayload(Encoder);

impl Default for IdlPayload {
    fn default() -> Self {
        IdlPayload(Encoder::new(ByteOrder::NATIVE))
    }
}

impl IdlPayload {
    /// The value's payload, for [`JobContext::emit`](hyoshi_runtime::JobContext::emit) or `EventChannel::publish`.
    ///
    /// # Errors
    ///
    /// If a bound of the type is exceeded.
    pub fn encode(&mut self, value: &impl Encode) -> Result<&[u8], EncodeError> {
        self.0.clear();
        self.0.raw(&[ByteOrder::NATIVE.flag()]);
        value.encode(&mut self.0)?;
        Ok(self.0.bytes())
    }

    /// The value of a payload.
    ///
    /// # Errors
    ///
    /// If the payload is not exactly one value of the type.
    pub fn decode<'a, T: Decode<'a>>(payload: &'a [u8]) -> Result<T, DecodeError> {
        let mut decoder = Decoder::encapsulated(payload)?;
        let value = T::decode(&mut decoder)?;
        match decoder.left() {
            0 => Ok(value),
            _ => Err(decoder.error(DecodeErrorKind::Value("octets follow the value"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_was_encoded_is_decoded(text in "[a-zäß]{0,40}", number in any::<i64>(), list in prop::collection::vec(any::<f64>(), 0..9)) {
            let mut payload = IdlPayload::default();
            prop_assert_eq!(&IdlPayload::decode::<String>(payload.encode(&text).unwrap()).unwrap(), &text);
            prop_assert_eq!(IdlPayload::decode::<i64>(payload.encode(&number).unwrap()).unwrap(), number);
            let octets = payload.encode(&list).unwrap();
            let bits = |list: &[f64]| list.iter().map(|one| one.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&IdlPayload::decode::<Vec<f64>>(octets).unwrap()), bits(&list));
            prop_assert!(IdlPayload::decode::<Vec<f64>>(&[octets, &[0]].concat()).is_err());
        }

        #[test]
        fn foreign_octets_are_an_error_or_a_value(octets in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = IdlPayload::decode::<Vec<String>>(&octets);
        }
    }
}
