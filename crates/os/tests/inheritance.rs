//! The effect of priority inheritance: a low thread holds a lock, a high one waits for it, a middle one computes. Order
//! is asserted, not times: on one CPU under SCHED_FIFO it is certain.

use std::sync::{Arc, Mutex};

use hyoshi_model::Span;
use hyoshi_os::{PiMutex, Spawn, ThreadPolicy, Wake, allowed_cpus, own_cpu_time};

/// CPU time, so that preemption and a stolen CPU do not count.
fn compute(span: Span) {
    let until = own_cpu_time() + span;
    while own_cpu_time() < until {}
}

/// Runs the three threads on one CPU with a lock around each `section`; returns the first to finish, or `None` if
/// real-time priorities are refused.
fn order(section: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Option<Vec<&'static str>> {
    let section = Arc::new(section);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (high_may, middle_may, low_may) = (Arc::new(Wake::new()), Arc::new(Wake::new()), Arc::new(Wake::new()));
    let cpu = *allowed_cpus().last().expect("a CPU to run on");
    let lane = |name, priority| Spawn::new(name).cpu(cpu).policy(ThreadPolicy::Fifo(priority));

    let high = lane("high", 43).spawn({
        let (section, log, may) = (section.clone(), log.clone(), high_may.clone());
        move || {
            may.wait();
            section(&mut || {});
            log.lock().unwrap().push("high had the lock");
        }
    });
    let middle = lane("middle", 42).spawn({
        let (log, may) = (log.clone(), middle_may.clone());
        move || {
            may.wait();
            compute(Span::from_millis(100));
            log.lock().unwrap().push("middle is done");
        }
    });
    let low = lane("low", 41).spawn({
        let low_may = low_may.clone();
        move || {
            low_may.wait();
            section(&mut || {
                high_may.post();
                middle_may.post();
                compute(Span::from_millis(20));
            });
        }
    });
    let threads = [high.unwrap(), middle.unwrap(), low.unwrap()];
    let granted = threads.iter().all(|thread| thread.granted.in_full());
    low_may.post();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    if !granted {
        println!("skipped: needs CAP_SYS_NICE");
    }
    granted.then(|| log.lock().unwrap().clone())
}

#[test]
fn with_inheritance_the_urgent_thread_waits_for_the_section_only() {
    let lock = PiMutex::new(());
    let order = order(move |body| {
        let _held = lock.lock();
        body();
    });
    assert!(order.is_none_or(|order| order == ["high had the lock", "middle is done"]));
}

#[test]
fn without_it_a_middle_thread_delays_the_urgent_one_as_long_as_it_likes() {
    let lock = Mutex::new(());
    let order = order(move |body| {
        let _held = lock.lock();
        body();
    });
    assert!(order.is_none_or(|order| order == ["middle is done", "high had the lock"]));
}
