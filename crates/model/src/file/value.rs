//! Converts one TOML value to the type that a key needs, or returns a complaint with the remedy.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::log::{AtPlace, Place};
use crate::quantity::{self, Measure, QuantityError};
use crate::time::Span;

/// A value from the file, or a default from the table of keys.
#[derive(Clone, Copy)]
pub(super) enum InputValue<'a> {
    Text(&'a str),
    /// `None` beyond 64 bits.
    Whole(Option<i64>),
    Float(&'a str),
    Truth(bool),
    Date,
    List(&'a [Spanned<DeValue<'a>>]),
    Table(&'a DeTable<'a>),
}

/// An error in a value: the sentence continues after the key's name.
#[derive(Debug)]
pub(super) struct Complaint {
    pub message: String,
    pub help: String,
    /// The place in the value, if not all of it.
    pub place: Option<Place>,
}

pub(super) type Read<T> = Result<T, Complaint>;

pub(super) fn complain<T>(message: impl Into<String>, help: impl Into<String>) -> Read<T> {
    Err(Complaint { message: message.into(), help: help.into(), place: None })
}

impl Complaint {
    /// The same, at a place within the value.
    pub fn within(mut self, place: Place) -> Self {
        self.place.get_or_insert(place);
        self
    }
}

impl<'a> InputValue<'a> {
    pub fn of(value: &'a DeValue<'a>) -> Self {
        match value {
            DeValue::String(text) => InputValue::Text(text),
            DeValue::Integer(whole) => InputValue::Whole(i64::from_str_radix(whole.as_str(), whole.radix()).ok()),
            DeValue::Float(float) => InputValue::Float(float.as_str()),
            DeValue::Boolean(truth) => InputValue::Truth(*truth),
            DeValue::Datetime(_) => InputValue::Date,
            DeValue::Array(list) => InputValue::List(list),
            DeValue::Table(table) => InputValue::Table(table),
        }
    }

    /// A default from the table of keys, which has only these forms.
    pub fn of_default(text: &'static str) -> Self {
        match text {
            "true" | "false" => InputValue::Truth(text == "true"),
            "[]" => InputValue::List(&[]),
            _ => match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
                Some(text) => InputValue::Text(text),
                None if text.contains('.') => InputValue::Float(text),
                None => InputValue::Whole(text.parse().ok()),
            },
        }
    }

    fn is_a(self) -> &'static str {
        match self {
            InputValue::Text(_) => "is a text",
            InputValue::Whole(_) => "is a bare number",
            InputValue::Float(_) => "is a bare number",
            InputValue::Truth(_) => "is true or false",
            InputValue::Date => "is a date",
            InputValue::List(_) => "is a list",
            InputValue::Table(_) => "is a table",
        }
    }

    pub fn text(self) -> Read<&'a str> {
        match self {
            InputValue::Text(text) => Ok(text),
            other => complain(format!("{}, not a text", other.is_a()), "write it between quotes"),
        }
    }

    pub fn truth(self) -> Read<bool> {
        match self {
            InputValue::Truth(truth) => Ok(truth),
            InputValue::Text(text @ ("true" | "false")) => {
                complain("is a text", format!("write {text} without quotes"))
            }
            other => complain(format!("{}, neither true nor false", other.is_a()), "write true or false"),
        }
    }

    pub fn whole(self, least: u64, most: u64) -> Read<u64> {
        let range = format!("write a whole number from {least} to {most}");
        match self {
            InputValue::Whole(Some(whole)) => match u64::try_from(whole) {
                Ok(whole) if (least..=most).contains(&whole) => Ok(whole),
                _ => complain("is out of range", range),
            },
            InputValue::Whole(None) => complain("is out of range", range),
            InputValue::Float(_) => complain("is not a whole number", range),
            other => complain(format!("{}, not a whole number", other.is_a()), range),
        }
    }

    /// A number above zero without a unit.
    pub fn positive_number(self) -> Read<f64> {
        let number = match self {
            InputValue::Whole(Some(whole)) => whole as f64,
            InputValue::Float(float) => float.replace('_', "").parse().unwrap_or(f64::NAN),
            other => return complain(format!("{}, not a number", other.is_a()), "write a number such as 0.447"),
        };
        match number {
            number if (1e-6..=1e6).contains(&number) => Ok(number),
            _ => complain("is out of range", "write a number from 0.000001 to 1000000"),
        }
    }

    /// A number of either sign without a unit.
    pub fn number(self) -> Read<f64> {
        let number = match self {
            InputValue::Whole(Some(whole)) => whole as f64,
            InputValue::Float(float) => float.replace('_', "").parse().unwrap_or(f64::NAN),
            other => return complain(format!("{}, not a number", other.is_a()), "write a number such as 0.3"),
        };
        match number {
            number if (-1e9..=1e9).contains(&number) => Ok(number),
            _ => complain("is out of range", "write a number from -1e9 to 1e9"),
        }
    }

    fn quantity<T>(self, measure: Measure, read: fn(&str) -> Result<T, QuantityError>) -> Read<T> {
        let no_unit = |number: &str| complain("has no unit", QuantityError::NoUnit(measure).remedy(number));
        match self {
            InputValue::Text(text) => read(text).or_else(|error| {
                let help = match (&error, quantity::period(text), quantity::span(text)) {
                    (QuantityError::OtherMeasure { wanted: Measure::Time, .. }, Ok(period), _) => {
                        format!("write the period, \"{period}\"; only `rate` accepts a rate")
                    }
                    (QuantityError::OtherMeasure { wanted: Measure::Rate, .. }, _, Ok(_)) => {
                        format!("for a period write `every = \"{}\"`", text.trim())
                    }
                    _ => error.remedy(text),
                };
                complain(error.to_string(), help)
            }),
            InputValue::Whole(Some(whole)) => no_unit(&whole.to_string()),
            InputValue::Float(float) => no_unit(float),
            other => complain(
                format!("{}, not {measure}", other.is_a()),
                format!("write {measure} such as \"{}\"", measure.example()),
            ),
        }
    }

    pub fn time(self) -> Read<Span> {
        self.quantity(Measure::Time, quantity::span)
    }

    /// A time that is not zero.
    pub fn positive_time(self) -> Read<Span> {
        match self.time()? {
            Span::ZERO => complain("is zero", "write a longer time, such as \"25ms\""),
            span => Ok(span),
        }
    }

    pub fn share_ppm(self) -> Read<u32> {
        self.quantity(Measure::Share, quantity::share_ppm)
    }

    pub fn size(self) -> Read<u64> {
        self.quantity(Measure::Size, quantity::bytes)
    }

    /// In bit/s.
    pub fn bandwidth(self) -> Read<u64> {
        self.quantity(Measure::Bandwidth, quantity::bandwidth)
    }

    /// The index of the word in the list.
    pub fn choice(self, words: &[&str]) -> Read<usize> {
        let list = || format!("write {}", one_of(words));
        match self {
            InputValue::Text(text) => match words.iter().position(|word| *word == text) {
                Some(position) => Ok(position),
                None => complain(format!("cannot be `{}`", shortened(text)), list()),
            },
            other => complain(other.is_a(), list()),
        }
    }

    pub fn list(self) -> Read<&'a [Spanned<DeValue<'a>>]> {
        match self {
            InputValue::List(list) => Ok(list),
            other => complain(format!("{}, not a list", other.is_a()), "write a list: [\"...\", \"...\"]"),
        }
    }

    /// A list of texts with their places.
    pub fn texts(self) -> Read<Vec<AtPlace<&'a str>>> {
        let texts = self.list()?.iter().map(|item| {
            let place = Place::from(item.span());
            match InputValue::of(item.get_ref()).text() {
                Ok(text) => Ok(AtPlace::new(text, place)),
                Err(complaint) => Err(complaint.within(place)),
            }
        });
        texts.collect()
    }

    /// `"locate"` or `["locate@steer", "locate@plan"]`; a single text has no place of its own.
    pub fn one_or_several(self) -> Read<Vec<AtPlace<&'a str>>> {
        match self {
            InputValue::List(_) => self.texts(),
            given => Ok(vec![AtPlace::new(given.text()?, Place::default())]),
        }
    }

    /// Two values, the second not smaller.
    pub fn pair<T: PartialOrd>(self, what: &str, item: impl Fn(InputValue<'a>) -> Read<T>) -> Read<(T, T)> {
        let InputValue::List([first, second]) = self else {
            let help = format!("write two {what}: [\"...\", \"...\"]");
            return complain("does not have two values", help);
        };
        let read = |value: &'a Spanned<DeValue<'a>>| {
            item(InputValue::of(value.get_ref())).map_err(|complaint| complaint.within(value.span().into()))
        };
        let (first, second) = (read(first)?, read(second)?);
        if first > second {
            return complain("begins with the greater value", "swap the two");
        }
        Ok((first, second))
    }

    /// Two values, or one used for both.
    pub fn one_or_pair<T: PartialOrd + Copy>(
        self,
        what: &str,
        item: impl Fn(InputValue<'a>) -> Read<T>,
    ) -> Read<(T, T)> {
        match self {
            InputValue::List(_) => self.pair(what, item),
            _ => item(self).map(|value| (value, value)),
        }
    }

    /// The shortest and the longest period of a rate or a range of rates.
    pub fn periods_of_rates(self) -> Read<(Span, Span)> {
        // Rates rise as periods fall: the order is checked on the reversed value.
        let rate = |given: InputValue<'a>| given.quantity(Measure::Rate, quantity::period).map(core::cmp::Reverse);
        self.one_or_pair("rates", rate).map(|(slow, fast)| (fast.0, slow.0))
    }

    /// A period, as a rate or a time.
    pub fn period(self) -> Read<Span> {
        match self {
            InputValue::Text(text) if !text.ends_with("Hz") => self.positive_time(),
            given => given.quantity(Measure::Rate, quantity::period),
        }
    }

    pub fn table(self, such_as: &str) -> Read<&'a DeTable<'a>> {
        match self {
            InputValue::Table(table) => Ok(table),
            other => complain(format!("{}, not a table", other.is_a()), format!("write {such_as}")),
        }
    }
}

/// `"a", "b" or "c"`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [word] => format!("\"{word}\""),
        [words @ .., last] => {
            let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
            format!("{} or \"{last}\"", words.join(", "))
        }
    }
}

/// A text of the file, made fit for a message: no control characters, limited length.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(48).flat_map(char::escape_debug).collect();
    if text.chars().count() > 48 {
        short.push('…');
    }
    short
}
