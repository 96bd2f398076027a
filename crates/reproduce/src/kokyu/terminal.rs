//! The experiment in a terminal: verdicts first, then tables with the paper's figures.

use hyoshi_report::TerminalStyle;
use hyoshi_report::figures::{count, nanos, percent, printable};
use hyoshi_report::terminal::grid::{CellValue, Column, Tone, column, grid};

use super::links::LinkRow;
use super::program::{LAST_FEASIBLE, REGIONS};
use super::tally::RegionCounts;
use super::trial::TrialRow;
use super::{Class, Reproduced, links};
use crate::claim::terminal::wrapped;

/// The paper counts requests in samples; 7 s reproduce its numbers.
const SAMPLE_NS: u64 = 7_000_000_000;

impl Reproduced {
    /// The heading and the notes.
    pub fn heading(&self, style: TerminalStyle) -> String {
        let regions = format!("12 regions of {} in virtual time", nanos(self.figures.region_ns));
        let kernel = self
            .figures
            .kernel
            .as_ref()
            .map_or(String::new(), |kernel| format!(", of {} on the kernel", nanos(kernel.region_ns)));
        let about = style.quiet(&format!("{regions}{kernel}, seed {}", self.figures.seed));
        let mut text = format!("{}  {about}\n\n", style.bold("kokyu reproduced"));
        for note in self.notes() {
            text.push_str(&wrapped(style, "  note: ", &printable(&note)));
        }
        text
    }

    /// The tables for the paper's figures 6 to 9.
    pub fn tables(&self, style: TerminalStyle) -> String {
        let figures = &self.figures;
        let rows: Vec<TrialRow> = figures.with_switching().cloned().collect();
        let mut text = String::new();
        let mut section = |title: &str, body: String| text.push_str(&format!("\n{}\n{body}", style.bold(title)));
        section(
            "Requests enqueued, per 7 s (figure 6: about 3,100 rising linearly to above 4,500)",
            by_region(style, &rows, |counts| {
                let sample = u128::from(counts.enqueued) * u128::from(SAMPLE_NS) / u128::from(figures.region_ns.max(1));
                CellValue::Count(sample as u64, Tone::Plain)
            }),
        );
        let classes: [(&str, Class); 2] =
            [("Critical", |counts| counts.critical), ("Non-critical", |counts| counts.non_critical)];
        for (name, class) in classes {
            let critical = name == "Critical";
            section(
                &format!("{name} deadlines made / missed / cancelled (figures 7 to 9)"),
                by_region(style, &rows, |counts| {
                    let one = class(counts);
                    let tone = if critical && one.missed > 0 { Tone::Bad } else { Tone::Plain };
                    let text = match (one.missed, one.cancelled) {
                        (0, 0) => count(one.made),
                        (missed, 0) => format!("{}/{}", count(one.made), count(missed)),
                        (missed, cancelled) => format!("{}/{}/{}", count(one.made), count(missed), count(cancelled)),
                    };
                    CellValue::Figure(text, tone)
                }),
            );
        }
        section("Load of the regions", self.loads(style));
        section(
            "Links: missed deadlines (critical/non-critical)",
            self.links(style, |row| {
                CellValue::Figure(row.missed(), if row.critical.missed > 0 { Tone::Bad } else { Tone::Plain })
            }),
        );
        section(
            "Links: 99 % quantile of the critical round trip (deadline 100ms)",
            self.links(style, |row| CellValue::time(row.p99_ns(links::ROUND_TRIP))),
        );
        for sentence in links::sentences(&figures.links) {
            text.push_str(&wrapped(style, "  ", &sentence));
        }
        text
    }

    /// A row for each load, guard, and least or greatest delay and jitter; a column for each strategy.
    fn links(&self, style: TerminalStyle, of: impl Fn(&LinkRow) -> CellValue) -> String {
        let named = ["load", "guard", "delay", "jitter"].into_iter().chain(links::STRATEGIES);
        let columns: Vec<Column> = named.map(column).collect();
        let is_shown = |row: &LinkRow| [row.delay_ns, row.jitter_ns].iter().all(|ns| ns % 20_000_000 == 0);
        let rows = links::points(&self.figures.links).filter_map(|point| {
            let first = point.first().filter(|first| is_shown(first))?;
            let place = [
                CellValue::figure(percent(first.load_ppm)),
                CellValue::words(if first.guarded { "on" } else { "off" }),
                CellValue::time(first.delay_ns),
                CellValue::time(first.jitter_ns),
            ];
            Some(place.into_iter().chain(point.iter().map(&of)).collect())
        });
        grid(style, &columns, &rows.collect::<Vec<Vec<CellValue>>>(), usize::MAX)
    }

    fn loads(&self, style: TerminalStyle) -> String {
        let columns =
            [column("region"), column("added critical work"), column("legs"), column("declared"), column("on average")];
        let rows: Vec<Vec<CellValue>> = REGIONS
            .iter()
            .enumerate()
            .map(|(index, region)| {
                let (least, most) = region.added;
                let added = if region.jitters() { format!("{least} to {most}") } else { "none".into() };
                let ppm = |loads: &[u64]| loads.get(index).map_or(String::new(), |ppm| percent(*ppm));
                let tone = if index > LAST_FEASIBLE { Tone::Worry } else { Tone::Plain };
                vec![
                    CellValue::Count(index as u64, Tone::Plain),
                    CellValue::figure(added),
                    CellValue::Count(u64::from(region.legs), Tone::Plain),
                    CellValue::figure(ppm(&self.figures.declared_ppm)),
                    CellValue::Figure(ppm(&self.figures.mean_ppm), tone),
                ]
            })
            .collect();
        grid(style, &columns, &rows, usize::MAX)
    }
}

/// A row for each region, a column for each trial.
fn by_region(style: TerminalStyle, rows: &[TrialRow], of: impl Fn(&RegionCounts) -> CellValue) -> String {
    const NAMES: [&str; 6] = ["RMS", "RMS ©", "MUF", "MUF ©", "RMS+MLF", "RMS+MLF ©"];
    let title = |row: &TrialRow| {
        NAMES.into_iter().find(|name| *name == row.name()).unwrap_or(if row.cancel {
            "RMS⇄+MLF ©"
        } else {
            "RMS⇄+MLF"
        })
    };
    let columns: Vec<Column> =
        std::iter::once(column("region")).chain(rows.iter().map(|row| column(title(row)))).collect();
    let regions = rows.iter().map(|row| row.regions.len()).max().unwrap_or(0);
    let lines: Vec<Vec<CellValue>> = (0..regions)
        .map(|region| {
            let cell = |row: &TrialRow| row.regions.get(region).map_or(CellValue::figure(""), &of);
            std::iter::once(CellValue::figure(region.to_string())).chain(rows.iter().map(cell)).collect()
        })
        .collect();
    grid(style, &columns, &lines, usize::MAX)
}
