//! The names of one kind of thing, with suggestions for unknown ones.

use std::collections::HashMap;

use super::log::{AtPlace, Log};
use super::value::shortened;

/// Names with their positions.
pub(super) struct Names<'a> {
    what: &'static str,
    positions: HashMap<&'a str, u32>,
    in_order: Vec<&'a str>,
}

impl<'a> Names<'a> {
    pub fn new(what: &'static str, names: impl IntoIterator<Item = &'a str>) -> Self {
        let in_order: Vec<&str> = names.into_iter().collect();
        let positions = in_order.iter().zip(0..).map(|(name, position)| (*name, position)).collect();
        Names { what, positions, in_order }
    }

    pub fn get(&self, name: &str) -> Option<u32> {
        self.positions.get(name).copied()
    }

    /// The name's position; an unknown one is logged.
    pub fn find(&self, log: &mut Log, name: AtPlace<&str>) -> Option<u32> {
        let found = self.get(name.value);
        if found.is_none() {
            self.unknown(log, name);
        }
        found
    }

    pub fn unknown(&self, log: &mut Log, name: AtPlace<&str>) {
        let nearest = log.nearest(name.value, self.in_order.iter().copied());
        // TOML requires quotes around a key with a slash.
        let quotes = if self.what == "event" { "\"" } else { "" };
        let declare = || format!("declare it: [{}.{quotes}{}{quotes}]", self.what, shortened(name.value));
        let help = match (nearest, self.in_order.as_slice()) {
            (Some(nearest), _) => format!("did you mean `{nearest}`?"),
            (None, []) => declare(),
            (None, names @ [_, ..]) if names.len() <= 12 => format!("declared: {}", names.join(", ")),
            _ => declare(),
        };
        log.error(name.place, format!("there is no {} `{}`", self.what, shortened(name.value)))
            .label("not declared")
            .help(help);
    }

    /// The position of a name that may be omitted if there is only one.
    pub fn find_or_only(&self, log: &mut Log, name: Option<AtPlace<&str>>, at: AtPlace<&str>) -> Option<u32> {
        match (name, self.in_order.as_slice()) {
            (Some(name), _) => self.find(log, name),
            (None, [_]) => Some(0),
            (None, names) => {
                let key = if self.what == "processor" { "on" } else { self.what };
                let first = names.first().copied().unwrap_or("...");
                log.error(at.place, format!("`{}` does not name its {}", shortened(at.value), self.what))
                    .label(format!("`{key}` is missing"))
                    .help(format!("there are {} of them; add `{key} = \"{first}\"`", names.len()));
                None
            }
        }
    }
}
