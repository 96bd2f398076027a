//! A system after its file was read: all names resolved, all templates expanded, all rules of the file checked. Later
//! crates index into these vectors unchecked.

use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};

use crate::contract::Contract;
use crate::costs::Costs;
use crate::delegate::DeclaredDelegate;
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::execution_time::{self, ExecutionTime, Stream};
use crate::feedback::{FeedbackLoop, ServiceLevel, at_level};
use crate::gateway::Gateway;
use crate::hard_cap::HardCap;
use crate::ids::{HostId, JobId, OperationId, ProcessorId, ProgramId, ResourceId};
use crate::network::NetworkDevice;
use crate::object::{ClientRates, ServedObject};
use crate::outside::OutsideCondition;
use crate::program::{Brokered, Program};
use crate::standby::Admissions;
use crate::time::{Instant, Span};

/// The fields of a [`System`](crate::System). Methods may panic if a rule of [`System::new`](crate::System::new) is
/// broken.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The file's `name`.
    pub name: String,
    /// The start of every pseudo-random sequence; the same seed leads to the same behaviour of the system.
    pub seed: u64,
    /// The length of a simulation or run, unless the command line sets another.
    pub duration: Span,
    /// Machines, at least one (`local` when the file names none).
    pub hosts: Vec<Host>,
    /// CPUs that run operations, at least one.
    pub processors: Vec<Processor>,
    /// Operations, templates expanded, in the file's order.
    pub operations: Vec<Operation>,
    /// Declared events, in the file's order.
    pub events: Vec<Event>,
    /// Declared shared resources.
    pub resources: Vec<Resource>,
    /// End-to-end requirements.
    pub chains: Vec<Chain>,
    /// Objects whose requests are jobs.
    pub objects: Vec<ServedObject>,
    /// Delegates around servants, in the file's order.
    pub delegates: Vec<DeclaredDelegate>,
    /// Delays between hosts; pairs not named have none.
    pub links: Vec<Link>,
    /// Operating regions in order of time; the first starts at 0, so there is always one.
    pub epochs: Vec<Epoch>,
    /// Loops that adapt rates, each on another processor.
    pub feedback: Vec<FeedbackLoop>,
    /// Conditions with values from outside: the declared ones in the file's order, then measured ones.
    pub conditions: Vec<OutsideCondition>,
    /// Contracts, in the file's order.
    pub contracts: Vec<Contract>,
    /// Programs under the CPU broker.
    pub brokered: Brokered,
    /// Whether CPUs may sleep deeply while it runs.
    pub idle_states: IdleStates,
}

/// Whether a run lets the machine's CPUs enter idle states that are slow to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdleStates {
    /// Not while critical operations run.
    #[default]
    Auto,
    /// As the machine is configured.
    Allow,
    /// Never.
    Forbid,
}

impl Contents {
    /// The program at `id`.
    pub fn program(&self, id: ProgramId) -> &Program {
        &self.brokered.programs[id.index()]
    }

    /// The programs of one host, in the file's order.
    pub fn programs_on(&self, host: HostId) -> impl Iterator<Item = ProgramId> + '_ {
        let ids = (0..self.brokered.programs.len() as u32).map(ProgramId);
        ids.filter(move |id| self.program(*id).host == host)
    }

    /// True if some operation, or some legs of one, are critical in some epoch.
    pub fn has_critical_work(&self) -> bool {
        let legs = |epoch: &Epoch| epoch.settings.iter().any(|setting| setting.critical_legs > 0);
        self.operations.iter().any(|operation| operation.critical) || self.epochs.iter().any(legs)
    }

    /// The distributable threads of the file: one for each first operation of chains that threads carry.
    pub fn thread_graphs(&self) -> Vec<ThreadGraph> {
        let carried = |chain: &&Chain| chain.carried_by == ChainCarrier::Thread && !chain.path.is_empty();
        let mut by_root: Vec<(OperationId, Vec<&Chain>)> = Vec::new();
        for chain in self.chains.iter().filter(carried) {
            match by_root.iter_mut().find(|(root, _)| *root == chain.path[0]) {
                Some((_, chains)) => chains.push(chain),
                None => by_root.push((chain.path[0], Vec::from([chain]))),
            }
        }
        by_root.into_iter().map(|(root, chains)| ThreadGraph::new(root, &chains)).collect()
    }

    /// For each declared operation with several processors: its operations, one for each processor, in the order of
    /// `on`.
    pub fn movable(&self) -> Vec<Vec<OperationId>> {
        let mut all: BTreeMap<OperationId, Vec<OperationId>> = BTreeMap::new();
        for (id, one) in (0..).map(OperationId).zip(&self.operations) {
            if let Some(home) = one.home {
                all.entry(home).or_insert_with(|| Vec::from([home])).push(id);
            }
        }
        all.into_values().collect()
    }

    /// Whether an operation has several processors.
    pub fn moves(&self, id: OperationId) -> bool {
        let next = self.operations.get(id.index() + 1);
        self.operation(id).home.is_some() || next.is_some_and(|next| next.home == Some(id))
    }

    /// By operation: why it must stay on its processor; `None` if it is an independent periodic one.
    pub fn obstacles_to_moves(&self) -> Vec<Option<&'static str>> {
        let of = |one: &Operation| {
            [
                (one.trigger != Trigger::Periodic, "it is not periodic"),
                (one.calls_any, "it calls objects"),
                (!one.reads.is_empty(), "it reads outputs of other operations"),
                (one.replication.is_some(), "its output has replicas"),
                (one.payload > 0, "it has a payload"),
                (one.name.contains('.'), "it is an instance of a template"),
                (!one.uses.is_empty(), "it uses resources"),
            ]
            .into_iter()
            .find_map(|(is, why)| is.then_some(why))
        };
        let mut all: Vec<_> = self.operations.iter().map(of).collect();
        let mut mark = |ids: &[OperationId], why| ids.iter().for_each(|id| all[id.index()] = Some(why));
        for latency in self.feedback.iter().filter_map(|one| one.latency.as_ref()) {
            mark(latency.ends(self), "a loop holds its latency");
        }
        self.events.iter().for_each(|event| mark(&event.suppliers, "it supplies an event"));
        self.chains.iter().for_each(|chain| mark(&chain.path, "it is part of a chain"));
        for one in &self.operations {
            mark(one.trigger.predecessors(), "it triggers another operation");
            mark(&one.reads, "other operations read its output");
        }
        all
    }

    /// Whether a run forbids deep idle states.
    pub fn forbids_idle_states(&self) -> bool {
        match self.idle_states {
            IdleStates::Auto => self.has_critical_work(),
            IdleStates::Allow => false,
            IdleStates::Forbid => true,
        }
    }
}

/// The parts that follow the part of an operation before its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSuccessors {
    /// The method for this caller, or its part before a call of its own.
    pub method: OperationId,
    /// The caller's rest.
    pub rest: OperationId,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Host {
    /// Name in the file.
    pub name: String,
    /// The endpoints of its node while a system runs in several processes; no endpoint occurs twice in a system.
    pub endpoints: Vec<Endpoint>,
    /// Where its node listens for completions over Zenoh, an [`Endpoint::Tcp`] or [`Endpoint::Tls`].
    pub zenoh: Option<Endpoint>,
    /// The Zenoh router from which its node receives completions instead. With neither, it uses IIOP, at `endpoints`.
    pub router: Option<Endpoint>,
    /// For programs outside the system that read and publish events over Zenoh.
    pub gateway: Option<Gateway>,
    /// True if its node may accept unencrypted connections from other machines.
    pub insecure: bool,
    /// The largest difference between its clock and those of other hosts while a system runs in several processes.
    pub clock_error: Option<Span>,
    /// Its devices with traffic classes, if the system runs in several processes; no device occurs twice.
    pub network: Vec<NetworkDevice>,
}

impl Host {
    /// A host with a declared name and default values.
    pub fn named(name: impl Into<String>) -> Host {
        Host { name: name.into(), ..Host::default() }
    }

    /// Where other nodes send completions for it over Zenoh: its own endpoint, or its router's.
    pub fn over_zenoh(&self) -> Option<&Endpoint> {
        self.zenoh.as_ref().or(self.router.as_ref())
    }
}

/// One CPU of a host, with the strategy that orders its work. Scheduling is partitioned: jobs do not migrate.
#[derive(Clone, Debug, PartialEq)]
pub struct Processor {
    /// Name in the file.
    pub name: String,
    /// The machine it is part of.
    pub host: HostId,
    /// The Linux CPU number; `None` lets the runtime choose.
    pub cpu: Option<u32>,
    /// Name of the strategy; the crate above resolves it in the table of strategies.
    pub strategy: String,
    /// The strategy in force while the first one cannot keep critical deadlines, if the file names two.
    pub overload: Option<Overload>,
    /// Which jobs may preempt which.
    pub preemption: Preemption,
    /// Whether jobs that can no longer finish in time are cancelled at their first dispatch
    /// (Kokyu, section III-B: never critical ones).
    pub cancel: bool,
    /// The share of the CPU that lanes may use in each `cap_window`, in parts per million.
    /// 1,000,000 means no cap.
    pub cap_ppm: u32,
    /// The window over which the cap is kept.
    pub cap_window: Span,
    /// The share of the CPU that lanes may use in any 100 ms, critical work included.
    pub hard_cap: HardCap,
    /// Threads in each lane's pool; only bodies that block need more than one.
    pub pool: u16,
    /// The costs of the middleware here; zero if the file has none.
    pub costs: Costs,
}

/// The second strategy of a processor, and when it is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overload {
    /// Its name.
    pub strategy: String,
    /// It rules from when a critical job's laxity is less than the work ahead of it, plus this.
    pub margin: Span,
    /// The first strategy returns when the trigger was false for this long.
    pub calm: Span,
}

/// Which jobs may preempt which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Preemption {
    /// A started job finishes before any other starts.
    None,
    /// A job preempts those of less urgent levels; within a level a started job finishes first (Kokyu).
    #[default]
    Levels,
    /// Within a level, too, the job with the better key runs.
    Full,
}

/// The settings of an operation that no epoch can change.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// Name; instances of a template are `name.1`, `name.2`, ...
    pub name: String,
    /// The processor on which it runs.
    pub on: ProcessorId,
    /// If this is an operation at a further processor: the same one at its first processor. This one releases jobs only
    /// after a move here.
    pub home: Option<OperationId>,
    /// The trigger of its jobs.
    pub trigger: Trigger,
    /// If requests release the operation: the least time between two requests that analysis may assume.
    pub min_interval: Option<Span>,
    /// The clients of an operation that requests release, if a feedback loop sets their rates.
    pub clients: Option<ClientRates>,
    /// Its service levels, the shortest worst case first. A feedback loop chooses one for each job.
    pub levels: Vec<ServiceLevel>,
    /// A periodic operation that releases no job until it is admitted during a run, and none after it is withdrawn.
    pub standby: bool,
    /// Its body may call any object, at any time, and wait for the reply: `check` knows neither what it calls nor how
    /// long it waits.
    pub calls_any: bool,
    /// Operations that do not trigger it: when it starts, it reads their latest values.
    pub reads: Vec<OperationId>,
    /// Critical: every deadline matters, never cancelled, never shed.
    pub critical: bool,
    /// Rank among non-critical operations; higher is more important.
    pub importance: u32,
    /// The roots to which its triggers lead back; itself for one that no operation triggers. Sorted.
    pub roots: Vec<OperationId>,
    /// The file sets its phase, directly or by a template. If not, `sim` and `run` begin at 0, and `check` allows any
    /// phase.
    pub phase_given: bool,
    /// Resources it holds, each for at most the span, in this order, from the start of each job.
    pub uses: Vec<(ResourceId, Span)>,
    /// The limit of waiting jobs, and the rule for one more.
    pub queue: QueueLimit,
    /// A job that runs beyond its declared worst case.
    pub on_overrun: OnOverrun,
    /// The rule for a release while the previous job runs or waits.
    pub on_busy: OnBusy,
    /// The rule for a job that misses its deadline.
    pub on_miss: OnMiss,
    /// Release guard of a triggered operation.
    pub guard: Guard,
    /// For a triggered operation: it is released after this time without a trigger.
    pub timeout: Option<Span>,
    /// For a triggered operation: a job with an older origin at its first dispatch is dropped.
    pub lifespan: Option<Span>,
    /// Bytes that a job may pass to the jobs it triggers; 0 for none.
    pub payload: u32,
    /// Copies of its output on other hosts.
    pub replication: Option<Replication>,
}

impl Operation {
    /// True if no rule of its own drops, stops or skips its jobs because of their age or lateness.
    pub fn keeps_late_jobs(&self) -> bool {
        self.lifespan.is_none() && self.on_miss == OnMiss::Continue
    }
}

/// The replicas of an operation's output: copies on other hosts, for operations there that read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replication {
    /// The hosts with a replica: not the operation's own, at least one, sorted.
    pub to: Vec<HostId>,
    /// When an output is sent to them.
    pub flush: FlushPoint,
}

/// The delays of an operation's flushes to one host, drawn for each job. A flush at completion always has the least
/// delay, so the output arrives no later than the signals of that completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushDelay {
    seed: u64,
    draw: JobId,
    limits: (Span, Span),
}

impl FlushDelay {
    /// The delay of the flush of a release.
    pub fn of(&self, number: u64) -> Span {
        let bits = execution_time::bits(self.seed, JobId { number, ..self.draw }, Stream::LinkDelay);
        execution_time::uniform(bits, self.limits.0, self.limits.1)
    }
}

/// When an output is sent to its replicas (Kokyu, section II: operations deliver their values to the replication
/// service by their deadlines; sensors flush and then push).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FlushPoint {
    /// At the deadline of its job. The output of a late job is not sent.
    #[default]
    Deadline,
    /// When its job completes, before the completion triggers other operations.
    Completion,
}

impl FlushPoint {
    /// When the output of a job that completed at `end` is sent; `None` if it is too late.
    pub fn of_job(self, end: Instant, deadline: Instant) -> Option<Instant> {
        match self {
            FlushPoint::Deadline => (end <= deadline).then_some(deadline),
            FlushPoint::Completion => Some(end),
        }
    }
}

impl Operation {
    /// True if only requests from outside the system release it.
    pub fn is_requested(&self) -> bool {
        matches!(&self.trigger, Trigger::Any(any) if any.is_empty())
    }
}

/// The trigger of an operation's jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Time: [`Setting::period`], [`Setting::phase`] and [`Setting::jitter`].
    Periodic,
    /// The completion of all of these: the same release number of each if they share one root,
    /// the oldest unused completion of each otherwise.
    All(Vec<OperationId>),
    /// Each completion of any of these; if empty, only requests.
    Any(Vec<OperationId>),
    /// One completion of each group.
    Correlated(Correlation),
    /// For each release number the first completion of any of these copies, which have the numbers of one root; later
    /// copies are skipped.
    First(Vec<OperationId>),
    /// Each completion of any of these that chooses this operation.
    Chosen(ChosenHops),
}

/// Copies for [`Trigger::First`] must be less than this many releases apart: one that is further behind the newest may
/// count as a later copy, although it is the first.
pub const COPIES_APART: u64 = 64;

/// The hops to an operation that its predecessors choose at each completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenHops {
    /// The operations that choose.
    pub predecessors: Vec<OperationId>,
    /// How often built-in work chooses the hop, in parts per million. A body chooses as it likes.
    pub probability_ppm: u32,
}

/// Groups of operations. A job is released when each group has an unused completion; it uses the oldest of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correlation {
    /// All operations, group by group. One may be in several groups: its completion then counts for each.
    pub predecessors: Vec<OperationId>,
    /// For each of them the number of its group, from 0.
    pub groups: Vec<u16>,
    /// The largest difference between the origins of joined completions; an older completion is dropped.
    pub within: Option<Span>,
}

impl Correlation {
    /// A correlation of these groups.
    pub fn new(groups: &[Vec<OperationId>], within: Option<Span>) -> Correlation {
        let numbers = groups.iter().zip(0..).flat_map(|(group, number)| group.iter().map(move |_| number));
        Correlation { predecessors: groups.concat(), groups: numbers.collect(), within }
    }

    /// The groups in order.
    pub fn groups(&self) -> impl Iterator<Item = &[OperationId]> {
        let mut first = 0;
        self.groups.chunk_by(|one, next| one == next).map(move |group| {
            let group = first..first + group.len();
            first = group.end;
            &self.predecessors[group]
        })
    }

    /// Whether each group has one operation.
    pub fn is_plain(&self) -> bool {
        self.groups().all(|group| group.len() == 1)
    }
}

/// A hop that a completion may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopChoice {
    /// The operation that it triggers.
    pub to: OperationId,
    /// The position of the operation that chooses, among the predecessors.
    pub position: u16,
    /// How often built-in work chooses it, in parts per million.
    pub probability_ppm: u32,
}

impl Trigger {
    /// The operations that trigger it by their completion.
    pub fn predecessors(&self) -> &[OperationId] {
        match self {
            Trigger::Periodic => &[],
            Trigger::All(operations) | Trigger::Any(operations) | Trigger::First(operations) => operations,
            Trigger::Correlated(correlation) => &correlation.predecessors,
            Trigger::Chosen(chosen) => &chosen.predecessors,
        }
    }
}

/// A bound on waiting jobs of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimit {
    /// Jobs that may wait (released or held by a guard, not started); at least 1.
    pub limit: u32,
    /// The rule for one more job.
    pub when_full: WhenFull,
}

impl QueueLimit {
    /// The most jobs of an operation that have not ended: those that wait, one that runs, one that was demoted, one
    /// that blocks. All stores of jobs have room for this many.
    pub const fn most_jobs(self) -> usize {
        self.limit as usize + 3
    }
}

/// The rule for a full queue of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenFull {
    /// The arriving job is dropped.
    #[default]
    DropNewest,
    /// The longest waiting job is dropped, and the arriving one is queued.
    DropOldest,
}

/// The rule for a job that exceeds its declared worst case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnOverrun {
    /// It continues; reports show it.
    #[default]
    Report,
    /// It continues below every lane, in the CPU's idle time.
    Demote,
    /// It is stopped: built-in work ends at once, a user's body is demoted and asked to return.
    Stop,
}

/// The rule for a release while the operation's previous job is unfinished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnBusy {
    /// It waits behind it.
    #[default]
    Queue,
    /// It is dropped ("strict periodic restriction", Zhang et al., RTAS 2005, section 3.4).
    Skip,
}

/// The rule for a job that misses its deadline (Cervin, IFAC World Congress 2005).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnMiss {
    /// It continues, and later releases are unaffected.
    #[default]
    Continue,
    /// It is stopped at its deadline, or not started from then on, and triggers nothing.
    Stop,
    /// It continues. The next release from its deadline on is dropped, and each one while it is unfinished.
    SkipNext,
}

/// The release guard of a triggered operation (Sun and Liu 1996).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Guard {
    /// Released when its trigger completes.
    #[default]
    Off,
    /// Rules 1 and 2: consecutive releases stay a period apart.
    On,
    /// Rule 3 too: an idle point of the processor opens the guard.
    Idle,
}

/// The settings of an operation in one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// False while an epoch switches the operation off: nothing releases it.
    pub enabled: bool,
    /// Period of releases; for a triggered operation that of its roots (the shortest for `any`,
    /// the longest for `all`). Of one that requests release, [`Operation::min_interval`], or else its deadline.
    pub period: Span,
    /// The longest period that a rate range allows; equal to `period` for a single rate.
    pub slowest: Span,
    /// The start of the first period.
    pub phase: Span,
    /// The delay of the release after the begin of each period, or after the trigger.
    pub offset: Span,
    /// Releases are late by up to this, drawn uniformly; they keep their order even if it exceeds the period.
    pub jitter: Span,
    /// Declared worst-case execution time, for analysis and cancellation.
    pub wcet: Span,
    /// Declared best-case execution time.
    pub bcet: Span,
    /// The actual execution times of jobs, for built-in work and simulation.
    pub execution_time: ExecutionTime,
    /// The deadline of a job.
    pub deadline: Deadline,
    /// Jobs per release: a load chain of `legs` jobs, each triggering the next; 1 for all others.
    pub legs: u16,
    /// How many of the first legs are critical; all of them if the operation is.
    pub critical_legs: u16,
}

impl Setting {
    /// True if the deadline equals the shortest period of a range: then it follows the adapted rate.
    pub fn deadline_adapts(&self) -> bool {
        self.slowest > self.period && self.deadline.span() == self.period
    }
}

/// The deadline of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// Counted from the job's own nominal release (jitter not included).
    Own(Span),
    /// Counted from the nominal release of the root job that led to it: the end-to-end deadline.
    Origin(Span),
}

impl Deadline {
    /// The length, whatever its start.
    pub const fn span(self) -> Span {
        match self {
            Deadline::Own(span) | Deadline::Origin(span) => span,
        }
    }
}

/// A resource that one job at a time may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Name in the file.
    pub name: String,
}

/// An end-to-end requirement along a path of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name in the file.
    pub name: String,
    /// At least two operations; each triggers the next or is read by it.
    pub path: Vec<OperationId>,
    /// From the release of the first to the finish of the last.
    pub deadline: Option<Span>,
    /// Of the data at the finish of the last: how old its input may be.
    pub max_age: Option<Span>,
    /// From an input to the first finish of the last operation that uses it.
    pub max_reaction: Option<Span>,
    /// What moves from operation to operation.
    pub carried_by: ChainCarrier,
}

/// The operations of a distributable thread: of all chains that threads carry from one first operation. Where paths part,
/// the thread continues on all of them.
#[derive(Clone, Debug)]
pub struct ThreadGraph {
    /// The first operation: each of its releases is a thread.
    pub root: OperationId,
    /// The longest chain.
    pub chain: Chain,
    /// All operations. Those before another one on a path precede it.
    pub operations: Vec<OperationId>,
}

impl ThreadGraph {
    /// Of all chains from this operation.
    fn new(root: OperationId, chains: &[&Chain]) -> Self {
        let mut depths = BTreeMap::from([(root, 0)]);
        // The longest way to each operation: known after as many rounds as it has steps, because triggers form no circle.
        let longest =
            chains.iter().fold(chains[0], |one, other| if other.path.len() > one.path.len() { other } else { one });
        for _ in 0..chains.iter().map(|chain| chain.path.len()).sum() {
            let before = depths.clone();
            for ends in chains.iter().flat_map(|chain| chain.path.windows(2)) {
                let depth = depths.get(&ends[0]).map_or(1, |depth| depth + 1);
                depths.entry(ends[1]).and_modify(|known| *known = depth.max(*known)).or_insert(depth);
            }
            if depths == before {
                break;
            }
        }
        let mut operations: Vec<OperationId> = depths.keys().copied().collect();
        operations.sort_by_key(|id| depths[id]);
        ThreadGraph { root, chain: longest.clone(), operations }
    }
}

/// What moves along a chain (DT/EC, section 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ChainCarrier {
    /// The completion of each job is an event that triggers the next operation.
    #[default]
    Event,
    /// Each release of the first operation is a distributable thread. Its jobs along the path are its segments. Each
    /// operation after the first is triggered only by the one before it, or by the first of several copies.
    Thread,
}

/// The network between two hosts, both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The two hosts.
    pub between: (HostId, HostId),
    /// Least and greatest delay of an event; drawn uniformly per event.
    pub delay: (Span, Span),
    /// The share of sent events that are lost, in parts per million.
    pub loss_ppm: u32,
}

impl Link {
    /// A link without losses.
    pub const fn new(between: (HostId, HostId), delay: (Span, Span)) -> Link {
        Link { between, delay, loss_ppm: 0 }
    }

    /// Whether it is the link of these two hosts.
    pub fn joins(&self, one: HostId, other: HostId) -> bool {
        self.between == (one, other) || self.between == (other, one)
    }

    /// Its declared state.
    pub const fn setting(&self) -> LinkSetting {
        LinkSetting { delay: self.delay, loss_ppm: self.loss_ppm }
    }
}

/// An operating region: from `at` on, operations have these settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Epoch {
    /// Its name; `0`, `1`, ... if the file sets none.
    pub name: String,
    /// When it begins.
    pub at: Instant,
    /// One per operation, in their order. Shared with the epoch before where nothing changed.
    pub settings: Arc<[Setting]>,
    /// The state of links and hosts. Shared with the previous epoch if unchanged.
    pub environment: Arc<Environment>,
    /// The operations on standby that it withdraws and admits. The first epoch has none.
    pub admissions: Admissions,
}

/// The state of links and hosts in one epoch. By default all hosts are on, and links are as in [`Contents::links`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Links that differ from their declaration, sorted by their position in [`Contents::links`].
    pub links: Vec<(u32, LinkSetting)>,
    /// Hosts that are off, sorted: no operation runs there, and signals to them are lost.
    pub disabled: Vec<HostId>,
    /// The values of [`Contents::conditions`] in millionths, as far as the file sets them.
    pub conditions: Vec<Option<i64>>,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSetting {
    /// Least and greatest delay of an event; drawn uniformly per event.
    pub delay: (Span, Span),
    /// The share of sent events that are lost, in parts per million.
    pub loss_ppm: u32,
}

impl Environment {
    /// The value of a condition in millionths, if the file sets it.
    pub fn condition(&self, place: usize) -> Option<i64> {
        self.conditions.get(place).copied().flatten()
    }

    /// Whether a host is on.
    pub fn enables(&self, host: HostId) -> bool {
        self.disabled.binary_search(&host).is_err()
    }

    /// The state of the link at `position`, which the file declares as `declared`.
    pub fn link(&self, position: usize, declared: &Link) -> LinkSetting {
        let found = self.links.binary_search_by_key(&(position as u32), |(link, _)| *link);
        found.map_or_else(|_| declared.setting(), |found| self.links[found].1)
    }
}

impl Contents {
    /// The operation at `id`.
    pub fn operation(&self, id: OperationId) -> &Operation {
        &self.operations[id.index()]
    }

    /// The processor at `id`.
    pub fn processor(&self, id: ProcessorId) -> &Processor {
        &self.processors[id.index()]
    }

    /// All operation indices in order.
    pub fn operation_ids(&self) -> impl Iterator<Item = OperationId> + use<> {
        (0..self.operations.len() as u32).map(OperationId)
    }

    /// All processor indices in order.
    pub fn processor_ids(&self) -> impl Iterator<Item = ProcessorId> + use<> {
        (0..self.processors.len() as u32).map(ProcessorId)
    }

    /// The operations on one processor, in the file's order.
    pub fn operations_on(&self, processor: ProcessorId) -> impl Iterator<Item = OperationId> + '_ {
        self.operation_ids().filter(move |id| self.operation(*id).on == processor)
    }

    /// The setting of an operation in the epoch with the index.
    pub fn setting(&self, epoch: usize, id: OperationId) -> &Setting {
        &self.epochs[epoch].settings[id.index()]
    }

    /// The drawn execution time of a job at a service level.
    pub fn execution_time(&self, epoch: usize, job: JobId, service_level: u8) -> Span {
        let drawn = self.setting(epoch, job.operation).execution_time.draw(self.seed, job);
        at_level(&self.operation(job.operation).levels, service_level.into(), drawn)
    }

    /// The call at the end of an operation: the file's `calls` divides the caller into `NAME:call` and `NAME`. `None` for
    /// other operations and for oneway calls.
    pub fn call_after(&self, id: OperationId) -> Option<CallSuccessors> {
        let caller = self.operation(id).name.strip_suffix(":call")?;
        let after = |before: OperationId| {
            let ids = (0..self.operations.len() as u32).map(OperationId);
            ids.filter(move |one| self.operation(*one).trigger == Trigger::All([before].into()))
        };
        let rest =
            (0..self.operations.len() as u32).map(OperationId).find(|one| self.operation(*one).name == caller)?;
        let method = after(id).find(|method| *method != rest)?;
        let answers = self.operation(rest).trigger.predecessors().iter().all(|before| *before != id);
        answers.then_some(CallSuccessors { method, rest })
    }

    /// The periodic operation that sets its rate, if that rate is a range in the file: itself, or its only root.
    pub fn adapted_by(&self, id: OperationId) -> Option<OperationId> {
        let [root] = self.operation(id).roots[..] else { return None };
        let periodic = self.operation(root).trigger == Trigger::Periodic;
        let ranges = |epoch: &Epoch| epoch.settings[root.index()].slowest > epoch.settings[root.index()].period;
        (periodic && self.epochs.iter().any(ranges)).then_some(root)
    }

    /// The index of the epoch in force at `now`.
    pub fn epoch_at(&self, now: Instant) -> usize {
        self.epochs.partition_point(|epoch| epoch.at <= now).saturating_sub(1)
    }

    /// Least and greatest delay of an event from one host to another; zero on the same host and if the file has no
    /// link.
    pub fn delay(&self, from: HostId, to: HostId) -> (Span, Span) {
        self.link(from, to).map_or((Span::ZERO, Span::ZERO), |link| self.links[link].delay)
    }

    /// The position of the link between two hosts.
    pub fn link(&self, from: HostId, to: HostId) -> Option<usize> {
        self.links.iter().position(|link| link.joins(from, to))
    }

    /// Whether a processor is on the host.
    pub fn has_processor(&self, host: HostId) -> bool {
        self.processors.iter().any(|one| one.host == host)
    }

    /// The first host of a link with a processor; without any, the other host.
    pub fn first_end(&self, link: usize) -> HostId {
        let (one, other) = self.links[link].between;
        if self.has_processor(one) { one } else { other }
    }

    /// The state of the link from one host to another in an epoch. On one host, and without a link in the file, delay
    /// and loss are zero.
    pub fn link_setting(&self, epoch: usize, from: HostId, to: HostId) -> LinkSetting {
        let setting = |link: usize| self.epochs[epoch].environment.link(link, &self.links[link]);
        self.link(from, to).map_or(LinkSetting::default(), setting)
    }

    /// When the output of an operation is flushed to its replica on a host; `None` if that host has none.
    pub fn replica_on(&self, id: OperationId, host: HostId) -> Option<FlushPoint> {
        let replication = self.operation(id).replication.as_ref()?;
        replication.to.contains(&host).then_some(replication.flush)
    }

    /// The delays of an operation's flushes to a host, as the file declares the link.
    pub fn flush_delay(&self, from: OperationId, to: HostId) -> FlushDelay {
        let (least, most) = self.delay(self.processor(self.operation(from).on).host, to);
        // Completions have the positions of predecessors, which begin at 0.
        let draw = JobId { operation: from, number: 0, leg: u16::MAX - (to.0 % 1024) as u16 };
        match self.replica_on(from, to) {
            Some(FlushPoint::Completion) => FlushDelay { seed: self.seed, draw, limits: (least, least) },
            _ => FlushDelay { seed: self.seed, draw, limits: (least, most) },
        }
    }

    /// How far apart the clocks of two hosts may be.
    pub fn clock_error(&self, from: HostId, to: HostId) -> Span {
        let error = |host: HostId| self.hosts[host.index()].clock_error.unwrap_or(Span::ZERO);
        if from == to { Span::ZERO } else { [error(from), error(to)].into_iter().sum() }
    }

    /// True if in some epoch a host is off or a link loses signals.
    pub fn loses(&self) -> bool {
        let lossy = |epoch: &Epoch| !epoch.environment.disabled.is_empty();
        let link =
            |epoch: &Epoch, (position, link): (usize, &Link)| epoch.environment.link(position, link).loss_ppm > 0;
        self.epochs.iter().any(|epoch| lossy(epoch) || self.links.iter().enumerate().any(|one| link(epoch, one)))
    }

    /// The delay of a completion of `from`, release `number`, that arrived at `to` at `due`. `from` is the predecessor
    /// at `position`. The delay is drawn between the limits of their hosts' link in the epoch of sending.
    pub fn link_delay(&self, (from, to): (OperationId, OperationId), position: u16, number: u64, due: Instant) -> Span {
        let host = |id: OperationId| self.processor(self.operation(id).on).host;
        let (from, there) = (host(from), host(to));
        let drawn = |epoch| self.draw_delay(self.link_setting(epoch, from, there).delay, to, position, number);
        let sent_in = |epoch: &usize| self.epoch_at(due.saturating_sub(drawn(*epoch))) == *epoch;
        let last = self.epoch_at(due);
        drawn((0..=last).rev().find(sent_in).unwrap_or(last))
    }

    /// A delay between these limits, drawn for a completion of release `number` to `to` from the predecessor at
    /// `position`.
    pub fn draw_delay(&self, (least, most): (Span, Span), to: OperationId, position: u16, number: u64) -> Span {
        let draw = JobId { operation: to, number, leg: position };
        execution_time::uniform(execution_time::bits(self.seed, draw, Stream::LinkDelay), least, most)
    }

    /// Whether a link that loses `loss_ppm` loses a completion. As with delays, only the completion determines it.
    pub fn draw_loss(&self, loss_ppm: u32, to: OperationId, position: u16, number: u64) -> bool {
        if loss_ppm == 0 {
            return false;
        }
        let draw = JobId { operation: to, number, leg: position };
        let bits = execution_time::bits(self.seed, draw, Stream::LinkLoss);
        execution_time::uniform(bits, Span::ZERO, Span::from_nanos(999_999)).as_nanos() < u64::from(loss_ppm)
    }

    /// The hops that only completions that choose them follow, by the operation that chooses: in the order of the
    /// operations that they trigger, whose positions number the bits of a choice.
    pub fn choices(&self) -> BTreeMap<OperationId, Vec<HopChoice>> {
        let mut choices: BTreeMap<OperationId, Vec<HopChoice>> = BTreeMap::new();
        for (to, operation) in (0..).map(OperationId).zip(&self.operations) {
            let Trigger::Chosen(ChosenHops { predecessors, probability_ppm }) = &operation.trigger else { continue };
            for (from, position) in predecessors.iter().zip(0..) {
                let choice = HopChoice { to, position, probability_ppm: *probability_ppm };
                choices.entry(*from).or_default().push(choice);
            }
        }
        choices
    }

    /// The choice of built-in work at the completion of release `number`: bit i for the i-th of these hops. As with
    /// losses, only the completion determines it.
    pub fn draw_choice(&self, hops: &[HopChoice], number: u64) -> u64 {
        let drawn = hops.iter().zip(0..).map(|(hop, bit)| {
            let draw = JobId { operation: hop.to, number, leg: hop.position };
            let bits = execution_time::bits(self.seed, draw, Stream::Choice);
            let drawn = execution_time::uniform(bits, Span::ZERO, Span::from_nanos(999_999)).as_nanos();
            u64::from(drawn < u64::from(hop.probability_ppm)) << bit
        });
        drawn.fold(0, |choice, bit| choice | bit)
    }

    /// The limits of the delay from one processor to each, in their order.
    pub fn delays_from(&self, processor: ProcessorId) -> Vec<(Span, Span)> {
        let here = self.processor(processor).host;
        self.processors.iter().map(|there| self.delay(here, there.host)).collect()
    }

    /// How often each operation is released in an epoch, in releases per 10^9 s: a periodic one
    /// by its period, `all` as often as the slowest of its triggers or groups, `any` as often as all of them
    /// together; a requested one by its least interval. 0 for operations that are off or triggered only by such, and
    /// for requests without a least interval.
    pub fn release_rates(&self, epoch: usize) -> Vec<u64> {
        let mut rates: Vec<Option<u64>> = alloc::vec![None; self.operations.len()];
        // Triggers have no cycles. Use an explicit stack: chains may be long.
        let mut pending: Vec<OperationId> = self.operation_ids().collect();
        while let Some(id) = pending.last().copied() {
            let predecessors = self.operation(id).trigger.predecessors();
            let missing = predecessors.iter().filter(|from| rates[from.index()].is_none());
            let before = pending.len();
            pending.extend(missing);
            if pending.len() > before {
                continue;
            }
            pending.pop();
            let setting = self.setting(epoch, id);
            let triggers = predecessors.iter().filter_map(|from| rates[from.index()]);
            let rate = match &self.operation(id).trigger {
                _ if !setting.enabled => 0,
                Trigger::Periodic => per_second(setting.period),
                Trigger::Any(any) if any.is_empty() => match self.operation(id).min_interval {
                    Some(interval) => per_second(interval),
                    None => 0,
                },
                Trigger::All(_) => triggers.min().unwrap_or(0),
                // Copies of one release, some of which may be absent.
                Trigger::First(_) => triggers.max().unwrap_or(0),
                Trigger::Any(_) | Trigger::Chosen(_) => triggers.fold(0, u64::saturating_add),
                Trigger::Correlated(correlation) => {
                    let rate = |group: &[OperationId]| {
                        group.iter().filter_map(|from| rates[from.index()]).fold(0, u64::saturating_add)
                    };
                    correlation.groups().map(rate).min().unwrap_or(0)
                }
            };
            // Triggers that are frequent enough leave no timeouts.
            let timeouts = self.operation(id).timeout.filter(|_| setting.enabled).map_or(0, per_second);
            let rate = if timeouts > rate { rate.saturating_add(timeouts) } else { rate };
            rates[id.index()] = Some(rate);
        }
        rates.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// True if an operation's jobs have the release numbers of its one root: through `all`, through `first`, and through
    /// `any` or `chosen` of one. A merge of several and an operation with a timeout count independently, as do their
    /// successors.
    pub fn numbered_by_root(&self, id: OperationId) -> bool {
        let mut pending = alloc::vec![id];
        let mut seen = alloc::vec![false; self.operations.len()];
        while let Some(id) = pending.pop() {
            if core::mem::replace(&mut seen[id.index()], true) {
                continue;
            }
            if self.numbers_its_own(id) {
                return false;
            }
            pending.extend(self.operation(id).trigger.predecessors());
        }
        true
    }

    /// True if an operation with a trigger counts its jobs, whatever the numbers of its predecessors.
    fn numbers_its_own(&self, id: OperationId) -> bool {
        let Operation { trigger, roots, timeout, .. } = self.operation(id);
        timeout.is_some()
            || match trigger {
                Trigger::Any(any) => any.len() > 1,
                Trigger::Chosen(chosen) => chosen.predecessors.len() > 1,
                Trigger::Correlated(correlation) => !correlation.is_plain() || roots.len() > 1,
                Trigger::All(_) => roots.len() > 1,
                Trigger::First(_) | Trigger::Periodic => false,
            }
    }

    /// An operation after the first of several copies, and a copy with the release numbers of another root than the rest;
    /// `None` if all copies agree.
    pub(crate) fn not_a_copy(&self) -> Option<(OperationId, OperationId)> {
        let ids = || (0..self.operations.len() as u32).map(OperationId);
        let copies = |id: OperationId| match &self.operation(id).trigger {
            Trigger::First(copies) => &copies[..],
            _ => &[],
        };
        if ids().all(|id| copies(id).is_empty()) {
            return None;
        }
        // From operations that number their own jobs to all that follow them.
        let mut followers: Vec<Vec<OperationId>> = alloc::vec![Vec::new(); self.operations.len()];
        ids().for_each(|id| {
            self.operation(id).trigger.predecessors().iter().for_each(|from| followers[from.index()].push(id))
        });
        let mut counts_anew: Vec<bool> = ids().map(|id| self.numbers_its_own(id)).collect();
        let mut pending: Vec<OperationId> = ids().filter(|id| counts_anew[id.index()]).collect();
        while let Some(id) = pending.pop() {
            for follower in &followers[id.index()] {
                if !core::mem::replace(&mut counts_anew[follower.index()], true) {
                    pending.push(*follower);
                }
            }
        }
        ids().find_map(|id| {
            let roots = |copy: &OperationId| &self.operation(*copy).roots;
            let first = copies(id).first()?;
            let differs = |copy: &&OperationId| counts_anew[copy.index()] || roots(copy) != roots(first);
            copies(id).iter().find(differs).map(|copy| (id, *copy))
        })
    }

    /// The utilisation of a processor in an epoch, in parts per million of one CPU: the sum of
    /// worst case times legs times the rate of releases.
    pub fn utilisation_ppm(&self, epoch: usize, processor: ProcessorId) -> u64 {
        let rates = self.release_rates(epoch);
        let ppm = |id: OperationId| {
            let setting = self.setting(epoch, id);
            utilisation_ppm(setting.wcet, setting.legs, rates[id.index()])
        };
        self.operations_on(processor).map(ppm).fold(0, u64::saturating_add)
    }
}

/// Releases in 10^9 s, one in each period.
fn per_second(period: Span) -> u64 {
    1_000_000_000_000_000_000 / period.as_nanos().max(1)
}

/// The share of a CPU, in parts per million, that `jobs` jobs of `wcet` use at each of `rate`
/// releases in 10^9 s.
pub fn utilisation_ppm(wcet: Span, jobs: u16, rate: u64) -> u64 {
    let nanos = (u128::from(wcet.as_nanos()) * u128::from(jobs)).saturating_mul(u128::from(rate));
    // Nanoseconds in 10^9 s, times a million over 10^18.
    (nanos.saturating_add(500_000_000_000) / 1_000_000_000_000).min(u128::from(u64::MAX)) as u64
}

/// For each operation, the tightest deadline of the chains that reach it by triggers from an untriggered first
/// operation. Only such a deadline counts from the release at the start of the chain.
pub(crate) fn tightest(chains: &[Chain], triggers: &[Trigger]) -> Vec<Option<Span>> {
    let mut tightest: Vec<Option<Span>> = alloc::vec![None; triggers.len()];
    for chain in chains {
        let Some(deadline) = chain.deadline else { continue };
        if !triggers[chain.path[0].index()].predecessors().is_empty() {
            continue;
        }
        for ends in chain.path.windows(2) {
            if !triggers[ends[1].index()].predecessors().contains(&ends[0]) {
                break;
            }
            let known = &mut tightest[ends[1].index()];
            *known = Some(known.map_or(deadline, |known| known.min(deadline)));
        }
    }
    tightest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_worst_case_times_jobs_times_rate() {
        let per_second = |hertz: u64| hertz * 1_000_000_000;
        assert_eq!(utilisation_ppm(Span::from_millis(10), 1, per_second(100)), 1_000_000);
        assert_eq!(utilisation_ppm(Span::from_micros(4_350), 11, per_second(20)), 957_000);
        assert_eq!(utilisation_ppm(crate::time::LONGEST_SPAN, u16::MAX, u64::MAX), u64::MAX);
    }
}
