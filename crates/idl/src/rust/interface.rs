//! Interfaces: the trait for servants and stubs, the stub, the delegate, the dispatch.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::docs::docs;
use super::methods::{Method, MethodParameter, tuple};
use super::names::ident;
use super::scope::Scope;
use crate::tree::{Definition, DefinitionId, Direction, IdlInterface, Type};

impl Scope<'_> {
    pub fn remote(&self, id: DefinitionId, definition: &Definition, interface: &IdlInterface) -> TokenStream {
        let methods = self.methods(id, interface);
        let declared = self.operations(id, definition, interface, &methods);
        let raised = methods.iter().map(|method| self.raised(id, method));
        let (stub, served, delegate) =
            (self.caller(id, interface), self.served(id, definition, interface), self.delegate(id, interface));
        quote!(#declared #(#raised)* #stub #served #delegate)
    }

    /// The trait.
    fn operations(
        &self,
        id: DefinitionId,
        definition: &Definition,
        interface: &IdlInterface,
        methods: &[Method<'_>],
    ) -> TokenStream {
        let (name, docs) = (self.trait_name(id), docs(&definition.docs, &definition.annotations));
        let bases: Vec<_> = interface.bases.iter().map(|base| self.definition(*base)).collect();
        let bases = match bases.as_slice() {
            [] => {
                let (send, sync) = (self.prelude("Send"), self.prelude("Sync"));
                quote!(#send + #sync)
            }
            bases => quote!(#(#bases)+*),
        };
        let methods = methods.iter().map(|method| {
            let (docs, signature) = (&method.docs, method.signature(self));
            quote!(#docs #signature;)
        });
        quote!(#docs pub trait #name: #bases { #(#methods)* })
    }

    fn trait_name(&self, id: DefinitionId) -> Ident {
        ident(&self.names.place(id).name)
    }

    /// The interface and its ancestors, each with its own methods.
    fn lineage<'t>(&'t self, id: DefinitionId, interface: &'t IdlInterface) -> Vec<(TokenStream, Vec<Method<'t>>)> {
        let own = [(id, interface)].into_iter().chain(self.ancestors(interface));
        own.map(|(id, interface)| (self.definition(id), self.methods(id, interface))).collect()
    }

    /// A call of a method; with the trait's name if two traits have a method of that name.
    fn called(
        &self,
        id: DefinitionId,
        on: &TokenStream,
        by_reference: &TokenStream,
        method: &Method<'_>,
    ) -> TokenStream {
        let (name, passed) = (&method.name, method.passed());
        let same = self.names.made(id).methods.values().filter(|other| ident(other) == *name).count();
        if same > 1 {
            let of = self.definition(method.of);
            quote!(#of::#name(#by_reference, #passed))
        } else {
            quote!(#on.#name(#passed))
        }
    }

    /// The stub: a reference with the operations as methods.
    fn caller(&self, id: DefinitionId, interface: &IdlInterface) -> TokenStream {
        let (name, stub) = (self.trait_name(id), ident(&self.names.made(id).stub));
        let (reference, from, as_ref) = (self.orb("Reference"), self.prelude("From"), self.prelude("AsRef"));
        let doc = format!(" A reference to an object with the operations of [`{name}`].");
        let traits = self.lineage(id, interface).into_iter().map(|(of, methods)| {
            let methods = methods.iter().map(|method| self.call(id, method));
            quote!(impl #of for #stub { #(#methods)* })
        });
        let wider = self.ancestors(interface).into_iter().map(|(base, _)| {
            let (wide, wide_trait) = (self.at(base, &self.names.made(base).stub), self.definition(base));
            quote! {
                impl #from<#stub> for #wide {
                    fn from(stub: #stub) -> Self { stub.0.widen::<dyn #wide_trait>().into() }
                }
            }
        });
        let (deref, ior) = (self.std("ops", "Deref"), self.orb("Ior"));
        let (to_ior, from_ior) = (self.orb("ToIor"), self.orb("FromIor"));
        let lineage = self.lineage(id, interface);
        let all: Vec<_> = lineage.iter().flat_map(|(_, methods)| methods).filter(|method| !method.oneway).collect();
        let later = all.iter().map(|method| self.call_later(id, method));
        let later = (!all.is_empty()).then(|| quote!(impl #stub { #(#later)* }));
        quote! {
            #[doc = #doc]
            #[derive(Clone, Debug, PartialEq, Eq, Hash)]
            pub struct #stub(#reference<dyn #name>);
            #(#traits)*
            #later
            impl #from<#reference<dyn #name>> for #stub {
                fn from(reference: #reference<dyn #name>) -> Self { #stub(reference) }
            }
            impl #as_ref<#reference<dyn #name>> for #stub {
                fn as_ref(&self) -> &#reference<dyn #name> { &self.0 }
            }
            impl #deref for #stub {
                type Target = #reference<dyn #name>;

                fn deref(&self) -> &Self::Target { &self.0 }
            }
            impl #to_ior for #stub {
                fn to_ior(&self) -> &#ior { self.0.ior() }
            }
            impl #from_ior for #stub {
                fn from_ior(ior: #ior) -> Self { #stub(ior.into()) }
            }
            #(#wider)*
        }
    }

    /// The closure that writes the arguments.
    fn arguments(&self, method: &Method<'_>) -> TokenStream {
        let to = method.local("to");
        let sent: Vec<_> = method.sent().map(|parameter| (parameter.of, &parameter.name)).collect();
        if sent.is_empty() {
            let ok = self.prelude("Ok");
            return quote!(|_| #ok(()));
        }
        let count = sent.len();
        let writes = self.encode_in_order(sent.into_iter().map(|(of, name)| (of, quote!(#name))), &to);
        if count == 1 && !writes.to_string().contains(';') { quote!(|#to| #writes) } else { quote!(|#to| { #writes }) }
    }

    /// The closure that reads the results.
    fn results(&self, method: &Method<'_>) -> TokenStream {
        let (ok, from) = (self.prelude("Ok"), format_ident!("from"));
        let outputs = method.outputs();
        match outputs.as_slice() {
            [] => quote!(|_| #ok(())),
            [one] if !self.is_bounded(one.of) => {
                let head = self.head(one.of);
                self.methods_of("Decode");
                quote!(|from| #head::decode(from))
            }
            all => {
                let reads = tuple(all.iter().map(|output| self.decode(output.of, &from)).collect());
                quote!(|from| #ok(#reads))
            }
        }
    }

    /// A method of the stub.
    fn call(&self, id: DefinitionId, method: &Method<'_>) -> TokenStream {
        let (signature, operation) = (method.signature(self), method.operation(self));
        let (arguments, results) = (self.arguments(method), self.results(method));
        let (some, here) = (self.prelude("Some"), method.local("here"));
        let at_once = self.called(id, &quote!(#here), &quote!(&*#here), method);
        let here = quote!(if let #some(#here) = self.0.collocated() { return #at_once; });
        let outputs = method.outputs();
        let called = if method.oneway {
            quote!(self.0.send(&#operation, #arguments))
        } else {
            quote!(self.0.call(&#operation, #arguments, #results))
        };
        if !outputs.iter().any(|output| output.changed) {
            return quote!(#signature { #here #called });
        }
        let (ok, error) = (self.prelude("Ok"), method.error(self));
        let called = quote!(self.0.call::<_, #error>(&#operation, #arguments, #results));
        let mut bound = Vec::new();
        let mut set = Vec::new();
        for output in &outputs {
            let name = &output.name;
            if output.changed {
                let now = method.local(&format!("{name}_now").replace("r#", ""));
                set.push(quote!(*#name = #now;));
                bound.push(quote!(#now));
            } else {
                bound.push(quote!(#name));
            }
        }
        let bound = tuple(bound);
        let back = outputs.iter().filter(|output| !output.changed).map(|output| {
            let name = &output.name;
            quote!(#name)
        });
        let back = tuple(back.collect());
        quote!(#signature { #here let #bound = #called?; #(#set)* #ok(#back) })
    }

    /// The method of the stub that does not wait; oneways have none.
    fn call_later(&self, id: DefinitionId, method: &Method<'_>) -> TokenStream {
        let made = self.names.made(id);
        let name = ident(made.asynchronous.get(&method.wire).map_or("", String::as_str));
        let doc =
            format!(" [`{0}`]({1}::{0}) without waiting for its end.", method.name, self.names.place(method.of).name);
        let parameters = method.sent().map(|MethodParameter { name, of, .. }| {
            let of = self.borrowed(of);
            quote!(#name: #of)
        });
        let outputs = tuple(method.outputs().iter().map(|output| self.owned(output.of)).collect());
        let (pending, error, operation) = (self.orb("Pending"), method.error(self), method.operation(self));
        let (arguments, results) = (self.arguments(method), self.results(method));
        quote! {
            #[doc = #doc]
            pub fn #name(&self, #(#parameters),*) -> #pending<#outputs, #error> {
                self.0.call_async(&#operation, #arguments, #results)
            }
        }
    }

    /// `impl Interface`: from the wire to the servant.
    fn served(&self, id: DefinitionId, definition: &Definition, interface: &IdlInterface) -> TokenStream {
        let (name, stub) = (self.trait_name(id), ident(&self.names.made(id).stub));
        let ancestors = self.ancestors(interface);
        let bases = ancestors.iter().map(|(id, _)| &self.get(*id).repository_id);
        let methods = self.all_methods(id, interface);
        let operations = methods.iter().map(|method| &method.wire);
        let oneways: Vec<_> = methods.iter().filter(|method| method.oneway).map(|method| &method.wire).collect();
        let oneways = (!oneways.is_empty()).then(|| quote!(const ONEWAYS: &'static [&'static str] = &[#(#oneways),*];));
        let arms = methods.iter().enumerate().map(|(at, method)| {
            let (at, dispatched) = (Literal::usize_unsuffixed(at), self.dispatched(id, method));
            quote!(#at => #dispatched)
        });
        let (wire, call, system) = (self.orb("Interface"), self.orb("Call"), self.orb("SystemException"));
        let kind = self.orb("SystemKind");
        let (arc, any, type_id) = (self.std("sync", "Arc"), self.std("any", "Any"), self.std("any", "TypeId"));
        let (some, none, err) = (self.prelude("Some"), self.prelude("None"), self.prelude("Err"));
        let boxed = self.prelude("Box");
        let dispatched = self.result(&quote!(()), &system);
        let upcast_to = self.option(&quote!(#boxed<dyn #any>));
        let upcasts: Vec<_> = ancestors.iter().map(|(base, _)| self.definition(*base)).collect();
        let upcast = if upcasts.is_empty() {
            quote!(fn upcast(_: #arc<Self>, _: #type_id) -> #upcast_to { #none })
        } else {
            quote! {
                fn upcast(servant: #arc<Self>, wanted: #type_id) -> #upcast_to {
                    #(if wanted == #type_id::of::<#arc<dyn #upcasts>>() {
                        return #some(#boxed::new(servant as #arc<dyn #upcasts>));
                    })*
                    #none
                }
            }
        };
        let repository_id = &definition.repository_id;
        let none_such = quote!(#err(#kind::BadOperation.not_done(0)));
        let dispatch = if methods.is_empty() {
            quote!(fn dispatch(&self, _: usize, _: &mut #call<'_>) -> #dispatched { #none_such })
        } else {
            quote! {
                fn dispatch(&self, operation: usize, call: &mut #call<'_>) -> #dispatched {
                    match operation {
                        #(#arms)*
                        _ => #none_such,
                    }
                }
            }
        };
        quote! {
            impl #wire for dyn #name {
                type Stub = #stub;
                const ID: &'static str = #repository_id;
                const BASES: &'static [&'static str] = &[#(#bases),*];
                const OPERATIONS: &'static [&'static str] = &[#(#operations),*];
                #oneways

                #dispatch

                #upcast
            }
        }
    }

    /// One arm of the dispatch.
    fn dispatched(&self, id: DefinitionId, method: &Method<'_>) -> TokenStream {
        let (call, from) = (method.local("call"), method.local("from"));
        let rename = (call != "call").then(|| quote!(let #call = call;));
        let mut names = Vec::new();
        let mut reads = Vec::new();
        let mut passed = Vec::new();
        for parameter in method.sent() {
            let (read, pass) = self.argument(parameter, &from);
            let (name, changed) = (&parameter.name, parameter.direction == Direction::InOut);
            let mutable = changed.then(|| quote!(mut));
            names.push(quote!(#mutable #name));
            reads.push(read);
            passed.push(pass);
        }
        let name = &method.name;
        let same = self.names.made(id).methods.values().filter(|other| ident(other) == *name).count();
        let outcome = if same > 1 {
            let of = self.definition(method.of);
            quote!(#of::#name(self, #(#passed),*))
        } else {
            quote!(self.#name(#(#passed),*))
        };
        let replied = self.replied(method);
        if reads.is_empty() {
            return quote!(call.reply(#outcome, #replied),);
        }
        let (outcome_name, ok) = (method.local("outcome"), self.prelude("Ok"));
        let (names, reads) = (tuple(names), tuple(reads));
        let reads = quote!(|#from| #ok(#reads));
        quote!({
            #rename
            let #names = #call.read(#reads)?;
            let #outcome_name = #outcome;
            #call.reply(#outcome_name, #replied)
        })
    }

    /// How an argument is read, borrowed if possible, and how it is passed on.
    fn argument(&self, parameter: &MethodParameter<'_>, from: &Ident) -> (TokenStream, TokenStream) {
        let MethodParameter { direction, name, of } = parameter;
        if *direction == Direction::InOut {
            return (self.decode(of, from), quote!(&mut #name));
        }
        self.methods_of("Decode");
        let read = |whole: TokenStream, head: TokenStream, bound: &Option<u32>| match bound {
            Some(most) => {
                let most = Literal::u32_unsuffixed(*most);
                quote!(#from.bounded::<#whole>(#most)?)
            }
            None => quote!(#head::decode(#from)?),
        };
        match self.resolve(of) {
            Type::String(most) => {
                let cow = self.std("borrow", "Cow");
                (read(quote!(#cow<str>), quote!(#cow::<str>), most), quote!(&#name))
            }
            Type::Sequence(octet, most) if matches!(self.resolve(octet), Type::Octet | Type::UInt8) => {
                (read(quote!(&[u8]), quote!(<&[u8]>), most), quote!(#name))
            }
            _ if self.is_reference(of) => (self.decode(of, from), quote!(#name.as_ref())),
            _ if self.is_by_value(of) => (self.decode(of, from), quote!(#name)),
            _ => (self.decode(of, from), quote!(&#name)),
        }
    }

    /// The closure that writes the outcome.
    fn replied(&self, method: &Method<'_>) -> TokenStream {
        let (ok, to) = (self.prelude("Ok"), method.local("to"));
        let outputs = method.outputs();
        let returned: Vec<_> = outputs.iter().filter(|output| !output.changed).map(|output| &output.name).collect();
        let pattern = match returned.as_slice() {
            [one] => quote!(#one),
            all => quote!((#(#all),*)),
        };
        if outputs.is_empty() {
            return quote!(|(), _| #ok(()));
        }
        let writes = self.encode_in_order(
            outputs.iter().map(|output| {
                let name = &output.name;
                (output.of, quote!(#name))
            }),
            &to,
        );
        if writes.to_string().contains(';') {
            quote!(|#pattern, #to| { #writes })
        } else {
            quote!(|#pattern, #to| #writes)
        }
    }

    /// The delegate: every operation within a wrapper of the user's.
    fn delegate(&self, id: DefinitionId, interface: &IdlInterface) -> TokenStream {
        let (name, delegate) = (self.trait_name(id), ident(&self.names.made(id).delegate));
        let around = self.orb("Around");
        // Interfaces may be called `A` and `T`.
        let generic = |name| ident(&self.names.unused(name));
        let (inner, wrap, output, error) = (generic("T"), generic("A"), generic("R"), generic("E"));
        let doc = format!(" Runs every operation of a [`{name}`], servant or stub, within an [`{}`].", "Around");
        let lineage = self.lineage(id, interface);
        let traits = lineage.iter().map(|(of, methods)| {
            let methods = methods.iter().map(|method| {
                let (signature, operation) = (method.signature(self), method.operation(self));
                let called = self.called(id, &quote!(self.inner), &quote!(&self.inner), method);
                quote!(#signature { self.invoke(&#operation, || #called) })
            });
            quote!(impl<#inner: #name, #wrap: #around> #of for #delegate<#inner, #wrap> { #(#methods)* })
        });
        let invoke = lineage.iter().any(|(_, methods)| !methods.is_empty()).then(|| {
            let (operation, invoked) = (self.orb("StubOperation"), self.orb("Invoked"));
            let (remote, raises) = (self.orb("Interface"), self.orb("Raises"));
            let (once, result) = (self.prelude("FnOnce"), self.prelude("Result"));
            let outcome = quote!(#result<#output, #error>);
            quote! {
                impl<#inner: #name, #wrap: #around> #delegate<#inner, #wrap> {
                    fn invoke<#output, #error: #raises>(&self, operation: &#operation, run: impl #once() -> #outcome) -> #outcome {
                        self.around.invoke(&#invoked { interface: <dyn #name as #remote>::ID, operation }, run)
                    }
                }
            }
        });
        quote! {
            #[doc = #doc]
            #[derive(Clone, Debug)]
            pub struct #delegate<#inner, #wrap> { inner: #inner, around: #wrap }
            impl<#inner, #wrap> #delegate<#inner, #wrap> {
                /// Around all operations of `inner`.
                pub fn new(inner: #inner, around: #wrap) -> Self { #delegate { inner, around } }
            }
            #invoke
            #(#traits)*
        }
    }
}
