//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod common;

mod behaves;
mod gaps;
mod groups;
mod served;
