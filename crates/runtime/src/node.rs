//! Starts the threads that run a system under a plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use hyoshi_control::feedback::Coordinator;
use hyoshi_model::costs::WATCHDOG_PERIOD;
use hyoshi_model::{HostId, Instant, LoadMeasure, OnOverrun, OperationId, ProcessorId, Span, System};
use hyoshi_os::idle::AwakeCpus;
use hyoshi_os::priority::{FEEDBACK, RELEASE, WATCHDOG};
use hyoshi_os::sensors::{MachineSensors, SysSensors};
use hyoshi_os::{
    BusyReader, Clock, CpuSwitches, Granted, Interrupt, MonotonicClock, PiMutex, Spawn, SpawnedThread, StealReader,
    ThreadPolicy, allowed_cpus, lock_memory,
};
use hyoshi_sched::Plan;
use hyoshi_trace::RingDrain;
use hyoshi_trace::ring::ring;

use crate::admissions::AdmissionControl;
use crate::body::{Body, BodyCell};
use crate::chain_threads::ChainThreads;
use crate::claim::{self, CpuClaims};
use crate::client_rates::ClientRateControl;
use crate::common::{CommonState, ThreadControl, first_part, object_call};
use crate::condition_sampler::{ConditionSampler, MeasureSources};
use crate::context::JobContext;
use crate::contract_updates::{ArrivingContractUpdates, DepartingContractUpdates};
use crate::coordination::coordinate;
use crate::cpu_choice::choose_cpus;
use crate::cpu_watch::{CpuWatch, WatchedCpu};
use crate::crew::Crew;
use crate::ended::RunNote;
use crate::events::{EventFeed, EventInput, SupplierFeed, suppliers};
use crate::link::{RemoteRings, connect};
use crate::processor::ProcessorState;
use crate::region_actions::{ActionExecutor, BrokerAccess, DelegateAccess, RegionActions, RegionEvent};
use crate::remote::{IncomingCompletions, OutgoingCompletions, needs_one_process};
use crate::remote_rates::{ArrivingRates, DepartingRates};
use crate::remote_samples::{ArrivingSamples, DepartingSamples};
use crate::requests::{Refuse, RequestReader, Requests};
use crate::run_handles::RunHandles;
use crate::running::{ActionsThread, ProcessorThreads, RunThreads, RunningNode};
use crate::start_error::{MOST_RELEASES, StartError};
use crate::watchdog::BodyWatchdog;

/// The capacity of each processor's ring: the events of a tenth of a second of a busy processor.
const RING: usize = 1 << 15;
/// From the last thread's start to instant 0.
const LEAD: Span = Span::from_millis(50);
/// The stack of threads that run users' bodies.
const STACK: usize = 1 << 20;
/// The stack of all other threads.
const SMALL_STACK: usize = 128 << 10;

/// A system about to run in this process: the processors of all its hosts, or of one.
pub struct Node {
    system: Arc<System>,
    plan: Arc<Plan>,
    host: Option<HostId>,
    bodies: BTreeMap<String, Body>,
    strict: bool,
    watch: bool,
    share_cpu: bool,
    placed: Option<CpuPlacement>,
    duration: Span,
    ring: usize,
    stack: usize,
    interrupt: Option<Interrupt>,
    actions: RegionActions,
    sensors: Box<dyn MachineSensors>,
}

/// The CPU of each processor.
struct CpuPlacement {
    cpus: Vec<u32>,
    notes: Vec<RunNote>,
    /// The claims of these CPUs.
    claims: CpuClaims,
    /// Other runs must not use these CPUs.
    alone: bool,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bodies: Vec<&String> = self.bodies.keys().collect();
        f.debug_struct("Node").field("system", &self.system.name).field("bodies", &bodies).finish_non_exhaustive()
    }
}

impl Node {
    /// Runs every operation of `system` with built-in work, under `plan`, which must be a plan for `system`.
    pub fn new(system: Arc<System>, plan: Arc<Plan>) -> Self {
        let duration = system.duration;
        let bodies = BTreeMap::new();
        let (strict, watch, share_cpu) = (false, false, true);
        let (host, placed, interrupt) = (None, None, None);
        Node {
            system,
            plan,
            host,
            bodies,
            strict,
            watch,
            share_cpu,
            placed,
            duration,
            ring: RING,
            stack: STACK,
            interrupt,
            actions: RegionActions::default(),
            sensors: Box::new(SysSensors::default()),
        }
    }

    /// The same for the processors of one host. Other hosts run elsewhere; [`Prepared`] returns the rings for the
    /// exchange with them.
    pub fn for_host(system: Arc<System>, plan: Arc<Plan>, host: HostId) -> Self {
        Node { host: Some(host), ..Node::new(system, plan) }
    }

    /// The processors that it runs.
    fn processors(&self) -> impl Iterator<Item = ProcessorId> + '_ {
        let here = |id: &ProcessorId| self.host.is_none_or(|host| self.system.processor(*id).host == host);
        self.system.processor_ids().filter(here)
    }

    /// Sets the body of an operation, instead of built-in work. Bodies of operations on other hosts are ignored.
    pub fn body(
        mut self,
        operation: impl Into<String>,
        body: impl FnMut(&mut JobContext<'_>) + Send + 'static,
    ) -> Self {
        self.bodies.insert(operation.into(), Box::new(body));
        self
    }

    /// Sets the callback that regions of contracts call by this name, when they begin. One thread at normal priority
    /// calls all callbacks, in the order of the changes of each contract: it should return soon.
    pub fn on_region(
        mut self,
        name: impl Into<String>,
        callback: impl FnMut(&RegionEvent<'_>) + Send + 'static,
    ) -> Self {
        self.actions.callbacks.insert(name.into(), Box::new(callback));
        self
    }

    /// Whether contracts may run external commands (default: no, and a system with such contracts does not start).
    pub fn commands(mut self, permitted: bool) -> Self {
        self.actions.commands = permitted;
        self
    }

    /// Sets the sensors of the machine for contracts that watch them, instead of those in `/sys/class`.
    pub fn sensors(mut self, sensors: Box<dyn MachineSensors>) -> Self {
        self.sensors = sensors;
        self
    }

    /// Sets the CPU broker for contracts that watch it, or set the importance of programs.
    pub fn broker(mut self, broker: Arc<dyn BrokerAccess>) -> Self {
        self.actions.broker = Some(broker);
        self
    }

    /// Sets the delegates of this program, for contracts that watch or set them.
    pub fn delegates(mut self, delegates: Arc<dyn DelegateAccess>) -> Self {
        self.actions.delegates = Some(delegates);
        self
    }

    /// Whether a refusal by the kernel is an error; otherwise it is a note.
    pub fn strict(mut self, strict: bool) -> Self {
        self.strict = strict;
        self
    }

    /// Whether context switches are recorded: see [`hyoshi_os::switches`]. [`RunningNode::visibility`] returns what the
    /// kernel permits.
    pub fn watch(mut self, watch: bool) -> Self {
        self.watch = watch;
        self
    }

    /// Sets the duration, instead of the system's.
    pub fn duration(mut self, duration: Span) -> Self {
        self.duration = duration;
        self
    }

    /// Sets the number of events that each processor's ring holds between two calls of [`RunningNode::poll`].
    pub fn ring(mut self, events: usize) -> Self {
        self.ring = events;
        self
    }

    /// Sets the stack size in bytes of threads that run bodies (default: 1 MiB).
    pub fn stack(mut self, bytes: usize) -> Self {
        self.stack = bytes;
        self
    }

    /// Ends the run when `interrupt` is requested.
    pub fn interrupt(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Whether its CPUs may also belong to other runs and to other programs' real-time threads (default: yes). If not,
    /// the node claims its CPUs, and processors without a `cpu` in the file get unused ones.
    pub fn share_cpu(mut self, share: bool) -> Self {
        self.share_cpu = share;
        self
    }

    /// Chooses and claims the CPU of each processor, as [`Node::start`] does.
    ///
    /// # Errors
    ///
    /// If the system sets a CPU that this process may not use, or that another program uses; or if a callback or command
    /// of a contract is missing or not permitted.
    pub fn cpus(&mut self) -> Result<Vec<(ProcessorId, u32)>, StartError> {
        if self.placed.is_none() {
            self.actions.check(&self.system, &self.processors().collect())?;
            self.placed = Some(self.choose_cpus()?);
        }
        let cpus = self.placed.iter().flat_map(|placed| placed.cpus.iter().copied());
        Ok(self.processors().zip(cpus).collect())
    }

    fn choose_cpus(&self) -> Result<CpuPlacement, StartError> {
        let allowed = allowed_cpus();
        let processors: Vec<_> = self.processors().map(|id| self.system.processor(id)).collect();
        // Without real-time priorities its threads preempt no others.
        if self.share_cpu || !real_time_granted() {
            let (cpus, notes) = choose_cpus(&processors, &allowed, &BTreeMap::new())?;
            return Ok(CpuPlacement { cpus, notes, claims: CpuClaims::default(), alone: false });
        }
        let folder = claim::folder();
        let mut occupied = claim::occupied(&allowed, folder.as_deref());
        loop {
            // An error if every CPU is used.
            let (cpus, notes) = choose_cpus(&processors, &allowed, &occupied)?;
            let own: BTreeSet<u32> = cpus.iter().copied().collect();
            match CpuClaims::take(&own.into_iter().collect::<Vec<_>>(), folder.as_deref()) {
                Ok(claims) => return Ok(CpuPlacement { cpus, notes, claims, alone: true }),
                // Another run has claimed it in the meantime.
                Err(by) => drop(occupied.insert(by.cpu, by)),
            }
        }
    }

    /// Starts all threads, then the common clock.
    ///
    /// # Errors
    ///
    /// If the kernel refuses a required resource, or this machine lacks one that the system needs.
    pub fn start(self) -> Result<RunningNode, StartError> {
        self.prepare().map(Prepared::start)
    }

    /// Starts all threads; they sleep until [`Prepared::begin`].
    ///
    /// # Errors
    ///
    /// See [`Node::start`].
    pub fn prepare(mut self) -> Result<Prepared, StartError> {
        let system = self.system.clone();
        if self.host.is_some()
            && let Some(error) = needs_one_process(&system)
        {
            return Err(error);
        }
        let named: BTreeSet<String> = self.bodies.keys().cloned().collect();
        let whole = |first: OperationId| {
            object_call(&system, first).is_some() && !named.contains(&system.operation(first).name)
        };
        let supplies = suppliers(&system);
        let choices = system.choices();
        let mut cells: Vec<Option<BodyCell>> = system.operations.iter().map(|_| None).collect();
        for (operation, body) in std::mem::take(&mut self.bodies) {
            let position = system.operations.iter().position(|known| known.name == operation && known.home.is_none());
            let position = position.ok_or(StartError::NoSuchOperation { operation })?;
            let last = OperationId(position as u32);
            // A body that calls an object runs both parts of its operation.
            let first = Some(first_part(&system, last)).filter(|first| whole(*first)).unwrap_or(last);
            let choices = choices.get(&last).map_or(&[][..], Vec::as_slice);
            cells[first.index()] = Some(BodyCell::new(&system, (first, last), supplies[last.index()], choices, body));
        }
        let body_at = |id: OperationId| cells[system.operation(id).home.unwrap_or(id).index()].is_some();
        let with_bodies: Vec<bool> = system.operation_ids().map(body_at).collect();
        refuse_storms(&system)?;
        let mut coordinators = Coordinator::of(&system).map_err(StartError::Group)?;
        // The host of the first processor computes the rates of a group.
        coordinators.retain(|one| self.processors().any(|here| here == one.processors()[0]));
        self.cpus()?;
        let placed = self.placed.take().map_or_else(|| self.choose_cpus(), Ok)?;
        let (cpus, mut notes) = (placed.cpus, placed.notes);
        let mut refusals = KernelRefusals::default();
        // Before anything is mapped that a lane uses.
        if let Err(refused) = lock_memory() {
            refusals.take("all", &[refused]);
        }
        let common = Arc::new(CommonState::new(system.clone(), self.host, Instant::ZERO + self.duration));
        let (broker, delegates) = (self.actions.broker.clone(), self.actions.delegates.clone());
        let (actions, mut changes) =
            match std::mem::take(&mut self.actions).prepare(&common, &self.processors().collect())? {
                Some((executor, changes)) => (Some(executor), changes),
                None => (None, BTreeMap::new()),
            };
        // Before the first thread: some kernels show only threads that start later.
        let watched = if self.watch { watch(&cpus) } else { Vec::new() };
        let mut parts = RunThreads::new(common.clone(), CpuWatch::new(watched), self.interrupt.take());
        parts.actions = actions.map(spawn_actions).transpose()?;
        let (ends, remote) = connect(&common);
        let supplies_here = |id: &OperationId| supplies[id.index()] && common.runs(system.operation(*id).on);
        let feeding: Vec<OperationId> = system.operation_ids().filter(supplies_here).collect();
        let (feed, ends_of_feed) = EventFeed::new(&feeding, common.clone());
        let mut feeds: Vec<Option<SupplierFeed>> = system.operations.iter().map(|_| None).collect();
        feeding.iter().zip(ends_of_feed).for_each(|(id, end)| feeds[id.index()] = Some(end));
        let plans = self.plan.processors.iter().zip(ends).filter(|(plan, _)| common.runs(plan.processor));
        for ((plan, links), cpu) in plans.zip(&cpus) {
            let (probe, drain) = ring(self.ring);
            let mut crew = Crew::new(common.clone(), plan, probe, (&mut cells, &with_bodies), links);
            crew.feed(&mut feeds);
            changes.remove(&plan.processor).into_iter().for_each(|ring| crew.report_regions(ring));
            if let Err(error) = self.spawn_processor(&mut parts, &mut refusals, crew, plan, drain, *cpu) {
                parts.abandon();
                return Err(error);
            }
        }
        let watched = parts.processors.iter().map(|part| {
            let handles = part.lanes.iter().map(|thread| thread.handle.clone());
            (part.processor.clone(), handles.collect())
        });
        let watchdog = BodyWatchdog { common: common.clone(), watched: watched.collect(), period: WATCHDOG_PERIOD };
        let ready = Arc::new(hyoshi_os::Wake::new());
        let begin = ready.clone();
        let spawn = Spawn::new("hyoshi-watch").policy(ThreadPolicy::Fifo(WATCHDOG)).stack(SMALL_STACK);
        match spawn.spawn(move || {
            begin.wait();
            watchdog.watch()
        }) {
            Ok(thread) => {
                refusals.take("hyoshi-watch", &thread.granted.refused);
                parts.watchdog = Some((thread, ready));
            }
            Err(error) => {
                parts.abandon();
                return Err(StartError::Thread(error));
            }
        }
        // The processor of the first group's first loop.
        let at = coordinators.first().map(|one| one.processors()[0]);
        let cpu = self.processors().zip(&cpus).find_map(|(id, cpu)| (Some(id) == at).then_some(*cpu));
        if let Some(cpu) = cpu
            && let Err(error) = spawn_coordinator(&mut parts, &mut refusals, (coordinators, cpu))
        {
            parts.abandon();
            return Err(error);
        }
        if refusals.priorities() {
            parts.without_priorities();
        }
        let refused = refusals.into_notes();
        if self.strict && !refused.is_empty() {
            parts.abandon();
            return Err(StartError::Refused(refused));
        }
        if placed.alone {
            // A run of another user may have started in the meantime: one of the two detects the other's threads.
            let others = claim::by_threads(&cpus);
            let mut places = self.processors().zip(&cpus);
            if let Some((processor, by)) =
                places.find_map(|(one, cpu)| Some((system.processor(one).name.clone(), others.get(cpu)?.clone())))
            {
                parts.abandon();
                return Err(StartError::Occupied { processor, by });
            }
        }
        notes.splice(0..0, refused);
        let sensors = std::mem::replace(&mut self.sensors, Box::new(SysSensors::default()));
        let sources = MeasureSources { sensors, broker, delegates };
        if let Some(sampler) = ConditionSampler::new(&common, parts.contracts(), sources) {
            parts.sampler = Some(sampler.spawn().map_err(StartError::Thread)?);
        }
        notes.extend(no_hard_cap(&system, self.processors()));
        notes.extend(coarse_loads(&system, self.processors().zip(cpus.iter().copied())));
        let awake = match system.forbids_idle_states().then(AwakeCpus::hold) {
            None => None,
            Some(Ok(awake)) => {
                notes.push(RunNote::Awake);
                Some(awake)
            }
            Some(Err(error)) => {
                notes.push(RunNote::MaySleep { error: error.to_string() });
                None
            }
        };
        parts.hold(placed.claims, awake);
        let (departures, arrivals) = exchanges(&parts, remote);
        let requested = |id: &&OperationId| system.operation(**id).is_requested();
        let input = |id: &OperationId| {
            let of = |part: &&ProcessorThreads| part.processor.id == system.operation(*id).on;
            let part = parts.processors.iter().find(of)?;
            Some(EventInput::new(part.processor.clone(), *id))
        };
        let inputs = feeding.iter().filter(requested).filter_map(input).collect();
        Ok(Prepared { plan: self.plan, parts, notes, departures, arrivals, events: Some((feed, inputs)) })
    }

    /// Starts the threads of one processor; they sleep.
    fn spawn_processor(
        &self,
        parts: &mut RunThreads,
        refusals: &mut KernelRefusals,
        mut crew: Crew<hyoshi_os::ThreadHandle>,
        plan: &hyoshi_sched::ProcessorPlan,
        drain: RingDrain,
        cpu: u32,
    ) -> Result<(), StartError> {
        let (id, name) = (plan.processor, &self.system.processor(plan.processor).name);
        let threads = crew.threads_of(plan);
        let all: usize = threads.iter().sum();
        if all >= usize::from(u16::MAX) {
            return Err(StartError::TooManyThreads { processor: name.clone(), threads: all });
        }
        let mut control = Vec::with_capacity(all);
        let mut lanes = Vec::with_capacity(all);
        for (lane, count) in threads.into_iter().enumerate() {
            for _ in 0..count {
                let own = Arc::new(ThreadControl::default());
                lanes.push((crew.add_thread(lane as u8, own.clone()), lane, crew.priority_of(lane as u8)));
                control.push(own);
            }
        }
        let bodies = crew.has_bodies();
        let stack = if bodies { self.stack } else { SMALL_STACK };
        let demotes = |id: &OperationId| self.system.operation(*id).on_overrun == OnOverrun::Demote;
        let any_demoted = plan.operations.iter().any(demotes);
        let processor = Arc::new(ProcessorState {
            id,
            common: parts.common.clone(),
            crew: PiMutex::new(crew),
            control,
            background: Arc::default(),
            requests: Arc::default(),
        });
        let part = parts.add(processor.clone(), drain, cpu, StealReader::of(cpu).ok());
        let spawn = |name: String, policy: ThreadPolicy| Spawn::new(name).cpu(cpu).policy(policy);
        let own = processor.clone();
        let release = spawn(format!("{name:.7}-release"), ThreadPolicy::Fifo(RELEASE)).stack(SMALL_STACK);
        part.others.push(refusals.check(release.spawn(move || own.release()), name)?);
        if any_demoted {
            let own = processor.clone();
            let below = spawn(format!("{name:.9}-below"), ThreadPolicy::Other).stack(SMALL_STACK);
            part.others.push(refusals.check(below.spawn(move || own.serve_below()), name)?);
        }
        for (thread, lane, priority) in lanes {
            let own = processor.clone();
            let lane = spawn(format!("{name:.12}-{lane}"), ThreadPolicy::Fifo(priority)).stack(stack);
            let spawned = refusals.check(lane.spawn(move || own.serve(thread)), name)?;
            processor.crew.lock().thread_started(thread, spawned.handle.clone(), spawned.granted.policy);
            part.lanes.push(spawned);
        }
        Ok(())
    }
}

/// A node with sleeping threads.
#[derive(Debug)]
pub struct Prepared {
    plan: Arc<Plan>,
    parts: RunThreads,
    notes: Vec<RunNote>,
    departures: Vec<OutgoingCompletions>,
    arrivals: Vec<IncomingCompletions>,
    events: Option<(EventFeed, Vec<EventInput>)>,
}

impl Prepared {
    /// The notes so far: refusals, shared CPUs.
    pub fn notes(&self) -> &[RunNote] {
        &self.notes
    }

    /// The departing completions for each other host.
    pub fn take_departures(&mut self) -> Vec<OutgoingCompletions> {
        std::mem::take(&mut self.departures)
    }

    /// The rings for arriving completions of each other host.
    pub fn take_arrivals(&mut self) -> Vec<IncomingCompletions> {
        std::mem::take(&mut self.arrivals)
    }

    /// The feed of the events that its suppliers push, and an input for each supplier with `called = true`. `None`
    /// after the first call.
    pub fn take_events(&mut self) -> Option<(EventFeed, Vec<EventInput>)> {
        self.events.take()
    }

    /// The clients of the loop of a processor; `None` if it has no loop with clients, or does not run here.
    pub fn client_rates(&self, processor: ProcessorId) -> Option<ClientRateControl> {
        let part = self.parts.processors.iter().find(|part| part.processor.id == processor)?;
        ClientRateControl::new(&part.processor)
    }

    /// The handles of the run, for operators and threads outside the lanes.
    pub fn handles(&self) -> RunHandles {
        let processors: Vec<_> = self.parts.processors.iter().map(|part| part.processor.clone()).collect();
        let common = || self.parts.common.clone();
        RunHandles {
            threads: ChainThreads::new(common(), &processors),
            admissions: AdmissionControl::new(common(), processors),
            contracts: self.parts.contracts(),
            links: self.parts.common.link_access.clone(),
            machine: self.parts.machine.load.clone(),
        }
    }

    /// Lets threads of the processor's lanes read requests from `reader`. Requests that no job serves go to `refuse`.
    /// After the end of the run the lanes read nothing ([`Refuse::over`]).
    ///
    /// # Errors
    ///
    /// If no operation of the processor has `called = true` (`InvalidInput`), or the kernel refuses a descriptor.
    pub fn read_requests(
        &mut self,
        processor: ProcessorId,
        reader: Box<dyn RequestReader>,
        refuse: Arc<dyn Refuse>,
    ) -> io::Result<()> {
        let part = self.parts.processors.iter().find(|part| part.processor.id == processor);
        let plan = self.plan.processors.iter().find(|plan| plan.processor == processor);
        let (Some(part), Some(plan)) = (part, plan) else { return Err(io::ErrorKind::InvalidInput.into()) };
        let lane = part.processor.crew.lock().serve_requests(plan).ok_or(io::ErrorKind::InvalidInput)?;
        let requests = Requests::new(lane, reader, refuse)?;
        // One reader for each processor.
        part.processor.requests.set(requests).map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    /// Starts the run, with instant 0 shortly afterwards.
    pub fn start(self) -> RunningNode {
        self.begin(MonotonicClock::start_in(LEAD))
    }

    /// Starts the run with instant 0 of `clock`: in the near future, or in the past if the other hosts have already
    /// started. In that case each processor starts with its next releases.
    pub fn begin(self, clock: MonotonicClock) -> RunningNode {
        self.parts.common.begin(clock);
        if clock.now() > Instant::ZERO {
            for part in &self.parts.processors {
                part.processor.section(|crew, now| crew.begin_late(now));
            }
        }
        self.parts.begin(self.notes)
    }

    /// Ends the node without a run.
    pub fn abandon(self) {
        self.parts.abandon();
    }
}

/// Starts the thread of the coordinators on a CPU; it sleeps.
fn spawn_coordinator(
    parts: &mut RunThreads,
    refusals: &mut KernelRefusals,
    (coordinators, cpu): (Vec<Coordinator>, u32),
) -> Result<(), StartError> {
    let (common, ready) = (parts.common.clone(), Arc::new(hyoshi_os::Wake::new()));
    let begin = ready.clone();
    let spawn = Spawn::new("hyoshi-group").cpu(cpu).policy(ThreadPolicy::Fifo(FEEDBACK)).stack(STACK);
    let spawned = spawn.spawn(move || {
        begin.wait();
        if common.has_begun() { coordinate(&common, coordinators) } else { Vec::new() }
    });
    let thread = refusals.check(spawned, "hyoshi-group")?;
    parts.coordinator = Some((thread, ready));
    Ok(())
}

/// Starts the thread for actions of contracts, at normal priority; it sleeps.
fn spawn_actions(executor: ActionExecutor) -> Result<ActionsThread, StartError> {
    let (log, end, commands) = (executor.log.clone(), executor.end.clone(), executor.commands.clone());
    let thread = Spawn::new("hyoshi-actions").stack(STACK).spawn(move || executor.serve());
    if let Some(commands) = commands.clone() {
        // It ends with the commands.
        drop(Spawn::new("hyoshi-commands").stack(STACK).spawn(move || commands.serve()).map_err(StartError::Thread)?);
    }
    Ok(ActionsThread { thread: thread.map_err(StartError::Thread)?, log, end, commands })
}

/// The rings to and from other hosts, by host.
fn exchanges(parts: &RunThreads, remote: RemoteRings) -> (Vec<OutgoingCompletions>, Vec<IncomingCompletions>) {
    let system = &parts.common.system;
    let mut departures: BTreeMap<HostId, OutgoingCompletions> = BTreeMap::new();
    let outgoing = |to: HostId| {
        let mut there = system.processor_ids().filter(|id| system.processor(*id).host == to);
        // All processors of a host that runs elsewhere share a thread.
        let wake = there.next().map(|id| parts.common.release_of(id).clone()).unwrap_or_default();
        OutgoingCompletions::new(parts.common.clone(), to, wake)
    };
    for (to, ring) in remote.departures {
        departures.entry(to).or_insert_with(|| outgoing(to)).rings.push(ring);
    }
    let hosts = || (0..system.hosts.len() as u32).map(HostId);
    let common = &parts.common;
    let leaves = |to: &HostId| {
        DepartingRates::new(common, *to).is_some()
            || DepartingSamples::new(common, *to).is_some()
            || DepartingContractUpdates::new(common, *to).is_some()
    };
    for to in hosts().filter(leaves) {
        departures.entry(to).or_insert_with(|| outgoing(to));
    }
    let mut rings: BTreeMap<HostId, Vec<_>> = BTreeMap::new();
    for (from, processor, ring) in remote.arrivals {
        let part = parts.processors.iter().find(|part| part.processor.id == processor);
        rings.entry(from).or_default().extend(part.map(|part| (part.processor.clone(), ring)));
    }
    for from in hosts() {
        let sets_rates = || !ArrivingRates::new(common, from).is_empty();
        let samples = || !ArrivingSamples::new(common, from).is_empty();
        let contracts = || !ArrivingContractUpdates::new(common, from).is_empty();
        if !common.replicated_from(from).is_empty() || sets_rates() || samples() || contracts() {
            rings.entry(from).or_default();
        }
    }
    let arrivals = rings.into_iter().map(|(from, rings)| IncomingCompletions::new(common.clone(), from, rings));
    (departures.into_values().collect(), arrivals.collect())
}

/// Whether the kernel grants real-time priorities to this process.
fn real_time_granted() -> bool {
    let probe = Spawn::new("hyoshi-probe").policy(ThreadPolicy::Fifo(RELEASE)).stack(SMALL_STACK).spawn(|| ());
    probe.is_ok_and(|probe| {
        let granted = probe.granted.in_full();
        // It does nothing that could panic.
        drop(probe.join());
        granted
    })
}

/// A note about processors with critical work but without a hard cap.
fn no_hard_cap(system: &System, processors: impl Iterator<Item = ProcessorId>) -> Option<RunNote> {
    let critical = |id: &ProcessorId| {
        let settings = |operation: OperationId| {
            system.epochs.iter().any(|epoch| epoch.settings[operation.index()].critical_legs > 0)
        };
        system.operations_on(*id).any(|operation| system.operation(operation).critical || settings(operation))
    };
    let open = processors.filter(|id| !system.processor(*id).hard_cap.is_on()).filter(critical);
    let processors: Vec<String> = open.map(|id| system.processor(id).name.clone()).collect();
    (!processors.is_empty()).then_some(RunNote::NoHardCap { processors })
}

/// Notes on loops for which the kernel reports the load of their CPU in steps that are too large.
fn coarse_loads(system: &System, cpus: impl Iterator<Item = (ProcessorId, u32)>) -> Vec<RunNote> {
    let note = |(processor, cpu)| {
        let mut loops = system.feedback.iter().filter(|one| one.measure == LoadMeasure::Cpu);
        let period = loops.find(|one| one.processor == processor)?.period;
        let step = BusyReader::of(cpu).ok()?.resolution();
        let is_coarse = step.as_nanos().saturating_mul(STEPS) > period.as_nanos();
        is_coarse.then(|| RunNote::CoarseLoad { processor: system.processor(processor).name.clone(), step, period })
    };
    cpus.filter_map(note).collect()
}

/// With this number of steps in a sampling period, a utilisation is off by at most one percent.
const STEPS: u64 = 100;

/// The sources of context switches, one for each CPU.
fn watch(cpus: &[u32]) -> Vec<WatchedCpu> {
    let cpus: BTreeSet<u32> = cpus.iter().copied().collect();
    let watch = |cpu| CpuSwitches::of(cpu).ok().map(|source| WatchedCpu { cpu, source: Box::new(source) });
    cpus.into_iter().filter_map(watch).collect()
}

/// Rejects systems with timers that would use a CPU alone: release threads are above all lanes, and no cap limits them.
fn refuse_storms(system: &System) -> Result<(), StartError> {
    for epoch in 0..system.epochs.len() {
        let mut releases = vec![0u64; system.processors.len()];
        for (operation, rate) in system.operations.iter().zip(system.release_rates(epoch)) {
            let sum = &mut releases[operation.on.index()];
            *sum = sum.saturating_add(rate / 1_000_000_000);
        }
        for (processor, releases) in system.processors.iter().zip(releases) {
            if releases > MOST_RELEASES {
                return Err(StartError::TooManyReleases { processor: processor.name.clone(), releases });
            }
        }
    }
    Ok(())
}

/// The kernel's refusals, each kind once.
#[derive(Debug, Default)]
struct KernelRefusals(Vec<(String, usize, hyoshi_os::Refused)>);

impl KernelRefusals {
    fn take(&mut self, thread: &str, refused: &[hyoshi_os::Refused]) {
        for refused in refused {
            let alike = |(_, _, other): &&mut (String, usize, hyoshi_os::Refused)| {
                use hyoshi_os::KernelRequest::Policy as Of;
                let policies = matches!((other.asked, refused.asked), (Of(_), Of(_)));
                other.errno == refused.errno && (policies || other.asked == refused.asked)
            };
            match self.0.iter_mut().find(alike) {
                Some((_, threads, _)) => *threads += 1,
                None => self.0.push((thread.to_owned(), 1, *refused)),
            }
        }
    }

    fn check<T>(&mut self, spawned: io::Result<SpawnedThread<T>>, name: &str) -> Result<SpawnedThread<T>, StartError> {
        let thread = spawned.map_err(StartError::Thread)?;
        let Granted { refused, .. } = &thread.granted;
        self.take(name, refused);
        Ok(thread)
    }

    /// True if some thread was refused its priority.
    fn priorities(&self) -> bool {
        self.0.iter().any(|(_, _, refused)| matches!(refused.asked, hyoshi_os::KernelRequest::Policy(_)))
    }

    fn into_notes(self) -> Vec<RunNote> {
        self.0.into_iter().map(|(thread, threads, refused)| RunNote::Refused { thread, threads, refused }).collect()
    }
}
