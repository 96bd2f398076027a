//! The settings of Zenoh's sessions, and key expressions.

use std::fmt::Write;

use hyoshi_model::{Endpoint, HostId, System};
use zenoh::Config;

use crate::links::{ZenohLink, senders};
use crate::tls::ZenohTls;

/// The largest message: a completion with the largest payload (64 KiB) fits.
const MESSAGE: usize = 256 << 10;

/// Of all sessions: they connect only to the endpoints of the file.
const COMMON: &str = r#"
    mode: "peer",
    scouting: { multicast: { enabled: false }, gossip: { enabled: false } },
    adminspace: { enabled: false },
    timestamping: { enabled: false },
    open: { return_conditions: { connect_scouted: false, declares: false } },
"#;

/// A queue holds 16 batches of 64 KiB for each priority. A sender does not wait for room (`wait_before_drop`), and a batch
/// is sent as soon as the transmitting thread runs (`time_limit`).
pub(crate) fn config(listen: &str, connect: &str, access: &str, sessions: usize, tls: Option<&ZenohTls>) -> Config {
    let tls = tls.map(ZenohTls::settings).unwrap_or_default();
    let text = format!(
        r#"{{ {COMMON}
            listen: {{ endpoints: [{listen}], timeout_ms: 0, exit_on_failure: true }},
            connect: {{
                endpoints: [{connect}], timeout_ms: -1, exit_on_failure: false,
                retry: {{ period_init_ms: 50, period_max_ms: 200, period_increase_factor: 2 }},
            }},
            transport: {{
                unicast: {{ max_sessions: {sessions} }},
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

/// The settings of the session that listens for completions to a host; `None` if the host has no endpoint for Zenoh.
/// Other sessions may publish with the keys of hosts that send to it, over TLS only with the certificate of that host.
/// They may not subscribe, so this session forwards nothing.
///
/// # Panics
///
/// Never for a system from a file.
pub fn listening(system: &System, host: HostId, tls: Option<&ZenohTls>) -> Option<Config> {
    let endpoint = system.hosts[host.index()].zenoh.as_ref()?;
    let senders = senders(system, host);
    let mut peers: Vec<ZenohPeer> = senders
        .iter()
        .map(|from| ZenohPeer::new(key_expression(system, *from, host), system, *from, endpoint))
        .collect();
    if peers.is_empty() {
        // Access control needs a rule.
        peers.push(ZenohPeer::new("hyoshi".to_owned(), system, host, endpoint));
    }
    // Each peer has one session for each link, and those of a lost one may be still open.
    let sessions = 4 * senders.len() + 16;
    Some(config(&quoted(&endpoint.to_string()), "", &access(&peers, "ingress", "egress"), sessions, tls))
}

/// The settings of the session that sends on a link from one host to others with endpoints for Zenoh. Over TLS, a host
/// receives its completions only if its certificate is for its name.
///
/// # Panics
///
/// Never for a system from a file.
pub fn dialling(system: &System, from: HostId, to: &[HostId], link: ZenohLink, tls: Option<&ZenohTls>) -> Config {
    let dialled = to.iter().filter_map(|to| Some((*to, system.hosts[to.index()].zenoh.as_ref()?)));
    let dialled: Vec<(HostId, &Endpoint)> = dialled.collect();
    let endpoint = |(_, endpoint): &(HostId, &Endpoint)| quoted(&format!("{endpoint}#dscp={:#x}", link.tos()));
    let endpoints: Vec<String> = dialled.iter().map(endpoint).collect();
    let peer =
        |(to, endpoint): &(HostId, &Endpoint)| ZenohPeer::new(key_expression(system, from, *to), system, *to, endpoint);
    let access = match dialled.iter().any(|(_, endpoint)| matches!(endpoint, Endpoint::Tls(_))) {
        true => access(&dialled.iter().map(peer).collect::<Vec<_>>(), "egress", "ingress"),
        false => String::new(),
    };
    config("", &endpoints.join(", "), &access, dialled.len() + 1, tls)
}

/// A host at the other end of connections, and the key expression of its completions.
struct ZenohPeer {
    key: String,
    /// The condition of access control.
    subject: String,
}

impl ZenohPeer {
    /// A host with connections to this endpoint.
    fn new(key: String, system: &System, host: HostId, endpoint: &Endpoint) -> ZenohPeer {
        let subject = match endpoint {
            Endpoint::Tls(_) => format!("cert_common_names: [{}]", quoted(&system.hosts[host.index()].name)),
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
