//! The contracts of a run: operators and programs set conditions and regions, and read the active regions.

use std::fmt;
use std::sync::Arc;

use hyoshi_dispatch::ContractAdmission;
use hyoshi_model::predicate::ConditionReading;
use hyoshi_model::{ConditionSource, Contract, ContractAction, Instant, ProcessorId, Span, System};
use hyoshi_trace::Input;

use crate::common::CommonState;
use crate::processor::ProcessorState;
use crate::region_actions::{ActionLog, ActionOutcome};

/// Sets conditions and regions of the contracts of a run. Each call locks a processor for a short section. Clones share
/// the run.
#[derive(Clone, Debug)]
pub struct ContractControl {
    common: Arc<CommonState>,
    processors: Vec<Arc<ProcessorState>>,
    actions: Option<ActionLog>,
}

/// The state of a contract.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractState {
    /// Its name.
    pub contract: String,
    /// The names of its active regions, outer regions first. Empty before its first evaluation.
    pub regions: Vec<String>,
    /// The names of its conditions, with the values at its last evaluation.
    pub conditions: Vec<(String, ConditionReading)>,
    /// The region that a command has set.
    pub forced: Option<String>,
    /// How long it stays set; `None` if until `release`.
    pub forced_left: Option<Span>,
    /// The host of the process that evaluates it, if that is another one. Then this process applies the regions that
    /// it has sent last, and knows no conditions.
    pub evaluated_by: Option<String>,
}

/// Why a condition or a region was not set.
#[derive(Clone, Debug, PartialEq)]
pub enum ContractError {
    /// The system has no such condition, contract or region.
    Unknown {
        /// `condition`, `contract` or `region`.
        what: &'static str,
        /// The name.
        name: String,
        /// The names that it has.
        known: Vec<String>,
    },
    /// The host measures the condition.
    Measured {
        /// The name of the condition.
        condition: String,
    },
    /// No contract in this process watches the condition.
    Unwatched {
        /// The name of the condition.
        condition: String,
    },
    /// Another process evaluates the contract.
    Elsewhere {
        /// The name of the contract.
        contract: String,
        /// The host of that process.
        host: String,
    },
    /// The value is not a number from -1e9 to 1e9.
    OutOfRange {
        /// The value.
        value: f64,
    },
    /// The run has not begun, or is over.
    Idle,
}

impl ContractError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        match self {
            ContractError::Unknown { what, known, .. } if known.is_empty() => {
                format!("declare a {what} in the system file")
            }
            ContractError::Unknown { known, .. } => format!("known: {}", known.join(", ")),
            ContractError::Measured { .. } => {
                "declare and watch a [condition.NAME], or set a region with `hyoshi contract force`".into()
            }
            ContractError::Unwatched { condition } => {
                format!("watch \"condition.{condition}\" in a contract, or ask the node of another host, with --at")
            }
            ContractError::Elsewhere { host, .. } => format!("ask the node of host `{host}`, with --at"),
            ContractError::OutOfRange { .. } => "use a number from -1e9 to 1e9".into(),
            ContractError::Idle => "request it again during the run".into(),
        }
    }
}

impl fmt::Display for ContractError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ContractError::Unknown { what, name, .. } => write!(f, "there is no {what} `{name}`"),
            ContractError::Measured { condition } => write!(f, "cannot set condition `{condition}`: it is measured"),
            ContractError::Unwatched { condition } => write!(f, "no contract here watches condition `{condition}`"),
            ContractError::Elsewhere { contract, host } => {
                write!(f, "host `{host}` evaluates contract `{contract}`, in another process")
            }
            ContractError::OutOfRange { value } => write!(f, "the value {value} is out of range"),
            ContractError::Idle => f.write_str("the run has not begun, or has ended"),
        }
    }
}

impl std::error::Error for ContractError {}

impl ContractControl {
    pub(crate) fn new(
        common: Arc<CommonState>,
        processors: Vec<Arc<ProcessorState>>,
        actions: Option<ActionLog>,
    ) -> ContractControl {
        ContractControl { common, processors, actions }
    }

    /// A contract in the file's syntax.
    ///
    /// # Errors
    ///
    /// If there is no such contract.
    pub fn text(&self, contract: &str) -> Result<String, ContractError> {
        let system = &self.common.system;
        let place = place("contract", contract, system.contracts.iter().map(|one| one.name.as_str()))?;
        Ok(hyoshi_model::contract_text(system, &system.contracts[usize::from(place)]))
    }

    /// Sets a condition for all contracts of this process that watch it.
    ///
    /// # Errors
    ///
    /// If there is no such condition or run, no contract here watches it, or the value is out of range.
    pub fn set(&self, condition: &str, value: f64) -> Result<(), ContractError> {
        let system = &self.common.system;
        let place = place("condition", condition, system.conditions.iter().map(|one| one.name.as_str()));
        // Measured ones cannot be set.
        let settable = system.conditions.iter().filter(|one| one.measure.is_none());
        let settable = || settable.take(MOST_KNOWN).map(|one| one.name.clone()).collect();
        let place = place.map_err(|error| match error {
            ContractError::Unknown { what, name, .. } => ContractError::Unknown { what, name, known: settable() },
            error => error,
        })?;
        if !(-1e9..=1e9).contains(&value) {
            return Err(ContractError::OutOfRange { value });
        }
        let declared = &system.conditions[usize::from(place)];
        if declared.measure.is_some() {
            return Err(ContractError::Measured { condition: condition.to_owned() });
        }
        self.pass_condition(place, value)
    }

    /// Sets a condition, by its position, to a value in the range.
    pub(crate) fn pass_condition(&self, place: u16, value: f64) -> Result<(), ContractError> {
        let system = &self.common.system;
        let set = ConditionSource::Set(place);
        let watches = |one: &&Contract| one.conditions.iter().any(|one| one.of == set);
        let mut on: Vec<ProcessorId> =
            system.contracts.iter().filter(watches).map(|one| one.measured_on(system, &set)).collect();
        on.sort_unstable();
        on.dedup();
        let mut here = self.processors.iter().filter(|one| on.contains(&one.id)).peekable();
        if here.peek().is_none() {
            let condition = system.conditions[usize::from(place)].name.clone();
            return Err(ContractError::Unwatched { condition });
        }
        let input = Input::Condition { condition: place, value: (value * 1e6).round() as i64 };
        here.try_for_each(|processor| self.pass(processor, input))
    }

    /// Sets a region of a contract, and the regions around it, from its next evaluation on. Without a region, or after
    /// the time `lasting`, conditions decide again.
    ///
    /// # Errors
    ///
    /// If there is no such contract, region or run, or another process evaluates the contract.
    pub fn force(&self, contract: &str, region: Option<&str>, lasting: Option<Span>) -> Result<(), ContractError> {
        let system = &self.common.system;
        let number = place("contract", contract, system.contracts.iter().map(|one| one.name.as_str()))?;
        let found = &system.contracts[usize::from(number)];
        let names = || found.regions.iter().map(|region| region.name.as_str());
        let region = region.map(|region| place("region", region, names())).transpose()?;
        let processor = self
            .processors
            .iter()
            .find(|one| one.id == found.processor)
            .ok_or_else(|| ContractError::Elsewhere { contract: contract.to_owned(), host: host_of(system, found) })?;
        let until = lasting.map_or(Instant::NEVER, |lasting| self.common.now().saturating_add(lasting));
        self.pass(processor, Input::Force { contract: number, region, until })
    }

    /// The results of actions outside of the dispatcher so far, of the contracts that this process evaluates, and of
    /// admissions of operations of this process.
    pub fn actions(&self) -> Vec<ActionOutcome> {
        let mut all = self.actions.as_ref().map_or(Vec::new(), ActionLog::outcomes);
        let mut copied = Vec::new();
        for processor in &self.processors {
            // No section allocates: what does not fit is copied again, with more room.
            loop {
                let count = processor.section(|crew, _| {
                    let count = crew.dispatcher.contract_admissions().count();
                    if count <= copied.capacity() {
                        copied.extend(crew.dispatcher.contract_admissions().copied());
                    }
                    count
                });
                if count <= copied.capacity() {
                    break;
                }
                copied.reserve(count);
            }
            all.extend(copied.drain(..).map(|one| admission(&self.common.system, &one)));
        }
        all
    }

    /// The contracts that this process evaluates, and those of other processes that have sent it regions.
    pub fn states(&self) -> Vec<ContractState> {
        let system = &self.common.system;
        let mut states = Vec::new();
        for processor in &self.processors {
            processor.section(|crew, now| {
                for found in crew.dispatcher.contracts() {
                    let contract = &system.contracts[usize::from(found.contract)];
                    let is_followed = !found.is_evaluated();
                    let is_listed = |states: &[ContractState]| states.iter().any(|one| one.contract == contract.name);
                    // Another processor here evaluates it, or none has sent its regions.
                    if is_followed
                        && (self.common.runs(contract.processor)
                            || found.active().next().is_none()
                            || is_listed(&states))
                    {
                        continue;
                    }
                    let name = |region: u16| contract.regions[usize::from(region)].name.clone();
                    let names = contract.conditions.iter().map(|condition| condition.name.clone());
                    states.push(ContractState {
                        contract: contract.name.clone(),
                        regions: found.active().map(name).collect(),
                        conditions: match is_followed {
                            true => Vec::new(),
                            false => names.zip(found.readings.iter().copied()).collect(),
                        },
                        forced: found.forced().map(|(region, _)| name(region)),
                        forced_left: found
                            .forced()
                            .filter(|(_, until)| *until != Instant::NEVER)
                            .map(|(_, until)| until.since(now)),
                        evaluated_by: is_followed.then(|| host_of(system, contract)),
                    });
                }
            });
        }
        states
    }

    fn pass(&self, processor: &ProcessorState, input: Input) -> Result<(), ContractError> {
        if !self.common.has_begun() || self.common.now() == Instant::ZERO {
            return Err(ContractError::Idle);
        }
        // Created before the lock for which lanes may wait.
        let mut wakeups = processor.wakeups();
        let passed = processor.section(|crew, now| crew.change_contracts(now, input, &mut wakeups));
        wakeups.deliver();
        if passed { Ok(()) } else { Err(ContractError::Idle) }
    }
}

fn admission(system: &System, of: &ContractAdmission) -> ActionOutcome {
    let contract = &system.contracts[usize::from(of.region.0)];
    let action = ContractAction::Admission { operation: of.operation, admit: of.admit };
    let last = of.refusal.map_or(Ok(()), |refusal| Err(refusal.to_string()));
    ActionOutcome {
        contract: contract.name.clone(),
        region: contract.regions[usize::from(of.region.1)].name.clone(),
        action: action.at_begin(system).unwrap_or_default(),
        done: of.done,
        failed: of.refused,
        last: Some(last).filter(|_| of.done + of.refused > 0),
    }
}

/// The most names that an error lists.
const MOST_KNOWN: usize = 12;

fn host_of(system: &System, contract: &Contract) -> String {
    system.hosts[system.processor(contract.processor).host.index()].name.clone()
}

fn place<'a>(
    what: &'static str,
    name: &str,
    mut names: impl Iterator<Item = &'a str> + Clone,
) -> Result<u16, ContractError> {
    let known = names.clone();
    let found = names.position(|one| one == name).and_then(|place| u16::try_from(place).ok());
    found.ok_or_else(|| {
        let known = known.take(MOST_KNOWN).map(str::to_owned).collect();
        ContractError::Unknown { what, name: name.to_owned(), known }
    })
}
