//! Minor codes: the exact cause of this ORB's system exceptions. [`SystemException::meaning`] also describes OMG's own
//! codes, with a meaning that depends on the exception.
//!
//! [`SystemException::meaning`]: crate::SystemException::meaning
//!
//! A code of OMG's is used if there is one (CORBA 3.3 part 1, annex A.6); the others have this ORB's own vendor id.
//! `docs/orb.md` has the table for readers.

/// OMG's vendor id.
pub const OMG: u32 = 0x4f4d_0000;
/// This ORB's: `HY`. Not registered with OMG.
pub const HYOSHI: u32 = 0x4859_0000;

macro_rules! codes {
    ($($vendor:ident + $number:literal $name:ident $meaning:literal)*) => {
        $(#[doc = $meaning] pub const $name: u32 = $vendor + $number;)*

        const CODES: &[(u32, &str)] = &[$(($name, $meaning),)*];

        /// The meaning of a minor code, if this ORB raises it; OMG's have one meaning for each exception.
        pub fn meaning(minor: u32) -> Option<&'static str> {
            CODES.iter().find(|(code, _)| *code == minor).map(|(_, meaning)| *meaning)
        }
    };
}

codes! {
    OMG + 1 DISCARDED "The adapter discards requests, or too many wait while it is holding (TRANSIENT)."
    OMG + 2 NO_USABLE_PROFILE "The reference has no profile that this ORB can use (TRANSIENT), or no object has the key (OBJECT_NOT_EXIST)."
    OMG + 1 CODE_SETS "The server has no code set that this ORB supports (CODESET_INCOMPATIBLE); or the adapter \
        discards requests, or too many wait while it is holding (TRANSIENT)."
    OMG + 2 CODE_SET_REFUSED "The client chose a code set that this server does not support (CODESET_INCOMPATIBLE); or \
        the reference has no profile that this ORB can use (TRANSIENT), or no object has the key (OBJECT_NOT_EXIST)."
    HYOSHI + 0x01 NO_ADAPTER "No adapter has that name (OBJECT_NOT_EXIST)."
    HYOSHI + 0x02 NO_OBJECT "The adapter has no such object (OBJECT_NOT_EXIST)."
    HYOSHI + 0x03 OLD_INCARNATION "The reference is to a transient object of an earlier run of the server (OBJECT_NOT_EXIST)."
    HYOSHI + 0x05 NO_OPERATION "The interface has no such operation (BAD_OPERATION)."
    HYOSHI + 0x06 NO_REPOSITORY "There is no interface repository (INTF_REPOS)."
    HYOSHI + 0x07 ARGUMENTS "The arguments cannot be decoded (MARSHAL, before the call)."
    HYOSHI + 0x08 RESULTS "The result cannot be encoded or decoded (MARSHAL, after the call)."
    HYOSHI + 0x09 NO_REPLY "The servant returned without a reply: an error in generated code (INTERNAL)."
    HYOSHI + 0x0a PANICKED "The servant panicked (UNKNOWN)."
    HYOSHI + 0x0b UNDECLARED "The operation raised an exception that it does not declare (UNKNOWN)."
    HYOSHI + 0x0c CHARACTER "A character that is not in the connection's code set (DATA_CONVERSION)."
    HYOSHI + 0x10 CONNECT "No connection could be made, though a server may listen: the network or host is unreachable \
        (TRANSIENT)."
    HYOSHI + 0x11 CONNECT_TIMEOUT "No connection was made in time; this includes finding the host's address (TIMEOUT)."
    HYOSHI + 0x12 SEND "The request could not be sent (COMM_FAILURE, not done)."
    HYOSHI + 0x13 LOST "The connection was lost before the reply arrived (COMM_FAILURE, perhaps done)."
    HYOSHI + 0x14 CLOSED "The server closes connections without serving requests (TRANSIENT)."
    HYOSHI + 0x15 REPLY_TIMEOUT "The reply did not arrive in time (TIMEOUT, perhaps done)."
    HYOSHI + 0x16 IN_FLIGHT "The limit of requests that wait for replies is reached (TRANSIENT)."
    HYOSHI + 0x17 FORWARD_LOOP "The request was forwarded too often (TRANSIENT)."
    HYOSHI + 0x18 BAD_REPLY "The reply cannot be decoded (MARSHAL, perhaps done)."
    HYOSHI + 0x19 NOT_UNDERSTOOD "The server could not decode the request: MessageError (COMM_FAILURE, not done)."
    HYOSHI + 0x1a NO_ORB "The reference belongs to an ORB that has ended (BAD_INV_ORDER)."
    HYOSHI + 0x1b SHUT_DOWN "The ORB is shut down (BAD_INV_ORDER)."
    HYOSHI + 0x1c HOST_UNKNOWN "The host's name cannot be resolved, or too many names are being looked up (TRANSIENT)."
    HYOSHI + 0x1d REFUSED "No server listens at the address: the connection was refused, or there is no such socket \
        (TRANSIENT)."
    HYOSHI + 0x1e NOT_RESOLVED "The address cannot be resolved or read (INV_OBJREF)."
    HYOSHI + 0x1f WRONG_INTERFACE "The object does not have the requested interface (BAD_PARAM)."
    HYOSHI + 0x20 ADDRESSING "The server requests a form of address repeatedly (TRANSIENT)."
    HYOSHI + 0x21 INACTIVE "The adapter accepts no more requests (OBJ_ADAPTER)."
    HYOSHI + 0x22 ENCODE "The arguments cannot be encoded (BAD_PARAM)."
    HYOSHI + 0x23 NO_MEMORY_LIMIT "A message over the size limit (IMP_LIMIT)."
    HYOSHI + 0x24 NO_WAY_BACK "The object's ORB does not listen, and the connection that it opened is closed (TRANSIENT)."
    HYOSHI + 0x25 SEND_TIMEOUT "The server did not read the whole request in time (TIMEOUT, not done)."
    HYOSHI + 0x26 BACKLOG "Unsent requests fill the connection's backlog, and the client's policy forbids waiting \
        (TRANSIENT)."
    HYOSHI + 0x28 NOT_MADE "An activator did not create or end the object in time (TRANSIENT)."
    HYOSHI + 0x29 OWN_OBJECT "An activator calls the object that it is creating or ending (BAD_INV_ORDER)."
    HYOSHI + 0x30 NAMING_LIMIT "The naming service has reached its limit, or the name or reference is too long \
        (IMP_LIMIT)."
    HYOSHI + 0x31 NAMING_STORE "The naming service could not write to its disk: nothing was changed (PERSIST_STORE)."
    HYOSHI + 0x32 NAMING_ROOT "The root context cannot be destroyed (NO_PERMISSION)."
    HYOSHI + 0x33 NAMING_NIL "A nil reference cannot be bound to a name (BAD_PARAM)."
    HYOSHI + 0x34 NAMING_NONE "An iterator was asked for zero bindings (BAD_PARAM)."
    HYOSHI + 0x35 NAME_UNBOUND "The naming service has nothing bound to the name (INV_OBJREF)."
    HYOSHI + 0x36 NAME_WAY "A naming service on the path to the name does not answer (INV_OBJREF)."
    HYOSHI + 0x37 NO_INITIAL "The ORB has no initial reference of that name (INV_OBJREF)."
    HYOSHI + 0x38 NAMING_STORE_DOUBT "The naming service could not write to its disk, nor undo the write: the change \
        may exist after a restart (PERSIST_STORE)."
    HYOSHI + 0x40 TLS_UNKNOWN_CA "No trusted authority signed the server's certificate (NO_PERMISSION)."
    HYOSHI + 0x41 TLS_EXPIRED "The server's certificate has expired or is not valid yet (NO_PERMISSION)."
    HYOSHI + 0x42 TLS_NAME "The server's certificate is for another host than the reference's (NO_PERMISSION)."
    HYOSHI + 0x43 TLS_CERTIFICATE "The server's certificate is invalid for another reason (NO_PERMISSION)."
    HYOSHI + 0x44 TLS_REFUSED "The server refused this client's certificate, or requires one (NO_PERMISSION)."
    HYOSHI + 0x45 TLS_HANDSHAKE "The TLS handshake failed; the port may use another protocol (COMM_FAILURE)."
    HYOSHI + 0x46 TLS_EXPECTED "The server uses TLS at an address that the reference declares as plain (COMM_FAILURE)."
    HYOSHI + 0x47 TLS_NOT_SET_UP "The object needs TLS and the ORB has no settings for it, or it needs plain TCP and the settings forbid that (NO_PERMISSION)."
    HYOSHI + 0x48 TLS_INCOMPATIBLE "Client and server have no common TLS version or cipher (COMM_FAILURE)."
    HYOSHI + 0x49 TRANSPORT_RULE "The transport rules (ORBclientTransportRule) forbid every path to the object \
        (NO_PERMISSION)."
    HYOSHI + 0x4a NOT_RUN "The server's program discarded the request before it was carried out (TRANSIENT)."
    HYOSHI + 0x4b RUN_OVER "The run of the server's node is over (TRANSIENT)."
    HYOSHI + 0x4c TOO_LATE "The request could no longer meet its deadline, and was not carried out (TIMEOUT)."
    HYOSHI + 0x4d CEILING "The request asks for a higher importance or criticality than its client's limit \
        (NO_PERMISSION)."
    HYOSHI + 0x4e TOO_OFTEN "The client sends more requests than its limit allows (TRANSIENT)."
    HYOSHI + 0x4f CALLERS_ONLY "Only operations of the server's file may call this method (NO_PERMISSION)."
    HYOSHI + 0x50 BROKER_NAME "The caller's certificate has no name that is allowed to do this (NO_PERMISSION)."
    HYOSHI + 0x51 BROKER_BUSY "This user calls the broker more often than its limits in /etc/hyoshi/broker.toml allow: \
        retry later (TRANSIENT)."
    HYOSHI + 0x54 EVENT_NO_SUPPLIER "No operation on this node accepts publications of the event (NO_IMPLEMENT)."
    HYOSHI + 0x55 EVENT_PULL "The event channel has no pull model (NO_IMPLEMENT)."
    HYOSHI + 0x56 EVENT_LIMIT "The client, or all clients of events together, have the maximum number of proxies (IMP_LIMIT)."
    HYOSHI + 0x57 EVENT_CONSUMER "A consumer is nil, or a consumer or supplier is in the same node, or at a Unix socket while its client uses the network (BAD_PARAM)."
    HYOSHI + 0x58 EVENT_TOO_LONG "The event is longer than its `payload` in the server's file (BAD_PARAM)."
    HYOSHI + 0x59 EVENT_FULL "The supplier's queue is full, it is busy or off, or its `min_interval` is not over: the event was not published (TRANSIENT)."
    HYOSHI + 0x5a EVENT_DESTROY "Clients cannot end an event channel (NO_PERMISSION)."
    HYOSHI + 0x60 RT_UNMAPPED "The priority is negative, or the server's priority mapping or transform refuses it \
        (DATA_CONVERSION)."
    HYOSHI + 0x61 RT_CEILING "The client may not claim a priority this high (NO_PERMISSION)."
    HYOSHI + 0x62 RT_BUFFER "All threads of the lane are busy, and its buffer is full (TRANSIENT)."
    HYOSHI + 0x63 RT_PRIVILEGE "The kernel does not permit the thread's priority (NO_PERMISSION)."
    HYOSHI + 0x70 RT_NO_LANE "No lane of the object has the request's priority, or is in its priority band (INV_POLICY)."
    HYOSHI + 0x71 RT_NO_BAND "The request's priority is in none of the priority bands (INV_POLICY)."
    HYOSHI + 0x72 RT_TWO_BANDS "Both the client and the object's server set priority bands (INV_POLICY)."
    HYOSHI + 0x73 RT_NO_PROTOCOL "The object has no usable endpoint of the client's protocols (INV_POLICY)."
    HYOSHI + 0x80 CANCELLED "The distributable thread was cancelled (THREAD_CANCELLED)."
    HYOSHI + 0x81 NO_SEGMENT "No scheduling segment that was begun here is open, or a segment within it is (BAD_INV_ORDER)."
    HYOSHI + 0x82 SEGMENT_NAME "The innermost scheduling segment has another name (BAD_PARAM)."
    HYOSHI + 0x83 SEGMENT_OPEN "The servant returned without ending a scheduling segment; it has ended now \
        (BAD_INV_ORDER)."
    HYOSHI + 0x84 SEGMENT_LIMIT "The limit of nested scheduling segments is reached (IMP_LIMIT)."
    HYOSHI + 0x85 THREAD_LIMIT "The process, or this client in it, has the maximum number of distributable threads \
        (IMP_LIMIT), or the operating system starts no further thread (NO_RESOURCES)."
    HYOSHI + 0x86 THREAD_ENDED "The distributable thread has ended in this process (BAD_INV_ORDER)."
    HYOSHI + 0x87 THREAD_ID "The id of the distributable thread is forged, or its head is in this process (BAD_PARAM)."
    HYOSHI + 0x88 DEADLINE_PAST "The deadline of the scheduling segment has passed (BAD_PARAM)."
    HYOSHI + 0x90 UNREGISTERED "The client is not registered: call `join` at the object `rates` of the server's feedback \
        loop, then send requests to the target that it returns (NO_PERMISSION)."
    HYOSHI + 0xa0 DELEGATE "A delegate refuses the operation, or passes only some requests to it (TRANSIENT, or the exception \
        of its behaviour)."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::format;

    use super::*;

    #[test]
    fn each_of_our_codes_means_one_thing() {
        let mut seen = BTreeMap::new();
        // OMG numbers the codes of each exception separately.
        for (code, meaning) in CODES.iter().filter(|(code, _)| code & 0xffff_f000 == HYOSHI) {
            if let Some(other) = seen.insert(code, meaning) {
                panic!("{code:#010x} means both \"{other}\" and \"{meaning}\"");
            }
        }
        assert!(seen.len() > 50, "only {} codes are ours", seen.len());
    }

    #[test]
    fn every_code_is_within_its_vendors_range_and_has_a_meaning() {
        assert!(meaning(CONNECT).is_some_and(|text| text.contains("TRANSIENT")));
        assert_eq!(meaning(7), None);
        assert_eq!(CONNECT & 0xffff_f000, HYOSHI);
        let documented = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/orb.md")).unwrap();
        for code in (OMG..OMG + 0x100).chain(HYOSHI..HYOSHI + 0x100).filter(|code| meaning(*code).is_some()) {
            assert!(documented.contains(&format!("| {code:#010x} |")), "docs/orb.md lacks {code:#010x}");
        }
    }
}
