//! The commands of contracts: one at a time for each contract, within a time limit.

use std::collections::VecDeque;
use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant as WallClock;

use hyoshi_model::Span;
use hyoshi_os::process::end_group;
use hyoshi_os::trusted;

/// The time that a command has.
pub const COMMAND_LIMIT: Span = Span::from_secs(10);

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
}

/// The result of a command, with its action.
pub(super) type CommandResult = (usize, Result<(), String>);

impl CommandQueue {
    /// Starts the command, or lets it wait for the present one.
    pub fn add(&mut self, command: PendingCommand) -> Option<CommandResult> {
        if self.waiting.len() == WAITING {
            return Some((command.action, Err(format!("{WAITING} earlier commands of the contract wait"))));
        }
        self.waiting.push_back(command);
        self.start_next()
    }

    /// True while a command runs.
    pub fn is_busy(&self) -> bool {
        self.running.is_some()
    }

    /// The result of the present command, if it has ended or its time is over. Then the next one starts.
    pub fn poll(&mut self, limit: Span) -> Vec<CommandResult> {
        let Some(running) = &mut self.running else { return Vec::new() };
        let result = match running.child.try_wait() {
            Ok(None) if running.started.elapsed().as_nanos() < u128::from(limit.as_nanos()) => return Vec::new(),
            Ok(None) => Err(format!("killed after {limit}")),
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(format!("it ended with {status}")),
            Err(error) => Err(format!("cannot wait for it: {error}")),
        };
        let action = running.action;
        self.kill();
        let mut results = vec![(action, result)];
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
                self.running = Some(RunningCommand { action, child, started: WallClock::now() });
                None
            }
            Err(error) => Some((action, Err(format!("cannot start it: {error}")))),
        }
    }

    /// The run has ended: kills the present command, and drops those that wait. Returns their actions, with the reason.
    pub fn abandon(&mut self) -> Vec<(usize, &'static str)> {
        let running = self.running.as_ref().map(|running| (running.action, "killed at the end of the run"));
        self.kill();
        let waiting = self.waiting.drain(..).map(|one| (one.action, "not started before the end of the run"));
        running.into_iter().chain(waiting).collect()
    }

    /// Ends the present command and its children.
    fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            // Before waiting: until then its process ID is not reused. Its children may still run.
            drop(end_group(running.child.id(), true));
            drop(running.child.wait());
        }
    }
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
    fn at_most_64_commands_wait() {
        let mut queue = CommandQueue::default();
        let refused: Vec<_> = (0..66).filter_map(|action| queue.add(command(action, &["sleep", "600"]))).collect();
        assert_eq!(refused, [(65, Err("64 earlier commands of the contract wait".into()))]);
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
