//! All integration tests of the crate in one binary: linking one for each file takes longer than running them.

#[path = "../../orb/tests/common/authority.rs"]
mod authority;
mod common;
#[path = "../../net/tests/common/namespaces.rs"]
mod namespaces;
#[path = "../../idl/tests/golden/tracker.rs"]
mod tracker_idl;

mod admission;
mod bad_input;
mod blocking;
mod book;
mod broker;
mod broker_remote;
mod browser;
mod calibrate;
mod call;
mod call_types;
mod calls;
mod check;
mod claims;
mod contract_actions;
mod contracts;
mod corba_events;
mod costs;
mod counterexamples;
mod dynamic_graph;
mod events;
mod feedback;
mod from;
mod gateways;
mod hostile_users;
mod hourglass;
mod idl;
mod ior;
mod kernel_bounds;
mod language;
mod link_conditions;
mod manual;
mod merge;
mod naming;
mod network;
mod new;
mod nodes;
mod objects;
mod own_time;
mod promises;
mod proxy;
mod publishers;
mod recordings;
mod reproduce;
mod reservations;
mod run;
mod samples;
mod sim;
mod soak;
mod systemd;
mod takeover;
mod terminal;
mod threads;
mod tls;
mod unprivileged;
mod why;
