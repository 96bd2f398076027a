//! The table of the use of each processor's time.

use super::TerminalStyle;
use super::grid::{CellValue, column, grid};
use crate::figures::{count, nanos, share};
use crate::summary::{ProcessorSummary, Summary};
use crate::time::TimeSummary;

impl Summary {
    /// `None` if the table would only repeat the processors' utilisation.
    pub(crate) fn time_table(&self, look: TerminalStyle, most: usize) -> Option<String> {
        let columns = [
            column("processor"),
            column("jobs"),
            column("scheduling"),
            column("held").if_any(),
            column("other threads").if_any(),
            column("idle").if_any(),
            column("idle or other").if_any(),
            column("preempted").if_any().spare(5),
            column("mainly").if_any().spare(6),
        ];
        let known = |processor: &ProcessorSummary| processor.time.clone().filter(TimeSummary::has_details);
        let rows: Vec<_> = self
            .processors
            .iter()
            .filter_map(|processor| Some((processor, known(processor)?)))
            .map(|(processor, time)| {
                let of = |part: u64| match part {
                    0 => String::new(),
                    part => share(part, self.duration_ns),
                };
                let most = time.threads.first().filter(|_| time.others_ns > 0);
                let most = most.map_or(String::new(), |thread| format!("{} {}", thread.name, nanos(thread.had_ns)));
                vec![
                    CellValue::words(&processor.name),
                    CellValue::figure(share(time.execution_ns, self.duration_ns)),
                    CellValue::figure(share(time.overhead_ns, self.duration_ns)),
                    CellValue::figure(of(time.held_ns)),
                    CellValue::figure(of(time.others_ns)),
                    CellValue::figure(of(time.idle_ns)),
                    CellValue::figure(of(time.unknown_ns)),
                    CellValue::figure(if time.preemptions > 0 { count(time.preemptions) } else { String::new() }),
                    CellValue::words(most),
                ]
            })
            .collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, most))
    }
}
