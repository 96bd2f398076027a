//! A context of the service, as one request sees it: CosNaming's operations.

use std::sync::Arc;

use hyoshi_orb::{ObjectRef, Raises, current, minor};
use hyoshi_wire::ior::{Corbaname, parse_name};
use hyoshi_wire::{SystemException, SystemKind, ToIor};

use crate::generated::cos_naming::naming_context::{CannotProceed, InvalidName};
use crate::generated::cos_naming::naming_context_ext::InvalidAddress;
use crate::generated::cos_naming::*;
use crate::name;
use crate::refused::beyond;
use crate::service::Service;
use crate::tree::{Bound, Change, ContextId, Refusal, Tree};

pub(crate) struct Context {
    pub(crate) service: Arc<Service>,
    pub(crate) id: ContextId,
}

impl Context {
    /// Changes something here, or asks the naming service that the name leads into.
    fn change<C: AsRef<[Change]>, R, E: Raises + From<CannotProceed> + From<Refusal>>(
        &self,
        name: &[NameComponent],
        decide: impl FnOnce(&Tree, &[NameComponent]) -> Result<C, Refusal>,
        done: impl FnOnce(C) -> Result<R, E>,
        there: impl FnOnce(&NamingContextStub, &[NameComponent]) -> Result<R, E>,
    ) -> Result<R, E> {
        match self.service.change(|tree| decide(tree, name)) {
            Ok(changed) => done(changed),
            Err(refusal) => self.refused(refusal, there),
        }
    }

    fn refused<R, E: Raises + From<CannotProceed> + From<Refusal>>(
        &self,
        refusal: Refusal,
        there: impl FnOnce(&NamingContextStub, &[NameComponent]) -> Result<R, E>,
    ) -> Result<R, E> {
        let Refusal::Elsewhere { context, rest } = refusal else { return Err(refusal.into()) };
        let context = self.service.elsewhere(context);
        // The lane keeps a thread for other requests: even if many names lead to services that do not answer, or back
        // here, other names are resolved. The client can continue there by itself (Naming Service 1.3, 2.2.2).
        let Some(_spared) = current::spare_thread() else {
            return Err(CannotProceed { cxt: Some(context), rest_of_name: rest }.into());
        };
        there(&context, &rest).map_err(|error| beyond(error, context, rest))
    }

    fn object(obj: Option<&ObjectRef>) -> Result<Bound, SystemException> {
        Ok(Bound::Object(obj.ok_or_else(nil)?.to_ior().clone()))
    }

    fn context(&self, nc: Option<&NamingContextStub>) -> Result<Bound, SystemException> {
        self.service.bound(nc.ok_or_else(nil)?.ior())
    }
}

fn nil() -> SystemException {
    SystemKind::BadParam.not_done(minor::NAMING_NIL)
}

impl NamingContext for Context {
    fn bind(&self, n: &[NameComponent], obj: Option<&ObjectRef>) -> Result<(), BindError> {
        let to = Context::object(obj)?;
        self.change(n, |tree, n| Ok([tree.bind(self.id, n, to)?]), |_| Ok(()), |there, n| there.bind(n, obj))
    }

    fn rebind(&self, n: &[NameComponent], obj: Option<&ObjectRef>) -> Result<(), RebindError> {
        let to = Context::object(obj)?;
        self.change(n, |tree, n| Ok([tree.rebind(self.id, n, to)?]), |_| Ok(()), |there, n| there.rebind(n, obj))
    }

    fn bind_context(&self, n: &[NameComponent], nc: Option<&NamingContextStub>) -> Result<(), BindContextError> {
        let to = self.context(nc)?;
        let there = |there: &NamingContextStub, n: &[NameComponent]| there.bind_context(n, nc);
        self.change(n, |tree, n| Ok([tree.bind(self.id, n, to)?]), |_| Ok(()), there)
    }

    fn rebind_context(&self, n: &[NameComponent], nc: Option<&NamingContextStub>) -> Result<(), RebindContextError> {
        let to = self.context(nc)?;
        let there = |there: &NamingContextStub, n: &[NameComponent]| there.rebind_context(n, nc);
        self.change(n, |tree, n| Ok([tree.rebind(self.id, n, to)?]), |_| Ok(()), there)
    }

    fn resolve(&self, n: &[NameComponent]) -> Result<Option<ObjectRef>, ResolveError> {
        match self.service.look(|tree| tree.resolve(self.id, n)) {
            Ok(bound) => Ok(Some(self.service.object(bound)?)),
            Err(refusal) => self.refused(refusal, |there, n| there.resolve(n)),
        }
    }

    fn unbind(&self, n: &[NameComponent]) -> Result<(), UnbindError> {
        self.change(n, |tree, n| Ok([tree.unbind(self.id, n)?]), |_| Ok(()), |there, n| there.unbind(n))
    }

    fn new_context(&self) -> Result<Option<NamingContextStub>, SystemException> {
        match self.service.change(|tree| Ok([tree.make()?])) {
            Ok([Change::Make { context }]) => Ok(Some(self.service.context(context)?)),
            Ok(_) => Err(SystemKind::Internal.maybe_done(minor::NO_REPLY)),
            Err(refusal) => Err(refusal.system()),
        }
    }

    fn bind_new_context(&self, n: &[NameComponent]) -> Result<Option<NamingContextStub>, BindNewContextError> {
        let made = |changes: [Change; 2]| match changes {
            [Change::Make { context }, _] => Ok(Some(self.service.context(context)?)),
            _ => Err(SystemKind::Internal.maybe_done(minor::NO_REPLY).into()),
        };
        self.change(n, |tree, n| tree.bind_new(self.id, n), made, |there, n| there.bind_new_context(n))
    }

    fn destroy(&self) -> Result<(), DestroyError> {
        self.service.change(|tree| Ok([tree.destroy(self.id)?]))?;
        Ok(())
    }

    fn list(&self, how_many: u32) -> Result<(BindingList, Option<BindingIteratorStub>), SystemException> {
        self.service.list(self.id, how_many)
    }
}

impl NamingContextExt for Context {
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
        // The address as it was given: its defaults need not be spelled out.
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
