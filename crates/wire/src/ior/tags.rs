//! Numbers of profiles, components and ORBs, as OMG's list of tags and their owners have them.

/// An IIOP profile: host, port, key, components.
pub const TAG_INTERNET_IOP: u32 = 0;
/// A profile of components only.
pub const TAG_MULTIPLE_COMPONENTS: u32 = 1;

/// The ORB that made the reference.
pub const TAG_ORB_TYPE: u32 = 0;
/// The server's code sets.
pub const TAG_CODE_SETS: u32 = 1;
/// The server's policies.
pub const TAG_POLICIES: u32 = 2;
/// Another address.
pub const TAG_ALTERNATE_IIOP_ADDRESS: u32 = 3;
/// TLS: the options, and the port.
pub const TAG_SSL_SEC_TRANS: u32 = 20;
/// TAO's endpoints with priorities (`TAO\x02`).
pub const TAG_TAO_ENDPOINTS: u32 = 0x5441_4f02;
/// omniORB: the server calls back over the client's connection.
pub const TAG_OMNIORB_BIDIR: u32 = 0x4154_5401;
/// omniORB: a Unix socket.
pub const TAG_OMNIORB_UNIX_TRANS: u32 = 0x4154_5402;
/// omniORB: distinguishes runs of a server.
pub const TAG_OMNIORB_PERSISTENT_ID: u32 = 0x4154_5403;

/// A policy within [`TAG_POLICIES`]: the priority model.
pub const POLICY_PRIORITY_MODEL: u32 = 40;
/// A policy within [`TAG_POLICIES`]: priority bands.
pub const POLICY_PRIORITY_BANDS: u32 = 45;

/// omniORB, in [`TAG_ORB_TYPE`]: `ATT\0`.
pub const ORB_OMNIORB: u32 = 0x4154_5400;
/// JacORB: `JAC\0`.
pub const ORB_JACORB: u32 = 0x4a41_4300;
/// TAO: `TAO\0`.
pub const ORB_TAO: u32 = 0x5441_4f00;
/// This one: `HYO\0` (not registered with OMG).
pub const ORB_HYOSHI: u32 = 0x4859_4f00;

/// The name of the ORB of a [`TAG_ORB_TYPE`], if known.
pub fn orb_name(orb: u32) -> Option<&'static str> {
    Some(match orb {
        ORB_OMNIORB => "omniORB",
        ORB_JACORB => "JacORB",
        ORB_TAO => "TAO",
        ORB_HYOSHI => "Hyoshi",
        _ => return None,
    })
}

/// The name of a profile, if known.
pub fn profile_name(tag: u32) -> Option<&'static str> {
    Some(match tag {
        TAG_INTERNET_IOP => "IIOP",
        TAG_MULTIPLE_COMPONENTS => "TAG_MULTIPLE_COMPONENTS",
        2 => "TAG_SCCP_IOP",
        3 => "TAG_UIPMC",
        0x5441_4f00 => "TAO UIOP (Unix socket)",
        0x5441_4f02 => "TAO SHMIOP (shared memory)",
        0x5441_4f04 => "TAO DIOP (UDP)",
        _ => return None,
    })
}

/// The name of a component, if known.
pub fn component_name(tag: u32) -> Option<&'static str> {
    Some(match tag {
        TAG_ORB_TYPE => "TAG_ORB_TYPE",
        TAG_CODE_SETS => "TAG_CODE_SETS",
        TAG_POLICIES => "TAG_POLICIES",
        TAG_ALTERNATE_IIOP_ADDRESS => "TAG_ALTERNATE_IIOP_ADDRESS",
        5 => "TAG_COMPLETE_OBJECT_KEY",
        6 => "TAG_ENDPOINT_ID_POSITION",
        12 => "TAG_LOCATION_POLICY",
        13 => "TAG_ASSOCIATION_OPTIONS",
        14 => "TAG_SEC_NAME",
        TAG_SSL_SEC_TRANS => "TAG_SSL_SEC_TRANS",
        25 => "TAG_JAVA_CODEBASE",
        26 => "TAG_TRANSACTION_POLICY",
        27 => "TAG_FT_GROUP",
        28 => "TAG_FT_PRIMARY",
        29 => "TAG_FT_HEARTBEAT_ENABLED",
        30 => "TAG_MESSAGE_ROUTERS",
        31 => "TAG_OTS_POLICY",
        32 => "TAG_INV_POLICY",
        33 => "TAG_CSI_SEC_MECH_LIST",
        34 => "TAG_NULL_TAG",
        35 => "TAG_SECIOP_SEC_TRANS",
        36 => "TAG_TLS_SEC_TRANS",
        37 => "TAG_ACTIVITY_POLICY",
        38 => "TAG_RMI_CUSTOM_MAX_STREAM_FORMAT",
        39 => "TAG_GROUP",
        40 => "TAG_GROUP_IIOP",
        123 => "TAG_INET_SEC_TRANS",
        TAG_TAO_ENDPOINTS => "TAO_TAG_ENDPOINTS",
        TAG_OMNIORB_BIDIR => "TAG_OMNIORB_BIDIR",
        TAG_OMNIORB_UNIX_TRANS => "TAG_OMNIORB_UNIX_TRANS",
        TAG_OMNIORB_PERSISTENT_ID => "TAG_OMNIORB_PERSISTENT_ID",
        0x4154_5404 => "TAG_OMNIORB_RESTRICTED_CONNECTION",
        _ => return None,
    })
}

/// The name of a policy within [`TAG_POLICIES`], if known.
pub fn policy_name(policy: u32) -> Option<&'static str> {
    Some(match policy {
        23 => "rebind",
        24 => "sync scope",
        25 => "request priority",
        26 => "reply priority",
        27 => "request start time",
        28 => "request end time",
        29 => "reply start time",
        30 => "reply end time",
        31 => "relative request timeout",
        32 => "relative round-trip timeout",
        33 => "routing",
        34 => "max hops",
        35 => "queue order",
        37 => "bidirectional",
        POLICY_PRIORITY_MODEL => "priority model",
        41 => "thread pool",
        42 => "server protocol",
        43 => "client protocol",
        44 => "private connection",
        POLICY_PRIORITY_BANDS => "priority bands",
        _ => return None,
    })
}
