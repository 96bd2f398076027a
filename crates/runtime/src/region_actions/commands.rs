//! The commands of contracts: one at a time for each contract, within a time limit.

use std::collections::VecDeque;
use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant as WallClock;

use super::ActionLog;
use crate::common::CommonState;
use hyoshi_model::{Instant, Span};
use hyoshi_os::process::{end_group, has_ended};
use hyoshi_os::{Wake, trusted};

/// The time limit of a command.
pub const COMMAND_LIMIT: Span = Span::from_secs(10);

/// The polling interval of running commands.
const LOOK: Span = Span::from_millis(5);

/// The time limit of running commands after the end of the run.
const GRACE: Span = Span::from_millis(300);

/// A killed command ends within this time.
const REAPED: Span = Span::from_secs(1);

/// The most commands of a contract that wait for an earlier one.
const WAITING: usize = 64;

/// The program of a command: an absolute path, or a name in PATH. An error is the reason.
pub(super) fn find(word: &str) -> Result<PathBuf, String> {
    let trusted = |path: &Path| trusted::file(path).map_err(|error| format!("{error}; {}", error.remedy()));
    if word.starts_with('/') {
        return trusted(Path::new(word));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    // A relative directory would depend on the working directory.
    let mut folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
    let found = folders.find_map(|folder| Some(folder.join(word)).filter(|path| path.is_file()));
    trusted(&found.ok_or("it is not in PATH")?)
}

/// The commands of all contracts. A thread of their own polls them: the time limit holds whatever callbacks do.
#[derive(Debug)]
pub(crate) struct Commands {
    common: Arc<CommonState>,
    log: ActionLog,
    wake: Wake,
    state: Mutex<CommandsState>,
}

#[derive(Debug)]
struct CommandsState {
    /// By contract.
    queues: Vec<CommandQueue>,
    over: bool,
}

impl Commands {
    pub fn new(common: Arc<CommonState>, log: ActionLog) -> Commands {
        let queues = common.system.contracts.iter().map(|_| CommandQueue::default()).collect();
        Commands { common, log, wake: Wake::new(), state: Mutex::new(CommandsState { queues, over: false }) }
    }

    fn lock(&self) -> MutexGuard<'_, CommandsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a command of a contract, or lets it wait.
    pub(super) fn add(&self, contract: u16, command: PendingCommand) {
        let mut state = self.lock();
        let result = match state.over {
            true => Some((command.action, Err(NOT_STARTED.to_owned()))),
            false => state.queues[usize::from(contract)].add(command),
        };
        drop(state);
        result.into_iter().for_each(|(action, result)| self.log.record(action, result));
        self.wake.post();
    }

    /// Records the results of commands that have ended. True while one runs.
    fn poll(&self) -> bool {
        let mut state = self.lock();
        let results: Vec<_> = state.queues.iter_mut().flat_map(|queue| queue.poll(COMMAND_LIMIT)).collect();
        let busy = state.queues.iter().any(CommandQueue::is_busy);
        drop(state);
        results.into_iter().for_each(|(action, result)| self.log.record(action, result));
        busy
    }

    /// Polls commands until [`finish`](Self::finish).
    pub fn serve(&self) {
        // Of the first command, or of the end.
        self.wake.wait();
        while !self.lock().over {
            let until = if self.poll() { self.common.now() + LOOK } else { Instant::NEVER };
            self.wake.wait_until(self.common.clock(), until);
        }
    }

    /// The run has ended: running commands have a moment to end.
    pub fn finish(&self) {
        let begun = WallClock::now();
        while self.poll() && begun.elapsed().as_nanos() < u128::from(GRACE.as_nanos()) {
            std::thread::sleep(std::time::Duration::from_nanos(LOOK.as_nanos()));
        }
        let mut state = self.lock();
        state.over = true;
        let abandoned: Vec<_> = state.queues.iter_mut().flat_map(CommandQueue::abandon).collect();
        drop(state);
        abandoned.into_iter().for_each(|(action, reason)| self.log.record(action, Err(reason)));
        self.wake.post();
    }
}

const NOT_STARTED: &str = "not started before the end of the run";

/// A command to start.
#[derive(Debug)]
pub(super) struct PendingCommand {
    /// Its action, by the position among all.
    pub action: usize,
    pub path: PathBuf,
    pub words: Vec<Box<str>>,
    pub contract: String,
    pub region: String,
}

/// The commands of a contract.
#[derive(Debug, Default)]
pub(super) struct CommandQueue {
    running: Option<RunningCommand>,
    waiting: VecDeque<PendingCommand>,
}

#[derive(Debug)]
struct RunningCommand {
    action: usize,
    child: Child,
    started: WallClock,
    /// Its time is over.
    killed: Option<KilledCommand>,
}

/// A command whose time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KilledCommand {
    /// It was killed, and may not have ended yet.
    Ending,
    /// It cannot be killed, for example because it runs as another user. This was reported.
    Remaining,
}

/// The result of a command, with its action.
pub(super) type CommandResult = (usize, Result<(), String>);

impl CommandQueue {
    /// Starts the command, or lets it wait for the present one.
    pub fn add(&mut self, command: PendingCommand) -> Option<CommandResult> {
        if self.waiting.len() == WAITING {
            return Some((command.action, Err(format!("the queue is full: {WAITING} commands wait"))));
        }
        self.waiting.push_back(command);
        self.start_next()
    }

    /// True while a command runs.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// The result of the present command, if it has ended or its time is over. When it has ended, the next one starts.
    pub fn poll(&mut self, limit: Span) -> Vec<CommandResult> {
        let Some(running) = &mut self.running else { return Vec::new() };
        let (action, pid) = (running.action, running.child.id());
        let ended = has_ended(pid);
        if matches!(ended, Ok(false)) {
            let is_over = |limit: Span| running.started.elapsed().as_nanos() >= u128::from(limit.as_nanos());
            let failed = match running.killed {
                None if is_over(limit) => end(&mut running.child).err().map(|error| format!(": {error}")),
                Some(KilledCommand::Ending) if is_over(limit + REAPED) => Some(String::new()),
                _ => return Vec::new(),
            };
            running.killed = Some(failed.as_ref().map_or(KilledCommand::Ending, |_| KilledCommand::Remaining));
            let result = |error: String| (action, Err(format!("cannot kill it after {limit}{error}; it still runs")));
            return failed.map(result).into_iter().collect();
        }
        let killed = running.killed;
        // Its children may still run. Before it is reaped: until then its process ID is not reused.
        drop(end_group(pid, true));
        let status = running.child.try_wait();
        self.running = None;
        let result = match (ended, status) {
            _ if killed == Some(KilledCommand::Ending) => Err(format!("killed after {limit}")),
            (Ok(_), Ok(Some(status))) if status.success() => Ok(()),
            (Ok(_), Ok(Some(status))) => Err(format!("it ended with {status}")),
            (Err(error), _) | (_, Err(error)) => Err(format!("cannot wait for it: {error}")),
            (Ok(_), Ok(None)) => Ok(()),
        };
        let reported = killed == Some(KilledCommand::Remaining);
        let mut results: Vec<_> = Some((action, result)).filter(|_| !reported).into_iter().collect();
        results.extend(self.start_next());
        results
    }

    /// Starts the next one, unless one runs. A command that cannot start has a result.
    fn start_next(&mut self) -> Option<CommandResult> {
        if self.running.is_some() {
            return None;
        }
        let PendingCommand { action, path, words, contract, region } = self.waiting.pop_front()?;
        let mut command = Command::new(path);
        // A program of several names, such as busybox, reads its own.
        command.arg0(&*words[0]).args(words[1..].iter().map(|word| &**word)).stdin(Stdio::null());
        command.env("HYOSHI_CONTRACT", contract).env("HYOSHI_REGION", region);
        // Standard output is for the report.
        command.stdout(std::io::stderr()).process_group(0);
        match command.spawn() {
            Ok(child) => {
                self.running = Some(RunningCommand { action, child, started: WallClock::now(), killed: None });
                None
            }
            Err(error) => Some((action, Err(format!("cannot start it: {error}")))),
        }
    }

    /// The run has ended: kills the present command, and drops those that wait. Returns their actions, with the reason.
    pub fn abandon(&mut self) -> Vec<(usize, String)> {
        let reported = self.running.as_ref().is_some_and(|one| one.killed == Some(KilledCommand::Remaining));
        let running = self.kill().filter(|_| !reported).map(|(action, killed)| match killed {
            Ok(()) => (action, "killed at the end of the run".to_owned()),
            Err(error) => (action, format!("cannot kill it at the end of the run: {error}; it still runs")),
        });
        let waiting = self.waiting.drain(..).map(|one| (one.action, NOT_STARTED.to_owned()));
        running.into_iter().chain(waiting).collect()
    }

    /// Kills the present command and the processes of its group, and reaps it if it ends soon.
    fn kill(&mut self) -> Option<(usize, io::Result<()>)> {
        let mut running = self.running.take()?;
        let killed = end(&mut running.child);
        let begun = WallClock::now();
        while killed.is_ok()
            && matches!(running.child.try_wait(), Ok(None))
            && begun.elapsed().as_nanos() < u128::from(REAPED.as_nanos())
        {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Some((running.action, killed))
    }
}

/// Kills a command and the processes of its group.
fn end(child: &mut Child) -> io::Result<()> {
    // A command may have left its group.
    drop(end_group(child.id(), true));
    child.kill()
}

impl Drop for CommandQueue {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(action: usize, words: &[&str]) -> PendingCommand {
        let words: Vec<Box<str>> = words.iter().map(|word| (*word).into()).collect();
        let path = find(&words[0]).unwrap();
        PendingCommand { action, path, words, contract: "load".into(), region: "thin".into() }
    }

    fn until_done(queue: &mut CommandQueue, limit: Span) -> Vec<CommandResult> {
        let mut results = Vec::new();
        while queue.is_busy() {
            results.extend(queue.poll(limit));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        results
    }

    #[test]
    fn commands_run_one_after_the_other_with_their_region_in_the_environment() {
        let mut queue = CommandQueue::default();
        let test = "test \"$HYOSHI_CONTRACT.$HYOSHI_REGION\" = load.thin";
        assert!(queue.add(command(0, &["sh", "-c", test])).is_none());
        assert!(queue.add(command(1, &["false"])).is_none());
        let results = until_done(&mut queue, COMMAND_LIMIT);
        assert_eq!(results[0], (0, Ok(())));
        assert_eq!(results[1], (1, Err("it ended with exit status: 1".into())));
    }

    #[test]
    fn a_command_beyond_its_time_is_killed() {
        let mut queue = CommandQueue::default();
        queue.add(command(0, &["sleep", "600"]));
        let results = until_done(&mut queue, Span::from_millis(20));
        assert_eq!(results, [(0, Err("killed after 20ms".into()))]);
    }

    #[test]
    fn a_command_that_leaves_its_group_is_killed_too() {
        if find("perl").is_err() {
            return eprintln!("skipped: needs perl");
        }
        let mut queue = CommandQueue::default();
        let leaves = "setpgrp(0, getpgrp(getppid())) or exit 1; sleep 600";
        queue.add(command(0, &["perl", "-e", leaves]));
        let results = until_done(&mut queue, Span::from_millis(300));
        assert_eq!(results, [(0, Err("killed after 300ms".into()))]);
    }

    #[test]
    fn at_most_64_commands_wait() {
        let mut queue = CommandQueue::default();
        let refused: Vec<_> = (0..66).filter_map(|action| queue.add(command(action, &["sleep", "600"]))).collect();
        assert_eq!(refused, [(65, Err("the queue is full: 64 commands wait".into()))]);
    }

    #[test]
    fn unknown_programs_and_those_that_others_control_are_refused() {
        assert_eq!(find("no-such-program-at-all"), Err("it is not in PATH".into()));
        assert!(find("/no/such/program").is_err());
        let folder = std::env::temp_dir().join(format!("hyoshi-commands-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        std::fs::write(&program, "").unwrap();
        let mode = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode;
        std::fs::set_permissions(&program, mode(0o755)).unwrap();
        assert!(find(program.to_str().unwrap()).is_ok());
        std::fs::set_permissions(&program, mode(0o777)).unwrap();
        assert!(find(program.to_str().unwrap()).unwrap_err().contains("other users could replace it"));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
