//! CosNaming's operations on one context.

use std::sync::Arc;

use hyoshi_orb::{ObjectRef, Raises, current, minor};
use hyoshi_wire::ior::{Corbaname, parse_name};
use hyoshi_wire::{SystemException, SystemKind, ToIor};

use crate::generated::cos_naming::naming_context::{CannotProceed, InvalidName};
use crate::generated::cos_naming::naming_context_ext::InvalidAddress;
use crate::generated::cos_naming::*;
use crate::name;
use crate::service::NamingState;
use crate::tree::{ContextId, NamingRefusal, NamingTree, Referent};

pub(crate) struct ContextServant {
    pub(crate) service: Arc<NamingState>,
    pub(crate) id: ContextId,
}

impl ContextServant {
    /// Asks the naming service that the name leads into.
    fn elsewhere<R, E: Raises + From<CannotProceed> + From<NamingRefusal>>(
        &self,
        refusal: NamingRefusal,
        ask: impl FnOnce(&NamingContextStub, &[NameComponent]) -> Result<R, E>,
    ) -> Result<R, E> {
        let NamingRefusal::Elsewhere(context, rest) = refusal else { return Err(refusal.into()) };
        let context = self.service.elsewhere(context);
        // The lane keeps a thread for other requests, even if many names lead to services that do not answer, or back
        // here.
        let answer = match current::spare_thread() {
            Some(_spared) => ask(&context, &rest),
            None => Err(CannotProceed { cxt: Some(context.clone()), rest_of_name: rest.clone() }.into()),
        };
        // The client can continue there by itself (Naming Service 1.3, 2.2.2).
        answer.map_err(|error| match error.system() {
            Some(_) => CannotProceed { cxt: Some(context), rest_of_name: rest }.into(),
            None => error,
        })
    }

    fn object(obj: Option<&ObjectRef>) -> Result<Referent, SystemException> {
        Ok(Referent::Object(obj.ok_or_else(nil)?.to_ior().clone()))
    }

    fn context(&self, nc: Option<&NamingContextStub>) -> Result<Referent, SystemException> {
        self.service.bound(nc.ok_or_else(nil)?.ior())
    }
}

fn nil() -> SystemException {
    SystemKind::BadParam.not_done(minor::NAMING_NIL)
}

impl NamingContext for ContextServant {
    fn bind(&self, n: &[NameComponent], obj: Option<&ObjectRef>) -> Result<(), BindError> {
        let to = ContextServant::object(obj)?;
        let here = self.service.change(|tree| tree.bind(self.id, n, to));
        here.map(drop).or_else(|refusal| self.elsewhere(refusal, |there, n| there.bind(n, obj)))
    }

    fn rebind(&self, n: &[NameComponent], obj: Option<&ObjectRef>) -> Result<(), RebindError> {
        let to = ContextServant::object(obj)?;
        let here = self.service.change(|tree| tree.rebind(self.id, n, to));
        here.map(drop).or_else(|refusal| self.elsewhere(refusal, |there, n| there.rebind(n, obj)))
    }

    fn bind_context(&self, n: &[NameComponent], nc: Option<&NamingContextStub>) -> Result<(), BindContextError> {
        let to = self.context(nc)?;
        let here = self.service.change(|tree| tree.bind(self.id, n, to));
        here.map(drop).or_else(|refusal| self.elsewhere(refusal, |there, n| there.bind_context(n, nc)))
    }

    fn rebind_context(&self, n: &[NameComponent], nc: Option<&NamingContextStub>) -> Result<(), RebindContextError> {
        let to = self.context(nc)?;
        let here = self.service.change(|tree| tree.rebind(self.id, n, to));
        here.map(drop).or_else(|refusal| self.elsewhere(refusal, |there, n| there.rebind_context(n, nc)))
    }

    fn resolve(&self, n: &[NameComponent]) -> Result<Option<ObjectRef>, ResolveError> {
        match self.service.look(|tree| tree.resolve(self.id, n)) {
            Ok(bound) => Ok(Some(self.service.object(bound)?)),
            Err(refusal) => self.elsewhere(refusal, |there, n| there.resolve(n)),
        }
    }

    fn unbind(&self, n: &[NameComponent]) -> Result<(), UnbindError> {
        let here = self.service.change(|tree| tree.unbind(self.id, n));
        here.map(drop).or_else(|refusal| self.elsewhere(refusal, |there, n| there.unbind(n)))
    }

    fn new_context(&self) -> Result<Option<NamingContextStub>, SystemException> {
        let made = self.service.change(NamingTree::make).map_err(|refusal| refusal.system())?;
        self.service.context(made.context()).map(Some)
    }

    fn bind_new_context(&self, n: &[NameComponent]) -> Result<Option<NamingContextStub>, BindNewContextError> {
        match self.service.change(|tree| tree.bind_new(self.id, n)) {
            Ok([made, _]) => Ok(Some(self.service.context(made.context())?)),
            Err(refusal) => self.elsewhere(refusal, |there, n| there.bind_new_context(n)),
        }
    }

    fn destroy(&self) -> Result<(), DestroyError> {
        Ok(self.service.change(|tree| tree.destroy(self.id)).map(drop)?)
    }

    fn list(&self, how_many: u32) -> Result<(BindingList, Option<BindingIteratorStub>), SystemException> {
        self.service.list(self.id, how_many)
    }
}

impl NamingContextExt for ContextServant {
    fn to_string(&self, n: &[NameComponent]) -> Result<String, ToStringError> {
        if n.is_empty() {
            return Err(InvalidName.into());
        }
        Ok(name::print(n))
    }

    fn to_name(&self, sn: &str) -> Result<Name, ToNameError> {
        read(sn)
    }

    fn to_url(&self, addr: &str, sn: &str) -> Result<String, ToUrlError> {
        let name = parse_name(sn).ok().filter(|name| !name.is_empty()).ok_or(InvalidName)?;
        let place = format!("corbaname:{addr}");
        let Some(place) = place.parse::<Corbaname>().ok().filter(|_| !addr.contains('#')) else {
            return Err(InvalidAddress.into());
        };
        let url = Corbaname { name, ..place }.to_string();
        // The address as given, without its defaults.
        let name = url.split_once('#').map_or("", |(_, name)| name);
        Ok(format!("corbaname:{addr}#{name}"))
    }

    fn resolve_str(&self, sn: &str) -> Result<Option<ObjectRef>, ResolveStrError> {
        Ok(self.resolve(&read::<ResolveStrError>(sn)?)?)
    }
}

fn read<E: From<InvalidName>>(text: &str) -> Result<Name, E> {
    name::parse(text).ok().filter(|name| !name.is_empty()).ok_or_else(|| InvalidName.into())
}
