//! The file of measured costs, which `hyoshi calibrate` writes and `--costs FILE` reads.
//!
//! It must contain all six costs, so a truncated file is rejected instead of describing a cheaper machine.

use std::fmt::Write;
use std::path::Path;

use super::diagnostic::{Diagnostic, FileErrors};
use super::log::{Log, Place};
use super::table::Table;
use super::value::InputValue;
use super::{input, limits, machines, parse};
use crate::costs::Costs;

/// The costs of scheduling on some machine, and how they were measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredCosts {
    /// The costs, all six.
    pub costs: Costs,
    /// When they were measured: `2026-11-21`; empty if the file has no date, as are the others.
    pub date: String,
    /// The kernel, as `uname` names it.
    pub kernel: String,
    /// The model of the CPU.
    pub cpu: String,
    /// Whether the threads had real-time priority; without it the figures are too low or too high.
    pub real_time: Option<bool>,
    /// How they were measured, in one line.
    pub how: String,
}

/// Reads a file of costs.
pub fn read_costs_file(path: impl AsRef<Path>) -> Result<MeasuredCosts, FileErrors> {
    let path = path.as_ref();
    match input::read_text(path, limits::COSTS_BYTES) {
        Ok(text) => read_costs(&text, &path.display().to_string()),
        Err(error) => Err(FileErrors { errors: vec![Diagnostic::from(&error)], more: 0, warnings: Vec::new() }),
    }
}

/// Reads costs from the text of such a file. Messages call it `file`.
pub fn read_costs(text: &str, file: &str) -> Result<MeasuredCosts, FileErrors> {
    let mut log = Log::default();
    let measured = parse(&mut log, text).and_then(|tree| {
        let top = Table::open(&mut log, "calibration", "", Place::default(), &tree)?;
        if top.get("costs").is_none() {
            log.error(Place::default(), "the file has no [costs]")
                .help("`hyoshi calibrate` writes one; the [costs] of a system file need no flag");
        }
        let costs = machines::costs(&mut log, &top);
        let section = top.inner(&mut log, "measured");
        let mut text = |key| {
            let found = section.as_ref().and_then(|section| section.read(&mut log, key, InputValue::text));
            found.map_or(String::new(), |found| found.value.to_string())
        };
        let (date, kernel, cpu, how) = (text("date"), text("kernel"), text("cpu"), text("how"));
        let real_time = section.as_ref().and_then(|section| section.given(&mut log, "real_time", InputValue::truth));
        Some(MeasuredCosts { costs: costs?, date, kernel, cpu, real_time: real_time.map(|found| found.value), how })
    });
    match (log.finish(file, text), measured) {
        (Ok(_), Some(measured)) => Ok(measured),
        (Err(errors), _) => Err(errors),
        (Ok(warnings), None) => {
            let error = Diagnostic::of_file(file, "the costs could not be read".to_string(), None);
            Err(FileErrors { errors: vec![error], more: 0, warnings })
        }
    }
}

impl MeasuredCosts {
    /// The file, in the form that [`read_costs`] reads.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(
            "# The costs of scheduling on this machine, for `hyoshi check` and `hyoshi sim`.\n# Written by `hyoshi \
                calibrate`; docs/calibrating.md explains each cost.\n\n[measured]\n",
        );
        let origin = [("date", &self.date), ("kernel", &self.kernel), ("cpu", &self.cpu), ("how", &self.how)];
        for (key, value) in origin.into_iter().filter(|(_, value)| !value.is_empty()) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{key:<9} = \"{}\"", plain(value));
        }
        if let Some(real_time) = self.real_time {
            let _ = writeln!(text, "real_time = {real_time}");
        }
        text += "\n[costs]\n";
        for (name, span) in self.costs.named() {
            let _ = writeln!(text, "{name:<9} = \"{span}\"");
        }
        text
    }
}

/// The text, safe between quotes.
fn plain(text: &str) -> String {
    let known = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    known.flat_map(|c| ['\\'].into_iter().filter(move |_| matches!(c, '"' | '\\')).chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Span;

    fn measured() -> MeasuredCosts {
        let us = Span::from_nanos;
        MeasuredCosts {
            costs: Costs {
                timer: us(9_832),
                enqueue: us(220),
                dequeue: us(1_041),
                cancel: us(51),
                switch: us(2_100),
                watchdog: us(14_000),
            },
            date: "2026-11-21".into(),
            kernel: "Linux 6.18".into(),
            cpu: "A \"CPU\" \\ at 3 GHz".into(),
            real_time: Some(true),
            how: "the largest".into(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let written = measured().to_toml();
        let read = read_costs(&written, "costs.toml").unwrap_or_else(|errors| panic!("{errors}\n{written}"));
        assert_eq!(read, measured());
    }

    #[test]
    fn a_file_cut_anywhere_within_its_costs_is_refused() {
        let written = measured().to_toml();
        let whole = written.trim_end().len();
        for end in (0..whole).filter(|end| written.is_char_boundary(*end)) {
            let errors = read_costs(&written[..end], "costs.toml").expect_err(&written[..end]);
            assert!(!errors.to_string().is_empty());
        }
    }

    #[test]
    fn what_no_scheduling_costs_is_refused_with_its_line() {
        let absurd = measured().to_toml().replace("9.832us", "1h");
        let errors = read_costs(&absurd, "costs.toml").unwrap_err().to_string();
        assert!(errors.contains("`timer` is above 100ms") && errors.contains("^^^^"), "{errors}");
        let unknown = measured().to_toml().replace("dequeue", "dequeued");
        let errors = read_costs(&unknown, "costs.toml").unwrap_err().to_string();
        assert!(errors.contains("did you mean `dequeue`?"), "{errors}");
        let none = read_costs("", "costs.toml").unwrap_err().to_string();
        assert!(none.contains("no [costs]"), "{none}");
    }
}
