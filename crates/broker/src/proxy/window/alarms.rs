//! What a window waits for between two samples: a kernel event, else the earliest instant at which the budget can be
//! used up.

use std::collections::BTreeMap;

use hyoshi_control::{TaskId, WindowAlarm, WindowStep};
use hyoshi_model::{Instant, Span};

use super::{Alarm, AlarmReport, Events, TaskWindow, ThreadState};

/// Tasks with more threads are sampled: setting all their alarms in each period would cost too much.
const MOST_ALARMS: usize = 16;
/// How long a task is sampled after it started threads: threads without an alarm may consume, too.
const SAMPLED: Span = Span::from_secs(1);

/// The alarms of a task's threads.
#[derive(Debug, Default)]
pub(super) struct WindowAlarms {
    alarms: BTreeMap<u32, ThreadAlarm>,
    /// The thread of the last alarm, whose alarm is set at each sample, and the meter's value then.
    leader: Option<u32>,
    reading: Span,
    /// Whether the window waits for alarms.
    waiting: bool,
    sampled_until: Instant,
    refused: Option<String>,
}

#[derive(Debug)]
struct ThreadAlarm {
    alarm: Alarm,
    /// The set value; `None` before that and after the alarm.
    to: Option<Span>,
}

impl WindowAlarms {
    /// Whether the window waits for alarms.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Why the kernel refused alarms.
    pub fn refused(&self) -> Option<&String> {
        self.refused.as_ref()
    }

    /// The task has started threads.
    pub fn started_threads(&mut self, now: Instant) {
        self.sampled_until = now.saturating_add(SAMPLED);
    }

    /// An alarm has fired; false if it is unknown.
    pub fn fired(&mut self, tid: u32, what: AlarmReport) -> bool {
        if what == AlarmReport::Ended {
            return self.alarms.remove(&tid).is_some();
        }
        let Some(set) = self.alarms.get_mut(&tid) else { return false };
        set.alarm.acknowledge();
        (set.to, self.leader) = (None, Some(tid));
        true
    }

    /// Sets all alarms so that one fires before the task has consumed `left` more.
    ///
    /// The leader's alarm counts from now. Earlier alarms of other threads were set to as much or less, so they fire no
    /// later.
    fn set(&mut self, left: Span, reading: Span) -> std::io::Result<()> {
        let (most, other) = WindowAlarm::parts(left, self.alarms.len());
        if let (1, Some(only)) = (self.alarms.len(), self.alarms.keys().next()) {
            self.leader = Some(*only);
        }
        for (tid, set) in &mut self.alarms {
            let leads = self.leader == Some(*tid);
            let part = if leads { most } else { other };
            if set.to.is_some_and(|to| if leads { to == part && self.reading == reading } else { to <= part }) {
                continue;
            }
            match set.alarm.set(part) {
                Err(error) if error.raw_os_error() != Some(ESRCH) => return Err(error),
                _ => set.to = Some(part),
            }
        }
        self.reading = reading;
        Ok(())
    }
}

/// The key of a thread's alarm.
fn key(task: TaskId, tid: u32) -> u64 {
    u64::from(task.0) << 32 | u64::from(tid)
}

/// The thread of this key.
pub(super) fn thread_of(key: u64) -> (TaskId, u32) {
    (TaskId((key >> 32) as u32), key as u32) // the two halves
}

impl TaskWindow {
    /// Returns when the next sample is due, unless an alarm fires earlier.
    pub(super) fn schedule_next(
        &mut self,
        task: TaskId,
        step: WindowStep,
        now: Instant,
        reading: Span,
        events: &Events,
    ) -> Instant {
        self.window_alarms.waiting = false;
        if self.unfinished {
            return now;
        }
        let Events::From(alarms) = events else { return step.at() };
        if !self.window.is_raised() || now < self.window_alarms.sampled_until {
            return step.at();
        }
        let threads = &self.threads;
        let raised = || threads.iter().filter(|(_, thread)| thread.state == ThreadState::Raised).map(|(tid, _)| *tid);
        if raised().count() > MOST_ALARMS {
            self.window_alarms.alarms.clear();
            return step.at();
        }
        self.window_alarms
            .alarms
            .retain(|tid, _| threads.get(tid).is_some_and(|thread| thread.state == ThreadState::Raised));
        for tid in raised() {
            if self.window_alarms.alarms.contains_key(&tid) {
                continue;
            }
            match alarms.of(tid, key(task, tid)) {
                Ok(alarm) => drop(self.window_alarms.alarms.insert(tid, ThreadAlarm { alarm, to: None })),
                Err(error) if error.raw_os_error() == Some(ESRCH) => {}
                Err(error) => {
                    self.window_alarms.refused = Some(error.to_string());
                    return step.at();
                }
            }
        }
        self.window_alarms.refused = None;
        let rest = self.window.next_alarm(step, self.window_alarms.alarms.len());
        let Some(left) = rest.alarm else { return rest.at };
        if let Err(error) = self.window_alarms.set(left, reading) {
            self.window_alarms.refused = Some(error.to_string());
            return step.at();
        }
        self.window_alarms.waiting = true;
        rest.at
    }
}

/// No such thread.
const ESRCH: i32 = 3;
