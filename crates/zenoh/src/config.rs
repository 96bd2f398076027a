//! The settings of Zenoh's sessions, and key expressions.

use std::fmt::Write;

use hyoshi_model::{Endpoint, HostId, System};
use zenoh::Config;

use crate::links::ZenohLink;

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
pub(crate) fn config(listen: &str, connect: &str, access: &str, sessions: usize) -> Config {
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
                }},
            }},
            {access}
        }}"#
    );
    Config::from_json5(&text).expect("the settings are Zenoh's")
}

/// The settings of the session that listens at `endpoint` for completions with these key expressions. Other sessions
/// may publish with these keys; they may not subscribe, so this session forwards nothing.
///
/// # Panics
///
/// Never for an endpoint that a file contains.
pub fn listening(endpoint: &Endpoint, keys: &[String]) -> Config {
    let keys = if keys.is_empty() { &["hyoshi".to_owned()] } else { keys };
    let access = format!(
        r#"access_control: {{
            enabled: true, default_permission: "deny",
            rules: [
                {{
                    id: "completions", permission: "allow", key_exprs: {keys:?},
                    messages: ["put"], flows: ["ingress"],
                }},
                {{
                    id: "wanted", permission: "allow", key_exprs: {keys:?},
                    messages: ["declare_subscriber"], flows: ["egress"],
                }},
            ],
            subjects: [{{ id: "all" }}],
            policies: [{{ rules: ["completions", "wanted"], subjects: ["all"] }}],
        }},"#
    );
    // Each peer has one session for each link, and those of a lost one may be still open.
    config(&format!("\"{endpoint}\""), "", &access, 4 * keys.len() + 12)
}

/// The settings of the session that sends on a link to these endpoints.
///
/// # Panics
///
/// Never for endpoints that a file contains.
pub fn dialling(endpoints: &[&Endpoint], link: ZenohLink) -> Config {
    let endpoint = |endpoint: &&Endpoint| format!("\"{endpoint}#dscp={:#x}\"", link.tos());
    let endpoints: Vec<String> = endpoints.iter().map(endpoint).collect();
    config("", &endpoints.join(", "), "", endpoints.len() + 1)
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
