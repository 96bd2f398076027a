//! Observed times beyond their bounds, and observed violations of the proof's assumptions.

use hyoshi_sched::Outcome;

use crate::figures::{jobs, nanos, time};
use crate::input::{Analysis, LATE_RELEASES, NoteLevel, ReportInput, ReportNote};
use crate::summary::{AnalysisSummary, ChainSummary, ExceededSummary, OperationSummary};

/// Names that a note has room for.
const MOST_NAMED: usize = 3;
/// Of a file with programs alone.
const NO_OPERATIONS: &str = "the file has no operations; `hyoshi check` lists the admitted programs";

/// The result of the analysis, and exceeded bounds.
pub(crate) fn analysis(
    account: &ReportInput<'_>,
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
    /// The result of the analysis in a sentence; `holds`: whether the observed run met its requirements. If a proved
    /// requirement failed, an assumption of the proof was violated.
    pub(crate) fn words(&self, holds: bool) -> String {
        match (self.outcome, &self.left_out) {
            (Some(Outcome::Holds), _) if !self.exceeded.is_empty() => {
                "Proved, but some times exceeded their bounds (note `bound exceeded`).".into()
            }
            (Some(Outcome::Holds), _) if !holds => {
                "Proved for what the file declares, so something violated its declaration.".into()
            }
            (Some(Outcome::Holds), _) => "Proved: holds in the worst case, too.".into(),
            (Some(Outcome::DoesNotHold), _) => {
                "Does not hold in the worst case: `hyoshi check` shows what fails.".into()
            }
            (Some(Outcome::Unknown), _) => {
                "Not proved for the worst case: `hyoshi check` shows what is missing.".into()
            }
            (None, why) => format!("Not analysed: {}.", why.as_deref().unwrap_or("not requested")),
        }
    }
}

/// Observed violations of the proof's assumptions, which can explain a time beyond its bound.
fn seen(account: &ReportInput<'_>) -> Vec<String> {
    let mut seen = to_act_on(account);
    for (processor, split) in account.system.processors.iter().zip(&account.figures.time) {
        if !split.stolen.is_zero() {
            seen.push(format!("a hypervisor used {} of the CPU of {}", time(split.stolen), processor.name));
        }
    }
    seen.extend(account.notes.iter().filter(|note| note.topic == LATE_RELEASES).map(|note| note.text.clone()));
    if account.verb == "run" && account.system.processors.iter().all(|processor| processor.costs.is_none()) {
        seen.push(UNCALIBRATED.into());
    }
    seen
}

/// The bounds of a run ignore scheduling costs.
const UNCALIBRATED: &str = "the bounds ignore scheduling costs; `hyoshi calibrate` measures them";

/// Those that the user can change.
fn to_act_on(account: &ReportInput<'_>) -> Vec<String> {
    let mut seen = Vec::new();
    let overran = account.figures.stats.counts(None, |_| true).overran;
    if overran > 0 {
        seen.push(format!("{} ran longer than declared", jobs(overran)));
    }
    if account.notes.iter().any(|note| note.level == NoteLevel::Refused) {
        seen.push("the kernel refused something (a note has the details)".into());
    }
    if account.notes.iter().any(|note| note.level == NoteLevel::Failed) {
        seen.push("the run ended with an error (a note has the details)".into());
    }
    seen
}

/// The same as a note. It is only information if the file and the kernel complied with the assumptions, and
/// something from outside explains the excess.
pub(crate) fn note(account: &ReportInput<'_>, analysis: &AnalysisSummary) -> Option<ReportNote> {
    let all = &analysis.exceeded;
    if all.is_empty() {
        return None;
    }
    let named = all.iter().take(MOST_NAMED).map(|one| {
        let region = one.epoch.as_ref().map_or(String::new(), |epoch| format!(" in {epoch}"));
        format!("{}{region}: {} (bound {})", one.what, nanos(one.seen_ns), nanos(one.bound_ns))
    });
    let mut text = named.collect::<Vec<_>>().join("; ");
    if all.len() > MOST_NAMED {
        text.push_str(&format!("; and {} more", all.len() - MOST_NAMED));
    }
    let (level, remedy) = match &analysis.seen[..] {
        // No bound includes interrupts, other threads and a hypervisor.
        [] if account.verb == "run" => (
            NoteLevel::Info,
            "no cause observed; interrupts, other threads or a hypervisor may have used the CPU; `--record FILE` and \
             `hyoshi why` show more"
                .into(),
        ),
        [] => (NoteLevel::Degraded, "no cause observed; please report this as a fault of the analysis".into()),
        seen => {
            let level = if to_act_on(account).is_empty() { NoteLevel::Info } else { NoteLevel::Degraded };
            (level, format!("possible causes: {}", seen.join("; ")))
        }
    };
    Some(ReportNote { level, topic: "bound exceeded".into(), text, remedy: Some(remedy) })
}

#[cfg(test)]
mod tests {
    use hyoshi_model::{Instant, JobId, OperationId, Span, read};
    use hyoshi_replay::Figures;
    use hyoshi_sched::{Plan, Strategies, analyse};
    use hyoshi_trace::{JobEnd, JobOutcome, Stats, TimeSplit};

    use super::*;

    /// The note on a run in which a job that declares 2 ms took 3 ms, and consumed `consumed`.
    fn noted(verb: &str, costs: &str, stolen: Span, consumed: Span) -> ReportNote {
        let text = format!("name = \"a\"\n{costs}[processor.main]\n[operation.a]\nevery = \"10ms\"\nwcet = \"2ms\"\n");
        let system = read(&text, "a.toml", None).unwrap().system;
        let plan = Plan::new(&system, &Strategies::default()).unwrap();
        let report = analyse(&system, &plan);
        let mut stats = Stats::new(&system);
        let ms = |ms| Instant::ZERO + Span::from_millis(ms);
        stats.record(&JobEnd {
            job: JobId { operation: OperationId(0), number: 0, leg: 0 },
            outcome: JobOutcome::Made,
            critical: false,
            overran: consumed > Span::from_millis(2),
            service: Default::default(),
            epoch: 0,
            origin: Instant::ZERO,
            release: Instant::ZERO,
            ready: Instant::ZERO,
            start: Instant::ZERO,
            end: ms(3),
            deadline: ms(10),
            consumed,
        });
        let account = ReportInput {
            verb,
            command: String::new(),
            file: "a.toml",
            source: &text,
            system: &system,
            host: None,
            plan: &plan,
            figures: Figures {
                stats: &stats,
                time: vec![TimeSplit { stolen, ..TimeSplit::default() }],
                strategies: Vec::new(),
                contracts: Vec::new(),
                feedback: &[],
                causes: None,
                ends: &[],
            },
            analysis: Analysis::Done(&report),
            queueing: Vec::new(),
            groups: Vec::new(),
            machine_ppm: None,
            duration: Span::from_millis(10),
            asked: Span::from_millis(10),
            interrupted: false,
            took: Span::from_millis(10),
            started_unix_ns: None,
            threads: &[],
            lost_events: 0,
            notes: Vec::new(),
            programs: Vec::new(),
        };
        let notes = account.summary().notes;
        notes.into_iter().find(|note| note.topic == "bound exceeded").unwrap()
    }

    #[test]
    fn a_time_beyond_its_bound_is_degraded_only_if_the_user_can_act_on_it() {
        let (ms, costs) = (Span::from_millis, "costs = { timer = \"1us\" }\n");
        let stolen = noted("run", costs, ms(1), ms(2));
        assert_eq!(stolen.level, NoteLevel::Info);
        assert!(stolen.remedy.unwrap().contains("a hypervisor used 1ms of the CPU of main"));
        let uncalibrated = noted("run", "", Span::ZERO, ms(2));
        assert_eq!(uncalibrated.level, NoteLevel::Info);
        assert!(uncalibrated.remedy.unwrap().contains("hyoshi calibrate"));
        let overran = noted("run", costs, ms(1), ms(3));
        assert_eq!(overran.level, NoteLevel::Degraded);
        assert!(overran.remedy.unwrap().starts_with("possible causes: 1 job ran longer than declared; a hypervisor"));
        let unexplained = noted("run", costs, Span::ZERO, ms(2));
        assert_eq!(unexplained.level, NoteLevel::Info);
        assert!(unexplained.remedy.unwrap().contains("hyoshi why"));
        // In virtual time there is nothing else.
        let unexplained = noted("sim", costs, Span::ZERO, ms(2));
        assert_eq!(unexplained.level, NoteLevel::Degraded);
        assert!(unexplained.remedy.unwrap().contains("fault of the analysis"));
    }
}
