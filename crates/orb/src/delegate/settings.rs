//! The settings of delegates: `task=tracker period=33ms operation=locate,place`.

use std::path::Path;

use hyoshi_model::Span;

use crate::cpu_broker;

/// Octets of the text at most.
const LONGEST: usize = 4_096;
const HELP: &str = "write task=NAME period=TIME; optional are importance=NUMBER, broker=/PATH, and filters of invocations: \
                    adapter=NAME,... object=ID,... operation=NAME,...";

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    /// The name for the process's task, if it has none yet.
    pub(super) task: String,
    pub(super) period: Span,
    pub(super) importance: u32,
    /// The broker's address; by default that of this process.
    broker: Option<String>,
    /// The invocations that count; an empty list allows all.
    adapters: Vec<String>,
    objects: Vec<String>,
    operations: Vec<String>,
}

impl Settings {
    pub(crate) fn parse(text: &str) -> Result<Settings, String> {
        if text.len() > LONGEST {
            return Err(format!("{} octets, of {LONGEST} at most; {HELP}", text.len()));
        }
        let (mut task, mut period) = (None, None);
        let mut settings = Settings { importance: 1, ..Settings::default() };
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=VALUE; {HELP}"))?;
            let listed = || value.split(',').filter(|one| !one.is_empty()).map(str::to_owned);
            match name {
                "task" => task = Some(value.to_owned()),
                "period" => period = Some(value.parse().map_err(|error| format!("`period={value}`: {error}"))?),
                "importance" => {
                    let number = value.parse();
                    settings.importance = number.map_err(|_| format!("`importance={value}` is not a number"))?;
                }
                "broker" if value.starts_with('/') => settings.broker = Some(cpu_broker::corbaloc(Path::new(value))),
                "broker" if value.starts_with("corbaloc:") || value.starts_with("IOR:") => {
                    settings.broker = Some(value.to_owned());
                }
                "broker" => return Err(format!("`broker={value}` is neither a socket's path nor a reference")),
                "adapter" => settings.adapters.extend(listed()),
                "object" => settings.objects.extend(listed()),
                "operation" => settings.operations.extend(listed()),
                _ => return Err(format!("unknown setting `{name}`; {HELP}")),
            }
        }
        settings.task = task.ok_or_else(|| format!("the task's name is missing; {HELP}"))?;
        settings.period = period.ok_or_else(|| format!("the task's period is missing; {HELP}"))?;
        Ok(settings)
    }

    pub(super) fn broker(&self) -> String {
        self.broker.clone().unwrap_or_else(|| cpu_broker::corbaloc(&cpu_broker::to_ask_here()))
    }

    /// Whether an invocation counts.
    pub(super) fn counts(&self, adapter: &[u8], object: &[u8], operation: &str) -> bool {
        let among = |names: &[String], name: &[u8]| names.is_empty() || names.iter().any(|one| one.as_bytes() == name);
        among(&self.operations, operation.as_bytes()) && among(&self.adapters, adapter) && among(&self.objects, object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn settings_select_the_invocations_of_a_task() {
        let said = "task=tracker period=33ms importance=5 broker=/tmp/b.sock adapter=trackers operation=locate,place";
        let settings = Settings::parse(said).unwrap();
        assert_eq!((settings.task.as_str(), settings.period), ("tracker", Span::from_millis(33)));
        assert_eq!((settings.importance, settings.broker()), (5, "corbaloc:omniunix:/tmp/b.sock:/Broker".to_owned()));
        assert!(settings.counts(b"trackers", b"yard", "locate") && settings.counts(b"trackers", b"\xff", "place"));
        assert!(!settings.counts(b"trackers", b"yard", "targets") && !settings.counts(b"maps", b"yard", "place"));
        let all = Settings::parse("task=t period=1s").unwrap();
        assert!(all.counts(b"", b"", "") && all.importance == 1);
        assert_eq!(all.broker(), cpu_broker::corbaloc(&cpu_broker::to_ask_here()), "as clients find it");
    }

    #[test]
    fn mistakes_are_refused_with_a_remedy() {
        for (said, why) in [
            ("", "the task's name is missing"),
            ("task=a", "the task's period is missing"),
            ("task=a period=often", "`period=often`"),
            ("task=a period=1s importance=very", "`importance=very` is not a number"),
            ("task=a period=1s colour=red", "unknown setting `colour`"),
            ("task=a period=1s broker=b.sock", "neither a socket's path nor a reference"),
            ("tracker", "`tracker` is not NAME=VALUE"),
        ] {
            let error = Settings::parse(said).unwrap_err();
            assert!(error.contains(why), "{said}: {error}");
        }
        assert!(Settings::parse(&"x".repeat(LONGEST + 1)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            let _ = Settings::parse(&text);
        }
    }
}
