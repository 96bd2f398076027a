//! Conditions that the host of a run and its delegates measure: one thread at normal priority samples them, and sets them as operators set
//! other conditions. So recordings have the samples, and replays repeat them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::{
    DelegateMeasure, DelegateQuantity, DelegateTotals, HostMeasure, HostQuantity, Instant, OutsideMeasure,
    ReservationMeasure, ReservationQuantity, Span,
};
use hyoshi_os::sensors::MachineSensors;
use hyoshi_os::{MachineReader, SpawnedThread, Wake};

use crate::common::CommonState;
use crate::contract_control::ContractControl;
use crate::ended::RunNote;
use crate::link_monitor::LinkMonitors;
use crate::region_actions::{BrokerAccess, BrokerLoad, DelegateAccess, ProgramLoad};

/// The time to the first sample, and the shortest time between two samples.
const SHORTEST: Span = Span::from_millis(100);

/// Samples the measured conditions of the contracts here.
pub(crate) struct ConditionSampler {
    common: Arc<CommonState>,
    contracts: ContractControl,
    measured: Vec<MeasuredCondition>,
    every: Span,
    sources: MeasureSources,
    links: LinkMonitors,
    signal: Arc<SamplerSignal>,
}

/// What measures conditions.
pub(crate) struct MeasureSources {
    pub sensors: Box<dyn MachineSensors>,
    pub broker: Option<Arc<dyn BrokerAccess>>,
    pub delegates: Option<Arc<dyn DelegateAccess>>,
}

/// A measured condition, with the number of its samples.
#[derive(Debug)]
struct MeasuredCondition {
    /// Its position in the system.
    place: u16,
    measure: OutsideMeasure,
    /// When a task had reported how much CPU time, and how often.
    reported: Option<(Instant, ProgramLoad)>,
    /// When its delegate had counted what.
    counted: Option<(Instant, DelegateTotals)>,
    samples: u64,
    failed: u64,
}

impl MeasuredCondition {
    /// The part of one CPU that a task has used since the last sample with a new report.
    fn used_since_last(&mut self, now: Instant, found: &ProgramLoad) -> Sampled {
        let known = self.reported.filter(|(_, last)| last.reports <= found.reports && last.used <= found.used);
        match known {
            Some((_, last)) if last.reports == found.reports => Sampled::Nothing,
            Some((at, last)) if now > at => {
                self.reported = Some((now, *found));
                let used = found.used.saturating_sub(last.used);
                Sampled::Value(used.as_secs_f64() / now.since(at).as_secs_f64())
            }
            _ => {
                self.reported = Some((now, *found));
                Sampled::Nothing
            }
        }
    }

    /// The requests to an object since the last sample.
    fn counted_since_last(&mut self, now: Instant, found: DelegateTotals, quantity: DelegateQuantity) -> Sampled {
        let (at, last) = self.counted.replace((now, found)).unwrap_or_default();
        found.value(last, now.since(at), quantity).map_or(Sampled::Nothing, Sampled::Value)
    }
}

/// What a source has for a condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sampled {
    Value(f64),
    /// Nothing new since the last sample.
    Nothing,
    Failed,
}

impl From<Option<f64>> for Sampled {
    fn from(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Sampled::Failed, Sampled::Value)
    }
}

/// Begins the thread, and ends it.
#[derive(Debug, Default)]
struct SamplerSignal {
    over: AtomicBool,
    wake: Wake,
}

/// The thread of a sampler.
#[derive(Debug)]
pub(crate) struct SamplerThread {
    thread: SpawnedThread<Vec<RunNote>>,
    signal: Arc<SamplerSignal>,
}

impl fmt::Debug for ConditionSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConditionSampler").field("measured", &self.measured).finish_non_exhaustive()
    }
}

impl ConditionSampler {
    /// `None` if the contracts of this process have no measured condition.
    pub fn new(common: &Arc<CommonState>, contracts: ContractControl, sources: MeasureSources) -> Option<Self> {
        let system = &common.system;
        let here = |place: u16| {
            let uses = system.uses_of_condition(place);
            uses.filter(|(contract, one)| common.runs(contract.measured_on(system, &one.of)))
        };
        let measured = (0..).zip(&system.conditions).filter_map(|(place, condition)| {
            let measure = condition.measure.filter(|_| here(place).next().is_some())?;
            Some(MeasuredCondition { place, measure, reported: None, counted: None, samples: 0, failed: 0 })
        });
        let measured: Vec<MeasuredCondition> = measured.collect();
        let uses = measured.iter().flat_map(|one| here(one.place));
        let every = uses.map(|(contract, condition)| condition.sampled_every(contract.period)).min()?;
        let links = LinkMonitors::new(common);
        let (common, signal) = (common.clone(), Arc::default());
        Some(ConditionSampler { common, contracts, measured, every, sources, links, signal })
    }

    /// Starts the thread; it sleeps.
    pub fn spawn(self) -> std::io::Result<SamplerThread> {
        let signal = self.signal.clone();
        let thread = hyoshi_os::Spawn::new("hyoshi-sampler").spawn(move || self.serve())?;
        Ok(SamplerThread { thread, signal })
    }

    fn serve(mut self) -> Vec<RunNote> {
        self.signal.wake.wait();
        if !self.common.has_begun() {
            return Vec::new();
        }
        let mut cpu = MachineReader::start();
        let mut next = self.common.now() + SHORTEST;
        loop {
            self.signal.wake.wait_until(self.common.clock(), next);
            if self.signal.over.load(Ordering::Acquire) {
                return self.notes();
            }
            self.sample(&mut cpu);
            next = (next + self.every).max(self.common.now() + SHORTEST);
        }
    }

    fn sample(&mut self, cpu: &mut Option<MachineReader>) {
        let of_broker = |one: &MeasuredCondition| match one.measure {
            OutsideMeasure::Host(HostMeasure { quantity, .. }) => quantity.is_of_broker(),
            OutsideMeasure::Reservation(_) => true,
            OutsideMeasure::Link(_) | OutsideMeasure::Delegate(_) => false,
        };
        let broker = self.sources.broker.as_ref().filter(|_| self.measured.iter().any(of_broker));
        let load = broker.and_then(|broker| broker.load());
        self.links.read();
        for one in &mut self.measured {
            let sampled = match one.measure {
                OutsideMeasure::Host(HostMeasure { quantity, .. }) => Sampled::from(match quantity {
                    HostQuantity::Temperature => self.sources.sensors.temperature(),
                    HostQuantity::Battery => self.sources.sensors.battery(),
                    HostQuantity::Cpu => {
                        cpu.as_mut().and_then(MachineReader::since_last).map(|ppm| f64::from(ppm) / 1e6)
                    }
                    HostQuantity::BrokerAsked => load.as_ref().map(|load| load.asked),
                    HostQuantity::BrokerGranted => load.as_ref().map(|load| load.granted),
                    HostQuantity::BrokerContention => load.as_ref().map(BrokerLoad::contention),
                }),
                OutsideMeasure::Link(measure) => self.links.sampled(measure),
                OutsideMeasure::Delegate(DelegateMeasure { delegate, quantity }) => {
                    let found = self.sources.delegates.as_ref().and_then(|all| all.totals(delegate));
                    found.map_or(Sampled::Failed, |found| one.counted_since_last(self.common.now(), found, quantity))
                }
                OutsideMeasure::Reservation(ReservationMeasure { program, quantity }) => {
                    let name = &self.common.system.program(program).name;
                    let found = load.as_ref().and_then(|load| load.programs.get(name));
                    found.map_or(Sampled::Failed, |found| match quantity {
                        ReservationQuantity::Asked => Sampled::Value(found.asked),
                        ReservationQuantity::Granted => Sampled::Value(found.granted),
                        ReservationQuantity::Usage => one.used_since_last(self.common.now(), found),
                    })
                }
            };
            one.samples += u64::from(sampled != Sampled::Nothing);
            match sampled {
                // Refused only after the end of the run.
                Sampled::Value(value) => drop(self.contracts.pass_condition(one.place, value.clamp(-1e9, 1e9))),
                Sampled::Nothing => {}
                Sampled::Failed => one.failed += 1,
            }
        }
    }

    fn notes(&self) -> Vec<RunNote> {
        let failed = self.measured.iter().filter(|one| one.failed > 0);
        let note = |one: &MeasuredCondition| RunNote::Unmeasured {
            condition: self.common.system.conditions[usize::from(one.place)].name.clone(),
            measure: one.measure,
            failed: one.failed,
            samples: one.samples,
        };
        failed.map(note).collect()
    }
}

impl SamplerThread {
    /// The run begins.
    pub fn begin(&self) {
        self.signal.wake.post();
    }

    /// Ends the thread.
    pub fn end(&self) {
        self.signal.over.store(true, Ordering::Release);
        self.signal.wake.post();
    }

    /// The notes of the thread, if it has ended: a broker may not answer.
    pub fn notes(self) -> Vec<RunNote> {
        if self.thread.is_finished() { self.thread.join().unwrap_or_default() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hyoshi_model::predicate::ConditionReading;
    use hyoshi_model::read;
    use hyoshi_os::fake::FakeSensors;
    use hyoshi_sched::{Plan, Strategies};

    use super::*;
    use crate::{Node, SettingRefusal};

    struct FakeBroker;

    impl BrokerAccess for FakeBroker {
        fn load(&self) -> Option<BrokerLoad> {
            Some(BrokerLoad { asked: 1.25, granted: 1.0, programs: BTreeMap::new() })
        }

        fn set(&self, _: &str, _: hyoshi_model::ReservationSetting, _: u64) -> Result<(), SettingRefusal> {
            Ok(())
        }
    }

    #[test]
    fn the_usage_of_a_task_is_what_it_reported_since_the_last_sample() {
        let measure = OutsideMeasure::Reservation(ReservationMeasure {
            program: hyoshi_model::ProgramId(0),
            quantity: ReservationQuantity::Usage,
        });
        let mut one = MeasuredCondition { place: 0, measure, reported: None, counted: None, samples: 0, failed: 0 };
        let mut at = |second: u64, used: u64, reports: u64| {
            let load = ProgramLoad { used: Span::from_millis(used), reports, ..ProgramLoad::default() };
            one.used_since_last(Instant::from_nanos(second * 1_000_000_000), &load)
        };
        assert_eq!(at(1, 100, 3), Sampled::Nothing);
        assert_eq!(at(2, 350, 5), Sampled::Value(0.25));
        assert_eq!(at(3, 350, 5), Sampled::Nothing);
        assert_eq!(at(4, 550, 6), Sampled::Value(0.1));
        // It has joined again.
        assert_eq!(at(5, 50, 1), Sampled::Nothing);
        assert_eq!(at(6, 150, 2), Sampled::Value(0.1));
    }

    #[test]
    fn what_the_host_measures_is_in_the_contract_and_what_it_cannot_measure_is_stale() {
        let text = "name = 't'\nduration = '60s'\n[host.drone]\n[processor.main]\nhost = 'drone'\n\
                    [operation.a]\nevery = '20ms'\nwcet = '1ms'\n[contract.heat]\nperiod = '20ms'\n\
                    [contract.heat.watch]\nheat = { of = 'host.drone.temperature', max_age = '200ms' }\n\
                    charge = { of = 'host.drone.battery' }\ncpu = { of = 'host.drone.cpu' }\n\
                    short = { of = 'host.drone.broker.contention' }\n\
                    [[contract.heat.region]]\nname = 'hot'\nenter = 'heat > 80'\n\
                    [[contract.heat.region]]\nname = 'normal'\n";
        let system = Arc::new(read(text, "t", None).unwrap_or_else(|errors| panic!("{errors}")).system);
        let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
        let sensors = FakeSensors::default();
        let node = Node::new(system, plan).sensors(Box::new(sensors.clone())).broker(Arc::new(FakeBroker));
        let prepared = node.prepare().unwrap();
        let contracts = prepared.handles().contracts;
        let refused = contracts.set("host.drone.temperature", 1.0).unwrap_err();
        assert_eq!(refused.to_string(), "cannot set condition `host.drone.temperature`: it is measured");
        sensors.set(Some(40.0), None);
        let running = prepared.start();
        let until = |what: &str, holds: &dyn Fn(&crate::ContractState) -> bool| {
            let started = std::time::Instant::now();
            while !holds(&contracts.states()[0]) {
                assert!(started.elapsed().as_secs() < 30, "{what}: {:?}", contracts.states());
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        };
        let is = |reading: ConditionReading, value: f64| reading == ConditionReading::Fresh(value);
        until("the first samples", &|state| is(state.conditions[0].1, 40.0) && is(state.conditions[3].1, 0.25));
        assert_eq!(contracts.states()[0].conditions[1].1, ConditionReading::Stale);
        sensors.set(Some(90.5), Some(70.0));
        until("hot", &|state| state.regions == ["hot"] && is(state.conditions[1].1, 70.0));
        // It is stale after its age: `hot` ends.
        sensors.set(None, Some(70.0));
        until("normal", &|state| state.regions == ["normal"] && state.conditions[0].1 == ConditionReading::Stale);
        let finished = running.stop(&mut |_, _, _| ());
        let unmeasured = |name: &str| {
            let is = |note: &&RunNote| matches!(note, RunNote::Unmeasured { condition, .. } if condition == name);
            finished.notes.iter().filter(is).count()
        };
        assert_eq!(["host.drone.temperature", "host.drone.battery", "host.drone.cpu"].map(unmeasured), [1, 1, 0]);
    }
}
