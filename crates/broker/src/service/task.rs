//! Tasks as objects: one servant for all of them, which the object's id tells whom it stands for.

use std::sync::Arc;

use hyoshi_control::{TaskId, Values};
use hyoshi_model::Span;
use hyoshi_orb::{SystemException, SystemKind, current};

pub(crate) use crate::idl::cpu_broker::Task;
use crate::idl::cpu_broker::{
    AddControlGroupError, AddProcessError, Cycle, LeaveError, NoSuchTask, Outcome, ReportError, StandingError,
};
use crate::idl::cpu_broker::{Finding, Reservation, TaskStanding};
use crate::service::Shared;
use crate::setting::Setting;
use crate::state::{self, Found, Inhabited, Standing};
use crate::trouble::Trouble;

pub(super) struct Tasks(pub(super) Arc<Shared>);

impl Task for Tasks {
    fn name(&self) -> Result<String, SystemException> {
        let name = self.0.with(|core, _, _| core.name(this()?).map(str::to_owned));
        name.map_err(|_: Trouble| SystemKind::ObjectNotExist.not_done(0))
    }

    fn standing(&self) -> Result<TaskStanding, StandingError> {
        let standing = self.0.with(|core, _, _| core.standing(this()?));
        standing.map(|standing| to_wire(&standing)).map_err(|trouble| no_such(trouble).into())
    }

    fn add_process(&self, pid: u32, started: u64) -> Result<(), AddProcessError> {
        self.0.with_moves(|core, who, now| core.add_process(who, this()?, pid, started, now)).map_err(Trouble::raise)
    }

    fn add_control_group(&self, path: &str) -> Result<(), AddControlGroupError> {
        let asked = self.0.with(|core, who, _| {
            core.may_add_group(who, this()?)?;
            Ok((core.access(), who.clone()))
        });
        // A tree of groups may be large, and nobody else waits for it.
        let found = asked.and_then(|(access, who)| Inhabited::look(&access, &who, path));
        self.0.with_moves(|core, who, now| core.add_group(who, this()?, path, found, now)).map_err(Trouble::raise)
    }

    fn report(&self, what: &Cycle) -> Result<Outcome, ReportError> {
        let cycle = cycle(what).map_err(Trouble::raise::<ReportError>)?;
        let outcome = self.0.with(|core, who, now| {
            let id = this()?;
            core.cycle(who, id, cycle, now)?;
            core.outcome(id)
        });
        outcome.map(granted).map_err(Trouble::raise)
    }

    fn tell(&self, what: &Cycle) -> Result<(), SystemException> {
        // Nobody hears of what is wrong with it: it was told, not asked.
        if let Ok(cycle) = cycle(what) {
            let _: Result<(), Trouble> = self.0.with(|core, who, now| core.cycle(who, this()?, cycle, now));
        }
        Ok(())
    }

    fn leave(&self) -> Result<(), LeaveError> {
        self.0.with_moves(|core, who, now| core.leave(who, this()?, now)).map_err(Trouble::raise)
    }
}

/// The task whose object is called.
fn this() -> Result<TaskId, Trouble> {
    let id = current::object_id().and_then(|id| Some(TaskId(u32::from_be_bytes(id.try_into().ok()?))));
    id.ok_or_else(|| Trouble::NoSuchTask { name: "of this reference".to_owned(), nearest: String::new() })
}

pub(super) fn no_such(trouble: Trouble) -> NoSuchTask {
    match trouble {
        Trouble::NoSuchTask { name, nearest } => NoSuchTask { name, nearest },
        other => NoSuchTask { name: other.to_string(), nearest: String::new() },
    }
}

fn cycle(what: &Cycle) -> Result<state::Cycle, Trouble> {
    let values = Values::new(&what.numbers);
    let values =
        values.ok_or_else(|| Trouble::refused("too many numbers", format!("send {} at most", Values::MOST)))?;
    let mode = match what.mode {
        -1 => None,
        mode => Some(u32::try_from(mode).map_err(|_| {
            Trouble::refused(format!("{mode} is no mode"), "modes are numbers from 0 to 4294967295; -1 for none")
        })?),
    };
    let consumed = Span::from_nanos(what.consumed);
    if consumed > hyoshi_model::Reservation::LONGEST {
        return Err(Trouble::refused(
            format!("{consumed} were consumed since the last report, more than {}", hyoshi_model::Reservation::LONGEST),
            "report CPU time in ns since the last report, not since the program's start",
        ));
    }
    Ok(state::Cycle { consumed, cycles: what.cycles, mode, values })
}

pub(super) fn reservation(held: Option<hyoshi_model::Reservation>, like: hyoshi_model::Reservation) -> Reservation {
    let told = held.unwrap_or(like);
    Reservation {
        budget: held.map_or(0, |held| held.budget().as_nanos()),
        period: told.period().as_nanos(),
        deadline: told.deadline().as_nanos(),
    }
}

fn finding(found: Option<&Found>) -> Finding {
    let Some(found) = found else { return Finding::default() };
    let Found { finding, ago, words } = found;
    Finding {
        automatic: true,
        period: finding.period.map_or(0, Span::as_nanos),
        confidence: state::percent(*finding),
        wakeups: finding.wakeups,
        ago: ago.as_nanos(),
        words: words.clone(),
    }
}

fn granted(outcome: state::Outcome) -> Outcome {
    let state::Outcome { asked, held, because } = outcome;
    Outcome { asked: reservation(Some(asked), asked), held: reservation(held, asked), because }
}

pub(super) fn to_wire(standing: &Standing) -> TaskStanding {
    TaskStanding {
        name: standing.name.clone(),
        owner: standing.owner,
        processes: standing.processes.clone(),
        control_groups: standing.control_groups.clone(),
        importance: standing.importance,
        weight: standing.weight,
        group: standing.group.clone(),
        period: standing.grant.asked.period().as_nanos(),
        found: finding(standing.found.as_ref()),
        advocates: standing.advocates.iter().map(Setting::to_wire).collect(),
        sayings: standing.sayings.clone(),
        consumed: standing.consumed.as_nanos(),
        total: standing.total.as_nanos(),
        reports: standing.reports,
        granted: granted(standing.outcome()),
        hard: standing.hard,
        held_to: standing.held_to.clone().unwrap_or_default(),
    }
}
