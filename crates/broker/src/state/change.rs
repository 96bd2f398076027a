//! Changes of running tasks and of the policy.

use hyoshi_control::{Arbiter, Decision, GroupId, Refusal, ReservationChange, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};

use super::BrokerState;
use crate::access::Caller;
use crate::audit;
use crate::component::ComponentSpec;
use crate::policy;
use crate::request_error::{RequestError, shown};

/// Larger weights are mistakes.
const MOST_WEIGHT: u32 = 1_000_000;

impl BrokerState {
    /// # Errors
    ///
    /// If the task is not the caller's, or the importance is above the caller's limit.
    pub fn set_importance(&mut self, caller: &Caller, name: &str, to: u32, now: Instant) -> Result<(), RequestError> {
        let theirs = self.find(name).and_then(|id| self.allow(caller, id));
        let done = theirs.and_then(|()| self.allow_importance(caller, to)).and_then(|()| {
            let id = self.change(caller, name, now, |arbiter, id| arbiter.set_importance(id, to))?;
            self.task(id)?.importance = to;
            Ok(())
        });
        self.audited(caller, "importance", Some(name), &to.to_string(), done)
    }

    /// # Errors
    ///
    /// If the task is not the caller's, or the weight is invalid.
    pub fn set_weight(&mut self, caller: &Caller, name: &str, to: u32, now: Instant) -> Result<(), RequestError> {
        let done = match to {
            1..=MOST_WEIGHT => self
                .change(caller, name, now, |arbiter, id| arbiter.set_weight(id, to))
                .and_then(|id| self.task(id))
                .map(|task| task.weight = to),
            _ => Err(RequestError::refused(format!("invalid weight {to}"), format!("use 1 to {MOST_WEIGHT}"))),
        };
        self.audited(caller, "weight", Some(name), &to.to_string(), done)
    }

    /// Sets the least useful budget in each period; zero: any budget is useful.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's, or the budget does not fit its period and deadline.
    pub fn set_least(&mut self, caller: &Caller, name: &str, to: Span, now: Instant) -> Result<(), RequestError> {
        let done = self.try_set_least(caller, name, to, now);
        self.audited(caller, "least", Some(name), &to.to_string(), done)
    }

    fn try_set_least(&mut self, caller: &Caller, name: &str, to: Span, now: Instant) -> Result<(), RequestError> {
        let id = self.find(name)?;
        self.allow(caller, id)?;
        let least = match (to, self.arbiter.joining(id)) {
            (Span::ZERO, _) | (_, None) => Share::ZERO,
            (_, Some(joining)) => {
                let declared = joining.declared;
                let least = Reservation::new(to, declared.period()).and_then(|least| least.within(declared.deadline()));
                least.map_err(|error| RequestError::refused(error, error.remedy()))?.share()
            }
        };
        self.change(caller, name, now, |arbiter, id| arbiter.set_least(id, least)).map(drop)
    }

    /// # Errors
    ///
    /// If the task is not the caller's, or the policy has no such group.
    pub fn set_group(&mut self, caller: &Caller, name: &str, to: &str, now: Instant) -> Result<(), RequestError> {
        let done = self.group(to).and_then(|group| {
            let id = self.change(caller, name, now, |arbiter, id| arbiter.set_group(id, group))?;
            self.task(id)?.group = to.to_owned();
            Ok(())
        });
        self.audited(caller, "group", Some(name), to, done)
    }

    /// # Errors
    ///
    /// If the task is not the caller's, or the machine cannot cap CPU time.
    pub fn set_hard(&mut self, caller: &Caller, name: &str, to: bool, now: Instant) -> Result<(), RequestError> {
        let done = self.try_set_hard(caller, name, to, now);
        self.audited(caller, "hard", Some(name), if to { "yes" } else { "no" }, done)
    }

    fn try_set_hard(&mut self, caller: &Caller, name: &str, to: bool, now: Instant) -> Result<(), RequestError> {
        let id = self.find(name)?;
        self.allow(caller, id)?;
        self.harden(id, to)?;
        let task = self.task(id)?;
        (task.hard, task.hard_before) = (to, false);
        let held = self.arbiter.held(id);
        self.backlog.push(ReservationChange { task: id, from: held, to: held });
        self.apply(now);
        Ok(())
    }

    /// `None`: detects the period from the task's wake-ups.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's, or the period is invalid.
    pub fn set_period(
        &mut self,
        caller: &Caller,
        name: &str,
        to: Option<Span>,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done = self.try_set_period(caller, name, to, now);
        let value = to.map_or("auto".to_owned(), |to| to.to_string());
        self.audited(caller, "period", Some(name), &value, done)
    }

    fn try_set_period(
        &mut self,
        caller: &Caller,
        name: &str,
        to: Option<Span>,
        now: Instant,
    ) -> Result<(), RequestError> {
        let id = self.find(name)?;
        self.allow(caller, id)?;
        if let Some(to) = to {
            self.change_period(id, to, now)?;
        }
        self.find_period(id, to.is_none());
        Ok(())
    }

    /// # Errors
    ///
    /// If the task is not the caller's, or an advocate is invalid.
    pub fn set_chain(
        &mut self,
        caller: &Caller,
        name: &str,
        to: Vec<ComponentSpec>,
        now: Instant,
    ) -> Result<(), RequestError> {
        let value = audit::join_items(&to);
        let done = self.try_set_chain(caller, name, to, now);
        self.audited(caller, "chain", Some(name), &value, done)
    }

    fn try_set_chain(
        &mut self,
        caller: &Caller,
        name: &str,
        to: Vec<ComponentSpec>,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.allow_settings(caller, &to)?;
        let id = self.find(name)?;
        self.allow(caller, id)?;
        self.allow_chain(caller, id, &to)?;
        let chain = self.chain(&to, id, name)?;
        self.change(caller, name, now, |arbiter, id| arbiter.set_chain(id, chain, now))?;
        self.task(id)?.advocates = to;
        Ok(())
    }

    /// Inserts before the advocate at `place`, or appends.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's, the advocate is invalid, or the chain is full.
    pub fn add_advocate(
        &mut self,
        caller: &Caller,
        name: &str,
        what: &ComponentSpec,
        place: usize,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done = self.try_add_advocate(caller, name, what, place, now);
        self.audited(caller, "advocate-add", Some(name), &audit::join_items([what]), done)
    }

    fn try_add_advocate(
        &mut self,
        caller: &Caller,
        name: &str,
        what: &ComponentSpec,
        place: usize,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.allow_settings(caller, std::slice::from_ref(what))?;
        let id = self.find(name)?;
        self.allow(caller, id)?;
        let mut settings = self.task(id)?.advocates.clone();
        let place = place.min(settings.len());
        settings.insert(place, what.clone());
        self.allow_chain(caller, id, &settings)?;
        let advocate = self.advocate(what, id, name)?;
        self.change(caller, name, now, |arbiter, id| arbiter.add_advocate(id, advocate, Some(place), now))?;
        self.task(id)?.advocates = settings;
        Ok(())
    }

    /// Replaces the first advocate of the same kind. The others keep what they have learnt.
    ///
    /// # Errors
    ///
    /// If the task is not the caller's, has no advocate of the kind, or the advocate is invalid.
    pub fn set_advocate(
        &mut self,
        caller: &Caller,
        name: &str,
        what: &ComponentSpec,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done = self.try_set_advocate(caller, name, what, now);
        self.audited(caller, "advocate-set", Some(name), &audit::join_items([what]), done)
    }

    fn try_set_advocate(
        &mut self,
        caller: &Caller,
        name: &str,
        what: &ComponentSpec,
        now: Instant,
    ) -> Result<(), RequestError> {
        self.allow_settings(caller, std::slice::from_ref(what))?;
        let id = self.find(name)?;
        self.allow(caller, id)?;
        let mut settings = self.task(id)?.advocates.clone();
        let Some(place) = settings.iter().position(|one| one.kind == what.kind) else {
            let message = format!("task `{name}` has no advocate `{}`", shown(&what.kind));
            return Err(RequestError::refused(
                message,
                format!("`hyoshi broker advocate list {name}` shows its advocates"),
            ));
        };
        settings[place] = what.clone();
        self.allow_chain(caller, id, &settings)?;
        let advocate = self.advocate(what, id, name)?;
        self.change(caller, name, now, |arbiter, id| arbiter.replace_advocate(id, advocate, place, now))?;
        self.task(id)?.advocates = settings;
        Ok(())
    }

    /// # Errors
    ///
    /// If the task is not the caller's, or there is no advocate at `place`.
    pub fn remove_advocate(
        &mut self,
        caller: &Caller,
        name: &str,
        place: usize,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done =
            self.change(caller, name, now, |arbiter, id| arbiter.remove_advocate(id, place, now)).and_then(|id| {
                self.task(id)?.advocates.remove(place);
                Ok(())
            });
        self.audited(caller, "advocate-remove", Some(name), &place.to_string(), done)
    }

    /// Changes the policy unless `policy` is empty, and the cap unless it is `None`.
    ///
    /// # Errors
    ///
    /// If the policy is invalid, or the caller is not an operator.
    pub fn set_policy(
        &mut self,
        caller: &Caller,
        policy: &str,
        cap: Option<Share>,
        now: Instant,
    ) -> Result<(), RequestError> {
        let done = self.try_set_policy(caller, policy, cap, now);
        if done.is_ok() {
            self.store_policy(policy, cap);
        }
        let value = match cap {
            Some(cap) => format!("{policy} cap {cap}"),
            None => policy.to_owned(),
        };
        self.audited(caller, "policy", None, value.trim(), done)
    }

    fn try_set_policy(
        &mut self,
        caller: &Caller,
        policy: &str,
        cap: Option<Share>,
        now: Instant,
    ) -> Result<(), RequestError> {
        if !self.access.is_operator(caller) {
            let message = "only operators may change the policy".to_owned();
            return Err(RequestError::NotAllowed { message, remedy: self.who_may() });
        }
        policy::from_elsewhere(policy)?.map_or(Ok(()), |setting| self.allow_foreign(caller, &setting))?;
        let policy = match (policy, &self.externals) {
            ("", _) => None,
            (name, Some(externals)) => Some(policy::read(name, externals)?),
            (name, None) => Some(policy::named(name)?),
        };
        if let Some(cap) = cap {
            self.backlog.add(self.arbiter.set_cap(cap));
        }
        if let Some(policy) = policy {
            self.backlog.add(self.arbiter.set_policy(policy));
            self.regroup();
        }
        self.apply(now);
        Ok(())
    }

    /// Groups keep their names under another policy. A group that it does not have becomes none.
    fn regroup(&mut self) {
        let grouped = self.tasks.iter().filter(|(_, task)| !task.group.is_empty());
        let moves: Vec<_> = grouped.map(|(id, task)| (*id, self.arbiter.policy().group(&task.group))).collect();
        for (id, group) in moves {
            if let Ok(decision) = self.arbiter.set_group(id, group.unwrap_or(GroupId(u32::MAX))) {
                self.backlog.add(decision);
            }
        }
    }

    fn change(
        &mut self,
        caller: &Caller,
        name: &str,
        now: Instant,
        change: impl FnOnce(&mut Arbiter, TaskId) -> Result<Decision<'_>, Refusal>,
    ) -> Result<TaskId, RequestError> {
        let id = self.find(name)?;
        self.allow(caller, id)?;
        let decision = change(&mut self.arbiter, id).map_err(|refusal| {
            RequestError::refused(refusal, format!("`hyoshi broker show {name}` shows its present state"))
        })?;
        self.backlog.add(decision);
        self.apply(now);
        Ok(id)
    }
}
