//! Snapshots of the broker and its tasks.

use std::ops::Bound;

use hyoshi_control::advocate::Words;
use hyoshi_control::policy::PolicyWords;
use hyoshi_control::{Accounts, Advocate, Grant, Limit, Reason, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};

use super::period::DetectedPeriod;
use super::{BrokerState, gone};
use crate::component::ComponentSpec;
use crate::platform::ProxyInfo;
use crate::request_error::RequestError;

/// Tasks of a page, and octets of users' texts in it: bounds the work under the lock.
const PAGE: usize = 64;
const PAGE_OCTETS: usize = 256 << 10;

/// The state of a task.
#[derive(Clone, Debug)]
pub struct TaskSnapshot {
    /// Its name.
    pub name: String,
    /// Its user.
    pub owner: u32,
    /// Its processes.
    pub processes: Vec<u32>,
    /// Directories of its control groups.
    pub control_groups: Vec<String>,
    /// For policies fair and strict.
    pub importance: u32,
    /// For policy weighted.
    pub weight: u32,
    /// For policy partition; empty for the first.
    pub group: String,
    /// Its advocates.
    pub advocates: Vec<ComponentSpec>,
    /// The state of each advocate.
    pub advocate_status: Vec<String>,
    /// Consumption between the last two reports.
    pub consumed: Span,
    /// Consumption since it joined.
    pub total: Span,
    /// Number of reports.
    pub reports: u64,
    /// Its request and its grant.
    pub grant: Grant,
    /// The reservation is also a limit.
    pub hard: bool,
    /// What enforces the reservation besides priorities, as text.
    pub enforcement: Option<String>,
    /// The confirmed reservation.
    pub reserved: Option<Reservation>,
    /// Its period, if that is detected.
    pub detected_period: Option<DetectedPeriod>,
    /// Why less is reserved than requested; empty otherwise.
    pub reason: String,
}

impl TaskSnapshot {
    /// The answer to its request.
    pub fn grant_snapshot(&self) -> GrantSnapshot {
        GrantSnapshot { requested: self.grant.asked, reserved: self.reserved, reason: self.reason.clone() }
    }
}

/// The answer to a task's request.
#[derive(Clone, Debug)]
pub struct GrantSnapshot {
    /// The request.
    pub requested: Reservation,
    /// The confirmed reservation.
    pub reserved: Option<Reservation>,
    /// Why it is less than requested; empty otherwise.
    pub reason: String,
}

fn reason(grant: &Grant, proxy_reason: Option<&str>, accounts: &Accounts) -> String {
    let words = |limit| words(limit, accounts);
    let reason = match grant.reason {
        Reason::Granted => String::new(),
        Reason::Cut(limit) => format!("{} leaves no more", words(limit)),
        Reason::NothingLeft(limit) => format!("{} leaves nothing", words(limit)),
        Reason::BelowLeast(limit, left) => {
            format!("{} leaves {left}, less than its minimum", words(limit))
        }
        Reason::NoGroup(group) => format!("the policy has no group {}", group.0),
        Reason::Scheduler => "the kernel accepts no more".to_owned(),
        Reason::Policy => "the policy grants no more".to_owned(),
        Reason::Unanswered => "the policy returned nothing for it".to_owned(),
    };
    match proxy_reason.filter(|_| grant.reason == Reason::Scheduler) {
        Some(proxy_reason) => format!("{reason}: {proxy_reason}"),
        None => reason,
    }
}

fn words(limit: Limit, accounts: &Accounts) -> String {
    match limit {
        Limit::Account(account, share) => {
            format!("the {share} of {}", accounts.name(account).unwrap_or("its user"))
        }
        Limit::Cap(cap) => format!("the cap of {cap}"),
        Limit::Group(_, share) => format!("its group's {share}"),
    }
}

impl BrokerState {
    /// The state of a task.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn snapshot(&mut self, id: TaskId) -> Result<TaskSnapshot, RequestError> {
        self.update_total(id);
        let task = self.tasks.get(&id).ok_or_else(|| gone(id))?;
        let grant = self.arbiter.grant(id).ok_or_else(|| gone(id))?;
        Ok(TaskSnapshot {
            name: task.name.clone(),
            owner: task.owner,
            processes: self.platform.processes(id),
            control_groups: self.platform.groups(id).iter().map(|folder| folder.display().to_string()).collect(),
            importance: task.importance,
            weight: task.weight,
            group: task.group.clone(),
            advocates: task.advocates.clone(),
            advocate_status: self.advocate_status(id),
            consumed: task.consumed,
            total: task.total,
            reports: task.reports,
            hard: task.hard,
            enforcement: self.platform.enforcement(id),
            reserved: grant.reservation.filter(|_| task.waiting_since.is_none()),
            grant,
            detected_period: self.detected_period(id),
            reason: reason(&grant, task.reason.as_deref(), self.arbiter.accounts()),
        })
    }

    /// The answer to a task's request, for its report.
    ///
    /// # Errors
    ///
    /// If it has ended.
    pub fn grant_snapshot(&self, id: TaskId) -> Result<GrantSnapshot, RequestError> {
        let task = self.tasks.get(&id).ok_or_else(|| gone(id))?;
        let grant = self.arbiter.grant(id).ok_or_else(|| gone(id))?;
        let reserved = grant.reservation.filter(|_| task.waiting_since.is_none());
        let reason = reason(&grant, task.reason.as_deref(), self.arbiter.accounts());
        Ok(GrantSnapshot { requested: grant.asked, reserved, reason })
    }

    /// The state of each advocate of a task.
    fn advocate_status(&self, id: TaskId) -> Vec<String> {
        let words = |(advocate, _): (&dyn Advocate, _)| Words(advocate).to_string();
        self.arbiter.joining(id).map_or(Vec::new(), |joining| joining.chain.iter().map(words).collect())
    }

    /// One page of tasks whose names follow `after`, by name; and whether there are more.
    pub fn page(&mut self, after: &str) -> (Vec<TaskSnapshot>, bool) {
        let following = (Bound::Excluded(after), Bound::Unbounded);
        let mut ids: Vec<TaskId> = self.names.range::<str, _>(following).map(|(_, id)| *id).take(PAGE + 1).collect();
        let more = ids.len() > PAGE;
        ids.truncate(PAGE);
        let (mut page, mut octets) = (Vec::new(), 0);
        for id in ids {
            if octets > PAGE_OCTETS {
                return (page, true);
            }
            let Ok(snapshot) = self.snapshot(id) else { continue };
            octets += 4 * snapshot.processes.len() + snapshot.advocates.iter().map(ComponentSpec::size).sum::<usize>();
            page.push(snapshot);
        }
        (page, more)
    }

    /// Number of tasks.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Explains a task's request and grant as text.
    ///
    /// # Errors
    ///
    /// If there is no task of that name.
    pub fn explain(&self, name: &str, now: Instant) -> Result<String, RequestError> {
        let id = self.find(name)?;
        let explanation = self.arbiter.explain(id, now).ok_or_else(|| gone(id))?;
        let processes: Vec<_> = self.platform.processes(id).iter().take(8).map(u32::to_string).collect();
        let processes = match processes.is_empty() {
            true => "none yet".to_owned(),
            false => processes.join(", "),
        };
        let limited = explanation.grant.reason == Reason::Scheduler;
        let why = self.tasks.get(&id).and_then(|task| task.reason.as_deref()).filter(|_| limited);
        let why = why.map_or(String::new(), |why| format!("\n               {why}"));
        let period = self.detected_period(id).map_or(String::new(), |found| format!("\n  period     {}", found.text));
        let enforcement = self.platform.enforcement(id).map_or(String::new(), |text| format!("\n  enforced   {text}"));
        Ok(format!("{explanation}{why}{period}{enforcement}\n  processes  {processes}"))
    }

    /// The policy, the cap, and the sum of reservations.
    pub fn policy(&self) -> (String, Share, Share) {
        let policy = self.arbiter.policy();
        let name = policy.spec().map_or_else(|| PolicyWords(policy).to_string(), |spec| spec.to_string());
        (name, self.arbiter.cap(), self.arbiter.reserved())
    }

    /// The scheduler proxies of this machine.
    pub fn proxies(&self) -> Vec<ProxyInfo> {
        self.platform.proxies()
    }
}
