//! The thread that executes actions of contracts.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Instant as WallClock;

use hyoshi_dispatch::ChangedRegion;
use hyoshi_model::{ExternalAction, Instant, ProgramId, Span};
use rtrb::Consumer;

use super::commands::{CommandQueue, PendingCommand};
use super::{
    ActionLog, ActionOutcome, ActionsEnd, BrokerAccess, COMMAND_LIMIT, ReadyAction, RegionCallback, RegionEvent,
};
use crate::common::CommonState;
use crate::ended::panic_text;

/// The time between two looks at running commands.
const LOOK: Span = Span::from_millis(5);

/// The time that commands have after the end of the run.
const GRACE: Span = Span::from_millis(300);

/// Executes actions when regions begin.
pub(crate) struct ActionExecutor {
    common: Arc<CommonState>,
    rings: Vec<Consumer<ChangedRegion>>,
    actions: Vec<ReadyAction>,
    callbacks: BTreeMap<String, RegionCallback>,
    broker: Option<Arc<dyn BrokerAccess>>,
    /// By contract.
    commands: Vec<CommandQueue>,
    /// By contract: its active regions.
    active: Vec<Vec<u16>>,
    /// The importance of programs that regions set, as the broker has it.
    importance: BTreeMap<ProgramId, u32>,
    pub log: ActionLog,
    pub end: ActionsEnd,
}

impl fmt::Debug for ActionExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActionExecutor").field("actions", &self.actions.len()).finish_non_exhaustive()
    }
}

impl ActionExecutor {
    pub(super) fn new(
        common: Arc<CommonState>,
        rings: Vec<Consumer<ChangedRegion>>,
        actions: Vec<ReadyAction>,
        (callbacks, broker): (BTreeMap<String, RegionCallback>, Option<Arc<dyn BrokerAccess>>),
    ) -> Self {
        let system = &common.system;
        let outcome = |one: &ReadyAction| {
            let contract = &system.contracts[usize::from(one.contract)];
            ActionOutcome {
                contract: contract.name.clone(),
                region: contract.regions[usize::from(one.region)].name.clone(),
                action: one.action.text(system),
                done: 0,
                failed: 0,
                last: None,
            }
        };
        let log = ActionLog(Arc::new(Mutex::new(actions.iter().map(outcome).collect())));
        let declared = actions.iter().filter_map(|one| match one.action {
            ExternalAction::Importance { program, .. } => Some((program, system.program(program).importance)),
            _ => None,
        });
        ActionExecutor {
            importance: declared.collect(),
            commands: system.contracts.iter().map(|_| CommandQueue::default()).collect(),
            active: vec![Vec::new(); system.contracts.len()],
            end: ActionsEnd::default(),
            log,
            rings,
            actions,
            callbacks,
            broker,
            common,
        }
    }

    /// Executes actions until the run ends.
    pub fn serve(mut self) {
        self.common.actions.wait();
        while self.common.has_begun() {
            // Read before the rings: what was pushed before the end is executed.
            let over = self.end.requested();
            let mut changed = Vec::new();
            for ring in &mut self.rings {
                changed.extend(std::iter::from_fn(|| ring.pop().ok()));
            }
            changed.sort_by_key(|change: &ChangedRegion| change.at);
            changed.into_iter().for_each(|change| self.change(change));
            self.poll_commands();
            if over {
                return self.finish_commands();
            }
            let busy = self.commands.iter().any(CommandQueue::is_busy);
            let until = if busy { self.common.now() + LOOK } else { Instant::NEVER };
            self.common.actions.wait_until(self.common.clock(), until);
        }
    }

    fn change(&mut self, change: ChangedRegion) {
        let regions = &self.common.system.contracts[usize::from(change.contract)].regions;
        let parent = |region: u16| regions[usize::from(region)].rules.parent;
        let level = change.to.map(parent);
        let active = &mut self.active[usize::from(change.contract)];
        // Also those of its level whose end was lost.
        active.retain(|region| Some(*region) != change.from && level != Some(parent(*region)));
        active.extend(change.to);
        if let Some(region) = change.to {
            for place in 0..self.actions.len() {
                if (self.actions[place].contract, self.actions[place].region) == (change.contract, region) {
                    self.begin(place, change);
                }
            }
        }
        self.set_importance(change);
    }

    /// A region with this action has begun.
    fn begin(&mut self, place: usize, change: ChangedRegion) {
        let contract = &self.common.system.contracts[usize::from(change.contract)];
        let name = |region: u16| contract.regions[usize::from(region)].name.as_str();
        let ReadyAction { region, action, path, .. } = &self.actions[place];
        let result = match action {
            ExternalAction::Call { callback } => {
                let Some(callback) = self.callbacks.get_mut(&**callback) else { return };
                let now = self.common.now();
                let previous = change.from.map(name);
                let event =
                    RegionEvent { contract: &contract.name, region: name(*region), previous, at: change.at, now };
                let called = catch_unwind(AssertUnwindSafe(|| callback(&event)));
                Some((place, called.map_err(|panic| format!("it panicked: {}", panic_text(&*panic)))))
            }
            ExternalAction::Run { command } => self.commands[usize::from(change.contract)].add(PendingCommand {
                action: place,
                path: path.clone(),
                words: command.clone(),
                contract: contract.name.clone(),
                region: name(*region).to_owned(),
            }),
            ExternalAction::Importance { .. } => None,
        };
        if let Some((place, result)) = result {
            self.log.record(place, result);
        }
    }

    /// Sets the importance of programs that the active regions want, or the declared one.
    fn set_importance(&mut self, change: ChangedRegion) {
        for program in self.importance.keys().copied().collect::<Vec<_>>() {
            let (wanted, by) = self.wanted(program);
            if self.importance.get(&program) == Some(&wanted) {
                continue;
            }
            let result = match &self.broker {
                Some(broker) => broker.set_importance(&self.common.system.program(program).name, wanted),
                None => Err("the run has no CPU broker".to_owned()),
            };
            if result.is_ok() {
                self.importance.insert(program, wanted);
            }
            // Without an active region: it ends the one of this change.
            let ended = |one: &ReadyAction| {
                (one.contract, Some(one.region)) == (change.contract, change.from)
                    && matches!(one.action, ExternalAction::Importance { program: of, .. } if of == program)
            };
            match (by, result) {
                (Some(place), result) => self.log.record(place, result),
                (None, Err(reason)) => {
                    if let Some(place) = self.actions.iter().position(ended) {
                        self.log.record(place, Err(format!("at the end of the region: {reason}")));
                    }
                }
                (None, Ok(())) => {}
            }
        }
    }

    /// The importance that a program should have, with the action that wants it: that of the contract with the highest
    /// precedence; of its active regions, the innermost.
    fn wanted(&self, program: ProgramId) -> (u32, Option<usize>) {
        let contracts = &self.common.system.contracts;
        let wants = self.actions.iter().enumerate().filter_map(|(place, one)| match one.action {
            ExternalAction::Importance { program: of, importance } if of == program => {
                let depth = self.active[usize::from(one.contract)].iter().position(|active| *active == one.region)?;
                let precedence = contracts[usize::from(one.contract)].precedence;
                let first = std::cmp::Reverse(one.contract);
                Some(((precedence, first, depth), (importance, Some(place))))
            }
            _ => None,
        });
        let declared = (self.common.system.program(program).importance, None);
        wants.max_by_key(|(rank, _)| *rank).map_or(declared, |(_, wanted)| wanted)
    }

    fn poll_commands(&mut self) {
        for queue in &mut self.commands {
            for (action, result) in queue.poll(COMMAND_LIMIT) {
                self.log.record(action, result);
            }
        }
    }

    /// Running commands have a moment to end.
    fn finish_commands(&mut self) {
        let begun = WallClock::now();
        let left = || GRACE.saturating_sub(Span::from_nanos(begun.elapsed().as_nanos() as u64));
        while self.commands.iter().any(CommandQueue::is_busy) && !left().is_zero() {
            std::thread::sleep(std::time::Duration::from_nanos(LOOK.as_nanos()));
            self.poll_commands();
        }
        for queue in &mut self.commands {
            for (action, reason) in queue.abandon() {
                self.log.record(action, Err(reason.to_owned()));
            }
        }
    }
}
