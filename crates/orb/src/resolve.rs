//! References from text.

use std::borrow::Cow;
use std::sync::Arc;

use hyoshi_wire::giop::{ReplyStatus, Response};
use hyoshi_wire::ior::{Corbaloc, CorbalocAddress, Ior, NameComponent, ObjectUrl};
use hyoshi_wire::{Decode, Encode, Encoder, SystemException, SystemKind};

use crate::invocation::{CallerPriority, Invocation, RemoteObject, invoke};
use crate::minor;
use crate::rt;
use crate::shared::Shared;

/// The length of a chain of initial references.
const DEEP: u32 = 4;
/// The variable of initial references, as in omniORB: `NameService=corbaloc::host/NameService`, separated by white space.
const VARIABLE: &str = "ORBInitRef";
/// The exception of a name that leads through a context which does not answer.
const CANNOT_PROCEED: &str = "IDL:omg.org/CosNaming/NamingContext/CannotProceed:1.0";

/// Reads `IOR:`, `corbaloc:`, `corbaname:` (by the naming service), and `file:` with one of them.
pub(crate) fn resolve(orb: &Arc<Shared>, text: &str) -> Result<Ior, SystemException> {
    resolve_within(orb, text, DEEP)
}

fn resolve_within(orb: &Arc<Shared>, text: &str, deep: u32) -> Result<Ior, SystemException> {
    let text = match text.trim().strip_prefix("file:") {
        Some(path) => std::fs::read_to_string(path.strip_prefix("//").unwrap_or(path)).map_err(|_| bad())?.into(),
        None => Cow::from(text),
    };
    match text.trim().parse::<ObjectUrl>().map_err(|_| bad())? {
        ObjectUrl::Ior(ior) => Ok(ior),
        ObjectUrl::Corbaloc(corbaloc) => of(orb, &corbaloc, deep),
        ObjectUrl::Corbaname(corbaname) => {
            let context = of(orb, &corbaname.context, deep)?;
            if corbaname.name.is_empty() {
                return Ok(context);
            }
            resolve_name(orb, context, &corbaname.name)
        }
    }
}

/// Calls `resolve` of a naming context, whose stub is in a higher crate.
fn resolve_name(orb: &Arc<Shared>, context: Ior, name: &[NameComponent]) -> Result<Ior, SystemException> {
    let arguments = |to: &mut Encoder| {
        (name.len() as u32).encode(to)?;
        name.iter().try_for_each(|step| step.id.encode(to).and_then(|()| step.kind.encode(to)))
    };
    let request = Invocation {
        operation: "resolve",
        response: Response::Target,
        put_off: false,
        arguments: &arguments,
        policies: rt::current::policies().map(Cow::Owned),
        caller: CallerPriority::OfThread,
    };
    let mut found = Err(minor::NAME_UNBOUND);
    let object = RemoteObject::new(Arc::downgrade(orb), context);
    invoke(&object.orb()?, &object, &orb.timeouts, &request, &mut |mut reply| {
        let unreadable = |_| SystemKind::Marshal.done(minor::RESULTS);
        if reply.status == ReplyStatus::NoException {
            found = Ok(reply.body.whole(Ior::decode).map_err(unreadable)?);
        } else if String::decode(&mut reply.body).map_err(unreadable)? == CANNOT_PROCEED {
            found = Err(minor::NAME_WAY);
        }
        Ok(())
    })?;
    let found = found.and_then(|ior| if ior.is_nil() { Err(minor::NAME_UNBOUND) } else { Ok(ior) });
    found.map_err(|minor| SystemKind::InvObjref.not_done(minor))
}

fn of(orb: &Arc<Shared>, corbaloc: &Corbaloc, deep: u32) -> Result<Ior, SystemException> {
    if corbaloc.addresses.contains(&CorbalocAddress::Rir) {
        return initial(orb, &corbaloc.key, deep);
    }
    corbaloc.ior("").map_err(|_| bad())?.ok_or_else(bad)
}

/// An initial reference of the ORB's builder, or else of the environment.
fn initial(orb: &Arc<Shared>, name: &[u8], deep: u32) -> Result<Ior, SystemException> {
    let none = || SystemKind::InvObjref.not_done(minor::NO_INITIAL);
    let name = std::str::from_utf8(name).map_err(|_| none())?;
    // CORBA 3.3 part 2, 7.6.10.3: rir alone is the naming service.
    let name = if name.is_empty() { "NameService" } else { name };
    let environment;
    let text = match orb.initial.iter().rev().find(|(known, _)| known == name) {
        Some((_, text)) => text,
        None => {
            environment = hyoshi_os::secure_var(VARIABLE).unwrap_or_default();
            in_text(&environment, name).ok_or_else(none)?
        }
    };
    resolve_within(orb, text, deep.checked_sub(1).ok_or_else(none)?)
}

fn in_text<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn bad() -> SystemException {
    SystemKind::InvObjref.not_done(minor::NOT_RESOLVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_can_have_several_initial_references() {
        let text = "NameService=corbaloc::a/NameService  Events=IOR:00=";
        assert_eq!(in_text(text, "NameService"), Some("corbaloc::a/NameService"));
        assert_eq!(in_text(text, "Events"), Some("IOR:00="));
        assert_eq!(in_text(text, "Other"), None);
    }
}
