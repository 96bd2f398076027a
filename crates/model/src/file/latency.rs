//! `latency` of `[feedback.PROCESSOR]`: the response times that a loop holds.

use super::expand::Operations;
use super::log::{AtPlace, Log};
use super::table::Table;
use super::value::{InputValue, shortened};
use crate::feedback::{FeedbackAlgorithm, LatencyScope, LatencySetPoint};
use crate::ids::{OperationId, ProcessorId};
use crate::system::{Chain, Contents, Deadline};
use crate::time::Span;

/// The set point; `Some(None)` if the algorithm does not control a latency. `None`, logged, if it is wrong.
pub(super) fn read(
    log: &mut Log,
    table: &Table<'_>,
    (contents, operations): (&Contents, &Operations<'_>),
    (processor, algorithm, period): (ProcessorId, AtPlace<FeedbackAlgorithm>, Option<AtPlace<Span>>),
) -> Option<Option<LatencySetPoint>> {
    let name = algorithm.value.name();
    if table.get("latency").is_none() {
        if !algorithm.value.uses_latency() {
            return Some(None);
        }
        log.error(algorithm.place, format!("{name} needs `latency`"))
            .label("controls it")
            .help("add `latency = { of = \"NAME\", at = \"20ms\" }` with the name of an operation or chain");
        return None;
    }
    if !algorithm.value.uses_latency() {
        log.error(table.place_of("latency"), format!("{name} does not control `latency`"))
            .also(algorithm.place, "the algorithm")
            .help("remove `latency`, or use FC-UL, which controls it");
        return None;
    }
    let inner = table.inner(log, "latency")?;
    let of = inner.read(log, "of", InputValue::one_or_several);
    let quantile = inner.read(log, "quantile", InputValue::share_ppm);
    let at = inner.read(log, "at", InputValue::positive_time);
    let of = of?;
    let scope = scope(log, (contents, operations), processor, &of)?;
    let quantile = quantile?;
    if !(1..1_000_000).contains(&quantile.value) {
        log.error(quantile.place, "`quantile` must be above 0% and below 100%")
            .help("for example, set quantile = \"99%\"; no sample shows the time that every job will meet");
        return None;
    }
    let latency = LatencySetPoint { of: scope, quantile_ppm: quantile.value, at: at?.value };
    let intervals = latency.ends(contents).iter().map(|id| contents.setting(0, *id).slowest);
    if let (Some(interval), Some(period)) = (intervals.min(), period)
        && interval > period.value
    {
        log.error(of.place, format!("releases of `{}` may be {interval} apart", latency.name(contents)))
            .label(format!("no job may end in a sampling period of {}", period.value))
            .help(format!("write period = \"{interval}\" or longer, or raise the lowest rate"));
        return None;
    }
    let from_root = |epoch: usize, id: OperationId| matches!(contents.setting(epoch, id).deadline, Deadline::Origin(_));
    let changes =
        |id: &&OperationId| (1..contents.epochs.len()).any(|epoch| from_root(epoch, **id) != from_root(0, **id));
    if let LatencyScope::Operations(operations) = &latency.of
        && let Some(id) = operations.iter().find(changes)
    {
        let name = shortened(&contents.operation(*id).name);
        log.error(of.place, format!("in some epochs only, the deadline of `{name}` is end to end"))
            .label("the latency would begin at different releases")
            .help("use one kind of deadline in all epochs, or name a chain");
        return None;
    }
    (!inner.misread).then_some(Some(latency))
}

/// The operations of these names, with all instances of a template; or the chain of the only name.
fn scope(
    log: &mut Log,
    (contents, operations): (&Contents, &Operations<'_>),
    processor: ProcessorId,
    of: &AtPlace<Vec<AtPlace<&str>>>,
) -> Option<LatencyScope> {
    let on = &contents.processor(processor).name;
    // A single name has no place of its own.
    let at = |name: &AtPlace<_>| AtPlace::new(name.value, if of.value.len() > 1 { name.place } else { of.place });
    if let [name] = &of.value[..]
        && let Some((place, chain)) = (0..).zip(&contents.chains).find(|(_, chain)| chain.name == name.value)
        && !operations.has(name.value)
    {
        return ends_here(log, contents, processor, (at(name), chain)).then_some(LatencyScope::Chain(place));
    }
    let mut all = Vec::new();
    for name in of.value.iter().map(at) {
        let found: Vec<_> = operations.find(log, name)?.into_iter().flatten().map(OperationId).collect();
        if let Some(other) = found.iter().find(|id| contents.operation(**id).on != processor) {
            let runs_on = &contents.processor(contents.operation(*other).on).name;
            log.error(name.place, format!("`{}` runs on `{runs_on}`, not on `{on}`", operations.name(*other)))
                .label("the loop cannot measure its jobs")
                .help(format!("name an operation of `{on}`, or write [feedback.{runs_on}]"));
            return None;
        }
        all.extend(found);
    }
    all.sort_unstable();
    all.dedup();
    if all.is_empty() {
        log.error(of.place, "`of` names no operation").help("name an operation or a chain");
    }
    (!all.is_empty()).then_some(LatencyScope::Operations(all))
}

/// False, logged, if the end-to-end latency of a chain is not that from the root of its last operation.
pub(super) fn ends_here(
    log: &mut Log,
    contents: &Contents,
    processor: ProcessorId,
    (of, chain): (AtPlace<&str>, &Chain),
) -> bool {
    let on = &contents.processor(processor).name;
    let (Some(first), Some(last)) = (chain.path.first(), chain.path.last()) else { return false };
    let last_one = contents.operation(*last);
    if last_one.on != processor {
        let ends_on = &contents.processor(last_one.on).name;
        log.error(of.place, format!("chain `{}` ends on `{ends_on}`, not on `{on}`", chain.name))
            .label("the loop cannot measure its latency")
            .help(format!("name a chain that ends on `{on}`, or write [feedback.{ends_on}]"));
        return false;
    }
    let triggers =
        chain.path.windows(2).all(|pair| contents.operation(pair[1]).trigger.predecessors().contains(&pair[0]));
    if triggers && last_one.roots == [*first] {
        return true;
    }
    let message = format!("`{}` may have another origin than `{}`", last_one.name, contents.operation(*first).name);
    log.error(of.place, message).label(format!("the loop cannot measure the latency of chain `{}`", chain.name)).help(
        format!("name a chain in which only the first operation has releases of its own, or an operation of `{on}`"),
    );
    false
}
