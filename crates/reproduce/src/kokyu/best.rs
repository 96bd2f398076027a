//! The most effective strategy of a region (the paper's figure 12).

use super::trial::TrialRow;

/// Of the trials without a critical miss in a region: those that made the most non-critical deadlines there, and the
/// number.
pub fn best(rows: &[TrialRow], region: usize) -> Option<(Vec<String>, u64)> {
    let safe = || {
        let counts = rows.iter().filter_map(|row| Some((row, row.regions.get(region)?)));
        counts.filter(|(_, counts)| counts.critical.missed == 0)
    };
    let most = safe().map(|(_, counts)| counts.non_critical.made).max()?;
    let names = safe().filter(|(_, counts)| counts.non_critical.made == most).map(|(row, _)| row.name());
    Some((names.collect(), most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kokyu::tally::{Deadlines, RegionCounts};

    fn row(strategy: &str, critical_missed: u64, made: u64) -> TrialRow {
        let critical = Deadlines { missed: critical_missed, ..Deadlines::default() };
        let non_critical = Deadlines { made, ..Deadlines::default() };
        TrialRow {
            strategy: strategy.into(),
            cancel: false,
            regions: vec![RegionCounts { critical, non_critical, ..RegionCounts::default() }],
        }
    }

    #[test]
    fn a_strategy_that_misses_a_critical_deadline_is_not_the_best() {
        let rows = [row("RMS", 1, 100), row("MUF", 0, 70), row("RMS+MLF", 0, 70)];
        assert_eq!(best(&rows, 0), Some((vec!["MUF".into(), "RMS+MLF".into()], 70)));
        assert_eq!(best(&rows[..1], 0), None);
        assert_eq!(best(&rows, 1), None);
    }
}
