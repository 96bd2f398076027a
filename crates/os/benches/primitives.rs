//! The cost of the primitives: `cargo bench -p hyoshi-os`. Compare median and best, because other users share the
//! machine. Wake-ups are between two SCHED_FIFO threads on one CPU; without privileges they are ordinary threads, which
//! a line reports.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use divan::Bencher;
use hyoshi_os::process::Process;
use hyoshi_os::{
    Clock, MonotonicClock, PiMutex, Scheduled, Spawn, SpawnedThread, StealReader, ThreadPolicy, Wake, allowed_cpus,
    fifo_limit, own_cpu_time,
};

fn main() {
    print_wake_latency();
    divan::main();
}

#[divan::bench]
fn pi_mutex_uncontended(bencher: Bencher) {
    let lock = PiMutex::new(0u64);
    bencher.bench_local(|| *black_box(&lock).lock() += 1);
}

/// The users of a process: the broker reads them for each member in each round.
#[divan::bench]
fn owner_of_a_process(bencher: Bencher) {
    let own = Process::open(std::process::id()).expect("this process");
    bencher.bench_local(|| black_box(&own).owner());
}

/// The alternative, if the kernel has no PIDFD_GET_INFO.
#[divan::bench]
fn owner_of_a_process_by_proc(bencher: Bencher) {
    bencher.bench_local(|| std::fs::read_to_string("/proc/self/status"));
}

/// The alternative that [`PiMutex`] is compared with.
#[divan::bench]
fn pthread_pi_mutex_uncontended(bencher: Bencher) {
    let lock: Box<UnsafeCell<libc::pthread_mutex_t>> = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    // SAFETY: the attributes live through the calls, and the mutex is pinned in its box.
    unsafe {
        let mut attributes = std::mem::zeroed();
        libc::pthread_mutexattr_init(&raw mut attributes);
        libc::pthread_mutexattr_setprotocol(&raw mut attributes, libc::PTHREAD_PRIO_INHERIT);
        assert_eq!(libc::pthread_mutex_init(lock.get(), &raw const attributes), 0);
    }
    bencher.bench_local(|| {
        let lock = black_box(&lock).get();
        // SAFETY: initialised above, and unlocked by the thread that locked it.
        unsafe {
            libc::pthread_mutex_lock(lock);
            libc::pthread_mutex_unlock(lock);
        }
    });
}

#[divan::bench]
fn std_mutex_uncontended(bencher: Bencher) {
    let lock = Mutex::new(0u64);
    bencher.bench_local(|| *black_box(&lock).lock().unwrap() += 1);
}

#[divan::bench]
fn wake_post_and_wait_without_sleep(bencher: Bencher) {
    let wake = Wake::new();
    bencher.bench_local(|| {
        black_box(&wake).post();
        black_box(&wake).wait();
    });
}

#[divan::bench]
fn clock_now(bencher: Bencher) {
    let clock = MonotonicClock::start();
    bencher.bench_local(|| black_box(&clock).now());
}

#[divan::bench]
fn cpu_time_of_own_thread(bencher: Bencher) {
    bencher.bench_local(own_cpu_time);
}

#[divan::bench]
fn cpu_time_of_another_thread(bencher: Bencher) {
    let sleeper = sleeper();
    bencher.bench_local(|| sleeper.thread.handle.cpu_time());
    sleeper.end();
}

#[divan::bench]
fn change_policy_of_a_sleeping_thread(bencher: Bencher) {
    let sleeper = sleeper();
    let mut raised = false;
    bencher.bench_local(|| {
        raised = !raised;
        let _ = sleeper.thread.handle.set_policy(if raised { ThreadPolicy::Fifo(41) } else { ThreadPolicy::Other });
    });
    sleeper.end();
}

#[divan::bench]
fn read_steal_time(bencher: Bencher) {
    let mut reader = StealReader::of(0).expect("/proc/stat");
    bencher.bench_local(|| reader.stolen());
}

#[divan::bench(sample_count = 20)]
fn ask_for_the_fifo_limit(bencher: Bencher) {
    bencher.bench_local(fifo_limit);
}

struct Sleeper {
    thread: SpawnedThread<()>,
    wake: Arc<Wake>,
}

fn sleeper() -> Sleeper {
    let wake = Arc::new(Wake::new());
    let theirs = wake.clone();
    Sleeper { thread: Spawn::new("sleeper").spawn(move || theirs.wait()).expect("a thread"), wake }
}

impl Sleeper {
    fn end(self) {
        self.wake.post();
        self.thread.join().expect("the sleeper only sleeps");
    }
}

/// From just before a post by a thread at 50 to the first reading of the clock by the woken one
/// at 51 on the same CPU, which preempts it.
fn print_wake_latency() {
    const WAKES: usize = 5_000;
    let clock = MonotonicClock::start();
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let (wake, ready) = (Arc::new(Wake::new()), Arc::new(Wake::new()));
    let (stamp, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let woken = Spawn::new("woken").cpu(cpu).policy(ThreadPolicy::Fifo(51)).spawn({
        let (wake, ready, stamp, done) = (wake.clone(), ready.clone(), stamp.clone(), done.clone());
        move || {
            while !done.load(Ordering::Acquire) {
                ready.post();
                wake.wait();
                stamp.store(clock.now().as_nanos(), Ordering::Release);
            }
            ready.post();
        }
    });
    let poster = Spawn::new("poster").cpu(cpu).policy(ThreadPolicy::Fifo(50)).spawn(move || {
        let mut nanos: Vec<u64> = Vec::with_capacity(WAKES);
        for _ in 0..WAKES {
            ready.wait();
            let before = clock.now().as_nanos();
            wake.post();
            let after = loop {
                match stamp.swap(0, Ordering::AcqRel) {
                    // Only at normal priority: there the woken thread does not preempt.
                    0 => std::thread::yield_now(),
                    after => break after,
                }
            };
            nanos.push(after - before);
        }
        ready.wait();
        done.store(true, Ordering::Release);
        wake.post();
        ready.wait();
        nanos.sort_unstable();
        nanos
    });
    let (woken, poster) = (woken.expect("a thread"), poster.expect("a thread"));
    for refused in woken.granted.refused.iter().chain(&poster.granted.refused) {
        println!("not as meant: {refused}");
    }
    let nanos = poster.join().expect("the poster does not panic");
    woken.join().expect("the woken thread does not panic");
    let at = |percent: usize| nanos[(nanos.len() - 1) * percent / 100];
    println!("post to woken, one CPU, {WAKES} wakes: median {} ns, p99 {} ns, best {} ns", at(50), at(99), at(0));
}
