//! What an experiment on the kernel starts and ends: a broker, and programs that say how they did.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::idl::cpu_broker::TaskStatus;
use hyoshi_model::{Instant, Span};
use hyoshi_os::{Clock, MonotonicClock, allowed_cpus, process::ask_to_end};
use serde::Deserialize;

use crate::watch::{Stopped, Watch};

/// Why a part of the experiment has no result.
#[derive(Debug)]
pub(super) enum NoResult {
    Stopped,
    /// In words.
    Because(String),
}

impl From<Stopped> for NoResult {
    fn from(_: Stopped) -> Self {
        NoResult::Stopped
    }
}

impl From<BrokerClientError> for NoResult {
    fn from(error: BrokerClientError) -> Self {
        NoResult::Because(error.to_string())
    }
}

impl From<io::Error> for NoResult {
    fn from(error: io::Error) -> Self {
        NoResult::Because(error.to_string())
    }
}

/// How often somebody is asked who was not ready.
pub(super) const POLL: Duration = Duration::from_millis(10);
/// What takes longer than that does not come.
const PATIENCE: Span = Span::from_secs(10);

/// A clock whose instants other processes know: CLOCK_MONOTONIC itself.
pub(super) fn clock() -> MonotonicClock {
    MonotonicClock::from_origin(0)
}

/// Waits until something is so; an error if that takes too long.
pub(super) fn wait_for<T>(
    what: &str,
    watch: Watch<'_>,
    mut look: impl FnMut() -> Result<Option<T>, NoResult>,
) -> Result<T, NoResult> {
    let until = clock().now() + PATIENCE;
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        pause(watch)?;
        if clock().now() > until {
            return Err(NoResult::Because(format!("{what} took longer than {PATIENCE}")));
        }
    }
}

/// Sleeps a little, unless everything is to end.
pub(super) fn pause(watch: Watch<'_>) -> Result<(), Stopped> {
    std::thread::sleep(POLL);
    if (watch.stop)() { Err(Stopped) } else { Ok(()) }
}

/// A broker in a process and a directory of its own. Both go with it, and what it changed is put back.
pub(super) struct Broker {
    hyoshi: PathBuf,
    child: Child,
    directory: PathBuf,
    pub client: BrokerClient,
}

impl Broker {
    /// Starts `hyoshi broker` with these words; `hyoshi` is the program.
    pub fn start(hyoshi: &Path, words: &[&str]) -> Result<Broker, NoResult> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("hyoshi-reproduce-{}-{number}", std::process::id()));
        let socket = directory.join("broker.sock");
        let mut command = Command::new(hyoshi);
        command.arg("broker").args(words).arg("--socket").arg(&socket).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let client = match heard(&mut child, "the broker", PATIENCE, |line| line.starts_with("at ").then_some(())) {
            Ok(_) => BrokerClient::connect(Some(&socket)).map_err(NoResult::from),
            Err(error) => Err(error),
        };
        match client {
            Ok(client) => {
                // Its notices are for an operator; they must not fill a pipe.
                drain(child.stderr.take());
                Ok(Broker { hyoshi: hyoshi.to_owned(), child, directory, client })
            }
            Err(error) => {
                end(&mut child);
                let _ = std::fs::remove_dir_all(&directory);
                Err(error)
            }
        }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// `hyoshi VERB` that asks this broker.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.hyoshi);
        command.arg(verb).arg("--socket").arg(self.directory.join("broker.sock"));
        command
    }

    /// An hourglass under this broker: the words of `hyoshi exec`, and those of `hyoshi hourglass`.
    pub fn exec(&self, asked: &[&str], glass: &[&str]) -> Command {
        let mut command = self.command("exec");
        command.args(asked).arg("--").arg(&self.hyoshi).arg("hourglass").args(glass);
        command
    }

    /// The task of a name as it stands.
    pub fn task(&self, name: &str) -> Result<TaskStatus, NoResult> {
        let tasks = self.client.tasks()?;
        let found = tasks.into_iter().find(|task| task.name == name);
        found.ok_or_else(|| NoResult::Because(format!("the broker has no task {name} any more")))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        end(&mut self.child);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Lets a child put things in order, for a while.
fn end(child: &mut Child) {
    let until = clock().now() + PATIENCE;
    let _ = ask_to_end(child);
    while matches!(child.try_wait(), Ok(None)) {
        if clock().now() > until {
            let _ = child.kill();
        }
        std::thread::sleep(POLL);
    }
}

/// What a child says first of what is wanted, with all that follows it. One that says nothing of the kind is ended.
fn heard<T: Send + 'static>(
    child: &mut Child,
    who: &str,
    patience: Span,
    mut wanted: impl FnMut(&str) -> Option<T> + Send + 'static,
) -> Result<(T, BufReader<ChildStdout>), NoResult> {
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let (tell, told) = mpsc::sync_channel(1);
    // It ends with what the child says, at the latest when that is ended.
    std::thread::spawn(move || {
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            if let Some(found) = wanted(&line) {
                let _ = tell.send((found, lines));
                return;
            }
            line.clear();
        }
    });
    told.recv_timeout(Duration::from_nanos(patience.as_nanos())).map_err(|error| {
        end(child);
        match error {
            RecvTimeoutError::Timeout => NoResult::Because(format!("{who} said nothing within {patience}")),
            RecvTimeoutError::Disconnected => last_words(child),
        }
    })
}

/// Why a child did not do as it was told, once it has ended.
fn last_words(child: &mut Child) -> NoResult {
    let mut said = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4_096).read_to_string(&mut said);
    }
    let lines = said.lines().map(|line| line.trim_start_matches("error: "));
    NoResult::Because(lines.collect::<Vec<_>>().join("; "))
}

fn drain(pipe: Option<impl Read + Send + 'static>) {
    if let Some(mut pipe) = pipe {
        // It ends with the child.
        std::thread::spawn(move || io::copy(&mut pipe, &mut io::sink()));
    }
}

/// A period of an hourglass, as it tells of it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Period {
    #[serde(rename = "period")]
    pub number: u64,
    pub obtained_ns: u64,
    pub met: bool,
}

/// What it says first.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Opening {
    process: u32,
    origin_ns: u64,
    period_ns: u64,
}

/// An hourglass that runs.
pub(super) struct Glass {
    child: Child,
    opening: Opening,
    /// Until somebody listens.
    lines: Option<BufReader<ChildStdout>>,
    periods: Option<JoinHandle<Vec<Period>>>,
}

impl Glass {
    /// Starts one that tells of `--each` period in JSON, and waits until it runs.
    pub fn start(mut command: Command) -> Result<Glass, NoResult> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.args(["--each", "--format", "json"]).spawn()?;
        let (opening, lines) = heard(&mut child, "the program", PATIENCE, |line| serde_json::from_str(line).ok())?;
        drain(child.stderr.take());
        Ok(Glass { child, opening, lines: Some(lines), periods: None })
    }

    /// From now on its periods are read as it tells of them; `told` is given each.
    pub fn listen(&mut self, mut told: impl FnMut(&Period) + Send + 'static) {
        if let Some(lines) = self.lines.take() {
            // The last line tells of all periods, and is none.
            let period = |line: String| serde_json::from_str(&line).ok();
            let read = move || lines.lines().map_while(Result::ok).filter_map(period).inspect(&mut told).collect();
            self.periods = Some(std::thread::spawn(read));
        }
    }

    /// Its process.
    pub fn process(&self) -> u32 {
        self.opening.process
    }

    /// When a period begins.
    pub fn release(&self, number: u64) -> Instant {
        Instant::from_nanos(self.opening.origin_ns + number * self.opening.period_ns)
    }

    /// The first period that begins then or later.
    pub fn first_from(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.opening.origin_ns).div_ceil(self.opening.period_ns)
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it if it has not; its periods by number, none for those in which it did not run.
    pub fn periods(mut self) -> Vec<Option<Period>> {
        end(&mut self.child);
        let told = self.periods.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut periods = vec![None; told.last().map_or(0, |last| last.number as usize + 1)];
        for period in told {
            if let Some(place) = periods.get_mut(period.number as usize) {
                *place = Some(period);
            }
        }
        periods
    }
}

impl Drop for Glass {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ordinary programs that want all that they can get.
pub(super) struct Spinners(Vec<Child>);

impl Spinners {
    /// So many for each CPU that this thread may use; none outlives `longest` by much, whatever becomes of us.
    pub fn start(hyoshi: &Path, each: usize, longest: Span) -> Result<Spinners, NoResult> {
        let mut spinners = Spinners(Vec::new());
        let longest = format!("{}ms", longest.as_nanos() / 1_000_000 + 1_000);
        for _ in 0..each * allowed_cpus().len() {
            let mut command = Command::new(hyoshi);
            command.args(["hourglass", "--period", "100ms", "--work", "100ms", "--for", &longest]);
            spinners.0.push(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        }
        Ok(spinners)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn number(line: &str) -> Option<u32> {
        line.trim().parse().ok()
    }

    #[test]
    fn a_child_that_says_nothing_is_ended_and_that_is_told() {
        let mut child = shell("exec sleep 1000");
        let error = heard(&mut child, "it", Span::from_millis(100), number).unwrap_err();
        assert!(matches!(error, NoResult::Because(why) if why == "it said nothing within 100ms"));
        assert!(matches!(child.try_wait(), Ok(Some(_))));
    }

    #[test]
    fn what_a_child_says_after_what_was_wanted_is_kept_and_its_last_words_are_told() {
        let mut child = shell("echo first; echo 7; echo then");
        let (seven, mut lines) = heard(&mut child, "it", PATIENCE, number).ok().unwrap();
        let mut then = String::new();
        lines.read_line(&mut then).unwrap();
        assert_eq!((seven, then.as_str()), (7, "then\n"));
        end(&mut child);
        let error = heard(&mut shell("echo error: no more >&2"), "it", PATIENCE, number).unwrap_err();
        assert!(matches!(error, NoResult::Because(why) if why == "no more"));
    }
}
