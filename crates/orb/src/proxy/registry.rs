//! The open connections of clients, in bounded number.

use std::collections::HashMap;
use std::sync::Arc;

use hyoshi_os::PiMutex;

use crate::server::ClientSource;
use crate::stream::MaybeTlsStream;

/// See the module.
#[derive(Debug)]
pub(super) struct Registry {
    most: usize,
    open: PiMutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    /// The oldest first.
    connections: Vec<(u64, ClientSource, Arc<MaybeTlsStream>)>,
    next: u64,
    ended: bool,
}

/// The place of a connection.
pub(super) struct ConnectionPlace {
    pub(super) number: u64,
    /// The connection that was closed for it.
    pub(super) displaced: Option<Arc<MaybeTlsStream>>,
}

impl Registry {
    pub(super) fn new(most: usize) -> Self {
        Registry { most: most.max(1), open: PiMutex::default() }
    }

    /// Adds a connection. If there are too many, the newest of the client with the most loses its place; `None` if this
    /// is the client.
    pub(super) fn add(&self, link: &Arc<MaybeTlsStream>) -> Option<ConnectionPlace> {
        let source = ClientSource::of(link);
        let mut open = self.open.lock();
        if open.ended {
            return None;
        }
        let mut displaced = None;
        if open.connections.len() >= self.most {
            let mut counts: HashMap<ClientSource, usize> = HashMap::new();
            open.connections.iter().for_each(|(_, source, _)| *counts.entry(*source).or_default() += 1);
            let own = counts.get(&source).copied().unwrap_or(0);
            let (worst, most) = counts.into_iter().max_by_key(|(source, count)| (*count, *source))?;
            if own + 1 >= most {
                return None;
            }
            let at = open.connections.iter().rposition(|(_, source, _)| *source == worst)?;
            displaced = Some(open.connections.remove(at).2);
        }
        let number = open.next;
        open.next += 1;
        open.connections.push((number, source, link.clone()));
        Some(ConnectionPlace { number, displaced })
    }

    pub(super) fn remove(&self, number: u64) {
        self.open.lock().connections.retain(|(one, ..)| *one != number);
    }

    pub(super) fn open(&self) -> usize {
        self.open.lock().connections.len()
    }

    /// Closes all, and lets none in.
    pub(super) fn end(&self) {
        let mut open = self.open.lock();
        open.ended = true;
        open.connections.iter().for_each(|(.., link)| link.close());
    }
}
