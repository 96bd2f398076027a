//! The objects of an ORB, and the servants that run their requests.
//!
//! A key names the adapter and the object; finding both takes two look-ups in hash tables that
//! readers never lock (`papaya`), however many there are. The object that a thread served last needs none.

mod core;
mod gate;
mod recent;
mod registry;
mod servant;
mod source;
mod turn;

use std::fmt;

use crate::rt::RtPolicyError;

pub(crate) use core::Core;
pub use gate::Passage;
pub(crate) use registry::{Adapters, Located};
pub use servant::Servant;
pub(crate) use servant::{ActiveObject, Facts, Skeleton, special};
pub use source::{Activator, Elsewhere, Locator};

/// A hash table. A request needs up to two look-ups; for short keys this hash takes 3 ns, std's 20. The seed is random, so
/// clients cannot predict collisions.
pub(crate) type ByOctets<V> = papaya::HashMap<Box<[u8]>, V, foldhash::quality::RandomState>;

/// The reason why an adapter or object could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdapterError {
    /// An adapter has that name already.
    NameTaken(String),
    /// Longer than 255 octets.
    NameTooLong(String),
    /// An object with that id is active.
    ObjectActive(Vec<u8>),
    /// No object with that id is active.
    NotActive(Vec<u8>),
    /// The adapter's activator is making or ending the object with that id.
    Changing(Vec<u8>),
    /// The key cannot be published: it begins like those of adapters.
    KeyReserved(Vec<u8>),
    /// The object was activated for an order, and the ORB has no order.
    NoOrder,
    /// The adapter's or object's Real-time CORBA policies cannot be used.
    RealTime(RtPolicyError),
    /// The adapter was destroyed, or the ORB has ended.
    Gone,
}

impl fmt::Display for AdapterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdapterError::NameTaken(name) => write!(f, "there is an adapter \"{name}\" already: choose another name"),
            AdapterError::NameTooLong(name) => write!(f, "the adapter's name is longer than 255 octets: \"{name}\""),
            AdapterError::ObjectActive(id) => {
                write!(f, "the object \"{}\" is active already: deactivate it first", id.escape_ascii())
            }
            AdapterError::NotActive(id) => write!(f, "no object \"{}\" is active", id.escape_ascii()),
            AdapterError::Changing(id) => {
                write!(f, "the activator is making or ending the object \"{}\": activate it later", id.escape_ascii())
            }
            AdapterError::KeyReserved(key) => {
                write!(f, "the key \"{}\" begins like those of adapters: choose another", key.escape_ascii())
            }
            AdapterError::NoOrder => {
                f.write_str("the ORB has no order to bind an object to: OrbBuilder::order sets one")
            }
            AdapterError::RealTime(error) => error.fmt(f),
            AdapterError::Gone => f.write_str("the adapter was destroyed, or its ORB shut down"),
        }
    }
}

impl std::error::Error for AdapterError {}

impl From<RtPolicyError> for AdapterError {
    fn from(error: RtPolicyError) -> Self {
        AdapterError::RealTime(error)
    }
}
