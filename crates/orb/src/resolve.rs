//! From what people write to a reference.

use std::sync::Arc;

use hyoshi_wire::giop::{ReplyStatus, Response};
use hyoshi_wire::ior::{Corbaloc, CorbalocAddress, Ior, NameComponent, Reference};
use hyoshi_wire::{Decode, Encode, Encoder, SystemException, SystemKind};

use crate::client::{RemoteObject, Request, invoke};
use crate::minor;
use crate::shared::Shared;

/// How often an initial reference may lead to another.
const DEEP: u32 = 4;
/// Where omniORB looks, too: `NameService=corbaloc::host/NameService`, several with white space between.
const VARIABLE: &str = "ORBInitRef";
/// The naming service, as an initial reference.
const NAME_SERVICE: &str = "NameService";
/// A naming service raises it if the name leads through a context that does not answer.
const CANNOT_PROCEED: &str = "IDL:omg.org/CosNaming/NamingContext/CannotProceed:1.0";

/// Reads `IOR:`, `corbaloc:`, `corbaname:` (the naming service is asked), and files that hold one of them.
pub(crate) fn resolve(orb: &Arc<Shared>, text: &str) -> Result<Ior, SystemException> {
    look(orb, text, DEEP)
}

fn look(orb: &Arc<Shared>, text: &str, deep: u32) -> Result<Ior, SystemException> {
    let held;
    let text = match text.trim().strip_prefix("file:") {
        Some(path) => {
            let path = path.strip_prefix("//").unwrap_or(path);
            held = std::fs::read_to_string(path).map_err(|_| bad())?;
            held.trim()
        }
        None => text.trim(),
    };
    match text.parse::<Reference>().map_err(|_| bad())? {
        Reference::Ior(ior) => Ok(ior),
        Reference::Corbaloc(corbaloc) => of(orb, &corbaloc, deep),
        Reference::Corbaname(corbaname) => {
            let context = of(orb, &corbaname.context, deep)?;
            if corbaname.name.is_empty() {
                return Ok(context);
            }
            resolve_name(orb, context, &corbaname.name)
        }
    }
}

/// Calls `resolve` of a naming context. Its stub is in a crate above this one.
fn resolve_name(orb: &Arc<Shared>, context: Ior, name: &[NameComponent]) -> Result<Ior, SystemException> {
    let arguments = |to: &mut Encoder| {
        (name.len() as u32).encode(to)?;
        name.iter().try_for_each(|step| step.id.encode(to).and_then(|()| step.kind.encode(to)))
    };
    let request = Request { operation: "resolve", response: Response::Target, put_off: false, arguments: &arguments };
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

/// What the ORB was told under a name: by its builder, else by the environment.
fn initial(orb: &Arc<Shared>, name: &[u8], deep: u32) -> Result<Ior, SystemException> {
    let none = || SystemKind::InvObjref.not_done(minor::NO_INITIAL);
    let name = std::str::from_utf8(name).map_err(|_| none())?;
    // CORBA 3.3 part 2, 7.6.10.3: rir alone means the naming service.
    let name = if name.is_empty() { NAME_SERVICE } else { name };
    let environment;
    let told = match orb.initial.iter().rev().find(|(known, _)| known == name) {
        Some((_, told)) => told,
        None => {
            environment = hyoshi_os::secure_var(VARIABLE).unwrap_or_default();
            in_text(&environment, name).ok_or_else(none)?
        }
    };
    look(orb, told, deep.checked_sub(1).ok_or_else(none)?)
}

fn in_text<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_whitespace().find_map(|told| told.split_once('=').filter(|(known, _)| *known == name)).map(|(_, to)| to)
}

fn bad() -> SystemException {
    SystemKind::InvObjref.not_done(minor::NOT_RESOLVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_tells_several_initial_references() {
        let text = "NameService=corbaloc::a/NameService  Events=IOR:00=";
        assert_eq!(in_text(text, "NameService"), Some("corbaloc::a/NameService"));
        assert_eq!(in_text(text, "Events"), Some("IOR:00="));
        assert_eq!(in_text(text, "Other"), None);
    }
}
