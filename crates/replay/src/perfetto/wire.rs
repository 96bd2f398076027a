//! The subset of Perfetto's protobuf messages that an export needs. Field numbers are those of `protos/perfetto/trace/`
//! (trace_packet.proto, track_event/*.proto, interned_data.proto). Varints and lengths suffice, so no code generator is
//! needed.

/// A message under construction.
#[derive(Debug, Default)]
pub(super) struct ProtoMessage(pub Vec<u8>);

impl ProtoMessage {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// An integer, enumeration or boolean.
    pub fn number(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// A fixed 64-bit field.
    pub fn fixed(&mut self, field: u32, value: u64) -> &mut Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A string, or a complete message.
    pub fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// A nested message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut ProtoMessage)) -> &mut Self {
        let mut inner = ProtoMessage::default();
        write(&mut inner);
        self.bytes(field, &inner.0)
    }
}

pub(super) mod trace {
    pub const PACKET: u32 = 1;
}

pub(super) mod packet {
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED: u32 = 12;
    pub const FLAGS: u32 = 13;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    /// Flags: interned strings are cleared; the packet uses interned strings.
    pub const CLEARED: u64 = 1;
    pub const NEEDS: u64 = 2;
}

pub(super) mod track {
    pub const UUID: u32 = 1;
    pub const NAME: u32 = 2;
    pub const PROCESS: u32 = 3;
    pub const THREAD: u32 = 4;
    pub const PARENT: u32 = 5;
    pub const COUNTER: u32 = 8;
    pub const PROCESS_PID: u32 = 1;
    pub const PROCESS_NAME: u32 = 6;
    pub const THREAD_PID: u32 = 1;
    pub const THREAD_TID: u32 = 2;
    pub const THREAD_NAME: u32 = 5;
    pub const COUNTER_UNIT_NAME: u32 = 6;
}

pub(super) mod event {
    pub const CATEGORY_IID: u32 = 3;
    pub const ANNOTATION: u32 = 4;
    pub const TYPE: u32 = 9;
    pub const NAME_IID: u32 = 10;
    pub const TRACK: u32 = 11;
    pub const COUNTER_VALUE: u32 = 30;
    pub const FLOW: u32 = 47;
    pub const LAST_FLOW: u32 = 48;
    pub const BEGIN: u64 = 1;
    pub const END: u64 = 2;
    pub const INSTANT: u64 = 3;
    pub const COUNTER: u64 = 4;
    pub const ANNOTATION_NAME_IID: u32 = 1;
    pub const ANNOTATION_UINT: u32 = 3;
    pub const ANNOTATION_INT: u32 = 4;
}

pub(super) mod interned {
    pub const CATEGORIES: u32 = 1;
    pub const NAMES: u32 = 2;
    pub const ANNOTATIONS: u32 = 3;
    pub const IID: u32 = 1;
    pub const NAME: u32 = 2;
}
