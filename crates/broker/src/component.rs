//! Advocates, policies and schedulers as users write them: a kind with parameters.

use hyoshi_control::Spec;
use hyoshi_control::advocate::SpecError;
use serde::{Deserialize, Serialize};

use crate::idl::cpu_broker::{AdvocateSpec, Parameter};
use crate::request_error::RequestError;
use crate::words;

/// An advocate, policy or scheduler by its kind, with the parameters that differ from the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentSpec {
    /// Such as `max-decay`.
    pub kind: String,
    /// Names and values, such as `reports` and `10`; an empty name means the kind's first parameter.
    pub parameters: Vec<(String, String)>,
}

impl ComponentSpec {
    /// A kind with its default parameters.
    pub fn of(kind: &str) -> ComponentSpec {
        ComponentSpec { kind: kind.to_owned(), parameters: Vec::new() }
    }

    /// Whether it is in another process or in a library.
    pub fn is_foreign(&self) -> bool {
        matches!(self.kind.as_str(), "external" | "library")
    }

    /// The objects or the path of the library, if it [is foreign](ComponentSpec::is_foreign).
    pub(crate) fn targets(&self) -> impl Iterator<Item = &str> {
        let own_name = if self.kind == "library" { "path" } else { "object" };
        let is_named = self.parameters.iter().any(|(name, _)| name == own_name);
        let names = move |name: &str| name == own_name || (name.is_empty() && !(is_named && self.kind == "library"));
        self.parameters.iter().filter(move |(name, _)| names(name)).map(|(_, value)| value.as_str())
    }

    /// Its size in octets; each parameter counts one more than its name and value.
    pub(crate) fn size(&self) -> usize {
        let parameters = self.parameters.iter().map(|(name, value)| 1 + name.len() + value.len());
        self.kind.len() + parameters.sum::<usize>()
    }

    /// Parses a text, such as `max-decay --reports 10`; quotes keep blanks.
    ///
    /// # Errors
    ///
    /// If a word is not a parameter.
    pub fn from_text(text: &str) -> Result<ComponentSpec, RequestError> {
        ComponentSpec::from_words(&words::split(text)?)
    }

    /// Parses words of the command line, such as `max-decay --reports 10`.
    ///
    /// # Errors
    ///
    /// If a word is not a parameter.
    pub fn from_words(words: &[String]) -> Result<ComponentSpec, RequestError> {
        let Some((kind, rest)) = words.split_first() else {
            return Err(RequestError::refused("missing kind of advocate", "for example: max-decay --reports 10"));
        };
        let mut parameters = Vec::new();
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            let Some(name) = word.strip_prefix("--").filter(|name| !name.is_empty()) else {
                // The first parameter of the kind: `cap 60%`.
                parameters.push((String::new(), word.clone()));
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => match rest.next() {
                    Some(value) => (name, value.clone()),
                    None => {
                        return Err(RequestError::refused(
                            format!("missing value of `{word}`"),
                            format!("use {word} VALUE"),
                        ));
                    }
                },
            };
            parameters.push((name.to_owned(), value));
        }
        Ok(ComponentSpec { kind: kind.clone(), parameters })
    }

    /// Converts to the wire format.
    pub fn to_wire(&self) -> AdvocateSpec {
        let parameter = |(name, value): &(String, String)| Parameter { name: name.clone(), value: value.clone() };
        AdvocateSpec { kind: self.kind.clone(), parameters: self.parameters.iter().map(parameter).collect() }
    }

    /// Converts from the wire format.
    pub fn from_wire(wire: &AdvocateSpec) -> ComponentSpec {
        let parameters = wire.parameters.iter().map(|parameter| (parameter.name.clone(), parameter.value.clone()));
        ComponentSpec { kind: wire.kind.clone(), parameters: parameters.collect() }
    }
}

/// The form of the command line, as [`ComponentSpec::from_text`] parses it.
impl std::fmt::Display for ComponentSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        self.parameters.iter().try_for_each(|(name, value)| match name.as_str() {
            "" => write!(f, " {}", words::quoted(value)),
            name => write!(f, " --{name} {}", words::quoted(value)),
        })
    }
}

/// The default advocates: the largest consumption of the last ten cycles.
pub fn default_chain() -> Vec<ComponentSpec> {
    vec![ComponentSpec::of("max-decay")]
}

/// Builds an advocate.
///
/// # Errors
///
/// If the kind or a parameter is unknown, or a value is out of range.
pub fn advocate(setting: &ComponentSpec) -> Result<Box<dyn hyoshi_control::Advocate>, RequestError> {
    let remedy = match setting.kind.as_str() {
        "conditions" => "use another kind; contracts watch \"reservation.NAME.asked\" without an advocate",
        "external" | "library" => "use it with a running broker",
        _ => {
            let parameters = setting.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let spec = Spec::new(&setting.kind, parameters);
            return spec.map(|spec| spec.build()).map_err(|error| {
                let remedy = match &error {
                    SpecError::Kind(_) => format!("{}, external, library", error.remedy()),
                    _ => error.remedy(),
                };
                RequestError::refused(error, remedy)
            });
        }
    };
    Err(RequestError::refused(format!("`{}` cannot be used here", setting.kind), remedy))
}
