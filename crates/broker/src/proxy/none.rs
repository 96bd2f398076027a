//! The proxy of a machine that grants nothing: consumption is counted, advocates are heard, and each refusal says why.

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation};

use super::{Abilities, Ground, SchedulerProxy};
use crate::kernel::NotReserved;

/// Reserves nothing.
#[derive(Clone, Debug)]
pub struct NoneProxy {
    why: String,
}

impl NoneProxy {
    /// With the reason that each refusal gives.
    pub fn new(why: impl Into<String>) -> Self {
        NoneProxy { why: why.into() }
    }
}

impl SchedulerProxy for NoneProxy {
    fn name(&self) -> &'static str {
        "none"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, soon: false, shared: true }
    }

    fn may_cap(&self, _: TaskId, _: &Ground) -> Result<(), String> {
        Err("nothing is reserved here, so nothing is capped".into())
    }

    fn reserve(&mut self, _: TaskId, _: Reservation, _: Instant, _: &mut Ground) -> Result<(), NotReserved> {
        Err(NotReserved { most: None, why: self.why.clone() })
    }

    fn release(&mut self, _: TaskId, _: &mut Ground) {}

    fn tick(&mut self, _: Instant, ground: &mut Ground) -> Instant {
        let _ = ground;
        Instant::NEVER
    }

    fn due(&self) -> Instant {
        Instant::NEVER
    }
}
