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
//!   the data is only older.
//!
//! Some chains are not measured, and reports state why: paths in which an operation has several possible triggers
//! (`any` of several, joins of different roots), `reads` over a link with a delay and without a replica, replicas over
//! links that change or lose, and load chains with a trigger.

use hyoshi_model::{
    Chain, ChainId, Epoch, FlushDelay, FlushPoint, Guard, HostId, Instant, JobId, OperationId, Span, System, Trigger,
};

use super::distribution::{Distribution, Extent};
use super::stages::{ChainTimes, StageStats};
use crate::event::{JobEnd, Signal};

/// Completions of a stage that are kept for the next one.
const REMEMBERED: usize = 64;

/// If all chains together have more stages than this, distributions of stages have one digit: 2 kB each instead of
/// 17 kB.
const MANY: usize = 250;

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
    /// numbers its jobs independently.
    pub stages: Vec<StageStats>,
    deadline: Option<Span>,
    max_age: Option<Span>,
    max_reaction: Option<Span>,
    latest_input: Option<Instant>,
    /// Beginnings of regions in which one of its operations is off: no reaction spans them.
    pauses: Vec<Instant>,
}

impl ChainStats {
    /// True if the chain violates a requirement of the file. A lost instance violates a deadline.
    pub fn violated(&self) -> bool {
        self.deadline.is_some() && self.missed + self.lost > 0 || self.too_old + self.too_slow > 0
    }

    fn output(&mut self, input: Instant, finish: Instant) {
        let latency = finish.since(input);
        self.latency.record(latency);
        let beyond = |limit: Option<Span>, span: Span| limit.is_some_and(|limit| span > limit);
        match beyond(self.deadline, latency) {
            true => self.missed += 1,
            false => self.made += 1,
        }
        self.too_old += u64::from(beyond(self.max_age, latency));
        match self.latest_input {
            Some(before) if before < input && self.pauses_until(before) < self.pauses_until(input) => {
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

    fn pauses_until(&self, now: Instant) -> usize {
        self.pauses.partition_point(|pause| *pause <= now)
    }
}

/// All chains of a system, and the values that travel along them.
#[derive(Clone, Debug)]
pub(super) struct Chains {
    chains: Vec<ChainStats>,
    /// By chain; `None` if its stages are not measured.
    times: Vec<Option<ChainTimes>>,
    stages: Vec<Stage>,
    /// The stages of each operation.
    stages_of: Vec<Vec<u32>>,
}

/// An operation in a chain's path.
#[derive(Clone, Debug)]
struct Stage {
    chain: ChainId,
    /// Its place in the path.
    position: usize,
    source: StageInput,
    last: bool,
    /// Only instances of chains without `reads` can be lost.
    can_lose: bool,
    /// For each epoch, the last leg of its jobs: the one that completes them.
    last_leg: Vec<u16>,
    /// For each epoch, the delay of its releases.
    offsets: Vec<Span>,
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
        let (chains, times, stages) = (Vec::new(), Vec::new(), Vec::new());
        let mut new = Chains { chains, times, stages, stages_of: vec![Vec::new(); system.operations.len()] };
        let stages: usize = system.chains.iter().map(|chain| chain.path.len()).sum();
        let digits = if stages > MANY { 1 } else { 2 };
        for (index, chain) in system.chains.iter().enumerate() {
            new.add(system, ChainId(index as u32), chain, digits);
        }
        new
    }

    fn add(&mut self, system: &System, id: ChainId, chain: &Chain, digits: u8) {
        let sources = sources(system, chain);
        let times = sources.as_ref().ok().and_then(|sources| ChainTimes::new(system, chain, sources));
        let limits = [chain.deadline, chain.max_age, chain.max_reaction];
        let expected = limits.into_iter().flatten().max().unwrap_or(Span::from_secs(1));
        self.chains.push(ChainStats {
            unmeasured: sources.as_ref().err().copied(),
            latency: Distribution::new(expected_finest(expected), many(expected), Span::ZERO, 2),
            reaction: Extent::default(),
            made: 0,
            missed: 0,
            too_old: 0,
            too_slow: 0,
            lost: 0,
            unmatched: 0,
            stages: times.as_ref().map_or(Vec::new(), |times| times.stats(system, chain, many(expected), digits)),
            deadline: chain.deadline,
            max_age: chain.max_age,
            max_reaction: chain.max_reaction,
            latest_input: None,
            pauses: pauses(system, chain),
        });
        self.times.push(times);
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
            self.stages_of[operation.index()].push(self.stages.len() as u32);
            self.stages.push(Stage {
                chain: id,
                position,
                source: *source,
                last: position + 1 == chain.path.len(),
                can_lose,
                last_leg: legs(system, *operation).map(|legs| legs.saturating_sub(1)).collect(),
                offsets: system.epochs.iter().map(|epoch| epoch.settings[operation.index()].offset).collect(),
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
            self.stages_of.iter_mut().for_each(|stages| {
                stages.retain(|other| self.stages[*other as usize].chain != stage.chain);
            });
        }
    }

    pub fn get(&self) -> &[ChainStats] {
        &self.chains
    }

    #[inline]
    pub fn concerns(&self, operation: OperationId) -> bool {
        self.stages_of.get(operation.index()).is_some_and(|stages| !stages.is_empty())
    }

    pub fn record(&mut self, end: &JobEnd) {
        for position in 0..self.stages_of[end.job.operation.index()].len() {
            self.pass(self.stages_of[end.job.operation.index()][position] as usize, end);
        }
    }

    /// Records the arrival of a signal on the processor of the triggered operation.
    pub fn arrived(&mut self, signal: &Signal, at: Instant) {
        for position in self.stages_of.get(signal.to.index()).into_iter().flatten() {
            let stage = &self.stages[*position as usize];
            if let Some(times) = &mut self.times[stage.chain.index()] {
                times.arrived(stage.position, signal, at);
            }
        }
    }

    /// Records that a guard or an offset holds a job back from now on.
    pub fn held(&mut self, job: JobId, at: Instant) {
        for position in self.stages_of.get(job.operation.index()).into_iter().flatten() {
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
        if !end.outcome.finished() {
            chain.lost += u64::from(stage.can_lose);
            return;
        }
        let last_leg = stage.last_leg.get(usize::from(end.epoch)).or(stage.last_leg.last());
        if super::counts::unfinished(end) {
            // Its data never arrived; the miss counts at the end of the run.
            chain.missed += u64::from(stage.last);
            return;
        }
        let is_last_leg = last_leg.is_none_or(|leg| end.job.leg >= *leg);
        if let Some(times) = times {
            let offset = stage.offsets.get(usize::from(end.epoch)).or(stage.offsets.last());
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
            chain.output(input, end.end);
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
                Trigger::Any(any) if any.len() > 1 => {
                    return Err("one of its operations is triggered by any of several");
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

/// Beginnings of regions in which the chain cannot run.
fn pauses(system: &System, chain: &Chain) -> Vec<Instant> {
    let off = |epoch: &&Epoch| chain.path.iter().any(|operation| !epoch.settings[operation.index()].enabled);
    system.epochs.iter().filter(off).map(|epoch| epoch.at).collect()
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
