//! Measured costs of queueing on a processor: Kokyu's enqueue and dequeue latencies (Kokyu 2003, section IV).

use hyoshi_model::Span;

use super::Distribution;

/// The range of costs. Beyond it only the greatest is exact.
const LONGEST: Span = Span::from_millis(10);

/// Times in which the dispatcher put jobs into queues and removed them.
#[derive(Clone, Debug)]
pub struct Queueing {
    /// For each job released by a timer or another processor: its share of that tick.
    pub enqueue: Distribution<Span>,
    /// For each job that a lane started: the time of the decision, including jobs cancelled before it.
    pub dequeue: Distribution<Span>,
}

impl Default for Queueing {
    fn default() -> Self {
        let empty = || Distribution::new(Span::from_nanos(1), LONGEST, Span::ZERO, 2);
        Queueing { enqueue: empty(), dequeue: empty() }
    }
}

impl Queueing {
    /// Records a tick of `took` that put `jobs` jobs into queues.
    #[inline]
    pub fn enqueued(&mut self, jobs: u32, took: Span) {
        let each = Span::from_nanos(took.as_nanos() / u64::from(jobs.max(1)));
        for _ in 0..jobs {
            self.enqueue.record(each);
        }
    }

    /// Records a decision of `took` that started a job.
    #[inline]
    pub fn dequeued(&mut self, took: Span) {
        self.dequeue.record(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_shared_by_the_jobs_that_it_released() {
        let mut queueing = Queueing::default();
        queueing.enqueued(4, Span::from_micros(2));
        queueing.enqueued(0, Span::from_micros(9));
        queueing.dequeued(Span::from_nanos(300));
        assert_eq!(queueing.enqueue.extent().count(), 4);
        assert_eq!(queueing.enqueue.extent().most(), Some(Span::from_nanos(500)));
        assert_eq!(queueing.dequeue.extent().mean(), Some(Span::from_nanos(300)));
    }
}
