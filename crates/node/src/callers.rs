//! Calls between operations of a file that arrive as requests to an object: each releases the method's job for its
//! caller, as the completion of the caller's part before the call would.

use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::{Instant, OperationId, ServedObject, Span, System};
use hyoshi_orb::rt::OperationCall;
use hyoshi_orb::{OrderedRequest, SystemException, SystemKind, certificate_names, minor};
use hyoshi_os::PiMutex;
use hyoshi_trace::Signal;

use crate::peer::Allowance;

/// Calls that a caller may send at once, above its rate.
const BURST: u64 = 16;

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
    /// Twice the rate in the file.
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
                let rate = 2 * (rates.max().unwrap_or(0) / 1_000_000_000) + 10;
                let allowance = PiMutex::new(Allowance::new(rate, BURST));
                FileCaller { source, method, last, next: AtomicU64::new(0), allowance }
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

    /// The completion that a call stands for.
    ///
    /// # Errors
    ///
    /// The exception of a call that is refused: over TLS from another host than the caller's, above twice its rate, or out
    /// of order.
    pub fn admit(
        &self,
        system: &System,
        request: &OrderedRequest,
        call: &OperationCall,
        now: u64,
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
        if !caller.allowance.lock().take(now) {
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
            origin: Instant::ZERO,
            period: Span::from_nanos(call.period),
            due: Instant::ZERO,
            ticket: None,
        })
    }
}
