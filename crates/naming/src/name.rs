//! Names, their order, and their text `id.kind/id` (Naming Service 1.3, 2.4).

use std::cmp::Ordering;

use hyoshi_wire::ior::{self, ReferenceError, parse_name, print_name};

use crate::{Name, NameComponent};

impl Ord for NameComponent {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.id, &self.kind).cmp(&(&other.id, &other.kind))
    }
}

impl PartialOrd for NameComponent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub(crate) fn parse(text: &str) -> Result<Name, ReferenceError> {
    Ok(parse_name(text)?.into_iter().map(|ior::NameComponent { id, kind }| NameComponent { id, kind }).collect())
}

pub(crate) fn print(name: &[NameComponent]) -> String {
    let steps = name.iter().map(|step| ior::NameComponent { id: step.id.clone(), kind: step.kind.clone() });
    print_name(&Vec::from_iter(steps))
}
