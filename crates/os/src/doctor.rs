//! The features that this machine grants or refuses, the consequences, and the remedies.
//!
//! Each probe tests a feature, never a version number: kernels are patched, and containers hide versions. A probe reads
//! (thin) and a judgement turns the text into a [`DoctorFinding`] (pure, tested on texts of other machines).

mod cpus;
mod kernel;
mod latency;
mod limits;
mod privilege;

use std::fs;

use serde::Serialize;

/// One property of the machine that matters to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DoctorFinding {
    /// Its topic; unique and stable, for programs that read the report.
    pub topic: &'static str,
    /// The state of the machine.
    pub found: String,
    /// The rating.
    pub verdict: DoctorVerdict,
    /// The consequence for a run.
    pub consequence: String,
    /// The command or the setting that helps. Every refusal has one.
    pub remedy: Option<String>,
}

/// The rating of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DoctorVerdict {
    /// Only information.
    Info,
    /// Good for a run.
    Granted,
    /// A run works, but less well.
    Degraded,
    /// A run continues without it; `--strict` refuses.
    Refused,
}

/// All findings, in the order of the report. Needs about half a second, most of it for the measured wake-ups; changes
/// nothing on the machine.
pub fn probe() -> Vec<DoctorFinding> {
    PROBES.iter().filter_map(|probe| probe()).collect()
}

/// A further probe is a function and a line here. `None`: the machine lacks the feature.
const PROBES: &[fn() -> Option<DoctorFinding>] = &[
    privilege::nice,
    privilege::rtprio,
    privilege::memory,
    privilege::fifo,
    privilege::perf,
    privilege::switches,
    limits::throttle,
    limits::fair_server,
    limits::share,
    limits::group,
    limits::priorities,
    kernel::release,
    kernel::preemption,
    kernel::tick,
    kernel::clock_source,
    cpus::count,
    cpus::isolation,
    cpus::siblings,
    cpus::governor,
    cpus::machine,
    latency::idle_states,
    latency::wake_up,
];

impl DoctorFinding {
    fn new(
        topic: &'static str,
        verdict: DoctorVerdict,
        found: impl Into<String>,
        consequence: impl Into<String>,
    ) -> Self {
        DoctorFinding { topic, found: found.into(), verdict, consequence: consequence.into(), remedy: None }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The text of a small file without its last line end; `None` if it is absent or unreadable.
fn read(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_probe_of_this_machine_names_each_topic_once_and_a_remedy_for_each_refusal() {
        let findings = probe();
        let topics: HashSet<_> = findings.iter().map(|finding| finding.topic).collect();
        assert_eq!(topics.len(), findings.len());
        for finding in &findings {
            println!("{}", serde_json::to_string(finding).unwrap());
            assert!(!finding.found.is_empty() && !finding.consequence.is_empty(), "{finding:?}");
            assert!(finding.verdict != DoctorVerdict::Refused || finding.remedy.is_some(), "{finding:?}");
        }
    }
}
