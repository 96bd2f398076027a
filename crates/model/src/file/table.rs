//! A table of the file, read through its section in the table of keys.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{self, DefaultValue, Kind, Section, Shape};
use super::log::{AtPlace, Log, Place};
use super::value::{Complaint, InputValue, Read, shortened};

/// A table with known keys only.
pub(super) struct Table<'a> {
    section: &'static Section,
    /// The name in `[section.NAME]`.
    name: &'a str,
    /// The place to mark for a missing key: the name in the table's header.
    pub place: Place,
    /// A key is malformed: a missing key may only be mistyped.
    pub misread: bool,
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    /// Rejects keys that are unknown or not supported yet.
    pub fn open(
        log: &mut Log,
        section: &'static str,
        name: &'a str,
        place: Place,
        entries: &'a DeTable<'a>,
    ) -> Option<Table<'a>> {
        let section = keys::section(section)?;
        let mut table = Table { section, name, place, misread: false, entries };
        for (written, _) in entries {
            let place = Place::from(written.span());
            match section.key(written.get_ref()) {
                Some(key) => {
                    if let Kind::Later(until_then) = key.kind {
                        log.error(place, format!("`{}` is not supported yet", key.name))
                            .label("not in this version")
                            .help(format!("remove it; until then {until_then}"));
                    }
                }
                None => table.misread |= table.refuse(log, written.get_ref(), place),
            }
        }
        Some(table)
    }

    /// How messages name the table.
    fn title(&self) -> String {
        let Section { path, shape, .. } = self.section;
        match shape {
            Shape::Top => "the file".to_string(),
            Shape::Named => format!("[{path}.{}]", shortened(self.name)),
            Shape::List => format!("[[{path}]]"),
            Shape::Inline => format!("`{}`", path.rsplit('.').next().unwrap_or(path)),
        }
    }

    /// Logs an unknown key; returns false for a section that is not a key.
    fn refuse(&self, log: &mut Log, written: &str, place: Place) -> bool {
        let Section { path, .. } = self.section;
        let sections = || keys::with_headers().filter(|_| path.is_empty()).map(|section| section.path);
        if sections().any(|section| section == written) {
            return false;
        }
        let known = || self.section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later(_))).map(|key| key.name);
        let synonym = keys::SYNONYMS.iter().find(|(section, word, _)| section == path && *word == written);
        let candidates = self.section.keys.iter().map(|key| key.name).chain(sections());
        let nearest = synonym.map(|(.., key)| *key).or_else(|| log.nearest(written, candidates));
        let mut help = nearest.map_or(String::new(), |nearest| format!("did you mean `{nearest}`? "));
        if nearest.is_none() && path.is_empty() && self.looks_like_an_operation(written) {
            help = format!("did you mean [operation.{}]? ", shortened(written));
        }
        let all: Vec<_> = known().chain(sections()).collect();
        if all.is_empty() {
            help += &format!("{} has no keys", self.title());
        } else if help.is_empty() {
            help += &format!("known: {}", all.join(", "));
        }
        log.error(place, format!("unknown key `{}` in {}", shortened(written), self.title()))
            .label("unknown")
            .help(help.trim_end());
        true
    }

    /// Whether the value of a key is a table with keys that only operations have.
    fn looks_like_an_operation(&self, key: &str) -> bool {
        let table = self.get(key).and_then(|value| value.get_ref().as_table());
        table.is_some_and(|table| ["wcet", "every", "rate", "after"].iter().any(|key| table.contains_key(*key)))
    }

    /// The value of a key, if it is there.
    pub fn get(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    /// The key as written, to mark it.
    pub fn place_of(&self, key: &str) -> Place {
        self.entries.get_key_value(key).map_or(self.place, |(key, _)| key.span().into())
    }

    /// The name of one of the section's tables as written, to mark it.
    pub fn place_in(&self, section: &str, name: &str) -> Place {
        let tables = self.get(section).and_then(|value| value.get_ref().as_table());
        let key = tables.and_then(|tables| tables.get_key_value(name));
        key.map_or(self.place, |(key, _)| key.span().into())
    }

    /// The value of a key if it is there and well formed; complaints are logged.
    pub fn given<T>(
        &self,
        log: &mut Log,
        key: &str,
        read: impl FnOnce(InputValue<'a>) -> Read<T>,
    ) -> Option<AtPlace<T>> {
        let value = self.get(key)?;
        let place = Place::from(value.span());
        match read(InputValue::of(value.get_ref())) {
            Ok(read) => Some(AtPlace::new(read, place)),
            Err(complaint) => {
                log_complaint(log, key, place, complaint);
                None
            }
        }
    }

    /// The value of a key or its default; `None`, logged, when it is malformed, or missing and required.
    pub fn read<T>(&self, log: &mut Log, key: &str, read: impl Fn(InputValue<'a>) -> Read<T>) -> Option<AtPlace<T>> {
        if self.get(key).is_some() {
            return self.given(log, key, read);
        }
        let known = self.section.key(key)?;
        match known.default {
            DefaultValue::Value(text) => {
                read(InputValue::of_default(text)).ok().map(|value| AtPlace::new(value, self.place))
            }
            DefaultValue::Described(_) => None,
            DefaultValue::Required => self.required(log, key, read),
        }
    }

    /// The value of a key that is required here, although the table of keys does not require it.
    pub fn required<T>(
        &self,
        log: &mut Log,
        key: &str,
        read: impl FnOnce(InputValue<'a>) -> Read<T>,
    ) -> Option<AtPlace<T>> {
        if self.get(key).is_none()
            && let Some(known) = self.section.key(key)
        {
            log.error(self.place, format!("{} has no `{key}`", self.title()))
                .label(format!("`{key}` is missing"))
                .help(format!("add `{key} = {}`: {}", example(known.kind), lower(known.doc)));
        }
        self.given(log, key, read)
    }

    /// A word among those that the table of keys allows, by its position there.
    pub fn choice(&self, log: &mut Log, key: &str) -> Option<AtPlace<usize>> {
        let Kind::Choice(words) = self.section.key(key)?.kind else { return None };
        self.read(log, key, |given| given.choice(words))
    }

    /// A whole number in the range that the table of keys allows.
    pub fn whole(&self, log: &mut Log, key: &str) -> Option<AtPlace<u64>> {
        let Kind::Whole(least, most) = self.section.key(key)?.kind else { return None };
        self.read(log, key, |given| given.whole(least, most))
    }

    /// The table that is a key's value, opened.
    pub fn inner(&self, log: &mut Log, key: &str) -> Option<Table<'a>> {
        let (Kind::Table(section) | Kind::TimeOr(section) | Kind::WordOr(_, section)) = self.section.key(key)?.kind
        else {
            return None;
        };
        let such_as = format!("`{key} = {}`", example(Kind::Table(section)));
        let entries = self.given(log, key, |given| given.table(&such_as))?;
        // A table under its own header, [operation.fuse.queue], has no better place.
        Table::open(log, section, self.name, self.place_of(key), entries.value)
    }

    /// The tables under names, in the file's order.
    pub fn named(&self, log: &mut Log, section: &'static str) -> Vec<(AtPlace<&'a str>, Table<'a>)> {
        let such_as = |name: &str| format!("[{section}.{}]", shortened(name));
        let Some(tables) = self.given(log, section, |given| given.table(&such_as("NAME"))) else { return Vec::new() };
        let mut named = Vec::new();
        for (name, value) in in_order(tables.value) {
            let place = Place::from(name.span());
            match InputValue::of(value.get_ref()).table(&such_as(name.get_ref())) {
                Ok(entries) => {
                    let name = AtPlace::new(&**name.get_ref(), place);
                    check_name(log, section, name);
                    named.extend(Table::open(log, section, name.value, place, entries).map(|table| (name, table)));
                }
                Err(complaint) => log_complaint(log, name.get_ref(), place, complaint),
            }
        }
        named
    }

    /// The tables of a list, in the file's order.
    pub fn list(&self, log: &mut Log, section: &'static str) -> Vec<Table<'a>> {
        let such_as = format!("[[{section}]]");
        let written = self.get(section).is_some_and(|value| value.get_ref().is_table());
        if written {
            log.error(self.place_of(section), format!("`{section}` is a list of tables"))
                .help(format!("write {such_as}, with two brackets"));
            return Vec::new();
        }
        let Some(list) = self.given(log, section, InputValue::list) else { return Vec::new() };
        let mut tables = Vec::new();
        for value in list.value {
            let place = Place::from(value.span());
            match InputValue::of(value.get_ref()).table(&such_as) {
                Ok(entries) => tables.extend(Table::open(log, section, "", place, entries)),
                Err(complaint) => log_complaint(log, section, place, complaint),
            }
        }
        tables
    }
}

/// Entries in the file's order: the parser sorts by name.
pub(super) fn in_order<'a>(
    table: &'a DeTable<'a>,
) -> Vec<(&'a Spanned<toml::de::DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    entries
}

pub(super) fn log_complaint(log: &mut Log, key: &str, place: Place, complaint: Complaint) {
    let message = format!("`{}` {}", shortened(key), complaint.message);
    log.error(complaint.place.unwrap_or(place), message).help(complaint.help);
}

/// Checks a name, which appears in tables, file names of recordings and paths of values: no dots, no control
/// characters.
pub(super) fn check_name(log: &mut Log, section: &str, name: AtPlace<&str>) {
    // Parts of a call have their own names, which a system written by this crate contains.
    let of_calls = |c: char| section == "operation" && matches!(c, '@' | ':');
    let event = section == "event";
    let known = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ') || of_calls(c) || event && c == '/';
    let complaint = match name.value.chars().find(|c| !known(*c)) {
        Some('.') if !event => "has a dot, which is kept for instances of templates (`name.1`)".to_string(),
        Some(bad) => format!("has a character that names cannot have, `{}`", bad.escape_debug()),
        None if event && name.value.split('/').any(str::is_empty) => "has an empty part".to_string(),
        None if event && name.value.split('/').any(|part| part.trim().len() != part.len()) => {
            "has a part that begins or ends with white space".to_string()
        }
        None if name.value.trim().len() != name.value.len() || name.value.is_empty() => {
            "begins or ends with white space".to_string()
        }
        None if name.value.split(['@', ':']).any(|name| name.chars().count() > super::limits::NAME) => {
            format!("is longer than {} characters", super::limits::NAME)
        }
        None => return,
    };
    log.error(name.place, format!("the name of this {section} {complaint}")).help(match event {
        true => "use letters, digits, `_`, `-` and spaces between them in each part, and `/` between parts",
        false => "use letters, digits, `_`, `-` and spaces between them",
    });
}

/// The syntax of a value of the kind.
fn example(kind: Kind) -> &'static str {
    match kind {
        Kind::Text | Kind::TextOrPair | Kind::Name(_) | Kind::NameOrNames(_) => "\"...\"",
        Kind::Names(_) | Kind::NamesOr(..) | Kind::Pair(_) | Kind::Texts => "[\"a\", \"b\"]",
        Kind::Wholes(..) => "[0, 1]",
        Kind::Advocates => "[{ max_decay = { reports = 10 } }, { cap = \"60%\" }]",
        Kind::Whole(..) => "1",
        Kind::Number | Kind::Real => "0.447",
        Kind::Truth => "true",
        Kind::SettingValue => "false",
        Kind::Time | Kind::TimeOrPair | Kind::TimeOr(_) | Kind::Stagger => "\"2.5ms\"",
        Kind::TimePair | Kind::Times => "[\"1ms\", \"2ms\"]",
        Kind::Rate | Kind::Limit(..) | Kind::RateOrPair => "\"40Hz\"",
        Kind::Share | Kind::ShareOr(_) => "\"75%\"",
        Kind::Size => "\"64B\"",
        Kind::Bandwidth => "\"100Mbit/s\"",
        Kind::Choice(words) => words.first().copied().unwrap_or("\"...\""),
        Kind::WordsOrRates(..) => "{ name = \"10Hz\" }",
        Kind::TimeOf(_) => "{ name = \"0.3ms\" }",
        Kind::NameOf(_) => "{ name = \"a\" }",
        Kind::NamedTables(_) => "{ late = { of = \"operation.NAME.miss_ratio\", over = \"2s\" } }",
        Kind::Tables("contract.region" | "contract.region.region") => "[{ name = \"normal\" }]",
        Kind::Tables("contract.region.do") => "[{ set = \"operation.NAME.rate\", most = \"10Hz\" }]",
        Kind::Tables("host.network") => "[{ device = \"eth0\", rate = \"100Mbit/s\" }]",
        Kind::Tables("host.network.classes") => "[{ dscp = [\"EF\"], share = \"30%\" }]",
        Kind::Tables("operation.levels") => {
            "[{ name = \"coarse\", wcet = \"1ms\", value = 3 }, { name = \"full\", wcet = \"4ms\", value = 10 }]"
        }
        Kind::Tables(_) => "[{ certificate = \"drone\", importance = 5 }]",
        Kind::Behaviours => "{ \"*\" = \"pass\", zoom = \"thin:10Hz\" }",
        Kind::Values => "{ parameter = \"value\" }",
        Kind::AnyValue => "\"...\"",
        Kind::Settings => "{ \"operation.name.wcet\" = \"2.5ms\" }",
        Kind::Table("operation.after") => "{ all = [\"a\", \"b\"] }",
        Kind::Table("operation.calls") | Kind::WordOr(..) => "{ method = \"a\", after = \"1ms\" }",
        Kind::Table("operation.deadline") => "{ end_to_end = \"2.5ms\" }",
        Kind::Table("operation.queue") => "{ limit = 8 }",
        Kind::Table("operation.clients") => "{ rate = [\"1Hz\", \"10Hz\"], most = 8 }",
        Kind::Table("operation.repeat") => "{ legs = 4 }",
        Kind::Table("operation.takes") => "{ uniform = [\"1ms\", \"2ms\"] }",
        Kind::Table("operation.takes.normal") => "{ mean = \"2ms\", deviation = \"0.1ms\" }",
        Kind::Table("host.gateway") => "{ listen = [\"tcp/127.0.0.1:7460\"], events = [\"sensor/**\"] }",
        Kind::Table("processor.switch") => "{ margin = \"1ms\", calm = \"1s\" }",
        Kind::Table("feedback.gains") => "{ ga = 2, gm = 0.447 }",
        Kind::Table("feedback.latency") => "{ of = \"name\", quantile = \"99%\", at = \"20ms\" }",
        Kind::Table("broker") => "{ policy = \"fair\", cap = \"75%\" }",
        Kind::Table("costs" | "calibration.costs") => "{ timer = \"10us\", switch = \"2us\" }",
        Kind::Table(_) | Kind::Later(_) => "{ }",
    }
}

/// A sentence's words for the middle of another.
fn lower(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}
