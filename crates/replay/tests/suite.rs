//! All integration tests of the crate in one binary: linking one for each file needs more time than running them.

mod scripts;
#[allow(dead_code)]
#[path = "../../trace/tests/systems/mod.rs"]
mod systems;

mod blame;
mod causes;
mod hostile;
mod observer;
