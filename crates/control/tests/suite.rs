//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod accounts;
mod advocates;
mod arbiter;
mod backlog;
#[cfg(feature = "eucon")]
mod deucon;
mod docs;
#[cfg(feature = "eucon")]
mod eucon;
mod explain;
mod external;
mod feedback;
mod feedback_laws;
mod file;
mod periods;
mod policies;
mod service_levels;
