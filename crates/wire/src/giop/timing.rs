//! Service context 30: the timing of a request (Real-time CORBA 1.2, section 3.5: the scheduler owns its octets).
//!
//! Two forms are read; all others are ignored:
//!
//! - ours, an encapsulation with the magic `Hy`, a version, then the fields of [`RequestTiming`]: version 1 of 52 octets
//!   without a thread, version 2 of 72 octets with one;
//! - that of TAO's Kokyu schedulers, 544 octets: an encapsulated any of the struct [`KokyuTiming`].

use alloc::vec::Vec;
use core::fmt;

use crate::any::Any;
use crate::cdr::{ByteOrder, Decode, DecodeError, DecodeErrorKind, Decoder, Encode, EncodeError, Encoder};
use crate::tagged::encapsulation;
use crate::typecode::{TypeCode, TypeIndex, TypeKind, Typed, Types};

const MAGIC: [u8; 2] = *b"Hy";
const VERSION: u8 = 1;
/// With the id of a distributable thread.
const THREAD_VERSION: u8 = 2;

/// The id of a distributable thread (Real-time CORBA 1.2, chapter 3), unique in the system. In a context it has 16
/// octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId {
    /// The number of its start's place, which no other place has: a process, or a chain of a system's run.
    pub origin: u64,
    /// Its number there.
    pub number: u64,
}

impl ThreadId {
    /// Of no thread.
    pub const NONE: ThreadId = ThreadId { origin: 0, number: 0 };

    /// True of no thread.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.origin == 0 && self.number == 0
    }

    /// Big-endian, the origin first.
    pub fn octets(self) -> [u8; 16] {
        ((u128::from(self.origin) << 64) | u128::from(self.number)).to_be_bytes()
    }

    /// Of at most 16 octets, which count as the last ones; [`NONE`](Self::NONE) of more.
    fn of_guid(guid: &[u8]) -> ThreadId {
        if guid.len() > 16 {
            return ThreadId::NONE;
        }
        let all = guid.iter().fold(0u128, |all, octet| (all << 8) | u128::from(*octet));
        ThreadId { origin: (all >> 64) as u64, number: all as u64 }
    }
}

/// In hexadecimal: `5c0a17e2f3b1d604-2a`.
impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.origin, self.number)
    }
}

/// The time of a job that sends a request, on one clock, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTiming {
    /// The clock of the times, by a number that no other clock has. A receiver that does not know it uses their
    /// differences: the time between sending and arriving is then unknown.
    pub clock: u64,
    /// When the request was sent.
    pub sent: u64,
    /// The nominal release of the first job of the chain.
    pub origin: u64,
    /// When the request must be served; `u64::MAX` for none.
    pub deadline: u64,
    /// The longest execution time that the caller expects; 0 if unknown.
    pub execution: u64,
    /// Rank among other requests; higher is more important.
    pub importance: u32,
    /// Whether the caller is critical.
    pub critical: bool,
    /// The distributable thread that sends it, or [`ThreadId::NONE`].
    pub thread: ThreadId,
}

/// A call between operations of a system. The request that carries it replaces the completion event of the caller's
/// part before the call ([`CONTEXT_HYOSHI_CALL`](super::CONTEXT_HYOSHI_CALL)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationCall {
    /// A hash of the system's operations.
    pub system: u64,
    /// The caller's part before the call, by its position in the file.
    pub source: u32,
    /// The number of its job.
    pub number: u64,
    /// The present period of its root, in ns.
    pub period: u64,
}

impl OperationCall {
    /// The length of [`OperationCall::octets`].
    pub const LEN: usize = 32;

    /// The data of a service context, in this machine's byte order.
    pub fn octets(&self) -> [u8; OperationCall::LEN] {
        let mut octets = [0; OperationCall::LEN];
        octets[..4].copy_from_slice(&[ByteOrder::NATIVE.flag(), MAGIC[0], MAGIC[1], VERSION]);
        octets[4..8].copy_from_slice(&self.source.to_ne_bytes());
        for (place, number) in octets[8..].chunks_exact_mut(8).zip([self.system, self.number, self.period]) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        octets
    }

    /// Reads one; `None` of another version.
    ///
    /// # Errors
    ///
    /// For damaged octets.
    pub fn read(data: &[u8]) -> Result<Option<OperationCall>, DecodeError> {
        let mut from = Decoder::encapsulated(data)?;
        let [first, second, version] = *from.raw(3)? else { return Ok(None) };
        if [first, second] != MAGIC || version != VERSION {
            return Ok(None);
        }
        let source = u32::decode(&mut from)?;
        let mut number = || u64::decode(&mut from);
        Ok(Some(OperationCall { system: number()?, source, number: number()?, period: number()? }))
    }
}

/// The timing of a request as TAO's Kokyu schedulers send it (`Kokyu::Svc_Ctxt_DSRT_QoS`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KokyuTiming {
    /// The id of the distributable thread: unique in the system.
    pub guid: Vec<u8>,
    /// Rank of the most important first scheduler.
    pub importance: i32,
    /// Criticality of the maximum urgency first scheduler.
    pub criticality: i32,
    /// CORBA priority of the fixed-priority scheduler.
    pub priority: i16,
    /// Since 1970 UTC, in units of 100 ns (`TimeBase::TimeT`); 0 for none.
    pub deadline: u64,
    /// In units of 100 ns; 0 if unknown.
    pub execution: u64,
}

/// A service context 30 in a known form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchedulingContext {
    /// Ours.
    Timing(RequestTiming),
    /// TAO's.
    Kokyu(KokyuTiming),
}

impl SchedulingContext {
    /// Reads one. `None` if its form or version is unknown: such a context belongs to another scheduler.
    ///
    /// # Errors
    ///
    /// For damaged octets of a known form.
    #[inline]
    pub fn read(data: &[u8]) -> Result<Option<SchedulingContext>, DecodeError> {
        match data {
            [_, first, second, version @ (VERSION | THREAD_VERSION), ..] if [*first, *second] == MAGIC => {
                RequestTiming::read(data, *version).map(|timing| Some(SchedulingContext::Timing(timing)))
            }
            // A type code of a struct begins at the fourth octet.
            [0, _, _, _, 0, 0, 0, 15, ..] | [1, _, _, _, 15, 0, 0, 0, ..] if data.len() <= LONGEST_KOKYU => {
                KokyuTiming::read(data).map(|read| read.map(SchedulingContext::Kokyu))
            }
            _ => Ok(None),
        }
    }
}

impl RequestTiming {
    /// The length of [`RequestTiming::octets`].
    pub const LEN: usize = 52;
    /// The length of [`RequestTiming::thread_octets`].
    pub const THREAD_LEN: usize = 72;

    /// The data of a service context without the thread, in this machine's byte order.
    #[inline]
    pub fn octets(&self) -> [u8; RequestTiming::LEN] {
        self.write(VERSION)
    }

    /// The data of a service context with the thread, in this machine's byte order.
    #[inline]
    pub fn thread_octets(&self) -> [u8; RequestTiming::THREAD_LEN] {
        let mut octets: [u8; RequestTiming::THREAD_LEN] = self.write(THREAD_VERSION);
        octets[56..64].copy_from_slice(&self.thread.origin.to_ne_bytes());
        octets[64..].copy_from_slice(&self.thread.number.to_ne_bytes());
        octets
    }

    /// All but the thread.
    #[inline]
    fn write<const LEN: usize>(&self, version: u8) -> [u8; LEN] {
        let mut octets = [0; LEN];
        octets[..4].copy_from_slice(&[ByteOrder::NATIVE.flag(), MAGIC[0], MAGIC[1], version]);
        octets[4..8].copy_from_slice(&self.importance.to_ne_bytes());
        let times = [self.clock, self.sent, self.origin, self.deadline, self.execution];
        for (place, time) in octets[8..48].chunks_exact_mut(8).zip(times) {
            place.copy_from_slice(&time.to_ne_bytes());
        }
        octets[48] = u8::from(self.critical);
        octets
    }

    fn read(data: &[u8], version: u8) -> Result<RequestTiming, DecodeError> {
        let mut from = Decoder::encapsulated(data)?;
        from.raw(3)?;
        let importance = u32::decode(&mut from)?;
        let mut time = || u64::decode(&mut from);
        let (clock, sent, origin, deadline, execution) = (time()?, time()?, time()?, time()?, time()?);
        let critical = bool::decode(&mut from)?;
        let thread = if version == THREAD_VERSION {
            ThreadId { origin: u64::decode(&mut from)?, number: u64::decode(&mut from)? }
        } else {
            ThreadId::NONE
        };
        Ok(RequestTiming { clock, sent, origin, deadline, execution, importance, critical, thread })
    }
}

/// Octets of a context of TAO's that is read; longer ones are ignored. With a GUID of 16 octets it has less than 600.
const LONGEST_KOKYU: usize = 1024;

impl KokyuTiming {
    const ID: &str = "IDL:omg.org/Kokyu/Svc_Ctxt_DSRT_QoS:1.0";

    /// The guid as a thread's id; [`ThreadId::NONE`] if it is longer.
    pub fn thread(&self) -> ThreadId {
        ThreadId::of_guid(&self.guid)
    }

    /// The data of a service context, as TAO's `Codec` encodes it.
    ///
    /// # Errors
    ///
    /// If the id exceeds 4 GiB.
    pub fn data(&self) -> Result<Vec<u8>, EncodeError> {
        let any = Any::of(self)?;
        encapsulation(ByteOrder::NATIVE, |to| any.encode(to))
    }

    /// `None` for an any of another type.
    fn read(data: &[u8]) -> Result<Option<KokyuTiming>, DecodeError> {
        let mut from = Decoder::encapsulated(data)?;
        let code = TypeCode::decode(&mut from)?;
        if code.id() != KokyuTiming::ID {
            return Ok(None);
        }
        if !code.is_equivalent(&KokyuTiming::type_code()) {
            return Err(from.error(DecodeErrorKind::Value("unknown layout of Kokyu::Svc_Ctxt_DSRT_QoS")));
        }
        KokyuTiming::decode(&mut from).map(Some)
    }
}

impl Encode for KokyuTiming {
    fn encode(&self, to: &mut Encoder) -> Result<(), EncodeError> {
        self.guid.encode(to)?;
        self.importance.encode(to)?;
        self.criticality.encode(to)?;
        self.priority.encode(to)?;
        self.deadline.encode(to)?;
        self.execution.encode(to)
    }
}

impl Decode<'_> for KokyuTiming {
    const LEAST: usize = 36;

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(KokyuTiming {
            guid: <&[u8]>::decode(from)?.to_vec(),
            importance: i32::decode(from)?,
            criticality: i32::decode(from)?,
            priority: i16::decode(from)?,
            deadline: u64::decode(from)?,
            execution: u64::decode(from)?,
        })
    }
}

impl Typed for KokyuTiming {
    fn describe(types: &mut Types) -> TypeIndex {
        types.structure(KokyuTiming::ID, "Svc_Ctxt_DSRT_QoS", |types| {
            let octet = types.simple(TypeKind::Octet);
            let guid = types.alias("IDL:omg.org/Kokyu/GuidType:1.0", "GuidType", |types| types.sequence(octet, 0));
            let long = types.simple(TypeKind::Long);
            let short = |types: &mut Types| types.simple(TypeKind::Short);
            let priority = types.alias("IDL:omg.org/RTCORBA/Priority:1.0", "Priority", short);
            let number = |types: &mut Types| types.simple(TypeKind::ULongLong);
            let time = TypeCode::build(|types| types.alias("IDL:omg.org/TimeBase/TimeT:1.0", "TimeT", number));
            [
                ("guid", guid),
                ("importance", long),
                ("criticality", long),
                ("desired_priority", priority),
                ("deadline", types.embed(&time)),
                // TAO writes it twice, without an indirection.
                ("estimated_initial_execution_time", types.embed(&time)),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn timing() -> RequestTiming {
        RequestTiming {
            clock: 0x0102_0304_0506_0708,
            sent: 1_000,
            origin: 900,
            deadline: 5_000,
            execution: 250,
            importance: 7,
            critical: true,
            thread: ThreadId::NONE,
        }
    }

    /// Big-endian, written by hand.
    const GOLDEN: [u8; RequestTiming::LEN] = [
        0, b'H', b'y', 1, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 3, 0xe8, 0, 0, 0, 0, 0, 0, 3, 0x84, 0,
        0, 0, 0, 0, 0, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 0, 0xfa, 1, 0, 0, 0,
    ];

    #[test]
    fn our_form_is_read_in_both_byte_orders() {
        assert_eq!(SchedulingContext::read(&GOLDEN), Ok(Some(SchedulingContext::Timing(timing()))));
        let native = timing().octets();
        assert_eq!(SchedulingContext::read(&native), Ok(Some(SchedulingContext::Timing(timing()))));
        // With its id and length it stays below 64 octets of a request.
        const { assert!(RequestTiming::LEN + 8 < 64) };
    }

    #[test]
    fn the_thread_follows_in_version_2() {
        let thread = ThreadId { origin: 0x1112_1314_1516_1718, number: 0x2a };
        let with = RequestTiming { thread, ..timing() };
        let mut golden = [0; RequestTiming::THREAD_LEN];
        golden[..RequestTiming::LEN].copy_from_slice(&GOLDEN);
        golden[3] = 2;
        golden[56..].copy_from_slice(&thread.octets());
        assert_eq!(SchedulingContext::read(&golden), Ok(Some(SchedulingContext::Timing(with))));
        assert_eq!(SchedulingContext::read(&with.thread_octets()), Ok(Some(SchedulingContext::Timing(with))));
        assert_eq!(SchedulingContext::read(&with.octets()), Ok(Some(SchedulingContext::Timing(timing()))));
        assert!(SchedulingContext::read(&golden[..71]).is_err());
        assert_eq!(alloc::format!("{thread}"), "1112131415161718-2a");
    }

    #[test]
    fn a_guid_is_a_thread_id_if_it_fits() {
        let thread = ThreadId { origin: 3, number: 7 };
        assert_eq!(ThreadId::of_guid(&thread.octets()), thread);
        assert_eq!(ThreadId::of_guid(&[1, 2]), ThreadId { origin: 0, number: 0x102 });
        assert!(ThreadId::of_guid(&[]).is_none() && ThreadId::of_guid(&[1; 17]).is_none());
    }

    #[test]
    fn a_context_of_another_scheduler_or_version_is_ignored_and_a_damaged_one_is_an_error() {
        // TAO's test scheduler: the number of a thread.
        assert_eq!(SchedulingContext::read(&[0x10, 0x27, 0, 0, 0, 0, 0, 0]), Ok(None));
        assert_eq!(SchedulingContext::read(&[]), Ok(None));
        let mut later = GOLDEN;
        later[3] = 3;
        assert_eq!(SchedulingContext::read(&later), Ok(None));
        later[3] = 2;
        assert!(SchedulingContext::read(&later).is_err(), "version 2 is longer");
        assert!(SchedulingContext::read(&GOLDEN[..40]).is_err());
        let mut neither = GOLDEN;
        neither[48] = 2;
        assert!(SchedulingContext::read(&neither).is_err());
    }

    #[test]
    fn taos_form_has_the_length_that_was_observed_and_is_read_back() {
        let kokyu = KokyuTiming {
            guid: vec![1, 2, 3, 4],
            importance: 5,
            criticality: 1,
            priority: 9,
            deadline: 17_000_000_000_000_000,
            execution: 20_000,
        };
        let data = kokyu.data().unwrap();
        assert_eq!(SchedulingContext::read(&data), Ok(Some(SchedulingContext::Kokyu(kokyu.clone()))));
        assert_eq!(data.len(), 544);
        for end in 8..data.len() {
            assert!(SchedulingContext::read(&data[..end]).is_err(), "cut after {end} octets");
        }
    }

    #[test]
    fn a_call_is_read_back_and_a_damaged_one_is_an_error() {
        let call = OperationCall { system: 0x0102_0304_0506_0708, source: 9, number: 1 << 40, period: 50_000_000 };
        assert_eq!(OperationCall::read(&call.octets()), Ok(Some(call)));
        let big: Vec<u8> = [&[0, b'H', b'y', 1, 0, 0, 0, 9][..], &0x0102_0304_0506_0708u64.to_be_bytes()]
            .into_iter()
            .chain([&(1u64 << 40).to_be_bytes()[..], &50_000_000u64.to_be_bytes()])
            .collect::<Vec<_>>()
            .concat();
        assert_eq!(OperationCall::read(&big), Ok(Some(call)));
        assert!(OperationCall::read(&big[..20]).is_err() && OperationCall::read(&[]).is_err());
        let mut later = call.octets();
        later[3] = 2;
        assert_eq!(OperationCall::read(&later), Ok(None));
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(data in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = SchedulingContext::read(&data);
            for version in [1, 2] {
                let ours: Vec<u8> = [&[1, b'H', b'y', version][..], &data].concat();
                let _ = SchedulingContext::read(&ours);
            }
        }

        #[test]
        fn our_form_survives_the_wire(
            clock: u64, sent: u64, origin: u64, deadline: u64, execution: u64, importance: u32, critical: bool,
            thread: (u64, u64),
        ) {
            let thread = ThreadId { origin: thread.0, number: thread.1 };
            let with = RequestTiming { clock, sent, origin, deadline, execution, importance, critical, thread };
            let timing = RequestTiming { thread: ThreadId::NONE, ..with };
            prop_assert_eq!(SchedulingContext::read(&timing.octets()), Ok(Some(SchedulingContext::Timing(timing))));
            prop_assert_eq!(SchedulingContext::read(&with.thread_octets()), Ok(Some(SchedulingContext::Timing(with))));
        }
    }
}
