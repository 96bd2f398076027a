//! Runs the broker.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hyoshi_broker::access::Access;
use hyoshi_broker::audit::Audit;
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::external::Externals;
use hyoshi_broker::log_writer::LogWriter;
use hyoshi_broker::machine::{self, Machine};
use hyoshi_broker::state_file::{RestoreReport, restore_unrecorded};
use hyoshi_broker::task_store::{StoredPolicy, StoredTask, TaskStore};
use hyoshi_broker::{BrokerService, BrokerState, RequestError, ServiceError, policy, socket};
use hyoshi_control::policy::AnyPolicy;
use hyoshi_control::{Arbiter, PolicySpec};
use hyoshi_model::{Share, printable_lines};
use hyoshi_orb::OrbError;
use hyoshi_os::trusted::UntrustedPath;
use hyoshi_os::{
    Credentials, Hangup, Interrupt, Notifier, SocketAddress, Spawn, ThreadPolicy, Wake, allowed_cpus, priority,
    set_own_policy,
};
use serde_json::json;

use super::names::group;
use super::{At, change, limits, look};
use crate::cli::tls::TlsPapers;
use crate::cli::{CliError, Format, VerbOutcome, head, streams};

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Members of this group are operators: they may change all tasks and the policy
    #[arg(long, value_name = "GROUP")]
    operators: Option<String>,
    /// Policy by which tasks share the CPU: fair, strict, weighted, "partition(video 40% fair, rest 30% weighted)",
    /// "external --object REFERENCE --fallback weighted" or "library --path PATH" [default: fair]
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Cap on all reservations together; 150% is one and a half CPUs [default: 75% of each CPU]
    #[arg(long, value_name = "SHARE")]
    cap: Option<Share>,
    /// Budget of the broker's own CPU time, as a part of one CPU. Each user has a part of it; tasks that do not fit are
    /// refused [default: 10%]
    #[arg(long, value_name = "SHARE")]
    own_time: Option<Share>,
    /// Scheduler that reserves time: window, deadline, weights, none, or one in another process, external:REFERENCE or
    /// "external --object REFERENCE --timeout 20ms" [default: the best that this machine grants, except deadline]
    #[arg(long, value_name = "SCHEDULER")]
    scheduler: Option<String>,
    /// A guaranteed share while windows are closed: weights of control groups, into which programs are moved
    #[arg(long, value_enum, value_name = "FLOOR")]
    floor: Option<FloorMethod>,
    /// Directory for the broker's state, from which the next broker restores programs and tasks after a crash [default:
    /// state, beside the socket]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Start without the previous broker's tasks and policy
    #[arg(long)]
    forget: bool,
    /// File with each user's limits; `hyoshi broker check-config` checks it [default: /etc/hyoshi/broker.toml, if this
    /// is root's]
    #[arg(long, value_name = "FILE")]
    limits: Option<PathBuf>,
    /// Append the reports of advocates of kind `log` to this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Append a line for each change, made or refused, to this file
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    #[command(flatten)]
    remote: super::remote::Listen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FloorMethod {
    /// The reserved share as a control group's weight
    Weights,
}

/// Notifies the operator.
type Notify<'a> = dyn Fn(&dyn Display) + 'a;

impl Serve {
    /// A flag that is set.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("operators", self.operators.is_some()),
            ("policy", self.policy.is_some()),
            ("cap", self.cap.is_some()),
            ("own-time", self.own_time.is_some()),
            ("scheduler", self.scheduler.is_some()),
            ("floor", self.floor.is_some()),
            ("state", self.state.is_some()),
            ("forget", self.forget),
            ("limits", self.limits.is_some()),
            ("log", self.log.is_some()),
            ("audit", self.audit.is_some()),
        ];
        all.iter().chain(&self.remote.given()).find_map(|(flag, given)| given.then_some(*flag))
    }
}

pub(super) fn serve(serve: &Serve, at: &At, tls: &TlsPapers, format: Format) -> Result<VerbOutcome, CliError> {
    // First, because a signal may arrive at any time.
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone())
        .map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let hangup =
        Hangup::on_signal().map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let uid = Credentials::own().uid;
    let misplaced = |error: socket::SocketError| CliError::new(&error).help(error.remedy());
    let socket = match &at.socket {
        Some(socket) => socket.clone(),
        None => {
            let runtime = hyoshi_os::secure_var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
            socket::to_serve(uid, runtime.as_deref()).map_err(misplaced)?
        }
    };
    let rules = limits::to_serve(serve.limits.as_deref(), uid)?;
    let group = serve.operators.as_deref().map(group).transpose()?;
    let (remote, renewal) = serve.remote.remote(tls)?;
    let externals = Externals::new().map_err(|error| refused(&ServiceError::Orb(error), &socket))?;
    let external = external_scheduler(serve.scheduler.as_deref()).map_err(change::failure)?;
    let own = serve.scheduler.as_deref().filter(|_| external.is_none());
    own.map_or(Ok(()), machine::check_name).map_err(|error| CliError::new(&error).help(error.remedy()))?;
    let policy = serve.policy.as_deref().map(|policy| policy_of(policy, &externals)).transpose()?;
    // The command line is valid; changes start here.
    socket::prepare(&socket, uid).map_err(misplaced)?;
    let audit = match &serve.audit {
        None => Audit::none(),
        Some(path) => Audit::to(path).map_err(|error| {
            CliError::new(format_args!("cannot open the audit log {}: {error}", path.display()))
                .help(mistrust(&error).unwrap_or("use --audit FILE in a directory that the broker can write to".into()))
        })?,
    };
    let log = serve.log.as_ref().map(|path| {
        LogWriter::to(path).map_err(|error| {
            CliError::new(format_args!("cannot open the log {}: {error}", path.display()))
                .help(mistrust(&error).unwrap_or("use --log FILE in a directory that the broker can write to".into()))
        })
    });
    let log = log.transpose()?;
    // Windows must not wait for a reader of standard error.
    let notices = LogWriter::on_standard_error()
        .map_err(|error| CliError::new(format_args!("cannot use standard error: {error}")))?;
    let notices = Arc::new(notices);
    // The last owner writes the remaining messages: not the thread that renews.
    let writer = Arc::downgrade(&notices);
    renewal.start(hangup, move |text| {
        if let Some(writer) = writer.upgrade() {
            writer.push(printable_lines(&format!("hyoshi broker: {text}")));
        }
    })?;
    let notify = |text: &dyn Display| notices.push(printable_lines(&format!("hyoshi broker: {text}")));
    let state = serve.state.clone().unwrap_or_else(|| socket.with_file_name("state"));
    let (mut machine, restored) = Machine::with_floor(&state, own, serve.floor.is_some())
        .map_err(|error| CliError::new(&error).help(error.remedy()))?;
    if let Some(setting) = external {
        machine = machine.put_behind(|own| externals.scheduler(&setting, own)).map_err(change::failure)?;
    }
    if restored != RestoreReport::default() {
        notify(&format_args!("undid changes of another broker: {restored}"));
    }
    let (task_store, warning) = TaskStore::open(&state).map_err(|error| {
        CliError::new(format_args!("cannot store tasks in {}: {error}", state.display()))
            .help("use --state DIR with a directory that the broker can write to")
    })?;
    if let Some(warning) = warning {
        notify(&warning);
    }
    // Changes that no line of the state file records, as after damage.
    let unrecorded = restore_unrecorded(task_store.tasks().flat_map(StoredTask::identities));
    if unrecorded != RestoreReport::default() {
        notify(&format_args!("undid changes of the previous broker that the state file does not list: {unrecorded}"));
    }
    let arbiter = arbiter(serve, policy, task_store.policy(), &externals, &notify)?;
    let mut core = BrokerState::new(arbiter, Box::new(machine), Access { broker: uid, group }, audit);
    for unknown in rules.unknown() {
        notify(&format_args!("[{}] of {} matches no user: unknown name", unknown.scope, rules.file));
    }
    core.set_rules(Arc::new(rules));
    if let Some(share) = serve.own_time {
        core.set_own_time(share);
    }
    match serve.forget {
        // The store is cleared once the broker serves, so a failed start loses nothing.
        true => core.start_new_store(task_store),
        false => core.store_tasks_in(task_store),
    }
    core.use_externals(externals);
    if let Some(log) = log {
        core.write_log_to(log);
    }
    let service =
        BrokerService::start_for(core, &socket, uid, remote, wake).map_err(|error| refused(&error, &socket))?;
    let (status, remote) = (service.status(), service.remote().collect::<Vec<_>>());
    let text = match format {
        Format::Text => {
            let remote: String = remote.iter().map(|at| format!("            {at}\n")).collect();
            format!("{}at          {}\n{remote}", look::status_text(&status), socket.display())
        }
        Format::Json => {
            let answer = json!({ "hyoshi": head("broker"), "broker": look::status_json(&status), "at": socket, "remote": remote });
            format!("{answer:#}\n")
        }
    };
    print_status(text)?;
    // Above the windows that it opens and closes, and above lanes: its work for them is short.
    let opens_windows = status.proxies.iter().any(|proxy| proxy.used && proxy.name == "window");
    if let Err(refused) = set_own_policy(ThreadPolicy::Fifo(priority::BROKER))
        && opens_windows
    {
        notify(&format_args!("the broker runs at normal priority, so windows may open late: {refused}"));
    }
    let manager = manager(&socket, &notify);
    service.run(&interrupt, &manager, |notice| notify(&notice));
    Ok(VerbOutcome::Success)
}

/// The remedy for a path that another user controls.
fn mistrust(error: &std::io::Error) -> Option<String> {
    UntrustedPath::of(error).map(UntrustedPath::remedy)
}

/// Prints the status on standard output without a long wait for a reader, because the broker already serves.
fn print_status(text: String) -> Result<(), CliError> {
    let printing = Spawn::new("says").spawn(move || streams::out(text));
    let printing = printing.map_err(|error| CliError::new(format_args!("cannot start a thread: {error}")))?;
    for _ in 0..100 {
        if printing.is_finished() {
            // A panic has already been reported.
            return printing.join().unwrap_or(Ok(()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Notifies the service manager, if there is one.
fn manager(socket: &Path, notify: &Notify<'_>) -> Notifier {
    let notified = Notifier::of_environment().and_then(|manager| {
        manager.ready(&format!("serves at {}", socket.display()))?;
        Ok(manager)
    });
    notified.unwrap_or_else(|error| {
        notify(&format_args!("cannot notify the service manager: {error}"));
        Notifier::none()
    })
}

/// The scheduler in another process, if one is set.
fn external_scheduler(scheduler: Option<&str>) -> Result<Option<ComponentSpec>, RequestError> {
    let setting = match scheduler {
        Some(text) if text.split_whitespace().next() == Some("external") => ComponentSpec::from_text(text)?,
        Some(text) => match text.strip_prefix("external:") {
            Some(object) => {
                ComponentSpec { parameters: vec![("object".into(), object.into())], ..ComponentSpec::of("external") }
            }
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    change::settled(setting).map(Some)
}

/// A policy of the command line.
fn policy_of(policy: &str, externals: &Arc<Externals>) -> Result<AnyPolicy, CliError> {
    change::referring(policy).and_then(|policy| policy::read(&policy, externals)).map_err(change::failure)
}

/// Uses the policy and the cap of the command line, else the stored ones of the previous broker.
fn arbiter(
    serve: &Serve,
    policy: Option<AnyPolicy>,
    before: &StoredPolicy,
    externals: &Arc<Externals>,
    notify: &Notify<'_>,
) -> Result<Arbiter, CliError> {
    let before = Some(before).filter(|_| !serve.forget);
    let default = PolicySpec::default();
    let policy = match (policy, before.map(|before| before.policy.as_str()).filter(|stored| !stored.is_empty())) {
        (Some(policy), _) => policy,
        (None, Some(stored)) => policy::read(stored, externals).or_else(|error| {
            notify(&format_args!("using policy {default} instead of the stored `{stored}`: {error}"));
            Ok::<_, CliError>(default.build())
        })?,
        (None, None) => default.build(),
    };
    let before = before.map(|before| before.cap).filter(|cap| *cap > 0).map(Share::from_millionths);
    let cap = serve.cap.or(before).unwrap_or_else(|| Share::from_percent(75 * allowed_cpus().len() as u64));
    Ok(Arbiter::new(policy, cap))
}

fn refused(error: &ServiceError, socket: &Path) -> CliError {
    let failure = CliError::new(error);
    match error {
        ServiceError::Orb(OrbError::Listen { address: SocketAddress::Tcp(_), .. }) => {
            failure.help("use --listen ssliop://HOST:PORT with an address of this machine and a free port")
        }
        ServiceError::Orb(_) => failure.help(format_args!(
            "use another --socket PATH, or the running broker: `hyoshi broker show --socket {}`",
            socket.display()
        )),
        _ => failure,
    }
}
