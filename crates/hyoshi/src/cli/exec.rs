//! `hyoshi exec`: a program under the broker.
//!
//! `exec` joins the broker with its own process and then becomes the program (execve(2)). Signals, the terminal, job
//! control and the exit status are therefore the program's own. A process that is not its child watches the broker:
//!
//! ```text
//!   hyoshi exec ── join, add process ──► broker
//!        │ starts, in a group of its own, sharing only standard error with the program
//!        ├───────► exec-watch ── waits until either ends; reports the end of the broker, and its successor
//!        ▼ becomes
//!     PROGRAM
//! ```

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use hyoshi_broker::TaskSpec;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::{Broker, Task, TaskStub};
use hyoshi_model::{Span, printable_lines};
use hyoshi_orb::cpu_broker;
use hyoshi_os::Credentials;
use hyoshi_os::process::{Process, ProcessIdentity, identity, set_no_new_privileges, wait_for_either};

use super::broker::{At, Here, PeriodArgument, settled};
use super::{CliError, Format, VerbOutcome, streams};

/// The exit code before the program is started, as of env(1), nice(1) and timeout(1).
const NOT_TRIED: u8 = 125;
/// The program exists but cannot be executed, or does not exist (the same manual pages).
const NOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

/// How often to look for the next broker after one has ended.
const NEXT: Span = Span::from_millis(500);

/// What a task requests.
#[derive(Debug, Args)]
pub(super) struct TaskRequest {
    /// The task's name [default: the program's]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The period of its work, such as 33ms for 30 frames a second; auto finds it from the program's wake-ups
    #[arg(long, value_name = "TIME")]
    period: PeriodArgument,
    /// Deadline for the budget, from the start of each period [default: the period]
    #[arg(long, value_name = "TIME")]
    deadline: Option<Span>,
    /// Budget in each period until its consumption is known
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
    /// Least useful budget in each period; below it the task gets none
    #[arg(long, value_name = "TIME")]
    least: Option<Span>,
    /// Cap the program at its reservation, even if the CPU is idle. Except for root, setuid files then add no rights
    /// (no_new_privs)
    #[arg(long)]
    hard: bool,
    /// Importance: larger is more important; the default limit of each user is 1
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    importance: u32,
    /// Weight for policy weighted: a task with a larger weight loses less
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    weight: u32,
    /// Its group, for policy partition
    #[arg(long, value_name = "GROUP", default_value = "")]
    group: String,
    /// An advocate with its parameters, such as "max-decay --reports 10"; repeat for a chain [default: max-decay]
    #[arg(long, value_name = "ADVOCATE")]
    advocate: Vec<String>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit code: the program's; 125 if the broker refuses it, 126 if it cannot be run, 127 if it is not found.\n  \
                        hyoshi exec --name player --period 33ms --importance 5 -- mplayer film.mpg"
)]
pub(super) struct Exec {
    #[command(flatten)]
    asked: TaskRequest,
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    here: Here,
    /// Run the program even without a broker, or if the broker refuses it
    #[arg(long)]
    anyway: bool,
    /// The program, and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    program: Vec<std::ffi::OsString>,
}

/// The process that watches the broker for a program.
#[derive(Clone, Debug, Args)]
pub(super) struct WatchArguments {
    program: u32,
    broker: u32,
    name: String,
    /// Start times, because process IDs are reused.
    #[arg(long)]
    program_start: u64,
    #[arg(long)]
    broker_start: u64,
    /// The socket of the broker, and of its successor.
    #[arg(long)]
    socket: PathBuf,
    /// Start a second such process and exit; it is not a child of the program.
    #[arg(long)]
    aside: bool,
}

impl TaskRequest {
    pub(super) fn joining(&self, name: &str) -> Result<TaskSpec, BrokerClientError> {
        let mut joining = TaskSpec::new(self.name.as_deref().unwrap_or(name), self.period.0);
        (joining.deadline, joining.initial_budget, joining.min_budget) = (self.deadline, self.budget, self.least);
        (joining.importance, joining.weight, joining.hard) = (self.importance, self.weight, self.hard);
        joining.group.clone_from(&self.group);
        for words in &self.advocate {
            let setting = ComponentSpec::from_text(words).and_then(settled).map_err(BrokerClientError::Request)?;
            joining.advocates.push(setting);
        }
        Ok(joining)
    }
}

pub(super) fn exec(arguments: &Exec, format: Format) -> ExitCode {
    let Some((program, rest)) = arguments.program.split_first() else { return ExitCode::from(NOT_TRIED) };
    if let Err(failure) = arguments.here.check() {
        failure.print("exec", format);
        return ExitCode::from(NOT_TRIED);
    }
    // Otherwise a user could cap a program that runs with root's rights.
    if arguments.asked.hard
        && Credentials::own().uid != 0
        && let Err(error) = set_no_new_privileges()
    {
        CliError::new(format_args!("cannot set no_new_privs: {error}"))
            .help("run it without --hard")
            .print("exec", format);
        return ExitCode::from(NOT_TRIED);
    }
    let name = task_name(Path::new(program));
    let joined = match joined(arguments, &name) {
        Ok(joined) => Some(joined),
        Err(error) if arguments.anyway => {
            streams::err(printable_lines(&format!("hyoshi exec: running without a reservation: {error}\n")));
            None
        }
        Err(error) => {
            CliError::new(&error).help(help(&error)).print("exec", format);
            return ExitCode::from(NOT_TRIED);
        }
    };
    let error = Command::new(program).args(rest).exec();
    if let Some((_client, task)) = joined {
        // The task ends with this process in any case.
        let _ = task.leave();
    }
    let there = error.kind() != io::ErrorKind::NotFound;
    let failure = CliError::new(format_args!("cannot run {}: {error}", program.display()));
    let failure = match there {
        true => failure.help("name an executable file"),
        false => failure.help("name a program of PATH, or its path"),
    };
    failure.print("exec", format);
    ExitCode::from(if there { NOT_RUN } else { NOT_FOUND })
}

fn help(error: &BrokerClientError) -> String {
    match error {
        BrokerClientError::NoBroker { .. } => format!("{}; --anyway runs the program without one", error.remedy()),
        _ => error.remedy(),
    }
}

fn joined(arguments: &Exec, name: &str) -> Result<(BrokerClient, TaskStub), BrokerClientError> {
    let joining = arguments.asked.joining(name)?;
    // Resolved once: while a user's own broker is away, the default is the machine's broker.
    let socket = arguments.at.socket.clone().unwrap_or_else(cpu_broker::to_ask_here);
    let client = BrokerClient::connect(Some(&socket))?;
    let task = client.join(&joining)?;
    let program = identity(std::process::id()).map_err(|why| BrokerClientError::Request(why.into()))?;
    // Before this process belongs to the task: later children would belong to it, too.
    let watch =
        client.process().ok_or_else(|| io::Error::other("its process is not visible from here")).and_then(|broker| {
            Ok(WatchArguments {
                program: program.number,
                broker: broker.number,
                name: joining.name.clone(),
                program_start: program.start,
                broker_start: broker.start,
                socket: std::path::absolute(&socket)?,
                aside: true,
            })
        });
    beside(watch);
    add(&task, program)?;
    Ok((client, task))
}

/// Adds a process with its start time, because a broker in another namespace has other process IDs.
pub(super) fn add(task: &TaskStub, process: ProcessIdentity) -> Result<(), BrokerClientError> {
    task.add_process(process.number, process.start).map_err(|error| {
        // The broker ends a task without processes later.
        let _ = task.leave();
        error.into()
    })
}

/// Starts the process that watches the broker. The program also runs without it.
fn beside(watch: io::Result<WatchArguments>) {
    let started = watch.and_then(|watch| {
        // Its own group: it receives no signals of the terminal.
        watch.command()?.process_group(0).spawn()?.wait()
    });
    match started {
        Ok(status) if status.success() => {}
        Ok(status) => streams::err(format_args!("hyoshi exec: cannot watch the broker: {status}\n")),
        Err(error) => streams::err(format_args!("hyoshi exec: cannot watch the broker: {error}\n")),
    }
}

impl WatchArguments {
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["exec-watch", &self.program.to_string(), &self.broker.to_string(), &self.name]);
        command.args(["--program-start", &self.program_start.to_string()]);
        command.args(["--broker-start", &self.broker_start.to_string()]);
        command.arg("--socket").arg(&self.socket);
        if self.aside {
            command.arg("--aside");
        }
        // It keeps only standard error open, until the program ends.
        command.stdin(Stdio::null()).stdout(Stdio::null()).current_dir("/");
        Ok(command)
    }

    /// The process of the answering broker, if it is visible, and whether the program is in its task there.
    fn ask(&self) -> Option<(Option<ProcessIdentity>, bool)> {
        let client = BrokerClient::connect(Some(&self.socket)).ok()?;
        // A broker that answers has restored its tasks.
        client.broker().status().ok()?;
        let task = client.broker().task_status(&self.name);
        Some((client.process(), task.is_ok_and(|task| task.processes.contains(&self.program))))
    }
}

pub(super) fn watch(watch: &WatchArguments) -> Result<VerbOutcome, CliError> {
    let failed = |error: io::Error| CliError::new(format_args!("cannot watch the broker: {error}"));
    if watch.aside {
        // Other inherited files (locks, pipes) are for the program alone.
        hyoshi_os::process::close_on_exec_from(3).map_err(failed)?;
        let mut own = WatchArguments { aside: false, ..watch.clone() }.command().map_err(failed)?;
        own.spawn().map_err(failed)?;
        return Ok(VerbOutcome::Success);
    }
    let meant = ProcessIdentity { number: watch.program, start: watch.program_start };
    let Ok(program) = Process::open_same(meant) else { return Ok(VerbOutcome::Success) };
    let mut broker = Some(ProcessIdentity { number: watch.broker, start: watch.broker_start });
    let mut reserved = true;
    let program_name = format!("{} (process {})", watch.name, watch.program);
    // If the next broker is not visible, its end cannot be watched.
    while let Some(serves) = broker {
        if let Ok(serves) = Process::open_same(serves)
            && wait_for_either(&program, &serves).map_err(failed)? == 0
        {
            return Ok(VerbOutcome::Success);
        }
        if program.has_ended() {
            return Ok(VerbOutcome::Success);
        }
        if std::mem::take(&mut reserved) {
            streams::err(format_args!(
                "hyoshi: the broker has ended; {program_name} continues without a reservation\n"
            ));
        }
        let next = loop {
            if let Some(next) = watch.ask() {
                break next;
            }
            if program.ends_within(NEXT) {
                return Ok(VerbOutcome::Success);
            }
        };
        (broker, reserved) = next;
        if reserved {
            streams::err(format_args!("hyoshi: a broker runs again; {program_name} has its reservation again\n"));
        }
    }
    Ok(VerbOutcome::Success)
}

/// The name of a task, from that of its program.
pub(super) fn task_name(program: &Path) -> String {
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let good = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.chars().map(good).take(64).collect();
    if name.is_empty() { "program".to_owned() } else { name }
}
