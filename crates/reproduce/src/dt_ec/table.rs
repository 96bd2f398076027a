//! The rows of the paper's tables: execution, idle time and overhead of each host.

use serde::Serialize;

use super::workload::{CommunicationModel, Topology, Workload};
use crate::nodes::{NodeFigures, NodeParts};

/// A host in a workload: means over the runs. In sections 4.1 to 4.3 for each job of the host; in section 5 for 300 s.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostRow {
    /// Its name.
    pub host: String,
    /// Jobs of all runs.
    pub jobs: u64,
    /// Missed deadlines.
    pub missed: u64,
    /// Jobs and completions that were dropped.
    pub dropped: u64,
    /// Execution.
    pub execution_ns: u64,
    /// Idle time of its processor.
    pub idle_ns: u64,
    /// CPU time besides execution: the mean, the maximum and the minimum of the runs.
    pub overhead_ns: [u64; 3],
    /// Its parts.
    pub parts: NodeParts,
    /// Threads of its process.
    pub threads: u64,
    /// The same in the paper.
    pub paper: Option<PaperRow>,
}

/// A row of the paper: nanoseconds for each job, or for 300 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PaperRow {
    /// Execution.
    pub execution_ns: u64,
    /// Idle time.
    pub idle_ns: u64,
    /// Overhead and miscellaneous: mean, maximum, minimum. In table 7 only the mean.
    pub overhead_ns: [u64; 3],
}

/// Microseconds: execution, idle, and the mean, maximum and minimum of the overhead, first for events, then for threads.
type PaperTable = [[[u64; 5]; 2]];

/// Table 1.
const CHAIN: &PaperTable = &[
    [[50_047, 149_602, 351, 356, 349], [50_027, 149_618, 350, 354, 347]],
    [[50_017, 152_774, 544, 547, 539], [50_032, 150_896, 644, 650, 640]],
    [[50_016, 156_297, 364, 371, 354], [50_028, 152_361, 353, 359, 349]],
];

/// Table 4.
const GRAPH: &PaperTable = &[
    [[50_041, 149_494, 465, 469, 462], [50_028, 149_404, 563, 577, 549]],
    [[50_007, 152_974, 363, 372, 350], [50_028, 152_819, 352, 355, 349]],
    [[50_009, 152_968, 356, 365, 352], [50_027, 151_760, 348, 355, 342]],
];

/// Table 5.
const DYNAMIC: &PaperTable = &[
    [[50_014, 149_531, 446, 456, 436], [50_028, 149_509, 458, 462, 454]],
    [[50_021, 153_342, 595, 599, 592], [50_035, 152_666, 679, 689, 675]],
    [[50_040, 369_148, 579, 583, 577], [50_035, 365_838, 719, 723, 716]],
    [[49_921, 156_721, 481, 487, 472], [50_150, 154_033, 515, 521, 510]],
];

/// Table 7, for 300 s.
const RANDOM: &PaperTable = &[
    [[167_397_000, 134_882_700, 2_125_100, 0, 0], [166_872_200, 130_300_300, 2_834_000, 0, 0]],
    [[165_435_000, 135_099_600, 2_138_400, 0, 0], [164_802_400, 132_502_700, 2_701_600, 0, 0]],
    [[170_923_400, 127_067_200, 2_739_400, 0, 0], [170_831_200, 124_741_400, 4_419_800, 0, 0]],
    [[193_644_300, 102_597_300, 2_723_300, 0, 0], [194_341_500, 102_020_700, 3_658_800, 0, 0]],
];

/// The length of the paper's runs.
pub const PAPER_RUN_NS: u64 = 300_000_000_000;

/// The paper's row; `None` for a configuration that is not in the paper.
fn paper(workload: &Workload, host: usize) -> Option<PaperRow> {
    if *workload != Workload::paper(workload.topology, workload.model) {
        return None;
    }
    let table = match workload.topology {
        Topology::Chain => CHAIN,
        Topology::Graph => GRAPH,
        Topology::DynamicGraph => DYNAMIC,
        Topology::Random => RANDOM,
    };
    let model = usize::from(workload.model == CommunicationModel::Threads);
    let [execution, idle, mean, most, least] = table.get(host)?[model].map(|micros| micros * 1_000);
    Some(PaperRow { execution_ns: execution, idle_ns: idle, overhead_ns: [mean, most, least] })
}

/// The rows of a workload from its runs, each with the hosts in the same order.
pub(super) fn rows(workload: &Workload, runs: &[Vec<NodeFigures>]) -> Vec<HostRow> {
    let hosts = workload.topology.hosts().iter().enumerate();
    hosts
        .map(|(at, host)| row(workload, (at, host), &runs.iter().filter_map(|run| run.get(at)).collect::<Vec<_>>()))
        .collect()
}

fn row(workload: &Workload, (at, host): (usize, &str), runs: &[&NodeFigures]) -> HostRow {
    // For each job; in section 5, which has jobs of many sizes, for 300 s.
    let part = |nanos: u64, node: &NodeFigures| match workload.topology {
        Topology::Random => (u128::from(nanos) * u128::from(PAPER_RUN_NS) / u128::from(node.length_ns.max(1))) as u64,
        _ => nanos / node.jobs.max(1),
    };
    let mean = |of: fn(&NodeFigures) -> u64| {
        runs.iter().map(|node| part(of(node), node)).sum::<u64>() / (runs.len() as u64).max(1)
    };
    let overheads = || runs.iter().map(|node| part(node.parts.overhead_ns(), node));
    let sum = |of: fn(&NodeFigures) -> u64| runs.iter().map(|node| of(node)).sum();
    HostRow {
        host: host.to_owned(),
        jobs: sum(|node| node.jobs),
        missed: sum(|node| node.missed),
        dropped: sum(|node| node.dropped),
        execution_ns: mean(|node| node.execution_ns),
        idle_ns: mean(NodeFigures::idle_ns),
        overhead_ns: [
            mean(|node| node.parts.overhead_ns()),
            overheads().max().unwrap_or(0),
            overheads().min().unwrap_or(0),
        ],
        parts: NodeParts {
            lanes_ns: mean(|node| node.parts.lanes_ns),
            receive_ns: mean(|node| node.parts.receive_ns),
            send_ns: mean(|node| node.parts.send_ns),
            timers_ns: mean(|node| node.parts.timers_ns),
            rest_ns: mean(|node| node.parts.rest_ns),
            measuring_ns: mean(|node| node.parts.measuring_ns),
        },
        threads: runs.iter().map(|node| node.threads).max().unwrap_or(0),
        paper: paper(workload, at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(jobs: u64, overhead: u64) -> NodeFigures {
        NodeFigures {
            jobs,
            execution_ns: jobs * 50,
            length_ns: jobs * 200,
            parts: NodeParts { lanes_ns: overhead, ..NodeParts::default() },
            ..NodeFigures::default()
        }
    }

    #[test]
    fn a_row_has_the_mean_the_maximum_and_the_minimum_of_its_runs() {
        let workload = Workload::paper(Topology::Chain, CommunicationModel::Threads);
        let runs: Vec<_> = [10, 20, 60].map(|overhead| vec![node(10, overhead), node(10, 0), node(10, 0)]).into();
        let rows = rows(&workload, &runs);
        let client = &rows[0];
        assert_eq!((client.host.as_str(), client.jobs, client.execution_ns), ("client", 30, 50));
        assert_eq!(client.overhead_ns, [3, 6, 1]);
        assert_eq!(client.idle_ns, (149 + 148 + 144) / 3);
        assert_eq!(rows[1].paper.unwrap().overhead_ns, [644_000, 650_000, 640_000]);
    }

    #[test]
    fn the_random_workload_counts_for_300_s_and_other_configurations_have_no_paper_row() {
        let workload =
            Workload { lane_for_each: true, ..Workload::paper(Topology::Random, CommunicationModel::Events) };
        let figures = NodeFigures { length_ns: 3_000_000_000, ..node(7, 4_000) };
        let rows = rows(&workload, &[vec![figures]]);
        assert_eq!((rows[0].overhead_ns[0], rows[0].paper), (400_000, None));
    }
}
