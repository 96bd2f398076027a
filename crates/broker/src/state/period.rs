//! Automatic periods: detected from the wake-ups of a task's threads, and followed.

use hyoshi_control::{Finder, PeriodEstimate, TaskId};
use hyoshi_model::{Instant, Reservation, Span};
use hyoshi_os::wakeups::WakeupSource;

use super::BrokerState;
use super::join::next_multiple;
use crate::platform::WakeupWatch;
use crate::request_error::RequestError;

/// The period of a task before detection; its consumption is measured and reserved in it.
pub const PROVISIONAL: Span = Span::from_millis(100);
/// How often wake-ups are evaluated.
const JUDGE: Span = Span::from_millis(100);

/// Tasks that one tick evaluates.
const AT_ONCE: usize = 32;

/// A period that differs by less than this part is the same one, known more precisely.
const EXACTER: u64 = 20;

/// Detects the period of one task.
#[derive(Debug)]
pub(super) struct PeriodDetector {
    finder: Finder,
    watching: WakeupWatch,
    /// The last and the next evaluation.
    judged: Instant,
    next: Instant,
}

/// A detected period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedPeriod {
    /// The period and its confidence.
    pub finding: PeriodEstimate,
    /// Time since it was detected, changed or lost.
    pub age: Span,
    /// The same as text.
    pub text: String,
}

impl BrokerState {
    /// Starts or stops detecting the task's period.
    pub(super) fn find_period(&mut self, id: TaskId, on: bool) {
        let owner = self.tasks.get(&id).map(|task| task.owner).filter(|_| on);
        self.platform.watch(id, owner);
        self.detectors.remove(&id);
        if on {
            let finder = Finder::new(WakeupSource::Switches.shortest());
            let watching = WakeupWatch::By(WakeupSource::Switches);
            self.detectors.insert(id, PeriodDetector { finder, watching, judged: Instant::ZERO, next: Instant::ZERO });
            self.next = Instant::ZERO;
        }
    }

    /// Evaluates wake-ups; returns when to evaluate again.
    pub(super) fn detect_periods(&mut self, now: Instant) -> Instant {
        let mut found = Vec::new();
        for (id, detector) in self.detectors.iter_mut().filter(|(_, detector)| detector.next <= now).take(AT_ONCE) {
            match self.platform.wakeups(*id, &mut detector.finder) {
                WakeupWatch::Off => {}
                watching => detector.watching = watching,
            }
            (detector.judged, detector.next) = (now, now.saturating_add(JUDGE));
            detector.finder.update(now);
            found.extend(detector.finder.finding().period.map(|period| (*id, period)));
        }
        for (id, period) in found {
            if self.period(id) != period {
                // A period that cannot be reserved is still reported.
                let _ = self.change_period(id, period, now);
            }
        }
        self.detectors.values().map(|detector| detector.next).min().unwrap_or(Instant::NEVER)
    }

    /// Changes the period and keeps the share. The advocates start anew, unless the period is nearly the same.
    pub(super) fn change_period(&mut self, id: TaskId, period: Span, now: Instant) -> Result<(), RequestError> {
        let asked = self.arbiter.grant(id).map(|grant| grant.asked);
        let budget = asked.map_or(Span::from_nanos(1), |asked| asked.share().of(period)).max(Span::from_nanos(1));
        let declared = Reservation::new(budget.min(period), period);
        let declared = declared.map_err(|error| RequestError::refused(error, error.remedy()))?;
        let before = self.period(id).as_nanos();
        let task = self.task(id)?;
        let (settings, name, waiting_since) = (task.advocates.clone(), task.name.clone(), task.waiting_since.is_some());
        let decision = if before.abs_diff(period.as_nanos()) <= before / EXACTER {
            self.arbiter.declare(id, declared, now)
        } else {
            let chain = self.chain(&settings, id, &name)?;
            self.arbiter.retime(id, declared, chain, now)
        };
        let decision =
            decision.map_err(|refusal| RequestError::refused(refusal, "`hyoshi broker list` shows all tasks"))?;
        self.backlog.add(decision);
        self.apply(now);
        if !waiting_since {
            self.schedule_report(id, next_multiple(now, period));
        }
        Ok(())
    }

    /// The detected period of a task; `None` if detection is off.
    pub(super) fn detected_period(&self, id: TaskId) -> Option<DetectedPeriod> {
        let detector = self.detectors.get(&id)?;
        let finding = detector.finder.finding();
        let ago = detector.judged.since(finding.since);
        let (thread, wakeups) = (finding.thread, finding.wakeups);
        let seen = match detector.watching {
            WakeupWatch::By(seen) => format!("observed by {seen}"),
            _ => "waiting, because the broker already observes its largest number of threads".to_owned(),
        };
        let words = match finding.period {
            None => {
                let until = self.period(id);
                format!("not detected in {wakeups} wake-ups, {seen}; using {until}")
            }
            Some(period) if finding.confidence == 0 => {
                format!("{period} was the last detected period; lost in {wakeups} wake-ups, {seen}")
            }
            Some(period) => format!(
                "{period} detected with {} % confidence from {wakeups} wake-ups of thread {thread}, {seen}",
                percent(finding)
            ),
        };
        let since = match (finding.period, ago.as_nanos() / 1_000_000_000) {
            (None, _) => String::new(),
            (Some(_), seconds) => format!("; unchanged for {seconds} s"),
        };
        Some(DetectedPeriod { finding, age: ago, text: words + &since })
    }
}

/// A detected period has at least one percent.
pub(crate) fn percent(finding: PeriodEstimate) -> u32 {
    match finding.confidence {
        0 => 0,
        some => (some / 10).max(1),
    }
}
