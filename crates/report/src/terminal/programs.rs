//! The table of programs under the CPU broker.

use super::grid::{CellValue, Tone, column, grid};
use super::{MOST_ROWS, TerminalStyle};
use crate::figures::share;
use crate::summary::Summary;

impl Summary {
    pub(crate) fn program_table(&self, look: TerminalStyle) -> String {
        let columns = [
            column("program"),
            column("importance").spare(3),
            column("period"),
            column("requested"),
            column("reserved"),
            column("consumed"),
            column("unused").if_any().spare(4),
            column("periods").spare(1),
            column("in time").if_any(),
            column("late").if_any(),
            column("less than requested").if_any().spare(2),
            column("ended").if_any(),
            column("because").if_any(),
        ];
        let rows = self.programs.iter().map(|program| {
            let held = if program.cut > 0 { Tone::Worry } else { Tone::Plain };
            vec![
                CellValue::words(&program.name),
                CellValue::Count(program.importance.into(), Tone::Plain),
                CellValue::time(program.period_ns),
                CellValue::time(program.asked_ns),
                CellValue::time(program.held_ns).in_tone(held),
                CellValue::time(program.consumed_ns),
                CellValue::figure(program.over_ppm.map_or(String::new(), |over| share(over, 1_000_000))),
                CellValue::Count(program.periods, Tone::Plain),
                CellValue::Count(program.met.unwrap_or(0), Tone::Good),
                CellValue::Count(program.missed.unwrap_or(0), Tone::Worry),
                CellValue::Count(program.cut, Tone::Worry),
                CellValue::words(program.ended.clone().unwrap_or_default()),
                CellValue::words(&program.because),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }
}
