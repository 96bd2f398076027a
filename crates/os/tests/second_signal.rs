//! One SIGINT requests, two insist. In a separate process, because the second one ends it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hyoshi_os::{Interrupt, Wake};
use rustix::process::{Pid, Signal, kill_process};

/// The process under test; started only by the test below.
#[test]
#[ignore = "is a process that waits to be ended"]
fn waits_and_ignores_the_request() {
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone()).unwrap();
    println!("\nready");
    wake.wait();
    assert!(interrupt.requested());
    println!("\nasked");
    wake.wait();
}

#[test]
fn the_first_sigint_asks_and_the_second_ends_the_process() {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "waits_and_ignores_the_request"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut prints = |word: &str| lines.by_ref().any(|line| line.unwrap() == word);
    let interrupt = || kill_process(Pid::from_raw(process.id() as i32).unwrap(), Signal::INT).unwrap();
    assert!(prints("ready"));
    interrupt();
    assert!(prints("asked"));
    interrupt();
    assert_eq!(process.wait().unwrap().code(), Some(130));
}
