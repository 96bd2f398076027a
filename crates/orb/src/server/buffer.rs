//! Requests that wait in memory for a thread of their lane (`allow_request_buffering` of Real-time CORBA, section
//! 5.11.2), within two limits.
//!
//! ```text
//!            read by the lane's reader          a worker is idle, or ends its request
//!   socket ─────────────────────────► buffer ─────────────────────────────────────────► run, reply
//!                                       │ beyond a limit, or the client's share of it
//!                                       └──────────────► TRANSIENT
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::Arc;

use hyoshi_os::{PiMutex, SpawnedThread, Wake};
use hyoshi_wire::SystemKind;

use super::shares::{ClientShares, Held};
use super::{Home, LaneOptions, Order, OrderedRequest};
use crate::minor;
use crate::rt::current::settle;

/// The most requests that a buffer has room for; connections are not read beyond that.
pub(crate) const MOST_BUFFERED: usize = 1 << 16;

/// A place for a request always keeps so many octets.
const LEAST_KEPT: usize = 1 << 10;

/// The most requests that wait for a thread in each lane of a pool. While several clients are connected to the lane, each
/// has at most as much as remains free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBuffer {
    /// Requests (`max_buffered_requests`). With 0, a request that finds no idle thread is refused.
    pub requests: usize,
    /// Octets of their messages together (`max_request_buffer_size`). An idle lane keeps at most twice as much memory for
    /// later requests and their replies, and at least 2 KiB for each request.
    pub octets: usize,
}

/// The buffer of a lane, and its workers.
pub(crate) struct Buffer {
    limits: RequestBuffer,
    state: PiMutex<BufferState>,
    work: Wake,
    workers: PiMutex<Vec<SpawnedThread<()>>>,
}

struct BufferState {
    requests: VecDeque<OrderedRequest>,
    octets: usize,
    /// What each client has of them.
    shares: ClientShares,
    /// Workers that wait for a request.
    idle: usize,
    ended: bool,
}

impl Buffer {
    /// Starts a worker for each thread of the options.
    pub(crate) fn start(limits: RequestBuffer, options: &LaneOptions, home: Home) -> io::Result<Arc<Buffer>> {
        let state = BufferState {
            requests: VecDeque::new(),
            octets: 0,
            shares: ClientShares::new(limits.requests.min(MOST_BUFFERED)),
            idle: 0,
            ended: false,
        };
        let buffer = Buffer { limits, state: PiMutex::new(state), work: Wake::new(), workers: PiMutex::default() };
        let buffer = Arc::new(buffer);
        for number in 0..options.threads {
            let own = buffer.clone();
            let worker = options.spawn(&format!("w{number}")).spawn(move || own.run(home));
            match worker {
                Ok(worker) => buffer.workers.lock().push(worker),
                Err(error) => {
                    buffer.end();
                    return Err(error);
                }
            }
        }
        Ok(buffer)
    }

    /// The octets that a place keeps for the next request.
    pub(super) fn keep(&self) -> usize {
        (self.limits.octets / self.limits.requests.clamp(1, MOST_BUFFERED)).max(LEAST_KEPT)
    }

    fn run(&self, home: Home) {
        settle(Some(home));
        let mut state = self.state.lock();
        loop {
            if let Some(request) = state.requests.pop_front() {
                let octets = request.octets();
                state.octets -= octets;
                state.shares.remove(request.source(), octets);
                // A post lets one worker through.
                let more = !state.requests.is_empty() && state.idle > 0;
                drop(state);
                if more {
                    self.work.post();
                }
                request.run();
                state = self.state.lock();
                continue;
            }
            if state.ended {
                drop(state);
                return self.work.post();
            }
            state.idle += 1;
            drop(state);
            self.work.wait();
            // It has its request before the lock is free again: no request finds it neither idle nor busy.
            state = self.state.lock();
            state.idle -= 1;
        }
    }

    /// Drops requests that wait, and ends the workers. Does not wait for those that still run a request, nor for the
    /// calling thread.
    pub(crate) fn end(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.ended = true;
            state.octets = 0;
            state.shares = ClientShares::new(0);
            std::mem::take(&mut state.requests)
        };
        drop(dropped);
        self.work.post();
        let own = hyoshi_os::own_thread();
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in workers.into_iter().filter(|worker| worker.handle.tid() != own && worker.is_finished()) {
            let _ = worker.join();
        }
    }
}

/// All requests of the lane are bound to it.
impl Order for Buffer {
    fn arrived(&self, _: u32, request: OrderedRequest) {
        let octets = request.octets();
        let mut state = self.state.lock();
        // Those that idle workers are about to run do not wait.
        let (waiting, is_free) = (state.requests.len(), state.requests.len() < state.idle);
        let requests = state.idle.saturating_add(self.limits.requests).saturating_sub(waiting);
        let free = Held { requests, octets: self.limits.octets.saturating_sub(state.octets) };
        let fits = free.requests > 0 && octets <= free.octets;
        let in_share = || !request.is_shared() || state.shares.has_room(request.source(), free, octets);
        if state.ended || !(is_free || fits && in_share()) {
            drop(state);
            return request.refuse(SystemKind::Transient.not_done(minor::RT_BUFFER));
        }
        state.octets += octets;
        state.shares.add(request.source(), octets);
        state.requests.push_back(request);
        drop(state);
        self.work.post();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("limits", &self.limits).finish_non_exhaustive()
    }
}
