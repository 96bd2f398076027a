//! The priority at which a request runs (Real-time CORBA 1.2, section 5.7): that of its client, within the client's
//! ceiling, or that of its object.

use hyoshi_wire::giop::{CONTEXT_RT_PRIORITY, Context, Request, ServiceContext};
use hyoshi_wire::{SystemException, SystemKind};

use crate::call::Call;
use crate::key::ObjectKey;
use crate::objects::{Elsewhere, Servant};
use crate::rt::current::{self as rt_current, AtPriority};
use crate::rt::{AdapterRt, Priority, PriorityModel};
use crate::shared::Shared;
use crate::{current, minor};

/// The calling thread runs a request at its priority until the returned value is dropped. `None` if the adapter sets none:
/// then that of the lane holds. A request that arrived on a lane of another pool is forwarded to the right one.
pub(super) fn begin<'a>(
    orb: &Shared,
    rt: &AdapterRt,
    key: &[u8],
    servant: &Servant,
    request: &Request<'a>,
    call: &mut Call<'a>,
) -> Result<Option<AtPriority>, Elsewhere> {
    let id = ObjectKey::parse(key).map_or(&[][..], |key| key.id);
    if is_elsewhere(rt) && request.response.expected() {
        return Err(Elsewhere::Forward(Box::new(orb.reference(servant.interface(), key, Some(rt), id))));
    }
    let priority = match rt.model {
        None => return Ok(None),
        Some(PriorityModel::ServerDeclared { priority }) => rt.declared(id).unwrap_or(priority),
        Some(PriorityModel::ClientPropagated { default }) => {
            let sent = request.contexts.get(CONTEXT_RT_PRIORITY);
            let claimed = sent.map(read).transpose()?;
            sent.inspect(|data| call.echo_priority(data));
            let ceilings = orb.rt.ceilings.as_ref();
            let ceiling = ceilings.and_then(|all| current::with_connection(|by| by.and_then(|by| by.ceiling(all))));
            orb.rt.within_ceiling(claimed.unwrap_or(default), default, ceiling, rt.pool.as_deref())?
        }
    };
    let priority = orb.rt.inbound(priority, id)?;
    Ok(Some(rt_current::run_at(priority, orb.rt.native(priority)?)))
}

/// Whether a lane of another pool than the adapter's reads the connection. Calls back over a connection that the client
/// opened cannot choose another lane.
fn is_elsewhere(rt: &AdapterRt) -> bool {
    let Some(pool) = &rt.pool else { return false };
    current::with_connection(|connection| {
        let other = |lane: Option<crate::rt::PoolLane>| lane.is_none_or(|lane| lane.pool != pool.id);
        connection.is_some_and(|connection| !connection.is_both_ways() && other(connection.pool_lane()))
    })
}

fn read(data: &[u8]) -> Result<Priority, SystemException> {
    match Context::decode(ServiceContext { tag: CONTEXT_RT_PRIORITY, data })? {
        Context::Priority(number) => Priority::new(number),
        _ => None,
    }
    .ok_or(SystemKind::DataConversion.not_done(minor::RT_UNMAPPED))
}
