//! Values of constant expressions (7.4.1.4.3 and 7.4.1.4.4): literals, operators, ranges.

use super::diagnostic::IdlDiagnostic;
use super::lexeme::Lexeme;
use super::source::{SourceSpan, Sources};
use super::syntax::{Expression, ScopedName, StepKind};
use crate::tree::{ConstantValue, DefinitionId};

/// An intermediate value, with the type of its literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Constant {
    Integer(i128),
    Floating(f64),
    /// Digits and scale.
    Fixed(i128, i16),
    Boolean(bool),
    Char(char, Width),
    Text(String, Width),
    Enumerator(DefinitionId, u32),
}

/// Whether characters are wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Narrow,
    Wide,
}

/// The type of a constant.
#[derive(Clone, Debug)]
pub(crate) enum ConstantType {
    Integer {
        name: &'static str,
        least: i128,
        most: i128,
    },
    /// `float` if `single`.
    Floating {
        name: &'static str,
        single: bool,
    },
    Fixed,
    Boolean,
    Char(Width),
    Text(Width, Option<u32>),
    Enumeration(DefinitionId, String),
}

impl ConstantType {
    pub fn unsigned(name: &'static str, bits: u32) -> Self {
        ConstantType::Integer { name, least: 0, most: (1 << bits) - 1 }
    }

    pub fn signed(name: &'static str, bits: u32) -> Self {
        ConstantType::Integer { name, least: -(1 << (bits - 1)), most: (1 << (bits - 1)) - 1 }
    }

    /// The name of its values.
    fn noun(&self) -> String {
        match self {
            ConstantType::Integer { .. } => "an integer".into(),
            ConstantType::Floating { .. } => "a floating-point number".into(),
            ConstantType::Fixed => "a fixed-point number".into(),
            ConstantType::Boolean => "a boolean".into(),
            ConstantType::Char(Width::Narrow) => "a character".into(),
            ConstantType::Char(Width::Wide) => "a wide character".into(),
            ConstantType::Text(Width::Narrow, _) => "a string".into(),
            ConstantType::Text(Width::Wide, _) => "a wide string".into(),
            ConstantType::Enumeration(_, name) => format!("a name of the enumeration `{name}`"),
        }
    }
}

impl Constant {
    fn noun(&self) -> &'static str {
        match self {
            Constant::Integer(_) => "an integer",
            Constant::Floating(_) => "a floating-point number",
            Constant::Fixed(..) => "a fixed-point number",
            Constant::Boolean(_) => "a boolean",
            Constant::Char(_, Width::Narrow) => "a character",
            Constant::Char(_, Width::Wide) => "a wide character",
            Constant::Text(_, Width::Narrow) => "a string",
            Constant::Text(_, Width::Wide) => "a wide string",
            Constant::Enumerator(..) => "a name of an enumeration",
        }
    }
}

/// The range of intermediate results: that of the largest integer types.
const STEPS: std::ops::RangeInclusive<i128> = -(1 << 63)..=(1 << 64) - 1;
/// The most digits of a fixed-point value.
pub(crate) const DIGITS: u32 = 31;

/// Evaluates; `Ok(None)` if a name in it is unknown, which `look_up` reported.
pub(crate) fn evaluate(
    expression: &Expression,
    target: &ConstantType,
    sources: &Sources,
    look_up: &mut dyn FnMut(&ScopedName) -> Option<Constant>,
) -> Result<Option<ConstantValue>, IdlDiagnostic> {
    let mut stack: Vec<Constant> = Vec::new();
    for step in &expression.steps {
        let value = match &step.what {
            StepKind::Boolean(value) => Constant::Boolean(*value),
            StepKind::Literal(kind, texts) => literal(*kind, texts, sources, step.at)?,
            StepKind::Name(name) => match look_up(name) {
                Some(value) => value,
                None => return Ok(None),
            },
            StepKind::Unary(operator) => match stack.pop() {
                Some(value) => unary(*operator, value, target, step.at)?,
                None => return Ok(None),
            },
            StepKind::Binary(operator) => match (stack.pop(), stack.pop()) {
                (Some(right), Some(left)) => binary(*operator, left, right, step.at)?,
                _ => return Ok(None),
            },
        };
        stack.push(value);
    }
    match stack.pop() {
        Some(value) => fit(value, target, expression.at).map(Some),
        None => Ok(None),
    }
}

/// Converts a value to a type, if it is valid there.
pub(crate) fn fit(value: Constant, target: &ConstantType, at: SourceSpan) -> Result<ConstantValue, IdlDiagnostic> {
    match (value, target) {
        (Constant::Integer(value), ConstantType::Integer { name, least, most }) => {
            if (*least..=*most).contains(&value) {
                return Ok(ConstantValue::Integer(value));
            }
            let error = IdlDiagnostic::at(at, format!("{value} does not fit into `{name}`"));
            Err(error.label(format!("`{name}` holds {least} to {most}")))
        }
        (Constant::Floating(value), ConstantType::Floating { name, single }) => {
            if value.is_infinite() || (*single && (value as f32).is_infinite()) {
                return Err(IdlDiagnostic::at(at, format!("this number is too large for `{name}`")));
            }
            Ok(ConstantValue::Floating(value))
        }
        (Constant::Fixed(digits, scale), ConstantType::Fixed) => Ok(ConstantValue::Fixed { digits, scale }),
        (Constant::Boolean(value), ConstantType::Boolean) => Ok(ConstantValue::Boolean(value)),
        (Constant::Char(value, width), ConstantType::Char(wanted)) if width == *wanted => {
            Ok(ConstantValue::Char(value))
        }
        (Constant::Text(text, width), ConstantType::Text(wanted, bound)) if width == *wanted => {
            let length = text.chars().count();
            match bound {
                Some(bound) if length > *bound as usize => Err(IdlDiagnostic::at(
                    at,
                    format!("this string has {length} characters, more than its bound of {bound}"),
                )),
                _ => Ok(ConstantValue::String(text)),
            }
        }
        (Constant::Enumerator(of, place), ConstantType::Enumeration(wanted, _)) if of == *wanted => {
            Ok(ConstantValue::Enumerator(of, place))
        }
        (value, target) => {
            let (wanted, found) = (target.noun(), value.noun());
            let found = match (target, &value) {
                (ConstantType::Enumeration(..), Constant::Enumerator(..)) => "one of another",
                _ => found,
            };
            let error = IdlDiagnostic::at(at, format!("expected {wanted}, this is {found}"));
            Err(match (target, &value) {
                (ConstantType::Floating { .. }, Constant::Integer(_)) => error.help("write it with a point: `1.0`"),
                (ConstantType::Fixed, Constant::Integer(_) | Constant::Floating(_)) => error.help("add a `d`: `1.5d`"),
                (
                    ConstantType::Char(Width::Wide) | ConstantType::Text(Width::Wide, _),
                    Constant::Char(_, Width::Narrow) | Constant::Text(_, Width::Narrow),
                ) => error.help("write an `L` before it"),
                (
                    ConstantType::Char(Width::Narrow) | ConstantType::Text(Width::Narrow, _),
                    Constant::Char(_, Width::Wide) | Constant::Text(_, Width::Wide),
                ) => error.help("remove the `L`, or declare it wide"),
                (ConstantType::Char(_), Constant::Text(..)) => error.help("write it in single quotes"),
                (ConstantType::Text(..), Constant::Char(..)) => error.help("write it in double quotes"),
                _ => error,
            })
        }
    }
}

fn unary(operator: Lexeme, value: Constant, target: &ConstantType, at: SourceSpan) -> Result<Constant, IdlDiagnostic> {
    Ok(match (operator, value) {
        (Lexeme::Plus, value @ (Constant::Integer(_) | Constant::Floating(_) | Constant::Fixed(..))) => value,
        (Lexeme::Minus, Constant::Integer(value)) => Constant::Integer(in_steps(Some(-value), at)?),
        (Lexeme::Minus, Constant::Floating(value)) => Constant::Floating(-value),
        (Lexeme::Minus, Constant::Fixed(digits, scale)) => Constant::Fixed(-digits, scale),
        // All bits of the value's type (7.4.1.4.3): at least 32.
        (Lexeme::Tilde, Constant::Integer(value)) => Constant::Integer(match target {
            ConstantType::Integer { least: 0, most, .. } if value >= 0 => {
                (*most).max(u32::MAX.into()).max(if value > u32::MAX.into() { u64::MAX.into() } else { 0 }) - value
            }
            _ => -(value + 1),
        }),
        (_, value) => {
            let sign = if operator == Lexeme::Tilde {
                "~"
            } else if operator == Lexeme::Minus {
                "-"
            } else {
                "+"
            };
            return Err(IdlDiagnostic::at(at, format!("`{sign}` cannot be applied to {}", value.noun())));
        }
    })
}

fn binary(operator: Lexeme, left: Constant, right: Constant, at: SourceSpan) -> Result<Constant, IdlDiagnostic> {
    match (left, right) {
        (Constant::Integer(left), Constant::Integer(right)) => {
            let shift = |right: i128| u32::try_from(right).ok().filter(|by| *by < 64);
            let value = match operator {
                Lexeme::Or => Some(left | right),
                Lexeme::Xor => Some(left ^ right),
                Lexeme::And => Some(left & right),
                Lexeme::ShiftLeft | Lexeme::ShiftRight => {
                    let Some(by) = shift(right) else {
                        let error = IdlDiagnostic::at(at, format!("a shift by {right} has no value"));
                        return Err(error.help("shift by 0 to 63"));
                    };
                    if operator == Lexeme::ShiftLeft { left.checked_mul(1 << by) } else { Some(left >> by) }
                }
                Lexeme::Plus => left.checked_add(right),
                Lexeme::Minus => left.checked_sub(right),
                Lexeme::Star => left.checked_mul(right),
                _ if right == 0 => return Err(IdlDiagnostic::at(at, "this divides by zero")),
                Lexeme::Slash => Some(left / right),
                _ => Some(left % right),
            };
            in_steps(value, at).map(Constant::Integer)
        }
        (Constant::Floating(left), Constant::Floating(right)) => {
            let value = match operator {
                Lexeme::Plus => left + right,
                Lexeme::Minus => left - right,
                Lexeme::Star => left * right,
                Lexeme::Slash if right == 0.0 => return Err(IdlDiagnostic::at(at, "this divides by zero")),
                Lexeme::Slash => left / right,
                _ => return Err(IdlDiagnostic::at(at, "this operator is for integers only")),
            };
            if !value.is_finite() {
                return Err(IdlDiagnostic::at(at, "this is too large for any floating-point type"));
            }
            Ok(Constant::Floating(value))
        }
        (Constant::Fixed(left, left_scale), Constant::Fixed(right, right_scale)) => {
            fixed_arithmetic(operator, (left, left_scale), (right, right_scale), at)
        }
        (left, right) => {
            let number =
                |value: &Constant| matches!(value, Constant::Integer(_) | Constant::Floating(_) | Constant::Fixed(..));
            let error = IdlDiagnostic::at(at, format!("{} and {} cannot be combined", left.noun(), right.noun()));
            Err(if number(&left) && number(&right) {
                error.help("write both sides alike: `1`, `1.0` and `1d` are three types")
            } else {
                error.help("operators are for numbers")
            })
        }
    }
}

fn in_steps(value: Option<i128>, at: SourceSpan) -> Result<i128, IdlDiagnostic> {
    match value.filter(|value| STEPS.contains(value)) {
        Some(value) => Ok(value),
        None => Err(IdlDiagnostic::at(at, "this overflows every integer type")),
    }
}

/// Exact, except for a quotient, which is cut off after 31 digits.
fn fixed_arithmetic(
    operator: Lexeme,
    left: (i128, i16),
    right: (i128, i16),
    at: SourceSpan,
) -> Result<Constant, IdlDiagnostic> {
    let power = |by: i16| u32::try_from(by).ok().and_then(|by| 10_i128.checked_pow(by));
    let scale = left.1.max(right.1);
    let aligned = |(digits, of): (i128, i16)| digits.checked_mul(power(scale - of)?);
    let value = match operator {
        Lexeme::Plus | Lexeme::Minus => match (aligned(left), aligned(right)) {
            (Some(left), Some(right)) if operator == Lexeme::Plus => left.checked_add(right).map(|sum| (sum, scale)),
            (Some(left), Some(right)) => left.checked_sub(right).map(|difference| (difference, scale)),
            _ => None,
        },
        Lexeme::Star => left.0.checked_mul(right.0).map(|product| (product, left.1 + right.1)),
        Lexeme::Slash if right.0 == 0 => return Err(IdlDiagnostic::at(at, "this divides by zero")),
        Lexeme::Slash => {
            let (mut digits, mut scale) = (left.0, left.1 - right.1);
            while let Some(more) = digits.checked_mul(10).filter(|_| scale < 31 && digits % right.0 != 0 || scale < 0) {
                (digits, scale) = (more, scale + 1);
            }
            Some((digits / right.0, scale))
        }
        _ => return Err(IdlDiagnostic::at(at, "this operator is for integers only")),
    };
    let fits = value
        .map(|(digits, scale)| normal(digits, scale))
        .filter(|(digits, scale)| digits_of(*digits, *scale) <= DIGITS);
    match fits {
        Some((digits, scale)) => Ok(Constant::Fixed(digits, scale)),
        None => Err(IdlDiagnostic::at(at, format!("this has more than {DIGITS} digits"))),
    }
}

/// Without zeros at the end of the fraction.
fn normal(mut digits: i128, mut scale: i16) -> (i128, i16) {
    while scale > 0 && digits % 10 == 0 {
        (digits, scale) = (digits / 10, scale - 1);
    }
    (digits, scale)
}

/// How many digits a fixed-point type needs for that value.
pub(crate) fn digits_of(digits: i128, scale: i16) -> u32 {
    let written = digits.unsigned_abs().checked_ilog10().map_or(1, |log| log + 1);
    written.max(scale.max(0) as u32)
}

/// The value of an integer literal, if it fits into the largest type.
pub(crate) fn integer(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => text.parse().ok(),
    }
}

fn literal(kind: Lexeme, texts: &[SourceSpan], sources: &Sources, at: SourceSpan) -> Result<Constant, IdlDiagnostic> {
    let first = sources.text(texts.first().copied().unwrap_or(at));
    match kind {
        Lexeme::Integer => {
            if let Some(value) = integer(first) {
                return Ok(Constant::Integer(value.into()));
            }
            let octal = first.starts_with('0') && first.contains(['8', '9']) && !first.contains(['x', 'X']);
            Err(if octal {
                let error = IdlDiagnostic::at(
                    at,
                    format!("`{first}` is octal, since it begins with 0, and has a digit above 7"),
                );
                error.help("if it is decimal, remove the 0 at its beginning")
            } else {
                IdlDiagnostic::at(at, "this number is larger than any integer type holds")
            })
        }
        Lexeme::Floating => match first.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Constant::Floating(value)),
            _ => Err(IdlDiagnostic::at(at, "this number is larger than any floating-point type holds")),
        },
        Lexeme::Fixed => {
            let plain = first.trim_end_matches(['d', 'D']);
            let (whole, fraction) = plain.split_once('.').unwrap_or((plain, ""));
            let digits = format!("{}{}", whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
            let scale = fraction.trim_end_matches('0').len();
            let value = if digits.is_empty() { Ok(0) } else { digits.parse() };
            match value {
                Ok(value) if digits_of(value, scale.min(1_000) as i16) <= DIGITS => {
                    Ok(Constant::Fixed(value, scale as i16))
                }
                _ => Err(IdlDiagnostic::at(at, format!("this number has more than {DIGITS} digits"))),
            }
        }
        Lexeme::Char => {
            let (text, width) = unquote(first, '\'', at)?;
            let mut characters = text.chars();
            match (characters.next(), characters.next()) {
                (Some(one), None) if width == Width::Wide || u32::from(one) < 256 => Ok(Constant::Char(one, width)),
                (Some(one), None) => {
                    let error = IdlDiagnostic::at(at, format!("`{one}` is not in ISO 8859-1, the set of `char`"));
                    Err(error.help("use a `wchar` and an `L` before the literal"))
                }
                (None, _) => Err(IdlDiagnostic::at(at, "there is no character between these quotes")),
                _ => Err(IdlDiagnostic::at(at, "more than one character is between these quotes")
                    .help("write a string in double quotes")),
            }
        }
        _ => {
            let (mut whole, mut width) = (String::new(), None);
            for span in texts {
                let (text, of) = unquote(sources.text(*span), '"', at)?;
                if width.is_some_and(|width| width != of) {
                    return Err(IdlDiagnostic::at(at, "narrow and wide strings cannot be joined"));
                }
                width = Some(of);
                whole += &text;
            }
            if whole.contains('\0') {
                let error = IdlDiagnostic::at(at, "a string cannot hold the character zero");
                return Err(error.help("use a sequence of octets"));
            }
            Ok(Constant::Text(whole, width.unwrap_or(Width::Narrow)))
        }
    }
}

/// The characters between quotes, escapes replaced (table 7-9).
fn unquote(text: &str, quote: char, at: SourceSpan) -> Result<(String, Width), IdlDiagnostic> {
    let (text, width) = match text.strip_prefix('L') {
        Some(text) => (text, Width::Wide),
        None => (text, Width::Narrow),
    };
    let inside = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)).unwrap_or(text);
    let mut plain = String::new();
    let mut rest = inside;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        if first != '\\' {
            plain.push(first);
            continue;
        }
        let Some(escape) = rest.chars().next() else { break };
        rest = &rest[escape.len_utf8()..];
        let digits = |rest: &str, radix: u32, most: usize| {
            rest.chars().take(most).take_while(|digit| digit.is_digit(radix)).count()
        };
        let code = match escape {
            'n' => 10,
            't' => 9,
            'v' => 11,
            'b' => 8,
            'r' => 13,
            'f' => 12,
            'a' => 7,
            '\\' | '?' | '\'' | '"' => u32::from(escape),
            '0'..='7' => {
                let more = digits(rest, 8, 2);
                let code =
                    rest[..more].chars().fold(escape.to_digit(8), |code, digit| Some(code? * 8 + digit.to_digit(8)?));
                rest = &rest[more..];
                code.unwrap_or(0)
            }
            'x' | 'u' => {
                let most = if escape == 'x' { 2 } else { 4 };
                let length = digits(rest, 16, most);
                if length == 0 {
                    let error = IdlDiagnostic::at(at, format!("`\\{escape}` has no hexadecimal digits after it"));
                    return Err(error.help(format!("write at most {most} of them")));
                }
                if escape == 'u' && width == Width::Narrow {
                    let error = IdlDiagnostic::at(at, "`\\u` is in a narrow literal");
                    return Err(error.help("write an `L` before the literal"));
                }
                let code = u32::from_str_radix(&rest[..length], 16).unwrap_or(0);
                rest = &rest[length..];
                code
            }
            other => {
                let error = IdlDiagnostic::at(at, format!("`\\{}` is not an escape sequence", other.escape_debug()));
                return Err(error.help("write a backslash as `\\\\`"));
            }
        };
        match char::from_u32(code) {
            Some(character) if width == Width::Wide || code < 256 => plain.push(character),
            _ => {
                let error = IdlDiagnostic::at(at, format!("{code:#x} is not a character here"));
                return Err(error.help("`char` holds 0 to 0xff; surrogates are not characters"));
            }
        }
    }
    Ok((plain, width))
}
