//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod hostile;
mod meaning;
mod omniidl;
mod refused;
