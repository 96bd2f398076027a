//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.
//! Files that count or limit something for the whole process are binaries of their own.

mod common;

mod bodies;
mod calls;
mod causes;
mod hosts;
mod lanes;
mod one_cpu;
mod overruns;
mod pressure;
mod requests;
mod switching;
