//! Limits of each user: share of the cap, importance, tasks, threads, connections, octets of settings, requests a
//! second. The administrator sets them in `/etc/hyoshi/broker.toml` ([`mod@file`]); without a file the defaults apply.
//! `examples/broker.toml` is the reference, `docs/broker-limits.md` explains it.
//!
//! One entry applies to a caller: the user's own, else the one with the largest share among the user's groups, else
//! `default`. The tasks of all users of one entry share its part of the cap. Root, the broker's own user and operators
//! have no limits.

pub mod file;

use std::fmt;

use hyoshi_control::{AccountId, Accounts};
use hyoshi_os::users;

use crate::access::{Access, Caller};

pub use file::{LimitsError, read_file};

/// The limits of this machine.
pub const FILE: &str = "/etc/hyoshi/broker.toml";
/// Members of this group have half of the cap, unless the file says otherwise.
pub const GROUP: &str = "hyoshi";

/// Limits of the users of one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserLimits {
    /// The users.
    pub scope: LimitScope,
    /// Part of the cap that all their tasks hold together, in millionths.
    pub share: u32,
    /// Largest importance of a task.
    pub importance: u32,
    /// Tasks of one user.
    pub tasks: u32,
    /// Threads in all tasks of one user; with more, nothing is reserved for them.
    pub threads: u32,
    /// Connections of one user.
    pub connections: u32,
    /// Octets of the advocates' settings in all tasks of one user.
    pub settings: u64,
    /// Requests of one user in a second, reports included; the same number may arrive at once.
    pub requests: u32,
}

/// The users of an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitScope {
    /// Users without an entry of their own.
    Default,
    /// Members of a group, by its name or number.
    Group(String),
    /// One user, by name or number.
    User(String),
}

/// The name in the file.
impl fmt::Display for LimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitScope::Default => f.write_str("default"),
            LimitScope::Group(name) => write!(f, "group.{name}"),
            LimitScope::User(name) => write!(f, "user.{name}"),
        }
    }
}

impl LimitScope {
    /// The name in a sentence.
    pub fn words(&self) -> String {
        match self {
            LimitScope::Default => "users without an entry".to_owned(),
            LimitScope::Group(name) => format!("group {name}"),
            LimitScope::User(name) => format!("user {name}"),
        }
    }
}

/// All entries, and the names that operators may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The first one is the default.
    entries: Vec<(UserLimits, Option<u32>)>,
    /// Libraries that operators who are not root may load; a name that ends in `/` allows every name with that prefix.
    pub libraries: Vec<String>,
    /// The same for objects.
    pub objects: Vec<String>,
    /// The file they were read from, or would be.
    pub file: String,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::new([], FILE)
    }
}

impl UserLimits {
    /// The defaults: small for all users, and enough to work with for members of [`GROUP`].
    pub fn of(scope: LimitScope) -> UserLimits {
        let few = UserLimits {
            scope,
            share: 100_000,
            importance: 1,
            tasks: 8,
            threads: 64,
            connections: 32,
            settings: 16 << 10,
            requests: 1_000,
        };
        match &few.scope {
            LimitScope::Group(name) if name == GROUP => UserLimits {
                share: 500_000,
                importance: 10,
                tasks: 64,
                threads: 1_024,
                connections: 256,
                settings: 256 << 10,
                requests: 4_000,
                ..few
            },
            _ => few,
        }
    }
}

impl Rules {
    /// These entries, by number if the machine knows their names, and the defaults.
    pub fn new(entries: impl IntoIterator<Item = UserLimits>, file: &str) -> Rules {
        let mut all = vec![UserLimits::of(LimitScope::Default), UserLimits::of(LimitScope::Group(GROUP.to_owned()))];
        for entry in entries {
            match all.iter_mut().find(|other| other.scope == entry.scope) {
                Some(other) => *other = entry,
                None => all.push(entry),
            }
        }
        let number = |entry: &UserLimits| match &entry.scope {
            LimitScope::Default => None,
            LimitScope::Group(name) => users::group(name),
            LimitScope::User(name) => users::user(name),
        };
        let entries = all.into_iter().map(|entry| (number(&entry), entry)).map(|(number, entry)| (entry, number));
        Rules { entries: entries.collect(), libraries: Vec::new(), objects: Vec::new(), file: file.to_owned() }
    }

    /// All entries; the first one is the default.
    pub fn entries(&self) -> impl Iterator<Item = &UserLimits> {
        self.entries.iter().map(|(limits, _)| limits)
    }

    /// Entries whose user or group this machine does not know: they apply to no user.
    pub fn unknown(&self) -> impl Iterator<Item = &UserLimits> {
        let unknown = |(limits, number): &&(UserLimits, Option<u32>)| {
            number.is_none()
                && limits.scope != LimitScope::Default
                && limits.scope != LimitScope::Group(GROUP.to_owned())
        };
        self.entries.iter().filter(unknown).map(|(limits, _)| limits)
    }

    /// The entry that applies to a user.
    pub fn account(&self, uid: u32, groups: &[u32]) -> AccountId {
        let numbered = || (0..).zip(&self.entries).filter(|(_, (_, number))| number.is_some());
        let user = numbered()
            .find(|(_, (limits, number))| matches!(limits.scope, LimitScope::User(_)) && *number == Some(uid));
        let groups = numbered().filter(|(_, (limits, number))| {
            matches!(limits.scope, LimitScope::Group(_)) && number.is_some_and(|number| groups.contains(&number))
        });
        // With equal shares the first applies.
        let group = groups.min_by_key(|(_, (limits, _))| std::cmp::Reverse(limits.share));
        AccountId(user.or(group).map_or(0, |(at, _)| at))
    }

    /// The entry that applies to a caller; `None` for callers without limits.
    pub fn account_of(&self, access: &Access, caller: &Caller) -> Option<AccountId> {
        match caller {
            _ if access.is_operator(caller) => None,
            Caller::Known(who) => {
                let groups: Vec<u32> = who.groups.iter().copied().chain([who.gid]).collect();
                Some(self.account(who.uid, &groups))
            }
            Caller::Certified(who) => {
                Some(who.user.map_or(AccountId(0), |user| self.account(user, &users::groups_of(user))))
            }
            Caller::Broker => None,
            Caller::Unknown => Some(AccountId(0)),
        }
    }

    /// The entry that applies to a task stored by an earlier broker: that of its user, else that of the stored group.
    pub fn account_of_stored(&self, uid: u32, stored: &str) -> AccountId {
        let groups = self.entries.iter().filter(|(limits, _)| limits.scope.to_string() == stored);
        let groups: Vec<u32> = groups.filter_map(|(_, number)| *number).collect();
        self.account(uid, &groups)
    }

    /// The limits of an entry.
    pub fn limits(&self, account: AccountId) -> &UserLimits {
        let entry = self.entries.get(account.0 as usize).or(self.entries.first());
        // There is always a first one.
        entry.map_or_else(|| unreachable!(), |(limits, _)| limits)
    }

    /// Limits of a user in these groups. The broker's own time is divided by `share`.
    pub fn of(&self, uid: u32, groups: &[u32]) -> &UserLimits {
        self.limits(self.account(uid, groups))
    }

    /// The accounts for the arbiter.
    pub fn accounts(&self) -> Accounts {
        Accounts::new(self.entries().map(|limits| (limits.scope.words(), limits.share)))
    }

    /// Whether operators who are not root may name this library.
    pub fn allows_library(&self, path: &str) -> bool {
        allows(&self.libraries, path)
    }

    /// Whether operators who are not root may name this object.
    pub fn allows_object(&self, reference: &str) -> bool {
        allows(&self.objects, reference)
    }

    /// The remedy for a limit: the file's key, and for users without an entry the command that grants more.
    pub fn remedy(&self, account: AccountId, uid: Option<u32>, key: &str) -> String {
        let limits = self.limits(account);
        let raise = format!("`{key}` of [{}] in {}", limits.scope, self.file);
        match (&limits.scope, uid) {
            (LimitScope::Default, Some(uid)) => {
                let user = users::name_of(uid);
                format!("the limit is {raise}; `sudo usermod -aG {GROUP} {user}`, then a new login, allows more")
            }
            _ => format!("the limit is {raise}; root can raise it and restart the broker"),
        }
    }
}

fn allows(listed: &[String], name: &str) -> bool {
    // `..` could lead out of a listed directory.
    let plain = !name.split('/').any(|part| part == "..");
    listed.iter().any(|one| one == name || (one.ends_with('/') && plain && name.starts_with(one.as_str())))
}

#[cfg(test)]
mod tests {
    use hyoshi_os::Credentials;

    use super::*;

    fn rules() -> Rules {
        let entry = |scope, share| UserLimits { share, ..UserLimits::of(scope) };
        let entries = [
            entry(LimitScope::User("1000".into()), 50_000),
            entry(LimitScope::Group("27".into()), 200_000),
            entry(LimitScope::Group("28".into()), 300_000),
            entry(LimitScope::Group("no-such-group".into()), 900_000),
        ];
        Rules::new(entries, "limits.toml")
    }

    #[test]
    fn a_user_is_counted_by_the_users_entry_else_by_the_groups_with_the_largest_share() {
        let rules = rules();
        let scope = |uid, groups: &[u32]| rules.of(uid, groups).scope.to_string();
        assert_eq!(scope(1000, &[27, 28]), "user.1000");
        assert_eq!(scope(1001, &[27, 28]), "group.28");
        assert_eq!(scope(1001, &[27]), "group.27");
        assert_eq!(scope(1001, &[4]), "default");
        assert_eq!(rules.unknown().map(|limits| limits.scope.to_string()).collect::<Vec<_>>(), ["group.no-such-group"]);
        assert_eq!(rules.account_of_stored(1001, "group.27"), rules.account(1001, &[27]));
        assert_eq!(rules.account_of_stored(1000, "group.27"), rules.account(1000, &[]));
        assert_eq!(rules.account_of_stored(1001, "group.29"), AccountId(0));
    }

    #[test]
    fn root_the_brokers_user_and_operators_have_no_limits_and_unknown_callers_the_least() {
        let (rules, access) = (rules(), Access { broker: 900, group: Some(4) });
        let caller = |uid, gid| Caller::Known(Credentials { pid: 1, uid, gid, groups: vec![gid] });
        for free in [caller(0, 0), caller(900, 900), caller(1000, 4), Caller::Broker] {
            assert_eq!(rules.account_of(&access, &free), None, "{free:?}");
        }
        assert_eq!(rules.account_of(&access, &caller(1001, 28)), Some(rules.account(1001, &[28])));
        assert_eq!(rules.account_of(&access, &Caller::Unknown), Some(AccountId(0)));
    }

    #[test]
    fn a_refusal_names_the_limit_its_file_and_the_command() {
        let remedy = rules().remedy(AccountId(0), Some(4_000_000_000), "tasks");
        assert!(remedy.contains("`tasks` of [default] in limits.toml"), "{remedy}");
        assert!(remedy.contains("`sudo usermod -aG hyoshi 4000000000`"), "{remedy}");
    }

    #[test]
    fn a_listed_directory_allows_what_is_below_it_and_nothing_else() {
        let listed = ["/usr/lib/hyoshi/".to_owned(), "/opt/one.so".to_owned()];
        assert!(allows(&listed, "/usr/lib/hyoshi/a.so") && allows(&listed, "/opt/one.so"));
        for other in ["/usr/lib/hyoshi/../../evil.so", "/opt/one.so2", "/usr/lib/hyoshi", "/usr/lib/other.so"] {
            assert!(!allows(&listed, other), "{other}");
        }
    }
}
