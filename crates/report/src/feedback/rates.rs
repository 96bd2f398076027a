//! The rates that feedback loops set.

use std::collections::BTreeMap;

use hyoshi_model::{FeedbackLoop, Instant, OperationId, Span, System};
use hyoshi_trace::stats::Row;
use hyoshi_trace::{ClientHistory, FeedbackHistory, RateHistory, Stats};
use maud::{Markup, PreEscaped, html};
use serde::Serialize;

use super::{FeedbackSummary, times};
use crate::chart::{Colour, Series, small_lines};
use crate::figures::{count, hertz, nanos, rate_text};
use crate::summary::Summary;
use crate::terminal::grid::{CellValue, column, grid};
use crate::terminal::{MOST_ROWS, TerminalStyle, cut};

/// The service level of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceLevelSummary {
    /// The operation.
    pub operation: String,
    /// The name of its level at the end.
    pub name: String,
    /// How often its level changed.
    pub changes: u64,
}

/// The level of an operation with levels.
fn level_of(
    system: &System,
    of: &FeedbackLoop,
    history: &FeedbackHistory,
    id: OperationId,
) -> Option<ServiceLevelSummary> {
    let operation = system.operation(id);
    let (place, changes) =
        history.level(id).map_or((of.start_level(&operation.levels), 0), |(place, changes)| (place.into(), changes));
    let name = operation.levels.get(place)?.name.clone();
    Some(ServiceLevelSummary { operation: operation.name.clone(), name, changes })
}

/// One operation with an adapted rate or with service levels, or one client of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RateSummary {
    /// The operation.
    pub operation: String,
    /// The first part of the client's name. `None` for the operation itself.
    pub client: Option<String>,
    /// Its period at the end, or when the client left.
    pub period_ns: u64,
    /// The shortest and the longest period of its range at the start.
    pub range_ns: (u64, u64),
    /// How often its period changed.
    pub changes: u64,
    /// The periods of its mean rates in the sampling periods of each point of `over_time`: `None` while it was absent.
    /// Empty for a fixed rate, and beyond the first rates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub periods_ns: Vec<Option<u64>>,
    /// True if the operation was on another of its processors at the end.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub away: bool,
    /// True if the operation was on standby at the end: not admitted, or withdrawn.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub standby: bool,
    /// The level of the operation with levels among those with this rate on the loop's processor.
    pub level: Option<ServiceLevelSummary>,
    /// When the client joined, and when it left: `None` if it was registered at the end.
    pub joined_ns: Option<u64>,
    /// See `joined_ns`.
    pub left_ns: Option<u64>,
    /// The sum of the declared worst cases of one job of each operation with this rate on the loop's processor.
    pub declared_ns: u64,
    /// The sum of their mean measured execution times; `None` if one of them completed no job.
    pub measured_ns: Option<u64>,
}

impl RateSummary {
    fn name(&self) -> String {
        match &self.client {
            Some(client) => format!("{}, client {client}", self.operation),
            None => self.operation.clone(),
        }
    }

    fn level(&self) -> String {
        self.level.as_ref().map_or(String::new(), |level| {
            let changes = if level.changes == 1 { "change" } else { "changes" };
            let name = if level.operation == self.operation { "" } else { &format!("{} ", level.operation) };
            format!("{name}{}, {} {changes}", level.name, count(level.changes))
        })
    }

    fn range(&self) -> String {
        let [slowest, fastest] = [self.range_ns.1, self.range_ns.0].map(hertz);
        if self.range_ns.0 == self.range_ns.1 { slowest } else { format!("{slowest} – {fastest}") }
    }

    /// A line of the live table.
    pub(super) fn latest(&self) -> String {
        let declared = nanos(self.declared_ns);
        let time = self.measured_ns.map_or(format!("declared {declared}"), |mean| {
            format!("mean time {:>6}, declared {declared}", nanos(mean))
        });
        let level = self.level.as_ref().map_or(String::new(), |level| format!("  {}", level.name));
        format!("  {:<22} {:>8}  {time}{level}", cut(&self.name(), 22), hertz(self.period_ns))
    }

    fn at_the_end(&self) -> String {
        if self.away {
            "elsewhere".into()
        } else if self.standby {
            "standby".into()
        } else if self.left_ns.is_some() {
            format!("left at {}", hertz(self.period_ns))
        } else {
            hertz(self.period_ns)
        }
    }
}

/// The roots with rates that a loop sets, and the operations with service levels, each with its operations on the loop's
/// processor.
pub(super) fn adapted_here(system: &System, of: &FeedbackLoop) -> Vec<(OperationId, Vec<OperationId>)> {
    let setters = system.rate_setters();
    let own = setters.iter().filter(|(_, place)| system.feedback[**place].processor == of.processor);
    let here = system.adapted_on(of.processor);
    let here = |root| here.iter().find(|one| one.root == root).map_or(Vec::new(), |one| one.here.clone());
    let own = own.map(|(root, _)| (*root, here(*root)));
    own.chain(system.with_levels_on(of.processor).map(|id| (id, vec![id]))).collect()
}

/// The adapted operations, then the clients.
pub(super) fn rates(system: &System, of: &FeedbackLoop, history: &FeedbackHistory, stats: &Stats) -> Vec<RateSummary> {
    let changed: BTreeMap<_, _> = history.periods().map(|(root, period, changes)| (root, (period, changes))).collect();
    let points = if history.samples() > 0 { history.points().len() } else { 0 };
    let over_time = |rates: Option<&RateHistory>| -> Vec<Option<u64>> {
        let period = |rates: &RateHistory, point| rates.period(point).map(Span::as_nanos);
        rates.map_or(Vec::new(), |rates| (0..points).map(|point| period(rates, point)).collect())
    };
    let of_operation = |(root, here): (OperationId, Vec<OperationId>)| {
        let (setting, standby) = (system.setting(0, root), system.operation(root).standby);
        let (period, changes) = changed.get(&root).copied().unwrap_or_else(|| (of.start_of(system, root), 0));
        let work = |id: &OperationId| {
            let setting = system.setting(0, *id);
            setting.wcet.as_nanos().saturating_mul(setting.legs.into())
        };
        let mean = |id: &OperationId| {
            let rows = stats.rows_of(*id).iter().map(Row::execution);
            let (jobs, sum) = rows.filter_map(|one| Some((one.count(), one.mean()?))).fold(
                (0, 0),
                |(jobs, sum): (u64, u128), (count, mean)| {
                    (jobs + count, sum + u128::from(count) * u128::from(mean.as_nanos()))
                },
            );
            let legs = u128::from(system.setting(0, *id).legs);
            (jobs > 0).then(|| (sum * legs / u128::from(jobs)) as u64)
        };
        RateSummary {
            declared_ns: here.iter().map(work).fold(0, u64::saturating_add),
            measured_ns: here.iter().map(mean).sum(),
            away: !standby && !history.is_present(system, root),
            standby: standby && !history.is_present(system, root),
            level: here.iter().find_map(|id| level_of(system, of, history, *id)),
            operation: system.operation(root).name.clone(),
            client: None,
            period_ns: period.as_nanos(),
            range_ns: (setting.period.as_nanos(), setting.slowest.as_nanos()),
            changes,
            periods_ns: over_time(history.rates_of(root)),
            joined_ns: None,
            left_ns: None,
        }
    };
    let of_client = |one: &ClientHistory| RateSummary {
        operation: system.operation(one.task.operation).name.clone(),
        client: Some(one.task.label.as_str().to_owned()),
        period_ns: one.period.as_nanos(),
        range_ns: (one.task.shortest.as_nanos(), one.task.longest.as_nanos()),
        changes: one.changes,
        periods_ns: over_time(one.rates.as_ref()),
        declared_ns: one.task.estimate.as_nanos(),
        measured_ns: None,
        away: false,
        standby: false,
        level: None,
        joined_ns: Some(one.joined.as_nanos()),
        left_ns: one.left.map(Instant::as_nanos),
    };
    let operations = adapted_here(system, of).into_iter().map(of_operation);
    operations.chain(history.clients().0.iter().map(of_client)).collect()
}

/// In hertz.
fn rate(period_ns: u64) -> f64 {
    1e9 / period_ns.max(1) as f64
}

impl Summary {
    pub(crate) fn rate_table(&self, look: TerminalStyle) -> Option<String> {
        let columns = [
            column("operation"),
            column("range"),
            column("at the end"),
            column("changes").spare(1),
            column("level").if_any(),
            column("declared time").spare(1),
            column("mean time"),
        ];
        let rates = self.loops().flat_map(|(_, one)| &one.rates).map(|one| {
            vec![
                CellValue::words(one.name()),
                CellValue::figure(one.range()),
                CellValue::figure(one.at_the_end()),
                CellValue::figure(count(one.changes)),
                CellValue::words(one.level()),
                CellValue::time(one.declared_ns),
                CellValue::figure(one.measured_ns.map_or("-".into(), nanos)),
            ]
        });
        let rows: Vec<_> = rates.collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }
}

/// The rates as a table of the page.
pub(super) fn rate_rows(all: &[RateSummary]) -> Markup {
    html! {
        table {
            thead { tr { th { "operation" } th class="n" { "range" } th class="n" { "at the end" }
                th { "level" } th class="n" { "declared time" } th class="n" { "mean time" } } }
            tbody { @for rate in all.iter().take(MOST_ROWS) { tr {
                td { (rate.name()) }
                td class="n" { (rate.range()) }
                td class="n" { (rate.at_the_end()) }
                td { (rate.level()) }
                td class="n" { (nanos(rate.declared_ns)) }
                td class="n" { (rate.measured_ns.map_or("-".into(), nanos)) }
            } } }
        }
    }
}

/// Rates of a loop that are drawn.
const MOST_DRAWN: usize = 12;

/// The rates over time, each in a chart as high as its range.
pub(super) fn rate_charts(one: &FeedbackSummary) -> Markup {
    let all = || one.rates.iter().filter(|rate| rate.periods_ns.iter().any(Option::is_some));
    let omitted = all().count().saturating_sub(MOST_DRAWN);
    html! {
        @if all().next().is_some() {
            p { "Rates, each from the lowest rate of its range, the axis, to the highest one, the dashed line. There is no
                line while an operation or client was absent." }
            div class="pair" { @for rate in all().take(MOST_DRAWN) {
                div { h4 { (rate.name()) } (PreEscaped(rate_chart(one, rate))) }
            } }
            @if omitted > 0 { p { "The JSON report has " (count(omitted as u64)) " more." } }
        }
    }
}

fn rate_chart(one: &FeedbackSummary, of: &RateSummary) -> String {
    let [lowest, highest] = [of.range_ns.1, of.range_ns.0].map(rate);
    let values = of.periods_ns.iter().map(|period| period.map(rate)).collect();
    let limit = of.periods_ns.iter().map(|_| Some(highest)).collect();
    let series = [
        Series { colour: Colour::Ink, dashed: true, values: limit },
        Series { colour: Colour::Made, dashed: false, values },
    ];
    small_lines("rate over time", &times(one), &series, lowest, rate_text)
}

#[cfg(test)]
mod tests {
    use hyoshi_model::ProcessorId;
    use hyoshi_trace::{DispatchDecision, FeedbackHistories, Input, TraceEvent};

    use super::*;

    /// A loop with this number of rates after samples at 1, 2 and 3 s. The first operation has 10 Hz from 1 s on.
    fn sampled(operations: usize) -> (System, FeedbackHistories) {
        let head = "name = 'loop'\n[processor.main]\n[feedback.main]\nalgorithm = 'FC-U'\nutilisation = '70%'\n";
        let one = |number| format!("[operation.track{number}]\nrate = ['5Hz', '20Hz']\nwcet = '1ms'\n");
        let text = head.to_owned() + &(0..operations).map(one).collect::<String>();
        let system = hyoshi_model::read(&text, "loop.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let mut histories = FeedbackHistories::new(&system);
        let mut event = |second, decision| {
            let at = Instant::ZERO + Span::from_secs(second);
            histories.event(ProcessorId(0), at, &TraceEvent::Decision(decision));
        };
        for second in 1..=3 {
            event(second, DispatchDecision::Sample { utilisation: None, ended: 1, missed: 0, total: 300_000 });
            event(second, DispatchDecision::Retime { operation: OperationId(0), period: Span::from_millis(100) });
        }
        (system, histories)
    }

    fn summary(system: &System, histories: &FeedbackHistories) -> FeedbackSummary {
        let of = (&histories.all()[0], &Stats::new(system));
        FeedbackSummary::new(system, &system.feedback[0], of, Span::from_secs(3))
    }

    #[test]
    fn each_of_the_first_rates_has_a_chart() {
        for (operations, drawn, more) in [(1, 1, None), (12, 12, None), (14, 12, Some("has 2 more"))] {
            let (system, histories) = sampled(operations);
            let page = rate_charts(&summary(&system, &histories)).into_string();
            assert_eq!(page.matches("<svg").count(), drawn, "{page}");
            assert_eq!(page.contains("The JSON report has"), more.is_some());
            assert!(more.is_none_or(|more| page.contains(more)) && page.contains("track0"), "{page}");
        }
        let (system, _) = sampled(1);
        assert_eq!(rate_charts(&summary(&system, &FeedbackHistories::new(&system))).into_string(), "");
    }

    #[test]
    fn rates_over_time_are_those_before_each_sample() {
        let (system, mut histories) = sampled(65);
        let one = summary(&system, &histories);
        let [slow, fast] = [200_000_000, 100_000_000].map(Some);
        assert_eq!(
            (&one.rates[0].periods_ns[..], &one.rates[1].periods_ns[..]),
            (&[slow, fast, fast][..], &[slow; 3][..])
        );
        assert_eq!((one.rates[63].periods_ns.len(), one.rates[64].periods_ns.len()), (3, 0));
        // An operation that leaves has no rate.
        let depart = TraceEvent::Input(Input::Depart { operation: OperationId(1) });
        histories.event(ProcessorId(0), Instant::ZERO + Span::from_secs(3), &depart);
        let sample = DispatchDecision::Sample { utilisation: None, ended: 1, missed: 0, total: 300_000 };
        histories.event(ProcessorId(0), Instant::ZERO + Span::from_secs(4), &TraceEvent::Decision(sample));
        assert_eq!(summary(&system, &histories).rates[1].periods_ns, [slow, slow, slow, None]);
    }

    #[test]
    fn a_line_of_the_live_table_fits_a_terminal() {
        let (system, histories) = sampled(1);
        let mut rate = summary(&system, &histories).rates.remove(0);
        assert_eq!(rate.latest(), "  track0                  10.0 Hz  declared 1ms");
        (rate.measured_ns, rate.operation) = (Some(1_230_000), "a long name of an operation".into());
        rate.level = Some(ServiceLevelSummary { operation: String::new(), name: "coarse".into(), changes: 0 });
        assert_eq!(rate.latest(), "  a long name of an ope…  10.0 Hz  mean time 1.23ms, declared 1ms  coarse");
    }
}
