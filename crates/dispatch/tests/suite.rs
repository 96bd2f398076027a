//! Random sequences of inputs, of a careless caller but never impossible: the dispatcher's decisions are checked
//! against a small naive model, and a replay of the recorded inputs makes the same decisions.

mod admissions;
mod late_samples;
mod naive;

use std::num::NonZeroU32;

use hyoshi_dispatch::{Dispatcher, Effects, JobState, OverrunAction};
use hyoshi_model::predicate::Predicate;
use hyoshi_model::{
    ALGORITHMS, ClientRates, Condition, ConditionSource, Contract, ContractAction, ContractRegion, ContractSetting,
    DesignGains, FeedbackAlgorithm, FeedbackLoop, Instant, JobId, JobScope, LatencyScope, LatencySetPoint, LoadMeasure,
    OperationId, OutsideCondition, Processor, ProcessorId, RateDivision, RegionRules, Span, StartRates, Stay, System,
    Trigger, WindowSummary, read,
};
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{
    ClientLabel, DispatchDecision, Input, JobOutcome, JobRequest, Probe, RatedClient, Signal, Slot, Ticket, TraceEvent,
};
use naive::Naive;
use proptest::prelude::*;

/// Keeps everything.
#[derive(Debug, Default)]
struct Keep(Vec<(Instant, TraceEvent)>);

impl Probe for Keep {
    fn event(&mut self, now: Instant, event: TraceEvent) {
        self.0.push((now, event));
    }
}

/// The next action of a caller; numbers choose among the possible ones.
#[derive(Clone, Copy, Debug)]
enum Action {
    Wait(u64),
    Decide(usize),
    Complete(usize),
    Suspend(usize),
    Resume(usize),
    Lock(usize),
    Unlock(usize),
    Invoke {
        deadline: u64,
        importance: u32,
        critical: bool,
    },
    Retime(usize, u64),
    /// These periods together.
    Adapt([u64; 4]),
    Sample(Option<u32>),
    Join {
        estimate: u64,
        range: (u64, u64),
    },
    Leave(u16),
    /// True to admit.
    Standby(usize, bool),
    Enter(usize),
    Cancel(usize, bool),
    SuspendTriggers(usize, bool),
    SetCondition(i64),
    Force(Option<u16>, Option<u64>),
    /// A value of a contract, from another processor: of this route here.
    UpdateContract(usize, i64),
    Choose(usize, u64),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => (0u64..6_000).prop_map(Action::Wait),
        4 => (0usize..8).prop_map(Action::Decide),
        4 => (0usize..8).prop_map(Action::Complete),
        1 => (0usize..8).prop_map(Action::Suspend),
        1 => (0usize..8).prop_map(Action::Resume),
        1 => (0usize..8).prop_map(Action::Lock),
        1 => (0usize..8).prop_map(Action::Unlock),
        1 => (1u64..30, 0u32..4, any::<bool>())
            .prop_map(|(deadline, importance, critical)| Action::Invoke { deadline, importance, critical }),
        1 => (0usize..4, 1u64..40).prop_map(|(operation, period)| Action::Retime(operation, period)),
        1 => prop::array::uniform4(1u64..40).prop_map(Action::Adapt),
        2 => proptest::option::weighted(0.9, 0u32..1_200_000).prop_map(Action::Sample),
        1 => (1u64..4_000, (1u64..40, 20u64..80)).prop_map(|(estimate, range)| Action::Join { estimate, range }),
        1 => (0u16..3).prop_map(Action::Leave),
        2 => (0usize..4, any::<bool>()).prop_map(|(operation, admit)| Action::Standby(operation, admit)),
        1 => (0usize..3).prop_map(Action::Enter),
        1 => (0usize..8, any::<bool>()).prop_map(|(among, chain)| Action::Cancel(among, chain)),
        1 => (0usize..4, any::<bool>()).prop_map(|(operation, on)| Action::SuspendTriggers(operation, on)),
        2 => (0i64..20).prop_map(Action::SetCondition),
        1 => (prop::option::of(0u16..4), prop::option::of(0u64..6_000)).prop_map(|(region, lasting)| Action::Force(region, lasting)),
        2 => (0usize..2, prop_oneof![0i64..6, (0i64..6).prop_map(|inner| inner << 16 | 1), any::<i64>(), Just(i64::MIN)])
            .prop_map(|(route, value)| Action::UpdateContract(route, value)),
        2 => (0usize..8, 0u64..4).prop_map(|(among, hops)| Action::Choose(among, hops)),
    ];
    prop::collection::vec(action, 1..150)
}

fn one_of<T: Clone + std::fmt::Debug + 'static>(all: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(all.to_vec())
}

/// An operation as in the file; those after the first may be triggered by those before.
fn operation(index: usize) -> impl Strategy<Value = String> {
    let times = (2u64..20, 1u64..5, 1u64..30, 0u64..9);
    let rules = (
        one_of(&["report", "report", "demote", "stop"]),
        one_of(&["queue", "queue", "skip"]),
        one_of(&["drop-newest", "drop-oldest"]),
        1u32..4,
        one_of(&["continue", "continue", "stop", "skip-next"]),
    );
    let kinds = (any::<bool>(), 0u32..3, 1u16..4, any::<bool>());
    let links =
        (prop::bool::weighted(0.4), 0..index.max(1), one_of(&["off", "on", "idle"]), one_of(&["all", "any", "chosen"]));
    let rates = (0u64..20, prop::bool::weighted(0.7), prop::bool::weighted(0.3));
    (times, rules, kinds, links, rates).prop_map(move |(times, rules, kinds, links, (range, has_deadline, correlates))| {
        let (period, wcet, deadline, phase) = times;
        let (on_overrun, on_busy, when_full, limit, on_miss) = rules;
        let (critical, importance, legs, uses) = kinds;
        let (triggered, from, guard, trigger) = links;
        let triggered = triggered && index > 0;
        let mut text = format!("[operation.o{index}]\npayload = \"8B\"\nwcet = \"{wcet}ms\"\n");
        if has_deadline {
            text += &format!("deadline = \"{deadline}ms\"\n");
        }
        text += &match triggered {
            // In groups, where there are some.
            true if index > 2 && correlates => {
                let (second, third) = ((from + 1) % index, (from + 2) % index);
                let within = if range > 9 { format!(", within = \"{phase}ms\"") } else { String::new() };
                format!("after = {{ all = [\"o{from}\", {{ any = [\"o{second}\", \"o{third}\"] }}]{within} }}\n")
            }
            // Two predecessors where there are two.
            true if index > 1 && guard == "off" => {
                format!("after = {{ {trigger} = [\"o{from}\", \"o{}\"] }}\n", (from + 1) % index)
            }
            true => format!("after = {{ {trigger} = [\"o{from}\"] }}\nguard = \"{guard}\"\n"),
            false => {
                let slowest = period + range;
                format!(
                    "every = [\"{period}ms\", \"{slowest}ms\"]\nphase = \"{phase}ms\"\nrepeat = {{ legs = {legs} }}\n"
                )
            }
        };
        if triggered && has_deadline && range % 3 == 0 {
            text += &format!("timeout = \"{period}ms\"\nlifespan = \"{deadline}ms\"\n");
        }
        text += &format!("critical = {critical}\nimportance = {importance}\non_overrun = \"{on_overrun}\"\n");
        text += &format!("on_busy = \"{on_busy}\"\non_miss = \"{on_miss}\"\nqueue = {{ limit = {limit}, when_full = \"{when_full}\" }}\n");
        if uses {
            text += "uses = { store = \"0.5ms\" }\n";
        }
        text
    })
}

/// `plain`: without features that change the order of jobs at run time, which the naive model omits.
fn systems(plain: bool) -> impl Strategy<Value = String> {
    let strategy = one_of(&["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"]);
    let second = proptest::option::of(strategy_name());
    let preemption = one_of(&["none", "levels", "full"]);
    let caps = one_of(&[30u32, 60, 100]);
    let operations = (operation(0), operation(1), operation(2), operation(3));
    let processor = (strategy, second, preemption, any::<bool>(), caps, any::<bool>(), prop::bool::weighted(0.3));
    (processor, operations).prop_map(move |((strategy, second, preemption, cancel, cap, region, copies), operations)| {
        let second = second.filter(|second| !plain && *second != strategy);
        let strategy = second.map_or(format!("{strategy:?}"), |second| format!("[{strategy:?}, {second:?}]"));
        let preemption = if plain && preemption == "full" { "levels" } else { preemption };
        let cap = if plain { 100 } else { cap };
        let mut text = format!(
            "name = \"random\"\nduration = \"1s\"\n[processor.main]\nstrategy = {strategy}\npreemption = \"{preemption}\"\n\
             cancel = {cancel}\ncap = \"{cap}%\"\nhard_cap = \"{cap}%\"\n[resource.store]\n"
        );
        let (a, b, c, d) = operations;
        let afters = ["", "{ all = [\"o0\"] }", "{ chosen = [\"o0\"] }", "{ first = [\"o1\", \"o2\"] }"];
        for (one, after) in [a, b, c, d].into_iter().zip(afters) {
            text += &if copies && !after.is_empty() { with_trigger(&one, after) } else { one };
        }
        if region && !plain {
            let off = "set = { \"operation.o0.enabled\" = false }";
            text += &format!("[[epoch]]\nat = \"0s\"\n[[epoch]]\nat = \"25ms\"\n{off}\n[[epoch]]\nat = \"50ms\"\n");
        }
        text
    })
}

/// The operation with this trigger in the place of its own.
fn with_trigger(operation: &str, after: &str) -> String {
    let own = ["after", "every", "phase", "repeat", "timeout", "lifespan"];
    let lines = operation.lines().filter(|line| !own.iter().any(|key| line.starts_with(key)));
    lines.chain([format!("after = {after}").as_str()]).map(|line| format!("{line}\n")).collect()
}

fn strategy_name() -> impl Strategy<Value = &'static str> {
    one_of(&["RMS", "EDF", "MLF", "MUF"])
}

/// A caller that follows the effects, except where actions decide.
struct Caller<'a> {
    system: &'a System,
    dispatcher: Dispatcher<Keep>,
    effects: Effects,
    now: Instant,
    /// The naive model, if it applies.
    naive: Option<Naive>,
    /// How many of the probe's events were checked.
    checked: usize,
    /// By ticket: the completion to which it was attached, and how often the dispatcher has it.
    tickets: Vec<(JobId, u32)>,
}

impl<'a> Caller<'a> {
    fn new(system: &'a System, plan: &Plan, naive: bool) -> Self {
        let plan = &plan.processors[0];
        let dispatcher = Dispatcher::new(system, plan, Keep::default());
        let effects = dispatcher.effects();
        let naive = naive.then(|| Naive::new(system, plan));
        // The first region begins at once.
        let checked = dispatcher.probe().0.len();
        Caller { system, dispatcher, effects, now: Instant::ZERO, naive, checked, tickets: Vec::new() }
    }

    /// Completes a job with a separate ticket.
    fn complete(&mut self, slot: Slot, consumed: Span) {
        self.tickets.push((self.dispatcher.job(slot).id, 0));
        let ticket = NonZeroU32::new(self.tickets.len() as u32).map(Ticket);
        self.handle(Input::Complete { slot, consumed, ticket });
    }

    /// Tickets are returned as often as they were passed on, and a job has those of the completions that triggered it.
    fn check_tickets(&mut self, input: Input) {
        match input {
            Input::Complete { .. } => {
                self.tickets.last_mut().expect("it has just got one").1 += self.effects.passed_on;
            }
            Input::Invoke(_) => self.tickets.last_mut().expect("it has just got one").1 = 1,
            _ => {}
        }
        for Ticket(number) in self.effects.returned.drain(..) {
            let held = &mut self.tickets[number.get() as usize - 1].1;
            *held = held.checked_sub(1).expect("it came back once too often");
        }
        let mut of_jobs = 0;
        for (slot, job) in self.dispatcher.jobs() {
            let operation = self.system.operation(job.id.operation);
            let predecessors = operation.trigger.predecessors();
            let tickets = self.dispatcher.tickets(slot);
            of_jobs += tickets.iter().flatten().count();
            for (Ticket(number), from) in
                tickets.iter().zip(predecessors).filter_map(|(t, from)| Some((*t.as_ref()?, from)))
            {
                let (by, held) = self.tickets[number.get() as usize - 1];
                assert!(by.operation == *from && held > 0, "{by:?} triggered {:?}", job.id);
                let inherits = self.system.numbered_by_root(job.id.operation);
                assert!(!inherits || by.number == job.id.number, "{by:?} triggered {:?}", job.id);
            }
            let expected = match operation.trigger {
                _ if job.timed_out => 0,
                Trigger::All(_) => predecessors.len(),
                Trigger::Correlated(ref correlation) => correlation.groups().count(),
                // Later legs of a request have none.
                Trigger::Any(_) | Trigger::First(_) | Trigger::Chosen(_) => usize::from(job.id.leg == 0),
                Trigger::Periodic => 0,
            };
            assert_eq!(tickets.iter().flatten().count(), expected);
        }
        let held: u32 = self.tickets.iter().map(|(_, held)| held).sum();
        let in_joins = held.checked_sub(of_jobs as u32).expect("a ticket that has come back");
        let joins = self.system.operations.iter().filter(|one| one.trigger.predecessors().len() > 1);
        let room: u32 = joins.map(|one| one.trigger.predecessors().len() as u32 * one.queue.limit).sum();
        assert!(in_joins <= room, "{in_joins} tickets are lost or in joins for {room}");
    }

    /// Inputs from outside, and the tick after them.
    fn outside(&mut self, input: Input) {
        self.handle(input);
        while let Some(slot) = self.effects.cancelled.pop() {
            self.complete(slot, Span::from_micros(200));
        }
        self.handle(Input::Tick);
    }

    fn handle(&mut self, input: Input) {
        // The probe's own room.
        self.dispatcher.probe_mut().0.reserve(1 << 12);
        let (dispatcher, now) = (&mut self.dispatcher, self.now);
        let counted = allocation_counter::measure(|| dispatcher.handle(now, input, &mut self.effects));
        assert_eq!(counted.count_total, 0, "{input:?} allocates");
        assert!(self.effects.sends.is_empty(), "one processor sends nothing");
        self.effects.paced.clear();
        self.check_tickets(input);
        for index in self.checked..self.dispatcher.probe().0.len() {
            let (at, event) = self.dispatcher.probe().0[index];
            assert_eq!(at, self.now);
            if let Some(naive) = &mut self.naive {
                naive.event(at, event);
            }
        }
        self.checked = self.dispatcher.probe().0.len();
        let Effects { startable, running, paused, fully_paused, .. } = self.effects;
        assert!((startable & (running | fully_paused)).is_empty() && (fully_paused & !paused).is_empty());
        if let Some(naive) = &self.naive {
            for lane in 0..self.dispatcher.lanes().len() as u8 {
                let free = self.dispatcher.lanes()[usize::from(lane)].running.is_none();
                assert_eq!(self.effects.running.contains(lane), !free);
                assert_eq!(self.effects.startable.contains(lane), free && naive.first(lane).is_some(), "lane {lane}");
            }
        }
    }

    fn slots(&self, state: impl Fn(JobState) -> bool) -> Vec<Slot> {
        self.dispatcher.jobs().filter(|(_, job)| state(job.state)).map(|(slot, _)| slot).collect()
    }

    fn choose(&self, among: usize, state: impl Fn(JobState) -> bool) -> Option<Slot> {
        let slots = self.slots(state);
        (!slots.is_empty()).then(|| slots[among % slots.len()])
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Wait(micros) => {
                let until = self.now + Span::from_micros(micros);
                while self.effects.timer <= until {
                    self.now = self.effects.timer.max(self.now);
                    self.handle(Input::Tick);
                    while let Some(slot) = self.dispatcher.overdue(self.now) {
                        let consumed = self.dispatcher.job(slot).wcet;
                        self.handle(Input::Observe { slot, consumed });
                        if self.effects.overrun == OverrunAction::Stop {
                            self.complete(slot, consumed);
                        }
                    }
                    assert!(self.effects.timer > self.now, "what was due is done");
                }
                self.now = until;
            }
            Action::Decide(lane) => {
                let lane = (lane % self.dispatcher.lanes().len()) as u8;
                let running = self.dispatcher.lanes()[usize::from(lane)].running;
                let executed = running.map_or(Span::ZERO, |_| Span::from_micros(500));
                self.handle(Input::LaneRuns { lane, executed });
            }
            Action::Complete(among) => {
                let Some(slot) = self.choose(among, |state| matches!(state, JobState::Running | JobState::Demoted))
                else {
                    return;
                };
                self.complete(slot, Span::from_micros(700));
            }
            Action::Suspend(among) => {
                let Some(slot) = self.choose(among, |state| state == JobState::Running) else { return };
                self.handle(Input::Suspend { slot });
            }
            Action::Resume(among) => {
                let Some(slot) = self.choose(among, |state| state == JobState::Suspended) else { return };
                self.handle(Input::Resume { slot, consumed: Span::from_micros(300) });
            }
            Action::Lock(among) | Action::Unlock(among) => {
                let Some(slot) = self.choose(among, |state| state == JobState::Running) else { return };
                let uses = &self.system.operation(self.dispatcher.job(slot).id.operation).uses;
                let Some((resource, _)) = uses.first().copied() else { return };
                let before = self.dispatcher.job(slot).level;
                match (action, self.dispatcher.holds(slot, resource)) {
                    (Action::Lock(_), false) => self.handle(Input::Acquire { slot, resource }),
                    (Action::Unlock(_), true) => self.handle(Input::Release { slot, resource }),
                    _ => return,
                }
                assert!(self.effects.level <= before, "a ceiling is never less urgent than its users");
            }
            Action::Invoke { deadline, importance, critical } => {
                let operation = OperationId(3);
                if !self.dispatcher.can_invoke(operation) {
                    return;
                }
                let before = self.dispatcher.jobs().count();
                self.tickets.push((JobId { operation, number: 0, leg: 0 }, 0));
                let ticket = NonZeroU32::new(self.tickets.len() as u32).map(Ticket);
                let deadline = self.now + Span::from_millis(deadline);
                let request =
                    JobRequest { operation, origin: self.now, sent: self.now, deadline, importance, critical, ticket };
                self.handle(Input::Invoke(request));
                assert!(self.effects.lost || self.dispatcher.jobs().count() + 1 > before, "the job is missing");
                self.handle(Input::Tick);
            }
            Action::Sample(utilisation) if self.dispatcher.sampling_period().is_some() => {
                self.outside(Input::Sample { utilisation });
            }
            Action::Sample(_) => {}
            Action::Join { estimate, range: (shortest, longest) } => {
                let claim = RatedClient {
                    operation: OperationId(3),
                    estimate: Span::from_micros(estimate),
                    shortest: Span::from_millis(shortest),
                    longest: Span::from_millis(longest),
                    value: 1,
                    label: ClientLabel::new("pilot"),
                };
                let Ok((client, task)) = self.dispatcher.place_client(&claim, None) else { return };
                let wcet = self.system.setting(self.dispatcher.region(), OperationId(3)).wcet;
                assert!(task.estimate >= claim.estimate && task.estimate <= wcet);
                assert!(task.shortest >= claim.shortest && task.longest <= claim.longest);
                let input = Input::Join { client, task };
                assert!(self.dispatcher.accepts(self.system, self.now, &input));
                self.outside(input);
                assert!(!self.dispatcher.accepts(self.system, self.now, &input), "its place is taken");
            }
            Action::Leave(client) => {
                let input = Input::Leave { client };
                if self.dispatcher.accepts(self.system, self.now, &input) {
                    self.outside(input);
                }
            }
            Action::Standby(operation, admit) => {
                let operation = OperationId(operation as u32);
                let input = if admit { Input::Admit { operation } } else { Input::Withdraw { operation } };
                let on_standby = self.system.operation(operation).standby;
                assert_eq!(self.dispatcher.accepts(self.system, self.now, &input), on_standby);
                if on_standby {
                    self.handle(input);
                    assert!(self.effects.admission.is_some());
                    self.handle(Input::Tick);
                }
            }
            Action::Retime(operation, period) => {
                let operation = OperationId(operation as u32);
                self.outside(Input::Retime { operation, period: Span::from_millis(period) });
            }
            Action::Adapt(periods) => {
                for (operation, period) in (0..).map(OperationId).zip(periods) {
                    self.handle(Input::Adapt { operation, period: Span::from_millis(period) });
                }
                self.handle(Input::Tick);
            }
            Action::Choose(among, hops) => {
                let chosen = self.choose(among, |state| matches!(state, JobState::Running | JobState::Demoted));
                if let Some(slot) = chosen {
                    self.handle(Input::Choose { slot, hops });
                }
            }
            Action::SuspendTriggers(operation, on) => {
                let operation = OperationId(operation as u32);
                self.outside(Input::SuspendTriggers { operation, on });
            }
            Action::SetCondition(value) if !self.system.conditions.is_empty() => {
                self.outside(Input::Condition { condition: 0, value: value * 100_000 });
            }
            Action::Force(region, lasting) if !self.system.contracts.is_empty() => {
                let until = lasting.map_or(Instant::NEVER, |micros| self.now + Span::from_micros(micros));
                self.outside(Input::Force { contract: 0, region, until });
            }
            Action::UpdateContract(route, value) => {
                let routes = (0..).zip(self.system.contract_routes()).filter(|(_, one)| one.to == ProcessorId(0));
                let Some((route, _)) = { routes }.nth(route) else { return };
                let input = Input::ContractUpdate { route, value };
                // A value that the route cannot carry is rejected.
                if self.dispatcher.accepts(self.system, self.now, &input) {
                    self.outside(input);
                }
            }
            Action::SetCondition(_) | Action::Force(..) => {}
            Action::Enter(index) => {
                let index = (index % self.system.epochs.len()) as u16;
                self.outside(Input::Enter { index });
            }
            Action::Cancel(among, chain) => {
                let Some(slot) = self.choose(among, |_| true) else { return };
                let job = self.dispatcher.job(slot).id;
                self.outside(Input::Cancel { job, chain });
                let mut left = self.dispatcher.jobs().map(|(_, job)| job.id);
                assert!(left.all(|left| (left.operation, left.number) != (job.operation, job.number)));
                let one_root = |id: OperationId| self.system.operation(id).roots.len() == 1;
                if chain && self.system.numbered_by_root(job.operation) && self.system.operation_ids().all(one_root) {
                    let root = &self.system.operation(job.operation).roots;
                    let same =
                        |by: &JobId| by.number == job.number && self.system.operation(by.operation).roots == *root;
                    // A request's own ticket is not in a join.
                    let numbered =
                        |by: &JobId| by.operation != OperationId(3) && self.system.numbered_by_root(by.operation);
                    let mut of_chain = self.tickets.iter().filter(|(by, _)| same(by) && numbered(by));
                    let followed = |by: &JobId| {
                        let mut after = self
                            .system
                            .operation_ids()
                            .filter(|id| self.system.operation(*id).trigger.predecessors().contains(&by.operation));
                        after.all(|id| self.system.numbered_by_root(id))
                    };
                    assert!(of_chain.all(|(by, held)| *held == 0 || !followed(by)), "a join keeps a cancelled ticket");
                }
            }
        }
    }
}

/// Every job that entered the dispatcher leaves it once, or is still in it.
fn each_ends_once(events: &[(Instant, TraceEvent)], unfinished: usize) {
    let mut live = std::collections::BTreeSet::new();
    for (at, event) in events {
        match event {
            TraceEvent::Decision(DispatchDecision::Hold { job, .. }) => {
                assert!(live.insert(*job), "{at}: {job:?} twice")
            }
            // Held jobs are already in it.
            TraceEvent::Decision(DispatchDecision::Ready { job, .. }) => drop(live.insert(*job)),
            TraceEvent::Decision(
                DispatchDecision::Run { job, .. } | DispatchDecision::Yield { job } | DispatchDecision::Demote { job },
            ) => {
                assert!(live.contains(job), "{at}: {job:?}");
            }
            TraceEvent::Decision(DispatchDecision::End(end)) => {
                let refused =
                    matches!(end.outcome, JobOutcome::DroppedFull | JobOutcome::DroppedBusy | JobOutcome::Skipped);
                assert!(live.remove(&end.job) || refused, "{at}: {end:?}");
            }
            _ => {}
        }
    }
    assert_eq!(live.len(), unfinished);
}

/// A loop on the only processor, if it can adapt some operation.
fn with_loop(system: System, algorithm: FeedbackAlgorithm, divide: RateDivision, standby: [bool; 4]) -> System {
    let processor = ProcessorId(0);
    if system.adapted_on(processor).is_empty() && system.with_clients_on(processor).next().is_none() {
        return system;
    }
    let here = system.operation_ids().find(|id| system.operation(*id).on == processor).into_iter().collect();
    let latency =
        LatencySetPoint { of: LatencyScope::Operations(here), quantile_ppm: 900_000, at: Span::from_millis(2) };
    system.with(|contents| {
        contents.feedback.push(FeedbackLoop {
            processor,
            algorithm,
            utilisation_ppm: 700_000,
            utilisation_analysed: false,
            miss_ratio_ppm: 15_000,
            latency: algorithm.uses_latency().then_some(latency),
            period: Span::from_millis(10),
            measure: LoadMeasure::Cpu,
            gains: DesignGains::default(),
            start: StartRates::Lowest,
            divide,
            anti_windup: true,
            endpoints: Vec::new(),
            insecure: false,
        });
        for (place, _) in standby.iter().enumerate().filter(|(_, standby)| **standby) {
            let id = OperationId(place as u32);
            if contents.obstacle_to_standby(id).is_some() {
                continue;
            }
            contents.operations[place].standby = true;
            if let [_, first, rest @ ..] = &mut contents.epochs[..] {
                first.admissions.admit.push(id);
                rest.iter_mut().for_each(|epoch| epoch.admissions.withdraw.push(id));
            }
        }
    })
}

/// A contract on the processor: late jobs limit the rate of `o0`, disable `o2`, and then `o1`. Another processor, without
/// operations, measures one of its conditions, and evaluates a contract for this processor.
fn with_contract(system: System) -> System {
    let ms = Span::from_millis;
    let expression = |text| {
        Some(
            Predicate::read(
                text,
                &["late", "slow", "mode", "asked", "wasted", "rate", "queue", "behind", "used", "far"],
            )
            .unwrap(),
        )
    };
    let rules = |parent, enter, leave| RegionRules {
        parent,
        enter,
        leave,
        hold: Span::ZERO,
        stay: Stay::default(),
        latch: false,
    };
    let region = |name: &str, rules, actions| ContractRegion { name: name.into(), rules, ramp: Span::ZERO, actions };
    let condition = |name: &str, of, over, summary| {
        let over = Some(ms(over));
        Condition { name: name.into(), of, summary, over, max_age: None }
    };
    let disable = |id| ContractAction::Disable { operation: OperationId(id) };
    let enable = ContractAction::Enable { operation: OperationId(2) };
    let limit =
        ContractAction::LimitPeriod { operation: OperationId(0), shortest: ms(8), longest: Span::from_nanos(u64::MAX) };
    let thin = RegionRules {
        hold: ms(2),
        stay: Stay { first: ms(3), grow: 2, most: ms(12), settling: Span::ZERO },
        ..rules(None, expression("late > 0.3 || mode > 1.5"), expression("late < 0.1 && !(mode > 1.2)"))
    };
    let all = LatencyScope::Operations(system.operation_ids().collect());
    let first = LatencyScope::Operations(vec![OperationId(1)]);
    let behind = first.clone();
    let [everything, critical] =
        [false, true].map(|critical| JobScope::Processor { processor: ProcessorId(0), critical });
    let (queued, used) = (everything.clone(), critical.clone());

    let last = JobScope::Operations(vec![OperationId(2), OperationId(3)]);
    let legs = |id, most| ContractAction::LimitLegs { operation: OperationId(id), most };
    let set = |setting, to| ContractAction::Set { setting, to };
    let important = |id, to| set(ContractSetting::Importance(OperationId(id)), to);
    let (mut deep, mut asked) = (vec![disable(1), important(0, 7)], vec![legs(0, 1), important(2, 1), important(3, 0)]);
    if system.processors[0].overload.is_some() {
        deep.push(set(ContractSetting::Strategy(ProcessorId(0)), 0));
        asked.push(set(ContractSetting::Strategy(ProcessorId(0)), 1));
    }
    for operation in system.operation_ids().filter(|id| system.operation(*id).standby) {
        deep.push(ContractAction::Admission { operation, admit: true });
        asked.push(ContractAction::Admission { operation, admit: operation.0 == 2 });
    }
    for point in [ContractSetting::Utilisation, ContractSetting::MissRatio] {
        let setting = point(ProcessorId(0));
        let is_controlled = |one: &FeedbackLoop| setting.is_controlled_by(one.algorithm);
        if system.feedback.iter().any(is_controlled) {
            deep.push(set(setting, 300_000));
            asked.push(set(setting, 900_000));
        }
    }
    let elsewhere = JobScope::Processor { processor: ProcessorId(1), critical: false };
    let on_first = Predicate::read("queue > 1.0", &["queue"]).unwrap();
    let remote = Contract {
        name: "remote".into(),
        processor: ProcessorId(1),
        precedence: 1,
        period: ms(3),
        conditions: vec![condition("queue", ConditionSource::Queue(queued.clone()), 9, WindowSummary::Mean)],
        regions: vec![
            region("low", rules(None, Some(on_first.clone()), None), vec![limit.clone(), disable(1)]),
            ContractRegion {
                ramp: ms(5),
                ..region("lower", rules(Some(0), Some(on_first), None), vec![legs(3, 1), important(1, 5)])
            },
            region("high", rules(Some(0), None, None), deep.clone()),
            region("rest", rules(None, None, None), asked.clone()),
        ],
    };
    system.with(|contents| {
        let far = Processor { name: "far".into(), cpu: None, ..contents.processors[0].clone() };
        contents.processors.push(far);
        contents.conditions.push(OutsideCondition { name: "mode".into(), measure: None });
        contents.contracts.push(Contract {
            name: "load".into(),
            processor: ProcessorId(0),
            precedence: 0,
            period: ms(1),
            conditions: vec![
                condition("late", ConditionSource::MissRatio(all), 20, WindowSummary::Mean),
                condition("slow", ConditionSource::Latency(first), 10, WindowSummary::Greatest),
                condition("mode", ConditionSource::Set(0), 15, WindowSummary::Least),
                condition("asked", ConditionSource::Demand(critical), 12, WindowSummary::Mean),
                condition("wasted", ConditionSource::Wasted(everything), 25, WindowSummary::Mean),
                condition("rate", ConditionSource::Rate(last), 8, WindowSummary::Mean),
                condition("queue", ConditionSource::Queue(queued), 9, WindowSummary::Spread),
                condition("behind", ConditionSource::Lateness(behind), 11, WindowSummary::Greatest),
                condition("used", ConditionSource::Usage(used), 7, WindowSummary::Mean),
                condition("far", ConditionSource::Queue(elsewhere), 9, WindowSummary::Greatest),
            ],
            regions: vec![
                region("thin", thin, vec![limit, disable(2)]),
                region("deep", rules(Some(0), expression("slow > 0.004 || stale(slow)"), None), deep),
                region("shallow", rules(Some(0), None, None), vec![legs(1, 1), legs(3, 2), enable]),
                region(
                    "asked",
                    rules(
                        None,
                        expression(
                            "asked + wasted > 0.5 || rate < 100.0 || queue > 3.0 || behind > 0.001 || used > 0.7 || far > 2.0",
                        ),
                        None,
                    ),
                    asked,
                ),
                region("normal", rules(None, None, None), Vec::new()),
            ],
        });
        contents.contracts.push(remote);
    })
}

/// A loop, and the operations on standby, if they can be.
type LoopChoice = (FeedbackAlgorithm, RateDivision, [bool; 4]);

fn loops() -> impl Strategy<Value = Option<LoopChoice>> {
    let algorithm = one_of(&ALGORITHMS.map(|(algorithm, ..)| algorithm));
    let standby = prop::array::uniform4(prop::bool::weighted(0.4));
    proptest::option::of((algorithm, one_of(&RateDivision::ALL), standby))
}

fn play(file: &str, actions: &[Action], naive: bool, requests: bool, (feedback, contract): (Option<LoopChoice>, bool)) {
    let mut system = read(file, "random.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    // Only requests release the last one.
    if requests {
        system = system.with(|contents| {
            let roots = vec![OperationId(3)];
            (contents.operations[3].trigger, contents.operations[3].roots) = (Trigger::Any(vec![]), roots);
            (contents.operations[3].timeout, contents.operations[3].lifespan) = (None, None);
            let [shortest, longest] = [2, 60].map(Span::from_millis);
            contents.operations[3].clients = feedback.map(|_| ClientRates { most: 3, shortest, longest });
        });
    }
    if let Some((algorithm, divide, standby)) = feedback {
        system = with_loop(system, algorithm, divide, standby);
    }
    if contract {
        system = with_contract(system);
    }
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let mut caller = Caller::new(&system, &plan, naive);
    actions.iter().for_each(|action| caller.act(*action));
    let unfinished = caller.dispatcher.jobs().count();
    let before_close = caller.dispatcher.probe().0.len();
    each_ends_once(&caller.dispatcher.probe().0, unfinished);
    caller.naive = None;
    caller.handle(Input::Close);
    assert!(caller.dispatcher.probe().0.len() - before_close <= unfinished + 1);
    let events = std::mem::take(&mut caller.dispatcher.probe_mut().0);
    let inputs = events.iter().filter(|(_, event)| matches!(event, TraceEvent::Input(_))).count() as u64;
    let replayed = replay(&system, &plan.processors[0], events).unwrap_or_else(|divergence| panic!("{divergence}"));
    assert_eq!(replayed.inputs, inputs);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn jobs_run_in_the_order_of_a_naive_model(
        file in systems(true), actions in actions(), requests: bool, feedback in loops()
    ) {
        play(&file, &actions, true, requests, (feedback, false));
    }

    /// Caps, regions, contracts, two strategies, full preemption, resources: no order is checked, but no job is lost.
    #[test]
    fn no_sequence_of_inputs_loses_a_job_or_a_replay(
        file in systems(false), actions in actions(), requests: bool, feedback in loops(), contract: bool
    ) {
        play(&file, &actions, false, requests, (feedback, contract));
    }
}

/// A caller's job is late, and the next ones wait for its body. When their rests may be released, in milliseconds.
fn rests_after_a_late_call(guard: &str) -> Vec<u64> {
    let text = format!(
        "name = 'late'\n[processor.main]\n[processor.other]\n\
         [operation.asks]\non = 'main'\nevery = '10ms'\nwcet = '1ms'\nguard = '{guard}'\n\
         calls = {{ method = 'answers', after = '0.5ms' }}\n\
         [operation.answers]\non = 'other'\ncalled = true\nwcet = '1ms'\n"
    );
    let system = read(&text, "late.toml", None).unwrap().system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let find = |name: &str| system.operation_ids().find(|id| system.operation(*id).name == name).unwrap();
    let (before, method, rest) = (find("asks:call"), find("answers@asks"), find("asks"));
    let mut dispatcher = Dispatcher::new(&system, &plan.processors[0], Keep::default());
    let mut effects = dispatcher.effects();
    let at = |millis: u64| Instant::ZERO + Span::from_millis(millis);
    let executed = Span::ZERO;
    // The job of 0 ms ends at 30 ms. The body has the call until its rest ends.
    for millis in [0, 10, 20, 30] {
        dispatcher.handle(at(millis), Input::Tick, &mut effects);
        dispatcher.handle(at(millis), Input::LaneRuns { lane: 0, executed }, &mut effects);
    }
    let mut aside = std::collections::VecDeque::new();
    for number in 0..3 {
        let (ends, answered, done) = (at(30 + 3 * number), at(31 + 3 * number), at(32 + 3 * number));
        let slot = dispatcher.lanes()[0].running.expect("the part before the call");
        let complete = |slot| Input::Complete { slot, consumed: Span::from_micros(500), ticket: None };
        // One gets its turn, and has to wait again.
        if let Some(again) = aside.pop_front() {
            dispatcher.handle(ends, Input::Resume { slot: again, consumed: Span::ZERO }, &mut effects);
        }
        dispatcher.handle(ends, complete(slot), &mut effects);
        // Those that wait for the body.
        loop {
            dispatcher.handle(ends, Input::LaneRuns { lane: 0, executed }, &mut effects);
            let Some(slot) = dispatcher.lanes()[0].running else { break };
            assert_eq!(dispatcher.job(slot).id.operation, before);
            dispatcher.handle(ends, Input::Suspend { slot }, &mut effects);
            aside.push_back(slot);
        }
        let (origin, period) = (at(10 * number), Span::from_millis(10));
        let signal =
            Signal { from: method, to: rest, position: 0, number, origin, period, due: answered, ticket: None };
        dispatcher.handle(answered, Input::Signal(signal), &mut effects);
        dispatcher.handle(answered, Input::Tick, &mut effects);
        dispatcher.handle(answered, Input::LaneRuns { lane: 0, executed }, &mut effects);
        let Some(slot) = dispatcher.lanes()[0].running else { break };
        dispatcher.handle(done, complete(slot), &mut effects);
        let next = aside.pop_front().expect("one waits");
        dispatcher.handle(done, Input::Resume { slot: next, consumed: Span::ZERO }, &mut effects);
        dispatcher.handle(done, Input::LaneRuns { lane: 0, executed }, &mut effects);
    }
    let ready = dispatcher.probe().0.iter().filter_map(|(at, event)| match event {
        TraceEvent::Decision(DispatchDecision::Ready { job, .. }) if job.operation == rest => {
            Some(at.as_nanos() / 1_000_000)
        }
        _ => None,
    });
    ready.collect()
}

#[test]
fn late_calls_catch_up_if_their_guard_opens_at_idle_points() {
    assert_eq!(rests_after_a_late_call("on"), [31]);
    assert_eq!(rests_after_a_late_call("idle"), [31, 34, 37]);
}

#[test]
fn while_clients_are_absent_their_rates_do_not_rise() {
    let text = "name = 'two'\n[processor.client]\n[processor.server]\n\
        [feedback.server]\nalgorithm = 'FC-U'\nutilisation = '70%'\nperiod = '4s'\n\
        [operation.ask]\non = 'client'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
        [operation.serve]\non = 'server'\nafter = { all = ['ask'] }\nwcet = '10ms'\n";
    let system = read(text, "two.toml", None).unwrap().system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let retimed = |arrivals: u64, utilisation: u32| {
        let mut dispatcher = Dispatcher::new(&system, &plan.processors[1], Keep::default());
        let mut effects = dispatcher.effects();
        let mut now = Instant::ZERO;
        for number in 0..arrivals {
            let (from, to) = (OperationId(0), OperationId(1));
            let period = Span::from_secs(1);
            let signal = Signal { from, to, position: 0, number, origin: now, period, due: now, ticket: None };
            dispatcher.handle(now, Input::Signal(signal), &mut effects);
            dispatcher.handle(now, Input::LaneRuns { lane: 0, executed: Span::ZERO }, &mut effects);
            let slot = effects.run.expect("the job starts").slot;
            now += Span::from_millis(5);
            let consumed = Span::from_millis(5);
            dispatcher.handle(now, Input::Complete { slot, consumed, ticket: None }, &mut effects);
            now += Span::from_millis(995);
        }
        let now = Instant::ZERO + Span::from_secs(4);
        dispatcher.handle(now, Input::Sample { utilisation: Some(utilisation) }, &mut effects);
        effects.retimed.len()
    };
    assert_eq!(retimed(0, 0), 0, "nothing arrives: a low load is no reason to raise rates");
    assert_eq!(retimed(4, 5_000), 1);
    assert_eq!(retimed(0, 100_000), 1, "jobs run, and none has ended");
}

/// Jobs that wait for something else than the CPU leave it idle.
#[test]
fn a_long_latency_lowers_rates_though_the_cpu_is_idle_and_no_job_ends() {
    let text = "name = 'waits'\n[processor.main]\n\
        [feedback.main]\nalgorithm = 'FC-UL'\nutilisation = '70%'\nperiod = '1s'\nstart = 'highest'\n\
        latency = { of = 'ask', at = '100ms' }\n\
        [operation.ask]\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\nqueue = { limit = 16 }\n";
    let system = read(text, "waits.toml", None).unwrap().system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let total_after = |sampled: u64| {
        let mut dispatcher = Dispatcher::new(&system, &plan.processors[0], Keep::default());
        let mut effects = dispatcher.effects();
        dispatcher.handle(Instant::ZERO, Input::Tick, &mut effects);
        dispatcher.handle(Instant::ZERO, Input::LaneRuns { lane: 0, executed: Span::ZERO }, &mut effects);
        let slot = effects.run.expect("the job starts").slot;
        dispatcher.handle(Instant::ZERO, Input::Suspend { slot }, &mut effects);
        let now = Instant::ZERO + Span::from_millis(sampled);
        dispatcher.handle(now, Input::Sample { utilisation: Some(0) }, &mut effects);
        let total = dispatcher.probe().0.iter().rev().find_map(|(_, event)| match event {
            TraceEvent::Decision(DispatchDecision::Sample { ended: 0, total, .. }) => Some(*total),
            _ => None,
        });
        total.expect("it has sampled")
    };
    assert!(total_after(1_000) < 100_000, "it has waited ten times as long as the set point");
    assert_eq!(total_after(50), 100_000, "a short wait is no reason to raise rates");
}

/// The chain is late while its next job waits for the release guard.
#[test]
fn the_latency_of_a_chain_counts_jobs_that_a_guard_holds() {
    let text = "name = 'two'\n[processor.client]\n[processor.server]\n\
        [feedback.server]\nalgorithm = 'FC-UL'\nutilisation = '70%'\nperiod = '4s'\n\
        latency = { of = 'answer', at = '100ms' }\n\
        [operation.ask]\non = 'client'\nrate = ['1Hz', '10Hz']\nwcet = '1ms'\n\
        [operation.serve]\non = 'server'\nafter = { all = ['ask'] }\nwcet = '10ms'\nguard = 'on'\n\
        [chain.answer]\npath = ['ask', 'serve']\ndeadline = '5s'\n";
    let system = read(text, "two.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let mut dispatcher = Dispatcher::new(&system, &plan.processors[1], Keep::default());
    let mut effects = dispatcher.effects();
    let (start, period) = (Instant::ZERO, Span::from_secs(1));
    // The second completion arrives at once with the first.
    for number in 0..2 {
        let (from, to) = (OperationId(0), OperationId(1));
        let signal = Signal { from, to, position: 0, number, origin: start, period, due: start, ticket: None };
        dispatcher.handle(start, Input::Signal(signal), &mut effects);
    }
    dispatcher.handle(start, Input::Tick, &mut effects);
    dispatcher.handle(start, Input::LaneRuns { lane: 0, executed: Span::ZERO }, &mut effects);
    let slot = effects.run.expect("the first job starts").slot;
    let consumed = Span::from_millis(5);
    dispatcher.handle(start + consumed, Input::Complete { slot, consumed, ticket: None }, &mut effects);
    let now = start + Span::from_millis(900);
    dispatcher.handle(now, Input::Sample { utilisation: Some(5_000) }, &mut effects);
    let found = dispatcher.probe().0.iter().find_map(|(_, event)| match event {
        TraceEvent::Decision(DispatchDecision::Latency { quantile, jobs }) => Some((*quantile, *jobs)),
        _ => None,
    });
    let (quantile, jobs) = found.expect("a latency was measured");
    assert_eq!(jobs, 2);
    assert!((890..=920).contains(&(quantile.as_nanos() / 1_000_000)), "{quantile}");
}
