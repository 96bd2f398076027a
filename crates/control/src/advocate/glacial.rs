//! Glacial: approaches the demand slowly.

use alloc::boxed::Box;
use core::fmt;

use hyoshi_model::{Reservation, Span};

use super::kind::{AdvocateKind, AdvocateParameter, HEADROOM, ParameterUnit};
use super::{Advice, Advocate, with_headroom};
use crate::task::Status;

pub(super) const KIND: AdvocateKind = AdvocateKind {
    name: "glacial",
    about: "moves a fraction of the way to each report's demand, so single spikes hardly count",
    parameters: &[
        AdvocateParameter {
            name: "fraction",
            about: "the fraction of the difference that each report adds",
            measure: ParameterUnit::Share,
            least: 1_000,
            most: 1_000_000,
            default: Some(100_000),
        },
        HEADROOM,
    ],
    build: |settings| Box::new(Glacial::new(settings[0] as u32, settings[1] as u32)),
};

/// Moves its request by a fraction of the difference to each report's demand (the paper's section IV-C).
///
/// The paper uses the difference to the *current reservation*. If a policy grants less than requested, that difference
/// never closes and the request would grow without bound. So this uses the difference to the last request.
#[derive(Clone, Debug)]
pub struct Glacial {
    fraction: u32,
    headroom: u32,
    level: Option<Span>,
}

impl Glacial {
    /// By `fraction`, with `headroom`, both in millionths.
    pub fn new(fraction: u32, headroom: u32) -> Self {
        Glacial { fraction: fraction.clamp(1, 1_000_000), headroom, level: None }
    }
}

impl Advocate for Glacial {
    fn name(&self) -> &'static str {
        KIND.name
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        if let Some(demand) = status.demand() {
            let (from, to) = (self.level.unwrap_or(asked.budget()), demand);
            let difference = u128::from(from.as_nanos().abs_diff(to.as_nanos()));
            // Rounded up, so the last nanosecond is reached.
            let step = (difference * u128::from(self.fraction)).div_ceil(1_000_000) as u64;
            let step = Span::from_nanos(step);
            self.level = Some(if to > from { from + step } else { from - step });
        }
        self.level.map_or(asked, |level| with_headroom(level, self.headroom, asked)).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            None => f.write_str("no report yet"),
            Some(level) => write!(f, "is now at {level:.4}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Instant;

    fn report(advocate: &mut Glacial, demand: u64) -> u64 {
        let like = Reservation::new(Span::from_millis(20), Span::from_millis(100)).unwrap();
        let status = Status::of_cycle(Instant::ZERO, Span::from_millis(demand));
        advocate.advise(&status, like).ask.budget().as_nanos() / 1_000_000
    }

    #[test]
    fn a_single_spike_hardly_moves_it_and_a_lasting_change_does() {
        let mut glacial = Glacial::new(100_000, 0);
        assert_eq!(report(&mut glacial, 20), 20);
        assert_eq!(report(&mut glacial, 80), 26);
        assert!(report(&mut glacial, 20) <= 26);
        for _ in 0..200 {
            report(&mut glacial, 50);
        }
        assert_eq!(report(&mut glacial, 50), 50);
    }
}
