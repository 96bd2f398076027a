//! The content of a reference, for JSON and for the table.

use hyoshi_wire::giop::{CodeSet, CodeSets, Offer, Transmission};
use hyoshi_wire::ior::{
    self, Component, Corbaloc, CorbalocAddress, IiopProfile, Ior, IorEndpoint, ObjectUrl, PriorityModelPolicy, Profile,
    TAG_INTERNET_IOP, TAG_MULTIPLE_COMPONENTS,
};
use hyoshi_wire::tagged::{Tagged, TaggedList};
use serde::Serialize;

/// A reference.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Described {
    Ior {
        type_id: String,
        nil: bool,
        profiles: Vec<ProfileDescription>,
    },
    Corbaloc(Location),
    Corbaname {
        context: Location,
        /// Steps, each as a naming service writes it.
        name: Vec<String>,
    },
}

/// The content of a `corbaloc:` reference.
#[derive(Debug, Serialize)]
pub(super) struct Location {
    pub endpoints: Vec<EndpointDescription>,
    pub key: Octets,
    /// Whether the ORB's own initial references are meant (`rir:`).
    pub initial: bool,
}

/// Octets, for people.
#[derive(Debug, Serialize)]
pub(super) struct Octets {
    pub length: usize,
    /// The octets as text, if all of them are printable.
    pub text: Option<String>,
    pub hex: String,
    #[serde(skip)]
    pub octets: Vec<u8>,
}

impl Octets {
    fn of(octets: &[u8]) -> Octets {
        let text = std::str::from_utf8(octets).ok().filter(|text| !text.chars().any(char::is_control));
        let hex = octets.iter().map(|octet| format!("{octet:02x}")).collect();
        let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
        Octets { length: octets.len(), text, hex, octets: octets.to_vec() }
    }
}

#[derive(Debug, Serialize)]
#[serde(tag = "transport", rename_all = "lowercase")]
pub(super) enum EndpointDescription {
    Tcp { host: String, port: u16, priority: Option<i16>, version: Option<String> },
    Tls { host: String, port: u16, requires: Vec<&'static str>, version: Option<String> },
    Unix { path: String, host: Option<String> },
}

#[derive(Debug, Serialize)]
pub(super) struct ProfileDescription {
    pub tag: u32,
    pub name: Option<&'static str>,
    #[serde(flatten)]
    pub iiop: Option<Iiop>,
    pub components: Vec<ComponentDescription>,
    /// The content of an unknown profile.
    pub data: Option<Octets>,
    /// The decoding error.
    pub broken: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Iiop {
    pub version: String,
    pub host: String,
    pub port: u16,
    pub key: Octets,
    pub endpoints: Vec<EndpointDescription>,
}

#[derive(Debug, Serialize)]
pub(super) struct ComponentDescription {
    pub tag: u32,
    pub name: Option<&'static str>,
    #[serde(flatten)]
    pub says: Option<ComponentValue>,
    pub data: Octets,
    /// The decoding error.
    pub broken: Option<String>,
}

/// Code sets by name.
#[derive(Debug, Serialize)]
pub(super) struct Chosen {
    pub char: String,
    pub wchar: String,
}

/// The content of a known component.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ComponentValue {
    Orb {
        name: Option<&'static str>,
        id: Octets,
    },
    CodeSets {
        char: Sets,
        wchar: Sets,
        /// The sets that this ORB would use with the server; none if they share none.
        chosen: Option<Chosen>,
    },
    Policies(Vec<PolicyDescription>),
    Address {
        host: String,
        port: u16,
    },
    Tls {
        port: u16,
        supports: Vec<&'static str>,
        requires: Vec<&'static str>,
    },
    Endpoints(Vec<EndpointDescription>),
    Unix {
        path: String,
        host: String,
    },
    CallsBackFrom(String),
}

#[derive(Debug, Serialize)]
pub(super) struct Sets {
    pub native: String,
    pub converts: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct PolicyDescription {
    pub r#type: u32,
    pub name: Option<&'static str>,
    /// In words, if it is known.
    pub says: Option<String>,
    pub value: Octets,
}

impl Described {
    pub(super) fn of(reference: &ObjectUrl) -> Described {
        match reference {
            ObjectUrl::Ior(Ior { type_id, profiles }) => Described::Ior {
                type_id: type_id.clone(),
                nil: profiles.is_empty(),
                profiles: profiles.iter().map(profile).collect(),
            },
            ObjectUrl::Corbaloc(corbaloc) => Described::Corbaloc(place(corbaloc)),
            ObjectUrl::Corbaname(corbaname) => Described::Corbaname {
                context: place(&corbaname.context),
                name: corbaname.name.iter().map(|step| ior::print_name(std::slice::from_ref(step))).collect(),
            },
        }
    }

    /// Whether all of it could be read.
    pub(super) fn is_sound(&self) -> bool {
        let Described::Ior { profiles, .. } = self else { return true };
        profiles.iter().all(|profile| {
            profile.broken.is_none() && profile.components.iter().all(|component| component.broken.is_none())
        })
    }

    /// The ORB that created it, if it is known.
    pub(super) fn orb(&self) -> Option<&'static str> {
        let Described::Ior { profiles, .. } = self else { return None };
        profiles.iter().flat_map(|profile| &profile.components).find_map(|component| match component.says {
            Some(ComponentValue::Orb { name, .. }) => name,
            _ => None,
        })
    }
}

fn place(corbaloc: &Corbaloc) -> Location {
    let endpoints = corbaloc.addresses.iter().filter_map(|address| {
        Some(match address {
            CorbalocAddress::Rir => return None,
            CorbalocAddress::Iiop { version, host, port } => EndpointDescription::Tcp {
                host: host.clone(),
                port: *port,
                priority: None,
                version: Some(version.to_string()),
            },
            CorbalocAddress::Ssliop { version, host, port } => EndpointDescription::Tls {
                host: host.clone(),
                port: *port,
                requires: Vec::new(),
                version: Some(version.to_string()),
            },
            CorbalocAddress::Unix { path } => EndpointDescription::Unix { path: path.clone(), host: None },
        })
    });
    Location {
        endpoints: endpoints.collect(),
        key: Octets::of(&corbaloc.key),
        initial: corbaloc.addresses.contains(&CorbalocAddress::Rir),
    }
}

fn profile(profile: &Profile) -> ProfileDescription {
    let mut says = ProfileDescription {
        tag: profile.tag,
        name: ior::profile_name(profile.tag),
        iiop: None,
        components: Vec::new(),
        data: None,
        broken: None,
    };
    match profile.tag {
        TAG_INTERNET_IOP => match IiopProfile::decode(profile) {
            Ok(read) => {
                says.components = components(&read.components);
                says.iiop = Some(iiop(&read));
            }
            Err(error) => says.broken = Some(error.to_string()),
        },
        TAG_MULTIPLE_COMPONENTS => match ior::multiple_components(profile) {
            Ok(list) => says.components = components(&list),
            Err(error) => says.broken = Some(error.to_string()),
        },
        _ => {}
    }
    if says.iiop.is_none() && says.components.is_empty() {
        says.data = Some(Octets::of(&profile.data));
    }
    says
}

fn iiop(profile: &IiopProfile<'_>) -> Iiop {
    let endpoints = profile.endpoints().into_iter().map(|endpoint| match endpoint {
        IorEndpoint::Tcp { host, port, priority } => EndpointDescription::Tcp { host, port, priority, version: None },
        IorEndpoint::Tls { host, port, requires } => EndpointDescription::Tls {
            host,
            port,
            requires: ior::association_options(requires).collect(),
            version: None,
        },
        IorEndpoint::Unix { host, path } => EndpointDescription::Unix { path, host: Some(host) },
    });
    Iiop {
        version: format!("1.{}", profile.minor),
        host: profile.host.to_owned(),
        port: profile.port,
        key: Octets::of(profile.key),
        endpoints: endpoints.collect(),
    }
}

fn components(list: &TaggedList<'_>) -> Vec<ComponentDescription> {
    list.clone().map(component).collect()
}

fn component(tagged: Tagged<'_>) -> ComponentDescription {
    let (says, broken) = match Component::decode(tagged) {
        Ok(component) => (known(&component), None),
        Err(error) => (None, Some(error.to_string())),
    };
    ComponentDescription {
        tag: tagged.tag,
        name: ior::component_name(tagged.tag),
        says,
        data: Octets::of(tagged.data),
        broken,
    }
}

fn known(component: &Component<'_>) -> Option<ComponentValue> {
    Some(match component {
        Component::OrbType(orb) => {
            ComponentValue::Orb { name: ior::orb_name(*orb), id: Octets::of(&orb.to_be_bytes()) }
        }
        Component::CodeSets(sets) => code_sets(sets),
        Component::Policies(policies) => ComponentValue::Policies(policies.clone().map(policy).collect()),
        Component::AlternateAddress { host, port } => ComponentValue::Address { host: (*host).to_owned(), port: *port },
        Component::Ssl(ssl) => ComponentValue::Tls {
            port: ssl.port,
            supports: ior::association_options(ssl.supports).collect(),
            requires: ior::association_options(ssl.requires).collect(),
        },
        Component::TaoEndpoints(endpoints) => {
            let one = |endpoint: &ior::TaoEndpoint<'_>| EndpointDescription::Tcp {
                host: endpoint.host.to_owned(),
                port: endpoint.port,
                priority: (endpoint.priority >= 0).then_some(endpoint.priority),
                version: None,
            };
            ComponentValue::Endpoints(endpoints.iter().map(one).collect())
        }
        Component::OmniUnix { host, path } => {
            ComponentValue::Unix { path: (*path).to_owned(), host: (*host).to_owned() }
        }
        Component::OmniBidir(from) => ComponentValue::CallsBackFrom((*from).to_owned()),
        _ => return None,
    })
}

fn code_sets(sets: &CodeSets) -> ComponentValue {
    let offer = |offer: &Offer| Sets {
        native: offer.native.to_string(),
        converts: offer.conversions.iter().map(CodeSet::to_string).collect(),
    };
    let chosen = Transmission::choose(sets)
        .map(|chosen| Chosen { char: chosen.narrow.to_string(), wchar: chosen.wide.to_string() })
        .ok();
    ComponentValue::CodeSets { char: offer(&sets.narrow), wchar: offer(&sets.wide), chosen }
}

fn policy(policy: Tagged<'_>) -> PolicyDescription {
    let model = PriorityModelPolicy::read(policy).ok().flatten().map(|model| {
        let who = if model.client_propagated { "client propagated" } else { "server declared" };
        format!("{who}, priority {}", model.priority)
    });
    let bands = PriorityModelPolicy::read_bands(policy).ok().flatten().map(|bands| {
        let bands: Vec<_> = bands.iter().map(|[low, high]| format!("{low} to {high}")).collect();
        bands.join(", ")
    });
    PolicyDescription {
        r#type: policy.tag,
        name: ior::policy_name(policy.tag),
        says: model.or(bands),
        value: Octets::of(policy.data),
    }
}
