//! Measured conditions of contracts in virtual time: samples of links and of the CPU broker. Other measures have none.

use hyoshi_model::{HostMeasure, HostQuantity, Instant, OutsideMeasure, ProcessorId, Span, System};
use hyoshi_model::{ReservationMeasure, ReservationQuantity};
use hyoshi_trace::{Input, Probe};

use crate::KnownJobs;
use crate::cpu::SimulatedCpu;
use crate::link_conditions::LinkConditions;
use crate::programs::{Programs, TaskLoad};

/// The first sample, as in a run.
const FIRST: Span = Span::from_millis(100);

/// A measured condition of contracts.
#[derive(Debug)]
pub(crate) struct SampledCondition {
    /// Its position in the system.
    place: u16,
    measure: OutsideMeasure,
    /// The processors that receive its samples.
    to: Vec<ProcessorId>,
}

impl SampledCondition {
    pub fn pass<P: Probe>(&self, cpus: &mut [SimulatedCpu<'_, P>], now: Instant, value: f64) {
        let input = Input::Condition { condition: self.place, value: (value.clamp(-1e9, 1e9) * 1e6).round() as i64 };
        self.to.iter().for_each(|processor| cpus[processor.index()].pass(now, now, input));
    }
}

/// The conditions with samples.
#[derive(Debug)]
pub(crate) struct MeasuredConditions<'a> {
    system: &'a System,
    links: LinkConditions<'a>,
    broker: Vec<(SampledCondition, Option<TaskLoad>)>,
    every: Span,
    due: Instant,
}

impl<'a> MeasuredConditions<'a> {
    /// Without conditions that known inputs contain or that an epoch sets, and without those of a broker if there are no
    /// programs.
    pub fn new(system: &'a System, given: Option<&KnownJobs<'_>>, programs: bool) -> Self {
        let every_known = given.is_some_and(|given| !given.samples);
        let is_known = |place: u16| {
            let known = |(_, _, input): &(_, _, Input)| matches!(input, Input::Condition { condition, .. } if *condition == place);
            let sets = |epoch: &hyoshi_model::Epoch| epoch.environment.condition(place.into()).is_some();
            every_known || given.is_some_and(|given| given.inputs.iter().any(known)) || system.epochs.iter().any(sets)
        };
        let (mut links, mut broker) = (Vec::new(), Vec::new());
        let mut every = Span::from_nanos(u64::MAX);
        for (place, condition) in (0..).zip(&system.conditions) {
            let Some(measure) = condition.measure else { continue };
            let of_broker = match measure {
                OutsideMeasure::Link(_) => false,
                OutsideMeasure::Host(HostMeasure { quantity, .. }) if !quantity.is_of_broker() => continue,
                OutsideMeasure::Delegate(_) => continue,
                OutsideMeasure::Host(_) | OutsideMeasure::Reservation(_) => true,
            };
            if of_broker && !programs || is_known(place) {
                continue;
            }
            let mut to = Vec::new();
            for (contract, used) in system.uses_of_condition(place) {
                every = every.min(used.sampled_every(contract.period));
                to.push(contract.measured_on(system, &used.of));
            }
            to.sort_unstable();
            to.dedup();
            let one = SampledCondition { place, measure, to };
            match measure {
                OutsideMeasure::Link(of) => links.push((of, one)),
                _ => broker.push((one, None)),
            }
        }
        let due = if links.is_empty() && broker.is_empty() { Instant::NEVER } else { Instant::ZERO + FIRST };
        MeasuredConditions { system, links: LinkConditions::new(system, links), broker, every, due }
    }

    /// When the next samples are due.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Whether the samples are those of programs simulated until now.
    pub fn reads_programs(&self) -> bool {
        !self.broker.is_empty()
    }

    /// Samples all conditions.
    pub fn sample<P: Probe>(
        &mut self,
        cpus: &mut [SimulatedCpu<'_, P>],
        programs: Option<&Programs<'_>>,
        now: Instant,
    ) {
        self.due = now.saturating_add(self.every);
        self.links.sample(cpus, now);
        let Some(programs) = programs else { return };
        for (one, last) in &mut self.broker {
            let value = match one.measure {
                OutsideMeasure::Host(HostMeasure { host, quantity }) => {
                    let cap = self.system.brokered.brokers[host.index()].cap.as_millionths() as f64 / 1e6;
                    let sum = |of: fn(&TaskLoad) -> f64| programs.tasks(host).map(|task| of(&task)).sum::<f64>() / cap;
                    let (asked, granted) = (sum(|task| task.asked), sum(|task| task.granted));
                    match quantity {
                        HostQuantity::BrokerAsked => Some(asked),
                        HostQuantity::BrokerGranted => Some(granted),
                        HostQuantity::BrokerContention => Some((asked - granted).max(0.0)),
                        HostQuantity::Temperature | HostQuantity::Battery | HostQuantity::Cpu => None,
                    }
                }
                OutsideMeasure::Reservation(ReservationMeasure { program, quantity }) => {
                    let found = programs.tasks(self.system.program(program).host).find(|task| task.program == program);
                    found.and_then(|task| match quantity {
                        ReservationQuantity::Asked => Some(task.asked),
                        ReservationQuantity::Granted => Some(task.granted),
                        ReservationQuantity::Usage => usage(last, task),
                    })
                }
                OutsideMeasure::Link(_) | OutsideMeasure::Delegate(_) => None,
            };
            value.into_iter().for_each(|value| one.pass(cpus, now, value));
        }
    }
}

/// The use of a CPU between the last reports before the last sample and this one.
fn usage(last: &mut Option<TaskLoad>, task: TaskLoad) -> Option<f64> {
    let before = last.filter(|before| before.reported == task.reported);
    if before.is_some() {
        return None;
    }
    let before = last.replace(task)?;
    let used = task.used.saturating_sub(before.used);
    Some(used.as_secs_f64() / task.reported.since(before.reported).as_secs_f64())
}
