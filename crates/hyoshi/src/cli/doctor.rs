//! `hyoshi doctor`: lists what this machine permits, with a remedy for each refusal.

use std::fmt::Write;

use hyoshi_model::printable_lines;
use hyoshi_os::doctor::{DoctorFinding, DoctorVerdict, probe};
use hyoshi_report::TerminalStyle;
use hyoshi_report::terminal::grid::Tone;

use super::{CliError, Format, VerbOutcome, head, streams};

#[cfg(feature = "broker")]
mod broker;
#[cfg(feature = "orb")]
mod network;

pub(super) fn doctor(format: Format) -> Result<VerbOutcome, CliError> {
    let findings = probe();
    #[cfg(feature = "broker")]
    let findings: Vec<DoctorFinding> = findings.into_iter().chain([broker::finding()]).collect();
    #[cfg(feature = "orb")]
    let findings: Vec<DoctorFinding> = findings.into_iter().chain([network::finding()]).collect();
    let holds = findings.iter().all(|finding| finding.verdict != DoctorVerdict::Refused);
    match format {
        Format::Text => streams::out(text(&findings, TerminalStyle::of_stdout()))?,
        Format::Json => {
            let object = serde_json::json!({ "hyoshi": head("doctor"), "holds": holds, "findings": findings });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(VerbOutcome::of(holds))
}

/// A line for each finding; below those that are degraded or refused the consequence and a remedy.
fn text(findings: &[DoctorFinding], look: TerminalStyle) -> String {
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    let indent = width + 12;
    let mut text = String::new();
    let mut add = |first: &str, indent: usize, paragraph: &str| {
        for (number, line) in printable_lines(paragraph).lines().enumerate() {
            let line = if number == 0 { format!("{first}{line}\n") } else { format!("{:indent$}{line}\n", "") };
            text.push_str(&look.wrap(&line));
        }
    };
    for finding in findings {
        let word = match finding.verdict {
            DoctorVerdict::Granted => look.in_tone("granted ", Tone::Good),
            DoctorVerdict::Degraded => look.in_tone("degraded", Tone::Worry),
            DoctorVerdict::Refused => look.in_tone("refused ", Tone::Bad),
            DoctorVerdict::Info => "        ".to_owned(),
        };
        add(&format!("{word}  {:width$}  ", finding.topic), indent, &finding.found);
        if matches!(finding.verdict, DoctorVerdict::Degraded | DoctorVerdict::Refused) {
            add(&format!("{:indent$}", ""), indent, &finding.consequence);
            if let Some(remedy) = &finding.remedy {
                add(&format!("{:indent$}-> ", ""), indent + 3, remedy);
            }
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    // Writing to a String cannot fail.
    let _ = match (count(DoctorVerdict::Refused), count(DoctorVerdict::Degraded)) {
        (0, 0) => writeln!(text, "\nEverything that a run needs is granted."),
        (0, degraded) => writeln!(text, "\nNothing is refused; {degraded} degraded."),
        (refused, _) => {
            writeln!(text, "\n{refused} refused: a run continues without; with --strict it does not start.")
        }
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
        let text = text(
            &[finding("good", DoctorVerdict::Granted), finding("bad", DoctorVerdict::Refused)],
            TerminalStyle::PLAIN,
        );
        assert_eq!(text.matches("-> sudo something").count(), 1);
        assert!(text.ends_with("1 refused: a run continues without; with --strict it does not start.\n"), "{text}");
    }
}
