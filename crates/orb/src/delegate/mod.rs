//! Delegates: what a server uses of the CPU for its invocations, reported to the CPU broker at the end of each, by
//! configuration alone. An ORB that serves looks for the variable [`VARIABLE`] ([`settings`] has its words) when it is built.
//!
//! ```text
//!   invocation ─ before ─ servant ─ after ──► counters ──► a thread ── report ──► broker
//! ```
//!
//! An invocation waits for nobody: it adds to two counters and wakes the thread, which reports what has come together since its
//! last report. If the broker is slow, away or refuses, the server goes on; it is tried again after 1 s, 2 s, up to 32 s.

mod report;
mod settings;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use hyoshi_os::{Wake, own_cpu_time};
use hyoshi_wire::SystemException;

use crate::call::Call;
use crate::current;
use crate::intercept::ServerInterceptor;
use crate::objects::ObjectKey;
use report::Resolve;
pub(crate) use settings::Settings;

/// The environment's variable that configures delegates. Programs that are setuid, setgid or have file capabilities ignore
/// it, as secure_getenv(3) does.
pub(crate) const VARIABLE: &str = "HYOSHI_DELEGATE";

/// Operations of every object: no work of the server's (see `adapter::special`).
const SPECIAL: [&str; 6] = ["_is_a", "_non_existent", "_not_existent", "_repository_id", "_interface", "_component"];

/// Measures invocations around all other interceptors. When it goes, reports end.
pub(crate) struct Delegate {
    counters: Arc<Counters>,
}

/// What has not been reported yet.
#[derive(Debug, Default)]
struct Counters {
    settings: Settings,
    consumed: AtomicU64,
    cycles: AtomicU32,
    wake: Wake,
    ends: AtomicBool,
}

impl Delegate {
    /// Reports begin.
    ///
    /// # Errors
    ///
    /// If the system has no thread left.
    pub(crate) fn start(settings: Settings, resolve: Resolve) -> io::Result<Delegate> {
        let counters = Arc::new(Counters { settings, ..Counters::default() });
        report::start(counters.clone(), resolve)?;
        Ok(Delegate { counters })
    }
}

impl ServerInterceptor for Delegate {
    fn before(&self, call: &mut Call<'_>) -> Result<(), SystemException> {
        let operation = call.operation();
        let counts = !SPECIAL.contains(&operation)
            && current::with_object_key(|key| {
                let key = key.and_then(ObjectKey::parse);
                key.is_some_and(|key| self.counters.settings.counts(key.adapter, key.id, operation))
            });
        call.began = counts.then(own_cpu_time);
        Ok(())
    }

    fn after(&self, call: &mut Call<'_>) {
        // None of what was refused before it came here.
        let Some(began) = call.began.take() else { return };
        self.counters.add(own_cpu_time().saturating_sub(began).as_nanos());
    }
}

impl Counters {
    fn add(&self, consumed: u64) {
        self.consumed.fetch_add(consumed, Ordering::Relaxed);
        self.cycles.fetch_add(1, Ordering::Release);
        self.wake.post();
    }

    /// What has come together: CPU time in ns, and invocations. One that ends just now may have its time in this report and be
    /// counted in the next.
    fn take(&self) -> (u64, u32) {
        let cycles = self.cycles.swap(0, Ordering::Acquire);
        (self.consumed.swap(0, Ordering::Relaxed), cycles)
    }
}

impl Drop for Delegate {
    fn drop(&mut self) {
        self.counters.ends.store(true, Ordering::Release);
        self.counters.wake.post();
    }
}
