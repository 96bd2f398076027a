//! Measures the latency that a feedback loop holds: a quantile of response times in each sampling period.

use alloc::{vec, vec::Vec};

use hyoshi_model::{Instant, LatencySetPoint, Span, System};
use hyoshi_trace::JobOutcome;
use hyoshi_trace::stats::Distribution;

use crate::job::{Job, JobTable};

/// Where the latency of a job begins.
#[derive(Clone, Copy, Debug)]
enum LatencyStart {
    Release,
    /// It ends with the last leg of a load chain.
    RootRelease,
}

/// Collects the response times of a sampling period, in constant memory.
///
/// A job that was cancelled, stopped, dropped or expired has no response time. It counts as twice the set point, or as
/// its age if that is longer. Otherwise a loop would see only the jobs that an overloaded processor can finish. For the
/// same reason a job that has not ended counts with its age if that is above the set point.
#[derive(Debug)]
pub(super) struct LatencyMonitor {
    /// By operation here.
    starts: Vec<Option<LatencyStart>>,
    quantile: f64,
    set_point: Span,
    times: Distribution<Span>,
}

/// The measured latency of a sampling period.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredLatency {
    pub quantile: Span,
    /// The number of jobs.
    pub jobs: u32,
    /// The quantile as a part of the set point.
    pub relative: f64,
}

/// The finest and the longest time that the distribution distinguishes, as parts of the set point.
const FINEST: u64 = 256;
const LONGEST: u64 = 1_024;

impl LatencyMonitor {
    pub fn new(system: &System, of: &LatencySetPoint, local_of: &[u32], operations: usize) -> Self {
        let mut starts = vec![None; operations];
        for id in of.ends(system) {
            let from_root = of.is_from_root(system, *id);
            let start = if from_root { LatencyStart::RootRelease } else { LatencyStart::Release };
            starts[local_of[id.index()] as usize] = Some(start);
        }
        let at = of.at.as_nanos();
        let longest = Span::from_nanos(at.saturating_mul(LONGEST));
        let times = Distribution::new(Span::from_nanos(at / FINEST), longest, Span::ZERO, 2);
        LatencyMonitor { starts, quantile: f64::from(of.quantile_ppm) / 1e6, set_point: of.at, times }
    }

    fn age(&self, now: Instant, job: &Job) -> Option<Span> {
        Some(now.since(match self.starts[job.local as usize]? {
            LatencyStart::Release => job.release,
            LatencyStart::RootRelease => job.origin,
        }))
    }

    /// A job has ended, or was dropped.
    #[inline]
    pub fn record(&mut self, now: Instant, job: &Job, outcome: JobOutcome) {
        let Some(age) = self.age(now, job) else { return };
        let is_last = job.id.leg + 1 >= job.legs;
        match outcome {
            // All legs of a load chain have one release: the last one ends the response.
            JobOutcome::Made | JobOutcome::Missed if !is_last => {}
            JobOutcome::Made | JobOutcome::Missed => self.times.record(age),
            JobOutcome::Skipped => {}
            _ => self.times.record(age.max(twice(self.set_point))),
        }
    }

    /// Ends a sampling period; `None` if no job has counted.
    pub fn measure(&mut self, now: Instant, jobs: &JobTable) -> Option<MeasuredLatency> {
        // The release of a job that is held is yet to come, that of its root is not.
        for (_, job) in jobs.iter() {
            self.age(now, job).filter(|age| *age > self.set_point).into_iter().for_each(|age| self.times.record(age));
        }
        let quantile = self.times.quantile(self.quantile);
        let jobs = u32::try_from(self.times.extent().count()).unwrap_or(u32::MAX);
        self.times.clear();
        let relative = |time: Span| time.as_nanos() as f64 / self.set_point.as_nanos() as f64;
        quantile.map(|quantile| MeasuredLatency { quantile, jobs, relative: relative(quantile) })
    }
}

fn twice(span: Span) -> Span {
    Span::from_nanos(span.as_nanos().saturating_mul(2))
}
