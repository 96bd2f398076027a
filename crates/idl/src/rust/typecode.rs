//! Type codes: each type describes itself, including its parts.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::scope::Scope;
use super::types::integer;
use crate::tree::{ConstantValue, DefinitionId, DefinitionKind, Member, Type};

impl Scope<'_> {
    /// `impl Typed` of a struct, exception, union or enumeration.
    pub fn typed(&self, id: DefinitionId, name: &Ident) -> TokenStream {
        let definition = self.get(id);
        let (repository_id, written) = (&definition.repository_id, &definition.name);
        let described = match &definition.kind {
            DefinitionKind::Struct(members) => {
                let members = self.described_members(members);
                quote!(types.structure(#repository_id, #written, |types| #members))
            }
            DefinitionKind::Exception(members) if members.is_empty() => {
                quote!(types.exception(#repository_id, #written, |_| []))
            }
            DefinitionKind::Exception(members) => {
                let members = self.described_members(members);
                quote!(types.exception(#repository_id, #written, |types| #members))
            }
            DefinitionKind::Enum(all) => {
                let names = all.iter().map(|one| &one.name);
                quote!(types.enumeration(#repository_id, #written, &[#(#names),*]))
            }
            DefinitionKind::Union(union) => {
                let by = self.described_by(&union.discriminator);
                let cases = union.cases.iter().flat_map(|case| {
                    let (of, name) = (self.described(&case.member.of), &case.member.name);
                    let labels = case.labels.iter().map(|label| Some(label_number(label)));
                    let labels: Vec<_> = labels.chain(case.default.then_some(None)).collect();
                    labels.into_iter().map(move |label| {
                        let label = self.maybe(label.map(integer));
                        quote!((#label, #name, #of))
                    })
                });
                quote!(types.union(#repository_id, #written, #by, |types| [#(#cases),*]))
            }
            _ => quote!(),
        };
        let (typed, types, index) = (self.orb("Typed"), self.orb("Types"), self.orb("TypeIndex"));
        let (code, once) = (self.orb("TypeCode"), self.std("sync", "OnceLock"));
        quote! {
            impl #typed for #name {
                fn describe(types: &mut #types) -> #index { #described }

                fn type_code() -> #code {
                    static CODE: #once<#code> = #once::new();
                    CODE.get_or_init(#code::of::<Self>).clone()
                }
            }
        }
    }

    fn maybe(&self, value: Option<TokenStream>) -> TokenStream {
        match value {
            Some(value) => {
                let some = self.prelude("Some");
                quote!(#some(#value))
            }
            None => self.prelude("None"),
        }
    }

    fn described_members(&self, members: &[Member]) -> TokenStream {
        let members = members.iter().map(|member| {
            let (name, of) = (&member.name, self.described(&member.of));
            quote!((#name, #of))
        });
        quote!([#(#members),*])
    }

    /// True if Rust's type determines it: there is no bound, no typedef and no interface in it.
    fn is_implied_by_rust(&self, of: &Type) -> bool {
        match of {
            Type::Sequence(of, None) | Type::Array(of, _) => self.is_implied_by_rust(of),
            Type::String(bound) | Type::WString(bound) => bound.is_none(),
            Type::Named(id) => !matches!(self.get(*id).kind, DefinitionKind::Alias(_) | DefinitionKind::Interface(_)),
            Type::Sequence(_, Some(_)) | Type::Object => false,
            _ => true,
        }
    }

    /// As a function of `types`.
    fn described_by(&self, of: &Type) -> TokenStream {
        match of {
            Type::Named(id) if matches!(self.get(*id).kind, DefinitionKind::Alias(_)) => {
                let of = self.described(of);
                quote!(|types| #of)
            }
            _ => {
                let head = self.head(of);
                quote!(#head::describe)
            }
        }
    }

    /// An expression that describes a type to `types`.
    pub fn described(&self, of: &Type) -> TokenStream {
        self.methods_of("Typed");
        match of {
            Type::String(Some(most)) => {
                let most = Literal::u32_unsuffixed(*most);
                quote!(types.string(#most))
            }
            Type::WString(Some(most)) => {
                let most = Literal::u32_unsuffixed(*most);
                quote!(types.wstring(#most))
            }
            Type::Sequence(..) | Type::Array(..) if self.is_implied_by_rust(of) => {
                let head = self.head(of);
                quote!(#head::describe(types))
            }
            Type::Sequence(inner, bound) => {
                let (inner, most) = (self.described(inner), Literal::u32_unsuffixed(bound.unwrap_or(0)));
                quote!({ let of = #inner; types.sequence(of, #most) })
            }
            Type::Array(inner, dimensions) => {
                let lengths = dimensions.iter().rev().map(|length| Literal::u32_unsuffixed(*length));
                lengths.fold(self.described(inner), |of, length| quote!({ let of = #of; types.array(of, #length) }))
            }
            Type::Object => quote!(types.interface("IDL:omg.org/CORBA/Object:1.0", "Object")),
            Type::Named(id) => {
                let definition = self.get(*id);
                let (repository_id, written) = (&definition.repository_id, &definition.name);
                match &definition.kind {
                    DefinitionKind::Alias(inner) => {
                        let inner = match inner {
                            // `|types| { let of = ..; types.sequence(of, 0) }` is a block already.
                            Type::String(Some(_)) | Type::WString(Some(_)) | Type::Sequence(..) | Type::Array(..) => {
                                let inner = self.described(inner);
                                quote!(|types| #inner)
                            }
                            Type::Object => quote!(|types| types.interface("IDL:omg.org/CORBA/Object:1.0", "Object")),
                            Type::Named(_) => {
                                let inner = self.described(inner);
                                quote!(|types| #inner)
                            }
                            simple => self.described_by(simple),
                        };
                        quote!(types.alias(#repository_id, #written, #inner))
                    }
                    DefinitionKind::Interface(_) => quote!(types.interface(#repository_id, #written)),
                    _ => {
                        let head = self.definition(*id);
                        quote!(#head::describe(types))
                    }
                }
            }
            _ => {
                let head = self.head(of);
                quote!(#head::describe(types))
            }
        }
    }
}

/// As in type codes: 0 or 1 for a boolean, a character's code point, an enumerator's position.
fn label_number(label: &ConstantValue) -> i128 {
    match label {
        ConstantValue::Integer(value) => *value,
        ConstantValue::Boolean(value) => i128::from(*value),
        ConstantValue::Char(value) => i128::from(u32::from(*value)),
        ConstantValue::Enumerator(_, at) => i128::from(*at),
        ConstantValue::Floating(_) | ConstantValue::Fixed { .. } | ConstantValue::String(_) => 0,
    }
}
