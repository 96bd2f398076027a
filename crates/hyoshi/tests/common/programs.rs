//! Programs that are not ours, and run beside the command.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

pub const PATIENCE: Duration = Duration::from_secs(40);

/// The directory where `crates/interop/others/build` builds this; none, and a line about it, where it is not installed.
pub fn build(what: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("peers").join(what);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/others/build");
    let output = Command::new(script).arg(what).arg(&directory).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(directory),
        Some(3) if std::env::var_os("HYOSHI_PEERS").is_none_or(|value| value != "required") => {
            eprintln!("skipped: {} (.ci/peers installs it)", printed.trim());
            None
        }
        code => panic!("it is not built, {code:?}: {printed}"),
    }
}

/// A program that ends with its test, and the lines that it prints.
pub struct Program {
    pub child: Child,
    pub lines: Receiver<String>,
}

impl Program {
    pub fn start(command: &mut Command) -> Program {
        Program::follow(command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// A program whose standard output is a pipe.
    pub fn follow(mut child: Child) -> Program {
        let (to, lines) = channel();
        let printed = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || printed.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Program { child, lines }
    }

    pub fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    pub fn end(mut self) -> (Option<i32>, Vec<String>) {
        let code = self.child.wait().unwrap().code();
        (code, self.lines.iter().collect())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
