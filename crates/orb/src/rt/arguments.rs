//! `-ORBRTpriorityrange MIN MAX` among a program's arguments: the native priorities that a mapping may use.

use std::fmt;

use super::{MappingRange, PriorityRangeError};

const OPTION: &str = "-ORBRTpriorityrange";

/// A mistake in the values of `-ORBRTpriorityrange`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriorityArgumentError {
    /// It has fewer than two values.
    Missing,
    /// A value is not a native priority.
    NotNumber(String),
    /// The range cannot be used.
    Range(PriorityRangeError),
}

impl fmt::Display for PriorityArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PriorityArgumentError::Missing => write!(f, "{OPTION} needs two values; for example \"{OPTION} 40 79\""),
            PriorityArgumentError::NotNumber(value) => {
                write!(f, "{OPTION}: \"{value}\" is not a native priority; for example \"{OPTION} 40 79\"")
            }
            PriorityArgumentError::Range(error) => write!(f, "{OPTION}: {error}"),
        }
    }
}

impl std::error::Error for PriorityArgumentError {}

/// Removes each `-ORBRTpriorityrange MIN MAX` from a program's arguments. Returns the last range; `None` without one.
///
/// ```
/// use hyoshi_orb::rt::{LinearMapping, take_priority_range};
///
/// let mut arguments: Vec<String> = ["yard", "-ORBRTpriorityrange", "50", "59", "--fast"].map(Into::into).into();
/// let range = take_priority_range(&mut arguments)?.unwrap_or_default();
/// assert_eq!(arguments, ["yard", "--fast"]);
/// let orb = hyoshi_orb::Orb::builder().priority_mapping(LinearMapping(range)).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If a value is missing or not a number, or the range leaves 40 to 79. Then the arguments are unchanged.
pub fn take_priority_range(arguments: &mut Vec<String>) -> Result<Option<MappingRange>, PriorityArgumentError> {
    let (mut left, mut range) = (Vec::with_capacity(arguments.len()), None);
    let mut all = arguments.iter();
    while let Some(argument) = all.next() {
        if argument != OPTION {
            left.push(argument.clone());
            continue;
        }
        let (Some(lowest), Some(highest)) = (all.next(), all.next()) else {
            return Err(PriorityArgumentError::Missing);
        };
        let number = |value: &String| value.parse().map_err(|_| PriorityArgumentError::NotNumber(value.clone()));
        let found = MappingRange::new(number(lowest)?..=number(highest)?);
        range = Some(found.map_err(PriorityArgumentError::Range)?);
    }
    *arguments = left;
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arguments: &[&str]) -> Result<(Option<MappingRange>, String), String> {
        let mut arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let range = take_priority_range(&mut arguments).map_err(|error| error.to_string())?;
        Ok((range, arguments.join(" ")))
    }

    #[test]
    fn the_pair_is_removed_and_a_mistake_is_reported_with_a_remedy() {
        let range = |range| Some(MappingRange::new(range).unwrap());
        assert_eq!(take(&["yard", "x"]).unwrap(), (None, "yard x".into()));
        assert_eq!(take(&["yard", OPTION, "50", "60", "x"]).unwrap(), (range(50..=60), "yard x".into()));
        assert_eq!(take(&[OPTION, "50", "60", OPTION, "41", "42"]).unwrap(), (range(41..=42), String::new()));
        let error = |arguments: &[&str]| take(arguments).unwrap_err();
        assert_eq!(
            error(&[OPTION, "50"]),
            "-ORBRTpriorityrange needs two values; for example \"-ORBRTpriorityrange 40 79\""
        );
        assert!(error(&[OPTION, "50", "high"]).starts_with("-ORBRTpriorityrange: \"high\" is not a native priority"));
        assert!(error(&[OPTION, "1", "99"]).contains("native priorities 1 to 99: the range must lie within 40 to 79"));
    }
}
