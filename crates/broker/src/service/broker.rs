//! The broker object.

use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_control::window::placement::CpuPromise;
use hyoshi_model::{Share, Span};
use hyoshi_orb::SystemException;

use crate::component::ComponentSpec;
pub(crate) use crate::idl::cpu_broker::Broker;
use crate::idl::cpu_broker::{self as wire, AdvocateSpec, BrokerStatus, LanePromise, TaskPage, TaskStatus, TaskStub};
use crate::idl::cpu_broker::{
    AddAdvocateError, DetachError, ExplainError, FindError, JoinError, OwnTaskError, PromiseLanesError,
    RemoveAdvocateError, SetAdvocateError, SetChainError, SetGroupError, SetHardError, SetImportanceError,
    SetLeastError, SetPeriodError, SetPolicyError, SetWeightError, TaskStatusError,
};
use crate::request_error::RequestError;
use crate::service::task::{no_such, to_wire};
use crate::service::{BrokerShared, ending};
use crate::state::TaskSpec;

pub(super) struct BrokerServant(pub(super) Arc<BrokerShared>);

impl BrokerServant {
    fn reference(&self, id: TaskId) -> Result<Option<TaskStub>, SystemException> {
        let Some(tasks) = self.0.adapter.get() else { return Ok(None) };
        tasks.reference::<dyn wire::Task>(id.0.to_be_bytes()).map(Some).map_err(ending)
    }
}

impl Broker for BrokerServant {
    fn join(&self, what: &wire::TaskSpec) -> Result<Option<TaskStub>, JoinError> {
        let some = |nanos: u64| (nanos != 0).then(|| Span::from_nanos(nanos));
        let joining = TaskSpec {
            name: what.name.clone(),
            period: some(what.period),
            deadline: some(what.deadline),
            initial_budget: some(what.initial_budget),
            min_budget: some(what.min_budget),
            hard: what.hard,
            importance: what.importance,
            weight: what.weight,
            group: what.group.clone(),
            advocates: what.advocates.iter().map(ComponentSpec::from_wire).collect(),
        };
        let id = self
            .0
            .with(|core, caller, now| core.join(caller, &joining, now))
            .map_err(RequestError::raise::<JoinError>)?;
        Ok(self.reference(id)?)
    }

    fn own_task(&self, name: &str, period: u64, importance: u32) -> Result<Option<TaskStub>, OwnTaskError> {
        let joining = TaskSpec { importance, ..TaskSpec::new(name, Span::from_nanos(period)) };
        let id = self.0.with_moves(|core, caller, now| core.own_task(caller, &joining, now));
        Ok(self.reference(id.map_err(RequestError::raise::<OwnTaskError>)?)?)
    }

    fn find(&self, name: &str) -> Result<Option<TaskStub>, FindError> {
        let id = self.0.with(|core, _, _| core.find(name)).map_err(|error| FindError::from(no_such(error)))?;
        Ok(self.reference(id)?)
    }

    fn tasks(&self, after: &str) -> Result<TaskPage, SystemException> {
        let (tasks, more) = self.0.with(|core, _, _| core.page(after));
        Ok(TaskPage { tasks: tasks.iter().map(to_wire).collect(), more })
    }

    fn task_status(&self, name: &str) -> Result<TaskStatus, TaskStatusError> {
        let status = self.0.with(|core, _, _| core.snapshot(core.find(name)?));
        status.map(|status| to_wire(&status)).map_err(|error| no_such(error).into())
    }

    fn detach(&self, name: &str) -> Result<(), DetachError> {
        self.0
            .with_moves(|core, caller, now| {
                let id = core.find(name)?;
                core.leave(caller, id, now)
            })
            .map_err(RequestError::raise)
    }

    fn status(&self) -> Result<BrokerStatus, SystemException> {
        Ok(self.0.status())
    }

    fn promise_lanes(&self, name: &str, what: &[LanePromise]) -> Result<(), PromiseLanesError> {
        let span = Span::from_nanos;
        let promise = |one: &LanePromise| {
            let promise = CpuPromise { budget: span(one.budget), period: span(one.period), jitter: span(one.jitter) };
            (one.cpu, promise)
        };
        let promises: Vec<(u32, CpuPromise)> = what.iter().map(promise).collect();
        self.0.with(|core, caller, now| core.promise_lanes(caller, name, &promises, now)).map_err(RequestError::raise)
    }

    fn explain(&self, name: &str) -> Result<String, ExplainError> {
        self.0.with(|core, _, now| core.explain(name, now)).map_err(|error| no_such(error).into())
    }

    fn set_importance(&self, name: &str, importance: u32) -> Result<(), SetImportanceError> {
        self.0
            .with_moves(|core, caller, now| core.set_importance(caller, name, importance, now))
            .map_err(RequestError::raise)
    }

    fn set_weight(&self, name: &str, weight: u32) -> Result<(), SetWeightError> {
        self.0.with_moves(|core, caller, now| core.set_weight(caller, name, weight, now)).map_err(RequestError::raise)
    }

    fn set_group(&self, name: &str, group: &str) -> Result<(), SetGroupError> {
        self.0.with_moves(|core, caller, now| core.set_group(caller, name, group, now)).map_err(RequestError::raise)
    }

    fn set_least(&self, name: &str, least: u64) -> Result<(), SetLeastError> {
        let least = Span::from_nanos(least);
        self.0.with_moves(|core, caller, now| core.set_least(caller, name, least, now)).map_err(RequestError::raise)
    }

    fn set_hard(&self, name: &str, hard: bool) -> Result<(), SetHardError> {
        self.0.with_moves(|core, caller, now| core.set_hard(caller, name, hard, now)).map_err(RequestError::raise)
    }

    fn set_period(&self, name: &str, period: u64) -> Result<(), SetPeriodError> {
        let period = (period != 0).then(|| Span::from_nanos(period));
        self.0.with(|core, caller, now| core.set_period(caller, name, period, now)).map_err(RequestError::raise)
    }

    fn set_chain(&self, name: &str, advocates: &[AdvocateSpec]) -> Result<(), SetChainError> {
        let chain = advocates.iter().map(ComponentSpec::from_wire).collect();
        self.0.with(|core, caller, now| core.set_chain(caller, name, chain, now)).map_err(RequestError::raise)
    }

    fn add_advocate(&self, name: &str, what: &AdvocateSpec, place: u32) -> Result<(), AddAdvocateError> {
        let what = ComponentSpec::from_wire(what);
        self.0
            .with(|core, caller, now| core.add_advocate(caller, name, &what, place as usize, now))
            .map_err(RequestError::raise)
    }

    fn set_advocate(&self, name: &str, what: &AdvocateSpec) -> Result<(), SetAdvocateError> {
        let what = ComponentSpec::from_wire(what);
        self.0.with(|core, caller, now| core.set_advocate(caller, name, &what, now)).map_err(RequestError::raise)
    }

    fn remove_advocate(&self, name: &str, place: u32) -> Result<(), RemoveAdvocateError> {
        self.0
            .with(|core, caller, now| core.remove_advocate(caller, name, place as usize, now))
            .map_err(RequestError::raise)
    }

    fn set_policy(&self, policy: &str, cap: u64) -> Result<(), SetPolicyError> {
        let cap = (cap != 0).then(|| Share::from_millionths(cap));
        self.0.with_moves(|core, caller, now| core.set_policy(caller, policy, cap, now)).map_err(RequestError::raise)
    }
}
