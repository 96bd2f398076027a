//! Operations in one scene, and the bounds of their releases: the data that all analyses share.

use alloc::{format, string::String, vec::Vec};

use hyoshi_model::{Deadline, HostId, OperationId, ProcessorId, Span, System};

use super::verdict::Missing;
use crate::plan::Placement;

/// An epoch, or the change from one to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// The epoch, after the jobs of the epoch before have finished.
    Epoch(usize),
    /// From this epoch to the next: jobs of both are pending.
    Change(usize),
}

impl Scene {
    /// The least and the greatest delay of a link.
    pub fn delay(self, system: &System, from: HostId, to: HostId) -> (Span, Span) {
        let of = |epoch: usize| system.link_setting(epoch, from, to).delay;
        match self {
            Scene::Epoch(epoch) => of(epoch),
            Scene::Change(epoch) => {
                let (before, after) = (of(epoch), of(epoch + 1));
                (before.0.min(after.0), before.1.max(after.1))
            }
        }
    }
}

/// One operation in one scene.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Work {
    pub operation: OperationId,
    pub on: ProcessorId,
    pub place: Placement,
    /// The other levels of its jobs: under the other strategy, on the other side of a change.
    pub elsewhere: Vec<Placement>,
    /// Across a change its keys change, but not its level.
    pub rekeyed: bool,
    /// A job may finish before an earlier one of the operation: the order changes at run time, legs differ across a
    /// change, or laxity lets a later release overtake a running job.
    pub any_order: bool,
    /// Across a change its period changes.
    pub repaced: bool,
    /// Jobs per release, and how many of the first are critical.
    pub legs: u64,
    pub critical_legs: u64,
    /// Of one job; at least 1 ns, as the analyses require.
    pub wcet: u64,
    pub bcet: u64,
    pub period: u64,
    /// The streams of releases that `period` combines; more than one after an `any`.
    pub streams: Vec<u64>,
    /// The longest gap between nominal releases that rates allow.
    pub slowest: u64,
    /// Requests lead to it: `slowest` is not a bound.
    pub sporadic: bool,
    /// What changes its releases at run time.
    pub adaptation: Adaptation,
    /// By how much its deadline may be later than declared, because it follows a lower rate. Only in levels by key: in
    /// others responses do not depend on deadlines.
    pub later: u64,
    /// The fewest jobs per release.
    pub fewest_legs: u64,
    /// Its levels change with the order of rates.
    pub reordered: bool,
    /// Why no analysis covers the changing order of rates, if none does.
    pub unordered: Option<Missing>,
    /// When its reference root is first released, if the file has one region.
    pub phase: Option<u64>,
    pub deadline: Deadline,
    pub offset: u64,
    pub jitter: u64,
    pub source: ReleaseSource,
    /// The first of several copies of each release triggers it: any of its predecessors may be absent.
    pub first: bool,
    /// A completion of its predecessors releases it only if it chooses it.
    pub chosen: bool,
    /// The operations before it that trigger it without a gap (see [`fixed`](super::fixed)), the first of them first;
    /// none for most.
    pub run_up: Vec<OperationId>,
}

/// What changes the releases of an operation at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Adaptation {
    /// Nothing.
    #[default]
    None,
    /// Only regions of contracts (see [`contract_limits`](super::contract_limits)).
    Limited,
    /// A feedback loop adapts the rate of one of its roots, or of a root's clients.
    Loop,
}

/// The cause of its releases.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ReleaseSource {
    /// None in this scene.
    Silent,
    /// Time.
    Periodic,
    /// One completion of each of these for each release of their one root, or of the only one; of copies, one of any. A
    /// join of several roots combines its predecessors' completions as described in [`join`](super::join).
    After { predecessors: Vec<Hop>, guarded: bool, join: Option<Join> },
    /// At most one release for each completion of any of these. With `within`, this is a correlation: the origins of
    /// the joined completions are at most this far apart. With `timeout`, a timeout releases it too, at least this long
    /// after the release before.
    AfterAny { predecessors: Vec<Hop>, within: Option<u64>, timeout: Option<u64> },
    /// No analysis bounds it.
    Unclear(Missing),
}

/// From a predecessor, over a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hop {
    pub from: usize,
    pub least: u64,
    /// With the error of the clocks on both sides.
    pub most: u64,
    /// The largest difference of the clocks on both sides: seen from here, the link may seem faster by this.
    pub error: u64,
}

impl Hop {
    /// The least delay, by the clock of this side, if it leaves `after` the origin.
    pub fn soonest(&self, after: u64) -> u64 {
        after.saturating_add(self.least).saturating_sub(self.error)
    }
}

impl ReleaseSource {
    /// The operations that release it by their completions, in the system's order.
    pub fn predecessors(&self) -> &[Hop] {
        match self {
            ReleaseSource::After { predecessors, .. } | ReleaseSource::AfterAny { predecessors, .. } => predecessors,
            ReleaseSource::Silent | ReleaseSource::Periodic | ReleaseSource::Unclear(_) => &[],
        }
    }

    /// True if a release guard keeps its releases apart.
    pub fn is_guarded(&self) -> bool {
        matches!(self, ReleaseSource::After { guarded: true, .. })
    }

    /// True if another operation's completion releases it.
    pub fn is_triggered(&self) -> bool {
        !self.predecessors().is_empty()
    }
}

impl Work {
    /// True if something changes its releases at run time.
    pub fn adapts(&self) -> bool {
        self.adaptation != Adaptation::None
    }

    /// The least time from its release to the finish of its last leg.
    pub fn shortest(&self) -> u64 {
        self.bcet.saturating_mul(self.fewest_legs)
    }

    /// True if it joins operations with different roots.
    pub fn joins(&self) -> bool {
        matches!(self.source, ReleaseSource::After { join: Some(_), .. })
    }

    /// True if its jobs use completions with different origins.
    pub fn mixes_origins(&self) -> bool {
        self.joins() || matches!(self.source, ReleaseSource::AfterAny { within: Some(_), .. })
    }

    /// True if it needs the CPU in this scene.
    pub fn runs(&self) -> bool {
        !matches!(self.source, ReleaseSource::Silent)
    }

    /// The operation with the release that its own release follows without a gap: the first of its run-up, or itself.
    pub fn head(&self) -> OperationId {
        self.run_up.first().copied().unwrap_or(self.operation)
    }

    /// Every level and side on which its jobs may be.
    pub fn positions(&self) -> impl Iterator<Item = Placement> + '_ {
        core::iter::once(self.place).chain(self.elsewhere.iter().copied())
    }
}

/// Which completions are joined.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Join {
    /// Completions of one predecessor that may wait for the others.
    pub room: u64,
    pub pattern: Pattern,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pattern {
    /// The k-th of each; the root of the predecessor at this position has the least phase.
    InStep { reference: usize },
    /// Each of the predecessor at this position, the slowest, with the available ones of the others.
    Sampled { reference: usize },
}

/// The bounds of an operation's releases. Origins are at least a period apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Release {
    /// The earliest release after the origin.
    pub least: u64,
    /// The latest release after the origin.
    pub latest: Option<u64>,
    /// Like `latest`, of the first operation of its run-up, from which its response is counted.
    pub counted: Option<u64>,
    /// In any window of w at most ceil((w + burst) / period) releases. Of the first operation of its run-up: a busy
    /// window contains its releases.
    pub burst: Option<u64>,
    /// Like `burst`, of releases after a guard that idle points open.
    pub opened: Option<u64>,
    /// A job may arrive before one of an earlier origin: links with a range of delays let messages overtake, and so do
    /// switches of strategy and changes of levels and keys.
    pub reordered: bool,
    /// After a join of several roots deadlines count from the earliest of their origins: no release is later than
    /// `latest` plus this after it.
    pub older: u64,
    /// And it is at most this much earlier than the origin.
    pub oldest: u64,
    /// Why a join of several roots has no bound.
    pub unjoined: Option<Unjoined>,
}

/// The reason of a missing bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unjoined {
    /// This one's response has no bound.
    Unbounded(OperationId),
    /// Jobs of this one may be lost.
    Lost(OperationId),
    /// Completions of this one may overtake each other.
    Overtaking(OperationId),
    /// This many completions of this one may have to wait.
    Full { of: OperationId, needs: u64, room: u64 },
    /// The next completion of the slowest may arrive before those of the others.
    TooClose { slow: OperationId, fast: OperationId, wait: u64, spread: u64, period: u64 },
}

impl Unjoined {
    pub fn text(self, system: &System) -> String {
        let name = |id: OperationId| &system.operation(id).name;
        let span = Span::from_nanos;
        match self {
            Unjoined::Unbounded(id) => format!("the response of {} has no bound", name(id)),
            Unjoined::Lost(id) => {
                format!("a job of {} may be dropped or cancelled, which shifts the matching of completions", name(id))
            }
            Unjoined::Overtaking(id) => format!("completions of {} may overtake each other", name(id)),
            Unjoined::Full { of, needs, room } => {
                let of = name(of);
                format!(
                    "{needs} completions of {of} may wait for completions of the other triggers; its queue.limit is {room}: raise it to {needs}"
                )
            }
            Unjoined::TooClose { slow, fast, wait, spread, period } => {
                let (slow, fast) = (name(slow), name(fast));
                let (wait, spread, period) = (span(wait), span(spread), span(period));
                format!(
                    "{slow} may wait {wait} for {fast} and be {spread} late; the sum must stay below its period of \
                        {period}: roots of nearly one rate drift, so use one period"
                )
            }
        }
    }
}
