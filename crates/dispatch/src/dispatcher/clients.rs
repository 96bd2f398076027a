//! Clients of objects, and publishers of events, as tasks of the processor's feedback loop (FCS/nORB, sections 2.1 and
//! 3.3).
//!
//! ```text
//!            Join                    Leave
//!   free ─────────────► registered ─────────► free
//!                           │ ▲
//!                           └─┘ Sample, Join or Leave of another: a new period
//! ```

use alloc::{boxed::Box, vec, vec::Vec};
use core::fmt;

use hyoshi_control::feedback::AdaptiveTask;
use hyoshi_model::time::LONGEST_SPAN;
use hyoshi_model::{ClientRates, Instant, OperationId, ProcessorId, Span, System};
use hyoshi_trace::{DispatchDecision, ExcessLoad, Probe, RatedClient};

use super::Dispatcher;
use super::feedback::JobTimes;
use crate::effects::Effects;
use crate::operation::OperationState;

/// The clients of one loop, and the limits of their admission.
#[derive(Debug)]
pub(super) struct LoopClients {
    /// By place.
    places: Vec<Option<PlacedClient>>,
    /// The places of registered clients in the order of joining, which is the order of the law's last tasks.
    order: Vec<u16>,
    /// The operations with clients.
    served: Vec<ServedClients>,
    /// By epoch: the load without clients at the lowest rates, in parts per million of the CPU.
    own_load: Vec<u64>,
    /// The hard cap.
    cap_ppm: u32,
    /// The greatest load at the lowest rates.
    most_load: u64,
}

#[derive(Clone, Copy, Debug)]
struct PlacedClient {
    task: RatedClient,
    /// Zero before the first decision.
    period: Span,
}

#[derive(Debug)]
struct ServedClients {
    operation: OperationId,
    /// Its position, and those of the operations here that follow only it: each request releases them, too.
    local: u32,
    followers: Vec<u32>,
    rates: ClientRates,
}

impl ServedClients {
    /// The execution time of a request with the operations that follow, if each job needs `time`: the request itself,
    /// and the sum of the operations that follow.
    fn work(&self, operations: &[OperationState], time: impl Fn(u32, Span) -> Span) -> [Span; 2] {
        let of = |local: u32| time(local, operations[local as usize].wcet);
        let following = self.followers.iter().filter(|local| operations[**local as usize].enabled).map(|local| {
            let legs = u64::from(operations[*local as usize].legs);
            of(*local).as_nanos().saturating_mul(legs)
        });
        [of(self.local), Span::from_nanos(following.fold(0, u64::saturating_add))]
    }
}

fn sum([one, other]: [Span; 2]) -> Span {
    one.checked_add(other).map_or(LONGEST_SPAN, |sum| sum.min(LONGEST_SPAN))
}

/// Why a client cannot join a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefusal {
    /// The operation has no clients with adapted rates.
    NoClients,
    /// An epoch has switched the operation off.
    Off,
    /// The range of rates has no rate that the file allows.
    Range {
        /// The periods that the file allows.
        allowed: (Span, Span),
    },
    /// The estimate is zero, or above the declared worst case.
    Estimate {
        /// The worst case.
        wcet: Span,
    },
    /// As many clients as the file allows are registered.
    Full {
        /// Their number.
        most: u16,
    },
    /// At the lowest rates of all, the load would be above the set point.
    Load {
        /// That load, in parts per million of the CPU.
        least_ppm: u64,
        /// The set point, in parts per million of the CPU.
        most_ppm: u64,
    },
}

impl JoinRefusal {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            JoinRefusal::NoClients => "join for an operation that has `clients` in the system file",
            JoinRefusal::Off => "join again when an epoch enables the operation",
            JoinRefusal::Range { .. } => "request rates within that range",
            JoinRefusal::Estimate { .. } => "use an estimate above 0 and at most `wcet`",
            JoinRefusal::Full { .. } => {
                "join again after a client leaves, or raise `most` of `clients` in the system file"
            }
            JoinRefusal::Load { .. } => "request a smaller lowest rate, or join again after a client leaves",
        }
    }
}

impl fmt::Display for JoinRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hertz = |period: &Span| 1e9 / period.as_nanos().max(1) as f64;
        match self {
            JoinRefusal::NoClients => f.write_str("the operation has no `clients` in the system file"),
            JoinRefusal::Off => f.write_str("the operation or its host is disabled at present"),
            JoinRefusal::Range { allowed: (shortest, longest) } => {
                write!(
                    f,
                    "the client's range of rates does not overlap {:.3} to {:.3} Hz, the range of the system file",
                    hertz(longest),
                    hertz(shortest)
                )
            }
            JoinRefusal::Estimate { wcet } => {
                write!(f, "the estimated execution time is 0, or above the operation's `wcet` of {wcet}")
            }
            JoinRefusal::Full { most } => {
                write!(f, "{most} clients are registered, the limit of the operation in the system file")
            }
            JoinRefusal::Load { least_ppm, most_ppm } => {
                write!(f, "with this client, {}", ExcessLoad { least_ppm: *least_ppm, most_ppm: *most_ppm })
            }
        }
    }
}

impl core::error::Error for JoinRefusal {}

fn load_ppm(wcet: Span, period: Span) -> u64 {
    let work = u128::from(wcet.as_nanos()) * 1_000_000;
    u64::try_from(work / u128::from(period.as_nanos().max(1))).unwrap_or(u64::MAX)
}

fn adaptive(task: &RatedClient) -> Option<AdaptiveTask> {
    AdaptiveTask::new(task.estimate, task.shortest, task.longest, task.value).ok()
}

impl LoopClients {
    pub fn new(system: &System, processor: ProcessorId, local_of: &[u32]) -> LoopClients {
        let served: Vec<_> = system
            .with_clients_on(processor)
            .filter_map(|operation| {
                let (rates, local) = (system.operation(operation).clients?, local_of[operation.index()]);
                let followers = system.released_by_request(operation).filter(|one| *one != operation);
                let followers = followers.map(|one| local_of[one.index()]).collect();
                Some(ServedClients { operation, local, followers, rates })
            })
            .collect();
        let most = served.iter().map(|one| usize::from(one.rates.most)).sum::<usize>().min(u16::MAX.into());
        let settings = system.feedback.iter().find(|one| one.processor == processor);
        let cap = system.processor(processor).hard_cap.ppm;
        LoopClients {
            places: vec![None; most],
            order: Vec::with_capacity(most),
            served,
            own_load: (0..system.epochs.len()).map(|epoch| system.least_own_load_ppm(epoch, processor)).collect(),
            cap_ppm: cap,
            most_load: settings.map_or(0, |one| one.most_load_ppm(cap)),
        }
    }

    /// The set point of the utilisation, in parts per million of the hard cap, is now this. It limits later
    /// registrations and admissions.
    pub fn set_utilisation(&mut self, ppm: u32) {
        self.most_load = u64::from(ppm) * u64::from(self.cap_ppm) / 1_000_000;
    }

    /// The most clients that can be registered.
    pub fn most(&self) -> usize {
        self.places.len()
    }

    /// The operations of registered clients.
    pub fn operations(&self) -> impl Iterator<Item = u32> + '_ {
        let tasks = self.order.iter().filter_map(|place| Some(self.places[usize::from(*place)]?.task.operation));
        tasks.filter_map(|id| Some(self.served(id)?.local))
    }

    fn served(&self, operation: OperationId) -> Option<&ServedClients> {
        self.served.iter().find(|one| one.operation == operation)
    }

    /// Whether the rates of an operation are those of clients.
    pub fn serve(&self, operation: OperationId) -> bool {
        self.served(operation).is_some()
    }

    /// The declared load, with this task if there is one, at the lowest rates, in parts per million of the CPU. It includes the free
    /// places, as if their clients had the range of the file: so a client with a high lowest rate leaves room for other
    /// clients.
    fn least_load(
        &self,
        epoch: usize,
        task: Option<&RatedClient>,
        (leaving, operations): (Option<u16>, &[OperationState]),
    ) -> u64 {
        let own = self.own_load.get(epoch).copied().unwrap_or_default();
        // It does not include operations that have moved here or were admitted.
        let arrived = operations.iter().filter(|one| one.was_away && one.is_active());
        let own = arrived.map(|one| (one.declared_utilisation(true) * 1e6) as u64).fold(own, u64::saturating_add);
        let of_operation = |one: &ServedClients| {
            let operation = &operations[one.local as usize];
            if !operation.enabled {
                return 0;
            }
            let registered = self.registered(leaving).chain(task);
            let registered = registered.filter(|task| task.operation == one.operation);
            let free = usize::from(one.rates.most).saturating_sub(registered.clone().count()) as u64;
            let work = sum(one.work(operations, |_, wcet| wcet));
            let free = free.saturating_mul(load_ppm(work, one.rates.longest));
            registered.map(|task| load_ppm(work, task.longest)).fold(free, u64::saturating_add)
        };
        self.served.iter().map(of_operation).fold(own, u64::saturating_add)
    }

    /// The declared load at the lowest rates, with a client in each place, and its limit.
    pub fn least_and_most_load(&self, epoch: usize, operations: &[OperationState]) -> (u64, u64) {
        (self.least_load(epoch, None, (None, operations)), self.most_load)
    }

    /// The tasks of registered clients, without one that leaves.
    fn registered(&self, leaving: Option<u16>) -> impl Iterator<Item = &RatedClient> + Clone {
        let places = self.places.iter().enumerate();
        let stays = places.filter(move |(place, _)| leaving.is_none_or(|leaving| usize::from(leaving) != *place));
        stays.filter_map(|(_, placed)| Some(&placed.as_ref()?.task))
    }

    /// The task that a client with this claim becomes, and its place. The client `leaving` leaves before. Nothing
    /// changes.
    fn place(
        &self,
        claim: &RatedClient,
        epoch: usize,
        (leaving, operations, times): (Option<u16>, &[OperationState], &[JobTimes]),
    ) -> Result<(u16, RatedClient), JoinRefusal> {
        let served = self.served(claim.operation).ok_or(JoinRefusal::NoClients)?;
        let OperationState { wcet, enabled, .. } = operations[served.local as usize];
        if !enabled {
            return Err(JoinRefusal::Off);
        }
        let ClientRates { most, shortest, longest } = served.rates;
        let range = (claim.shortest.max(shortest), claim.longest.min(longest));
        if claim.shortest > claim.longest || range.0 > range.1 || range.0.is_zero() {
            return Err(JoinRefusal::Range { allowed: (shortest, longest) });
        }
        if claim.estimate.is_zero() || claim.estimate > wcet {
            return Err(JoinRefusal::Estimate { wcet });
        }
        // The estimate is at least the mean execution time of requests. It includes the operations that follow.
        let mean = |local: u32, wcet: Span| times[local as usize].mean().map_or(wcet, |mean| mean.min(wcet));
        let [mean, following] = served.work(operations, mean);
        let estimate = sum([claim.estimate.max(mean), following]);
        let task = RatedClient { estimate, shortest: range.0, longest: range.1, ..*claim };
        let registered = self.registered(leaving).filter(|one| one.operation == claim.operation);
        let free = self.places.iter().position(Option::is_none).map(|place| place as u16).or(leaving);
        let free = free.filter(|_| registered.count() < usize::from(most)).ok_or(JoinRefusal::Full { most })?;
        let least_ppm = self.least_load(epoch, Some(&task), (leaving, operations));
        if least_ppm > self.most_load {
            return Err(JoinRefusal::Load { least_ppm, most_ppm: self.most_load });
        }
        Ok((free, task))
    }

    pub fn accepts(&self, client: u16, task: &RatedClient) -> bool {
        let free = self.places.get(usize::from(client)).is_some_and(Option::is_none);
        free && self.served(task.operation).is_some() && adaptive(task).is_some()
    }

    pub fn is_registered(&self, client: u16) -> bool {
        self.places.get(usize::from(client)).is_some_and(Option::is_some)
    }

    /// Sets the periods of the law's tasks of clients, and passes the changed ones to `each`.
    pub fn retime(&mut self, periods: &[Span], mut each: impl FnMut(u16, OperationId, Span)) {
        for (client, period) in self.order.iter().zip(periods) {
            if let Some(one) = &mut self.places[usize::from(*client)]
                && one.period != *period
            {
                one.period = *period;
                each(*client, one.task.operation, *period);
            }
        }
    }
}

impl<P: Probe> Dispatcher<P> {
    /// The place and the task of a client with this claim, if it can join the loop now, or as soon as the client
    /// `leaving` has left. The task's range is within that
    /// of the file, and its estimate is not below the mean execution time of earlier requests. The client can join if
    /// the declared load at the lowest rates of all tasks, with a client in each place, is at most the set point.
    ///
    /// # Errors
    ///
    /// The reason why it cannot join.
    pub fn place_client(&self, claim: &RatedClient, leaving: Option<u16>) -> Result<(u16, RatedClient), JoinRefusal> {
        let feedback = self.feedback.as_ref().ok_or(JoinRefusal::NoClients)?;
        if self.is_off() {
            return Err(JoinRefusal::Off);
        }
        feedback.clients.place(claim, self.region(), (leaving, &self.operations, &feedback.times))
    }

    /// The most clients that the loop here can have.
    pub fn most_clients(&self) -> usize {
        self.feedback.as_ref().map_or(0, |feedback| feedback.clients.most())
    }

    /// A client joins the loop.
    pub(super) fn join_loop(&mut self, now: Instant, client: u16, task: &RatedClient, effects: &mut Effects) {
        self.advance_before(now, effects);
        let Some(mut feedback) = self.feedback.take() else { return };
        let clients = &mut feedback.clients;
        let law = &mut feedback.law;
        let mut join = |task: AdaptiveTask| {
            law.as_mut().is_some_and(|law| law.join(task, law.fair_period(&task).unwrap_or(task.longest())).is_ok())
        };
        if clients.accepts(client, task) && adaptive(task).is_some_and(&mut join) {
            clients.places[usize::from(client)] = Some(PlacedClient { task: *task, period: Span::ZERO });
            clients.order.push(client);
        }
        self.set_rates(now, feedback, effects);
    }

    /// A client leaves the loop.
    pub(super) fn leave_loop(&mut self, now: Instant, client: u16, effects: &mut Effects) {
        self.advance_before(now, effects);
        let Some(mut feedback) = self.feedback.take() else { return };
        if let Some(place) = feedback.clients.order.iter().position(|one| *one == client) {
            feedback.clients.order.remove(place);
            feedback.clients.places[usize::from(client)] = None;
            let of_clients = feedback.adapted.len();
            feedback.law.iter_mut().for_each(|law| law.leave(of_clients + place));
        }
        self.set_rates(now, feedback, effects);
    }

    /// Sets the rates that the law has decided on. A loop of a group has no law.
    pub(super) fn set_rates(
        &mut self,
        now: Instant,
        mut feedback: Box<super::feedback::RateLoop>,
        effects: &mut Effects,
    ) {
        let Some(law) = &feedback.law else {
            self.feedback = Some(feedback);
            return;
        };
        let mut changed = false;
        // Several admissions in one input: the last rates count, and there is room for one of each.
        let is_first = effects.retimed.is_empty() && effects.paced.is_empty();
        for (one, period) in feedback.adapted.iter().zip(law.periods()) {
            if self.operations[one.here[0] as usize].period == *period {
                continue;
            }
            changed = true;
            one.here.iter().for_each(|local| self.operations[*local as usize].retime(*period));
            self.decision(now, DispatchDecision::Retime { operation: one.root, period: *period });
            if !is_first {
                effects.retimed.retain(|(_, root, _)| *root != one.root);
            }
            effects.retimed.extend(one.elsewhere.iter().map(|to| (*to, one.root, *period)));
        }
        let of_clients = &law.periods()[feedback.adapted.len()..];
        feedback.clients.retime(of_clients, |client, operation, period| {
            self.decision(now, DispatchDecision::Pace { client, operation, period });
            if !is_first {
                effects.paced.retain(|(known, _)| *known != client);
            }
            effects.paced.push((client, period));
        });
        self.feedback = Some(feedback);
        if changed {
            self.rates_changed(now, effects);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use hyoshi_sched::{Plan, Strategies};
    use hyoshi_trace::{ClientLabel, Input, NoProbe};

    use super::*;

    const MS: fn(u64) -> Span = Span::from_millis;

    /// At 50 %, with 10 % for `watch`. Clients have 1 to 20 Hz and 10 ms.
    fn dispatcher() -> (System, Dispatcher<NoProbe>) {
        of(TEXT)
    }

    const TEXT: &str = "name = 'map'\nduration = '60s'\n[processor.map]\nhard_cap = '100%'\n\
            [operation.watch]\nevery = '10ms'\nwcet = '1ms'\n\
            [operation.query]\ncalled = true\nclients = { rate = ['1Hz', '20Hz'], most = 3 }\nwcet = '10ms'\n\
            [object.map]\noperation = 'query'\nendpoints = ['tcp/127.0.0.1:7473']\n\
            [feedback.map]\nalgorithm = 'FC-U'\nutilisation = '50%'\nendpoints = ['tcp/127.0.0.1:7475']\n";

    fn of(text: &str) -> (System, Dispatcher<NoProbe>) {
        let system = hyoshi_model::read(text, "map.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let dispatcher = Dispatcher::new(&system, &plan.processors[0], NoProbe);
        (system, dispatcher)
    }

    fn claim(estimate: u64, shortest: u64, longest: u64) -> RatedClient {
        RatedClient {
            operation: OperationId(1),
            estimate: MS(estimate),
            shortest: MS(shortest),
            longest: MS(longest),
            value: 0,
            label: ClientLabel::new("pilot"),
        }
    }

    fn join(dispatcher: &mut Dispatcher<NoProbe>, claim: &RatedClient) -> Result<(u16, Vec<(u16, Span)>), JoinRefusal> {
        let mut effects = dispatcher.effects();
        let (client, task) = dispatcher.place_client(claim, None)?;
        dispatcher.handle(Instant::ZERO, Input::Join { client, task }, &mut effects);
        Ok((client, effects.paced.clone()))
    }

    #[test]
    fn a_client_has_the_part_of_its_range_that_the_file_allows_and_the_worst_case_while_nothing_is_known() {
        let (_, dispatcher) = dispatcher();
        let (client, task) = dispatcher.place_client(&claim(1, 10, 5_000), None).unwrap();
        assert_eq!((client, task.shortest, task.longest, task.estimate), (0, MS(50), MS(1_000), MS(10)));
    }

    /// As `TEXT`, with an event in place of the object: two consumers, one of which is on another processor.
    #[test]
    fn the_task_of_a_publisher_includes_the_consumers_on_the_processor_of_the_loop() {
        let event = "[event.fix]\n[processor.other]\n\
            [operation.fuse]\non = 'map'\nafter = { event = 'fix' }\nwcet = '5ms'\n\
            [operation.plan]\non = 'map'\nafter = { all = ['fuse'] }\nwcet = '3ms'\n\
            [operation.show]\non = 'other'\nafter = { event = 'fix' }\nwcet = '1ms'\n\
            [operation.merge]\non = 'map'\nafter = { any = ['fuse', 'watch'] }\nwcet = '0.01ms'\n";
        let object = "[object.map]\noperation = 'query'\nendpoints = ['tcp/127.0.0.1:7473']\n";
        let text = TEXT.replace(object, event).replace("[operation.watch]", "[operation.watch]\non = 'map'");
        let text = text.replace("called = true", "on = 'map'\ncalled = true\nsupplies = ['fix']");
        let text = text.replace("\nendpoints = ['tcp/127.0.0.1:7475']", "");
        let (system, mut dispatcher) = of(&text);
        let task = |dispatcher: &Dispatcher<NoProbe>| dispatcher.place_client(&claim(1, 50, 1_000), None).unwrap().1;
        assert_eq!(task(&dispatcher).estimate, MS(18));
        // 10 % of `watch`, 3 x 18 ms each second, and `merge` at the rate of `watch`.
        let feedback = dispatcher.feedback.as_ref().unwrap();
        let least = feedback.clients.least_load(0, Some(&claim(10, 50, 1_000)), (None, &dispatcher.operations));
        assert_eq!((least, system.least_load_ppm(0, ProcessorId(0))), (155_000, 155_000));
        let local = dispatcher.local(OperationId(2)).unwrap() as usize;
        let feedback = dispatcher.feedback.as_mut().unwrap();
        (0..JobTimes::KNOWN).for_each(|_| feedback.times[local].count(MS(2), MS(5)));
        assert_eq!(task(&dispatcher).estimate, MS(15));
    }

    #[test]
    fn a_client_cannot_claim_less_than_requests_need_on_average() {
        let (_, mut dispatcher) = dispatcher();
        let feedback = dispatcher.feedback.as_mut().unwrap();
        let local = feedback.clients.served[0].local as usize;
        (0..JobTimes::KNOWN).for_each(|_| feedback.times[local].count(MS(4), MS(10)));
        let estimate = |claimed| dispatcher.place_client(&claim(claimed, 50, 1_000), None).unwrap().1.estimate;
        assert_eq!([1, 4, 7].map(estimate), [MS(4), MS(4), MS(7)]);
    }

    #[test]
    fn the_others_make_room_for_a_new_client_and_a_free_place_is_used_again() {
        let (_, mut dispatcher) = dispatcher();
        assert_eq!(join(&mut dispatcher, &claim(10, 50, 1_000)), Ok((0, vec![(0, MS(1_000))])));
        let mut effects = dispatcher.effects();
        for k in 1..40 {
            let input = Input::Sample { utilisation: Some(100_000) };
            dispatcher.handle(Instant::ZERO + Span::from_secs(4 * k), input, &mut effects);
        }
        effects.paced.clear();
        // At its highest rate: the new one joins at half of that, and the first has the other half.
        let (second, paced) = join(&mut dispatcher, &claim(10, 50, 1_000)).unwrap();
        assert_eq!((second, paced), (1, vec![(0, MS(100)), (1, MS(100))]));
        dispatcher.handle(Instant::ZERO, Input::Leave { client: 0 }, &mut effects);
        assert_eq!(effects.paced, []);
        assert_eq!(join(&mut dispatcher, &claim(10, 50, 1_000)).unwrap().0, 0);
    }

    #[test]
    fn a_client_is_refused_if_the_lowest_rates_of_all_do_not_fit() {
        let (system, mut dispatcher) = dispatcher();
        // 10 % of `watch`, then 20 % and 10 %.
        assert!(join(&mut dispatcher, &claim(10, 50, 50)).is_ok());
        let refusal = dispatcher.place_client(&claim(10, 49, 49), None).unwrap_err();
        assert_eq!(refusal, JoinRefusal::Range { allowed: (MS(50), MS(1_000)) });
        assert!(join(&mut dispatcher, &claim(10, 50, 100)).is_ok());
        // The other places are reserved.
        assert_eq!(
            dispatcher.feedback.as_ref().unwrap().clients.least_load(
                0,
                Some(&claim(10, 50, 1_000)),
                (None, &dispatcher.operations)
            ),
            410_000
        );
        let refusal = dispatcher.place_client(&claim(10, 50, 60), None).unwrap_err();
        let expected = "with this client, the load at the lowest rates would be 56.7%, above the loop's limit of 50.0%";
        assert_eq!(refusal.to_string(), expected);
        assert!(join(&mut dispatcher, &claim(10, 50, 1_000)).is_ok());
        assert_eq!(dispatcher.place_client(&claim(10, 50, 1_000), None), Err(JoinRefusal::Full { most: 3 }));
        // If one of them leaves, there is a place, but the first client still needs much.
        assert_eq!(dispatcher.place_client(&claim(10, 50, 1_000), Some(2)).unwrap().0, 2);
        assert!(matches!(dispatcher.place_client(&claim(10, 50, 50), Some(2)), Err(JoinRefusal::Load { .. })));
        assert_eq!(dispatcher.place_client(&claim(11, 50, 1_000), None), Err(JoinRefusal::Estimate { wcet: MS(10) }));
        let watch = RatedClient { operation: OperationId(0), ..claim(1, 50, 50) };
        assert_eq!(dispatcher.place_client(&watch, None), Err(JoinRefusal::NoClients));
        let forged = Input::Join { client: 7, task: claim(10, 50, 1_000) };
        assert!(!dispatcher.accepts(&system, Instant::ZERO, &forged));
    }
}
