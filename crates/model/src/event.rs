//! Events by name: a completed job of a supplier pushes each of its events, which releases the consumers' jobs.
//!
//! The file's reader turns `after = { event = ... }` into a [`Trigger`](crate::Trigger) that names the suppliers. So
//! releases, analyses and signals between hosts need no events; [`Event`] has the names for reports and for writing.

use alloc::{string::String, vec::Vec};

use crate::endpoint::Endpoint;
use crate::ids::OperationId;

/// A declared event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Name in the file: parts separated by `/`.
    pub name: String,
    /// The operations whose completion pushes it, in order.
    pub suppliers: Vec<OperationId>,
    /// The operations that it triggers, in order. A consumer may follow only some of the suppliers.
    pub consumers: Vec<OperationId>,
    /// Bytes that each supplier may pass with it; 0 for none. Included in [`payload`](crate::Operation::payload) of the
    /// suppliers.
    pub payload: u32,
    /// How many of the latest events the channel of a node keeps for late subscribers.
    pub keep: u32,
    /// Where CORBA programs receive it and, if a supplier has `called = true`, publish it. All suppliers are then on
    /// one host. Two events have the same endpoints, or none in common.
    pub endpoints: Vec<Endpoint>,
    /// True if other machines may reach these endpoints without encryption.
    pub insecure: bool,
}

/// Whether a pattern matches the name of an event, as a key expression of Zenoh: `*` matches one part between slashes,
/// `**` any number of parts, and none.
///
/// ```
/// use hyoshi_model::event::matches;
///
/// assert!(matches("sensor/**", "sensor/gps/left") && matches("sensor/**", "sensor"));
/// assert!(matches("sensor/*", "sensor/gps") && !matches("sensor/*", "sensor/gps/left"));
/// ```
pub fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.split('/'), name.split('/'));
    // The pattern after its last `**`, and the parts of the name that this `**` does not match. Only the last one has to
    // be tried again, so the time is at most quadratic.
    let mut retry = None;
    loop {
        let (mut next_pattern, mut next_name) = (pattern.clone(), name.clone());
        match (next_pattern.next(), next_name.next()) {
            (None, None) => return true,
            (Some("**"), _) => {
                retry = Some((next_pattern.clone(), name.clone()));
                pattern = next_pattern;
            }
            (Some(part), Some(of_name)) if part == "*" || part == of_name => {
                (pattern, name) = (next_pattern, next_name)
            }
            _ => {
                let Some((after, left)) = &mut retry else { return false };
                if left.next().is_none() {
                    return false;
                }
                (pattern, name) = (after.clone(), left.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;
    use proptest::prelude::*;

    /// By the definition: exponential time.
    fn defined(pattern: &[&str], name: &[&str]) -> bool {
        match (pattern, name) {
            ([], _) => name.is_empty(),
            (["**", rest @ ..], _) => (0..=name.len()).any(|skipped| defined(rest, &name[skipped..])),
            ([part, rest @ ..], [first, others @ ..]) => (*part == "*" || part == first) && defined(rest, others),
            (_, []) => false,
        }
    }

    #[test]
    fn an_asterisk_matches_one_part_and_two_match_any_number() {
        let cases = [
            ("**", "a", true),
            ("**", "a/b/c", true),
            ("a/**", "a", true),
            ("a/**", "a/b/c", true),
            ("a/**", "ab", false),
            ("**/c", "a/b/c", true),
            ("**/c", "c", true),
            ("*", "a", true),
            ("*", "a/b", false),
            ("a/*/c", "a/b/c", true),
            ("a/*/c", "a/c", false),
            ("a/**/c/**/e", "a/c/d/c/e", true),
            ("a/**/c/*", "a/c/c/c/d", true),
            ("a/**/c/*", "a/c", false),
            ("a", "a", true),
            ("a", "a/b", false),
            ("a/b", "a", false),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_double_asterisks_need_no_exponential_time() {
        let name = "a/".repeat(3_000) + "b";
        assert!(!matches(&("**/a/".repeat(1_000) + "c"), &name));
        assert!(matches(&("**/a/".repeat(1_000) + "b"), &name));
        assert!(!matches(&("**/".repeat(1_000) + "c"), &name));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn matches_are_those_of_the_definition(
            pattern in prop::collection::vec(prop::sample::select(vec!["a", "b", "*", "**"]), 1..7),
            name in prop::collection::vec(prop::sample::select(vec!["a", "b"]), 1..7),
        ) {
            prop_assert_eq!(matches(&pattern.join("/"), &name.join("/")), defined(&pattern, &name));
        }
    }
}
