//! Delegates report the CPU time of a server's invocations to the CPU broker, by configuration alone: a server reads the
//! variable [`VARIABLE`] (see [`settings`]) when it is built.
//!
//! ```text
//!   invocation ─ before ─ servant ─ after ──► counters ──► a thread ── report ──► broker
//! ```
//!
//! An invocation adds to two counters and wakes the thread, without waiting. If the broker does not accept reports, the
//! server continues; the thread retries after 1 s, 2 s, up to 32 s.

mod report;
mod settings;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hyoshi_os::{Wake, own_cpu_time};
use hyoshi_wire::SystemException;

use crate::behaviour::IMPLICIT_OPERATIONS;
use crate::call::Call;
use crate::current;
use crate::intercept::ServerInterceptor;
use crate::key::ObjectKey;
use report::Resolve;
pub(crate) use settings::Settings;

/// The environment variable that configures delegates; ignored by privileged programs, as with secure_getenv(3).
pub(crate) const VARIABLE: &str = "HYOSHI_DELEGATE";

/// Measures invocations around all other interceptors. Dropping it ends the reports.
pub(crate) struct Delegate(Arc<Counters>);

/// The CPU time and invocations since the last report.
#[derive(Debug, Default)]
struct Counters {
    settings: Settings,
    consumed: AtomicU64,
    cycles: AtomicU32,
    wake: Wake,
    ends: AtomicBool,
}

impl Delegate {
    /// `resolve` resolves the broker's address, by an ORB with time limits.
    pub(crate) fn start(settings: Settings, resolve: Box<Resolve>) -> io::Result<Delegate> {
        let counters = Arc::new(Counters { settings, ..Counters::default() });
        report::start(counters.clone(), resolve)?;
        Ok(Delegate(counters))
    }
}

impl ServerInterceptor for Delegate {
    fn before(&self, call: &mut Call<'_>) -> Result<(), SystemException> {
        let operation = call.operation();
        // Operations of every object do not count (see `objects::special`).
        let counts = !IMPLICIT_OPERATIONS.contains(&operation)
            && current::with_object_key(|key| {
                let key = key.and_then(ObjectKey::parse);
                key.is_some_and(|key| self.0.settings.counts(key.adapter, key.id, operation))
            });
        call.began = counts.then(own_cpu_time);
        Ok(())
    }

    fn after(&self, call: &mut Call<'_>) {
        // `None` if the request was refused before it arrived here.
        let Some(began) = call.began.take() else { return };
        self.0.consumed.fetch_add(own_cpu_time().saturating_sub(began).as_nanos(), Ordering::Relaxed);
        self.0.cycles.fetch_add(1, Ordering::Release);
        self.0.wake.post();
    }
}

impl Counters {
    /// CPU time in ns, and invocations. An invocation that ends now may have its time in this report and its count in the
    /// next.
    fn take(&self) -> (u64, u32) {
        let cycles = self.cycles.swap(0, Ordering::Acquire);
        (self.consumed.swap(0, Ordering::Relaxed), cycles)
    }
}

impl Drop for Delegate {
    fn drop(&mut self) {
        self.0.ends.store(true, Ordering::Release);
        self.0.wake.post();
    }
}
