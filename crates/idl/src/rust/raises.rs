//! The error type of operations: an enumeration of the declared exceptions and the ORB's own.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::methods::Method;
use super::names::{distinct, ident};
use super::scope::Scope;
use super::types::Derive;
use crate::tree::{DefinitionId, Type};

impl Scope<'_> {
    /// The enumeration for a method, if it declares exceptions.
    pub fn raised(&self, interface: DefinitionId, method: &Method<'_>) -> TokenStream {
        let Some(error) = self.names.made(interface).errors.get(&method.wire) else { return quote!() };
        let (error, place) = (ident(error), self.names.place(interface));
        let doc = format!(" The exceptions of [`{}::{}`].", place.name, method.name);
        let names = method.raises.iter().map(|id| self.names.place(*id).name.as_str());
        // The ORB's variant is first, so an exception named `System` gets the changed name.
        let names: Vec<_> = distinct(["System"].into_iter().chain(names), str::to_owned);
        let variants: Vec<Ident> = names[1..].iter().map(|name| ident(name)).collect();
        let exceptions: Vec<_> = method.raises.iter().map(|id| self.definition(*id)).collect();
        let docs = method.raises.iter().map(|id| {
            let line = self.get(*id).docs.iter().find(|line| !line.trim().is_empty());
            let line = format!(" {}", line.map_or("Declared by the operation.", |line| line.trim()));
            quote!(#[doc = #line])
        });
        let types: Vec<_> = method.raises.iter().map(|id| Type::Named(*id)).collect();
        let derives = self.derives(types.iter(), &[Derive::Default, Derive::Copy]);
        let (system, fmt, std_error) = (self.orb("SystemException"), self.fmt(), self.std("error", "Error"));
        let (raises, encode) = (self.orb("Raises"), self.orb("Encode"));
        self.methods_of("UserException");
        self.methods_of("Decode");
        self.methods_of("Encode");
        let (encoder, encode_error) = (self.orb("Encoder"), self.orb("EncodeError"));
        let (decoder, decode_error) = (self.orb("Decoder"), self.orb("DecodeError"));
        let (some, none, from) = (self.prelude("Some"), self.prelude("None"), self.prelude("From"));
        let encoded = self.result(&quote!(()), &encode_error);
        let decoded = self.option(&self.result(&quote!(Self), &decode_error));
        let found = self.option(&quote!(&#system));
        quote! {
            #[doc = #doc]
            #derives
            pub enum #error {
                #(#docs #variants(#exceptions),)*
                /// Raised by an ORB.
                System(#system),
            }
            impl #fmt::Display for #error {
                fn fmt(&self, f: &mut #fmt::Formatter<'_>) -> #fmt::Result {
                    match self {
                        #(#error::#variants(raised) => #fmt::Display::fmt(raised, f),)*
                        #error::System(raised) => #fmt::Display::fmt(raised, f),
                    }
                }
            }
            impl #std_error for #error {}
            #(impl #from<#exceptions> for #error {
                fn from(raised: #exceptions) -> Self { #error::#variants(raised) }
            })*
            impl #from<#system> for #error {
                fn from(raised: #system) -> Self { #error::System(raised) }
            }
            impl #raises for #error {
                fn decode(id: &str, from: &mut #decoder<'_>) -> #decoded {
                    #some(match id {
                        #(#exceptions::ID => #exceptions::decode(from).map(#error::#variants),)*
                        _ => return #none,
                    })
                }
                fn id(&self) -> &'static str {
                    match self {
                        #(#error::#variants(_) => #exceptions::ID,)*
                        #error::System(raised) => raised.kind.id(),
                    }
                }
                fn encode(&self, to: &mut #encoder) -> #encoded {
                    match self {
                        #(#error::#variants(raised) => raised.encode(to),)*
                        #error::System(raised) => #encode::encode(raised, to),
                    }
                }
                fn system(&self) -> #found {
                    match self { #error::System(raised) => #some(raised), _ => #none }
                }
            }
        }
    }
}
