//! Why a task has its reservation, as data and in words.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;

use hyoshi_model::{Instant, Reservation, Share, Span};

use super::Arbiter;
use crate::advocate::Words;
use crate::policy::PolicyWords;
use crate::task::{Confirmation, Grant, GroupId, Limit, Reason, Status, TaskId};

/// The history of a task's grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// When the explanation was made.
    pub at: Instant,
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Its importance.
    pub importance: u32,
    /// Its weight.
    pub weight: u32,
    /// Its group, by name if it has one.
    pub group: Option<String>,
    /// The name of the account that pays for it.
    pub account: Option<String>,
    /// The least useful share.
    pub least: Share,
    /// How many reports arrived.
    pub reports: u64,
    /// The last report.
    pub status: Option<Status>,
    /// The declared reservation.
    pub declared: Reservation,
    /// The request of each advocate.
    pub advocates: Vec<AdvocateRequest>,
    /// The grant.
    pub grant: Grant,
    /// The tasks that hold the missing share, the largest first; empty if nothing is missing.
    pub because: Vec<Holder>,
    /// The policy that decided.
    pub policy: String,
    /// The policy's order of preference.
    pub manner: String,
    /// The limit of all reservations together.
    pub cap: Share,
    /// The sum of all reservations.
    pub reserved: Share,
    /// The most that the scheduler accepts, if it has refused something: `Some(None)` is nothing.
    pub ceiling: Option<Option<Reservation>>,
    /// The scheduler's last confirmation.
    pub confirmed: Option<Confirmation>,
}

/// The request of one advocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdvocateRequest {
    /// Its kind.
    pub name: &'static str,
    /// Its request; `None` before its first status.
    pub asked: Option<Reservation>,
    /// Its own description.
    pub words: String,
}

/// A task that holds a part of what another lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Its importance.
    pub importance: u32,
    /// Its weight.
    pub weight: u32,
    /// The share that it holds.
    pub share: Share,
}

impl Arbiter {
    /// Explains a task's present reservation.
    pub fn explain(&self, task: TaskId, now: Instant) -> Option<Explanation> {
        let entry = self.tasks.get(&task)?;
        let joining = &entry.joining;
        let grant = self.grant(task)?;
        let mut because = Vec::new();
        let account = match grant.reason.limit() {
            Some(Limit::Account(account, _)) => Some(account),
            _ => None,
        };
        let lacks = matches!(grant.reason, Reason::Cut(_) | Reason::NothingLeft(_) | Reason::BelowLeast(..));
        if lacks && let Ok(index) = self.position(task, joining.importance) {
            let mut name = |task: TaskId, share: Share| {
                let Some(holder) = self.tasks.get(&task) else { return };
                let (importance, weight) = (holder.joining.importance, holder.joining.weight);
                because.push(Holder { task, name: holder.joining.name.clone(), importance, weight, share });
            };
            match account {
                None => self.policy.blame(&self.asks, &self.grants, index, &mut name),
                Some(account) => {
                    let of = |grant: &&Grant| self.tasks.get(&grant.task).and_then(|task| task.joining.account);
                    let others = self.grants.iter().filter(|grant| grant.task != task && of(grant) == Some(account));
                    others
                        .filter(|grant| grant.reservation.is_some())
                        .for_each(|grant| name(grant.task, grant.share()));
                }
            }
            because.sort_by_key(|holder| (Reverse(holder.share), holder.task));
        }
        let advocates = joining.chain.iter().map(|(advocate, asked)| {
            let words = Words(advocate).to_string();
            AdvocateRequest { name: advocate.name(), asked, words }
        });
        Some(Explanation {
            at: now,
            task,
            name: joining.name.clone(),
            importance: joining.importance,
            weight: joining.weight,
            group: self.policy.group_name(joining.group).map(String::from),
            account: joining.account.and_then(|account| self.accounts.name(account)).map(String::from),
            least: joining.least,
            reports: entry.reports,
            status: entry.status,
            declared: joining.declared,
            advocates: advocates.collect(),
            grant,
            because,
            policy: PolicyWords(&*self.policy).to_string(),
            manner: self.policy.manner(joining.group).to_string(),
            cap: self.cap,
            reserved: self.reserved(),
            ceiling: entry.ceiling,
            confirmed: entry.confirmed,
        })
    }

    /// The name of a group, for limits.
    pub fn group_name(&self, group: GroupId) -> Option<&str> {
        self.policy.group_name(group)
    }
}

/// How many holders are named.
const NAMED: usize = 5;

fn reserved(f: &mut fmt::Formatter<'_>, reservation: Option<Reservation>) -> fmt::Result {
    match reservation {
        None => f.write_str("nothing"),
        Some(reservation) => write!(f, "{reservation:.4} ({})", about(reservation.share())),
    }
}

/// To the nearest hundredth of a percent.
fn about(share: Share) -> Share {
    Share::from_millionths((share.as_millionths() + 50) / 100 * 100)
}

/// How long ago something was, coarsely: users do not see the broker's clock.
struct Elapsed(Span);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_nanos() / 1_000_000;
        match millis {
            0 => f.write_str("just now"),
            1..1_000 => write!(f, "{millis} ms ago"),
            1_000..60_000 => write!(f, "{}.{} s ago", millis / 1_000, millis % 1_000 / 100),
            _ => write!(f, "{} min ago", millis / 60_000),
        }
    }
}

impl Explanation {
    fn write_limit(&self, f: &mut fmt::Formatter<'_>, limit: Limit) -> fmt::Result {
        match (limit, &self.group) {
            (Limit::Cap(share), _) => write!(f, "the cap of {share}"),
            (Limit::Account(_, share), _) => {
                write!(f, "the {} of {}", about(share), self.account.as_deref().unwrap_or("its user"))
            }
            (Limit::Group(_, share), Some(group)) => write!(f, "the {share} of group {group}"),
            (Limit::Group(GroupId(group), share), None) => write!(f, "the {share} of group {group}"),
        }
    }

    /// A way to a larger reservation, if the policy or the cap granted less than requested.
    fn remedy(&self) -> Option<&'static str> {
        match self.grant.reason {
            Reason::NoGroup(_) => Some("move the task to a group of the policy: `hyoshi broker set TASK group NAME`"),
            Reason::Cut(limit) | Reason::NothingLeft(limit) | Reason::BelowLeast(limit, _) => Some(match limit {
                Limit::Group(..) => "raise the group's share: `hyoshi broker policy set`",
                Limit::Cap(_) => "raise the cap: `hyoshi broker policy set`",
                Limit::Account(..) => "raise that share in /etc/hyoshi/broker.toml, as root",
            }),
            _ => None,
        }
    }

    /// The order of preference matters only if there are other tasks.
    fn write_manner(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.because.is_empty() || self.manner.is_empty() { Ok(()) } else { write!(f, "; {}", self.manner) }
    }

    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grant.reason {
            Reason::Granted => f.write_str("the whole request"),
            Reason::Cut(limit) => {
                f.write_str("less than requested: ")?;
                self.write_limit(f, limit)?;
                f.write_str(" leaves no more")?;
                self.write_manner(f)
            }
            Reason::NothingLeft(limit) => {
                self.write_limit(f, limit)?;
                f.write_str(" leaves nothing")?;
                self.write_manner(f)
            }
            Reason::BelowLeast(limit, left) => {
                self.write_limit(f, limit)?;
                write!(f, " leaves {}, less than the least useful budget {}", about(left), about(self.least))
            }
            Reason::NoGroup(GroupId(group)) => {
                write!(f, "group {group} has no part of the CPU under this policy")
            }
            Reason::Scheduler => match self.ceiling {
                Some(Some(most)) => write!(f, "the scheduler accepts no more than {most:.4} for it"),
                _ => f.write_str("the scheduler accepts nothing for it"),
            },
            Reason::Policy => f.write_str("the policy grants no more"),
            Reason::Unanswered => f.write_str("the policy returned no budget for it"),
        }
    }
}

/// A few lines; the first is a summary.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (task {}): ", self.name, self.task.0)?;
        reserved(f, self.grant.reservation)?;
        write!(f, "\n  consumed   ")?;
        match self.status {
            None => f.write_str("no report yet")?,
            Some(status) => {
                match status.cycles {
                    1 => write!(f, "{:.4} in its last cycle", status.consumed)?,
                    cycles => write!(f, "{:.4} in its last {cycles} cycles", status.consumed)?,
                }
                let reports = if self.reports == 1 { "report" } else { "reports" };
                write!(f, ", reported {}; {} {reports}", Elapsed(self.at.since(status.at)), self.reports)?;
                if let Some(mode) = status.mode {
                    write!(f, "; mode {mode}")?;
                }
            }
        }
        write!(f, "\n  requests   ")?;
        reserved(f, Some(self.grant.asked))?;
        write!(f, "\n               declared: {:.4}", self.declared)?;
        for AdvocateRequest { name, asked, words } in &self.advocates {
            write!(f, "\n               {name}: ")?;
            match asked {
                None => f.write_str("nothing yet")?,
                Some(asked) => write!(f, "{asked:.4}")?,
            }
            write!(f, " ({words})")?;
        }
        write!(f, "\n  granted    ")?;
        reserved(f, self.grant.reservation)?;
        write!(f, " by {}: ", self.policy)?;
        self.write_reason(f)?;
        for holder in self.because.iter().take(NAMED) {
            let Holder { name, task, importance, weight, share } = holder;
            write!(f, "\n               {name} (task {}) has {}", task.0, about(*share))?;
            write!(f, "; importance {importance}, weight {weight}")?;
        }
        if let Some(others) = self.because.get(NAMED..).filter(|others| !others.is_empty()) {
            let share: Share = others.iter().map(|holder| holder.share).sum();
            match others.len() {
                1 => write!(f, "\n               another task has {}", about(share))?,
                count => write!(f, "\n               {count} other tasks have {}", about(share))?,
            }
        }
        if let Some(remedy) = self.remedy() {
            write!(f, "\n               to change it: {remedy}")?;
        }
        write!(f, "\n               its own importance is {}, its weight {}", self.importance, self.weight)?;
        if let Some(group) = &self.group {
            write!(f, ", its group {group}")?;
        }
        write!(f, "\n               reserved in total: {} of {}", about(self.reserved), about(self.cap))?;
        write!(f, "\n  confirmed  ")?;
        match self.confirmed {
            None => f.write_str("nothing yet"),
            Some(Confirmation { at, proxy, held }) => {
                reserved(f, held)?;
                write!(f, " by {proxy}, {}", Elapsed(self.at.since(at)))?;
                if held == self.grant.reservation { Ok(()) } else { f.write_str("; not yet what was granted") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_is_printed_coarsely() {
        let shown = |micros| Elapsed(Span::from_micros(micros)).to_string();
        let all = [0, 999, 33_815, 999_999, 1_000_000, 11_337_815, 59_999_999, 60_000_000, 7_260_000_000].map(shown);
        let wanted = [
            "just now",
            "just now",
            "33 ms ago",
            "999 ms ago",
            "1.0 s ago",
            "11.3 s ago",
            "59.9 s ago",
            "1 min ago",
            "121 min ago",
        ];
        assert_eq!(all, wanted);
    }
}
