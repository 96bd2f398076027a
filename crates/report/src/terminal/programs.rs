//! The table of programs under the CPU broker.

use super::grid::{Tone, Value, column, grid};
use super::{Look, MOST_ROWS};
use crate::figures::share;
use crate::summary::Summary;

impl Summary {
    pub(crate) fn program_table(&self, look: Look) -> String {
        let columns = [
            column("program"),
            column("importance").spare(3),
            column("period"),
            column("asked"),
            column("held"),
            column("consumed"),
            column("unused").if_any().spare(4),
            column("periods").spare(1),
            column("in time").if_any(),
            column("late").if_any(),
            column("less than asked").if_any().spare(2),
            column("ended").if_any(),
            column("because").if_any(),
        ];
        let rows = self.programs.iter().map(|program| {
            let held = if program.cut > 0 { Tone::Worry } else { Tone::Plain };
            vec![
                Value::words(&program.name),
                Value::Count(program.importance.into(), Tone::Plain),
                Value::time(program.period_ns),
                Value::time(program.asked_ns),
                Value::time(program.held_ns).in_tone(held),
                Value::time(program.consumed_ns),
                Value::figure(program.over_ppm.map_or(String::new(), |over| share(over, 1_000_000))),
                Value::Count(program.periods, Tone::Plain),
                Value::Count(program.met.unwrap_or(0), Tone::Good),
                Value::Count(program.missed.unwrap_or(0), Tone::Worry),
                Value::Count(program.cut, Tone::Worry),
                Value::words(program.ended.clone().unwrap_or_default()),
                Value::words(&program.because),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }
}
