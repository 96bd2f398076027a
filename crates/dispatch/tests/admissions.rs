//! Operations on standby: which are admitted, and which jobs they have.

use std::collections::BTreeMap;

use hyoshi_dispatch::{Dispatcher, Effects};
use hyoshi_model::{Instant, OperationId, Span, System, read};
use hyoshi_replay::replay;
use hyoshi_sched::{Plan, Strategies};
use hyoshi_trace::{AdmissionOutcome, AdmissionRefusal, DispatchDecision, ExcessLoad, Input, Slot, TraceEvent};
use proptest::prelude::*;

use super::Keep;

/// The worst case, and the shortest and the longest period, in milliseconds.
type Times = (u64, u64, u64);

/// `fixed` has a fixed rate, `always` an adapted one. The others are on standby; `tail` follows the first of them.
fn system(standby: &[Times], tail: Option<u64>, divide: &str) -> System {
    let mut text = format!(
        "name = 'standby'\nduration = '60s'\n[processor.one]\nhard_cap = '100%'\ncap = '100%'\n\
         [feedback.one]\nalgorithm = 'FC-U'\nutilisation = '60%'\nperiod = '1s'\ndivide = '{divide}'\n\
         [operation.fixed]\nrate = '10Hz'\nwcet = '10ms'\n\
         [operation.always]\nevery = ['20ms', '1s']\nwcet = '5ms'\nqueue = {{ limit = 100 }}\n"
    );
    for (place, (wcet, shortest, longest)) in standby.iter().enumerate() {
        text += &format!(
            "[operation.s{place}]\nstandby = true\nevery = ['{shortest}ms', '{longest}ms']\nwcet = '{wcet}ms'\n\
             importance = {place}\nqueue = {{ limit = 100 }}\n"
        );
    }
    if let Some(wcet) = tail {
        text +=
            &format!("[operation.tail]\nafter = {{ all = ['s0'] }}\nwcet = '{wcet}ms'\nqueue = {{ limit = 100 }}\n");
    }
    read(&text, "standby.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

fn id(system: &System, name: &str) -> OperationId {
    system.operation_ids().find(|id| system.operation(*id).name == name).unwrap()
}

/// The processor. Each job uses the CPU for its worst case.
struct Driven<'a> {
    system: &'a System,
    dispatcher: Dispatcher<Keep>,
    effects: Effects,
    now: Instant,
    running: Option<(Slot, Instant)>,
    busy: Span,
}

impl<'a> Driven<'a> {
    fn new(system: &'a System, plan: &Plan) -> Self {
        let dispatcher = Dispatcher::new(system, &plan.processors[0], Keep::default());
        let effects = dispatcher.effects();
        Driven { system, dispatcher, effects, now: Instant::ZERO, running: None, busy: Span::ZERO }
    }

    fn handle(&mut self, input: Input) {
        self.dispatcher.handle(self.now, input, &mut self.effects);
    }

    /// Runs jobs for a time.
    fn run(&mut self, span: Span) {
        let until = self.now + span;
        loop {
            let ends = self.running.map_or(Instant::NEVER, |(_, ends)| ends);
            let next = self.effects.timer.min(ends);
            if next > until {
                break;
            }
            self.now = next.max(self.now);
            if let Some((slot, _)) = self.running.take_if(|(_, ends)| *ends <= self.now) {
                let consumed = self.dispatcher.job(slot).wcet;
                self.busy += consumed;
                self.handle(Input::Complete { slot, consumed, ticket: None });
            }
            self.handle(Input::Tick);
            while let (None, Some(lane)) = (self.running, self.effects.startable.first()) {
                self.handle(Input::LaneRuns { lane, executed: Span::ZERO });
                let run = self.effects.run;
                self.running = run.map(|run| (run.slot, self.now + self.dispatcher.job(run.slot).wcet));
            }
        }
        self.now = until;
    }

    fn sample(&mut self, period: Span) {
        let busy = std::mem::take(&mut self.busy).as_nanos() * 1_000_000 / period.as_nanos().max(1);
        self.handle(Input::Sample { utilisation: Some(busy.min(1_000_000) as u32) });
        self.handle(Input::Tick);
    }

    fn request(&mut self, input: Input) -> AdmissionOutcome {
        assert!(self.dispatcher.accepts(self.system, self.now, &input));
        self.handle(input);
        let outcome = self.effects.admission.expect("it is on standby");
        self.handle(Input::Tick);
        outcome
    }

    /// The present period of a root.
    fn period(&self, id: OperationId) -> Span {
        self.dispatcher.adapted_periods().find(|(root, _)| *root == id).unwrap().1
    }

    /// The declared utilisation of adapted operations at their present rates.
    fn total(&self, present: &[OperationId]) -> f64 {
        let of = |id: &OperationId| work(self.system, *id).as_nanos() as f64 / self.period(*id).as_nanos() as f64;
        present.iter().map(of).sum()
    }
}

/// The worst case of a job with those that it triggers.
fn work(system: &System, root: OperationId) -> Span {
    let parts = system.operation_ids().filter(|id| system.operation(*id).roots == [root]);
    parts.fold(Span::ZERO, |sum, id| sum + system.setting(0, id).wcet)
}

fn least_ppm(system: &System, root: OperationId) -> u64 {
    let slowest = system.setting(0, root).slowest.as_nanos();
    let parts = system.operation_ids().filter(|id| system.operation(*id).roots == [root]);
    parts.map(|id| system.setting(0, id).wcet.as_nanos() * 1_000_000 / slowest).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// At the lowest rates, admitted operations never need more than the set point. The rest makes room at once. Each
    /// operation has its jobs in order, none while it is withdrawn, and a replay repeats all decisions.
    #[test]
    fn admitted_operations_fit_and_their_jobs_are_numbered_in_order(
        standby in prop::collection::vec((1u64..30, 40u64..100, 100u64..300), 1..4),
        tail in proptest::option::of(1u64..10),
        requests in prop::collection::vec((1u64..3_000, 0usize..3, any::<bool>()), 1..40),
        by_value in any::<bool>(),
    ) {
        let system = system(&standby, tail, if by_value { "value" } else { "proportional" });
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let roots: Vec<_> = (0..standby.len()).map(|place| id(&system, &format!("s{place}"))).collect();
        let always = id(&system, "always");
        let mut driven = Driven::new(&system, &plan);
        let mut present: Vec<OperationId> = Vec::new();
        let mut sampled = Instant::ZERO;
        // The rates of withdrawn operations that the loop has not distributed yet.
        let mut withdrawn = 0.0;
        // 10 % of `fixed`.
        let least = |present: &[OperationId]| 100_000 + 5_000 + present.iter().map(|id| least_ppm(&system, *id)).sum::<u64>();
        let mut stays: BTreeMap<OperationId, Vec<(Instant, Instant)>> = BTreeMap::new();
        for (wait, root, admit) in requests {
            driven.run(Span::from_millis(wait));
            if driven.now.since(sampled) >= Span::from_secs(1) {
                let idle = driven.dispatcher.jobs().count() == 0;
                driven.sample(driven.now.since(sampled));
                sampled = driven.now;
                withdrawn = if idle { 0.0 } else { withdrawn };
            }
            let root = roots[root % roots.len()];
            let others: Vec<_> = present.iter().copied().filter(|id| *id != root).collect();
            let before = driven.total(&[&present[..], &[always]].concat());
            let input = if admit { Input::Admit { operation: root } } else { Input::Withdraw { operation: root } };
            let (was_present, outcome) = (others.len() < present.len(), driven.request(input));
            let with = least(&[&others[..], &[root]].concat());
            match outcome {
                AdmissionOutcome::Admitted { period, highest } => {
                    prop_assert!(admit && !was_present && with <= 600_000 + 3, "{with}");
                    present.push(root);
                    prop_assert_eq!(period, driven.period(root));
                    prop_assert_eq!(highest, period == system.setting(0, root).period);
                    prop_assert_eq!(outcome.lower_because().is_none(), highest);
                    let after = driven.total(&[&present[..], &[always]].concat());
                    let lowest = least(&present) as f64 / 1e6 - 0.1;
                    prop_assert!(after <= (before + withdrawn).max(lowest) + 1e-5, "{before} to {after}");
                    stays.entry(root).or_default().push((driven.now, Instant::NEVER));
                }
                AdmissionOutcome::Withdrawn => {
                    prop_assert!(!admit && was_present);
                    withdrawn += driven.total(&[root]);
                    present.retain(|id| *id != root);
                    stays.get_mut(&root).unwrap().last_mut().unwrap().1 = driven.now;
                }
                AdmissionOutcome::Refused(AdmissionRefusal::Load(ExcessLoad { least_ppm, most_ppm })) => {
                    prop_assert!(admit && !was_present && least_ppm > most_ppm && most_ppm == 600_000);
                    prop_assert!(with.abs_diff(least_ppm) <= 5, "{with} and {least_ppm}");
                }
                AdmissionOutcome::Refused(AdmissionRefusal::Admitted) => prop_assert!(admit && was_present),
                AdmissionOutcome::Refused(AdmissionRefusal::Withdrawn) => prop_assert!(!admit && !was_present),
                AdmissionOutcome::Refused(AdmissionRefusal::Disabled) => prop_assert!(false),
            }
        }
        let events = std::mem::take(&mut driven.dispatcher.probe_mut().0);
        for root in roots {
            let mut last: Option<Instant> = None;
            let mut number = 0;
            for (at, event) in &events {
                let TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) = event else { continue };
                if job.operation != root {
                    continue;
                }
                prop_assert_eq!(job.number, number);
                number += 1;
                let shortest = system.setting(0, root).period;
                prop_assert!(last.is_none_or(|last| release.since(last) >= shortest && *release > last));
                last = Some(*release);
                let within = |(from, to): &(Instant, Instant)| from <= release && at <= to;
                prop_assert!(stays.get(&root).is_some_and(|stays| stays.iter().any(within)), "{:?} at {}", job, at);
            }
        }
        replay(&system, &plan.processors[0], events).unwrap_or_else(|divergence| panic!("{divergence}"));
    }
}

#[test]
fn the_rest_makes_room_at_once_and_regains_it_after_the_last_job() {
    let system = system(&[(10, 20, 1_000)], Some(5), "proportional");
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let (always, track) = (id(&system, "always"), id(&system, "s0"));
    let mut driven = Driven::new(&system, &plan);
    for _ in 0..40 {
        driven.run(Span::from_secs(1));
        driven.sample(Span::from_secs(1));
    }
    // At its highest rate; there is room for more.
    assert_eq!(driven.period(always), Span::from_millis(20));
    let before = driven.total(&[always]);
    let outcome = driven.request(Input::Admit { operation: track });
    assert!(matches!(outcome, AdmissionOutcome::Admitted { highest: false, .. }), "{outcome:?}");
    let after = driven.total(&[always, track]);
    assert!((after - before).abs() < 1e-6 && driven.period(always) > Span::from_millis(20), "{before} and {after}");
    // Both are equally far below their highest rates.
    let part = |id: OperationId| driven.period(id).as_nanos() as f64 / system.setting(0, id).period.as_nanos() as f64;
    assert!((part(always) - part(track)).abs() < 1e-3, "{} and {}", part(always), part(track));
    driven.run(Span::from_millis(1));
    let lowered = driven.period(always);
    assert_eq!(driven.request(Input::Withdraw { operation: track }), AdmissionOutcome::Withdrawn);
    assert_eq!(driven.period(always), lowered, "a job of it still runs");
    driven.run(Span::from_millis(100));
    driven.handle(Input::Sample { utilisation: None });
    assert_eq!(driven.period(always), Span::from_millis(20));
}

/// A region that admits several operations sets the rates of all tasks once, as far as they change.
#[test]
fn a_region_sets_rates_once_for_all_operations_that_it_admits() {
    let base = system(&[(10, 20, 1_000), (10, 20, 1_000), (10, 20, 1_000)], None, "proportional");
    let admits: Vec<_> = (0..3).map(|place| format!("{{ admit = 's{place}' }}")).collect();
    let text = hyoshi_model::write(&base)
        + &format!(
            "[condition.go]\nvalue = 0\n[contract.all]\non = 'one'\nperiod = '1s'\n\
             watch = {{ go = {{ of = 'condition.go' }} }}\n[[contract.all.region]]\nname = 'many'\nenter = 'go > 0'\n\
             do = [{}]\n[[contract.all.region]]\nname = 'few'\n",
            admits.join(", ")
        );
    let system = read(&text, "standby.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let always = id(&system, "always");
    let mut driven = Driven::new(&system, &plan);
    for _ in 0..40 {
        driven.run(Span::from_secs(1));
        driven.sample(Span::from_secs(1));
    }
    driven.handle(Input::Condition { condition: 0, value: 1_000_000 });
    driven.run(Span::from_secs(2));
    let events = std::mem::take(&mut driven.dispatcher.probe_mut().0);
    let is_admission = |event: &TraceEvent| {
        matches!(
            event,
            TraceEvent::Decision(DispatchDecision::Admission { outcome: AdmissionOutcome::Admitted { .. }, .. })
        )
    };
    let admitted: Vec<_> = events.iter().filter(|(_, event)| is_admission(event)).map(|(at, _)| *at).collect();
    assert_eq!(admitted.len(), 3);
    assert!(admitted.iter().all(|at| *at == admitted[0]));
    let is_retimed = |event: &TraceEvent| matches!(event, TraceEvent::Decision(DispatchDecision::Retime { operation, .. }) if *operation == always);
    let retimed = events.iter().filter(|(at, event)| *at == admitted[0] && is_retimed(event)).count();
    assert_eq!(retimed, 1, "the rates of the rest are set once");
    replay(&system, &plan.processors[0], events).unwrap_or_else(|divergence| panic!("{divergence}"));
}

#[test]
fn an_operation_that_is_admitted_again_before_its_last_job_ends_keeps_its_rate() {
    let system = system(&[(10, 20, 1_000)], None, "proportional");
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let track = id(&system, "s0");
    let mut driven = Driven::new(&system, &plan);
    driven.request(Input::Admit { operation: track });
    driven.run(Span::from_millis(1));
    let period = driven.period(track);
    driven.request(Input::Withdraw { operation: track });
    let outcome = driven.request(Input::Admit { operation: track });
    assert_eq!(outcome, AdmissionOutcome::Admitted { period, highest: false });
    let refused = driven.request(Input::Admit { operation: track });
    assert_eq!(refused, AdmissionOutcome::Refused(AdmissionRefusal::Admitted));
    // Each part is refused.
    let input = Input::Admit { operation: id(&system, "always") };
    assert!(!driven.dispatcher.accepts(&system, driven.now, &input));
}

/// If an epoch withdraws and admits, the room of the one counts for the other.
#[test]
fn epochs_withdraw_before_they_admit_and_skip_what_does_not_fit() {
    let text = "name = 'standby'\nduration = '60s'\n[processor.one]\nhard_cap = '100%'\n\
        [feedback.one]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
        [operation.first]\nstandby = true\nevery = ['20ms', '25ms']\nwcet = '10ms'\n\
        [operation.second]\nstandby = true\nevery = ['20ms', '25ms']\nwcet = '10ms'\n\
        [[epoch]]\nat = '10s'\nadmit = ['first', 'second']\n\
        [[epoch]]\nat = '20s'\nwithdraw = ['first']\nadmit = ['second']\n";
    let system = read(text, "standby.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
    let mut driven = Driven::new(&system, &plan);
    driven.run(Span::from_secs(30));
    let found: Vec<_> = driven
        .dispatcher
        .probe()
        .0
        .iter()
        .filter_map(|(at, event)| match event {
            TraceEvent::Decision(DispatchDecision::Admission { operation, outcome }) => {
                Some((at.as_nanos() / 1_000_000_000, operation.0, *outcome))
            }
            _ => None,
        })
        .collect();
    let period = Span::from_millis(25);
    let admitted = AdmissionOutcome::Admitted { period, highest: false };
    let excess = ExcessLoad { least_ppm: 800_000, most_ppm: 600_000 };
    let refused = AdmissionOutcome::Refused(AdmissionRefusal::Load(excess));
    assert_eq!(found, [(10, 0, admitted), (10, 1, refused), (20, 0, AdmissionOutcome::Withdrawn), (20, 1, admitted)]);
    let first = driven.dispatcher.probe().0.iter().find_map(|(_, event)| match event {
        TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) => Some((job.operation.0, *release)),
        _ => None,
    });
    assert_eq!(first, Some((0, Instant::ZERO + Span::from_secs(10))), "its first period begins with the epoch");
}
