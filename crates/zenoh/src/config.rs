//! The settings of Zenoh's sessions, and key expressions.

use std::fmt::Write;

use hyoshi_model::{Endpoint, GatewayMode, HostId, System};
use zenoh::Config;

use crate::links::{ZenohLink, senders};
use crate::tls::ZenohTls;

/// The largest message: a completion with the largest payload (64 KiB) fits.
const MESSAGE: usize = 256 << 10;

/// Of all sessions: they connect only to the endpoints of the file.
const COMMON: &str = r#"
    scouting: { multicast: { enabled: false }, gossip: { enabled: false } },
    adminspace: { enabled: false },
    timestamping: { enabled: false },
    open: { return_conditions: { connect_scouted: false, declares: false } },
"#;

/// A client connects to one router. It does not open before it is connected; later it connects again in the background.
/// Routers do not pass messages from one peer to another. The other sessions connect to all endpoints in the background.
///
/// A queue holds 16 batches of 64 KiB for each priority. A sender does not wait for room (`wait_before_drop`), and a batch
/// is sent as soon as the transmitting thread runs (`time_limit`).
pub(crate) fn config(
    mode: GatewayMode,
    listen: &str,
    connect: &str,
    access: &str,
    sessions: usize,
    tls: &str,
) -> Config {
    let connect_ms = if mode == GatewayMode::Client { 0 } else { -1 };
    let mode = mode.name();
    let text = format!(
        r#"{{ {COMMON}
            mode: "{mode}",
            listen: {{ endpoints: [{listen}], timeout_ms: 0, exit_on_failure: true }},
            connect: {{
                endpoints: [{connect}], timeout_ms: {connect_ms}, exit_on_failure: false,
                retry: {{ period_init_ms: 50, period_max_ms: 200, period_increase_factor: 2 }},
            }},
            transport: {{
                unicast: {{ max_sessions: {sessions}, accept_timeout: 2000 }},
                link: {{
                    tx: {{
                        lease: 2000, keep_alive: 4,
                        queue: {{
                            size: {{
                                control: 2, real_time: 16, interactive_high: 16, interactive_low: 16,
                                data_high: 16, data: 16, data_low: 16, background: 1,
                            }},
                            congestion_control: {{
                                drop: {{ wait_before_drop: 0, max_wait_before_drop_fragments: 0 }},
                            }},
                            batching: {{ enabled: true, time_limit: 0 }},
                        }},
                    }},
                    rx: {{ max_message_size: {MESSAGE} }},
                    {tls}
                }},
            }},
            {access}
        }}"#
    );
    Config::from_json5(&text).expect("the settings are Zenoh's")
}

/// The settings of the session that receives completions for a host: it listens, or connects to a router. `None` if the
/// host does not use Zenoh. Other sessions may publish with the keys of hosts that send to it, over TLS only with the
/// certificate of that host. They may not subscribe, so this session forwards nothing.
///
/// # Panics
///
/// Never for a system from a file.
pub fn receiving(system: &System, host: HostId, tls: Option<&ZenohTls>) -> Option<Config> {
    let endpoint = system.hosts[host.index()].over_zenoh()?;
    let routed = system.hosts[host.index()].router.is_some();
    let peer = |key, from: HostId| ZenohPeer::new(key, &system.hosts[from.index()].name, endpoint, routed);
    let senders = senders(system, host);
    let mut peers: Vec<ZenohPeer> =
        senders.iter().map(|from| peer(key_expression(system, *from, host), *from)).collect();
    if peers.is_empty() {
        // Access control needs a rule.
        peers.push(peer("hyoshi".to_owned(), host));
    }
    let access = access(&peers, "ingress", "egress");
    // Each peer has one session for each link, and those of a lost one may be still open.
    let sessions = 4 * senders.len() + 16;
    let (endpoint, tls) = (quoted(&endpoint.to_string()), tls.map(|tls| tls.settings(routed)).unwrap_or_default());
    Some(match routed {
        true => config(GatewayMode::Client, "", &endpoint, &access, sessions, &tls),
        false => config(GatewayMode::Peer, &endpoint, "", &access, sessions, &tls),
    })
}

/// The settings of the session that sends on a link from one host to others: all with endpoints of their own, or all
/// with the same router. Over TLS, a host with an endpoint receives its completions only if its certificate is for its
/// name.
///
/// # Panics
///
/// Never for a system from a file.
pub fn dialling(system: &System, from: HostId, to: &[HostId], link: ZenohLink, tls: Option<&ZenohTls>) -> Config {
    let dialled = to.iter().filter_map(|to| Some((*to, system.hosts[to.index()].over_zenoh()?)));
    let dialled: Vec<(HostId, &Endpoint)> = dialled.collect();
    let routed = to.iter().any(|to| system.hosts[to.index()].router.is_some());
    let endpoint = |(_, endpoint): &(HostId, &Endpoint)| quoted(&format!("{endpoint}#dscp={:#x}", link.tos()));
    let mut endpoints: Vec<String> = dialled.iter().map(endpoint).collect();
    endpoints.dedup();
    let peer = |(to, endpoint): &(HostId, &Endpoint)| {
        ZenohPeer::new(key_expression(system, from, *to), &system.hosts[to.index()].name, endpoint, routed)
    };
    let access = match !routed && dialled.iter().any(|(_, endpoint)| matches!(endpoint, Endpoint::Tls(_))) {
        true => access(&dialled.iter().map(peer).collect::<Vec<_>>(), "egress", "ingress"),
        false => String::new(),
    };
    let tls = tls.map(|tls| tls.settings(routed)).unwrap_or_default();
    config(GatewayMode::Peer, "", &endpoints.join(", "), &access, dialled.len() + 1, &tls)
}

/// A host at the other end of connections, and the key expression of its completions.
struct ZenohPeer {
    key: String,
    /// The condition of access control.
    subject: String,
}

impl ZenohPeer {
    /// A host with connections to this endpoint, or to this router.
    fn new(key: String, host: &str, endpoint: &Endpoint, routed: bool) -> ZenohPeer {
        let subject = match endpoint {
            Endpoint::Tls(_) if routed => "link_protocols: [\"tls\"]".to_owned(),
            Endpoint::Tls(_) => format!("cert_common_names: [{}]", quoted(host)),
            _ => "link_protocols: [\"tcp\"]".to_owned(),
        };
        ZenohPeer { key, subject }
    }
}

/// Access control that permits only completions with the key of each peer, which flow as `put`, and the peers'
/// subscriptions, which flow as `subscribe`.
fn access(peers: &[ZenohPeer], put: &str, subscribe: &str) -> String {
    let (mut rules, mut subjects, mut policies) = (String::new(), String::new(), String::new());
    for (at, ZenohPeer { key, subject }) in peers.iter().enumerate() {
        let key = quoted(key);
        // Writing to a string cannot fail.
        let _ = write!(
            rules,
            r#"{{ id: "put {at}", permission: "allow", key_exprs: [{key}], messages: ["put"], flows: ["{put}"] }},
            {{ id: "subscribe {at}", permission: "allow", key_exprs: [{key}], messages: ["declare_subscriber"],
               flows: ["{subscribe}"] }},"#
        );
        let _ = write!(subjects, r#"{{ id: "host {at}", {subject} }},"#);
        let _ = write!(policies, r#"{{ rules: ["put {at}", "subscribe {at}"], subjects: ["host {at}"] }},"#);
    }
    format!(
        r#"access_control: {{
            enabled: true, default_permission: "deny",
            rules: [{rules}], subjects: [{subjects}], policies: [{policies}],
        }},"#
    )
}

/// A text as JSON.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        if letter.is_control() || "\"\\".contains(letter) {
            // Writing to a string cannot fail.
            let _ = write!(quoted, "\\u{:04x}", u32::from(letter));
        } else {
            quoted.push(letter);
        }
    }
    quoted + "\""
}

/// The key expression of completions from one host to another: `hyoshi/SYSTEM/completions/FROM/TO`. Bytes of names
/// other than letters, digits, `-`, `_` and `.` are written as `%` and two hexadecimal digits.
pub fn key_expression(system: &System, from: HostId, to: HostId) -> String {
    let host = |id: HostId| chunk(&system.hosts[id.index()].name);
    format!("hyoshi/{}/completions/{}/{}", chunk(&system.name), host(from), host(to))
}

pub(crate) fn chunk(name: &str) -> String {
    let mut chunk = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            chunk.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(chunk, "%{byte:02X}");
        }
    }
    chunk
}
