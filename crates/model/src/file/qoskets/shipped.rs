//! The shipped qoskets.

use toml::de::DeTable;

use super::parameters::text as text_of_value;
use crate::file::table::in_order;

const SHIPPED: [(&str, &str); 4] = [
    ("degrade-rate", include_str!("degrade-rate.toml")),
    ("protect-cpu", include_str!("protect-cpu.toml")),
    ("shed-on-overload", include_str!("shed-on-overload.toml")),
    ("steady-latency", include_str!("steady-latency.toml")),
];

/// A shipped qosket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShippedQosket {
    /// Its name, for `use`.
    pub name: &'static str,
    /// Its purpose.
    pub about: String,
    /// In its file's order.
    pub parameters: Vec<QosketParameter>,
    /// Its file.
    pub text: &'static str,
}

/// A parameter of a qosket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QosketParameter {
    /// Its name, for `with`.
    pub name: String,
    /// Its meaning.
    pub about: String,
    /// Its default; `None` if `with` must have a value.
    pub default: Option<String>,
    /// Whether its value may be a list.
    pub list: bool,
}

pub(super) fn text_of(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

pub(super) fn names() -> [&'static str; SHIPPED.len()] {
    SHIPPED.map(|(name, _)| name)
}

/// The shipped qoskets, by name.
pub fn shipped_qoskets() -> Vec<ShippedQosket> {
    let all = SHIPPED.iter().map(|(name, text)| {
        let tree = DeTable::parse(text).map_or_else(|_| DeTable::new(), |tree| tree.into_inner());
        let table = |key: &str| tree.get(key).and_then(|value| value.get_ref().as_table());
        let word = |table: &DeTable<'_>, key: &str| {
            table.get(key).and_then(|value| value.get_ref().as_str()).unwrap_or_default().to_owned()
        };
        let about = table("qosket").map_or_else(String::new, |table| word(table, "about"));
        let parameters = table("parameter").map(in_order).unwrap_or_default();
        let parameters = parameters.into_iter().filter_map(|(name, value)| {
            let table = value.get_ref().as_table()?;
            let default = table.get("default").map(|value| text_of_value(value.get_ref()).unwrap_or("none").to_owned());
            let list = table.get("list").and_then(|value| value.get_ref().as_bool()).unwrap_or(false);
            Some(QosketParameter { name: name.get_ref().to_string(), about: word(table, "about"), default, list })
        });
        ShippedQosket { name, about, parameters: parameters.collect(), text }
    });
    all.collect()
}
