//! What a program writes, line by line, with patience: one that says nothing, or never what is waited for, fails its test, and
//! does not stop it for good.
#![allow(dead_code, reason = "each file of tests uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// In octets. Nothing that tests read has lines as long: whoever writes more has forgotten to end one.
const LONGEST_LINE: u64 = 16 << 20;

/// See the module. All is read, whether the test asks for it or not.
pub struct Said(Receiver<String>);

impl Said {
    pub fn by(out: impl Read + Send + 'static) -> Said {
        let (tell, printed) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            loop {
                let mut line = String::new();
                let read = out.by_ref().take(LONGEST_LINE).read_line(&mut line).unwrap();
                assert!((read as u64) < LONGEST_LINE, "a line of {LONGEST_LINE} octets and more");
                line.truncate(line.trim_end_matches(['\r', '\n']).len());
                // A test that has ended hears no more.
                if read == 0 || tell.send(line).is_err() {
                    return;
                }
            }
        });
        Said(printed)
    }

    /// The next line, without its end; none after the last.
    pub fn line(&self) -> Option<String> {
        self.line_until(Instant::now() + PATIENCE)
    }

    fn line_until(&self, until: Instant) -> Option<String> {
        match self.0.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing more is said in time"),
        }
    }

    /// What is found in the first of the next lines that has it.
    pub fn find<T>(&self, what: &str, mut wanted: impl FnMut(&str) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        let mut before = Vec::new();
        loop {
            let line = self.line_until(until).unwrap_or_else(|| panic!("it never says {what}: {before:#?}"));
            if let Some(found) = wanted(&line) {
                return found;
            }
            before.push(line);
            assert!(Instant::now() < until, "it does not say {what} within {PATIENCE:?}: {before:#?}");
        }
    }

    /// The rest of the next line that begins so.
    pub fn after(&self, begin: &str) -> String {
        self.find(&format!("`{begin}`"), |line| Some(line.strip_prefix(begin)?.trim().to_owned()))
    }

    /// All lines until the end.
    pub fn rest(&self) -> String {
        let until = Instant::now() + PATIENCE * 10;
        std::iter::from_fn(|| self.line_until(until)).map(|line| line + "\n").collect()
    }
}
