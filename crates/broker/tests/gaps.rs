//! The effect of windows on ordinary threads: three programs under eight spinners, and how late an ordinary thread
//! wakes up.
//!
//! The measured comparison is `cargo test -p hyoshi-broker --test suite gaps::measured -- --ignored --nocapture` on a quiet machine,
//! as root: the baseline, without a broker, is in the same run. Its figures are in docs/benchmarks.md.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_broker::machine::Machine;
use hyoshi_broker::platform::Platform as _;
use hyoshi_control::TaskId;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::meter::Meter;
use hyoshi_os::{Clock, MonotonicClock, Spawn, ThreadPolicy, Wake, own_cpu_time, priority, set_own_policy};

use common::{Place, Program};

/// Budget and period of each program.
const PROGRAMS: [(u64, u64); 3] = [(10, 33), (20, 100), (5, 50)];

struct Observed {
    periods: usize,
    full: usize,
    /// The lateness of a thread that slept for 10 ms each time, sorted.
    late: Vec<Span>,
    /// The broker's CPU time, as a part of the elapsed time.
    cost: f64,
}

impl Observed {
    fn late(&self, percent: usize) -> f64 {
        let at = (self.late.len() - 1) * percent / 100;
        self.late[at].as_nanos() as f64 / 1e6
    }
}

fn observe(windows: bool, time: Span) -> Observed {
    let _spinners: Vec<Program> = (0..8).map(|_| Program::spinning(1)).collect();
    let programs: Vec<Program> = PROGRAMS.iter().map(|_| Program::spinning(1)).collect();
    let reservations = PROGRAMS.map(|(budget, period)| {
        Reservation::new(Span::from_millis(budget), Span::from_millis(period)).expect("it is one")
    });
    let (clock, place) = (MonotonicClock::start(), Place::new(if windows { "gaps" } else { "gaps-none" }));
    let ends = Arc::new(AtomicBool::new(false));
    let driver = windows.then(|| {
        let (mut machine, _) = Machine::open(&place.0, Some("window")).unwrap_or_else(|error| panic!("{error}"));
        let processes: Vec<_> = programs.iter().map(Program::process).collect();
        let until = ends.clone();
        let drive = move || {
            let wake = Wake::new();
            machine.wake_on_events(&wake);
            for (task, (process, reservation)) in (1..).map(TaskId).zip(processes.into_iter().zip(reservations)) {
                machine.add(task, process).expect("a process that lives");
                machine.reserve(task, reservation, clock.now()).expect("there is room for three");
            }
            while !until.load(Ordering::Relaxed) {
                let next = machine.tick(clock.now());
                wake.wait_until(&clock, next.min(clock.now() + Span::from_millis(100)));
            }
            machine.end();
            own_cpu_time()
        };
        Spawn::new("broker").policy(ThreadPolicy::Fifo(priority::BROKER)).spawn(drive).expect("a thread")
    });
    let until = ends.clone();
    let shell = Spawn::new("shell").policy(ThreadPolicy::Other).spawn(move || {
        let mut late = Vec::new();
        while !until.load(Ordering::Relaxed) {
            let at = clock.now() + Span::from_millis(10);
            clock.sleep_until(at);
            late.push(clock.now().since(at));
        }
        late
    });
    let shell = shell.expect("a thread");
    // Consumption is read shortly before each period's end, from above.
    let mut meters: Vec<Meter> = programs.iter().map(|_| Meter::new()).collect();
    for (meter, program) in meters.iter_mut().zip(&programs) {
        meter.add(&program.process(), false);
    }
    let before = Span::from_micros(200);
    let first = clock.now() + Span::from_millis(300);
    let mut looks: Vec<(Instant, usize)> = Vec::new();
    for (at, reservation) in reservations.iter().enumerate() {
        let period = reservation.period();
        let number = first.as_nanos() / period.as_nanos() + 1;
        let count = time.as_nanos() / period.as_nanos();
        looks.extend(
            (number..=number + count).map(|number| ((Instant::ZERO + period * number).saturating_sub(before), at)),
        );
    }
    looks.sort_unstable();
    let (mut last, mut periods, mut full) = ([None; 3], 0, 0);
    let began = clock.now();
    for (at, program) in looks {
        clock.sleep_until(at);
        let now = meters[program].read();
        if let Some(last) = last[program].replace(now) {
            periods += 1;
            full += usize::from(now.saturating_sub(last) >= reservations[program].budget());
        }
    }
    let lasted = clock.now().since(began).as_secs_f64();
    ends.store(true, Ordering::Relaxed);
    let cost = driver.map_or(Span::ZERO, |driver| driver.join().expect("it does not panic"));
    let mut late = shell.join().expect("it does not panic");
    late.sort_unstable();
    Observed { periods, full, late, cost: cost.as_secs_f64() / lasted }
}

fn privileged() -> bool {
    match set_own_policy(ThreadPolicy::Fifo(99)) {
        Ok(()) => true,
        Err(refused) => {
            println!("skipped, needs root or CAP_SYS_NICE: {refused}");
            false
        }
    }
}

/// Short and with a wide margin, because other tests may run in parallel; the ignored test has the figures.
#[test]
fn three_programs_are_served_beside_eight_spinners() {
    let _alone = common::alone();
    if privileged() {
        let seen = observe(true, Span::from_secs(2));
        assert!(seen.full * 10 >= seen.periods * 8, "{} of {}", seen.full, seen.periods);
    }
}

#[test]
#[ignore = "takes a minute and a quiet machine"]
fn measured() {
    if !privileged() {
        return;
    }
    let seconds: u64 = std::env::var("HYOSHI_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    println!("{:<16} {:>16} {:>10} {:>10} {:>10} {:>8}", "", "served in full", "p50", "p99", "most", "broker");
    let seen = [false, true].map(|windows| {
        let seen = observe(windows, Span::from_secs(seconds));
        println!(
            "{:<16} {:>16} {:>8.1}ms {:>8.1}ms {:>8.1}ms {:>7.2}%",
            if windows { "windows" } else { "without a broker" },
            format!("{} of {}", seen.full, seen.periods),
            seen.late(50),
            seen.late(99),
            seen.late(100),
            100.0 * seen.cost
        );
        seen
    });
    let [without, with] = &seen;
    println!("an ordinary thread's p99 wake-up, over that without: {:.1}", with.late(99) / without.late(99));
}
