//! What a program writes, line by line, with patience: one that says nothing fails its test, and does not stop it for good.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// See the module. All is read, whether the test asks for it or not.
pub struct Said(Receiver<String>);

impl Said {
    pub fn by(out: impl Read + Send + 'static) -> Said {
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines() {
                // A test that has ended hears no more.
                if tell.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Said(told)
    }

    /// The next line, without its end; none after the last.
    pub fn line(&self) -> Option<String> {
        match self.0.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("nothing more is said within {PATIENCE:?}"),
        }
    }

    /// The rest of the next line that begins so.
    pub fn after(&self, begin: &str) -> String {
        let mut before = Vec::new();
        loop {
            let line = self.line().unwrap_or_else(|| panic!("it never says `{begin}`: {before:#?}"));
            if let Some(rest) = line.strip_prefix(begin) {
                return rest.trim().to_owned();
            }
            before.push(line);
        }
    }

    /// All lines until the end.
    pub fn rest(&self) -> String {
        std::iter::from_fn(|| self.line()).map(|line| line + "\n").collect()
    }
}
