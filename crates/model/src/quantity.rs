//! Quantities in their written form: a decimal number with its unit, `2.5ms`, `40Hz`, `75%`, `1KiB`.
//!
//! They are read in integers, exactly: a value finer than a nanosecond is rejected, not rounded. The one exception is
//! the period of a rate, which is rounded to the nearest nanosecond (30 Hz has no exact period).

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use crate::time::{LONGEST_SPAN, Span};

/// The dimension of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A length of time.
    Time,
    /// How often.
    Rate,
    /// A part of the whole.
    Share,
    /// A number of bytes.
    Size,
    /// Bits in a second.
    Bandwidth,
}

/// Unit, its dimension, and its size in nanoseconds, hertz, parts per million, bytes or bit/s.
const UNITS: &[(&str, Measure, u128)] = &[
    ("ns", Measure::Time, 1),
    ("us", Measure::Time, 1_000),
    ("µs", Measure::Time, 1_000), // the micro sign
    ("μs", Measure::Time, 1_000), // the Greek letter: keyboards have either
    ("ms", Measure::Time, 1_000_000),
    ("s", Measure::Time, 1_000_000_000),
    ("min", Measure::Time, 60_000_000_000),
    ("h", Measure::Time, 3_600_000_000_000),
    ("Hz", Measure::Rate, 1),
    ("kHz", Measure::Rate, 1_000),
    ("%", Measure::Share, 10_000),
    ("B", Measure::Size, 1),
    ("KiB", Measure::Size, 1 << 10),
    ("MiB", Measure::Size, 1 << 20),
    ("kbit/s", Measure::Bandwidth, 1_000),
    ("Mbit/s", Measure::Bandwidth, 1_000_000),
    ("Gbit/s", Measure::Bandwidth, 1_000_000_000),
];

impl Measure {
    /// The units, for messages.
    pub const fn units(self) -> &'static str {
        match self {
            Measure::Time => "ns, us, ms, s, min or h",
            Measure::Rate => "Hz or kHz",
            Measure::Share => "%",
            Measure::Size => "B, KiB or MiB",
            Measure::Bandwidth => "kbit/s, Mbit/s or Gbit/s",
        }
    }

    /// A well-formed quantity, for messages.
    pub const fn example(self) -> &'static str {
        match self {
            Measure::Time => "25ms",
            Measure::Rate => "40Hz",
            Measure::Share => "75%",
            Measure::Size => "1KiB",
            Measure::Bandwidth => "100Mbit/s",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Measure::Time => "a time",
            Measure::Rate => "a rate",
            Measure::Share => "a percentage",
            Measure::Size => "a size",
            Measure::Bandwidth => "a bandwidth",
        })
    }
}

/// Why a text is not the expected quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuantityError {
    /// No number at its start.
    NotANumber(Measure),
    /// A number without a unit.
    NoUnit(Measure),
    /// A negative number.
    Negative(Measure),
    /// An unknown unit.
    UnknownUnit(Measure, String),
    /// A unit of another measure.
    OtherMeasure {
        /// The expected measure.
        wanted: Measure,
        /// The measure of the unit.
        found: Measure,
    },
    /// More digits than the finest step of the measure.
    TooFine(Measure),
    /// Beyond the largest value, which is included.
    TooLarge(Measure, &'static str),
    /// A rate of zero, or almost zero.
    NoPeriod,
}

impl QuantityError {
    /// The remedy.
    pub fn remedy(&self, text: &str) -> String {
        let like = |measure: &Measure| alloc::format!("write it with a unit, such as \"{}\"", measure.example());
        match self {
            QuantityError::NotANumber(measure) => like(measure),
            QuantityError::NoUnit(measure) => {
                let number = text.trim();
                match measure {
                    Measure::Time => {
                        alloc::format!("write \"{number}ms\" or \"{number}s\"; units are {}", measure.units())
                    }
                    Measure::Rate => alloc::format!("write \"{number}Hz\" or \"{number}kHz\""),
                    Measure::Share => "write a percentage, such as \"75%\"".to_string(),
                    Measure::Size => alloc::format!("write \"{number}B\"; units are {}", measure.units()),
                    Measure::Bandwidth => alloc::format!("write \"{number}Mbit/s\"; units are {}", measure.units()),
                }
            }
            QuantityError::Negative(_) => "leave the sign out".to_string(),
            QuantityError::UnknownUnit(Measure::Time, unit) if unit == "m" => {
                "minutes are `min`, milliseconds are `ms`".to_string()
            }
            QuantityError::UnknownUnit(measure, _) => alloc::format!("units are {}", measure.units()),
            QuantityError::OtherMeasure { wanted, .. } => like(wanted),
            QuantityError::TooFine(Measure::Time) => "time is counted in whole nanoseconds".to_string(),
            QuantityError::TooFine(Measure::Share) => "the finest step is 0.0001%".to_string(),
            QuantityError::TooFine(_) => "use a whole number".to_string(),
            QuantityError::TooLarge(_, largest) => alloc::format!("the limit is {largest}"),
            QuantityError::NoPeriod => {
                "write a higher rate, such as \"50Hz\"; `enabled = false` switches an operation off".to_string()
            }
        }
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QuantityError::NotANumber(measure) => write!(f, "is not {measure}"),
            QuantityError::NoUnit(_) => f.write_str("has no unit"),
            QuantityError::Negative(measure) => write!(f, "is negative: {measure} cannot be"),
            QuantityError::UnknownUnit(_, unit) => write!(f, "has an unknown unit, `{}`", unit.escape_debug()),
            QuantityError::OtherMeasure { wanted, found } => write!(f, "is {found}, not {wanted}"),
            QuantityError::TooFine(_) => f.write_str("has too many decimals"),
            QuantityError::TooLarge(..) => f.write_str("is too large"),
            QuantityError::NoPeriod => f.write_str("is less than once in ten years, the lowest rate"),
        }
    }
}

impl core::error::Error for QuantityError {}

/// Reads a length of time of at most [`LONGEST_SPAN`].
pub fn span(text: &str) -> Result<Span, QuantityError> {
    let too_large = QuantityError::TooLarge(Measure::Time, "ten years (87600h)");
    let nanos = whole(text, Measure::Time, &too_large)?;
    let span = u64::try_from(nanos).map(Span::from_nanos).map_err(|_| too_large.clone())?;
    if span > LONGEST_SPAN { Err(too_large) } else { Ok(span) }
}

/// Reads a rate and returns its period, rounded to the nearest nanosecond.
pub fn period(text: &str) -> Result<Span, QuantityError> {
    let too_large = QuantityError::TooLarge(Measure::Rate, "1000000kHz, one each nanosecond");
    let (decimal, unit) = split(text, Measure::Rate, &too_large)?;
    let divisor = decimal.digits * unit;
    if divisor == 0 {
        return Err(QuantityError::NoPeriod);
    }
    let nanos = (2_000_000_000 * decimal.scale + divisor) / (2 * divisor);
    match u64::try_from(nanos) {
        Ok(0) => Err(too_large),
        Ok(nanos) if nanos <= LONGEST_SPAN.as_nanos() => Ok(Span::from_nanos(nanos)),
        _ => Err(QuantityError::NoPeriod),
    }
}

/// Reads a percentage in parts per million of the whole.
pub fn share_ppm(text: &str) -> Result<u32, QuantityError> {
    let too_large = QuantityError::TooLarge(Measure::Share, "100%");
    match whole(text, Measure::Share, &too_large)? {
        ppm @ 0..=1_000_000 => Ok(ppm as u32),
        _ => Err(too_large),
    }
}

/// Reads a percentage of one CPU, or of several, in millionths of one.
pub(crate) fn share_of_cpus(text: &str) -> Result<u64, QuantityError> {
    let too_large = QuantityError::TooLarge(Measure::Share, "409600%, which is 4096 CPUs");
    match whole(text, Measure::Share, &too_large)? {
        ppm @ 0..=4_096_000_000 => Ok(ppm as u64),
        _ => Err(too_large),
    }
}

/// Reads a number of bytes.
pub fn bytes(text: &str) -> Result<u64, QuantityError> {
    let too_large = QuantityError::TooLarge(Measure::Size, "2^64 bytes");
    u64::try_from(whole(text, Measure::Size, &too_large)?).map_err(|_| too_large)
}

/// Reads a bandwidth in bit/s.
pub fn bandwidth(text: &str) -> Result<u64, QuantityError> {
    let too_large = QuantityError::TooLarge(Measure::Bandwidth, "2^64 bit/s");
    u64::try_from(whole(text, Measure::Bandwidth, &too_large)?).map_err(|_| too_large)
}

impl FromStr for Span {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        span(text)
    }
}

/// `digits / scale`, where `scale` is a power of ten.
struct Decimal {
    digits: u128,
    scale: u128,
}

/// More significant digits than any quantity needs; products with a unit stay within 128 bits.
const MOST_DIGITS: usize = 24;

/// The quantity in the smallest unit of its measure, if that is a whole number.
fn whole(text: &str, measure: Measure, too_large: &QuantityError) -> Result<u128, QuantityError> {
    let (decimal, unit) = split(text, measure, too_large)?;
    let scaled = decimal.digits * unit;
    if scaled.is_multiple_of(decimal.scale) { Ok(scaled / decimal.scale) } else { Err(QuantityError::TooFine(measure)) }
}

/// The number and the size of the unit.
fn split(text: &str, wanted: Measure, too_large: &QuantityError) -> Result<(Decimal, u128), QuantityError> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('-') {
        let number = rest.starts_with(|c: char| c.is_ascii_digit());
        return Err(if number { QuantityError::Negative(wanted) } else { QuantityError::NotANumber(wanted) });
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let (integer, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if integer.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(QuantityError::NotANumber(wanted));
    }
    if unit.is_empty() {
        return Err(QuantityError::NoUnit(wanted));
    }
    let Some((_, found, size)) = UNITS.iter().find(|(name, ..)| *name == unit) else {
        let unit = unit.chars().take(16).collect();
        return Err(QuantityError::UnknownUnit(wanted, unit));
    };
    if *found != wanted {
        return Err(QuantityError::OtherMeasure { wanted, found: *found });
    }
    let (integer, fraction) = (integer.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if integer.len() > MOST_DIGITS {
        return Err(too_large.clone());
    }
    if integer.len() + fraction.len() > MOST_DIGITS {
        return Err(QuantityError::TooFine(wanted));
    }
    let digits = integer.bytes().chain(fraction.bytes()).fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    Ok((Decimal { digits, scale: 10u128.pow(fraction.len() as u32) }, *size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(text: &str) -> u64 {
        span(text).map(Span::as_nanos).unwrap_or_else(|error| panic!("{text} {error}"))
    }

    #[test]
    fn times_are_read_exactly_in_every_unit() {
        assert_eq!(nanos("2.5ms"), 2_500_000);
        assert_eq!(nanos("33.333us"), 33_333);
        assert_eq!(nanos("33.333 µs"), 33_333);
        assert_eq!(nanos("33.333μs"), 33_333);
        assert_eq!(nanos("1.000000001s"), 1_000_000_001);
        assert_eq!(nanos("0.5min"), 30_000_000_000);
        assert_eq!(nanos("2h"), 7_200_000_000_000);
        assert_eq!(nanos("0s"), 0);
        assert_eq!(nanos("0001.50000000000000000000000000000000s"), 1_500_000_000);
        assert_eq!(nanos("87600h"), LONGEST_SPAN.as_nanos());
    }

    #[test]
    fn what_is_not_a_time_is_refused_for_its_own_reason() {
        let error = |text: &str| span(text).unwrap_err().to_string();
        assert_eq!(error("25"), "has no unit");
        assert_eq!(error("ms"), "is not a time");
        assert_eq!(error(""), "is not a time");
        assert_eq!(error("1.ms"), "is not a time");
        assert_eq!(error("1.2.3ms"), "is not a time");
        assert_eq!(error("-1ms"), "is negative: a time cannot be");
        assert_eq!(error("5m"), "has an unknown unit, `m`");
        assert_eq!(error("1e3ms"), "has an unknown unit, `e3ms`");
        assert_eq!(error("40Hz"), "is a rate, not a time");
        assert_eq!(error("0.3ns"), "has too many decimals");
        assert_eq!(error("87600.1h"), "is too large");
        assert_eq!(error("99999999999999999999999999999999h"), "is too large");
    }

    #[test]
    fn a_rate_becomes_the_nearest_period() {
        let nanos = |text: &str| period(text).map(Span::as_nanos);
        assert_eq!(nanos("40Hz"), Ok(25_000_000));
        assert_eq!(nanos("30Hz"), Ok(33_333_333));
        assert_eq!(nanos("60Hz"), Ok(16_666_667));
        assert_eq!(nanos("29.97Hz"), Ok(33_366_700));
        assert_eq!(nanos("1kHz"), Ok(1_000_000));
        assert_eq!(nanos("0.1Hz"), Ok(10_000_000_000));
        assert_eq!(nanos("0Hz"), Err(QuantityError::NoPeriod));
        assert_eq!(nanos("0.000000001Hz"), Err(QuantityError::NoPeriod));
        assert!(matches!(nanos("3000000kHz"), Err(QuantityError::TooLarge(..))));
    }

    #[test]
    fn percentages_and_sizes_are_read_exactly() {
        assert_eq!(share_ppm("94%"), Ok(940_000));
        assert_eq!(share_ppm("1.5%"), Ok(15_000));
        assert_eq!(share_ppm("100%"), Ok(1_000_000));
        assert!(share_ppm("100.1%").is_err() && share_ppm("0.00001%").is_err());
        assert_eq!(bytes("1.5KiB"), Ok(1_536));
        assert!(bytes("1.3B").is_err() && bytes("1kB").is_err());
        assert_eq!((bandwidth("100Mbit/s"), bandwidth("2.5 Gbit/s")), (Ok(100_000_000), Ok(2_500_000_000)));
        assert_eq!(bandwidth("100MB").unwrap_err().to_string(), "has an unknown unit, `MB`");
        assert!(bandwidth("0.0001kbit/s").is_err() && bandwidth("1MiB").is_err());
    }

    proptest! {
        #[test]
        fn a_printed_span_reads_back_as_itself(nanos in 0..=LONGEST_SPAN.as_nanos()) {
            let printed = Span::from_nanos(nanos).to_string();
            prop_assert_eq!(span(&printed), Ok(Span::from_nanos(nanos)), "{}", printed);
        }

        #[test]
        fn a_round_span_reads_back_as_itself(thousandths in 0u64..10_000_000, unit in 0u32..4) {
            let nanos = thousandths * 1_000u64.pow(unit);
            let printed = Span::from_nanos(nanos.min(LONGEST_SPAN.as_nanos())).to_string();
            prop_assert_eq!(span(&printed).map(Span::as_nanos), Ok(nanos.min(LONGEST_SPAN.as_nanos())), "{}", printed);
        }

        #[test]
        fn no_text_makes_a_reader_panic(text in "\\PC*") {
            let _ = (span(&text), period(&text), share_ppm(&text), bytes(&text), bandwidth(&text));
        }

        #[test]
        fn no_number_makes_a_reader_panic(number in "-?[0-9]{0,40}\\.?[0-9]{0,40}", unit in 0..UNITS.len()) {
            let text = alloc::format!("{number}{}", UNITS[unit].0);
            for error in [span(&text).err(), period(&text).err(), share_ppm(&text).err(), bytes(&text).err()] {
                prop_assert!(error.is_none_or(|error| !error.remedy(&text).is_empty()));
            }
        }

        #[test]
        fn a_period_is_within_half_a_nanosecond_of_its_rate(millihertz in 1u64..1_000_000_000) {
            let text = alloc::format!("{}.{:03}Hz", millihertz / 1_000, millihertz % 1_000);
            let nanos = u128::from(period(&text).unwrap().as_nanos());
            let exact_times_rate = 1_000_000_000_000u128;
            let error = (nanos * u128::from(millihertz)).abs_diff(exact_times_rate);
            prop_assert!(2 * error <= u128::from(millihertz), "{text}: {nanos} ns");
        }
    }
}
