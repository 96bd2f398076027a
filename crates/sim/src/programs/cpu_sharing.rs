//! Which thread has which CPU: lanes, then windows by level, then all others in equal parts.

use hyoshi_model::{Instant, Span};

/// A program that competes for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuDemand {
    /// Its index among the host's programs.
    pub place: usize,
    /// The rest of its cycle.
    pub left: Span,
    /// The CPU of its window, its level there, and since when it is raised, if it is.
    pub raised: Option<(u32, u8, u64)>,
}

/// The speed of a program: `part` of `whole` of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProgramSpeed {
    pub place: usize,
    part: u64,
    whole: u64,
}

impl ProgramSpeed {
    /// Its progress after `span`.
    pub fn after(self, span: Span) -> Span {
        let nanos = u128::from(span.as_nanos()) * u128::from(self.part) / u128::from(self.whole);
        Span::from_nanos(nanos as u64) // no more than the span
    }

    /// The time that it needs for `left`.
    pub fn needs(self, left: Span) -> Span {
        let nanos = (u128::from(left.as_nanos()) * u128::from(self.whole)).div_ceil(u128::from(self.part));
        Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// On each free CPU the most urgent raised program runs, of equally urgent ones the first; those that are not raised
/// share the remaining CPUs, each at most one.
pub(super) fn paces(free: &[u32], wants: &[CpuDemand]) -> Vec<ProgramSpeed> {
    let mut paces = Vec::new();
    let mut idle = 0;
    for cpu in free {
        let here = wants.iter().filter_map(|one| {
            let (at, level, since) = one.raised?;
            (at == *cpu).then_some(((level, since), one.place))
        });
        match here.min() {
            Some((_, place)) => paces.push(ProgramSpeed { place, part: 1, whole: 1 }),
            None => idle += 1,
        }
    }
    let ordinary: Vec<usize> = wants.iter().filter(|one| one.raised.is_none()).map(|one| one.place).collect();
    let whole = (ordinary.len() as u64).max(idle);
    if idle > 0 {
        paces.extend(ordinary.into_iter().map(|place| ProgramSpeed { place, part: idle, whole }));
    }
    paces
}

/// The earliest instant at which one of them has finished.
pub(super) fn first_end(now: Instant, paces: &[ProgramSpeed], wants: &[CpuDemand]) -> Instant {
    let ends = paces.iter().filter_map(|pace| {
        let left = wants.iter().find(|one| one.place == pace.place)?.left;
        Some(now.saturating_add(pace.needs(left)))
    });
    ends.min().unwrap_or(Instant::NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(place: usize, raised: Option<(u32, u8, u64)>) -> CpuDemand {
        CpuDemand { place, left: Span::from_millis(1), raised }
    }

    #[test]
    fn windows_come_by_level_then_by_who_was_raised_first_and_the_rest_is_shared() {
        let all = [
            wants(0, Some((0, 1, 1))),
            wants(1, Some((0, 0, 7))),
            wants(2, Some((0, 0, 6))),
            wants(3, None),
            wants(4, None),
            wants(5, None),
        ];
        let third = |place| ProgramSpeed { place, part: 2, whole: 3 };
        let first = ProgramSpeed { place: 2, part: 1, whole: 1 };
        assert_eq!(paces(&[0, 1, 2], &all), [first, third(3), third(4), third(5)]);
        assert_eq!(paces(&[1], &all[..3]), [], "a window is on its CPU alone");
        assert_eq!(
            paces(&[1, 2], &all[3..4]),
            [ProgramSpeed { place: 3, part: 2, whole: 2 }],
            "one thread has one CPU"
        );
    }

    #[test]
    fn what_a_pace_needs_is_enough() {
        let pace = ProgramSpeed { place: 0, part: 2, whole: 3 };
        for left in 1..100 {
            let left = Span::from_nanos(left);
            assert!(pace.after(pace.needs(left)) >= left);
        }
    }
}
