//! Random systems with all features of the model, from a seed: for property tests.

use super::*;
use hyoshi_model::execution_time::{Stream, bits};

/// A reproducible stream of choices.
pub struct Choices {
    seed: u64,
    drawn: u64,
}

impl Choices {
    pub fn new(seed: u64) -> Self {
        Choices { seed, drawn: 0 }
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        bits(self.seed, JobId { operation: OperationId(0), number: self.drawn, leg: 0 }, Stream::Other) % bound
    }

    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Adds to every second system one or two short operations that correlate other operations, or have a timeout. They are
/// drawn separately, so the other operations stay the same.
pub fn correlations(mut build: Build, seed: u64) -> Build {
    let mut choose = Choices::new(seed ^ 0xc0e1);
    for _ in 0..choose.of(&[0, 0, 1, 2]) {
        let count = build.0.operations.len() as u64;
        let mut group = || (0..choose.of(&[1, 1, 2])).map(|_| OperationId(choose.below(count) as u32)).collect();
        let mut groups: Vec<Vec<OperationId>> = vec![group(), group(), group()];
        groups.truncate(choose.of(&[2, 2, 3]));
        groups.iter_mut().for_each(|group| group.sort());
        groups.iter_mut().for_each(Vec::dedup);
        groups.dedup();
        let window = choose.of(&[Some(0), Some(2_000), Some(10_000), Some(30_000), Some(30_000), None]);
        let window = window.map(|most| Span::from_micros(choose.below(most + 1)));
        let timeout = choose.one_in(3).then(|| Span::from_micros(1_000 + choose.below(40_000)));
        let from: Vec<OperationId> = groups[0].clone();
        let trigger = match &groups[..] {
            [_] if timeout.is_none() => continue,
            [_] if from.len() == 1 => Trigger::All(from),
            [_] => Trigger::Any(from),
            _ if choose.one_in(6) => Trigger::Any(from),
            several => Trigger::Correlated(Correlation::new(several, window)),
        };
        let on = choose.below(build.0.processors.len() as u64) as u32;
        let from: Vec<u32> = trigger.predecessors().iter().map(|id| id.0).collect();
        let (own, wcet) = (choose.one_in(3), 20 + choose.below(300));
        let build_of = build.after(&format!("o{count}"), on, &from, wcet as f64 / 1e3);
        build = build_of.critical().with(|operation| {
            (operation.trigger, operation.timeout) = (trigger, timeout);
            operation.lifespan = choose.one_in(3).then(|| Span::from_micros(500 + choose.below(30_000)));
            operation.queue.limit = choose.of(&[1, 2, 8, 8]);
            operation.guard = choose.of(&[Guard::Off, Guard::Off, Guard::Off, Guard::On, Guard::Idle]);
        });
        build = build.set(|setting| {
            setting.critical_legs = 1;
            if own {
                setting.deadline = Deadline::Own(setting.period);
            }
        });
    }
    build
}

/// Adds to some systems copies of a stage, of which the first releases another operation. Some copies are chosen at
/// random, or are the operation before. They are drawn separately, so the other operations stay the same.
pub fn copies(mut build: Build, seed: u64) -> Build {
    let mut choose = Choices::new(seed ^ 0xd19a);
    for _ in 0..choose.of(&[0, 0, 0, 1, 2]) {
        let is_root = |id: &OperationId| build.0.numbered_by_root(*id) && build.0.operation(*id).roots.len() == 1;
        let before: Vec<OperationId> = (0..build.0.operations.len() as u32).map(OperationId).filter(is_root).collect();
        let before = choose.of(&before).0;
        let mut copies = if choose.one_in(5) { vec![before] } else { Vec::new() };
        for _ in 0..choose.of(&[2, 2, 3]) {
            let chosen = choose.one_in(2).then(|| choose.of(&[300_000, 500_000, 1_000_000]));
            build = stage(&mut choose, build, &[before], |from| match chosen {
                Some(probability_ppm) => Trigger::Chosen(ChosenHops { predecessors: from, probability_ppm }),
                None => Trigger::All(from),
            });
            if choose.one_in(4) {
                let last = build.0.operations.len() as u32 - 1;
                build = stage(&mut choose, build, &[last], Trigger::Any);
            }
            copies.push(build.0.operations.len() as u32 - 1);
        }
        build = stage(&mut choose, build, &copies, Trigger::First);
        if choose.one_in(3) {
            let last = build.0.operations.len() as u32 - 1;
            build = stage(&mut choose, build, &[last, before], Trigger::All);
        }
    }
    build
}

/// A short triggered operation.
fn stage(choose: &mut Choices, build: Build, from: &[u32], trigger: impl FnOnce(Vec<OperationId>) -> Trigger) -> Build {
    let (count, on) = (build.0.operations.len(), choose.below(build.0.processors.len() as u64) as u32);
    let wcet = Span::from_micros(20 + choose.below(700));
    let (critical, own) = (choose.one_in(2), choose.one_in(3));
    let least = Span::from_nanos(1 + choose.below(wcet.as_nanos()));
    let varies = choose.one_in(2);
    let build = build.after(&format!("o{count}"), on, from, 1.0).with(|operation| {
        (operation.trigger, operation.critical) = (trigger(operation.trigger.predecessors().to_vec()), critical);
        operation.queue.limit = choose.of(&[1, 2, 8, 8]);
        operation.guard = choose.of(&[Guard::Off, Guard::Off, Guard::On, Guard::Idle]);
    });
    build.set(|setting| {
        (setting.wcet, setting.critical_legs) = (wcet, u16::from(critical));
        setting.execution_time = if varies { ExecutionTime::Uniform(least, wcet) } else { ExecutionTime::Fixed(wcet) };
        setting.bcet = setting.execution_time.shortest();
        if own {
            setting.deadline = Deadline::Own(setting.period);
        }
    })
}

/// In every third system some operations have a rule for missed deadlines. Drawn separately: the rest stays as it is.
pub fn rules_for_misses(build: &mut Build, seed: u64) {
    let mut choose = Choices::new(seed ^ 0x3155);
    if choose.one_in(3) {
        for operation in &mut build.0.operations {
            operation.on_miss = choose.of(&[OnMiss::Continue, OnMiss::Stop, OnMiss::SkipNext]);
        }
    }
}

const STRATEGIES: [&str; 7] = ["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"];

/// A system of up to three processors and a dozen operations. Times are whole microseconds and
/// odd enough to make ties rare; `harmonic` makes them common.
pub fn system(seed: u64) -> System {
    let mut choose = Choices::new(seed);
    let harmonic = choose.one_in(3);
    let processors = 1 + choose.below(3) as usize;
    let mut build = Build::new(choose.of(&STRATEGIES), processors);
    for processor in &mut build.0.processors {
        processor.strategy = choose.of(&STRATEGIES).into();
        processor.preemption = choose.of(&[Preemption::None, Preemption::Levels, Preemption::Levels, Preemption::Full]);
        processor.cancel = choose.one_in(2);
        if choose.one_in(4) {
            processor.cap_ppm = 700_000 + choose.below(250_000) as u32;
            processor.cap_window = Span::from_millis(20 + choose.below(100));
        }
    }
    let resources = choose.below(3);
    for index in 0..resources {
        build.0.resources.push(Resource { name: format!("r{index}") });
    }
    for index in 0..2 + choose.below(10) {
        let on = choose.below(processors as u64) as u32;
        let name = format!("o{index}");
        let us = |micros: u64| micros as f64 / 1e3;
        let wcet = us(200 + choose.below(4_000));
        build = if index > 1 && choose.one_in(3) {
            let first = choose.below(index) as u32;
            let second = choose.below(index) as u32;
            let predecessors = if choose.one_in(2) && first != second { vec![first, second] } else { vec![first] };
            let any = choose.one_in(3);
            let guard = choose.of(&[Guard::Off, Guard::On, Guard::Idle]);
            build.after(&name, on, &predecessors, wcet).with(|operation| {
                operation.guard = guard;
                if any {
                    operation.trigger = Trigger::Any(operation.trigger.predecessors().to_vec());
                }
            })
        } else {
            let period =
                if harmonic { 10.0 * f64::from(1 << choose.below(4) as u32) } else { us(5_003 + choose.below(60_000)) };
            build.periodic(&name, on, period, wcet)
        };
        let critical = choose.one_in(2);
        build = build.with(|operation| {
            operation.critical = critical;
            operation.importance = choose.below(4) as u32;
            operation.queue.limit = 1 + choose.below(5) as u32;
            operation.queue.when_full = choose.of(&[WhenFull::DropNewest, WhenFull::DropOldest]);
            operation.on_busy = choose.of(&[OnBusy::Queue, OnBusy::Queue, OnBusy::Skip]);
            operation.on_overrun =
                choose.of(&[OnOverrun::Report, OnOverrun::Report, OnOverrun::Demote, OnOverrun::Stop]);
            if resources > 0 && choose.one_in(3) {
                operation.uses =
                    vec![(ResourceId(choose.below(resources) as u32), Span::from_micros(50 + choose.below(150)))];
            }
        });
        let periodic = matches!(build.last().trigger, Trigger::Periodic);
        build = build.set(|setting| {
            let wcet = setting.wcet;
            setting.execution_time = match choose.below(4) {
                0 => ExecutionTime::Fixed(wcet),
                1 => ExecutionTime::Uniform(Span::from_micros(100), wcet),
                2 => ExecutionTime::Uniform(Span::ZERO, wcet),
                _ => ExecutionTime::Uniform(Span::from_micros(100), wcet + Span::from_micros(choose.below(400))),
            };
            if periodic {
                setting.phase = if harmonic { Span::ZERO } else { Span::from_micros(choose.below(10_000)) };
                setting.jitter = if choose.one_in(3) { Span::from_micros(choose.below(3_000)) } else { Span::ZERO };
                setting.offset = if choose.one_in(4) { Span::from_micros(choose.below(2_000)) } else { Span::ZERO };
                if choose.one_in(5) {
                    setting.legs = 1 + choose.below(4) as u16;
                    setting.critical_legs =
                        if critical { setting.legs } else { choose.below(u64::from(setting.legs)) as u16 };
                }
                if choose.one_in(3) {
                    setting.deadline =
                        Deadline::Own(setting.period.saturating_sub(Span::from_micros(choose.below(3_000))));
                }
            }
        });
    }
    build = copies(correlations(build, seed), seed);
    rules_for_misses(&mut build, seed);
    if choose.one_in(3) {
        // A second region: everything lasts half as long, or twice.
        let settings = build.0.epochs[0].settings.iter().cloned().map(|mut setting| {
            setting.execution_time = ExecutionTime::Fixed(Span::from_nanos(setting.wcet.as_nanos() / 2));
            setting.enabled = setting.legs > 1 || !choose.one_in(6);
            setting
        });
        let settings: Vec<Setting> = settings.collect();
        build.0.epochs.push(Epoch {
            name: "1".into(),
            at: Instant::ZERO + ms(150.0),
            settings: settings.into(),
            environment: Default::default(),
            admissions: Default::default(),
        });
    }
    build.0.seed = seed;
    System::new(build.0)
}
