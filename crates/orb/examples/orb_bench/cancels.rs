//! How long a cancel of a distributable thread takes, from the client's call to the exception in the servant, while all
//! threads of the server's lane are busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyoshi_orb::rt::threads::{self, ThreadLocation};
use hyoshi_orb::{LaneOptions, Orb, Reference, SystemException};
use hyoshi_os::{Spawn, clock::monotonic};

use crate::lanes::is_saturated;
use crate::serve::spin;
use crate::tracking::*;
use crate::{Asked, Server, quantile};

/// Threads of the lane.
const LANE: usize = 4;
/// Clients whose requests of 200 us keep the other threads busy.
const CLIENTS: usize = 8;
const BUSY: u32 = 200;
const CANCELS: usize = 1000;
const PAUSE: Duration = Duration::from_millis(10);
/// Microseconds between scheduling points of the cancelled servant.
const STEP: u32 = 20;

/// Runs until it is cancelled, and records when it was.
#[derive(Default)]
struct Head {
    is_here: AtomicBool,
    /// In ns of the machine's clock; 0 for not yet.
    cancelled: AtomicU64,
}

/// Reports whether it has begun, and when it was cancelled.
struct Reports(Arc<Head>);

impl Named for Reports {
    fn name(&self) -> Result<String, SystemException> {
        let cancelled = self.0.cancelled.swap(0, Ordering::SeqCst);
        if cancelled > 0 {
            self.0.is_here.store(false, Ordering::SeqCst);
        }
        Ok(format!("{} {cancelled}", self.0.is_here.load(Ordering::SeqCst)))
    }
}

impl Head {
    fn run(&self) -> Result<(), SystemException> {
        self.is_here.store(true, Ordering::SeqCst);
        loop {
            if let Err(exception) = threads::check() {
                self.cancelled.store(monotonic().as_nanos(), Ordering::SeqCst);
                return Err(exception);
            }
            spin(STEP);
            // Among threads of one SCHED_FIFO priority on one CPU.
            std::thread::yield_now();
        }
    }
}

/// Its requests are those of the head, or of the load.
struct Works(Arc<Head>);

impl Callback for Works {
    fn moved(&self, micros: u32, _: &Position) -> Result<(), SystemException> {
        match micros {
            0 => self.0.run(),
            _ => {
                spin(micros);
                std::thread::yield_now();
                Ok(())
            }
        }
    }
}

pub fn serve(asked: &Asked) {
    let build = |threads| {
        let lane = LaneOptions { policy: asked.policy(), cpu: Some(0), threads, ..LaneOptions::default() };
        let builder = Orb::builder().lane(lane).listen("iiop://127.0.0.1:0").expect("an endpoint");
        builder.build().expect("the server starts")
    };
    let (busy, control, head) = (build(LANE), build(2), Arc::new(Head::default()));
    let adapter = busy.adapter("busy").build().expect("a fresh name");
    let works = adapter.activate::<dyn Callback>(Arc::new(Works(head.clone()))).expect("it is fresh");
    println!("{}", AsRef::<Reference<dyn Callback>>::as_ref(&works).ior());
    let adapter = control.adapter("control").build().expect("a fresh name");
    let reports = adapter.activate::<dyn Named>(Arc::new(Reports(head))).expect("it is fresh");
    println!("{}", AsRef::<Reference<dyn Named>>::as_ref(&reports).ior());
    [&busy, &control].into_iter().for_each(Orb::ready);
    let _ = std::io::stdin().read_line(&mut String::new());
}

pub fn cancels(asked: &Asked, client: &Orb) {
    let (_server, mut next) = Server::spawn("cancels");
    let works = client.resolve::<dyn Callback>(&next()).expect("it answers");
    let reports = client.resolve::<dyn Named>(&next()).expect("it answers");
    let (ends, start) = (Arc::new(AtomicBool::new(false)), Instant::now());
    let load = (0..CLIENTS).map(|_| {
        let (ends, works) = (ends.clone(), works.clone());
        let client = Spawn::new("load").cpu(u32::from(!asked.one_cpu));
        let body = move || {
            while !ends.load(Ordering::Relaxed) {
                match is_saturated(start) {
                    true => works.moved(BUSY, &Position::default()).expect("it answers"),
                    false => std::thread::sleep(PAUSE),
                }
            }
        };
        client.spawn(body).expect("a thread")
    });
    let load: Vec<_> = load.collect();
    let (mut to_head, mut to_root) = (Vec::new(), Vec::new());
    for at in 0..CANCELS {
        // Its longest wait is over before the load pauses.
        while !(is_saturated(start) && is_saturated(start - 3 * PAUSE)) {
            std::thread::sleep(PAUSE);
        }
        let (to, from) = std::sync::mpsc::channel();
        let calls = works.clone();
        let root = Spawn::new("root").policy(asked.policy()).cpu(u32::from(!asked.one_cpu));
        let root = root.spawn(move || {
            let segment = threads::segment("root", None).expect("few run");
            to.send(threads::current().expect("it runs")).expect("it is awaited");
            let outcome = calls.moved(0, &Position::default());
            let ended = monotonic().as_nanos();
            drop(segment);
            outcome.map(|()| ended).map_err(|_| ended)
        });
        let root = root.expect("a thread");
        let handle = from.recv().expect("it starts");
        let state = || reports.name().expect("it answers");
        while !state().starts_with("true") || !matches!(handle.location(), ThreadLocation::Away(..)) {
            std::thread::yield_now();
        }
        // From the first moments on.
        std::thread::sleep(Duration::from_micros(at as u64 * 37 % 5000));
        let sent = monotonic().as_nanos();
        handle.cancel().expect("it runs");
        let ended = root.join().ok().and_then(Result::err).expect("it is cancelled");
        to_root.push(ended - sent);
        let head = state().rsplit(' ').next().and_then(|time| time.parse::<u64>().ok()).expect("a number");
        to_head.push(head.saturating_sub(sent));
    }
    ends.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|client| client.join().expect("it ends"));
    for (name, times) in [("the exception at the head", &mut to_head), ("that at the root", &mut to_root)] {
        let [p50, p99] = [50, 99].map(|part| quantile(times, part) as f64 / 1e3);
        let last = times.last().map_or(0.0, |most| *most as f64 / 1e3);
        println!(
            "a cancel to {name:<26} p50 {p50:.0} us   p99 {p99:.0} us   most {last:.0} us   ({} times)",
            times.len()
        );
    }
}
