//! `hyoshi calibrate`: measures scheduling costs on this machine.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use hyoshi_model::MeasuredCosts;
use hyoshi_report::{TerminalStyle, save};
use hyoshi_runtime::{Calibration, RunNote};
use serde_json::{Value, json};

use super::output::{cannot_write, try_out, unix_now};
use super::progress::ProgressLine;
use super::{CliError, Format, VerbOutcome, costs, head, streams};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Where to store the costs, instead of where `check` and `sim` find them
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn calibrate(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    let path = match &arguments.output {
        Some(path) => path.clone(),
        None => {
            let path = costs::default_path().ok_or_else(|| {
                CliError::new("no directory for the costs: neither XDG_CONFIG_HOME nor HOME is an absolute path")
                    .help("name a file: `hyoshi calibrate --output costs.toml`")
            })?;
            let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
            folder.map_err(|error| cannot_write("the costs", &path, &error).help(NAME_ONE))?;
            path
        }
    };
    // Checked before ten seconds of measuring.
    try_out("the costs", &path, "")?;
    let mut progress = ProgressLine::new(format);
    let calibration = Calibration::measure(|what, percent| progress.step(&format!("measuring {what} ({percent} %)")));
    progress.clear();
    let calibration = calibration.map_err(|error| {
        CliError::new(error).help("try again with less load on this machine; `hyoshi doctor` lists what it permits")
    })?;
    let measured = MeasuredCosts {
        costs: calibration.high(),
        date: date(unix_now() / 1_000_000_000),
        kernel: hyoshi_os::machine::kernel(),
        cpu: hyoshi_os::machine::cpu_model(),
        real_time: Some(calibration.real_time),
        how: HOW.into(),
    };
    let text = measured.to_toml();
    save(&path, &text).map_err(|error| cannot_write("the costs", &error.path, &error.source))?;
    match format {
        Format::Text => {
            let text = format!("{}\nstored: {}\n", table(&calibration, &measured), path.display());
            streams::out(TerminalStyle::of_stdout().wrap(&text))?;
        }
        Format::Json => {
            streams::out(format_args!("{:#}\n", object(&calibration, &measured, &path.display().to_string())))?
        }
    }
    Ok(VerbOutcome::Success)
}

const NAME_ONE: &str = "name a file that you may write to: `hyoshi calibrate --output costs.toml`";

/// The method in one line; docs/calibrating.md has more.
const HOW: &str = "p99.9 of each (the maximum below 1000 samples), from the gaps of a lane that only reads the clock; \
                   the longest gaps are left out, up to the time that a hypervisor used";

/// The meaning of each cost in the table.
const MEANINGS: [(&str, &str); 6] = [
    ("timer", "a release timer expires: interrupt, release thread, next timer"),
    ("enqueue", "a job enters its queue"),
    ("dequeue", "a lane completes a job and dequeues the next"),
    ("cancel", "a job is found late and cancelled"),
    ("switch", "the CPU switches from one lane to another"),
    ("watchdog", "one check, every 50 ms"),
];

fn table(calibration: &Calibration, measured: &MeasuredCosts) -> String {
    let mut text = format!(
        "costs on CPU {}  {}, {}\n\n  {:<9} {:>9} {:>9} {:>9} {:>7}\n",
        calibration.cpu, measured.cpu, measured.kernel, "", "median", "p99", "stored", "seen"
    );
    for ((name, figures), (_, meaning)) in calibration.costs.iter().zip(MEANINGS) {
        let [median, p99, high] = [figures.median, figures.p99, figures.high].map(costs::short);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name:<9} {median:>9} {p99:>9} {high:>9} {:>7}  {meaning}", figures.count);
    }
    text += "\nThe stored value is p99.9, or the maximum below 1000 samples; `check` and `sim` use it.\n";
    let (gaps, stolen) = calibration.stolen;
    if gaps > 0 {
        let _ = writeln!(
            text,
            "Left out: the {gaps} longest gaps, {stolen} in total, because a hypervisor used the CPU for as long."
        );
    }
    if !calibration.real_time {
        text += "Measured without real-time priority: other programs interrupted, so do not use these figures for \
                 proofs. `hyoshi doctor` shows the reason and a remedy.\n";
    }
    for note in printed_notes(calibration) {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}

fn printed_notes(calibration: &Calibration) -> impl Iterator<Item = &RunNote> {
    calibration.notes.iter().filter(|note| matches!(note, RunNote::Refused { .. } | RunNote::LateRelease { .. }))
}

fn object(calibration: &Calibration, measured: &MeasuredCosts, path: &str) -> Value {
    let each = calibration.costs.iter().map(|(name, figures)| {
        let figures = json!({
            "count": figures.count, "median_ns": figures.median.as_nanos(), "p99_ns": figures.p99.as_nanos(),
            "stored_ns": figures.high.as_nanos(),
        });
        ((*name).to_owned(), figures)
    });
    let notes: Vec<String> = printed_notes(calibration).map(RunNote::to_string).collect();
    json!({
        "hyoshi": head("calibrate"), "stored": path, "real_time": calibration.real_time, "date": measured.date,
        "kernel": measured.kernel, "cpu": measured.cpu, "how": measured.how, "left_out": calibration.stolen.0,
        "stolen_ns": calibration.stolen.1.as_nanos(), "costs": Value::Object(each.collect()), "notes": notes,
    })
}

/// The day, in UTC, of a second since 1970: civil-from-days of Howard Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms".
fn date(unix_seconds: u64) -> String {
    let days = unix_seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{}-{month:02}-{day:02}", year + era * 400 + next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_since_1970_are_a_day_of_the_calendar() {
        let day = |days: u64| date(days * 86_400 + 86_399);
        assert_eq!([day(0), day(59), day(365)], ["1970-01-01", "1970-03-01", "1971-01-01"]);
        assert_eq!(
            [date(951_782_400), date(1_709_164_800), date(4_107_542_400)],
            ["2000-02-29", "2024-02-29", "2100-03-01"]
        );
    }

    #[test]
    fn each_cost_has_its_meaning() {
        let named = hyoshi_model::Costs::NONE.named();
        assert!(named.iter().zip(MEANINGS).all(|((name, _), (meant, _))| *name == meant));
    }
}
