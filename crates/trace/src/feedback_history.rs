//! The samples of feedback loops over time, in bounded memory.

use std::collections::BTreeMap;

use hyoshi_model::{Instant, OperationId, ProcessorId, Span, System};

use crate::admission::AdmissionOutcome;
use crate::event::{DispatchDecision, Input, TraceEvent};
use crate::rated_client::RatedClient;

/// The most points of a history. Then each two become one.
const MOST: usize = 512;

/// The most clients of a history. If there are more, the earliest clients that have left are omitted.
const MOST_CLIENTS: usize = 512;

/// The most moves and admissions of a history, of each kind.
const MOST_MOVES: usize = 64;

/// The most rates of a loop over time: those of its first operations, then of its first clients.
const MOST_RATES: usize = 64;

/// A rate over time: its mean in the sampling periods of each point of a [`FeedbackHistory`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RateHistory {
    /// At present.
    period: Span,
    /// By point: the number of samples with this rate, and the sum of the rates in hertz. The last points are missing
    /// if a client has left.
    points: Vec<(u64, f64)>,
}

impl RateHistory {
    fn new(period: Span, points: usize) -> RateHistory {
        RateHistory { period, points: vec![(0, 0.0); points] }
    }

    /// A sample of this point.
    fn sample(&mut self, point: usize) {
        self.points.resize(self.points.len().max(point + 1), (0, 0.0));
        let (count, sum) = &mut self.points[point];
        *count += 1;
        *sum += 1e9 / self.period.as_nanos().max(1) as f64;
    }

    /// Each two points become one.
    fn halve(&mut self) {
        let sum = |pair: &[(u64, f64)]| pair.iter().fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        self.points = self.points.chunks(2).map(sum).collect();
    }

    /// The period of the mean rate at a point; `None` if the operation or the client was absent.
    pub fn period(&self, point: usize) -> Option<Span> {
        let (count, sum) = self.points.get(point).copied().filter(|(count, _)| *count > 0)?;
        Some(Span::from_nanos((1e9 * count as f64 / sum).round() as u64))
    }
}

/// A registered client of a loop over time.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientHistory {
    /// Its place among the loop's clients; a later client may have it again.
    pub client: u16,
    /// Its task.
    pub task: RatedClient,
    /// When it joined.
    pub joined: Instant,
    /// When it left; `None` if it is registered.
    pub left: Option<Instant>,
    /// Its latest period.
    pub period: Span,
    /// How often the loop set its period.
    pub changes: u64,
    /// Its rate over time; `None` beyond the first rates.
    pub rates: Option<RateHistory>,
}

/// The samples of one loop: each point averages the same number of successive samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedbackHistory {
    points: Vec<FeedbackPoint>,
    latest: Option<FeedbackPoint>,
    samples: u64,
    /// The latency of the next sample.
    latency: Option<Span>,
    /// Samples in a full point.
    stride: u64,
    /// The latest period of each root, and the number of its changes.
    periods: BTreeMap<OperationId, (Span, u64)>,
    /// The rates over time of the roots that this loop adapts, in the file's order; the first ones.
    rates: Vec<(OperationId, RateHistory)>,
    /// The latest service level of each operation with levels, and the number of its changes.
    levels: BTreeMap<OperationId, (u8, u64)>,
    /// In the order of joining.
    clients: Vec<ClientHistory>,
    /// Clients that are omitted.
    omitted: u64,
    /// The latest arrivals of operations at this processor, and the number of earlier ones.
    moves: Vec<(Instant, OperationId)>,
    moves_omitted: u64,
    /// The latest decisions on operations on standby, and the number of earlier ones.
    admissions: Vec<(Instant, OperationId, AdmissionOutcome)>,
    admissions_omitted: u64,
    /// Whether an operation that has moved, or that was admitted or withdrawn, is here.
    present: BTreeMap<OperationId, bool>,
    /// The periods as received by the processors of the roots.
    received: BTreeMap<OperationId, (Span, u64)>,
}

/// The means of some successive samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FeedbackPoint {
    /// The last of these samples.
    pub at: Instant,
    /// Their number.
    pub samples: u64,
    /// Those with a measured utilisation.
    measured: u64,
    /// The sum of the utilisations, and of their squares, in parts per million of the hard cap.
    utilisation: (f64, f64),
    /// Jobs that ended.
    pub ended: u64,
    /// Those of them that missed their deadline.
    pub missed: u64,
    /// The sum of the totals that the loop has set, in parts per million.
    total: f64,
    /// The number of measured latencies, and their sum in nanoseconds.
    latency: (u64, f64),
}

impl FeedbackPoint {
    /// The mean utilisation, from 0 to 1 of the hard cap; `None` if it was not measured.
    pub fn utilisation(&self) -> Option<f64> {
        (self.measured > 0).then(|| self.utilisation.0 / self.measured as f64 / 1e6)
    }

    /// The share of jobs that missed their deadline.
    pub fn miss_ratio(&self) -> f64 {
        if self.ended == 0 { 0.0 } else { self.missed as f64 / self.ended as f64 }
    }

    /// The mean of the totals that the loop has set for the next periods, from 0.
    pub fn total(&self) -> f64 {
        self.total / self.samples.max(1) as f64 / 1e6
    }

    /// The mean of the measured latencies; `None` if none was measured.
    pub fn latency(&self) -> Option<Span> {
        let (count, sum) = self.latency;
        (count > 0).then(|| Span::from_nanos((sum / count as f64) as u64))
    }

    fn add(&mut self, later: &FeedbackPoint) {
        self.at = later.at;
        self.samples += later.samples;
        self.measured += later.measured;
        self.utilisation.0 += later.utilisation.0;
        self.utilisation.1 += later.utilisation.1;
        self.ended += later.ended;
        self.missed += later.missed;
        self.total += later.total;
        self.latency.0 += later.latency.0;
        self.latency.1 += later.latency.1;
    }
}

/// What a loop has held over some samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// The number of samples.
    pub samples: u64,
    /// The mean utilisation, from 0 to 1 of the hard cap, and the half width of its 90 % confidence interval; `None` if
    /// it was not measured.
    pub utilisation: Option<(f64, f64)>,
    /// The share of jobs that missed their deadline.
    pub miss_ratio: f64,
    /// The mean latency; `None` if none was measured.
    pub latency: Option<Span>,
}

impl FeedbackHistory {
    fn sample(&mut self, now: Instant, (utilisation, ended, missed, total): (Option<u32>, u32, u32, u32)) {
        let measured = utilisation.map_or(0.0, f64::from);
        let point = FeedbackPoint {
            at: now,
            samples: 1,
            measured: u64::from(utilisation.is_some()),
            utilisation: (measured, measured * measured),
            ended: ended.into(),
            missed: missed.into(),
            total: total.into(),
            latency: self.latency.take().map_or((0, 0.0), |latency| (1, latency.as_nanos() as f64)),
        };
        self.latest = Some(point);
        self.samples += 1;
        self.stride = self.stride.max(1);
        self.add(point);
        let place = self.points.len() - 1;
        for (root, rates) in &mut self.rates {
            if self.present.get(root).is_none_or(|here| *here) {
                rates.sample(place);
            }
        }
        let present = self.clients.iter_mut().filter(|one| one.left.is_none());
        present.filter_map(|one| one.rates.as_mut()).for_each(|rates| rates.sample(place));
    }

    fn add(&mut self, point: FeedbackPoint) {
        if let Some(last) = self.points.last_mut().filter(|last| last.samples < self.stride) {
            return last.add(&point);
        }
        if self.points.len() == MOST {
            let pairs = self.points.chunks(2).map(|pair| {
                let mut first = pair[0];
                pair[1..].iter().for_each(|second| first.add(second));
                first
            });
            self.points = pairs.collect();
            self.stride *= 2;
            self.rates.iter_mut().for_each(|(_, rates)| rates.halve());
            self.clients.iter_mut().filter_map(|one| one.rates.as_mut()).for_each(RateHistory::halve);
        }
        self.points.push(point);
    }

    fn join(&mut self, now: Instant, client: u16, task: RatedClient) {
        if self.clients.len() >= MOST_CLIENTS
            && let Some(earliest) = self.clients.iter().position(|one| one.left.is_some())
        {
            self.clients.remove(earliest);
            self.omitted += 1;
        }
        let period = task.longest;
        let known = self.rates.len() + self.clients.iter().filter(|one| one.rates.is_some()).count();
        let rates = (known < MOST_RATES).then(|| RateHistory::new(period, self.points.len()));
        self.clients.push(ClientHistory { client, task, joined: now, left: None, period, changes: 0, rates });
    }

    /// The loop has set the period of a root.
    fn retime(&mut self, root: OperationId, period: Span) {
        retime(&mut self.periods, root, period);
        let rates = self.rates.iter_mut().find(|(known, _)| *known == root);
        rates.into_iter().for_each(|(_, rates)| rates.period = period);
    }

    /// The rate of a root over time; `None` beyond the first rates.
    pub fn rates_of(&self, root: OperationId) -> Option<&RateHistory> {
        self.rates.iter().find(|(known, _)| *known == root).map(|(_, rates)| rates)
    }

    fn arrive(&mut self, now: Instant, operation: OperationId) {
        self.present.insert(operation, true);
        push_latest(&mut self.moves, &mut self.moves_omitted, (now, operation));
    }

    fn admission(&mut self, now: Instant, operation: OperationId, outcome: AdmissionOutcome) {
        match outcome {
            AdmissionOutcome::Admitted { .. } => self.present.insert(operation, true),
            AdmissionOutcome::Withdrawn => self.present.insert(operation, false),
            AdmissionOutcome::Refused(_) => None,
        };
        push_latest(&mut self.admissions, &mut self.admissions_omitted, (now, operation, outcome));
    }

    /// The latest decisions on operations on standby, and the number of earlier ones.
    pub fn admissions(&self) -> (&[(Instant, OperationId, AdmissionOutcome)], u64) {
        (&self.admissions, self.admissions_omitted)
    }

    /// The latest arrivals of operations that have moved to this processor, and the number of earlier ones.
    pub fn arrivals(&self) -> (&[(Instant, OperationId)], u64) {
        (&self.moves, self.moves_omitted)
    }

    /// Whether an operation of this processor releases jobs here: not on another of its processors, and not on standby.
    pub fn is_present(&self, system: &System, operation: OperationId) -> bool {
        let first = || system.operation(operation).home.is_none() && !system.operation(operation).standby;
        self.present.get(&operation).copied().unwrap_or_else(first)
    }

    fn present(&mut self, client: u16) -> Option<&mut ClientHistory> {
        self.clients.iter_mut().rev().find(|one| one.client == client && one.left.is_none())
    }

    /// The latest service level of an operation, and the number of its changes; `None` if it has not changed.
    pub fn level(&self, operation: OperationId) -> Option<(u8, u64)> {
        self.levels.get(&operation).copied()
    }

    /// The clients that registered, in the order of joining, and the number of those that are omitted.
    pub fn clients(&self) -> (&[ClientHistory], u64) {
        (&self.clients, self.omitted)
    }

    /// The points, in order of time.
    pub fn points(&self) -> &[FeedbackPoint] {
        &self.points
    }

    /// The latest sample alone.
    pub fn latest(&self) -> Option<&FeedbackPoint> {
        self.latest.as_ref()
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The latest period of each adapted root, and the number of its changes. A root whose period the loop has not
    /// changed is missing. Without events of the loop's processor, which another process may run, they are those that
    /// the roots have received.
    pub fn periods(&self) -> impl Iterator<Item = (OperationId, Span, u64)> + '_ {
        let periods = if self.is_elsewhere() { &self.received } else { &self.periods };
        periods.iter().map(|(operation, (period, changes))| (*operation, *period, *changes))
    }

    /// True if rates were received from the loop, but it sampled elsewhere.
    pub fn is_elsewhere(&self) -> bool {
        self.samples == 0 && !self.received.is_empty()
    }

    /// The means of the points later than `from`; `None` if there is none.
    ///
    /// The interval assumes independent samples. But successive errors of a utilisation compensate each
    /// other, so the true interval is narrower.
    pub fn steady(&self, from: Instant) -> Option<SteadyState> {
        let mut points = self.points.iter().filter(|point| point.at > from);
        let mut sum = *points.next()?;
        points.for_each(|point| sum.add(point));
        let count = sum.measured as f64;
        let interval = |mean: f64| {
            let variance = (sum.utilisation.1 / count / 1e12 - mean * mean).max(0.0) * count / (count - 1.0).max(1.0);
            1.645 * (variance / count).sqrt()
        };
        let utilisation = sum.utilisation().map(|mean| (mean, interval(mean)));
        Some(SteadyState { samples: sum.samples, utilisation, miss_ratio: sum.miss_ratio(), latency: sum.latency() })
    }
}

/// The histories of all processors. It receives the events of each processor in order.
#[derive(Clone, Debug)]
pub struct FeedbackHistories {
    all: Vec<FeedbackHistory>,
    /// By root on its processor: the processor of its loop.
    loops: BTreeMap<(ProcessorId, OperationId), ProcessorId>,
}

impl FeedbackHistories {
    /// Empty histories.
    pub fn new(system: &System) -> FeedbackHistories {
        let mut all = vec![FeedbackHistory::default(); system.processors.len()];
        let roots = system.adapted_roots();
        for (root, of, start) in &roots {
            let history = &mut all[of.index()];
            if history.rates.len() < MOST_RATES {
                history.rates.push((*root, RateHistory::new(*start, 0)));
            }
            if system.operation(*root).home.is_some() {
                history.present.insert(*root, false);
            }
        }
        let loops = roots.into_iter().map(|(root, of, _)| ((system.operation(root).on, root), of));
        FeedbackHistories { all, loops: loops.collect() }
    }

    /// The next event of a processor.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) {
        let Some(history) = self.all.get_mut(processor.index()) else { return };
        match event {
            TraceEvent::Decision(DispatchDecision::Sample { utilisation, ended, missed, total }) => {
                history.sample(now, (*utilisation, *ended, *missed, *total));
            }
            TraceEvent::Decision(DispatchDecision::Latency { quantile, .. }) => history.latency = Some(*quantile),
            TraceEvent::Decision(DispatchDecision::Retime { operation, period }) => {
                history.retime(*operation, *period);
            }
            TraceEvent::Decision(DispatchDecision::Level { operation, level }) => {
                let entry = history.levels.entry(*operation).or_default();
                *entry = (*level, entry.1 + 1);
            }
            TraceEvent::Input(Input::Retime { operation, period }) => {
                if let Some(of) = self.loops.get(&(processor, *operation)) {
                    retime(&mut self.all[of.index()].received, *operation, *period);
                }
            }
            // The coordinator of a group sets rates from outside.
            TraceEvent::Input(Input::Adapt { operation, period }) => {
                if let Some(of) = self.loops.get(&(processor, *operation)) {
                    self.all[of.index()].retime(*operation, *period);
                }
            }
            TraceEvent::Input(Input::Arrive { operation, .. }) => history.arrive(now, *operation),
            TraceEvent::Input(Input::Depart { operation }) => {
                history.present.insert(*operation, false);
            }
            TraceEvent::Input(Input::Stay { operation }) => {
                history.present.insert(*operation, true);
            }
            TraceEvent::Decision(DispatchDecision::Admission { operation, outcome }) => {
                history.admission(now, *operation, *outcome);
            }
            TraceEvent::Input(Input::Join { client, task }) => history.join(now, *client, *task),
            TraceEvent::Input(Input::Leave { client }) => {
                history.present(*client).into_iter().for_each(|one| one.left = Some(now));
            }
            TraceEvent::Decision(DispatchDecision::Pace { client, period, .. }) => {
                let one = history.present(*client).into_iter();
                one.for_each(|one| {
                    (one.period, one.changes) = (*period, one.changes + 1);
                    one.rates.iter_mut().for_each(|rates| rates.period = *period);
                });
            }
            _ => {}
        }
    }

    /// The history of each processor.
    pub fn all(&self) -> &[FeedbackHistory] {
        &self.all
    }
}

/// Adds the newest, and omits the oldest beyond the limit.
fn push_latest<T>(latest: &mut Vec<T>, omitted: &mut u64, newest: T) {
    if latest.len() >= MOST_MOVES {
        latest.remove(0);
        *omitted += 1;
    }
    latest.push(newest);
}

fn retime(periods: &mut BTreeMap<OperationId, (Span, u64)>, operation: OperationId, period: Span) {
    let entry = periods.entry(operation).or_insert((Span::ZERO, 0));
    if entry.0 != period {
        *entry = (period, entry.1 + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_stay_exact_when_points_are_merged() {
        let mut history = FeedbackHistory::default();
        let count = 5 * MOST as u32;
        (1..=count).for_each(|k| {
            history.sample(Instant::from_nanos(u64::from(k)), (Some(k), 10, k % 2, 100));
        });
        assert!(history.points().len() <= MOST);
        assert_eq!(history.points().iter().map(|point| point.samples).sum::<u64>(), u64::from(count));
        let steady = history.steady(Instant::ZERO).unwrap();
        let (mean, interval) = steady.utilisation.unwrap();
        assert!((mean * 1e6 - f64::from(count + 1) / 2.0).abs() < 1e-6);
        // Uniform from 1 to n: the deviation is n / sqrt(12).
        let deviation = f64::from(count) / 12f64.sqrt();
        assert!((interval * 1e6 / (1.645 * deviation / f64::from(count).sqrt()) - 1.0).abs() < 0.01);
        assert_eq!(steady.miss_ratio, 0.05);
        assert_eq!(history.steady(Instant::from_nanos(u64::from(count))), None);
    }

    fn client() -> RatedClient {
        RatedClient {
            operation: OperationId(0),
            estimate: Span::from_millis(1),
            shortest: Span::from_millis(10),
            longest: Span::from_millis(100),
            value: 1,
            label: crate::ClientLabel::new("pilot"),
        }
    }

    #[test]
    fn clients_that_have_left_are_omitted_first() {
        let task = client();
        let mut history = FeedbackHistory::default();
        history.join(Instant::ZERO, 0, task);
        for k in 0..2 * MOST_CLIENTS as u64 {
            let now = Instant::from_nanos(k);
            history.join(now, 1, task);
            history.present(1).unwrap().left = Some(now);
        }
        let (clients, omitted) = history.clients();
        assert_eq!((clients.len() as u64 + omitted, clients[0].left), (2 * MOST_CLIENTS as u64 + 1, None));
        assert_eq!(clients.len(), MOST_CLIENTS);
        let known = clients.iter().filter(|one| one.rates.is_some()).count();
        assert!((1..=MOST_RATES).contains(&known), "{known}");
    }

    /// A rate of sample `k` is the one that was set after sample `k - 1`.
    #[test]
    fn rates_over_time_are_means_of_those_before_each_sample() {
        let text = "name = 'moves'\n[processor.one]\n[processor.two]\n\
            [feedback.one]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
            [feedback.two]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
            [operation.own]\non = 'one'\nrate = ['1Hz', '1kHz']\nwcet = '1us'\n\
            [operation.track]\non = ['one', 'two']\nrate = ['10Hz', '20Hz']\nwcet = '1ms'\n";
        let system = hyoshi_model::read(text, "moves.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let [own, track, moved] = [0, 1, 2].map(OperationId);
        let mut histories = FeedbackHistories::new(&system);
        let [one, two] = [ProcessorId(0), ProcessorId(1)];
        let sample = DispatchDecision::Sample { utilisation: None, ended: 0, missed: 0, total: 0 };
        let samples = 2 * MOST as u64 + 2;
        for k in 1..=samples {
            let at = Instant::from_nanos(k);
            [one, two].into_iter().for_each(|of| histories.event(of, at, &TraceEvent::Decision(sample)));
            let period = Span::from_nanos(1_000_000_000 / k);
            let set = DispatchDecision::Retime { operation: own, period };
            histories.event(one, at, &TraceEvent::Decision(set));
            if k == samples / 2 {
                histories.event(one, at, &TraceEvent::Input(Input::Depart { operation: track }));
                let (nominal, number) = (at, 0);
                let arrive = Input::Arrive { operation: moved, from: track, nominal, number };
                histories.event(two, at, &TraceEvent::Input(arrive));
                histories.event(two, at, &TraceEvent::Input(Input::Join { client: 0, task: client() }));
            }
            if k == samples - 1 {
                histories.event(two, at, &TraceEvent::Input(Input::Leave { client: 0 }));
            }
        }
        let [of_one, of_two] = [&histories.all()[0], &histories.all()[1]];
        assert_eq!((of_one.stride, of_one.points.last().unwrap().samples), (4, 2));
        let points = of_one.points.len();
        let hertz = |of: &RateHistory, point| {
            let period = of.period(point)?.as_nanos() as f64;
            Some((2e9 / period).round() / 2.0)
        };
        let rates = of_one.rates_of(own).unwrap();
        // Samples 5 to 8 have the rates 4 to 7, and the last two samples 1,024 and 1,025.
        assert_eq!(hertz(rates, 1), Some(5.5));
        assert_eq!(hertz(rates, points - 1), Some(1_024.5));
        let [stayed, came] = [of_one.rates_of(track).unwrap(), of_two.rates_of(moved).unwrap()];
        assert_eq!([0, points - 1].map(|point| hertz(stayed, point)), [Some(10.0), None]);
        assert_eq!([0, points - 1].map(|point| hertz(came, point)), [None, Some(10.0)]);
        let joined = of_two.clients().0[0].rates.as_ref().unwrap();
        assert_eq!(
            [0, points / 2 + 1, points - 2, points].map(|point| hertz(joined, point)),
            [None, Some(10.0), Some(10.0), None]
        );
    }

    #[test]
    fn rates_of_a_loop_elsewhere_are_those_that_its_roots_have_received() {
        let text = "name = 'two'\n[processor.client]\n[processor.server]\n\
            [feedback.server]\nalgorithm = 'FC-U'\nutilisation = '70%'\n\
            [operation.poll]\non = 'client'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
            [operation.serve]\non = 'server'\nafter = { all = ['poll'] }\nwcet = '10ms'\n";
        let system = hyoshi_model::read(text, "two.toml", None).unwrap().system;
        let mut histories = FeedbackHistories::new(&system);
        let [client, server] = [ProcessorId(0), ProcessorId(1)];
        let (poll, now) = (OperationId(0), Instant::from_nanos(1));
        let arrives = |ms| TraceEvent::Input(Input::Retime { operation: poll, period: Span::from_millis(ms) });
        histories.event(client, now, &arrives(300));
        histories.event(client, now, &arrives(200));
        let found = |histories: &FeedbackHistories| histories.all()[1].periods().collect::<Vec<_>>();
        assert!(histories.all()[1].is_elsewhere());
        assert_eq!(found(&histories), [(poll, Span::from_millis(200), 2)]);
        // With the loop's own decisions, these count once.
        let sample = DispatchDecision::Sample { utilisation: None, ended: 0, missed: 0, total: 0 };
        histories.event(server, now, &TraceEvent::Decision(sample));
        let set = DispatchDecision::Retime { operation: poll, period: Span::from_millis(100) };
        histories.event(server, now, &TraceEvent::Decision(set));
        assert!(!histories.all()[1].is_elsewhere());
        assert_eq!(found(&histories), [(poll, Span::from_millis(100), 1)]);
    }

    #[test]
    fn a_missing_measurement_counts_in_no_mean() {
        let mut history = FeedbackHistory::default();
        history.sample(Instant::from_nanos(1), (Some(500_000), 0, 0, 0));
        history.sample(Instant::from_nanos(2), (None, 0, 0, 0));
        assert_eq!(history.steady(Instant::ZERO).unwrap().utilisation, Some((0.5, 0.0)));
        assert_eq!(history.points()[1].utilisation(), None);
    }
}
