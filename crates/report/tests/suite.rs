//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod flight;

mod check;
mod golden;
mod html;
mod json;
mod timeline;
