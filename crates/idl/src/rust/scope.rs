//! The Rust module being written: its references to other items.
//!
//! Every item that can be imported is imported once, at the module's head; one that would clash with a name of the
//! module is written with its path.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::TokenStream;
use quote::quote;

use super::Options;
use super::names::{RustItemPath, RustNames, ident};
use crate::tree::{Definition, DefinitionId, Specification};

pub(super) struct Scope<'a> {
    pub of: &'a Specification,
    pub names: &'a RustNames,
    pub options: &'a Options,
    pub module: &'a [String],
    /// Name here, and its path without the name.
    uses: RefCell<BTreeMap<String, Import>>,
    /// Traits of the ORB with methods that the code calls.
    traits: RefCell<BTreeSet<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Import {
    /// Standard library, then the ORB, then the user's own.
    group: u8,
    from: String,
}

/// Names of Rust's prelude in generated code: never imported from elsewhere.
const PRELUDE: &[&str] = &[
    "AsRef", "Box", "Err", "FnOnce", "From", "None", "Ok", "Option", "Result", "Send", "Some", "String", "Sync", "Vec",
];

impl<'a> Scope<'a> {
    pub fn new(of: &'a Specification, names: &'a RustNames, options: &'a Options, module: &'a [String]) -> Self {
        Scope { of, names, options, module, uses: RefCell::default(), traits: RefCell::default() }
    }

    /// A name of Rust's prelude.
    pub fn prelude(&self, name: &str) -> TokenStream {
        if !self.names.is_declared(self.module, name) {
            let name = ident(name);
            return quote!(#name);
        }
        path(
            match name {
                "Option" | "Some" | "None" => "::std::option",
                "Result" | "Ok" | "Err" => "::std::result",
                "Vec" => "::std::vec",
                "String" => "::std::string",
                "Box" => "::std::boxed",
                "From" | "AsRef" => "::std::convert",
                "Send" | "Sync" => "::std::marker",
                "FnOnce" => "::std::ops",
                _ => "::std::prelude::v1",
            },
            name,
        )
    }

    /// A name of the standard library, such as `Arc` of `std::sync`.
    pub fn std(&self, from: &str, name: &str) -> TokenStream {
        self.import(Import { group: 0, from: format!("std::{from}") }, name, &format!("::std::{from}"))
    }

    /// The standard library's formatting.
    pub fn fmt(&self) -> TokenStream {
        self.import(Import { group: 0, from: "std".to_owned() }, "fmt", "::std")
    }

    /// A name of the ORB.
    pub fn orb(&self, name: &str) -> TokenStream {
        let root = &self.options.root;
        self.import(Import { group: 1, from: root.clone() }, name, root)
    }

    /// Brings a trait's methods of the ORB into scope.
    pub fn methods_of(&self, name: &str) {
        self.traits.borrow_mut().insert(name.to_owned());
    }

    /// A definition of an IDL file, under its own name or a derived one.
    pub fn definition(&self, id: DefinitionId) -> TokenStream {
        self.at(id, &self.names.place(id).name)
    }

    /// An item beside a definition.
    pub fn at(&self, id: DefinitionId, name: &str) -> TokenStream {
        let RustItemPath { module, external, .. } = self.names.place(id);
        if let Some(external) = external {
            let from = [external.as_str()].into_iter().chain(module.iter().skip(1).map(String::as_str));
            let from = from.collect::<Vec<_>>().join("::");
            return self.import(Import { group: 2, from: from.clone() }, name, &from);
        }
        if module == self.module {
            let name = ident(name);
            return quote!(#name);
        }
        let common = module.iter().zip(self.module).take_while(|(a, b)| a == b).count();
        let supers = vec!["super".to_owned(); self.module.len() - common];
        let from: Vec<_> = supers.into_iter().chain(module[common..].iter().cloned()).collect();
        let from = from.join("::");
        if common == self.module.len() {
            // In a module of this one: `naming_context::NotFound` is clearer than `NotFound`.
            return path(&from, name);
        }
        self.import(Import { group: 2, from: from.clone() }, name, &from)
    }

    fn import(&self, import: Import, name: &str, full: &str) -> TokenStream {
        let mut uses = self.uses.borrow_mut();
        let taken = PRELUDE.contains(&name) || uses.get(name).is_some_and(|known| *known != import);
        if taken || self.names.is_declared(self.module, name) {
            return path(full, name);
        }
        uses.insert(name.to_owned(), import);
        let name = ident(name);
        quote!(#name)
    }

    /// The head of the module.
    pub fn uses(&self) -> TokenStream {
        let orb = Import { group: 1, from: self.options.root.clone() };
        for name in self.traits.borrow().iter() {
            // Under its own name unless that is used here.
            let taken = self.names.is_declared(self.module, name);
            self.uses
                .borrow_mut()
                .entry(if taken { format!("{name} as _") } else { name.clone() })
                .or_insert(orb.clone());
        }
        let uses = self.uses.borrow();
        let mut from: BTreeMap<&Import, Vec<String>> = BTreeMap::new();
        for (name, import) in uses.iter() {
            from.entry(import).or_default().push(name.clone());
        }
        for name in self.traits.borrow().iter() {
            if uses.get(name).is_some_and(|import| *import != orb) {
                from.entry(&orb).or_default().push(format!("{name} as _"));
            }
        }
        let mut lines: Vec<_> = from
            .iter()
            .map(|(Import { group, from }, names)| {
                let items = names.iter().map(|name| match name.strip_suffix(" as _") {
                    Some(name) => {
                        let name = ident(name);
                        quote!(#name as _)
                    }
                    None => {
                        let name = ident(name);
                        quote!(#name)
                    }
                });
                let items: Vec<_> = items.collect();
                let path = path_of(from);
                match items.as_slice() {
                    [item] => (*group, format!("{from}::{}", names[0]), quote!(use #path::#item;)),
                    items => (*group, from.clone(), quote!(use #path::{#(#items),*};)),
                }
            })
            .collect();
        lines.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let lines = lines.iter().map(|(_, _, line)| line);
        quote!(#(#lines)*)
    }

    pub fn get(&self, id: DefinitionId) -> &'a Definition {
        &self.of[id]
    }
}

/// Tokens of a path such as `::hyoshi::orb`.
fn path_of(text: &str) -> TokenStream {
    let (leading, rest) = match text.strip_prefix("::") {
        Some(rest) => (quote!(::), rest),
        None => (quote!(), text),
    };
    let parts = rest.split("::").map(|part| match part {
        "super" | "crate" | "self" => proc_macro2::Ident::new(part, proc_macro2::Span::call_site()),
        part => ident(part),
    });
    quote!(#leading #(#parts)::*)
}

/// A name with its path.
pub(super) fn path(from: &str, name: &str) -> TokenStream {
    let (from, name) = (path_of(from), ident(name));
    quote!(#from::#name)
}
