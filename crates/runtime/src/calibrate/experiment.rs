//! Measurements of a spinning lane: gaps in its readings of the clock, and executions of the other lane.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyoshi_model::{Instant, Span, System};
use hyoshi_os::{StealReader, allowed_cpus};
use hyoshi_sched::Plan;

use super::{CalibrateError, system};
use crate::ended::RunNote;
use crate::node::Node;

/// Rounds of each experiment.
pub(super) const ROUNDS: u64 = 20;
/// The time that a lane spins in each round; no longer than kernels permit for real-time threads.
pub(super) const SPIN: Span = Span::from_millis(100);
/// The length of a round.
pub(super) const ROUND: Span = Span::from_millis(150);
/// The period of the releases and of the watchdog, as short as in fast systems.
pub(super) const PERIOD: Span = Span::from_millis(1);
/// Shorter gaps are noise of the clock.
pub(super) const LEAST_GAP: Span = Span::from_nanos(500);
/// The largest earliness of a timer, by two readings of the clock.
const EARLY: Span = Span::from_micros(5);
/// The largest lateness of its thread at real-time priority, without other threads.
const LATE: Span = Span::from_micros(100);
/// The shortest time for which a hypervisor stops a CPU.
const LEAST_STOLEN: Span = Span::from_micros(100);

/// A system in which one operation spins and another has a release every millisecond.
pub(super) struct Experiment {
    /// The critical one, which is above the other under MUF.
    urgent: &'static str,
}

/// The spinning lane is more urgent: released jobs wait.
pub(super) const EXPIRIES: Experiment = Experiment { urgent: "spin" };
/// The spinning lane is less urgent: released jobs run at once.
pub(super) const SWITCHES: Experiment = Experiment { urgent: "tick" };

/// The measurements of the two bodies.
#[derive(Debug, Default)]
pub(super) struct Measurements {
    /// From the last reading of the clock before a gap to the first after it.
    gaps: Vec<(Instant, Instant)>,
    /// Release, start and end of each `tick`.
    ticks: Vec<(Instant, Instant, Instant)>,
    /// The times in which a lane spun.
    spun: Vec<(Instant, Instant)>,
    /// Gaps omitted as stolen by the hypervisor.
    pub stolen: (usize, Span),
    pub real_time: bool,
    pub notes: Vec<RunNote>,
}

impl Experiment {
    pub fn system(&self) -> Result<(Arc<System>, Arc<Plan>), CalibrateError> {
        let text = format!(
            "name = \"calibration\"\n[processor.main]\nstrategy = \"MUF\"\ncap = \"100%\"\n\
             [operation.spin]\nevery = \"{ROUND}\"\nwcet = \"{ROUND}\"\ncritical = {}\nqueue = {{ limit = 1 }}\n\
             [operation.tick]\nevery = \"{PERIOD}\"\nwcet = \"{PERIOD}\"\ncritical = {}\nqueue = {{ limit = 1000 }}\n",
            self.urgent == "spin",
            self.urgent == "tick",
        );
        system(&text)
    }
}

pub(super) fn run(experiment: &Experiment, mut progress: impl FnMut(u64)) -> Result<Measurements, CalibrateError> {
    let (system, plan) = experiment.system()?;
    let seen = Arc::new(Mutex::new(Measurements {
        // Nothing is allocated during the measurement.
        gaps: Vec::with_capacity(1 << 16),
        ticks: Vec::with_capacity(1 << 13),
        spun: Vec::with_capacity(ROUNDS as usize + 1),
        ..Measurements::default()
    }));
    let cpu = allowed_cpus().last().copied().unwrap_or(0);
    let mut host = StolenTime::of(cpu);
    let mut gaps = Vec::with_capacity(1 << 12);
    let spinning = seen.clone();
    let mut ticks = Vec::with_capacity(1 << 12);
    let ticking = seen.clone();
    let duration = ROUND * ROUNDS;
    let node = Node::new(system, plan)
        .duration(duration)
        .body("spin", move |job| {
            let began = job.now();
            let mut last = began;
            while last.since(began) < SPIN && !job.stop_asked() {
                let now = job.now();
                if now.since(last) >= LEAST_GAP && gaps.len() < gaps.capacity() {
                    gaps.push((last, now));
                }
                last = now;
            }
            let mut seen = spinning.lock().unwrap_or_else(PoisonError::into_inner);
            seen.spun.push((began, last));
            seen.gaps.append(&mut gaps);
        })
        .body("tick", move |job| {
            let started = job.now();
            // If the lane above may hold the lock, record later.
            if ticks.len() == ticks.capacity() {
                ticks.clear();
            }
            ticks.push((job.release(), started, job.now()));
            if ticks.len() >= 64
                && let Ok(mut seen) = ticking.try_lock()
            {
                seen.ticks.append(&mut ticks);
            }
        });
    let mut running = node.start()?;
    while !running.finished() {
        running.poll(&mut |_, _, _| ());
        progress(running.now().as_nanos() * 100 / duration.as_nanos());
        std::thread::sleep(Duration::from_millis(50));
    }
    let finished = running.stop(&mut |_, _, _| ());
    let mut seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    seen.stolen = leave_out(&mut seen.gaps, host.took(), |(from, to)| to.since(*from));
    seen.real_time = !finished.notes.iter().any(|note| matches!(note, RunNote::Refused { .. }));
    seen.notes = finished.notes;
    Ok(seen)
}

/// Time for which the hypervisor has stopped a CPU since `of`.
pub(super) struct StolenTime {
    reader: Option<StealReader>,
    before: Option<Span>,
}

impl StolenTime {
    /// The resolution of the kernel's count.
    const STEP: Span = Span::from_millis(10);

    pub fn of(cpu: u32) -> StolenTime {
        let mut reader = StealReader::of(cpu).ok();
        let before = reader.as_mut().and_then(StealReader::stolen);
        StolenTime { reader, before }
    }

    /// An upper bound.
    pub fn took(&mut self) -> Span {
        let now = self.reader.as_mut().and_then(StealReader::stolen);
        match now.zip(self.before) {
            // There is no hypervisor, or it never stopped the CPU.
            None | Some((Span::ZERO, _)) => Span::ZERO,
            Some((now, before)) => now.saturating_sub(before) + StolenTime::STEP,
        }
    }
}

/// Removes the largest gaps, up to a sum of `took`. Returns their number and sum.
pub(super) fn leave_out<T>(gaps: &mut Vec<T>, took: Span, length: impl Fn(&T) -> Span) -> (usize, Span) {
    let mut by_length: Vec<Span> = gaps.iter().map(&length).collect();
    by_length.sort_unstable_by_key(|span| std::cmp::Reverse(*span));
    let (mut sum, mut least) = (Span::ZERO, None);
    for span in by_length {
        // A shorter gap is not the hypervisor's.
        if span < LEAST_STOLEN || sum + span > took {
            break;
        }
        (sum, least) = (sum + span, Some(span));
    }
    let (before, most) = (gaps.len(), least.unwrap_or(Span::from_nanos(u64::MAX)));
    gaps.retain(|gap| length(gap) < most);
    (before - gaps.len(), sum)
}

impl Measurements {
    /// For each timer expiry while a lane spun, the largest gap that began close to it.
    pub fn gaps_at_releases(&self) -> Vec<Span> {
        let late = if self.real_time { LATE } else { PERIOD.saturating_sub(EARLY) };
        let mut expiries = Vec::new();
        for (began, ended) in &self.spun {
            let first = began.as_nanos() / PERIOD.as_nanos() + 1;
            let releases = (first..).map(|number| Instant::ZERO + PERIOD * number);
            expiries.extend(releases.take_while(|release| *release + late < *ended));
        }
        let gap = |release: Instant| {
            // The gaps are in the order of time.
            let from = self.gaps.partition_point(|(from, _)| *from + EARLY < release);
            let about = self.gaps[from..].iter().take_while(|(from, _)| *from <= release + late);
            about.map(|(from, to)| to.since(*from)).max()
        };
        expiries.into_iter().filter_map(gap).collect()
    }

    /// The gap around each `tick`, without the body itself.
    pub fn gaps_around_bodies(&self) -> Vec<Span> {
        let gap = |(_, started, ended): &(Instant, Instant, Instant)| {
            let at = self.gaps.partition_point(|(_, to)| to < ended);
            let (from, to) = self.gaps.get(at).filter(|(from, _)| from <= started)?;
            Some(to.since(*from).saturating_sub(ended.since(*started)))
        };
        self.ticks.iter().filter_map(gap).collect()
    }

    /// Times from the end of a body to the start of the next waiting job of the same lane, without a timer expiry
    /// between them.
    pub fn between_bodies(&self) -> Vec<Span> {
        let pairs = self.ticks.iter().zip(self.ticks.iter().skip(1));
        let alone = pairs.filter(|((.., ended), (release, started, _))| {
            let expiry = started.as_nanos() / PERIOD.as_nanos() * PERIOD.as_nanos();
            release < ended
                && ended < started
                && expiry + EARLY.as_nanos() < ended.as_nanos()
                && started.since(*ended) < PERIOD
        });
        alone.map(|((.., ended), (_, started, _))| started.since(*ended)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> Instant {
        Instant::ZERO + Span::from_micros(micros)
    }

    #[test]
    fn a_gap_belongs_to_the_expiry_that_it_begins_with_and_a_tick_of_the_kernel_to_none() {
        let gaps = vec![(us(999), us(1_010)), (us(1_500), us(1_505)), (us(2_001), us(2_013)), (us(2_050), us(2_053))];
        let seen = Measurements { gaps, spun: vec![(us(500), us(2_900))], real_time: true, ..Measurements::default() };
        assert_eq!(seen.gaps_at_releases(), [Span::from_micros(11), Span::from_micros(12)]);
    }

    #[test]
    fn a_gap_around_a_body_counts_without_it_and_a_body_beside_the_spinning_does_not() {
        let ticks = vec![(us(1_000), us(1_012), us(1_013)), (us(2_000), us(2_005), us(2_006))];
        let seen = Measurements { gaps: vec![(us(1_000), us(1_020))], ticks, ..Measurements::default() };
        assert_eq!(seen.gaps_around_bodies(), [Span::from_micros(19)]);
    }

    #[test]
    fn the_largest_gaps_are_the_hosts_as_far_as_it_took_time() {
        let of = |micros: &[u64]| micros.iter().map(|one| Span::from_micros(*one)).collect::<Vec<_>>();
        let mut gaps = of(&[10, 2_000, 11, 900, 12]);
        assert_eq!(leave_out(&mut gaps, Span::from_micros(2_500), |gap| *gap), (1, Span::from_micros(2_000)));
        assert_eq!(gaps, of(&[10, 11, 900, 12]));
        assert_eq!(leave_out(&mut gaps, Span::ZERO, |gap| *gap), (0, Span::ZERO));
        assert_eq!(leave_out(&mut gaps, Span::from_secs(1), |gap| *gap).0, 1);
        assert_eq!(gaps, of(&[10, 11, 12]));
    }

    #[test]
    fn between_bodies_no_timer_expired_and_the_second_one_waited() {
        let ticks = vec![
            (us(1_000), us(3_100), us(3_101)),
            (us(2_000), us(3_103), us(3_104)),
            (us(3_000), us(3_996), us(3_999)),
            (us(3_500), us(4_012), us(4_013)), // with an expiry at 4000 between
            (us(5_000), us(5_010), us(5_011)), // did not wait
        ];
        let seen = Measurements { ticks, ..Measurements::default() };
        assert_eq!(seen.between_bodies(), [Span::from_micros(2), Span::from_micros(892)]);
    }
}
