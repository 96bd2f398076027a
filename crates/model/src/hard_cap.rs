//! How much of a CPU lanes may use in any 100 ms: a limit that applies whatever the file declares.
//!
//! The constants are here because two crates must agree on them: `dispatch` enforces the cap, and `sched` subtracts the
//! time that it may withhold from the supply in its proofs.

use crate::time::Span;

/// The length of the sliding window.
pub const WINDOW: Span = Span::from_millis(100);

/// The window is accounted for in this many steps, and slides by one step.
pub const STEPS: usize = 1_000;

/// While non-critical work is gated and critical work runs, use is accounted for at this interval.
pub const BEYOND: Span = Span::from_millis(2);

/// Lowering one thread for a pause and raising it again lasts at most this long.
pub const SWITCHING: Span = Span::from_micros(20);

/// An overload is lasting after pauses have recurred for this long.
pub const LASTING: Span = Span::from_secs(1);

/// The hard cap of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardCap {
    /// The share that critical work may use in any [`WINDOW`], in parts per million; 1,000,000 is off.
    pub ppm: u32,
    /// The reaction if the overload lasts.
    pub on_overload: OnOverload,
}

/// The reaction if the hard cap has paused a processor's lanes repeatedly for [`LASTING`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnOverload {
    /// The report shows it.
    #[default]
    Report,
    /// The critical operation of least importance becomes non-critical.
    Demote,
    /// The run ends.
    Stop,
}

impl HardCap {
    /// No hard cap.
    pub const OFF: HardCap = HardCap { ppm: 1_000_000, on_overload: OnOverload::Report };

    /// True if there is one.
    pub const fn is_on(self) -> bool {
        self.ppm < 1_000_000
    }

    /// One step of the window.
    pub const fn step() -> Span {
        Span::from_nanos(WINDOW.as_nanos() / STEPS as u64)
    }

    /// CPU time that critical work may use in any window.
    pub const fn budget(self) -> Span {
        Span::from_nanos(WINDOW.as_nanos() / 1_000_000 * self.ppm as u64)
    }

    /// The part of `span` in which the CPU was `busy`, in parts per million of the cap: the utilisation that feedback
    /// loops control. `None` for an empty span, and beyond 32 bits.
    pub fn utilisation_ppm(self, busy: Span, span: Span) -> Option<u32> {
        let busy = u128::from(busy.as_nanos()) * 1_000_000_000_000;
        let of_cpu = busy.checked_div(span.as_nanos().into())?;
        u32::try_from(of_cpu / u128::from(self.ppm.max(1))).ok()
    }

    /// The hard cap acts when this much is used: its timer may be late by a step.
    pub const fn threshold(self) -> Span {
        self.budget().saturating_sub(Self::step())
    }

    /// A pause ends when this much may be used: otherwise a processor could pause at every step.
    pub const fn hysteresis(self) -> Span {
        let (half, usual) = (self.threshold().as_nanos() / 2, WINDOW.as_nanos() / 200);
        Span::from_nanos(if half < usual { half } else { usual })
    }

    /// The longest time for which lanes are paused in any window.
    ///
    /// While lanes are paused, critical work has used more than `threshold - hysteresis` of the accounted window, which
    /// is at most a window and a step long. All pauses of that window are in the rest of it. So pauses withhold no more
    /// than a task of this cost and a period of one window that runs above everything (the request bound of a periodic
    /// task: Lehoczky, RTSS 1990).
    pub const fn longest_pause(self) -> Span {
        let rest = WINDOW.as_nanos() - self.threshold().as_nanos();
        Span::from_nanos(rest + Self::step().as_nanos() + self.hysteresis().as_nanos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_utilisation_is_a_part_of_the_cap() {
        let ms = Span::from_millis;
        let cap = |ppm| HardCap { ppm, ..HardCap::OFF };
        assert_eq!(cap(940_000).utilisation_ppm(ms(47), ms(100)), Some(500_000));
        assert_eq!(cap(500_000).utilisation_ppm(ms(100), ms(100)), Some(2_000_000));
        assert_eq!(cap(0).utilisation_ppm(ms(0), ms(100)), Some(0));
        assert_eq!(cap(1_000_000).utilisation_ppm(ms(1), ms(0)), None);
    }

    #[test]
    fn the_default_share_leaves_six_milliseconds_and_pauses_for_little_more() {
        let cap = HardCap { ppm: 940_000, ..HardCap::OFF };
        assert_eq!((cap.budget(), cap.longest_pause()), (Span::from_millis(94), Span::from_micros(6_700)));
        assert!(cap.is_on() && !HardCap::OFF.is_on());
    }

    #[test]
    fn a_tiny_share_still_ends_its_pauses() {
        for ppm in [1u32, 10, 1_000, 5_000] {
            let cap = HardCap { ppm, ..HardCap::OFF };
            assert!(cap.hysteresis() <= cap.budget());
            assert!(cap.longest_pause() <= WINDOW + HardCap::step());
        }
    }
}
