//! Each analysis by name, with its source; and what verdicts rest on.

use core::fmt;

use serde::{Serialize, Serializer};

/// An analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// No analysis was carried out.
    None,
    /// Response times of a FIFO level below more urgent levels.
    FixedPriority,
    /// The same without preemption.
    FixedPriorityNonPreemptive,
    /// A chain of legs or operations that others of its level may interrupt between them.
    Chain,
    /// Processor demand in a level by deadline, below more urgent levels.
    DeadlineDemand,
    /// Processor demand in a level by laxity without preemption, below more urgent levels.
    LaxityDemand,
    /// First jobs after a common release.
    CommonRelease,
    /// The worst case against the deadline, or the sum of utilisations against 1.
    Necessity,
    /// End to end: responses of predecessors become jitter of successors.
    Holistic,
    /// End to end under release guards.
    ReleaseGuard,
    /// A utilisation of changed parameters covers both sides of a change.
    Envelope,
}

impl Method {
    /// What it does and where it comes from.
    pub const fn note(self) -> MethodNote {
        let (name, source) = match self {
            Method::None => ("none", ""),
            Method::FixedPriority => (
                "response times of a FIFO level under fixed priorities, floating non-preemptive sections",
                "Bozhko and Brandenburg, ECRTS 2020 (crate response-time-analysis), the level taken as one task",
            ),
            Method::FixedPriorityNonPreemptive => (
                "response times under non-preemptive fixed priorities",
                "Bozhko and Brandenburg, ECRTS 2020 (crate response-time-analysis)",
            ),
            Method::Chain => (
                "response time of a chain of jobs, its level counted as interference over the whole window",
                "Bozhko and Brandenburg, ECRTS 2020 (crate response-time-analysis), the chain taken as one job",
            ),
            Method::DeadlineDemand => (
                "processor demand by deadline, more urgent levels counted over the whole window",
                "Baruah, Mok and Rosier, RTSS 1990; George, Rivierre and Spuri, INRIA RR-2966, 1996; \
                 Zhang and Burns, IEEE TC 2009 (QPA)",
            ),
            Method::LaxityDemand => (
                "processor demand by deadline less worst case, more urgent levels counted over the whole window",
                "as processor demand; waiting laxity order is earliest deadline first on deadline - worst case",
            ),
            Method::CommonRelease => (
                "the first job after all releases coincide",
                "Joseph and Pandya, Computer Journal 1986; Liu and Layland, JACM 1973",
            ),
            Method::Necessity => ("a necessary condition", "utilisation at most 1, worst case at most the deadline"),
            Method::Holistic => (
                "end to end, the response of each stage being the jitter of the next",
                "Tindell and Clark, Microprocessing and Microprogramming 1994",
            ),
            Method::ReleaseGuard => {
                ("end to end under release guards, the sum of the stages' bounds and delays", "Sun and Liu, ICDCS 1996")
            }
            Method::Envelope => (
                "the worse of both sides of a change, parameter by parameter",
                "any behaviour across the change is one of the envelope's",
            ),
        };
        MethodNote { method: self, name, source }
    }
}

/// An analysis, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MethodNote {
    /// Which.
    pub method: Method,
    /// What it does.
    pub name: &'static str,
    /// Where it comes from.
    pub source: &'static str,
}

/// Something that verdicts rest on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Assumption {
    /// No job takes longer than declared, and no body blocks.
    WorstCases,
    /// Nothing else uses the CPU.
    NoOverheads,
    /// Phases and offsets are over-approximated.
    Phases,
    /// Rate ranges count at their fastest.
    FastestRates,
    /// Cancelled jobs count as if they ran.
    Cancellation,
    /// Triggered jobs take at least their predecessors' best case.
    BestCases,
    /// Each resource is held once per job, its sections counted as one.
    Sections,
    /// Demand in no window reaches the cap.
    CapNeverActs,
    /// Critical work within its utilisation is never stopped by the kernel.
    NoThrottling,
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Assumption::WorstCases => "no job takes longer than its declared worst case, and none blocks",
            Assumption::NoOverheads => "switches, timers, release threads and the kernel take no time",
            Assumption::Phases => "phases are over-approximated: any alignment of releases is counted as possible",
            Assumption::FastestRates => "rate ranges count at their fastest",
            Assumption::Cancellation => "a cancelled job is counted as if it ran",
            Assumption::BestCases => "no job takes less than its declared best case",
            Assumption::Sections => "a job's resource sections follow each other from its start and block as one",
            Assumption::CapNeverActs => "the cap never acts: worst-case demand in any window stays below it",
            Assumption::NoThrottling => "the kernel's own throttling lets critical work exceed the cap for a window",
        })
    }
}

impl Serialize for Assumption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
