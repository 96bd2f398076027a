//! End-to-end figures of chains.
//!
//! An *output* is a job of the last operation that finished; its *input* is the release of the job
//! of the first operation whose value it reflects. Where each operation of the path triggers the
//! next, values travel with release numbers; through `reads` an operation reflects the latest
//! completion of the other at its own start.
//!
//! - **latency** and **age**: finish of the output minus its input. (The age at the finish; until
//!   the next output the data goes on ageing.)
//! - **reaction**: finish of an output minus the input of the latest output before it that reflects
//!   an older one: how long something took to show that happened just after that older input was
//!   taken. For a chain of triggers it is the period plus the latency.
//! - An instance is **lost** when one of its jobs is cancelled, stopped or dropped. Through `reads`
//!   nothing is lost: the data is only older.
//!
//! Not measured, and said so: paths through an operation that several others trigger in a way that
//! hides which of them did (`any` of several, joins of different roots), `reads` over a link with a
//! delay, and load chains that are triggered themselves.

use hyoshi_model::{Chain, ChainId, Epoch, Instant, OperationId, Span, System, Trigger};

use super::distribution::{Distribution, Extent};
use crate::event::JobEnd;

/// Completions of a stage that are remembered for the next one.
const REMEMBERED: usize = 64;

/// What was seen of one chain.
#[derive(Clone, Debug)]
pub struct ChainStats {
    /// Why it is not measured, if it is not.
    pub unmeasured: Option<&'static str>,
    /// Latency of the outputs, which is the age of their data too.
    pub latency: Distribution<Span>,
    /// Reaction times.
    pub reaction: Extent<Span>,
    /// Outputs within the chain's deadline, or all of them if it has none.
    pub made: u64,
    /// Outputs after it.
    pub missed: u64,
    /// Outputs whose data was older than `max_age`.
    pub too_old: u64,
    /// Outputs that showed a change later than `max_reaction`.
    pub too_slow: u64,
    /// Instances that did not reach their end.
    pub lost: u64,
    /// Outputs whose input is not known: job ends came out of order, or more than 64 apart.
    pub unmatched: u64,
    deadline: Option<Span>,
    max_age: Option<Span>,
    max_reaction: Option<Span>,
    latest_input: Option<Instant>,
    /// When regions begin in which one of its operations is switched off: nothing reacts across them.
    pauses: Vec<Instant>,
}

impl ChainStats {
    /// True if something that the file demands of the chain was not kept. A lost instance breaks a deadline.
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

/// All chains of a system, and how values travel along them.
#[derive(Clone, Debug)]
pub(super) struct Chains {
    chains: Vec<ChainStats>,
    stages: Vec<Stage>,
    /// For each operation, its stages.
    stages_of: Vec<Vec<u32>>,
}

/// An operation in a chain's path.
#[derive(Clone, Debug)]
struct Stage {
    chain: ChainId,
    source: Source,
    last: bool,
    /// Only instances of chains without `reads` can be lost.
    can_lose: bool,
    /// For each epoch, the last leg of its jobs: the one that completes them.
    last_leg: Vec<u16>,
    /// What the next stage needs to look up; empty if it needs nothing.
    flow: Flow,
}

/// Where a stage's input comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// It is the job's origin: a periodic first operation and triggers only.
    Origin,
    /// It is the job's release: the first operation, if it is triggered.
    Release,
    /// The job of the stage before with the same number.
    SameNumber,
    /// The latest completion of the stage before at the job's start.
    Latest,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    kept: Option<Box<[Passed; REMEMBERED]>>,
    passed: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    number: u64,
    end: Instant,
    input: Instant,
}

impl Flow {
    fn pass(&mut self, passed: Passed) {
        if let Some(kept) = &mut self.kept {
            kept[self.passed % REMEMBERED] = passed;
            self.passed += 1;
        }
    }

    /// From the newest to the oldest.
    fn newest_first(&self) -> impl Iterator<Item = &Passed> {
        let first = self.passed.saturating_sub(REMEMBERED);
        let kept = self.kept.as_deref();
        (first..self.passed).rev().filter_map(move |at| kept.map(|kept| &kept[at % REMEMBERED]))
    }
}

impl Chains {
    pub fn new(system: &System) -> Self {
        let mut new =
            Chains { chains: Vec::new(), stages: Vec::new(), stages_of: vec![Vec::new(); system.operations.len()] };
        for (index, chain) in system.chains.iter().enumerate() {
            new.add(system, ChainId(index as u32), chain);
        }
        new
    }

    fn add(&mut self, system: &System, id: ChainId, chain: &Chain) {
        let sources = sources(system, chain);
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
            deadline: chain.deadline,
            max_age: chain.max_age,
            max_reaction: chain.max_reaction,
            latest_input: None,
            pauses: pauses(system, chain),
        });
        let Ok(sources) = sources else { return };
        let can_lose = !sources.iter().any(|source| matches!(source, Source::Latest));
        for (position, (operation, source)) in chain.path.iter().zip(&sources).enumerate() {
            let looked_up = matches!(sources.get(position + 1), Some(Source::SameNumber | Source::Latest));
            let kept = looked_up.then(|| Box::new([Passed::default(); REMEMBERED]));
            self.stages_of[operation.index()].push(self.stages.len() as u32);
            self.stages.push(Stage {
                chain: id,
                source: *source,
                last: position + 1 == chain.path.len(),
                can_lose,
                last_leg: legs(system, *operation).map(|legs| legs.saturating_sub(1)).collect(),
                flow: Flow { kept, passed: 0 },
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

    fn pass(&mut self, position: usize, end: &JobEnd) {
        let stage = &self.stages[position];
        let chain = &mut self.chains[stage.chain.index()];
        if !end.outcome.finished() {
            chain.lost += u64::from(stage.can_lose);
            return;
        }
        let last_leg = stage.last_leg.get(usize::from(end.epoch)).or(stage.last_leg.last());
        if super::counts::unfinished(end) {
            // Its data never came; the miss is as late as the run lets it be.
            chain.missed += u64::from(stage.last);
            return;
        }
        if last_leg.is_some_and(|leg| end.job.leg < *leg) {
            return;
        }
        let before = || self.stages[position - 1].flow.newest_first();
        let input = match stage.source {
            Source::Origin => Some(end.origin),
            Source::Release => Some(end.release),
            Source::SameNumber => before().find(|passed| passed.number == end.job.number).map(|passed| passed.input),
            Source::Latest => before().find(|passed| passed.end <= end.start).map(|passed| passed.input),
        };
        let last = stage.last;
        // Before the first value arrives a reader has nothing to pass on.
        let Some(input) = input else {
            let empty = position > 0 && self.stages[position - 1].flow.passed == 0;
            chain.unmatched += u64::from(last && !empty);
            return;
        };
        if last {
            chain.output(input, end.end);
        }
        self.stages[position].flow.pass(Passed { number: end.job.number, end: end.end, input });
    }
}

/// How each operation of the path gets its input, or why that cannot be told.
fn sources(system: &System, chain: &Chain) -> Result<Vec<Source>, &'static str> {
    let mut sources = Vec::with_capacity(chain.path.len());
    let Some(first) = chain.path.first() else { return Err("its path is empty") };
    let periodic = system.operation(*first).trigger == Trigger::Periodic;
    if !periodic && legs(system, *first).any(|legs| legs > 1) {
        return Err("it begins with a load chain that others trigger");
    }
    sources.push(if periodic { Source::Origin } else { Source::Release });
    for pair in chain.path.windows(2) {
        let (from, to) = (pair[0], system.operation(pair[1]));
        let before = sources[sources.len() - 1];
        sources.push(if to.trigger.predecessors().contains(&from) {
            match &to.trigger {
                Trigger::Any(any) if any.len() > 1 => {
                    return Err("one of its operations is triggered by any of several");
                }
                Trigger::All(_) if to.roots.len() > 1 => return Err("one of its operations joins different roots"),
                _ if matches!(before, Source::Origin) => Source::Origin,
                _ => Source::SameNumber,
            }
        } else {
            let host = |operation: OperationId| system.processor(system.operation(operation).on).host;
            if !system.delay(host(from), host(pair[1])).1.is_zero() {
                return Err("one of its operations reads another over a link with a delay");
            }
            Source::Latest
        });
    }
    Ok(sources)
}

/// When regions begin in which the chain cannot run.
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
