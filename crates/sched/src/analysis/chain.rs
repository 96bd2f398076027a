//! End-to-end requirements along chains: latency, age of data, reaction.
//!
//! They are measured as in `hyoshi_trace`. An output is a finished job of the last operation. It reflects the
//! value of a job of the first operation. Its input is the release of that job: of a periodic one the origin, of a
//! triggered one its own release. Latency and age are the finish of the output less its input, so they have one bound.
//! Reaction is the finish of an output less the input of the latest earlier output that reflects an older one.
//!
//! **Triggers.** Values have release numbers, so the bound is the last operation's latest finish less the first one's
//! earliest release, both counted from the origin (Tindell and Clark 1994; with guards Sun and Liu 1996: a guard delays
//! no release beyond the latest arrival).
//!
//! **Reads.** A path is cut where an operation reads, into segments of triggers: the first operation of each segment
//! (but the first) samples the last of the segment before. Let origins of a segment be at most G apart and its last
//! operation finish by F after the origin. Then a sample at s has a value with an origin after s - F - G: otherwise the
//! next job would have replaced it. And a job of the next segment starts no earlier than its least release L after its
//! own origin. Summed over the path
//!
//! ```text
//! age      <= sum over all segments but the last of (F + G - L - 1ns) + (F - L) of the last
//! reaction <= G of the first + sum over all segments of (F - L) + sum over all but the first of (G - 1ns)
//! ```
//!
//! which is "the sum of periods and responses" of Davare et al. (DAC 2007), and the maximum data age and first-to-first
//! reaction of Feiertag et al. (2008), proved for jobs of any start times by Dürr et al. (TECS 2019). Both count from
//! releases, as here. Phases are not used (Becker et al. 2017 do use them).
//!
//! It requires that no job on the path is dropped or cancelled, and that values do not overtake each other.
//!
//! **Replicas.** A read through a replica samples the newest output with an arrived flush. With a flush at completion,
//! F is as above. A replica ignores older outputs, so outputs need not stay in order. With a flush at the deadline, F
//! is the time from the origin to the deadline, if every job finishes by then. A late output is never flushed.

use alloc::{string::String, vec::Vec};

use hyoshi_model::{Chain, ChainId, Deadline, FlushPoint, HostId, OperationId, Span, System, Trigger, at_level};

use super::contract_limits;
use super::failures::CertainJobs;
use super::holistic::Agreement;
use super::join;
use super::method::AnalysisMethod;
use super::report::{ChainReport, ChainStage, Requirement, slack};
use super::verdict::{FailureReason, Missing, Verdict};
use super::work::{Adaptation, ReleaseSource, Scene, Work};
use crate::plan::Plan;
use crate::ranking::LevelPosition;
use crate::strategy::Discipline;

/// The data of a scene.
pub(super) struct Surroundings<'a> {
    pub system: &'a System,
    pub plan: &'a Plan,
    pub scene: Scene,
    pub works: &'a [Work],
    pub agreement: &'a Agreement,
    pub coming: &'a CertainJobs,
    /// For each operation the reason why some of its releases lead to no completion, if there is one.
    pub lost: &'a [Option<Missing>],
    /// For each operation whether a body may choose not to release it; empty if no body chooses.
    pub chosen: &'a [bool],
}

/// Operations of a path that trigger each other; the first one samples the segment before.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Segment {
    path: Vec<OperationId>,
    /// The longest delay from the segment before, if there is a link between them.
    delay: u64,
}

impl Segment {
    fn first(&self) -> usize {
        self.path.first().map_or(0, |id| id.index())
    }

    fn last(&self) -> usize {
        self.path.last().map_or(0, |id| id.index())
    }
}

/// An upper bound, and the latest instant at which the value leaves each operation, counted from the input.
struct Bound {
    total: u64,
    stages: Vec<ChainStage>,
}

impl Surroundings<'_> {
    /// Every requirement of a chain; none while it has no outputs.
    pub fn requirements(&self, id: ChainId) -> Vec<ChainReport> {
        let chain = &self.system.chains[id.index()];
        let segments = self.segments(chain);
        let runs = |id: &OperationId| self.works[id.index()].runs();
        let silent = chain.path.iter().find(|id| !runs(id));
        if !chain.path.last().is_some_and(runs) || silent.is_some_and(|id| !self.ran_before(*id)) {
            return Vec::new();
        }
        // The value to read is of an operation that is switched off, or was until now.
        let stale = silent.or_else(|| chain.path.iter().find(|id| segments.len() > 1 && self.returns(**id)));
        let wanted = [
            (Requirement::Deadline, chain.deadline),
            (Requirement::MaxAge, chain.max_age),
            (Requirement::MaxReaction, chain.max_reaction),
        ];
        let wanted = wanted.into_iter().filter_map(|(requirement, limit)| Some((requirement, limit?)));
        // There is no reaction across a region in which the chain is switched off.
        let wanted = wanted.filter(|(requirement, _)| stale.is_none() || *requirement != Requirement::MaxReaction);
        let bound = |requirement| match stale {
            Some(id) => Err(Missing::SwitchedOff { name: self.name(*id) }),
            None => self.bound(&segments, requirement),
        };
        let reports = wanted.map(|(requirement, limit)| {
            let bound = bound(requirement);
            self.report(id, &segments, requirement, limit, bound)
        });
        reports.collect()
    }

    fn report(
        &self,
        id: ChainId,
        segments: &[Segment],
        requirement: Requirement,
        limit: Span,
        bound: Result<Bound, Missing>,
    ) -> ChainReport {
        let chain = &self.system.chains[id.index()];
        let at_least = self.least(segments).filter(|_| matches!(self.scene, Scene::Epoch(_)));
        // Late outputs never arrive, so a chain through their replica may have no output with too old data.
        let flushed = segments.windows(2).all(|pair| {
            self.flush_point(&pair[0], &pair[1]) != Some(FlushPoint::Deadline) || self.flush_by(&pair[0]).is_ok()
        });
        let (mut verdict, bound_ns, stages) = match bound {
            Ok(bound) if bound.total <= limit.as_nanos() => (Verdict::Proved, Some(bound.total), bound.stages),
            Ok(bound) => (Verdict::unknown(Missing::BoundExceedsDeadline), Some(bound.total), bound.stages),
            Err(missing) => (Verdict::unknown(missing), None, Vec::new()),
        };
        let guarded =
            |id: &OperationId| matches!(self.works[id.index()].source, ReleaseSource::After { guarded: true, .. });
        let mut method = match () {
            () if segments.len() > 1 => AnalysisMethod::Sampling,
            () if chain.path.iter().any(guarded) => AnalysisMethod::ReleaseGuard,
            () => AnalysisMethod::Holistic,
        };
        if let Some(needs) = at_least.filter(|needs| flushed && *needs > limit && self.arrives(chain)) {
            verdict = Verdict::Fails { why: FailureReason::LongerThanDeadline { needs, deadline: limit } };
            method = AnalysisMethod::Necessity;
        }
        ChainReport {
            chain: id,
            name: chain.name.clone(),
            carried_by: chain.carried_by.into(),
            requirement,
            limit_ns: limit.as_nanos(),
            bound_ns,
            slack_ns: bound_ns.map(|bound| slack(limit.as_nanos(), bound)),
            verdict,
            method,
            stages,
        }
    }

    /// The path, cut where an operation reads instead of being triggered.
    fn segments(&self, chain: &Chain) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut before: Option<OperationId> = None;
        for id in &chain.path {
            let triggers = |from: &OperationId| self.system.operation(*id).trigger.predecessors().contains(from);
            match (segments.last_mut(), before) {
                (Some(segment), Some(from)) if triggers(&from) => segment.path.push(*id),
                (_, from) => {
                    let delay = from.map_or(0, |from| self.delay(from, *id));
                    segments.push(Segment { path: [*id].into(), delay });
                }
            }
            before = Some(*id);
        }
        segments
    }

    /// The longest delay of a link between two operations, with the error of the clocks on both sides.
    fn delay(&self, from: OperationId, to: OperationId) -> u64 {
        let (from, to) = (self.host(from), self.host(to));
        self.scene
            .delay(self.system, from, to)
            .1
            .as_nanos()
            .saturating_add(self.system.clock_error(from, to).as_nanos())
    }

    fn host(&self, id: OperationId) -> HostId {
        self.system.processor(self.system.operation(id).on).host
    }

    /// When the last operation's outputs are flushed to the replica on the host of the next segment; `None` without a
    /// replica.
    fn flush_point(&self, segment: &Segment, next: &Segment) -> Option<FlushPoint> {
        self.system.replica_on(*segment.path.last()?, self.host(*next.path.first()?))
    }

    /// The latest flush of a segment's outputs at their deadlines, counted from the origin.
    fn flush_by(&self, segment: &Segment) -> Result<u64, Missing> {
        let (first, last) = (segment.first(), segment.last());
        let (work, name) = (&self.works[last], || self.name(self.works[last].operation));
        let settings = |index: usize| self.system.epochs.iter().map(move |epoch| &epoch.settings[index]);
        let steady = |index: usize| {
            let first = &self.system.epochs[0].settings[index];
            settings(index).all(|now| {
                (now.period, now.slowest, now.enabled, now.deadline)
                    == (first.period, first.period, true, first.deadline)
            })
        };
        if !steady(first) || !steady(last) {
            return Err(Missing::Change { what: "a rate or deadline of an output that is flushed at its deadline" });
        }
        let deadline = match (work.deadline, &work.source) {
            (Deadline::Own(deadline), ReleaseSource::Periodic)
            | (Deadline::Origin(deadline), ReleaseSource::Periodic | ReleaseSource::After { .. }) => deadline,
            _ => return Err(Missing::FlushPoint { name: name() }),
        };
        let finish = self.agreement.finish[last].ok_or_else(|| Missing::Unbounded { name: name() })?;
        // The deadline counts from the origin, which hosts on the way have converted to their clocks.
        let errors = self.system.hosts.iter().filter_map(|host| host.clock_error).map(Span::as_nanos);
        let error = if self.is_local(last) { 0 } else { errors.fold(0, u64::saturating_add).saturating_mul(2) };
        if add(finish, error)? > deadline.as_nanos() {
            return Err(Missing::LateOutput { name: name() });
        }
        add(deadline.as_nanos(), error)
    }

    /// Whether an operation and all operations that lead to it are on one host.
    fn is_local(&self, index: usize) -> bool {
        let host = self.host(self.works[index].operation);
        let (mut pending, mut seen) = (alloc::vec![index], alloc::vec![false; self.works.len()]);
        while let Some(index) = pending.pop() {
            if self.host(self.works[index].operation) != host {
                return false;
            }
            if !core::mem::replace(&mut seen[index], true) {
                pending.extend(self.works[index].source.predecessors().iter().map(|hop| hop.from));
            }
        }
        true
    }

    fn bound(&self, segments: &[Segment], requirement: Requirement) -> Result<Bound, Missing> {
        let mut total = match (requirement, segments.first()) {
            (Requirement::MaxReaction, Some(first)) => self.slowest(first.first())?,
            _ => 0,
        };
        if let Some(missing) = self.joins(segments, requirement).or_else(|| self.limits(segments, requirement)) {
            return Err(missing);
        }
        let regular = match requirement {
            Requirement::MaxReaction => segments,
            // Values are sampled from all segments but the last.
            Requirement::Deadline | Requirement::MaxAge => &segments[..segments.len().saturating_sub(1)],
        };
        let is_chosen = |id: &&OperationId| self.chosen.get(id.index()).is_some_and(|chosen| *chosen);
        if let Some(id) = regular.iter().flat_map(|segment| &segment.path).find(is_chosen) {
            return Err(Missing::Chosen { name: self.name(*id) });
        }
        let mut stages = Vec::new();
        for (position, segment) in segments.iter().enumerate() {
            self.sound(segment)?;
            if position > 0 {
                // The wait until it is sampled: for the next sample, or for the next value to replace it.
                let gap = match requirement {
                    Requirement::MaxReaction => self.slowest(segment.first())?,
                    Requirement::Deadline | Requirement::MaxAge => self.gap(&segments[position - 1])?,
                };
                total = add(total, add(gap.saturating_sub(1), segment.delay)?)?;
            }
            let next = segments.get(position + 1);
            let flush = next.and_then(|next| self.flush_point(segment, next));
            if let Some(next) = next
                && (flush.is_none() || self.works[segment.last()].streams.len() > 1)
            {
                self.in_order(segment.last(), next.delay)?;
            }
            let earliest = self.agreement.releases[segment.first()].least;
            let (mut left, mut passed) = (0, false);
            for id in &segment.path {
                let finish = self.agreement.finish[id.index()];
                let finish = finish.ok_or_else(|| Missing::Predecessor { name: self.name(*id) })?;
                passed |= *id != segment.path[0] && self.works[id.index()].mixes_origins();
                let older = if passed { self.agreement.releases[id.index()].older } else { 0 };
                left = add(finish.saturating_sub(earliest), older)?;
                if flush == Some(FlushPoint::Deadline) && Some(id) == segment.path.last() {
                    left = self.flush_by(segment)?.saturating_sub(earliest);
                }
                stages.push(ChainStage { operation: self.name(*id), by_ns: add(total, left)? });
            }
            total = add(total, left)?;
        }
        Ok(Bound { total, stages })
    }

    /// Why values have no bound at a join of several roots or at a correlation, if they have none.
    fn joins(&self, segments: &[Segment], requirement: Requirement) -> Option<Missing> {
        let pairs = segments.iter().flat_map(|segment| segment.path.windows(2));
        let has_timeout = |id: OperationId| self.system.operation(id).timeout.is_some();
        let mut passed = pairs.filter(|pair| self.works[pair[1].index()].mixes_origins() || has_timeout(pair[1]));
        let why = |pair: &&[OperationId]| match requirement {
            _ if self.system.operation(pair[1]).timeout.is_some() => Some("its timeouts release it without an input"),
            _ if segments.len() > 1 => Some("no analysis of operations that sample it"),
            Requirement::MaxReaction => Some("no analysis of reactions through it"),
            Requirement::Deadline if join::drops_values(&self.works[pair[1].index()], pair[0]) => {
                Some("it drops values of a faster root, so not every input has an output: use max_age")
            }
            Requirement::Deadline if !self.works[pair[1].index()].joins() => {
                Some("it drops values outside its window, so not every input has an output: use max_age")
            }
            Requirement::Deadline | Requirement::MaxAge => None,
        };
        let (pair, why) = passed.find_map(|pair| Some((pair, why(&pair)?)))?;
        Some(Missing::Join { name: self.name(pair[1]), why: why.into() })
    }

    /// What contracts change along the path, if no analysis covers it.
    fn limits(&self, segments: &[Segment], requirement: Requirement) -> Option<Missing> {
        let path = || segments.iter().flat_map(|segment| &segment.path);
        let limited = path().find(|id| self.works[id.index()].adaptation == Adaptation::Limited)?;
        if segments.len() > 1 {
            return Some(Missing::LimitedSamples { name: self.name(*limited) });
        }
        // Without releases of the first operation there is no input, and no reaction.
        let spared = path().next().filter(|_| requirement != Requirement::MaxReaction);
        let stopped = contract_limits::stopped(self.system, spared.copied());
        let stopped = path().find(|id| stopped[id.index()])?;
        Some(Missing::Disabled { name: self.name(*stopped) })
    }

    /// The longest time between two inputs of a segment. After a merge, those on this path.
    fn gap(&self, segment: &Segment) -> Result<u64, Missing> {
        segment.path.iter().try_fold(0, |gap, id| Ok(self.slowest(id.index())?.max(gap)))
    }

    /// The longest time between two releases.
    fn slowest(&self, index: usize) -> Result<u64, Missing> {
        let work = &self.works[index];
        if work.sporadic { Err(Missing::RareRequests { name: self.name(work.operation) }) } else { Ok(work.slowest) }
    }

    /// Succeeds if every job of the segment is bounded and leads to one of the next operation.
    fn sound(&self, segment: &Segment) -> Result<(), Missing> {
        let unclear = segment.path.iter().find_map(|id| match &self.works[id.index()].source {
            ReleaseSource::Unclear(missing) => Some(missing.clone()),
            ReleaseSource::Silent => None,
            _ if self.system.operation(*id).calls_any => Some(Missing::Calls { name: self.name(*id) }),
            _ if self.works[id.index()].adaptation == Adaptation::Loop => Some(Missing::Rates),
            _ => None,
        });
        if let Some(missing) = unclear {
            return Err(missing);
        }
        if let Some(unbounded) = segment.path.iter().find(|id| self.agreement.finish[id.index()].is_none()) {
            return Err(Missing::Predecessor { name: self.name(*unbounded) });
        }
        segment.path.iter().find_map(|id| self.lost[id.index()].clone()).map_or(Ok(()), Err)
    }

    /// Whether its values arrive in the order of their origins, so the latest is the newest.
    fn in_order(&self, index: usize, delay: u64) -> Result<(), Missing> {
        let (work, release) = (&self.works[index], &self.agreement.releases[index]);
        let finish = self.agreement.finish[index].unwrap_or(u64::MAX);
        let earliest = release.least.saturating_add(work.shortest());
        let spread = finish.saturating_sub(earliest).saturating_add(delay);
        let plan = &self.plan.processors[work.on.index()];
        let discipline = |place: LevelPosition| plan.levels.get(usize::from(place.level)).map(|level| level.discipline);
        let fifo = [work.place.critical, work.place.other].into_iter().map(discipline);
        let stays = plan.overload.is_none() && !work.any_order;
        let mut fifo = fifo.chain([stays.then_some(Discipline::Fifo)]);
        if (work.streams.len() < 2 && spread < work.period)
            || (delay == 0 && !release.reordered && fifo.all(|one| one == Some(Discipline::Fifo)))
        {
            return Ok(());
        }
        Err(Missing::Overtaking { name: self.name(work.operation) })
    }

    /// The least duration of the path if every job has its worst case, at the lowest service level: a value passes
    /// through each of them.
    fn least(&self, segments: &[Segment]) -> Option<Span> {
        let at_lowest = |work: &Work, worst: u64| {
            at_level(&self.system.operation(work.operation).levels, 0, Span::from_nanos(worst)).as_nanos()
        };
        // A contract may limit the legs.
        let least_work = |work: &Work| work.wcet.saturating_mul(work.fewest_legs);
        let mut sum = 0u64;
        for (position, segment) in segments.iter().enumerate() {
            let first = &self.works[segment.first()];
            // Of a load chain the last leg is sampled.
            sum = sum.checked_add(at_lowest(first, if position == 0 { least_work(first) } else { first.wcet }))?;
            for pair in segment.path.windows(2) {
                let work = &self.works[pair[1].index()];
                // After these it is not observable which of several inputs an output reflects: no counterexample is
                // possible.
                let merges = match &self.system.operation(pair[1]).trigger {
                    _ if self.system.operation(pair[1]).timeout.is_some() => true,
                    Trigger::Any(any) => any.len() > 1,
                    Trigger::Chosen(chosen) => chosen.predecessors.len() > 1,
                    Trigger::First(_) => true,
                    Trigger::All(_) => self.system.operation(pair[1]).roots.len() > 1,
                    Trigger::Correlated(_) => true,
                    Trigger::Periodic => false,
                };
                if merges {
                    return None;
                }
                let predecessors = work.source.predecessors();
                let hop = predecessors.iter().find(|hop| hop.from == pair[0].index())?;
                sum = sum
                    .checked_add(hop.least)?
                    .checked_add(work.offset)?
                    .checked_add(at_lowest(work, least_work(work)))?;
            }
        }
        Some(Span::from_nanos(sum))
    }

    /// True if values reach its end, however late: no job on the path can be cancelled, or wait for ever.
    fn arrives(&self, chain: &Chain) -> bool {
        let arrives = |id: &OperationId| {
            let work = &self.works[id.index()];
            let kept = work.critical_legs == work.legs || !self.system.processor(work.on).cancel;
            let kept = kept && self.system.operation(*id).keeps_late_jobs();
            kept && self.coming.once[id.index()] && self.agreement.finish[id.index()].is_some()
        };
        let stopped = contract_limits::stopped(self.system, None);
        chain.path.iter().all(|id| arrives(id) && !stopped[id.index()])
    }

    /// True if the operation ran in an epoch before this one.
    fn ran_before(&self, id: OperationId) -> bool {
        let (Scene::Epoch(epoch) | Scene::Change(epoch)) = self.scene;
        (0..epoch).any(|epoch| self.system.setting(epoch, id).enabled)
    }

    /// True if this change switches the operation on again.
    fn returns(&self, id: OperationId) -> bool {
        let Scene::Change(epoch) = self.scene else { return false };
        !self.system.setting(epoch, id).enabled && self.ran_before(id)
    }

    fn name(&self, id: OperationId) -> String {
        self.system.operation(id).name.clone()
    }
}

fn add(one: u64, other: u64) -> Result<u64, Missing> {
    one.checked_add(other).ok_or(Missing::Overflow)
}
