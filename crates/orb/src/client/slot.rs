//! A place for one shared connection. One caller connects without the lock; the others wait, each up to its own
//! deadline.
//!
//! ```text
//!           get                  connected
//!   None ───────► Connecting ───────────────► Open
//!    ▲                │ refused                │ it ended, or nobody used it
//!    └────────────────┴────────────────────────┘        end, from each: Ended
//! ```

use std::sync::Arc;

use hyoshi_os::PiMutex;

use super::dial::Patience;
use super::mux::Mux;
use crate::failure::Failure;
use crate::promise::Promise;

/// See the module.
#[derive(Debug)]
pub(super) struct Slot(PiMutex<State>);

#[derive(Debug)]
enum State {
    None,
    Connecting(Arc<Promise<Result<Arc<Mux>, Failure>>>),
    Open(Arc<Mux>),
    Ended,
}

impl Slot {
    pub(super) fn new() -> Self {
        Slot(PiMutex::new(State::None))
    }

    /// The connection, made by `connect` if there is none.
    pub(super) fn get(
        &self,
        patience: &Patience,
        connect: impl FnOnce() -> Result<Arc<Mux>, Failure>,
    ) -> Result<Arc<Mux>, Failure> {
        loop {
            let mut state = self.0.lock();
            let promise = match &*state {
                State::Open(mux) if mux.is_alive() => return Ok(mux.clone()),
                State::Connecting(promise) => promise.clone(),
                State::Ended => return Err(Failure::ShutDown),
                State::None | State::Open(_) => {
                    let promise = Arc::new(Promise::new());
                    *state = State::Connecting(promise.clone());
                    drop(state);
                    let outcome = self.connected(connect());
                    promise.keep(outcome.clone());
                    return outcome;
                }
            };
            drop(state);
            match promise.wait(patience.until) {
                // The caller that connected had less time than is left here.
                Some(Err(Failure::ConnectTimedOut)) if patience.left().is_ok() => {}
                Some(outcome) => return outcome,
                None => return Err(Failure::ConnectTimedOut),
            }
        }
    }

    fn connected(&self, outcome: Result<Arc<Mux>, Failure>) -> Result<Arc<Mux>, Failure> {
        let mut state = self.0.lock();
        match (&outcome, &*state) {
            (Ok(mux), State::Ended) => {
                mux.close();
                return Err(Failure::ShutDown);
            }
            (Ok(mux), _) => *state = State::Open(mux.clone()),
            (Err(_), State::Ended) => {}
            (Err(_), _) => *state = State::None,
        }
        outcome
    }

    /// The existing connection.
    pub(super) fn open(&self) -> Option<Arc<Mux>> {
        match &*self.0.lock() {
            State::Open(mux) => Some(mux.clone()),
            _ => None,
        }
    }

    /// Closes it if it has ended or was not used for long. Returns whether there is one.
    pub(super) fn retire(&self, now: u64) -> bool {
        let mut state = self.0.lock();
        if let State::Open(mux) = &*state
            && (!mux.is_alive() || mux.retire(now))
        {
            mux.close();
            *state = State::None;
        }
        matches!(*state, State::Open(_) | State::Connecting(_))
    }

    /// Closes it for good.
    pub(super) fn end(&self) {
        let state = std::mem::replace(&mut *self.0.lock(), State::Ended);
        if let State::Open(mux) = state {
            // Another call may have delayed a oneway just now.
            mux.try_flush();
            mux.end();
        }
    }
}
