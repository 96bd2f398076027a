//! Tasks as objects: one servant for all tasks; the object's id is the number of the task.

use std::sync::Arc;

use hyoshi_control::{TaskId, Values};
use hyoshi_model::Span;
use hyoshi_orb::{SystemException, SystemKind, current};

use crate::component::ComponentSpec;
pub(crate) use crate::idl::cpu_broker::Task;
use crate::idl::cpu_broker::{
    AddControlGroupError, AddProcessError, CycleReport, Grant, LeaveError, NoSuchTask, ReportError, StatusError,
};
use crate::idl::cpu_broker::{PeriodDetection, Reservation, TaskStatus};
use crate::request_error::RequestError;
use crate::service::BrokerShared;
use crate::state::{self, DetectedPeriod, GroupProcesses, TaskSnapshot};

pub(super) struct TaskServant(pub(super) Arc<BrokerShared>);

impl Task for TaskServant {
    fn name(&self) -> Result<String, SystemException> {
        let name = self.0.with(|core, _, _| core.name(this()?).map(str::to_owned));
        name.map_err(|_: RequestError| SystemKind::ObjectNotExist.not_done(0))
    }

    fn status(&self) -> Result<TaskStatus, StatusError> {
        let snapshot = self.0.with(|core, _, _| core.snapshot(this()?));
        snapshot.map(|snapshot| to_wire(&snapshot)).map_err(|error| no_such(error).into())
    }

    fn add_process(&self, pid: u32, started: u64) -> Result<(), AddProcessError> {
        self.0
            .with_moves(|core, caller, now| core.add_process(caller, this()?, pid, started, now))
            .map_err(RequestError::raise)
    }

    fn add_control_group(&self, path: &str) -> Result<(), AddControlGroupError> {
        let asked = self.0.with(|core, caller, _| {
            core.may_add_group(caller, this()?)?;
            Ok((core.access(), caller.clone()))
        });
        // A tree of groups may be large: scanned without the lock.
        let found = asked.and_then(|(access, caller)| GroupProcesses::list(&access, &caller, path));
        self.0
            .with_moves(|core, caller, now| core.add_group(caller, this()?, path, found, now))
            .map_err(RequestError::raise)
    }

    fn report(&self, report: &CycleReport) -> Result<Grant, ReportError> {
        let cycle = cycle(report).map_err(RequestError::raise::<ReportError>)?;
        let snapshot = self.0.with(|core, caller, now| {
            let id = this()?;
            core.report_cycle(caller, id, cycle, now)?;
            core.grant_snapshot(id)
        });
        snapshot.map(grant).map_err(RequestError::raise)
    }

    fn report_oneway(&self, report: &CycleReport) -> Result<(), SystemException> {
        // A oneway request has no reply for an error.
        if let Ok(cycle) = cycle(report) {
            let _: Result<(), RequestError> =
                self.0.with(|core, caller, now| core.report_cycle(caller, this()?, cycle, now));
        }
        Ok(())
    }

    fn leave(&self) -> Result<(), LeaveError> {
        self.0.with_moves(|core, caller, now| core.leave(caller, this()?, now)).map_err(RequestError::raise)
    }
}

/// The task of the called object.
fn this() -> Result<TaskId, RequestError> {
    let id = current::object_id().and_then(|id| Some(TaskId(u32::from_be_bytes(id.try_into().ok()?))));
    id.ok_or_else(|| RequestError::NoSuchTask { name: "(object reference)".to_owned(), nearest: String::new() })
}

pub(super) fn no_such(error: RequestError) -> NoSuchTask {
    match error {
        RequestError::NoSuchTask { name, nearest } => NoSuchTask { name, nearest },
        other => NoSuchTask { name: other.to_string(), nearest: String::new() },
    }
}

fn cycle(report: &CycleReport) -> Result<state::ReportedCycle, RequestError> {
    let values = Values::new(&report.numbers);
    let values =
        values.ok_or_else(|| RequestError::refused("too many numbers", format!("send at most {}", Values::MOST)))?;
    let mode = match report.mode {
        -1 => None,
        mode => Some(u32::try_from(mode).map_err(|_| {
            RequestError::refused(format!("invalid mode {mode}"), "use 0 to 4294967295, or -1 for none")
        })?),
    };
    let consumed = Span::from_nanos(report.consumed);
    if consumed > hyoshi_model::Reservation::LONGEST {
        return Err(RequestError::refused(
            format!("consumed CPU time of {consumed} is above {}", hyoshi_model::Reservation::LONGEST),
            "report CPU time in ns since the last report, not since the program's start",
        ));
    }
    Ok(state::ReportedCycle { consumed, cycles: report.cycles, mode, values })
}

/// A reservation for the wire; `like` has the period and deadline if nothing is reserved.
pub(super) fn reservation(reserved: Option<hyoshi_model::Reservation>, like: hyoshi_model::Reservation) -> Reservation {
    let of = reserved.unwrap_or(like);
    Reservation {
        budget: reserved.map_or(0, |reserved| reserved.budget().as_nanos()),
        period: of.period().as_nanos(),
        deadline: of.deadline().as_nanos(),
    }
}

fn period_detection(detected: Option<&DetectedPeriod>) -> PeriodDetection {
    let Some(detected) = detected else { return PeriodDetection::default() };
    let DetectedPeriod { finding, age, text } = detected;
    PeriodDetection {
        automatic: true,
        period: finding.period.map_or(0, Span::as_nanos),
        confidence: state::percent(*finding),
        wakeups: finding.wakeups,
        age: age.as_nanos(),
        text: text.clone(),
    }
}

fn grant(snapshot: state::GrantSnapshot) -> Grant {
    let state::GrantSnapshot { requested, reserved, reason } = snapshot;
    Grant { requested: reservation(Some(requested), requested), reserved: reservation(reserved, requested), reason }
}

pub(super) fn to_wire(snapshot: &TaskSnapshot) -> TaskStatus {
    TaskStatus {
        name: snapshot.name.clone(),
        owner: snapshot.owner,
        processes: snapshot.processes.clone(),
        control_groups: snapshot.control_groups.clone(),
        importance: snapshot.importance,
        weight: snapshot.weight,
        group: snapshot.group.clone(),
        period: snapshot.grant.asked.period().as_nanos(),
        period_detection: period_detection(snapshot.detected_period.as_ref()),
        advocates: snapshot.advocates.iter().map(ComponentSpec::to_wire).collect(),
        advocate_status: snapshot.advocate_status.clone(),
        consumed: snapshot.consumed.as_nanos(),
        total: snapshot.total.as_nanos(),
        reports: snapshot.reports,
        granted: grant(snapshot.grant_snapshot()),
        hard: snapshot.hard,
        enforcement: snapshot.enforcement.clone().unwrap_or_default(),
    }
}
