//! The object of a node for other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::{HostId, OperationId, ProcessorId, Span};
use hyoshi_orb::{SystemException, certificate_names, current};
use hyoshi_os::Dscp;
use hyoshi_runtime::{ArrivedOutput, GroupSample, IncomingCompletions};

use crate::agreement::NodeProgress;
use crate::carrier::{accept, receive};
use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::{ExchangeError, IntroduceError, Reason, Refused};
use crate::peer::{OtherHost, PeerLink};
use crate::shared::{NodeState, random, since_origin};
use crate::strangers::PENALTY;
use crate::threads::{OperatedThreads, RunSource};

/// If a node called within this time, no other node can join as its host.
pub(crate) const ALIVE: Span = Span::from_secs(2);

/// How many connections of a session strangers do not displace: a peer has four, and opens each again if it fails.
const PROTECTED: u32 = 12;

/// The reason for losing a host that ended normally.
pub const ENDED: &str = "it ended";

/// The object for other nodes.
pub(crate) struct ForPeers(pub(crate) Arc<NodeState>);

fn refused(shared: &NodeState, why: Reason, detail: impl Into<String>) -> Refused {
    shared.strangers.refuse(shared.now());
    let detail: String = detail.into();
    Refused { why, detail: detail.chars().take(512).collect() }
}

impl ForPeers {
    fn check(&self, who: &wire::Introduction) -> Result<&OtherHost, Refused> {
        let shared = &self.0;
        if who.version != wire::VERSION {
            let detail = format!("this node speaks version {} of the protocol, yours {}", wire::VERSION, who.version);
            return Err(refused(shared, Reason::OtherVersion, detail));
        }
        if who.system != shared.system.name || who.digest != shared.digest {
            let detail = format!("host {} was started with another file", shared.name());
            return Err(refused(shared, Reason::OtherSystem, detail));
        }
        let Some(peer) = shared.peers.iter().find(|peer| peer.name == who.host) else {
            let detail = format!("this is host {}, and expects no host `{}`", shared.name(), who.host);
            return Err(refused(shared, Reason::WrongHost, detail));
        };
        let certificate = current::peer_certificate();
        if shared.uses_tls && certificate.is_none() && current::peer().is_none() {
            return Err(refused(
                shared,
                Reason::WrongCertificate,
                "this host accepts only certificates or its Unix socket",
            ));
        }
        if let Some(certificate) = certificate {
            let names = certificate_names(&certificate).unwrap_or_default();
            if !names.contains(&who.host) {
                let detail = format!("your certificate is of {}, not of host `{}`", names.join(", "), who.host);
                return Err(refused(shared, Reason::WrongCertificate, detail));
            }
        }
        Ok(peer)
    }
}

impl ForPeers {
    /// The peer of a session. Strangers do not displace its connections.
    fn peer_of(&self, session: u64) -> Option<&OtherHost> {
        let peer = self.0.of_session(session)?;
        let mut inbox = peer.inbox.lock();
        if inbox.protected < PROTECTED && current::protect_connection() {
            inbox.protected += 1;
        }
        drop(inbox);
        Some(peer)
    }

    /// The peer that sends in a session. Other senders are counted.
    fn sender(&self, session: u64) -> Option<&OtherHost> {
        let peer = self.peer_of(session);
        if peer.is_none() {
            self.0.strangers.refuse(self.0.now());
        }
        peer
    }
}

impl ForPeers {
    /// Receives rates and samples of feedback control, and values of contracts. Those that are not accepted are counted.
    fn receive_control(
        &self,
        session: u64,
        accept: impl FnOnce(&OtherHost, &mut IncomingCompletions) -> bool,
    ) -> Result<(), SystemException> {
        let Some(peer) = self.sender(session) else { return Ok(()) };
        // Acknowledgements do not wait either.
        current::set_connection_dscp(Dscp::EF);
        let mut inbox = peer.inbox.lock();
        let may_send = inbox.of_feedback.take(self.0.now());
        let is_accepted = may_send && inbox.arrivals.as_mut().is_some_and(|arrivals| accept(peer, arrivals));
        drop(inbox);
        if !is_accepted {
            peer.rejected.fetch_add(1, Ordering::Relaxed);
        }
        if !may_send {
            std::thread::sleep(PENALTY);
        }
        Ok(())
    }

    /// The threads of chains, for a call of a peer.
    fn operated(&self, session: u64) -> Result<Option<(OperatedThreads, HostId)>, Refused> {
        let Some(peer) = self.peer_of(session) else {
            return Err(refused(&self.0, Reason::NoSession, "introduce yourself again"));
        };
        let may_ask = peer.inbox.lock().of_threads.take(self.0.now());
        if !may_ask {
            std::thread::sleep(PENALTY);
        }
        let here = self.0.threads.get().cloned();
        let own = |here| OperatedThreads::new(here, Some(self.0.host), RunSource::Peers(self.0.clone()));
        Ok(here.map(|here| (own(here), peer.host)))
    }
}

impl wire::Peer for ForPeers {
    fn introduce(&self, who: &wire::Introduction) -> Result<wire::Welcome, IntroduceError> {
        // A welcome peer waits, too: it could introduce itself again and again.
        std::thread::sleep(PENALTY);
        let peer = self.check(who)?;
        let now = self.0.now();
        let session = u64::from_ne_bytes(random()).max(1);
        let restarted = {
            let mut known = peer.known.lock();
            if known.incarnation != who.incarnation && known.is_alive(now, ALIVE) {
                drop(known);
                let detail = format!("a node of host `{}` is present already", who.host);
                return Err(refused(&self.0, Reason::HostTaken, detail).into());
            }
            let restarted = known.incarnation != who.incarnation;
            if restarted {
                (known.incarnation, known.progress) = (who.incarnation, None);
            }
            known.heard = now;
            restarted
        };
        // Its contact is made at once, not after a pause.
        if let Some(at) = self.0.peers.iter().position(|known| known.host == peer.host) {
            self.0.wakes[at].post();
        }
        let mut inbox = peer.inbox.lock();
        inbox.begin_session();
        inbox.arrivals.iter_mut().for_each(|arrivals| arrivals.begin_session(restarted));
        peer.session.store(session, Ordering::Release);
        Ok(wire::Welcome { who: self.0.introduction(), session })
    }

    fn exchange(&self, session: u64, mine: &wire::Progress) -> Result<wire::Answer, ExchangeError> {
        let received = self.0.now();
        let Some(peer) = self.peer_of(session) else {
            return Err(refused(&self.0, Reason::NoSession, "introduce yourself again").into());
        };
        current::set_connection_dscp(Dscp::EF);
        {
            let mut known = peer.known.lock();
            (known.heard, known.progress) = (received, Some((*mine).into()));
        }
        let (arrived, may_ask) = {
            let mut inbox = peer.inbox.lock();
            (inbox.arrived, inbox.exchanges.take(received))
        };
        if !may_ask {
            std::thread::sleep(PENALTY);
        }
        let state = (&*self.0.progress.lock()).into();
        let link = peer.link.lock().own();
        Ok(wire::Answer { state, received, sent: self.0.now(), arrived, link })
    }

    fn complete(&self, session: u64, what: &wire::Completion, payload: &[u8]) -> Result<(), SystemException> {
        let Some(peer) = self.sender(session) else { return Ok(()) };
        if self.0.system.operations.get(what.target as usize).is_some_and(|target| target.critical) {
            // Acknowledgements of critical completions do not wait either.
            current::set_connection_dscp(Dscp::EF);
        }
        if !self.0.hops.agree(what, || *self.0.progress.lock()) {
            peer.rejected.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        if !receive(peer, self.0.now(), what, payload) {
            std::thread::sleep(PENALTY);
        }
        Ok(())
    }

    fn replicate(&self, session: u64, what: &wire::Output, payload: &[u8]) -> Result<(), SystemException> {
        let Some(peer) = self.sender(session) else { return Ok(()) };
        let output = ArrivedOutput {
            operation: OperationId(what.source),
            number: what.number,
            leg: what.leg,
            sender_release: what.release,
            release: peer.to_own(what.release),
        };
        let accepted = |arrivals: &mut IncomingCompletions, _: &mut u64| arrivals.replicate(output, payload).is_ok();
        if !accept(peer, self.0.now(), &peer.outputs.received, accepted) {
            std::thread::sleep(PENALTY);
        }
        Ok(())
    }

    fn retime(&self, session: u64, rates: &[wire::AdaptedRate]) -> Result<(), SystemException> {
        let rate = |one: &wire::AdaptedRate| (OperationId(one.operation), Span::from_nanos(one.period));
        let rates: Vec<_> = rates.iter().map(rate).collect();
        self.receive_control(session, |_, arrivals| arrivals.retime(&rates).is_ok())
    }

    fn sample(&self, session: u64, samples: &[wire::GroupSample]) -> Result<(), SystemException> {
        let sample = |one: &wire::GroupSample| GroupSample {
            processor: ProcessorId(one.processor),
            number: one.number,
            utilisation: one.measured.then_some(one.utilisation),
        };
        let samples: Vec<_> = samples.iter().map(sample).collect();
        self.receive_control(session, |peer, arrivals| arrivals.sample(&samples, |at| peer.to_own(at)).is_ok())
    }

    fn update_contracts(&self, session: u64, updates: &[wire::ContractUpdate]) -> Result<(), SystemException> {
        let updates: Vec<_> = updates.iter().map(|one| (one.route, one.value)).collect();
        self.receive_control(session, |_, arrivals| arrivals.update_contracts(&updates).is_ok())
    }

    fn keep(&self, session: u64) -> Result<(), SystemException> {
        if self.peer_of(session).is_none() {
            self.0.strangers.refuse(self.0.now());
        }
        Ok(())
    }

    fn leave(&self, session: u64) -> Result<(), SystemException> {
        // A peer leaves once.
        self.0.strangers.delay(self.0.now());
        if let Some(peer) = self.peer_of(session) {
            peer.session.store(0, Ordering::Release);
            {
                let mut known = peer.known.lock();
                known.heard = 0;
                peer.session_over(&mut known);
            }
            self.0.stands(peer, PeerLink::Lost, ENDED);
        }
        Ok(())
    }

    fn threads_here(&self, session: u64, of: &wire::ThreadRef) -> Result<wire::ThreadStates, wire::ThreadsHereError> {
        let Some((operated, _)) = self.operated(session)? else { return Ok(wire::ThreadStates::default()) };
        let Some((run, of)) = operated.of_peer(of) else { return Ok(wire::ThreadStates::default()) };
        Ok(operated.states_here(&run, of))
    }

    fn cancel_here(
        &self,
        session: u64,
        which: &wire::ThreadRef,
    ) -> Result<wire::CancelledThread, wire::CancelHereError> {
        let Some((operated, by)) = self.operated(session)? else { return Ok(wire::CancelledThread::default()) };
        let thread = operated.of_peer(which).and_then(|(_, thread)| thread);
        Ok(thread.map(|thread| operated.cancel_here(thread, Some(by))).unwrap_or_default())
    }

    fn describe(&self) -> Result<String, SystemException> {
        self.0.strangers.delay(self.0.now());
        Ok(self.0.text.clone())
    }
}

/// The state of a node.
pub(crate) fn node_standing(shared: &NodeState, machine: Option<u32>) -> wire::NodeStanding {
    let (now, progress) = (shared.now(), *shared.progress.lock());
    let here = |id: &ProcessorId| shared.system.processor(*id).host == shared.host;
    let processors = shared.system.processor_ids().filter(here);
    wire::NodeStanding {
        system: shared.system.name.clone(),
        host: shared.name().to_owned(),
        process: std::process::id(),
        gathering: matches!(progress, NodeProgress::Gathering { .. }),
        run: wire::Progress::from(&progress).run,
        running: since_origin(now, &progress).as_nanos(),
        duration: shared.system.duration.as_nanos(),
        refused: shared.strangers.refused(),
        measured: machine.is_some(),
        utilisation: machine.unwrap_or(0),
        processors: processors.map(|id| shared.system.processor(id).name.clone()).collect(),
        peers: shared.peers.iter().map(|peer| standing(peer, now, &progress)).collect(),
    }
}

/// The state of a peer.
pub(crate) fn standing(peer: &OtherHost, now: u64, own: &NodeProgress) -> wire::PeerStanding {
    let missing = peer.inbox.lock().missing();
    let known = peer.known.lock();
    let ahead = known.ahead(now, Some(own));
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let outputs = wire::OutputCounts {
        flushed: count(&peer.outputs.flushed),
        unsent: count(&peer.outputs.unsent),
        late: count(&peer.outputs.late),
        latest: count(&peer.outputs.latest),
        lateness: count(&peer.outputs.lateness),
        received: count(&peer.outputs.received),
    };
    wire::PeerStanding {
        host: peer.name.clone(),
        state: known.link.word().to_owned(),
        because: known.because.clone(),
        since: now.saturating_sub(known.since),
        compared: ahead.is_some(),
        offset: ahead.map_or(0, |ahead| ahead.offset),
        error: ahead.map_or(0, |ahead| ahead.error),
        sent: count(&peer.sent),
        unsent: count(&peer.unsent),
        unconfirmed: count(&peer.unconfirmed) + known.overdue,
        missing,
        received: count(&peer.received),
        rejected: count(&peer.rejected),
        outputs,
        joined: known.joined,
    }
}
