//! Limits of each user ([`crate::limits`]), checked at each request.

use std::sync::Arc;

use hyoshi_control::{AccountId, TaskId};
use hyoshi_model::{Instant, Span};
use hyoshi_os::process::Process;

use super::BrokerState;
use crate::access::Caller;
use crate::component::ComponentSpec;
use crate::limits::{Rules, UserLimits};
use crate::request_error::RequestError;

/// How often the threads of a task are counted.
const COUNT: Span = Span::from_secs(1);

impl BrokerState {
    /// Sets the limits of users, before any task joins.
    pub fn set_rules(&mut self, rules: Arc<Rules>) {
        self.arbiter.set_accounts(rules.accounts());
        self.rules = rules;
    }

    /// The limits of users.
    pub(crate) fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    pub(super) fn account_of(&self, caller: &Caller) -> Option<AccountId> {
        self.rules.account_of(&self.access, caller)
    }

    fn beyond(&self, account: AccountId, uid: Option<u32>, key: &str, message: String) -> RequestError {
        RequestError::NotAllowed { message, remedy: self.rules.remedy(account, uid, key) }
    }

    pub(super) fn allow_importance(&self, caller: &Caller, importance: u32) -> Result<(), RequestError> {
        let Some(account) = self.account_of(caller) else { return Ok(()) };
        let UserLimits { importance: most, scope, .. } = self.rules.limits(account);
        if importance <= *most {
            return Ok(());
        }
        let message = format!("importance {importance} is above the limit {most} of {}", scope.words());
        Err(self.beyond(account, caller.uid(&self.access), "importance", message))
    }

    /// Whether a user may have one more task.
    pub(super) fn allow_task(&self, owner: u32, account: AccountId) -> Result<(), RequestError> {
        let theirs = self.tasks.values().filter(|task| task.owner == owner && !task.by_operator).count();
        let most = self.rules.limits(account).tasks;
        if theirs < most as usize {
            return Ok(());
        }
        let message = format!("user {owner} already has {theirs} tasks, the limit");
        Err(self.beyond(account, Some(owner), "tasks", message))
    }

    /// Whether a user may have these advocate settings in addition, or in place of those of a task.
    pub(super) fn allow_octets(
        &self,
        owner: u32,
        account: AccountId,
        more: &[ComponentSpec],
        instead_of: Option<TaskId>,
    ) -> Result<(), RequestError> {
        let octets = |settings: &[ComponentSpec]| settings.iter().map(ComponentSpec::size).sum::<usize>() as u64;
        let theirs = self.tasks.iter().filter(|(id, task)| task.owner == owner && Some(**id) != instead_of);
        let theirs: u64 = theirs.filter(|(_, task)| !task.by_operator).map(|(_, task)| octets(&task.advocates)).sum();
        let (wanted, most) = (theirs + octets(more), self.rules.limits(account).settings);
        if wanted <= most {
            return Ok(());
        }
        let message = format!("the advocate settings of user {owner} would have {wanted} octets, the limit is {most}");
        Err(self.beyond(account, Some(owner), "settings", message))
    }

    /// The same for the advocates of one task; callers who may change all tasks are not checked.
    pub(super) fn allow_chain(
        &self,
        caller: &Caller,
        id: TaskId,
        settings: &[ComponentSpec],
    ) -> Result<(), RequestError> {
        match (self.account_of(caller), self.tasks.get(&id)) {
            (Some(account), Some(task)) => self.allow_octets(task.owner, account, settings, Some(id)),
            _ => Ok(()),
        }
    }

    /// Whether the threads of a process may be added to those of the task's user.
    pub(super) fn allow_threads(&self, id: TaskId, process: &Process) -> Result<(), RequestError> {
        let Some((owner, account)) = self.tasks.get(&id).and_then(|task| Some((task.owner, task.account?))) else {
            return Ok(());
        };
        let has = self.threads.get(&owner).copied().unwrap_or_default();
        let (wanted, most) = (has + process.thread_count(), self.rules.limits(account).threads);
        if wanted <= most as usize {
            return Ok(());
        }
        let message = format!("the tasks of user {owner} would have {wanted} threads, the limit is {most}");
        Err(self.beyond(account, Some(owner), "threads", message))
    }

    /// Counts a task's threads regularly. While its user has too many, nothing is reserved for it.
    pub(super) fn count_threads(&mut self, id: TaskId, now: Instant) {
        let Some(task) = self.tasks.get_mut(&id).filter(|task| now.since(task.counted) >= COUNT) else { return };
        task.counted = now;
        let Some(too_many_threads) = self.recount(id) else { return };
        let Some(task) = self.tasks.get_mut(&id) else { return };
        if std::mem::replace(&mut task.too_many_threads, too_many_threads) == too_many_threads {
            return;
        }
        self.unsettled.push_back(id);
        self.settle_served();
        self.apply(now);
    }

    /// Counts a task's threads and returns whether its user has too many; `None` without a limit.
    pub(super) fn recount(&mut self, id: TaskId) -> Option<bool> {
        let task = self.tasks.get_mut(&id)?;
        let most = self.rules.limits(task.account?).threads as usize;
        let threads = self.platform.count_threads(id, most);
        let all = self.threads.entry(task.owner).or_default();
        *all = all.saturating_sub(std::mem::replace(&mut task.threads, threads)) + threads;
        Some(*all > most)
    }

    /// Why nothing is reserved for a task whose user has too many threads.
    pub(super) fn crowded(rules: &Rules, task: &super::TaskEntry) -> Option<String> {
        let account = task.account.filter(|_| task.too_many_threads)?;
        let UserLimits { threads, scope, .. } = rules.limits(account);
        Some(format!(
            "user {} has more than {threads} threads in tasks, `threads` of [{scope}] in {}",
            task.owner, rules.file
        ))
    }

    /// A task has ended: its user no longer has its threads.
    pub(super) fn forget_threads(&mut self, task: &super::TaskEntry) {
        if let Some(all) = self.threads.get_mut(&task.owner) {
            *all = all.saturating_sub(task.threads);
            if *all == 0 {
                self.threads.remove(&task.owner);
            }
        }
    }

    /// Whether the caller may add external components or libraries: root may add any, operators those in root's list.
    pub(super) fn allow_foreign(&self, caller: &Caller, setting: &ComponentSpec) -> Result<(), RequestError> {
        if !setting.is_foreign() || self.access.is_root(caller) {
            return Ok(());
        }
        if !self.access.is_operator(caller) {
            let message = "only operators may use external components and libraries".to_owned();
            return Err(RequestError::NotAllowed { message, remedy: self.who_may() });
        }
        let (key, is_listed): (_, fn(&Rules, &str) -> bool) = match setting.kind.as_str() {
            "library" => ("libraries", Rules::allows_library),
            _ => ("objects", Rules::allows_object),
        };
        match setting.targets().find(|name| !is_listed(&self.rules, name)) {
            None => Ok(()),
            Some(name) => {
                let message = format!("operators may not use {} `{}`", setting.kind, crate::request_error::shown(name));
                let file = &self.rules.file;
                Err(RequestError::NotAllowed {
                    message,
                    remedy: format!("run it as root, or let root add it to `{key}` of [operators] in {file}"),
                })
            }
        }
    }
}
