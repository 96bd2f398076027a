//! Rights of TLS certificates: which names may change all tasks, act as a user of this machine, or only see tasks.

use std::collections::{BTreeMap, BTreeSet};

use hyoshi_orb::{Call, ServerInterceptor, SystemException, SystemKind, certificate_names, current, minor};

use crate::access::{Caller, Certified, Right};

/// Rights by the names of a certificate ([`certificate_names`]). Without a list of readers, every certificate may see
/// tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificates {
    /// They may change all tasks and the policy.
    pub operators: BTreeSet<String>,
    /// They act as these users of this machine.
    pub users: BTreeMap<String, u32>,
    /// Only these and the names above may see tasks; `None` allows all certificates.
    pub readers: Option<BTreeSet<String>>,
}

impl Certificates {
    /// The rights of a certificate with these names: the strongest right of a name.
    pub fn holder(&self, names: &[String]) -> Certified {
        let nameless = if self.readers.is_none() { Right::See } else { Right::None };
        let right = names.iter().map(|name| self.right(name)).max().unwrap_or(nameless);
        let user = names.iter().find_map(|name| Some((name, *self.users.get(name)?)));
        let counted = match user {
            Some((name, _)) if right < Right::Change => Some(name),
            _ => names.iter().find(|name| self.right(name) == right),
        };
        let name = counted.map_or_else(|| "(unnamed)".to_owned(), String::clone);
        Certified { name, right, user: user.map(|(_, user)| user) }
    }

    fn right(&self, name: &str) -> Right {
        match &self.readers {
            _ if self.operators.contains(name) => Right::Change,
            Some(readers) if !readers.contains(name) && !self.users.contains_key(name) => Right::None,
            _ => Right::See,
        }
    }

    /// The caller of the request that this thread serves.
    pub fn caller(&self) -> Caller {
        if let Some(who) = current::peer() {
            return Caller::Known(who);
        }
        let names = current::peer_certificate().and_then(|certificate| certificate_names(&certificate).ok());
        names.map_or(Caller::Unknown, |names| Caller::Certified(self.holder(&names)))
    }
}

/// Rejects requests of certificates that may not even see tasks, before any object is called.
pub(crate) struct CertificateFilter(pub(crate) Certificates);

impl ServerInterceptor for CertificateFilter {
    fn before(&self, _: &mut Call<'_>) -> Result<(), SystemException> {
        match self.0.caller() {
            Caller::Unknown | Caller::Certified(Certified { right: Right::None, .. }) => {
                Err(SystemKind::NoPermission.not_done(minor::BROKER_NAME))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn plant(readers: Option<&[&str]>) -> Certificates {
        let users = BTreeMap::from([("ann".to_owned(), 1000)]);
        Certificates { operators: set(&["chief"]), users, readers: readers.map(set) }
    }

    fn holder(of: &Certificates, names: &[&str]) -> (String, Right, Option<u32>) {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let Certified { name, right, user } = of.holder(&names);
        (name, right, user)
    }

    #[test]
    fn the_best_of_a_certificates_names_counts() {
        let all = plant(None);
        assert_eq!(holder(&all, &["chief"]), ("chief".to_owned(), Right::Change, None));
        assert_eq!(holder(&all, &["desk", "chief"]), ("chief".to_owned(), Right::Change, None));
        assert_eq!(holder(&all, &["chief", "ann"]), ("chief".to_owned(), Right::Change, Some(1000)));
        assert_eq!(holder(&all, &["desk", "ann"]), ("ann".to_owned(), Right::See, Some(1000)));
        assert_eq!(holder(&all, &["desk", "other"]), ("desk".to_owned(), Right::See, None));
        assert_eq!(holder(&all, &[]), ("(unnamed)".to_owned(), Right::See, None));
    }

    #[test]
    fn where_it_is_said_who_may_look_nobody_else_may() {
        let few = plant(Some(&["desk"]));
        assert_eq!(holder(&few, &["desk"]).1, Right::See);
        assert_eq!(holder(&few, &["ann"]).1, Right::See);
        assert_eq!(holder(&few, &["chief"]).1, Right::Change);
        assert_eq!(holder(&few, &["stranger"]).1, Right::None);
        assert_eq!(holder(&few, &[]).1, Right::None);
        assert_eq!(holder(&plant(Some(&[])), &["desk"]).1, Right::None);
    }
}
