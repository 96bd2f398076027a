//! The map of priorities. `doctor` prints it, the file may move lanes within it, and every thread of Hyoshi has its
//! priority from here, so one page shows which thread runs above which.
//!
//! ```text
//! 99       watchdog
//! 90..=95  release threads, feedback lane, transports, broker
//! 40..=79  lanes, the most urgent level at 79
//! 20..=39  the broker's windows for unmodified programs
//! 0        everything else, at normal priority
//! ```
//!
//! 80..=89 stays free: a user's own drivers and interrupt threads (moved there with `chrt`) run above lanes and below
//! releases. Linux's own interrupt threads are at 50 on PREEMPT_RT kernels, which is among the lanes: those on which
//! lanes depend must be raised (`doctor` reports this).

use std::ops::RangeInclusive;

/// Stops a runaway thread: no thread of Hyoshi may run above it.
pub const WATCHDOG: u8 = 99;
/// Each processor's release thread: it enqueues all due releases before any lane runs.
pub const RELEASE: u8 = 95;
/// The feedback lane: controllers of groups of processors, and messages with clients that have adapted rates. Release
/// threads sample, and run the controllers of single processors.
pub const FEEDBACK: u8 = 92;
/// The threads of an external transport, such as Zenoh's. They are above every lane, because they deliver completions
/// to lanes. They are below releases and the feedback lane, which they must not delay.
pub const TRANSPORT: u8 = 91;
/// The broker: below releases and above every lane; otherwise a lane that never sleeps would stop it.
pub const BROKER: u8 = 90;
/// All priorities between the watchdog and the lanes.
pub const ABOVE_LANES: RangeInclusive<u8> = 90..=95;
/// Lanes; [`lane_priority`] maps their levels.
pub const LANES: RangeInclusive<u8> = 40..=79;
/// The broker's windows of CPU time for unmodified programs.
pub const WINDOWS: RangeInclusive<u8> = 20..=39;
/// How many levels of a strategy have a priority of their own.
pub const LANE_LEVELS: usize = (*LANES.end() - *LANES.start() + 1) as usize;

/// The priority of a lane of a level, counted from 0, the most urgent. Levels from
/// [`LANE_LEVELS`] on share the lowest lane priority, among themselves in order of arrival.
///
/// ```
/// use hyoshi_os::priority::lane_priority;
/// assert_eq!((lane_priority(0), lane_priority(1), lane_priority(39), lane_priority(400)), (79, 78, 40, 40));
/// ```
pub const fn lane_priority(level: usize) -> u8 {
    let level = if level < LANE_LEVELS { level } else { LANE_LEVELS - 1 };
    *LANES.end() - level as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_band_is_separate_from_the_one_below() {
        assert!(WATCHDOG > *ABOVE_LANES.end());
        assert!(ABOVE_LANES.start() > LANES.end());
        assert!(LANES.start() > WINDOWS.end());
        assert!([RELEASE, FEEDBACK, TRANSPORT, BROKER].iter().all(|priority| ABOVE_LANES.contains(priority)));
    }

    #[test]
    fn a_more_urgent_level_never_has_a_lower_priority() {
        assert!((0..100).all(|level| lane_priority(level) >= lane_priority(level + 1)));
        assert!((0..LANE_LEVELS - 1).all(|level| lane_priority(level) > lane_priority(level + 1)));
    }
}
