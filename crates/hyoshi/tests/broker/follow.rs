//! Windows follow what somebody does to a task's affinity: with real-time priorities, else it says that it skips.

use super::*;

fn bind(program: &Program, cpus: &str) {
    let mut taskset = Command::new("taskset");
    let done = taskset.args(["-acp", cpus, &program.0.id().to_string()]).stdout(Stdio::null()).status();
    assert!(done.expect("util-linux's taskset").success());
}

fn holds(task: &Value, millis: std::ops::RangeInclusive<u64>) -> bool {
    task["reserved"]["budget_ns"].as_u64().is_some_and(|held| millis.contains(&(held / 1_000_000)))
}

#[test]
fn a_task_that_is_bound_to_a_full_cpu_holds_the_rest_of_it_until_it_is_free_again() {
    let cpus = hyoshi_os::allowed_cpus();
    let [one, other, ..] = cpus[..] else { return eprintln!("skipped, needs two CPUs") };
    if !common::real_time() {
        return;
    }
    let place = Place::new();
    let _broker = Broker::start(&place, "--scheduler window --policy strict --cap 150%");
    let start = |name: &str, importance: u32, cpus: &str| {
        let mut command = Command::new("taskset");
        command.args([
            "-c",
            cpus,
            env!("CARGO_BIN_EXE_hyoshi"),
            "exec",
            "--name",
            name,
            "--period",
            "100ms",
            "--socket",
        ]);
        command.arg(place.path().join("run/broker.sock"));
        command.args(["--importance", &importance.to_string(), "--advocate", "rate 60%", "--", "sh", "-c", SPIN]);
        Program::start(&mut command)
    };
    let _steady = start("steady", 5, &one.to_string());
    task(&place, "steady", |task| holds(task, 60..=60));
    let moved = start("moved", 2, &format!("{one},{other}"));
    task(&place, "moved", |task| holds(task, 60..=60));
    bind(&moved, &one.to_string());
    let cut = task(&place, "moved", |task| holds(task, 1..=39));
    let because = cut["reason"].as_str().unwrap();
    assert!(because.contains(&format!("its threads may run only on CPU {one}")), "{because}");
    let words = ask(&place, "broker explain moved").exits(0).out;
    assert!(words.contains("does not fit beside the reservations on the CPUs"), "{words}");
    task(&place, "steady", |task| holds(task, 60..=60));
    bind(&moved, &format!("{one},{other}"));
    let whole = task(&place, "moved", |task| holds(task, 60..=60));
    assert_eq!(whole["reason"], "");
}
