//! The processes of an experiment on the kernel: a broker, and programs that report their periods.

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

use crate::control::{ExperimentControl, NoResult, Stopped};

impl From<BrokerClientError> for NoResult {
    fn from(error: BrokerClientError) -> Self {
        NoResult::Because(error.to_string())
    }
}

/// The time between two polls.
pub(super) const POLL: Duration = Duration::from_millis(10);
/// The longest wait.
const PATIENCE: Span = Span::from_secs(10);

/// A clock with instants that other processes know: CLOCK_MONOTONIC.
pub(super) fn clock() -> MonotonicClock {
    MonotonicClock::from_origin(0)
}

/// Waits until `poll` returns a value. An error if that needs too long.
pub(super) fn wait_for<T>(
    what: &str,
    control: ExperimentControl<'_>,
    mut poll: impl FnMut() -> Result<Option<T>, NoResult>,
) -> Result<T, NoResult> {
    let until = clock().now() + PATIENCE;
    loop {
        if let Some(found) = poll()? {
            return Ok(found);
        }
        pause(control)?;
        if clock().now() > until {
            return Err(NoResult::Because(format!("{what} did not finish within {PATIENCE}")));
        }
    }
}

/// Sleeps for a moment. An error if the experiment should stop.
pub(super) fn pause(control: ExperimentControl<'_>) -> Result<(), Stopped> {
    std::thread::sleep(POLL);
    if (control.stop)() { Err(Stopped) } else { Ok(()) }
}

/// A broker in its own process and directory. Dropping it ends the process, which restores its changes, and removes the
/// directory.
pub(super) struct BrokerProcess {
    hyoshi: PathBuf,
    child: Child,
    directory: PathBuf,
    pub client: BrokerClient,
}

impl BrokerProcess {
    /// Starts `hyoshi broker` with these words; `hyoshi` is the path of the program.
    pub fn start(hyoshi: &Path, words: &[&str]) -> Result<BrokerProcess, NoResult> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("hyoshi-reproduce-{}-{number}", std::process::id()));
        let socket = directory.join("broker.sock");
        let mut command = Command::new(hyoshi);
        command.arg("broker").args(words).arg("--socket").arg(&socket).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let client = match expect_line(&mut child, "the broker", PATIENCE, |line| line.starts_with("at ").then_some(()))
        {
            Ok(_) => BrokerClient::connect(Some(&socket)).map_err(NoResult::from),
            Err(error) => Err(error),
        };
        match client {
            Ok(client) => {
                // Its messages are for an operator; they must not fill the pipe.
                drain(child.stderr.take());
                Ok(BrokerProcess { hyoshi: hyoshi.to_owned(), child, directory, client })
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

    /// `hyoshi VERB` with this broker's socket.
    pub fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.hyoshi);
        command.arg(verb).arg("--socket").arg(self.directory.join("broker.sock"));
        command
    }

    /// An hourglass under this broker, with options for `hyoshi exec` and `hyoshi hourglass`.
    pub fn exec(&self, asked: &[&str], glass: &[&str]) -> Command {
        let mut command = self.command("exec");
        command.args(asked).arg("--").arg(&self.hyoshi).arg("hourglass").args(glass);
        command
    }

    /// The standing of a task.
    pub fn task(&self, name: &str) -> Result<TaskStatus, NoResult> {
        let tasks = self.client.tasks()?;
        let found = tasks.into_iter().find(|task| task.name == name);
        found.ok_or_else(|| NoResult::Because(format!("the broker no longer has task {name}")))
    }
}

impl Drop for BrokerProcess {
    fn drop(&mut self) {
        end(&mut self.child);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Ends a child, with time for its cleanup.
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

/// Returns the first expected line of a child and its further output. Ends a child without such a line.
fn expect_line<T: Send + 'static>(
    child: &mut Child,
    who: &str,
    patience: Span,
    mut wanted: impl FnMut(&str) -> Option<T> + Send + 'static,
) -> Result<(T, BufReader<ChildStdout>), NoResult> {
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped"));
    let (sender, receiver) = mpsc::sync_channel(1);
    // The thread ends with the child's output, at the latest with the child.
    std::thread::spawn(move || {
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 0) {
            if let Some(found) = wanted(&line) {
                let _ = sender.send((found, lines));
                return;
            }
            line.clear();
        }
    });
    receiver.recv_timeout(Duration::from_nanos(patience.as_nanos())).map_err(|error| {
        end(child);
        match error {
            RecvTimeoutError::Timeout => NoResult::Because(format!("{who} printed nothing within {patience}")),
            RecvTimeoutError::Disconnected => error_output(child),
        }
    })
}

/// The error output of a child that has ended.
fn error_output(child: &mut Child) -> NoResult {
    let mut output = String::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4_096).read_to_string(&mut output);
    }
    let lines = output.lines().map(|line| line.trim_start_matches("error: "));
    NoResult::Because(lines.collect::<Vec<_>>().join("; "))
}

fn drain(pipe: Option<impl Read + Send + 'static>) {
    if let Some(mut pipe) = pipe {
        // It ends with the child.
        std::thread::spawn(move || io::copy(&mut pipe, &mut io::sink()));
    }
}

/// A period of an hourglass, from its output.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct HourglassPeriod {
    #[serde(rename = "period")]
    pub number: u64,
    pub obtained_ns: u64,
    pub met: bool,
}

/// The first line of its output.
#[derive(Clone, Copy, Debug, Deserialize)]
struct HourglassStart {
    process: u32,
    origin_ns: u64,
    period_ns: u64,
}

/// A running hourglass.
pub(super) struct HourglassProcess {
    child: Child,
    opening: HourglassStart,
    /// `None` after `listen`.
    lines: Option<BufReader<ChildStdout>>,
    periods: Option<JoinHandle<Vec<HourglassPeriod>>>,
}

impl HourglassProcess {
    /// Starts an hourglass that prints each period as JSON (`--each`), and waits until it runs.
    pub fn start(mut command: Command) -> Result<HourglassProcess, NoResult> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.args(["--each", "--format", "json"]).spawn()?;
        let (opening, lines) =
            expect_line(&mut child, "the program", PATIENCE, |line| serde_json::from_str(line).ok())?;
        drain(child.stderr.take());
        Ok(HourglassProcess { child, opening, lines: Some(lines), periods: None })
    }

    /// Reads its periods from now on; `each` receives them.
    pub fn listen(&mut self, mut each: impl FnMut(&HourglassPeriod) + Send + 'static) {
        if let Some(lines) = self.lines.take() {
            // The last line is a summary, not a period.
            let period = |line: String| serde_json::from_str(&line).ok();
            let read = move || lines.lines().map_while(Result::ok).filter_map(period).inspect(&mut each).collect();
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

    /// The first period that begins at `at` or later.
    pub fn first_from(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.opening.origin_ns).div_ceil(self.opening.period_ns)
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it if necessary. Returns its periods by number; `None` for those in which it did not run.
    pub fn periods(mut self) -> Vec<Option<HourglassPeriod>> {
        end(&mut self.child);
        let reported = self.periods.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let mut periods = vec![None; reported.last().map_or(0, |last| last.number as usize + 1)];
        for period in reported {
            if let Some(place) = periods.get_mut(period.number as usize) {
                *place = Some(period);
            }
        }
        periods
    }
}

impl Drop for HourglassProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// CPU-bound ordinary programs.
pub(super) struct Spinners(Vec<Child>);

impl Spinners {
    /// Starts `each` programs for each CPU of this thread. They end soon after `longest` in any case.
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
    fn a_silent_child_is_ended_with_an_error() {
        let mut child = shell("exec sleep 1000");
        let error = expect_line(&mut child, "it", Span::from_millis(100), number).unwrap_err();
        assert!(matches!(error, NoResult::Because(why) if why == "it printed nothing within 100ms"));
        assert!(matches!(child.try_wait(), Ok(Some(_))));
    }

    #[test]
    fn output_after_the_expected_line_is_kept_and_error_output_is_the_reason() {
        let mut child = shell("echo first; echo 7; echo then");
        let (seven, mut lines) = expect_line(&mut child, "it", PATIENCE, number).ok().unwrap();
        let mut then = String::new();
        lines.read_line(&mut then).unwrap();
        assert_eq!((seven, then.as_str()), (7, "then\n"));
        end(&mut child);
        let error = expect_line(&mut shell("echo error: no more >&2"), "it", PATIENCE, number).unwrap_err();
        assert!(matches!(error, NoResult::Because(why) if why == "no more"));
    }
}
