//! Adapted rates between hosts: those that loops here set on another host, those that another host's loops set here, and
//! the pace at which another host's operations follow their rates.

use std::collections::BTreeMap;

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Span, System};

use crate::common::CommonState;
use crate::remote::Rejected;

/// The rates that loops here set on one other host.
#[derive(Debug)]
pub(crate) struct DepartingRates {
    /// The host's processors with such operations.
    processors: Vec<ProcessorId>,
    /// The latest ones, each root once.
    latest: Vec<(OperationId, Span)>,
}

impl DepartingRates {
    /// `None` if loops here set no rate on that host.
    pub fn new(common: &CommonState, to: HostId) -> Option<Self> {
        let system = &common.system;
        let mut processors = Vec::new();
        let mut roots = Vec::new();
        for one in system.feedback.iter().filter(|one| common.runs(one.processor)) {
            for adapted in system.adapted_on(one.processor) {
                let there = adapted.elsewhere.iter().map(|id| system.operation(*id).on);
                let there: Vec<_> = there.filter(|on| system.processor(*on).host == to && !common.runs(*on)).collect();
                if !there.is_empty() {
                    roots.push(adapted.root);
                }
                processors.extend(there);
            }
        }
        processors.sort_unstable();
        processors.dedup();
        (!processors.is_empty()).then(|| DepartingRates { processors, latest: Vec::with_capacity(roots.len()) })
    }

    /// All rates of the host, if some are new; otherwise none.
    pub fn take(&mut self, common: &CommonState) -> &[(OperationId, Span)] {
        self.latest.clear();
        for processor in &self.processors {
            common.rates.take(*processor, |root, period| self.latest.push((root, period)));
        }
        // Operations of several processors may follow one root.
        self.latest.sort_unstable();
        self.latest.dedup_by_key(|(root, _)| *root);
        &self.latest
    }

    /// All of them must be sent again.
    pub fn repeat(&self, common: &CommonState) {
        self.processors.iter().for_each(|processor| common.rates.renew(*processor));
    }
}

/// The rates that loops of one other host set here.
#[derive(Debug)]
pub(crate) struct ArrivingRates(BTreeMap<OperationId, AdaptedRoot>);

#[derive(Debug)]
struct AdaptedRoot {
    /// Its shortest and longest period of all epochs.
    range: (Span, Span),
    /// The processors here with operations of its rate.
    here: Vec<ProcessorId>,
}

impl ArrivingRates {
    pub fn new(common: &CommonState, from: HostId) -> Self {
        let system = &common.system;
        let loops = system.feedback.iter().filter(|one| system.processor(one.processor).host == from);
        let adapted = loops.filter(|one| !common.runs(one.processor)).flat_map(|one| system.adapted_on(one.processor));
        let roots = adapted.filter_map(|adapted| {
            let on = adapted.elsewhere.iter().map(|id| system.operation(*id).on);
            let mut here: Vec<_> = on.filter(|on| common.runs(*on)).collect();
            here.sort_unstable();
            here.dedup();
            let root = AdaptedRoot { range: range(system, adapted.root), here };
            (!root.here.is_empty()).then_some((adapted.root, root))
        });
        ArrivingRates(roots.collect())
    }

    /// True if that host sets no rate here.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets a rate, and wakes the release threads of its processors.
    pub fn set(&self, common: &CommonState, root: OperationId, period: Span) -> Result<(), Rejected> {
        let AdaptedRoot { range, here } = self.0.get(&root).ok_or(Rejected::Foreign)?;
        if !(range.0..=range.1).contains(&period) {
            return Err(Rejected::Implausible);
        }
        for processor in here {
            common.rates.set(*processor, root, period);
            common.release_of(*processor).post();
        }
        Ok(())
    }
}

fn range(system: &System, root: OperationId) -> (Span, Span) {
    let settings = || system.epochs.iter().map(|epoch| &epoch.settings[root.index()]);
    let shortest = settings().map(|setting| setting.period).min().unwrap_or(Span::ZERO);
    (shortest, settings().map(|setting| setting.slowest).max().unwrap_or(shortest))
}

/// How fast completions of another host may arrive that a loop here adapts: at 8/7 of the rate that was sent, and a
/// few at once (a token bucket). Faster ones would use the share of others.
#[derive(Debug)]
pub(crate) struct AdaptedPace {
    pub root: OperationId,
    /// The completions of one job.
    legs: u64,
    /// The period that was sent last; zero before the first.
    sent: Span,
    /// The shortest period that was sent within [`CHANGES_WITHIN`] before.
    before: Span,
    changed: Instant,
    /// Completions that may arrive now, in parts of [`TOKEN`].
    tokens: u64,
    /// When they were counted.
    counted: Instant,
}

/// After that time the host follows a new rate: the message has arrived, and its earlier jobs have ended.
const CHANGES_WITHIN: Span = Span::from_secs(1);
/// Jobs that may arrive at once.
const BURST: u64 = 8;
const TOKEN: u64 = 1 << 20;

impl AdaptedPace {
    /// The paces of completions from a host, by source and target; the target is here, and a loop here adapts it.
    pub fn of(common: &CommonState, from: HostId) -> BTreeMap<(OperationId, OperationId), AdaptedPace> {
        let system = &common.system;
        let loops = system.feedback.iter().filter(|one| common.runs(one.processor));
        let adapted = loops.flat_map(|one| system.adapted_on(one.processor));
        let mut paces = BTreeMap::new();
        for one in adapted {
            // Only its host gets its rate.
            let on = |id: &OperationId| system.processor(system.operation(*id).on).host;
            if on(&one.root) != from || common.runs_host(from) {
                continue;
            }
            for to in one.here.iter().chain(&one.elsewhere).filter(|id| common.runs(system.operation(**id).on)) {
                for source in system.operation(*to).trigger.predecessors().iter().filter(|source| on(source) == from) {
                    let legs = system.epochs.iter().map(|epoch| epoch.settings[source.index()].legs).max();
                    let legs = u64::from(legs.unwrap_or(1).max(1));
                    paces.insert((*source, *to), AdaptedPace::new(one.root, legs));
                }
            }
        }
        paces
    }

    fn new(root: OperationId, legs: u64) -> AdaptedPace {
        let (sent, before, start) = (Span::ZERO, Span::ZERO, Instant::ZERO);
        AdaptedPace { root, legs, sent, before, changed: start, tokens: BURST * legs * TOKEN, counted: start }
    }

    /// The host has started anew, and does not know its rate yet.
    pub fn restart(&mut self, now: Instant) {
        (self.before, self.changed) = (Span::ZERO, now);
    }

    /// Whether a completion may arrive now, if this period was sent last; zero if none was.
    pub fn permits(&mut self, now: Instant, sent: Span) -> bool {
        if sent != self.sent {
            let changes = now.since(self.changed) < CHANGES_WITHIN;
            self.before = if changes { self.before.min(self.sent) } else { self.sent };
            (self.sent, self.changed) = (sent, now);
        }
        let period = if now.since(self.changed) < CHANGES_WITHIN { sent.min(self.before) } else { sent };
        let each = (period.as_nanos() - period.as_nanos() / 8) / self.legs;
        let since = now.since(std::mem::replace(&mut self.counted, now)).as_nanos();
        let more = (u128::from(since) * u128::from(TOKEN)).checked_div(u128::from(each)).unwrap_or(u128::MAX);
        let more = u64::try_from(more).unwrap_or(u64::MAX);
        self.tokens = self.tokens.saturating_add(more).min(BURST * self.legs * TOKEN);
        let has_one = self.tokens >= TOKEN;
        self.tokens -= if has_one { TOKEN } else { 0 };
        has_one
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: fn(u64) -> Instant = |ms| Instant::from_nanos(ms * 1_000_000);

    #[test]
    fn a_host_has_a_second_to_follow_a_new_rate() {
        let mut pace = AdaptedPace::new(OperationId(0), 1);
        assert!((0..1_000).all(|ms| pace.permits(MS(ms), Span::ZERO)), "no rate was sent");
        let arrivals = |pace: &mut AdaptedPace, from: u64, until: u64, each: usize, sent: u64| {
            (from..until).step_by(each).filter(|ms| pace.permits(MS(*ms), Span::from_millis(sent))).count()
        };
        assert_eq!(arrivals(&mut pace, 1_000, 2_000, 10, 10), 100);
        // From 100 Hz to 10 Hz: the old rate for a second, then a burst and the new one.
        assert_eq!(arrivals(&mut pace, 2_000, 3_000, 10, 100), 100);
        let more = arrivals(&mut pace, 3_000, 13_000, 10, 100);
        assert!((114..=124).contains(&more), "{more}");
        pace.restart(MS(13_000));
        assert_eq!(arrivals(&mut pace, 13_000, 14_000, 10, 100), 100, "it starts anew");
    }

    proptest! {
        #[test]
        fn jobs_at_the_sent_rate_always_pass(
            periods in proptest::collection::vec(1u64..2_000, 1..8),
            legs in 1u64..4,
            jitter in proptest::collection::vec(0u64..100, 64),
        ) {
            let mut pace = AdaptedPace::new(OperationId(0), legs);
            let mut at = 0;
            for (step, period) in periods.iter().enumerate() {
                for job in 0..8 {
                    // Each completion is late by up to its period.
                    let late = jitter[(step * 8 + job) % 64] * period / 100;
                    for _ in 0..legs {
                        prop_assert!(pace.permits(MS(at + late), Span::from_millis(*period)));
                    }
                    at += period;
                }
            }
        }

        #[test]
        fn a_host_that_ignores_its_rate_gets_little_more_than_its_share(period in 10u64..500, factor in 2u64..20) {
            let mut pace = AdaptedPace::new(OperationId(0), 1);
            let until = 2_000 + 200 * period;
            let each = (period / factor).max(1) as usize;
            let sent = Span::from_millis(period);
            let passed = (0..until).step_by(each).filter(|ms| pace.permits(MS(*ms), sent)).count() as u64;
            // At first no rate was sent: a second without limit.
            let share = 1_000 / each as u64 + (until - 1_000) * 8 / 7 / period;
            prop_assert!(passed <= share + BURST + 3, "{passed} of {share}");
        }
    }
}
