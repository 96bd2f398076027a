//! What feedback loops measured and set.

mod rates;

use hyoshi_model::{FeedbackLoop, Instant, OperationId, Span, System, at_level};
use hyoshi_trace::{AdmissionOutcome, FeedbackHistory, Stats};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use crate::chart::{AxisLabels, Colour, Series, lines};
use crate::figures::{count, hertz, nanos, percent};
use crate::summary::Summary;
use crate::terminal::TerminalStyle;
use crate::terminal::grid::{CellValue, column, grid};
pub use rates::{RateSummary, ServiceLevelSummary};
use rates::{adapted_here, rate_charts, rate_rows, rates};

/// The loop of one processor.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FeedbackSummary {
    /// `FC-U`, `FC-M`, `FC-UM`, `FC-UM-fast`, `FC-UL`, `EUCON` or `DEUCON`.
    pub algorithm: &'static str,
    /// The set point of the utilisation, if it is controlled.
    pub utilisation_set_ppm: Option<u32>,
    /// Whether analysis determined it.
    pub set_by_analysis: bool,
    /// The set point of the miss ratio, if it is controlled.
    pub miss_ratio_set_ppm: Option<u32>,
    /// The set point of the latency, if it is controlled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_set: Option<LatencySummary>,
    /// The sampling period.
    pub period_ns: u64,
    /// The number of samples.
    pub samples: u64,
    /// The declared utilisation of the adapted operations at the lowest rates and levels, without clients. `None` in a
    /// group, and if there are clients or operations on standby.
    #[serde(skip)]
    pub least_ppm: Option<u64>,
    /// In a group: steps in which a controller found no solution, so it only lowered rates. `None` without a group, and
    /// if not known, as from a recording.
    pub unsolved_steps: Option<u64>,
    /// Steps without the controllers, because an earlier step needed too much time; `None` in the same cases.
    pub skipped_steps: Option<u64>,
    /// Samples until the utilisation or the latency reaches 99 % of its set point. Without a set point, the last
    /// utilisation counts.
    /// `None` if it does not reach it. It is a multiple of the samples that a point of `over_time` averages.
    pub settled_after: Option<u64>,
    /// The second half of the time.
    pub steady: Option<SteadySummary>,
    /// The adapted operations, then the clients in the order of joining. In a group each rate is listed once, with the
    /// processor of its first operation.
    pub rates: Vec<RateSummary>,
    /// Further clients, which joined earlier and have left.
    pub clients_omitted: u64,
    /// The latest moves of operations to this processor.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveSummary>,
    /// The number of earlier ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub moves_omitted: u64,
    /// The latest decisions on operations on standby.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admissions: Vec<AdmissionSummary>,
    /// The number of earlier ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub admissions_omitted: u64,
    /// The samples, in the order of time; if there are many, each point is the mean of several.
    pub over_time: Vec<SampleSummary>,
}

/// The latency that a loop holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// The operation or chain.
    pub of: String,
    /// The quantile, in parts per million.
    pub quantile_ppm: u32,
    /// The set point.
    pub at_ns: u64,
}

impl LatencySummary {
    pub(crate) fn new(system: &System, of: &FeedbackLoop) -> Option<LatencySummary> {
        let one = of.latency.as_ref()?;
        Some(LatencySummary { of: one.name(system), quantile_ppm: one.quantile_ppm, at_ns: one.at.as_nanos() })
    }

    /// Such as `99 % of track`.
    pub(crate) fn name(&self) -> String {
        format!("{} % of {}", f64::from(self.quantile_ppm) / 1e4, self.of)
    }
}

/// Samples above the set point at the lowest rates that are a note.
const SATURATED: u64 = 5;

/// A move of an operation between processors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MoveSummary {
    /// When it arrived.
    pub at_ns: u64,
    /// The operation at its first processor.
    pub operation: String,
    /// The new processor.
    #[serde(skip)]
    pub to: String,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl MoveSummary {
    pub(crate) fn text(&self) -> String {
        format!("`{}` moved to `{}` at {}", self.operation, self.to, nanos(self.at_ns))
    }
}

/// A decision on an operation on standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdmissionSummary {
    /// When the loop decided.
    pub at_ns: u64,
    /// The operation.
    pub operation: String,
    /// `admitted`, `withdrawn` or `refused`.
    pub outcome: &'static str,
    /// Its first period; `None` if it was not admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Why it is refused, or below its highest rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip)]
    remedy: Option<&'static str>,
}

impl AdmissionSummary {
    fn new(system: &System, (at, id, outcome): &(Instant, OperationId, AdmissionOutcome)) -> AdmissionSummary {
        let (word, period, reason) = match outcome {
            AdmissionOutcome::Admitted { period, .. } => {
                ("admitted", Some(period.as_nanos()), outcome.lower_because().map(str::to_owned))
            }
            AdmissionOutcome::Withdrawn => ("withdrawn", None, None),
            AdmissionOutcome::Refused(refusal) => ("refused", None, Some(refusal.to_string())),
        };
        AdmissionSummary {
            at_ns: at.as_nanos(),
            operation: system.operation(*id).name.clone(),
            outcome: word,
            period_ns: period,
            reason,
            remedy: if let AdmissionOutcome::Refused(refusal) = outcome { Some(refusal.remedy()) } else { None },
        }
    }

    pub(crate) fn text(&self) -> String {
        let rate = self.period_ns.map_or(String::new(), |period| format!(" with {}", hertz(period)));
        let reason = self.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
        format!("`{}` was {}{rate} at {}{reason}", self.operation, self.outcome, nanos(self.at_ns))
    }

    /// What to do about a refusal.
    pub(crate) fn remedy(&self) -> Option<&'static str> {
        self.remedy
    }
}

/// What a loop has held in the second half of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SteadySummary {
    /// The number of samples.
    pub samples: u64,
    /// The mean utilisation, of the hard cap; `None` if it was not measured.
    pub utilisation_ppm: Option<u64>,
    /// The half width of its 90 % confidence interval.
    pub interval_ppm: Option<u64>,
    /// The share of jobs that missed their deadlines.
    pub miss_ratio_ppm: u64,
    /// The mean of the measured latencies; `None` if none was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
}

/// Some successive samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SampleSummary {
    /// The last of them.
    pub at_ns: u64,
    /// Their number.
    pub samples: u64,
    /// The mean utilisation, of the hard cap; `None` if it was not measured.
    pub utilisation_ppm: Option<u64>,
    /// The share of jobs that missed their deadlines.
    pub miss_ratio_ppm: u64,
    /// The mean of the totals of declared utilisation that the loop has set.
    pub total_ppm: u64,
    /// The mean of the measured latencies; `None` if none was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_ns: Option<u64>,
}

fn ppm(part: f64) -> u64 {
    (part * 1e6).round().max(0.0) as u64
}

impl FeedbackSummary {
    /// The loop `of` a system, from its samples until `duration` has passed, and the statistics of its jobs.
    pub fn new(
        system: &System,
        of: &FeedbackLoop,
        (history, stats): (&FeedbackHistory, &Stats),
        duration: Span,
    ) -> FeedbackSummary {
        let over_time = history.points().iter().map(|point| SampleSummary {
            at_ns: point.at.as_nanos(),
            samples: point.samples,
            utilisation_ppm: point.utilisation().map(ppm),
            miss_ratio_ppm: ppm(point.miss_ratio()),
            total_ppm: ppm(point.total()),
            latency_ns: point.latency().map(Span::as_nanos),
        });
        let over_time: Vec<SampleSummary> = over_time.collect();
        let utilisation_set_ppm = of.algorithm.uses_utilisation().then_some(of.utilisation_ppm);
        let last = over_time.iter().rev().find_map(|point| point.utilisation_ppm);
        let level = utilisation_set_ppm.map(u64::from).or(last);
        let latency = of.latency.as_ref().map(|one| one.at.as_nanos());
        let reaches = |measured: Option<u64>, set: Option<u64>| {
            measured.zip(set).is_some_and(|(measured, set)| u128::from(measured) * 100 >= u128::from(set) * 99)
        };
        let settled = |one: &SampleSummary| reaches(one.utilisation_ppm, level) || reaches(one.latency_ns, latency);
        let settled = over_time.iter().position(settled);
        let steady = history.steady(Instant::from_nanos(duration.as_nanos() / 2)).map(|steady| SteadySummary {
            samples: steady.samples,
            utilisation_ppm: steady.utilisation.map(|(mean, _)| ppm(mean)),
            interval_ppm: steady.utilisation.map(|(_, interval)| ppm(interval)),
            miss_ratio_ppm: ppm(steady.miss_ratio),
            latency_ns: steady.latency.map(Span::as_nanos),
        });
        let at_lowest = |(root, here): (OperationId, Vec<OperationId>)| {
            let slowest = system.setting(0, root).slowest.as_nanos().max(1) as f64;
            let work = here.iter().map(|id| {
                let setting = system.setting(0, *id);
                let wcet = at_level(&system.operation(*id).levels, 0, setting.wcet);
                wcet.as_nanos() as f64 * f64::from(setting.legs)
            });
            work.sum::<f64>() / slowest * 1e6
        };
        let least = adapted_here(system, of).into_iter().map(at_lowest).sum::<f64>().ceil();
        let clients_omitted = history.clients().1;
        let has_clients = !history.clients().0.is_empty();
        let any_standby = adapted_here(system, of).iter().any(|(root, _)| system.operation(*root).standby);
        let (moves, moves_omitted) = history.arrivals();
        let (admissions, admissions_omitted) = history.admissions();
        let moved = |(at, id): &(Instant, OperationId)| MoveSummary {
            at_ns: at.as_nanos(),
            operation: system.operation(system.operation(*id).home.unwrap_or(*id)).name.clone(),
            to: system.processor(of.processor).name.clone(),
        };
        FeedbackSummary {
            algorithm: of.algorithm.name(),
            utilisation_set_ppm,
            set_by_analysis: of.utilisation_analysed,
            miss_ratio_set_ppm: of.algorithm.uses_miss_ratio().then_some(of.miss_ratio_ppm),
            latency_set: LatencySummary::new(system, of),
            period_ns: of.period.as_nanos(),
            samples: history.samples(),
            least_ppm: (!of.algorithm.is_of_group() && !has_clients && !any_standby).then_some(least as u64),
            unsolved_steps: None,
            skipped_steps: None,
            settled_after: settled.map(|place| over_time[..=place].iter().map(|point| point.samples).sum()),
            steady,
            rates: rates(system, of, history, stats),
            clients_omitted,
            moves: moves.iter().map(moved).collect(),
            moves_omitted,
            admissions: admissions.iter().map(|one| AdmissionSummary::new(system, one)).collect(),
            admissions_omitted,
            over_time,
        }
    }

    /// Samples without a measured utilisation.
    fn unmeasured(&self) -> u64 {
        self.over_time.iter().filter(|point| point.utilisation_ppm.is_none()).map(|point| point.samples).sum()
    }

    /// Samples above the set point of the utilisation by 2 % of it, at the lowest rates and levels.
    fn saturated(&self) -> u64 {
        let Some((set, least)) = self.utilisation_set_ppm.map(u64::from).zip(self.least_ppm) else { return 0 };
        let is_above = |point: &&SampleSummary| point.utilisation_ppm.is_some_and(|ppm| ppm * 100 > set * 102);
        let is_lowest = |point: &&SampleSummary| point.total_ppm * 1_000 <= least * 1_001;
        self.over_time.iter().filter(is_above).filter(is_lowest).map(|point| point.samples).sum()
    }

    /// What a user should know about the samples of a processor.
    pub(crate) fn notes(&self, processor: &str) -> Vec<String> {
        let samples = count(self.samples);
        let unmeasured = Some(self.unmeasured()).filter(|unmeasured| *unmeasured > 0 && self.samples > 0);
        let unmeasured = unmeasured.map(|unmeasured| {
            let unmeasured = count(unmeasured);
            format!("{unmeasured} of {samples} samples of `{processor}` have no utilisation; they raised no rate")
        });
        let saturated = Some(self.saturated()).filter(|saturated| *saturated >= SATURATED);
        let saturated = saturated.map(|saturated| {
            let saturated = count(saturated);
            format!(
                "`{processor}` was above its set point at the lowest rates in {saturated} of {samples} samples: lower \
                 `rate`, or move operations to another processor"
            )
        });
        unmeasured.into_iter().chain(saturated).collect()
    }

    /// True if another process runs the loop: then only its rates are known.
    fn is_elsewhere(&self) -> bool {
        self.samples == 0 && self.rates.iter().any(|rate| rate.changes > 0)
    }

    /// The latency of the second half, if it is controlled.
    fn latency(&self) -> String {
        let measured = self.steady.and_then(|steady| steady.latency_ns).map_or("not measured".into(), nanos);
        self.latency_set.as_ref().map_or(String::new(), |_| measured)
    }

    fn set_points(&self) -> String {
        let source = if self.set_by_analysis { " (analysis)" } else { "" };
        let utilisation = self.utilisation_set_ppm.map(|ppm| format!("U {}{source}", percent(ppm.into())));
        let misses = self.miss_ratio_set_ppm.map(|ppm| format!("M {}", percent(ppm.into())));
        let latency = self.latency_set.as_ref().map(|set| format!("L {} ({})", nanos(set.at_ns), set.name()));
        utilisation.into_iter().chain(misses).chain(latency).collect::<Vec<_>>().join(", ")
    }
}

/// Rates that the live table shows.
const MOST_LATEST: usize = 8;

/// One line for each loop: its latest sample and its set points. `rates` adds a line for each of the first rates, with
/// the measured and the declared execution time.
pub(crate) fn latest_samples(
    system: &System,
    (stats, feedback): (&Stats, &[FeedbackHistory]),
    shows_rates: bool,
) -> Vec<String> {
    let (mut lines, mut room) = (Vec::new(), if shows_rates { MOST_LATEST } else { 0 });
    for (one, history) in system.feedback.iter().filter_map(|one| Some((one, feedback.get(one.processor.index())?))) {
        let all = if shows_rates { rates(system, one, history, stats) } else { Vec::new() };
        let present: Vec<_> = all.iter().filter(|rate| rate.left_ns.is_none() && !rate.away).collect();
        let is_known = history.periods().next().is_some() && shows_rates;
        if history.latest().is_some() || is_known {
            lines.push(latest_sample(system, one, history));
        }
        let shown = present.len().min(room);
        lines.extend(present[..shown].iter().map(|rate| rate.latest()));
        if room > 0 && present.len() > shown {
            lines.push(format!("  … and {} more rates", present.len() - shown));
        }
        room -= shown;
    }
    lines
}

fn latest_sample(system: &System, one: &FeedbackLoop, history: &FeedbackHistory) -> String {
    let mut line = system.processor(one.processor).name.clone();
    let Some(latest) = history.latest() else { return line };
    let utilisation = latest.utilisation().map_or("unknown".into(), |part| percent(ppm(part)));
    line += &format!(" U {utilisation}");
    if one.algorithm.uses_utilisation() {
        line += &format!(" of {}", percent(one.utilisation_ppm.into()));
    }
    line += &format!(" M {}", percent(ppm(latest.miss_ratio())));
    if one.algorithm.uses_miss_ratio() {
        line += &format!(" of {}", percent(one.miss_ratio_ppm.into()));
    }
    if let Some(set) = &one.latency {
        let measured = latest.latency().map_or("unknown".into(), |latency| nanos(latency.as_nanos()));
        line += &format!(" L {measured} of {}", nanos(set.at.as_nanos()));
    }
    line
}

impl Summary {
    fn loops(&self) -> impl Iterator<Item = (&str, &FeedbackSummary)> {
        self.processors.iter().filter_map(|one| Some((one.name.as_str(), one.feedback.as_ref()?)))
    }

    pub(crate) fn feedback_table(&self, look: TerminalStyle) -> Option<String> {
        let columns = [
            column("processor"),
            column("algorithm"),
            column("set point"),
            column("samples").spare(2),
            column("settled after").spare(1),
            column("utilisation, 2nd half"),
            column("misses"),
            column("latency").if_any(),
        ];
        let here = self.loops().filter(|(_, one)| !one.is_elsewhere());
        let rows = here.map(|(processor, one)| {
            let steady = one.steady.as_ref();
            let utilisation = steady.and_then(|steady| Some((steady.utilisation_ppm?, steady.interval_ppm?)));
            let utilisation = utilisation.map_or("not measured".into(), |(mean, interval)| {
                format!("{:.2} % ±{:.2}", mean as f64 / 1e4, interval as f64 / 1e4)
            });
            vec![
                CellValue::words(processor),
                CellValue::words(one.algorithm),
                CellValue::words(one.set_points()),
                CellValue::figure(count(one.samples)),
                CellValue::figure(one.settled_after.map_or("-".into(), count)),
                CellValue::figure(utilisation),
                CellValue::figure(steady.map_or("-".into(), |one| format!("{:.2} %", one.miss_ratio_ppm as f64 / 1e4))),
                CellValue::figure(one.latency()),
            ]
        });
        let rows: Vec<_> = rows.collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, super::terminal::MOST_ROWS))
    }

    /// The section of the page.
    pub(crate) fn feedback_section(&self) -> Markup {
        let loops: Vec<_> = self.loops().collect();
        if loops.is_empty() {
            return html! {};
        }
        html! {
            section {
                h2 { "Feedback control of rates" }
                @for (processor, one) in loops {
                    h3 { (processor) ": " (one.algorithm) ", " (one.set_points()) }
                    @if one.is_elsewhere() {
                        p { "This loop runs in another process. It set rates of operations of this process." }
                    } @else {
                        p { "Solid: utilisation. Red: share of jobs that missed their deadlines. Dashed: the total
                            declared utilisation that the loop has set."
                            @if one.latency_set.is_some() { " Dashed red: latency, up to twice its set point of 100 %." } }
                        (PreEscaped(chart(one)))
                        (rate_charts(one))
                    }
                    (rate_rows(&one.rates))
                }
            }
        }
    }
}

/// The times of the points.
fn times(one: &FeedbackSummary) -> AxisLabels {
    AxisLabels { title: "time".into(), names: one.over_time.iter().map(|point| nanos(point.at_ns)).collect() }
}

/// Utilisation, misses and total over time.
fn chart(one: &FeedbackSummary) -> String {
    let line = |colour, dashed, of: &dyn Fn(&SampleSummary) -> Option<u64>| Series {
        colour,
        dashed,
        values: one.over_time.iter().map(|point| of(point).map(|ppm| ppm as f64 / 1e4)).collect(),
    };
    let mut series = vec![
        line(Colour::Made, false, &|point| point.utilisation_ppm),
        line(Colour::Missed, false, &|point| Some(point.miss_ratio_ppm)),
        line(Colour::Other, true, &|point| Some(point.total_ppm)),
    ];
    if let Some(set) = &one.latency_set {
        // Above twice the set point, the loop reacts to all latencies alike.
        let of = |point: &SampleSummary| Some(ppm(point.latency_ns? as f64 / set.at_ns.max(1) as f64).min(2_000_000));
        series.push(line(Colour::Missed, true, &of));
    }
    lines("utilisation, misses and total over time", &times(one), &series, 0.0, |value| format!("{value:.0} %"))
}
