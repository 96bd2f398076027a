//! Carries completions between hosts over Zenoh, and events between a host and programs: the only crate that knows
//! Zenoh. A host of the file with a `zenoh` endpoint receives over Zenoh; introductions, clocks and sessions remain on
//! IIOP (`hyoshi-node`). A host with a `gateway` has a [`ZenohGateway`] for programs. Of completions:
//!
//! ```text
//!   completing lane ─► ring ─► sender's thread ─► Zenoh ═ TCP, for critical targets ═╗
//!                                                   ╚════ TCP, for all others ═══════╬═► Zenoh ─► ring ─► dispatcher
//! ```
//!
//! - A node has one Zenoh session that listens at its endpoint or is a client of its router, and one for each [`ZenohLink`] that dials the other hosts.
//!   In one session with several links, Zenoh 1.10 does not dial a failed link again if its endpoint has a DSCP.
//! - Scouting, gossip and the admin space are off. The listening session accepts only completions for its host, and
//!   declares only its own subscriptions.
//! - Over TLS, both sides show certificates. Access rules permit completions from or to a host only with a certificate
//!   that has the host's name as common name.
//! - Each pair of hosts has a [key expression](key_expression) for each direction. A completion's payload is the
//!   sample's, its [`CompletionHeader`] is the attachment.
//! - A sender never waits: if Zenoh's queue is full, Zenoh drops the completion. The receiver counts it by its sequence
//!   number.
//! - Zenoh's threads run at [`TRANSPORT`](hyoshi_os::priority::TRANSPORT), above lanes and below releases, on the
//!   node's CPU. Without that, their 99th percentile under load is tens of milliseconds. A callback checks a
//!   completion, copies it to a bounded ring and wakes its lane.

#![forbid(unsafe_code)]

mod config;
mod gateway;
mod header;
mod links;
mod threads;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hyoshi_model::{Endpoint, HostId, System};
use hyoshi_node::{ArrivingCompletions, CarriedClass, CarrierError, CompletionCarrier, CompletionSender, completion};
use hyoshi_os::Spawn;
use hyoshi_trace::Signal;
use zenoh::matching::{MatchingListener, MatchingStatus};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::{CongestionControl, Priority};
use zenoh::sample::{Sample, SampleKind};
use zenoh::{Config, Session, Wait};

pub use config::{dialling, key_expression, receiving};
pub use gateway::{EVENT_HEADER, EventHeader, GatewayKeys, GatewayStanding, PublicationCounts, ZenohGateway};
pub use header::{CompletionHeader, HEADER, HeaderError};
pub use links::{RemoteTarget, ZenohLink, priority_of, remote_targets};
use links::{chosen_priorities, senders};
pub use threads::ZenohThreads;
pub use tls::ZenohTls;

/// The pause before the next attempt to connect to a router.
const RETRY: Duration = Duration::from_millis(200);

/// Carries the completions of one host's node. See the crate.
pub struct ZenohCarrier {
    system: Arc<System>,
    host: HostId,
    tls: Option<ZenohTls>,
    targets: Vec<RemoteTarget>,
    receiver: Arc<Mutex<ReceivingSession>>,
    senders: BTreeMap<HostId, ZenohSender>,
    /// Those of the links.
    sessions: Vec<Session>,
}

/// The session that receives completions.
#[derive(Default)]
struct ReceivingSession {
    open: Option<(Session, Vec<Subscriber<()>>)>,
    /// The carrier has ended.
    over: bool,
}

impl fmt::Debug for ZenohCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZenohCarrier").field("host", &self.host).field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl ZenohCarrier {
    /// For the node of a host, with its certificate if endpoints use TLS; `None` if no host of the file uses Zenoh.
    pub fn new(system: &Arc<System>, host: HostId, tls: Option<ZenohTls>) -> Option<ZenohCarrier> {
        let uses_zenoh = system.hosts.iter().any(|host| host.over_zenoh().is_some());
        uses_zenoh.then(|| ZenohCarrier {
            system: system.clone(),
            host,
            tls,
            targets: remote_targets(system, host),
            receiver: Arc::default(),
            senders: BTreeMap::new(),
            sessions: Vec::new(),
        })
    }

    /// Peers over TLS must accept the certificate as this host's.
    fn check_certificate(&self) -> Result<(), CarrierError> {
        let hosts = self.targets.iter().map(|target| target.host).chain([self.host]);
        let mut endpoints = hosts.map(|host| &self.system.hosts[host.index()].zenoh);
        let uses_tls = endpoints.any(|endpoint| matches!(endpoint, Some(Endpoint::Tls(_))));
        match &self.tls {
            Some(tls) if uses_tls => tls.is_for(&self.system.hosts[self.host.index()].name),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, arriving: &ArrivingCompletions, threads: &Arc<ZenohThreads>) -> Result<(), CarrierError> {
        let Some(settings) = receiving(&self.system, self.host, self.tls.as_ref()) else { return Ok(()) };
        let own = &self.system.hosts[self.host.index()];
        let senders = senders(&self.system, self.host);
        let keys = senders.into_iter().map(|from| (from, key_expression(&self.system, from, self.host)));
        let keys: Vec<(HostId, String)> = keys.collect();
        let (arriving, threads, receiver) = (arriving.clone(), threads.clone(), self.receiver.clone());
        let open = move || subscribe(settings.clone(), &keys, &arriving, &threads);
        let Some(endpoint) = &own.zenoh else {
            // The router may be away: the run starts without it.
            let connect = move || {
                while !lock(&receiver).over {
                    let Ok((session, subscribers)) = open() else {
                        thread::sleep(RETRY);
                        continue;
                    };
                    let mut receiver = lock(&receiver);
                    if receiver.over {
                        drop(subscribers);
                        let _ = session.close().wait();
                    } else {
                        receiver.open = Some((session, subscribers));
                    }
                    return;
                }
            };
            return Spawn::new("router").spawn(connect).map(drop).map_err(|error| CarrierError {
                message: format!("cannot start another thread: {error}"),
                remedy: "raise the limit of threads: `ulimit -u`".to_owned(),
            });
        };
        let opened = open().map_err(|error| CarrierError {
            message: format!("cannot listen at {endpoint} with Zenoh: {error}"),
            remedy: format!(
                "is a node of this host running already? `zenoh` of [host.{}] must be an address of this machine",
                own.name
            ),
        })?;
        lock(&receiver).open = Some(opened);
        Ok(())
    }

    fn dial(&mut self, threads: &Arc<ZenohThreads>) -> Result<(), CarrierError> {
        let failed = |error: zenoh::Error| CarrierError {
            message: format!("cannot start Zenoh: {error}"),
            remedy: "remove `zenoh` and `router` from the hosts: completions then use `endpoints`".to_owned(),
        };
        let system = self.system.clone();
        let router = |host: HostId| system.hosts[host.index()].router.as_ref();
        for link in ZenohLink::ALL {
            let uses_it = |target: &&RemoteTarget| {
                ZenohLink::of(target.priority) == link && system.hosts[target.host.index()].over_zenoh().is_some()
            };
            let mut rest: Vec<&RemoteTarget> = self.targets.iter().filter(uses_it).collect();
            while let Some(first) = rest.first() {
                let via = router(first.host);
                // Hosts without a router share a session, and those with the same router.
                let (targets, others) = rest.into_iter().partition(|target| router(target.host) == via);
                let targets: Vec<&RemoteTarget> = targets;
                rest = others;
                let mut hosts: Vec<HostId> = targets.iter().map(|target| target.host).collect();
                hosts.dedup();
                let settings = dialling(&system, self.host, &hosts, link, self.tls.as_ref());
                let session = zenoh::open(settings).wait().map_err(failed)?;
                for target in targets {
                    let key = key_expression(&system, self.host, target.host);
                    let sender = self.senders.entry(target.host).or_default();
                    sender.add(&session, key, target, threads).map_err(failed)?;
                }
                for host in hosts.iter().filter(|_| link == ZenohLink::Other) {
                    let key = key_expression(&system, self.host, *host);
                    let sender = self.senders.entry(*host).or_default();
                    for priority in chosen_priorities(&system, self.host, *host) {
                        sender.chosen.push(Outlet::new(&session, key.clone(), priority, threads).map_err(failed)?);
                    }
                }
                self.sessions.push(session);
            }
        }
        Ok(())
    }
}

/// A session that passes completions of other hosts to the node.
fn subscribe(
    settings: Config,
    keys: &[(HostId, String)],
    arriving: &ArrivingCompletions,
    threads: &Arc<ZenohThreads>,
) -> zenoh::Result<(Session, Vec<Subscriber<()>>)> {
    let session = zenoh::open(settings).wait()?;
    let mut subscribers = Vec::new();
    for (from, key) in keys {
        let (from, arriving, threads) = (*from, arriving.clone(), threads.clone());
        let receive = move |sample: Sample| {
            threads.raise_once();
            receive(&arriving, from, &sample);
        };
        subscribers.push(session.declare_subscriber(key).callback(receive).wait()?);
    }
    threads.raise();
    Ok((session, subscribers))
}

fn lock(receiver: &Mutex<ReceivingSession>) -> MutexGuard<'_, ReceivingSession> {
    receiver.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CompletionCarrier for ZenohCarrier {
    fn open(&mut self, arriving: ArrivingCompletions, cpu: Option<u32>) -> Result<(), CarrierError> {
        self.check_certificate()?;
        let threads = Arc::new(ZenohThreads::new(cpu));
        self.receive(&arriving, &threads)?;
        self.dial(&threads)?;
        threads.raise();
        Ok(())
    }

    fn sender(&mut self, to: HostId) -> Option<Box<dyn CompletionSender>> {
        self.senders.remove(&to).map(|sender| Box::new(sender) as Box<dyn CompletionSender>)
    }
}

impl Drop for ZenohCarrier {
    fn drop(&mut self) {
        self.senders.clear();
        let received = {
            let mut receiver = lock(&self.receiver);
            receiver.over = true;
            receiver.open.take()
        };
        let received = received.map(|(session, subscribers)| {
            drop(subscribers);
            session
        });
        for session in received.into_iter().chain(self.sessions.drain(..)) {
            // A session that cannot be closed has lost its connections already.
            let _ = session.close().wait();
        }
    }
}

/// On one of Zenoh's threads.
fn receive(arriving: &ArrivingCompletions, from: HostId, sample: &Sample) {
    let attachment = sample.attachment().filter(|attachment| attachment.len() == HEADER);
    let header = attachment.and_then(|attachment| CompletionHeader::decode(&attachment.to_bytes()).ok());
    match header {
        Some(CompletionHeader { session, sequence, completion }) if sample.kind() == SampleKind::Put => {
            arriving.arrive(from, session, sequence, &completion, &sample.payload().to_bytes());
        }
        _ => arriving.refuse(),
    }
}

/// The publisher of one priority.
struct Outlet {
    targets: Vec<u32>,
    publisher: Publisher<'static>,
    /// The other host's node subscribes.
    connected: Arc<AtomicBool>,
    _listener: MatchingListener<()>,
}

impl Outlet {
    fn new(session: &Session, key: String, priority: Priority, threads: &Arc<ZenohThreads>) -> zenoh::Result<Outlet> {
        let publisher = session.declare_publisher(key).priority(priority);
        let publisher = publisher.congestion_control(CongestionControl::Drop).wait()?;
        let connected = Arc::new(AtomicBool::new(false));
        let (seen, threads) = (connected.clone(), threads.clone());
        let notice = move |status: MatchingStatus| {
            threads.raise();
            seen.store(status.matching(), Ordering::Relaxed);
        };
        let listener = publisher.matching_listener().callback(notice).wait()?;
        if publisher.matching_status().wait()?.matching() {
            connected.store(true, Ordering::Relaxed);
        }
        Ok(Outlet { targets: Vec::new(), publisher, connected, _listener: listener })
    }
}

/// Sends to one host.
#[derive(Default)]
struct ZenohSender {
    outlets: Vec<Outlet>,
    /// Those of the priorities that contracts choose for completions that are not critical.
    chosen: Vec<Outlet>,
    class: CarriedClass,
    session: u64,
    /// The number of the last completion of that session.
    sequence: u64,
}

impl ZenohSender {
    fn add(
        &mut self,
        session: &Session,
        key: String,
        target: &RemoteTarget,
        threads: &Arc<ZenohThreads>,
    ) -> zenoh::Result<()> {
        let same = self.outlets.iter().position(|outlet| outlet.publisher.priority() == target.priority);
        let place = same.unwrap_or(self.outlets.len());
        if same.is_none() {
            self.outlets.push(Outlet::new(session, key, target.priority, threads)?);
        }
        self.outlets[place].targets.push(target.operation.0);
        Ok(())
    }
}

impl CompletionSender for ZenohSender {
    fn send(&mut self, session: u64, signal: &Signal, payload: &[u8]) -> bool {
        let completion = completion(signal);
        let own = self.outlets.iter().find(|outlet| outlet.targets.contains(&completion.target));
        let is_other = own.is_some_and(|own| ZenohLink::of(own.publisher.priority()) == ZenohLink::Other);
        let chosen = self.class.get().filter(|_| is_other).map(priority_of);
        let chosen = chosen.and_then(|one| self.chosen.iter().find(|outlet| outlet.publisher.priority() == one));
        let outlet = chosen.or(own);
        let Some(outlet) = outlet.filter(|outlet| outlet.connected.load(Ordering::Relaxed)) else { return false };
        if session != self.session {
            (self.session, self.sequence) = (session, 0);
        }
        self.sequence += 1;
        let header = CompletionHeader { session, sequence: self.sequence, completion };
        outlet.publisher.put(payload).attachment(header.encode()).wait().is_ok()
    }

    fn class(&self) -> CarriedClass {
        self.class.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::time::Instant as Clock;

    use hyoshi_model::{Instant, OperationId, Span};

    use super::*;

    fn open(keys: &str) -> Session {
        let settings = format!("{{ mode: \"peer\", scouting: {{ multicast: {{ enabled: false }} }}, {keys} }}");
        zenoh::open(Config::from_json5(&settings).unwrap()).wait().unwrap()
    }

    #[test]
    fn a_contract_changes_the_priority_of_completions_that_are_not_critical() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let receiver = open(&format!("listen: {{ endpoints: [\"tcp/{address}\"] }}"));
        let (arrived, priorities) = channel();
        let arrive = move |sample: Sample| arrived.send(sample.priority()).unwrap();
        let _subscriber = receiver.declare_subscriber("completions").callback(arrive).wait().unwrap();
        let session = open(&format!("listen: {{ endpoints: [] }}, connect: {{ endpoints: [\"tcp/{address}\"] }}"));
        let threads = Arc::new(ZenohThreads::new(None));
        let mut sender = ZenohSender::default();
        for (operation, priority) in [(0, Priority::RealTime), (1, Priority::DataHigh)] {
            let target = RemoteTarget { operation: OperationId(operation), host: HostId(0), priority };
            sender.add(&session, "completions".into(), &target, &threads).unwrap();
        }
        let chosen = Outlet::new(&session, "completions".into(), Priority::InteractiveLow, &threads).unwrap();
        sender.chosen.push(chosen);
        let start = Clock::now();
        let is_connected = |outlet: &Outlet| outlet.connected.load(Ordering::Relaxed);
        while !sender.outlets.iter().chain(&sender.chosen).all(is_connected) {
            assert!(start.elapsed() < Duration::from_secs(60), "no subscriber was found");
            thread::yield_now();
        }
        let class = sender.class();
        let mut of = |to: u32| {
            let signal = Signal {
                from: OperationId(9),
                to: OperationId(to),
                position: 0,
                number: 1,
                origin: Instant::ZERO,
                period: Span::from_millis(10),
                due: Instant::ZERO,
                ticket: None,
            };
            assert!(sender.send(1, &signal, b"payload"));
            priorities.recv_timeout(Duration::from_secs(60)).unwrap()
        };
        let own = [Priority::RealTime, Priority::DataHigh];
        assert_eq!([of(0), of(1)], own);
        class.set(Some("AF41".parse().unwrap()));
        assert_eq!([of(0), of(1)], [Priority::RealTime, Priority::InteractiveLow]);
        // No contract chooses its priority: none was prepared.
        class.set(Some("LE".parse().unwrap()));
        assert_eq!([of(0), of(1)], own);
        class.set(None);
        assert_eq!([of(0), of(1)], own);
    }
}
