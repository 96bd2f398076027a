//! Instances of a template together: `map.1` to `map.9` are one row, `map (9)`.

use std::collections::HashMap;

use hyoshi_model::{OperationId, System};

/// The template's name of `map.3`, or the name itself.
pub fn template(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((template, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => template,
        _ => name,
    }
}

/// Operations that share one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateGroup {
    /// The template's name, or that of a single operation.
    pub name: String,
    /// Its operations, in the system's order.
    pub operations: Vec<OperationId>,
}

/// The operations in groups, in the order of their first members.
pub fn groups(system: &System, operations: impl Iterator<Item = OperationId>) -> Vec<TemplateGroup> {
    let mut groups: Vec<TemplateGroup> = Vec::new();
    let mut place: HashMap<&str, usize> = HashMap::new();
    for id in operations {
        let name = template(&system.operation(id).name);
        let place = *place.entry(name).or_insert_with(|| {
            groups.push(TemplateGroup { name: name.into(), operations: Vec::new() });
            groups.len() - 1
        });
        groups[place].operations.push(id);
    }
    for group in &mut groups {
        if let [only] = group.operations[..] {
            group.name.clone_from(&system.operation(only).name);
        }
    }
    groups
}

/// `map (9)` for several, the name for one.
pub fn label(name: &str, instances: usize) -> String {
    if instances > 1 { format!("{name} ({instances})") } else { name.into() }
}
