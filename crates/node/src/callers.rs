//! Calls between operations of a file that arrive as requests to an object: each releases the method's job for its
//! caller, as the completion of the caller's part before the call would.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::{Instant, OperationId, ServedObject, Span, System};
use hyoshi_orb::rt::OperationCall;
use hyoshi_orb::{OrderedRequest, SystemException, SystemKind, certificate_names, minor};
use hyoshi_os::file::own_user;
use hyoshi_os::{Clock as _, MonotonicClock, PiMutex};
use hyoshi_trace::Signal;

use crate::peer::Allowance;

/// Calls that a caller may send at once, above its rate.
const BURST: u64 = 16;

/// How far a caller's clock may be ahead.
const AHEAD: Span = Span::from_secs(1);

/// The largest number of a job whose operation has no rate in the file.
const MOST_NUMBER: u64 = 1 << 62;

/// The callers of one object's methods.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    /// A hash of the system's operations, as callers send it.
    system: u64,
    entries: Vec<FileCaller>,
}

#[derive(Debug)]
struct FileCaller {
    /// Its part before the call.
    source: OperationId,
    /// The method's first part, and its last one.
    method: OperationId,
    last: OperationId,
    /// One more than the number of its last job that called.
    next: AtomicU64,
    /// The periods that its roots can have.
    periods: RangeInclusive<Span>,
    /// Its releases per 10^9 s; 0 if the file does not limit them.
    rate: u64,
    /// Twice that rate.
    allowance: PiMutex<Allowance>,
}

impl Callers {
    pub fn new(system: &System, object: &ServedObject) -> Callers {
        let served: Vec<OperationId> = object.all_operations().collect();
        let caller = |source: OperationId| {
            let method = system.call_after(source)?.method;
            let last = hyoshi_runtime::last_part(system, method);
            served.contains(&last).then(|| {
                let rates = (0..system.epochs.len()).map(|epoch| system.release_rates(epoch)[source.index()]);
                let rate = rates.max().unwrap_or(0);
                let allowance = PiMutex::new(Allowance::new(2 * (rate / 1_000_000_000) + 10, BURST));
                let periods = periods_of(system, source);
                FileCaller { source, method, last, next: AtomicU64::new(0), periods, rate, allowance }
            })
        };
        let entries = system.operation_ids().filter_map(caller).collect();
        Callers { system: hyoshi_runtime::fingerprint(system), entries }
    }

    /// Whether a call is one of the file, and `operations` serve it.
    pub fn calls(&self, call: &OperationCall, operations: &[OperationId]) -> bool {
        let of_caller = |caller: &FileCaller| caller.source.0 == call.source && operations.contains(&caller.last);
        call.system == self.system && self.entries.iter().any(of_caller)
    }

    /// The completion of the caller's part before the call, from its request.
    ///
    /// # Errors
    ///
    /// The exception of a call that is refused: over TLS from another host than the caller's, over a Unix socket from
    /// another user, with a period or number that the caller cannot have, above twice its rate, or out of order.
    pub fn admit(
        &self,
        system: &System,
        request: &OrderedRequest,
        call: &OperationCall,
        now: u64,
        run: &MonotonicClock,
    ) -> Result<Signal, SystemException> {
        let refused = |kind: SystemKind, minor| Err(kind.not_done(minor));
        let Some(caller) = self.entries.iter().find(|caller| caller.source.0 == call.source) else {
            return refused(SystemKind::NoPermission, minor::CALLERS_ONLY);
        };
        let host = &system.hosts[system.processor(system.operation(caller.source).on).host.index()].name;
        if let Some(certificate) = request.client().certificate()
            && !certificate_names(&certificate).is_ok_and(|names| names.contains(host))
        {
            return refused(SystemKind::NoPermission, minor::CALLERS_ONLY);
        }
        let is_other = |user: u32| user != 0 && user != own_user();
        if request.client().credentials().is_some_and(|client| is_other(client.uid)) {
            return refused(SystemKind::NoPermission, minor::CALLERS_ONLY);
        }
        let elapsed = now.saturating_add_signed(run.origin().saturating_neg());
        if !caller.is_plausible(call, elapsed) {
            return refused(SystemKind::NoPermission, minor::CALLERS_ONLY);
        }
        if caller.rate > 0 && !caller.allowance.lock().take(now) {
            return refused(SystemKind::Transient, minor::TOO_OFTEN);
        }
        let later = |next: u64| (call.number >= next).then(|| call.number.saturating_add(1));
        if caller.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later).is_err() {
            return refused(SystemKind::Transient, minor::NOT_RUN);
        }
        Ok(Signal {
            from: caller.source,
            to: caller.method,
            position: 0,
            number: call.number,
            // A call without timing.
            origin: run.now(),
            period: Span::from_nanos(call.period),
            due: Instant::ZERO,
            ticket: None,
        })
    }
}

impl FileCaller {
    /// Whether a job of the caller can have this period and, this long after instant 0, this number. A forged period would
    /// keep the method's release guard closed; after a forged number the caller's own calls would be out of order.
    fn is_plausible(&self, call: &OperationCall, elapsed: u64) -> bool {
        let until = u128::from(elapsed) + u128::from(AHEAD.as_nanos());
        let releases = until * u128::from(self.rate) / 1_000_000_000_000_000_000;
        let numbers = if self.rate == 0 { u128::from(MOST_NUMBER) } else { releases + u128::from(BURST) };
        self.periods.contains(&Span::from_nanos(call.period)) && u128::from(call.number) <= numbers
    }
}

/// From the shortest to the longest period of an operation's roots.
fn periods_of(system: &System, id: OperationId) -> RangeInclusive<Span> {
    let roots = &system.operation(id).roots;
    let settings = || (0..system.epochs.len()).flat_map(|at| roots.iter().map(move |root| system.setting(at, *root)));
    let least = settings().map(|setting| setting.period).min();
    let most = settings().map(|setting| setting.slowest.max(setting.period)).max();
    least.unwrap_or_default()..=most.unwrap_or_default()
}
