//! From an [`ReportInput`] to its [`Summary`].

use std::collections::{BTreeSet, HashMap};

use hyoshi_model::{Instant, OperationId, Preemption, ProcessorId, Span};
use hyoshi_sched::ProcessorPlan;
use hyoshi_trace::StrategyHistory;
use hyoshi_trace::stats::distribution::Nanos;
use hyoshi_trace::stats::over_time::Ends;
use hyoshi_trace::stats::{Distribution, Extent, Row};

use crate::bounds::{KnownBound, ProvedBounds, chain_bound};
use crate::feedback::FeedbackSummary;
use crate::figures::counted;
use crate::input::{NoteLevel, ReportInput, ReportNote};
use crate::lateness::{LatenessSummary, lateness};
use crate::names;
use crate::stages::{omitted, stages};
use crate::summary::*;
use crate::time::TimeSummary;
use crate::{causes, contracts, exceeded, programs};

/// Misses that a report shows of each class.
const WORST: usize = 20;

/// Misses of one operation, or of the instances of one template, among them.
const WORST_OF_ONE: usize = 3;

/// The most moves of operations in notes, and the most decisions on operations on standby.
const MOVES: usize = 8;

impl ReportInput<'_> {
    /// All figures of the report.
    pub fn summary(&self) -> Summary {
        let system = self.system;
        let rows: Vec<&Row> = self.figures.stats.rows().iter().filter(|row| self.is_here(row)).collect();
        let reached = system.epochs.iter().filter(|epoch| epoch.at.since(Instant::ZERO) < self.duration).count();
        let bounds = ProvedBounds::of(system, &self.analysis, reached.max(1));
        let operations: Vec<_> = rows.iter().map(|row| self.operation(&[row], &bounds)).collect();
        let chains = self.chains(&bounds);
        let analysis = exceeded::analysis(self, &operations, &chains);
        let mut notes = self.notes.clone();
        notes.extend(exceeded::note(self, &analysis));
        notes.extend(self.elsewhere());
        notes.extend(omitted(system, self.figures.stats.chains()));
        let groups = self.groups(&bounds);
        notes.extend(groups.iter().filter(|group| !group.discarded.is_empty()).map(|group| ReportNote {
            level: NoteLevel::Info,
            topic: "dropped events".into(),
            text: format!("{}: {}", group.name, group.discarded.text()),
            remedy: None,
        }));
        let processors: Vec<_> = system.processor_ids().map(|id| self.processor(id)).collect();
        let of_loops = processors.iter().flat_map(|one| one.feedback.iter().flat_map(|of| of.notes(&one.name)));
        notes.extend(of_loops.map(|text| ReportNote {
            level: NoteLevel::Degraded,
            topic: "feedback".into(),
            text,
            remedy: None,
        }));
        let moves = processors.iter().filter_map(|one| one.feedback.as_ref()).flat_map(|one| &one.moves);
        notes.extend(moves.take(MOVES).map(|one| ReportNote {
            level: NoteLevel::Info,
            topic: "feedback".into(),
            text: one.text(),
            remedy: None,
        }));
        let admissions = processors.iter().filter_map(|one| one.feedback.as_ref()).flat_map(|one| &one.admissions);
        notes.extend(admissions.take(MOVES).map(|one| ReportNote {
            level: if one.remedy().is_some() { NoteLevel::Degraded } else { NoteLevel::Info },
            topic: "feedback".into(),
            text: one.text(),
            remedy: one.remedy().map(str::to_owned),
        }));
        Summary {
            hyoshi: Head {
                schema: SCHEMA,
                version: env!("CARGO_PKG_VERSION"),
                verb: self.verb.into(),
                command: self.command.clone(),
                started_unix_ns: self.started_unix_ns,
            },
            system: SystemSummary {
                name: system.name.clone(),
                file: self.file.into(),
                seed: system.seed,
                operations: system.operations.len(),
            },
            verdict: self.verdict(),
            duration_ns: self.duration.as_nanos(),
            asked_ns: self.asked.as_nanos(),
            interrupted: self.interrupted,
            took_ns: self.took.as_nanos(),
            lost_events: self.lost_events,
            machine_utilisation_ppm: self.machine_ppm,
            notes,
            analysis,
            processors,
            classes: [true, false].into_iter().filter_map(|critical| self.class(critical)).collect(),
            over_time: self.over_time(),
            epochs: (0..system.epochs.len()).map(|epoch| self.epoch(epoch)).collect(),
            groups,
            operations,
            chains,
            misses: self.misses(),
            contracts: contracts::contracts(system, &self.figures.contracts),
            brokers: programs::brokers(system),
            programs: self.programs.clone(),
        }
    }

    /// Whether a row's operation is on the host that ran.
    fn is_here(&self, row: &Row) -> bool {
        self.host.is_none_or(|host| self.system.processor(row.processor()).host == host)
    }

    /// A note on the operations of other hosts, which are not listed.
    fn elsewhere(&self) -> Option<ReportNote> {
        let host = &self.system.hosts[self.host?.index()].name;
        let rows = self.figures.stats.rows().iter().filter(|row| !self.is_here(row));
        let others = rows.map(Row::operation).collect::<BTreeSet<_>>().len() as u64;
        (others > 0).then(|| ReportNote {
            level: NoteLevel::Info,
            topic: "hosts".into(),
            text: format!("only {host}; not listed: {} of other hosts", counted(others, "operation", "operations")),
            remedy: None,
        })
    }

    fn processor(&self, id: ProcessorId) -> ProcessorSummary {
        let processor = self.system.processor(id);
        let consumed = self.figures.stats.counts(None, |row| row.processor() == id).consumed;
        ProcessorSummary {
            name: processor.name.clone(),
            host: self.system.hosts[processor.host.index()].name.clone(),
            cpu: processor.cpu,
            strategy: self.plan.processors[id.index()].strategy.clone(),
            overload: self.overload(id),
            feedback: self.feedback(id),
            preemption: match processor.preemption {
                Preemption::None => "none",
                Preemption::Levels => "levels",
                Preemption::Full => "full",
            },
            cancel: processor.cancel,
            utilisation_ppm: ppm(consumed, self.duration),
            consumed_ns: consumed.as_nanos(),
            enqueue: self.queueing.get(id.index()).and_then(|queueing| TimesSummary::of(&queueing.enqueue)),
            dequeue: self.queueing.get(id.index()).and_then(|queueing| TimesSummary::of(&queueing.dequeue)),
            time: TimeSummary::of(self, id.index()),
            levels: self.levels(&self.plan.processors[id.index()]),
        }
    }

    fn feedback(&self, id: ProcessorId) -> Option<FeedbackSummary> {
        let of = self.system.feedback.iter().find(|one| one.processor == id)?;
        let history = self.figures.feedback.get(id.index())?;
        let steps = self.groups.iter().find(|steps| steps.algorithm == of.algorithm);
        let mut summary = FeedbackSummary {
            unsolved_steps: steps.map(|steps| steps.unsolved),
            skipped_steps: steps.map(|steps| steps.skipped),
            ..FeedbackSummary::new(self.system, of, (history, self.figures.stats), self.duration)
        };
        // A node knows the rates of operations here, and those that loops of one processor here set.
        let is_here = |processor| self.host.is_none_or(|host| self.system.processor(processor).host == host);
        let knows_all = is_here(of.processor) && !of.algorithm.is_of_group();
        summary.rates.retain(|rate| {
            let mut operations = self.system.operations.iter();
            knows_all || operations.any(|one| one.name == rate.operation && is_here(one.on))
        });
        (is_here(of.processor) || !summary.rates.is_empty()).then_some(summary)
    }

    fn overload(&self, id: ProcessorId) -> Option<OverloadSummary> {
        let second = self.plan.processors[id.index()].overload.as_ref()?;
        let history = self.figures.strategies.get(id.index());
        let ruled = history.map_or(Span::ZERO, StrategyHistory::total);
        let stretch = |(at, had): (Instant, Span), width: Span| StrategyUseSummary {
            at_ns: at.as_nanos(),
            until_ns: at.as_nanos().saturating_add(width.as_nanos()),
            ruled_ns: had.as_nanos(),
        };
        let stretches = history.map(|history| history.stretches().map(|one| stretch(one, history.width())).collect());
        Some(OverloadSummary {
            strategy: second.strategy.clone(),
            switches: history.map(StrategyHistory::switches),
            ruled_ns: ruled.as_nanos(),
            ruled_ppm: ppm(ruled, self.duration),
            over_time: stretches.unwrap_or_default(),
            levels: self.levels(second),
        })
    }

    fn levels(&self, plan: &ProcessorPlan) -> Vec<LevelSummary> {
        let levels = plan.levels.iter().enumerate().map(|(index, level)| {
            let here = plan.operations.iter().enumerate().filter(|(position, operation)| {
                let rows = self.figures.stats.rows_of(**operation);
                plan.placements.iter().any(|epoch| {
                    let place = epoch[*position];
                    let of = |critical| if critical { place.critical.level } else { place.other.level };
                    rows.iter().any(|row| usize::from(of(row.critical())) == index)
                })
            });
            let groups = names::groups(self.system, here.map(|(_, operation)| *operation));
            LevelSummary {
                label: level.label.clone(),
                discipline: level.discipline.to_string(),
                critical: level.critical,
                operations: groups.iter().map(|group| names::label(&group.name, group.operations.len())).collect(),
            }
        });
        levels.collect()
    }

    fn class(&self, critical: bool) -> Option<ClassSummary> {
        let of = |row: &Row| row.critical() == critical;
        self.figures.stats.rows().iter().any(of).then(|| {
            let response = self.figures.stats.response(of);
            ClassSummary {
                class: if critical { "critical" } else { "non-critical" },
                critical,
                counts: CountsSummary::from(&self.figures.stats.counts(None, of)),
                response: TimesSummary::of(&response),
                lateness: TimesSummary::of(&self.figures.stats.lateness(of)),
                response_bars: bars(&response),
                late: self.late(&self.figures.stats.rows().iter().filter(|row| of(row)).collect::<Vec<_>>()),
            }
        })
    }

    fn epoch(&self, index: usize) -> EpochSummary {
        let (system, stats) = (self.system, self.figures.stats);
        let epoch = &system.epochs[index];
        let end = system.epochs.get(index + 1).map_or(u64::MAX, |next| next.at.as_nanos());
        let (at_ns, until_ns) = (epoch.at.as_nanos(), end.min(self.duration.as_nanos()));
        let length = Span::from_nanos(until_ns.saturating_sub(at_ns));
        let load = |id: ProcessorId| LoadSummary {
            declared_ppm: system.utilisation_ppm(index, id),
            // A CPU has no more than its whole: beyond are errors of what is estimated about a change of region.
            used_ppm: ppm(stats.used(index, id), length).min(1_000_000),
        };
        EpochSummary {
            name: epoch.name.clone(),
            at_ns,
            until_ns,
            critical: CountsSummary::from(&stats.counts(Some(index), Row::critical)),
            non_critical: CountsSummary::from(&stats.counts(Some(index), |row| !row.critical())),
            processors: system.processor_ids().map(load).collect(),
        }
    }

    fn groups(&self, bounds: &ProvedBounds) -> Vec<OperationSummary> {
        let groups = names::groups(self.system, self.system.operation_ids());
        let mut group_of = vec![0; self.system.operations.len()];
        for (index, group) in groups.iter().enumerate() {
            group.operations.iter().for_each(|id| group_of[id.index()] = index);
        }
        let mut rows: Vec<[Vec<&Row>; 2]> = vec![Default::default(); groups.len()];
        for row in self.figures.stats.rows().iter().filter(|row| self.is_here(row)) {
            rows[group_of[row.operation().index()]][usize::from(row.critical())].push(row);
        }
        let named = groups.iter().zip(&rows).flat_map(|(group, [other, critical])| {
            let some = [critical, other].into_iter().filter(|rows| !rows.is_empty());
            some.map(|rows| OperationSummary {
                name: group.name.clone(),
                response_bars: bars(&together(rows, Row::response)),
                ..self.operation(rows, bounds)
            })
        });
        named.collect()
    }

    /// The figures of some rows together; of the first one's name.
    fn operation(&self, rows: &[&Row], bounds: &ProvedBounds) -> OperationSummary {
        let (system, first) = (self.system, rows[0]);
        let settings = || {
            let epochs = system.epochs.iter();
            let all = epochs.flat_map(|epoch| rows.iter().map(|row| &epoch.settings[row.operation().index()]));
            all.filter(|setting| setting.enabled)
        };
        let periods = || settings().map(|setting| setting.period.as_nanos());
        let deadlines = || settings().map(|setting| setting.deadline.span().as_nanos());
        let mut counts = hyoshi_trace::Counts::default();
        rows.iter().for_each(|row| counts += &self.figures.stats.row_counts(row));
        let mut discarded = DiscardsSummary::default();
        rows.iter().for_each(|row| discarded += DiscardsSummary::of(self.figures.stats, row.operation()));
        let mut processors: Vec<&str> = Vec::new();
        for row in rows {
            let name = system.processor(row.processor()).name.as_str();
            if !processors.contains(&name) {
                processors.push(name);
            }
        }
        OperationSummary {
            name: system.operation(first.operation()).name.clone(),
            instances: rows.len(),
            processor: processors.join(", "),
            critical: first.critical(),
            period_ns: periods().min().unwrap_or(0),
            period_max_ns: periods().max().unwrap_or(0),
            wcet_ns: settings().map(|setting| setting.wcet.as_nanos()).max().unwrap_or(0),
            deadline_ns: deadlines().min().unwrap_or(0),
            deadline_max_ns: deadlines().max().unwrap_or(0),
            counts: CountsSummary::from(&counts),
            discarded,
            bound: self.bound(rows, bounds),
            regions: match system.epochs.len() {
                1 => Vec::new(),
                many => (0..many).filter_map(|epoch| self.region(rows, bounds, epoch)).collect(),
            },
            response: TimesSummary::of(&together(rows, Row::response)),
            lateness: TimesSummary::of(&together(rows, Row::lateness)),
            release_latency: extent(rows, Row::release_latency),
            start_latency: extent(rows, Row::start_latency),
            execution: extent(rows, Row::execution),
            response_bars: Vec::new(),
            late: self.late(rows),
        }
    }

    /// The delays of the late jobs of some rows, if all events were analysed.
    fn late(&self, rows: &[&Row]) -> Option<LatenessSummary> {
        let seen = self.figures.causes?;
        lateness(self.system, self.threads, rows.iter().filter_map(|row| seen.delays(row.operation(), row.critical())))
    }

    fn over_time(&self) -> Vec<StretchSummary> {
        let over_time = self.figures.stats.over_time();
        let stretch = |(at, [other, critical]): (Instant, &[Ends; 2])| StretchSummary {
            at_ns: at.as_nanos(),
            until_ns: at.as_nanos() + over_time.width().as_nanos(),
            critical: critical.into(),
            non_critical: other.into(),
        };
        over_time.stretches().map(stretch).collect()
    }

    /// Some rows in one region, if one of them is switched on there.
    fn region(&self, rows: &[&Row], bounds: &ProvedBounds, index: usize) -> Option<RegionSummary> {
        let epoch = &self.system.epochs[index];
        let on = || rows.iter().filter(|row| epoch.settings[row.operation().index()].enabled);
        let settings = || on().map(|row| &epoch.settings[row.operation().index()]);
        let mut counts = hyoshi_trace::Counts::default();
        on().for_each(|row| counts += &self.figures.stats.region_counts(row, index));
        let bound = together_bound(on().map(|row| bounds.operation(row.operation(), row.critical(), index)))?;
        Some(RegionSummary {
            epoch: epoch.name.clone(),
            period_ns: settings().map(|setting| setting.period.as_nanos()).min()?,
            wcet_ns: settings().map(|setting| setting.wcet.as_nanos()).max()?,
            deadline_ns: settings().map(|setting| setting.deadline.span().as_nanos()).min()?,
            released: counts.released(),
            made: counts.made(),
            max_ns: on()
                .map(|row| self.figures.stats.longest(row, index).as_nanos())
                .max()
                .filter(|longest| *longest > 0),
            bound_ns: bound.as_ref().ok().map(|bound| bound.as_nanos()),
            missing: bound.err(),
        })
    }

    /// The bounds of some rows in the regions in which they ran.
    fn bound(&self, rows: &[&Row], bounds: &ProvedBounds) -> BoundSummary {
        let mut sum = BoundSummary::default();
        for index in 0..self.system.epochs.len() {
            let ran = || rows.iter().filter(|row| self.figures.stats.region_counts(row, index).released() > 0);
            let of = |row: &&&Row| bounds.operation(row.operation(), row.critical(), index);
            let Some(known) = together_bound(ran().map(|row| of(&row))) else { continue };
            sum.of += 1;
            match known {
                Ok(bound) => {
                    sum.known += 1;
                    sum.bound_ns = sum.bound_ns.max(Some(bound.as_nanos()));
                }
                Err(why) => sum.missing = sum.missing.or(Some(why)),
            }
            // Each against its own: one of them may be bounded where another is not.
            sum.exceeded |=
                ran().any(|row| of(&row).as_ref().is_ok_and(|bound| self.figures.stats.longest(row, index) > *bound));
        }
        sum
    }

    fn chains(&self, bounds: &ProvedBounds) -> Vec<ChainSummary> {
        let name = |id: &OperationId| self.system.operation(*id).name.clone();
        let chains =
            self.system.chains.iter().zip(self.figures.stats.chains()).enumerate().map(|(index, (chain, seen))| {
                ChainSummary {
                    name: chain.name.clone(),
                    path: chain.path.iter().map(name).collect(),
                    unmeasured: seen.unmeasured,
                    deadline_ns: chain.deadline.map(Span::as_nanos),
                    max_age_ns: chain.max_age.map(Span::as_nanos),
                    max_reaction_ns: chain.max_reaction.map(Span::as_nanos),
                    made: seen.made,
                    missed: seen.missed,
                    lost: seen.lost,
                    too_old: seen.too_old,
                    too_slow: seen.too_slow,
                    unmatched: seen.unmatched,
                    latency: TimesSummary::of(&seen.latency),
                    latency_bound: chain_bound(&bounds.chain(index)[0], seen.latency.extent().most()),
                    reaction: ExtentSummary::of(&seen.reaction),
                    reaction_bound: chain_bound(&bounds.chain(index)[1], seen.reaction.most()),
                    stages: stages(self.system, chain, seen, bounds.stages(index)),
                    violated: seen.violated(),
                }
            });
        chains.collect()
    }

    fn misses(&self) -> Vec<MissSummary> {
        let worst = |critical| {
            let mut of_template: HashMap<&str, usize> = HashMap::new();
            let ends = self.figures.stats.worst(critical, usize::MAX).into_iter().filter(move |end| {
                let name = names::template(&self.system.operation(end.job.operation).name);
                let seen = of_template.entry(name).or_insert(0);
                *seen += 1;
                *seen <= WORST_OF_ONE
            });
            ends.take(WORST)
        };
        worst(true).chain(worst(false)).map(|end| causes::miss(self, &end)).collect()
    }
}

/// The greatest of some bounds if all are known; `None` of none.
fn together_bound<'a>(mut bounds: impl Iterator<Item = &'a KnownBound>) -> Option<KnownBound> {
    let first = bounds.next()?.clone();
    Some(bounds.fold(first, |sum, bound| Ok(sum?.max(bound.clone()?))))
}

fn together<T: Nanos>(rows: &[&Row], of: impl Fn(&Row) -> &Distribution<T>) -> Distribution<T> {
    if let [only] = rows {
        return of(only).clone();
    }
    let mut sum = Distribution::spanning(rows.iter().map(|row| of(row)));
    rows.iter().for_each(|row| sum.merge(of(row)));
    sum
}

fn extent(rows: &[&Row], of: impl Fn(&Row) -> &Extent<Span>) -> Option<ExtentSummary> {
    let mut sum = Extent::default();
    rows.iter().for_each(|row| sum.merge(of(row)));
    ExtentSummary::of(&sum)
}

/// Bars that double in width, four to an octave.
fn bars(spans: &Distribution<Span>) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for (span, count) in spans.counted() {
        let nanos = span.as_nanos().max(4);
        let octave = nanos.ilog2();
        let quarter = (nanos >> (octave - 2)) + 1;
        let up_to_ns = (quarter << (octave - 2)).min(i64::MAX as u64) as i64;
        match bars.last_mut() {
            Some(bar) if bar.up_to_ns == up_to_ns => bar.count += count,
            _ => bars.push(Bar { up_to_ns, count }),
        }
    }
    bars
}

/// A share of time in parts per million.
fn ppm(part: Span, whole: Span) -> u64 {
    match whole.as_nanos() {
        0 => 0,
        whole => (u128::from(part.as_nanos()) * 1_000_000 / u128::from(whole)).min(u128::from(u64::MAX)) as u64,
    }
}
