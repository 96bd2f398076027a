//! How the broker and its tasks stand.

use std::ops::Bound;

use hyoshi_control::advocate::Words;
use hyoshi_control::policy::PolicyWords;
use hyoshi_control::{Accounts, Advocate, Grant, Limit, Reason, TaskId};
use hyoshi_model::{Instant, Reservation, Share, Span};

use super::auto::Found;
use super::{State, gone};
use crate::kernel::Way;
use crate::setting::Setting;
use crate::trouble::Trouble;

/// Tasks of a page, and octets of users' names in it: bounds what is copied under the lock.
const PAGE: usize = 64;
const PAGE_OCTETS: usize = 256 << 10;

/// A task as it stands.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub owner: u32,
    /// Its processes.
    pub processes: Vec<u32>,
    /// Folders of its control groups.
    pub control_groups: Vec<String>,
    /// For policies fair and strict.
    pub importance: u32,
    /// For policy weighted.
    pub weight: u32,
    /// For policy partition; empty for the first.
    pub group: String,
    /// Its advocates.
    pub advocates: Vec<Setting>,
    /// What each of them says of itself now.
    pub sayings: Vec<String>,
    /// What it consumed by the last report, since the one before.
    pub consumed: Span,
    /// What it consumed by then, or later, since it joined.
    pub total: Span,
    /// How many reports there were.
    pub reports: u64,
    /// What it asks for and was granted.
    pub grant: Grant,
    /// No more than what it holds.
    pub hard: bool,
    /// In words, by what it is held besides, or why not.
    pub held_to: Option<String>,
    /// What the machine holds for it.
    pub held: Option<Reservation>,
    /// What is known of its period, where that is found by itself.
    pub found: Option<Found>,
    /// Why that is less than the request; empty otherwise.
    pub because: String,
}

impl Standing {
    /// What became of what it asks for.
    pub fn outcome(&self) -> Outcome {
        Outcome { asked: self.grant.asked, held: self.held, because: self.because.clone() }
    }
}

/// What became of what a task asks for.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it asks for.
    pub asked: Reservation,
    /// What the machine holds for it.
    pub held: Option<Reservation>,
    /// Why that is less; empty if it is not.
    pub because: String,
}

fn because(grant: &Grant, why: Option<&str>, accounts: &Accounts) -> String {
    let words = |limit| words(limit, accounts);
    let reason = match grant.reason {
        Reason::Granted => String::new(),
        Reason::Cut(limit) => format!("{} leaves no more", words(limit)),
        Reason::NothingLeft(limit) => format!("{} leaves nothing", words(limit)),
        Reason::BelowLeast(limit, left) => {
            format!("of {}, {left} are left, less than is of use to it", words(limit))
        }
        Reason::NoGroup(group) => format!("the policy has no group {}", group.0),
        Reason::Scheduler => "the kernel takes no more".to_owned(),
        Reason::Policy => "the policy grants no more".to_owned(),
        Reason::Unanswered => "the policy returned nothing for it".to_owned(),
    };
    match why.filter(|_| grant.reason == Reason::Scheduler) {
        Some(why) => format!("{reason}: {why}"),
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

impl State {
    /// How a task stands.
    ///
    /// # Errors
    ///
    /// If it has left.
    pub fn standing(&mut self, id: TaskId) -> Result<Standing, Trouble> {
        self.count_up(id);
        let task = self.tasks.get(&id).ok_or_else(|| gone(id))?;
        let grant = self.arbiter.grant(id).ok_or_else(|| gone(id))?;
        Ok(Standing {
            name: task.name.clone(),
            owner: task.owner,
            processes: self.kernel.processes(id),
            control_groups: self.kernel.groups(id).iter().map(|folder| folder.display().to_string()).collect(),
            importance: task.importance,
            weight: task.weight,
            group: task.group.clone(),
            advocates: task.settings.clone(),
            sayings: self.sayings(id),
            consumed: task.consumed,
            total: task.total,
            reports: task.reports,
            hard: task.hard,
            held_to: self.kernel.told(id),
            held: grant.reservation.filter(|_| task.waits.is_none()),
            grant,
            found: self.found(id),
            because: because(&grant, task.why.as_deref(), self.arbiter.accounts()),
        })
    }

    /// What became of what a task asks for: what a report is answered with.
    ///
    /// # Errors
    ///
    /// If it has left.
    pub fn outcome(&self, id: TaskId) -> Result<Outcome, Trouble> {
        let task = self.tasks.get(&id).ok_or_else(|| gone(id))?;
        let grant = self.arbiter.grant(id).ok_or_else(|| gone(id))?;
        let held = grant.reservation.filter(|_| task.waits.is_none());
        let because = because(&grant, task.why.as_deref(), self.arbiter.accounts());
        Ok(Outcome { asked: grant.asked, held, because })
    }

    /// What each of a task's advocates says of itself now.
    fn sayings(&self, id: TaskId) -> Vec<String> {
        let words = |(advocate, _): (&dyn Advocate, _)| Words(advocate).to_string();
        self.arbiter.joining(id).map_or(Vec::new(), |joining| joining.chain.iter().map(words).collect())
    }

    /// The next tasks by name, those whose names follow `after`: one page. Also whether there are more.
    pub fn page(&mut self, after: &str) -> (Vec<Standing>, bool) {
        let following = (Bound::Excluded(after), Bound::Unbounded);
        let mut ids: Vec<TaskId> = self.names.range::<str, _>(following).map(|(_, id)| *id).take(PAGE + 1).collect();
        let more = ids.len() > PAGE;
        ids.truncate(PAGE);
        let (mut page, mut octets) = (Vec::new(), 0);
        for id in ids {
            if octets > PAGE_OCTETS {
                return (page, true);
            }
            let Ok(standing) = self.standing(id) else { continue };
            octets += 4 * standing.processes.len() + standing.advocates.iter().map(Setting::size).sum::<usize>();
            page.push(standing);
        }
        (page, more)
    }

    /// How many tasks there are.
    pub fn count(&self) -> usize {
        self.tasks.len()
    }

    /// In words, what became of a task's wishes and why.
    ///
    /// # Errors
    ///
    /// If there is none of that name.
    pub fn explain(&self, name: &str, now: Instant) -> Result<String, Trouble> {
        let id = self.find(name)?;
        let explanation = self.arbiter.explain(id, now).ok_or_else(|| gone(id))?;
        let processes: Vec<_> = self.kernel.processes(id).iter().take(8).map(u32::to_string).collect();
        let processes = match processes.is_empty() {
            true => "none has come yet".to_owned(),
            false => processes.join(", "),
        };
        let limited = explanation.grant.reason == Reason::Scheduler;
        let why = self.tasks.get(&id).and_then(|task| task.why.as_deref()).filter(|_| limited);
        let why = why.map_or(String::new(), |why| format!("\n               {why}"));
        let period = self.found(id).map_or(String::new(), |found| format!("\n  period     {}", found.words));
        let held_to = self.kernel.told(id).map_or(String::new(), |told| format!("\n  held to    {told}"));
        Ok(format!("{explanation}{why}{period}{held_to}\n  processes  {processes}"))
    }

    /// The policy, its cap, what is reserved of it.
    pub fn policy(&self) -> (String, Share, Share) {
        let policy = self.arbiter.policy();
        let name = policy.spec().map_or_else(|| PolicyWords(policy).to_string(), |spec| spec.to_string());
        (name, self.arbiter.cap(), self.arbiter.reserved())
    }

    /// The ways to reserve time on this machine.
    pub fn ways(&self) -> Vec<Way> {
        self.kernel.ways()
    }
}
