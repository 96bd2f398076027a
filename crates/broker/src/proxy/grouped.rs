//! Windows with a control group: its weight is a floor while the window is closed, its quota the cap of hard tasks.
//!
//! Without a floor, which is optional, the window still opens, and the reason is reported. Without a cap nothing is
//! reserved for a hard task.

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
use super::{Abilities, ProxyContext, SchedulerProxy};
use crate::platform::{CpuLanes, NotReserved};

/// See the module.
#[derive(Debug)]
pub struct GroupedProxy {
    windows: WindowProxy,
    /// Or why there are none.
    groups: Result<Groups, String>,
    floor: bool,
    /// Tasks without a floor, and why.
    without: BTreeMap<TaskId, String>,
}

impl GroupedProxy {
    /// Windows with groups for hard tasks, and with a floor for all.
    pub fn new(windows: WindowProxy, groups: Result<Groups, String>, floor: bool) -> Self {
        GroupedProxy { windows, groups, floor, without: BTreeMap::new() }
    }

    /// Sets the terms of the task's group, in which its threads may be raised.
    fn hold(&mut self, task: TaskId, terms: Terms, context: &mut ProxyContext) -> Result<(), NotReserved> {
        match &mut self.groups {
            Ok(groups) => groups.hold(task, terms, context),
            Err(reason) => Err(NotReserved { most: None, reason: reason.clone() }),
        }
    }

    fn ungroup(&mut self, task: TaskId, context: &mut ProxyContext) {
        if let Ok(groups) = &mut self.groups {
            groups.release(task, context);
        }
    }

    fn reserve_with_floor(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        let floored = self.hold(task, Terms::beside_window(reservation, true, false), context);
        if floored.is_err() {
            self.ungroup(task, context);
        }
        let reserved = self.windows.reserve(task, reservation, now, context);
        let reason = match (floored, reserved) {
            (Ok(()), Ok(())) => {
                self.without.remove(&task);
                return Ok(());
            }
            (Err(refused), Ok(())) => refused.reason,
            (Err(_), Err(refused)) => return Err(refused),
            (Ok(()), Err(refused)) => {
                // The group may be what prevents raising.
                self.ungroup(task, context);
                self.windows.reserve(task, reservation, now, context)?;
                refused.reason
            }
        };
        self.without.insert(task, reason);
        Ok(())
    }

    fn reserve_hard(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        let before = self.groups.as_ref().ok().and_then(|groups| groups.terms(task));
        self.hold(task, Terms::beside_window(reservation, self.floor, true), context)?;
        self.windows.reserve(task, reservation, now, context).inspect_err(|_| {
            let _ = self.hold(task, before.unwrap_or(Terms::nothing()), context);
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

    fn may_cap(&self, task: TaskId, context: &ProxyContext) -> Result<(), String> {
        self.groups.as_ref().map_err(String::clone)?.may_hold(task, context)
    }

    fn reserve(
        &mut self,
        task: TaskId,
        reservation: Reservation,
        now: Instant,
        context: &mut ProxyContext,
    ) -> Result<(), NotReserved> {
        match (context.hard.contains(&task), self.floor) {
            (true, _) => self.reserve_hard(task, reservation, now, context),
            (false, true) => self.reserve_with_floor(task, reservation, now, context),
            (false, false) => {
                // The task may have been hard before.
                self.ungroup(task, context);
                self.windows.reserve(task, reservation, now, context)
            }
        }
    }

    fn release(&mut self, task: TaskId, context: &mut ProxyContext) {
        self.windows.release(task, context);
        self.without.remove(&task);
        if !context.hard.contains(&task) || self.hold(task, Terms::nothing(), context).is_err() {
            self.ungroup(task, context);
        }
    }

    fn remove_processes(&mut self, task: TaskId, left: &[ProcessIdentity], context: &mut ProxyContext) {
        self.windows.remove_processes(task, left, context);
        if let Ok(groups) = &mut self.groups {
            groups.remove_processes(task, left, context);
        }
    }

    fn tick(&mut self, now: Instant, context: &mut ProxyContext) -> Instant {
        let groups = self.groups.as_mut().map_or(Instant::NEVER, |groups| groups.tick(now, context));
        self.windows.tick(now, context).min(groups)
    }

    fn finish(&mut self) {
        self.windows.finish();
    }

    fn wake_on_events(&mut self, wake: &Wake) {
        self.windows.wake_on_events(wake);
    }

    fn is_asleep(&self, task: TaskId) -> bool {
        self.windows.is_asleep(task)
    }

    fn next_woken(&mut self) -> Option<TaskId> {
        self.windows.next_woken()
    }

    fn status(&self) -> Option<String> {
        self.windows.status()
    }

    fn due(&self) -> Instant {
        self.windows.due().min(self.groups.as_ref().map_or(Instant::NEVER, Groups::due))
    }

    fn next_outcome(&mut self) -> Option<(TaskId, Reservation, Result<(), NotReserved>)> {
        self.windows.next_outcome()
    }

    fn next_retry(&mut self) -> Option<TaskId> {
        self.windows.next_retry()
    }

    fn promise_lanes(&mut self, cpu: u32, lanes: CpuLanes, first: &[TaskId], context: &mut ProxyContext) -> bool {
        self.windows.promise_lanes(cpu, lanes, first, context)
    }

    fn moves(&self) -> Option<Arc<Moves>> {
        self.groups.as_ref().map(Groups::moves).ok()
    }

    fn enforcement(&self, task: TaskId) -> Option<String> {
        let without = self.without.get(&task).map(|reason| format!("no floor: {reason}"));
        let group = without.or_else(|| self.groups.as_ref().ok()?.enforcement(task));
        let parts: Vec<String> = self.windows.enforcement(task).into_iter().chain(group).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}
