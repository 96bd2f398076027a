//! A reservation beside endless computation: periods that are served in full, for each scheduler.
//!
//! The measured comparison is `cargo test -p hyoshi-broker --test suite served::compare -- --ignored --nocapture` on a
//! quiet machine, as root; its figures are in docs/benchmarks.md.

use crate::common;

use hyoshi_broker::machine::Machine;
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::cgroup::own::remove;
use hyoshi_os::cgroup::{OwnGroup, Subtree};
use hyoshi_os::meter::Meter;
use hyoshi_os::scheduling::{reserve, set_nice};
use hyoshi_os::{Clock, MonotonicClock, ThreadPolicy, own_cpu_time, set_own_policy};

use common::{Driver, Place, Program};

/// How CPU time is provided.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Nothing,
    Nice(i32),
    /// Like systemd: each program in its own group, this one with a larger weight.
    Weight(u64),
    /// SCHED_DEADLINE for the computing threads, which the test knows.
    DeadlineByHand,
    By(&'static str),
}

/// The result.
struct Observed {
    share: f64,
    periods: usize,
    full: usize,
    least: Span,
    cost: f64,
}

/// The observer reads this long before each period, so that all CPU time of a period lies between two readings.
const BEFORE: Span = Span::from_micros(200);

fn observe(way: Way, threads: usize, reservation: Reservation, seconds: u64) -> Observed {
    let spinners: Vec<Program> = (0..8).map(|_| Program::spinning(1)).collect();
    let program = Program::spinning(threads);
    let clock = MonotonicClock::start();
    let place = Place::new("served");
    let mut groups = Vec::new();
    let driver = match way {
        Way::Nothing => None,
        Way::Nice(nice) => {
            let mut threads = Vec::new();
            program.process().threads(&mut threads);
            threads.iter().for_each(|tid| set_nice(*tid, nice).expect("root"));
            None
        }
        Way::Weight(weight) => {
            let ours = (program.0.id(), weight);
            groups.extend(spinners.iter().map(|other| (other.0.id(), 1)).chain([ours]).map(Unit::of));
            None
        }
        Way::DeadlineByHand => {
            let mut all = Vec::new();
            program.process().threads(&mut all);
            let part = Span::from_nanos(reservation.budget().as_nanos() / threads as u64);
            // The computing threads were started last.
            for tid in all.split_off(all.len() - threads) {
                reserve(tid, part, reservation.deadline(), reservation.period()).expect("root");
            }
            None
        }
        Way::By(name) => {
            let (machine, _) = Machine::open(&place.0, Some(name)).unwrap_or_else(|error| panic!("{error}"));
            Some(Driver::start(machine, program.process(), reservation, clock))
        }
    };
    let mut meter = Meter::new();
    meter.add(&program.process(), false);
    let period = reservation.period();
    let at = |number: u64| (Instant::ZERO + period * number).saturating_sub(BEFORE);
    let first = clock.now().as_nanos() / period.as_nanos() + 3;
    let count = Span::from_secs(seconds).as_nanos() / period.as_nanos();
    clock.sleep_until(at(first));
    let (began, mut last) = (clock.now(), meter.read());
    let start = last;
    let mut consumed = Vec::new();
    for number in first + 1..=first + count {
        clock.sleep_until(at(number));
        let now = meter.read();
        consumed.push(now.saturating_sub(last));
        last = now;
    }
    let lasted = clock.now().since(began).as_secs_f64();
    let cost = driver.map_or(0.0, |driver| driver.end().as_secs_f64() / lasted);
    drop(spinners);
    Observed {
        share: last.saturating_sub(start).as_secs_f64() / lasted,
        periods: consumed.len(),
        full: consumed.iter().filter(|span| **span >= reservation.budget()).count(),
        least: consumed.iter().min().copied().unwrap_or_default(),
        cost,
    }
}

/// A control group for one process, until it is dropped.
struct Unit(OwnGroup);

impl Unit {
    fn of((pid, weight): (u32, u64)) -> Unit {
        let subtree = Subtree::find().expect("root");
        let unit = Unit(OwnGroup::below(subtree.folder(), &format!("hyoshi-served-{pid}"), subtree.version()));
        unit.0.make().and_then(|()| unit.0.weigh(weight)).and_then(|()| unit.0.take(pid)).expect("root");
        unit
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = remove(self.0.folder(), None);
    }
}

fn millis(budget: u64, period: u64) -> Reservation {
    Reservation::new(Span::from_millis(budget), Span::from_millis(period)).expect("it is one")
}

/// Whether this process may run above all others; a late observer counts two periods as one.
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
fn a_window_serves_most_periods_beside_eight_spinners() {
    let _alone = common::alone();
    if !privileged() {
        return;
    }
    let seen = observe(Way::By("window"), 3, millis(30, 100), 2);
    assert!(seen.full * 10 >= seen.periods * 8, "{} of {}, least {}", seen.full, seen.periods, seen.least);
}

#[test]
#[ignore = "takes three minutes and a quiet machine"]
fn compare() {
    if !privileged() {
        return;
    }
    let seconds: u64 = std::env::var("HYOSHI_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let only = std::env::var("HYOSHI_WAY").ok();
    println!("{:<28} {:<12} {:>8} {:>16} {:>12} {:>8}", "reserved", "by", "share", "served in full", "least", "cost");
    let mut short = Vec::new();
    for (threads, reservation) in [(1, millis(30, 100)), (1, millis(10, 33)), (8, millis(30, 100)), (8, millis(10, 33))]
    {
        let by_hand = [Way::Nothing, Way::Nice(-10), Way::Weight(10), Way::DeadlineByHand];
        let proxies = by_hand.into_iter().chain(["weights", "deadline", "window"].map(Way::By));
        for way in proxies {
            let name = match way {
                Way::Nothing => "nothing".to_owned(),
                Way::Nice(nice) => format!("nice {nice}"),
                Way::Weight(weight) => format!("weight {weight}"),
                Way::DeadlineByHand => "by hand".to_owned(),
                Way::By(name) => name.to_owned(),
            };
            if only.as_ref().is_some_and(|only| *only != name) {
                continue;
            }
            let window = way == Way::By("window");
            let seen = observe(way, threads, reservation, if window { seconds } else { seconds.div_ceil(4) });
            println!(
                "{:<28} {:<12} {:>7.1}% {:>16} {:>12} {:>7.2}%",
                format!("{} of {}, {threads} threads", reservation.budget(), reservation.period()),
                name,
                100.0 * seen.share,
                format!("{} of {}", seen.full, seen.periods),
                seen.least.to_string(),
                100.0 * seen.cost
            );
            if window && seen.full * 100 < seen.periods * 99 {
                short.push(format!("{reservation:?} of {threads}: {} of {}", seen.full, seen.periods));
            }
        }
    }
    println!("observer {} of CPU", own_cpu_time());
    assert!(short.is_empty(), "below 99 %: {short:?}");
}
