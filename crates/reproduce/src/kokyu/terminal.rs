//! The experiment in a terminal: verdicts first, then tables beside the paper's figures.

use hyoshi_report::Look;
use hyoshi_report::figures::{count, nanos, percent, printable};
use hyoshi_report::terminal::grid::{Column, Tone, Value, column, grid};

use super::program::{LAST_FEASIBLE, REGIONS};
use super::tally::Counts;
use super::trial::Row;
use super::{Class, Reproduced};
use crate::claim::terminal::wrapped;

/// Requests are counted by the paper in samples; 7 s of them give its numbers.
const SAMPLE_NS: u64 = 7_000_000_000;

impl Reproduced {
    /// What was done.
    pub fn heading(&self, look: Look) -> String {
        let regions = format!("12 regions of {} in virtual time", nanos(self.figures.region_ns));
        let kernel = self
            .figures
            .kernel
            .as_ref()
            .map_or(String::new(), |kernel| format!(", of {} on the kernel", nanos(kernel.region_ns)));
        let about = look.quiet(&format!("{regions}{kernel}, seed {}", self.figures.seed));
        let mut text = format!("{}  {about}\n\n", look.bold("kokyu reproduced"));
        for note in self.notes() {
            text.push_str(&wrapped(look, "  note: ", &printable(&note)));
        }
        text
    }

    /// Tables beside the paper's figures 6 to 9.
    pub fn tables(&self, look: Look) -> String {
        let figures = &self.figures;
        let rows: Vec<Row> = figures.with_switching().cloned().collect();
        let mut text = String::new();
        let mut section = |title: &str, body: String| text.push_str(&format!("\n{}\n{body}", look.bold(title)));
        section(
            "Requests enqueued, per 7 s (figure 6: about 3,100 rising linearly to above 4,500)",
            by_region(look, &rows, |counts| {
                let sample = u128::from(counts.enqueued) * u128::from(SAMPLE_NS) / u128::from(figures.region_ns.max(1));
                Value::Count(sample as u64, Tone::Plain)
            }),
        );
        let classes: [(&str, Class); 2] =
            [("Critical", |counts| counts.critical), ("Non-critical", |counts| counts.non_critical)];
        for (name, class) in classes {
            let critical = name == "Critical";
            section(
                &format!("{name} deadlines made / missed / cancelled (figures 7 to 9)"),
                by_region(look, &rows, |counts| {
                    let one = class(counts);
                    let tone = if critical && one.missed > 0 { Tone::Bad } else { Tone::Plain };
                    let text = match (one.missed, one.cancelled) {
                        (0, 0) => count(one.made),
                        (missed, 0) => format!("{}/{}", count(one.made), count(missed)),
                        (missed, cancelled) => format!("{}/{}/{}", count(one.made), count(missed), count(cancelled)),
                    };
                    Value::Figure(text, tone)
                }),
            );
        }
        section("Load of the regions", self.loads(look));
        text
    }

    fn loads(&self, look: Look) -> String {
        let columns =
            [column("region"), column("added critical work"), column("legs"), column("declared"), column("on average")];
        let rows: Vec<Vec<Value>> = REGIONS
            .iter()
            .enumerate()
            .map(|(index, region)| {
                let (least, most) = region.added;
                let added = if region.jitters() { format!("{least} to {most}") } else { "none".into() };
                let ppm = |loads: &[u64]| loads.get(index).map_or(String::new(), |ppm| percent(*ppm));
                let tone = if index > LAST_FEASIBLE { Tone::Worry } else { Tone::Plain };
                vec![
                    Value::Count(index as u64, Tone::Plain),
                    Value::figure(added),
                    Value::Count(u64::from(region.legs), Tone::Plain),
                    Value::figure(ppm(&self.figures.declared_ppm)),
                    Value::Figure(ppm(&self.figures.mean_ppm), tone),
                ]
            })
            .collect();
        grid(look, &columns, &rows, usize::MAX)
    }
}

/// A row for each region, a column for each trial.
fn by_region(look: Look, rows: &[Row], of: impl Fn(&Counts) -> Value) -> String {
    const NAMES: [&str; 6] = ["RMS", "RMS ©", "MUF", "MUF ©", "RMS+MLF", "RMS+MLF ©"];
    let title = |row: &Row| {
        NAMES.into_iter().find(|name| *name == row.name()).unwrap_or(if row.cancel {
            "RMS⇄+MLF ©"
        } else {
            "RMS⇄+MLF"
        })
    };
    let columns: Vec<Column> =
        std::iter::once(column("region")).chain(rows.iter().map(|row| column(title(row)))).collect();
    let regions = rows.iter().map(|row| row.regions.len()).max().unwrap_or(0);
    let lines: Vec<Vec<Value>> = (0..regions)
        .map(|region| {
            let cell = |row: &Row| row.regions.get(region).map_or(Value::figure(""), &of);
            std::iter::once(Value::figure(region.to_string())).chain(rows.iter().map(cell)).collect()
        })
        .collect();
    grid(look, &columns, &lines, usize::MAX)
}
