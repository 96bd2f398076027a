//! The Rust name and module of each definition.
//!
//! Names of the IDL are first, in order; derived names (`TrackerStub`) avoid them. If Rust's conventions make two names
//! equal, the second gets an underscore: `fooBar` and `foo_bar` become `foo_bar` and `foo_bar_`.

use std::collections::{BTreeMap, BTreeSet};

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span};

use crate::tree::{Definition, DefinitionId, DefinitionKind, IdlInterface, Specification};

/// The path of a definition in the generated code.
#[derive(Clone, Debug, Default)]
pub(super) struct RustItemPath {
    /// Rust modules around it, outermost first.
    pub module: Vec<String>,
    /// Its own name.
    pub name: String,
    /// The path of the Rust module for the outermost of `module`, if that is not generated here.
    pub external: Option<String>,
}

/// The derived names of an interface.
#[derive(Clone, Debug, Default)]
pub(super) struct DerivedNames {
    /// The reference, with the operations as methods.
    pub stub: String,
    /// The wrapper.
    pub delegate: String,
    /// The error types of its own operations, by their names on the wire.
    pub errors: BTreeMap<String, String>,
    /// The methods, own and inherited, by their names on the wire.
    pub methods: BTreeMap<String, String>,
    /// The methods that do not wait for the reply, by their names on the wire.
    pub asynchronous: BTreeMap<String, String>,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct RustNames {
    places: Vec<RustItemPath>,
    made: BTreeMap<DefinitionId, DerivedNames>,
    declared: BTreeMap<Vec<String>, BTreeSet<String>>,
    /// The Rust module of a module or interface, by its scoped name in IDL.
    modules: BTreeMap<Vec<String>, String>,
}

impl RustNames {
    pub fn new(of: &Specification, externals: &BTreeMap<String, String>) -> RustNames {
        let mut names =
            RustNames { places: vec![RustItemPath::default(); of.definitions.len()], ..RustNames::default() };
        names.place_all(of, &of.root, &[]);
        for (place, definition) in names.places.iter_mut().zip(&of.definitions) {
            let outermost = definition.scope.first().unwrap_or(&definition.name);
            place.external = externals.get(outermost).filter(|_| definition.included).cloned();
        }
        names.make_all(of);
        names
    }

    pub fn place(&self, id: DefinitionId) -> &RustItemPath {
        &self.places[id.0 as usize]
    }

    pub fn made(&self, id: DefinitionId) -> &DerivedNames {
        &self.made[&id]
    }

    /// The name of the Rust module for a module or for an interface's contents.
    pub fn module(&self, definition: &Definition) -> &str {
        &self.modules[&scoped(definition)]
    }

    /// A name that no definition has.
    pub fn unused(&self, name: &str) -> String {
        let mut name = name.to_owned();
        while self.places.iter().any(|place| place.name == name) {
            name.push('_');
        }
        name
    }

    /// True if a module declares that name.
    pub fn is_declared(&self, module: &[String], name: &str) -> bool {
        self.declared.get(module).is_some_and(|names| names.contains(name))
    }

    fn declare(&mut self, module: &[String], name: String) -> String {
        unique(self.declared.entry(module.to_vec()).or_default(), name)
    }

    fn place_all(&mut self, of: &Specification, ids: &[DefinitionId], module: &[String]) {
        for id in ids {
            let definition = &of[*id];
            let inner: &[DefinitionId] = match &definition.kind {
                DefinitionKind::Module(inner) => inner,
                DefinitionKind::Interface(interface) => &interface.definitions,
                _ => &[],
            };
            let name = match &definition.kind {
                DefinitionKind::Module(_) => String::new(),
                DefinitionKind::Constant(..) => self.declare(module, definition.name.to_shouty_snake_case()),
                _ => self.declare(module, camel(&definition.name)),
            };
            self.places[id.0 as usize] = RustItemPath { module: module.to_vec(), name, external: None };
            if matches!(definition.kind, DefinitionKind::Module(_)) || !inner.is_empty() {
                let scope = scoped(definition);
                if !self.modules.contains_key(&scope) {
                    let name = self.declare(module, snake(&definition.name));
                    self.modules.insert(scope.clone(), name);
                }
                let mut deeper = module.to_vec();
                deeper.push(self.modules[&scope].clone());
                self.place_all(of, inner, &deeper);
            }
        }
    }

    fn make_all(&mut self, of: &Specification) {
        let interfaces = of.definitions.iter().enumerate().filter_map(|(at, definition)| match &definition.kind {
            DefinitionKind::Interface(interface) if !interface.forward => Some((DefinitionId(at as u32), interface)),
            _ => None,
        });
        let interfaces: Vec<_> = interfaces.collect();
        let mut raising: BTreeMap<(Vec<String>, String), usize> = BTreeMap::new();
        for (id, interface) in &interfaces {
            for (_, error) in errors(interface) {
                *raising.entry((self.place(*id).module.clone(), error)).or_default() += 1;
            }
        }
        for (id, interface) in interfaces {
            let RustItemPath { module, name, .. } = self.place(id).clone();
            let mut made = DerivedNames {
                stub: self.declare(&module, format!("{name}Stub")),
                delegate: self.declare(&module, format!("{name}Delegate")),
                ..DerivedNames::default()
            };
            for (wire, error) in errors(interface) {
                let shared = raising[&(module.clone(), error.clone())] > 1 || self.is_declared(&module, &error);
                let error = if shared { format!("{name}{error}") } else { error };
                made.errors.insert(wire, self.declare(&module, error));
            }
            // Bases are declared before their heirs, so their methods have names.
            let mut taken: BTreeSet<String> = RESERVED.iter().map(|name| (*name).to_owned()).collect();
            for base in &interface.bases {
                let inherited = self.made.get(base).map(|base| base.methods.clone()).unwrap_or_default();
                taken.extend(inherited.values().cloned());
                made.methods.extend(inherited);
            }
            for (wire, method) in methods(interface) {
                made.methods.insert(wire, unique(&mut taken, method));
            }
            for (wire, method) in &made.methods {
                made.asynchronous
                    .insert(wire.clone(), unique(&mut taken, format!("{}_async", method.trim_end_matches('_'))));
            }
            self.made.insert(id, made);
        }
    }
}

/// Methods that every stub has by Rust's own traits: one of the same name would be hidden.
const RESERVED: &[&str] = &[
    "as_ref",
    "borrow",
    "borrow_mut",
    "clone",
    "clone_from",
    "eq",
    "fmt",
    "from",
    "into",
    "ne",
    "to_owned",
    "try_from",
    "try_into",
    "type_id",
];

/// Names on the wire and in Rust of an interface's own members: attributes, then operations.
fn methods(interface: &IdlInterface) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for operation in &interface.operations {
        all.push((operation.name.clone(), snake(&operation.name)));
    }
    for attribute in &interface.attributes {
        let name = &attribute.member.name;
        all.push((format!("_get_{name}"), snake(name)));
        if !attribute.readonly {
            all.push((format!("_set_{name}"), format!("set_{}", snake(name))));
        }
    }
    all
}

/// Names on the wire of methods with user exceptions, with the name for their error type.
fn errors(interface: &IdlInterface) -> Vec<(String, String)> {
    let operations = interface.operations.iter().filter(|operation| !operation.raises.is_empty());
    let mut all: Vec<_> =
        operations.map(|operation| (operation.name.clone(), format!("{}Error", camel(&operation.name)))).collect();
    for attribute in &interface.attributes {
        let name = &attribute.member.name;
        if !attribute.get_raises.is_empty() {
            all.push((format!("_get_{name}"), format!("Get{}Error", camel(name))));
        }
        if !attribute.set_raises.is_empty() {
            all.push((format!("_set_{name}"), format!("Set{}Error", camel(name))));
        }
    }
    all
}

/// Modules and interfaces around a definition, and its own name.
fn scoped(definition: &Definition) -> Vec<String> {
    definition.scope.iter().chain([&definition.name]).cloned().collect()
}

/// The name, with as many underscores as make it unique.
pub(super) fn unique(taken: &mut BTreeSet<String>, name: String) -> String {
    let mut name = name;
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// Of a type, trait or variant. heck's result for `_1` begins with a digit.
pub(super) fn camel(name: &str) -> String {
    lettered(name.to_upper_camel_case(), 'X')
}

/// Of a module, method, member or parameter.
pub(super) fn snake(name: &str) -> String {
    lettered(name.to_snake_case(), 'x')
}

fn lettered(name: String, first: char) -> String {
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() { format!("{first}{name}") } else { name }
}

/// A name as a Rust identifier: keywords are raw, or have an underscore if raw ones are not allowed.
pub(super) fn ident(name: &str) -> Ident {
    if syn::parse_str::<Ident>(name).is_ok() {
        return Ident::new(name, Span::call_site());
    }
    match name {
        "self" | "Self" | "super" | "crate" | "_" => Ident::new(&format!("{name}_"), Span::call_site()),
        _ => Ident::new_raw(name, Span::call_site()),
    }
}

/// The names of members or variants of one type, in order.
pub(super) fn distinct<'a>(names: impl IntoIterator<Item = &'a str>, convention: fn(&str) -> String) -> Vec<String> {
    let mut taken = BTreeSet::new();
    names.into_iter().map(|name| unique(&mut taken, convention(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_rusts_conventions() {
        for (written, type_name, member) in [
            ("Position", "Position", "position"),
            ("position_t", "PositionT", "position_t"),
            ("RED_LIGHT", "RedLight", "red_light"),
            ("IORList", "IorList", "ior_list"),
            ("fooBar", "FooBar", "foo_bar"),
            ("_3d", "X3d", "x3d"),
        ] {
            assert_eq!((camel(written).as_str(), snake(written).as_str()), (type_name, member));
        }
    }

    #[test]
    fn keywords_are_escaped() {
        for (written, escaped) in
            [("type", "r#type"), ("self", "self_"), ("Self", "Self_"), ("x", "x"), ("async", "r#async")]
        {
            assert_eq!(ident(written).to_string(), escaped);
        }
    }

    #[test]
    fn names_that_become_one_give_way_in_order() {
        assert_eq!(
            distinct(["fooBar", "foo_bar", "foobar", "FooBar"], snake),
            ["foo_bar", "foo_bar_", "foobar", "foo_bar__"]
        );
    }
}
