//! The registered clients of one loop, and the thread that sends their rates and removes vanished clients.
//!
//! ```text
//!             join                    leave; vanished
//!   (unknown) ────► Registered ──────────────────────────► (unknown)
//!                     │     ▲
//!                     └─────┘ new rate: sent to its modulator, or returned by `rate`
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Duration;

use hyoshi_model::{FeedbackLoop, OperationId, ProcessorId, Span, System};
use hyoshi_orb::{FromIor as _, ObjectRef, OwnedLane, Reference};
use hyoshi_os::clock::monotonic;
use hyoshi_os::{Clock, MonotonicClock, PiMutex};
use hyoshi_runtime::{ClientMeter, ClientRateControl, JoinLoopError, JoinedClient};
use hyoshi_trace::RatedClient;

use super::ClientGate;
use super::modulator::FeedbackLane;
use super::source::JoinSource;
use super::wish::{RateRefusal, claim, hertz_of};
use crate::idl::hyoshi_rates::{self as wire, Modulator};
use crate::peer::Allowance;
use crate::shared::random;

/// A client that is silent for this time plus three periods (its own or sampling periods, whichever are longer) has
/// vanished.
const SILENCE: Span = Span::from_secs(10);

/// The same if requests of the client may be unread, as in overload.
const UNREAD_SILENCE: Span = Span::from_secs(60);

/// The longest time between two checks of the clients.
const CHECK: Span = Span::from_millis(500);

/// The most reports that are kept.
const REPORTS: usize = 64;

/// Refused requests after which a client is reported.
const IGNORES: u64 = 10;

/// Now, in ns of CLOCK_MONOTONIC.
pub(super) fn now() -> u64 {
    monotonic().as_nanos()
}

/// See the [module](self).
pub(super) struct RegisteredClients {
    system: Arc<System>,
    processor: ProcessorId,
    /// The sampling period.
    period: Span,
    control: ClientRateControl,
    table: PiMutex<HashMap<u64, Arc<Registered>>>,
    /// Gates without a client, by operation.
    gates: PiMutex<BTreeMap<OperationId, Vec<ClientGate>>>,
    reports: PiMutex<ClientReports>,
    /// Requests to objects are read from it.
    lane: Option<OwnedLane>,
    /// Requests had not been read at the last check.
    unread: AtomicBool,
    /// When requests were unread at two checks in sequence, in ns. In overload, a client may only seem to be silent.
    unread_at: AtomicU64,
    over: AtomicBool,
}

#[derive(Debug, Default)]
struct ClientReports {
    latest: VecDeque<String>,
    omitted: u64,
    /// Clients that were refused, and the reason for the last one.
    refused: u64,
    why: String,
}

/// A registered client.
struct Registered {
    name: String,
    source: JoinSource,
    /// When it joined, in ns.
    since: u64,
    joined: JoinedClient,
    meter: Arc<ClientMeter>,
    /// Taken when it leaves.
    gate: PiMutex<Option<ClientGate>>,
    lane: Option<Arc<FeedbackLane>>,
    /// When it joined or called `rate` last, in ns.
    called: AtomicU64,
    calls: PiMutex<Allowance>,
    /// Since when it could have requested a rate that it does not know, in ns; 0 if it knows the present one.
    stale: AtomicU64,
    /// It was reported for ignoring its rate.
    ignores: AtomicBool,
}

impl RegisteredClients {
    pub fn new(
        system: Arc<System>,
        declared: &FeedbackLoop,
        control: ClientRateControl,
        (gates, lane): (Vec<(OperationId, Vec<ClientGate>)>, Option<OwnedLane>),
    ) -> RegisteredClients {
        RegisteredClients {
            system,
            processor: declared.processor,
            period: declared.period,
            control,
            table: PiMutex::default(),
            gates: PiMutex::new(gates.into_iter().collect()),
            reports: PiMutex::default(),
            lane,
            unread: AtomicBool::new(false),
            unread_at: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// A client registers.
    pub fn join(
        self: &Arc<Self>,
        what: &wire::Task,
        from: (&str, JoinSource),
        modulator: Option<&Reference<dyn Modulator>>,
    ) -> Result<wire::Grant, RateRefusal> {
        let granted = self.register(what, from, modulator);
        if let Err(refusal) = &granted {
            let mut reports = self.reports.lock();
            reports.refused += 1;
            reports.why.clone_from(&refusal.why);
        }
        granted
    }

    fn register(
        self: &Arc<Self>,
        what: &wire::Task,
        (name, source): (&str, JoinSource),
        modulator: Option<&Reference<dyn Modulator>>,
    ) -> Result<wire::Grant, RateRefusal> {
        let claim = claim(&self.system, self.processor, what, name)?;
        let gate = self.gates.lock().get_mut(&claim.operation).map(Vec::pop).ok_or_else(|| {
            let remedy = "add `endpoints` to its event in the system file, or a servant of its object to the program";
            RateRefusal::new("clients cannot reach the operation over CORBA", remedy)
        })?;
        let gate = gate.ok_or_else(|| {
            RateRefusal::new("requests of clients that have left are still running", "join again later")
        })?;
        let joined = match self.control.join(&claim, None) {
            Err(error) if error.is_full() => self.displace(&claim, source).unwrap_or(Err(error)),
            joined => joined,
        };
        let joined = match joined {
            Ok(joined) => joined,
            Err(error) => {
                self.give_back(claim.operation, gate);
                return Err(refusal_of(&error));
            }
        };
        let ticket = u64::from_ne_bytes(random()).max(1);
        gate.meter.begin(joined.period, now());
        let activated = (gate.activate)(&id_of(ticket));
        let keep = self.period.max(Span::from_secs(1));
        let Ok(target) = activated else {
            gate.meter.end();
            self.control.leave(joined.client);
            self.give_back(claim.operation, gate);
            return Err(RateRefusal::new("the server cannot activate an object for the client", "join again later"));
        };
        let client = Registered {
            name: name.to_owned(),
            source,
            since: now(),
            joined,
            meter: gate.meter.clone(),
            gate: PiMutex::new(Some(gate)),
            lane: modulator.map(|to| FeedbackLane::new(to, keep)),
            called: AtomicU64::new(now()),
            // Twice the samples.
            calls: PiMutex::new(Allowance::new(2 * (1_000_000_000 / self.period.as_nanos().max(1)) + 2, 8)),
            stale: AtomicU64::new(0),
            ignores: AtomicBool::new(false),
        };
        self.table.lock().insert(ticket, Arc::new(client));
        // The pacer sends its first rate.
        self.control.wake();
        Ok(grant(what, ticket, &joined, target))
    }

    /// Lets a client join in place of one of another source: the newest one of the source with most clients, if that
    /// source then still has at least as many. So one source cannot keep all places. `None` if there is no such client.
    fn displace(
        self: &Arc<Self>,
        claim: &RatedClient,
        source: JoinSource,
    ) -> Option<Result<JoinedClient, JoinLoopError>> {
        let mut table = self.table.lock();
        let all = || table.iter().filter(|(_, client)| client.joined.task.operation == claim.operation);
        let mut counts = BTreeMap::new();
        all().for_each(|(_, client)| *counts.entry(client.source).or_insert(0usize) += 1);
        let own = counts.get(&source).copied().unwrap_or(0);
        let (most, count) = counts.into_iter().max_by_key(|(source, count)| (*count, Reverse(*source)))?;
        if count <= own + 1 {
            return None;
        }
        let newest = all().filter(|(_, client)| client.source == most).max_by_key(|(_, client)| client.since);
        let (ticket, place) = newest.map(|(ticket, client)| (*ticket, client.joined.client))?;
        // While the table is locked, the place is that client's.
        let joined = self.control.join(claim, Some(place));
        let client = joined.is_ok().then(|| table.remove(&ticket)).flatten();
        drop(table);
        if let Some(client) = client {
            let why = "a client of an address with fewer clients needed its place";
            self.report(format!("{} was removed: {why}", self.shown(&client)));
            self.release(ticket, client);
        }
        Some(joined)
    }

    /// The present period of a client. The second value is true if it calls no more often than samples require.
    pub fn poll(&self, ticket: u64) -> Result<(Span, bool), RateRefusal> {
        // With this lock the client cannot leave, so its place and gate do not belong to another client.
        let table = self.table.lock();
        let client = table.get(&ticket).ok_or_else(|| unknown(ticket))?;
        client.called.store(now(), Ordering::Relaxed);
        let period = self.control.period(client.joined.client).ok_or_else(|| unknown(ticket))?;
        client.meter.set_period(period);
        client.stale.store(0, Ordering::Relaxed);
        let in_time = client.calls.lock().take(now());
        Ok((period, in_time))
    }

    /// A client leaves. Its gate serves another one when its requests have ended. False if it is unknown.
    pub fn leave(self: &Arc<Self>, ticket: u64) -> bool {
        let removed = self.table.lock().remove(&ticket);
        let Some(client) = removed else { return false };
        self.control.leave(client.joined.client);
        self.release(ticket, client);
        true
    }

    /// A client has left the loop.
    fn release(self: &Arc<Self>, ticket: u64, client: Arc<Registered>) {
        client.meter.end();
        if client.meter.refused() > 0 {
            self.report(self.excess(&client));
        }
        let gate = client.gate.lock().take();
        if let Some(gate) = gate {
            let clients = self.clone();
            let release = move || {
                (gate.deactivate)(&id_of(ticket));
                // There are no more threads than gates.
                client.lane.iter().for_each(|lane| lane.join());
                clients.give_back(client.joined.task.operation, gate);
            };
            // Without a thread, the gate is lost: fewer clients can register.
            let _ = Builder::new().name("rates-release".to_owned()).spawn(release);
        }
    }

    fn give_back(&self, operation: OperationId, gate: ClientGate) {
        self.gates.lock().entry(operation).or_default().push(gate);
    }

    fn report(&self, text: String) {
        let mut reports = self.reports.lock();
        if reports.latest.len() == REPORTS {
            reports.latest.pop_front();
            reports.omitted += 1;
        }
        reports.latest.push_back(text);
    }

    /// The latest reports: clients that vanished or ignored their rates, and refusals.
    pub fn reports(&self) -> Vec<String> {
        let reports = self.reports.lock();
        let mut all: Vec<String> = reports.latest.iter().cloned().collect();
        if reports.omitted > 0 {
            all.push(format!("{} earlier reports about clients are omitted", reports.omitted));
        }
        if reports.refused > 0 {
            all.push(format!(
                "{} requests to join were refused; reason of the last one: {}",
                reports.refused, reports.why
            ));
        }
        drop(reports);
        let table = self.table.lock();
        let mut ignoring: Vec<&Arc<Registered>> = table.values().filter(|client| client.meter.refused() > 0).collect();
        ignoring.sort_by_key(|client| client.joined.client);
        all.extend(ignoring.into_iter().map(|client| self.excess(client)));
        all
    }

    fn excess(&self, client: &Registered) -> String {
        format!("{}: {} requests above its rate were rejected", self.shown(client), client.meter.refused())
    }

    fn shown(&self, client: &Registered) -> String {
        let operation = &self.system.operation(client.joined.task.operation).name;
        format!("client {} of {operation} ({})", client.joined.client, client.name)
    }

    /// The thread of the loop's clients.
    pub fn pace(self: Arc<Self>) {
        let clock = MonotonicClock::from_origin(0);
        while !self.over.load(Ordering::Acquire) {
            let unread = self.lane.as_ref().is_some_and(|lane| lane.wait(Some(Duration::ZERO)));
            if self.unread.swap(unread, Ordering::Relaxed) && unread {
                self.unread_at.store(now(), Ordering::Relaxed);
            }
            let clients: Vec<(u64, Arc<Registered>)> =
                self.table.lock().iter().map(|(ticket, client)| (*ticket, client.clone())).collect();
            for (ticket, client) in clients {
                let why = {
                    let table = self.table.lock();
                    table.contains_key(&ticket).then(|| self.check(&client)).flatten()
                };
                if let Some(why) = why
                    && self.leave(ticket)
                {
                    self.report(format!("{} was removed: {why}", self.shown(&client)));
                }
            }
            self.control.wait(&clock, clock.now() + self.pause());
        }
    }

    /// The longest time until the next check of the clients.
    fn pause(&self) -> Span {
        CHECK.min(self.period)
    }

    /// Passes the present rate of a client on. Returns the reason if the client has vanished.
    fn check(&self, client: &Registered) -> Option<String> {
        let now = now();
        let period = self.control.period(client.joined.client)?;
        if client.meter.period().is_zero() {
            return Some("it disconnected".to_owned());
        }
        match &client.lane {
            Some(lane) if lane.has_failed() => {
                return Some("messages to its modulator failed".to_owned());
            }
            Some(lane) => {
                lane.sent().into_iter().for_each(|sent| client.meter.set_period(sent));
                if period < client.meter.period() {
                    // Before the client knows.
                    client.meter.set_period(period);
                }
                lane.offer(period, now + self.pause().as_nanos());
            }
            None => {}
        }
        if client.meter.period() == period {
            client.stale.store(0, Ordering::Relaxed);
        } else {
            // The client has two sampling periods to learn its rate.
            let since = client.stale.load(Ordering::Relaxed);
            if since == 0 {
                client.stale.store(now, Ordering::Relaxed);
            } else if now.saturating_sub(since) > 2 * self.period.as_nanos() {
                client.meter.set_period(period);
            }
        }
        if client.meter.refused() >= IGNORES && !client.ignores.swap(true, Ordering::Relaxed) {
            let rate = hertz_of(client.meter.period());
            self.report(format!(
                "{} exceeds its rate of {rate:.3} Hz: the server rejects some requests",
                self.shown(client)
            ));
        }
        let last = client.meter.last().max(client.called.load(Ordering::Relaxed));
        let silent = now.saturating_sub(last);
        let silent_without_load = silent.min(now.saturating_sub(self.unread_at.load(Ordering::Relaxed)));
        let periods = 3 * period.max(self.period).as_nanos();
        let has_vanished =
            silent_without_load > SILENCE.as_nanos() + periods || silent > UNREAD_SILENCE.as_nanos() + periods;
        has_vanished
            .then(|| format!("it sent no request and no `rate` call for {}", Span::from_millis(silent / 1_000_000)))
    }

    /// No further client is served.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.control.wake();
        let clients: Vec<_> = self.table.lock().drain().map(|(_, client)| client).collect();
        // Each message has a time limit.
        clients.iter().filter_map(|client| client.lane.as_ref()).for_each(|lane| lane.join());
    }
}

fn id_of(ticket: u64) -> String {
    format!("client {ticket:016x}")
}

fn unknown(ticket: u64) -> RateRefusal {
    RateRefusal::new(&format!("unknown ticket {ticket}: its client has left, or was removed"), "join again")
}

fn refusal_of(error: &JoinLoopError) -> RateRefusal {
    RateRefusal::new(&error.to_string(), error.remedy())
}

fn grant(what: &wire::Task, ticket: u64, joined: &JoinedClient, target: hyoshi_orb::Ior) -> wire::Grant {
    let (hertz, lowest, highest) =
        (hertz_of(joined.period), hertz_of(joined.task.longest), hertz_of(joined.task.shortest));
    let is_less = |rate: f64| rate < what.highest * (1.0 - 1e-6);
    let (verdict, note) = match (is_less(highest), is_less(hertz)) {
        (true, _) => (wire::Admission::Lower, format!("the system file allows at most {highest:.3} Hz")),
        (false, true) => (wire::Admission::Lower, "the loop raises the rate when the load permits".to_owned()),
        (false, false) => (wire::Admission::AsAsked, String::new()),
    };
    wire::Grant { ticket, verdict, note, hertz, lowest, highest, target: Some(ObjectRef::from_ior(target)) }
}

impl fmt::Debug for RegisteredClients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredClients").field("processor", &self.processor).finish_non_exhaustive()
    }
}
