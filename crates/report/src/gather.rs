//! From an [`Account`] to its [`Summary`].

use std::collections::HashMap;

use hyoshi_model::{OperationId, Preemption, ProcessorId, Span};
use hyoshi_trace::stats::distribution::Nanos;
use hyoshi_trace::stats::{Distribution, Extent, Row};

use crate::account::Account;
use crate::causes;
use crate::names;
use crate::summary::*;

/// Misses that a report shows of each class.
const WORST: usize = 20;

/// Misses of one operation, or of the instances of one template, among them.
const WORST_OF_ONE: usize = 3;

impl Account<'_> {
    /// All figures of the report.
    pub fn summary(&self) -> Summary {
        let system = self.system;
        let rows: Vec<&Row> = self.stats.rows().iter().collect();
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
            took_ns: self.took.as_nanos(),
            lost_events: self.lost_events,
            notes: self.notes.clone(),
            processors: system.processor_ids().map(|id| self.processor(id)).collect(),
            classes: [true, false].into_iter().filter_map(|critical| self.class(critical)).collect(),
            epochs: (0..system.epochs.len()).map(|epoch| self.epoch(epoch)).collect(),
            groups: self.groups(),
            operations: rows.iter().map(|row| self.operation(&[row])).collect(),
            chains: self.chains(),
            misses: self.misses(),
        }
    }

    fn processor(&self, id: ProcessorId) -> ProcessorSummary {
        let processor = self.system.processor(id);
        let consumed = self.stats.counts(None, |row| row.processor() == id).consumed;
        ProcessorSummary {
            name: processor.name.clone(),
            host: self.system.hosts[processor.host.index()].name.clone(),
            cpu: processor.cpu,
            strategy: self.plan.processors[id.index()].strategy.clone(),
            preemption: match processor.preemption {
                Preemption::None => "none",
                Preemption::Levels => "levels",
                Preemption::Full => "full",
            },
            cancel: processor.cancel,
            utilisation_ppm: ppm(consumed, self.duration),
            consumed_ns: consumed.as_nanos(),
            levels: self.levels(id),
        }
    }

    fn levels(&self, id: ProcessorId) -> Vec<LevelSummary> {
        let plan = &self.plan.processors[id.index()];
        let levels = plan.levels.iter().enumerate().map(|(index, level)| {
            let here = plan.operations.iter().enumerate().filter(|(position, operation)| {
                let rows = self.stats.rows_of(**operation);
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
        self.stats.rows().iter().any(of).then(|| {
            let response = self.stats.response(of);
            ClassSummary {
                class: if critical { "critical" } else { "non-critical" },
                critical,
                counts: CountsSummary::from(&self.stats.counts(None, of)),
                response: TimesSummary::of(&response),
                lateness: TimesSummary::of(&self.stats.lateness(of)),
                response_bars: bars(&response),
            }
        })
    }

    fn epoch(&self, index: usize) -> EpochSummary {
        let (system, stats) = (self.system, self.stats);
        let epoch = &system.epochs[index];
        let end = system.epochs.get(index + 1).map_or(u64::MAX, |next| next.at.as_nanos());
        let (at_ns, until_ns) = (epoch.at.as_nanos(), end.min(self.duration.as_nanos()));
        let length = Span::from_nanos(until_ns.saturating_sub(at_ns));
        let load = |id: ProcessorId| LoadSummary {
            declared_ppm: system.utilisation_ppm(index, id),
            used_ppm: ppm(stats.counts(Some(index), |row| row.processor() == id).consumed, length),
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

    fn groups(&self) -> Vec<OperationSummary> {
        let groups = names::groups(self.system, self.system.operation_ids());
        let mut group_of = vec![0; self.system.operations.len()];
        for (index, group) in groups.iter().enumerate() {
            group.operations.iter().for_each(|id| group_of[id.index()] = index);
        }
        let mut rows: Vec<[Vec<&Row>; 2]> = vec![Default::default(); groups.len()];
        for row in self.stats.rows() {
            rows[group_of[row.operation().index()]][usize::from(row.critical())].push(row);
        }
        let named = groups.iter().zip(&rows).flat_map(|(group, [other, critical])| {
            let some = [critical, other].into_iter().filter(|rows| !rows.is_empty());
            some.map(|rows| OperationSummary { name: group.name.clone(), ..self.operation(rows) })
        });
        named.collect()
    }

    /// The figures of some rows together; of the first one's name.
    fn operation(&self, rows: &[&Row]) -> OperationSummary {
        let (system, first) = (self.system, rows[0]);
        let settings = || {
            let epochs = system.epochs.iter();
            epochs.flat_map(|epoch| rows.iter().map(|row| &epoch.settings[row.operation().index()]))
        };
        let mut counts = hyoshi_trace::Counts::default();
        rows.iter().for_each(|row| counts += &self.stats.row_counts(row));
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
            period_ns: system.setting(0, first.operation()).period.as_nanos(),
            wcet_ns: settings().map(|setting| setting.wcet.as_nanos()).max().unwrap_or(0),
            deadline_ns: settings().map(|setting| setting.deadline.span().as_nanos()).max().unwrap_or(0),
            counts: CountsSummary::from(&counts),
            response: TimesSummary::of(&together(rows, Row::response)),
            lateness: TimesSummary::of(&together(rows, Row::lateness)),
            release_latency: extent(rows, Row::release_latency),
            start_latency: extent(rows, Row::start_latency),
            execution: extent(rows, Row::execution),
        }
    }

    fn chains(&self) -> Vec<ChainSummary> {
        let name = |id: &OperationId| self.system.operation(*id).name.clone();
        let chains = self.system.chains.iter().zip(self.stats.chains()).map(|(chain, seen)| ChainSummary {
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
            reaction: ExtentSummary::of(&seen.reaction),
            violated: seen.violated(),
        });
        chains.collect()
    }

    fn misses(&self) -> Vec<MissSummary> {
        let worst = |critical| {
            let mut of_template: HashMap<&str, usize> = HashMap::new();
            let ends = self.stats.worst(critical, usize::MAX).into_iter().filter(move |end| {
                let name = names::template(&self.system.operation(end.job.operation).name);
                let seen = of_template.entry(name).or_insert(0);
                *seen += 1;
                *seen <= WORST_OF_ONE
            });
            ends.take(WORST)
        };
        worst(true).chain(worst(false)).map(|end| causes::miss(self.system, &end)).collect()
    }
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
