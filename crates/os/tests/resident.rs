//! Prefaulted or locked memory causes no page fault when it is used, counted by the kernel. A separate process, because
//! locking is for the whole process.

use std::fs;
use std::hint::black_box;

use hyoshi_os::{Spawn, lock_memory, prefault};

/// Minor faults of the calling thread: the tenth field of its stat file (proc_pid_stat(5)).
fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(7).unwrap().parse().unwrap()
}

/// Page faults of `work`; the file is read once before, so its own faults do not count.
fn faults_of(work: impl FnOnce()) -> u64 {
    faults();
    let before = faults();
    work();
    faults() - before
}

#[inline(never)]
fn use_900_kib_of_stack() {
    black_box(&mut [1u8; 900 << 10]);
}

#[test]
fn stacks_and_buffers_are_there_when_used_and_all_memory_once_locked() {
    let fresh = std::thread::Builder::new().stack_size(1 << 20).spawn(|| faults_of(use_900_kib_of_stack));
    assert!(fresh.unwrap().join().unwrap() > 10, "an ordinary stack is faulted in when used");
    let ours = Spawn::new("prefaulted").stack(1 << 20).spawn(|| faults_of(use_900_kib_of_stack));
    assert!(ours.unwrap().join().unwrap() < 10);

    let mut buffer = vec![0u8; 4 << 20];
    prefault(&mut buffer);
    assert!(faults_of(|| buffer.fill(1)) < 10);

    match lock_memory() {
        Ok(()) => {
            let mut later = vec![0u8; 4 << 20];
            assert!(faults_of(|| later.fill(1)) < 10, "mapped after locking: resident from the start");
        }
        Err(refused) => {
            println!("skipped: needs CAP_IPC_LOCK ({refused})");
            assert!(refused.reason().remedy().is_some());
        }
    }
}
