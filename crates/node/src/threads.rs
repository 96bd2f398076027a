//! The distributable threads of a run for operators: on this host and, through its peers, on the others.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use hyoshi_model::{Chain, ChainCarrier, HostId, Instant, OperationId, Span, System, ThreadGraph};
use hyoshi_orb::rt::{RequestTiming, ThreadId, machine_clock, timing};
use hyoshi_os::{Clock, MonotonicClock};
use hyoshi_runtime::{CancelOutcome, ChainThread, ChainThreads, SegmentState, ThreadSegment};
use hyoshi_trace::Signal;

use crate::agreement::NodeProgress;
use crate::contact::PeerStubs;
use crate::idl::hyoshi_node as wire;
use crate::idl::hyoshi_node::{CancelFound, Peer as _, ThreadRefused};
use crate::peer::OtherHost;
use crate::shared::NodeState;

/// The most segments in an answer.
const MOST: usize = 256;
/// A peer answers within this time, or counts as silent.
const PATIENCE: Span = Span::from_millis(500);
/// A thread that is between two hosts arrives within this time and the delay of their link.
const ON_ITS_WAY: Span = Span::from_millis(20);
/// Between two looks for such a thread.
const AGAIN: Span = Span::from_millis(1);
/// Delays of links beyond this are not waited for.
const MOST_DELAY: Span = Span::from_millis(900);

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct OperatedThreads {
    here: ChainThreads,
    /// The host of this process; `None` if it runs all.
    host: Option<HostId>,
    run: RunSource,
}

/// Where the run's id comes from.
#[derive(Clone, Debug)]
pub(crate) enum RunSource {
    /// The agreement with the peers.
    Peers(Arc<NodeState>),
    /// Set at the begin of a run of all hosts.
    Begun(Arc<OnceLock<(MonotonicClock, [u8; 16])>>),
}

fn refused(why: impl Into<String>, remedy: impl Into<String>) -> ThreadRefused {
    ThreadRefused { why: why.into(), remedy: remedy.into() }
}

/// The first octets of a run's id, which are in the ids of its threads.
pub(crate) fn begin_of(run: &[u8; 16]) -> u32 {
    u32::from_be_bytes([run[0], run[1], run[2], run[3]])
}

/// The id of a thread of a run.
pub(crate) fn thread_id(run: u32, thread: ChainThread) -> ThreadId {
    ThreadId { origin: (u64::from(run) << 32) | u64::from(thread.root.0), number: thread.number }
}

/// The same for operators and peers.
fn reference(run: &[u8; 16], thread: ChainThread) -> wire::ThreadRef {
    let ThreadId { origin, number } = thread_id(begin_of(run), thread);
    wire::ThreadRef { origin, number }
}

/// The thread of this run with an id.
fn resolve(graphs: &[ThreadGraph], run: &[u8; 16], id: &wire::ThreadRef) -> Option<ChainThread> {
    let root = OperationId(id.origin as u32);
    let is_root = graphs.iter().any(|graph| graph.root == root);
    let is_here = (id.origin >> 32) as u32 == begin_of(run) && is_root;
    is_here.then_some(ChainThread { root, number: id.number })
}

fn graph_of(threads: &ChainThreads, thread: ChainThread) -> Option<&ThreadGraph> {
    threads.graphs().iter().find(|graph| graph.root == thread.root)
}

impl OperatedThreads {
    pub fn new(here: ChainThreads, host: Option<HostId>, run: RunSource) -> Self {
        OperatedThreads { here, host, run }
    }

    /// True if the file has a chain carried by threads.
    pub fn any(&self) -> bool {
        self.here.any()
    }

    fn run(&self) -> Option<[u8; 16]> {
        match &self.run {
            RunSource::Peers(shared) => match *shared.progress.lock() {
                NodeProgress::Running(run) => Some(run.id),
                NodeProgress::Gathering { .. } => None,
            },
            RunSource::Begun(begun) => begun.get().map(|(_, run)| *run),
        }
    }

    /// The run's id, and the thread.
    fn find(&self, id: &wire::ThreadRef) -> Result<([u8; 16], ChainThread), ThreadRefused> {
        let Some(run) = self.run() else {
            return Err(refused("the run has not begun", "wait until all hosts have joined"));
        };
        let thread = resolve(self.here.graphs(), &run, id).ok_or_else(|| {
            refused("the thread belongs to another run", "`hyoshi threads list` lists the live threads of this run")
        })?;
        Ok((run, thread))
    }

    /// The live segments of all threads; with an origin, those of that thread, and the ended ones.
    pub fn states(&self, of: &wire::ThreadRef) -> Result<wire::ThreadStates, ThreadRefused> {
        let of = if of.origin == 0 { None } else { Some(self.find(of)?.1) };
        let Some(run) = self.run() else { return Ok(wire::ThreadStates::default()) };
        let mut states = self.states_here(&run, of);
        for (peer, stubs) in self.joined() {
            let session = peer.sends_as.load(Ordering::Acquire);
            let which = of.map_or_else(wire::ThreadRef::default, |thread| reference(&run, thread));
            let answer = stub_of(stubs, peer).map(|stub| stub.threads_here(session, &which));
            match answer {
                Some(Ok(there)) => {
                    let room = MOST.saturating_sub(states.segments.len());
                    states.segments.extend(there.segments.into_iter().take(room));
                    states.all = states.all.saturating_add(there.all);
                }
                _ => states.silent.push(peer.name.clone()),
            }
        }
        states.silent.extend(self.absent());
        let system = self.here.system();
        match of.and_then(|thread| graph_of(&self.here, thread)) {
            Some(graph) => states.segments.sort_by_key(|segment| {
                graph.operations.iter().position(|id| system.operation(*id).name == segment.operation)
            }),
            None => states.segments.sort_by_key(|segment| segment.left),
        }
        Ok(states)
    }

    /// The same of this host.
    pub fn states_here(&self, run: &[u8; 16], of: Option<ChainThread>) -> wire::ThreadStates {
        let (segments, all) = match of {
            None => self.here.live(MOST),
            Some(thread) => {
                let mut segments = self.here.segments(thread);
                segments.truncate(MOST);
                let live = segments.iter().filter(|segment| segment.state != SegmentState::Ended).count();
                (segments, live)
            }
        };
        let now = self.here.now().unwrap_or_default();
        let segments = segments.iter().map(|one| segment(&self.here, run, now, one)).collect();
        wire::ThreadStates { segments, all: all as u64, silent: Vec::new() }
    }

    /// Cancels a thread, wherever its head is.
    pub fn cancel(&self, id: &wire::ThreadRef) -> Result<wire::CancelledThread, ThreadRefused> {
        let (run, thread) = self.find(id)?;
        let system = self.here.system();
        let graph = graph_of(&self.here, thread);
        let parts = graph.is_some_and(|graph| graph.operations.len() > graph.chain.path.len());
        let mut hosts: Vec<HostId> = Vec::new();
        let operations = graph.iter().flat_map(|graph| &graph.operations);
        for host in operations.map(|id| system.processor(system.operation(*id).on).host) {
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let delay = system.links.iter().map(|link| link.delay.1).max().unwrap_or_default().min(MOST_DELAY);
        let clock = MonotonicClock::start();
        let until = clock.now() + ON_ITS_WAY + delay;
        loop {
            // In the order of the path: else the head could move from a host not yet asked to one already asked.
            let (mut found, mut silent) = (wire::CancelledThread::default(), Vec::new());
            for host in &hosts {
                match self.cancel_on(*host, &reference(&run, thread), thread) {
                    Some(there) if there.found == CancelFound::Busy => {
                        found = there;
                        break;
                    }
                    // Only the host of the first operation knows.
                    Some(there) if there.found == CancelFound::NotBegun && hosts.first() == Some(host) => {
                        found = there;
                        break;
                    }
                    // All hosts are asked: where paths part, the thread is on several of them.
                    Some(there) if matches!(there.found, CancelFound::Segment | CancelFound::Hop) => {
                        if found.found != CancelFound::Segment {
                            found = there;
                        }
                    }
                    Some(_) => {}
                    None => silent.push(system.hosts[host.index()].name.clone()),
                }
            }
            match found.found {
                CancelFound::Segment | CancelFound::Hop if parts && !silent.is_empty() => {
                    let why = format!(
                        "cancelled, but a part may continue on host {}, which does not answer",
                        silent.join(", ")
                    );
                    return Err(refused(why, "`hyoshi node show` shows the state of the other hosts"));
                }
                CancelFound::Segment | CancelFound::Hop => return Ok(found),
                CancelFound::NotBegun => {
                    let why = format!("the thread has not begun: `{}` was released less often", found.operation);
                    return Err(refused(why, "`hyoshi threads list` lists the live threads"));
                }
                CancelFound::Busy => {
                    let why = format!("host `{}` cancelled too many threads within a second", found.host);
                    return Err(refused(why, "cancel it again in a second"));
                }
                CancelFound::Absent if clock.now() >= until => {
                    let absent = "the thread is not alive: it has ended";
                    return Err(match &silent[..] {
                        [] => refused(absent, "`hyoshi threads list` lists the live threads"),
                        hosts => refused(
                            format!("{absent}, or is on host {}, which does not answer", hosts.join(", ")),
                            "`hyoshi node show` shows the state of the other hosts",
                        ),
                    });
                }
                CancelFound::Absent => clock.sleep_until(clock.now() + AGAIN),
            }
        }
    }

    /// `None` if the host does not answer.
    fn cancel_on(&self, host: HostId, id: &wire::ThreadRef, thread: ChainThread) -> Option<wire::CancelledThread> {
        if self.host.is_none_or(|here| here == host) {
            return Some(self.cancel_here(thread, None));
        }
        let (peer, stubs) = self.joined().find(|(peer, _)| peer.host == host)?;
        let session = peer.sends_as.load(Ordering::Acquire);
        stub_of(stubs, peer)?.cancel_here(session, id).ok()
    }

    /// Cancels it on this host, for the other host `by` or for an operator here.
    pub fn cancel_here(&self, thread: ChainThread, by: Option<HostId>) -> wire::CancelledThread {
        let system = self.here.system();
        let of = |id: OperationId| {
            let operation = system.operation(id);
            let host = &system.hosts[system.processor(operation.on).host.index()];
            (operation.name.clone(), host.name.clone())
        };
        let (found, operation) = match self.here.cancel(thread, by) {
            CancelOutcome::Absent => (CancelFound::Absent, None),
            CancelOutcome::Busy => (CancelFound::Busy, Some(thread.root)),
            CancelOutcome::NotBegun => (CancelFound::NotBegun, Some(thread.root)),
            CancelOutcome::Dropped(operation) => (CancelFound::Hop, Some(operation)),
            CancelOutcome::Cancelled(operation) => (CancelFound::Segment, Some(operation)),
        };
        let (operation, host) = operation.map(of).unwrap_or_default();
        wire::CancelledThread { found, operation, host }
    }

    /// For a peer's call: the thread with an id of this run.
    pub fn of_peer(&self, id: &wire::ThreadRef) -> Option<([u8; 16], Option<ChainThread>)> {
        let run = self.run()?;
        if id.origin == 0 {
            return Some((run, None));
        }
        resolve(self.here.graphs(), &run, id).map(|thread| (run, Some(thread)))
    }

    fn shared(&self) -> Option<&Arc<NodeState>> {
        match &self.run {
            RunSource::Peers(shared) => Some(shared),
            RunSource::Begun(_) => None,
        }
    }

    /// The peers on paths of threads.
    fn peers(&self) -> impl Iterator<Item = (usize, &OtherHost)> {
        let system = self.here.system();
        let on_path = |peer: &OtherHost| {
            let mut ids = self.here.graphs().iter().flat_map(|graph| &graph.operations);
            ids.any(|id| system.processor(system.operation(*id).on).host == peer.host)
        };
        let all = self.shared().into_iter().flat_map(|shared| shared.peers.iter().enumerate());
        all.filter(move |(_, peer)| on_path(peer))
    }

    /// Those that have joined the run.
    fn joined(&self) -> impl Iterator<Item = (&OtherHost, &PeerStubs)> {
        self.peers().filter_map(|(at, peer)| {
            let joined = peer.sends_as.load(Ordering::Acquire) != 0;
            let stubs = self.shared()?.dials.get(at)?.get()?;
            joined.then_some((peer, &**stubs))
        })
    }

    /// The names of the others.
    fn absent(&self) -> impl Iterator<Item = String> {
        let absent = |peer: &OtherHost| peer.sends_as.load(Ordering::Acquire) == 0;
        self.peers().filter(move |(_, peer)| absent(peer)).map(|(_, peer)| peer.name.clone())
    }
}

/// The parameters of threads that move to another host: each hop carries them in context 30.
#[derive(Debug)]
pub(crate) struct HopParameters {
    /// By operation that a thread moves to.
    hops: Vec<Option<HopTiming>>,
}

/// The same at every hop to one operation.
#[derive(Clone, Copy, Debug)]
struct HopTiming {
    root: OperationId,
    /// Of the chain.
    deadline: Option<Span>,
    execution: Span,
    importance: u32,
    critical: bool,
}

impl HopParameters {
    pub fn of(system: &System) -> Self {
        let mut hops = vec![None; system.operations.len()];
        // The longest deadline, where paths part.
        let mut chains: Vec<&Chain> =
            system.chains.iter().filter(|chain| chain.carried_by == ChainCarrier::Thread).collect();
        chains.sort_by_key(|chain| chain.deadline.map_or(u64::MAX, Span::as_nanos));
        for chain in chains {
            for id in chain.path.iter().skip(1) {
                let operation = system.operation(*id);
                hops[id.index()] = Some(HopTiming {
                    root: chain.path[0],
                    deadline: chain.deadline,
                    execution: system.setting(0, *id).wcet,
                    importance: operation.importance,
                    critical: operation.critical,
                });
            }
        }
        HopParameters { hops }
    }

    /// The timing of a completion that moves a thread; `None` of another one, and before the run.
    pub fn timing(&self, signal: &Signal, progress: impl FnOnce() -> NodeProgress) -> Option<RequestTiming> {
        let hop = self.hops[signal.to.index()]?;
        let NodeProgress::Running(run) = progress() else { return None };
        let origin = signal.origin.as_nanos().saturating_add_signed(run.origin);
        let thread = ChainThread { root: hop.root, number: signal.number };
        Some(RequestTiming {
            clock: machine_clock(),
            // Set when it is sent.
            sent: origin,
            origin,
            deadline: hop.deadline.map_or(u64::MAX, |deadline| origin.saturating_add(deadline.as_nanos())),
            execution: hop.execution.as_nanos(),
            importance: hop.importance,
            critical: hop.critical,
            thread: thread_id(begin_of(&run.id), thread),
        })
    }

    /// False if a completion moves a thread, but the request that this thread serves names another one.
    pub fn agree(&self, what: &wire::Completion, progress: impl FnOnce() -> NodeProgress) -> bool {
        let hop = self.hops.get(what.target as usize).copied().flatten();
        let Some((hop, carried)) = hop.and_then(|hop| Some((hop, timing()?))) else { return true };
        let NodeProgress::Running(run) = progress() else { return true };
        let number = what.number;
        let expected = thread_id(begin_of(&run.id), ChainThread { root: hop.root, number });
        carried.thread.is_none() || carried.thread == expected
    }
}

/// The object of a peer at the endpoint of its session.
fn stub_of(stubs: &PeerStubs, peer: &OtherHost) -> Option<wire::PeerStub> {
    let at = peer.sends_at.load(Ordering::Acquire);
    stubs.endpoints.get(at).map(|(_, stub)| stub.as_ref().within(PATIENCE))
}

fn segment(threads: &ChainThreads, run: &[u8; 16], now: Instant, one: &ThreadSegment) -> wire::ThreadSegment {
    let system = threads.system();
    let operation = system.operation(one.operation);
    let processor = system.processor(operation.on);
    let chain = graph_of(threads, one.thread).map(|graph| &graph.chain);
    let between = |from: Instant, to: Instant| {
        let span = |span: Span| i64::try_from(span.as_nanos()).unwrap_or(i64::MAX);
        if to >= from { span(to.since(from)) } else { -span(from.since(to)) }
    };
    wire::ThreadSegment {
        thread: reference(run, one.thread),
        chain: chain.map_or_else(String::new, |chain| chain.name.clone()),
        operation: operation.name.clone(),
        host: system.hosts[processor.host.index()].name.clone(),
        processor: processor.name.clone(),
        state: match one.state {
            SegmentState::Held => wire::SegmentState::Held,
            SegmentState::Waiting => wire::SegmentState::Waiting,
            SegmentState::Running => wire::SegmentState::Running,
            SegmentState::Blocked => wire::SegmentState::Blocked,
            SegmentState::Demoted => wire::SegmentState::Demoted,
            SegmentState::Ended => wire::SegmentState::Ended,
        },
        cancelled: one.is_cancelled,
        age: between(one.release, now),
        left: between(now, one.deadline),
        used: one.used.as_nanos(),
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::read;
    use hyoshi_orb::rt::carrying;

    use super::*;
    use crate::agreement::AgreedRun;
    use crate::carrier::completion;

    const SYSTEM: &str = r#"
        name = "hops"
        [operation.other]
        every = "10ms"
        wcet = "0.1ms"
        [operation.first]
        every = "10ms"
        wcet = "0.1ms"
        [operation.second]
        after = { all = ["first"] }
        wcet = "0.2ms"
        importance = 3
        critical = true
        [operation.log]
        after = { all = ["first"] }
        wcet = "0.1ms"
        [chain.both]
        path = ["first", "second"]
        deadline = "8ms"
        carried_by = "thread"
    "#;

    #[test]
    fn a_hop_carries_its_threads_parameters_and_a_forged_id_is_noticed() {
        let system = read(SYSTEM, "hops.toml", None).unwrap().system;
        let (hops, mut id) = (HopParameters::of(&system), [0; 16]);
        id[..4].copy_from_slice(&[0x5f, 0x1c, 0x9a, 0x22]);
        let run = || NodeProgress::Running(AgreedRun { id, origin: 1_000 });
        let at = Instant::from_nanos(500);
        let to = |to, number| Signal {
            from: OperationId(1),
            to: OperationId(to),
            position: 0,
            number,
            origin: at,
            period: Span::ZERO,
            due: at,
            ticket: None,
        };
        let timing = hops.timing(&to(2, 0x1a7), run).unwrap();
        assert_eq!(timing.thread.to_string(), "5f1c9a2200000001-1a7");
        assert_eq!((timing.origin, timing.deadline, timing.execution), (1_500, 8_001_500, 200_000));
        assert_eq!((timing.importance, timing.critical), (3, true));
        assert_eq!(hops.timing(&to(3, 0x1a7), run), None, "the log is beside the thread");
        assert_eq!(hops.timing(&to(2, 0), || NodeProgress::Gathering { impatient: false }), None);
        let agree = |what: Signal| carrying(timing, || hops.agree(&completion(&what), run));
        assert!(agree(to(2, 0x1a7)) && agree(to(3, 0x1a8)) && agree(to(u32::MAX, 0)));
        assert!(!agree(to(2, 0x1a8)), "it names another thread");
        assert!(hops.agree(&completion(&to(2, 0x1a8)), run), "it names none");
        // Ids of another run, of an operation that begins no thread, and of none.
        let graphs = system.thread_graphs();
        let resolved = |origin, number| resolve(&graphs, &id, &wire::ThreadRef { origin, number });
        assert_eq!(resolved(0x5f1c_9a22_0000_0001, 7), Some(ChainThread { root: OperationId(1), number: 7 }));
        for foreign in [0x5f1c_9a23_0000_0001, 0x5f1c_9a22_0000_0000, 0x5f1c_9a22_0000_0002, 0x5f1c_9a22_ffff_ffff, 0] {
            assert_eq!(resolved(foreign, 7), None);
        }
    }
}
