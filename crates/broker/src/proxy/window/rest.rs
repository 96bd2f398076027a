//! What a window waits for between two looks: a kernel event if there is one, else the earliest time at which the
//! budget can be consumed.

use std::collections::BTreeMap;

use hyoshi_control::{Step, TaskId};
use hyoshi_model::{Instant, Span};

use super::{Alarm, Events, Open, Rang, State};

/// Tasks with more threads are watched by looks: setting each alarm again in each period would cost too much.
const MOST_ALARMS: usize = 16;
/// After a task has started threads, it is watched by looks for this long: threads without an alarm may consume, too.
const RESTLESS: Span = Span::from_secs(1);

/// The alarms of a task's threads.
#[derive(Debug, Default)]
pub(super) struct Resting {
    alarms: BTreeMap<u32, Alarm>,
    /// What they were set to, and the meter's value then; `None` after one was reported.
    set: Option<(Span, Span)>,
    /// Whether the window waits for them.
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

/// The thread whose alarm has this key.
pub(super) fn whose(key: u64) -> (TaskId, u32) {
    (TaskId((key >> 32) as u32), key as u32) // the two halves
}

impl Open {
    /// After a look: when the next one is due, unless an alarm is reported earlier.
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
        // The alarm of a thread that has not run since is still set.
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
