//! The parameters of a qosket: its `[parameter.NAME]` tables, and the values in `with`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::file::limits;
use crate::file::log::{AtPlace, Log, Place};
use crate::file::table::{Table, in_order};
use crate::file::value::{InputValue, shortened};

/// The value of a parameter.
#[derive(Clone, Debug)]
pub(super) struct ParameterValue<'a> {
    pub name: String,
    /// The value of one that is a list are its items.
    pub is_list: bool,
    pub items: Vec<Spanned<DeValue<'a>>>,
}

/// The parameters, in the qosket's order.
pub(super) struct QosketValues<'a>(Vec<ParameterValue<'a>>);

impl<'a> QosketValues<'a> {
    /// `None`, logged, if a value is missing, unknown or of another kind.
    pub fn read(
        log: &mut Log,
        tree: &DeTable<'a>,
        top: &Table<'_>,
        used: AtPlace<&str>,
        with: Option<AtPlace<&'a DeTable<'a>>>,
    ) -> Option<QosketValues<'a>> {
        let declared = named(log, top)?;
        let given = |name: &str| with.and_then(|with| with.value.get(name));
        let mut sound = true;
        let names = || declared.iter().map(|(name, _)| name.value);
        for (name, _) in with.iter().flat_map(|with| in_order(with.value)) {
            if names().all(|known| known != name.get_ref()) {
                let nearest = log.nearest(name.get_ref(), names());
                let known = || format!("its parameters: {}", names().collect::<Vec<_>>().join(", "));
                let help = nearest.map_or_else(known, |nearest| format!("did you mean `{nearest}`?"));
                let message =
                    format!("qosket `{}` has no parameter `{}`", shortened(used.value), shortened(name.get_ref()));
                log.error(Place::from(name.span()), message).help(help);
                sound = false;
            }
        }
        let mut values = Vec::new();
        for (name, table) in &declared {
            let about = table.read(log, "about", InputValue::text);
            let is_list = table.read(log, "list", InputValue::truth);
            let (Some(about), Some(is_list), false) = (about, is_list, table.misread) else {
                sound = false;
                continue;
            };
            let value = given(name.value).or_else(|| {
                let declared = tree.get("parameter")?.get_ref().as_table()?.get(name.value)?;
                declared.get_ref().as_table()?.get("default")
            });
            let Some(value) = value else {
                let message =
                    format!("qosket `{}` needs a value for `{}`", shortened(used.value), shortened(name.value));
                log.error(used.place, message)
                    .label(format!("`with` has no `{}`", shortened(name.value)))
                    .help(format!("add `{} = ...` to `with`: {}", shortened(name.value), about.value));
                sound = false;
                continue;
            };
            match items(log, *name, is_list.value, value) {
                Some(items) => {
                    values.push(ParameterValue { name: name.value.to_owned(), is_list: is_list.value, items })
                }
                None => sound = false,
            }
        }
        sound.then_some(QosketValues(values))
    }

    pub fn get(&self, name: &str) -> Option<&ParameterValue<'a>> {
        self.0.iter().find(|one| one.name == name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|one| one.name.as_str())
    }
}

fn named<'t>(log: &mut Log, top: &Table<'t>) -> Option<Vec<(AtPlace<&'t str>, Table<'t>)>> {
    let Some(tables) = top.given(log, "parameter", |given| given.table("[parameter.NAME]")) else {
        return top.get("parameter").is_none().then(Vec::new);
    };
    let mut all = Vec::new();
    for (name, value) in in_order(tables.value) {
        let place = Place::from(name.span());
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !name.get_ref().chars().all(is_word) || all.len() == limits::PARAMETERS {
            log.error(place, format!("`{}` cannot be a parameter", shortened(name.get_ref()))).help(format!(
                "use letters, digits, `_` and `-`; a qosket has at most {} parameters",
                limits::PARAMETERS
            ));
            return None;
        }
        let table = top.given(log, "parameter", |_| InputValue::of(value.get_ref()).table("[parameter.NAME]"))?;
        let table = Table::open(log, "qosket-file.parameter", name.get_ref(), place, table.value)?;
        all.push((AtPlace::new(&**name.get_ref(), place), table));
    }
    Some(all)
}

/// The items of a list, or one value.
fn items<'a>(
    log: &mut Log,
    name: AtPlace<&str>,
    is_list: bool,
    value: &Spanned<DeValue<'a>>,
) -> Option<Vec<Spanned<DeValue<'a>>>> {
    let place = Place::from(value.span());
    let what = shortened(name.value);
    let items = match value.get_ref() {
        DeValue::Array(list) if is_list => list.to_vec(),
        DeValue::Array(_) => {
            log.error(place, format!("parameter `{what}` is a list")).label("one value").help("write one value");
            return None;
        }
        _ => vec![value.clone()],
    };
    if items.len() > limits::PARAMETER_ITEMS {
        log.error(place, format!("parameter `{what}` has {} values", items.len()))
            .help(format!("write at most {}", limits::PARAMETER_ITEMS));
        return None;
    }
    for item in &items {
        let place = Place::from(item.span());
        match text(item.get_ref()) {
            Some(text) if text.len() <= limits::PARAMETER_BYTES && !text.contains("${") => {}
            Some(_) => {
                log.error(place, format!("the value of parameter `{what}` is too long, or contains `${{`"))
                    .help(format!("write at most {} bytes", limits::PARAMETER_BYTES));
                return None;
            }
            None => {
                log.error(place, format!("parameter `{what}` has a value of the wrong type"))
                    .help("write a text, a number, true or false");
                return None;
            }
        }
    }
    Some(items)
}

/// The value within a text. `None` for dates, lists and tables.
pub(super) fn text<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    match value {
        DeValue::String(text) => Some(text),
        DeValue::Integer(whole) => Some(whole.as_str()),
        DeValue::Float(float) => Some(float.as_str()),
        DeValue::Boolean(truth) => Some(if *truth { "true" } else { "false" }),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}
