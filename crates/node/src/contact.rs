//! The threads of a peer: one exchanges state with it, one or two send completions to it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_model::{Endpoint, OperationId, Span};
use hyoshi_orb::rt::{ClientPolicies, OnewayOverflow, carrying};
use hyoshi_orb::{ClientLimits, Orb, OrbError, SyncScope, SystemException, SystemKind, Timeouts, TlsClient, minor};
use hyoshi_os::priority::RELEASE;
use hyoshi_os::trusted::{Folder, UntrustedPath};
use hyoshi_os::{Clock, Dscp, ThreadPolicy, set_own_policy};
use hyoshi_runtime::GroupSample;

use crate::agreement::NodeProgress;
use crate::carrier::{CompletionSender, completion};
use crate::departures::Departing;
use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::{ExchangeError, IntroduceError, Peer as _, PeerStub, Reason, Refused};
use crate::offset::RoundTrip;
use crate::peer::{COMPARED, OtherHost, PeerLink};
use crate::shared::{NodeState, PeerEvent};

/// The key of the object for other nodes.
pub(crate) const KEY: &str = "hyoshi-peer";

/// The period of exchanges: until both nodes run and clocks are compared, and afterwards.
const SOON: Span = Span::from_millis(25);
pub(crate) const LATER: Span = Span::from_millis(250);
/// The first and the last interval between attempts to connect to a peer.
const FIRST_PAUSE: Span = Span::from_millis(50);
const LAST_PAUSE: Span = Span::from_millis(500);
/// A peer answers within this time or is lost.
const PATIENCE: Span = Span::from_secs(1);
/// The longest wait of the sender for a peer that does not read.
const SEND_PATIENCE: Span = Span::from_millis(50);
/// No node proposes an instant 0 that is further away.
pub(crate) const MOST_LEAD: Span = Span::from_secs(5);
/// A peer's object at each of its endpoints. Each peer has its own ORB: a slow peer delays no other.
#[derive(Debug)]
pub(crate) struct PeerStubs {
    pub orb: Orb,
    pub endpoints: Vec<(Endpoint, PeerStub)>,
    /// The class of its packets.
    dscp: Option<Dscp>,
}

/// The reference of an object of a node at one of its host's endpoints.
pub fn corbaloc(endpoint: &Endpoint, key: &str) -> String {
    match endpoint {
        Endpoint::Tcp(address) => format!("corbaloc:iiop:1.2@{address}/{key}"),
        Endpoint::Tls(address) => format!("corbaloc:ssliop:1.2@{address}/{key}"),
        Endpoint::Unix(path) => format!("corbaloc:omniunix:{path}:/{key}"),
    }
}

impl PeerStubs {
    /// The packets of its connections have this DSCP.
    ///
    /// # Errors
    ///
    /// If the system has no thread left, or the peer's name cannot be in a certificate.
    pub fn new(
        endpoints: &[Endpoint],
        name: &str,
        tls: Option<&TlsClient>,
        dscp: Option<Dscp>,
    ) -> Result<Result<PeerStubs, SystemException>, OrbError> {
        let timeouts = Timeouts { connect: PATIENCE, round_trip: Some(PATIENCE), reply: None };
        // One for the contact, one for cancellations of threads: these do not wait for an exchange.
        let limits = ClientLimits { connections: 2, message: 4 << 20, backlog: 256 << 10, ..ClientLimits::default() };
        let policies = ClientPolicies { dscp, ..ClientPolicies::default() };
        let mut builder = Orb::builder().timeouts(timeouts).client_limits(limits).client_policies(policies);
        if let Some(tls) = tls {
            builder = match builder.tls_client(tls.clone().named(name)) {
                Ok(builder) => builder,
                Err(_) => return Ok(Err(SystemKind::BadParam.not_done(0))),
            };
        }
        let orb = builder.build()?;
        let reference = |endpoint: &Endpoint| {
            orb.resolve_unchecked::<dyn wire::Peer>(&corbaloc(endpoint, KEY)).map(|stub| (endpoint.clone(), stub))
        };
        let endpoints = endpoints.iter().map(reference).collect::<Result<Vec<_>, _>>();
        Ok(endpoints.map(|endpoints| PeerStubs { orb, endpoints, dscp }))
    }

    /// Introduces this node at the first reachable endpoint. Skips Unix sockets that another user could replace.
    fn introduce(&self, shared: &NodeState) -> Result<(usize, wire::Welcome), NotIntroduced> {
        let mut last = NotIntroduced::Error(SystemKind::Transient.not_done(0).into());
        for (at, (endpoint, stub)) in self.endpoints.iter().enumerate() {
            if let Some(because) = distrust_socket(endpoint) {
                last = NotIntroduced::Untrusted(because);
                continue;
            }
            match stub.introduce(&shared.introduction()) {
                Ok(welcome) => return Ok((at, welcome)),
                Err(refused @ IntroduceError::Refused(_)) => return Err(NotIntroduced::Error(refused)),
                // An untrusted socket is the reason that a user can remove.
                Err(error) if matches!(last, NotIntroduced::Error(_)) => last = NotIntroduced::Error(error),
                Err(_) => {}
            }
        }
        Err(last)
    }
}

/// Why a node could not introduce itself at any endpoint of a peer.
enum NotIntroduced {
    /// Another user could replace the peer's Unix socket.
    Untrusted(String),
    Error(IntroduceError),
}

/// The reason why a Unix socket could belong to another user: that user controls a directory of its path. A directory
/// that does not exist yet is not a reason.
fn distrust_socket(endpoint: &Endpoint) -> Option<String> {
    let Endpoint::Unix(path) = endpoint else { return None };
    match Folder::of_file(Path::new(path)) {
        Ok(_) => None,
        Err(UntrustedPath::System { error, .. }) if error.kind() == io::ErrorKind::NotFound => None,
        Err(mistrust) => Some(format!("its endpoint unix/{path} is not trusted: {mistrust}")),
    }
}

/// Exchanges state with a peer until the node ends.
pub(crate) fn keep(shared: &NodeState, at: usize, dial: &PeerStubs) {
    let (peer, mut pause) = (&shared.peers[at], FIRST_PAUSE);
    while !shared.is_over() {
        match dial.introduce(shared) {
            Ok((endpoint, welcome)) => match unwelcome(shared, peer, &welcome) {
                Some(because) => shared.stands(peer, PeerLink::Refused, &because),
                None => {
                    pause = FIRST_PAUSE;
                    peer.known.lock().answers_as(welcome.who.incarnation, welcome.who.clock);
                    peer.sends_at.store(endpoint, Ordering::Release);
                    // Without permission, the thread keeps ordinary priority.
                    let _ = set_own_policy(ThreadPolicy::Fifo(RELEASE));
                    let (link, because) = compare(shared, at, dial, endpoint, welcome.session);
                    let _ = set_own_policy(ThreadPolicy::Other);
                    peer.session_over(&mut peer.known.lock());
                    if shared.is_over() {
                        let _ = dial.endpoints[endpoint].1.leave(welcome.session);
                        dial.orb.flush();
                        return;
                    }
                    shared.stands(peer, link, &because);
                }
            },
            Err(NotIntroduced::Untrusted(because)) => shared.stands(peer, PeerLink::Refused, &because),
            Err(NotIntroduced::Error(IntroduceError::Refused(refused))) => {
                let because = explain(shared, dial, &refused);
                shared.stands(peer, PeerLink::Refused, &because);
            }
            Err(NotIntroduced::Error(IntroduceError::System(error))) => match distrust(&error, &peer.name) {
                Some(because) => shared.stands(peer, PeerLink::Refused, &because),
                // Its node has not started yet, or has ended.
                None => {
                    let mut known = peer.known.lock();
                    if known.link == PeerLink::Waiting || known.link == PeerLink::Refused {
                        (known.link, known.because) = (PeerLink::Waiting, error.to_string());
                    }
                }
            },
        }
        sleep(shared, at, pause);
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// The reason why the node at a peer's endpoint is not that peer.
fn unwelcome(shared: &NodeState, peer: &OtherHost, welcome: &wire::Welcome) -> Option<String> {
    let who = &welcome.who;
    (who.host != peer.name || who.system != shared.system.name || who.digest != shared.digest)
        .then(|| format!("a node of host `{}` of system `{}` answers at its endpoint", who.host, who.system))
}

/// The reason why one node rejects the other's certificate, and the remedy.
fn distrust(error: &SystemException, peer: &str) -> Option<String> {
    Some(match error.minor {
        minor::TLS_NAME => {
            format!("its certificate is not for host `{peer}`; start it with a certificate for that host (--tls-cert)")
        }
        minor::TLS_UNKNOWN_CA => {
            "no authority that this node trusts signed its certificate; add its authority to --tls-roots".to_owned()
        }
        minor::TLS_EXPIRED => {
            "its certificate has expired or is not valid yet; renew it, or correct this machine's clock".to_owned()
        }
        minor::TLS_CERTIFICATE => "its certificate is invalid; start it with another (--tls-cert)".to_owned(),
        minor::TLS_REFUSED => {
            "it does not trust this node's certificate; its --tls-roots must contain the authority of --tls-cert"
                .to_owned()
        }
        _ => return None,
    })
}

/// Compares clocks and progress until the peer fails to answer. Returns the reason.
fn compare(shared: &NodeState, at: usize, dial: &PeerStubs, endpoint: usize, session: u64) -> (PeerLink, String) {
    let (peer, stub, mut exceeds) = (&shared.peers[at], &dial.endpoints[endpoint].1, false);
    let oneways = stub.as_ref().oneways(SyncScope::None);
    let (mut too_fast, mut exceeded) = (peer.too_fast.load(Ordering::Relaxed), 0);
    loop {
        let mine = *shared.progress.lock();
        let completions = peer.sent.load(Ordering::Relaxed);
        let sent = shared.now();
        let answer = stub.exchange(session, &(&mine).into());
        let back = shared.now();
        let answer = match answer {
            Ok(answer) => answer,
            Err(ExchangeError::Refused(Refused { why: Reason::NoSession, .. })) => {
                return (PeerLink::Lost, "it was started again".to_owned());
            }
            Err(ExchangeError::Refused(refused)) => return (PeerLink::Refused, explain(shared, dial, &refused)),
            Err(ExchangeError::System(error)) => return (PeerLink::Lost, error.to_string()),
        };
        if i128::from(answer.state.origin) > i128::from(answer.sent) + i128::from(MOST_LEAD.as_nanos()) {
            return (PeerLink::Refused, "its instant 0 is too far in the future".to_owned());
        }
        let trip = RoundTrip { sent, received: answer.received, answered: answer.sent, back };
        let its = NodeProgress::from(answer.state);
        let own = peer.link_counts(shared.tcp_counts(at));
        peer.link.lock().exchange(own, (back, trip.one_way()), answer.link);
        let (jumped, error, ready) = {
            let mut known = peer.known.lock();
            let Ok(jumped) = known.measure(trip) else { return (PeerLink::Refused, "impossible times".to_owned()) };
            known.progress = Some(its);
            known.confirm(completions, answer.arrived);
            let ahead = known.ahead(back, Some(&mine));
            if let Some(ahead) = ahead {
                peer.ahead.store(ahead.offset, Ordering::Relaxed);
            }
            (jumped, ahead.map(|ahead| ahead.error), known.clock.samples() >= COMPARED)
        };
        if let (NodeProgress::Running(own), NodeProgress::Running(run)) = (&mine, &its) {
            if own.id != run.id {
                return (
                    PeerLink::Refused,
                    "it runs apart: it began without this host; restart one of the two".to_owned(),
                );
            }
            peer.sends_as.store(session, Ordering::Release);
        } else {
            peer.sends_as.store(0, Ordering::Release);
        }
        shared.stands(peer, PeerLink::Joined, "");
        if jumped {
            shared.report(PeerEvent::ClockJumped { host: peer.name.clone() });
        }
        if peer.too_fast.load(Ordering::Relaxed) > too_fast {
            too_fast = peer.too_fast.load(Ordering::Relaxed);
            exceeded += 1;
            // Not for a moment.
            if exceeded == EXCEEDED {
                shared.report(PeerEvent::IgnoresRates { host: peer.name.clone() });
            }
        }
        if let (Some(error), Some(declared)) = (error, shared.declared_error(peer.host)) {
            let (error, before) = (Span::from_nanos(error), exceeds);
            exceeds = ready && error > declared;
            if exceeds && !before {
                shared.report(PeerEvent::ClockError { host: peer.name.clone(), error, declared });
            }
        }
        // Critical completions use a separate connection. This call opens it before the first completion and keeps it from
        // becoming idle.
        let _ = oneways.keep(session);
        dial.orb.flush();
        let settled = ready && matches!((mine, its), (NodeProgress::Running(_), NodeProgress::Running(_)));
        sleep(shared, at, if settled { LATER } else { SOON });
        if shared.is_over() {
            return (PeerLink::Lost, String::new());
        }
    }
}

/// The reason of a refusal, with details.
fn explain(shared: &NodeState, dial: &PeerStubs, refused: &Refused) -> String {
    if refused.why == Reason::OtherSystem
        && let Some(text) = dial.endpoints.iter().find_map(|(_, stub)| stub.describe().ok())
    {
        return format!("it was started with another file: {}", difference(&shared.text, &text));
    }
    match refused.detail.as_str() {
        "" => "it refuses this node".to_owned(),
        detail => hyoshi_model::printable(detail).to_string(),
    }
}

/// The first line that differs.
pub(crate) fn difference(own: &str, its: &str) -> String {
    let (mut own, mut its) = (own.lines(), its.lines());
    let quoted = |line: Option<&str>| {
        line.map_or("nothing".to_owned(), |line| {
            let short: String = line.chars().take(80).collect();
            format!("`{}`", hyoshi_model::printable(&short))
        })
    };
    let mut section = "";
    loop {
        let (mine, other) = (own.next(), its.next());
        if let Some(header) = mine.filter(|line| line.starts_with('[') && mine == other) {
            section = header;
        }
        match (mine, other) {
            (None, None) => return "the same as text".to_owned(),
            (mine, other) if mine != other => {
                let within = if section.is_empty() { String::new() } else { format!("in {section} ") };
                return format!("{within}{} here, {} there", quoted(mine), quoted(other));
            }
            _ => {}
        }
    }
}

fn sleep(shared: &NodeState, at: usize, span: Span) {
    let now = shared.clock.now();
    shared.wakes[at].wait_until(&shared.clock, now + span);
}

/// Completions to a peer over IIOP.
pub(crate) struct IiopSender {
    shared: Arc<NodeState>,
    at: usize,
    dial: Arc<PeerStubs>,
    /// By endpoint of the peer.
    stubs: Vec<PeerStub>,
    /// The same for lanes: they send at once over the existing connection, or not at all. None over TLS, which
    /// allocates.
    at_once: Vec<Option<PeerStub>>,
}

impl IiopSender {
    pub fn new(shared: Arc<NodeState>, at: usize, dial: Arc<PeerStubs>) -> IiopSender {
        let prompt = |stub: &PeerStub| stub.as_ref().oneways(SyncScope::None).as_ref().within(SEND_PATIENCE);
        let stubs = dial.endpoints.iter().map(|(_, stub)| prompt(stub)).collect();
        let policies =
            ClientPolicies { dscp: dial.dscp, oneway_overflow: OnewayOverflow::Transient, ..ClientPolicies::default() };
        let at_once = |(endpoint, stub): &(Endpoint, PeerStub)| {
            // Its time is over when a connection would have to be made.
            let stub = stub.as_ref().oneways(SyncScope::Transport).as_ref().within(Span::from_nanos(1));
            (!matches!(endpoint, Endpoint::Tls(_))).then(|| stub.as_ref().client_policies(&policies))
        };
        let at_once: Vec<Option<PeerStub>> = dial.endpoints.iter().map(at_once).collect();
        // Now, because lanes allocate nothing: the first look finds the ways to the endpoint.
        at_once.iter().flatten().for_each(|stub| drop(stub.as_ref().effective_policies()));
        IiopSender { shared, at, dial, stubs, at_once }
    }
}

/// If a host was too fast in this number of exchanges of a session, it ignores its rates.
const EXCEEDED: u32 = 8;

/// The most rates or samples in one message, as in the IDL.
const MOST_RATES: usize = 1024;
const MOST_SAMPLES: usize = 1024;
const MOST_UPDATES: usize = 1024;

/// Sends completions, outputs and adapted rates to one peer.
pub(crate) trait DepartureSender: Send {
    /// Sends or queues one in a session, without waiting for a peer that does not read. False if it was dropped.
    fn send(&mut self, session: u64, departing: &Departing, payload: &[u8]) -> bool;

    /// Sends one on the thread of a lane, without waiting or queueing. False if only the sender's thread can send it.
    fn send_at_once(&mut self, session: u64, departing: &Departing, payload: &[u8]) -> bool {
        let _ = (session, departing, payload);
        false
    }

    /// Sends or queues adapted rates, as [`DepartureSender::send`]. They always use IIOP.
    fn send_rates(&mut self, session: u64, rates: &[(OperationId, Span)]) -> bool;

    /// Sends or queues samples for groups, in the same way.
    fn send_samples(&mut self, session: u64, samples: &[GroupSample]) -> bool;

    /// Sends or queues values of contracts, in the same way.
    fn send_contract_updates(&mut self, session: u64, updates: &[(u16, i64)]) -> bool;

    /// Keeps an idle connection open. True if something is queued.
    fn keep(&mut self, session: u64) -> bool;

    /// Sends what is queued.
    fn flush(&mut self);
}

impl IiopSender {
    /// The endpoint of the session.
    fn endpoint(&self) -> usize {
        self.shared.peers[self.at].sends_at.load(Ordering::Acquire)
    }

    fn stub(&self) -> Option<&PeerStub> {
        self.stubs.get(self.endpoint())
    }
}

/// Sends one by a stub. False if it was not sent.
fn send_by(shared: &NodeState, stub: &PeerStub, session: u64, departing: &Departing, payload: &[u8]) -> bool {
    match departing {
        Departing::Completion(signal) => {
            let send = || stub.complete(session, &completion(signal), payload).is_ok();
            match shared.timing_of_hop(signal) {
                Some(timing) => carrying(timing, send),
                None => send(),
            }
        }
        Departing::Output(what, _) => stub.replicate(session, what, payload).is_ok(),
    }
}

impl DepartureSender for IiopSender {
    fn send(&mut self, session: u64, departing: &Departing, payload: &[u8]) -> bool {
        self.stub().is_some_and(|stub| send_by(&self.shared, stub, session, departing, payload))
    }

    fn send_at_once(&mut self, session: u64, departing: &Departing, payload: &[u8]) -> bool {
        let stub = self.at_once.get(self.endpoint()).and_then(Option::as_ref);
        stub.is_some_and(|stub| send_by(&self.shared, stub, session, departing, payload))
    }

    fn send_rates(&mut self, session: u64, rates: &[(OperationId, Span)]) -> bool {
        let Some(stub) = self.stub() else { return false };
        rates.chunks(MOST_RATES).all(|some| {
            let rate = |(root, period): &(OperationId, Span)| wire::AdaptedRate {
                operation: root.0,
                period: period.as_nanos(),
            };
            stub.retime(session, &some.iter().map(rate).collect::<Vec<_>>()).is_ok()
        })
    }

    fn send_samples(&mut self, session: u64, samples: &[GroupSample]) -> bool {
        let Some(stub) = self.stub() else { return false };
        samples.chunks(MOST_SAMPLES).all(|some| {
            let sample = |one: &GroupSample| wire::GroupSample {
                processor: one.processor.0,
                number: one.number,
                measured: one.utilisation.is_some(),
                utilisation: one.utilisation.unwrap_or_default(),
            };
            stub.sample(session, &some.iter().map(sample).collect::<Vec<_>>()).is_ok()
        })
    }

    fn send_contract_updates(&mut self, session: u64, updates: &[(u16, i64)]) -> bool {
        let Some(stub) = self.stub() else { return false };
        updates.chunks(MOST_UPDATES).all(|some| {
            let update = |(route, value): &(u16, i64)| wire::ContractUpdate { route: *route, value: *value };
            stub.update_contracts(session, &some.iter().map(update).collect::<Vec<_>>()).is_ok()
        })
    }

    fn keep(&mut self, session: u64) -> bool {
        self.stub().is_some_and(|stub| stub.keep(session).is_ok())
    }

    fn flush(&mut self) {
        self.dial.orb.flush();
    }
}

/// Sends completions over another transport, and outputs over IIOP. Completions of operations with a replica there follow
/// their outputs over IIOP.
pub(crate) struct CarriedSender {
    pub completions: Box<dyn CompletionSender>,
    pub outputs: IiopSender,
}

impl DepartureSender for CarriedSender {
    fn send(&mut self, session: u64, departing: &Departing, payload: &[u8]) -> bool {
        let IiopSender { shared, at, .. } = &self.outputs;
        match departing {
            Departing::Completion(signal)
                if shared.system.replica_on(signal.from, shared.peers[*at].host).is_none() =>
            {
                self.completions.send(session, signal, payload)
            }
            _ => self.outputs.send(session, departing, payload),
        }
    }

    fn send_rates(&mut self, session: u64, rates: &[(OperationId, Span)]) -> bool {
        self.outputs.send_rates(session, rates)
    }

    fn send_samples(&mut self, session: u64, samples: &[GroupSample]) -> bool {
        self.outputs.send_samples(session, samples)
    }

    fn send_contract_updates(&mut self, session: u64, updates: &[(u16, i64)]) -> bool {
        self.outputs.send_contract_updates(session, updates)
    }

    fn keep(&mut self, session: u64) -> bool {
        self.outputs.keep(session)
    }

    fn flush(&mut self) {
        self.outputs.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_of_two_files_is_named_with_its_section() {
        let own = "name = \"a\"\n\n[operation.x]\nwcet = \"1ms\"\n";
        assert_eq!(difference(own, own), "the same as text");
        let its = own.replace("1ms", "2ms");
        assert_eq!(difference(own, &its), "in [operation.x] `wcet = \"1ms\"` here, `wcet = \"2ms\"` there");
        assert_eq!(difference(own, "name = \"a\"\n"), "`` here, nothing there");
        assert!(difference("", &"x".repeat(1000)).len() < 120);
    }
}
