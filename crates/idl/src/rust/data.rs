//! Structs, exceptions, enumerations, unions, typedefs and constants.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::docs::{self, docs};
use super::names::{camel, distinct, ident, snake, unique};
use super::scope::Scope;
use super::types::Derive;
use crate::tree::{Case, ConstantValue, Definition, DefinitionId, DefinitionKind, Enumerator, Member, Type, Union};

impl Scope<'_> {
    pub fn constant(&self, definition: &Definition, name: &Ident, of: &Type, value: &ConstantValue) -> TokenStream {
        let docs = docs(&definition.docs, &definition.annotations);
        let ty = match self.resolve(of) {
            Type::String(_) | Type::WString(_) => quote!(&str),
            _ => self.owned(of),
        };
        let value = self.value(value, of);
        quote!(#docs pub const #name: #ty = #value;)
    }

    pub fn alias(&self, definition: &Definition, name: &Ident, of: &Type) -> TokenStream {
        let mut lines = definition.docs.clone();
        if let Some(bound) = self.bound(of) {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.push(bound);
        }
        let (docs, of) = (docs(&lines, &definition.annotations), self.owned(of));
        quote!(#docs pub type #name = #of;)
    }

    /// The documentation of a bounded typedef: Rust's type has no bound.
    fn bound(&self, of: &Type) -> Option<String> {
        Some(match of {
            Type::String(Some(most)) => format!("At most {most} octets; checked when sent and received."),
            Type::WString(Some(most)) => format!("At most {most} units of UTF-16; checked when sent and received."),
            Type::Sequence(_, Some(most)) => format!("At most {most} elements; checked when sent and received."),
            _ => return None,
        })
    }

    pub fn structure(&self, id: DefinitionId, definition: &Definition, members: &[Member]) -> TokenStream {
        let name = ident(&self.names.place(id).name);
        let fields = fields(members);
        let body = self.fields(members, &fields);
        let derives = self.derives(members.iter().map(|member| &member.of), &[]);
        let (docs, codec) =
            (docs(&definition.docs, &definition.annotations), self.members_codec(id, &name, members, &fields));
        let typed = self.typed(id, &name);
        quote!(#docs #derives pub struct #name { #body } #codec #typed)
    }

    pub fn exception(&self, id: DefinitionId, definition: &Definition, members: &[Member]) -> TokenStream {
        let name = ident(&self.names.place(id).name);
        let fields = fields(members);
        let body = match members {
            [] => quote!(;),
            _ => {
                let body = self.fields(members, &fields);
                quote!({ #body })
            }
        };
        let derives = self.derives(members.iter().map(|member| &member.of), &[Derive::Copy]);
        let derives = if members.is_empty() { self.derives([].into_iter(), &[]) } else { derives };
        let (docs, codec) =
            (docs(&definition.docs, &definition.annotations), self.members_codec(id, &name, members, &fields));
        let typed = self.typed(id, &name);
        let (user, fmt, error) = (self.orb("UserException"), self.fmt(), self.std("error", "Error"));
        let (repository_id, written) = (&definition.repository_id, &definition.name);
        let shown = members.iter().map(|member| format!("{}: {{:?}}", member.name));
        let shown = match members {
            [] => quote!(f.write_str(#written)),
            _ => {
                let format = format!("{written} ({})", shown.collect::<Vec<_>>().join(", "));
                quote!(write!(f, #format, #(self.#fields),*))
            }
        };
        quote! {
            #docs #derives pub struct #name #body
            impl #user for #name { const ID: &'static str = #repository_id; }
            impl #fmt::Display for #name {
                fn fmt(&self, f: &mut #fmt::Formatter<'_>) -> #fmt::Result { #shown }
            }
            impl #error for #name {}
            #codec
            #typed
        }
    }

    fn fields(&self, members: &[Member], fields: &[Ident]) -> TokenStream {
        let all = members.iter().zip(fields).map(|(member, field)| {
            let (docs, of) = (docs::of_member(member), self.owned(&member.of));
            quote!(#docs pub #field: #of,)
        });
        quote!(#(#all)*)
    }

    fn members_codec(&self, id: DefinitionId, name: &Ident, members: &[Member], fields: &[Ident]) -> TokenStream {
        let (encoder, encode_error) = (self.orb("Encoder"), self.orb("EncodeError"));
        let (decoder, decode_error) = (self.orb("Decoder"), self.orb("DecodeError"));
        let (encode, decode) = (self.orb("Encode"), self.orb("Decode"));
        let ok = self.prelude("Ok");
        let (encoded, decoded) = (self.result(&quote!(()), &encode_error), self.result(&quote!(Self), &decode_error));
        let (to, from) = (format_ident!("to"), format_ident!("from"));
        let (to_name, from_name) = if members.is_empty() { (quote!(_), quote!(_)) } else { (quote!(to), quote!(from)) };
        let writes = self
            .encode_in_order(members.iter().zip(fields).map(|(member, field)| (&member.of, quote!(self.#field))), &to);
        let reads = members.iter().zip(fields).map(|(member, field)| {
            let read = self.decode(&member.of, &from);
            quote!(#field: #read)
        });
        let value = if members.is_empty() { quote!(#ok(#name)) } else { quote!(#ok(#name { #(#reads),* })) };
        let value = self.deeper(id, value, &from);
        let least = Literal::u64_unsuffixed(self.least(&Type::Named(id)));
        quote! {
            impl #encode for #name {
                fn encode(&self, #to_name: &mut #encoder) -> #encoded { #writes }
            }
            impl #decode<'_> for #name {
                const LEAST: usize = #least;

                fn decode(#from_name: &mut #decoder<'_>) -> #decoded { #value }
            }
        }
    }

    /// Counts depth in a recursive type, because a peer could nest it without end.
    fn deeper(&self, id: DefinitionId, value: TokenStream, from: &Ident) -> TokenStream {
        if self.is_recursive(id) { quote!(#from.nested(|#from| #value)) } else { value }
    }

    pub fn enumeration(&self, id: DefinitionId, definition: &Definition, all: &[Enumerator]) -> TokenStream {
        let name = ident(&self.names.place(id).name);
        let variants: Vec<_> = distinct(all.iter().map(|one| one.name.as_str()), camel);
        let variants: Vec<_> = variants.iter().map(|name| ident(name)).collect();
        let declared = all.iter().zip(&variants).enumerate().map(|(at, (one, variant))| {
            let docs = docs::lines(&one.docs);
            let default = (at == 0).then(|| quote!(#[default]));
            quote!(#docs #default #variant,)
        });
        let (encoder, encode_error) = (self.orb("Encoder"), self.orb("EncodeError"));
        let (decoder, decode_error) = (self.orb("Decoder"), self.orb("DecodeError"));
        let (encode, decode, kind) = (self.orb("Encode"), self.orb("Decode"), self.orb("DecodeErrorKind"));
        let (ok, err) = (self.prelude("Ok"), self.prelude("Err"));
        let (encoded, decoded) = (self.result(&quote!(()), &encode_error), self.result(&quote!(Self), &decode_error));
        let (docs, typed) = (docs(&definition.docs, &definition.annotations), self.typed(id, &name));
        let reads = variants.iter().enumerate().map(|(at, variant)| {
            let at = Literal::usize_unsuffixed(at);
            quote!(#at => #ok(#name::#variant),)
        });
        let none = format!("no {}", definition.name);
        quote! {
            #docs
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            #[repr(u32)]
            pub enum #name { #(#declared)* }
            impl #encode for #name {
                fn encode(&self, to: &mut #encoder) -> #encoded { (*self as u32).encode(to) }
            }
            impl #decode<'_> for #name {
                const LEAST: usize = 4;

                fn decode(from: &mut #decoder<'_>) -> #decoded {
                    match u32::decode(from)? {
                        #(#reads)*
                        _ => #err(from.error(#kind::Value(#none))),
                    }
                }
            }
            #typed
        }
    }

    pub fn union(&self, id: DefinitionId, definition: &Definition, union: &Union) -> TokenStream {
        let name = ident(&self.names.place(id).name);
        let by = self.owned(&union.discriminator);
        let variants = self.variants(union);
        let derives = self
            .derives(union.cases.iter().map(|case| &case.member.of).chain([&union.discriminator]), &[Derive::Default]);
        let declared = variants.iter().map(|Variant { name, case, shape }| {
            let docs = case.map(|case| docs::of_member(&case.member));
            let of = case.map(|case| self.owned(&case.member.of));
            match shape {
                UnionVariant::Sole(_) => quote!(#docs #name(#of),),
                UnionVariant::Labelled { pattern } => {
                    let label_docs = match pattern {
                        Some(_) => " Which of its labels it has.",
                        None => " Any that no other variant has.",
                    };
                    quote!(#docs #name { #[doc = #label_docs] label: #by, #[doc = " Its member."] value: #of },)
                }
                UnionVariant::Bare => {
                    quote!(#[doc = " Only a discriminator that no other variant has."] #name(#by),)
                }
            }
        });
        let discriminators = variants.iter().map(|Variant { name: variant, shape, .. }| match shape {
            UnionVariant::Sole(label) => quote!(#name::#variant(_) => #label,),
            UnionVariant::Labelled { .. } => quote!(#name::#variant { label, .. } => *label,),
            UnionVariant::Bare => quote!(#name::#variant(label) => *label,),
        });
        let (encoder, encode_error) = (self.orb("Encoder"), self.orb("EncodeError"));
        let (decoder, decode_error) = (self.orb("Decoder"), self.orb("DecodeError"));
        let (encode, decode) = (self.orb("Encode"), self.orb("Decode"));
        let (ok, err) = (self.prelude("Ok"), self.prelude("Err"));
        let (encoded, decoded) = (self.result(&quote!(()), &encode_error), self.result(&quote!(Self), &decode_error));
        let (to, from) = (format_ident!("to"), format_ident!("from"));
        let writes = variants.iter().map(|Variant { name: variant, case, shape }| {
            let write = case.map(|case| self.encode_in_order([(&case.member.of, quote!(value))].into_iter(), &to));
            match shape {
                UnionVariant::Sole(_) => quote!(#name::#variant(value) => { #write }),
                UnionVariant::Labelled { .. } => quote!(#name::#variant { value, .. } => { #write }),
                UnionVariant::Bare => quote!(#name::#variant(_) => #ok(()),),
            }
        });
        // A label that belongs to another variant would be read back as that one.
        let checks: Vec<_> = variants.iter().filter_map(|variant| self.check(&name, variant, union)).collect();
        let rest = (checks.len() < variants.len()).then(|| quote!(_ => true,));
        let check = (!checks.is_empty()).then(|| {
            let message = format!("a label of {} that belongs to another variant", definition.name);
            quote! {
                let fits = match self { #(#checks)* #rest };
                if !fits { return #err(#encode_error::Value(#message)); }
            }
        });
        let reads = variants.iter().map(|Variant { name: variant, case, shape }| {
            let read = case.map(|case| self.decode(&case.member.of, &from));
            match shape {
                UnionVariant::Sole(label) => quote!(#label => #ok(#name::#variant(#read)),),
                UnionVariant::Labelled { pattern: Some(pattern) } => {
                    quote!(label @ (#pattern) => #ok(#name::#variant { label, value: #read }),)
                }
                UnionVariant::Labelled { pattern: None } => {
                    quote!(label => #ok(#name::#variant { label, value: #read }),)
                }
                UnionVariant::Bare => quote!(label => #ok(#name::#variant(label)),),
            }
        });
        let discriminator = self.head(&union.discriminator);
        let value = self.deeper(id, quote!(match #discriminator::decode(from)? { #(#reads)* }), &from);
        let least = Literal::u64_unsuffixed(self.least(&union.discriminator));
        let (docs, typed) = (docs(&definition.docs, &definition.annotations), self.typed(id, &name));
        quote! {
            #docs #derives pub enum #name { #(#declared)* }
            impl #name {
                /// The discriminator of a variant.
                pub fn discriminator(&self) -> #by { match self { #(#discriminators)* } }
            }
            impl #encode for #name {
                fn encode(&self, to: &mut #encoder) -> #encoded {
                    #check
                    self.discriminator().encode(to)?;
                    match self { #(#writes)* }
                }
            }
            impl #decode<'_> for #name {
                const LEAST: usize = #least;

                fn decode(from: &mut #decoder<'_>) -> #decoded { #value }
            }
            #typed
        }
    }
}

/// A variant of the Rust enumeration for a union.
struct Variant<'a> {
    name: Ident,
    /// `None` for a variant without a member.
    case: Option<&'a Case>,
    shape: UnionVariant,
}

enum UnionVariant {
    /// One label, so the variant implies it.
    Sole(TokenStream),
    /// Several labels, as a pattern; without one, all that no other variant has.
    Labelled { pattern: Option<TokenStream> },
    /// No member: a discriminator that no variant has.
    Bare,
}

impl Scope<'_> {
    /// In the order in which they can be matched: a variant that matches any label is last.
    fn variants<'u>(&self, union: &'u Union) -> Vec<Variant<'u>> {
        let mut taken = BTreeSet::new();
        let mut variants = Vec::new();
        for case in &union.cases {
            let name = ident(&unique(&mut taken, camel(&case.member.name)));
            let shape = match case.labels.as_slice() {
                _ if case.default => UnionVariant::Labelled { pattern: None },
                [label] => UnionVariant::Sole(self.value(label, &union.discriminator)),
                labels => UnionVariant::Labelled { pattern: Some(self.pattern(labels, union)) },
            };
            variants.push(Variant { name, case: Some(case), shape });
        }
        variants.sort_by_key(|variant| matches!(variant.shape, UnionVariant::Labelled { pattern: None }));
        if !self.is_exhaustive(union) {
            let name = ident(&unique(&mut taken, "Default".to_owned()));
            variants.push(Variant { name, case: None, shape: UnionVariant::Bare });
        }
        variants
    }

    fn pattern(&self, labels: &[ConstantValue], union: &Union) -> TokenStream {
        let labels = labels.iter().map(|label| self.value(label, &union.discriminator));
        quote!(#(#labels)|*)
    }

    fn is_exhaustive(&self, union: &Union) -> bool {
        let labels: usize = union.cases.iter().map(|case| case.labels.len()).sum();
        let all = match self.resolve(&union.discriminator) {
            Type::Boolean => 2,
            Type::Octet | Type::UInt8 | Type::Int8 => 256,
            Type::Named(id) => match &self.get(*id).kind {
                DefinitionKind::Enum(all) => all.len(),
                _ => usize::MAX,
            },
            _ => usize::MAX,
        };
        labels == all || union.cases.iter().any(|case| case.default)
    }

    /// The arm that checks whether a variant's label is one of its own.
    fn check(&self, name: &Ident, variant: &Variant<'_>, union: &Union) -> Option<TokenStream> {
        let others: Vec<_> =
            union.cases.iter().filter(|case| !case.default).flat_map(|case| case.labels.clone()).collect();
        let of = &variant.name;
        if let (Type::Boolean, [ConstantValue::Boolean(taken)]) =
            (self.resolve(&union.discriminator), others.as_slice())
        {
            let free = if *taken { quote!(!*label) } else { quote!(*label) };
            return match &variant.shape {
                UnionVariant::Bare => Some(quote!(#name::#of(label) => #free,)),
                UnionVariant::Labelled { pattern: None } => Some(quote!(#name::#of { label, .. } => #free,)),
                _ => None,
            };
        }
        match &variant.shape {
            UnionVariant::Sole(_) => None,
            UnionVariant::Labelled { pattern: Some(_) }
                if matches!(self.resolve(&union.discriminator), Type::Boolean) =>
            {
                None
            }
            UnionVariant::Labelled { pattern: Some(pattern) } => {
                Some(quote!(#name::#of { label, .. } => matches!(label, #pattern),))
            }
            _ if others.is_empty() => None,
            UnionVariant::Labelled { pattern: None } => {
                let others = self.pattern(&others, union);
                Some(quote!(#name::#of { label, .. } => !matches!(label, #others),))
            }
            UnionVariant::Bare => {
                let others = self.pattern(&others, union);
                Some(quote!(#name::#of(label) => !matches!(label, #others),))
            }
        }
    }
}

/// The names of a struct's members.
pub(super) fn fields(members: &[Member]) -> Vec<Ident> {
    distinct(members.iter().map(|member| member.name.as_str()), snake).iter().map(|name| ident(name)).collect()
}
