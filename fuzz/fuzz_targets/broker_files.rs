//! Any bytes as a file of the broker's state directory, after the first line of this boot: readable lines are stored and
//! read back equal, the rest is reported; never a panic. The file `touched` is only read, nothing is restored.
//!
//! The first byte selects the file.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use hyoshi_broker::state_file;
use hyoshi_broker::task_store::{MOST_PROCESSES, TaskStore};
use hyoshi_control::Arbiter;
use hyoshi_os::process::boot_id;
use libfuzzer_sys::fuzz_target;

/// In memory if there is such a file system.
fn place() -> &'static PathBuf {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let base = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let place = base.join(format!("hyoshi-fuzz-{}", std::process::id()));
        fs::create_dir_all(&place).expect("a directory");
        place
    })
}

fn task_store(data: &[u8]) {
    let file = place().join("tasks");
    let mut text = format!("hyoshi-tasks 1 {}\n", boot_id()).into_bytes();
    text.extend_from_slice(data);
    fs::write(&file, &text).expect("written");
    let (task_store, _) = TaskStore::open(place()).expect("it opens");
    let tasks: Vec<_> = task_store.tasks().cloned().collect();
    assert!(tasks.len() <= Arbiter::MOST_TASKS);
    for task in &tasks {
        assert!(task.processes.len() <= MOST_PROCESSES && task.declared().is_some() && task.id <= task_store.last());
    }
    let (last, policy) = (task_store.last(), task_store.policy().clone());
    drop(task_store);
    // The file was rewritten: it contains all readable lines and nothing else.
    let (again, warning) = TaskStore::open(place()).expect("it opens again");
    assert_eq!(warning, None);
    assert!(again.tasks().eq(tasks.iter()) && again.last() == last && *again.policy() == policy);
}

fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => task_store(rest),
        [_, rest @ ..] => {
            let text = format!("hyoshi-touched 1 {}\n{}", boot_id(), String::from_utf8_lossy(rest));
            assert!(state_file::understood(&text) <= text.lines().count());
            // A file of another boot is obsolete.
            assert_eq!(state_file::understood(&text.replacen(&boot_id(), "another", 1)), 0);
        }
        [] => {}
    }
});
