//! Expressions over the conditions of a contract, in a subset of the syntax of CEL (Common Predicate Language,
//! <https://cel.dev>).
//!
//! ```text
//! expression = both { "||" both }
//! both       = comparison { "&&" comparison }
//! comparison = sum [ ("<" | "<=" | ">" | ">=" | "==" | "!=") sum ]
//! sum        = product { ("+" | "-") product }
//! product    = unary { ("*" | "/") unary }
//! unary      = { "!" | "-" } primary
//! primary    = number | "duration" "(" text ")" | "stale" "(" name ")" | "true" | "false" | name | "(" expression ")"
//! ```
//!
//! Numbers are real numbers. Unlike in CEL, `1 / 2` is 0.5. A `duration('20ms')` is a number of seconds.
//!
//! An expression is compiled into a program of at most [`MOST_STEPS`] steps. It has no loops, so its evaluation time is
//! bounded. An evaluation does not allocate.
//!
//! A comparison with a stale value is false, and so is one with the result of a division by zero.
//!
//! ```
//! use hyoshi_model::predicate::{Predicate, ConditionReading};
//!
//! let names = ["late", "asked"];
//! let enter = Predicate::read("late > 0.02 && asked > 1.0", &names)?;
//! assert!(enter.holds(&[ConditionReading::Fresh(0.05), ConditionReading::Fresh(1.2)]));
//! assert!(!enter.holds(&[ConditionReading::Fresh(0.05), ConditionReading::Stale]));
//!
//! let error = Predicate::read("late > 0.02 && askd > 1.0", &names).unwrap_err();
//! assert_eq!((error.from, error.to), (15, 19));
//! # Ok::<(), hyoshi_model::predicate::PredicateError>(())
//! ```

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::ops::Range;

use crate::quantity;

/// The most steps of a program.
pub const MOST_STEPS: usize = 128;
/// The most values on the stack of a program: a level of nesting adds at most two.
const DEPTH: usize = 2 * NESTING + 2;
/// The deepest nesting of an expression.
const NESTING: usize = 24;
/// The most bytes of a text.
const MOST_BYTES: usize = 1024;

/// The value of a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ConditionReading {
    /// A value that is recent enough; it is finite.
    Fresh(f64),
    /// The value is too old, or none has arrived.
    Stale,
}

/// A truth value over conditions, ready to be evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicate {
    text: Box<str>,
    steps: Box<[PredicateStep]>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum PredicateStep {
    Number(f64),
    Value(u16),
    Negate,
    Arithmetic(Arithmetic),
    Compare(Comparison),
    Truth(bool),
    Stale(u16),
    Not,
    And,
    Or,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Greater,
    AtLeast,
    Equal,
    Unequal,
}

impl Arithmetic {
    /// NaN, the undefined value, if the result is not finite.
    fn of(self, left: f64, right: f64) -> f64 {
        let result = match self {
            Arithmetic::Add => left + right,
            Arithmetic::Subtract => left - right,
            Arithmetic::Multiply => left * right,
            Arithmetic::Divide => left / right,
        };
        if result.is_finite() { result } else { f64::NAN }
    }
}

impl Comparison {
    /// False for NaN, also with `!=`.
    fn of(self, left: f64, right: f64) -> bool {
        match self {
            Comparison::Less => left < right,
            Comparison::AtMost => left <= right,
            Comparison::Greater => left > right,
            Comparison::AtLeast => left >= right,
            Comparison::Equal => left == right,
            Comparison::Unequal => left.partial_cmp(&right).is_some_and(Ordering::is_ne),
        }
    }
}

impl Predicate {
    /// Reads and checks an expression over conditions with these names.
    ///
    /// # Errors
    ///
    /// If it is not well formed, not a truth value, too long, or names another condition.
    pub fn read(text: &str, names: &[&str]) -> Result<Predicate, PredicateError> {
        let mut reader = PredicateReader { text, at: 0, names, steps: Vec::new(), depth: 0, nesting: 0 };
        if text.len() > MOST_BYTES {
            return Err(PredicateError::new(MOST_BYTES..text.len(), PredicateFault::TooLong));
        }
        let from = reader.skip_space();
        let kind = reader.expression()?;
        let place = from..reader.at;
        if reader.skip_space() < text.len() {
            return Err(reader.unexpected("an operator or the end"));
        }
        reader.must_be(kind, ValueKind::Truth, place)?;
        Ok(Predicate { text: text.into(), steps: reader.steps.into() })
    }

    /// As written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is true for these readings, by the positions of their names. Missing readings are stale.
    pub fn holds(&self, readings: &[ConditionReading]) -> bool {
        let reading = |place: u16| readings.get(usize::from(place)).copied().unwrap_or(ConditionReading::Stale);
        let (mut numbers, mut count) = ([0.0; DEPTH], 0);
        // A stack of bits: the last truth value is the lowest. A level of nesting adds at most two.
        let mut truths = 0u64;
        for step in &self.steps {
            match *step {
                PredicateStep::Number(number) => {
                    numbers[count] = number;
                    count += 1;
                }
                PredicateStep::Value(place) => {
                    numbers[count] = match reading(place) {
                        ConditionReading::Fresh(value) => value,
                        ConditionReading::Stale => f64::NAN,
                    };
                    count += 1;
                }
                PredicateStep::Negate => numbers[count - 1] = -numbers[count - 1],
                PredicateStep::Arithmetic(operator) => {
                    count -= 1;
                    numbers[count - 1] = operator.of(numbers[count - 1], numbers[count]);
                }
                PredicateStep::Compare(operator) => {
                    count -= 2;
                    truths = truths << 1 | u64::from(operator.of(numbers[count], numbers[count + 1]));
                }
                PredicateStep::Truth(truth) => truths = truths << 1 | u64::from(truth),
                PredicateStep::Stale(place) => {
                    truths = truths << 1 | u64::from(reading(place) == ConditionReading::Stale)
                }
                PredicateStep::Not => truths ^= 1,
                PredicateStep::And => truths = truths >> 1 & !1 | (truths & truths >> 1 & 1),
                PredicateStep::Or => truths = truths >> 1 & !1 | ((truths | truths >> 1) & 1),
            }
        }
        truths & 1 == 1
    }

    /// The positions of the conditions in it, each once, in ascending order.
    pub fn conditions(&self) -> Vec<u16> {
        let mut all: Vec<u16> = (self.steps.iter())
            .filter_map(|step| match step {
                PredicateStep::Value(place) | PredicateStep::Stale(place) => Some(*place),
                _ => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The constants with which conditions are compared, as (position, constant). The truth value changes only at these
    /// constants. `None` if a condition is part of another calculation.
    pub fn thresholds(&self) -> Option<Vec<(u16, f64)>> {
        #[derive(Clone, Copy)]
        enum Operand {
            Constant(f64),
            Condition(u16),
        }
        let mut stack: Vec<Operand> = Vec::new();
        let mut all = Vec::new();
        for step in &self.steps {
            match *step {
                PredicateStep::Number(number) => stack.push(Operand::Constant(number)),
                PredicateStep::Value(place) => stack.push(Operand::Condition(place)),
                PredicateStep::Negate => match stack.pop()? {
                    Operand::Constant(number) => stack.push(Operand::Constant(-number)),
                    Operand::Condition(_) => return None,
                },
                PredicateStep::Arithmetic(operator) => match (stack.pop()?, stack.pop()?) {
                    (Operand::Constant(right), Operand::Constant(left)) => {
                        stack.push(Operand::Constant(operator.of(left, right)))
                    }
                    _ => return None,
                },
                PredicateStep::Compare(_) => match (stack.pop()?, stack.pop()?) {
                    (Operand::Constant(number), Operand::Condition(place))
                    | (Operand::Condition(place), Operand::Constant(number)) => all.push((place, number)),
                    (Operand::Constant(_), Operand::Constant(_)) => {}
                    _ => return None,
                },
                PredicateStep::Truth(_)
                | PredicateStep::Stale(_)
                | PredicateStep::Not
                | PredicateStep::And
                | PredicateStep::Or => {}
            }
        }
        Some(all)
    }
}

/// Why a text is not an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredicateError {
    /// The first byte of the wrong part.
    pub from: usize,
    /// The byte after the wrong part.
    pub to: usize,
    /// What is wrong.
    pub fault: PredicateFault,
}

/// What is wrong in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PredicateFault {
    /// Something else was expected.
    Unexpected {
        /// What is there; empty at the end.
        found: String,
        /// What may be there.
        expected: &'static str,
    },
    /// No condition has this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// A number where a truth value must be, or the reverse.
    Type {
        /// What must be there.
        expected: &'static str,
    },
    /// A division by the constant zero, or another constant that is not a number.
    Undefined,
    /// A constant that is not finite.
    TooLarge,
    /// `duration` has another text than a time.
    Duration {
        /// The reason.
        reason: String,
    },
    /// Longer or deeper than the limits.
    TooLong,
}

impl PredicateError {
    fn new(range: Range<usize>, fault: PredicateFault) -> Self {
        PredicateError { from: range.start, to: range.end, fault }
    }

    /// The remedy.
    pub fn remedy(&self) -> &'static str {
        match self.fault {
            PredicateFault::Unexpected { .. } => "write comparisons such as `late > 0.02`, joined with && and ||",
            PredicateFault::Unknown { .. } => "use a name from `watch`",
            PredicateFault::Type { expected: "a number" } => "compare numbers only; join truth values with && and ||",
            PredicateFault::Type { .. } => "compare the number, such as `late > 0.02`",
            PredicateFault::Undefined => "write a number other than zero",
            PredicateFault::TooLarge => "write a smaller number",
            PredicateFault::Duration { .. } => "write a time with its unit, such as duration('20ms')",
            PredicateFault::TooLong => "split it into several regions",
        }
    }
}

impl fmt::Display for PredicateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            PredicateFault::Unexpected { found, expected } if found.is_empty() => {
                write!(f, "expected {expected}, found the end of the expression")
            }
            PredicateFault::Unexpected { found, expected } => write!(f, "expected {expected}, found `{found}`"),
            PredicateFault::Unknown { name } => write!(f, "unknown condition `{name}`"),
            PredicateFault::Type { expected } => write!(f, "not {expected}"),
            PredicateFault::Undefined => f.write_str("a division by zero"),
            PredicateFault::TooLarge => f.write_str("the number is too large"),
            PredicateFault::Duration { reason } => f.write_str(reason),
            PredicateFault::TooLong => write!(
                f,
                "the expression is too long: the limits are {MOST_BYTES} bytes, {MOST_STEPS} steps and {NESTING} levels of nesting"
            ),
        }
    }
}

impl core::error::Error for PredicateError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueKind {
    Number,
    Truth,
}

/// A reader by recursive descent, which emits steps in postfix order.
struct PredicateReader<'a> {
    text: &'a str,
    at: usize,
    names: &'a [&'a str],
    steps: Vec<PredicateStep>,
    /// The present and the deepest stack of numbers.
    depth: usize,
    nesting: usize,
}

impl<'a> PredicateReader<'a> {
    fn expression(&mut self) -> Result<ValueKind, PredicateError> {
        self.nest(|reader| {
            reader.joined("||", PredicateStep::Or, |reader| reader.joined("&&", PredicateStep::And, Self::comparison))
        })
    }

    /// One level deeper.
    fn nest(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<ValueKind, PredicateError>,
    ) -> Result<ValueKind, PredicateError> {
        self.nesting += 1;
        if self.nesting > NESTING {
            return Err(self.too_long());
        }
        let kind = read(self)?;
        self.nesting -= 1;
        Ok(kind)
    }

    fn joined(
        &mut self,
        operator: &'static str,
        step: PredicateStep,
        operand: impl Fn(&mut Self) -> Result<ValueKind, PredicateError>,
    ) -> Result<ValueKind, PredicateError> {
        let from = self.skip_space();
        let kind = operand(self)?;
        let left = from..self.at;
        while self.accept(operator) {
            self.must_be(kind, ValueKind::Truth, left.clone())?;
            let right = self.skip_space();
            let second = operand(self)?;
            self.must_be(second, ValueKind::Truth, right..self.at)?;
            self.emit(step)?;
        }
        Ok(kind)
    }

    fn comparison(&mut self) -> Result<ValueKind, PredicateError> {
        const OPERATORS: [(&str, Comparison); 6] = [
            ("<=", Comparison::AtMost),
            (">=", Comparison::AtLeast),
            ("==", Comparison::Equal),
            ("!=", Comparison::Unequal),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let from = self.skip_space();
        let kind = self.sum()?;
        let left = from..self.at;
        let Some((_, operator)) = OPERATORS.into_iter().find(|(text, _)| self.accept(text)) else { return Ok(kind) };
        self.must_be(kind, ValueKind::Number, left)?;
        let right = self.skip_space();
        let second = self.sum()?;
        self.must_be(second, ValueKind::Number, right..self.at)?;
        self.emit(PredicateStep::Compare(operator))?;
        Ok(ValueKind::Truth)
    }

    fn sum(&mut self) -> Result<ValueKind, PredicateError> {
        self.arithmetic(&[("+", Arithmetic::Add), ("-", Arithmetic::Subtract)], Self::product)
    }

    fn product(&mut self) -> Result<ValueKind, PredicateError> {
        self.arithmetic(&[("*", Arithmetic::Multiply), ("/", Arithmetic::Divide)], Self::unary)
    }

    fn arithmetic(
        &mut self,
        operators: &[(&str, Arithmetic)],
        operand: impl Fn(&mut Self) -> Result<ValueKind, PredicateError>,
    ) -> Result<ValueKind, PredicateError> {
        let from = self.skip_space();
        let kind = operand(self)?;
        let left = from..self.at;
        while let Some((_, operator)) = operators.iter().find(|(text, _)| self.accept(text)) {
            self.must_be(kind, ValueKind::Number, left.clone())?;
            let right = self.skip_space();
            let second = operand(self)?;
            self.must_be(second, ValueKind::Number, right..self.at)?;
            let undefined = match self.steps[..] {
                [.., PredicateStep::Number(left), PredicateStep::Number(right)] => operator.of(left, right).is_nan(),
                [.., PredicateStep::Number(right)] => *operator == Arithmetic::Divide && right == 0.0,
                _ => false,
            };
            if undefined {
                return Err(PredicateError::new(right..self.at, PredicateFault::Undefined));
            }
            self.emit(PredicateStep::Arithmetic(*operator))?;
        }
        Ok(kind)
    }

    fn unary(&mut self) -> Result<ValueKind, PredicateError> {
        let not = self.rest().starts_with('!') && !self.rest().starts_with("!=");
        let (kind, step) = match () {
            () if not => (ValueKind::Truth, PredicateStep::Not),
            () if self.rest().starts_with('-') => (ValueKind::Number, PredicateStep::Negate),
            () => return self.primary(),
        };
        self.at += 1;
        let from = self.skip_space();
        let found = self.nest(Self::unary)?;
        self.must_be(found, kind, from..self.at)?;
        match self.steps.last_mut() {
            Some(PredicateStep::Number(number)) if step == PredicateStep::Negate => *number = -*number,
            _ => self.emit(step)?,
        }
        Ok(kind)
    }

    fn primary(&mut self) -> Result<ValueKind, PredicateError> {
        const OPERAND: &str = "a number, a condition or `(`";
        let from = self.skip_space();
        if self.accept("(") {
            let kind = self.expression()?;
            return if self.accept(")") { Ok(kind) } else { Err(self.unexpected("`)`")) };
        }
        match self.rest().bytes().next() {
            Some(b'0'..=b'9' | b'.') => self.number(from),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => self.named(from),
            _ => Err(self.unexpected(OPERAND)),
        }
    }

    fn number(&mut self, from: usize) -> Result<ValueKind, PredicateError> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            let in_exponent = matches!(byte, b'+' | b'-') && matches!(bytes[self.at - 1], b'e' | b'E');
            if !(byte.is_ascii_alphanumeric() || *byte == b'.' || self.at > from && in_exponent) {
                break;
            }
            self.at += 1;
        }
        let written = &self.text[from..self.at];
        match written.parse::<f64>() {
            Ok(number) if number.is_finite() => self.emit(PredicateStep::Number(number))?,
            Ok(_) => return Err(PredicateError::new(from..self.at, PredicateFault::TooLarge)),
            Err(_) => {
                let fault = PredicateFault::Unexpected { found: written.to_string(), expected: "a number" };
                return Err(PredicateError::new(from..self.at, fault));
            }
        }
        Ok(ValueKind::Number)
    }

    fn named(&mut self, from: usize) -> Result<ValueKind, PredicateError> {
        let name = self.name();
        let call = self.rest().starts_with('(');
        match name {
            "true" | "false" if !call => {
                self.emit(PredicateStep::Truth(name == "true"))?;
                Ok(ValueKind::Truth)
            }
            "stale" if self.accept("(") => {
                let from = self.skip_space();
                let name = self.name();
                let place = self.place_of(name, from)?;
                if !self.accept(")") {
                    return Err(self.unexpected("`)`"));
                }
                self.emit(PredicateStep::Stale(place))?;
                Ok(ValueKind::Truth)
            }
            "duration" if self.accept("(") => self.duration(),
            _ if call => {
                let expected = "`stale(...)` or `duration(...)`";
                let fault = PredicateFault::Unexpected { found: format!("{name}("), expected };
                Err(PredicateError::new(from..self.at, fault))
            }
            _ => {
                let place = self.place_of(name, from)?;
                self.emit(PredicateStep::Value(place))?;
                Ok(ValueKind::Number)
            }
        }
    }

    fn duration(&mut self) -> Result<ValueKind, PredicateError> {
        let from = self.skip_space();
        let quote = self.rest().chars().next().filter(|quote| matches!(quote, '\'' | '"'));
        let Some(quote) = quote else { return Err(self.unexpected("a time in quotes")) };
        let Some(length) = self.rest()[1..].find(quote) else {
            return Err(PredicateError::new(
                from..self.text.len(),
                PredicateFault::Duration { reason: "the quote does not end".to_string() },
            ));
        };
        let written = &self.text[from + 1..from + 1 + length];
        self.at += length + 2;
        let span = quantity::span(written).map_err(|error| {
            let reason = format!("`{written}` {error}");
            PredicateError::new(from..self.at, PredicateFault::Duration { reason })
        })?;
        self.emit(PredicateStep::Number(span.as_secs_f64()))?;
        if self.accept(")") { Ok(ValueKind::Number) } else { Err(self.unexpected("`)`")) }
    }

    fn name(&mut self) -> &'a str {
        self.skip_space();
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn place_of(&self, name: &str, from: usize) -> Result<u16, PredicateError> {
        let place = self.names.iter().position(|one| *one == name);
        let place = place.and_then(|place| u16::try_from(place).ok());
        let fault = || PredicateFault::Unknown { name: name.to_string() };
        place.ok_or_else(|| PredicateError::new(from..from + name.len(), fault()))
    }

    fn emit(&mut self, step: PredicateStep) -> Result<(), PredicateError> {
        match step {
            PredicateStep::Number(_) | PredicateStep::Value(_) => self.depth += 1,
            PredicateStep::Arithmetic(_) => self.depth -= 1,
            PredicateStep::Compare(_) => self.depth -= 2,
            PredicateStep::Negate
            | PredicateStep::Truth(_)
            | PredicateStep::Stale(_)
            | PredicateStep::Not
            | PredicateStep::And
            | PredicateStep::Or => {}
        }
        if self.depth > DEPTH || self.steps.len() == MOST_STEPS {
            return Err(self.too_long());
        }
        self.steps.push(step);
        Ok(())
    }

    fn must_be(&self, found: ValueKind, expected: ValueKind, place: Range<usize>) -> Result<(), PredicateError> {
        if found == expected {
            return Ok(());
        }
        let expected = match expected {
            ValueKind::Number => "a number",
            ValueKind::Truth => "a truth value",
        };
        Err(PredicateError::new(place, PredicateFault::Type { expected }))
    }

    fn rest(&self) -> &'a str {
        let text: &'a str = self.text;
        text[self.at..].trim_start_matches([' ', '\t', '\n', '\r'])
    }

    /// Moves to the next part, and returns its position.
    fn skip_space(&mut self) -> usize {
        self.at = self.text.len() - self.rest().len();
        self.at
    }

    /// Moves behind this text, if it follows.
    fn accept(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at = self.skip_space() + text.len();
        }
        found
    }

    fn unexpected(&mut self, expected: &'static str) -> PredicateError {
        let from = self.skip_space();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let rest = self.rest();
        let length = match rest.chars().next() {
            Some(first) if word(first) => rest.find(|c: char| !word(c)).unwrap_or(rest.len()),
            Some(first) => first.len_utf8(),
            None => 0,
        };
        let fault = PredicateFault::Unexpected { found: rest[..length].to_string(), expected };
        PredicateError::new(from..from + length, fault)
    }

    fn too_long(&self) -> PredicateError {
        PredicateError::new(self.at..self.text.len(), PredicateFault::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const NAMES: [&str; 3] = ["late", "asked", "loss"];

    fn holds(text: &str, readings: &[ConditionReading]) -> bool {
        Predicate::read(text, &NAMES).unwrap_or_else(|error| panic!("{text}: {error}")).holds(readings)
    }

    fn fresh(values: [f64; 3]) -> [ConditionReading; 3] {
        values.map(ConditionReading::Fresh)
    }

    #[test]
    fn operators_have_the_precedence_of_cel() {
        let readings = fresh([2.0, 3.0, 4.0]);
        for text in [
            "late + asked * loss == 14",
            "(late + asked) * loss == 20",
            "loss - asked - late == -1.0",
            "loss / late / 2 == 1",
            "1 / 2 == 0.5",
            "false && false || true",
            "true || false && false",
            "!(late > 2) && !false",
            "-late < -1 && - -late == 2",
            "late<=2&&asked>=3&&loss!=5",
            "duration('1.5s') == 1.5 && duration(\"20ms\") < 0.021",
            "1e3 == 1000 && 2.5E-1 == .25 && 1e+1 == 10",
        ] {
            assert!(holds(text, &readings), "{text}");
        }
    }

    #[test]
    fn a_comparison_with_a_stale_value_is_false() {
        let readings = [ConditionReading::Stale, ConditionReading::Fresh(1.0), ConditionReading::Fresh(0.0)];
        for operator in ["<", "<=", ">", ">=", "==", "!="] {
            assert!(!holds(&format!("late {operator} 1"), &readings), "{operator}");
            assert!(!holds(&format!("1 {operator} late + asked"), &readings), "{operator}");
        }
        assert!(holds("stale(late) && !stale(asked) && (asked == 1 || late == 1)", &readings));
        // Without readings all values are stale.
        assert!(holds("stale(loss)", &[]));
    }

    #[test]
    fn a_comparison_with_a_division_by_zero_is_false() {
        for operator in [">", "<=", "==", "!="] {
            assert!(!holds(&format!("asked / loss {operator} 1"), &fresh([0.0, 1.0, 0.0])), "{operator}");
        }
    }

    #[test]
    fn errors_have_the_place_and_a_remedy() {
        let nested = "(".repeat(40);
        let long = format!("late > 1{}", " && late > 1".repeat(60));
        for (text, place, message) in [
            ("late > ", (7, 7), "expected a number, a condition or `(`, found the end of the expression"),
            ("late", (0, 4), "not a truth value"),
            ("late > 1 && asked", (12, 17), "not a truth value"),
            ("(late > 1) + 2 > 3", (0, 10), "not a number"),
            ("late > asked > loss", (13, 14), "expected an operator or the end, found `>`"),
            ("lat > 1", (0, 3), "unknown condition `lat`"),
            ("stale(lat)", (6, 9), "unknown condition `lat`"),
            ("max(late) > 1", (0, 3), "expected `stale(...)` or `duration(...)`, found `max(`"),
            ("late / 0 > 1", (7, 8), "a division by zero"),
            ("late > 1e999", (7, 12), "the number is too large"),
            ("late > 1.2.3", (7, 12), "expected a number, found `1.2.3`"),
            ("late > 20ms", (7, 11), "expected a number, found `20ms`"),
            ("late > duration('20')", (16, 20), "`20` has no unit"),
            ("late > duration('20ms", (16, 21), "the quote does not end"),
            ("late & 1", (5, 6), "expected an operator or the end, found `&`"),
            ("é > 1", (0, 2), "expected a number, a condition or `(`, found `é`"),
        ] {
            let error = Predicate::read(text, &NAMES).unwrap_err();
            assert_eq!(((error.from, error.to), error.to_string().as_str()), (place, message), "{text}");
            assert!(!error.remedy().is_empty());
        }
        for text in [nested.as_str(), &long] {
            assert_eq!(Predicate::read(text, &NAMES).unwrap_err().fault, PredicateFault::TooLong);
        }
    }

    #[test]
    fn thresholds_are_constants_beside_conditions() {
        let of = |text| Predicate::read(text, &NAMES).unwrap().thresholds();
        assert_eq!(of("late > 0.5 && 2 * 3 <= asked || stale(loss)"), Some(vec![(0, 0.5), (1, 6.0)]));
        assert_eq!(of("late > asked"), None);
        assert_eq!(of("late * 2 > 1"), None);
        assert_eq!(of("1 > 2"), Some(Vec::new()));
    }

    /// A truth value with the same value computed beside it.
    fn any_truth() -> impl Strategy<Value = (String, bool)> {
        let readings = [0.5, -1.0, 2.0];
        let number = prop_oneof![
            (0..3usize).prop_map(move |place| (NAMES[place].to_string(), readings[place])),
            (-3..4i32).prop_map(|number| (format!("{number}"), f64::from(number))),
        ];
        let sum = (number.clone(), number.clone(), prop::bool::ANY).prop_map(|(left, right, add)| {
            let value = if add { left.1 + right.1 } else { left.1 * right.1 };
            (format!("({} {} {})", left.0, if add { '+' } else { '*' }, right.0), value)
        });
        let leaf = (prop_oneof![number.clone(), sum], number, prop::bool::ANY).prop_map(|(left, right, less)| {
            let value = if less { left.1 < right.1 } else { left.1 >= right.1 };
            (format!("{} {} {}", left.0, if less { "<" } else { ">=" }, right.0), value)
        });
        leaf.prop_recursive(4, 12, 2, |inner| {
            (inner.clone(), inner, 0..3).prop_map(|(left, right, operator)| match operator {
                0 => (format!("({}) && ({})", left.0, right.0), left.1 && right.1),
                1 => (format!("({}) || ({})", left.0, right.0), left.1 || right.1),
                _ => (format!("!({})", left.0), !left.1),
            })
        })
    }

    proptest! {
        #[test]
        fn an_expression_has_the_value_that_its_parts_have((text, value) in any_truth()) {
            prop_assert_eq!(holds(&text, &fresh([0.5, -1.0, 2.0])), value);
        }

        #[test]
        fn any_text_is_read_or_rejected_with_a_place_in_it(text in "[a-z0-9<>=!&|()+*/.'\" -]{0,60}") {
            match Predicate::read(&text, &NAMES) {
                Ok(expression) => {
                    expression.holds(&[ConditionReading::Fresh(1.0), ConditionReading::Stale]);
                }
                Err(error) => prop_assert!(text.get(error.from..error.to).is_some(), "{:?}", error),
            }
        }

        #[test]
        fn a_truth_value_changes_only_at_thresholds(
            constants in prop::array::uniform3(-2..3i32), place in 0..3usize, value in -3.0..3.0f64, other in -3.0..3.0f64,
        ) {
            let [a, b, c] = constants;
            let text = format!("late > {a} && asked <= {b} || !(loss < {c}) && late != {b}");
            let expression = Predicate::read(&text, &NAMES).unwrap();
            let thresholds = expression.thresholds().unwrap();
            let side = |value: f64| thresholds.iter().filter(|one| usize::from(one.0) == place)
                .map(|(_, at)| value.partial_cmp(at)).collect::<Vec<_>>();
            let mut values = [0.5, 0.5, 0.5];
            values[place] = value;
            let before = expression.holds(&fresh(values));
            values[place] = other;
            if side(value) == side(other) {
                prop_assert_eq!(before, expression.holds(&fresh(values)));
            }
        }
    }
}
