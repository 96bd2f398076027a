//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod scripts;
mod systems;

mod allocations;
mod blame;
mod causes;
mod chains;
mod recordings;
mod stats;
