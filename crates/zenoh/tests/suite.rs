//! Nodes of two hosts over Zenoh in one process, and programs that are not their peers.

#[path = "../../orb/tests/common/authority.rs"]
mod authority;
#[allow(dead_code, reason = "the tests of nodes use the rest")]
#[path = "../../node/tests/common/mod.rs"]
mod common;
mod exchange;
mod gateway;
mod links;
#[path = "../../os/tests/common/privileges.rs"]
mod privileges;
mod strangers;
mod tls;

use hyoshi_model::{HostId, Span};
use hyoshi_node::{CompletionCarrier, NodeError, NodeSettings, Tls};
use hyoshi_zenoh::{ZenohCarrier, ZenohTls};

use common::{Host, text, unused_address};

/// The system of the tests of nodes. Both hosts receive over Zenoh.
fn over_zenoh(duration: &str) -> String {
    let tcp = || format!("tcp/{}", unused_address());
    let text = text(&tcp(), &tcp(), duration);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for line in lines.iter_mut().filter(|line| line.contains("endpoints = ")) {
        *line += &format!("\nzenoh = \"{}\"", tcp());
    }
    lines.join("\n")
}

fn start(text: &str, host: HostId, wait: Span) -> Result<Host, NodeError> {
    start_with(text, host, wait, (None, None))
}

fn start_with(
    text: &str,
    host: HostId,
    wait: Span,
    (tls, of_zenoh): (Option<Tls>, Option<ZenohTls>),
) -> Result<Host, NodeError> {
    Host::with(text, host, |settings| {
        let carrier = ZenohCarrier::new(&settings.system, host, of_zenoh);
        let carrier = carrier.map(|carrier| Box::new(carrier) as Box<dyn CompletionCarrier>);
        NodeSettings { wait, carrier, tls, ..settings }
    })
}
