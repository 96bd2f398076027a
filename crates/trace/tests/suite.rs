//! All integration tests of the crate in one binary: linking one for each file needs more time than running them.

mod systems;

mod allocations;
mod chains;
mod recordings;
mod stats;
