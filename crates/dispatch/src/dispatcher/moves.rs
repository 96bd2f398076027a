//! Operations with several processors: they release jobs on one of them, and move when their processor is saturated
//! (see [`hyoshi_control::feedback::reallocation`]).
//!
//! ```text
//!            Depart                  last job has ended                Arrive, on the other processor
//!   Here ──────────────► Departing ─────────────────────► Away ──────────────────────────────────────► Here
//! ```
//!
//! If its jobs do not end, it stays (`Stay`). Numbers and release times of jobs continue. On arrival, the operation
//! releases the jobs that were due during the move. Only jobs beyond its queue's limit are dropped.

use hyoshi_control::feedback::{AdaptiveTask, ProcessorLoad};
use hyoshi_model::{Instant, OperationId, at_level};
use hyoshi_trace::Probe;

use super::Dispatcher;
use crate::effects::{DepartedOperation, Effects};
use crate::operation::{OperationState, Residence};

/// Whether an operation that may be [elsewhere or on standby](Residence) releases jobs on this processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Here,
    /// Earlier jobs have not ended.
    Departing,
    Away,
}

impl<P: Probe> Dispatcher<P> {
    /// Whether an operation can leave this processor.
    pub(super) fn may_depart(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| {
            let one = &self.operations[local as usize];
            one.residence == Residence::Movable && one.presence == Presence::Here
        })
    }

    /// Whether an operation leaves, but its jobs have not ended.
    pub(super) fn may_stay(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| {
            let one = &self.operations[local as usize];
            one.residence == Residence::Movable && one.presence == Presence::Departing
        })
    }

    /// Whether an operation can arrive at this processor.
    pub(super) fn may_arrive(&self, id: OperationId) -> bool {
        self.local(id).is_some_and(|local| {
            let one = &self.operations[local as usize];
            one.residence == Residence::Movable && one.presence == Presence::Away
        })
    }

    pub(super) fn depart(&mut self, now: Instant, id: OperationId, effects: &mut Effects) {
        self.advance_before(now, effects);
        let Some(local) = self.local(id).filter(|_| self.may_depart(id)) else { return };
        self.operations[local as usize].presence = Presence::Departing;
        self.departing += 1;
    }

    pub(super) fn stay(&mut self, now: Instant, id: OperationId, effects: &mut Effects) {
        self.advance_before(now, effects);
        let Some(local) = self.local(id).filter(|_| self.may_stay(id)) else { return };
        self.departing -= 1;
        self.is_here(local);
    }

    /// The operation releases jobs here from now on.
    pub(super) fn is_here(&mut self, local: u32) {
        let one = &mut self.operations[local as usize];
        one.presence = Presence::Here;
        if !core::mem::replace(&mut one.timer_is_set, true) {
            let due = one.next_due(self.seed, &self.late);
            self.arrivals.set(due, local);
        }
    }

    /// If the last job of a departing operation has ended, the operation is away.
    #[cold]
    pub(super) fn finish_departures(&mut self, effects: &mut Effects) {
        for local in 0..self.operations.len() as u32 {
            let one = &mut self.operations[local as usize];
            let (departing, ended) = (one.presence == Presence::Departing, one.unfinished == 0);
            match one.residence {
                Residence::Movable if departing && ended => {
                    one.presence = Presence::Away;
                    self.departing -= 1;
                    effects.departed.push(DepartedOperation {
                        operation: one.id,
                        nominal: one.nominal,
                        number: one.next_number,
                    });
                }
                Residence::Standby { root } if root == local && departing && ended => self.finish_withdrawal(root),
                _ => {}
            }
        }
    }

    pub(super) fn arrive(
        &mut self,
        now: Instant,
        (id, nominal, number): (OperationId, Instant, u64),
        effects: &mut Effects,
    ) {
        self.advance_before(now, effects);
        let Some(local) = self.local(id).filter(|_| self.may_arrive(id)) else { return };
        let one = &mut self.operations[local as usize];
        (one.nominal, one.next_number) = (nominal, number);
        // It begins at its lowest level; its rate was the lowest.
        one.service_level = 0;
        one.owes_skip = None;
        self.is_here(local);
    }

    /// Corrects the first timer, of an operation that may be away. False if it releases nothing now.
    pub(super) fn is_due(&mut self, due: Instant, local: u32) -> bool {
        let one = &mut self.operations[local as usize];
        if one.presence != Presence::Here {
            one.timer_is_set = false;
            self.arrivals.remove_first();
            return false;
        }
        // The timer of an earlier stay.
        let exact = one.next_due(self.seed, &self.late);
        if due < exact {
            self.arrivals.replace_first(exact);
        }
        due >= exact
    }

    /// The utilisation of an operation here at its lowest rate and level, as a part of the CPU, by the measured
    /// execution times of its latest jobs. `None` if it runs none, or if too few have ended.
    pub fn expected_utilisation(&self, id: OperationId) -> Option<f64> {
        let local = self.local(id)? as usize;
        let operation = Some(&self.operations[local]).filter(|operation| operation.is_active())?;
        let ratio = self.feedback.as_ref()?.times[local].ratio()?;
        Some(ratio * operation.declared_utilisation(true))
    }

    /// The load of this processor in the sampling period that has just ended. `None` if it was not measured, or if the
    /// processor has no loop with a law of its own.
    pub fn load(&self) -> Option<ProcessorLoad> {
        let feedback = self.feedback.as_ref()?;
        let (law, measured) = (feedback.law.as_ref()?, feedback.measured?);
        let (cap, set_point) = (feedback.cap, law.law().settings().utilisation.as_millionths());
        let of_loop = |local: usize| feedback.adapted.iter().any(|one| one.here.contains(&(local as u32)));
        let others = self
            .operations
            .iter()
            .enumerate()
            .filter(|(local, one)| one.is_active() && !of_loop(*local) && !feedback.clients.serve(one.id));
        let others: f64 = others.map(|(_, one)| one.declared_utilisation(false)).sum();
        Some(ProcessorLoad {
            utilisation: f64::from(measured) / 1e6 * cap,
            most: cap,
            set_point: set_point as f64 / 1e6 * cap,
            declared: others + feedback.before,
            least: others + law.tasks().iter().map(AdaptiveTask::least).sum::<f64>(),
        })
    }
}

impl OperationState {
    /// Whether it releases jobs here, in the present epoch.
    pub fn is_active(&self) -> bool {
        self.enabled && self.presence == Presence::Here
    }

    /// The declared utilisation at the present rate and level, or at the lowest ones.
    pub fn declared_utilisation(&self, at_lowest: bool) -> f64 {
        let (level, period) =
            if at_lowest { (0, self.range.1.max(self.period)) } else { (self.service_level, self.period) };
        let wcet = at_level(&self.levels, level.into(), self.wcet);
        let work = wcet.as_nanos() as f64 * f64::from(self.legs);
        work / period.as_nanos().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use alloc::rc::Rc;
    use alloc::vec::Vec;
    use core::cell::RefCell;

    use hyoshi_model::{JobId, Span, System};
    use hyoshi_sched::{Plan, Strategies};
    use hyoshi_trace::{DispatchDecision, Input, Slot, TraceEvent};
    use proptest::prelude::*;

    use super::*;

    /// The jobs that became ready, with their releases.
    #[derive(Clone, Debug, Default)]
    struct Releases(Rc<RefCell<Vec<(JobId, Instant)>>>);

    impl Probe for Releases {
        fn event(&mut self, _: Instant, event: TraceEvent) {
            if let TraceEvent::Decision(DispatchDecision::Ready { job, release, .. }) = event {
                self.0.borrow_mut().push((job, release));
            }
        }
    }

    const PERIOD: Span = Span::from_millis(10);

    fn system(jitter: u64) -> System {
        let text = alloc::format!(
            "name = 'moves'\nduration = '60s'\n[processor.one]\n[processor.two]\n\
            [feedback.one]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
            [feedback.two]\nalgorithm = 'FC-U'\nutilisation = '60%'\n\
            [operation.track]\non = ['one', 'two']\nrate = '100Hz'\nwcet = '1ms'\njitter = '{jitter}ms'\n\
            queue = {{ limit = 1000 }}\n\
            [operation.own]\non = 'one'\nrate = ['1Hz', '2Hz']\nwcet = '1us'\nenabled = false\n\
            [operation.its]\non = 'two'\nrate = ['1Hz', '2Hz']\nwcet = '1us'\nenabled = false\n"
        );
        hyoshi_model::read(&text, "moves.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
    }

    /// One processor. Each job needs `length` steps.
    struct Driven {
        dispatcher: Dispatcher<Releases>,
        effects: Effects,
        running: Option<(Slot, u64)>,
    }

    impl Driven {
        fn handle(&mut self, now: Instant, input: Input) {
            self.dispatcher.handle(now, input, &mut self.effects);
        }

        fn step(&mut self, now: Instant, length: u64) {
            while self.effects.timer <= now {
                self.handle(now, Input::Tick);
            }
            self.running = self.running.map(|(slot, left)| (slot, left.saturating_sub(1)));
            if let Some((slot, 0)) = self.running {
                let consumed = Span::from_millis(1);
                self.handle(now, Input::Complete { slot, consumed, ticket: None });
                self.running = None;
            }
            for lane in self.effects.startable.iter() {
                self.handle(now, Input::LaneRuns { lane, executed: Span::ZERO });
                self.running = self.effects.run.map(|run| (run.slot, length)).or(self.running);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whenever it moves, it has each job once, in order, and on one processor at a time.
        #[test]
        fn moves_lose_and_repeat_no_job(
            departures in prop::collection::vec(0u64..40, 1..20),
            lengths in prop::collection::vec(1u64..30, 1..10),
            delays in prop::collection::vec(0u64..60, 1..5),
            jitter in 0u64..8,
        ) {
            let system = system(jitter);
            let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
            let releases = Releases::default();
            let mut both: Vec<Driven> = plan
                .processors
                .iter()
                .map(|plan| {
                    let dispatcher = Dispatcher::new(&system, plan, releases.clone());
                    let effects = dispatcher.effects();
                    Driven { dispatcher, effects, running: None }
                })
                .collect();
            let places = system.movable().remove(0);
            let mut departures: Vec<u64> = departures;
            let mut waits = departures.pop().unwrap();
            let (mut on_the_way, mut moves) = (None, 0);
            let mut step = 0;
            let at = |step: u64| Instant::ZERO + Span::from_millis(step);
            while step < 2_000 {
                step += 1;
                let now = at(step);
                let length = lengths[step as usize % lengths.len()];
                both.iter_mut().for_each(|one| one.step(now, length));
                waits = waits.saturating_sub(1);
                for (one, id) in both.iter_mut().zip(&places) {
                    let input = Input::Stay { operation: *id };
                    if step % 37 == 0 && one.dispatcher.accepts(&system, now, &input) {
                        one.handle(now, input);
                    }
                    let input = Input::Depart { operation: *id };
                    if waits == 0 && one.dispatcher.accepts(&system, now, &input) {
                        one.handle(now, input);
                        waits = departures.pop().unwrap_or(u64::MAX);
                    }
                }
                for place in 0..2 {
                    if let Some(departure) = both[place].effects.departed.pop() {
                        prop_assert!(both[place].running.is_none());
                        prop_assert_eq!(departure.operation, places[place]);
                        on_the_way = Some((step + delays[moves % delays.len()], 1 - place, departure));
                        moves += 1;
                    }
                }
                if let Some((due, place, DepartedOperation { nominal, number, .. })) = on_the_way
                    && due <= step
                {
                    let (operation, from) = (places[place], places[1 - place]);
                    let input = Input::Arrive { operation, from, nominal, number };
                    prop_assert!(both[place].dispatcher.accepts(&system, now, &input));
                    both[place].handle(now, input);
                    on_the_way = None;
                }
                prop_assert!(both.iter().filter(|one| one.running.is_some()).count() <= 1);
            }
            let releases = releases.0.borrow();
            for (number, (job, release)) in releases.iter().enumerate() {
                prop_assert_eq!(job.number, number as u64);
                prop_assert_eq!(*release, Instant::ZERO + Span::from_nanos(PERIOD.as_nanos() * number as u64));
            }
            let moving = both.iter().any(|one| one.dispatcher.departing > 0) || on_the_way.is_some();
            prop_assert!(moving || releases.len() >= 199, "{} of 200", releases.len());
        }
    }

    #[test]
    fn the_load_is_a_part_of_the_cpu_by_the_latest_jobs() {
        let system = system(0);
        let system = system.with(|system| system.processors[0].hard_cap.ppm = 500_000);
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let mut dispatcher = Dispatcher::new(&system, &plan.processors[0], hyoshi_trace::NoProbe);
        let track = system.movable()[0][0];
        assert_eq!((dispatcher.load(), dispatcher.expected_utilisation(track)), (None, None));
        let times = &mut dispatcher.feedback.as_mut().unwrap().times;
        let local = dispatcher.local_of[track.index()] as usize;
        // Declared: 1 ms at 100 Hz.
        (0..1_000).for_each(|_| times[local].count(Span::from_micros(500), Span::from_millis(1)));
        assert_eq!(dispatcher.expected_utilisation(track), Some(0.05));
        let times = &mut dispatcher.feedback.as_mut().unwrap().times;
        (0..200).for_each(|_| times[local].count(Span::from_millis(2), Span::from_millis(1)));
        assert!((dispatcher.expected_utilisation(track).unwrap() - 0.2).abs() < 0.01);
        let mut effects = dispatcher.effects();
        dispatcher.handle(Instant::ZERO, Input::Sample { utilisation: Some(800_000) }, &mut effects);
        let load = dispatcher.load().unwrap();
        assert!((load.utilisation - 0.4).abs() < 1e-9 && (load.set_point - 0.3).abs() < 1e-9, "{load:?}");
        assert!((load.most, load.declared < 0.11, load.declared >= load.least) == (0.5, true, true), "{load:?}");
        dispatcher.handle(Instant::ZERO, Input::Depart { operation: track }, &mut effects);
        assert_eq!(dispatcher.expected_utilisation(track), None);
        assert!(dispatcher.load().unwrap().declared < 0.01);
    }

    #[test]
    fn only_an_operation_with_several_processors_moves() {
        let system = system(0);
        let plan = Plan::new(&system, &Strategies::built_in()).unwrap();
        let [one, two] = [0, 1].map(|at| Dispatcher::new(&system, &plan.processors[at], hyoshi_trace::NoProbe));
        let id = |name: &str| system.operation_ids().find(|id| system.operation(*id).name == name).unwrap();
        let departs =
            |at: &Dispatcher<_>, name| at.accepts(&system, Instant::ZERO, &Input::Depart { operation: id(name) });
        assert_eq!(["track", "track@two", "own", "its"].map(|name| departs(&one, name)), [true, false, false, false]);
        assert!(!departs(&two, "track@two"));
        let arrives = |at: &Dispatcher<_>, name, from| {
            let (operation, nominal, number) = (id(name), Instant::ZERO, 0);
            let from = id(from);
            at.accepts(&system, Instant::ZERO, &Input::Arrive { operation, from, nominal, number })
        };
        let of_track = |name| arrives(&two, name, "track");
        assert_eq!(["track", "track@two", "its"].map(of_track), [false, true, false]);
        assert_eq!(["track@two", "own"].map(|from| arrives(&two, "track@two", from)), [true, false]);
    }
}
