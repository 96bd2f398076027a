//! Limits the connections and requests a second of each user, before any object of the broker is called
//! ([`crate::limits`]). Root, the broker's own user and operators are not counted.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::{AccountId, Rate};
use hyoshi_model::Span;
use hyoshi_orb::{Call, ServerInterceptor, SystemException, SystemKind, minor};
use hyoshi_os::{Clock, Credentials, MonotonicClock, PiMutex, Wake};

use crate::access::{Access, Caller};
use crate::certificates::Certificates;
use crate::limits::Rules;
use crate::refusals::RefusalNotices;

/// Number of remembered users; beyond it, idle users are forgotten.
const USERS: usize = 1_024;

/// See the module.
pub(crate) struct RequestLimiter {
    pub access: Access,
    pub rules: Arc<Rules>,
    pub certificates: Certificates,
    pub clock: MonotonicClock,
    pub refusals: Arc<RefusalNotices>,
    pub wake: Arc<Wake>,
    pub users: UserTable,
}

/// By user, or by the name of a certificate that belongs to no user.
#[derive(Clone, Debug, Default)]
pub(crate) struct UserTable(Arc<PiMutex<BTreeMap<UserKey, UserCounters>>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UserKey {
    User(u32),
    Certificate(String),
}

#[derive(Debug)]
struct UserCounters {
    requests: Rate,
    connections: u32,
}

/// A user's open connection.
struct UserConnection(UserTable, UserKey);

impl Drop for UserConnection {
    fn drop(&mut self) {
        if let Some(user) = self.0.0.lock().get_mut(&self.1) {
            user.connections = user.connections.saturating_sub(1);
        }
    }
}

impl RequestLimiter {
    /// The user and the entry that applies; `None` for callers without limits.
    fn counted(&self, caller: &Caller) -> Option<(UserKey, AccountId)> {
        let account = self.rules.account_of(&self.access, caller)?;
        let key = match caller {
            Caller::Certified(who) if who.user.is_none() => UserKey::Certificate(who.name.clone()),
            caller => UserKey::User(caller.uid(&self.access).unwrap_or(u32::MAX)),
        };
        Some((key, account))
    }

    /// Counts a request; an error names the exceeded limit.
    fn request(&self, key: &UserKey, account: AccountId, connects: bool) -> Result<(), &'static str> {
        let (limits, now) = (self.rules.limits(account), self.clock.now());
        let mut users = self.users.0.lock();
        if users.len() >= USERS && !users.contains_key(key) {
            users.retain(|_, user| user.connections > 0 || !user.requests.is_full(now));
        }
        let every = Span::from_nanos(1_000_000_000 / u64::from(limits.requests.max(1)));
        let fresh = || UserCounters { requests: Rate::new(every, limits.requests), connections: 0 };
        let user = users.entry(key.clone()).or_insert_with(fresh);
        if connects && user.connections >= limits.connections {
            return Err("connections");
        }
        if !user.requests.take(now) {
            return Err("requests");
        }
        user.connections += u32::from(connects);
        Ok(())
    }

    fn refuse(&self, caller: &Caller, account: AccountId, limit: &str) {
        let limits = self.rules.limits(account);
        let most = if limit == "connections" { limits.connections } else { limits.requests };
        let of = if limit == "connections" { "" } else { " a second" };
        let who = match caller {
            Caller::Certified(who) => format!("certificate {}", who.name),
            caller => format!("user {}", caller.uid(&self.access).unwrap_or(u32::MAX)),
        };
        let reason = format!("more than {most} {limit}{of}, `{limit}` of [{}] in {}", limits.scope, self.rules.file);
        if self.refusals.note(&who, &reason) {
            self.wake.post();
        }
    }
}

impl ServerInterceptor for RequestLimiter {
    fn connected(&self, who: &Credentials) -> Result<Option<Box<dyn Any + Send + Sync>>, SystemException> {
        let caller = Caller::Known(who.clone());
        let Some((key, account)) = self.counted(&caller) else { return Ok(None) };
        match self.request(&key, account, true) {
            Ok(()) => Ok(Some(Box::new(UserConnection(self.users.clone(), key)))),
            Err(limit) => {
                self.refuse(&caller, account, limit);
                Err(SystemKind::Transient.not_done(minor::BROKER_BUSY))
            }
        }
    }

    fn before(&self, _: &mut Call<'_>) -> Result<(), SystemException> {
        let caller = self.certificates.caller();
        let Some((key, account)) = self.counted(&caller) else { return Ok(()) };
        self.request(&key, account, false).map_err(|limit| {
            self.refuse(&caller, account, limit);
            SystemKind::Transient.not_done(minor::BROKER_BUSY)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{LimitScope, UserLimits};

    fn gate(connections: u32, requests: u32) -> RequestLimiter {
        let limits = UserLimits { connections, requests, ..UserLimits::of(LimitScope::Default) };
        RequestLimiter {
            access: Access { broker: 0, group: None },
            rules: Arc::new(Rules::new([limits], "limits.toml")),
            certificates: Certificates::default(),
            clock: MonotonicClock::start(),
            refusals: Arc::new(RefusalNotices::of("refused")),
            wake: Arc::new(Wake::new()),
            users: UserTable::default(),
        }
    }

    fn user(uid: u32) -> Credentials {
        Credentials { pid: 1, uid, gid: uid, groups: vec![] }
    }

    #[test]
    fn a_users_connections_are_bounded_and_those_of_others_are_not_counted_with_them() {
        let gate = gate(3, 1_000);
        let mut held: Vec<_> = (0..3).map(|_| gate.connected(&user(1000)).unwrap()).collect();
        assert!(gate.connected(&user(1000)).is_err());
        assert!(gate.connected(&user(1001)).unwrap().is_some());
        for _ in 0..10_000 {
            assert!(gate.connected(&user(0)).unwrap().is_none(), "root is not counted");
        }
        held.pop();
        held.push(gate.connected(&user(1000)).unwrap());
        assert!(gate.connected(&user(1000)).is_err());
        let notice = gate.refusals.take(gate.clock.now()).unwrap();
        assert!(notice.contains("refused: user 1000: more than 3 connections, `connections` of [default]"), "{notice}");
    }

    #[test]
    fn a_users_requests_are_bounded_and_users_that_owe_nothing_are_forgotten() {
        let gate = gate(1_000_000, 10);
        let key = UserKey::User(1000);
        let passed = (0..1_000).filter(|_| gate.request(&key, AccountId(0), false).is_ok()).count();
        assert!((10..100).contains(&passed), "{passed}");
        for uid in 0..10_000 {
            let _ = gate.request(&UserKey::User(uid), AccountId(0), false);
        }
        assert!(gate.users.0.lock().len() <= 10_001);
    }
}
