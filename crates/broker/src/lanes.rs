//! CPU time that lanes above the windows use, for the reasons of refused reservations.

use std::collections::BTreeMap;

use hyoshi_control::window::placement::{CpuPromise, NoRoom};
use hyoshi_model::Share;

use crate::platform::{CpuLanes, NotReserved};

/// Number of CPUs in a reason.
const MOST_CPUS: usize = 4;

/// The share and its description, by CPU.
#[derive(Debug, Default)]
pub(crate) struct LaneUsage(BTreeMap<u32, (Share, String)>);

impl LaneUsage {
    pub fn note(&mut self, cpu: u32, lanes: &CpuLanes) {
        let takes = lanes.promises.iter().map(CpuPromise::share).sum();
        match lanes.text.is_empty() {
            true => self.0.remove(&cpu),
            false => self.0.insert(cpu, (takes, lanes.text.clone())),
        };
    }

    /// Why there is no room on these CPUs; an empty slice means all CPUs.
    pub fn refused(&self, refused: &NoRoom, cpus: &[u32]) -> NotReserved {
        let here = self.0.iter().filter(|(cpu, _)| cpus.is_empty() || cpus.contains(cpu));
        let mut above: Vec<(Share, &str)> = here.map(|(_, (takes, words))| (*takes, words.as_str())).collect();
        above.sort_by_key(|(takes, _)| std::cmp::Reverse(*takes));
        let more = if above.len() > MOST_CPUS { ", ..." } else { "" };
        let above: Vec<&str> = above.into_iter().take(MOST_CPUS).map(|(_, words)| words).collect();
        let reason = match above.is_empty() {
            true => refused.to_string(),
            false => format!("{refused}; above all windows: {}{more}", above.join(", ")),
        };
        NotReserved { most: refused.most, reason }
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::{Reservation, Span};

    use super::*;

    #[test]
    fn of_the_cpus_where_a_task_may_run_those_are_named_whose_lanes_take_the_most() {
        let mut above = LaneUsage::default();
        for cpu in 0..8 {
            let (budget, period) = (Span::from_millis(u64::from(cpu) + 1), Span::from_millis(10));
            let promises = vec![CpuPromise { budget, period, jitter: Span::ZERO }];
            above.note(cpu, &CpuLanes { promises, text: format!("lanes of CPU {cpu}") });
        }
        above.note(7, &CpuLanes::default());
        let asked = Reservation::new(Span::from_millis(9), Span::from_millis(10)).unwrap();
        let reason = |cpus: &[u32]| above.refused(&NoRoom { asked, most: None }, cpus).reason;
        let ends = |cpus: &[u32], end: &str| assert!(reason(cpus).ends_with(end), "{}", reason(cpus));
        ends(&[5, 1], "above all windows: lanes of CPU 5, lanes of CPU 1");
        ends(&[], "windows: lanes of CPU 6, lanes of CPU 5, lanes of CPU 4, lanes of CPU 3, ...");
        ends(&[7], "no budget of this period fits");
    }
}
