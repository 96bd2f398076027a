//! Thread pools (Real-time CORBA 1.2, section 5.11), whose lanes are those of the ORB with a priority.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyoshi_model::Span;
use hyoshi_os::ThreadPolicy;
use hyoshi_wire::SystemException;
use hyoshi_wire::ior::IorEndpoint;

use super::lanes::{LaneInPool, LanePlaces};
use super::{Orb, OrbError, Running};
use crate::endpoint::{ListenError, Listening};
use crate::rt::current::Home;
use crate::rt::{LanePlace, PoolLane, PoolPlaces, Priority, ThreadpoolId};
use crate::server::{Buffer, Lane, LaneOptions, MOST_BUFFERED, RequestBuffer};

/// The threads of a lane, or of a pool without lanes.
///
/// Dynamic threads are started together with the static ones: a new thread has no real-time priority at first, so it might
/// never run beside those of the lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadpoolLane {
    /// The priority of its threads between requests, and of its clients' requests. Of a pool without lanes only the former.
    pub priority: Priority,
    /// Threads of the lane.
    pub static_threads: usize,
    /// Further threads of the lane.
    pub dynamic_threads: usize,
    /// Endpoints, as for [`OrbBuilder::listen`](crate::OrbBuilder::listen). By default one beside the ORB's first: the
    /// same host and transport, at a port that the system chooses.
    pub listen: Vec<String>,
    /// How long its threads poll for clients before they sleep; default 0
    /// ([`LaneOptions::busy_poll`](crate::LaneOptions::busy_poll)).
    pub busy_poll: Span,
}

/// The settings of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadpoolOptions {
    /// Octets of each thread's stack; default 256 KiB, at least 64 KiB.
    pub stack: usize,
    /// If all threads of a lane are busy, idle threads of lower lanes serve its clients, at its priority; default false.
    /// Only of pools with lanes.
    pub allow_borrowing: bool,
    /// Requests that find no idle thread wait in memory, within these limits; default `None`: they wait in their sockets. It
    /// costs a change of threads for each request, and one thread more for each lane, which reads.
    pub buffering: Option<RequestBuffer>,
}

impl Default for ThreadpoolOptions {
    fn default() -> Self {
        ThreadpoolOptions { stack: LaneOptions::default().stack, allow_borrowing: false, buffering: None }
    }
}

/// The reason why a thread pool was not created or destroyed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ThreadpoolError {
    /// A pool needs a lane.
    NoLanes,
    /// A lane needs a thread.
    NoThreads(Priority),
    /// Two lanes have this priority.
    SamePriority(Priority),
    /// The priority mapping has no native priority for it.
    NotMapped(Priority),
    /// A pool whose lanes borrow threads cannot buffer requests, which wait for the lane's own threads.
    BorrowsAndBuffers,
    /// The ORB has no endpoint, and the lane none of its own.
    NoEndpoint(Priority),
    /// A text that is not an endpoint.
    Endpoint(ListenError),
    /// The lane cannot listen, or has no threads.
    Orb(OrbError),
    /// The ORB has no such pool.
    InvalidThreadpool(ThreadpoolId),
    /// An adapter uses the pool.
    InUse(ThreadpoolId, String),
    /// The ORB was shut down.
    Gone,
}

impl fmt::Display for ThreadpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadpoolError::NoLanes => f.write_str("the thread pool has no lanes: add one"),
            ThreadpoolError::NoThreads(priority) => {
                write!(f, "the thread pool's lane of priority {priority} has no threads: add a static one")
            }
            ThreadpoolError::SamePriority(priority) => {
                write!(f, "two lanes of the thread pool have priority {priority}: merge them")
            }
            ThreadpoolError::NotMapped(priority) => {
                write!(f, "CORBA priority {priority}: the priority mapping has no native priority for it")
            }
            ThreadpoolError::BorrowsAndBuffers => {
                f.write_str("a thread pool cannot both borrow threads and buffer requests: choose one")
            }
            ThreadpoolError::NoEndpoint(priority) => {
                write!(
                    f,
                    "neither the lane of priority {priority} nor the ORB has an endpoint: set ThreadpoolLane::listen"
                )
            }
            ThreadpoolError::Endpoint(error) => error.fmt(f),
            ThreadpoolError::Orb(error) => error.fmt(f),
            ThreadpoolError::InvalidThreadpool(id) => write!(f, "the ORB has no thread pool {id}"),
            ThreadpoolError::InUse(id, adapter) => {
                write!(f, "thread pool {id} serves the adapter \"{adapter}\": destroy the adapter first")
            }
            ThreadpoolError::Gone => f.write_str("the ORB is shut down"),
        }
    }
}

impl std::error::Error for ThreadpoolError {}

/// An ORB's parts of Real-time CORBA ([`Orb::rt`]).
#[derive(Clone, Debug)]
pub struct RtOrb {
    orb: Orb,
}

impl RtOrb {
    pub(super) fn new(orb: Orb) -> Self {
        RtOrb { orb }
    }

    /// Creates a pool without lanes. Its threads have the priority of `threads` between requests
    /// (`default_priority` in the standard).
    ///
    /// # Errors
    ///
    /// As [`create_threadpool_with_lanes`](Self::create_threadpool_with_lanes).
    pub fn create_threadpool(
        &self,
        threads: ThreadpoolLane,
        options: &ThreadpoolOptions,
    ) -> Result<ThreadpoolId, ThreadpoolError> {
        self.create(vec![threads], options, false)
    }

    /// Creates a pool of lanes. Each has its own endpoint, connections, buffers and threads, at its own priority; lanes
    /// share no lock. Without the privilege for SCHED_FIFO the threads run at normal priority.
    ///
    /// # Errors
    ///
    /// If there are no lanes, a lane has no threads, two lanes have the same priority or one has none that is mapped; if a
    /// lane cannot listen; if the ORB is shut down.
    pub fn create_threadpool_with_lanes(
        &self,
        lanes: &[ThreadpoolLane],
        options: &ThreadpoolOptions,
    ) -> Result<ThreadpoolId, ThreadpoolError> {
        self.create(lanes.to_vec(), options, true)
    }

    /// Ends a pool: waits for running requests, at most [`ServerLimits::ending`](crate::ServerLimits::ending), and closes
    /// its connections.
    ///
    /// # Errors
    ///
    /// If there is no such pool, or an adapter uses it.
    pub fn destroy_threadpool(&self, id: ThreadpoolId) -> Result<(), ThreadpoolError> {
        let running = &self.orb.running.0;
        let users = running.shared.rt.users.lock();
        if let Some(adapter) = running.shared.adapters.user_of(id) {
            return Err(ThreadpoolError::InUse(id, adapter));
        }
        let others =
            |pools: &Arc<Vec<Arc<PoolPlaces>>>| pools.iter().filter(|pool| pool.id != id).cloned().collect::<Vec<_>>();
        let before = running.shared.rt.pools.rcu(others);
        drop(users);
        if !before.iter().any(|pool| pool.id == id) {
            return Err(ThreadpoolError::InvalidThreadpool(id));
        }
        let is_its = |lane: &&Arc<Lane>| lane.pool().is_some_and(|place| place.pool == id);
        let all = running.lanes.rcu(|lanes| lanes.iter().filter(|lane| !is_its(lane)).cloned().collect::<Vec<_>>());
        end(all.iter().filter(is_its), running.end_of_patience());
        Ok(())
    }

    /// The number of requests above the ceiling of their client
    /// ([`priority_ceilings`](crate::OrbBuilder::priority_ceilings)), clamped or refused. It rises.
    pub fn exceeded_ceilings(&self) -> Arc<AtomicU64> {
        self.orb.shared().rt.exceeded.clone()
    }

    /// The number of oneways that this ORB's callers did not send for lack of room
    /// ([`OnewayOverflow::Drop`](crate::rt::OnewayOverflow::Drop)). It rises.
    pub fn dropped_oneways(&self) -> Arc<AtomicU64> {
        self.orb.shared().rt.dropped.clone()
    }

    /// The native priority of a CORBA priority (`RTCORBA::PriorityMapping::to_native`).
    ///
    /// # Errors
    ///
    /// DATA_CONVERSION if the mapping has none.
    pub fn to_native(&self, priority: Priority) -> Result<u8, SystemException> {
        self.orb.shared().rt.native(priority)
    }

    /// The priority that a request of a servant carries, after
    /// [`PriorityTransform::outbound`](crate::rt::PriorityTransform::outbound).
    ///
    /// # Errors
    ///
    /// DATA_CONVERSION if the transform refuses.
    pub fn outbound(&self, priority: Priority, object_id: &[u8]) -> Result<Priority, SystemException> {
        self.orb.shared().rt.outbound(priority, object_id)
    }

    fn create(
        &self,
        mut lanes: Vec<ThreadpoolLane>,
        options: &ThreadpoolOptions,
        has_lanes: bool,
    ) -> Result<ThreadpoolId, ThreadpoolError> {
        let running = &self.orb.running.0;
        let shared = &running.shared;
        lanes.sort_by_key(|lane| lane.priority);
        check(&lanes)?;
        if options.allow_borrowing && options.buffering.is_some() {
            return Err(ThreadpoolError::BorrowsAndBuffers);
        }
        let natives = lanes
            .iter()
            .map(|lane| shared.rt.native(lane.priority).map_err(|_| ThreadpoolError::NotMapped(lane.priority)));
        let natives = natives.collect::<Result<Vec<_>, _>>()?;
        let id = ThreadpoolId(running.pools.fetch_add(1, Ordering::Relaxed));
        let mut bound = Vec::new();
        for lane in &lanes {
            let mut listening = Vec::new();
            for text in &lane.listen {
                listening.push(Listening::parse(text).map_err(ThreadpoolError::Endpoint)?);
            }
            if listening.is_empty() {
                let beside = running.maker.beside.as_ref().ok_or(ThreadpoolError::NoEndpoint(lane.priority))?;
                listening.push(beside.beside(&format!("{id}.{}", lane.priority)));
            }
            bound.push(running.maker.bind(listening).map_err(ThreadpoolError::Orb)?);
        }
        // Before its threads exist, which could keep it off the CPU.
        natives.iter().for_each(|native| shared.housekeeping.outrank(*native));
        let mut made: Vec<Arc<Lane>> = Vec::new();
        let mut places = Vec::new();
        for ((lane, native), bound) in lanes.iter().zip(natives).zip(bound) {
            let priority = has_lanes.then_some(lane.priority.number());
            let endpoints = bound.endpoints.iter().cloned().map(|endpoint| with_priority(endpoint, priority)).collect();
            places.push(LanePlace { priority: lane.priority, endpoints, bound: bound.bound.clone() });
            let lane_options = LaneOptions {
                name: format!("rt{id}-{}", lane.priority),
                threads: lane.static_threads + lane.dynamic_threads,
                policy: ThreadPolicy::Fifo(native),
                stack: options.stack,
                busy_poll: lane.busy_poll,
                ..LaneOptions::default()
            };
            let place = PoolLane { pool: id, priority: lane.priority };
            match make(running, lane_options, bound, place, options.buffering) {
                Ok(lane) => made.push(lane),
                Err(error) => {
                    end(made.iter(), running.end_of_patience());
                    return Err(ThreadpoolError::Orb(OrbError::System(error)));
                }
            }
        }
        if options.allow_borrowing
            && let Err(error) = (1..made.len()).try_for_each(|at| made[at].borrow_from(&made[..at]))
        {
            end(made.iter(), running.end_of_patience());
            return Err(ThreadpoolError::Orb(OrbError::System(error)));
        }
        let pool = Arc::new(PoolPlaces { id, has_lanes, buffers: options.buffering.is_some(), lanes: places });
        shared.rt.pools.rcu(|pools| pools.iter().chain([&pool]).cloned().collect::<Vec<_>>());
        running.lanes.rcu(|all| all.iter().chain(&made).cloned().collect::<Vec<_>>());
        if shared.is_stopped() {
            end(made.iter(), running.end_of_patience());
            return Err(ThreadpoolError::Gone);
        }
        if running.opened.load(Ordering::Acquire) {
            made.iter().for_each(|lane| lane.open());
        }
        Ok(id)
    }
}

fn make(
    running: &Running,
    options: LaneOptions,
    bound: LanePlaces,
    place: PoolLane,
    buffering: Option<RequestBuffer>,
) -> io::Result<Arc<Lane>> {
    let (mut options, mut buffer) = (options, None);
    if let Some(limits) = buffering {
        let home = Home { priority: Some(place.priority), policy: options.policy };
        let workers = options.threads;
        // One more, to be refused.
        let room = limits.requests.saturating_add(workers + 1).min(MOST_BUFFERED);
        buffer = Some((Buffer::start(limits, &options, home)?, room));
        options.threads = 1;
    }
    let started = buffer.as_ref().map(|(buffer, _)| buffer.clone());
    let made = running.maker.make(&running.shared, options, bound, Some(LaneInPool { place, buffer }), true);
    if made.is_err() {
        started.inspect(|buffer| buffer.end());
    }
    made
}

fn check(lanes: &[ThreadpoolLane]) -> Result<(), ThreadpoolError> {
    if lanes.is_empty() {
        return Err(ThreadpoolError::NoLanes);
    }
    let mut seen = BTreeSet::new();
    for lane in lanes {
        if lane.static_threads + lane.dynamic_threads == 0 {
            return Err(ThreadpoolError::NoThreads(lane.priority));
        }
        if !seen.insert(lane.priority) {
            return Err(ThreadpoolError::SamePriority(lane.priority));
        }
    }
    Ok(())
}

/// Ends lanes as [`Orb::shutdown`] does.
fn end<'a>(lanes: impl Iterator<Item = &'a Arc<Lane>> + Clone, until: std::time::Instant) {
    lanes.clone().for_each(|lane| lane.stop_accepting());
    lanes.clone().for_each(|lane| {
        let _ = lane.wait_for_threads(until);
    });
    lanes.for_each(|lane| lane.close_rest());
}

fn with_priority(endpoint: IorEndpoint, of_lane: Option<i16>) -> IorEndpoint {
    match endpoint {
        IorEndpoint::Tcp { host, port, .. } => IorEndpoint::Tcp { host, port, priority: of_lane },
        other => other,
    }
}
