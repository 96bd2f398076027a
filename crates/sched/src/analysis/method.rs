//! The name and source of each analysis, and the assumptions of verdicts.

use core::fmt;

use hyoshi_model::{Costs, Span};
use serde::{Serialize, Serializer};

/// An analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnalysisMethod {
    /// No analysis was carried out.
    None,
    /// Response times of a FIFO level below more urgent levels.
    FixedPriority,
    /// The same without preemption.
    FixedPriorityNonPreemptive,
    /// A chain of legs or operations between which other jobs of its level may run.
    Chain,
    /// Processor demand in a level by deadline, below more urgent levels.
    DeadlineDemand,
    /// Processor demand in a level by laxity without preemption, below more urgent levels.
    LaxityDemand,
    /// Response times of a level by deadline, below more urgent levels.
    DeadlineResponse,
    /// Response times of a level by laxity without preemption, below more urgent levels.
    LaxityResponse,
    /// All jobs that may be as urgent on either side of a switch or change, in any order.
    AnyOrder,
    /// First jobs after a common release.
    CommonRelease,
    /// The worst case against the deadline, or the sum of utilisations against 1.
    Necessity,
    /// End to end: responses of predecessors become jitter of successors.
    Holistic,
    /// End to end under release guards.
    ReleaseGuard,
    /// End to end where operations sample the latest value of others.
    Sampling,
    /// A utilisation of changed parameters covers both sides of a change.
    Envelope,
    /// A simulated behaviour that the file allows.
    Simulation,
    /// Response times under fully preemptive laxity: tested, not proved.
    PreemptiveLaxity,
}

impl AnalysisMethod {
    /// Its purpose and source.
    pub const fn note(self) -> MethodNote {
        let (name, source) = match self {
            AnalysisMethod::None => ("none", ""),
            AnalysisMethod::FixedPriority => (
                "response times of a FIFO level under fixed priorities, floating non-preemptive sections",
                "Bozhko and Brandenburg, ECRTS 2020 (crate response-time-analysis), the level treated as one task",
            ),
            AnalysisMethod::FixedPriorityNonPreemptive => (
                "response times under non-preemptive fixed priorities",
                "Bozhko and Brandenburg, ECRTS 2020 (crate response-time-analysis)",
            ),
            AnalysisMethod::Chain => (
                "response time of a chain of jobs, its level counted as interference over the whole window",
                "Bozhko and Brandenburg, ECRTS 2020 (crate response-time-analysis), the chain treated as one job",
            ),
            AnalysisMethod::DeadlineDemand => (
                "processor demand by deadline, more urgent levels counted over the whole window",
                "Baruah, Mok and Rosier, RTSS 1990; George, Rivierre and Spuri, INRIA RR-2966, 1996; \
                 Zhang and Burns, IEEE TC 2009 (QPA)",
            ),
            AnalysisMethod::LaxityDemand => (
                "processor demand by deadline less worst case, more urgent levels counted over the whole window",
                "as processor demand; waiting laxity order is earliest deadline first on deadline - worst case",
            ),
            AnalysisMethod::DeadlineResponse => (
                "response times by deadline, more urgent levels counted over the whole window",
                "Spuri, INRIA RR-2772, 1996; George, Rivierre and Spuri, INRIA RR-2966, 1996; \
                 Bozhko and Brandenburg, ECRTS 2020",
            ),
            AnalysisMethod::LaxityResponse => (
                "response times by deadline less worst case, more urgent levels counted over the whole window",
                "as response times by deadline; waiting laxity order is earliest deadline first on deadline - worst case",
            ),
            AnalysisMethod::AnyOrder => (
                "all that may be as urgent on either side of a switch or change, in any order; carry-in by response bounds",
                "George, Rivierre and Spuri, INRIA RR-2966, 1996 (work-conserving busy window); \
                 Tindell, Burns and Wellings, RTSS 1992 (changes of mode)",
            ),
            AnalysisMethod::CommonRelease => (
                "the first job after all releases coincide",
                "Joseph and Pandya, Computer Journal 1986; Liu and Layland, JACM 1973",
            ),
            AnalysisMethod::Necessity => {
                ("a necessary condition", "utilisation at most 1, worst case at most the deadline")
            }
            AnalysisMethod::Holistic => (
                "end to end, the response of each stage being the jitter of the next",
                "Tindell and Clark, Microprocessing and Microprogramming 1994",
            ),
            AnalysisMethod::ReleaseGuard => {
                ("end to end under release guards, the sum of the stages' bounds and delays", "Sun and Liu, ICDCS 1996")
            }
            AnalysisMethod::Sampling => (
                "age and reaction end to end where operations sample other operations, the sum of periods and responses",
                "Davare et al., DAC 2007; Feiertag et al., CRTS 2008; Dürr et al., ACM TECS 2019",
            ),
            AnalysisMethod::Envelope => (
                "the worse of both sides of a change, parameter by parameter",
                "any behaviour across the change is one of the envelope's",
            ),
            AnalysisMethod::PreemptiveLaxity => (
                "response times under fully preemptive laxity (tested, not proved): by deadline, other operations' deadlines \
                 less their worst cases",
                "no proof is known; no violation in the simulations of crates/sim/tests/soundness.rs",
            ),
            AnalysisMethod::Simulation => (
                "simulation of the file and of adverse alignments that it allows, where nothing is proved",
                "Liu and Layland, JACM 1973; Baruah, Mok and Rosier, RTSS 1990; Jeffay, Stanat and Martel, RTSS 1991; \
                 George, Rivierre and Spuri, INRIA RR-2966, 1996",
            ),
        };
        MethodNote { method: self, name, source }
    }
}

/// A description of an analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MethodNote {
    /// The analysis.
    pub method: AnalysisMethod,
    /// Its purpose.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
}

/// An assumption of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Assumption {
    /// No job lasts longer than declared, and no body blocks.
    WorstCases,
    /// Nothing else uses the CPU.
    NoOverheads,
    /// Scheduling costs no more than this.
    Overheads(Costs),
    /// Phases and offsets are over-approximated.
    Phases,
    /// Rate ranges count at their fastest.
    FastestRates,
    /// Regions of contracts change at any time.
    Regions,
    /// Requests arrive at least their least interval apart.
    Requests,
    /// Hosts' clocks are within their errors.
    ClockErrors,
    /// No host is off, and links lose nothing.
    NothingLost,
    /// Cancelled jobs count as if they ran.
    Cancellation,
    /// Strategies may be switched at any time and in any order.
    Switches,
    /// Roots of a join keep the phases and the one region of the file, and jobs on the way to it are not lost.
    Joins,
    /// Hops that bodies choose count as always chosen.
    Chosen,
    /// After the first of several copies, a release counts from the earliest copy to the latest.
    Copies,
    /// Predecessors of triggered jobs last for at least their best case.
    BestCases,
    /// Each resource is held once per job, its sections counted as one.
    Sections,
    /// Demand in no window reaches the cap.
    CapNeverActs,
    /// Critical work within its utilisation is never stopped by the kernel.
    NoThrottling,
    /// Critical demand in no window reaches the hard cap.
    HardCapNeverActs,
    /// The hard cap withholds this much in each 100 ms.
    HardCap(Span),
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Assumption::Overheads(costs) => return overheads(f, costs),
            Assumption::WorstCases => "no job needs more than its declared worst case, and none blocks",
            Assumption::NoOverheads => "switches, timers, release threads and the kernel need no time",
            Assumption::Phases => "phases are over-approximated: any alignment of releases is counted as possible",
            Assumption::FastestRates => "rate ranges count at their fastest",
            Assumption::Regions => {
                "regions of contracts may begin and end at any time, in any combination: limited operations count with all \
                    their releases"
            }
            Assumption::Requests => {
                "requests arrive at least `min_interval` apart, with the declared deadline and importance"
            }
            Assumption::ClockErrors => "the clock of each host is within its `clock_error`",
            Assumption::NothingLost => "jobs and values that are lost with a host or on a link are not counted",
            Assumption::Switches => {
                "strategies may be switched at any times: waiting jobs are keyed anew, started ones keep their level"
            }
            Assumption::Cancellation => "a cancelled job is counted as if it ran",
            Assumption::Joins => {
                "predecessors of a join of several roots start at once, with the declared phases; it matches the \
                    oldest completion of each (first in, first out)"
            }
            Assumption::Chosen => "each hop that a body may choose is counted as always chosen",
            Assumption::Copies => {
                "any copy of a stage may be the only one: releases after it count up to the slowest copy"
            }
            Assumption::BestCases => "no job needs less than its declared best case",
            Assumption::Sections => "a job's resource sections follow each other from its start and block as one",
            Assumption::CapNeverActs => "the cap never acts: worst-case demand in any window stays below it",
            Assumption::HardCapNeverActs => {
                "the hard cap never acts: worst-case critical demand in any 100ms stays below it"
            }
            Assumption::HardCap(pauses) => {
                return write!(f, "the hard cap pauses all lanes for up to {pauses} in each 100ms");
            }
            Assumption::NoThrottling => "the kernel's own throttling lets critical work exceed the cap for a window",
        })
    }
}

/// Every cost that is counted, with its value.
fn overheads(f: &mut fmt::Formatter<'_>, costs: &Costs) -> fmt::Result {
    f.write_str("scheduling costs at most")?;
    let counted = costs.named().into_iter().filter(|(_, cost)| !cost.is_zero());
    for (index, (name, cost)) in counted.enumerate() {
        write!(f, "{} {name} {cost}", if index > 0 { "," } else { "" })?;
    }
    f.write_str("; the kernel uses no other time")
}

impl Serialize for Assumption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
