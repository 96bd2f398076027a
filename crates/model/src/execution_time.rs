//! The actual execution times of jobs: fixed, drawn, or listed.
//!
//! A draw depends only on the seed, the operation, the release number and the leg. So every strategy has the same times
//! for the same jobs (Kokyu, section III-B: "a pseudorandom sequence initialized with the same seed for each
//! strategy"), in whatever order they run.

use alloc::sync::Arc;

use crate::ids::JobId;
use crate::time::Span;

/// The actual execution times of an operation's jobs.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutionTime {
    /// The same for every job.
    Fixed(Span),
    /// Uniform over the closed range, in whole nanoseconds.
    Uniform(Span, Span),
    /// Normal, clamped to the closed range `least..=most`.
    Normal {
        /// Mean.
        mean: Span,
        /// Standard deviation.
        deviation: Span,
        /// The lower limit.
        least: Span,
        /// The upper limit.
        most: Span,
    },
    /// One for each job; the list repeats; never empty.
    List(Arc<[Span]>),
}

impl ExecutionTime {
    /// The execution time of one job.
    pub fn draw(&self, seed: u64, job: JobId) -> Span {
        match self {
            ExecutionTime::Fixed(span) => *span,
            ExecutionTime::Uniform(least, most) => uniform(bits(seed, job, Stream::ExecutionTime), *least, *most),
            ExecutionTime::Normal { mean, deviation, least, most } => {
                let of = |stream| unit(bits(seed, job, stream));
                let (first, second) = (of(Stream::ExecutionTime), of(Stream::Angle));
                // Box and Muller; libm, so every machine draws the same bits.
                let standard = libm::sqrt(-2.0 * libm::log(first)) * libm::cos(core::f64::consts::TAU * second);
                let nanos = mean.as_nanos() as f64 + standard * deviation.as_nanos() as f64;
                Span::from_nanos(libm::round(nanos.max(0.0)) as u64).clamp(*least, *most)
            }
            ExecutionTime::List(spans) => {
                let position = job.number.wrapping_add(u64::from(job.leg)) % spans.len() as u64;
                spans[position as usize]
            }
        }
    }

    /// The longest time of a job.
    pub fn longest(&self) -> Span {
        match self {
            ExecutionTime::Fixed(span) | ExecutionTime::Uniform(_, span) | ExecutionTime::Normal { most: span, .. } => {
                *span
            }
            ExecutionTime::List(spans) => spans.iter().copied().max().unwrap_or_default(),
        }
    }

    /// The shortest time of a job.
    pub fn shortest(&self) -> Span {
        match self {
            ExecutionTime::Fixed(span)
            | ExecutionTime::Uniform(span, _)
            | ExecutionTime::Normal { least: span, .. } => *span,
            ExecutionTime::List(spans) => spans.iter().copied().min().unwrap_or_default(),
        }
    }
}

/// A uniform draw of `least..=most` from 64 random bits.
pub fn uniform(bits: u64, least: Span, most: Span) -> Span {
    let width = u128::from(most.saturating_sub(least).as_nanos()) + 1;
    Span::from_nanos(least.as_nanos() + ((u128::from(bits) * width) >> 64) as u64)
}

/// How late a periodic job is released, as drawn: releases keep their order.
pub fn lateness(seed: u64, job: JobId, jitter: Span, period: Span) -> Span {
    if jitter.is_zero() {
        return Span::ZERO;
    }
    let before = jitter.as_nanos() / period.as_nanos().max(1);
    let drawn = (0..=before.min(job.number).min(MOST_BEFORE)).map(|back| {
        let job = JobId { number: job.number - back, leg: 0, ..job };
        let earlier = period.checked_mul(back).unwrap_or(jitter);
        uniform(bits(seed, job, Stream::Jitter), Span::ZERO, jitter).saturating_sub(earlier)
    });
    drawn.max().unwrap_or_default()
}

/// How many releases are checked, for a jitter of many periods.
const MOST_BEFORE: u64 = 1_000;

/// The purpose of a draw. Draws of different streams are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Stream {
    /// A job's execution time.
    ExecutionTime = 0,
    /// The second number that a normal execution time needs.
    Angle = 1,
    /// How late a periodic release is.
    Jitter = 2,
    /// The delay of a completion on a link.
    LinkDelay = 3,
    /// Whether the network loses a completion.
    LinkLoss = 4,
    /// Whether a job chooses a hop.
    Choice = 5,
    /// Uses outside of simulations and runs.
    Other = 9,
}

/// 64 random bits for one job.
pub fn bits(seed: u64, job: JobId, stream: Stream) -> u64 {
    let place = u64::from(job.operation.0) << 16 | u64::from(job.leg);
    let mixed = mix(seed ^ mix(place.wrapping_add((stream as u64) << 48)));
    mix(mixed.wrapping_add(job.number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in (0, 1].
fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::OperationId;

    fn job(number: u64) -> JobId {
        JobId { operation: OperationId(3), number, leg: 0 }
    }

    #[test]
    fn a_uniform_draw_covers_its_closed_range_evenly() {
        let takes = ExecutionTime::Uniform(Span::from_nanos(10), Span::from_nanos(13));
        let mut counts = [0u32; 4];
        for number in 0..40_000 {
            counts[(takes.draw(1, job(number)).as_nanos() - 10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_normal_draw_has_its_mean_and_deviation() {
        let span = Span::from_micros;
        let takes =
            ExecutionTime::Normal { mean: span(1_000), deviation: span(100), least: span(0), most: span(2_000) };
        let draws: alloc::vec::Vec<f64> = (0..50_000).map(|n| takes.draw(7, job(n)).as_nanos() as f64 / 1e3).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let deviation = libm::sqrt(draws.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / draws.len() as f64);
        assert!((mean - 1_000.0).abs() < 2.0 && (deviation - 100.0).abs() < 2.0, "{mean} {deviation}");
    }

    #[test]
    fn a_draw_depends_on_seed_operation_number_and_leg_only() {
        let takes = ExecutionTime::Uniform(Span::ZERO, Span::from_secs(1));
        assert_eq!(takes.draw(5, job(9)), takes.draw(5, job(9)));
        assert_ne!(takes.draw(5, job(9)), takes.draw(6, job(9)));
        assert_ne!(takes.draw(5, job(9)), takes.draw(5, job(10)));
        assert_ne!(takes.draw(5, job(9)), takes.draw(5, JobId { leg: 1, ..job(9) }));
    }

    #[test]
    fn a_list_starts_again_when_it_ends() {
        let takes = ExecutionTime::List([Span::from_nanos(1), Span::from_nanos(2)].into());
        assert_eq!((0..4).map(|n| takes.draw(0, job(n)).as_nanos()).collect::<alloc::vec::Vec<_>>(), [1, 2, 1, 2]);
    }
}
