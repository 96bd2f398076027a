//! Nodes of two hosts in one process, set up as on separate machines.

#[path = "../../orb/tests/common/authority.rs"]
mod authority;
mod client_rates;
mod clocks;
mod common;
mod corba_events;
mod delegates;
mod groups;
mod joining;
#[path = "../../net/tests/common/namespaces.rs"]
mod namespaces;
mod network;
mod objects;
#[path = "../../orb/tests/common/peer.rs"]
mod peer;
#[path = "../../os/tests/common/privileges.rs"]
mod privileges;
#[path = "../../hyoshi/tests/common/programs.rs"]
mod programs;
mod push_clients;
mod rates;
mod reboot;
mod replicas;
mod requests;
#[path = "../../os/tests/common/steal.rs"]
mod steal;
mod strangers;
mod threads;
mod tls;
#[path = "../../orb/tests/common/tracking.rs"]
mod tracking;
#[path = "../../os/tests/common/undisturbed.rs"]
mod undisturbed;
