//! Replaces `${parameter}` in the tree of a contract.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::parameters::{ParameterValue, QosketValues, text};
use crate::file::limits;
use crate::file::log::{Log, Place};
use crate::file::value::shortened;

/// Replaces parameters. An entry of a list that names a parameter with a list is repeated for each of its values.
pub(super) struct Expansion<'p, 'a> {
    parameters: &'p QosketValues<'a>,
    /// The list that the present entry is repeated for, with the present item.
    repeated: Option<(&'p ParameterValue<'a>, usize)>,
    bytes_left: usize,
}

impl<'p, 'a> Expansion<'p, 'a> {
    pub fn new(parameters: &'p QosketValues<'a>) -> Self {
        Expansion { parameters, repeated: None, bytes_left: limits::QOSKET_EXPANDED }
    }

    /// The table with values. `None`, logged, if a parameter is unknown or the result is too large.
    pub fn table(&mut self, log: &mut Log, used: Place, table: &DeTable<'a>) -> Option<DeTable<'a>> {
        let mut all = DeTable::new();
        for (key, value) in table {
            self.spend(log, used, key.get_ref().len())?;
            all.insert(key.clone(), self.value(log, used, value)?);
        }
        Some(all)
    }

    fn value(&mut self, log: &mut Log, used: Place, value: &Spanned<DeValue<'a>>) -> Option<Spanned<DeValue<'a>>> {
        // Also for an empty list or table: repetitions multiply them.
        self.spend(log, used, 0)?;
        match value.get_ref() {
            DeValue::String(text) => self.text(log, used, text, value),
            DeValue::Array(list) => {
                let list = self.list(log, used, list)?;
                // The reader marks a list of one by the list's place.
                let span = if let [only] = &list[..] { only.span() } else { value.span() };
                Some(Spanned::new(span, DeValue::Array(list)))
            }
            DeValue::Table(table) => {
                let table = self.table(log, used, table)?;
                Some(Spanned::new(value.span(), DeValue::Table(table)))
            }
            other => Some(Spanned::new(value.span(), other.clone())),
        }
    }

    fn list(&mut self, log: &mut Log, used: Place, list: &DeArray<'a>) -> Option<DeArray<'a>> {
        let outer = self.repeated.take();
        let mut all = DeArray::new();
        for entry in list.iter() {
            let mut lists: Vec<&'p ParameterValue<'a>> = Vec::new();
            self.lists_in(entry.get_ref(), &mut lists);
            match lists[..] {
                [] => all.push(self.value(log, used, entry)?),
                [list] => {
                    for item in 0..list.items.len() {
                        self.repeated = Some((list, item));
                        all.push(self.value(log, used, entry)?);
                    }
                    self.repeated = None;
                }
                [first, second, ..] => {
                    let names = (shortened(&first.name), shortened(&second.name));
                    log.error(
                        Place::from(entry.span()),
                        format!("an entry uses two list parameters, `{}` and `{}`", names.0, names.1),
                    )
                    .help("write a separate entry for each of them");
                    return None;
                }
            }
        }
        self.repeated = outer;
        Some(all)
    }

    /// The parameters with lists that an entry names, without those in lists within it.
    fn lists_in(&self, value: &DeValue<'a>, found: &mut Vec<&'p ParameterValue<'a>>) {
        match value {
            DeValue::String(text) => {
                let named = pieces(text).into_iter().filter_map(|(_, name)| self.parameters.get(name?));
                for list in named.filter(|one| one.is_list) {
                    if found.iter().all(|one| one.name != list.name) {
                        found.push(list);
                    }
                }
            }
            DeValue::Table(table) => table.values().for_each(|value| self.lists_in(value.get_ref(), found)),
            _ => {}
        }
    }

    /// A text that is only a parameter becomes its value, of any type.
    fn text(
        &mut self,
        log: &mut Log,
        used: Place,
        written: &str,
        value: &Spanned<DeValue<'a>>,
    ) -> Option<Spanned<DeValue<'a>>> {
        let mut whole = String::new();
        let mut span = None;
        for (plain, name) in pieces(written) {
            self.spend(log, used, plain.len())?;
            whole += plain;
            let Some(name) = name else { continue };
            let item = self.item(log, name, value)?;
            if written.len() == name.len() + "${}".len() {
                self.spend(log, used, 0)?;
                return Some(item.clone());
            }
            let item_text = text(item.get_ref()).unwrap_or_default();
            span.get_or_insert(item.span());
            self.spend(log, used, item_text.len())?;
            whole += item_text;
        }
        Some(Spanned::new(span.unwrap_or(value.span()), DeValue::String(whole.into())))
    }

    fn item(&self, log: &mut Log, name: &str, value: &Spanned<DeValue<'a>>) -> Option<&'p Spanned<DeValue<'a>>> {
        let place = Place::from(value.span());
        match (self.parameters.get(name), self.repeated) {
            (Some(list), Some((repeated, item))) if list.is_list && list.name == repeated.name => list.items.get(item),
            (Some(list), _) if list.is_list => {
                log.error(place, format!("parameter `{}` is a list", shortened(name)))
                    .label("not in an entry of a list")
                    .help(format!("write the text in brackets: [\"${{{}}}\"]", shortened(name)));
                None
            }
            (Some(one), _) => one.items.first(),
            (None, _) => {
                let known: Vec<_> = self.parameters.names().collect();
                log.error(place, format!("the qosket has no parameter `{}`", shortened(name))).help(format!(
                    "declare [parameter.{}]; known: {}",
                    shortened(name),
                    known.join(", ")
                ));
                None
            }
        }
    }

    /// Each value counts as a few bytes more than its text.
    fn spend(&mut self, log: &mut Log, used: Place, bytes: usize) -> Option<()> {
        let left = self.bytes_left.checked_sub(bytes + 16);
        if left.is_none() {
            log.error(used, "the qosket is too large with these values")
                .help(format!("it has at most {} KiB: shorten its lists", limits::QOSKET_EXPANDED >> 10));
        }
        self.bytes_left = left?;
        Some(())
    }
}

/// The text before each parameter, with its name; then the rest. An open `${` is plain text.
fn pieces(text: &str) -> Vec<(&str, Option<&str>)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((before, named)) = rest.split_once("${")
        && let Some((name, after)) = named.split_once('}')
    {
        all.push((before, Some(name)));
        rest = after;
    }
    all.push((rest, None));
    all
}
