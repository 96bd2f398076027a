//! Actions of contracts outside of the dispatcher: callbacks, commands, settings at the CPU broker, the DSCP of links,
//! and behaviours of delegates.
//!
//! ```text
//! section of a processor ─► ring of changed regions ─► one thread at normal priority ─► callback, command, setting
//! ```
//!
//! The thread executes the actions of a region once, when the region begins, in the order of the changes of each
//! contract. It never polls for changes: sections wake it.

mod commands;
mod executor;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hyoshi_dispatch::ChangedRegion;
use hyoshi_model::{
    Contract, DeclaredBehaviour, DelegateTotals, ExternalAction, Instant, ProcessorId, ReservationSetting, Span, System,
};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::common::CommonState;
use crate::start_error::StartError;
pub use commands::COMMAND_LIMIT;
pub(crate) use commands::Commands;
pub(crate) use executor::ActionExecutor;
use settings::SettingTargets;

/// The changes of regions of one processor that wait for the thread.
const RING: usize = 1_024;

/// A region of a contract has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionEvent<'a> {
    /// The contract.
    pub contract: &'a str,
    /// The region that has begun.
    pub region: &'a str,
    /// The region of the same level that has ended.
    pub previous: Option<&'a str>,
    /// When, on the clock of the run.
    pub at: Instant,
    /// The time of the run at the call.
    pub now: Instant,
}

/// By processor: where its sections put changes of regions.
pub(crate) type ChangeRings = BTreeMap<ProcessorId, Producer<ChangedRegion>>;

/// A callback of the program, which a region calls when it begins.
pub type RegionCallback = Box<dyn FnMut(&RegionEvent<'_>) + Send>;

/// The requests and grants of all tasks of a CPU broker, each as a part of its cap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BrokerLoad {
    /// What tasks request.
    pub asked: f64,
    /// What the policy grants.
    pub granted: f64,
    /// The tasks by their names.
    pub programs: BTreeMap<String, ProgramLoad>,
}

/// What one task of a CPU broker requests, gets and uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProgramLoad {
    /// What it requests, as a part of one CPU.
    pub asked: f64,
    /// What the policy grants, as a part of one CPU.
    pub granted: f64,
    /// The CPU time that it has reported so far.
    pub used: Span,
    /// The number of its reports.
    pub reports: u64,
}

impl BrokerLoad {
    /// What the policy does not grant.
    pub fn contention(&self) -> f64 {
        (self.asked - self.granted).max(0.0)
    }
}

/// Why a setting outside of the dispatcher was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRefusal {
    /// In words.
    pub reason: String,
    /// Whether it may be accepted later, such as when a broker answers again. Otherwise it is not requested again while
    /// the region is active.
    pub is_temporary: bool,
}

impl SettingRefusal {
    /// Later requests may succeed.
    pub fn for_now(reason: impl Into<String>) -> Self {
        SettingRefusal { reason: reason.into(), is_temporary: true }
    }

    /// Later requests would fail, too.
    pub fn last(reason: impl Into<String>) -> Self {
        SettingRefusal { reason: reason.into(), is_temporary: false }
    }
}

/// The CPU broker, as contracts use it. Calls may block for a while.
pub trait BrokerAccess: Send + Sync {
    /// The present requests and grants; `None` if no broker answers.
    fn load(&self) -> Option<BrokerLoad>;

    /// Sets a setting of a program, in the unit of the setting.
    ///
    /// # Errors
    ///
    /// If no broker answers, or it refuses.
    fn set(&self, program: &str, setting: ReservationSetting, to: u64) -> Result<(), SettingRefusal>;
}

/// The delegates around the servants of this program. Calls are short.
pub trait DelegateAccess: Send + Sync {
    /// What a delegate has counted, by its position in the system; `None` if the program does not serve its object.
    fn totals(&self, delegate: u16) -> Option<DelegateTotals>;

    /// Sets the behaviour of a delegate for an operation, or for all others ([`ALL_OPERATIONS`](hyoshi_model::ALL_OPERATIONS));
    /// `None`: that of the file. False if the program does not serve its object.
    fn set_behaviour(&self, delegate: u16, operation: &str, behaviour: Option<DeclaredBehaviour>) -> bool;
}

/// What a run may do outside of the dispatcher.
#[derive(Default)]
pub(crate) struct RegionActions {
    pub callbacks: BTreeMap<String, RegionCallback>,
    /// Whether contracts may run commands.
    pub commands: bool,
    pub broker: Option<Arc<dyn BrokerAccess>>,
    pub delegates: Option<Arc<dyn DelegateAccess>>,
}

/// The results of one action of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionOutcome {
    /// The contract.
    pub contract: String,
    /// The region.
    pub region: String,
    /// The action, such as `call land`.
    pub action: String,
    /// How often it was done.
    pub done: u64,
    /// How often it failed, was refused or timed out.
    pub failed: u64,
    /// The last result; `None` before the first one.
    pub last: Option<Result<(), String>>,
}

impl fmt::Display for ActionOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.action)?;
        match &self.last {
            None => f.write_str("not requested"),
            Some(Ok(())) => write!(f, "done {}", times(self.done + self.failed)),
            Some(Err(reason)) if self.done == 0 => write!(f, "failed {}: {reason}", times(self.failed)),
            Some(Err(reason)) => write!(f, "failed {} of {} times: {reason}", self.failed, self.done + self.failed),
        }?;
        match (&self.last, self.failed) {
            (Some(Ok(())), 1..) => write!(f, ", {} failed", self.failed),
            _ => Ok(()),
        }
    }
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// The outcomes of all actions here, in the order of the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionLog(Arc<Mutex<Vec<ActionOutcome>>>);

impl ActionLog {
    pub fn outcomes(&self) -> Vec<ActionOutcome> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, action: usize, result: Result<(), String>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = &mut all[action];
        match &result {
            Ok(()) => outcome.done += 1,
            Err(_) => outcome.failed += 1,
        }
        outcome.last = Some(result);
    }
}

/// Ends the thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionsEnd(Arc<AtomicBool>);

impl ActionsEnd {
    pub fn request(&self, common: &CommonState) {
        self.0.store(true, Ordering::Release);
        common.actions.post();
    }

    fn requested(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// An action of a region here, ready to be executed.
struct ReadyAction {
    /// Its contract and region, by their positions.
    contract: u16,
    region: u16,
    action: ExternalAction,
    /// The program of a command, looked up at the start.
    path: PathBuf,
}

/// The processor here whose changes of regions cause an action: that of the contract. If another process evaluates it: a
/// processor on the host of the reservation, of the delegate, or at an end of the link. `None` if other processes execute
/// it.
fn executed_on(
    system: &System,
    here: &BTreeSet<ProcessorId>,
    contract: &Contract,
    action: &ExternalAction,
) -> Option<ProcessorId> {
    let is_here = |processor: &ProcessorId| here.contains(processor);
    let on = |host| contract.processor_on(system, host);
    match action {
        // Each of its two hosts sends.
        ExternalAction::MarkLink { link, .. } => {
            let (one, other) = system.links[usize::from(*link)].between;
            [one, other].map(on).into_iter().find(is_here)
        }
        // Only where its servant is.
        ExternalAction::Behave { delegate, .. } => {
            let served_on = Some(system.delegates[usize::from(*delegate)].processor(system)).filter(is_here)?;
            Some(if is_here(&contract.processor) { contract.processor } else { served_on })
        }
        ExternalAction::Reserve { program, .. } if !is_here(&contract.processor) => {
            Some(on(system.program(*program).host)).filter(is_here)
        }
        ExternalAction::Reserve { .. } | ExternalAction::Call { .. } | ExternalAction::Run { .. } => {
            Some(contract.processor).filter(is_here)
        }
    }
}

impl RegionActions {
    /// Checks what the contracts on these processors need, and looks up their commands.
    fn ready(&self, system: &System, here: &BTreeSet<ProcessorId>) -> Result<Vec<ReadyAction>, StartError> {
        for callback in self.callbacks.keys() {
            let calls = |action: &ExternalAction| matches!(action, ExternalAction::Call { callback: one } if **one == **callback);
            if !system.contracts.iter().flat_map(Contract::external_actions).any(|(_, action)| calls(action)) {
                return Err(StartError::UncalledCallback { callback: callback.clone() });
            }
        }
        let mut actions = Vec::new();
        for (place, contract) in (0..).zip(&system.contracts) {
            let is_here = |(_, action): &(u16, &ExternalAction)| executed_on(system, here, contract, action).is_some();
            for (region, action) in contract.external_actions().filter(is_here) {
                let path = self.program(system, (contract, region), action)?;
                actions.push(ReadyAction { contract: place, region, action: action.clone(), path });
            }
        }
        Ok(actions)
    }

    /// Checks what the contracts on these processors need.
    pub fn check(&self, system: &System, here: &BTreeSet<ProcessorId>) -> Result<(), StartError> {
        self.ready(system, here).map(drop)
    }

    /// The thread for the actions, and a ring for each processor; `None` if the contracts here have no such actions.
    pub fn prepare(
        mut self,
        common: &Arc<CommonState>,
        here: &BTreeSet<ProcessorId>,
    ) -> Result<Option<(ActionExecutor, ChangeRings)>, StartError> {
        let system = common.system.clone();
        let actions = self.ready(&system, here)?;
        if actions.is_empty() {
            return Ok(None);
        }
        let on =
            |one: &ReadyAction| executed_on(&system, here, &system.contracts[usize::from(one.contract)], &one.action);
        let mut rings: Vec<Consumer<ChangedRegion>> = Vec::new();
        let mut producers = BTreeMap::new();
        for processor in actions.iter().filter_map(on) {
            producers.entry(processor).or_insert_with(|| {
                let (producer, consumer) = RingBuffer::new(RING);
                rings.push(consumer);
                producer
            });
        }
        let callbacks = std::mem::take(&mut self.callbacks);
        let targets = SettingTargets { broker: self.broker, delegates: self.delegates };
        let executor = ActionExecutor::new(common.clone(), rings, actions, (callbacks, targets));
        Ok(Some((executor, producers)))
    }

    /// The path of a command's program; empty for other actions.
    fn program(
        &self,
        system: &System,
        (contract, region): (&Contract, u16),
        action: &ExternalAction,
    ) -> Result<PathBuf, StartError> {
        let region = || format!("{}.{}", contract.name, contract.regions[usize::from(region)].name);
        match action {
            ExternalAction::Call { callback } if !self.callbacks.contains_key(&**callback) => {
                Err(StartError::NoCallback { callback: callback.to_string(), region: region() })
            }
            ExternalAction::Run { .. } if !self.commands => {
                Err(StartError::CommandsRefused { action: action.text(system), region: region() })
            }
            ExternalAction::Run { command } => commands::find(&command[0]).map_err(|reason| StartError::NoCommand {
                program: command[0].to_string(),
                region: region(),
                reason,
            }),
            ExternalAction::Call { .. }
            | ExternalAction::Reserve { .. }
            | ExternalAction::MarkLink { .. }
            | ExternalAction::Behave { .. } => Ok(PathBuf::new()),
        }
    }
}
