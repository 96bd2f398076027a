//! One processor, given what bounds the releases of its operations: responses, level by level.

use alloc::vec::Vec;

use hyoshi_model::{Deadline, OperationId, Preemption, System};

use super::blocking::Blocking;
use super::demand::{Keyed, KeyedLevel, TooMuch};
use super::fixed::{self, Demand};
use super::method::Method;
use super::release::Release;
use super::verdict::Missing;
use super::workload::{Source, Work};
use crate::plan::ProcessorPlan;
use crate::strategy::Discipline;

/// The critical or the other jobs of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub operation: OperationId,
    pub critical: bool,
    pub level: u8,
    /// Jobs per release, and the worst case of each.
    pub legs: u64,
    pub leg: u64,
    /// Its operation has several jobs per release, or follows others without a gap.
    pub of_chain: bool,
}

impl Part {
    /// The parts of an operation: one, or two of a load chain with critical first legs.
    pub fn of(work: &Work) -> impl Iterator<Item = Part> {
        let (legs, runs, place) = (work.legs, work.runs(), work.place);
        let part = |critical, of_these: u64, level| Part {
            operation: work.operation,
            critical,
            level,
            legs: of_these,
            leg: work.wcet,
            of_chain: legs > 1 || !work.run_up.is_empty(),
        };
        let critical = part(true, work.critical_legs, place.critical.level);
        let other = part(false, legs - work.critical_legs, place.other.level);
        [critical, other].into_iter().filter(move |part| runs && part.legs > 0)
    }

    /// Worst case of its jobs of one release.
    pub fn cost(&self) -> u64 {
        self.leg.saturating_mul(self.legs)
    }
}

/// What the analysis of one part found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub part: Part,
    pub method: Method,
    pub response: Response,
}

/// A response, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// From release to finish of the last of the part's jobs; of an operation with a run-up, from
    /// the release of the first operation of that.
    Bound(u64),
    /// No bound was calculated, but no job is late.
    InTime,
    /// More may have to be done than fits.
    Demand(TooMuch),
    /// Nothing is known.
    Unknown(Missing),
}

impl Response {
    /// True if jobs may be late without limit, for all that is known.
    pub fn is_unbounded(&self) -> bool {
        matches!(self, Response::Demand(_) | Response::Unknown(_))
    }
}

/// A processor in one scene.
pub(super) struct Site<'a> {
    pub system: &'a System,
    pub plan: &'a ProcessorPlan,
    pub works: &'a [Work],
    /// Most urgent first.
    pub parts: Vec<Part>,
    remote: Option<Missing>,
}

impl<'a> Site<'a> {
    pub fn new(system: &'a System, plan: &'a ProcessorPlan, works: &'a [Work]) -> Self {
        let mut parts: Vec<Part> = plan.operations.iter().flat_map(|id| Part::of(&works[id.index()])).collect();
        parts.sort_by_key(|part| part.level);
        Site { system, plan, works, parts, remote: Blocking::new(system, plan).remote() }
    }

    /// Analyses every level, given what bounds the releases of every operation of the system.
    pub fn solve(&self, releases: &[Release]) -> Vec<Found> {
        let mut found = Vec::with_capacity(self.parts.len());
        let mut start = 0;
        while let Some(first) = self.parts.get(start) {
            let end = start + self.parts[start..].partition_point(|part| part.level == first.level);
            self.solve_level(start, end, releases, &mut found);
            start = end;
        }
        super::cap::restrict(self, releases, &mut found);
        found
    }

    /// The work of a part, if its releases are bounded.
    pub fn demand(&self, part: &Part, releases: &[Release]) -> Result<Demand, Missing> {
        let work = &self.works[part.operation.index()];
        let name = || self.system.operation(part.operation).name.clone();
        let burst = releases[part.operation.index()].burst.filter(|_| self.to_blame(part.operation).is_none());
        let burst = burst.ok_or_else(|| Missing::Interference { name: name() })?;
        let cost = part.leg.checked_mul(part.legs).ok_or(Missing::Overflow)?;
        Ok(Demand { cost, period: work.period, burst })
    }

    fn solve_level(&self, start: usize, end: usize, releases: &[Release], found: &mut Vec<Found>) {
        let own = &self.parts[start..end];
        let all: Result<Vec<Demand>, Missing> =
            self.parts[..end].iter().map(|part| self.demand(part, releases)).collect();
        let all = match self.remote.clone().map_or(all, Err) {
            Ok(all) => all,
            Err(missing) => {
                let reason = |part: &Part| {
                    self.to_blame(part.operation)
                        .or_else(|| self.unreleased(part, releases))
                        .unwrap_or_else(|| missing.clone())
                };
                return found.extend(own.iter().map(|part| unknown(*part, reason(part))));
            }
        };
        let below = Blocking::new(self.system, self.plan).by_less_urgent(&self.parts, own[0].level);
        let discipline = self.plan.levels.get(usize::from(own[0].level)).map(|level| level.discipline);
        let single = own.iter().all(|part| part.operation == own[0].operation);
        match discipline {
            // One operation by key is first come first served: its keys come in the order of its releases.
            None | Some(Discipline::Fifo) => self.solve_fifo(start, end, &all, below, found),
            Some(discipline) if single && own.iter().all(|part| self.in_order(part, discipline)) => {
                self.solve_fifo(start, end, &all, below, found)
            }
            Some(Discipline::Laxity) if self.plan.preemption == Preemption::Full => {
                found.extend(own.iter().map(|part| unknown(*part, Missing::PreemptiveLaxity)));
            }
            Some(discipline) => self.solve_keyed(start, end, &all, below, releases, discipline, found),
        }
    }

    /// Why an operation leaves its level and those below without analysis, if it does.
    fn to_blame(&self, operation: OperationId) -> Option<Missing> {
        let work = &self.works[operation.index()];
        match &work.source {
            Source::Unclear(missing) => Some(missing.clone()),
            // Its first jobs would then be released at the pace of less urgent ones.
            _ if work.place.other.level < work.place.critical.level && (1..work.legs).contains(&work.critical_legs) => {
                Some(Missing::LegOrder)
            }
            _ => None,
        }
    }

    /// The predecessor for want of whose bound its own releases have none.
    fn unreleased(&self, part: &Part, releases: &[Release]) -> Option<Missing> {
        let Source::After { predecessors, .. } = &self.works[part.operation.index()].source else { return None };
        let before = &self.system.operations[predecessors.first()?.from];
        let unbounded = releases[part.operation.index()].burst.is_none();
        unbounded.then(|| Missing::Predecessor { name: before.name.clone() })
    }

    /// True if a later job of the operation never has a better key than an earlier one.
    fn in_order(&self, part: &Part, discipline: Discipline) -> bool {
        let work = &self.works[part.operation.index()];
        let as_released = matches!(work.deadline, Deadline::Own(_)) || matches!(work.source, Source::Periodic);
        // While a job runs its laxity falls behind that of a waiting one.
        let overtaken = discipline == Discipline::Laxity && self.plan.preemption == Preemption::Full;
        as_released && !overtaken && !part.of_chain
    }

    fn solve_fifo(&self, start: usize, end: usize, all: &[Demand], below: u64, found: &mut Vec<Found>) {
        let (higher, own) = (&all[..start], &all[start..end]);
        let interruptible = self.plan.preemption != Preemption::None;
        let plain = self.parts[start..end].iter().any(|part| !part.of_chain);
        // The same for every plain job of the level.
        let level = (interruptible && plain).then(|| fixed::level(own, higher, below));
        for (position, part) in self.parts[start..end].iter().enumerate() {
            let (method, bound) = match &level {
                _ if part.of_chain => (Method::Chain, self.solve_chain(start + position, all, below)),
                Some(level) => (Method::FixedPriority, level.clone()),
                None => {
                    let others = all.iter().enumerate().filter(|(index, _)| *index != start + position);
                    let others: Vec<Demand> = others.map(|(_, demand)| *demand).collect();
                    let bound = fixed::non_preemptive(own[position], &others, below);
                    (Method::FixedPriorityNonPreemptive, bound)
                }
            };
            let response = bound.map_or_else(Response::Unknown, Response::Bound);
            found.push(Found { part: *part, method, response });
        }
    }

    /// A chain up to the end of the part at `position`: one job of its run-up and of all that its
    /// operation has at this level and above; everyone else counts over the whole window.
    fn solve_chain(&self, position: usize, all: &[Demand], below: u64) -> Result<u64, Missing> {
        let part = self.parts[position];
        let run_up = &self.works[part.operation.index()].run_up;
        // Critical legs come first, so they do not wait for the others of their own release.
        let before = |other: &Part| other.operation == part.operation && other.critical >= part.critical;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (other, demand) in self.parts.iter().zip(all) {
            let mine = before(other) || run_up.contains(&other.operation);
            (if mine { &mut own } else { &mut others }).push(*demand);
        }
        fixed::chain(&own, &others, below)
    }

    #[expect(clippy::too_many_arguments, reason = "a level in its surroundings")]
    fn solve_keyed(
        &self,
        start: usize,
        end: usize,
        all: &[Demand],
        below: u64,
        releases: &[Release],
        discipline: Discipline,
        found: &mut Vec<Found>,
    ) {
        let parts = &self.parts[start..end];
        let method = match discipline {
            Discipline::Laxity => Method::LaxityDemand,
            Discipline::Fifo | Discipline::Deadline => Method::DeadlineDemand,
        };
        let window = match fixed::busy_window(all, below) {
            Ok(window) => i128::from(window),
            Err(missing) => {
                let unknown = |part: &Part| Found { part: *part, method, response: Response::Unknown(missing.clone()) };
                return found.extend(parts.iter().map(unknown));
            }
        };
        let keyed: Vec<Keyed> = parts
            .iter()
            .zip(&all[start..end])
            .map(|(part, demand)| self.keyed(part, *demand, releases, discipline))
            .collect();
        let level = KeyedLevel { own: &keyed, higher: &all[..start], below: i128::from(below), window };
        // By deadline one search serves all: whoever's key is beyond the longest window that fails is safe.
        let common = match discipline {
            Discipline::Laxity => None,
            Discipline::Fifo | Discipline::Deadline => {
                let least = keyed.iter().map(|one| one.key).min().unwrap_or_default();
                Some(level.failing(least.max(0), 0))
            }
        };
        for (part, one) in parts.iter().zip(&keyed) {
            let failing = common.clone().unwrap_or_else(|| level.failing(one.key.max(0), one.after));
            let response = match failing {
                _ if one.key < 0 => Response::Unknown(Missing::BoundExceedsDeadline),
                Err(missing) => Response::Unknown(missing),
                Ok(Some(too_much)) if one.key + one.after <= too_much.window => Response::Demand(too_much),
                Ok(_) => Response::InTime,
            };
            found.push(Found { part: *part, method, response });
        }
    }

    fn keyed(&self, part: &Part, demand: Demand, releases: &[Release], discipline: Discipline) -> Keyed {
        let work = &self.works[part.operation.index()];
        let release = &releases[part.operation.index()];
        let after = if discipline == Discipline::Laxity { i128::from(part.leg) } else { 0 };
        let (nearest, furthest, burst) = match work.deadline {
            // Counted from the nominal release: only the job's own jitter shortens it, and keys are as
            // irregular as the trigger.
            Deadline::Own(deadline) => {
                let deadline = i128::from(deadline.as_nanos());
                let own_jitter = i128::from(work.jitter);
                (deadline - own_jitter, deadline, i128::from(demand.burst) - own_jitter)
            }
            // Counted from the origin: keys are strictly periodic, releases come anywhere up to `latest`.
            Deadline::Origin(deadline) => {
                let deadline = i128::from(deadline.as_nanos());
                match release.latest {
                    Some(latest) => (deadline - i128::from(latest), deadline - i128::from(release.least), 0),
                    // No bound on how late it comes: it may have any key.
                    None => (i128::MIN / 4, deadline - i128::from(release.least), i128::MAX / 8),
                }
            }
        };
        Keyed {
            cost: i128::from(demand.cost),
            period: i128::from(demand.period),
            key: nearest - after,
            burst: burst.max(0),
            after,
            blocks: i128::from(Blocking::new(self.system, self.plan).within(part)),
            latest_key: furthest - after,
        }
    }
}

fn unknown(part: Part, missing: Missing) -> Found {
    Found { part, method: Method::None, response: Response::Unknown(missing) }
}
