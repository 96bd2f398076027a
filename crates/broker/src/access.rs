//! Access rights. All users see all tasks and change their own; root, the broker's user and the members of one group
//! change all tasks and the policy. The kernel identifies callers (SO_PEERCRED); over TLS their certificates do
//! ([`Certificates`](crate::certificates::Certificates)).

use hyoshi_os::Credentials;

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The broker's own process.
    Broker,
    /// A process on this machine.
    Known(Credentials),
    /// The holder of a certificate, perhaps on another machine.
    Certified(Certified),
    /// An unidentified caller.
    Unknown,
}

/// A certificate and its rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The name that determined the rights, else the first name in the certificate.
    pub name: String,
    /// The right to all tasks.
    pub right: Right,
    /// The user of this machine that the holder acts as.
    pub user: Option<u32>,
}

/// The right to tasks of any user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Nothing.
    None,
    /// See them.
    See,
    /// Change them and the policy.
    Change,
}

/// The privileged user and group of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The user that runs the broker.
    pub broker: u32,
    /// Members may change all tasks.
    pub group: Option<u32>,
}

impl Access {
    /// Whether the caller may change all tasks and the policy.
    pub fn is_operator(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Broker => true,
            Caller::Known(who) => {
                who.uid == 0
                    || who.uid == self.broker
                    || self.group.is_some_and(|group| who.gid == group || who.groups.contains(&group))
            }
            Caller::Certified(who) => who.right == Right::Change,
            Caller::Unknown => false,
        }
    }

    /// Whether the caller may change a task of user `owner`.
    pub fn may_change(&self, caller: &Caller, owner: u32) -> bool {
        self.is_operator(caller) || caller.uid(self) == Some(owner)
    }

    /// A remedy for callers without the right to all tasks.
    pub fn who_may(&self) -> String {
        match (self.group, self.broker) {
            (Some(group), _) => format!("run it as root or as a member of group {group}"),
            (None, 0) => "run it as root; `hyoshi broker --operators GROUP` also allows a group".to_owned(),
            (None, user) => format!("run it as root or as user {user}, who runs this broker"),
        }
    }

    /// Whether the caller is root, the broker's user or the broker itself.
    pub fn is_root(&self, caller: &Caller) -> bool {
        match caller {
            Caller::Broker => true,
            Caller::Known(who) => who.uid == 0 || who.uid == self.broker,
            Caller::Certified(_) | Caller::Unknown => false,
        }
    }
}

impl Caller {
    /// The caller's process, if it is on this machine.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Caller::Broker => Some(std::process::id()),
            Caller::Known(who) => Some(who.pid),
            Caller::Certified(_) | Caller::Unknown => None,
        }
    }

    /// The caller's user; `None` for an unidentified caller.
    pub fn uid(&self, access: &Access) -> Option<u32> {
        match self {
            Caller::Broker => Some(access.broker),
            Caller::Known(who) => Some(who.uid),
            Caller::Certified(who) => who.user,
            Caller::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESS: Access = Access { broker: 900, group: Some(27) };

    fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller::Known(Credentials { pid: 1, uid, gid, groups: groups.to_vec() })
    }

    #[test]
    fn root_the_brokers_user_and_the_group_change_everything_others_their_own() {
        for who in
            [user(0, 0, &[]), user(900, 900, &[]), user(1000, 27, &[]), user(1000, 1000, &[4, 27]), Caller::Broker]
        {
            assert!(ACCESS.is_operator(&who) && ACCESS.may_change(&who, 1234), "{who:?}");
        }
        let ann = user(1000, 1000, &[4]);
        assert!(ACCESS.may_change(&ann, 1000) && !ACCESS.may_change(&ann, 1001) && !ACCESS.is_operator(&ann));
    }

    #[test]
    fn a_certificate_gives_the_rights_that_it_was_given_and_those_of_its_user() {
        let holder = |right, user| Caller::Certified(Certified { name: "ann".to_owned(), right, user });
        assert!(ACCESS.is_operator(&holder(Right::Change, None)) && ACCESS.may_change(&holder(Right::Change, None), 7));
        let ann = holder(Right::See, Some(1000));
        assert!(ACCESS.may_change(&ann, 1000) && !ACCESS.may_change(&ann, 1001) && !ACCESS.is_operator(&ann));
        assert!(!ACCESS.may_change(&holder(Right::See, None), 1000));
        // The certificate maps to a user, it does not authenticate one: the broker's user has its rights only over the
        // Unix socket.
        assert!(!ACCESS.is_operator(&holder(Right::See, Some(900))));
    }

    #[test]
    fn a_caller_that_the_kernel_does_not_identify_changes_nothing() {
        for owner in [0, 900, 1000, u32::MAX] {
            assert!(!ACCESS.may_change(&Caller::Unknown, owner));
        }
        assert!(!Access { group: None, ..ACCESS }.is_operator(&user(1000, 27, &[27])), "no group is no group at all");
    }
}
