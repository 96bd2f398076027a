//! Windows with a control group below and above them: its weight is a floor for what the windows do not give, its quota
//! a hard cap for tasks that shall have no more than their reservation.
//!
//! A floor is a favour: where the kernel refuses it, the window goes on without, and says why. A cap is a promise: where
//! it cannot be kept, nothing is reserved.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_control::group::Terms;
use hyoshi_model::{Instant, Reservation};
use hyoshi_os::Wake;
use hyoshi_os::process::ProcessIdentity;

use super::groups::Groups;
use super::moves::Moves;
use super::window::WindowProxy;
use super::{Abilities, Ground, SchedulerProxy};
use crate::kernel::{Lanes, NotReserved};

/// See the module.
#[derive(Debug)]
pub struct GroupedProxy {
    windows: WindowProxy,
    /// Or why there can be none.
    groups: Result<Groups, String>,
    floor: bool,
    /// Tasks that have no floor, and why.
    without: BTreeMap<TaskId, String>,
}

impl GroupedProxy {
    /// Windows with groups for hard tasks, and with a floor for all.
    pub fn new(windows: WindowProxy, groups: Result<Groups, String>, floor: bool) -> Self {
        GroupedProxy { windows, groups, floor, without: BTreeMap::new() }
    }

    /// Holds the task to its terms, in whose group its threads may be raised.
    fn hold(&mut self, task: TaskId, terms: Terms, ground: &mut Ground) -> Result<(), NotReserved> {
        match &mut self.groups {
            Ok(groups) => groups.hold(task, terms, ground),
            Err(why) => Err(NotReserved { most: None, why: why.clone() }),
        }
    }

    fn ungroup(&mut self, task: TaskId, ground: &mut Ground) {
        if let Ok(groups) = &mut self.groups {
            groups.release(task, ground);
        }
    }

    fn reserve_with_floor(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        ground: &mut Ground,
    ) -> Result<(), NotReserved> {
        let floored = self.hold(task, Terms::beside_window(reservation, true, false), ground);
        if floored.is_err() {
            self.ungroup(task, ground);
        }
        let reserved = self.windows.reserve(task, reservation, now, ground);
        let why = match (floored, reserved) {
            (Ok(()), Ok(())) => {
                self.without.remove(&task);
                return Ok(());
            }
            (Err(refused), Ok(())) => refused.why,
            (Err(_), Err(refused)) => return Err(refused),
            (Ok(()), Err(refused)) => {
                // It may be the group in which no thread can be raised.
                self.ungroup(task, ground);
                self.windows.reserve(task, reservation, now, ground)?;
                refused.why
            }
        };
        self.without.insert(task, why);
        Ok(())
    }

    fn reserve_hard(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        ground: &mut Ground,
    ) -> Result<(), NotReserved> {
        let before = self.groups.as_ref().ok().and_then(|groups| groups.terms(task));
        self.hold(task, Terms::beside_window(reservation, self.floor, true), ground)?;
        self.windows.reserve(task, reservation, now, ground).inspect_err(|_| {
            let _ = self.hold(task, before.unwrap_or(Terms::nothing()), ground);
        })
    }
}

impl SchedulerProxy for GroupedProxy {
    fn name(&self) -> &'static str {
        self.windows.name()
    }

    fn abilities(&self) -> Abilities {
        self.windows.abilities()
    }

    fn may_cap(&self, task: TaskId, ground: &Ground) -> Result<(), String> {
        self.groups.as_ref().map_err(String::clone)?.may_hold(task, ground)
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        ground: &mut Ground,
    ) -> Result<(), NotReserved> {
        match (ground.hard.contains(&task), self.floor) {
            (true, _) => self.reserve_hard(task, reservation, now, ground),
            (false, true) => self.reserve_with_floor(task, reservation, now, ground),
            (false, false) => {
                // It may have been hard until now.
                self.ungroup(task, ground);
                self.windows.reserve(task, reservation, now, ground)
            }
        }
    }

    fn release(&mut self, task: TaskId, ground: &mut Ground) {
        self.windows.release(task, ground);
        self.without.remove(&task);
        if !ground.hard.contains(&task) || self.hold(task, Terms::nothing(), ground).is_err() {
            self.ungroup(task, ground);
        }
    }

    fn dismiss(&mut self, task: TaskId, left: &[ProcessIdentity], ground: &mut Ground) {
        self.windows.dismiss(task, left, ground);
        if let Ok(groups) = &mut self.groups {
            groups.dismiss(task, left, ground);
        }
    }

    fn tick(&mut self, now: Instant, ground: &mut Ground) -> Instant {
        let groups = self.groups.as_mut().map_or(Instant::NEVER, |groups| groups.tick(now, ground));
        self.windows.tick(now, ground).min(groups)
    }

    fn finish(&mut self) {
        self.windows.finish();
    }

    fn attend(&mut self, wake: &Wake) {
        self.windows.attend(wake);
    }

    fn sleeps(&self, task: TaskId) -> bool {
        self.windows.sleeps(task)
    }

    fn woke(&mut self) -> Option<TaskId> {
        self.windows.woke()
    }

    fn standing(&self) -> Option<String> {
        self.windows.standing()
    }

    fn due(&self) -> Instant {
        self.windows.due().min(self.groups.as_ref().map_or(Instant::NEVER, Groups::due))
    }

    fn news(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.windows.news()
    }

    fn room(&mut self) -> Option<TaskId> {
        self.windows.room()
    }

    fn promise(&mut self, cpu: u32, lanes: Lanes, first: &[TaskId], ground: &mut Ground) -> bool {
        self.windows.promise(cpu, lanes, first, ground)
    }

    fn moves(&self) -> Option<Arc<Moves>> {
        self.groups.as_ref().map(Groups::moves).ok()
    }

    fn told(&self, task: TaskId) -> Option<String> {
        let without = self.without.get(&task).map(|why| format!("has no floor: {why}"));
        let group = without.or_else(|| self.groups.as_ref().ok()?.told(task));
        let told: Vec<String> = self.windows.told(task).into_iter().chain(group).collect();
        (!told.is_empty()).then(|| told.join("; "))
    }
}
