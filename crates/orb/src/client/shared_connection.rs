//! A place for one shared connection. One caller connects without the lock; the others wait, each up to its own
//! deadline.
//!
//! ```text
//!           get                  connected
//!   None ───────► Connecting ───────────────► Open
//!    ▲                │ refused                │ it ended, or was unused     
//!    └────────────────┴────────────────────────┘        end, from each: Ended
//! ```

use std::sync::Arc;

use hyoshi_os::PiMutex;

use super::dial::Patience;
use super::mux::Mux;
use crate::failure::CallFailure;
use crate::promise::Promise;

/// See the module.
#[derive(Debug)]
pub(super) struct SharedConnection(PiMutex<ConnectionState>);

#[derive(Debug)]
enum ConnectionState {
    None,
    Connecting(Arc<Promise<Result<Arc<Mux>, CallFailure>>>),
    Open(Arc<Mux>),
    Ended,
}

impl SharedConnection {
    pub(super) fn new() -> Self {
        SharedConnection(PiMutex::new(ConnectionState::None))
    }

    /// The connection, made by `connect` if there is none.
    pub(super) fn get(
        &self,
        patience: &Patience,
        connect: impl FnOnce() -> Result<Arc<Mux>, CallFailure>,
    ) -> Result<Arc<Mux>, CallFailure> {
        loop {
            let mut state = self.0.lock();
            let promise = match &*state {
                ConnectionState::Open(mux) if mux.is_alive() => return Ok(mux.clone()),
                ConnectionState::Connecting(promise) => promise.clone(),
                ConnectionState::Ended => return Err(CallFailure::ShutDown),
                ConnectionState::None | ConnectionState::Open(_) => {
                    let promise = Arc::new(Promise::new());
                    *state = ConnectionState::Connecting(promise.clone());
                    drop(state);
                    let outcome = self.connected(connect());
                    promise.keep(outcome.clone());
                    return outcome;
                }
            };
            drop(state);
            match promise.wait(patience.until) {
                // The caller that connected had less time than is left here.
                Some(Err(CallFailure::ConnectTimedOut)) if patience.left().is_ok() => {}
                Some(outcome) => return outcome.clone(),
                None => return Err(CallFailure::ConnectTimedOut),
            }
        }
    }

    fn connected(&self, outcome: Result<Arc<Mux>, CallFailure>) -> Result<Arc<Mux>, CallFailure> {
        let mut state = self.0.lock();
        match (&outcome, &*state) {
            (Ok(mux), ConnectionState::Ended) => {
                mux.close();
                return Err(CallFailure::ShutDown);
            }
            (Ok(mux), _) => *state = ConnectionState::Open(mux.clone()),
            (Err(_), ConnectionState::Ended) => {}
            (Err(_), _) => *state = ConnectionState::None,
        }
        outcome
    }

    /// The existing connection.
    pub(super) fn open(&self) -> Option<Arc<Mux>> {
        match &*self.0.lock() {
            ConnectionState::Open(mux) => Some(mux.clone()),
            _ => None,
        }
    }

    /// Closes it if it has ended or was not used for long. Returns whether there is one.
    pub(super) fn retire(&self, now: u64) -> bool {
        let mut state = self.0.lock();
        if let ConnectionState::Open(mux) = &*state
            && (!mux.is_alive() || mux.retire(now))
        {
            mux.close();
            *state = ConnectionState::None;
        }
        matches!(*state, ConnectionState::Open(_) | ConnectionState::Connecting(_))
    }

    /// Closes it for good.
    pub(super) fn end(&self) {
        let state = std::mem::replace(&mut *self.0.lock(), ConnectionState::Ended);
        if let ConnectionState::Open(mux) = state {
            // Another call may have delayed a oneway just now.
            mux.try_flush();
            mux.end();
        }
    }
}
