//! `hyoshi attach`: puts running programs under the broker: a process, a control group, a systemd unit, a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::{ArgGroup, Args};
use hyoshi_broker::RequestError;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::Task;
use hyoshi_model::printable;
use hyoshi_os::cgroup::find::{NoGroup, of_container, of_unit};
use hyoshi_os::process::{Process, ProcessIdentity};
use serde_json::json;

use super::broker::{At, Here, ended, task_json};
use super::exec::{TaskRequest, add, task_name};
use super::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("target").required(true).args(["pid", "cgroup", "unit", "container"]),
    after_help = "The task ends with its last process, or with `hyoshi broker detach NAME`.\n  \
                  hyoshi attach 4242 --name player --period 33ms\n  \
                  hyoshi attach --unit nginx --period auto\n  \
                  hyoshi attach --container web --period 20ms --importance 5"
)]
pub(super) struct Attach {
    /// The process, with its children
    pid: Option<u32>,
    /// All processes of a control group, also later ones: its directory, or its path in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// All processes of a systemd unit, such as cron.service
    #[arg(long, value_name = "UNIT")]
    unit: Option<String>,
    /// All processes of a container: its ID, a prefix of it, or its name in Docker or Podman
    #[arg(long, value_name = "CONTAINER")]
    container: Option<String>,
    #[command(flatten)]
    asked: TaskRequest,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    here: Here,
}

/// The processes of the task, and the task's default name.
enum AttachTarget {
    Process(ProcessIdentity, String),
    Group(PathBuf, String),
}

impl Attach {
    fn target(&self) -> Result<AttachTarget, RequestError> {
        Ok(match (self.pid, &self.cgroup, &self.unit, &self.container) {
            (Some(pid), ..) => {
                let process = Process::open(pid)?;
                AttachTarget::Process(process.identity(), task_name(Path::new(process.name())))
            }
            (_, Some(path), ..) => AttachTarget::Group(unlinked(path), task_name(Path::new(path))),
            (_, _, Some(unit), _) => AttachTarget::Group(of_unit(unit)?, task_name(Path::new(unit))),
            (_, _, _, Some(container)) => AttachTarget::Group(group_of(container)?, task_name(Path::new(container))),
            // The command line has one of them.
            (None, None, None, None) => {
                return Err(RequestError::refused(
                    "no process is named",
                    "name a process, --cgroup, --unit or --container",
                ));
            }
        })
    }
}

pub(super) fn attach(arguments: &Attach, format: Format) -> Result<VerbOutcome, CliError> {
    arguments.here.check()?;
    let attached = || {
        let target = arguments.target().map_err(BrokerClientError::Request)?;
        let (AttachTarget::Process(_, name) | AttachTarget::Group(_, name)) = &target;
        let joining = arguments.asked.joining(name)?;
        let client = BrokerClient::connect(arguments.at.socket.as_deref())?;
        let task = client.join(&joining)?;
        match &target {
            AttachTarget::Process(process, _) => add(&task, *process)?,
            AttachTarget::Group(folder, _) => task.add_control_group(&folder.to_string_lossy()).map_err(|error| {
                // The broker ends a task without processes later.
                let _ = task.leave();
                BrokerClientError::from(error)
            })?,
        }
        let status = task.status()?;
        Ok::<_, BrokerClientError>(status)
    };
    let status = match attached() {
        Ok(status) => status,
        Err(error) => return ended("attach", &error, format),
    };
    match format {
        Format::Text => streams::out(format_args!("{}\n", printable(&status.name)))?,
        Format::Json => {
            let task = task_json(&status);
            streams::out(format_args!("{:#}\n", json!({ "hyoshi": head("attach"), "task": task })))?;
        }
    }
    Ok(VerbOutcome::Success)
}

/// Resolves links, such as `cpu` to `cpu,cpuacct` in version 1: the broker follows none.
fn unlinked(path: &str) -> PathBuf {
    let mounted = Path::new(path).starts_with("/sys/fs/cgroup");
    mounted.then(|| fs::canonicalize(path).ok()).flatten().unwrap_or_else(|| PathBuf::from(path))
}

/// The control group of a container by ID, else by name, which only the container's runtime knows.
fn group_of(container: &str) -> Result<PathBuf, NoGroup> {
    of_container(container).or_else(|error| match error {
        NoGroup::Container(_) => id_of(container).map_or(Err(error), |id| of_container(&id)),
        other => Err(other),
    })
}

fn id_of(name: &str) -> Option<String> {
    ["docker", "podman"].iter().find_map(|runtime| {
        let mut inspect = Command::new(runtime);
        inspect.args(["container", "inspect", "--format", "{{.Id}}", "--", name]);
        let output = inspect.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let number = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && !number.is_empty()).then_some(number)
    })
}
