//! The table of chains by stage.

use super::grid::{CellValue, column, grid};
use super::{MOST_ROWS, TerminalStyle, bound, response};
use crate::summary::Summary;

/// The row of a stage's end.
pub(crate) const END: &str = "ends by";

impl Summary {
    /// For each stage, a row for each part and a row for its end; `None` if no chain has several measured stages.
    pub(super) fn stage_table(&self, look: TerminalStyle) -> Option<String> {
        let columns = [
            column("chain").if_any(),
            column("operation"),
            column("part"),
            column("p50"),
            column("p99"),
            column("max"),
            column("bound").if_any(),
        ];
        let mut rows = Vec::new();
        let several = self.chains.iter().filter(|chain| !chain.stages.is_empty()).count() > 1;
        for chain in &self.chains {
            let mut name = if several { chain.name.as_str() } else { "" };
            for stage in &chain.stages {
                let mut operation = stage.operation.as_str();
                let parts = stage.parts.iter().map(|part| (part.part, &part.time, CellValue::figure("")));
                for (part, time, bound) in parts.chain([(END, &stage.by, bound(&stage.by_bound))]) {
                    let mut row = vec![name, operation, part].into_iter().map(CellValue::words).collect::<Vec<_>>();
                    row.extend(response(Some(time)));
                    row.push(bound);
                    rows.push(row);
                    (name, operation) = ("", "");
                }
            }
        }
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }
}
