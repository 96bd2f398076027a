//! The flight program as data: the fixed part, the twelve operating regions, and the parameters of a trial.

use std::sync::Arc;

use hyoshi_model::{
    Contents, Costs, Epoch, ExecutionTime, HardCap, Instant, OperationId, Overload, Setting, Span, System, read,
};

/// The part that is the same in all regions.
pub(super) const FIXED: &str = include_str!("program.toml");

/// The length of each region in the paper (section III-B: "every 150 s in each trial").
pub const PAPER_REGION: Span = Span::from_secs(150);

/// The added critical operations (section III-B: one at each of 10, 5 and 1 Hz).
const ADDED: [&str; 3] = ["tracker", "datalink", "diagnosis"];

/// The load chain.
const ROUTE: &str = "route-leg";

/// The smallest execution time.
const NOTHING: Span = Span::from_micros(1);

/// The parameters of an operating region (table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Least and greatest execution time of the added critical operations.
    pub added: (Span, Span),
    /// Legs of the route's load chain.
    pub legs: u16,
}

impl Region {
    const fn new(least_ms: u64, most_ms: u64, legs: u16) -> Region {
        Region { added: (Span::from_millis(least_ms), Span::from_millis(most_ms)), legs }
    }

    /// True if the added operations' execution time varies.
    pub fn jitters(self) -> bool {
        self.added.0 != self.added.1
    }
}

/// Table 2 of the paper.
pub const REGIONS: [Region; 12] = [
    Region::new(0, 0, 1),
    Region::new(0, 5, 1),
    Region::new(5, 10, 2),
    Region::new(0, 10, 3),
    Region::new(0, 0, 4),
    Region::new(0, 5, 5),
    Region::new(5, 10, 6),
    Region::new(0, 10, 7),
    Region::new(0, 0, 8),
    Region::new(0, 5, 9),
    Region::new(5, 10, 10),
    Region::new(0, 10, 11),
];

/// The last region with a declared load that fits the processor.
pub const LAST_FEASIBLE: usize = 6;

/// The paper's strategies, each with and without cancellation.
pub const STRATEGIES: [&str; 3] = ["RMS", "MUF", "RMS+MLF"];

/// The parameters of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The strategy.
    pub strategy: String,
    /// The strategy in overload, if the trial switches.
    pub overload: Option<Overload>,
    /// Whether route legs that cannot finish in time are cancelled.
    pub cancel: bool,
    /// The costs of scheduling.
    pub costs: Costs,
}

impl Trial {
    /// As the paper writes it: `MUF ©`.
    pub fn name(&self) -> String {
        super::trial::name(&self.strategies(), self.cancel)
    }

    /// The strategy, or both strategies of a switching trial.
    pub fn strategies(&self) -> String {
        match &self.overload {
            Some(overload) => format!("{} ⇄ {}", self.strategy, overload.strategy),
            None => self.strategy.clone(),
        }
    }

    /// A trial with a strategy of the paper.
    pub fn new(strategy: &str, cancel: bool) -> Trial {
        Trial { strategy: strategy.into(), overload: None, cancel, costs: Costs::NONE }
    }
}

/// The flight program with a length of regions and a seed.
#[derive(Clone, Debug)]
pub struct FlightProgram {
    system: System,
}

impl FlightProgram {
    /// The twelve regions, of length `region`.
    pub fn new(region: Span, seed: u64) -> FlightProgram {
        FlightProgram::of(&REGIONS, region, seed)
    }

    /// The given regions in order.
    pub fn of(regions: &[Region], region: Span, seed: u64) -> FlightProgram {
        let mut system = match read(FIXED, "kokyu.toml", None) {
            Ok(loaded) => loaded.system.into_contents(),
            Err(errors) => unreachable!("the built-in program is read by every test: {errors}"),
        };
        system.seed = seed;
        system.duration = Span::from_nanos(region.as_nanos().saturating_mul(regions.len() as u64));
        let fixed = system.epochs[0].settings.clone();
        let settings = regions.iter().map(|region| settings(&system, &fixed, *region)).collect::<Vec<_>>();
        let epochs = settings.into_iter().enumerate().map(|(index, settings)| Epoch {
            name: format!("region {index}"),
            at: Instant::from_nanos(region.as_nanos().saturating_mul(index as u64)),
            settings,
            environment: Default::default(),
            admissions: Default::default(),
        });
        system.epochs = epochs.collect();
        // The paper's middleware had none.
        system.processors.iter_mut().for_each(|processor| processor.hard_cap = HardCap::OFF);
        let duration = system.duration.as_nanos();
        for (operation, setting) in system.operations.iter_mut().zip(&*fixed) {
            // Nothing is dropped, however far an operation is behind.
            let releases = duration / setting.period.as_nanos().max(1) + 1;
            operation.queue.limit = releases.min(MOST_WAITING) as u32;
        }
        FlightProgram { system: System::new(system) }
    }

    /// The program with a cap on the lanes' CPU time in each 100 ms. Trials in virtual time have no cap, as in the
    /// paper.
    pub fn capped(self, ppm: u32) -> FlightProgram {
        let system = self.system.with(|system| {
            for processor in &mut system.processors {
                processor.cap_ppm = ppm;
                processor.cap_window = Span::from_millis(100);
            }
        });
        FlightProgram { system }
    }

    /// The program with the parameters of a trial.
    pub fn system(&self, trial: &Trial) -> System {
        self.system.clone().with(|system| {
            for processor in &mut system.processors {
                processor.strategy.clone_from(&trial.strategy);
                processor.overload.clone_from(&trial.overload);
                processor.cancel = trial.cancel;
                processor.costs = trial.costs;
            }
        })
    }

    /// The program with changed settings in every region, for additional experiments. `change` receives the operation's
    /// name.
    pub fn changed(&self, change: impl Fn(&str, &mut Setting)) -> FlightProgram {
        let system = self.system.clone().with(|Contents { operations, epochs, .. }| {
            for epoch in epochs {
                let mut settings = epoch.settings.to_vec();
                for (operation, setting) in operations.iter().zip(&mut settings) {
                    change(&operation.name, setting);
                }
                epoch.settings = settings.into();
            }
        });
        FlightProgram { system }
    }

    /// The length of all regions together.
    pub fn duration(&self) -> Span {
        self.system.duration
    }

    /// An operation's name.
    pub fn operation(&self, id: OperationId) -> &str {
        &self.system.operation(id).name
    }

    /// The number of regions.
    pub fn regions(&self) -> usize {
        self.system.epochs.len()
    }

    /// The declared load of each region in parts per million of the processor.
    pub fn declared_ppm(&self) -> Vec<u64> {
        let processor = hyoshi_model::ProcessorId(0);
        (0..self.regions()).map(|region| self.system.utilisation_ppm(region, processor)).collect()
    }

    /// The requests of each region if every leg is reached.
    pub fn offered(&self) -> Vec<u64> {
        let length = u128::from(self.system.duration.as_nanos()) / self.regions().max(1) as u128;
        let of = |region: usize| {
            let rates = self.system.release_rates(region);
            let jobs =
                |id: OperationId| u128::from(rates[id.index()]) * u128::from(self.system.setting(region, id).legs);
            (self.system.operation_ids().map(jobs).sum::<u128>() * length / 1_000_000_000_000_000_000) as u64
        };
        (0..self.regions()).map(of).collect()
    }

    /// The mean load of each region, as its execution times are drawn.
    pub fn mean_ppm(&self) -> Vec<u64> {
        self.changed(|_, setting| setting.wcet = mean_of(&setting.execution_time)).declared_ppm()
    }
}

/// The most waiting jobs of one operation: RMS delays about 4,500 jobs of the 10 Hz operations.
pub(super) const MOST_WAITING: u64 = 8_192;

/// True for the added critical operations.
pub fn is_added(operation: &str) -> bool {
    ADDED.contains(&operation)
}

/// True for the route's legs.
pub fn is_route(operation: &str) -> bool {
    operation == ROUTE
}

fn settings(system: &Contents, fixed: &[Setting], region: Region) -> Arc<[Setting]> {
    let of = |(id, setting): (OperationId, &Setting)| {
        let mut setting = setting.clone();
        let name = system.operation(id).name.as_str();
        if is_added(name) && region.added.1 > Span::ZERO {
            let least = region.added.0.max(NOTHING);
            setting.wcet = region.added.1;
            setting.execution_time = ExecutionTime::Uniform(least, region.added.1);
            setting.bcet = least;
        }
        if is_route(name) {
            setting.legs = region.legs;
        }
        setting
    };
    system.operation_ids().zip(fixed).map(of).collect()
}

/// The expected execution time.
pub fn mean_of(takes: &ExecutionTime) -> Span {
    match takes {
        ExecutionTime::Uniform(least, most) => Span::from_nanos((least.as_nanos() + most.as_nanos()) / 2),
        other => other.longest(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_that_of_the_example_but_for_the_length_of_regions() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/flight-program.toml");
        let example = hyoshi_model::read_file(path).unwrap().system;
        let program = FlightProgram::new(Span::from_secs(4), example.seed);
        assert_eq!(program.system.duration, example.duration);
        for (ours, theirs) in program.system.epochs.iter().zip(&example.epochs) {
            assert_eq!((&ours.name, ours.at), (&theirs.name, theirs.at));
            for (ours, theirs) in ours.settings.iter().zip(&*theirs.settings) {
                assert_eq!(ours, theirs);
            }
        }
        assert_eq!(program.system.epochs.len(), example.epochs.len());
        let names =
            |system: &System| system.operations.iter().map(|o| (o.name.clone(), o.critical)).collect::<Vec<_>>();
        assert_eq!(names(&program.system), names(&example));
    }

    #[test]
    fn the_last_feasible_region_is_the_last_with_a_load_that_fits() {
        let program = FlightProgram::new(PAPER_REGION, 1);
        let mean = program.mean_ppm();
        assert!(mean[..=LAST_FEASIBLE].iter().all(|ppm| *ppm <= 1_000_000), "{mean:?}");
        assert!(mean[LAST_FEASIBLE + 1..].iter().all(|ppm| *ppm > 1_000_000), "{mean:?}");
    }

    #[test]
    fn seven_seconds_of_requests_are_those_that_the_paper_counts() {
        // "from around 3100 in regions 0 and 1 to above 4500 in region 11" (section IV-A)
        let offered = FlightProgram::new(Span::from_secs(7), 1).offered();
        assert_eq!((offered[0], offered[1], offered[11]), (3_101, 3_101, 4_501));
    }
}
