//! Distributable threads with a peer that does not know them: its requests start threads, and it may be a hop.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use hyoshi_interop::peers::{Callback, FailError, Peer as PeerInterface};
use hyoshi_interop::serve_within;
use hyoshi_orb::rt::{self, ThreadId, threads};
use hyoshi_orb::{Around, Completed, Invoked, ObjectRef, Orb, SystemException, SystemKind};

use crate::orbs::Peer;
use crate::process::{self, Server};

/// Runs each request in a segment of a thread.
#[derive(Clone, Default)]
struct InSegment(Arc<Mutex<Vec<ThreadId>>>);

impl Around for InSegment {
    fn around<R>(&self, call: &Invoked<'_>, run: impl FnOnce() -> R) -> R {
        assert_eq!(threads::id(), None, "its client sends no thread");
        let segment = threads::segment(call.operation.name, None).expect("few threads run");
        let timing = rt::timing().expect("within a segment");
        assert_eq!((timing.deadline, timing.importance, timing.critical), (u64::MAX, 0, false), "the defaults");
        self.0.lock().unwrap().push(timing.thread);
        let outcome = run();
        segment.end().expect("no one cancels it");
        outcome
    }
}

#[test]
fn every_request_of_an_omniorb_client_starts_a_thread_with_the_defaults() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let started = InSegment::default();
    let peer = serve_within(&orb, started.clone()).unwrap();
    let mut client = Peer::OmniOrb.client(omniorb, &peer.ior().to_string(), None);
    client.args(["--ordered", "--codes"]);
    process::run(client, String::new);
    let ids = started.0.lock().unwrap();
    assert!(ids.len() > 100, "{} requests", ids.len());
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert!(ids.iter().all(|id| threads::lookup(*id).is_none()));
    orb.shutdown();
}

/// Is called back by the peer; may cancel the thread that called it.
#[derive(Default)]
struct CalledBack {
    cancels: Mutex<Option<threads::DistributableThread>>,
}

impl Callback for CalledBack {
    fn call(&self, what: &str) -> Result<String, SystemException> {
        assert_eq!(threads::id(), None, "the peer does not pass the thread on");
        let own = self.cancels.lock().unwrap().take();
        own.map_or(Ok(()), |own| own.cancel())?;
        Ok(format!("[{what}]"))
    }

    fn descend(&self, _: Option<&ObjectRef>, _: u32) -> Result<u32, SystemException> {
        Ok(0)
    }

    fn fail(&self, _: &str) -> Result<(), FailError> {
        Ok(())
    }

    fn tell(&self, _: u32) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn omniorb_is_a_hop_and_its_calls_are_ordinary_requests() {
    let Some(omniorb) = Peer::OmniOrb.built() else { return };
    let server = Server::start(Peer::OmniOrb.server(omniorb));
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let peer = orb.resolve::<dyn PeerInterface>(&server.reference).unwrap();
    let servant = Arc::new(CalledBack::default());
    let callback = orb.adapter("callbacks").build().unwrap().activate::<dyn Callback>(servant.clone()).unwrap();
    let segment = threads::segment("root", None).unwrap();
    let own = threads::current().unwrap();
    assert_eq!(peer.call_back(Some(&callback), "hi").unwrap(), "[hi]", "{}", server.log());
    assert_eq!(threads::id(), Some(own.id()));
    // Cancelled while its head is away: the peer ignores the CancelRequest, and its reply ends the call.
    *servant.cancels.lock().unwrap() = Some(own.clone());
    let SystemException { kind, completed, .. } = peer.call_back(Some(&callback), "hi").unwrap_err();
    assert_eq!((kind, completed), (SystemKind::ThreadCancelled, Completed::Yes));
    assert!(segment.end().is_err() && threads::id().is_none());
    // The connection serves the next calls.
    assert_eq!(peer.call_back(Some(&callback), "hi").unwrap(), "[hi]");
    orb.shutdown();
}
