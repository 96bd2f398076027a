use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use hyoshi_os::process::Process;
use hyoshi_os::{ThreadPolicy, set_own_policy};

use super::*;

/// Sleeping programs, one for each task, and their state directory.
struct Sleepers {
    children: Vec<Child>,
    place: PathBuf,
}

impl Sleepers {
    fn start(name: &str, count: usize) -> (Self, ProxyContext) {
        let place = std::env::temp_dir().join(format!("hyoshi-window-{name}-{}", std::process::id()));
        let start = |_| Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("coreutils' sleep");
        let sleepers = Sleepers { children: (0..count).map(start).collect(), place };
        let members = |child: &Child| {
            let mut members = TaskProcesses::new();
            members.add(Process::open(child.id()).unwrap()).unwrap();
            members
        };
        let tasks = (0..).map(TaskId).zip(sleepers.children.iter().map(members)).collect::<BTreeMap<_, _>>();
        let (state_file, _) = StateFile::open(&sleepers.place).unwrap();
        (sleepers, ProxyContext { tasks, hard: BTreeSet::new(), confined: BTreeSet::new(), state_file })
    }
}

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.place);
    }
}

#[test]
fn who_sleeps_is_looked_at_once_there_is_less_room_and_nothing_is_known_of_a_cpu_without_windows() {
    let may = std::thread::spawn(|| set_own_policy(ThreadPolicy::Fifo(*priority::WINDOWS.start()))).join().unwrap();
    if let Err(refused) = may {
        return println!("skipped, needs root or CAP_SYS_NICE: {refused}");
    }
    let (_sleepers, mut context) = Sleepers::start("sleeps", 2);
    let cpu = allowed_cpus()[0];
    let mut proxy = WindowProxy::new(vec![cpu], Share::from_percent(95));
    let of = |budget| Reservation::new(Span::from_millis(budget), Span::from_millis(32)).unwrap();
    let [small, large] = [TaskId(0), TaskId(1)];
    proxy.reserve(small, of(1), Instant::ZERO, &mut context).unwrap();
    // It sleeps from the start.
    let mut now = Instant::ZERO;
    while proxy.sleep_parts.get(&cpu) != Some(&Some(8)) {
        assert!(now < Instant::ZERO + Span::from_secs(100), "{:?}", proxy.sleep_parts);
        std::thread::sleep(std::time::Duration::from_millis(1));
        now = proxy.tick(now, &mut context);
    }
    proxy.reserve(large, of(28), now, &mut context).unwrap();
    // Spare room for the small budget.
    assert_eq!((proxy.due(), proxy.sleep_parts.get(&cpu)), (Instant::ZERO, Some(&Some(128))));
    assert!(proxy.tick(now, &mut context) <= now + Span::from_millis(1));
    proxy.release(large, &mut context);
    assert_eq!(proxy.sleep_parts.get(&cpu), Some(&Some(8)));
    proxy.release(small, &mut context);
    assert!(proxy.sleep_parts.is_empty());
}
