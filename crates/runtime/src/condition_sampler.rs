//! Conditions that the host of a run and its delegates measure: one thread at normal priority samples them, and sets them as operators set
//! other conditions. So recordings have the samples, and replays repeat them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hyoshi_model::{
    Condition, ConditionSource, Contract, DelegateMeasure, DelegateTotals, HostQuantity, Instant, OutsideMeasure, Span,
    System,
};
use hyoshi_os::sensors::MachineSensors;
use hyoshi_os::{MachineReader, SpawnedThread, Wake};

use crate::common::CommonState;
use crate::contract_control::ContractControl;
use crate::ended::RunNote;
use crate::region_actions::{BrokerAccess, BrokerLoad, DelegateAccess};

/// The time between two samples, if contracts and ages do not need others.
const EVERY: Span = Span::from_secs(1);

/// The shortest time between two samples.
const SHORTEST: Span = Span::from_millis(100);

/// Samples the measured conditions of the contracts here.
pub(crate) struct ConditionSampler {
    common: Arc<CommonState>,
    contracts: ContractControl,
    measured: Vec<MeasuredCondition>,
    every: Span,
    sources: MeasureSources,
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
    /// What its delegate had counted at the last sample, and when.
    last: Option<(DelegateTotals, Instant)>,
    samples: u64,
    failed: u64,
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

/// The uses of a condition in contracts.
fn uses(system: &System, place: u16) -> impl Iterator<Item = (&Contract, &Condition)> {
    let all = system.contracts.iter().flat_map(|contract| contract.conditions.iter().map(move |one| (contract, one)));
    all.filter(move |(_, condition)| condition.of == ConditionSource::Set(place))
}

impl ConditionSampler {
    /// `None` if the contracts of this process have no measured condition.
    pub fn new(common: &Arc<CommonState>, contracts: ContractControl, sources: MeasureSources) -> Option<Self> {
        let system = &common.system;
        let here = |place: u16| {
            uses(system, place).filter(|(contract, one)| common.runs(contract.measured_on(system, &one.of)))
        };
        let measured = (0..).zip(&system.conditions).filter_map(|(place, condition)| {
            let measure = condition.measure.filter(|_| here(place).next().is_some())?;
            Some(MeasuredCondition { place, measure, last: None, samples: 0, failed: 0 })
        });
        let measured: Vec<MeasuredCondition> = measured.collect();
        let every = |(contract, condition): (&Contract, &Condition)| {
            let age = condition.max_age.unwrap_or(Span::from_nanos(u64::MAX));
            EVERY.max(contract.period).min(Span::from_nanos(age.as_nanos() / 2)).max(SHORTEST)
        };
        let every = measured.iter().flat_map(|one| here(one.place).map(every)).min()?;
        let (common, signal) = (common.clone(), Arc::default());
        Some(ConditionSampler { common, contracts, measured, every, sources, signal })
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
        let is_of_broker =
            |one: &MeasuredCondition| matches!(one.measure, OutsideMeasure::Host(of) if of.quantity.is_of_broker());
        let needs_broker = self.measured.iter().any(is_of_broker);
        let broker = self.sources.broker.as_ref().filter(|_| needs_broker);
        let load = broker.and_then(|broker| broker.load());
        for one in &mut self.measured {
            let quantity = match one.measure {
                OutsideMeasure::Host(measure) => measure.quantity,
                OutsideMeasure::Delegate(measure) => {
                    one.sample_delegate(measure, self.sources.delegates.as_deref(), &self.common, &self.contracts);
                    continue;
                }
            };
            let value = match quantity {
                HostQuantity::Temperature => self.sources.sensors.temperature(),
                HostQuantity::Battery => self.sources.sensors.battery(),
                HostQuantity::Cpu => cpu.as_mut().and_then(MachineReader::since_last).map(|ppm| f64::from(ppm) / 1e6),
                HostQuantity::BrokerAsked => load.map(|load| load.asked),
                HostQuantity::BrokerGranted => load.map(|load| load.granted),
                HostQuantity::BrokerContention => load.map(BrokerLoad::contention),
            };
            one.samples += 1;
            match value.filter(|value| value.is_finite()) {
                // Refused only after the end of the run.
                Some(value) => drop(self.contracts.pass_condition(one.place, value.clamp(-1e9, 1e9))),
                None => one.failed += 1,
            }
        }
    }

    fn notes(&self) -> Vec<RunNote> {
        let failed = self.measured.iter().filter(|one| one.failed > 0);
        let note = |one: &MeasuredCondition| RunNote::Unmeasured {
            condition: self.common.system.conditions[usize::from(one.place)].name.clone(),
            failed: one.failed,
            samples: one.samples,
        };
        failed.map(note).collect()
    }
}

impl MeasuredCondition {
    /// Without requests since the last sample there is no value, and nothing has failed.
    fn sample_delegate(
        &mut self,
        measure: DelegateMeasure,
        delegates: Option<&dyn DelegateAccess>,
        common: &CommonState,
        contracts: &ContractControl,
    ) {
        self.samples += 1;
        let Some(totals) = delegates.and_then(|all| all.totals(measure.delegate)) else {
            self.failed += 1;
            return;
        };
        let now = common.now();
        let (earlier, at) = self.last.replace((totals, now)).unwrap_or_default();
        if let Some(value) = totals.value(earlier, now.since(at), measure.quantity) {
            // Refused only after the end of the run.
            drop(contracts.pass_condition(self.place, value.clamp(-1e9, 1e9)));
        }
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
    use hyoshi_model::predicate::ConditionReading;
    use hyoshi_model::read;
    use hyoshi_os::fake::FakeSensors;
    use hyoshi_sched::{Plan, Strategies};

    use super::*;
    use crate::Node;

    struct FakeBroker;

    impl BrokerAccess for FakeBroker {
        fn load(&self) -> Option<BrokerLoad> {
            Some(BrokerLoad { asked: 1.25, granted: 1.0 })
        }

        fn set_importance(&self, _: &str, _: u32) -> Result<(), String> {
            Ok(())
        }
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
        assert_eq!(refused.to_string(), "condition `host.drone.temperature` is measured");
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
