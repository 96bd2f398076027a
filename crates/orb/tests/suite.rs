//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.
//! Files that count or limit something for the whole process are binaries of their own.

#[path = "common/authority.rs"]
mod authority;
#[path = "../../os/tests/common/loopback.rs"]
mod loopback;
#[path = "../../idl/tests/golden/names.rs"]
mod names_idl;
#[path = "common/peer.rs"]
mod peer;
#[path = "../../os/tests/common/privileges.rs"]
mod privileges;
#[path = "../../hyoshi/tests/common/said.rs"]
mod said;
#[path = "../../idl/tests/golden/tracker.rs"]
mod tracker_idl;
#[path = "common/tracking.rs"]
mod tracking;
#[path = "../../idl/tests/golden/types.rs"]
mod types_idl;

mod activators;
mod adapters;
mod allocations;
mod bidirectional;
mod calls;
mod clients;
mod crowd;
mod fairness;
mod generated;
mod intercept;
mod limits;
mod order;
mod proxy;
mod ready;
mod real_time;
mod real_time_client;
mod shared;
mod slow;
mod threads;
mod timing;
mod tls;
mod tls_attacks;
mod tls_checks;
mod tls_flood;
