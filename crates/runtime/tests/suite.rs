//! All integration tests of the crate in one binary: linking one for each file needs more time than running them. Files
//! that count or limit something for the whole process are separate binaries.

mod common;

mod bodies;
mod calls;
mod causes;
mod events;
mod feedback;
mod hosts;
mod lanes;
mod one_cpu;
mod overruns;
mod pressure;
mod reallocation;
mod requests;
mod switching;
