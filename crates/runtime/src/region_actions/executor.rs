//! The thread that executes actions of contracts.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use hyoshi_dispatch::ChangedRegion;
use hyoshi_model::{ExternalAction, Instant, Span};
use hyoshi_os::WaitOutcome;
use rtrb::Consumer;

use super::commands::{Commands, PendingCommand};
use super::settings::{OutsideSetting, SettingTargets, SettingValue};
use super::{ActionLog, ActionOutcome, ActionsEnd, ReadyAction, RegionCallback, RegionEvent};
use crate::common::CommonState;
use crate::ended::panic_text;

/// The time after which a refused setting is requested again.
const AGAIN: Span = Span::from_secs(1);

/// The state of a setting.
#[derive(Default)]
struct PresentSetting {
    /// The present value; `None`: that of the file.
    value: Option<SettingValue>,
    /// What was refused for good: the value, and the action that wants it.
    refused: Option<(Option<SettingValue>, Option<usize>)>,
}

/// Executes actions when regions begin.
pub(crate) struct ActionExecutor {
    common: Arc<CommonState>,
    rings: Vec<Consumer<ChangedRegion>>,
    actions: Vec<ReadyAction>,
    callbacks: BTreeMap<String, RegionCallback>,
    targets: SettingTargets,
    /// `None` if no action is a command.
    pub commands: Option<Arc<Commands>>,
    /// By contract: its active regions, outer ones first.
    active: Vec<Vec<u16>>,
    /// The settings that regions set.
    settings: BTreeMap<OutsideSetting, PresentSetting>,
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
        (callbacks, targets): (BTreeMap<String, RegionCallback>, SettingTargets),
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
        let settings =
            actions.iter().filter_map(|one| Some((OutsideSetting::of(&one.action)?.0, PresentSetting::default())));
        ActionExecutor {
            settings: settings.collect(),
            commands: actions
                .iter()
                .any(|one| matches!(one.action, ExternalAction::Run { .. }))
                .then(|| Arc::new(Commands::new(common.clone(), log.clone()))),
            active: vec![Vec::new(); system.contracts.len()],
            end: ActionsEnd::default(),
            log,
            rings,
            actions,
            callbacks,
            targets,
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
            if over {
                return;
            }
            // The broker may be absent for a while.
            let until = if self.has_refused() { self.common.now() + AGAIN } else { Instant::NEVER };
            let woken = self.common.actions.wait_until(self.common.clock(), until);
            if woken == WaitOutcome::TimedOut {
                self.apply_settings(None);
            }
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
        // And those within regions that have ended.
        let outer: Vec<u16> = active.iter().copied().filter(|region| parent(*region).is_none()).collect();
        active.retain(|region| parent(*region).is_none_or(|parent| outer.contains(&parent)));
        if let Some(region) = change.to {
            for place in 0..self.actions.len() {
                if (self.actions[place].contract, self.actions[place].region) == (change.contract, region) {
                    self.begin(place, change);
                }
            }
        }
        self.apply_settings(Some(change));
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
            ExternalAction::Run { command } => {
                let command = PendingCommand {
                    action: place,
                    path: path.clone(),
                    words: command.clone(),
                    contract: contract.name.clone(),
                    region: name(*region).to_owned(),
                };
                if let Some(commands) = &self.commands {
                    commands.add(change.contract, command);
                }
                None
            }
            ExternalAction::Reserve { .. } | ExternalAction::MarkLink { .. } | ExternalAction::Behave { .. } => None,
        };
        if let Some((place, result)) = result {
            self.log.record(place, result);
        }
    }

    /// Applies the settings of the active regions, or those of the file. Without a change it requests again what was
    /// refused, and records only success.
    fn apply_settings(&mut self, change: Option<ChangedRegion>) {
        let system = &self.common.system;
        for (setting, present) in &mut self.settings {
            let (wanted, by) = setting.wanted(system, &self.actions, &self.active);
            if present.value == wanted {
                present.refused = None;
                continue;
            }
            if present.refused == Some((wanted, by)) {
                continue;
            }
            let result = self.targets.apply(&self.common, setting, wanted);
            if result.is_ok() {
                present.value = wanted;
            }
            let is_last = result.as_ref().is_err_and(|refusal| !refusal.is_temporary);
            present.refused = is_last.then_some((wanted, by));
            let result = result.map_err(|refusal| refusal.reason);
            let Some(change) = change else {
                by.filter(|_| result.is_ok()).into_iter().for_each(|place| self.log.record(place, Ok(())));
                continue;
            };
            // Without an active region: it ends the one of this change.
            let ended = |one: &ReadyAction| {
                (one.contract, Some(one.region)) == (change.contract, change.from)
                    && OutsideSetting::of(&one.action).is_some_and(|(of, _)| of == *setting)
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

    /// Whether a setting was refused that may be accepted later.
    fn has_refused(&self) -> bool {
        let system = &self.common.system;
        let is_refused = |(setting, present): (&OutsideSetting, &PresentSetting)| {
            let wanted = setting.wanted(system, &self.actions, &self.active);
            wanted.0 != present.value && present.refused != Some(wanted)
        };
        self.settings.iter().any(is_refused)
    }
}
