//! Starts the real command in a directory of its own.

#![allow(dead_code, reason = "each file of tests uses its part")]

pub mod broker;
#[path = "../../../os/tests/common/loopback.rs"]
pub mod loopback;
#[path = "../../../os/tests/common/privileges.rs"]
pub mod privileges;
pub mod programs;
pub mod running;
pub mod said;
#[path = "../../../os/tests/common/steal.rs"]
pub mod steal;
#[path = "../../../os/tests/common/undisturbed.rs"]
pub mod undisturbed;

pub use privileges::missing;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// A system whose decision points lie milliseconds apart.
pub const SMALL: &str = r#"name = "small"
duration = "1500ms"

[processor.main]
strategy = "RMS"

[operation.steer]
every = "20ms"
wcet = "2ms"
critical = true

[operation.plan]
every = "40ms"
phase = "5ms"
wcet = "3ms"
"#;

/// 140 % of a processor, half a processor of it critical.
pub const OVERLOADED: &str = r#"name = "overloaded"
duration = "2s"

[processor.main]
strategy = "RMS+MLF"
cancel = true

[operation.steer]
every = "10ms"
wcet = "3ms"
critical = true

[operation.fuse]
every = "20ms"
wcet = "4ms"
critical = true

[operation.map]
every = "25ms"
wcet = "10ms"

[operation.explore]
every = "50ms"
wcet = "25ms"
"#;

/// A directory that goes with the test.
pub struct Place(PathBuf);

impl Place {
    pub fn new() -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("hyoshi-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Place(path.canonicalize().unwrap())
    }

    /// With the small system in `small.toml`.
    pub fn with_small() -> Place {
        let place = Place::new();
        place.write("small.toml", SMALL);
        place
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), content).unwrap();
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        fs::read(self.0.join(name)).unwrap()
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.join(name).symlink_metadata().is_ok()
    }

    /// Waits until a file that somebody writes has been seen at `sizes` different sizes.
    pub fn wait_for_growth(&self, name: &str, sizes: usize) {
        let (started, mut last, mut seen) = (std::time::Instant::now(), 0, 0);
        while seen < sizes {
            assert!(started.elapsed() < std::time::Duration::from_secs(30), "{name} does not grow beyond {last} bytes");
            std::thread::sleep(std::time::Duration::from_millis(10));
            let size = std::fs::metadata(self.0.join(name)).map_or(0, |found| found.len());
            seen += usize::from(std::mem::replace(&mut last, size) != size);
        }
    }

    /// Names of everything in it, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The command with these words, not yet started. Runs share CPUs, because tests run beside each other.
    pub fn command(&self, words: &str) -> Command {
        match words.strip_prefix("run ") {
            Some(rest) => self.exactly(&format!("run --share-cpu {rest}")),
            None => self.exactly(words),
        }
    }

    /// The same with these words and no others.
    pub fn exactly(&self, words: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hyoshi"));
        command.args(words.split_whitespace()).current_dir(&self.0).stdin(Stdio::null());
        command.env_remove("NO_COLOR").env_remove("COLUMNS");
        // Ignore costs measured on this machine: figures must be the same on all.
        command.env("HYOSHI_COSTS", "none");
        command
    }

    /// Runs `hyoshi` with these words.
    pub fn hyoshi(&self, words: &str) -> Ended {
        Ended::of(words, &self.command(words).output().unwrap())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            drop(fs::remove_dir_all(&self.0));
        }
    }
}

/// What a command said. Whatever it was told, it did not panic.
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn of(words: &str, output: &Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(!err.contains("panicked"), "hyoshi {words}\n{err}");
        let code = output.status.code().unwrap_or_else(|| panic!("hyoshi {words}: {}\n{err}", output.status));
        Ended { code, out, err }
    }

    /// Asserts the exit code.
    pub fn exits(self, code: i32) -> Ended {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    /// Standard output as the one JSON object that it is.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.out, self.err))
    }

    /// What was wrong, in JSON, to which nothing is added on standard error.
    pub fn error(&self) -> Value {
        assert_eq!(self.code, 2, "{}", self.out);
        assert_eq!(self.err, "");
        let json = self.json();
        assert_eq!(json["hyoshi"]["schema"], 3);
        json["errors"][0].clone()
    }
}

/// The parts of the first processor's time, which sum to the duration, and what they are made from.
pub fn time(summary: &Value) -> (u64, String) {
    let time = &summary["processors"][0]["time"];
    let parts = ["execution_ns", "overhead_ns", "held_ns", "others_ns", "idle_ns", "unknown_ns"];
    let sum: u64 = parts.iter().map(|part| time[part].as_u64().unwrap_or_else(|| panic!("{part} of {time}"))).sum();
    assert_eq!(Some(sum), summary["duration_ns"].as_u64(), "{time}");
    (sum, time["basis"].as_str().unwrap().to_owned())
}

/// The repository's examples.
pub fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    path.canonicalize().unwrap().display().to_string()
}

/// Runs on the kernel come one after the other, lest they disturb each other.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this machine grants us real-time priorities; if not, says so, or fails where they are required.
pub fn real_time() -> bool {
    let place = Place::new();
    let doctor = place.hyoshi("doctor --format json").json();
    let findings = doctor["findings"].as_array().unwrap();
    let granted = findings.iter().any(|found| found["topic"] == "SCHED_FIFO" && found["verdict"] == "granted");
    if !granted {
        missing("real-time priorities: `hyoshi doctor` says why");
    }
    granted
}

/// Fields that tell when and how something was done: they differ from one time to the next.
pub fn without_circumstances(mut summary: Value) -> Value {
    summary.as_object_mut().unwrap().remove("hyoshi");
    summary["system"].as_object_mut().unwrap().remove("file");
    summary
}

/// Counts of a class in a summary.
pub fn class<'a>(summary: &'a Value, name: &str) -> &'a Value {
    let classes = summary["classes"].as_array().unwrap();
    &classes.iter().find(|class| class["class"] == name).unwrap()["counts"]
}
