//! omniORB and JacORB with each other: the behaviour that Hyoshi must have with each.

use crate::orbs::{Giop, Peer};
use crate::process::{self, Server};

#[test]
fn omniorb_and_jacorb_agree_with_each_other() {
    let (Some(omniorb), Some(jacorb)) = (Peer::OmniOrb.built(), Peer::JacOrb.built()) else { return };
    let server = Server::start(Peer::JacOrb.server(jacorb));
    process::run(Peer::OmniOrb.client(omniorb, &server.reference, Some(Peer::JacOrb)), || server.log());
    for giop in [Giop::V1_0, Giop::V1_2] {
        let server = Server::start(Peer::OmniOrb.server_of(omniorb, giop));
        let mut client = Peer::JacOrb.client(jacorb, &server.reference, Some(Peer::OmniOrb));
        if giop != Giop::V1_2 {
            client.arg("--narrow");
        }
        process::run(client, || server.log());
    }
}
