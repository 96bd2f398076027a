//! `hyoshi doctor`: what this machine grants, and what to do about each refusal.

use std::fmt::Write;

use hyoshi_model::printable_lines;
use hyoshi_os::doctor::{DoctorFinding, DoctorVerdict, probe};

use super::{Failure, Format, Held, colours, head, streams};

#[cfg(feature = "broker")]
mod broker;

pub(super) fn doctor(format: Format) -> Result<Held, Failure> {
    let findings = probe();
    #[cfg(feature = "broker")]
    let findings: Vec<DoctorFinding> = findings.into_iter().chain([broker::finding()]).collect();
    let holds = findings.iter().all(|finding| finding.verdict != DoctorVerdict::Refused);
    match format {
        Format::Text => streams::out(text(&findings, colours(&std::io::stdout())))?,
        Format::Json => {
            let object = serde_json::json!({ "hyoshi": head("doctor"), "holds": holds, "findings": findings });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(Held::when(holds))
}

/// One finding a line; what follows and what to do below those that are not as a run wishes.
fn text(findings: &[DoctorFinding], colours: bool) -> String {
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (word, colour) = match finding.verdict {
            DoctorVerdict::Granted => ("granted ", "32"),
            DoctorVerdict::Degraded => ("degraded", "33"),
            DoctorVerdict::Refused => ("refused ", "31"),
            DoctorVerdict::Info => ("        ", "0"),
        };
        let word = if colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() };
        let more = matches!(finding.verdict, DoctorVerdict::Degraded | DoctorVerdict::Refused);
        let indent = width + 12;
        let below = |text: &str, by: usize| printable_lines(text).replace('\n', &format!("\n{:by$}", ""));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{word}  {:width$}  {}", finding.topic, below(&finding.found, indent));
        if more {
            let _ = writeln!(text, "{:indent$}{}", "", below(&finding.consequence, indent));
        }
        if let (true, Some(remedy)) = (more, &finding.remedy) {
            let _ = writeln!(text, "{:indent$}-> {}", "", below(remedy, indent + 3));
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let _ = match (count(DoctorVerdict::Refused), count(DoctorVerdict::Degraded)) {
        (0, 0) => writeln!(text, "\nEverything a run wishes for is granted."),
        (0, degraded) => writeln!(text, "\nNothing is refused; {degraded} less than a run wishes for."),
        (refused, _) => writeln!(text, "\n{refused} refused: a run goes on without; with --strict it does not start."),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_shows_its_remedy_and_a_grant_does_not() {
        let finding = |topic, verdict| DoctorFinding {
            topic,
            found: "found".into(),
            verdict,
            consequence: "follows".into(),
            remedy: Some("sudo something".into()),
        };
        let text = text(&[finding("good", DoctorVerdict::Granted), finding("bad", DoctorVerdict::Refused)], false);
        assert_eq!(text.matches("-> sudo something").count(), 1);
        assert!(text.ends_with("1 refused: a run goes on without; with --strict it does not start.\n"), "{text}");
    }
}
