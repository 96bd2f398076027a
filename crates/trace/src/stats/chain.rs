//! End-to-end statistics of chains.
//!
//! An *output* is a finished job of the last operation. Its *input* is the release of the job of the first operation
//! that produced its value. Through triggers, values travel with release numbers. Through `reads`, an operation
//! reflects the latest completion of the other operation at its own start; of a replica, the newest output whose flush
//! has arrived by then.
//!
//! - **latency** and **age**: finish of the output minus its input. (This is the age at the finish; it grows until the
//!   next output.)
//! - **reaction**: finish of an output minus the input of the latest earlier output that reflects an older input. It is
//!   the delay until an output shows something that happened just after that older input. In a chain of triggers it is
//!   the period plus the latency.
//! - An instance is **lost** if one of its jobs is cancelled, stopped or dropped. Through `reads` no instance is lost:
//!   the data is only older. After the first of several copies, none is lost that another copy led on. An instance with
//!   a hop that was not chosen is neither an output nor lost.
//!
//! Some chains are not measured, and reports state why: paths in which an operation has several possible triggers
//! (`any` of several, joins of different roots), `reads` over a link with a delay and without a replica, replicas over
//! links that change or lose, and load chains with a trigger.

use hyoshi_model::{
    Chain, ChainId, FlushDelay, FlushPoint, Guard, HostId, Instant, JobId, OperationId, Span, System, Trigger,
};

use super::copies::CopiedInstances;
use super::distribution::{Distribution, Extent};
use super::stages::{ChainTimes, StageRoom, StageStats};
use crate::event::{JobEnd, Signal};

/// Completions of a stage that are kept for the next one.
const REMEMBERED: usize = 64;

/// If all chains together have more stages than this, distributions of stages have one digit: 2 kB each instead of
/// 17 kB.
const MANY: usize = 250;

/// The same for the latencies of more chains than this.
const MANY_CHAINS: usize = 1_000;

/// Statistics of one chain.
#[derive(Clone, Debug)]
pub struct ChainStats {
    /// The reason why it is not measured, if so.
    pub unmeasured: Option<&'static str>,
    /// Latency of the outputs; also the age of their data.
    pub latency: Distribution<Span>,
    /// Reaction times.
    pub reaction: Extent<Span>,
    /// Outputs within the chain's deadline; all outputs if it has none.
    pub made: u64,
    /// Outputs after the deadline.
    pub missed: u64,
    /// Outputs with data older than `max_age`.
    pub too_old: u64,
    /// Outputs that showed a change after more than `max_reaction`.
    pub too_slow: u64,
    /// Instances that did not reach the end.
    pub lost: u64,
    /// Outputs with unknown input: job ends were out of order, or more than 64 apart.
    pub unmatched: u64,
    /// The time of the outputs by stage, in the order of the path. Empty if the path has one stage only, or a join that
    /// numbers its jobs independently, or the first of several copies, or if [`stages_omitted`](Self::stages_omitted).
    pub stages: Vec<StageStats>,
    /// True if its stages are not recorded, because those of the chains before it leave no room for them.
    pub stages_omitted: bool,
    deadline: Option<Span>,
    max_age: Option<Span>,
    max_reaction: Option<Span>,
    latest_input: Option<Instant>,
}

impl ChainStats {
    /// True if the chain violates a requirement of the file. A lost instance violates a deadline.
    pub fn violated(&self) -> bool {
        self.deadline.is_some() && self.missed + self.lost > 0 || self.too_old + self.too_slow > 0
    }

    /// Records an output. No reaction spans two instants if one of its operations was `off` between them.
    fn output(&mut self, input: Instant, finish: Instant, off: impl Fn(Instant, Instant) -> bool) {
        let latency = finish.since(input);
        self.latency.record(latency);
        let beyond = |limit: Option<Span>, span: Span| limit.is_some_and(|limit| span > limit);
        match beyond(self.deadline, latency) {
            true => self.missed += 1,
            false => self.made += 1,
        }
        self.too_old += u64::from(beyond(self.max_age, latency));
        match self.latest_input {
            Some(before) if before < input && off(before, input) => {
                self.latest_input = Some(input);
            }
            Some(before) if before < input => {
                let reaction = finish.since(before);
                self.reaction.record(reaction);
                self.too_slow += u64::from(beyond(self.max_reaction, reaction));
                self.latest_input = Some(input);
            }
            Some(_) => {}
            None => self.latest_input = Some(input),
        }
    }
}

/// All chains of a system, and the values that travel along them.
#[derive(Clone, Debug)]
pub(super) struct Chains {
    chains: Vec<ChainStats>,
    /// By chain; `None` if its stages are not measured.
    times: Vec<Option<ChainTimes>>,
    /// By chain; `None` if its path contains no operation after the first of several copies.
    copied: Vec<Option<CopiedInstances>>,
    /// Chain by chain.
    stages: Vec<Stage>,
    operations: Vec<ChainOperation>,
}

/// The data of an operation for all its stages. Only operations with stages have any.
#[derive(Clone, Debug, Default)]
struct ChainOperation {
    stages: Vec<u32>,
    /// For each epoch, the last leg of its jobs: the one that completes them.
    last_legs: Vec<u16>,
    /// For each epoch, the delay of its releases.
    offsets: Vec<Span>,
    /// Beginnings of regions in which it is off.
    pauses: Vec<Instant>,
}

impl ChainOperation {
    fn new(system: &System, id: OperationId) -> ChainOperation {
        let settings = || system.epochs.iter().map(|epoch| &epoch.settings[id.index()]);
        let off = system.epochs.iter().filter(|epoch| !epoch.settings[id.index()].enabled);
        ChainOperation {
            stages: Vec::new(),
            last_legs: settings().map(|setting| setting.legs.saturating_sub(1)).collect(),
            offsets: settings().map(|setting| setting.offset).collect(),
            pauses: off.map(|epoch| epoch.at).collect(),
        }
    }

    /// Whether a region in which it is off begins after `one` and not after `other`.
    fn pauses_between(&self, one: Instant, other: Instant) -> bool {
        let until = |now: Instant| self.pauses.partition_point(|pause| *pause <= now);
        until(one) < until(other)
    }
}

/// An operation in a chain's path.
#[derive(Clone, Debug)]
struct Stage {
    chain: ChainId,
    operation: OperationId,
    /// Its place in the path.
    position: usize,
    source: StageInput,
    last: bool,
    /// Only instances of chains without `reads` can be lost.
    can_lose: bool,
    /// A guard can hold its releases back.
    guarded: bool,
    /// The outputs that the next stage needs; empty if it needs none.
    flow: Flow,
    /// How outputs are flushed, if the next stage reads a replica of them.
    flush: Option<FlushRule>,
}

/// When outputs arrive at a replica.
#[derive(Clone, Copy, Debug)]
struct FlushRule {
    point: FlushPoint,
    delay: FlushDelay,
}

impl FlushRule {
    fn arrival(&self, end: &JobEnd) -> Option<Instant> {
        let sent = self.point.of_job(end.end, end.deadline)?;
        Some(sent.saturating_add(self.delay.of(end.job.number)))
    }
}

/// The source of a stage's input.
#[derive(Clone, Copy, Debug)]
pub(super) enum StageInput {
    /// The job's origin: a periodic first operation, and triggers only.
    Origin,
    /// The job's release: a first operation with a trigger.
    Release,
    /// The job of the previous stage with the same number.
    SameNumber,
    /// The latest completion of the previous stage at the job's start.
    Latest,
    /// The newest output of the previous stage whose flush to this host has arrived at the job's start.
    Replica(HostId),
}

#[derive(Clone, Debug, Default)]
struct Flow {
    outputs: Option<Box<[StageOutput; REMEMBERED]>>,
    passed: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct StageOutput {
    number: u64,
    /// When the next stage can read it.
    end: Instant,
    input: Instant,
}

impl Flow {
    fn pass(&mut self, passed: StageOutput) {
        if let Some(outputs) = &mut self.outputs {
            outputs[self.passed % REMEMBERED] = passed;
            self.passed += 1;
        }
    }

    /// From newest to oldest.
    fn newest_first(&self) -> impl Iterator<Item = &StageOutput> {
        let first = self.passed.saturating_sub(REMEMBERED);
        let outputs = self.outputs.as_deref();
        (first..self.passed).rev().filter_map(move |at| outputs.map(|outputs| &outputs[at % REMEMBERED]))
    }
}

impl Chains {
    pub fn new(system: &System) -> Self {
        let (chains, times, copied, stages) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let operations = vec![ChainOperation::default(); system.operations.len()];
        let mut new = Chains { chains, times, copied, stages, operations };
        let stages: usize = system.chains.iter().map(|chain| chain.path.len()).sum();
        let digits = |many| if many { 1 } else { 2 };
        let digits = [digits(system.chains.len() > MANY_CHAINS), digits(stages > MANY)];
        let mut room = StageRoom::default();
        for (index, chain) in system.chains.iter().enumerate() {
            new.add(system, (ChainId(index as u32), chain), digits, &mut room);
        }
        new
    }

    /// Adds a chain. `digits` are those of its latency and of its stages.
    fn add(&mut self, system: &System, (id, chain): (ChainId, &Chain), digits: [u8; 2], room: &mut StageRoom) {
        let sources = sources(system, chain);
        let mut times = sources.as_ref().ok().and_then(|sources| ChainTimes::new(system, chain, sources));
        let stages_omitted = times.take_if(|times| !times.allocate(system, chain, room)).is_some();
        let limits = [chain.deadline, chain.max_age, chain.max_reaction];
        let expected = limits.into_iter().flatten().max().unwrap_or(Span::from_secs(1));
        self.chains.push(ChainStats {
            unmeasured: sources.as_ref().err().copied(),
            latency: Distribution::new(expected_finest(expected), many(expected), Span::ZERO, digits[0]),
            reaction: Extent::default(),
            made: 0,
            missed: 0,
            too_old: 0,
            too_slow: 0,
            lost: 0,
            unmatched: 0,
            stages: times.as_ref().map_or(Vec::new(), |times| times.stats(system, chain, many(expected), digits[1])),
            stages_omitted,
            deadline: chain.deadline,
            max_age: chain.max_age,
            max_reaction: chain.max_reaction,
            latest_input: None,
        });
        self.times.push(times);
        let first = |id: &OperationId| matches!(system.operation(*id).trigger, Trigger::First(_));
        self.copied.push(chain.path.iter().rposition(first).filter(|place| *place > 0).map(CopiedInstances::new));
        let Ok(sources) = sources else { return };
        let can_lose = !sources.iter().any(|source| matches!(source, StageInput::Latest | StageInput::Replica(_)));
        for (position, (operation, source)) in chain.path.iter().zip(&sources).enumerate() {
            let next = sources.get(position + 1);
            let looked_up = matches!(next, Some(StageInput::SameNumber | StageInput::Latest | StageInput::Replica(_)));
            let flush = match next {
                Some(StageInput::Replica(host)) => system
                    .replica_on(*operation, *host)
                    .map(|point| FlushRule { point, delay: system.flush_delay(*operation, *host) }),
                _ => None,
            };
            let outputs = looked_up.then(|| Box::new([StageOutput::default(); REMEMBERED]));
            let known = &mut self.operations[operation.index()];
            if known.stages.is_empty() {
                *known = ChainOperation::new(system, *operation);
            }
            known.stages.push(self.stages.len() as u32);
            self.stages.push(Stage {
                chain: id,
                operation: *operation,
                position,
                source: *source,
                last: position + 1 == chain.path.len(),
                can_lose,
                guarded: system.operation(*operation).guard != Guard::Off,
                flow: Flow { outputs, passed: 0 },
                flush,
            });
        }
    }

    /// Call this if the jobs ran on several nodes: the real delays of flushes are unknown.
    pub fn over_networks(&mut self) {
        for stage in self.stages.iter().filter(|stage| stage.flush.is_some()) {
            self.chains[stage.chain.index()].unmeasured = Some("one of its operations reads a replica of another node");
        }
        for operation in &mut self.operations {
            let is_measured = |stage: &Stage| self.chains[stage.chain.index()].unmeasured.is_none();
            operation.stages.retain(|stage| is_measured(&self.stages[*stage as usize]));
        }
    }

    pub fn get(&self) -> &[ChainStats] {
        &self.chains
    }

    #[inline]
    pub fn concerns(&self, operation: OperationId) -> bool {
        self.operations.get(operation.index()).is_some_and(|operation| !operation.stages.is_empty())
    }

    pub fn record(&mut self, end: &JobEnd) {
        let operation = end.job.operation.index();
        for stage in 0..self.operations[operation].stages.len() {
            self.pass(self.operations[operation].stages[stage] as usize, end);
        }
    }

    /// Records the arrival of a signal on the processor of the triggered operation.
    pub fn arrived(&mut self, signal: &Signal, at: Instant) {
        for position in self.operations.get(signal.to.index()).into_iter().flat_map(|one| &one.stages) {
            let stage = &self.stages[*position as usize];
            if let Some(times) = &mut self.times[stage.chain.index()] {
                times.arrived(stage.position, signal, at);
            }
        }
    }

    /// Records that a guard or an offset holds a job back from now on.
    pub fn held(&mut self, job: JobId, at: Instant) {
        for position in self.operations.get(job.operation.index()).into_iter().flat_map(|one| &one.stages) {
            let stage = &self.stages[*position as usize];
            if let (true, Some(times)) = (stage.guarded, &mut self.times[stage.chain.index()]) {
                times.held(stage.position, job, at);
            }
        }
    }

    fn pass(&mut self, position: usize, end: &JobEnd) {
        let stage = &self.stages[position];
        let chain = &mut self.chains[stage.chain.index()];
        let times = &mut self.times[stage.chain.index()];
        let finished = end.outcome.finished();
        let lost = match &mut self.copied[stage.chain.index()] {
            Some(copied) => copied.ended(stage.position, end.job.number, finished),
            None => i64::from(!finished),
        };
        if stage.can_lose {
            chain.lost = chain.lost.saturating_add_signed(lost);
        }
        if !finished {
            return;
        }
        let operation = &self.operations[end.job.operation.index()];
        let last_leg = operation.last_legs.get(usize::from(end.epoch)).or(operation.last_legs.last());
        if super::counts::unfinished(end) {
            // Its data never arrived; the miss counts at the end of the run.
            chain.missed += u64::from(stage.last);
            return;
        }
        let is_last_leg = last_leg.is_none_or(|leg| end.job.leg >= *leg);
        if let Some(times) = times {
            let offset = operation.offsets.get(usize::from(end.epoch)).or(operation.offsets.last());
            times.ended(stage.position, stage.source, end, offset.copied().unwrap_or_default(), is_last_leg);
        }
        if !is_last_leg {
            return;
        }
        let before = || self.stages[position - 1].flow.newest_first();
        let same_number = || before().find(|passed| passed.number == end.job.number);
        let latest = || before().find(|passed| passed.end <= end.start);
        let arrived = || before().filter(|passed| passed.end <= end.start).max_by_key(|passed| passed.number);
        let (input, read) = match stage.source {
            StageInput::Origin => (Some(end.origin), None),
            StageInput::Release => (Some(end.release), None),
            StageInput::SameNumber => (same_number().map(|passed| passed.input), None),
            StageInput::Latest => latest().map(|passed| (passed.input, passed.number)).unzip(),
            StageInput::Replica(_) => arrived().map(|passed| (passed.input, passed.number)).unzip(),
        };
        if let Some(times) = times {
            times.completed(stage.position, end.job.number, read, &mut chain.stages);
        }
        let last = stage.last;
        // Before the first value arrives, a reader has no output.
        let Some(input) = input else {
            let source = position.checked_sub(1).map(|source| &self.stages[source].flow);
            let none_yet = |source: &Flow| {
                source.passed == 0
                    || (matches!(stage.source, StageInput::Replica(_))
                        && source.newest_first().all(|passed| passed.end > end.start)
                        && source.passed <= REMEMBERED)
            };
            chain.unmatched += u64::from(last && !source.is_some_and(none_yet));
            return;
        };
        if last {
            let path = &self.stages[position - stage.position..=position];
            let pauses =
                |stage: &Stage, one, other| self.operations[stage.operation.index()].pauses_between(one, other);
            chain.output(input, end.end, |one, other| path.iter().any(|stage| pauses(stage, one, other)));
        }
        // A late output is not flushed.
        let Some(arrival) = stage.flush.map_or(Some(end.end), |flush| flush.arrival(end)) else { return };
        self.stages[position].flow.pass(StageOutput { number: end.job.number, end: arrival, input });
    }
}

/// The input of each operation of the path, or the reason why it is unknown.
fn sources(system: &System, chain: &Chain) -> Result<Vec<StageInput>, &'static str> {
    let mut sources = Vec::with_capacity(chain.path.len());
    let Some(first) = chain.path.first() else { return Err("its path is empty") };
    let periodic = system.operation(*first).trigger == Trigger::Periodic;
    if !periodic && legs(system, *first).any(|legs| legs > 1) {
        return Err("it begins with a load chain that has a trigger");
    }
    sources.push(if periodic { StageInput::Origin } else { StageInput::Release });
    for pair in chain.path.windows(2) {
        let (from, to) = (pair[0], system.operation(pair[1]));
        let before = sources[sources.len() - 1];
        sources.push(if to.trigger.predecessors().contains(&from) {
            match &to.trigger {
                _ if to.timeout.is_some() => return Err("one of its operations has a timeout"),
                Trigger::Any(_) | Trigger::Chosen(_) if to.trigger.predecessors().len() > 1 => {
                    return Err("one of its operations is triggered by any of several");
                }
                Trigger::First(_) if !matches!(before, StageInput::Origin) => {
                    return Err("another copy may trigger one of its operations, and it does not begin at their root");
                }
                Trigger::All(_) if to.roots.len() > 1 => return Err("one of its operations joins different roots"),
                Trigger::Correlated(_) if !system.numbered_by_root(pair[1]) => {
                    return Err("one of its operations correlates different roots");
                }
                _ if matches!(before, StageInput::Origin) => StageInput::Origin,
                _ => StageInput::SameNumber,
            }
        } else {
            let host = |operation: OperationId| system.processor(system.operation(operation).on).host;
            let (there, here) = (host(from), host(pair[1]));
            match system.replica_on(from, here) {
                Some(_) if !is_steady(system, there, here) => {
                    return Err("one of its operations reads a replica over a link that changes or loses");
                }
                Some(_) => StageInput::Replica(here),
                None if !system.delay(there, here).1.is_zero() => {
                    return Err("one of its operations reads another over a link with a delay");
                }
                None => StageInput::Latest,
            }
        });
    }
    Ok(sources)
}

/// Whether a link has its declared delay in all regions, and loses nothing.
fn is_steady(system: &System, there: HostId, here: HostId) -> bool {
    let steady = |epoch: usize| {
        let link = system.link_setting(epoch, there, here);
        let on = |host| system.epochs[epoch].environment.enables(host);
        link.delay == system.delay(there, here) && link.loss_ppm == 0 && on(there) && on(here)
    };
    (0..system.epochs.len()).all(steady)
}

fn legs(system: &System, operation: OperationId) -> impl Iterator<Item = u16> + '_ {
    system.epochs.iter().map(move |epoch| epoch.settings[operation.index()].legs)
}

fn expected_finest(expected: Span) -> Span {
    Span::from_nanos(expected.as_nanos() / 8192)
}

fn many(expected: Span) -> Span {
    Span::from_nanos(expected.as_nanos().saturating_mul(64))
}
