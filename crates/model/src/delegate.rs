//! Delegates: what happens to the requests to an object before they become jobs, or before they reach another program.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use crate::endpoint::Address;
use crate::ids::{HostId, ProcessorId};
use crate::network::Dscp;
use crate::outside::DelegateQuantity;
use crate::quantity;
use crate::system::Contents;
use crate::time::Span;

/// The longest delay of a request: its connection waits, too.
pub const LONGEST_DELAY: Span = Span::from_secs(60);

/// The name for all operations without a behaviour of their own.
pub const ALL_OPERATIONS: &str = "*";

/// A delegate of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredDelegate {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub place: DelegatePlace,
    /// The behaviours of operations of its interface, by name; [`ALL_OPERATIONS`] for all others. The default is to pass.
    pub behaviours: Vec<(Box<str>, DeclaredBehaviour)>,
    /// The object for [`DeclaredBehaviour::Redirect`]: `IOR:` or `corbaloc:`.
    pub redirect: Option<Box<str>>,
}

/// Where a delegate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelegatePlace {
    /// Around the servant of an object, by its position.
    Servant(u16),
    /// In a proxy, in front of an object of another program.
    Proxy(DeclaredProxy),
}

/// A proxy of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredProxy {
    /// Its host.
    pub host: HostId,
    /// The object of the other program: `IOR:` or `corbaloc:`.
    pub to: Box<str>,
    /// Where clients connect: `tcp/`.
    pub listen: Address,
}

impl DeclaredDelegate {
    /// The declared behaviour of an operation, or that of [`ALL_OPERATIONS`].
    pub fn behaviour(&self, operation: &str) -> DeclaredBehaviour {
        let of = |name: &str| self.behaviours.iter().find(|(one, _)| **one == *name).map(|(_, behaviour)| *behaviour);
        of(operation).or_else(|| of(ALL_OPERATIONS)).unwrap_or_default()
    }

    /// Its object, by position; `None` of a proxy.
    pub fn object(&self) -> Option<u16> {
        match self.place {
            DelegatePlace::Servant(object) => Some(object),
            DelegatePlace::Proxy(_) => None,
        }
    }

    /// The processor of its object, or the first one of its proxy's host.
    pub fn processor(&self, contents: &Contents) -> ProcessorId {
        let found = match &self.place {
            DelegatePlace::Servant(object) => {
                contents.objects[usize::from(*object)].operations.first().map(|id| contents.operation(*id).on)
            }
            DelegatePlace::Proxy(proxy) => {
                let first = contents.processors.iter().position(|one| one.host == proxy.host);
                first.map(|place| ProcessorId(place as u32))
            }
        };
        found.unwrap_or(ProcessorId(0))
    }

    /// The host of its object or proxy.
    pub fn host(&self, contents: &Contents) -> HostId {
        match &self.place {
            DelegatePlace::Servant(_) => contents.processor(self.processor(contents)).host,
            DelegatePlace::Proxy(proxy) => proxy.host,
        }
    }
}

/// What a delegate does with the requests to an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeclaredBehaviour {
    /// Passes them on.
    #[default]
    Pass,
    /// Raises this exception. Oneways are dropped.
    Refuse(DelegateException),
    /// Passes some of them, and raises TRANSIENT for the others. Other oneways are dropped.
    Thin(Thinning),
    /// Around a servant, forwards their clients to the object of [`DeclaredDelegate::redirect`]; oneways pass. A proxy
    /// passes them to that object.
    Redirect,
    /// A proxy passes them on after this time, at most [`LONGEST_DELAY`].
    Delay(Span),
    /// A proxy passes them on in IP packets of this class.
    Mark(Dscp),
    /// A proxy answers from the last reply for the same arguments, up to this age. Oneways pass.
    Cached(Span),
}

/// The exceptions of delegates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelegateException {
    /// TRANSIENT: the client may try again.
    #[default]
    Transient,
    /// NO_PERMISSION.
    NoPermission,
    /// NO_RESOURCES.
    NoResources,
}

impl DelegateException {
    /// All, with their names.
    pub const ALL: [(DelegateException, &str); 3] = [
        (DelegateException::Transient, "TRANSIENT"),
        (DelegateException::NoPermission, "NO_PERMISSION"),
        (DelegateException::NoResources, "NO_RESOURCES"),
    ];
}

/// Which requests pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinning {
    /// The first of so many, and then each so manyth.
    OneOf(NonZeroU32),
    /// At most one in each span of this length.
    Every(Span),
}

impl FromStr for Thinning {
    type Err = String;

    fn from_str(text: &str) -> Result<Thinning, String> {
        if let Some(count) = text.strip_prefix("1/") {
            let invalid = |_| format!("invalid share \"{text}\"; write 1/N with N from 1 to {}", u32::MAX);
            return count.parse().map(Thinning::OneOf).map_err(invalid);
        }
        let period = quantity::period(text).or_else(|error| quantity::span(text).map_err(|_| error));
        period.map(Thinning::Every).map_err(|error| format!("\"{text}\" {error}; write a rate such as 10Hz, or 1/4"))
    }
}

/// What a delegate has counted since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegateTotals {
    /// All requests, also those that did not pass.
    pub requests: u64,
    /// Requests with a result, or with an exception that the operation declares.
    pub answered: u64,
    /// Passed requests that got a system exception, or no reply.
    pub failed: u64,
    /// The sum of the latencies of answered requests.
    pub waited: Span,
}

impl DelegateTotals {
    /// The value of a condition, of all requests after `earlier`, within `over`. `None` if there is none.
    pub fn value(self, earlier: DelegateTotals, over: Span, quantity: DelegateQuantity) -> Option<f64> {
        let answered = self.answered.saturating_sub(earlier.answered);
        let failed = self.failed.saturating_sub(earlier.failed);
        match quantity {
            DelegateQuantity::Latency => {
                let waited = self.waited.saturating_sub(earlier.waited);
                (answered > 0).then(|| waited.as_secs_f64() / answered as f64)
            }
            DelegateQuantity::FailureRatio => {
                (answered + failed > 0).then(|| failed as f64 / (answered + failed) as f64)
            }
            DelegateQuantity::Rate => {
                let requests = self.requests.saturating_sub(earlier.requests);
                (!over.is_zero()).then(|| requests as f64 / over.as_secs_f64())
            }
        }
    }
}

const HELP: &str = "write \"pass\", \"refuse\", \"refuse:NO_PERMISSION\", \"thin:1/4\", \"thin:10Hz\" or \"redirect\"; of a \
                    proxy also \"delay:5ms\", \"mark:AF41\" or \"cached:500ms\"";

impl DeclaredBehaviour {
    /// Whether only proxies can have it: a lane must not wait, or store replies of any size.
    pub const fn is_of_proxies(self) -> bool {
        matches!(self, DeclaredBehaviour::Delay(_) | DeclaredBehaviour::Mark(_) | DeclaredBehaviour::Cached(_))
    }
}

impl FromStr for DeclaredBehaviour {
    type Err = String;

    fn from_str(text: &str) -> Result<DeclaredBehaviour, String> {
        let (name, value) = text.split_once(':').map_or((text, None), |(name, value)| (name, Some(value)));
        match (name, value) {
            ("pass", None) => Ok(DeclaredBehaviour::Pass),
            ("refuse", None) => Ok(DeclaredBehaviour::Refuse(DelegateException::Transient)),
            ("refuse", Some(exception)) => {
                let known = DelegateException::ALL.iter().find(|(_, name)| name.eq_ignore_ascii_case(exception));
                known.map(|(refusal, _)| DeclaredBehaviour::Refuse(*refusal)).ok_or_else(|| {
                    let known = DelegateException::ALL.map(|(_, name)| name).join(", ");
                    format!("a delegate cannot raise \"{exception}\"; write one of {known}")
                })
            }
            ("thin", Some(thinning)) => thinning.parse().map(DeclaredBehaviour::Thin),
            ("redirect", None) => Ok(DeclaredBehaviour::Redirect),
            ("redirect", Some(_)) => {
                Err("\"redirect\" contains no reference; write it as `redirect` of the delegate".into())
            }
            ("delay", Some(time)) => match span(time)? {
                delay if delay > LONGEST_DELAY => Err(format!("a delay of {time} is too long; write 60s at most")),
                delay => Ok(DeclaredBehaviour::Delay(delay)),
            },
            ("mark", Some(dscp)) => {
                let unknown = |_| format!("unknown DSCP \"{dscp}\"; write a name such as AF41 or EF, or 0 to 63");
                dscp.parse().map(DeclaredBehaviour::Mark).map_err(unknown)
            }
            ("cached", Some(age)) => span(age).map(DeclaredBehaviour::Cached),
            _ => Err(format!("unknown behaviour \"{text}\"; {HELP}")),
        }
    }
}

fn span(text: &str) -> Result<Span, String> {
    quantity::span(text).map_err(|error| format!("\"{text}\" {error}; {}", error.remedy(text)))
}

impl fmt::Display for Thinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Thinning::OneOf(count) => write!(f, "1/{count}"),
            Thinning::Every(period) => write!(f, "{period}"),
        }
    }
}

impl fmt::Display for DeclaredBehaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeclaredBehaviour::Pass => f.write_str("pass"),
            DeclaredBehaviour::Refuse(refusal) => write!(f, "refuse:{}", DelegateException::ALL[*refusal as usize].1),
            DeclaredBehaviour::Thin(thinning) => write!(f, "thin:{thinning}"),
            DeclaredBehaviour::Redirect => f.write_str("redirect"),
            DeclaredBehaviour::Delay(time) => write!(f, "delay:{time}"),
            DeclaredBehaviour::Mark(dscp) => write!(f, "mark:{dscp}"),
            DeclaredBehaviour::Cached(age) => write!(f, "cached:{age}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn behaviours_are_read_as_they_are_written() {
        for text in [
            "pass",
            "refuse:TRANSIENT",
            "refuse:NO_PERMISSION",
            "refuse:NO_RESOURCES",
            "thin:1/4",
            "thin:100ms",
            "redirect",
            "delay:5ms",
            "mark:AF41",
            "cached:500ms",
        ] {
            assert_eq!(text.parse::<DeclaredBehaviour>().unwrap().to_string(), text);
        }
        assert_eq!("refuse".parse(), Ok(DeclaredBehaviour::Refuse(DelegateException::Transient)));
        assert_eq!("thin:10Hz".parse(), Ok(DeclaredBehaviour::Thin(Thinning::Every(Span::from_millis(100)))));
    }

    #[test]
    fn mistakes_are_refused_with_a_remedy() {
        for (text, why) in [
            ("stop", "unknown behaviour \"stop\"; write \"pass\""),
            ("delay:5", "write \"5ms\""),
            ("delay:2min", "write 60s at most"),
            ("mark:AF99", "unknown DSCP"),
            ("refuse:TIMEOUT", "write one of TRANSIENT, NO_PERMISSION, NO_RESOURCES"),
            ("thin:0/3", "write a rate such as 10Hz"),
            ("redirect:IOR:0", "write it as `redirect` of the delegate"),
        ] {
            let error = text.parse::<DeclaredBehaviour>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn conditions_count_what_was_between_two_samples() {
        let millis = Span::from_millis;
        let earlier = DelegateTotals { requests: 10, answered: 5, failed: 1, waited: millis(10) };
        let later = DelegateTotals { requests: 20, answered: 8, failed: 2, waited: millis(40) };
        let value = |quantity| later.value(earlier, millis(500), quantity);
        assert_eq!(DelegateQuantity::ALL.map(|(quantity, _)| value(quantity)), [Some(0.01), Some(0.25), Some(20.0)]);
        let none = later.value(later, millis(500), DelegateQuantity::Latency);
        assert_eq!((none, later.value(later, millis(500), DelegateQuantity::Rate)), (None, Some(0.0)));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[a-z]{0,8}:?.{0,20}") {
            let _ = text.parse::<DeclaredBehaviour>();
        }
    }
}
