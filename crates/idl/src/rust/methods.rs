//! Operations and attributes as methods: inputs, outputs, and exceptions.

use std::collections::BTreeSet;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::docs::docs;
use super::names::{distinct, ident, snake};
use super::scope::Scope;
use crate::tree::{DefinitionId, DefinitionKind, Direction, IdlInterface, Type};

/// A method of an interface's trait.
pub(super) struct Method<'a> {
    /// The interface that declares it.
    pub of: DefinitionId,
    /// Its name on the wire.
    pub wire: String,
    pub name: Ident,
    pub docs: TokenStream,
    pub oneway: bool,
    pub result: Option<&'a Type>,
    pub parameters: Vec<MethodParameter<'a>>,
    pub raises: &'a [DefinitionId],
}

/// One of its parameters.
pub(super) struct MethodParameter<'a> {
    pub direction: Direction,
    pub name: Ident,
    pub of: &'a Type,
}

/// The outputs on the wire, in order.
pub(super) struct Output<'a> {
    /// `result`, or the parameter's name.
    pub name: Ident,
    pub of: &'a Type,
    /// True for a parameter that the caller passes and the object changes.
    pub changed: bool,
}

impl<'a> Method<'a> {
    /// Parameters that are sent to the object.
    pub fn sent(&self) -> impl Iterator<Item = &MethodParameter<'a>> {
        self.parameters.iter().filter(|parameter| parameter.direction != Direction::Out)
    }

    /// The outputs: the result first, then parameters as declared.
    pub fn outputs(&self) -> Vec<Output<'a>> {
        let result = self.result.map(|of| Output { name: self.local("result"), of, changed: false });
        let back = self.parameters.iter().filter(|parameter| parameter.direction != Direction::In);
        let back = back.map(|MethodParameter { direction, name, of }| Output {
            name: name.clone(),
            of,
            changed: *direction == Direction::InOut,
        });
        result.into_iter().chain(back).collect()
    }

    /// A name for a local variable that no parameter has.
    pub fn local(&self, name: &str) -> Ident {
        let mut name = name.to_owned();
        while self.parameters.iter().any(|parameter| parameter.name == name) {
            name.push('_');
        }
        format_ident!("{name}")
    }

    /// `StubOperation::new("locate")`.
    pub fn operation(&self, scope: &Scope<'_>) -> TokenStream {
        let (operation, wire) = (scope.orb("StubOperation"), &self.wire);
        if self.oneway { quote!(#operation::oneway(#wire)) } else { quote!(#operation::new(#wire)) }
    }

    /// Its error type.
    pub fn error(&self, scope: &Scope<'_>) -> TokenStream {
        match scope.names.made(self.of).errors.get(&self.wire) {
            Some(error) => scope.at(self.of, error),
            None => scope.orb("SystemException"),
        }
    }

    /// Its result on success: nothing, one value, or several.
    pub fn returned(&self, scope: &Scope<'_>) -> TokenStream {
        tuple(self.outputs().iter().filter(|output| !output.changed).map(|output| scope.owned(output.of)).collect())
    }

    /// `fn locate(&self, id: u32) -> Result<Position, LocateError>`.
    pub fn signature(&self, scope: &Scope<'_>) -> TokenStream {
        let parameters = self.parameters.iter().filter_map(|MethodParameter { direction, name, of }| match direction {
            Direction::In => {
                let of = scope.borrowed(of);
                Some(quote!(#name: #of))
            }
            Direction::InOut => {
                let of = scope.owned(of);
                Some(quote!(#name: &mut #of))
            }
            Direction::Out => None,
        });
        let result = scope.result(&self.returned(scope), &self.error(scope));
        let name = &self.name;
        quote!(fn #name(&self, #(#parameters),*) -> #result)
    }

    /// The arguments of a call that passes the parameters on.
    pub fn passed(&self) -> TokenStream {
        let names = self.sent().map(|parameter| &parameter.name);
        quote!(#(#names),*)
    }
}

/// `()`, `T` or `(T, U)`.
pub(super) fn tuple(all: Vec<TokenStream>) -> TokenStream {
    match all.as_slice() {
        [one] => one.clone(),
        all => quote!((#(#all),*)),
    }
}

impl Scope<'_> {
    /// An interface's own methods: operations, then attributes.
    pub fn methods<'t>(&'t self, id: DefinitionId, interface: &'t IdlInterface) -> Vec<Method<'t>> {
        let made = self.names.made(id);
        let method = |wire: String| {
            let name = ident(made.methods.get(&wire).map_or("", String::as_str));
            let (docs, raises) = (quote!(), &[][..]);
            Method { of: id, wire, name, docs, oneway: false, result: None, parameters: Vec::new(), raises }
        };
        let mut all = Vec::new();
        for operation in &interface.operations {
            let names = distinct(operation.parameters.iter().map(|parameter| parameter.member.name.as_str()), snake);
            let parameters = operation.parameters.iter().zip(&names).map(|(parameter, name)| MethodParameter {
                direction: parameter.direction,
                name: ident(name),
                of: &parameter.member.of,
            });
            all.push(Method {
                docs: docs(&operation.docs, &operation.annotations),
                oneway: operation.oneway,
                result: operation.result.as_ref(),
                parameters: parameters.collect(),
                raises: &operation.raises,
                ..method(operation.name.clone())
            });
        }
        for attribute in &interface.attributes {
            let member = &attribute.member;
            all.push(Method {
                docs: docs(&member.docs, &member.annotations),
                result: Some(&member.of),
                raises: &attribute.get_raises,
                ..method(format!("_get_{}", member.name))
            });
            if !attribute.readonly {
                let value = format_ident!("value");
                all.push(Method {
                    docs: docs(&[format!("Sets the value that [`{0}`](Self::{0}) returns.", snake(&member.name))], &[]),
                    parameters: vec![MethodParameter { direction: Direction::In, name: value, of: &member.of }],
                    raises: &attribute.set_raises,
                    ..method(format!("_set_{}", member.name))
                });
            }
        }
        all
    }

    /// All ancestors of an interface, each once, nearest first.
    pub fn ancestors(&self, interface: &IdlInterface) -> Vec<(DefinitionId, &IdlInterface)> {
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        let mut next: Vec<_> = interface.bases.iter().rev().copied().collect();
        while let Some(id) = next.pop() {
            if let (DefinitionKind::Interface(base), true) = (&self.get(id).kind, seen.insert(id)) {
                found.push((id, base));
                next.extend(base.bases.iter().rev().copied());
            }
        }
        found
    }

    /// All methods, by their names on the wire.
    pub fn all_methods<'t>(&'t self, id: DefinitionId, interface: &'t IdlInterface) -> Vec<Method<'t>> {
        let mut all = self.methods(id, interface);
        for (base, interface) in self.ancestors(interface) {
            all.extend(self.methods(base, interface));
        }
        all.sort_by(|a, b| a.wire.cmp(&b.wire));
        all
    }
}
