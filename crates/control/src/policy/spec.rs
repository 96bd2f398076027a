//! A policy in its written form: `strict`, `partition(video 40% strict, rest 30% weighted)`.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use hyoshi_model::Share;

use super::partition::PartitionPart;
use super::{AnyPolicy, Fair, Partition, Strict, Weighted};

/// The kinds of policies and their descriptions: the table for commands and docs.
pub static POLICIES: [(&str, &str); 4] = [
    (
        "fair",
        "serves by importance; tasks of the same importance get equal shares, up to what they ask for; the default",
    ),
    ("strict", "serves in the order of importance until nothing is left"),
    ("weighted", "reduces all tasks in inverse proportion to their weights"),
    ("partition", "divides the CPU among groups, each with its own policy"),
];

/// The specification of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PolicySpec {
    /// [`Fair`].
    #[default]
    Fair,
    /// [`Strict`].
    Strict,
    /// [`Weighted`].
    Weighted,
    /// [`Partition`].
    Partition(Vec<PartSpec>),
}

/// One part of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSpec {
    /// Its name: letters, digits, `-`, `_` and `.`, at most [`PolicySpec::LONGEST_NAME`].
    pub name: String,
    /// Its part, of one CPU.
    pub share: Share,
    /// Its policy.
    pub policy: PolicySpec,
}

/// Why a text is not a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// An unexpected word.
    Expected {
        /// The expected words.
        wanted: &'static str,
        /// The word found; empty at the end.
        found: String,
    },
    /// Two groups of one name.
    Twice(String),
    /// More than [`PolicySpec::MOST_GROUPS`] groups.
    TooMany,
    /// Partitions more than [`PolicySpec::DEEPEST`] deep.
    TooDeep,
    /// A name of more than [`PolicySpec::LONGEST_NAME`] characters.
    LongName(String),
}

impl PolicyError {
    /// The remedy.
    pub const fn remedy(&self) -> &'static str {
        match self {
            PolicyError::Twice(_) => "use a different name for each group and each part",
            PolicyError::TooMany => "one partition has room for 64 groups and parts",
            PolicyError::TooDeep => "partitions can be nested at most four deep",
            PolicyError::LongName(_) => "use at most 32 characters",
            PolicyError::Expected { .. } => {
                "write \"fair\", \"strict\", \"weighted\" or \"partition(NAME SHARE POLICY, ...)\", such as \
                 \"partition(video 40% strict, rest 30% weighted)\""
            }
        }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::Expected { wanted, found } if found.is_empty() => {
                write!(f, "expected {wanted} at the end of the policy")
            }
            PolicyError::Expected { wanted, found } => {
                write!(f, "expected {wanted} instead of `{}` in the policy", found.escape_debug())
            }
            PolicyError::Twice(name) => write!(f, "the policy has two groups `{name}`"),
            PolicyError::TooMany => f.write_str("the policy has too many groups"),
            PolicyError::TooDeep => f.write_str("the policy's partitions are nested too deep"),
            PolicyError::LongName(name) => write!(f, "the group's name `{name}` is too long"),
        }
    }
}

impl core::error::Error for PolicyError {}

impl PolicySpec {
    /// The most groups and parts of a policy in total.
    pub const MOST_GROUPS: usize = 64;
    /// How deep partitions can be nested.
    pub const DEEPEST: usize = 4;
    /// The longest name of a group.
    pub const LONGEST_NAME: usize = 32;

    /// A new policy. Its groups, the parts that hold tasks, are numbered in the written order.
    pub fn build(&self) -> AnyPolicy {
        self.build_from(&mut 0)
    }

    fn build_from(&self, next: &mut u32) -> AnyPolicy {
        let parts = match self {
            PolicySpec::Fair => return Box::new(Fair::default()),
            PolicySpec::Strict => return Box::new(Strict),
            PolicySpec::Weighted => return Box::new(Weighted::default()),
            PolicySpec::Partition(parts) => parts,
        };
        let parts = parts.iter().map(|spec| {
            let first = *next;
            let policy = spec.policy.build_from(next);
            if !matches!(spec.policy, PolicySpec::Partition(_)) {
                *next += 1;
            }
            PartitionPart::new(spec.name.clone(), spec.share, first..*next, policy)
        });
        Box::new(Partition { parts: parts.collect() })
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = match self {
            PolicySpec::Fair => return f.write_str("fair"),
            PolicySpec::Strict => return f.write_str("strict"),
            PolicySpec::Weighted => return f.write_str("weighted"),
            PolicySpec::Partition(parts) => parts,
        };
        f.write_str("partition(")?;
        for (index, PartSpec { name, share, policy }) in parts.iter().enumerate() {
            write!(f, "{}{name} {share} {policy}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

impl FromStr for PolicySpec {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let mut reader = SpecParser { rest: text, names: Vec::new() };
        let policy = reader.policy(0)?;
        match reader.word() {
            "" => Ok(policy),
            word => Err(expected("the end", word)),
        }
    }
}

fn expected(wanted: &'static str, found: &str) -> PolicyError {
    PolicyError::Expected { wanted, found: found.chars().take(32).collect() }
}

struct SpecParser<'a> {
    rest: &'a str,
    names: Vec<String>,
}

impl<'a> SpecParser<'a> {
    /// The next word or one of `(`, `)` and `,`; empty at the end.
    fn word(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        let ends = |c: char| c.is_whitespace() || matches!(c, '(' | ')' | ',');
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = match rest.find(ends) {
            Some(0) => first,
            Some(end) => end,
            None => rest.len(),
        };
        let (word, rest) = rest.split_at(end);
        self.rest = rest;
        word
    }

    fn policy(&mut self, depth: usize) -> Result<PolicySpec, PolicyError> {
        match self.word() {
            "fair" => Ok(PolicySpec::Fair),
            "strict" => Ok(PolicySpec::Strict),
            "weighted" => Ok(PolicySpec::Weighted),
            "partition" if depth == PolicySpec::DEEPEST => Err(PolicyError::TooDeep),
            "partition" => self.parts(depth).map(PolicySpec::Partition),
            word => Err(expected("fair, strict, weighted or partition", word)),
        }
    }

    fn parts(&mut self, depth: usize) -> Result<Vec<PartSpec>, PolicyError> {
        match self.word() {
            "(" => (),
            word => return Err(expected("`(`", word)),
        }
        let mut parts = Vec::new();
        loop {
            let name = self.name()?;
            let share = self.word();
            let share = share.parse().map_err(|_| expected("a group's share, such as 40%,", share))?;
            parts.push(PartSpec { name, share, policy: self.policy(depth + 1)? });
            match self.word() {
                "," => (),
                ")" => return Ok(parts),
                word => return Err(expected("`,` or `)`", word)),
            }
        }
    }

    fn name(&mut self) -> Result<String, PolicyError> {
        let word = self.word();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if word.is_empty() || !word.chars().all(is_plain) {
            return Err(expected("a group's name", word));
        }
        let name = word.to_string();
        if name.len() > PolicySpec::LONGEST_NAME {
            return Err(PolicyError::LongName(name.chars().take(PolicySpec::LONGEST_NAME).collect()));
        }
        if self.names.contains(&name) {
            return Err(PolicyError::Twice(name));
        }
        if self.names.len() == PolicySpec::MOST_GROUPS {
            return Err(PolicyError::TooMany);
        }
        self.names.push(name.clone());
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::GroupId;
    use proptest::prelude::*;

    #[test]
    fn a_policy_reads_back_as_it_prints() {
        let text = "partition(video 40% strict, rest 35% partition(a 20% weighted, b 15.5% strict))";
        let spec: PolicySpec = text.parse().unwrap();
        assert_eq!(spec.to_string(), text);
        let policy = spec.build();
        assert_eq!(policy.spec(), Some(spec));
        assert_eq!(policy.group("video"), Some(GroupId(0)));
        assert_eq!((policy.group("a"), policy.group("b")), (Some(GroupId(1)), Some(GroupId(2))));
        assert_eq!((policy.group("rest"), policy.group_name(GroupId(2))), (None, Some("b")));
    }

    #[test]
    fn invalid_policies_are_rejected_with_a_reason() {
        let error = |text: &str| text.parse::<PolicySpec>().unwrap_err().to_string();
        assert_eq!(error(""), "expected fair, strict, weighted or partition at the end of the policy");
        assert_eq!(error("fairly"), "expected fair, strict, weighted or partition instead of `fairly` in the policy");
        assert_eq!(error("strict 5"), "expected the end instead of `5` in the policy");
        assert_eq!(
            error("partition(a strict)"),
            "expected a group's share, such as 40%, instead of `strict` in the policy"
        );
        assert_eq!(error("partition(a 5% strict, a 6% strict)"), "the policy has two groups `a`");
        assert_eq!(error("partition(a 5% strict"), "expected `,` or `)` at the end of the policy");
        assert_eq!(error("partition()"), "expected a group's name instead of `)` in the policy");
        let deep = "partition(a% ".repeat(9);
        assert!(error(&deep).starts_with("expected a group's name"));
        let deep: String = (0..9).map(|depth| alloc::format!("partition(a{depth} 5% ")).collect();
        assert_eq!(error(&deep), "the policy's partitions are nested too deep");
        assert_eq!(
            error(&alloc::format!("partition({} 5% strict)", "x".repeat(33))),
            alloc::format!("the group's name `{}` is too long", "x".repeat(32))
        );
        let many: Vec<_> = (0..65).map(|group| alloc::format!("g{group} 1% strict")).collect();
        assert_eq!(error(&alloc::format!("partition({})", many.join(","))), "the policy has too many groups");
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "(partition|strict|[(), ]|[a-c]|5%|\\PC){0,40}") {
            if let Err(error) = text.parse::<PolicySpec>() {
                prop_assert!(!error.remedy().is_empty() && !error.to_string().is_empty());
            }
        }
    }
}
