//! The programs of a run: each joins the CPU broker, is started, looked after, and ended with the run.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as WallClock};

use hyoshi_broker::Joining;
use hyoshi_broker::client::{Client, ClientError};
use hyoshi_broker::idl::cpu_broker::{Broker, BrokerStanding, Task, TaskStub};
use hyoshi_broker::setting::Setting;
use hyoshi_model::{HostId, Instant, Program, ProgramId, Span, System};
use hyoshi_os::process::end_group;
use hyoshi_report::{Level, Note, ProgramSummary};
use hyoshi_sim::programs::{Period, Played};

use super::played;
use crate::cli::Failure;
use crate::cli::output::note;

/// How often the broker is asked how programs stand.
const LOOK: Duration = Duration::from_millis(100);
/// How long programs have to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(2);

/// Programs that run under the broker. Dropped, they are ended.
pub(in crate::cli) struct Programs {
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<Told>>,
}

/// What became of programs in a run.
#[derive(Default)]
pub(in crate::cli) struct Told {
    /// In the file's order.
    pub summaries: Vec<ProgramSummary>,
    /// What a reader must know of them.
    pub notes: Vec<Note>,
    /// Whether one ended by itself, and not well.
    pub failed: bool,
}

/// A program of the run.
struct Running {
    id: ProgramId,
    child: Child,
    task: TaskStub,
    status: Option<ExitStatus>,
    /// Whether the run ended it.
    ended: bool,
    seen: Played,
    reports: u64,
    because: String,
}

impl Programs {
    /// Starts all programs of the file through the broker: nothing, if there are none.
    ///
    /// Everything that can be refused is refused before the first program starts.
    pub fn start(system: &Arc<System>, socket: Option<&Path>) -> Result<Option<Programs>, Failure> {
        if system.brokered.programs.is_empty() {
            return Ok(None);
        }
        let found = system.brokered.programs.iter().map(find).collect::<Result<Vec<PathBuf>, Failure>>()?;
        let socket = socket.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let client = Client::connect(socket.as_deref()).map_err(|error| {
            let count = system.brokered.programs.len();
            let programs = if count == 1 { "1 reservation".into() } else { format!("{count} reservations") };
            Failure::new(format!("the file has {programs}: {error}")).help(match &error {
                ClientError::NoBroker { .. } => {
                    "`hyoshi broker` starts one; `--broker PATH` names another's socket".to_owned()
                }
                other => other.remedy(),
            })
        })?;
        let standing = client.broker().standing().map_err(|error| refused(&error.into()))?;
        let notes = differing(system, &standing);
        let hosts = (0..system.hosts.len() as u32).map(HostId);
        let order: Vec<ProgramId> = hosts.flat_map(|host| hyoshi_control::file::order(system, host)).collect();
        let mut joined: Vec<(ProgramId, TaskStub)> = Vec::new();
        for id in order {
            match client.join(&joining(system.program(id))) {
                Ok(task) => joined.push((id, task)),
                Err(error) => {
                    // What nobody is in ends by itself, later.
                    joined.iter().for_each(|(_, task)| drop(task.leave()));
                    return Err(refused(&error));
                }
            }
        }
        let mut running: Vec<Running> = Vec::new();
        for (at, (id, task)) in joined.iter().enumerate() {
            match begin(system, *id, &found[id.index()], task) {
                Ok(one) => running.push(one),
                Err(failure) => {
                    end(&mut running);
                    joined[at..].iter().for_each(|(_, task)| drop(task.leave()));
                    return Err(failure);
                }
            }
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (system, stopped) = (system.clone(), stop.clone());
        let watching = move || watch(&system, client, running, notes, &stopped);
        let watcher = thread::Builder::new().name("programs".into()).spawn(watching);
        let watcher = watcher.map_err(|error| Failure::new(format!("cannot look after programs: {error}")))?;
        Ok(Some(Programs { stop, watcher: Some(watcher) }))
    }

    /// Ends those that still run, and tells what became of all.
    pub fn end(mut self) -> Told {
        self.join()
    }

    fn join(&mut self) -> Told {
        self.stop.store(true, Ordering::Release);
        let Some(watcher) = self.watcher.take() else { return Told::default() };
        watcher.thread().unpark();
        watcher.join().unwrap_or_default()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.join();
    }
}

fn refused(error: &ClientError) -> Failure {
    Failure::new(error).help(error.remedy())
}

/// Where a program is, as execvp(3) finds it.
fn find(program: &Program) -> Result<PathBuf, Failure> {
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
        Failure::new(format!("reservation {}: there is no program {word:?} that can be run", program.name))
            .help("`program` takes a program of PATH, or its path from where the run is started")
    })
}

fn joining(program: &Program) -> Joining {
    let setting = |words: &hyoshi_model::AdvocateWords| Setting {
        kind: words.kind.clone(),
        parameters: words.parameters.clone(),
    };
    Joining {
        deadline: Some(program.deadline),
        first: program.budget,
        least: program.least,
        importance: program.importance,
        weight: program.weight,
        group: program.group.clone(),
        advocates: program.advocates.iter().map(setting).collect(),
        ..Joining::new(&program.name, program.period)
    }
}

/// Where the broker's policy is not the file's, it counts: it is for all of the machine's tasks.
fn differing(system: &System, standing: &BrokerStanding) -> Vec<Note> {
    let asked = system.brokered.brokers.first();
    let differs = asked.filter(|asked| {
        let groups = standing.policy.split_whitespace().eq(asked.policy.split_whitespace());
        !groups || asked.cap.as_millionths() != standing.cap
    });
    let Some(asked) = differs else { return Vec::new() };
    let holds = hyoshi_model::Share::from_millionths(standing.cap);
    let text = format!(
        "the broker has policy {} with a cap of {holds}, the file {} with {}: the broker's counts",
        standing.policy, asked.policy, asked.cap
    );
    let remedy = Some(format!("hyoshi broker policy set \"{}\" --cap {}", asked.policy, asked.cap));
    vec![Note { remedy, ..note(Level::Degraded, "broker", text) }]
}

fn begin(system: &System, id: ProgramId, path: &Path, task: &TaskStub) -> Result<Running, Failure> {
    let program = system.program(id);
    let mut command = Command::new(path);
    command.args(program.words.iter().skip(1)).stdin(Stdio::null());
    // Standard output is the report's.
    command.stdout(std::io::stderr()).process_group(0);
    let started = command.spawn();
    let mut child = started.map_err(|error| {
        Failure::new(format!("reservation {}: cannot run {}: {error}", program.name, path.display()))
            .help("it must be a program, with permission to run it")
    })?;
    if let Err(error) = task.add_process(child.id(), 0) {
        let ended = child.try_wait().ok().flatten();
        let error = ClientError::from(error);
        drop(end_group(child.id(), true));
        drop(child.wait());
        return Err(match ended {
            Some(status) => Failure::new(format!("reservation {}: it ended at once, {status}", program.name))
                .help("see what it says for itself, without the broker"),
            None => Failure::new(format!("reservation {}: {error}", program.name)).help(error.remedy()),
        });
    }
    let task = task.clone();
    let (seen, because) = (Played::new(id), String::new());
    Ok(Running { id, child, task, status: None, ended: false, seen, reports: 0, because })
}

/// Looks after programs until the run ends or they have.
fn watch(system: &System, client: Client, mut running: Vec<Running>, mut notes: Vec<Note>, stop: &AtomicBool) -> Told {
    let started = WallClock::now();
    let (mut last, mut gone) = (Instant::ZERO, false);
    loop {
        let stopping = stop.load(Ordering::Acquire);
        let now = Instant::from_nanos(started.elapsed().as_nanos() as u64);
        for one in &mut running {
            gone |= one.look(last, now, gone).is_err();
        }
        last = now;
        if stopping {
            break;
        }
        thread::park_timeout(LOOK);
    }
    if gone {
        let text = "it ended, or did not answer: from then on programs ran without reservations";
        notes.push(note(Level::Degraded, "broker", text));
    }
    end(&mut running);
    drop(client);
    let mut failed = false;
    for one in running.iter().filter(|one| !one.ended) {
        if let Some(status) = one.status.filter(|status| !status.success()) {
            failed = true;
            let name = &system.program(one.id).name;
            notes.push(note(Level::Degraded, "reservations", format!("{name} ended by itself: {status}")));
        }
    }
    running.sort_by_key(|one| one.id);
    let summaries = running.into_iter().map(|one| one.told(system)).collect();
    Told { summaries, notes, failed }
}

/// Ends those that still run, with whatever they have started.
fn end(running: &mut [Running]) {
    for one in running.iter_mut().filter(|one| one.status.is_none()) {
        one.ended = true;
        // It may end by itself meanwhile.
        drop(end_group(one.child.id(), false));
    }
    let asked = WallClock::now();
    while running.iter_mut().any(|one| one.lives()) && asked.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    for one in running.iter_mut() {
        if one.ended {
            drop(end_group(one.child.id(), true));
        }
        if one.status.is_none() {
            one.status = one.child.wait().ok();
        }
        // The broker may be gone, or have seen that the task is over.
        drop(one.task.leave());
    }
}

impl Running {
    fn lives(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status.is_none()
    }

    /// Asks the broker how it stands, unless that is gone; an error if it does not say.
    fn look(&mut self, last: Instant, now: Instant, gone: bool) -> Result<(), ()> {
        if !self.lives() || gone {
            return Ok(());
        }
        let standing = match self.task.standing() {
            Ok(standing) => standing,
            // Its processes may have ended just now.
            Err(_) if !self.lives() => return Ok(()),
            Err(_) => return Err(()),
        };
        let nanos = Span::from_nanos;
        if standing.reports > self.reports {
            self.reports = standing.reports;
            self.seen.add(Period {
                at: last,
                until: now,
                met: None,
                asked: nanos(standing.granted.asked.budget),
                held: nanos(standing.granted.held.budget),
                consumed: nanos(standing.consumed),
            });
        }
        self.because = standing.granted.because;
        Ok(())
    }

    fn told(self, system: &System) -> ProgramSummary {
        let ended = (!self.ended).then_some(self.status).flatten();
        let mut told = played(system, &self.seen);
        // Deadlines only the program knows; what lies between two looks is not counted.
        (told.met, told.missed, told.over_ppm) = (None, None, None);
        told.over_time.iter_mut().for_each(|stretch| stretch.missed = None);
        ProgramSummary {
            periods: self.reports,
            ended: ended.map(|status| status.to_string()),
            because: self.because,
            ..told
        }
    }
}
