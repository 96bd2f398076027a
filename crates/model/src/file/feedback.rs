//! `[feedback.PROCESSOR]`: loops that adapt rates.

use std::collections::BTreeMap;
use std::fmt;

use super::clients;
use super::expand::Operations;
use super::latency;
use super::levels;
use super::log::{AtPlace, Log, Place};
use super::machines::endpoints;
use super::names::Names;
use super::places;
use super::programs::LawResult;
use super::table::{Table, in_order, log_complaint};
use super::value::InputValue;
use crate::checked::System;
use crate::control_group::{ControlGroup, MOST_CONTROLLED_PROCESSORS, MOST_CONTROLLED_TASKS, STEP_PART};
use crate::feedback::{DesignGains, FeedbackAlgorithm, FeedbackLoop, LoadMeasure, RateDivision, StartRates};
use crate::ids::{OperationId, ProcessorId};
use crate::system::Contents;
use crate::time::Span;

/// The loops of a file, in its order. `None`, logged, if one of them is wrong.
pub(super) fn read(
    log: &mut Log,
    top: &Table<'_>,
    (contents, operations): (&Contents, &Operations<'_>),
    analysis: Option<SetPointAnalysis<'_>>,
) -> Option<Vec<FeedbackLoop>> {
    let names = Names::new("processor", contents.processors.iter().map(|one| one.name.as_str()));
    let (mut loops, mut places) = (Vec::new(), Vec::new());
    let mut sound = true;
    for (name, table) in top.named(log, "feedback") {
        let one = names.find(log, name).map(ProcessorId);
        match one.and_then(|processor| read_loop(log, name, &table, (contents, operations), processor)) {
            Some(one) => {
                sound &= has_work(log, name, contents, &one);
                sound &= clients::check_endpoints(log, (name, &table), contents, (&one, &loops));
                sound &= is_like_its_group(log, name, &table, &one, &loops);
                let margin = margin(log, &table, one.utilisation_analysed);
                sound &= margin.is_some();
                places.push((value_place(&table, "utilisation"), margin.unwrap_or_default()));
                loops.push((name, one));
            }
            None => sound = false,
        }
    }
    sound &= at_most_one(log, contents, operations, &loops);
    sound &= clients::check(log, contents, operations, &loops);
    sound = sound && levels::check(log, contents, operations, &loops);
    sound = sound && places::check(log, contents, operations, &loops);
    let (names, mut feedback): (Vec<_>, Vec<_>) = loops.into_iter().unzip();
    sound = sound && are_small(log, contents, operations, &names, &feedback);
    if sound && feedback.iter().any(|one| one.utilisation_analysed) {
        sound = analyse(log, contents, &mut feedback, (&names, &places), analysis);
    }
    sound.then_some(feedback)
}

/// Determines the set points of a system's feedback loops.
#[derive(Clone, Copy)]
pub struct SetPointAnalysis<'a>(
    /// For each loop, in their order, the greatest utilisation without misses in parts per million of the hard cap; or
    /// the reason why there is none, and the remedy. The loops have other set points.
    pub &'a dyn Fn(&System) -> Vec<LawResult<u32>>,
);

impl fmt::Debug for SetPointAnalysis<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetPointAnalysis").finish_non_exhaustive()
    }
}

/// Replaces the set points of loops with `utilisation = "analysis"`. False, logged, if there is none. For each loop, the
/// place of its set point, and its margin.
fn analyse(
    log: &mut Log,
    contents: &Contents,
    feedback: &mut [FeedbackLoop],
    (names, places): (&[AtPlace<&str>], &[(Place, u32)]),
    analysis: Option<SetPointAnalysis<'_>>,
) -> bool {
    let contents = Contents { feedback: feedback.to_vec(), ..contents.clone() };
    let found = match analysis {
        Some(analysis) => (analysis.0)(&System::new(contents.clone())),
        None => vec![Err((MISSING.0.to_string(), MISSING.1.to_string())); feedback.len()],
    };
    let mut sound = true;
    let each = feedback.iter_mut().zip(found).zip(names).zip(places);
    for (((one, found), name), (place, margin)) in each.filter(|(((one, _), _), _)| one.utilisation_analysed) {
        match found {
            Ok(bound) if bound > *margin => {
                one.utilisation_ppm = bound - margin;
                sound &= has_work(log, *name, &contents, one);
            }
            Ok(bound) => {
                let percent = |ppm: u32| format!("{}.{}%", ppm / 10_000, ppm / 1_000 % 10);
                log.error(*place, format!("the margin leaves no utilisation for `{}`", name.value))
                    .label(format!("analysis proves {}", percent(bound)))
                    .help(format!("write a margin below {}", percent(bound)));
                sound = false;
            }
            Err((reason, remedy)) => {
                log.error(*place, format!("no set point of `{}` is proved free of misses", name.value))
                    .label(reason)
                    .help(remedy);
                sound = false;
            }
        }
    }
    sound
}

/// Why a program finds no set point, and the remedy.
const MISSING: (&str, &str) =
    ("this program has no analysis", "write a percentage; in Rust, set `ReadContext::set_points`");

/// The place of a value, or of the table if the key is missing.
fn value_place(table: &Table<'_>, key: &str) -> Place {
    table.get(key).map_or_else(|| table.place_of(key), |value| Place::from(value.span()))
}

fn read_loop(
    log: &mut Log,
    name: AtPlace<&str>,
    table: &Table<'_>,
    (contents, operations): (&Contents, &Operations<'_>),
    processor: ProcessorId,
) -> Option<FeedbackLoop> {
    let algorithm = table.choice(log, "algorithm")?;
    let algorithm = algorithm.map(|position| FeedbackAlgorithm::all().nth(position).unwrap_or(FeedbackAlgorithm::FcU));
    let analysed = is_analysed(table) && algorithm.value.uses_utilisation();
    let utilisation = match analysed {
        // Until it is known.
        true => Some(1_000_000),
        false => set_point(log, table, "utilisation", algorithm, algorithm.value.uses_utilisation()),
    };
    let misses = set_point(log, table, "miss_ratio", algorithm, algorithm.value.uses_miss_ratio());
    let period = table.read(log, "period", InputValue::positive_time);
    let latency = latency::read(log, table, (contents, operations), (processor, algorithm, period));
    let gains = match table.get("gains") {
        Some(_) => table.inner(log, "gains").and_then(|gains| {
            let gain = |log: &mut Log, key| gains.read(log, key, InputValue::positive_number).map(|gain| gain.value);
            Some(DesignGains { ga: gain(log, "ga")?, gm: gain(log, "gm")?, gl: gain(log, "gl")? })
        }),
        None => Some(DesignGains::default()),
    };
    let measure = table.choice(log, "measure");
    let start = start(log, table, (contents, operations), processor);
    let divide = table.choice(log, "divide");
    let anti_windup = table.read(log, "anti_windup", InputValue::truth);
    let endpoints = endpoints(log, table, "endpoints").into_iter().map(|one| one.value).collect();
    let insecure = table.read(log, "insecure", InputValue::truth).is_some_and(|insecure| insecure.value);
    if table.misread {
        return None;
    }
    let start = start?;
    if algorithm.value.is_of_group() && !has_keys_of_group(log, table, algorithm, &start) {
        return None;
    }
    let one = FeedbackLoop {
        processor,
        algorithm: algorithm.value,
        utilisation_ppm: utilisation?,
        utilisation_analysed: analysed,
        miss_ratio_ppm: misses?,
        latency: latency?,
        period: period?.value,
        measure: [LoadMeasure::Cpu, LoadMeasure::Lanes][measure?.value],
        gains: gains?,
        start,
        divide: RateDivision::ALL[divide?.value],
        anti_windup: anti_windup?.value,
        endpoints,
        insecure,
    };
    if one.period < SHORTEST {
        log.error(table.place_of("period"), format!("a sampling period of {} is too short", one.period))
            .label(format!("at least {SHORTEST}"))
            .help(format!("in a shorter period `{}` completes too few jobs to measure", name.value));
        return None;
    }
    Some(one)
}

/// `start = "lowest"`, `"highest"` or `{ track = "10Hz" }`.
fn start(
    log: &mut Log,
    table: &Table<'_>,
    (contents, operations): (&Contents, &Operations<'_>),
    processor: ProcessorId,
) -> Option<StartRates> {
    let given = table.read(log, "start", |given| match given {
        InputValue::Table(rates) => Ok(Err(rates)),
        word => word.choice(&["lowest", "highest"]).map(Ok),
    })?;
    let rates = match given.value {
        Ok(0) => return Some(StartRates::Lowest),
        Ok(_) => return Some(StartRates::Highest),
        Err(rates) => rates,
    };
    let adapted = contents.adapted_on(processor);
    let mut periods: Vec<_> = adapted.iter().map(|one| contents.setting(0, one.root).slowest).collect();
    let mut sound = true;
    for (key, value) in in_order(rates) {
        let (name, place) = (AtPlace::new(&**key.get_ref(), Place::from(key.span())), Place::from(value.span()));
        let period = InputValue::of(value.get_ref()).period();
        let period = period.map_err(|complaint| log_complaint(log, name.value, place, complaint)).ok();
        let found = operations.find(log, name);
        let (Some(period), Some(found)) = (period, found) else {
            sound = false;
            continue;
        };
        let homes = found.into_iter().flatten().map(OperationId).filter(|id| operations.home(*id).is_none());
        for id in homes {
            // The name of an operation with a call is that of its last part.
            let is_whole =
                |root: OperationId| contents.operation(root).name.strip_suffix(":call") == Some(&*operations.name(id));
            let Some(at) = adapted.iter().position(|one| one.root == id || is_whole(one.root)) else {
                let on = &contents.processor(processor).name;
                log.error(name.place, format!("the loop of `{on}` does not adapt `{}`", operations.name(id)))
                    .help(format!(
                        "name a periodic operation with a range of rates that runs on `{on}`, or leads to operations there"
                    ));
                sound = false;
                continue;
            };
            if contents.operation(adapted[at].root).standby {
                log.error(name.place, format!("`{}` on standby has no start rate", operations.name(id)))
                    .help("remove it: the loop chooses the rate when it admits the operation");
                sound = false;
                continue;
            }
            let setting = contents.setting(0, adapted[at].root);
            if !(setting.period..=setting.slowest).contains(&period) {
                let range = format!("its periods are {} to {}", setting.period, setting.slowest);
                log.error(
                    place,
                    format!("`{}` starts with a period of {period}, outside its range", operations.name(id)),
                )
                .label(range)
                .help("write a rate within its range");
                sound = false;
            }
            periods[at] = period;
        }
    }
    sound.then_some(StartRates::Given(periods))
}

/// The shortest sampling period.
const SHORTEST: Span = Span::from_millis(10);

/// False, logged, if a loop of a group has keys that only the laws of one processor use.
fn has_keys_of_group(
    log: &mut Log,
    table: &Table<'_>,
    algorithm: AtPlace<FeedbackAlgorithm>,
    start: &StartRates,
) -> bool {
    let mut sound = true;
    if matches!(start, StartRates::Given(_)) {
        log.error(
            table.place_of("start"),
            format!("{} does not use rates of operations in `start`", algorithm.value.name()),
        )
        .also(algorithm.place, "the algorithm")
        .help("write start = \"lowest\" or \"highest\"");
        sound = false;
    }
    for key in ["gains", "divide", "anti_windup"].into_iter().filter(|key| table.get(key).is_some()) {
        log.error(table.place_of(key), format!("{} does not use `{key}`", algorithm.value.name()))
            .also(algorithm.place, "the algorithm")
            .help(format!("remove `{key}`, or use an algorithm for one processor, such as FC-U"));
        sound = false;
    }
    sound
}

/// False, logged, if a loop differs from the first one of its group in what the group shares.
fn is_like_its_group(
    log: &mut Log,
    name: AtPlace<&str>,
    table: &Table<'_>,
    one: &FeedbackLoop,
    loops: &[(AtPlace<&str>, FeedbackLoop)],
) -> bool {
    let same = |(_, other): &&(AtPlace<&str>, FeedbackLoop)| other.algorithm == one.algorithm;
    let Some((first_name, first)) = loops.iter().find(same).filter(|_| one.algorithm.is_of_group()) else {
        return true;
    };
    let differs = [
        ("period", one.period != first.period, format!("\"{}\"", first.period)),
        (
            "start",
            one.start != first.start,
            if first.start == StartRates::Highest { "\"highest\"" } else { "\"lowest\"" }.into(),
        ),
    ];
    let mut sound = true;
    for (key, _, expected) in differs.into_iter().filter(|(_, differs, _)| *differs) {
        let place = if table.get(key).is_some() { table.place_of(key) } else { name.place };
        log.error(place, format!("all {} loops must have the same `{key}`", one.algorithm.name()))
            .also(first_name.place, "the first loop of the group")
            .help(format!("write {key} = {expected}, as in [feedback.{}]", first_name.value));
        sound = false;
    }
    sound
}

/// False, logged, if one controller of a group has more tasks or processors than it can compute in time.
fn are_small(
    log: &mut Log,
    contents: &Contents,
    operations: &Operations<'_>,
    names: &[AtPlace<&str>],
    feedback: &[FeedbackLoop],
) -> bool {
    // Groups are found in a system with these loops.
    let contents = Contents { feedback: feedback.to_vec(), ..contents.clone() };
    let mut sound = true;
    for group in contents.control_groups() {
        let name = group.algorithm.name();
        let mut are_small = true;
        for node in group.nodes() {
            let (tasks, members) = (node.tasks.len(), node.members.len());
            if tasks <= MOST_CONTROLLED_TASKS && members <= MOST_CONTROLLED_PROCESSORS {
                continue;
            }
            let place = names[group.loops[node.at]].place;
            let first = operations.name(group.tasks[node.tasks[0]].root);
            let limit =
                format!("the limit is {MOST_CONTROLLED_TASKS} rates on {MOST_CONTROLLED_PROCESSORS} processors");
            let processors = if members == 1 { "processor" } else { "processors" };
            let message = format!("one {name} controller cannot set {tasks} rates on {members} {processors}");
            let error = log.error(place, message).label(limit);
            match group.algorithm {
                FeedbackAlgorithm::Eucon => {
                    error.help("use algorithm = \"DEUCON\", which has a controller for each processor")
                }
                _ => error.help(format!("move first operations of chains to other processors, for example `{first}`")),
            };
            are_small = false;
        }
        sound &= are_small && has_time(log, &group, feedback, names);
        sound &= arrive_in_time(log, &contents, &group, names);
    }
    sound
}

/// False, logged, if samples of a group need more than half a sampling period to the host that computes its rates.
fn arrive_in_time(log: &mut Log, contents: &Contents, group: &ControlGroup, names: &[AtPlace<&str>]) -> bool {
    let mut sound = true;
    for position in &group.loops {
        let (one, name) = (&contents.feedback[*position], &names[*position]);
        let host = |id: ProcessorId| contents.processor(id).host;
        let (from, to) = (host(one.processor), host(contents.computed_on(one)));
        let delay = contents.delay(from, to).1;
        if delay.as_nanos() > one.period.as_nanos() / 2 {
            let to = &contents.hosts[to.index()].name;
            let least = Span::from_nanos(delay.as_nanos().saturating_mul(2));
            log.error(name.place, format!("samples of `{}` may need {delay} to host `{to}`", name.value))
                .label(format!("more than half of the sampling period, {}", one.period))
                .help(format!("write period = \"{least}\" or longer in all loops of the group"));
            sound = false;
        }
    }
    sound
}

/// False, logged, if the steps of a group need more than their part of each sampling period.
fn has_time(log: &mut Log, group: &ControlGroup, feedback: &[FeedbackLoop], names: &[AtPlace<&str>]) -> bool {
    let first = group.loops[0];
    let (period, shortest) = (feedback[first].period, group.shortest_period());
    if shortest <= period {
        return true;
    }
    let message = format!(
        "a step of {} needs about {:.3} of CPU time in each sampling period of {period}",
        group.algorithm.name(),
        group.step_cost()
    );
    // Rounded up to two digits.
    let digit = 10u64.pow(shortest.as_nanos().ilog10().saturating_sub(1));
    let rounded = Span::from_nanos(shortest.as_nanos().div_ceil(digit) * digit);
    log.error(names[first].place, message)
        .label(format!("at most 1/{STEP_PART} of the period"))
        .help(format!("use period = \"{rounded}\" or longer, or adapt fewer operations"));
    false
}

/// A set point; 0 if the algorithm does not control this variable.
fn set_point(
    log: &mut Log,
    table: &Table<'_>,
    key: &str,
    algorithm: AtPlace<FeedbackAlgorithm>,
    controlled: bool,
) -> Option<u32> {
    let name = algorithm.value.name();
    if !controlled && table.get(key).is_some() {
        log.error(value_place(table, key), format!("{name} does not control `{key}`"))
            .also(algorithm.place, "the algorithm")
            .help(format!("remove `{key}`, or choose an algorithm that controls it"));
        return None;
    }
    match table.given(log, key, InputValue::share_ppm) {
        Some(given) if given.value == 0 || given.value > 1_000_000 => {
            log.error(given.place, format!("`{key}` must be above 0% and at most 100%"))
                .help("for example, set utilisation = \"70%\" and miss_ratio = \"1.5%\"");
            None
        }
        Some(given) => Some(given.value),
        None if controlled && table.get(key).is_none() => {
            log.error(algorithm.place, format!("{name} needs `{key}`"))
                .label("controls it")
                .help(format!("add `{key} = \"{}\"`", if key == "utilisation" { "70%" } else { "1.5%" }));
            None
        }
        None => (!controlled).then_some(0),
    }
}

/// Whether the set point of the utilisation is to be determined by analysis.
fn is_analysed(table: &Table<'_>) -> bool {
    table.get("utilisation").is_some_and(|value| InputValue::of(value.get_ref()).choice(&["analysis"]).is_ok())
}

/// The distance of the set point from the utilisation that analysis determines. `None`, logged, without analysis.
fn margin(log: &mut Log, table: &Table<'_>, analysed: bool) -> Option<u32> {
    let margin = table.read(log, "margin", InputValue::share_ppm)?;
    if margin.value > 0 && !analysed {
        log.error(table.place_of("margin"), "`margin` has no effect without an analysis")
            .help("write utilisation = \"analysis\", or remove `margin`");
        return None;
    }
    Some(margin.value)
}

/// False, logged, if a loop has no operation to adapt, or if the lowest rates are above the set point.
fn has_work(log: &mut Log, name: AtPlace<&str>, contents: &Contents, one: &FeedbackLoop) -> bool {
    if contents.has_no_adapted_work(one.processor) {
        log.error(name.place, format!("processor `{}` has no operation with a range of rates", name.value))
            .label("nothing to adapt")
            .help("write a range: rate = [\"10Hz\", \"40Hz\"]");
        return false;
    }
    let most = one.most_load_ppm(contents.processor(one.processor).hard_cap.ppm);
    let least = contents.least_load_ppm(0, one.processor);
    if least > most {
        let percent = |ppm: u64| format!("{}.{}%", ppm / 10_000, ppm / 1_000 % 10);
        let leveled = contents.with_levels_on(one.processor).next().is_some();
        let lowest = if leveled { "at the lowest levels and rates" } else { "at the lowest rates" };
        log.error(name.place, format!("{lowest} `{}` has a load of {}", name.value, percent(least)))
            .label(format!("above the {} that the loop may hold", percent(most)))
            .help("allow lower rates, shorten worst cases, or move operations to another processor");
    }
    least <= most
}

/// False, logged, if two loops set the rate of one operation.
fn at_most_one(
    log: &mut Log,
    contents: &Contents,
    operations: &Operations<'_>,
    loops: &[(AtPlace<&str>, FeedbackLoop)],
) -> bool {
    let mut owners: BTreeMap<OperationId, (AtPlace<&str>, FeedbackAlgorithm)> = BTreeMap::new();
    let mut sound = true;
    for (name, one) in loops {
        for adapted in contents.adapted_on(one.processor) {
            let Some((first, algorithm)) = owners.insert(adapted.root, (*name, one.algorithm)) else { continue };
            if algorithm == one.algorithm && algorithm.is_of_group() {
                continue;
            }
            log.error(name.place, format!("two loops set the rate of `{}`", operations.name(adapted.root)))
                .label("the second loop")
                .also(first.place, "the first loop")
                .help("remove one of the loops: the operation and those after it run on both processors");
            sound = false;
        }
    }
    sound
}
