//! What a window waits for between two looks: an event of the kernel where it grants one, else the time at which the budget
//! can be consumed.

use std::collections::BTreeMap;

use hyoshi_control::{Step, TaskId};
use hyoshi_model::{Instant, Span};

use super::{Alarm, Events, Open, Rang, State};

/// Tasks with more threads are watched by looks: each thread would have to be set anew in each period.
const MOST_ALARMS: usize = 16;
/// A task that has started threads is watched by looks for so long: those without an alarm may consume, too.
const RESTLESS: Span = Span::from_secs(1);

/// The alarms of a task's threads.
#[derive(Debug, Default)]
pub(super) struct Resting {
    alarms: BTreeMap<u32, Alarm>,
    /// What they were set to, and what the meter read then; `None` after one was reported.
    set: Option<(Span, Span)>,
    /// They are what the window waits for.
    heard: bool,
    restless: Instant,
    refused: Option<String>,
}

impl Resting {
    /// Whether the window waits for alarms.
    pub fn hears(&self) -> bool {
        self.heard
    }

    /// Why the kernel refused them.
    pub fn refused(&self) -> Option<&String> {
        self.refused.as_ref()
    }

    /// The task has started threads.
    pub fn restless(&mut self, now: Instant) {
        self.restless = now.saturating_add(RESTLESS);
    }

    /// An alarm was reported; false if it is not known any more.
    pub fn rang(&mut self, tid: u32, what: Rang) -> bool {
        self.set = None;
        match what {
            Rang::Ended => self.alarms.remove(&tid).is_some(),
            Rang::Ran => self.alarms.get_mut(&tid).map(Alarm::rang).is_some(),
        }
    }
}

/// The key of a thread's alarm.
fn key(task: TaskId, tid: u32) -> u64 {
    u64::from(task.0) << 32 | u64::from(tid)
}

/// Whose alarm has this key.
pub(super) fn whose(key: u64) -> (TaskId, u32) {
    (TaskId((key >> 32) as u32), key as u32) // the two halves
}

impl Open {
    /// After a look: when the next is due, unless an alarm is reported before.
    pub(super) fn rest(&mut self, task: TaskId, step: Step, now: Instant, reading: Span, events: &Events) -> Instant {
        self.rest.heard = false;
        if self.unfinished {
            return now;
        }
        let Events::From(alarms) = events else { return step.at() };
        if !self.window.is_raised() || now < self.rest.restless {
            return step.at();
        }
        let threads = &self.threads;
        let raised = || threads.iter().filter(|(_, held)| held.state == State::Raised).map(|(tid, _)| *tid);
        if raised().count() > MOST_ALARMS {
            self.rest.alarms.clear();
            return step.at();
        }
        self.rest.alarms.retain(|tid, _| threads.get(tid).is_some_and(|held| held.state == State::Raised));
        for tid in raised() {
            if self.rest.alarms.contains_key(&tid) {
                continue;
            }
            match alarms.of(tid, key(task, tid)) {
                Ok(alarm) => {
                    self.rest.alarms.insert(tid, alarm);
                    self.rest.set = None;
                }
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => {
                    self.rest.refused = Some(error.to_string());
                    return step.at();
                }
            }
        }
        self.rest.refused = None;
        let rest = self.window.rest(step, self.rest.alarms.len());
        let Some(after) = rest.alarm else { return rest.at };
        // One that has not run since is still set.
        if self.rest.set != Some((after, reading)) {
            let set = self.rest.alarms.values_mut().try_for_each(|alarm| match alarm.set(after) {
                Err(error) if error.raw_os_error() != Some(ESRCH) => Err(error),
                _ => Ok(()),
            });
            if let Err(error) = set {
                self.rest.refused = Some(error.to_string());
                return step.at();
            }
            self.rest.set = Some((after, reading));
        }
        self.rest.heard = true;
        rest.at
    }
}

/// No such thread.
const ESRCH: i32 = 3;
