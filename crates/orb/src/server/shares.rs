//! What each client holds of the places that all clients of a lane share.

use std::collections::HashMap;

use super::source::ClientSource;

/// Requests, and the octets of their messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) requests: usize,
    pub(super) octets: usize,
}

/// The most of some places that a client may hold which holds `own` of them while `free` are free: half of what other
/// clients leave, rounded up. So each further client finds free places, and the share shrinks the more clients use
/// theirs (dynamic thresholds: Choudhury and Hahne, 1998).
pub(crate) const fn share(own: usize, free: usize) -> usize {
    own.saturating_add(free).div_ceil(2)
}

/// By client. Connections that this ORB opened count as those of one client.
#[derive(Debug)]
pub(super) struct ClientShares(HashMap<Option<ClientSource>, Held>);

impl ClientShares {
    /// For so many requests.
    pub(super) fn new(requests: usize) -> Self {
        ClientShares(HashMap::with_capacity(requests))
    }

    /// Whether a client's [`share`] has room for another request of so many octets, while other clients are connected.
    pub(super) fn has_room(&self, client: Option<ClientSource>, free: Held, octets: usize) -> bool {
        let own = self.0.get(&client).copied().unwrap_or_default();
        own.requests < share(own.requests, free.requests)
            && own.octets.saturating_add(octets) <= share(own.octets, free.octets)
    }

    pub(super) fn add(&mut self, client: Option<ClientSource>, octets: usize) {
        let own = self.0.entry(client).or_default();
        own.requests += 1;
        own.octets += octets;
    }

    pub(super) fn remove(&mut self, client: Option<ClientSource>, octets: usize) {
        if let Some(own) = self.0.get_mut(&client) {
            own.requests -= 1;
            own.octets -= octets;
            if own.requests == 0 {
                self.0.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn greedy_clients_hold_equally_much_and_leave_as_much_free(clients in 1u32..20, places in 1usize..200) {
            let mut shares = ClientShares::new(places);
            let mut free = places;
            let mut held = vec![0; clients as usize];
            loop {
                let before = free;
                for user in 0..clients {
                    let client = Some(ClientSource::User(user));
                    if shares.has_room(client, Held { requests: free, octets: usize::MAX }, 0) {
                        shares.add(client, 0);
                        held[user as usize] += 1;
                        free -= 1;
                    }
                }
                if free == before {
                    break;
                }
            }
            let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
            prop_assert!(most - least <= 1 && free <= *most, "{held:?} and {free} free");
            prop_assert!(free + 1 >= *least, "{held:?} and {free} free");
            let all = held.iter().enumerate().flat_map(|(user, held)| vec![user as u32; *held]);
            all.for_each(|user| shares.remove(Some(ClientSource::User(user)), 0));
            prop_assert!(shares.0.is_empty());
        }
    }
}
