//! A client of an object that takes part in a feedback loop, as a dispatcher knows it.

use core::fmt;

use hyoshi_model::{OperationId, Span};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::event::{operation, span};

/// A client that has registered: a task of the loop with a range of rates (FCS/nORB, section 2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatedClient {
    /// The operation that serves its requests.
    #[serde(with = "operation")]
    pub operation: OperationId,
    /// The estimated execution time of a request.
    #[serde(with = "span")]
    pub estimate: Span,
    /// The period at its highest rate.
    #[serde(with = "span")]
    pub shortest: Span,
    /// The period at its lowest rate.
    #[serde(with = "span")]
    pub longest: Span,
    /// The worth of one request.
    pub value: u32,
    /// Its name in reports.
    pub label: ClientLabel,
}

/// The first part of a client's name: at most 23 octets of UTF-8.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientLabel {
    length: u8,
    octets: [u8; ClientLabel::LONGEST],
}

impl ClientLabel {
    /// The greatest length in octets.
    pub const LONGEST: usize = 23;

    /// The label of a name, shortened if it is longer.
    pub fn new(name: &str) -> ClientLabel {
        let mut octets = [0; ClientLabel::LONGEST];
        let length = (0..=name.len().min(octets.len())).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        octets[..length].copy_from_slice(&name.as_bytes()[..length]);
        ClientLabel { length: length as u8, octets }
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.octets[..usize::from(self.length)]).unwrap_or_default()
    }
}

impl fmt::Debug for ClientLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Serialize for ClientLabel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for ClientLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = ClientLabel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a client")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ClientLabel, E> {
                Ok(ClientLabel::new(text))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_whole_characters() {
        assert_eq!(ClientLabel::new("pilot").as_str(), "pilot");
        assert_eq!(ClientLabel::new("").as_str(), "");
        let long = "\u{e9}".repeat(12);
        assert_eq!(ClientLabel::new(&long).as_str(), "\u{e9}".repeat(11));
        assert_eq!(ClientLabel::new(&"x".repeat(24)).as_str(), "x".repeat(23));
    }
}
