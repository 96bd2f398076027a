//! A recording through the dispatcher: its decisions compared, who was in the way of each job, windows to draw, tracks for
//! Perfetto.
//!
//! A recording holds a dispatcher's inputs and their times, so a fresh one that gets the same inputs is in the same state at
//! every instant: [`replay`](mod@replay) runs it. [`blame`] asks it who holds each lane's token, at which level, and what
//! the caps pause; only what the dispatcher does not know, such as the kernel's switches, it keeps itself.

#![forbid(unsafe_code)]

pub mod blame;
pub mod insight;
pub mod observer;
pub mod perfetto;
pub mod replay;
pub mod timeline;

pub use observer::{Feed, Figures, Observer};
pub use replay::{Divergence, Replay, Replayed, replay};
