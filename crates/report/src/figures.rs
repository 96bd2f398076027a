//! Figures for people: three significant digits and a unit, thousands separated by commas.

use hyoshi_model::{Lateness, Span};

pub use hyoshi_model::printable;

/// A count with its thousands apart: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// The value of a condition: with three decimals; a small one to three digits, and a large one whole.
pub fn value(value: f64) -> String {
    match value.abs() {
        ..0.000_000_1 => format!("{:.3}", 0.0),
        size @ ..0.001 => format!("{value:.*}", (2 - size.log10().floor() as i32).unsigned_abs() as usize),
        ..1000.0 => format!("{value:.3}"),
        _ if value < 0.0 => format!("-{}", count(value.abs().round() as u64)),
        _ => count(value.round() as u64),
    }
}

/// A span to three digits: `12.3ms`.
pub fn time(span: Span) -> String {
    nanos(span.as_nanos())
}

/// A lateness to three digits, with its sign: `+1.2ms` is late, `-8ms` early.
pub fn lateness(lateness: Lateness) -> String {
    signed(lateness.as_nanos())
}

/// Signed nanoseconds to three digits.
pub fn signed(value: i64) -> String {
    let sign = match value {
        ..0 => "-",
        0 => "",
        1.. => "+",
    };
    format!("{sign}{}", nanos(value.unsigned_abs()))
}

/// Nanoseconds to three digits, in the unit an engineer would use.
pub fn nanos(nanos: u64) -> String {
    Unit::of([nanos]).text(nanos)
}

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    nanos: u64,
    name: &'static str,
}

impl Unit {
    const ALL: [Unit; 4] = [
        Unit { nanos: 1_000_000_000, name: "s" },
        Unit { nanos: 1_000_000, name: "ms" },
        Unit { nanos: 1_000, name: "us" },
        Unit { nanos: 1, name: "ns" },
    ];

    /// One unit for several times: the largest in which the shortest is at least a tenth, or a larger one if the
    /// longest would have five digits.
    pub fn of(times: impl IntoIterator<Item = u64>) -> Unit {
        let times = times.into_iter().filter(|nanos| *nanos > 0);
        let (shortest, longest) = times.fold((u64::MAX, 0), |(least, most), one| (least.min(one), most.max(one)));
        // A time that rounds up to the next unit is shown in it: 999.9us is 1ms.
        let fits = |unit: &Unit| longest >= unit.nanos - unit.nanos / 2_000 && shortest >= unit.nanos / 10;
        let mut place = Unit::ALL.iter().position(fits).unwrap_or(Unit::ALL.len() - 1);
        while place > 0
            && longest / Unit::ALL[place].nanos >= 10_000
            && shortest >= Unit::ALL[place - 1].nanos / 100_000
        {
            place -= 1;
        }
        Unit::ALL[place]
    }

    /// Nanoseconds in this unit, to three significant digits: `12.3ms`, `0.045ms`, `1,230ms`.
    pub fn text(self, nanos: u64) -> String {
        if nanos == 0 {
            return "0".into();
        }
        let value = nanos as f64 / self.nanos as f64;
        if value >= 999.5 {
            let step = 10_u64.pow((value.log10().floor() as u32).saturating_sub(2));
            return format!("{}{}", count((value / step as f64).round() as u64 * step), self.name);
        }
        let decimals = match value {
            99.95.. => 0,
            9.995.. => 1,
            0.9995.. => 2,
            0.09995.. => 3,
            0.009995.. => 4,
            _ => 5,
        };
        let text = format!("{value:.decimals$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        format!("{text}{}", self.name)
    }
}

/// Parts per million as a percentage: `97.5 %`.
pub fn percent(ppm: u64) -> String {
    format!("{:.1} %", ppm as f64 / 10_000.0)
}

/// A share of two counts as a percentage; nothing if there is nothing to share.
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return String::new();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    // 99.996 % is not all of it, and must not read so.
    let nearly_all = part < whole && percent > 99.9;
    if nearly_all { ">99.9 %".into() } else { format!("{percent:.1} %") }
}

/// A number of jobs in words.
pub fn jobs(number: u64) -> String {
    counted(number, "job", "jobs")
}

/// A number with its noun: `1 analysis`, `24,075 analyses`.
pub fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { several })
}

/// The rate of a period, for people.
pub fn hertz(period_ns: u64) -> String {
    rate_text(1e9 / period_ns.max(1) as f64)
}

/// A rate in hertz, for people.
pub fn rate_text(rate: f64) -> String {
    let digits = if rate >= 100.0 {
        0
    } else if rate >= 10.0 {
        1
    } else {
        2
    };
    format!("{rate:.digits$} Hz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_conditions_have_three_digits_or_decimals() {
        let values = [0.0, 0.02, 0.000_123_4, -0.000_056, 999.5, 124_185.525, -1234.5];
        let expected = ["0.000", "0.020", "0.000123", "-0.0000560", "999.500", "124,186", "-1,235"];
        assert_eq!(values.map(value), expected);
    }

    #[test]
    fn times_have_three_digits_and_the_unit_of_an_engineer() {
        let shown: Vec<String> =
            [0, 999, 1_000, 1_234, 12_345, 999_900, 123_456_789, 999_999_999, 61_000_000_000].map(nanos).into();
        assert_eq!(shown, ["0", "999ns", "1us", "1.23us", "12.3us", "1ms", "123ms", "1s", "61s"]);
        assert_eq!([nanos(999_600_000_000), nanos(12_345_000_000_000)], ["1,000s", "12,300s"]);
        assert_eq!((signed(-8_000_000), signed(1_200_000), signed(0)), ("-8ms".into(), "+1.2ms".into(), "0".into()));
    }

    #[test]
    fn times_beside_each_other_have_one_unit() {
        let unit = |times: &[u64]| times.iter().map(|ns| Unit::of(times.iter().copied()).text(*ns)).collect::<Vec<_>>();
        assert_eq!(unit(&[14_312_000, 45_600, 0]), ["14.3ms", "0.0456ms", "0"]);
        assert_eq!(unit(&[14_312_000, 300]), ["14.3ms", "0.0003ms"]);
        assert_eq!(unit(&[1_000_000_000, 25_000_000]), ["1,000ms", "25ms"]);
        assert_eq!(unit(&[1_000_000_000, 2_000]), ["1,000ms", "0.002ms"]);
        assert_eq!(unit(&[10_000_000_000, 1]), ["10,000,000us", "0.001us"]);
        assert_eq!(unit(&[]), [""; 0]);
    }

    #[test]
    fn counts_and_shares_read_as_what_they_are() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!((share(99_999, 100_000), share(1, 1), share(0, 0)), (">99.9 %".into(), "100.0 %".into(), "".into()));
        assert_eq!(percent(975_000), "97.5 %");
    }
}
