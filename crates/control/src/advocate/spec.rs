//! An advocate in its written form: `max-decay --reports 10`, `{ max_decay = { reports = 10 } }`.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::kind::{AdvocateKind, AdvocateParameter, ParameterError, same};
use super::table::KINDS;
use super::{Advocate, AdvocateChain};

/// A kind of advocate with a value for each of its parameters, all in range.
#[derive(Clone, Copy)]
pub struct Spec {
    kind: &'static AdvocateKind,
    values: [u64; AdvocateKind::MOST_PARAMETERS],
}

/// Why a text is not an advocate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpecError {
    /// The text is empty.
    Empty,
    /// No kind has this name.
    Kind(String),
    /// The kind has no parameter of this name.
    Parameter {
        /// The kind.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// A value without a parameter.
    Stray {
        /// The kind.
        kind: &'static str,
        /// The value.
        text: String,
    },
    /// A parameter is repeated.
    Twice {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// A parameter is named last, without its value.
    NoValue {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// A required parameter is missing.
    Missing {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// A value that cannot be read.
    Value {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The value.
        text: String,
        /// The reason.
        why: ParameterError,
    },
    /// A value out of range.
    Range {
        /// The kind.
        kind: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The value.
        text: String,
        /// The least.
        least: String,
        /// The most.
        most: String,
    },
}

impl SpecError {
    /// The remedy.
    pub fn remedy(&self) -> String {
        let names = |names: &mut dyn Iterator<Item = &'static str>| names.collect::<Vec<_>>().join(", ");
        let parameters = |kind: &str| {
            let kind = AdvocateKind::named(kind).map_or(&[][..], |kind| kind.parameters);
            if kind.is_empty() {
                return "it has no parameters".to_string();
            }
            alloc::format!("its parameters are {}", names(&mut kind.iter().map(|parameter| parameter.name)))
        };
        match self {
            SpecError::Empty | SpecError::Kind(_) => {
                alloc::format!("the kinds are {}", names(&mut KINDS.iter().map(|kind| kind.name)))
            }
            SpecError::Parameter { kind, .. } | SpecError::Stray { kind, .. } => parameters(kind),
            SpecError::Twice { .. } => "remove one of them".to_string(),
            SpecError::NoValue { kind, parameter } | SpecError::Missing { kind, parameter } => {
                let wanted =
                    AdvocateKind::named(kind).and_then(|kind| kind.parameters.iter().find(|p| p.name == *parameter));
                match wanted {
                    None => parameters(kind),
                    Some(wanted) => alloc::format!(
                        "add {}, from {} to {}",
                        wanted.about,
                        wanted.measure.write(wanted.least),
                        wanted.measure.write(wanted.most)
                    ),
                }
            }
            SpecError::Value { why, text, .. } => why.remedy(text),
            SpecError::Range { least, most, .. } => alloc::format!("use {least} to {most}"),
        }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Control characters in others' text are escaped.
        match self {
            SpecError::Empty => f.write_str("no advocate is named"),
            SpecError::Kind(name) => write!(f, "unknown advocate `{}`", name.escape_debug()),
            SpecError::Parameter { kind, name } => write!(f, "`{kind}` has no parameter `{}`", name.escape_debug()),
            SpecError::Stray { kind, text } => write!(f, "`{kind}` accepts no further value `{}`", text.escape_debug()),
            SpecError::Twice { kind, parameter } => write!(f, "`{parameter}` of `{kind}` is repeated"),
            SpecError::NoValue { kind, parameter } => write!(f, "`{parameter}` of `{kind}` has no value"),
            SpecError::Missing { kind, parameter } => write!(f, "`{kind}` needs its `{parameter}`"),
            SpecError::Value { kind, parameter, text, why } => {
                write!(f, "`{parameter}` of `{kind}`: `{}` {why}", text.escape_debug())
            }
            SpecError::Range { kind, parameter, text, .. } => {
                write!(f, "`{parameter}` of `{kind}`: `{}` is out of range", text.escape_debug())
            }
        }
    }
}

impl core::error::Error for SpecError {}

impl Spec {
    /// An advocate by the name of its kind and the settings that differ from the defaults. An empty name
    /// of a setting means the kind's first parameter: `cap = "60%"`.
    pub fn new<'a>(kind: &str, settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, SpecError> {
        let kind = AdvocateKind::named(kind).ok_or_else(|| SpecError::Kind(kind.to_string()))?;
        let mut given = [None; AdvocateKind::MOST_PARAMETERS];
        for (name, text) in settings {
            let found = kind.parameters.iter().position(|parameter| same(parameter.name, name));
            let index = match found {
                Some(index) => index,
                None if name.is_empty() && !kind.parameters.is_empty() => 0,
                None if name.is_empty() => {
                    return Err(SpecError::Stray { kind: kind.name, text: text.to_string() });
                }
                None => return Err(SpecError::Parameter { kind: kind.name, name: name.to_string() }),
            };
            let parameter = &kind.parameters[index];
            if given[index].replace(value(kind, parameter, text)?).is_some() {
                return Err(SpecError::Twice { kind: kind.name, parameter: parameter.name });
            }
        }
        let mut values = [0; AdvocateKind::MOST_PARAMETERS];
        for ((place, given), parameter) in values.iter_mut().zip(given).zip(kind.parameters) {
            *place =
                given.or(parameter.default).ok_or(SpecError::Missing { kind: kind.name, parameter: parameter.name })?;
        }
        Ok(Spec { kind, values })
    }

    /// An advocate as on a command line: `["max-decay", "--reports", "10"]`, `["cap", "60%"]`,
    /// `["max-decay", "--reports=10"]`.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, SpecError> {
        let mut words = words.into_iter();
        let name = words.next().ok_or(SpecError::Empty)?;
        let kind = AdvocateKind::named(name).ok_or_else(|| SpecError::Kind(name.to_string()))?;
        let mut settings = Vec::new();
        while let Some(word) = words.next() {
            let Some(option) = word.strip_prefix("--") else {
                settings.push(("", word));
                continue;
            };
            if let Some(setting) = option.split_once('=') {
                settings.push(setting);
                continue;
            }
            let parameter = kind
                .parameters
                .iter()
                .find(|parameter| same(parameter.name, option))
                .ok_or_else(|| SpecError::Parameter { kind: kind.name, name: option.to_string() })?;
            let value = words.next().ok_or(SpecError::NoValue { kind: kind.name, parameter: parameter.name })?;
            settings.push((parameter.name, value));
        }
        Spec::new(kind.name, settings)
    }

    /// Its kind.
    pub fn kind(&self) -> &'static AdvocateKind {
        self.kind
    }

    /// Its parameters with their values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static AdvocateParameter, u64)> {
        self.kind.parameters.iter().zip(self.values)
    }

    /// A new advocate without any history.
    pub fn build(&self) -> Box<dyn Advocate> {
        (self.kind.build)(&self.values)
    }

    /// A chain of several.
    pub fn chain(specs: &[Spec]) -> Result<AdvocateChain, super::ChainError> {
        let mut chain = AdvocateChain::default();
        for spec in specs {
            chain.insert(spec.build(), None)?;
        }
        Ok(chain)
    }
}

fn value(kind: &'static AdvocateKind, parameter: &'static AdvocateParameter, text: &str) -> Result<u64, SpecError> {
    let (kind, name) = (kind.name, parameter.name);
    let measure = parameter.measure;
    let value =
        measure.read(text).map_err(|why| SpecError::Value { kind, parameter: name, text: text.to_string(), why })?;
    if (parameter.least..=parameter.most).contains(&value) {
        return Ok(value);
    }
    let (least, most) = (measure.write(parameter.least), measure.write(parameter.most));
    Err(SpecError::Range { kind, parameter: name, text: text.to_string(), least, most })
}

/// In the syntax of a command line, with every parameter.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        for (parameter, value) in self.settings() {
            write!(f, " --{} {}", parameter.name, parameter.measure.write(value))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        self.kind.name == other.kind.name && self.values == other.values
    }
}

impl Eq for Spec {}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &str) -> String {
        let error = Spec::from_words(words.split_whitespace()).unwrap_err();
        alloc::format!("{error}: {}", error.remedy())
    }

    #[test]
    fn an_advocate_reads_the_same_from_a_command_and_from_a_file() {
        let command = |words: &str| Spec::from_words(words.split_whitespace()).unwrap();
        let file = |kind, settings: &[(&'static str, &'static str)]| Spec::new(kind, settings.iter().copied()).unwrap();
        assert_eq!(command("max-decay --reports 10"), file("max_decay", &[("reports", "10")]));
        assert_eq!(command("max-decay --reports=10 --headroom 5%"), command("max-decay 10"));
        assert_eq!(command("cap 60%"), file("cap", &[("", "60%")]));
        assert_eq!(command("cap 60%").to_string(), "cap --share 60%");
        assert_eq!(command("value 5ms --base 1ms").to_string(), "value --each 5ms --base 1ms --index 0");
    }

    #[test]
    fn every_kind_reads_back_as_it_prints() {
        for kind in &KINDS {
            assert!(kind.parameters.len() <= AdvocateKind::MOST_PARAMETERS);
            let settings = kind.parameters.iter().map(|p| (p.name, p.measure.write(p.default.unwrap_or(p.most))));
            let settings: Vec<_> = settings.collect();
            let spec = Spec::new(kind.name, settings.iter().map(|(name, text)| (*name, text.as_str()))).unwrap();
            assert_eq!(Spec::from_words(spec.to_string().split_whitespace()), Ok(spec));
            assert_eq!(spec.build().name(), kind.name);
            for parameter in kind.parameters {
                assert!(parameter.least <= parameter.most);
                assert!(parameter.default.is_none_or(|value| (parameter.least..=parameter.most).contains(&value)));
            }
        }
    }

    #[test]
    fn invalid_advocates_are_rejected_with_a_remedy() {
        assert_eq!(
            refused("maxdecay"),
            "unknown advocate `maxdecay`: the kinds are max-decay, glacial, percentile, proactive, rate, cap, \
             floor, watchdog, modes, value, log, conditions"
        );
        assert_eq!(
            refused("max-decay --report 10"),
            "`max-decay` has no parameter `report`: its parameters are reports, headroom"
        );
        assert_eq!(
            refused("max-decay --reports ten"),
            "`reports` of `max-decay`: `ten` is not a whole number: write a whole number, such as 10"
        );
        assert_eq!(refused("max-decay --reports 0"), "`reports` of `max-decay`: `0` is out of range: use 1 to 1000");
        assert_eq!(refused("max-decay 3 4"), "`reports` of `max-decay` is repeated: remove one of them");
        assert_eq!(refused("cap"), "`cap` needs its `share`: add the limit, of one CPU, from 0.0001% to 100%");
        assert_eq!(refused("cap 60"), "`share` of `cap`: `60` has no unit: write a percentage, such as \"75%\"");
        assert_eq!(
            refused("cap --share"),
            "`share` of `cap` has no value: add the limit, of one CPU, from 0.0001% to 100%"
        );
        assert_eq!(refused("conditions 3"), "`conditions` accepts no further value `3`: it has no parameters");
        assert!(refused("").starts_with("no advocate is named: the kinds are"));
    }
}
