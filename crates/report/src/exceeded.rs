//! What took longer than was proved, and what was seen of what the proofs take for granted.

use hyoshi_model::{ProcessorId, Span};
use hyoshi_sched::Outcome;

use crate::account::{Account, Analysis, LATE_RELEASES, Level, Note};
use crate::figures::{jobs, nanos, time};
use crate::summary::{AnalysisSummary, ChainSummary, ExceededSummary, OperationSummary};

/// Names that a note has room for.
const MOST_NAMED: usize = 3;
/// Of a file with programs alone.
const NO_OPERATIONS: &str = "there are no operations: `hyoshi check` tells what is admitted of the programs";

/// What is proved, and which of it was exceeded.
pub(crate) fn analysis(
    account: &Account<'_>,
    operations: &[OperationSummary],
    chains: &[ChainSummary],
) -> AnalysisSummary {
    let (outcome, left_out) = match account.analysis {
        Analysis::Done(_) if account.system.operations.is_empty() => (None, Some(NO_OPERATIONS.to_string())),
        Analysis::Done(report) => (Some(report.outcome), None),
        Analysis::LeftOut(why) => (None, Some(why.to_string())),
    };
    let mut exceeded = Vec::new();
    for one in operations.iter().filter(|one| one.bound.exceeded) {
        let mut entry = |epoch: &str, bound_ns, seen_ns| {
            exceeded.push(ExceededSummary { what: one.name.clone(), epoch: Some(epoch.into()), bound_ns, seen_ns })
        };
        for region in &one.regions {
            match (region.bound_ns, region.max_ns) {
                (Some(bound), Some(seen)) if seen > bound => entry(&region.epoch, bound, seen),
                _ => {}
            }
        }
        if let (true, Some(bound), Some(seen)) = (one.regions.is_empty(), one.bound.bound_ns, &one.response) {
            entry(&account.system.epochs[0].name, bound, seen.max_ns.max(0) as u64);
        }
    }
    for one in chains {
        let pairs = [
            (&one.latency_bound, one.latency.map(|times| times.max_ns)),
            (&one.reaction_bound, one.reaction.map(|extent| extent.max_ns)),
        ];
        for (bound, seen) in pairs {
            if let (true, Some(bound_ns), Some(seen)) = (bound.exceeded, bound.bound_ns, seen) {
                exceeded.push(ExceededSummary {
                    what: one.name.clone(),
                    epoch: None,
                    bound_ns,
                    seen_ns: seen.max(0) as u64,
                });
            }
        }
    }
    let seen = if exceeded.is_empty() { Vec::new() } else { seen(account) };
    AnalysisSummary { outcome, left_out, exceeded, seen }
}

impl AnalysisSummary {
    /// What is proved, in a sentence, beside whether what was seen holds. What is proved cannot fail while
    /// its premises are kept: where it did, the sentence says so.
    pub(crate) fn words(&self, holds: bool) -> String {
        match (self.outcome, &self.left_out) {
            (Some(Outcome::Holds), _) if !self.exceeded.is_empty() => {
                "Proved for the declared worst cases; what was seen went beyond them: see the note.".into()
            }
            (Some(Outcome::Holds), _) if !holds => {
                "Proved for what the file declares: where a deadline was missed, something did not keep to it.".into()
            }
            (Some(Outcome::Holds), _) => "Proved: what counts holds in the worst case, too.".into(),
            (Some(Outcome::DoesNotHold), _) => {
                "In the worst case it does not hold: `hyoshi check` names what fails.".into()
            }
            (Some(Outcome::Unknown), _) => {
                "Not proved for the worst case: `hyoshi check` names what is missing.".into()
            }
            (None, why) => format!("Not analysed: {}.", why.as_deref().unwrap_or("nobody asked")),
        }
    }
}

/// What was seen that a proof assumes away: it is what can explain a time beyond its bound.
fn seen(account: &Account<'_>) -> Vec<String> {
    let mut seen = Vec::new();
    let overran = account.stats.counts(None, |_| true).overran;
    if overran > 0 {
        seen.push(format!("{} ran longer than declared", jobs(overran)));
    }
    for index in 0..account.system.processors.len() {
        let told = account.time.get(index).map_or(Span::ZERO, |time| time.stolen);
        let stolen = account.stolen.get(index).copied().unwrap_or_default().max(told);
        if stolen.is_zero() {
            continue;
        }
        let name = &account.system.processor(ProcessorId(index as u32)).name;
        seen.push(format!("the host took {} of the CPU of {name}", time(stolen)));
    }
    seen.extend(account.notes.iter().filter(|note| note.topic == LATE_RELEASES).map(|note| note.text.clone()));
    if account.notes.iter().any(|note| note.level == Level::Refused) {
        seen.push("the kernel refused something (see the notes)".into());
    }
    if account.verb == "run" && account.system.processors.iter().all(|processor| processor.costs.is_none()) {
        seen.push("scheduling itself took time, and the file names no `costs`".into());
    }
    seen
}

/// The same as a note.
pub(crate) fn note(analysis: &AnalysisSummary) -> Option<Note> {
    let all = &analysis.exceeded;
    if all.is_empty() {
        return None;
    }
    let named = all.iter().take(MOST_NAMED).map(|one| {
        let region = one.epoch.as_ref().map_or(String::new(), |epoch| format!(" in {epoch}"));
        format!("{}{region} took {}, proved were {}", one.what, nanos(one.seen_ns), nanos(one.bound_ns))
    });
    let mut text = named.collect::<Vec<_>>().join("; ");
    if all.len() > MOST_NAMED {
        text.push_str(&format!("; and {} more", all.len() - MOST_NAMED));
    }
    let remedy = match &analysis.seen[..] {
        [] => "nothing was seen that explains it: please report this as a fault of the analysis".into(),
        seen => format!("seen were: {}", seen.join("; ")),
    };
    Some(Note { level: Level::Degraded, topic: "beyond its bound".into(), text, remedy: Some(remedy) })
}
