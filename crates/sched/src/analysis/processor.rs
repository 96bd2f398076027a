//! Responses on one processor, level by level, given bounds of the releases of its operations.

use alloc::vec::Vec;

use hyoshi_model::{Deadline, Preemption};

use super::blocking::Blocking;
use super::cap;
use super::demand::{Keyed, KeyedLevel, TooMuch};
use super::fixed::{self, Demand};
use super::merge;
use super::method::AnalysisMethod;
use super::part::{OperationPart, PartResult, ResponseBound};
use super::processor_scene::ProcessorScene;
use super::verdict::Missing;
use super::work::{Release, ReleaseSource};
use crate::strategy::Discipline;

/// Pairs of an operation of a level and one that delays it. With more, operations have no separate bound.
const MOST_PAIRS: usize = 1 << 18;

/// Operations of a level. With more, none is searched separately.
const MANY: usize = 1 << 12;

/// The reason of results that were not requested.
const NOT_REQUESTED: Missing = Missing::LongWindow;

/// A level with the work around it.
struct LevelContext<'s> {
    /// Its parts: those from `start` to `end`; more urgent ones precede them.
    start: usize,
    end: usize,
    /// The demand of all parts up to `end`.
    all: &'s [Demand],
    /// The work above every lane.
    above: &'s [Demand],
    /// Blocking by less urgent levels.
    below: u64,
}

impl LevelContext<'_> {
    /// The work that is more urgent than the level.
    fn higher(&self) -> Vec<Demand> {
        self.above.iter().chain(&self.all[..self.start]).copied().collect()
    }
}

impl ProcessorScene<'_> {
    /// Analyses every level, given bounds of the releases of every operation of the system.
    pub fn solve(&self, releases: &[Release]) -> Vec<PartResult> {
        let above = cap::above(self, releases);
        let mut found = Vec::with_capacity(self.parts.len());
        let mixed = self.first_mixed();
        let mut start = 0;
        while let Some(first) = self.parts.get(start).filter(|first| mixed.is_none_or(|mixed| first.level < mixed)) {
            let end = start + self.parts[start..].partition_point(|part| part.level == first.level);
            self.solve_level(start, end, &above, releases, &mut found);
            start = end;
        }
        if mixed.is_some() {
            found.extend(self.solve_mixed(&above, releases).into_iter().skip(start));
        }
        cap::restrict(self, releases, &mut found);
        found
    }

    /// The most urgent level from which the order may change under way, if it may: 0 unless only the order of rates does.
    fn first_mixed(&self) -> Option<u8> {
        let differs = |part: &&OperationPart| part.best != part.worst || self.works[part.operation.index()].rekeyed;
        let by_rates = |part: &OperationPart| self.works[part.operation.index()].reordered;
        let mut differing = self.parts.iter().filter(differs);
        if self.plan.overload.is_some() || !differing.clone().all(by_rates) {
            return Some(0).filter(|_| self.is_mixed());
        }
        differing.next().map(|_| self.parts.iter().filter(differs).map(|part| part.best).min().unwrap_or_default())
    }

    fn solve_level(
        &self,
        start: usize,
        end: usize,
        above: &Result<Vec<Demand>, Missing>,
        releases: &[Release],
        found: &mut Vec<PartResult>,
    ) {
        let own = &self.parts[start..end];
        if !own.iter().any(|part| self.effort.wants(part.operation)) {
            return found.extend(own.iter().map(|part| unknown(*part, NOT_REQUESTED)));
        }
        let all: Result<Vec<Demand>, Missing> =
            self.parts[..end].iter().map(|part| self.demand(part, releases)).collect();
        let known = self.unbounded.clone().map_or(Ok(()), Err).and(above.clone()).and_then(|above| Ok((above, all?)));
        let (above, all) = match known {
            Ok(known) => known,
            Err(missing) => {
                let reason = |part: &OperationPart| {
                    self.unanalysable(part.operation)
                        .or_else(|| self.unreleased(part, releases))
                        .unwrap_or_else(|| missing.clone())
                };
                return found.extend(own.iter().map(|part| unknown(*part, reason(part))));
            }
        };
        let below = Blocking::new(self.system, self.plan).by_less_urgent(&self.parts, own[0].level);
        let below = self.with_overhead(below, &self.parts[end..], &above, releases);
        let level = LevelContext { start, end, all: &all, above: &above, below };
        let discipline = self.plan.levels.get(usize::from(own[0].level)).map(|level| level.discipline);
        let single = own.iter().all(|part| part.operation == own[0].operation);
        match discipline {
            // One operation by key is first in, first out: its keys are in the order of its releases.
            None | Some(Discipline::Fifo) => self.solve_fifo(&level, releases, found),
            Some(discipline) if single && own.iter().all(|part| self.in_order(part, discipline)) => {
                self.solve_fifo(&level, releases, found)
            }
            Some(Discipline::Laxity) if self.plan.preemption == Preemption::Full => {
                self.solve_preemptive_laxity(&level, releases, found);
            }
            Some(discipline) => self.solve_keyed(&level, releases, discipline, found),
        }
    }

    /// True if a later job of the operation never has a better key than an earlier one.
    pub fn in_order(&self, part: &OperationPart, discipline: Discipline) -> bool {
        let work = &self.works[part.operation.index()];
        let as_released = matches!(work.deadline, Deadline::Own(_)) || matches!(work.source, ReleaseSource::Periodic);
        // While a job runs its laxity stays, and that of a waiting one falls.
        let overtaken = discipline == Discipline::Laxity && self.plan.preemption == Preemption::Full;
        as_released && !overtaken && !part.of_chain
    }

    fn solve_fifo(&self, at: &LevelContext<'_>, releases: &[Release], found: &mut Vec<PartResult>) {
        let (higher, own) = (at.higher(), &at.all[at.start..at.end]);
        let interruptible = self.plan.preemption != Preemption::None;
        let plain = self.parts[at.start..at.end].iter().any(|part| !part.of_chain);
        // The same for every plain job of the level.
        let level =
            (interruptible && plain).then(|| self.effort.level(self.parts[at.start].operation, own, &higher, at.below));
        // In any order, no job outlasts the busy window.
        let whole = (!interruptible && own.len() > MANY).then(|| {
            let all: Vec<Demand> = at.above.iter().chain(&at.all[..at.end]).copied().collect();
            fixed::busy_window(&all, at.below)
        });
        // For a large level only the common bound of all its jobs.
        let few = own.len().saturating_mul(at.end) < MOST_PAIRS;
        for (position, part) in self.parts[at.start..at.end].iter().enumerate() {
            let punctual = self.punctual(part, own[position], releases).filter(|_| few || !interruptible);
            let non_preemptive = |own: Demand| {
                let others = at.all.iter().enumerate().filter(|(index, _)| *index != at.start + position);
                let others: Vec<Demand> = others.map(|(_, demand)| *demand).collect();
                fixed::non_preemptive(own, &others, at.above, at.below)
            };
            let (method, bound) = match (&level, punctual) {
                _ if part.of_chain => (AnalysisMethod::Chain, self.solve_chain(at, at.start + position)),
                (Some(_), Some(punctual)) => {
                    let mut with = own.to_vec();
                    with[position] = punctual;
                    (
                        AnalysisMethod::FixedPriority,
                        self.effort.level(self.parts[at.start].operation, &with, &higher, at.below),
                    )
                }
                (Some(level), None) => (AnalysisMethod::FixedPriority, level.clone()),
                (None, _) if whole.is_some() => {
                    (AnalysisMethod::AnyOrder, whole.clone().unwrap_or(Err(Missing::LongWindow)))
                }
                (None, punctual) => {
                    (AnalysisMethod::FixedPriorityNonPreemptive, non_preemptive(punctual.unwrap_or(own[position])))
                }
            };
            let mut from_release = bound.as_ref().ok().and_then(|bound| {
                let response = self.own_response(at, position, &higher)?;
                Some((*bound).min(response))
            });
            if punctual.is_some() && self.works[part.operation.index()].source.is_triggered() {
                // A deadline from its own release has no jitter that the bound omits.
                from_release = match &level {
                    Some(level) => level.clone().ok(),
                    None if whole.is_some() => whole.clone().and_then(Result::ok),
                    None => non_preemptive(own[position]).ok(),
                };
                // At full load the window of late jobs has no end, but that of punctual ones has.
                let release = &releases[part.operation.index()];
                let late = release.latest.map(|latest| latest.saturating_sub(release.least).max(own[position].burst));
                from_release = from_release.or_else(|| bound.as_ref().ok()?.checked_add(late?));
            }
            let response = bound.map_or_else(ResponseBound::Unknown, ResponseBound::Bound);
            found.push(PartResult { part: *part, method, response, own: from_release });
        }
    }

    /// The demand of a part with jobs that are late by up to its burst, computed as without lateness.
    ///
    /// Job q of a busy window, counted from 0, is nominally released no earlier than qT - J after the window's start:
    /// job 0 arrived at the start or later, late by at most J. So with q + 1 of its own jobs in F(q) its response from
    /// the nominal release is at most F(q) - qT + J (Audsley et al. 1993; Tindell, Burns and Wellings, RTSS 1992), and
    /// the greatest F(q) - qT is the bound of a task without jitter. Counted from the jittered releases J would be
    /// added twice for each job but the first.
    fn punctual(&self, part: &OperationPart, demand: Demand, releases: &[Release]) -> Option<Demand> {
        let (work, release) = (&self.works[part.operation.index()], &releases[part.operation.index()]);
        let in_order = !release.reordered && work.streams.len() == 1 && !part.of_chain;
        // Behind a guard releases are punctual already.
        let spread = release.latest?.saturating_sub(release.least);
        let bounded = demand.burst > 0 && demand.burst <= spread.max(work.jitter);
        (in_order && bounded).then_some(Demand { burst: 0, ..demand })
    }

    /// The response of an operation with a run-up, from its own release, if its deadline counts from that.
    ///
    /// A busy window of its level contains as many jobs of it as releases of the first of its run-up, and they are no
    /// earlier than those: so the bound of the level's jobs by the arrivals of that window bounds these, too.
    fn own_response(&self, at: &LevelContext<'_>, position: usize, higher: &[Demand]) -> Option<u64> {
        let (part, own) = (&self.parts[at.start + position], &at.all[at.start..at.end]);
        let work = &self.works[part.operation.index()];
        if work.run_up.is_empty() || work.legs > 1 || !matches!(work.deadline, Deadline::Own(_)) {
            return None;
        }
        if self.plan.preemption != Preemption::None {
            return self.effort.level(self.parts[at.start].operation, own, higher, at.below).ok();
        }
        let others = at.all.iter().enumerate().filter(|(index, _)| *index != at.start + position);
        let others: Vec<Demand> = others.map(|(_, demand)| *demand).collect();
        fixed::non_preemptive(own[position], &others, at.above, at.below).ok()
    }

    /// A chain up to the end of the part at `position`: one job of its run-up and of all that its operation has at this
    /// level and above; all other operations count over the whole window.
    fn solve_chain(&self, at: &LevelContext<'_>, position: usize) -> Result<u64, Missing> {
        let part = self.parts[position];
        let run_up = &self.works[part.operation.index()].run_up;
        // Critical legs are first, so they do not wait for the others of their own release.
        let before = |other: &OperationPart| other.operation == part.operation && other.critical >= part.critical;
        let (mut own, mut others) = (Vec::new(), at.above.to_vec());
        for (other, demand) in self.parts.iter().zip(at.all) {
            let mine = before(other) || run_up.contains(&other.operation);
            (if mine { &mut own } else { &mut others }).push(*demand);
        }
        fixed::chain(&own, &others, at.below)
    }

    fn solve_keyed(
        &self,
        at: &LevelContext<'_>,
        releases: &[Release],
        discipline: Discipline,
        found: &mut Vec<PartResult>,
    ) {
        let (parts, demands) = (&self.parts[at.start..at.end], &at.all[at.start..at.end]);
        let method = testing(discipline);
        let higher = at.higher();
        let whole: Vec<Demand> = higher.iter().chain(demands).copied().collect();
        let window = match fixed::busy_window(&whole, at.below) {
            Ok(window) => i128::from(window),
            Err(missing) => {
                let unknown = |part: &OperationPart| PartResult { method, ..unknown(*part, missing.clone()) };
                return found.extend(parts.iter().map(unknown));
            }
        };
        let mut keyed: Vec<Keyed> =
            parts.iter().zip(demands).map(|(part, demand)| self.keyed(part, *demand, releases, discipline)).collect();
        let cancellation_costs = i128::from(self.cancellation_costs(parts, at.above, releases));
        for one in &mut keyed {
            one.blocks += cancellation_costs;
        }
        let level = KeyedLevel { own: &keyed, higher: &higher, below: i128::from(at.below), window };
        // By deadline one search is enough for all: an operation with a key beyond the longest window that fails is
        // safe.
        let common = match discipline {
            Discipline::Laxity => None,
            Discipline::Fifo | Discipline::Deadline => {
                let least = keyed.iter().map(|one| one.key).min().unwrap_or_default();
                Some(level.failing(least.max(0), 0))
            }
        };
        // By laxity one search is enough if it finds nothing; separate searches are for small levels.
        let together = match discipline {
            Discipline::Laxity if keyed.len() > MANY => {
                let after = keyed.iter().map(|one| one.after);
                let after = (after.clone().min().unwrap_or_default(), after.max().unwrap_or_default());
                let least = keyed.iter().map(|one| one.key).min().unwrap_or_default();
                Some(level.failing_of_several(least.max(0), after))
            }
            _ => None,
        };
        let bounded = parts.iter().all(|part| releases[part.operation.index()].latest.is_some());
        let latenesses = match bounded {
            true => level.latenesses(demands, self.effort),
            false => None,
        };
        for (index, (part, one)) in parts.iter().zip(&keyed).enumerate() {
            if !self.effort.wants(part.operation) {
                found.push(unknown(*part, NOT_REQUESTED));
                continue;
            }
            let failing = match (&common, &together) {
                (Some(common), _) => common.clone(),
                (None, Some(Ok(None))) => Ok(None),
                // Operations that fail together may pass separately, which is too slow to compute.
                (None, Some(_)) => Err(Missing::LargeLevel { operations: keyed.len() }),
                (None, None) => level.failing(one.key.max(0), one.after),
            };
            let late = latenesses.as_ref().and_then(|latenesses| u64::try_from(one.counted + latenesses[index]).ok());
            let (method, response) = match (failing, late) {
                (failing, Some(bound)) => {
                    let applies = |too_much: &TooMuch| one.key + one.after <= too_much.window;
                    let too_much = failing.ok().flatten().filter(applies);
                    (bounding(discipline), ResponseBound::Counted { bound, too_much })
                }
                _ if one.key < 0 => (method, ResponseBound::Unknown(Missing::BoundExceedsDeadline)),
                (Err(missing), None) => (method, ResponseBound::Unknown(missing)),
                (Ok(Some(too_much)), None) if one.key + one.after <= too_much.window => {
                    (method, ResponseBound::Demand(too_much))
                }
                (Ok(_), None) => (method, ResponseBound::InTime),
            };
            found.push(PartResult { part: *part, method, response, own: None });
        }
    }

    /// Fully preemptive laxity: a running job's laxity decreases relative to waiting jobs, so its order is not that of
    /// fixed points. The bound by deadline, with the own job's point at its deadline and all others' at their deadlines
    /// less their worst cases, held in every simulation; we know of no proof.
    fn solve_preemptive_laxity(&self, at: &LevelContext<'_>, releases: &[Release], found: &mut Vec<PartResult>) {
        let (parts, demands) = (&self.parts[at.start..at.end], &at.all[at.start..at.end]);
        let higher = at.higher();
        let whole: Vec<Demand> = higher.iter().chain(demands).copied().collect();
        let window = match fixed::busy_window(&whole, at.below) {
            Ok(window) => i128::from(window),
            Err(missing) => return found.extend(parts.iter().map(|part| unknown(*part, missing.clone()))),
        };
        let bounded = parts.iter().all(|part| releases[part.operation.index()].latest.is_some());
        let keyed = |discipline| -> Vec<Keyed> {
            let each = parts.iter().zip(demands);
            each.map(|(part, demand)| self.keyed(part, *demand, releases, discipline)).collect()
        };
        let (by_laxity, by_deadline) = (keyed(Discipline::Laxity), keyed(Discipline::Deadline));
        for (index, part) in parts.iter().enumerate() {
            let mut mixed = by_laxity.clone();
            mixed[index] = by_deadline[index];
            let level = KeyedLevel { own: &mixed, higher: &higher, below: i128::from(at.below), window };
            let late =
                (bounded && self.effort.wants(part.operation)).then(|| level.lateness(index, demands, self.effort));
            let bound = late.flatten().and_then(|late| u64::try_from(mixed[index].counted + late).ok());
            let response = bound.map_or(ResponseBound::Unknown(Missing::PreemptiveLaxity), ResponseBound::Tested);
            found.push(PartResult { part: *part, method: AnalysisMethod::PreemptiveLaxity, response, own: None });
        }
    }

    fn keyed(&self, part: &OperationPart, demand: Demand, releases: &[Release], discipline: Discipline) -> Keyed {
        let work = &self.works[part.operation.index()];
        let release = &releases[part.operation.index()];
        let after = if discipline == Discipline::Laxity { i128::from(part.leg) } else { 0 };
        let (nearest, furthest, burst) = match work.deadline {
            // Counted from the nominal release: only the job's own jitter shortens it, and keys are as irregular as the
            // trigger.
            Deadline::Own(deadline) => {
                let deadline = i128::from(deadline.as_nanos());
                let own_jitter = i128::from(work.jitter);
                let spared = if work.streams.len() > 1 { 0 } else { own_jitter };
                (deadline - own_jitter, deadline, i128::from(demand.burst) - spared)
            }
            // Counted from the origin: keys are strictly periodic, releases are anywhere up to `latest`.
            Deadline::Origin(deadline) => {
                let deadline = i128::from(deadline.as_nanos());
                match release.latest {
                    Some(latest) => {
                        let burst = merge::burst(&work.streams, release.oldest - release.older);
                        let burst = burst.map_or(i128::MAX / 8, i128::from);
                        let nearest = deadline - i128::from(latest) - i128::from(release.older);
                        (nearest, deadline - i128::from(release.least), burst)
                    }
                    // No bound on its lateness: it may have any key.
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
            // A lower rate permits a later one.
            latest_key: furthest - after + i128::from(work.later),
            counted: i128::from(work.deadline.span().as_nanos()) - after,
        }
    }
}

/// How verdicts on a level by key are found without bounds.
fn testing(discipline: Discipline) -> AnalysisMethod {
    match discipline {
        Discipline::Laxity => AnalysisMethod::LaxityDemand,
        Discipline::Fifo | Discipline::Deadline => AnalysisMethod::DeadlineDemand,
    }
}

/// How its response bounds are found.
fn bounding(discipline: Discipline) -> AnalysisMethod {
    match discipline {
        Discipline::Laxity => AnalysisMethod::LaxityResponse,
        Discipline::Fifo | Discipline::Deadline => AnalysisMethod::DeadlineResponse,
    }
}

fn unknown(part: OperationPart, missing: Missing) -> PartResult {
    PartResult { part, method: AnalysisMethod::None, response: ResponseBound::Unknown(missing), own: None }
}
