//! Margins: how much worst cases and rates may grow before a proof fails.

use std::collections::BTreeMap;

use hyoshi_sched::analysis::{OperationMargin, Scaling, Sensitivity};

use crate::figures::percent;
use crate::names::{label, template};
use crate::terminal::grid::{CellValue, column, grid};
use crate::terminal::{MOST_ROWS, TerminalStyle};

/// Sentences for all operations together, and a table of each operation.
pub(super) fn table(sensitivity: &Sensitivity, look: TerminalStyle) -> String {
    let mut text = String::new();
    let scalings = [("worst cases", &sensitivity.worst_cases), ("rates", &sensitivity.rates)];
    for (what, scaling) in scalings {
        let sentence = match scaling {
            Some(Scaling { factor_ppm: 0, first, .. }) => {
                let first = first.as_deref().unwrap_or_default();
                format!("All {what} together: no factor was found at which all is proved; {first} is not proved.")
            }
            Some(scaling) => all_together(what, scaling),
            None => format!("All {what} together: not searched."),
        };
        text.push_str(&look.wrap(&format!("  {sentence}\n")));
    }
    let columns = [
        column("operation"),
        column("class"),
        column("worst case").spare(3),
        column("at most"),
        column("factor"),
        column("alone").spare(2),
        column("period").spare(3),
        column("at least"),
        column("rate"),
        column("alone").spare(2),
        column("breaks first").if_any(),
    ];
    // Of a template the instance with the least room.
    let mut groups: BTreeMap<usize, Vec<&OperationMargin>> = BTreeMap::new();
    let mut place: BTreeMap<(&str, bool), usize> = BTreeMap::new();
    for one in &sensitivity.operations {
        let next = place.len();
        let place = *place.entry((template(&one.name), one.critical)).or_insert(next);
        groups.entry(place).or_default().push(one);
    }
    let mut rows: Vec<(&OperationMargin, usize)> =
        groups.values().filter_map(|all| Some((*all.iter().min_by_key(|one| room(one))?, all.len()))).collect();
    if rows.len() > MOST_ROWS {
        rows.sort_by_key(|(one, _)| room(one));
    }
    let rows: Vec<Vec<CellValue>> = rows.into_iter().map(|(one, many)| row(one, many)).collect();
    text.push_str(&grid(look, &columns, &rows, MOST_ROWS));
    text
}

fn all_together(what: &str, scaling: &Scaling) -> String {
    let factor = times(scaling.factor_ppm);
    let full = format!("{} is then {} full", scaling.processor, percent(scaling.breakdown_utilisation_ppm));
    let next = scaling.first.as_ref().map_or(String::new(), |first| format!("; {first} breaks first"));
    match scaling.factor_ppm {
        1_000_000.. => format!("All {what} together: up to {factor}; {full}{next}."),
        _ => format!("All {what} together: too much, {factor} would hold; {full}{next}."),
    }
}

/// The possible growth of the worst case, in parts per million; zero if it is not proved.
fn room(one: &OperationMargin) -> u64 {
    if !one.proved {
        return 0;
    }
    one.longest_wcet_ns.map_or(u64::MAX, |longest| ratio(longest, one.wcet_ns))
}

fn ratio(one: u64, other: u64) -> u64 {
    u64::try_from(u128::from(one) * 1_000_000 / u128::from(other.max(1))).unwrap_or(u64::MAX)
}

/// Three digits, rounded down so that they are proved.
fn times(ppm: u64) -> String {
    match ppm {
        0..10_000_000 => format!("{}.{:02} x", ppm / 1_000_000, ppm % 1_000_000 / 10_000),
        10_000_000..100_000_000 => format!("{}.{} x", ppm / 1_000_000, ppm % 1_000_000 / 100_000),
        _ => format!("{} x", ppm / 1_000_000),
    }
}

fn row(one: &OperationMargin, many: usize) -> Vec<CellValue> {
    let name = if many > 1 { template(&one.name) } else { &one.name };
    // Without a proof its margin is only for other operations.
    let shown = |value: Option<u64>| value.filter(|_| one.proved);
    let (longest, shortest) = (shown(one.longest_wcet_ns), shown(one.shortest_period_ns));
    let first = if one.proved { one.first.clone().unwrap_or_default() } else { "not proved".into() };
    let longer = longest.map_or(String::new(), |longest| times(ratio(longest, one.wcet_ns)));
    let faster = shortest.map_or(String::new(), |shortest| times(ratio(one.period_ns, shortest)));
    vec![
        CellValue::words(label(name, many)),
        CellValue::words(if one.critical { "critical" } else { "" }),
        CellValue::time(one.wcet_ns),
        CellValue::time_if_known(longest),
        CellValue::figure(longer),
        CellValue::time_if_known(one.own_longest_wcet_ns),
        CellValue::time(one.period_ns),
        CellValue::time_if_known(shortest),
        CellValue::figure(faster),
        CellValue::time_if_known(one.own_shortest_period_ns),
        CellValue::words(first),
    ]
}
