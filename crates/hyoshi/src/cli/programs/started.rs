//! The programs of a run: each joins the CPU broker, is started, watched, and ended with the run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant as WallClock};

use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::{Broker, StatusError, Task, TaskStub};
use hyoshi_model::{HostId, Instant, Program, ProgramId, Span, System};
use hyoshi_os::process::{Process, end_group};
use hyoshi_report::{NoteLevel, ProgramSummary, ReportNote};
use hyoshi_sim::programs::{Period, ProgramResults};

use super::asked::{differing, find, joining};
use super::guard::{PATIENCE, ProgramGuard};
use super::{ProgramsOutcome, played};
use crate::cli::CliError;
use crate::cli::notes::note;

/// How often the broker is asked for the status of programs.
const LOOK: Duration = Duration::from_millis(100);

/// Programs that run under the broker. Dropping ends them.
pub(in crate::cli) struct RunningPrograms {
    stop: Arc<AtomicBool>,
    watcher: Option<JoinHandle<ProgramsOutcome>>,
}

/// A program of the run.
struct StartedProgram {
    id: ProgramId,
    child: Child,
    /// Reports its end without waiting for it; `None` after its end.
    process: Option<Process>,
    task: TaskStub,
    status: Option<ExitStatus>,
    /// Whether the run ended it.
    ended: bool,
    seen: ProgramResults,
    reports: u64,
    because: String,
    /// The broker no longer has the task.
    detached: bool,
}

impl RunningPrograms {
    /// Starts all programs of the file, or those of one host, through the broker: nothing, if there are none.
    ///
    /// Everything that can be refused is refused before the first program starts.
    pub fn start(
        system: &Arc<System>,
        host: Option<HostId>,
        socket: Option<&Path>,
    ) -> Result<Option<RunningPrograms>, CliError> {
        let here = |program: &&Program| host.is_none_or(|host| program.host == host);
        let count = system.brokered.programs.iter().filter(here).count();
        if count == 0 {
            return Ok(None);
        }
        // Programs of other hosts are not searched.
        let find = |program| if here(&program) { find(program) } else { Ok(PathBuf::new()) };
        let found = system.brokered.programs.iter().map(find).collect::<Result<Vec<PathBuf>, CliError>>()?;
        let socket = socket.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let client = BrokerClient::connect(socket.as_deref()).map_err(|error| {
            let programs = if count == 1 { "1 reservation".into() } else { format!("{count} reservations") };
            CliError::new(format!("cannot start {programs} of the file: {error}")).help(match &error {
                BrokerClientError::NoBroker { .. } => {
                    "start one with `hyoshi broker`, or name its socket with `--socket PATH`".to_owned()
                }
                other => other.remedy(),
            })
        })?;
        let status = client.broker().status().map_err(|error| refused(&error.into()))?;
        let notes = differing(system, &status);
        let joined = join_all(system, host, &client)?;
        let alone = |error| CliError::new(format!("cannot watch programs: {error}"));
        let mut guard = ProgramGuard::start().map_err(alone)?;
        let running = match begin_all(system, &joined, &found, &mut guard) {
            Ok(running) => running,
            Err(failure) => {
                guard.over();
                return Err(failure);
            }
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (system, stopped) = (system.clone(), stop.clone());
        let watching = move || watch(&system, client, running, notes, &stopped, guard);
        let watcher = thread::Builder::new().name("programs".into()).spawn(watching);
        let watcher = watcher.map_err(alone)?;
        Ok(Some(RunningPrograms { stop, watcher: Some(watcher) }))
    }

    /// Ends running programs. Returns the outcome of all.
    pub fn end(mut self) -> ProgramsOutcome {
        self.join()
    }

    fn join(&mut self) -> ProgramsOutcome {
        self.stop.store(true, Ordering::Release);
        let Some(watcher) = self.watcher.take() else { return ProgramsOutcome::default() };
        watcher.thread().unpark();
        watcher.join().unwrap_or_default()
    }
}

impl Drop for RunningPrograms {
    fn drop(&mut self) {
        self.join();
    }
}

/// All programs join, the more important first; if one is refused, none stays.
fn join_all(
    system: &System,
    host: Option<HostId>,
    client: &BrokerClient,
) -> Result<Vec<(ProgramId, TaskStub)>, CliError> {
    let hosts = (0..system.hosts.len() as u32).map(HostId).filter(|id| host.is_none_or(|host| host == *id));
    let ids = hosts.flat_map(|host| hyoshi_control::file::order(system, host));
    let joining = ids.map(|id| Ok((id, joining(system.program(id))?))).collect::<Result<Vec<_>, CliError>>()?;
    let mut joined: Vec<(ProgramId, TaskStub)> = Vec::new();
    for (id, joining) in joining {
        match client.join(&joining) {
            Ok(task) => joined.push((id, task)),
            Err(error) => {
                // The broker ends a task without processes later.
                joined.iter().for_each(|(_, task)| drop(task.leave()));
                return Err(refused(&error));
            }
        }
    }
    Ok(joined)
}

/// All programs start; if one cannot, those that have are ended.
fn begin_all(
    system: &System,
    joined: &[(ProgramId, TaskStub)],
    found: &[PathBuf],
    guard: &mut ProgramGuard,
) -> Result<Vec<StartedProgram>, CliError> {
    let mut running: Vec<StartedProgram> = Vec::new();
    for (at, (id, task)) in joined.iter().enumerate() {
        match begin(system, *id, &found[id.index()], task, guard) {
            Ok(one) => running.push(one),
            Err(failure) => {
                end(&mut running);
                joined[at..].iter().for_each(|(_, task)| drop(task.leave()));
                return Err(failure);
            }
        }
    }
    Ok(running)
}

fn refused(error: &BrokerClientError) -> CliError {
    CliError::new(error).help(error.remedy())
}

fn begin(
    system: &System,
    id: ProgramId,
    path: &Path,
    task: &TaskStub,
    guard: &mut ProgramGuard,
) -> Result<StartedProgram, CliError> {
    let program = system.program(id);
    let mut command = Command::new(path);
    command.args(program.words.iter().skip(1)).stdin(Stdio::null());
    // Standard output is for the report.
    command.stdout(std::io::stderr()).process_group(0);
    let started = command.spawn();
    let mut child = started.map_err(|error| {
        CliError::new(format!("reservation {}: cannot run {}: {error}", program.name, path.display()))
            .help("name an executable file")
    })?;
    if let Err(error) = guard.guard(&child) {
        end_one(&mut child);
        return Err(CliError::new(format!("cannot watch programs: {error}")));
    }
    if let Err(error) = task.add_process(child.id(), 0) {
        let error = BrokerClientError::from(error);
        return Err(match end_one(&mut child) {
            Some(status) => CliError::new(format!("reservation {}: the program ended at once: {status}", program.name))
                .help("run the program without the broker to see its messages"),
            None => CliError::new(format!("reservation {}: {error}", program.name)).help(error.remedy()),
        });
    }
    let (task, process) = (task.clone(), Process::open(child.id()).ok());
    let (seen, because) = (ProgramResults::new(id), String::new());
    Ok(StartedProgram {
        id,
        child,
        process,
        task,
        status: None,
        ended: false,
        seen,
        reports: 0,
        because,
        detached: false,
    })
}

/// Ends a program without a task, and its children. Returns its exit status if it had ended by itself.
fn end_one(child: &mut Child) -> Option<ExitStatus> {
    let had_ended = Process::open(child.id()).map_or(true, |process| process.has_ended());
    // Before waiting: until then its process ID is not reused.
    drop(end_group(child.id(), true));
    child.wait().ok().filter(|_| had_ended)
}

/// Watches programs until the run ends.
fn watch(
    system: &System,
    client: BrokerClient,
    mut running: Vec<StartedProgram>,
    mut notes: Vec<ReportNote>,
    stop: &AtomicBool,
    guard: ProgramGuard,
) -> ProgramsOutcome {
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
        let text = "it ended or did not answer; afterwards programs ran without reservations";
        notes.push(note(NoteLevel::Degraded, "broker", text));
    }
    end(&mut running);
    guard.over();
    drop(client);
    let mut failed = false;
    for one in running.iter().filter(|one| one.detached) {
        let name = &system.program(one.id).name;
        let text = format!("{name} was detached from the broker; afterwards it ran without a reservation");
        notes.push(note(NoteLevel::Degraded, "reservations", text));
    }
    for one in running.iter().filter(|one| !one.ended) {
        if let Some(status) = one.status.filter(|status| !status.success()) {
            failed = true;
            let name = &system.program(one.id).name;
            notes.push(note(NoteLevel::Degraded, "reservations", format!("{name} ended by itself: {status}")));
        }
    }
    running.sort_by_key(|one| one.id);
    let summaries = running.into_iter().map(|one| one.summary(system)).collect();
    ProgramsOutcome { summaries, notes, failed }
}

/// Ends running programs, and processes that remain in the groups of programs.
fn end(running: &mut [StartedProgram]) {
    for one in running.iter_mut() {
        one.ended = one.lives();
        // The group may be empty.
        drop(end_group(one.child.id(), false));
    }
    let asked = WallClock::now();
    while running.iter().any(StartedProgram::lives) && asked.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    for one in running.iter_mut() {
        // Before waiting: until then its process ID is not reused.
        drop(end_group(one.child.id(), true));
        one.status = one.child.wait().ok();
        // The broker, or the task, may have ended.
        drop(one.task.leave());
    }
}

impl StartedProgram {
    fn lives(&self) -> bool {
        self.process.as_ref().is_some_and(|process| !process.has_ended())
    }

    /// Asks the broker for the status, unless it has ended; an error if it does not answer.
    fn look(&mut self, last: Instant, now: Instant, gone: bool) -> Result<(), ()> {
        if !self.lives() || gone || self.detached {
            return Ok(());
        }
        let status = match self.task.status() {
            Ok(status) => status,
            // Its processes may have ended just now.
            Err(_) if !self.lives() => return Ok(()),
            Err(StatusError::NoSuchTask(_)) => {
                self.detached = true;
                return Ok(());
            }
            Err(StatusError::System(_)) => return Err(()),
        };
        let nanos = Span::from_nanos;
        if status.reports > self.reports {
            self.reports = status.reports;
            self.seen.add(Period {
                at: last,
                until: now,
                met: None,
                asked: nanos(status.granted.requested.budget),
                held: nanos(status.granted.reserved.budget),
                consumed: nanos(status.consumed),
            });
        }
        self.because = status.granted.reason;
        Ok(())
    }

    fn summary(mut self, system: &System) -> ProgramSummary {
        let ended = (!self.ended).then_some(self.status).flatten();
        let mut summary = played(system, &self.seen);
        // Only the program knows its deadlines; periods between two samples are not counted.
        (summary.met, summary.missed, summary.over_ppm) = (None, None, None);
        summary.over_time.iter_mut().for_each(|stretch| stretch.missed = None);
        ProgramSummary {
            periods: self.reports,
            ended: ended.map(|status| status.to_string()),
            because: std::mem::take(&mut self.because),
            ..summary
        }
    }
}

impl Drop for StartedProgram {
    /// No program continues without a watcher, whatever else failed.
    fn drop(&mut self) {
        if self.status.is_none() {
            drop(end_group(self.child.id(), true));
            drop(self.child.wait());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn lives(pid: u32) -> bool {
        Process::open(pid).is_ok_and(|process| !process.has_ended())
    }

    fn until(done: impl Fn() -> bool) {
        let started = WallClock::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(20), "it never came to pass");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn what_a_program_has_started_ends_with_it_also_if_it_has_ended_before() {
        for (rest, code) in [("exit 3", Some(3)), ("wait", None)] {
            let mut command = Command::new("sh");
            command.args(["-c", &format!("sleep 60 >/dev/null & echo $!; {rest}")]).process_group(0);
            let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
            let started: u32 = said.trim().parse().unwrap();
            if code.is_some() {
                until(|| !lives(child.id()));
            }
            assert!(lives(started));
            assert_eq!(end_one(&mut child).and_then(|status| status.code()), code);
            until(|| !lives(started));
        }
    }
}
