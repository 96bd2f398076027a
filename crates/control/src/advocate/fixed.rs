//! Advocates with a fixed setting: a rate, a cap, a floor.

use alloc::boxed::Box;
use core::fmt;

use hyoshi_model::{Reservation, Share, Span};

use super::kind::{AdvocateKind, AdvocateParameter, ParameterUnit};
use super::{Advice, Advocate};
use crate::task::Status;

const fn share(about: &'static str) -> AdvocateParameter {
    AdvocateParameter { name: "share", about, measure: ParameterUnit::Share, least: 1, most: 1_000_000, default: None }
}

pub(super) const RATE: AdvocateKind = AdvocateKind {
    name: "rate",
    about: "requests the same share of a CPU whatever was consumed, for aperiodic and continuous work",
    parameters: &[share("the share of one CPU")],
    build: |settings| Box::new(FixedRate(Share::from_millionths(settings[0]))),
};

pub(super) const CAP: AdvocateKind = AdvocateKind {
    name: "cap",
    about: "limits requests to a share of a CPU",
    parameters: &[share("the limit, of one CPU")],
    build: |settings| Box::new(Cap(Share::from_millionths(settings[0]))),
};

pub(super) const FLOOR: AdvocateKind = AdvocateKind {
    name: "floor",
    about: "requests at least a share of a CPU",
    parameters: &[share("the least share, of one CPU")],
    build: |settings| Box::new(Floor(Share::from_millionths(settings[0]))),
};

/// Requests this share of each period (the continuous-rate advocate of the paper's section V-B).
#[derive(Clone, Copy, Debug)]
pub struct FixedRate(pub Share);

impl Advocate for FixedRate {
    fn name(&self) -> &'static str {
        RATE.name
    }

    fn advise(&mut self, _: &Status, asked: Reservation) -> Advice {
        asked.with_budget(self.0.of(asked.period())).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "always {}", self.0)
    }
}

/// Requests at most this share.
#[derive(Clone, Copy, Debug)]
pub struct Cap(pub Share);

impl Advocate for Cap {
    fn name(&self) -> &'static str {
        CAP.name
    }

    fn advise(&mut self, _: &Status, asked: Reservation) -> Advice {
        let most = self.0.of(asked.period()).max(Span::from_nanos(1));
        asked.with_budget(asked.budget().min(most)).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {}", self.0)
    }
}

/// Requests at least this share.
#[derive(Clone, Copy, Debug)]
pub struct Floor(pub Share);

impl Advocate for Floor {
    fn name(&self) -> &'static str {
        FLOOR.name
    }

    fn advise(&mut self, _: &Status, asked: Reservation) -> Advice {
        asked.with_budget(asked.budget().max(self.0.of(asked.period()))).into()
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at least {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyoshi_model::Instant;

    #[test]
    fn each_holds_to_its_share() {
        let asked = Reservation::new(Span::from_millis(30), Span::from_millis(100)).unwrap();
        let status = Status::of_cycle(Instant::ZERO, Span::from_millis(70));
        let asks = |advocate: &mut dyn Advocate| advocate.advise(&status, asked).ask.budget().as_nanos() / 1_000_000;
        let percent = Share::from_percent;
        assert_eq!((asks(&mut FixedRate(percent(10))), asks(&mut FixedRate(percent(50)))), (10, 50));
        assert_eq!((asks(&mut Cap(percent(10))), asks(&mut Cap(percent(50)))), (10, 30));
        assert_eq!((asks(&mut Floor(percent(10))), asks(&mut Floor(percent(50)))), (30, 50));
    }
}
