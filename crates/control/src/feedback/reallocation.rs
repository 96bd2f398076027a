//! Moves operations from a saturated processor to another one of its host.
//!
//! If a processor is above its loop's set point at the lowest rates and levels, it is *saturated*: the loop cannot lower
//! the load further. [`Reallocator`] then selects an operation that fits on another processor. If `on` names that
//! processor, the operation moves; otherwise the move is proposed.
//!
//! ```text
//!            sample of its processor                       last job here has ended
//!  Here ───────────────────────────────────► Departing ───────────────────────────► Here, at the other processor
//!   ▲ saturated for 5 samples, room elsewhere  │          its next release is there
//!   └──────────────────────────────────────────┘
//!        its jobs do not end within 8 samples
//! ```
//!
//! The load of the other processor is estimated at its lowest rates, because its loop can lower them. The estimate is
//! `U least / declared`: it assumes one ratio of actual to declared execution times for all its jobs.

use alloc::vec;
use alloc::vec::Vec;

use hyoshi_model::{Contents, FeedbackLoop, HostId, OperationId, ProcessorId};

/// The load of a processor in one sampling period. All are parts of its CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorLoad {
    /// The measured utilisation.
    pub utilisation: f64,
    /// The greatest utilisation: the hard cap.
    pub most: f64,
    /// The loop's set point.
    pub set_point: f64,
    /// The declared utilisation at the present rates and levels.
    pub declared: f64,
    /// The declared utilisation at the lowest rates and levels.
    pub least: f64,
}

impl ProcessorLoad {
    /// Whether the utilisation exceeds the set point by more than 2 % of the set point, or by more than half of what is
    /// left up to the hard cap.
    fn is_above(&self) -> bool {
        self.utilisation > (self.set_point * 1.02).min(f64::midpoint(self.set_point, self.most))
    }

    /// Whether it is above at the lowest rates and levels.
    fn is_saturated(&self) -> bool {
        self.declared <= self.least * (1.0 + 1e-6) && self.is_above()
    }

    /// The free utilisation at the lowest rates and levels, less 5 % of the set point as a margin. While the processor is
    /// above its set point there is none: its demand may exceed what was measured.
    fn room(&self) -> f64 {
        if self.is_above() {
            return f64::NEG_INFINITY;
        }
        let ratio = if self.declared > 0.0 { self.least / self.declared } else { 1.0 };
        self.set_point * 0.95 - self.utilisation * ratio.min(1.0)
    }
}

/// An operation that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reallocation {
    /// The operation at its present processor.
    pub from: OperationId,
    /// The same operation at the new one.
    pub to: OperationId,
}

/// A decision about one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveOrder {
    /// It must leave the processor that has sampled.
    Depart(Reallocation),
    /// It stays on that processor, because its jobs there do not end.
    Stay(OperationId),
}

/// A move that the file does not permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProposedMove {
    /// The saturated processor.
    pub from: ProcessorId,
    /// An operation on it.
    pub operation: OperationId,
    /// A processor with room for the operation.
    pub to: ProcessorId,
    /// The expected utilisation of the operation at its lowest rate and level, as a part of the CPU.
    pub utilisation: f64,
    /// The measured utilisation of the saturated processor, as a part of the CPU.
    pub measured: f64,
}

/// Decides on moves. It has no clock: it counts samples.
#[derive(Clone, Debug)]
pub struct Reallocator {
    /// By processor.
    loads: Vec<Measured>,
    operations: Vec<PlacedOperation>,
    /// By processor.
    hosts: Vec<HostId>,
    /// By processor: the latest proposal.
    proposals: Vec<Option<ProposedMove>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    /// `None` if the last sample was not measured.
    load: Option<ProcessorLoad>,
    /// Samples in sequence in which it was saturated.
    saturated: u32,
    /// Samples that do not count: they do not show the whole load of an operation that has just arrived.
    settling: u32,
}

/// An operation that may move, or would if the file permitted it.
#[derive(Clone, Debug)]
struct PlacedOperation {
    /// The processors, and the operation there.
    places: Vec<(ProcessorId, OperationId)>,
    at: usize,
    permitted: bool,
    state: MoveState,
    /// Samples of its processor since the last move, and the least number of them before the next one.
    since: u64,
    pause: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MoveState {
    Here,
    /// Its jobs at an earlier place have not ended, for this number of samples there.
    Departing(usize, u32),
    OnTheWay,
}

/// Samples after which an operation with unfinished jobs stays.
const PATIENCE: u32 = 8;

/// A processor above its set point in this number of samples in sequence is saturated.
const SATURATED: u32 = 5;

/// The first samples after an arrival do not count.
const SETTLING: u32 = 2;

impl PlacedOperation {
    /// Samples after a move before the next one. If an operation moves again within [`Self::SOON`] samples, or within
    /// twice its pause, the pause doubles, up to [`Self::MOST`]: the loads differ from what was expected.
    const FIRST: u64 = 8;
    const MOST: u64 = 512;
    const SOON: u64 = 128;

    fn is_at(&self, processor: ProcessorId) -> bool {
        self.places[self.at].0 == processor
    }

    fn move_to(&mut self, place: usize) -> Reallocation {
        let soon = self.pause > 0 && self.since < Self::SOON.max(2 * self.pause);
        self.pause = if soon { (2 * self.pause).min(Self::MOST) } else { Self::FIRST };
        let from = self.places[self.at].1;
        self.state = MoveState::Departing(self.at, 0);
        (self.at, self.since) = (place, 0);
        Reallocation { from, to: self.places[place].1 }
    }

    /// A sample of a processor. Returns the operation if it has not left that processor in time.
    fn gives_up(&mut self, processor: ProcessorId) -> Option<OperationId> {
        let MoveState::Departing(from, samples) = &mut self.state else { return None };
        *samples += u32::from(self.places[*from].0 == processor);
        let from = (*samples >= PATIENCE).then_some(*from)?;
        (self.at, self.since, self.state) = (from, 0, MoveState::Here);
        Some(self.places[from].1)
    }
}

/// A possible move: its operation and place, the operation's utilisation, and the remaining room.
type Candidate = (usize, usize, f64, f64);

impl Reallocator {
    /// `None` if no operation could move: at least two processors of a host need loops with a set point of their own.
    pub fn of(contents: &Contents) -> Option<Reallocator> {
        let loops = || contents.feedback.iter().filter(|one| moves_operations(one));
        let host = |id: ProcessorId| contents.processor(id).host;
        let of_host = |at: ProcessorId| loops().map(|one| one.processor).filter(move |other| host(*other) == host(at));
        let new = |places: Vec<(ProcessorId, OperationId)>, permitted| PlacedOperation {
            places,
            at: 0,
            permitted,
            state: MoveState::Here,
            since: 0,
            pause: 0,
        };
        let (movable, obstacles) = (contents.movable(), contents.obstacles_to_moves());
        let mut operations: Vec<_> = movable
            .iter()
            .map(|places| new(places.iter().map(|id| (contents.operation(*id).on, *id)).collect(), true))
            .collect();
        for id in (0..contents.operations.len() as u32).map(OperationId) {
            let own = contents.operation(id).on;
            if contents.moves(id) || obstacles[id.index()].is_some() || !loops().any(|one| one.processor == own) {
                continue;
            }
            let others = of_host(own).filter(|other| *other != own);
            let places: Vec<_> = core::iter::once(own).chain(others).map(|processor| (processor, id)).collect();
            if places.len() > 1 {
                operations.push(new(places, false));
            }
        }
        let count = contents.processors.len();
        let loads = vec![Measured::default(); count];
        let hosts = contents.processors.iter().map(|one| one.host).collect();
        (!operations.is_empty()).then(|| Reallocator { loads, operations, hosts, proposals: vec![None; count] })
    }

    /// A processor has sampled. `expected` returns the utilisation of an operation there at its lowest rate and level,
    /// as a part of the CPU; `None` if it runs no jobs, or if too few have ended.
    pub fn sample(
        &mut self,
        processor: ProcessorId,
        load: Option<ProcessorLoad>,
        expected: impl Fn(OperationId) -> Option<f64>,
    ) -> Option<MoveOrder> {
        for one in self.operations.iter_mut().filter(|one| one.is_at(processor)) {
            one.since = one.since.saturating_add(1);
        }
        let measured = &mut self.loads[processor.index()];
        let load = load.filter(|_| measured.settling == 0);
        measured.settling = measured.settling.saturating_sub(1);
        let is_saturated = load.is_some_and(|load| load.is_saturated());
        (measured.load, measured.saturated) = (load, if is_saturated { measured.saturated + 1 } else { 0 });
        let saturated = measured.saturated;
        let movers = self.operations.iter_mut().enumerate();
        let stays = movers.filter_map(|(position, one)| Some((position, one.gives_up(processor)?))).next();
        if let Some((position, id)) = stays {
            // Its jobs that were due meanwhile are released now. The other processor counts again.
            self.settle(position);
            let places = &self.operations[position].places;
            places.iter().for_each(|(other, _)| self.loads[other.index()].settling = SETTLING);
            return Some(MoveOrder::Stay(id));
        }
        if self.is_moving(self.hosts[processor.index()]) {
            // The samples before an arrival include jobs of the operation that leaves.
            self.loads[processor.index()].saturated = 0;
            return None;
        }
        let load = load.filter(|_| saturated >= SATURATED)?;
        let candidates = |permitted: bool| {
            let may = |one: &PlacedOperation| one.permitted == permitted && one.since >= one.pause;
            let here = self.operations.iter().enumerate().filter(|(_, one)| one.is_at(processor) && may(one));
            let all = here.filter_map(|(position, one)| {
                let utilisation = expected(one.places[one.at].1)?;
                let best = one.places.iter().enumerate().filter(|(place, _)| *place != one.at);
                let best = best.filter_map(|(place, (to, _))| {
                    let room = self.loads[to.index()].load?.room() - utilisation;
                    (room >= 0.0).then_some((position, place, utilisation, room))
                });
                best.max_by(|one, other| one.3.total_cmp(&other.3))
            });
            best_of(all, load.utilisation - load.set_point)
        };
        if let Some((position, place, ..)) = candidates(true) {
            let moved = self.operations[position].move_to(place);
            self.loads[processor.index()].saturated = 0;
            self.settle(position);
            return Some(MoveOrder::Depart(moved));
        }
        if let Some((position, place, utilisation, _)) = candidates(false) {
            let (to, operation) = self.operations[position].places[place];
            let measured = load.utilisation;
            self.proposals[processor.index()] =
                Some(ProposedMove { from: processor, operation, to, utilisation, measured });
        }
        None
    }

    /// Whether an operation of a host is on its way.
    fn is_moving(&self, host: HostId) -> bool {
        let is_of = |one: &PlacedOperation| self.hosts[one.places[one.at].0.index()] == host;
        self.operations.iter().any(|one| one.state != MoveState::Here && is_of(one))
    }

    /// The last job of an operation on its old processor has ended. Returns the same operation on its new processor;
    /// `None` if it does not move.
    pub fn departed(&mut self, from: OperationId) -> Option<OperationId> {
        let is_of =
            |one: &&mut PlacedOperation| matches!(one.state, MoveState::Departing(at, _) if one.places[at].1 == from);
        let one = self.operations.iter_mut().find(is_of)?;
        one.state = MoveState::OnTheWay;
        Some(one.places[one.at].1)
    }

    /// An operation has arrived at its new processor.
    pub fn arrived(&mut self, at: OperationId) {
        let arrives = |one: &&mut PlacedOperation| one.state == MoveState::OnTheWay && one.places[one.at].1 == at;
        let Some(position) = self.operations.iter_mut().position(|one| arrives(&one)) else { return };
        self.operations[position].state = MoveState::Here;
        self.settle(position);
    }

    /// Ignores samples of the new processor until the operation has arrived, and the first [`SETTLING`] ones after that.
    fn settle(&mut self, position: usize) {
        let one = &self.operations[position];
        let settling = if one.state == MoveState::Here { SETTLING } else { u32::MAX };
        self.loads[one.places[one.at].0.index()] = Measured { settling, ..Measured::default() };
    }

    /// The latest proposal of each saturated processor.
    pub fn proposals(&self) -> impl Iterator<Item = &ProposedMove> {
        self.proposals.iter().flatten()
    }
}

/// Whether operations can move to and from a loop's processor: the loop has a set point of the utilisation, and its own
/// law.
pub fn moves_operations(one: &FeedbackLoop) -> bool {
    one.algorithm.uses_utilisation() && !one.algorithm.is_of_group()
}

/// The smallest operation that removes the excess, or else the largest one. Of equal ones the first.
fn best_of(all: impl Iterator<Item = Candidate>, excess: f64) -> Option<Candidate> {
    all.reduce(|best, one| {
        let better = match (best.2 >= excess, one.2 >= excess) {
            (true, true) => one.2 < best.2,
            (false, false) => one.2 > best.2,
            (is_enough, _) => !is_enough,
        };
        if better { one } else { best }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;
    use proptest::prelude::*;

    /// Processors with a set point of 60 % and operations with one rate; `(processor, permitted)` of each.
    fn contents(processors: usize, operations: &[(usize, bool)]) -> hyoshi_model::System {
        let mut text = String::from("name = 'moves'\nduration = '1s'\n");
        for one in 0..processors {
            text += &format!("[processor.p{one}]\n[feedback.p{one}]\nalgorithm = 'FC-U'\nutilisation = '60%'\n");
            text += &format!("[operation.own{one}]\non = 'p{one}'\nrate = ['1Hz', '2Hz']\nwcet = '1us'\n");
        }
        for (number, (at, permitted)) in operations.iter().enumerate() {
            let rest = (0..processors).filter(|one| one != at && *permitted).map(|one| format!(", 'p{one}'"));
            let places: String = core::iter::once(format!("'p{at}'")).chain(rest).collect();
            text += &format!("[operation.o{number}]\non = [{places}]\nrate = ['1Hz', '1.001Hz']\nwcet = '1us'\n");
        }
        hyoshi_model::read(&text, "moves.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
    }

    /// A processor at its lowest rates, with a set point of 60 %.
    fn lowest(utilisation: f64) -> ProcessorLoad {
        ProcessorLoad { utilisation, most: 1.0, set_point: 0.6, declared: 0.2, least: 0.2 }
    }

    /// Processors at their lowest rates, and operations with constant loads.
    struct Plant {
        system: hyoshi_model::System,
        law: Reallocator,
        /// The load of each operation of the system, on any processor.
        loads: Vec<f64>,
        at: Vec<ProcessorId>,
        moves: usize,
    }

    impl Plant {
        fn new(own: &[f64], operations: &[(usize, f64)], permitted: bool) -> Plant {
            let places: Vec<_> = operations.iter().map(|(at, _)| (*at, permitted)).collect();
            let system = contents(own.len(), &places);
            let mut loads = vec![0.0; system.operations.len()];
            for (one, operation) in loads.iter_mut().zip(&system.operations) {
                let name = operation.name.split('@').next().unwrap();
                let number = |prefix| name.strip_prefix(prefix).map(|number| number.parse::<usize>().unwrap());
                *one = number("own").map_or_else(|| operations[number("o").unwrap()].1, |at| own[at]);
            }
            let at = system.operations.iter().map(|one| one.on).collect();
            let law = Reallocator::of(&system).unwrap();
            Plant { system, law, loads, at, moves: 0 }
        }

        fn utilisation(&self, processor: ProcessorId) -> f64 {
            let present = self.system.operations.iter().zip(&self.loads).zip(&self.at);
            let here = present.filter(|((one, _), at)| one.home.is_none() && **at == processor);
            here.map(|((_, load), _)| load).sum()
        }

        fn run(&mut self, samples: usize) {
            for _ in 0..samples {
                for processor in (0..self.system.processors.len() as u32).map(ProcessorId) {
                    let load = lowest(self.utilisation(processor));
                    let expected = |id: OperationId| Some(self.loads[id.index()]);
                    let Some(MoveOrder::Depart(moved)) = self.law.sample(processor, Some(load), expected) else {
                        continue;
                    };
                    assert_eq!(self.system.operation(moved.from).on, processor);
                    let home = |id: OperationId| self.system.operation(id).home.unwrap_or(id);
                    assert_eq!(home(moved.from), home(moved.to));
                    self.at[home(moved.to).index()] = self.system.operation(moved.to).on;
                    assert_eq!(self.law.departed(moved.from), Some(moved.to));
                    self.law.arrived(moved.to);
                    self.moves += 1;
                }
            }
        }
    }

    #[test]
    fn the_smallest_sufficient_operation_moves_after_five_samples() {
        let mut plant = Plant::new(&[0.3, 0.1], &[(0, 0.3), (0, 0.15), (0, 0.05)], true);
        plant.run(4);
        assert_eq!(plant.moves, 0);
        plant.run(100);
        assert_eq!(plant.moves, 1);
        let loads = [0, 1].map(|one| (plant.utilisation(ProcessorId(one)) * 100.0).round());
        // 80 % less 30 %: 15 % would not have been enough.
        assert_eq!(loads, [50.0, 40.0]);
    }

    #[test]
    fn a_move_that_the_file_does_not_permit_is_proposed() {
        let mut plant = Plant::new(&[0.05, 0.05], &[(0, 0.35), (0, 0.3)], false);
        plant.run(20);
        assert_eq!(plant.moves, 0);
        let proposals: Vec<_> = plant.law.proposals().collect();
        let [proposed] = proposals[..] else { panic!("{proposals:?}") };
        assert_eq!((proposed.from, proposed.to, proposed.utilisation), (ProcessorId(0), ProcessorId(1), 0.3));
        assert_eq!(plant.system.operation(proposed.operation).name, "o1");
    }

    #[test]
    fn a_processor_with_high_rates_has_the_room_of_its_lowest_rates() {
        let load = |utilisation, declared| ProcessorLoad { declared, ..lowest(utilisation) };
        assert!((load(0.6, 0.8).room() - (0.57 - 0.15)).abs() < 1e-9);
        assert!(load(0.6, 0.2).room() < 0.0);
        assert!(!load(0.6, 0.8).is_saturated() && !load(0.9, 0.8).is_saturated() && load(0.9, 0.2).is_saturated());
        // Its demand may be greater than the whole CPU.
        assert_eq!(load(1.0, 0.8).room(), f64::NEG_INFINITY);
        // A set point close to the hard cap.
        let full = |utilisation| ProcessorLoad { set_point: 0.9, most: 0.91, ..lowest(utilisation) };
        assert!(!full(0.9).is_saturated() && full(0.91).is_saturated());
    }

    #[test]
    fn an_operation_that_saturates_each_processor_moves_less_and_less_often() {
        let system = contents(2, &[(0, true)]);
        let mut law = Reallocator::of(&system).unwrap();
        let mut moves = 0;
        for _ in 0..10_000 {
            for processor in [0, 1].map(ProcessorId) {
                // Whatever processor it is on is saturated, and the other one is empty.
                let is_here = law.operations[0].is_at(processor);
                let load = lowest(if is_here { 0.9 } else { 0.0 });
                if let Some(MoveOrder::Depart(moved)) = law.sample(processor, Some(load), |_| Some(0.1)) {
                    law.departed(moved.from);
                    law.arrived(moved.to);
                    moves += 1;
                }
            }
        }
        assert!((10..=30).contains(&moves), "{moves}");
    }

    #[test]
    fn an_operation_whose_jobs_do_not_end_stays_and_later_moves_go_on() {
        let system = contents(3, &[(0, true), (0, true)]);
        let mut law = Reallocator::of(&system).unwrap();
        let mut orders = Vec::new();
        for sample in 0..60 {
            for (processor, utilisation) in [(0, 0.9), (1, 0.1), (2, 0.1)] {
                let order = law.sample(ProcessorId(processor), Some(lowest(utilisation)), |_| Some(0.3));
                orders.extend(order.map(|order| (sample, order)));
            }
        }
        let MoveOrder::Depart(first) = orders[0].1 else { panic!("{orders:?}") };
        assert_eq!(orders[1], (orders[0].0 + PATIENCE as usize, MoveOrder::Stay(first.from)));
        // The other operation is the next.
        assert!(matches!(orders[2].1, MoveOrder::Depart(second) if second.from != first.from), "{orders:?}");
        assert_eq!(law.departed(OperationId(0)), None);
    }

    /// Until the arrival, samples include the jobs of the operation that leaves.
    #[test]
    fn after_a_slow_departure_no_second_operation_follows() {
        let system = contents(3, &[(0, true), (0, true)]);
        let mut law = Reallocator::of(&system).unwrap();
        let mut moved = None;
        for sample in 0..20u32 {
            let load = if moved.is_some_and(|at| sample > at + 6) { 0.5 } else { 0.9 };
            for (processor, utilisation) in [(0, load), (1, 0.1), (2, 0.1)] {
                match law.sample(ProcessorId(processor), Some(lowest(utilisation)), |_| Some(0.4)) {
                    Some(MoveOrder::Depart(_)) if moved.is_none() => moved = Some(sample),
                    None => {}
                    Some(order) => panic!("{order:?} after the move in sample {moved:?}"),
                }
            }
            if moved == Some(sample.saturating_sub(6)) {
                let places = system.movable().concat();
                let to = places.into_iter().find_map(|from| law.departed(from));
                to.into_iter().for_each(|to| law.arrived(to));
            }
        }
        assert!(moved.is_some());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// With constant loads each operation moves at most once, no move saturates another processor, and in the end no
        /// move would help.
        #[test]
        fn moves_end_and_saturate_no_processor(
            own in prop::collection::vec(0.0f64..0.9, 2..5),
            operations in prop::collection::vec((0usize..8, 0.01f64..0.5), 1..8),
        ) {
            let operations: Vec<_> = operations.into_iter().map(|(at, load)| (at % own.len(), load)).collect();
            let mut plant = Plant::new(&own, &operations, true);
            let processors: Vec<_> = (0..own.len() as u32).map(ProcessorId).collect();
            let before: Vec<f64> = processors.iter().map(|one| plant.utilisation(*one)).collect();
            plant.run(400);
            let settled = plant.moves;
            prop_assert!(settled <= operations.len());
            plant.run(600);
            prop_assert_eq!(plant.moves, settled);
            for (processor, before) in processors.iter().zip(before) {
                let now = plant.utilisation(*processor);
                prop_assert!(now <= before.max(0.6 * 0.95) + 1e-9, "{now} after {before}");
                if now <= 0.6 * 1.02 + 1e-9 {
                    continue;
                }
                let movable = plant.system.movable();
                for places in &movable {
                    if plant.at[places[0].index()] != *processor {
                        continue;
                    }
                    let load = plant.loads[places[0].index()];
                    let fits = |to: &&ProcessorId| *to != processor && plant.utilisation(**to) + load < 0.57 - 1e-9;
                    prop_assert!(processors.iter().find(fits).is_none(), "{load} could move from {now}");
                }
            }
        }

        /// Whatever is measured, an operation has a pause between two moves.
        #[test]
        fn moves_are_rare(loads in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0.0f64..0.5), 100..400)) {
            let system = contents(2, &[(0, true)]);
            let mut law = Reallocator::of(&system).unwrap();
            let mut last = None;
            for (number, (one, other, expected)) in loads.into_iter().enumerate() {
                for (processor, utilisation) in [(0, one), (1, other)] {
                    let order = law.sample(ProcessorId(processor), Some(lowest(utilisation)), |_| Some(expected));
                    let Some(MoveOrder::Depart(moved)) = order else { continue };
                    law.departed(moved.from);
                    law.arrived(moved.to);
                    let last = last.replace(number);
                    // Processor 1 samples once more after a move to it in the same round.
                    prop_assert!(last.is_none_or(|last| number - last >= 7), "{last:?} and {number}");
                }
            }
        }
    }
}
