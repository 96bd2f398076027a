//! Random systems for soundness: all features of the model, drawn so that bounds are almost reached. Utilisation from a
//! half to a little over one, few distinct periods, tight deadlines, common releases, a long job begun just before,
//! execution times mostly at the worst case and never beyond.

use hyoshi_model::*;

use super::random::Choices;
use super::{Build, ms};

/// Each row of the account: the strategy of the first processor, or a pair to switch between.
pub const ROWS: [&str; 8] = ["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF", "pairs"];
const STRATEGIES: [&str; 7] = ["RMS", "DM", "EDF", "MLF", "MUF", "RMS+MLF", "RMS+EDF"];
/// Milliseconds. Within a set all hyperperiods are short, so many alignments occur.
const PERIODS: [&[u64]; 5] = [&[5, 10, 20, 40], &[8, 10, 12, 15, 20, 24, 30], &[10, 15, 30], &[7, 11, 13], &[6, 9]];

/// The features that a system draws.
#[derive(Clone, Copy, Debug)]
struct Taste {
    /// Releases coincide as often as possible.
    together: bool,
    /// Triggers, links, several processors.
    distributed: bool,
    /// Everything else: resources, caps, jitter, legs, limits, regions.
    rich: bool,
}

/// A system of the row, from a seed: the same on every machine.
pub fn system(row: usize, seed: u64) -> System {
    let mut choose = Choices::new(seed.wrapping_mul(ROWS.len() as u64).wrapping_add(row as u64) ^ 0x50d);
    let taste = Taste { together: choose.one_in(2), distributed: choose.one_in(3), rich: choose.one_in(2) };
    let count = if taste.distributed { choose.of(&[1, 2, 2, 3]) } else { 1 };
    let mut build = Build::new("RMS", count);
    processors(&mut choose, &mut build.0, row, taste);
    let (resources, set) = (if taste.rich { choose.below(3) } else { 0 }, choose.of(&PERIODS));
    build.0.resources = (0..resources).map(|index| Resource { name: format!("r{index}") }).collect();
    for on in 0..count as u32 {
        // Of the whole processor, in thousandths.
        let load = 500 + choose.below(560);
        let operations = 2 + choose.below(5);
        let weights: Vec<u64> = (0..operations).map(|_| 1 + choose.below(20)).collect();
        let all: u64 = weights.iter().sum();
        for weight in weights {
            build = operation(&mut choose, build, taste, (on, load * weight * 1000 / all), (set, resources));
        }
    }
    if choose.one_in(4) {
        build = fusion(&mut choose, build);
    }
    build = super::random::copies(super::random::correlations(build, seed), seed);
    super::random::rules_for_misses(&mut build, seed);
    let system = &mut build.0;
    settle(system);
    releases(&mut choose, system, taste);
    if taste.rich && choose.one_in(3) {
        region(&mut choose, system);
    }
    if taste.distributed {
        chains(&mut choose, system);
    }
    hard_caps(system, seed);
    system.seed = seed;
    system.name = format!("{}-{seed}", ROWS[row].to_lowercase());
    System::new(build.0)
}

/// In every second system the hard cap allows critical work less than it may want. Drawn separately: nothing else
/// changes with it.
pub fn hard_caps(system: &mut Contents, seed: u64) {
    let mut choose = Choices::new(seed ^ 0x4a7d);
    for processor in &mut system.processors {
        if choose.one_in(2) {
            let on_overload = choose.of(&[OnOverload::Report, OnOverload::Report, OnOverload::Demote]);
            processor.hard_cap = HardCap { ppm: 200_000 + choose.below(790_000) as u32, on_overload };
        }
    }
}

fn processors(choose: &mut Choices, system: &mut Contents, row: usize, taste: Taste) {
    let any_costs = choose.one_in(3);
    for (index, processor) in system.processors.iter_mut().enumerate() {
        processor.strategy = match STRATEGIES.get(row) {
            Some(strategy) if index == 0 => (*strategy).into(),
            _ => choose.of(&STRATEGIES).into(),
        };
        if (index == 0 && row >= STRATEGIES.len()) || (taste.rich && choose.one_in(12)) {
            let other = choose.of(&STRATEGIES);
            if other != processor.strategy {
                let (margin, calm) = (Span::from_micros(choose.below(2_000)), Span::from_millis(1 + choose.below(60)));
                processor.overload = Some(Overload { strategy: other.into(), margin, calm });
            }
        }
        processor.preemption = choose.of(&[Preemption::None, Preemption::Levels, Preemption::Levels, Preemption::Full]);
        processor.cancel = choose.one_in(3);
        if taste.rich && choose.one_in(5) {
            processor.cap_ppm = 700_000 + choose.below(250_000) as u32;
            processor.cap_window = Span::from_millis(20 + choose.below(100));
        }
        if any_costs {
            // Mostly realistic, now and then as long as jobs.
            let times = choose.of(&[1, 1, 1, 20]);
            let mut cost = |most: u64| Span::from_nanos(choose.below(most * times));
            processor.costs = Costs {
                timer: cost(20_000),
                enqueue: cost(2_000),
                dequeue: cost(4_000),
                cancel: cost(500),
                switch: cost(6_000),
                watchdog: cost(30_000),
            };
        }
    }
    if system.processors.len() > 1 && choose.one_in(2) {
        system.hosts.push(Host::named("far"));
        if let Some(last) = system.processors.last_mut() {
            last.host = HostId(1);
        }
        let least = choose.below(1_500);
        let delay = (Span::from_micros(least), Span::from_micros(least + choose.below(1_500)));
        system.links.push(Link::new((HostId(0), HostId(1)), delay));
    }
}

/// One more operation on a processor, of this many millionths of it.
fn operation(
    choose: &mut Choices,
    mut build: Build,
    taste: Taste,
    (on, share): (u32, u64),
    (set, resources): (&[u64], u64),
) -> Build {
    let index = build.0.operations.len() as u64;
    let name = format!("o{index}");
    let triggered = taste.distributed && index > 1 && choose.one_in(3);
    let odd = Span::from_micros(5_003 + choose.below(40_000));
    let period = if choose.one_in(8) { odd } else { Span::from_millis(choose.of(set)) };
    build = if triggered {
        let (first, second) = (choose.below(index) as u32, choose.below(index) as u32);
        let both = choose.one_in(2) && first != second;
        let predecessors = if both { vec![first, second] } else { vec![first] };
        let any = choose.one_in(4);
        let guard = choose.of(&[Guard::Off, Guard::On, Guard::Idle]);
        build.after(&name, on, &predecessors, 1.0).with(|operation| {
            operation.guard = guard;
            if any {
                operation.trigger = Trigger::Any(operation.trigger.predecessors().to_vec());
            }
        })
    } else {
        build.periodic(&name, on, period.as_nanos() as f64 / 1e6, 1.0)
    };
    let critical = choose.one_in(2);
    build = build.with(|operation| {
        operation.critical = critical;
        operation.importance = choose.below(3) as u32;
        operation.queue.limit = choose.of(&[1, 2, 8, 8, 8]);
        operation.queue.when_full = choose.of(&[WhenFull::DropNewest, WhenFull::DropOldest]);
        operation.on_busy = choose.of(&[OnBusy::Queue, OnBusy::Queue, OnBusy::Queue, OnBusy::Skip]);
        operation.on_overrun = choose.of(&[OnOverrun::Report, OnOverrun::Demote, OnOverrun::Stop]);
    });
    let mut held = Vec::new();
    build = build.set(|setting| {
        let period = if triggered { setting.period } else { period };
        let legs = if taste.rich && choose.one_in(6) { 2 + choose.below(3) } else { 1 };
        let micros = (period.as_nanos() / 1_000 * share / 1_000_000 / legs).max(20);
        let wcet = Span::from_micros(micros / 10 * 10);
        let least = Span::from_nanos(choose.below(wcet.as_nanos()));
        (setting.legs, setting.wcet) = (legs as u16, wcet);
        setting.critical_legs = if critical { legs as u16 } else { choose.below(legs) as u16 };
        setting.execution_time = match choose.below(5) {
            0 => ExecutionTime::Uniform(least, wcet),
            1 => ExecutionTime::List([wcet, least, wcet].into()),
            _ => ExecutionTime::Fixed(wcet),
        };
        setting.bcet = setting.execution_time.shortest();
        let tight = choose.one_in(2);
        let own = !triggered || choose.one_in(3);
        let whole = wcet * legs;
        let deadline = match tight {
            true => whole + Span::from_micros(choose.below(period.saturating_sub(whole).as_nanos() / 1_000 + 1)),
            false => period,
        };
        // Those of triggered operations follow from their roots unless they have their own.
        if own {
            setting.deadline = Deadline::Own(deadline.min(period).max(Span::from_micros(1)));
        }
        if resources > 0 && choose.one_in(3) {
            let part = choose.of(&[1, 2, 8]);
            let span = Span::from_nanos(1 + choose.below(wcet.as_nanos() / part));
            held.push((ResourceId(choose.below(resources) as u32), span));
        }
    });
    build.with(|operation| operation.uses = held)
}

/// A short operation that joins two others, often of different roots: in step, or one slower than the other.
fn fusion(choose: &mut Choices, build: Build) -> Build {
    let count = build.0.operations.len() as u64;
    let (first, second) = (choose.below(count) as u32, choose.below(count) as u32);
    if first == second {
        return build;
    }
    let on = build.0.operations[choose.of(&[first, second]) as usize].on.0;
    let (limit, wcet) = (choose.of(&[1, 1, 2, 8]), Span::from_micros(20 + choose.below(300)));
    let (own, guarded) = (choose.one_in(3), choose.one_in(4));
    let build = build.after(&format!("o{count}"), on, &[first, second], 1.0).critical().with(|operation| {
        operation.queue.limit = limit;
        operation.guard = if guarded { Guard::On } else { Guard::Off };
    });
    build.set(|setting| {
        (setting.wcet, setting.bcet, setting.execution_time, setting.critical_legs) =
            (wcet, wcet, ExecutionTime::Fixed(wcet), 1);
        if own {
            setting.deadline = Deadline::Own(setting.period);
        }
    })
}

/// Computes the inherited settings, like the reader of files: roots, periods and deadlines of triggered operations, in
/// every region. Triggers lead from earlier operations to later ones.
pub fn settle(system: &mut Contents) {
    for index in 0..system.operations.len() {
        let mut roots: Vec<OperationId> = match system.operations[index].trigger.predecessors() {
            [] => vec![OperationId(index as u32)],
            all => all.iter().flat_map(|from| system.operations[from.index()].roots.clone()).collect(),
        };
        roots.sort();
        roots.dedup();
        system.operations[index].roots = roots;
    }
    for epoch in &mut system.epochs {
        let mut settings = epoch.settings.to_vec();
        // The deadline of the slowest root, for those that follow.
        let mut inherited: Vec<Span> = Vec::new();
        for (index, operation) in system.operations.iter().enumerate() {
            let from = operation.trigger.predecessors();
            let periods = || from.iter().map(|from| settings[from.index()].period);
            let period = match &operation.trigger {
                Trigger::Periodic => Some(settings[index].period),
                Trigger::All(_) | Trigger::First(_) => periods().max(),
                Trigger::Any(_) | Trigger::Chosen(_) => periods().min(),
                Trigger::Correlated(correlation) => {
                    let shortest = |group: &[OperationId]| group.iter().map(|from| settings[from.index()].period).min();
                    correlation.groups().filter_map(shortest).max()
                }
            };
            let deadline = from.iter().map(|from| inherited[from.index()]).max();
            let setting = &mut settings[index];
            inherited.push(deadline.unwrap_or(setting.deadline.span()));
            setting.period = period.unwrap_or(setting.period);
            setting.slowest = setting.period;
            if let Deadline::Origin(_) = setting.deadline {
                setting.deadline = Deadline::Origin(inherited[index]);
            }
        }
        epoch.settings = settings.into();
    }
}

/// When jobs are released: together, scattered, or a long one just before the others.
fn releases(choose: &mut Choices, system: &mut Contents, taste: Taste) {
    let mut settings = system.epochs[0].settings.to_vec();
    let before = choose.below(settings.len() as u64) as usize;
    let kind = if taste.together { choose.of(&[0, 0, 1]) } else { 2 };
    for (index, setting) in settings.iter_mut().enumerate() {
        let triggered = system.operations[index].trigger != Trigger::Periodic;
        setting.phase = match kind {
            _ if triggered => Span::ZERO,
            0 => Span::ZERO,
            1 if index == before => Span::ZERO,
            1 => Span::from_nanos(1),
            _ => Span::from_micros(choose.below(setting.period.as_nanos() / 1_000)),
        };
        if taste.rich && !triggered && choose.one_in(3) {
            // Now and then more than a period: releases then coincide.
            let most = setting.period.as_nanos() / choose.of(&[3_000, 3_000, 3_000, 600]);
            setting.jitter = Span::from_micros(choose.below(most));
        }
        if taste.rich && choose.one_in(6) {
            setting.offset = Span::from_micros(choose.below(2_000));
        }
    }
    system.epochs[0].settings = settings.into();
}

/// A second region: other rates, times and deadlines, and some operations switched off.
fn region(choose: &mut Choices, system: &mut Contents) {
    let rates = choose.one_in(2);
    let changed: Vec<Setting> = system.epochs[0]
        .settings
        .iter()
        .zip(&system.operations)
        .map(|(setting, operation)| {
            let mut setting = setting.clone();
            if rates && operation.trigger == Trigger::Periodic && choose.one_in(2) {
                let (times, over) = choose.of(&[(2, 1), (3, 2), (2, 3), (1, 2)]);
                let scale = |span: Span| Span::from_nanos(span.as_nanos() * times / over);
                (setting.period, setting.jitter) = (scale(setting.period), scale(setting.jitter));
                setting.deadline = Deadline::Own(scale(setting.deadline.span()));
            }
            if choose.one_in(2) {
                let (times, over) = choose.of(&[(1, 2), (1, 2), (5, 4), (3, 4)]);
                let held = operation.uses.iter().fold(Span::ZERO, |sum, (_, span)| sum + *span);
                setting.wcet = Span::from_nanos(setting.wcet.as_nanos() * times / over).max(held);
                setting.execution_time = ExecutionTime::Fixed(setting.wcet);
                setting.bcet = setting.wcet;
            }
            setting.enabled = !choose.one_in(6);
            setting
        })
        .collect();
    let at = Instant::ZERO + Span::from_micros(80_000 + choose.below(80_000));
    system.epochs.push(Epoch {
        name: "1".into(),
        at,
        settings: changed.into(),
        environment: Default::default(),
        admissions: Default::default(),
    });
    settle(system);
}

/// Paths of triggers with a deadline.
fn chains(choose: &mut Choices, system: &mut Contents) {
    for index in 0..system.operations.len() {
        if system.operations[index].trigger == Trigger::Periodic || choose.one_in(2) {
            continue;
        }
        let mut path = vec![OperationId(index as u32)];
        while let Some(from) = path.last().and_then(|last| system.operation(*last).trigger.predecessors().first()) {
            path.push(*from);
        }
        path.reverse();
        let deadline = Some(system.epochs[0].settings[index].period + ms(choose.below(20) as f64));
        let name = format!("c{index}");
        let moves = |ends: &[OperationId]| {
            let to = system.operation(ends[1]);
            to.trigger.predecessors() == [ends[0]] && to.timeout.is_none()
        };
        // A thread does not fork: at most one chain.
        let carried_by = match system.chains.is_empty() && path.windows(2).all(moves) {
            true => ChainCarrier::Thread,
            false => ChainCarrier::Event,
        };
        system.chains.push(Chain { name, path, deadline, max_age: None, max_reaction: None, carried_by });
    }
}
