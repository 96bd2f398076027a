//! A process that ends a run's programs if the run was killed.
//!
//! ```text
//!   hyoshi run ── a pipe: each program as it starts, `over` ──► run-watch
//!        │ starts, each in a group of its own                       │ the pipe closes with the run; without `over`
//!        ▼                                                          ▼ before, it ends the remaining programs
//!     programs
//! ```

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_os::process::{NoProcess, Process, ProcessIdentity, end_group, identity};

use crate::cli::{CliError, VerbOutcome, streams};

/// How long programs have to end after SIGTERM.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// Sent by the run after it has ended its programs itself.
const OVER: &str = "over";

/// The process beside a run. It ends when this goes: dropped before the run [is over](ProgramGuard::over), after the
/// programs that are left.
pub(super) struct ProgramGuard {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl ProgramGuard {
    /// Without programs.
    pub fn start() -> io::Result<ProgramGuard> {
        let mut command = Command::new(std::env::current_exe()?);
        // Its own group: it receives no signals of the terminal. Standard error is for its message.
        command.arg("run-watch").current_dir("/").process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut process = command.spawn()?;
        let pipe = process.stdin.take();
        Ok(ProgramGuard { process, pipe })
    }

    /// Adds a program. It must not have been waited for: until then its process ID is not reused.
    pub fn guard(&mut self, program: &Child) -> io::Result<()> {
        let ProcessIdentity { number, start } = identity(program.id()).map_err(io::Error::other)?;
        self.pipe.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "{number} {start}"))
    }

    /// The run has ended its programs.
    pub fn over(mut self) {
        // Without a guard nothing is ended.
        let _ = self.pipe.as_mut().map(|pipe| writeln!(pipe, "{OVER}"));
    }
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        drop(self.pipe.take());
        drop(self.process.wait());
    }
}

/// `hyoshi run-watch`: reads a line for each program from standard input, until the run closes it.
pub(in crate::cli) fn watch() -> Result<VerbOutcome, CliError> {
    let mut programs: Vec<ProcessIdentity> = Vec::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line == OVER {
            return Ok(VerbOutcome::Success);
        }
        let of = |(number, start): (&str, &str)| {
            Some(ProcessIdentity { number: number.parse().ok()?, start: start.parse().ok()? })
        };
        programs.extend(line.split_once(' ').and_then(of));
    }
    programs.retain(|program| is_left(*program) && end_group(program.number, false).is_ok());
    if programs.is_empty() {
        return Ok(VerbOutcome::Success);
    }
    let left = if programs.len() == 1 { "program".into() } else { format!("{} programs", programs.len()) };
    streams::err(format_args!("hyoshi: the run was killed; ending its {left}\n"));
    let asked = Instant::now();
    while programs.iter().any(|program| Process::open_same(*program).is_ok()) && asked.elapsed() < PATIENCE {
        thread::sleep(Duration::from_millis(5));
    }
    for program in programs {
        if is_left(program) {
            // The group may have ended by now.
            drop(end_group(program.number, true));
        }
    }
    Ok(VerbOutcome::Success)
}

/// Whether a group is still the program's: its ID is the program's process ID, which is not reused while the group has
/// a process.
fn is_left(program: ProcessIdentity) -> bool {
    match identity(program.number) {
        Ok(found) => found == program,
        Err(why) => matches!(why, NoProcess::Gone(_)),
    }
}
