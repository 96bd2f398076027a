//! Timed work: reports at the end of each period, early reports, and the work of the machine.

use hyoshi_control::{Emission, Status, TaskId, Values};
use hyoshi_model::{Instant, Reservation, Span};

use super::BrokerState;
use super::join::next_multiple;
use super::own_time::UNSERVED;
use crate::access::Caller;
use crate::log_writer::LogWriter;
use crate::request_error::RequestError;

/// Reports of one tick: many tasks with one period must not delay a window.
const AT_ONCE: usize = 32;
/// How often tasks that report themselves are checked for live processes.
const LIFE: Span = Span::from_secs(1);

/// How often a sleeping task is checked, and its generated reports at most.
const LONGEST_REST: Span = Span::from_secs(1);
const MOST_MISSED: u64 = 64;

/// How long a live process is assumed to live, for shorter periods.
const LIVES: Span = Span::from_millis(100);

/// A program's report about its last cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedCycle {
    /// Their CPU time.
    pub consumed: Span,
    /// Their number.
    pub cycles: u32,
    /// The program's mode.
    pub mode: Option<u32>,
    /// Its own numbers.
    pub values: Values,
}

/// A line of JSON; `docs/broker.md` has its fields.
fn logged(task: &str, position: u8, status: &Status, asked: Reservation) -> String {
    let Status { at, consumed, cycles, held, mode, values } = status;
    let line = serde_json::json!({
        "at_ns": at.as_nanos(), "task": task, "place": position, "consumed_ns": consumed.as_nanos(), "cycles": cycles,
        "asked_ns": asked.budget().as_nanos(), "period_ns": asked.period().as_nanos(),
        "held_ns": held.map_or(0, |held| held.budget().as_nanos()), "mode": mode, "numbers": values.as_slice(),
    });
    line.to_string()
}

impl BrokerState {
    /// Does all due work. Returns when the next work is due.
    pub fn tick(&mut self, now: Instant) -> Instant {
        for _ in 0..AT_ONCE {
            let Some((_, id)) = self.due.first().copied().filter(|(due, _)| *due <= now) else { break };
            self.end_period(id, now);
        }
        for _ in 0..AT_ONCE {
            let Some(id) = self.arbiter.due(now) else { break };
            self.report_early(id, now);
        }
        let periods = self.detect_periods(now);
        let runs = self.check_runs(now);
        let owners = self.check_owners(now);
        let machine = self.platform.tick(now);
        while let Some(id) = self.platform.next_woken() {
            self.wake(id, now);
        }
        self.process_outcomes(now);
        self.read_external_notices();
        if let Some(error) = self.audit.take_error() {
            self.notice(format!("the audit log is incomplete: {error}"));
        }
        if let Some(error) = self.log.as_ref().and_then(LogWriter::take_error) {
            self.notice(format!("the log of reports is incomplete: {error}"));
        }
        let due = self.due.first().map_or(Instant::NEVER, |(due, _)| *due);
        self.next = machine.min(due).min(periods).min(runs).min(owners).min(self.arbiter.next_check());
        self.next
    }

    /// Ends a task's period with a report.
    fn end_period(&mut self, id: TaskId, now: Instant) {
        if let Some(joined) = self.tasks.get(&id).and_then(|task| task.waiting_since) {
            return self.wait_for_processes(id, joined, now);
        }
        self.gather(id, now);
        let period = self.period(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let total = if now.since(task.seen_alive) < LIVES {
            self.platform.consumed_at(id, now)
        } else {
            task.seen_alive = now;
            self.platform.consumed(id)
        };
        let Some(total) = total else { return self.all_ended(id, now) };
        let own = task.own;
        self.count_threads(id, now);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if own {
            self.update_total(id);
            self.store_if_due(id, now);
            return self.schedule_report(id, now + LIFE);
        }
        if std::mem::take(&mut task.asleep) {
            self.report_missed_periods(id, now);
        }
        let Some(task) = self.tasks.get_mut(&id) else { return };
        // Missed periods, of a busy or sleeping machine, belong to this report.
        let passed = (now.since(task.last).as_nanos() + period.as_nanos() / 2) / period.as_nanos().max(1);
        let cycles = u32::try_from(passed.max(1)).unwrap_or(u32::MAX);
        let consumed = total.saturating_sub(task.total);
        (task.last, task.total, task.consumed) = (now, total.max(task.total), consumed);
        task.reports += 1;
        let next = next_multiple(now, period);
        let next =
            if self.is_unserved(id) { next.saturating_add(UNSERVED) } else { self.next_report(id, next, consumed) };
        self.schedule_report(id, next);
        self.report(id, Status { cycles, ..Status::of_cycle(now, consumed) });
        self.store_if_due(id, now);
    }

    /// A sleeping task reports when it wakes, or once in [`LONGEST_REST`]; any other at `next`, the end of its period.
    fn next_report(&mut self, id: TaskId, next: Instant, consumed: Span) -> Instant {
        let has_checks = self.arbiter.has_checks(id);
        let asleep = consumed.is_zero() && !has_checks && self.platform.is_asleep(id);
        let Some(task) = self.tasks.get_mut(&id) else { return next };
        // External components get one call in a period, not many at once.
        task.asleep =
            asleep && task.advocates.iter().all(|setting| !["external", "library"].contains(&setting.kind.as_str()));
        if task.asleep { next_multiple(next.saturating_add(LONGEST_REST), self.period(id)) } else { next }
    }

    /// A sleeping task has consumed something: it reports at the end of this period, with generated reports for the
    /// periods before.
    fn wake(&mut self, id: TaskId, now: Instant) {
        if self.tasks.get_mut(&id).is_some_and(|task| std::mem::take(&mut task.asleep)) {
            self.report_missed_periods(id, now);
            self.schedule_report(id, next_multiple(now, self.period(id)));
        }
    }

    /// Generates reports of the periods that a task slept through: at most [`MOST_MISSED`], so that advocates forget as
    /// usual.
    fn report_missed_periods(&mut self, id: TaskId, now: Instant) {
        let period = self.period(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let begun = next_multiple(now, period).saturating_sub(period);
        let slept = begun.since(task.last).as_nanos() / period.as_nanos().max(1);
        (task.last, task.reports) = (begun, task.reports.saturating_add(slept));
        for number in (0..slept.min(MOST_MISSED)).rev() {
            self.report(id, Status::of_cycle(begun.saturating_sub(period * number), Span::ZERO));
        }
    }

    /// An advocate asked for an early report.
    pub(crate) fn report_early(&mut self, id: TaskId, now: Instant) {
        let total = self.platform.consumed(id);
        let Some(task) = self.tasks.get(&id) else { return };
        let consumed = total.map_or(Span::ZERO, |total| total.saturating_sub(task.total));
        self.report(id, Status::overdue(now, consumed));
    }

    /// A program's own report.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's.
    pub fn report_cycle(
        &mut self,
        caller: &Caller,
        id: TaskId,
        cycle: ReportedCycle,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.allow(caller, id)?;
        let task = self.task(id)?;
        let first = !std::mem::replace(&mut task.own, true);
        (task.last, task.consumed) = (now, cycle.consumed);
        task.reports += 1;
        let ReportedCycle { consumed, cycles, mode, values } = cycle;
        let next = std::mem::replace(&mut self.next, Instant::NEVER);
        self.report(id, Status { cycles: cycles.max(1), mode, values, ..Status::of_cycle(now, consumed) });
        // The program measures its consumption. Advocates that look between its reports count from here.
        if self.arbiter.has_checks(id)
            && let (Some(total), Some(task)) = (self.platform.consumed(id), self.tasks.get_mut(&id))
        {
            task.total = total;
        }
        if first {
            self.store(id);
        }
        // Reports are frequent: wake the broker's thread only for earlier work.
        let changed = self.next < Instant::NEVER;
        let due = match (self.notices.is_empty(), changed) {
            // That thread prints notices.
            (false, _) => Instant::ZERO,
            (true, false) => Instant::NEVER,
            (true, true) if self.platform.is_pending(id) => Instant::ZERO,
            (true, true) => self.platform.due(),
        };
        self.next = next.min(due).min(self.arbiter.next_check());
        Ok(())
    }

    /// Updates the consumption of a task that reports itself, unless an advocate needs the value of the last report.
    pub(super) fn update_total(&mut self, id: TaskId) {
        if self.arbiter.has_checks(id) || !self.tasks.get(&id).is_some_and(|task| task.own) {
            return;
        }
        if let (Some(total), Some(task)) = (self.platform.consumed(id), self.tasks.get_mut(&id)) {
            task.total = total.max(task.total);
        }
    }

    pub(super) fn report(&mut self, id: TaskId, status: Status) {
        let Ok(decision) = self.arbiter.report(id, status) else { return };
        for emission in decision.emitted {
            if let (Emission::Log { position, status, asked }, Some(log)) = (emission, &self.log) {
                let name = self.tasks.get(&id).map_or("", |task| task.name.as_str());
                log.push(logged(name, *position, status, *asked));
            }
        }
        if !decision.changes.is_empty() {
            self.backlog.add(decision);
            self.apply(status.at);
        }
    }
}
