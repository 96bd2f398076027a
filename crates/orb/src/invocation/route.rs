//! How an object can be reached: an endpoint, and how to speak to it.

use std::borrow::Cow;
use std::sync::Arc;

use hyoshi_wire::giop::{CodeSet, Transmission};
use hyoshi_wire::ior::{Component, IiopProfile, Ior, IorEndpoint, Profile, TAG_SSL_SEC_TRANS, multiple_components};
use hyoshi_wire::{CharSet, SystemException, Version};

use crate::client::{ConnectionSettings, Peer};
use crate::minor;
use crate::rt::conflict;
use crate::shared::Shared;
use crate::transport::Transport;

/// One way to an object.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(super) peer: Arc<Peer>,
    pub(super) key: Box<[u8]>,
    pub(super) version: Version,
    /// The code set of narrow characters, and what to announce to the server.
    pub(super) chars: CharSet,
    pub(super) sets: Option<Transmission>,
    /// The reference also has plain addresses, which are not used.
    pub(super) over_tls_alone: bool,
}

impl Route {
    /// The same over a connection where narrow characters are agreed upon already, if so.
    #[inline]
    pub(super) fn over(&self, agreed: Option<CharSet>) -> Cow<'_, Route> {
        match agreed {
            Some(chars) if chars != self.chars => Cow::Owned(Route { chars, ..self.clone() }),
            _ => Cow::Borrowed(self),
        }
    }
}

/// One that leads over a connection which the other side opened.
#[inline]
pub(super) fn back(routes: &[Route]) -> Option<&Route> {
    routes.iter().find(|route| route.peer.has_way_back() && route.version == Version::V1_2)
}

/// All addresses of the reference that this ORB can use, in its order, but Unix sockets first: they are nearer. `lanes`
/// selects addresses by their priority; then those that it selects come first, and those without a priority follow.
/// If there are `protocols`, only addresses of these are used, and their order counts before the others.
///
/// # Errors
///
/// INV_POLICY if the reference has addresses, but none of these protocols.
pub(super) fn routes(
    orb: &Shared,
    ior: &Ior,
    settings: &ConnectionSettings,
    lanes: Option<&dyn Fn(i16) -> bool>,
    protocols: &[Transport],
) -> Result<Vec<Route>, SystemException> {
    let (mut all, mut excluded) = (Vec::new(), false);
    // For the reference, not for each profile: broken handshakes must not lead a client to plain TCP.
    let tls = orb.peers.speak_tls() && offers_tls(ior);
    let over_tls_alone = tls && ior.iiop().flatten().any(|profile| profile.endpoints().iter().any(is_plain));
    for profile in ior.iiop().flatten() {
        let version = profile.version();
        let (sets, chars) = match agreed(&profile) {
            Ok(Some(sets)) if version > Version::V1_0 => {
                let latin1 = sets.narrow == CodeSet::LATIN1;
                (Some(sets), if latin1 { CharSet::Latin1 } else { CharSet::Utf8 })
            }
            // Nothing is agreed upon (CORBA 3.3 part 2, 7.10.2.5).
            Ok(_) => (None, CharSet::Latin1),
            // Code sets that exclude each other: this profile cannot be used.
            Err(_) => continue,
        };
        for endpoint in profile.endpoints() {
            if tls && is_plain(&endpoint) {
                continue;
            }
            let is_lane = match (&endpoint, lanes) {
                (IorEndpoint::Tcp { priority: Some(priority), .. }, Some(selects)) if !selects(*priority) => continue,
                (IorEndpoint::Tcp { priority: Some(_), .. }, Some(_)) => true,
                _ => false,
            };
            let transport = Transport::of(&endpoint);
            let preference = protocols.iter().position(|protocol| *protocol == transport);
            if preference.is_none() && !protocols.is_empty() {
                excluded = true;
                continue;
            }
            if let Some(peer) = orb.peers.at(&endpoint, sets, settings) {
                let route = Route { peer, key: profile.key.into(), version, chars, sets, over_tls_alone };
                all.push(((preference, !is_lane, transport != Transport::Unix), route));
            }
        }
    }
    if all.is_empty() && excluded {
        return Err(conflict(minor::RT_NO_PROTOCOL));
    }
    // Stable: otherwise the reference's order holds.
    all.sort_by_key(|(order, _)| *order);
    Ok(all.into_iter().map(|(_, route)| route).collect())
}

fn is_plain(endpoint: &IorEndpoint) -> bool {
    matches!(endpoint, IorEndpoint::Tcp { .. })
}

/// Whether any of its profiles offers TLS, even in a form that this ORB cannot use.
fn offers_tls(ior: &Ior) -> bool {
    let secure = |endpoint: &IorEndpoint| matches!(endpoint, IorEndpoint::Tls { .. });
    let among = |profile: &Profile| {
        multiple_components(profile).is_ok_and(|mut all| all.any(|component| component.tag == TAG_SSL_SEC_TRANS))
    };
    ior.iiop().flatten().any(|profile| profile.endpoints().iter().any(secure)) || ior.profiles.iter().any(among)
}

/// True if the server's characters are none that this ORB speaks, in one of the reference's profiles.
pub(super) fn incompatible(ior: &Ior) -> bool {
    ior.iiop().flatten().any(|profile| agreed(&profile).is_err())
}

fn agreed(profile: &IiopProfile<'_>) -> Result<Option<Transmission>, SystemException> {
    let offers = profile.components.clone().find_map(|component| match Component::decode(component) {
        Ok(Component::CodeSets(sets)) => Some(sets),
        _ => None,
    });
    offers.map(|offers| Transmission::choose(&offers)).transpose()
}
