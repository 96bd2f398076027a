//! `[qosket.NAME]`: contracts that the system takes from qosket files, with values for their parameters.
//!
//! A qosket is expanded in its tree of TOML: texts with `${parameter}` change, then the reader of contracts reads the
//! result. A place in a qosket's text is beyond all places of the system's text; a text with a parameter has the place of
//! the parameter's value. So each error is shown where its cause is.

mod expand;
mod parameters;
mod shipped;

use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use shipped::{QosketParameter, ShippedQosket, shipped_qoskets};

use super::log::{AtPlace, Log, Place};
use super::table::{Table, check_name};
use super::times::TimesFiles;
use super::value::{InputValue, shortened};
use super::{limits, parse};
use expand::Expansion;
use parameters::QosketValues;

/// A qosket that the system uses, with its text.
pub(super) struct UsedQosket<'a> {
    name: AtPlace<&'a str>,
    /// The text of `use`.
    used: AtPlace<&'a str>,
    with: Option<AtPlace<&'a DeTable<'a>>>,
    text: Arc<str>,
    /// The place of its text: that of its first byte.
    base: usize,
}

/// A contract from a qosket.
pub(super) struct ExpandedContract<'a> {
    /// The name of the contract.
    pub name: AtPlace<&'a str>,
    /// Where the system uses the qosket.
    pub used: Place,
    /// The header of the contract in the qosket.
    pub place: Place,
    pub contract: DeTable<'a>,
}

/// The qoskets that a system uses, in the file's order, with their texts. `length` is that of the system's text.
pub(super) fn read<'a>(
    log: &mut Log,
    top: &Table<'a>,
    length: usize,
    files: &mut TimesFiles<'_>,
) -> Vec<UsedQosket<'a>> {
    let tables = top.named(log, "qosket");
    if let Some((name, _)) = tables.get(limits::CONTRACTS) {
        log.error(name.place, "too many qoskets").help(format!("a system uses at most {}", limits::CONTRACTS));
        return Vec::new();
    }
    let mut base = length + 1;
    let mut found = Vec::new();
    for (name, table) in &tables {
        let used = table.read(log, "use", InputValue::text);
        let with = table.given(log, "with", |given| given.table("with = { parameter = \"value\" }"));
        let Some(used) = used.filter(|_| !table.misread && (with.is_some() || table.get("with").is_none())) else {
            continue;
        };
        let Some(text) = text_of(log, used, files) else { continue };
        let text: Arc<str> = text.into();
        log.add_source(base, file_of(used.value), Arc::clone(&text));
        found.push(UsedQosket { name: *name, used, with, text: Arc::clone(&text), base });
        base += text.len() + 1;
    }
    found
}

fn is_file(used: &str) -> bool {
    used.ends_with(".toml") || used.contains('/')
}

/// How messages name the text.
fn file_of(used: &str) -> String {
    if is_file(used) { shortened(used) } else { format!("qosket {}", shortened(used)) }
}

fn text_of(log: &mut Log, used: AtPlace<&str>, files: &mut TimesFiles<'_>) -> Option<String> {
    if is_file(used.value) {
        return files.text(log, used, limits::QOSKET_BYTES, "use a shipped qosket, such as use = \"degrade-rate\"");
    }
    // A recording has the text, which may differ from that of this version.
    let text = files.given(used.value).or_else(|| shipped::text_of(used.value).map(str::to_owned));
    let text = text.filter(|text| text.len() <= limits::QOSKET_BYTES);
    match &text {
        Some(text) => files.keep(used.value, text),
        None => {
            let nearest = log.nearest(used.value, shipped::names());
            let help = match nearest {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("shipped: {}; the name of a file ends with .toml", shipped::names().join(", ")),
            };
            log.error(used.place, format!("unknown qosket `{}`", shortened(used.value))).help(help);
        }
    }
    text
}

impl<'a> UsedQosket<'a> {
    /// The qosket as a contract, with these values of its parameters. `None`, logged, if something is wrong.
    pub fn expand(&'a self, log: &mut Log) -> Option<ExpandedContract<'a>> {
        let mut own = Log::default();
        let tree = parse(&mut own, &self.text);
        if let Err(errors) = own.finish(&file_of(self.used.value), &self.text) {
            errors.errors.into_iter().for_each(|error| log.other_file(error));
            return None;
        }
        let tree = moved_table(tree?, self.base);
        log.within(Some((self.used.place, "uses the qosket")));
        let contract = self.contract(log, &tree);
        log.within(None);
        let (place, contract) = contract?;
        Some(ExpandedContract { name: self.name, used: self.used.place, place, contract })
    }

    fn contract(&'a self, log: &mut Log, tree: &DeTable<'a>) -> Option<(Place, DeTable<'a>)> {
        let top = Table::open(log, "qosket-file", "", Place::from(self.base..self.base), tree)?;
        let about = top.inner(log, "qosket")?;
        let named = (about.read(log, "name", InputValue::text)?, about.read(log, "about", InputValue::text)?);
        check_name(log, "qosket", named.0);
        let parameters = QosketValues::read(log, tree, &top, self.used, self.with)?;
        top.required(log, "contract", |given| given.table("[contract]"))?;
        let written = tree.get("contract")?.get_ref().as_table()?;
        let expanded = Expansion::new(&parameters).table(log, self.used.place, written)?;
        (!top.misread && !about.misread).then_some((top.place_of("contract"), expanded))
    }
}

/// The tree with its places moved by `base` bytes.
fn moved_table(table: DeTable<'_>, base: usize) -> DeTable<'_> {
    let mut all = DeTable::new();
    for (key, value) in table {
        let span = key.span();
        all.insert(Spanned::new(span.start + base..span.end + base, key.into_inner()), moved(value, base));
    }
    all
}

fn moved(value: Spanned<DeValue<'_>>, base: usize) -> Spanned<DeValue<'_>> {
    let span = value.span();
    let value = match value.into_inner() {
        DeValue::Array(list) => {
            let mut all = toml::de::DeArray::new();
            list.into_iter().for_each(|item| all.push(moved(item, base)));
            DeValue::Array(all)
        }
        DeValue::Table(table) => DeValue::Table(moved_table(table, base)),
        other => other,
    };
    Spanned::new(span.start + base..span.end + base, value)
}
