//! Figures of programs under the CPU broker.

use hyoshi_model::{HostId, ProgramId, System};
use serde::Serialize;

use crate::figures::printable;

/// One program. Lengths of time are means over its periods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramSummary {
    /// Its name.
    pub name: String,
    /// Its host's name.
    pub host: String,
    /// Its period.
    pub period_ns: u64,
    /// Its deadline, from the start of the period.
    pub deadline_ns: u64,
    /// How important it is.
    pub importance: u32,
    /// Observed periods: in a simulation all that ended, in a run those that the broker reported.
    pub periods: u64,
    /// Of them, those whose cycle ended in time; `None` in a run: only the program knows.
    pub met: Option<u64>,
    /// Those whose cycle ended late, or not within its period.
    pub missed: Option<u64>,
    /// Those in which less was held than asked.
    pub cut: u64,
    /// What its advocates asked.
    pub asked_ns: u64,
    /// What it held.
    pub held_ns: u64,
    /// What it consumed.
    pub consumed_ns: u64,
    /// What it held and did not consume, over what it consumed; `None` if that is nothing, or was not counted.
    pub over_ppm: Option<u64>,
    /// The same in the order of time.
    pub over_time: Vec<ProgramStretch>,
    /// Of a run: how it ended, such as `exit status: 1`; `None` if the run ended first.
    pub ended: Option<String>,
    /// Of a run: why it last held less than it asked; empty if it did not.
    pub because: String,
}

/// Some periods in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ProgramStretch {
    /// When the first begins.
    pub at_ns: u64,
    /// When the last ends.
    pub until_ns: u64,
    /// How many they are.
    pub periods: u64,
    /// As of the program.
    pub missed: Option<u64>,
    /// As of the program.
    pub asked_ns: u64,
    /// As of the program.
    pub held_ns: u64,
    /// As of the program.
    pub consumed_ns: u64,
}

impl ProgramSummary {
    /// A program without observations.
    pub fn of(system: &System, id: ProgramId) -> ProgramSummary {
        let program = system.program(id);
        ProgramSummary {
            name: program.name.clone(),
            host: host_name(system, program.host),
            period_ns: program.period.as_nanos(),
            deadline_ns: program.deadline.as_nanos(),
            importance: program.importance,
            periods: 0,
            met: None,
            missed: None,
            cut: 0,
            asked_ns: 0,
            held_ns: 0,
            consumed_ns: 0,
            over_ppm: None,
            over_time: Vec::new(),
            ended: None,
            because: String::new(),
        }
    }
}

pub(crate) fn host_name(system: &System, host: HostId) -> String {
    system.hosts.get(host.index()).map_or(String::new(), |host| host.name.clone())
}

/// The broker of each host with programs, in words.
pub(crate) fn brokers(system: &System) -> Vec<String> {
    let hosts = system.brokered.brokers.iter().enumerate();
    let with_programs = hosts.filter(|(host, _)| system.programs_on(HostId(*host as u32)).next().is_some());
    let lines = with_programs.map(|(host, broker)| {
        let cpus: Vec<String> = broker.cpus.iter().map(u32::to_string).collect();
        let plural = if cpus.len() == 1 { "CPU" } else { "CPUs" };
        printable(&format!(
            "{}: policy {}, cap {}, {plural} {}",
            host_name(system, HostId(host as u32)),
            broker.policy,
            broker.cap,
            cpus.join(", ")
        ))
    });
    lines.collect()
}
