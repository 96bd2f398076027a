//! A lane without threads: its owner reads its connections.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyoshi_os::Ready;

use super::connections::FIRST;
use super::{Alive, Lane};
use crate::channel::ReadBudget;

/// Sources that are asked for at once.
const AT_ONCE: usize = 16;

/// A lane with [`LaneOptions::threads`](crate::LaneOptions::threads) of 0, from [`Orb::owned_lane`](crate::Orb::owned_lane).
/// Its descriptor is readable while [`turn`](Self::turn) has something to do.
#[derive(Clone)]
pub struct OwnedLane {
    lane: Arc<Lane>,
}

/// What [`OwnedLane::turn`] has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneTurn {
    /// The number of messages.
    pub messages: usize,
    /// True if the turn read every message that arrived before it, except on connections that wait for a place.
    pub is_all: bool,
}

impl OwnedLane {
    /// Of a lane whose owner serves it.
    pub(crate) fn of(lane: &Arc<Lane>) -> Option<OwnedLane> {
        lane.worker.is_some().then(|| OwnedLane { lane: lane.clone() })
    }

    /// Accepts connections and reads arrived requests, without waiting. Passes requests that are bound to the order to
    /// it; other requests run on the calling thread. Connections take turns. One call reads at most
    /// [`ServerLimits::turn_messages`](crate::ServerLimits::turn_messages), and about
    /// [`turn_octets`](crate::ServerLimits::turn_octets): the descriptor stays readable if there are more. Does nothing
    /// while another thread is within a turn, or if called within one.
    pub fn turn(&self) -> LaneTurn {
        let lane = &self.lane;
        let Some(worker) = &lane.worker else { return LaneTurn::default() };
        let orb = lane.orb.upgrade().filter(|_| !lane.stopping());
        let Some(orb) = orb else {
            // What is reported once more is not reported again.
            while let Ok(Some(_)) = lane.poller.wait_with_hangup(Some(Duration::ZERO)) {}
            return LaneTurn::default();
        };
        let Some(mut worker) = worker.try_lock() else { return LaneTurn::default() };
        crate::shared::use_orb(&orb);
        lane.turning.store(hyoshi_os::own_thread(), Ordering::Relaxed);
        let alive = Alive::begin(lane);
        let (mut left, mut turn) = (lane.turn, LaneTurn::default());
        // A source used up its share and may have more messages.
        let mut is_rest = false;
        let mut found = [(Ready::Poked, false); AT_ONCE];
        while !left.is_spent() && !lane.stopping() {
            let most = AT_ONCE.min(left.messages);
            let count = lane.poller.wait_for_several(Some(Duration::ZERO), &mut found[..most]).unwrap_or(0);
            for (at, ready) in found[..count].iter().enumerate() {
                // An even share of the rest, at least one: a flood on one connection delays no other.
                let share = left.messages / (count - at);
                worker.left = ReadBudget { messages: share, ..left };
                lane.take_up(&orb, *ready, &mut worker);
                let brought = share - worker.left.messages;
                turn.messages += brought;
                is_rest |= worker.left.is_spent();
                // Reads without a whole message count, too: a turn must end.
                left = ReadBudget { messages: left.messages - brought.max(1), octets: worker.left.octets, ..left };
            }
            // A new connection may have brought requests, and one poke is reported for several connections.
            let is_first = |(ready, _): &(Ready, bool)| !matches!(ready, Ready::Source(source) if *source >= FIRST);
            if count < most && !found[..count].iter().any(is_first) {
                if is_rest {
                    is_rest = false;
                    continue;
                }
                turn.is_all = true;
                break;
            }
        }
        lane.turning.store(0, Ordering::Relaxed);
        drop(alive);
        turn
    }

    /// Waits until [`turn`](Self::turn) has work. False if the time ends first.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.lane.poller.is_ready(timeout).unwrap_or(true)
    }
}

impl AsFd for OwnedLane {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lane.poller.as_fd()
    }
}

impl fmt::Debug for OwnedLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLane").field("name", &self.lane.options.name).finish_non_exhaustive()
    }
}
