//! The breakdown of one job's time from its queue to its end, by the changes of the CPU.

use std::collections::BTreeMap;

use hyoshi_dispatch::LaneMask;
use hyoshi_model::{Instant, JobId, ResourceId, Span};

use super::cpu::CpuTracker;
use super::cpu_changes::{CpuChange, CpuOccupant, JobTransition, RunningJob, UntimedUse, sum};
use super::{Culprit, Rank, ResponsePart, Stretch};
use hyoshi_trace::Wait;

/// The most parts that name single jobs; further parts name operations.
const MOST_PARTS: usize = 1024;

/// The most intervals of a timeline; further intervals are dropped.
pub const MOST_STRETCHES: usize = 4096;

/// The most lanes with a blocked running job that a waiting job records.
const MOST_BLOCKED: usize = 8;

/// The state of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobPhase {
    /// In its lane's queue, before its start.
    Waits,
    /// Holds its lane's token.
    Runs,
    /// In the queue after its start.
    Again,
    Suspended,
    Blocked(ResourceId),
    Demoted,
    /// Unknown after lost events, until it runs again.
    Lost,
}

/// The breakdown of a live job, from its entry into the queue.
#[derive(Clone, Debug)]
pub(super) struct OpenBreakdown {
    me: JobId,
    level: u8,
    /// Its levels under the first and the second strategy.
    levels: [u8; 2],
    lane: u8,
    /// One lane holds all levels.
    one_lane: bool,
    critical: bool,
    deadline: Instant,
    phase: JobPhase,
    gate: u8,
    /// The hard cap pauses every lane.
    pause: bool,
    critical_lanes: LaneMask,
    full: bool,
    exact: bool,
    /// Events were lost: the state of the caps and the blocked jobs are unknown.
    lost: bool,
    blocked: Vec<(u8, JobId, ResourceId)>,
    /// Running jobs with blocked threads: their lanes and the reasons.
    asleep: Vec<(u8, JobId, Option<Wait>)>,
    /// The last interval in which this other thread had the CPU while the job slept. The job may have been ready at its
    /// end.
    doubtful: Option<(u32, Stretch)>,
    /// The causes of its late release.
    pub late: Vec<(ResponsePart, Instant, Instant)>,
    /// The first entry of the log that is not included.
    pub next: usize,
    pub parts: BTreeMap<ResponsePart, Span>,
    pub timeline: Option<Vec<Stretch>>,
    pub untimed: UntimedUse,
}

impl OpenBreakdown {
    /// Begins when the job enters its queue. With `timeline` it keeps every interval, too.
    pub fn new(
        cpu: &CpuTracker<'_>,
        (job, lane, deadline): (JobId, u8, Instant),
        exact: bool,
        next: usize,
        untimed: UntimedUse,
        timeline: bool,
    ) -> Option<Self> {
        let standing = cpu.standing(job, lane)?;
        Some(OpenBreakdown {
            me: job,
            level: standing.levels[usize::from(standing.second)],
            levels: standing.levels,
            lane,
            one_lane: cpu.one_lane,
            critical: standing.critical,
            deadline,
            phase: JobPhase::Waits,
            gate: cpu.gate,
            pause: cpu.pause,
            critical_lanes: cpu.critical_lanes,
            full: cpu.preempts_within,
            exact,
            lost: cpu.is_lost(),
            blocked: cpu.blocked().take(MOST_BLOCKED).collect(),
            asleep: cpu.asleep().take(MOST_BLOCKED).collect(),
            doubtful: None,
            late: Vec::new(),
            next,
            parts: BTreeMap::new(),
            timeline: timeline.then(Vec::new),
            untimed,
        })
    }

    /// Applies the next change of the CPU.
    pub fn apply(&mut self, change: &CpuChange) {
        match change {
            CpuChange::Slice { from, to, occupant } => {
                let kind = self.kind(occupant);
                match (kind, occupant, &mut self.doubtful) {
                    (ResponsePart::Asleep(_), CpuOccupant::Other(name), Some((of, last)))
                        if (*of, last.kind, last.to) == (*name, kind, *from) =>
                    {
                        last.to = *to;
                    }
                    (ResponsePart::Asleep(_), CpuOccupant::Other(name), _) => {
                        self.settle(false);
                        self.doubtful = Some((*name, Stretch { from: *from, to: *to, kind }));
                    }
                    _ => {
                        self.settle(false);
                        self.charge(kind, *from, *to);
                    }
                }
            }
            CpuChange::Job { job, transition: JobTransition::Slept(waits), lane, .. } => {
                if self.asleep.len() < MOST_BLOCKED {
                    self.asleep.push((*lane, *job, *waits));
                }
            }
            CpuChange::Job { job, transition, .. } if *job == self.me => {
                // A less urgent thread would have been preempted at the wake-up; a more urgent one may have delayed it.
                self.settle(matches!(transition, JobTransition::Woke { preempted: false }));
                self.asleep.retain(|(_, asleep, _)| asleep != job);
                self.lost |= *transition == JobTransition::Lost;
                self.phase = match transition {
                    JobTransition::Slept(_) | JobTransition::Woke { .. } => self.phase,
                    JobTransition::Ready => JobPhase::Waits,
                    JobTransition::Runs | JobTransition::Unblocked => JobPhase::Runs,
                    JobTransition::Yields | JobTransition::Resumed => JobPhase::Again,
                    JobTransition::Suspended => JobPhase::Suspended,
                    JobTransition::Blocked(resource) => JobPhase::Blocked(*resource),
                    JobTransition::Demoted => JobPhase::Demoted,
                    JobTransition::Lost => JobPhase::Lost,
                };
            }
            CpuChange::Job { job, transition: JobTransition::Blocked(resource), lane, .. } => {
                self.blocked.retain(|(_, other, _)| other != job);
                if self.blocked.len() < MOST_BLOCKED {
                    self.blocked.push((*lane, *job, *resource));
                }
            }
            CpuChange::Job { job, .. } => {
                self.blocked.retain(|(_, other, _)| other != job);
                self.asleep.retain(|(_, other, _)| other != job);
            }
            CpuChange::Gate { lane } => self.gate = *lane,
            CpuChange::Pause { on } => self.pause = *on,
            CpuChange::Switch { second } if self.phase == JobPhase::Waits => {
                self.level = self.levels[usize::from(*second)];
                self.lane = if self.one_lane { 0 } else { self.level };
            }
            CpuChange::Switch { .. } => {}
        }
    }

    /// Adds the doubtful interval: as unexplained if the job may have been ready.
    fn settle(&mut self, ready: bool) {
        if let Some((_, Stretch { from, to, kind })) = self.doubtful.take() {
            self.charge(if ready { ResponsePart::Unexplained } else { kind }, from, to);
        }
    }

    /// Adds an interval.
    pub fn charge(&mut self, kind: ResponsePart, from: Instant, to: Instant) {
        let kind = if self.parts.len() < MOST_PARTS { kind } else { kind.by_operation() };
        let part = self.parts.entry(kind).or_default();
        *part = sum(*part, to.since(from));
        let Some(timeline) = &mut self.timeline else { return };
        let room = timeline.len() < MOST_STRETCHES;
        match timeline.last_mut() {
            Some(last) if last.kind == kind && last.to == from => last.to = to,
            _ if room => timeline.push(Stretch { from, to, kind }),
            _ => {}
        }
    }

    /// The part to which an interval belongs.
    fn kind(&self, occupant: &CpuOccupant) -> ResponsePart {
        let waits = matches!(self.phase, JobPhase::Waits | JobPhase::Again);
        let behind_mate = if waits { self.behind_sleeping_mate() } else { None };
        let asleep =
            self.asleep.iter().find(|(_, job, _)| *job == self.me).map(|(_, _, waits)| ResponsePart::Asleep(*waits));
        match (self.phase, occupant) {
            (_, CpuOccupant::Job(runner)) if runner.job == self.me => ResponsePart::Executed,
            (JobPhase::Suspended, _) => ResponsePart::Suspended,
            (JobPhase::Lost, _) => ResponsePart::Unexplained,
            (_, CpuOccupant::Job(runner)) if !runner.below && runner.level < self.level => {
                self.behind(runner, Rank::MoreUrgent)
            }
            // A blocked body, and the jobs behind it, do not wait for the CPU.
            (_, occupant) => asleep.or(behind_mate).unwrap_or_else(|| self.in_the_way(occupant)),
        }
    }

    /// The part to which an interval belongs if the job could run.
    fn in_the_way(&self, occupant: &CpuOccupant) -> ResponsePart {
        match (self.phase, occupant) {
            (_, CpuOccupant::Job(runner)) if self.lost && runner.level == self.level => self.behind(runner, Rank::Same),
            _ if self.lost => ResponsePart::Unexplained,
            // It must wait, whatever thread has the CPU.
            (_, CpuOccupant::Other(_)) if self.is_gated() => ResponsePart::Cap { behind: None },
            (_, CpuOccupant::Other(name)) => ResponsePart::Other(*name),
            (_, CpuOccupant::Overhead(_) | CpuOccupant::Dispatch) => ResponsePart::Overhead,
            (JobPhase::Blocked(resource), _) => ResponsePart::Resource { resource, by: None },
            (_, CpuOccupant::Unknown) => ResponsePart::Unexplained,
            (_, CpuOccupant::Job(runner)) => self.lesser(runner),
            (_, CpuOccupant::Idle) => match self.stuck() {
                Some(kind) => kind,
                None if self.is_gated() => ResponsePart::Cap { behind: None },
                None if self.phase == JobPhase::Runs => ResponsePart::Asleep(None),
                None => ResponsePart::Unexplained,
            },
        }
    }

    /// Behind a job that is not more urgent.
    fn lesser(&self, runner: &RunningJob) -> ResponsePart {
        let by = Some(Culprit::of(runner.job));
        if let (true, Some(resource)) = (runner.raised, runner.holds) {
            return ResponsePart::Resource { resource, by };
        }
        if self.phase == JobPhase::Demoted {
            return ResponsePart::Demoted { behind: by };
        }
        if runner.below && runner.lane != self.lane {
            return self.stuck().unwrap_or(if self.is_gated() {
                ResponsePart::Cap { behind: by }
            } else {
                self.behind(runner, Rank::LessUrgent)
            });
        }
        if runner.level == self.level {
            return match runner.holds {
                // If jobs of a lane preempt each other, only a ceiling keeps a later one ahead of this.
                Some(resource) if self.full && runner.deadline > self.deadline => {
                    ResponsePart::Resource { resource, by }
                }
                _ if self.is_gated() && runner.below => ResponsePart::Cap { behind: by },
                _ => self.behind(runner, Rank::Same),
            };
        }
        if runner.lane == self.lane {
            return self.behind(runner, Rank::LessUrgent);
        }
        match self.stuck() {
            Some(kind) => kind,
            None if self.is_gated() => ResponsePart::Cap { behind: by },
            None => self.behind(runner, Rank::LessUrgent),
        }
    }

    fn behind(&self, runner: &RunningJob, rank: Rank) -> ResponsePart {
        let who = Culprit::of(runner.job);
        if matches!(self.phase, JobPhase::Waits) {
            ResponsePart::Waited { who, rank }
        } else {
            ResponsePart::Preempted { who, rank }
        }
    }

    /// Behind a job of its lane with a blocked thread.
    fn behind_sleeping_mate(&self) -> Option<ResponsePart> {
        let (_, mate, _) = self.asleep.iter().find(|(lane, ..)| *lane == self.lane)?;
        let (who, rank) = (Culprit::of(*mate), Rank::Same);
        Some(if self.phase == JobPhase::Waits {
            ResponsePart::Waited { who, rank }
        } else {
            ResponsePart::Preempted { who, rank }
        })
    }

    /// Behind a job of its lane that waits for a resource.
    fn stuck(&self) -> Option<ResponsePart> {
        let waits = matches!(self.phase, JobPhase::Waits | JobPhase::Again);
        let (_, job, resource) = self.blocked.iter().find(|(lane, ..)| waits && *lane == self.lane)?;
        Some(ResponsePart::Resource { resource: *resource, by: Some(Culprit::of(*job)) })
    }

    /// True if the cap keeps it from starting, or keeps its lane below ordinary threads.
    fn is_gated(&self) -> bool {
        let gated = self.lane >= self.gate;
        self.pause
            || gated
                && if matches!(self.phase, JobPhase::Waits | JobPhase::Again) {
                    !self.critical
                } else {
                    !self.critical_lanes.contains(self.lane)
                }
    }

    /// Ends the breakdown. Returns its parts, its intervals, and the remaining time of the hypervisor. Execution is
    /// split at the declared worst case. CPU time that the model assumed but the job did not use is explained as far as
    /// possible. With `switches` the kernel's switches show the user of the CPU, and the intervals include the release
    /// thread.
    pub fn finish(
        mut self,
        consumed: Option<Span>,
        wcet: Span,
        untimed: UntimedUse,
        switches: bool,
    ) -> (BTreeMap<ResponsePart, Span>, Vec<Stretch>, Span) {
        self.settle(false);
        let mut ran = self.parts.remove(&ResponsePart::Executed).unwrap_or_default();
        if let (true, Some(consumed)) = (self.lost, consumed) {
            // It ran at an unknown time.
            let unseen = self.parts.get(&ResponsePart::Unexplained).copied().unwrap_or_default();
            let unseen = unseen.min(consumed.saturating_sub(ran));
            take(&mut self.parts, ResponsePart::Unexplained, unseen);
            ran = sum(ran, unseen);
        }
        let own = consumed.map_or(ran, |consumed| consumed.min(ran));
        let mut lost = ran - own;
        let overhead = self.parts.get(&ResponsePart::Overhead).copied().unwrap_or_default();
        let mut put = |kind: ResponsePart, span: Span| {
            if !span.is_zero() {
                let part = self.parts.entry(kind).or_default();
                *part = sum(*part, span);
            }
        };
        put(ResponsePart::Executed, own.min(wcet));
        put(ResponsePart::Overran, own.saturating_sub(wcet));
        if self.exact {
            // In a simulation the rest is the cost of scheduling.
            put(ResponsePart::Overhead, lost);
            return (self.parts, self.timeline.unwrap_or_default(), Span::ZERO);
        }
        // Limited by the clocks of the scheduling threads.
        let scheduled = untimed.overhead.saturating_sub(self.untimed.overhead);
        let mut stolen = untimed.stolen.saturating_sub(self.untimed.stolen);
        if !switches {
            let span = lost.min(scheduled);
            put(ResponsePart::Overhead, span);
            lost = lost.saturating_sub(span);
        }
        let of_lost = lost.min(stolen);
        stolen = stolen.saturating_sub(of_lost);
        let of_overhead = overhead.saturating_sub(scheduled).min(stolen);
        stolen = stolen.saturating_sub(of_overhead);
        put(ResponsePart::Stolen, sum(of_lost, of_overhead));
        put(ResponsePart::Unexplained, lost.saturating_sub(of_lost));
        take(&mut self.parts, ResponsePart::Overhead, of_overhead);
        (self.parts, self.timeline.unwrap_or_default(), stolen)
    }
}

/// Removes `span` from a part, and the part if it is then empty.
fn take(parts: &mut BTreeMap<ResponsePart, Span>, kind: ResponsePart, span: Span) {
    if let Some(part) = parts.get_mut(&kind) {
        *part = part.saturating_sub(span);
        if part.is_zero() {
            parts.remove(&kind);
        }
    }
}
