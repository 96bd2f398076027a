//! `takes`: the actual execution times of jobs, in the file or in a separate file; and other files that the system
//! names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::declared::Drawn;
use super::diagnostic::{Diagnostic, Severity, Source};
use super::input;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::table::Table;
use super::value::InputValue;
use crate::execution_time::ExecutionTime;
use crate::quantity;
use crate::time::{LONGEST_SPAN, Span};

/// Files that a system names: each file of execution times is read once.
pub(super) struct TimesFiles<'d> {
    dir: Option<&'d Path>,
    given: &'d [(String, String)],
    texts: Vec<(String, String)>,
    read: HashMap<PathBuf, Option<Arc<[Span]>>>,
    bytes_left: usize,
}

impl<'d> TimesFiles<'d> {
    pub fn new(dir: Option<&'d Path>, given: &'d [(String, String)]) -> Self {
        TimesFiles { dir, given, texts: Vec::new(), read: HashMap::new(), bytes_left: limits::TIMES_BYTES }
    }

    /// The texts that were read, by their names in the system.
    pub fn into_texts(self) -> Vec<(String, String)> {
        self.texts
    }

    /// The text that was given for a name.
    pub fn given(&self, name: &str) -> Option<String> {
        self.given.iter().find(|(known, _)| known == name).map(|(_, text)| text.clone())
    }

    /// Keeps a text with those that were read.
    pub fn keep(&mut self, name: &str, text: &str) {
        if self.texts.iter().all(|(known, _)| known != name) {
            self.texts.push((name.to_string(), text.to_string()));
        }
    }

    /// The text of another file; `instead` is the remedy if none can be read.
    pub fn text(&mut self, log: &mut Log, name: AtPlace<&str>, most: usize, instead: &str) -> Option<String> {
        let text = match (self.given(name.value), self.dir) {
            (Some(text), _) => Ok(text),
            (None, Some(dir)) => input::read_text(&dir.join(name.value), most),
            (None, None) => {
                log.error(name.place, "the file cannot be read: this text has no directory").help(instead);
                return None;
            }
        };
        match text {
            Ok(text) if text.len() <= most => {
                self.keep(name.value, &text);
                Some(text)
            }
            Ok(_) | Err(input::InputError { cause: input::Cause::TooLarge(_), .. }) => {
                log.error(name.place, format!("the file is larger than {} KiB", most >> 10))
                    .help("name a shorter file");
                None
            }
            Err(error) => {
                log.error(name.place, error.to_string()).help(error.remedy());
                None
            }
        }
    }

    fn get(&mut self, log: &mut Log, name: AtPlace<&str>) -> Option<Arc<[Span]>> {
        let given = self.given.iter().find(|(known, _)| known == name.value);
        if self.dir.is_none() && given.is_none() {
            log.error(name.place, "`file` cannot be read: this text has no directory")
                .help("write the times as `takes = { list = [...] }`");
            return None;
        }
        let path = self.dir.unwrap_or(Path::new("")).join(name.value);
        if let Some(known) = self.read.get(&path) {
            return known.clone();
        }
        let spans = self.read(log, name, &path, given.map(|(_, text)| text.clone()));
        self.read.insert(path, spans.clone());
        spans
    }

    fn read(&mut self, log: &mut Log, name: AtPlace<&str>, path: &Path, given: Option<String>) -> Option<Arc<[Span]>> {
        let place = name.place;
        let text = match given.map_or_else(|| input::read_text(path, self.bytes_left), Ok) {
            Ok(text) => text,
            Err(error) => {
                log.error(place, error.to_string()).help(error.remedy());
                return None;
            }
        };
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        let mut spans = Vec::new();
        let mut refused = false;
        let mut start = 0;
        let mut source = None;
        for line in text.split('\n') {
            let value = line.split('#').next().unwrap_or("").trim();
            if !value.is_empty() {
                match positive(value) {
                    Ok(span) => spans.push(span),
                    Err((message, help)) => {
                        let from = start + line.find(value).unwrap_or(0);
                        let source = source.get_or_insert_with(|| Source::new(&path.display().to_string(), &text));
                        let texts = (message, "not an execution time".to_string(), Some(help));
                        log.other_file(source.diagnose(Severity::Error, from..from + value.len(), texts, &[]));
                        refused = true;
                    }
                }
            }
            start += line.len() + 1;
        }
        if spans.is_empty() && !refused {
            log.error(place, format!("no execution time in {}", path.display()))
                .help("write one in each line, such as 1.5ms");
        }
        self.texts.push((name.value.to_string(), text));
        (!spans.is_empty()).then(|| spans.into())
    }
}

fn positive(text: &str) -> Result<Span, (String, String)> {
    match quantity::span(text) {
        Ok(Span::ZERO) => Err(("this time is zero".to_string(), "every job needs at least 1ns".to_string())),
        Ok(span) => Ok(span),
        Err(error) => Err((format!("this {error}"), error.remedy(text).replace('"', ""))),
    }
}

/// Reads `takes`, in any of its forms.
pub(super) fn takes(log: &mut Log, table: &Table<'_>, files: &mut TimesFiles<'_>) -> Option<AtPlace<Drawn>> {
    let value = table.get("takes")?;
    let place = Place::from(value.span());
    if !value.get_ref().is_table() {
        return table.given(log, "takes", |given| match given {
            InputValue::List(_) => super::value::complain("is a list", "write `takes = { list = [...] }`"),
            given => given.positive_time().map(|time| ExecutionTime::Fixed(time).into()),
        });
    }
    let table = table.inner(log, "takes")?;
    let forms = ["uniform", "normal", "list", "file"];
    let given: Vec<_> = forms.into_iter().filter(|form| table.get(form).is_some()).collect();
    let [form] = given[..] else {
        if given.len() > 1 {
            log.error(table.place_of(given[1]), format!("`takes` is both {} and {}", given[0], given[1]))
                .also(table.place_of(given[0]), "set here")
                .help("keep one");
        } else {
            log.error(place, "`takes` has no distribution")
                .help("write `takes = \"1ms\"`, or `{ uniform = [...] }`, `{ normal = {...} }`, `{ list = [...] }`, `{ file = \"...\" }`");
        }
        return None;
    };
    let takes = match form {
        "uniform" => {
            let range = table.given(log, form, |given| given.pair("times", InputValue::positive_time))?;
            ExecutionTime::Uniform(range.value.0, range.value.1)
        }
        "normal" => {
            let table = table.inner(log, form)?;
            normal(log, &table)?
        }
        "list" => {
            let list = table.given(log, form, |given| {
                let times = given.list()?.iter().map(|item| {
                    let time = InputValue::of(item.get_ref()).positive_time();
                    time.map_err(|complaint| complaint.within(item.span().into()))
                });
                times.collect::<Result<Vec<Span>, _>>()
            })?;
            if list.value.is_empty() {
                log.error(list.place, "the list of execution times is empty").help("name at least one time");
                return None;
            }
            ExecutionTime::List(list.value.into())
        }
        _ => {
            let name = table.given(log, form, InputValue::text)?;
            ExecutionTime::List(files.get(log, name)?)
        }
    };
    Some(AtPlace::new(takes.into(), place))
}

fn normal(log: &mut Log, table: &Table<'_>) -> Option<ExecutionTime> {
    let mean = table.read(log, "mean", InputValue::positive_time);
    let deviation = table.read(log, "deviation", InputValue::time);
    let given_least = table.given(log, "least", InputValue::positive_time);
    let given_most = table.given(log, "most", InputValue::positive_time);
    let (mean, deviation) = (mean?, deviation?);
    let three = deviation.value.checked_mul(3).unwrap_or(LONGEST_SPAN);
    let least = given_least.map_or(mean.value.saturating_sub(three).max(Span::from_nanos(1)), |least| least.value);
    let most = given_most.map_or((mean.value + three).min(LONGEST_SPAN), |most| most.value);
    let outside = match (given_least, given_most) {
        (Some(least), _) if least.value > mean.value => Some((least.place, "`least` is greater than the mean")),
        (_, Some(most)) if most.value < mean.value => Some((most.place, "`most` is less than the mean")),
        _ => None,
    };
    if let Some((place, message)) = outside {
        log.error(place, message)
            .also(mean.place, "the mean")
            .help("times are clamped to `least` and `most`: choose them on either side of the mean");
    }
    Some(ExecutionTime::Normal { mean: mean.value, deviation: deviation.value, least, most })
}

/// An error about a whole file, in the form of all others.
impl From<&input::InputError> for Diagnostic {
    fn from(error: &input::InputError) -> Self {
        Diagnostic::of_file(&error.path.display().to_string(), error.to_string(), Some(error.remedy()))
    }
}
