//! Two hosts, and nodes of them.

#[path = "../../../os/tests/common/loopback.rs"]
mod loopback;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant as WallClock};

use hyoshi_model::{HostId, Instant, ProcessorId, Span, System, read, write};
use hyoshi_node::{Agreed, NodeError, NodePeers, NodeSettings};
use hyoshi_os::{Interrupt, Wake};
use hyoshi_runtime::{Finished, Node, Prepared, RunningNode};
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::TraceEvent;

pub use loopback::unused_address;

/// A folder of this test's own, for sockets.
pub fn folder() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("hyoshi-node-{}-{number}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    folder
}

/// `drone` senses every 10 ms, `station` recognises.
pub fn text(drone: &str, station: &str, duration: &str) -> String {
    format!(
        r#"
        name = "uav"
        duration = "{duration}"
        [host.drone]
        endpoints = ["{drone}"]
        [host.station]
        endpoints = ["{station}"]
        [processor.airframe]
        host = "drone"
        [processor.ground]
        host = "station"
        [operation.sense]
        on = "airframe"
        every = "10ms"
        wcet = "0.1ms"
        payload = "8B"
        critical = true
        [operation.recognise]
        on = "ground"
        after = {{ all = ["sense"] }}
        wcet = "0.1ms"
        critical = true
        [operation.watch]
        on = "ground"
        every = "5ms"
        wcet = "0.1ms"
        critical = true
        "#
    )
}

pub const DRONE: HostId = HostId(0);
pub const STATION: HostId = HostId(1);

pub fn system(text: &str) -> Arc<System> {
    Arc::new(read(text, "uav.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system)
}

/// The digest by which nodes of a system know each other.
pub fn digest(system: &System) -> [u8; 32] {
    use ring::digest::{SHA256, digest};
    digest(&SHA256, write(system).as_bytes()).as_ref().try_into().unwrap()
}

/// The node of one host.
pub struct Host {
    pub system: Arc<System>,
    pub node: Option<Prepared>,
    pub peers: NodePeers,
    pub interrupt: Interrupt,
}

pub fn settings(system: &Arc<System>, host: HostId, wait: Span) -> NodeSettings {
    let interrupt = Interrupt::manual(Arc::new(Wake::new()));
    NodeSettings {
        system: system.clone(),
        text: write(system),
        host,
        wait,
        cpu: None,
        tls: None,
        carrier: None,
        control: None,
        events: None,
        interrupt,
    }
}

impl Host {
    pub fn start(text: &str, host: HostId, wait: Span) -> Result<Host, NodeError> {
        Host::with(text, host, |settings| NodeSettings { wait, ..settings })
    }

    pub fn with(
        text: &str,
        host: HostId,
        change: impl FnOnce(NodeSettings) -> NodeSettings,
    ) -> Result<Host, NodeError> {
        let system = system(text);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let node = Node::for_host(system.clone(), plan, host);
        let node = node.body("sense", |job| {
            let number = job.job().number;
            job.emit_value(&number).unwrap();
        });
        let node = node.body("recognise", |job| {
            let number: u64 = job.read().expect("every sensing emits");
            assert_eq!(number, job.job().number);
        });
        let mut node = node.prepare().unwrap();
        let settings = change(settings(&system, host, Span::from_secs(20)));
        let interrupt = settings.interrupt.clone();
        let peers = NodePeers::start(settings, &mut node);
        match peers {
            Ok(peers) => Ok(Host { system, node: Some(node), peers, interrupt }),
            Err(error) => {
                node.abandon();
                Err(error)
            }
        }
    }

    pub fn agree(&self) -> Result<Agreed, NodeError> {
        self.peers.agree(|_| ())
    }

    /// Begins its part of the run.
    pub fn begin(&mut self, agreed: &Agreed) -> RunningNode {
        self.node.take().unwrap().begin(agreed.clock)
    }
}

/// A run to its end.
pub fn finish(running: RunningNode, mut sink: impl FnMut(ProcessorId, Instant, TraceEvent)) -> Finished {
    running.wait(&mut |processor, at, event| sink(processor, at, event))
}

/// Waits until something holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = WallClock::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what} took more than a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}
