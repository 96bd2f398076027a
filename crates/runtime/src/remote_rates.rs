//! Adapted rates between hosts. Loops here set rates on another host, and that host's loops set rates here. A pace
//! limits the completions of another host's operations to their rates.

use std::collections::BTreeMap;

use hyoshi_model::{HostId, Instant, OperationId, ProcessorId, Setting, Span, System};

use crate::common::CommonState;
use crate::remote::Rejected;

/// The rates that loops here set on one other host.
#[derive(Debug)]
pub(crate) struct DepartingRates {
    to: HostId,
    /// The host's processors with such operations.
    processors: Vec<ProcessorId>,
    /// The roots of these operations, in order.
    roots: Vec<OperationId>,
    /// The latest ones, each root once.
    latest: Vec<(OperationId, Span)>,
}

impl DepartingRates {
    /// `None` if loops here set no rate on that host.
    pub fn new(common: &CommonState, to: HostId) -> Option<Self> {
        let rates = common.system.rates_between(common.here()?, to);
        let mut processors: Vec<_> = rates.values().flatten().copied().collect();
        processors.sort_unstable();
        processors.dedup();
        let roots: Vec<_> = rates.into_keys().collect();
        let latest = Vec::with_capacity(roots.len());
        (!processors.is_empty()).then_some(DepartingRates { to, processors, roots, latest })
    }

    /// All rates of the host, if some are new; otherwise none.
    pub fn take(&mut self, common: &CommonState) -> &[(OperationId, Span)] {
        self.latest.clear();
        let mut is_new = false;
        for processor in &self.processors {
            is_new |= common.rates.take(*processor, |_, _| ());
        }
        if is_new {
            self.latest.extend(self.roots.iter().map(|root| (*root, common.rates.latest(*root))));
        }
        &self.latest
    }

    /// Those that were taken have been sent.
    pub fn set_sent(&self, common: &CommonState) {
        // A host with an operation that only follows the root does not release it.
        let is_there = |root: OperationId| common.system.processor(common.system.operation(root).on).host == self.to;
        let there = self.latest.iter().filter(|(root, _)| is_there(*root));
        there.for_each(|(root, period)| common.rates.set_sent(*root, *period));
    }

    /// All of them must be sent again.
    pub fn repeat(&self, common: &CommonState) {
        self.processors.iter().for_each(|processor| common.rates.renew(*processor));
    }
}

/// The rates that loops of one other host set here.
#[derive(Debug)]
pub(crate) struct ArrivingRates {
    roots: BTreeMap<OperationId, AdaptedRoot>,
    /// Processors with new rates.
    woken: Vec<ProcessorId>,
}

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
        let rates = common.here().map(|here| system.rates_between(from, here)).unwrap_or_default();
        let roots = rates.into_iter().map(|(root, here)| (root, AdaptedRoot { range: range(system, root), here }));
        ArrivingRates { roots: roots.collect(), woken: Vec::with_capacity(system.processors.len()) }
    }

    /// True if that host sets no rate here.
    pub fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Sets rates, and wakes the release threads of processors where one has changed. If one rate is wrong, it sets the
    /// other ones.
    pub fn set(&mut self, common: &CommonState, rates: &[(OperationId, Span)]) -> Result<(), Rejected> {
        if rates.len() > self.roots.len() {
            return Err(Rejected::Foreign);
        }
        let mut result = Ok(());
        for (root, period) in rates {
            match self.roots.get(root) {
                None => result = Err(Rejected::Foreign),
                Some(AdaptedRoot { range, .. }) if !(range.0..=range.1).contains(period) => {
                    result = Err(Rejected::Implausible);
                }
                Some(_) if common.rates.latest(*root) == *period => {}
                Some(AdaptedRoot { here, .. }) => {
                    for processor in here {
                        common.rates.set(*processor, *root, *period);
                        if !self.woken.contains(processor) {
                            self.woken.push(*processor);
                        }
                    }
                }
            }
        }
        self.woken.drain(..).for_each(|processor| common.release_of(processor).post());
        result
    }
}

fn range(system: &System, root: OperationId) -> (Span, Span) {
    let settings = || system.epochs.iter().map(|epoch| &epoch.settings[root.index()]);
    let shortest = settings().map(|setting| setting.period).min().unwrap_or(Span::ZERO);
    (shortest, settings().map(|setting| setting.slowest).max().unwrap_or(shortest))
}

/// Limits the completions of another host that a loop here adapts: to 8/7 of the rate that the host knows, plus a
/// backlog at once (a token bucket). Faster completions would use the share of other operations.
#[derive(Debug)]
pub(crate) struct AdaptedPace {
    root: OperationId,
    /// The period at which its host begins.
    start: Span,
    /// The completions of one release of the root.
    each: u64,
    /// Completions that may arrive at once, besides those of [`BACKLOG`].
    burst: u64,
    /// The shortest period of this second, and of the one before.
    shortest: [Span; 2],
    second: u64,
    /// Completions that may arrive now, in parts of [`TOKEN`].
    tokens: u64,
    /// When they were counted.
    counted: Instant,
}

/// A host or a network may be silent for this time, and then send all completions at once.
const BACKLOG: Span = Span::from_secs(2);
/// Completions that may always arrive at once.
const BURST: u64 = 64;
const TOKEN: u64 = 1 << 20;

impl AdaptedPace {
    /// The paces of completions from a host, by source and target. The target is here, and a loop here adapts it.
    pub fn of(common: &CommonState, from: HostId) -> BTreeMap<(OperationId, OperationId), AdaptedPace> {
        let system = &common.system;
        let mut paces = BTreeMap::new();
        if common.runs_host(from) {
            return paces;
        }
        let host = |id: OperationId| system.processor(system.operation(id).on).host;
        let rates: Vec<_> = (0..system.epochs.len()).map(|epoch| system.release_rates(epoch)).collect();
        let setters = system.rate_setters();
        for (root, _, start) in system.adapted_roots() {
            let setter = setters.get(&root).map(|place| system.computed_on(&system.feedback[*place]));
            // Only its host gets its rate.
            if host(root) != from || !setter.is_some_and(|on| common.runs(on)) {
                continue;
            }
            let follows =
                |id: &OperationId| common.runs(system.operation(*id).on) && system.adapted_by(*id) == Some(root);
            for to in system.operation_ids().filter(follows) {
                for source in system.operation(to).trigger.predecessors().iter().filter(|one| host(**one) == from) {
                    let ratio = |rates: &Vec<u64>| rates[source.index()].div_ceil(rates[root.index()].max(1));
                    let each = rates.iter().map(ratio).max().unwrap_or(1).clamp(1, 1 << 16);
                    let jitter = |setting: &Setting| setting.jitter.as_nanos() / setting.period.as_nanos().max(1);
                    let jitter = system.epochs.iter().map(|epoch| jitter(&epoch.settings[root.index()])).max();
                    let waiting = system.operation(*source).queue.limit;
                    let burst = (jitter.unwrap_or(0).min(1 << 16) + u64::from(waiting) + BURST) * each;
                    paces.insert((*source, to), AdaptedPace::new(root, start, each, burst));
                }
            }
        }
        paces
    }

    fn new(root: OperationId, start: Span, each: u64, burst: u64) -> AdaptedPace {
        let (shortest, counted) = ([start; 2], Instant::ZERO);
        AdaptedPace { root, start, each, burst, shortest, second: 0, tokens: burst * TOKEN, counted }
    }

    /// The host has started anew, and begins at its start rate.
    pub fn restart(&mut self) {
        self.shortest[0] = self.shortest[0].min(self.start);
    }

    /// Whether a completion may arrive now.
    pub fn permits(&mut self, now: Instant, common: &CommonState) -> bool {
        let setting = common.system.setting(common.system.epoch_at(now), self.root);
        // Clamped as on its host.
        let sent = common.rates.sent(self.root).clamp(setting.period, setting.slowest.max(setting.period));
        self.permits_at(now, sent)
    }

    /// The same, if its host knows the period `sent`.
    fn permits_at(&mut self, now: Instant, sent: Span) -> bool {
        let second = now.as_nanos() / 1_000_000_000;
        match second.saturating_sub(self.second) {
            0 => {}
            1 => self.shortest = [sent, self.shortest[0]],
            _ => self.shortest = [sent; 2],
        }
        self.second = self.second.max(second);
        self.shortest[0] = self.shortest[0].min(sent);
        let period = self.shortest[0].min(self.shortest[1]).as_nanos().max(1);
        let spacing = ((period - period / 8) / self.each).max(1);
        let since = now.since(self.counted).as_nanos();
        self.counted = self.counted.max(now);
        let tokens = |span: u64| u128::from(span) * u128::from(TOKEN) / u128::from(spacing);
        let most = u128::from(self.burst) * u128::from(TOKEN) + tokens(BACKLOG.as_nanos());
        let tokens = (u128::from(self.tokens) + tokens(since)).min(most);
        self.tokens = u64::try_from(tokens).unwrap_or(u64::MAX);
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

    fn pace(start: u64, each: u64) -> AdaptedPace {
        AdaptedPace::new(OperationId(0), Span::from_millis(start), each, BURST * each)
    }

    /// How many of the completions between two times may arrive, one each `each` ms.
    fn arrivals(pace: &mut AdaptedPace, (from, until): (u64, u64), each: usize, sent: u64) -> u64 {
        (from..until).step_by(each).filter(|ms| pace.permits_at(MS(*ms), Span::from_millis(sent))).count() as u64
    }

    #[test]
    fn a_host_has_a_second_to_follow_a_lower_rate() {
        let mut pace = pace(10, 1);
        assert_eq!(arrivals(&mut pace, (0, 2_000), 10, 10), 200);
        // From 100 Hz to 10 Hz: the old rate for a second, then what has accumulated, and the new rate.
        assert_eq!(arrivals(&mut pace, (2_000, 3_000), 10, 100), 100);
        let more = arrivals(&mut pace, (3_000, 33_000), 10, 100);
        assert!((343..=343 + 100 + 100 + BURST + 23).contains(&more), "{more}");
        let held = arrivals(&mut pace, (33_000, 43_000), 10, 100);
        assert!((113..=115).contains(&held), "{held}");
    }

    #[test]
    fn a_host_that_lies_while_rates_change_all_the_time_is_held_to_them() {
        let mut pace = pace(100, 1);
        let mut passed = 0;
        for step in 0..300 {
            passed += arrivals(&mut pace, (step * 100, step * 100 + 100), 2, 100 + step % 2);
        }
        assert!(passed < 300 * 8 / 7 + 30 + BURST + 24, "{passed} of 15,000");
    }

    #[test]
    fn after_a_pause_all_that_waited_may_arrive_at_once() {
        let mut pace = pace(2, 1);
        assert_eq!(arrivals(&mut pace, (0, 5_000), 2, 2), 2_500);
        let waited = (0..1_000).filter(|_| pace.permits_at(MS(7_000), Span::from_millis(2))).count();
        assert_eq!(waited, 1_000);
    }

    proptest! {
        #[test]
        fn jobs_at_the_sent_rate_always_pass(
            periods in proptest::collection::vec(1u64..2_000, 1..8),
            each in 1u64..4,
            jitter in proptest::collection::vec(0u64..100, 64),
        ) {
            let mut pace = pace(periods[0], each);
            let mut at = 0;
            for (step, period) in periods.iter().enumerate() {
                for job in 0..8 {
                    // Each completion is late by up to its period.
                    let late = jitter[(step * 8 + job) % 64] * period / 100;
                    for _ in 0..each {
                        prop_assert!(pace.permits_at(MS(at + late), Span::from_millis(*period)));
                    }
                    at += period;
                }
            }
        }

        #[test]
        fn a_host_that_ignores_its_rate_gets_little_more_than_its_share(period in 10u64..500, factor in 2u64..20) {
            let mut pace = pace(period, 1);
            let until = 20_000 + 200 * period;
            let passed = arrivals(&mut pace, (0, until), (period / factor).max(1) as usize, period);
            let backlog = BACKLOG.as_nanos() / 1_000_000;
            let share = (until + backlog) * 8 / 7 / period + BURST;
            prop_assert!(passed <= share + 3, "{passed} of {share}");
        }
    }
}
