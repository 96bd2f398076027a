//! Whether the requirements of the file were met.

use crate::figures::{count, jobs, time};
use crate::input::{ReportInput, RunVerdict};

impl ReportInput<'_> {
    /// Whether the requirements of the file were met: see [`RunVerdict`].
    pub fn verdict(&self) -> RunVerdict {
        verdict(self)
    }
}

fn verdict(account: &ReportInput<'_>) -> RunVerdict {
    let (system, stats) = (account.system, account.figures.stats);
    let critical = stats.rows().iter().any(|row| row.critical());
    let everything = !critical && system.chains.is_empty();
    let what = if everything { "" } else { "critical " };
    let counted = stats.counts(None, |row| everything || row.critical());

    let mut reasons = Vec::new();
    if counted.not_made() > 0 {
        let (late, all) = (count(counted.not_made()), count(counted.released()));
        reasons.push(format!("{late} of {all} {what}deadlines were not met"));
    }
    for (chain, seen) in system.chains.iter().zip(stats.chains()) {
        if let Some(why) = seen.unmeasured {
            // Only a violation changes the verdict, not an unknown result.
            debug_assert!(!seen.violated(), "{why}");
            continue;
        }
        let mut broken = |many: u64, what: &str| {
            if many > 0 {
                reasons.push(format!("chain {}: {} {what}", chain.name, count(many)));
            }
        };
        if seen.violated() {
            broken(seen.missed, "beyond its deadline");
            broken(seen.lost, "never reached its end");
            broken(seen.too_old, "with data older than max_age");
            broken(seen.too_slow, "with a reaction beyond max_reaction");
        }
    }
    if account.lost_events > 0 {
        reasons.push(format!("{} events were lost, so some outcomes are unknown", count(account.lost_events)));
    }
    let alone = system.operations.is_empty() && !account.programs.is_empty();
    if alone {
        return of_programs(account, reasons);
    }
    // The rest of an interrupted run or truncated recording is unknown.
    let partial = account.duration < account.asked;
    if partial && counted.released() == 0 && reasons.is_empty() {
        reasons.push(format!("no {what}job ended"));
        let sentence =
            format!("No verdict: no {what}job ended within {} of {}.", time(account.duration), time(account.asked));
        return RunVerdict { holds: false, sentence, reasons };
    }
    let holds = reasons.is_empty();
    let so_far = if partial { " so far" } else { "" };
    let sentence = match (holds, counted.released()) {
        (true, 0) => format!("Holds, but no {what}job ended in this time."),
        (true, released) => format!("Holds{so_far}: all {} {what}met their deadlines.", jobs(released)),
        (false, _) => format!("Does not hold: {}.", reasons.join("; ")),
    };
    // "all 3 jobs critical met" reads badly: the class stands before its noun.
    let sentence = sentence.replace(&format!(" jobs {what}met"), &format!(" {what}jobs met"));
    let sentence = sentence.replace(&format!(" job {what}met"), &format!(" {what}job met"));
    RunVerdict { holds, sentence, reasons }
}

/// Without operations: counted cycles of programs, and how programs ended.
fn of_programs(account: &ReportInput<'_>, mut reasons: Vec<String>) -> RunVerdict {
    let (mut met, mut missed) = (0, 0);
    for program in &account.programs {
        met += program.met.unwrap_or(0);
        missed += program.missed.unwrap_or(0);
    }
    if missed > 0 {
        reasons.push(format!("{} of {} cycles of programs were late", count(missed), count(met + missed)));
    }
    let holds = reasons.is_empty();
    let sentence = match (holds, met) {
        (true, 0) => "Holds, but no cycle of a program was judged in this time.".to_string(),
        (true, met) => format!("Holds: all {} cycles of programs were in time.", count(met)),
        (false, _) => format!("Does not hold: {}.", reasons.join("; ")),
    };
    RunVerdict { holds, sentence, reasons }
}
