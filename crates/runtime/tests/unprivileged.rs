//! Without CAP_SYS_NICE: a run works with notes, and a strict run does not start.

mod common;

use common::{finish, plan, system};
use hyoshi_runtime::{EndedBy, Node, RunNote, StartError};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

const TEXT: &str = "
    duration = \"400ms\"
    [processor.main]
    strategy = \"MUF\"
    [operation.a]
    every = \"10ms\"
    wcet = \"1ms\"
    critical = true
    [operation.b]
    every = \"50ms\"
    wcet = \"5ms\"
";

/// Runs `act` in a thread that cannot raise priorities, nor can its children. False if this machine grants priorities
/// in another way.
fn without_privileges(act: impl FnOnce() + Send + 'static) -> bool {
    let deprived = std::thread::spawn(move || {
        if let Ok(mut sets) = capabilities(None) {
            sets.effective.remove(CapabilitySet::SYS_NICE);
            sets.permitted.remove(CapabilitySet::SYS_NICE);
            let _ = set_capabilities(None, sets);
        }
        let granted = hyoshi_os::set_own_policy(hyoshi_os::ThreadPolicy::Fifo(99)).is_ok();
        if !granted {
            act();
        }
        !granted
    });
    let tested = deprived.join().unwrap();
    if !tested {
        println!("skipped: RLIMIT_RTPRIO grants real-time priorities here");
    }
    tested
}

#[test]
fn without_privileges_it_runs_at_normal_priority_and_reports_refusals() {
    without_privileges(|| {
        let system = system(TEXT);
        let plan = plan(&system);
        let running = Node::new(system.clone(), plan.clone()).start().unwrap();
        let ran = finish(system, plan, running);
        assert_eq!(ran.finished.ended_by, EndedBy::Duration);
        assert!(ran.finished_jobs("a") >= 30 && ran.finished_jobs("b") >= 6, "{:?}", ran.story(0));
        let refused: Vec<String> = ran.finished.notes.iter().map(RunNote::to_string).collect();
        assert!(refused.iter().any(|note| note.contains("SCHED_FIFO") && note.contains("more")), "{refused:?}");
        ran.replay();
    });
}

#[test]
fn where_a_limit_grants_the_lower_priorities_only_no_lane_runs_above_a_more_urgent_one() {
    // For the whole process; the other tests request more than it grants.
    let limit = Rlimit { current: Some(50), maximum: Some(50) };
    if setrlimit(Resource::Rtprio, limit).is_err() {
        println!("skipped: the limit cannot be set here");
        return;
    }
    without_privileges(|| {
        assert!(hyoshi_os::set_own_policy(hyoshi_os::ThreadPolicy::Fifo(50)).is_ok());
        hyoshi_os::set_own_policy(hyoshi_os::ThreadPolicy::Other).unwrap();
        let mut text = "duration = \"200ms\"\n[processor.main]\nstrategy = \"RMS\"\n".to_owned();
        for number in 1..40 {
            text += &format!("[operation.o{number}]\nevery = \"{}ms\"\nwcet = \"0.1ms\"\n", 10 + number);
        }
        let system = system(&text);
        let plan = plan(&system);
        let running = Node::new(system.clone(), plan.clone()).start().unwrap();
        let raised: Vec<String> = std::fs::read_dir("/proc/self/task").unwrap().filter_map(raised).collect();
        assert!(raised.is_empty(), "{raised:?}");
        finish(system, plan, running);
    });
}

/// The name of a lane's thread if it runs at a real-time priority: the 40th field of proc_pid_stat(5).
fn raised(task: std::io::Result<std::fs::DirEntry>) -> Option<String> {
    let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
    let (name, fields) = stat.split_once('(')?.1.rsplit_once(')')?;
    let priority: u32 = fields.split_whitespace().nth(37)?.parse().ok()?;
    (name.starts_with("main-") && priority > 0).then(|| name.to_owned())
}

#[test]
fn a_strict_run_without_privileges_does_not_start() {
    without_privileges(|| {
        let system = system(TEXT);
        let error = Node::new(system.clone(), plan(&system)).strict(true).start().unwrap_err();
        assert!(matches!(&error, StartError::Refused(notes) if !notes.is_empty()), "{error}");
    });
}
