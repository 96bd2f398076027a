//! Priority bands: a connection for each range of priorities (Real-time CORBA 1.2, section 5.13).

use std::fmt;
use std::sync::Arc;

use super::Priority;

/// Ranges of priorities, the lowest first, that leave no gap between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityBands(Arc<[(Priority, Priority)]>);

/// Bands that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PriorityBandError {
    /// There are none.
    None,
    /// More than [`PriorityBands::MOST`].
    TooMany(usize),
    /// A band's lowest priority is above its highest.
    Reversed(Priority, Priority),
    /// Two bands have a priority in common.
    Overlap(Priority),
    /// No band has the priorities between two bands.
    Gap(Priority, Priority),
}

impl fmt::Display for PriorityBandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PriorityBandError::None => write!(f, "no priority bands"),
            PriorityBandError::TooMany(count) => {
                write!(f, "{count} priority bands: at most {} are allowed", PriorityBands::MOST)
            }
            PriorityBandError::Reversed(low, high) => write!(f, "priority band {low} to {high} is empty"),
            PriorityBandError::Overlap(at) => write!(f, "priority {at} is in two bands"),
            PriorityBandError::Gap(from, to) => {
                write!(f, "priorities {from} to {to} are between bands, in none of them")
            }
        }
    }
}

impl std::error::Error for PriorityBandError {}

impl PriorityBands {
    /// The most bands: each has a connection of its own.
    pub const MOST: usize = 64;

    /// Sorts the bands, each with its lowest and its highest priority.
    ///
    /// # Errors
    ///
    /// If there are none or too many, or if they overlap or leave gaps.
    pub fn new(bands: &[(Priority, Priority)]) -> Result<PriorityBands, PriorityBandError> {
        if bands.len() > PriorityBands::MOST {
            return Err(PriorityBandError::TooMany(bands.len()));
        }
        if let Some((low, high)) = bands.iter().find(|(low, high)| low > high) {
            return Err(PriorityBandError::Reversed(*low, *high));
        }
        let mut sorted = bands.to_vec();
        sorted.sort_unstable();
        for pair in sorted.windows(2) {
            let ((_, before), (next, _)) = (pair[0], pair[1]);
            if next <= before {
                return Err(PriorityBandError::Overlap(next));
            }
            if next.number() - before.number() > 1 {
                let number = |number| Priority::new(number).unwrap_or_default();
                return Err(PriorityBandError::Gap(number(before.number() + 1), number(next.number() - 1)));
            }
        }
        if sorted.is_empty() { Err(PriorityBandError::None) } else { Ok(PriorityBands(sorted.into())) }
    }

    /// The band of a priority, by its index.
    pub fn index_of(&self, priority: Priority) -> Option<usize> {
        let index = self.0.partition_point(|(_, high)| *high < priority);
        self.0.get(index).filter(|(low, _)| *low <= priority).map(|_| index)
    }

    /// The bands, the lowest first, each with its lowest and its highest priority.
    pub fn ranges(&self) -> &[(Priority, Priority)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn priority(number: i16) -> Priority {
        Priority::new(number).unwrap()
    }

    #[test]
    fn bands_that_overlap_or_leave_gaps_are_refused() {
        let bands = |bands: &[(i16, i16)]| {
            let bands: Vec<_> = bands.iter().map(|(low, high)| (priority(*low), priority(*high))).collect();
            PriorityBands::new(&bands).map_err(|error| error.to_string())
        };
        assert_eq!(bands(&[]).unwrap_err(), "no priority bands");
        assert_eq!(bands(&[(5, 4)]).unwrap_err(), "priority band 5 to 4 is empty");
        assert_eq!(bands(&[(5, 9), (0, 5)]).unwrap_err(), "priority 5 is in two bands");
        assert_eq!(bands(&[(0, 4), (7, 9)]).unwrap_err(), "priorities 5 to 6 are between bands, in none of them");
        assert_eq!(bands(&[(0, 0); 65]).unwrap_err(), "65 priority bands: at most 64 are allowed");
        assert_eq!(bands(&[(5, 9), (0, 4)]).unwrap().ranges()[0], (priority(0), priority(4)));
    }

    proptest! {
        #[test]
        fn each_priority_between_the_lowest_and_the_highest_has_one_band(
            mut cuts in prop::collection::btree_set(0i16..=100, 2..10), asked in 0i16..=110,
        ) {
            let last = cuts.pop_last().unwrap();
            let first = *cuts.first().unwrap();
            let starts: Vec<i16> = cuts.into_iter().collect();
            let ends = starts.iter().skip(1).map(|next| next - 1).chain([last]);
            let ranges: Vec<_> = starts.iter().zip(ends).map(|(low, high)| (priority(*low), priority(high))).collect();
            let bands = PriorityBands::new(&ranges).unwrap();
            let found = bands.index_of(priority(asked));
            prop_assert_eq!(found.is_some(), (first..=last).contains(&asked));
            let fits = |index: usize| (ranges[index].0..=ranges[index].1).contains(&priority(asked));
            prop_assert!(found.is_none_or(fits));
        }
    }
}
