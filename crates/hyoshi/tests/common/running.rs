//! Runs of the command that go on while a test asks about them.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Ended, Place};

/// A process that is killed with its test.
pub struct Running(pub Child);

impl Running {
    pub fn spawn(command: &mut Command) -> Running {
        Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Fails with what the process printed when it has ended.
    pub fn goes_on(&mut self) {
        if let Some(status) = self.0.try_wait().unwrap() {
            let mut printed = String::new();
            self.0.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
            panic!("the run has ended with {status}: {printed}");
        }
    }

    /// Waits until the process ends.
    pub fn end(mut self, words: &str) -> Ended {
        let child = std::mem::replace(&mut self.0, Command::new("true").spawn().unwrap());
        Ended::of(words, &child.wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn start(place: &Place, words: &str) -> Running {
    Running::spawn(&mut place.command(words))
}

/// Asks again until there is an answer.
pub fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{what} took more than a minute");
        thread::sleep(Duration::from_millis(10));
    }
}
