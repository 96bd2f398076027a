//! CORBA priorities, and their mapping to the kernel's (Real-time CORBA 1.2, sections 5.4 and 5.5).

use std::fmt;
use std::ops::RangeInclusive;

use hyoshi_os::priority::LANES;

/// A CORBA priority, 0 to 32767: the same on all machines. A higher one is more urgent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i16);

impl Priority {
    /// The lowest, 0.
    pub const MIN: Priority = Priority(0);
    /// The highest, 32767.
    pub const MAX: Priority = Priority(i16::MAX);

    /// `None` for a negative number.
    pub const fn new(number: i16) -> Option<Priority> {
        if number >= 0 { Some(Priority(number)) } else { None }
    }

    /// The number, 0 to 32767.
    pub const fn number(self) -> i16 {
        self.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kernel's SCHED_FIFO priorities that a mapping may use: within 40 to 79, which belong to lanes
/// ([`hyoshi_os::priority`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingRange {
    lowest: u8,
    highest: u8,
}

/// A range of native priorities that is empty, or leaves 40 to 79.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRangeError {
    /// The range's lowest.
    pub lowest: u8,
    /// Its highest.
    pub highest: u8,
}

impl fmt::Display for PriorityRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PriorityRangeError { lowest, highest } = self;
        let (least, most) = (LANES.start(), LANES.end());
        write!(f, "native priorities {lowest} to {highest}: the range must lie within {least} to {most}")
    }
}

impl std::error::Error for PriorityRangeError {}

impl MappingRange {
    /// 40 to 79.
    pub const ALL: MappingRange = MappingRange { lowest: *LANES.start(), highest: *LANES.end() };

    /// Fails if it is empty, or leaves 40 to 79.
    pub fn new(range: RangeInclusive<u8>) -> Result<MappingRange, PriorityRangeError> {
        let (lowest, highest) = range.into_inner();
        let within = LANES.contains(&lowest) && LANES.contains(&highest) && lowest <= highest;
        if within { Ok(MappingRange { lowest, highest }) } else { Err(PriorityRangeError { lowest, highest }) }
    }

    /// Whether a native priority is in it.
    pub fn contains(self, native: u8) -> bool {
        (self.lowest..=self.highest).contains(&native)
    }

    fn steps(self) -> i32 {
        i32::from(self.highest - self.lowest)
    }
}

impl Default for MappingRange {
    fn default() -> Self {
        MappingRange::ALL
    }
}

/// Maps CORBA priorities to native ones and back (`RTCORBA::PriorityMapping`). A priority that it cannot map raises
/// DATA_CONVERSION where it is used.
pub trait PriorityMapping: fmt::Debug + Send + Sync {
    /// The SCHED_FIFO priority, 40 to 79; other values count as `None`.
    fn to_native(&self, priority: Priority) -> Option<u8>;

    /// The CORBA priority of a native one.
    fn to_corba(&self, native: u8) -> Option<Priority>;
}

/// CORBA priorities are native ones: 40 to 79.
#[derive(Clone, Copy, Debug, Default)]
pub struct NativeMapping(pub MappingRange);

/// CORBA priority 0 is the lowest native one of the range, 1 the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectMapping(pub MappingRange);

/// All CORBA priorities, spread evenly over the range. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearMapping(pub MappingRange);

impl PriorityMapping for NativeMapping {
    fn to_native(&self, priority: Priority) -> Option<u8> {
        u8::try_from(priority.number()).ok().filter(|native| self.0.contains(*native))
    }

    fn to_corba(&self, native: u8) -> Option<Priority> {
        self.0.contains(native).then_some(Priority(i16::from(native)))
    }
}

impl PriorityMapping for DirectMapping {
    fn to_native(&self, priority: Priority) -> Option<u8> {
        u8::try_from(i32::from(self.0.lowest) + i32::from(priority.number()))
            .ok()
            .filter(|native| self.0.contains(*native))
    }

    fn to_corba(&self, native: u8) -> Option<Priority> {
        self.0.contains(native).then(|| Priority(i16::from(native - self.0.lowest)))
    }
}

/// How many CORBA priorities there are.
const PRIORITIES: i32 = i16::MAX as i32 + 1;

impl PriorityMapping for LinearMapping {
    fn to_native(&self, priority: Priority) -> Option<u8> {
        let step = i32::from(priority.number()) * (self.0.steps() + 1) / PRIORITIES;
        u8::try_from(step).ok().map(|step| self.0.lowest + step)
    }

    /// The lowest of those that map to it.
    fn to_corba(&self, native: u8) -> Option<Priority> {
        let (range, count) = (self.0, self.0.steps() + 1);
        let step = i32::from(native.checked_sub(range.lowest)?);
        let first = (step * PRIORITIES + count - 1) / count;
        range.contains(native).then_some(Priority(first as i16))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mappings() -> impl Strategy<Value = (MappingRange, Box<dyn PriorityMapping>)> {
        (40u8..=79, 40u8..=79, 0..3).prop_map(|(one, other, kind)| {
            let range = MappingRange::new(one.min(other)..=one.max(other)).unwrap();
            let mapping: Box<dyn PriorityMapping> = match kind {
                0 => Box::new(NativeMapping(range)),
                1 => Box::new(DirectMapping(range)),
                _ => Box::new(LinearMapping(range)),
            };
            (range, mapping)
        })
    }

    proptest! {
        #[test]
        fn a_more_urgent_priority_is_never_lower_natively((range, mapping) in mappings(), pair: (u16, u16)) {
            let priority = |number: u16| Priority::new((number >> 1) as i16).unwrap();
            let (low, high) = (priority(pair.0.min(pair.1)), priority(pair.0.max(pair.1)));
            if let (Some(low), Some(high)) = (mapping.to_native(low), mapping.to_native(high)) {
                prop_assert!(low <= high && range.contains(low) && range.contains(high));
            }
        }

        #[test]
        fn a_native_priority_maps_to_corba_and_back((range, mapping) in mappings(), native: u8) {
            let corba = mapping.to_corba(native);
            prop_assert_eq!(corba.is_some(), range.contains(native));
            prop_assert!(corba.is_none_or(|corba| mapping.to_native(corba) == Some(native)));
        }
    }

    #[test]
    fn the_linear_mapping_uses_the_whole_range() {
        let mapping = LinearMapping::default();
        assert_eq!((mapping.to_native(Priority::MIN), mapping.to_native(Priority::MAX)), (Some(40), Some(79)));
    }

    #[test]
    fn a_range_beyond_the_lanes_is_refused() {
        assert!(MappingRange::new(39..=50).is_err() && MappingRange::new(50..=80).is_err());
        let empty = MappingRange::new(RangeInclusive::new(60, 50)).unwrap_err();
        assert_eq!(empty.to_string(), "native priorities 60 to 50: the range must lie within 40 to 79");
    }
}
