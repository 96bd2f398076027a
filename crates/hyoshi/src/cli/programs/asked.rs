//! Requests of a run to the broker for its programs.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use hyoshi_broker::TaskSpec;
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::BrokerStatus;
use hyoshi_model::{AdvocateWords, Broker, HostId, Program, Share, System};
use hyoshi_report::{NoteLevel, ReportNote};

use crate::cli::CliError;
use crate::cli::broker::settled;
use crate::cli::notes::note;

/// The path of a program, as found by execvp(3).
pub(super) fn find(program: &Program) -> Result<PathBuf, CliError> {
    let word = program.words.first().map_or("", String::as_str);
    let is_program =
        |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    let found = if word.contains('/') {
        Some(PathBuf::from(word)).filter(|path| is_program(path))
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|folder| folder.join(word)).find(|path| is_program(path))
    };
    found.ok_or_else(|| {
        CliError::new(format!("reservation {}: no executable program {word:?}", program.name))
            .help("set `program` to a name in PATH, or to a path from the working directory")
    })
}

pub(super) fn joining(program: &Program) -> Result<TaskSpec, CliError> {
    let setting = |words: &AdvocateWords| {
        let setting = ComponentSpec { kind: words.kind.clone(), parameters: words.parameters.clone() };
        settled(setting)
            .map_err(|error| CliError::new(format!("reservation {}: {error}", program.name)).help(error.remedy()))
    };
    Ok(TaskSpec {
        deadline: Some(program.deadline),
        initial_budget: program.budget,
        min_budget: program.least,
        importance: program.importance,
        weight: program.weight,
        group: program.group.clone(),
        advocates: program.advocates.iter().map(setting).collect::<Result<_, _>>()?,
        ..TaskSpec::new(&program.name, program.period)
    })
}

/// Notes on differences between the broker's policy, which applies to all tasks, and the file's.
pub(super) fn differing(system: &System, status: &BrokerStatus) -> Vec<ReportNote> {
    let hosts = (0..).map(HostId).zip(&system.hosts).zip(&system.brokered.brokers);
    let with_programs = hosts.filter(|((id, _), _)| system.programs_on(*id).next().is_some());
    let differs = |asked: &Broker| {
        let same = status.policy.split_whitespace().eq(asked.policy.split_whitespace());
        !same || asked.cap.as_millionths() != status.cap
    };
    let differing = with_programs.filter(|(_, asked)| differs(asked)).map(|((_, host), asked)| {
        let cap = Share::from_millionths(status.cap);
        let declarer =
            if system.hosts.len() > 1 { format!("the file's host {}", host.name) } else { "the file".to_owned() };
        let text = format!(
            "the broker uses policy {} with a cap of {cap}; {declarer} declares {} with {}",
            status.policy, asked.policy, asked.cap
        );
        let remedy = Some(format!("hyoshi broker policy set \"{}\" --cap {}", asked.policy, asked.cap));
        ReportNote { remedy, ..note(NoteLevel::Degraded, "broker", text) }
    });
    differing.collect()
}
