//! The scheduling of Zenoh's threads. Zenoh has no option for it.

use std::cell::Cell;
use std::collections::BTreeSet;

use hyoshi_os::priority::TRANSPORT;
use hyoshi_os::scheduling::{Affinity, raise};
use hyoshi_os::thread_name;

/// The runtimes of Zenoh: their threads are called `rx-0`, `tx-0` and so on.
const RUNTIMES: [&str; 5] = ["app", "acc", "tx", "rx", "net"];

/// Raises Zenoh's threads to [`TRANSPORT`] and binds them to a CPU. Without permission they keep ordinary priority, as
/// the lanes do. Zenoh starts threads when it opens a session and when it first has a connection.
#[derive(Debug)]
pub struct ZenohThreads {
    /// Other threads of the process may have such names, too.
    others: BTreeSet<u32>,
    cpu: Option<u32>,
}

thread_local! {
    static RAISED: Cell<bool> = const { Cell::new(false) };
}

impl ZenohThreads {
    /// Before the first session.
    pub fn new(cpu: Option<u32>) -> ZenohThreads {
        ZenohThreads { others: named(), cpu }
    }

    /// Raises the threads that Zenoh has started.
    pub fn raise(&self) {
        for tid in named().difference(&self.others) {
            let _ = raise(*tid, TRANSPORT);
            if let Some(cpu) = self.cpu {
                let _ = Affinity::to([cpu]).put(*tid);
            }
        }
    }

    /// The same, once for each calling thread: for callbacks.
    pub fn raise_once(&self) {
        if !RAISED.replace(true) {
            self.raise();
        }
    }
}

/// The threads of this process with the names of Zenoh's.
fn named() -> BTreeSet<u32> {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return BTreeSet::new() };
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter(|tid| is_zenoh(*tid)).collect()
}

fn is_zenoh(tid: u32) -> bool {
    thread_name(tid).unwrap_or_default().split_once('-').is_some_and(|(runtime, number)| {
        RUNTIMES.contains(&runtime) && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    })
}
