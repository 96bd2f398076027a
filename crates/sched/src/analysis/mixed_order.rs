//! Response bounds when the order of jobs changes at run time: a processor with two strategies, under any sequence of
//! switches; and a change of region in which operations get other levels or keys.
//!
//! Waiting jobs get new keys, started ones finish at their old level. So the only known limits of a job are its most
//! and its least urgent level on any side.
//!
//! **The closure.** Let L be the least urgent level of the part under analysis (and of its predecessors in its chain).
//! Raise L until no part with its most urgent level at L or above has a less urgent level below L. Jobs of these parts
//! are always at level L or above, all others always below it. From the last instant at which none of the former was
//! pending, the processor executes only those until they are finished, in any order, except for one that blocks. So
//! their common busy window bounds every response (George, Rivierre and Spuri, INRIA RR-2966, 1996, for work-conserving
//! schedules).
//!
//! **The carry-in.** From its own release on, a job waits only for jobs that can be as urgent as it on some side. Those
//! that were released before and are still pending were released within their own response bound. So given any response
//! bounds R, w is another bound if w = B + the sum over these parts of C × the releases within w + R (the argument of
//! Tindell, Burns and Wellings, RTSS 1992, for changes of mode). Each round starts from valid bounds, so it ends with
//! valid bounds.
//!
//! **Only started jobs.** A part that is less urgent under either strategy, and never above L, can precede the job only
//! if it started at level L before, under the other strategy, and keeps the lane's token: one job in all. (Without
//! preemption: whatever its levels. Across a change of region waiting jobs keep their levels, so there all count in
//! full.)

use alloc::vec::Vec;

use hyoshi_model::Preemption;

use super::blocking::Blocking;
use super::fixed::{self, Demand};
use super::method::AnalysisMethod;
use super::part::{OperationPart, PartResult, ResponseBound};
use super::processor_scene::ProcessorScene;
use super::verdict::Missing;
use super::work::Release;
use crate::plan::Placement;
use crate::strategy::Discipline;

/// Rounds over all parts; later ones improve little.
const ROUNDS: usize = 8;

impl ProcessorScene<'_> {
    /// True if levels or the order within them may change under way.
    pub fn is_mixed(&self) -> bool {
        let differs = |part: &OperationPart| part.best != part.worst || self.works[part.operation.index()].rekeyed;
        self.plan.overload.is_some() || self.parts.iter().any(differs)
    }

    /// A bound for each part, in any order of jobs on either side.
    pub fn solve_mixed(&self, above: &Result<Vec<Demand>, Missing>, releases: &[Release]) -> Vec<PartResult> {
        let demands: Vec<Result<Demand, Missing>> = self.parts.iter().map(|part| self.demand(part, releases)).collect();
        let mut bounds: Vec<Result<u64, Missing>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let level = self.least_urgent(part);
            let same = self.parts[..bounds.len()].iter().position(|other| self.least_urgent(other) == level);
            let bound = match same {
                Some(other) => bounds[other].clone(),
                None => self.closed_window(level, &demands, above, releases),
            };
            bounds.push(bound);
        }
        if let Ok(above) = above {
            for _ in 0..ROUNDS {
                if !self.carry_in(&demands, above, releases, &mut bounds) {
                    break;
                }
            }
        }
        let found = |(part, bound): (&OperationPart, Result<u64, Missing>)| {
            let reason = |missing: Missing| {
                let own = self.unanalysable(part.operation).or_else(|| self.unreleased(part, releases));
                ResponseBound::Unknown(own.unwrap_or(missing))
            };
            let (method, response) = match bound {
                Ok(bound) => (AnalysisMethod::AnyOrder, ResponseBound::Bound(bound)),
                Err(missing) => (AnalysisMethod::None, reason(missing)),
            };
            PartResult { part: *part, method, response, own: None }
        };
        self.parts.iter().zip(bounds).map(found).collect()
    }

    /// The level below which neither a part nor its predecessors in its chain ever are.
    fn least_urgent(&self, part: &OperationPart) -> u8 {
        let before = |other: &&OperationPart| other.operation == part.operation && other.critical >= part.critical;
        self.parts.iter().filter(before).map(|other| other.worst).max().unwrap_or(part.worst)
    }

    /// The busy window of all parts that are above `level` on some side, and of all parts that these imply.
    pub fn closed_window(
        &self,
        level: u8,
        demands: &[Result<Demand, Missing>],
        above: &Result<Vec<Demand>, Missing>,
        releases: &[Release],
    ) -> Result<u64, Missing> {
        if let Some(missing) = self.unbounded.clone() {
            return Err(missing);
        }
        let mut closed = level;
        while let Some(worst) = self
            .parts
            .iter()
            .filter(|part| part.best <= closed)
            .map(|part| self.least_urgent(part))
            .max()
            .filter(|worst| *worst > closed)
        {
            closed = worst;
        }
        let mut inside = above.clone()?;
        for (_, demand) in self.parts.iter().zip(demands).filter(|(part, _)| part.best <= closed) {
            inside.push(demand.clone()?);
        }
        let blocking = self.blocked_from_below(closed, &inside, releases);
        fixed::busy_window(&inside, blocking).map_err(|missing| match missing {
            Missing::Overload if self.is_mixed() => Missing::OverloadAcross,
            missing => missing,
        })
    }

    fn blocked_from_below(&self, level: u8, above: &[Demand], releases: &[Release]) -> u64 {
        let below: Vec<OperationPart> = self.parts.iter().filter(|part| part.best > level).copied().collect();
        let blocking = Blocking::new(self.system, self.plan).by_less_urgent(&self.parts, level);
        self.with_overhead(blocking, &below, above, releases)
    }

    /// True if a job of `other` precedes one of `part` at most once, and then started before.
    fn only_started(&self, part: &OperationPart, other: &OperationPart) -> bool {
        let work = |part: &OperationPart| &self.works[part.operation.index()];
        // One more position for the second strategy: no change of region.
        let one_region = self.plan.overload.is_some() && self.parts.iter().all(|part| work(part).elsewhere.len() == 1);
        let stays = match self.plan.preemption {
            Preemption::None => true,
            Preemption::Levels => other.best >= self.least_urgent(part),
            Preemption::Full => false,
        };
        let level = |part: &OperationPart, place: Placement| {
            if part.critical { place.critical.level } else { place.other.level }
        };
        // In its chain, critical legs precede the others.
        let own = |place: Placement| match work(part).critical_legs {
            0 => level(part, place),
            _ => level(part, place).max(place.critical.level),
        };
        let mut pairs = work(part).positions().zip(work(other).positions());
        one_region && stays && pairs.all(|(mine, its)| level(other, its) > own(mine))
    }

    /// One round: smaller bounds from the present ones; false if there is none.
    fn carry_in(
        &self,
        demands: &[Result<Demand, Missing>],
        above: &[Demand],
        releases: &[Release],
        bounds: &mut [Result<u64, Missing>],
    ) -> bool {
        let mut smaller = false;
        // The work above the lanes is continuous for at most this long.
        let Ok(above_reach) = (if above.is_empty() { Ok(0) } else { fixed::busy_window(above, 0) }) else {
            return false;
        };
        for index in 0..self.parts.len() {
            let Ok(bound) = bounds[index] else { continue };
            let part = &self.parts[index];
            let level = self.least_urgent(part);
            let (started, ahead): (Vec<usize>, Vec<usize>) = (0..self.parts.len())
                .filter(|other| self.parts[*other].best <= level)
                .partition(|other| *other != index && self.only_started(part, &self.parts[*other]));
            let started = started.iter().map(|other| self.parts[*other].charge.saturating_sub(1)).max().unwrap_or(0);
            let blocking = self.blocked_from_below(level, above, releases).saturating_add(started);
            // Its own later jobs do not overtake it, unless their level changes to another than its.
            let stays = part.best == part.worst && !self.works[part.operation.index()].rekeyed;
            let in_order =
                stays && self.in_order(part, Discipline::Laxity) && !releases[part.operation.index()].reordered;
            let mut window = 1;
            while window < bound {
                let mut next = u128::from(blocking);
                for demand in above {
                    let jobs = demand.jobs(u128::from(window) + u128::from(above_reach));
                    next = next.saturating_add(jobs.saturating_mul(u128::from(demand.cost)));
                }
                for other in ahead.iter().copied() {
                    let (Ok(demand), Ok(carried)) = (&demands[other], &bounds[other]) else {
                        next = u128::MAX / 2;
                        break;
                    };
                    let since = if other == index && in_order { 0 } else { window };
                    let reach = u128::from(since) + u128::from(*carried);
                    next = next.saturating_add(demand.jobs(reach).saturating_mul(u128::from(demand.cost)));
                }
                let next = u64::try_from(next).unwrap_or(u64::MAX);
                if next <= window {
                    break;
                }
                window = next;
            }
            if window < bound {
                (bounds[index], smaller) = (Ok(window), true);
            }
        }
        smaller
    }
}
