//! Delegates: what happens to requests between clients and an object, for each operation. Plain state machines without
//! I/O: a proxy drives them, a node, and [`CallDelegates`](crate::CallDelegates).
//!
//! ```text
//!   request ──► Delegates::request ──► DelegateDecision: pass, refuse, drop, redirect, delay, mark, answer from the cache
//!   reply   ──► Delegates::replied ──► counts, failures, latency
//! ```

mod cache;
mod delegates;
mod measured;

use std::fmt;
use std::str::FromStr;

use hyoshi_model::network::Dscp;
use hyoshi_model::{DeclaredBehaviour, DelegateException, Span};
pub use hyoshi_model::{LONGEST_DELAY, Thinning};
use hyoshi_wire::SystemKind;

pub use cache::{CacheLimits, ReplyCache};
pub(crate) use delegates::IMPLICIT_OPERATIONS;
pub use delegates::{DelegateDecision, DelegateId, Delegates, MOST_OPERATIONS, OperationDelegate};
pub use measured::{DelegateMeasurements, DelegateOutcome};

/// What a delegate does with the requests to an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Passes them on.
    #[default]
    Pass,
    /// Raises this exception instead. Oneways are dropped.
    Refuse(SystemKind),
    /// Passes them to another object: `IOR:`, `corbaloc:` or `corbaname:`.
    Redirect(String),
    /// Passes some of them, and raises TRANSIENT for the others. Other oneways are dropped.
    Thin(Thinning),
    /// Passes them on after this time, at most [`LONGEST_DELAY`].
    Delay(Span),
    /// Passes them on in IP packets of this class.
    Mark(Dscp),
    /// Answers from the last reply for the same arguments, up to this age. Oneways pass.
    Cached(Span),
}

const HELP: &str = "write pass, refuse, refuse:EXCEPTION, redirect:REFERENCE, thin:1/4, thin:10Hz, delay:5ms, mark:AF41 or \
                    cached:500ms";

impl FromStr for Behaviour {
    type Err = String;

    fn from_str(text: &str) -> Result<Behaviour, String> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("refuse", None) => Ok(Behaviour::Refuse(SystemKind::Transient)),
            ("refuse", Some(exception)) => {
                let known = SystemKind::ALL.iter().find(|kind| kind.name().eq_ignore_ascii_case(exception));
                let unknown = || {
                    format!("unknown system exception \"{exception}\"; write TRANSIENT, NO_PERMISSION or NO_RESOURCES")
                };
                known.map(|kind| Behaviour::Refuse(*kind)).ok_or_else(unknown)
            }
            ("redirect", Some(reference)) if !reference.is_empty() => Ok(Behaviour::Redirect(reference.to_owned())),
            ("pass", None) | ("thin" | "delay" | "mark" | "cached", Some(_)) => {
                text.parse().map(|behaviour| Behaviour::of_file(behaviour, None))
            }
            _ => Err(format!("unknown behaviour \"{text}\"; {HELP}")),
        }
    }
}

impl Behaviour {
    /// That of a delegate of the file. `redirect` is its reference for [`DeclaredBehaviour::Redirect`].
    pub fn of_file(behaviour: DeclaredBehaviour, redirect: Option<&str>) -> Self {
        match behaviour {
            DeclaredBehaviour::Pass => Behaviour::Pass,
            DeclaredBehaviour::Refuse(DelegateException::Transient) => Behaviour::Refuse(SystemKind::Transient),
            DeclaredBehaviour::Refuse(DelegateException::NoPermission) => Behaviour::Refuse(SystemKind::NoPermission),
            DeclaredBehaviour::Refuse(DelegateException::NoResources) => Behaviour::Refuse(SystemKind::NoResources),
            DeclaredBehaviour::Thin(thinning) => Behaviour::Thin(thinning),
            DeclaredBehaviour::Redirect => Behaviour::Redirect(redirect.unwrap_or_default().to_owned()),
            DeclaredBehaviour::Delay(time) => Behaviour::Delay(time),
            DeclaredBehaviour::Mark(dscp) => Behaviour::Mark(dscp),
            DeclaredBehaviour::Cached(age) => Behaviour::Cached(age),
        }
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Behaviour::Pass => f.write_str("pass"),
            Behaviour::Refuse(kind) => write!(f, "refuse:{}", kind.name()),
            Behaviour::Redirect(reference) => write!(f, "redirect:{reference}"),
            Behaviour::Thin(Thinning::OneOf(count)) => write!(f, "thin:1/{count}"),
            Behaviour::Thin(Thinning::Every(period)) => write!(f, "thin: one in {period}"),
            Behaviour::Delay(span) => write!(f, "delay:{span}"),
            Behaviour::Mark(dscp) => write!(f, "mark:{dscp}"),
            Behaviour::Cached(age) => write!(f, "cached:{age}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn behaviours_are_read_as_they_are_written() {
        for text in ["pass", "refuse:NO_PERMISSION", "redirect:corbaloc::h:1/K", "thin:1/4", "delay:5ms", "mark:AF41"] {
            assert_eq!(text.parse::<Behaviour>().unwrap().to_string(), text);
        }
        assert_eq!("refuse".parse(), Ok(Behaviour::Refuse(SystemKind::Transient)));
        assert_eq!("thin:10Hz".parse(), Ok(Behaviour::Thin(Thinning::Every(Span::from_millis(100)))));
        assert_eq!("cached:0.5s".parse(), Ok(Behaviour::Cached(Span::from_millis(500))));
    }

    #[test]
    fn mistakes_are_refused_with_a_remedy() {
        for (text, why) in [
            ("stop", "write pass, refuse"),
            ("pass:1", "write pass, refuse"),
            ("refuse:NOW", "unknown system exception \"NOW\""),
            ("thin:1/0", "write 1/N"),
            ("thin:2/3", "write a rate such as 10Hz"),
            ("delay:5", "write \"5ms\""),
            ("delay:2min", "write 60s at most"),
            ("mark:AF99", "unknown DSCP"),
            ("redirect:", "write pass, refuse"),
        ] {
            let error = text.parse::<Behaviour>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z]{0,8}:?.{0,20}") {
            let _ = text.parse::<Behaviour>();
        }
    }
}
