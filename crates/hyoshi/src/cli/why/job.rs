//! The requested job, and the bound that was proved for it.

use hyoshi_model::{JobId, OperationId, Span, System};
use hyoshi_report::Analysis;
use hyoshi_report::blamed::name_of;
use hyoshi_report::names::template;
use hyoshi_trace::JobEnd;

use super::super::CliError;

/// The subject of the question.
pub(super) enum WhyTarget {
    /// One job.
    Job(JobId),
    /// All jobs of an operation, or of the instances of a template, by the name that was given.
    Of(String, Vec<OperationId>),
}

impl WhyTarget {
    /// `operation#number` or `operation#number.leg`; or the name of an operation or template.
    pub fn parse(system: &System, text: &str) -> Result<WhyTarget, CliError> {
        let form = "name a job by its operation and release number, such as `steer#12`, or `route#12.3` for a leg";
        let Some((name, number)) = text.rsplit_once('#') else {
            return Ok(WhyTarget::Of(text.into(), named(system, text)?));
        };
        let operation = operation(system, name, number)?;
        let (number, leg) = number.split_once('.').unwrap_or((number, "0"));
        match (number.parse(), leg.parse()) {
            (Ok(number), Ok(leg)) => Ok(WhyTarget::Job(JobId { operation, number, leg })),
            _ => Err(CliError::new(format!("`{text}` has no release number")).help(form)),
        }
    }
}

/// The error if the recording has no such job. It has jobs of that operation with these least and greatest numbers.
pub(super) fn unknown(system: &System, asked: JobId, numbers: Option<(u64, u64)>) -> CliError {
    let job = name_of(system, asked);
    let name = &system.operation(asked.operation).name;
    let failure = CliError::new(format!("the recording has no end of job {job}"));
    match numbers {
        Some((least, most)) if (least..=most).contains(&asked.number) && asked.leg > 0 => {
            failure.help(format!("it has {name}#{}, but no such leg", asked.number))
        }
        Some((least, most)) => failure
            .help(format!("it has {name}#{least} to {name}#{most}; jobs that were unfinished at the end are missing")),
        None => failure.help(format!("it has no job of `{name}`")),
    }
}

/// The error if the thread of a job was cancelled on its way from a job that the recording does not have.
pub(super) fn cancelled_before(system: &System, asked: JobId, from: JobId) -> CliError {
    let (job, from) = (name_of(system, asked), name_of(system, from));
    CliError::new(format!("{job} was never released: its thread was cancelled on its way from {from}"))
        .help("merge the recordings of all hosts (`hyoshi trace merge`) to see the jobs before")
}

/// The one operation of a name.
fn operation(system: &System, name: &str, number: &str) -> Result<OperationId, CliError> {
    let operations = named(system, name)?;
    let [first, .., last] = operations[..] else { return Ok(operations[0]) };
    let (first, last) = (&system.operation(first).name, &system.operation(last).name);
    let failure =
        CliError::new(format!("`{name}` is a template: each of its {} operations has jobs", operations.len()));
    Err(failure.help(format!("they are {first} to {last}: name one, such as `{first}#{number}`")))
}

/// The operations of a name: its own, or all instances of a template.
pub(super) fn named(system: &System, name: &str) -> Result<Vec<OperationId>, CliError> {
    let called = |is: &dyn Fn(&str) -> bool| -> Vec<OperationId> {
        system.operation_ids().filter(|id| is(&system.operation(*id).name)).collect()
    };
    let mut found = called(&|one| one == name);
    if found.is_empty() {
        found = called(&|one| template(one) == name);
    }
    if !found.is_empty() {
        return Ok(found);
    }
    let failure = CliError::new(format!("the recording's system has no operation `{name}`"));
    let mut names: Vec<&str> = Vec::new();
    for operation in &system.operations {
        // Once each: instances of a template follow each other.
        if names.last() != Some(&template(&operation.name)) {
            names.push(template(&operation.name));
        }
    }
    let all = system.operations.iter().map(|operation| operation.name.as_str());
    Err(match nearest(name, all.chain(names.iter().copied())) {
        Some(near) => failure.help(format!("did you mean `{near}`?")),
        None => {
            let more = if names.len() > MOST_NAMED { ", ..." } else { "" };
            names.truncate(MOST_NAMED);
            failure.help(format!("it has {}{more}", names.join(", ")))
        }
    })
}

/// The most names that an error lists.
const MOST_NAMED: usize = 12;

/// The most similar name: it differs in the case of letters, or in a few letters.
fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let small = written.to_lowercase();
    if let Some(same) = names.clone().find(|name| name.to_lowercase() == small) {
        return Some(same);
    }
    let most = (small.chars().count() / 3).max(1);
    let distance = |name: &&str| strsim::damerau_levenshtein(&small, &name.to_lowercase());
    names
        .filter(|name| name.len().abs_diff(written.len()) <= 2 * most)
        .min_by_key(distance)
        .filter(|name| distance(name) <= most)
}

/// The proved bound on the response of a job of this kind and region; `Err`: why there is none.
pub(super) fn bound(analysis: Analysis<'_>, end: &JobEnd) -> Result<Span, String> {
    let report = match analysis {
        Analysis::Done(report) => report,
        Analysis::LeftOut(why) => return Err(why.into()),
    };
    let epoch = usize::from(end.epoch);
    // At the change to this region jobs of the previous one remain; at the change to the next one the job may be
    // unfinished.
    let concerns = |scene: usize, change: bool| scene == epoch || (change && scene + 1 == epoch);
    let mut bound: Option<Span> = None;
    for (scene, _, one) in report.operations() {
        if one.operation == end.job.operation && one.critical == end.critical && concerns(scene.epoch, scene.change) {
            let Some(nanos) = one.bound_ns else {
                return Err(format!("not proved: `hyoshi check` reports {}", one.verdict.word()));
            };
            bound = Some(bound.unwrap_or_default().max(Span::from_nanos(nanos)));
        }
    }
    bound.ok_or_else(|| "`hyoshi check` does not cover it".into())
}
