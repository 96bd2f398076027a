//! The description of a kind of advocate: name, purpose, parameters.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;

use hyoshi_model::quantity::{self, QuantityError};
use hyoshi_model::{Share, Span};

use super::Advocate;

/// A kind of advocate.
#[derive(Debug)]
pub struct AdvocateKind {
    /// Its name in commands and files.
    pub name: &'static str,
    /// Its purpose, in one line without a capital or a full stop.
    pub about: &'static str,
    /// Its parameters, at most [`AdvocateKind::MOST_PARAMETERS`]; the first may be written without its name.
    pub parameters: &'static [AdvocateParameter],
    /// Creates one from values within the parameters' ranges, one for each, in their order.
    pub(super) build: fn(&[u64; AdvocateKind::MOST_PARAMETERS]) -> Box<dyn Advocate>,
}

/// A parameter of a kind of advocate.
#[derive(Debug)]
pub struct AdvocateParameter {
    /// Its name in commands and files.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// Its unit.
    pub measure: ParameterUnit,
    /// The least value.
    pub least: u64,
    /// The largest value.
    pub most: u64,
    /// The default; `None`: a value is required.
    pub default: Option<u64>,
}

/// The unit of a parameter, and the syntax of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterUnit {
    /// A whole number.
    Count,
    /// A percentage; the number counts millionths.
    Share,
    /// A length of time; the number counts nanoseconds.
    Time,
}

/// How much more than the demand to request, a parameter of several kinds.
pub(super) const HEADROOM: AdvocateParameter = AdvocateParameter {
    name: "headroom",
    about: "how much more than the demand it requests",
    measure: ParameterUnit::Share,
    least: 0,
    most: 1_000_000,
    default: Some(50_000),
};

impl AdvocateKind {
    /// The most parameters of a kind.
    pub const MOST_PARAMETERS: usize = 4;
}

/// Whether two names are equal, with dashes or underscores.
pub(super) fn same(name: &str, written: &str) -> bool {
    name.len() == written.len() && name.bytes().zip(written.bytes()).all(|(a, b)| a == b || (a == b'-' && b == b'_'))
}

impl ParameterUnit {
    /// Reads a value in its written form.
    pub fn read(self, text: &str) -> Result<u64, ParameterError> {
        match self {
            ParameterUnit::Count => text.trim().parse().map_err(|_| ParameterError::Count),
            ParameterUnit::Share => text.parse::<Share>().map(Share::as_millionths).map_err(ParameterError::Quantity),
            ParameterUnit::Time => quantity::span(text).map(Span::as_nanos).map_err(ParameterError::Quantity),
        }
    }

    /// Writes a value in the form that [`ParameterUnit::read`] reads.
    pub fn write(self, value: u64) -> String {
        match self {
            ParameterUnit::Count => value.to_string(),
            ParameterUnit::Share => Share::from_millionths(value).to_string(),
            ParameterUnit::Time => Span::from_nanos(value).to_string(),
        }
    }
}

/// Why a text is not a value of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterError {
    /// Not a whole number.
    Count,
    /// Not the quantity.
    Quantity(QuantityError),
}

impl ParameterError {
    /// The remedy.
    pub fn remedy(&self, text: &str) -> String {
        match self {
            ParameterError::Count => "write a whole number, such as 10".to_string(),
            ParameterError::Quantity(error) => error.remedy(text),
        }
    }
}

impl fmt::Display for ParameterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParameterError::Count => f.write_str("is not a whole number"),
            ParameterError::Quantity(error) => error.fmt(f),
        }
    }
}
