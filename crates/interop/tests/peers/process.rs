//! Programs of other ORBs as child processes, which always end with the test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time until a program serves: a virtual machine for Java on a busy host is slow.
const START: Duration = Duration::from_secs(60);
/// The longest time of all checks of a client.
const RUN: Duration = Duration::from_secs(120);

/// The output of a program, both streams in the order of arrival.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn add(&self, line: &str) {
        let mut all = self.0.lock().unwrap();
        all.push_str(line);
        all.push('\n');
    }

    /// The end of it, for a failed test's message.
    fn tail(&self) -> String {
        let all = self.0.lock().unwrap();
        let lines: Vec<&str> = all.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Copies a stream to its end, and passes on its lines.
    fn follow(&self, stream: impl Read + Send + 'static, to: Sender<String>) {
        let log = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                log.add(&line);
                // After the server is ready, the receiver is gone.
                let _ = to.send(line);
            }
        });
    }
}

/// A server of another ORB. It ends with this value.
pub struct Server {
    child: Child,
    log: Log,
    /// The reference that it printed.
    pub reference: String,
}

impl Server {
    /// Starts it, and waits until it prints "ready" and a reference.
    pub fn start(command: Command) -> Self {
        Server::start_until(command, "ready ")
    }

    /// Starts it, and waits for a line that contains this; the rest of the line is the reference.
    pub fn start_until(mut command: Command, ready: &str) -> Self {
        let mut child = spawn(&mut command);
        let log = Log::default();
        let (to, lines) = channel();
        log.follow(child.stdout.take().unwrap(), to.clone());
        log.follow(child.stderr.take().unwrap(), to);
        let until = Instant::now() + START;
        loop {
            match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some((_, reference)) = line.split_once(ready) {
                        return Server { child, reference: reference.trim().to_owned(), log };
                    }
                }
                Err(why) => {
                    end(&mut child);
                    panic!("{command:?} did not come up ({why:?}):\n{}", log.tail());
                }
            }
        }
    }

    /// Sends SIGINT, as a terminal does, and waits for its end.
    pub fn interrupt(mut self) {
        let asked = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(asked.is_ok_and(|status| status.success()), "kill is a command of every system");
        self.child.wait().unwrap();
    }

    /// The end of its output.
    pub fn log(&self) -> String {
        self.log.tail()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Runs a client to its end and panics with both logs if one of its checks failed.
pub fn run(mut command: Command, server_log: impl FnOnce() -> String) {
    let mut child = spawn(&mut command);
    let log = Log::default();
    let (to, lines) = channel();
    log.follow(child.stdout.take().unwrap(), to);
    // Failures are in the log only: the last line of standard output is the result.
    log.follow(child.stderr.take().unwrap(), channel().0);
    let until = Instant::now() + RUN;
    let mut last = String::new();
    let late = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => last = line,
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if late {
        end(&mut child);
    }
    let status: ExitStatus = child.wait().unwrap();
    let failed = log.0.lock().unwrap().lines().filter(|line| line.starts_with("FAILED")).collect::<Vec<_>>().join("\n");
    assert!(
        status.success() && last.contains("checks, 0 failed"),
        "{command:?}: {status}{}\n{failed}\n--- client\n{}\n--- server\n{}",
        if late { ", ended for it took too long" } else { "" },
        log.tail(),
        server_log()
    );
    println!("{last}");
}

fn spawn(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
}

fn end(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}
