//! Encodes and decodes values of a type: by the type itself, unless it has a bound, which Rust's types lack.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::scope::Scope;
use crate::tree::{DefinitionId, DefinitionKind, Type};

impl Scope<'_> {
    /// True if the type has a bound that no struct or union checks.
    pub fn is_bounded(&self, of: &Type) -> bool {
        match self.resolve(of) {
            Type::String(bound) | Type::WString(bound) => bound.is_some(),
            Type::Sequence(of, bound) => bound.is_some() || self.is_bounded(of),
            Type::Array(of, _) => self.is_bounded(of),
            _ => false,
        }
    }

    /// Writes several values, one after the other: the contents of a block that ends in a `Result`.
    pub fn encode_in_order<'t>(&self, all: impl Iterator<Item = (&'t Type, TokenStream)>, to: &Ident) -> TokenStream {
        let mut all: Vec<_> = all.map(|(of, value)| self.encode(of, &value, to)).collect();
        let last = match all.pop() {
            Some((last, Some(expression))) => quote!(#last #expression),
            last => {
                let (last, ok) = (last.map(|(last, _)| last), self.prelude("Ok"));
                quote!(#last #ok(()))
            }
        };
        let first = all.into_iter().map(terminated);
        quote!(#(#first)* #last)
    }

    /// Statements that write a value, and perhaps an expression that ends them with a `Result`.
    fn encode(&self, of: &Type, value: &TokenStream, to: &Ident) -> (TokenStream, Option<TokenStream>) {
        self.methods_of("Encode");
        let whole = Some(quote!(#value.encode(#to)));
        let check = |bound: &Option<u32>, length: TokenStream| {
            bound.map(|most| {
                let most = Literal::u32_unsuffixed(most);
                quote!(#to.bounded(#length, #most)?;)
            })
        };
        match self.resolve(of) {
            of if !self.is_bounded(of) => (quote!(), whole),
            Type::WString(bound) => {
                let check = check(bound, quote!(#value.encode_utf16().count()));
                (quote!(#check), whole)
            }
            Type::Sequence(of, bound) if self.is_bounded(of) => {
                let (check, each) = (check(bound, quote!(#value.len())), self.encode_each(of, value, to));
                (quote!(#check #to.length(#value.len())?; #each), None)
            }
            Type::String(bound) => {
                let check = check(bound, quote!(#value.chars().count()));
                (quote!(#check), whole)
            }
            Type::Sequence(_, bound) => {
                let check = check(bound, quote!(#value.len()));
                (quote!(#check), whole)
            }
            Type::Array(of, dimensions) => (self.encode_each(&inner(of, dimensions), value, to), None),
            _ => (quote!(), whole),
        }
    }

    fn encode_each(&self, of: &Type, value: &TokenStream, to: &Ident) -> TokenStream {
        let item = if value.to_string() == "item" { format_ident!("inner") } else { format_ident!("item") };
        let write = terminated(self.encode(of, &quote!(#item), to));
        quote!(for #item in #value.iter() { #write })
    }

    /// An expression that reads a value.
    pub fn decode(&self, of: &Type, from: &Ident) -> TokenStream {
        self.methods_of("Decode");
        let head = self.head(of);
        if !self.is_bounded(of) {
            return quote!(#head::decode(#from)?);
        }
        match self.resolve(of) {
            Type::Sequence(inner, bound) if self.is_bounded(inner) => {
                let (vec, least) = (self.prelude("Vec"), Literal::u64_unsuffixed(self.least(inner)));
                let length = match bound {
                    Some(most) => {
                        let most = Literal::u32_unsuffixed(*most);
                        quote!(bounded_length(#least, #most))
                    }
                    None => quote!(length(#least)),
                };
                let read = self.decode(inner, from);
                quote!({
                    let count = #from.#length?;
                    let mut items = #vec::with_capacity(count);
                    for _ in 0..count { items.push(#read); }
                    items
                })
            }
            Type::String(Some(most)) | Type::WString(Some(most)) | Type::Sequence(_, Some(most)) => {
                let (of, most) = (self.owned(of), Literal::u32_unsuffixed(*most));
                quote!(#from.bounded::<#of>(#most)?)
            }
            Type::Array(of, dimensions) => {
                let (inner, length) = (inner(of, dimensions), Literal::u32_unsuffixed(dimensions[0]));
                let (vec, kind) = (self.prelude("Vec"), self.orb("DecodeErrorKind"));
                let read = self.decode(&inner, from);
                quote!({
                    let mut items = #vec::with_capacity(#length);
                    for _ in 0..#length { items.push(#read); }
                    items.try_into().map_err(|_| #from.error(#kind::Value("an array of another length")))?
                })
            }
            _ => quote!(#head::decode(#from)?),
        }
    }

    /// True for a recursive type.
    pub fn is_recursive(&self, id: DefinitionId) -> bool {
        self.reaches(&Type::Named(id), id, &mut BTreeSet::new())
    }

    fn reaches(&self, of: &Type, wanted: DefinitionId, seen: &mut BTreeSet<DefinitionId>) -> bool {
        match of {
            Type::Sequence(of, _) | Type::Array(of, _) => self.reaches(of, wanted, seen),
            Type::Named(id) if *id == wanted && !seen.is_empty() => true,
            Type::Named(id) => {
                // The outermost call is for the type itself.
                if !seen.insert(*id) {
                    return false;
                }
                match &self.get(*id).kind {
                    DefinitionKind::Alias(of) => self.reaches(of, wanted, seen),
                    DefinitionKind::Struct(members) | DefinitionKind::Exception(members) => {
                        members.iter().any(|member| self.reaches(&member.of, wanted, seen))
                    }
                    DefinitionKind::Union(union) => {
                        union.cases.iter().any(|case| self.reaches(&case.member.of, wanted, seen))
                    }
                    _ => false,
                }
            }
            _ => false,
        }
    }
}

/// The parts of an array: elements, or arrays of one dimension less.
fn inner(of: &Type, dimensions: &[u32]) -> Type {
    match dimensions {
        [_, rest @ ..] if !rest.is_empty() => Type::Array(Box::new(of.clone()), rest.to_vec()),
        _ => of.clone(),
    }
}

/// All as statements.
fn terminated((statements, expression): (TokenStream, Option<TokenStream>)) -> TokenStream {
    let expression = expression.map(|expression| quote!(#expression?;));
    quote!(#statements #expression)
}
