//! Two runs with real-time priority on one CPU: the second takes another, or is refused and names the first.

use crate::common;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{Place, alone, real_time};

const SYSTEM: &str = "name = \"claims\"\nduration = \"20s\"\n[processor.main]\nstrategy = \"RMS\"\nCPU\n\
                      [operation.a]\nevery = \"10ms\"\nwcet = \"1ms\"\ncritical = true\n";

/// A run that has begun, ended with SIGKILL when dropped.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const LIMIT: Duration = Duration::from_secs(60);

/// Starts a run and waits until it records. Runs of other tests may have the CPU first.
fn begin(place: &Place, file: &str) -> Run {
    let words = format!("run {file} --no-report --format json --record {file}.rec");
    let start = || Run(place.exactly(&words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let began = || std::fs::metadata(place.path().join(format!("{file}.rec"))).is_ok_and(|file| file.len() > 1_000);
    let (mut run, started) = (start(), Instant::now());
    while !began() {
        assert!(started.elapsed() < LIMIT, "the first run does not begin");
        if run.0.try_wait().unwrap().is_some() {
            run = start();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    run
}

/// Runs to its end, as soon as no run of another test is in the way.
fn run_through(place: &Place, words: &str) {
    let started = Instant::now();
    loop {
        let output = place.exactly(words).output().unwrap();
        match output.status.code() {
            Some(0 | 1) => return,
            code => assert!(
                code == Some(2) && started.elapsed() < LIMIT,
                "{words}: {code:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }
}

#[test]
fn the_second_run_on_a_cpu_is_refused_and_names_the_first_unless_it_may_share() {
    if !real_time() {
        println!("skipped: without real-time priorities nothing is claimed");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let cpu = hyoshi_os::allowed_cpus().last().copied().unwrap();
    place.write("fixed.toml", SYSTEM.replace("CPU", &format!("cpu = {cpu}")));
    let first = begin(&place, "fixed.toml");
    let refused = place.exactly("run fixed.toml --no-report").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let names = [format!("CPU {cpu}"), format!("process {}", first.0.id()), "--share-cpu".to_owned()];
    assert!(names.iter().all(|name| said.contains(name)), "{said}");
    run_through(&place, "run fixed.toml --no-report --share-cpu --duration 200ms");
    drop(first);
    run_through(&place, "run fixed.toml --no-report --duration 200ms");
}

#[test]
fn a_run_that_may_choose_takes_a_cpu_that_no_other_run_has() {
    if !real_time() || hyoshi_os::allowed_cpus().len() < 2 {
        println!("skipped: this needs real-time priorities and two CPUs");
        return;
    }
    let _alone = alone();
    let place = Place::new();
    let cpu = hyoshi_os::allowed_cpus().last().copied().unwrap();
    place.write("fixed.toml", SYSTEM.replace("CPU", &format!("cpu = {cpu}")));
    place.write("open.toml", SYSTEM.replace("CPU", ""));
    let _first = begin(&place, "fixed.toml");
    run_through(&place, "run open.toml --no-report --duration 200ms");
}
