//! Replays recordings: compares the dispatcher's decisions, explains response times, and draws windows and Perfetto
//! tracks.
//!
//! A recording has a dispatcher's inputs and their times. A new dispatcher with the same inputs has the same state at
//! every instant: [`replay`](mod@replay) runs it. [`blame`] reads from it the tokens of the lanes, the levels and the
//! caps. It tracks only what the dispatcher does not know, such as the kernel's switches.

#![forbid(unsafe_code)]

pub mod blame;
pub mod causes;
pub mod observer;
pub mod perfetto;
pub mod replay;
pub mod timeline;

pub use observer::{Feed, Figures, Observer};
pub use replay::{Divergence, Replay, ReplayCounts, replay};
