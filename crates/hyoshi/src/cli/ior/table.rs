//! The content of a reference as lines of a label and a value.

use std::fmt::Write;

use super::describe::{
    Chosen, ComponentDescription, ComponentValue, Described, EndpointDescription, Location, Octets, ProfileDescription,
    Sets,
};

/// Maximum number of octets in a line; JSON has all.
const SHOWN: usize = 32;

/// The left column's width.
const WIDTH: usize = 13;

pub(super) fn table(described: &Described) -> String {
    let mut lines = ReferenceText(String::new());
    match described {
        Described::Ior { type_id, nil, profiles } => {
            lines.line("type", if type_id.is_empty() { "(none)" } else { type_id });
            if *nil {
                lines.line("nil", "it refers to no object");
            }
            if let Some(orb) = described.orb() {
                lines.line("made by", orb);
            }
            for (at, profile) in profiles.iter().enumerate() {
                lines.profile(at + 1, profile);
            }
        }
        Described::Corbaloc(place) => lines.place(place),
        Described::Corbaname { context, name } => {
            lines.place(context);
            for (at, step) in name.iter().enumerate() {
                lines.line(if at == 0 { "name" } else { "" }, step);
            }
            if name.is_empty() {
                lines.line("name", "(none: the context itself)");
            }
        }
    }
    lines.0
}

struct ReferenceText(String);

impl ReferenceText {
    fn line(&mut self, word: &str, what: impl AsRef<str>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{word:WIDTH$} {}", clean(what.as_ref()));
    }

    fn place(&mut self, place: &Location) {
        if place.initial {
            self.line("where", "the ORB's own initial references");
        }
        self.endpoints(&place.endpoints);
        self.line("key", key(&place.key));
    }

    fn endpoints(&mut self, endpoints: &[EndpointDescription]) {
        for (at, endpoint) in endpoints.iter().enumerate() {
            self.line(if at == 0 { "where" } else { "" }, place(endpoint));
        }
    }

    fn profile(&mut self, number: usize, profile: &ProfileDescription) {
        let name = match (profile.name, &profile.iiop) {
            (Some(name), Some(iiop)) => format!("{name} {}", iiop.version),
            (Some(name), None) => name.to_owned(),
            (None, _) => format!("with unknown tag {:#x}", profile.tag),
        };
        self.0.push('\n');
        self.line(&format!("profile {number}"), name);
        if let Some(broken) = &profile.broken {
            self.line("BROKEN", broken);
        }
        if let Some(iiop) = &profile.iiop {
            self.endpoints(&iiop.endpoints);
            if iiop.endpoints.is_empty() {
                self.line("where", format!("nowhere: host \"{}\", port 0, and no other address", iiop.host));
            }
            self.line("key", key(&iiop.key));
        }
        if let Some(data) = &profile.data {
            self.line("data", octets(data));
        }
        profile.components.iter().for_each(|component| self.component(component));
    }

    fn component(&mut self, component: &ComponentDescription) {
        let name = match component.name {
            Some(name) => name.to_owned(),
            None => format!("tag {:#x}", component.tag),
        };
        if let Some(broken) = &component.broken {
            self.line("BROKEN", format!("{name}: {broken}; {}", octets(&component.data)));
            return;
        }
        match &component.says {
            Some(ComponentValue::Orb { name: None, id }) => {
                self.line("made by", format!("an unknown ORB: {}", octets(id)))
            }
            Some(ComponentValue::CodeSets { char, wchar, chosen }) => {
                self.line("char", sets(char));
                self.line("wchar", sets(wchar));
                match chosen {
                    Some(Chosen { char, wchar }) => self.line("", format!("Hyoshi would use {char} and {wchar}")),
                    None => self.line("", "Hyoshi supports none of them: calls raise CODESET_INCOMPATIBLE"),
                }
            }
            Some(ComponentValue::Policies(policies)) => {
                for policy in policies {
                    let name = policy.name.map_or_else(|| format!("type {}", policy.r#type), str::to_owned);
                    let says = policy.says.clone().unwrap_or_else(|| octets(&policy.value));
                    self.line("policy", format!("{name}: {says}"));
                }
            }
            // Printed already.
            Some(
                ComponentValue::Orb { .. }
                | ComponentValue::Address { .. }
                | ComponentValue::Unix { .. }
                | ComponentValue::Endpoints(_),
            ) => {}
            Some(ComponentValue::Tls { port, supports, requires }) => {
                self.line("TLS", format!("port {port}"));
                self.line("  supports", options(supports));
                self.line("  requires", options(requires));
            }
            Some(ComponentValue::CallsBackFrom(from)) => {
                self.line("calls back", format!("over the client's connection, from {from}"))
            }
            None => self.line("also", format!("{name}: {}", octets(&component.data))),
        }
    }
}

fn place(endpoint: &EndpointDescription) -> String {
    let address = |host: &str, port: u16| match host {
        "" => format!("this machine, port {port}"),
        host if host.contains(':') => format!("[{host}]:{port}"),
        host => format!("{host}:{port}"),
    };
    let version = |version: &Option<String>| version.as_ref().map_or(String::new(), |v| format!(", IIOP {v}"));
    match endpoint {
        EndpointDescription::Tcp { host, port, priority, version: v } => {
            let priority = priority.map_or(String::new(), |priority| format!(", priority {priority}"));
            format!("TCP {}{priority}{}", address(host, *port), version(v))
        }
        EndpointDescription::Tls { host, port, version: v, .. } => {
            format!("TLS {}{}", address(host, *port), version(v))
        }
        EndpointDescription::Unix { path, host: Some(host) } if !host.is_empty() => {
            format!("Unix socket {path} on {host}")
        }
        EndpointDescription::Unix { path, .. } => format!("Unix socket {path}"),
    }
}

fn key(key: &Octets) -> String {
    match &key.text {
        Some(text) => format!("\"{text}\""),
        None if key.length == 0 => "(empty)".to_owned(),
        // Most keys are text with a few other octets in them.
        None => format!("\"{}\", {}", key.octets[..key.length.min(SHOWN)].escape_ascii(), octets(key)),
    }
}

fn octets(octets: &Octets) -> String {
    let count = match octets.length {
        0 => return "no octets".to_owned(),
        1 => "1 octet".to_owned(),
        count => format!("{count} octets"),
    };
    let more = if octets.length > SHOWN { "..." } else { "" };
    let text = octets.text.as_ref().filter(|_| octets.length <= SHOWN).map_or(String::new(), |t| format!(" (\"{t}\")"));
    format!("{count}, {}{more}{text}", &octets.hex[..octets.hex.len().min(2 * SHOWN)])
}

fn sets(sets: &Sets) -> String {
    match &sets.converts[..] {
        [] => sets.native.clone(),
        converts => format!("{}, converts {}", sets.native, converts.join(", ")),
    }
}

fn options(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// Makes control characters visible: a reference is untrusted input.
fn clean(text: &str) -> String {
    hyoshi_model::printable(text)
}
