//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

mod common;

mod admissions;
mod blame;
mod bounds;
mod calls;
mod chains;
mod comparison;
mod contract_settings;
mod contracts;
mod costs;
mod counterexamples;
mod dynamic_graphs;
#[cfg(feature = "eucon")]
mod eucon;
mod events_by_name;
mod feedback;
mod flight_contract;
mod flight_program;
mod hard_cap;
mod late;
mod latency;
mod losses;
mod outside;
mod programs;
mod properties;
mod qoskets;
mod reallocation;
mod regions;
mod release_guards;
mod rules;
mod scale;
mod service_levels;
mod set_points;
mod soundness;
mod switching;
mod three_loops;
mod undecided;
