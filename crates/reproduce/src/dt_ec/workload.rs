//! The systems of sections 4 and 5 as files: chain, graph, dynamic graph and random workload, each with one node for
//! each host.

use std::fmt::Write as _;

use hyoshi_model::{Guard, Span};
use serde::Serialize;

use super::example::ReleaseProtocol;

/// How subtasks of different hosts follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommunicationModel {
    /// Event channels.
    Events,
    /// Distributable threads.
    Threads,
}

impl CommunicationModel {
    /// Both, in the order of the paper's tables.
    pub const ALL: [CommunicationModel; 2] = [CommunicationModel::Events, CommunicationModel::Threads];

    /// Its name in tables.
    pub const fn words(self) -> &'static str {
        match self {
            CommunicationModel::Events => "events",
            CommunicationModel::Threads => "threads",
        }
    }
}

/// The shape of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Section 4.1: three subtasks on three hosts.
    Chain,
    /// Section 4.2: the client triggers two servers.
    Graph,
    /// Section 4.3: one or two copies of the middle subtask, at random; the server runs after the first.
    DynamicGraph,
    /// Section 5: twelve tasks on four hosts.
    Random,
}

impl Topology {
    /// All, in the order of the paper.
    pub const ALL: [Topology; 4] = [Topology::Chain, Topology::Graph, Topology::DynamicGraph, Topology::Random];

    /// Its name in tables.
    pub const fn words(self) -> &'static str {
        match self {
            Topology::Chain => "static chain",
            Topology::Graph => "static graph",
            Topology::DynamicGraph => "dynamic graph",
            Topology::Random => "random workload",
        }
    }

    /// The hosts, in the order of the paper's table.
    pub const fn hosts(self) -> &'static [&'static str] {
        match self {
            Topology::Chain => &["client", "middle", "server"],
            Topology::Graph => &["client", "server1", "server2"],
            Topology::DynamicGraph => &["client", "middle1", "middle2", "server"],
            Topology::Random => &["node1", "node2", "node3", "node4"],
        }
    }
}

/// The period of the task of section 4.
pub const PERIOD: Span = Span::from_millis(200);
/// The execution time of each of its subtasks.
pub const EXECUTION: Span = Span::from_millis(50);
/// Declared worst cases, in percent of the execution time: the thread's clock is read shortly after the work.
const WCET_PERCENT: u64 = 110;

/// A task of table 6: execution times, the hosts of its subtasks (figure 7 is lost: a map that agrees with table 7),
/// period and phase, in milliseconds.
type RandomTask = (&'static str, &'static [u64], &'static [usize], u64, u64);

/// Table 6.
const RANDOM: [RandomTask; 12] = [
    ("T1", &[94, 32, 122, 125], &[3, 2, 0, 1], 849, 335),
    ("T2", &[12], &[2], 627, 10),
    ("T3", &[3], &[0], 199, 80),
    ("T4", &[30, 30, 17, 23], &[0, 1, 2, 3], 257, 132),
    ("T5", &[34], &[1], 952, 501),
    ("T6", &[3], &[0], 896, 312),
    ("T7", &[13, 5, 12, 9], &[0, 3, 2, 1], 110, 26),
    ("T8", &[160, 46], &[2, 3], 752, 481),
    ("T9", &[143], &[1], 838, 277),
    ("T10", &[64, 59, 107], &[2, 0, 3], 703, 673),
    ("T11", &[121], &[3], 916, 442),
    ("T12", &[15, 7, 11], &[0, 2, 3], 190, 168),
];

/// The load of the busiest CPU, in percent, that the random workload may cause: nodes of several hosts share a CPU.
const MOST_LOAD_PERCENT: u64 = 60;

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Workload {
    /// The tasks.
    pub topology: Topology,
    /// How they cross hosts.
    pub model: CommunicationModel,
    /// How subtasks behind another host are released.
    pub protocol: ReleaseProtocol,
    /// A lane, and so a thread, for each subtask (deadline-monotonic) instead of one lane for all of a node (EDF).
    pub lane_for_each: bool,
}

impl Workload {
    /// The paper's configuration: EDF, release guards with rules 1 and 2.
    pub const fn paper(topology: Topology, model: CommunicationModel) -> Workload {
        Workload { topology, model, protocol: ReleaseProtocol::Guarded, lane_for_each: false }
    }

    /// Its name in tables.
    pub fn words(&self) -> String {
        let protocol = match self.protocol {
            ReleaseProtocol::Guarded => String::new(),
            ReleaseProtocol::Greedy => ", greedy".to_owned(),
            ReleaseProtocol::Idle => ", rule 3".to_owned(),
        };
        let lanes = if self.lane_for_each { ", lane for each" } else { "" };
        format!("{}, {}{protocol}{lanes}", self.topology.words(), self.model.words())
    }

    /// As a file. Each host has a TCP port on loopback, and one of `cpus`.
    pub fn text(&self, duration: Span, ports: &[u16], cpus: &[u32]) -> String {
        let strategy = if self.lane_for_each { "DM" } else { "EDF" };
        let mut text = format!("name = \"dt-ec\"\nduration = \"{duration}\"\n");
        for (at, host) in self.topology.hosts().iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[host.{host}]\nendpoints = [\"tcp/127.0.0.1:{}\"]\n[processor.{host}]\nhost = \"{host}\"\ncpu = {}\n\
                 strategy = \"{strategy}\"\n",
                ports[at],
                cpus[at % cpus.len()],
            );
        }
        match self.topology {
            Topology::Chain => {
                self.first(&mut text);
                self.next(&mut text, "T1-2", "middle", "all = [\"T1-1\"]");
                self.next(&mut text, "T1-3", "server", "all = [\"T1-2\"]");
                self.chain(&mut text, "T1", &["T1-1", "T1-2", "T1-3"], PERIOD);
            }
            Topology::Graph => {
                self.first(&mut text);
                self.next(&mut text, "T1-2", "server1", "all = [\"T1-1\"]");
                self.next(&mut text, "T1-3", "server2", "all = [\"T1-1\"]");
                self.chain(&mut text, "first", &["T1-1", "T1-2"], PERIOD);
                self.chain(&mut text, "second", &["T1-1", "T1-3"], PERIOD);
            }
            Topology::DynamicGraph => {
                self.first(&mut text);
                self.next(&mut text, "T1-2a", "middle1", "all = [\"T1-1\"]");
                self.next(&mut text, "T1-2b", "middle2", "chosen = [\"T1-1\"]");
                self.next(&mut text, "T1-3", "server", "first = [\"T1-2a\", \"T1-2b\"]");
                self.chain(&mut text, "primary", &["T1-1", "T1-2a", "T1-3"], PERIOD);
                self.chain(&mut text, "secondary", &["T1-1", "T1-2b", "T1-3"], PERIOD);
            }
            Topology::Random => self.random(&mut text, cpus.len()),
        }
        text
    }

    fn first(&self, text: &mut String) {
        let _ = write!(text, "[operation.\"T1-1\"]\non = \"client\"\nevery = \"{PERIOD}\"\n{}", execution(EXECUTION));
    }

    fn next(&self, text: &mut String, name: &str, host: &str, after: &str) {
        self.subtask(text, name, host, after, EXECUTION, PERIOD);
    }

    fn subtask(&self, text: &mut String, name: &str, host: &str, after: &str, execution_time: Span, deadline: Span) {
        let guard = match self.protocol.guard() {
            Guard::Off => "off",
            Guard::Idle => "idle",
            _ => "on",
        };
        let _ = write!(
            text,
            "[operation.\"{name}\"]\non = \"{host}\"\nafter = {{ {after} }}\nguard = \"{guard}\"\ndeadline = \
             \"{deadline}\"\n{}",
            execution(execution_time)
        );
    }

    fn chain(&self, text: &mut String, name: &str, path: &[&str], deadline: Span) {
        let _ = write!(text, "[chain.{name}]\npath = {path:?}\ndeadline = \"{deadline}\"\n");
        if self.model == CommunicationModel::Threads {
            text.push_str("carried_by = \"thread\"\n");
        }
    }

    fn random(&self, text: &mut String, cpus: usize) {
        let (hosts, scale) = (self.topology.hosts(), scale_ppm(cpus));
        for (task, times, on, period, phase) in RANDOM {
            let deadline = Span::from_millis(period);
            let path: Vec<String> = (1..=times.len()).map(|number| format!("{task}-{number}")).collect();
            for (at, millis) in times.iter().enumerate() {
                let execution_time = Span::from_nanos(millis * scale);
                if at > 0 {
                    let after = format!("all = [{:?}]", path[at - 1]);
                    self.subtask(text, &path[at], hosts[on[at]], &after, execution_time, deadline);
                    continue;
                }
                let _ = write!(
                    text,
                    "[operation.\"{}\"]\non = \"{}\"\nevery = \"{deadline}\"\nphase = \"{phase}ms\"\n{}",
                    path[0],
                    hosts[on[0]],
                    execution(execution_time)
                );
            }
            if path.len() > 1 {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                self.chain(text, task, &path, deadline);
            }
        }
    }
}

fn execution(time: Span) -> String {
    let wcet = Span::from_nanos(time.as_nanos() * WCET_PERCENT / 100);
    EXECUTION_TIME.replace("{wcet}", &wcet.to_string()).replace("{time}", &time.to_string())
}

/// The keys of an execution time.
const EXECUTION_TIME: &str = include_str!("execution.toml");

/// The scale of the random workload's execution times on so many CPUs, in parts per million: its four nodes need 2.3 of
/// them in the paper.
pub fn scale_ppm(cpus: usize) -> u64 {
    let mut loads = vec![0; cpus];
    for (_, times, on, period, _) in RANDOM {
        for (millis, host) in times.iter().zip(on) {
            loads[host % cpus] += millis * 1_000_000 / period;
        }
    }
    let most = loads.into_iter().max().unwrap_or(0).max(1);
    (MOST_LOAD_PERCENT * 10_000 * 1_000_000 / most).min(1_000_000)
}

#[cfg(test)]
mod tests {
    use hyoshi_model::read;

    use super::*;

    #[test]
    fn every_workload_is_a_valid_system_with_the_papers_subtasks() {
        for topology in Topology::ALL {
            for model in CommunicationModel::ALL {
                for lane_for_each in [false, true] {
                    let workload = Workload { lane_for_each, ..Workload::paper(topology, model) };
                    let text = workload.text(Span::from_secs(1), &[7001, 7002, 7003, 7004], &[0, 1]);
                    let system =
                        read(&text, "dt-ec.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system;
                    let expected = match topology {
                        Topology::Chain | Topology::Graph => 3,
                        Topology::DynamicGraph => 4,
                        Topology::Random => 26,
                    };
                    assert_eq!(system.operations.len(), expected);
                }
            }
        }
    }

    #[test]
    fn no_two_subtasks_of_a_task_share_a_host_and_execution_times_are_those_of_table_7() {
        let mut seconds = [0.0; 4];
        for (task, times, on, period, phase) in RANDOM {
            let mut hosts = on.to_vec();
            hosts.sort_unstable();
            hosts.dedup();
            assert_eq!((hosts.len(), times.len()), (on.len(), on.len()), "{task}");
            let jobs = (300_000 - phase) / period;
            times.iter().zip(on).for_each(|(millis, host)| seconds[*host] += (millis * jobs) as f64 / 1e3);
        }
        for (sum, paper) in seconds.iter().zip([167.397, 165.435, 170.923, 193.644]) {
            assert!((sum - paper).abs() < 0.7, "{seconds:?}");
        }
    }

    #[test]
    fn execution_times_shrink_until_the_busiest_cpu_has_the_load() {
        assert_eq!(scale_ppm(4) / 1_000, 924);
        assert!(scale_ppm(2) < scale_ppm(4) && scale_ppm(1) < scale_ppm(2));
    }
}
