//! The proxy of a machine that grants no reservations: it measures consumption and refuses each reservation with the
//! reason.

use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation};

use super::{Abilities, ProxyContext, SchedulerProxy};
use crate::platform::NotReserved;

/// Reserves nothing.
#[derive(Clone, Debug)]
pub struct NoneProxy {
    reason: String,
}

impl NoneProxy {
    /// `reason` explains each refusal.
    pub fn new(reason: impl Into<String>) -> Self {
        NoneProxy { reason: reason.into() }
    }
}

impl SchedulerProxy for NoneProxy {
    fn name(&self) -> &'static str {
        "none"
    }

    fn abilities(&self) -> Abilities {
        Abilities { soft: true, early: false, shared: true }
    }

    fn may_cap(&self, _: TaskId, _: &ProxyContext) -> Result<(), String> {
        Err("this scheduler reserves nothing, so it caps nothing".into())
    }

    fn reserve(&mut self, _: TaskId, _: Reservation, _: Instant, _: &mut ProxyContext) -> Result<(), NotReserved> {
        Err(NotReserved { most: None, reason: self.reason.clone() })
    }

    fn release(&mut self, _: TaskId, _: &mut ProxyContext) {}

    fn tick(&mut self, _: Instant, context: &mut ProxyContext) -> Instant {
        let _ = context;
        Instant::NEVER
    }

    fn due(&self) -> Instant {
        Instant::NEVER
    }
}
