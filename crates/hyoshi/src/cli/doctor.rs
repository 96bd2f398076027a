//! `hyoshi doctor`: what this machine grants, and what to do about each refusal.

use std::fmt::Write;

use hyoshi_broker::kernel::Way;
use hyoshi_broker::machine::ways;
use hyoshi_model::printable_lines;
use hyoshi_os::cgroup::{CpuGroup, Version};
use hyoshi_os::doctor::{Finding, Verdict, probe};
use hyoshi_os::meter::{Meter, Source};
use hyoshi_os::process::Process;

use super::{Failure, Format, Held, colours, head, streams};

pub(super) fn doctor(format: Format) -> Result<Held, Failure> {
    let mut findings = probe();
    findings.push(broker());
    let holds = findings.iter().all(|finding| finding.verdict != Verdict::Refused);
    match format {
        Format::Text => streams::out(text(&findings, colours(&std::io::stdout())))?,
        Format::Json => {
            let object = serde_json::json!({ "hyoshi": head("doctor"), "holds": holds, "findings": findings });
            streams::out(format_args!("{object:#}\n"))?;
        }
    }
    Ok(Held::when(holds))
}

/// What the CPU broker could do here.
fn broker() -> Finding {
    let mut meter = Meter::new();
    if let Ok(own) = Process::open(std::process::id()) {
        meter.add(&own, false);
    }
    judge_broker(&ways(), meter.source(), CpuGroup::of_this_process().version)
}

fn judge_broker(ways: &[Way], meter: Source, groups: Option<Version>) -> Finding {
    // What reserves nothing can always be had.
    let reserves = |way: &&Way| way.usable && !["none", "simulated"].contains(&way.name);
    let usable: Vec<_> = ways.iter().filter(reserves).map(|way| way.name).collect();
    let usable = if usable.is_empty() { "nothing to reserve with".to_owned() } else { usable.join(", ") };
    let meter = match meter {
        Source::TaskClock => "metered by the task clock",
        Source::CpuClock => "metered by CPU clocks, a tick behind",
    };
    let groups = match groups {
        Some(Version::One) => "control groups version 1",
        Some(Version::Two) => "control groups version 2",
        None => "no control groups",
    };
    let found = format!("{usable}; {meter}; {groups}");
    let finding = |verdict, consequence, remedy| Finding { topic: "CPU broker", found, verdict, consequence, remedy };
    let window = ways.iter().find(|way| way.name == "window");
    match ways.iter().find(|way| way.used) {
        Some(used) if used.name == "window" => {
            finding(Verdict::Granted, format!("`hyoshi broker` uses {}: {}", used.name, used.why), None)
        }
        used => {
            let used = used.map_or_else(String::new, |used| format!("it uses {}: {}; ", used.name, used.why));
            let why = window.map_or("", |window| window.why.as_str());
            let remedy = "run it as root, or raise RLIMIT_RTPRIO to 39 for its user".to_owned();
            finding(Verdict::Degraded, format!("{used}windows are not to be had: {why}"), Some(remedy))
        }
    }
}

/// One finding a line; what follows and what to do below those that are not as a run wishes.
fn text(findings: &[Finding], colours: bool) -> String {
    let width = findings.iter().map(|finding| finding.topic.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let (word, colour) = match finding.verdict {
            Verdict::Granted => ("granted ", "32"),
            Verdict::Degraded => ("degraded", "33"),
            Verdict::Refused => ("refused ", "31"),
            Verdict::Info => ("        ", "0"),
        };
        let word = if colours { format!("\x1b[{colour}m{word}\x1b[0m") } else { word.to_owned() };
        let more = matches!(finding.verdict, Verdict::Degraded | Verdict::Refused);
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
    let _ = match (count(Verdict::Refused), count(Verdict::Degraded)) {
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
    fn what_the_broker_could_do_is_told_and_what_it_lacks() {
        let way = |name, usable, used| Way { name, usable, used, why: format!("why {name}") };
        let all = [way("window", true, true), way("weights", true, false), way("none", true, false)];
        let finding = judge_broker(&all, Source::TaskClock, Some(Version::Two));
        assert_eq!(finding.found, "window, weights; metered by the task clock; control groups version 2");
        assert_eq!((finding.verdict, finding.remedy), (Verdict::Granted, None));
        let some = [way("window", false, false), way("weights", false, false), way("none", true, true)];
        let finding = judge_broker(&some, Source::CpuClock, None);
        assert_eq!(finding.found, "nothing to reserve with; metered by CPU clocks, a tick behind; no control groups");
        assert_eq!(finding.consequence, "it uses none: why none; windows are not to be had: why window");
        assert!(finding.verdict == Verdict::Degraded && finding.remedy.is_some());
    }

    #[test]
    fn a_refusal_shows_its_remedy_and_a_grant_does_not() {
        let finding = |topic, verdict| Finding {
            topic,
            found: "found".into(),
            verdict,
            consequence: "follows".into(),
            remedy: Some("sudo something".into()),
        };
        let text = text(&[finding("good", Verdict::Granted), finding("bad", Verdict::Refused)], false);
        assert_eq!(text.matches("-> sudo something").count(), 1);
        assert!(text.ends_with("1 refused: a run goes on without; with --strict it does not start.\n"), "{text}");
    }
}
