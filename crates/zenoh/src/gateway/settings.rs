//! The settings of a gateway's session, and its keys.

use hyoshi_model::{Endpoint, Gateway, GatewayMode, HostId, System};
use zenoh::Config;

use crate::config::{chunk, config, quoted};
use crate::tls::ZenohTls;

/// The most sessions of programs and routers.
const SESSIONS: usize = 128;

/// Keys of programs: `hyoshi/SYSTEM/events/EVENT` for reading, `hyoshi/SYSTEM/publish/EVENT` for publishing,
/// `hyoshi/SYSTEM/alive/HOST` for the liveliness of a node. Bytes of names are written as in
/// [`key_expression`](crate::key_expression).
///
/// Reading and publishing have different keys: a gateway does not receive its own events, or those of another gateway.
#[derive(Clone, Debug)]
pub struct GatewayKeys {
    system: String,
}

impl GatewayKeys {
    /// Those of a system.
    pub fn new(system: &System) -> GatewayKeys {
        GatewayKeys { system: format!("hyoshi/{}", chunk(&system.name)) }
    }

    /// The key of an event for reading.
    pub fn event(&self, name: &str) -> String {
        self.of("events", name)
    }

    /// The key of an event for publishing.
    pub fn publication(&self, name: &str) -> String {
        self.of("publish", name)
    }

    /// The liveliness token of a host's node.
    pub fn alive(&self, host: &str) -> String {
        format!("{}/alive/{}", self.system, chunk(host))
    }

    fn of(&self, kind: &str, event: &str) -> String {
        let parts: Vec<String> = event.split('/').map(chunk).collect();
        format!("{}/{kind}/{}", self.system, parts.join("/"))
    }
}

/// The settings of the gateway of a host.
pub(super) fn session(system: &System, host: HostId, gateway: &Gateway, tls: Option<&ZenohTls>) -> Config {
    let keys = GatewayKeys::new(system);
    let list = |endpoints: &[Endpoint]| {
        let endpoints: Vec<String> = endpoints.iter().map(|endpoint| quoted(&endpoint.to_string())).collect();
        endpoints.join(", ")
    };
    let access = match gateway.mode {
        GatewayMode::Peer | GatewayMode::Client => for_programs_only(gateway, &keys),
        GatewayMode::Router => forwarding(system, host, gateway, &keys),
    };
    let tls = tls.map(|tls| tls.settings(gateway.mode == GatewayMode::Client)).unwrap_or_default();
    config(gateway.mode, &list(&gateway.listen), &list(&gateway.connect), &access, SESSIONS, &tls)
}

/// Programs read events and the liveliness of nodes, and publish, over TLS only with certificates that may. The session
/// forwards nothing.
fn for_programs_only(gateway: &Gateway, keys: &GatewayKeys) -> String {
    let subject = |names: &Option<Vec<String>>| match names {
        None => String::new(),
        Some(names) => {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            format!("cert_common_names: [{}]", names.join(", "))
        }
    };
    let (readers, publishers) = (subject(&gateway.readers), subject(&gateway.publishers));
    let system = &keys.system;
    let all_of = |kind: &str| format!("[\"{system}/{kind}/**\"]");
    let [events, publications, alive] = ["events", "publish", "alive"].map(all_of);
    format!(
        r#"access_control: {{
            enabled: true, default_permission: "deny",
            rules: [
                {{ id: "publish", permission: "allow", key_exprs: {publications}, messages: ["put", "delete"], flows: ["ingress"] }},
                {{
                    id: "read", permission: "allow", key_exprs: ["**"], flows: ["ingress"],
                    messages: ["declare_subscriber", "query", "declare_liveliness_subscriber", "liveliness_query"],
                }},
                {{
                    id: "events", permission: "allow", key_exprs: {events}, flows: ["egress"],
                    messages: ["put", "reply", "declare_queryable"],
                }},
                {{ id: "wanted", permission: "allow", key_exprs: {publications}, messages: ["declare_subscriber"], flows: ["egress"] }},
                {{ id: "alive", permission: "allow", key_exprs: {alive}, messages: ["liveliness_token"], flows: ["egress"] }},
            ],
            subjects: [{{ id: "readers", {readers} }}, {{ id: "publishers", {publishers} }}],
            policies: [
                {{ rules: ["read", "events", "alive"], subjects: ["readers"] }},
                {{ rules: ["publish", "wanted"], subjects: ["publishers"] }},
            ],
        }},"#
    )
}

/// Everything is forwarded, except events that only this host supplies, and its liveliness: other sessions could forge them.
fn forwarding(system: &System, host: HostId, gateway: &Gateway, keys: &GatewayKeys) -> String {
    let events = gateway.events.iter().map(|event| &system.events[*event as usize]).filter(|event| {
        let suppliers = event.suppliers.iter().map(|supplier| system.operation(*supplier));
        suppliers.into_iter().all(|supplier| system.processor(supplier.on).host == host)
    });
    let mut own: Vec<String> = events.map(|event| keys.event(&event.name)).collect();
    own.push(keys.alive(&system.hosts[host.index()].name));
    format!(
        r#"access_control: {{
            enabled: true, default_permission: "allow",
            rules: [{{
                id: "own", permission: "deny", key_exprs: {own:?}, flows: ["ingress"],
                messages: ["put", "delete", "declare_queryable", "reply", "liveliness_token"],
            }}],
            subjects: [{{ id: "all" }}],
            policies: [{{ rules: ["own"], subjects: ["all"] }}],
        }},"#
    )
}
