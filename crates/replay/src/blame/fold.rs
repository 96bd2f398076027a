//! One job's time from its queue to its end, laid over what the CPU did meanwhile.

use std::collections::BTreeMap;

use hyoshi_dispatch::LaneMask;
use hyoshi_model::{Instant, JobId, ResourceId, Span};

use super::cpu::Cpu;
use super::marks::{Holder, Mark, Pools, Runner, Turn, sum};
use super::{Culprit, Kind, Rank, Stretch};
use hyoshi_trace::Wait;

/// Culprits that one account lists by job; beyond, by operation.
const MOST_PARTS: usize = 1024;

/// Stretches of an account's timeline; beyond, no more are kept.
pub const MOST_STRETCHES: usize = 4096;

/// Lanes whose running job waits for a resource, as remembered for those who wait behind it.
const MOST_BLOCKED: usize = 8;

/// Where the job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In its lane's queue, for the first time.
    Waits,
    /// It has its lane's token.
    Runs,
    /// In the queue again.
    Again,
    Suspended,
    Blocked(ResourceId),
    Demoted,
    /// Not known since events were lost, until it runs again.
    Lost,
}

/// The account of one live job, from the moment it entered its lane's queue.
#[derive(Clone, Debug)]
pub(super) struct File {
    me: JobId,
    level: u8,
    /// Its level while the first and while the second strategy rules.
    levels: [u8; 2],
    lane: u8,
    /// One lane holds all levels.
    one_lane: bool,
    critical: bool,
    deadline: Instant,
    phase: Phase,
    gate: u8,
    /// The hard cap pauses every lane.
    pause: bool,
    critical_lanes: LaneMask,
    full: bool,
    exact: bool,
    /// Events were lost: what the caps do, and which jobs before it block, is not known.
    lost: bool,
    blocked: Vec<(u8, JobId, ResourceId)>,
    /// Running jobs whose threads blocked, with their lanes, and what they wait for.
    asleep: Vec<(u8, JobId, Option<Wait>)>,
    /// It was asleep while this thread had the CPU last: for which part of that, the end of it shows.
    doubtful: Option<(u32, Stretch)>,
    /// Why it was released late.
    pub late: Vec<(Kind, Instant, Instant)>,
    /// First mark of the log that is not in it yet.
    pub next: usize,
    pub parts: BTreeMap<Kind, Span>,
    pub timeline: Option<Vec<Stretch>>,
    pub pools: Pools,
}

impl File {
    /// Begins as the job enters its queue. `timeline` keeps every stretch, too.
    pub fn new(
        cpu: &Cpu<'_>,
        (job, lane, deadline): (JobId, u8, Instant),
        exact: bool,
        next: usize,
        pools: Pools,
        timeline: bool,
    ) -> Option<Self> {
        let standing = cpu.standing(job, lane)?;
        Some(File {
            me: job,
            level: standing.levels[usize::from(standing.second)],
            levels: standing.levels,
            lane,
            one_lane: cpu.one_lane,
            critical: standing.critical,
            deadline,
            phase: Phase::Waits,
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
            pools,
        })
    }

    /// What happened next.
    pub fn mark(&mut self, mark: &Mark) {
        match mark {
            Mark::Slice { from, to, holder } => {
                let kind = self.kind(holder);
                match (kind, holder, &mut self.doubtful) {
                    (Kind::Asleep(_), Holder::Other(name), Some((of, last)))
                        if (*of, last.kind, last.to) == (*name, kind, *from) =>
                    {
                        last.to = *to;
                    }
                    (Kind::Asleep(_), Holder::Other(name), _) => {
                        self.settle(false);
                        self.doubtful = Some((*name, Stretch { from: *from, to: *to, kind }));
                    }
                    _ => {
                        self.settle(false);
                        self.charge(kind, *from, *to);
                    }
                }
            }
            Mark::Turn { job, turn: Turn::Slept(waits), lane, .. } => {
                if self.asleep.len() < MOST_BLOCKED {
                    self.asleep.push((*lane, *job, *waits));
                }
            }
            Mark::Turn { job, turn, .. } if *job == self.me => {
                // A thread below it would have been preempted as it woke; one above may have kept it from the CPU.
                self.settle(matches!(turn, Turn::Woke { preempted: false }));
                self.asleep.retain(|(_, asleep, _)| asleep != job);
                self.lost |= *turn == Turn::Lost;
                self.phase = match turn {
                    Turn::Slept(_) | Turn::Woke { .. } => self.phase,
                    Turn::Ready => Phase::Waits,
                    Turn::Runs | Turn::Unblocked => Phase::Runs,
                    Turn::Yields | Turn::Resumed => Phase::Again,
                    Turn::Suspended => Phase::Suspended,
                    Turn::Blocked(resource) => Phase::Blocked(*resource),
                    Turn::Demoted => Phase::Demoted,
                    Turn::Lost => Phase::Lost,
                };
            }
            Mark::Turn { job, turn: Turn::Blocked(resource), lane, .. } => {
                self.blocked.retain(|(_, other, _)| other != job);
                if self.blocked.len() < MOST_BLOCKED {
                    self.blocked.push((*lane, *job, *resource));
                }
            }
            Mark::Turn { job, .. } => {
                self.blocked.retain(|(_, other, _)| other != job);
                self.asleep.retain(|(_, other, _)| other != job);
            }
            Mark::Gate { lane } => self.gate = *lane,
            Mark::Pause { on } => self.pause = *on,
            Mark::Switch { second } if self.phase == Phase::Waits => {
                self.level = self.levels[usize::from(*second)];
                self.lane = if self.one_lane { 0 } else { self.level };
            }
            Mark::Switch { .. } => {}
        }
    }

    /// Books what was in doubt: as unexplained if it may have been ready meanwhile.
    fn settle(&mut self, ready: bool) {
        if let Some((_, Stretch { from, to, kind })) = self.doubtful.take() {
            self.charge(if ready { Kind::Unexplained } else { kind }, from, to);
        }
    }

    /// Books a stretch.
    pub fn charge(&mut self, kind: Kind, from: Instant, to: Instant) {
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

    /// What a stretch is to this job.
    fn kind(&self, holder: &Holder) -> Kind {
        let waits = matches!(self.phase, Phase::Waits | Phase::Again);
        let behind_mate = if waits { self.behind_sleeping_mate() } else { None };
        let asleep = self.asleep.iter().find(|(_, job, _)| *job == self.me).map(|(_, _, waits)| Kind::Asleep(*waits));
        match (self.phase, holder) {
            (_, Holder::Job(runner)) if runner.job == self.me => Kind::Executed,
            (Phase::Suspended, _) => Kind::Suspended,
            (Phase::Lost, _) => Kind::Unexplained,
            (_, Holder::Job(runner)) if !runner.below && runner.level < self.level => {
                self.behind(runner, Rank::MoreUrgent)
            }
            // Whoever has the CPU is not in the way of a body that blocks, nor of those behind it.
            (_, holder) => asleep.or(behind_mate).unwrap_or_else(|| self.in_the_way(holder)),
        }
    }

    /// What a stretch is to this job if it could have run.
    fn in_the_way(&self, holder: &Holder) -> Kind {
        match (self.phase, holder) {
            (_, Holder::Job(runner)) if self.lost && runner.level == self.level => self.behind(runner, Rank::Same),
            _ if self.lost => Kind::Unexplained,
            // It would have to wait, whatever else wants the CPU.
            (_, Holder::Other(_)) if self.is_gated() => Kind::Cap { behind: None },
            (_, Holder::Other(name)) => Kind::Other(*name),
            (_, Holder::Overhead(_) | Holder::Dispatch) => Kind::Overhead,
            (Phase::Blocked(resource), _) => Kind::Resource { resource, by: None },
            (_, Holder::Unknown) => Kind::Unexplained,
            (_, Holder::Job(runner)) => self.lesser(runner),
            (_, Holder::Idle) => match self.stuck() {
                Some(kind) => kind,
                None if self.is_gated() => Kind::Cap { behind: None },
                None if self.phase == Phase::Runs => Kind::Asleep(None),
                None => Kind::Unexplained,
            },
        }
    }

    /// Behind a job that is no more urgent.
    fn lesser(&self, runner: &Runner) -> Kind {
        let by = Some(Culprit::of(runner.job));
        if let (true, Some(resource)) = (runner.raised, runner.holds) {
            return Kind::Resource { resource, by };
        }
        if self.phase == Phase::Demoted {
            return Kind::Demoted { behind: by };
        }
        if runner.below && runner.lane != self.lane {
            return self.stuck().unwrap_or(if self.is_gated() {
                Kind::Cap { behind: by }
            } else {
                self.behind(runner, Rank::LessUrgent)
            });
        }
        if runner.level == self.level {
            return match runner.holds {
                // Where jobs of a lane preempt each other, only a ceiling keeps a later one before this.
                Some(resource) if self.full && runner.deadline > self.deadline => Kind::Resource { resource, by },
                _ if self.is_gated() && runner.below => Kind::Cap { behind: by },
                _ => self.behind(runner, Rank::Same),
            };
        }
        if runner.lane == self.lane {
            return self.behind(runner, Rank::LessUrgent);
        }
        match self.stuck() {
            Some(kind) => kind,
            None if self.is_gated() => Kind::Cap { behind: by },
            None => self.behind(runner, Rank::LessUrgent),
        }
    }

    fn behind(&self, runner: &Runner, rank: Rank) -> Kind {
        let who = Culprit::of(runner.job);
        if matches!(self.phase, Phase::Waits) { Kind::Waited { who, rank } } else { Kind::Preempted { who, rank } }
    }

    /// Behind a job that has this one's lane, and whose thread blocked.
    fn behind_sleeping_mate(&self) -> Option<Kind> {
        let (_, mate, _) = self.asleep.iter().find(|(lane, ..)| *lane == self.lane)?;
        let (who, rank) = (Culprit::of(*mate), Rank::Same);
        Some(if self.phase == Phase::Waits { Kind::Waited { who, rank } } else { Kind::Preempted { who, rank } })
    }

    /// Behind a job of the same lane that itself waits for a resource.
    fn stuck(&self) -> Option<Kind> {
        let waits = matches!(self.phase, Phase::Waits | Phase::Again);
        let (_, job, resource) = self.blocked.iter().find(|(lane, ..)| waits && *lane == self.lane)?;
        Some(Kind::Resource { resource: *resource, by: Some(Culprit::of(*job)) })
    }

    /// The cap keeps it from starting, or has it below the lanes.
    fn is_gated(&self) -> bool {
        let gated = self.lane >= self.gate;
        self.pause
            || gated
                && if matches!(self.phase, Phase::Waits | Phase::Again) {
                    !self.critical
                } else {
                    !self.critical_lanes.contains(self.lane)
                }
    }

    /// The parts, once the job has ended, the stretches, and what the hypervisor took besides: what it ran is split at
    /// its declared worst case, and what it did not run although the model says so is explained as far as it can be.
    /// `switches`: the kernel's switches show who had the CPU. Then the release thread's time is in the stretches.
    pub fn finish(
        mut self,
        consumed: Option<Span>,
        wcet: Span,
        pools: Pools,
        switches: bool,
    ) -> (BTreeMap<Kind, Span>, Vec<Stretch>, Span) {
        self.settle(false);
        let mut ran = self.parts.remove(&Kind::Executed).unwrap_or_default();
        if let (true, Some(consumed)) = (self.lost, consumed) {
            // It ran at an unknown time.
            let unseen = self.parts.get(&Kind::Unexplained).copied().unwrap_or_default();
            let unseen = unseen.min(consumed.saturating_sub(ran));
            take(&mut self.parts, Kind::Unexplained, unseen);
            ran = sum(ran, unseen);
        }
        let own = consumed.map_or(ran, |consumed| consumed.min(ran));
        let mut lost = ran - own;
        let overhead = self.parts.get(&Kind::Overhead).copied().unwrap_or_default();
        let mut put = |kind: Kind, span: Span| {
            if !span.is_zero() {
                let part = self.parts.entry(kind).or_default();
                *part = sum(*part, span);
            }
        };
        put(Kind::Executed, own.min(wcet));
        put(Kind::Overran, own.saturating_sub(wcet));
        if self.exact {
            // A simulation spends what its jobs do not consume on scheduling.
            put(Kind::Overhead, lost);
            return (self.parts, self.timeline.unwrap_or_default(), Span::ZERO);
        }
        // By the clocks of the threads that schedule: more than that is not theirs.
        let scheduled = pools.overhead.saturating_sub(self.pools.overhead);
        let mut stolen = pools.stolen.saturating_sub(self.pools.stolen);
        if !switches {
            let span = lost.min(scheduled);
            put(Kind::Overhead, span);
            lost = lost.saturating_sub(span);
        }
        let of_lost = lost.min(stolen);
        stolen = stolen.saturating_sub(of_lost);
        let of_overhead = overhead.saturating_sub(scheduled).min(stolen);
        stolen = stolen.saturating_sub(of_overhead);
        put(Kind::Stolen, sum(of_lost, of_overhead));
        put(Kind::Unexplained, lost.saturating_sub(of_lost));
        take(&mut self.parts, Kind::Overhead, of_overhead);
        (self.parts, self.timeline.unwrap_or_default(), stolen)
    }
}

/// Takes `span` from a part, which goes with its last nanosecond.
fn take(parts: &mut BTreeMap<Kind, Span>, kind: Kind, span: Span) {
    if let Some(part) = parts.get_mut(&kind) {
        *part = part.saturating_sub(span);
        if part.is_zero() {
            parts.remove(&kind);
        }
    }
}
