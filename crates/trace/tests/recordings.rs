//! Recordings that are written, torn, damaged and rejected.

use crate::systems;

use std::io::{self, Write};

use hyoshi_model::*;
use hyoshi_trace::recording::{
    Fact, FactLevel, RangeCheck, RangeError, ReadError, RecordedEvent, RecordingSize, WriteError,
};
use hyoshi_trace::{
    ClientLabel, CpuEvent, CpuUser, DiscardReason, DispatchDecision, Input, JobEnd, JobService, RatedClient,
    RecordingHeader, RecordingReader, RecordingWriter, Signal, Slot, Splits, Stats, TraceEvent,
};
use proptest::prelude::*;

fn header() -> RecordingHeader {
    RecordingHeader {
        system: "name = \"uav\"\n".into(),
        files: vec![("times.txt".into(), "1ms\n".into())],
        verb: "run".into(),
        program: "hyoshi 0.1.0".into(),
        started_unix_ns: 1_700_000_000_000_000_000,
        seed: 7,
        changes: vec!["--strategy=MUF".into()],
        processors: vec![0, 1, 2],
        run: [7; 16],
        facts: vec![Fact {
            what: "real-time priority".into(),
            level: FactLevel::Refused,
            detail: "no CAP_SYS_NICE".into(),
        }],
    }
}

fn events() -> impl Strategy<Value = Vec<RecordedEvent>> {
    let span = || any::<u64>().prop_map(Span::from_nanos);
    let instant = || any::<u64>().prop_map(Instant::from_nanos);
    let slot = || any::<u32>().prop_map(Slot);
    let job = || {
        (any::<u32>(), any::<u64>(), any::<u16>()).prop_map(|(operation, number, leg)| JobId {
            operation: OperationId(operation),
            number,
            leg,
        })
    };
    let who = || {
        prop_oneof![
            Just(CpuUser::Idle),
            any::<u8>().prop_map(CpuUser::Lane),
            Just(CpuUser::Release),
            Just(CpuUser::Below),
            Just(CpuUser::Watchdog),
            any::<u32>().prop_map(CpuUser::Other),
            Just(CpuUser::Unknown),
        ]
    };
    let event = prop_oneof![
        Just(TraceEvent::Input(Input::Tick)),
        (any::<u8>(), span()).prop_map(|(lane, executed)| TraceEvent::Input(Input::LaneRuns { lane, executed })),
        (slot(), span()).prop_map(|(slot, consumed)| TraceEvent::Input(Input::Complete {
            slot,
            consumed,
            ticket: None
        })),
        (slot(), any::<u64>()).prop_map(|(slot, hops)| TraceEvent::Input(Input::Choose { slot, hops })),
        (any::<(u16, u32, u32)>(), span(), span(), ".*").prop_map(
            |((client, operation, value), shortest, longest, name)| TraceEvent::Input(Input::Join {
                client,
                task: RatedClient {
                    operation: OperationId(operation),
                    estimate: shortest,
                    shortest,
                    longest,
                    value,
                    label: ClientLabel::new(&name)
                }
            })
        ),
        (any::<u16>(), any::<u32>(), span()).prop_map(|(client, operation, period)| TraceEvent::Decision(
            DispatchDecision::Pace { client, operation: OperationId(operation), period }
        )),
        (any::<u32>(), any::<u8>()).prop_map(|(operation, level)| TraceEvent::Decision(DispatchDecision::Level {
            operation: OperationId(operation),
            level,
        })),
        (span(), any::<u32>())
            .prop_map(|(quantile, jobs)| TraceEvent::Decision(DispatchDecision::Latency { quantile, jobs })),
        any::<(u16, u16, Option<i64>)>().prop_map(|(contract, condition, value)| TraceEvent::Decision(
            DispatchDecision::Condition { contract, condition, value }
        )),
        any::<(u16, Option<u16>, Option<u16>)>()
            .prop_map(|(contract, from, to)| TraceEvent::Decision(DispatchDecision::Region { contract, from, to })),
        any::<(u16, i64)>().prop_map(|(condition, value)| TraceEvent::Input(Input::Condition { condition, value })),
        any::<(u16, Option<u16>, u64)>().prop_map(|(contract, region, until)| {
            let until = Instant::ZERO + Span::from_nanos(until >> 1);
            TraceEvent::Input(Input::Force { contract, region, until })
        }),
        (slot(), any::<u32>())
            .prop_map(|(slot, resource)| TraceEvent::Input(Input::Acquire { slot, resource: ResourceId(resource) })),
        (job(), instant(), instant(), any::<u8>()).prop_map(|(job, release, deadline, lane)| TraceEvent::Decision(
            DispatchDecision::Ready { job, release, deadline, lane }
        )),
        (any::<(u32, u32, u16, u64)>(), instant(), span(), instant()).prop_map(
            |((from, to, position, number), origin, period, due)| {
                let (from, to) = (OperationId(from), OperationId(to));
                TraceEvent::Decision(DispatchDecision::Send(Signal {
                    from,
                    to,
                    position,
                    number,
                    origin,
                    period,
                    due,
                    ticket: None,
                }))
            }
        ),
        (who(), any::<bool>()).prop_map(|(to, preempted)| TraceEvent::Cpu(CpuEvent::Switch { to, preempted })),
        (who(), span()).prop_map(|(who, span)| TraceEvent::Cpu(CpuEvent::Overhead { who, span })),
        (who(), span()).prop_map(|(who, span)| TraceEvent::Cpu(CpuEvent::Used { who, span })),
        span().prop_map(|span| TraceEvent::Cpu(CpuEvent::Stolen { span })),
        Just(TraceEvent::Cpu(CpuEvent::Gap)),
        (any::<u32>(), any::<i64>(), span()).prop_map(|(host, offset, error)| TraceEvent::Cpu(CpuEvent::Clock {
            host: HostId(host),
            offset,
            error
        })),
        (0u64..1 << 40, 0u64..1 << 20, 0u8..8, any::<bool>()).prop_map(|(release, number, level, demoted)| {
            let release = Instant::from_nanos(release);
            let end = systems::job(0, number, release, release + Span::from_micros(number + 1_000));
            let service = JobService { level, demoted };
            TraceEvent::Decision(DispatchDecision::End(JobEnd { service, ..end }))
        }),
    ];
    let entry = (0u32..3, any::<u64>(), event).prop_map(|(processor, now, event)| RecordedEvent {
        processor: ProcessorId(processor),
        now: Instant::from_nanos(now),
        event,
    });
    proptest::collection::vec(entry, 0..60)
}

/// Writes with a flush after every fifth event, so that there are many blocks.
fn recorded(entries: &[RecordedEvent]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), "memory", &header()).unwrap();
    for (position, entry) in entries.iter().enumerate() {
        writer.event(entry.processor, entry.now, &entry.event).unwrap();
        if position % 5 == 4 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap().0
}

/// The extents of the contents of the header and of each block, as far as their lengths are right.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let (mut frames, mut at) = (Vec::new(), 10);
    while let Some(length) = bytes.get(at..at + 4) {
        let from = at + 8;
        let to = from.saturating_add(u32::from_le_bytes(length.try_into().unwrap()) as usize);
        if to > bytes.len() {
            break;
        }
        frames.push((from, to));
        at = to + 4;
    }
    frames
}

/// The events of one processor; blocks of several processors interleave.
fn of(entries: &[RecordedEvent], processor: u32) -> Vec<RecordedEvent> {
    entries.iter().filter(|entry| entry.processor.0 == processor).copied().collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(entries in events()) {
        let bytes = recorded(&entries);
        let mut reader = RecordingReader::new(&bytes[..]).unwrap();
        prop_assert_eq!(reader.header(), &header());
        let read: Vec<RecordedEvent> = reader.by_ref().map(Result::unwrap).collect();
        for processor in 0..3 {
            prop_assert_eq!(of(&read, processor), of(&entries, processor));
        }
        prop_assert!(reader.torn().is_none());
    }

    #[test]
    fn a_recording_cut_off_anywhere_returns_a_prefix(entries in events(), share in 0.0f64..1.0) {
        let bytes = recorded(&entries);
        let whole: Vec<RecordedEvent> = RecordingReader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
        let cut = (bytes.len() as f64 * share) as usize;
        match RecordingReader::new(&bytes[..cut]) {
            Err(ReadError::CutOff { bytes }) => prop_assert_eq!(bytes as usize, cut),
            Err(ReadError::NotARecording) => prop_assert_eq!(cut, 0),
            Err(other) => prop_assert!(false, "{}", other),
            Ok(mut reader) => {
                let read: Result<Vec<RecordedEvent>, ReadError> = reader.by_ref().collect();
                let read = read.unwrap();
                prop_assert_eq!(&whole[..read.len()], &read[..]);
                let torn = reader.torn();
                prop_assert_eq!(torn.map_or(cut as u64, |torn| torn.at + torn.bytes), cut as u64);
            }
        }
    }

    #[test]
    fn a_damaged_recording_returns_at_most_a_prefix_and_an_error(
        entries in events(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = recorded(&entries);
        let whole: Vec<RecordedEvent> = RecordingReader::new(&bytes[..]).unwrap().map(Result::unwrap).collect();
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok(reader) = RecordingReader::new(&bytes[..]) {
            let read: Vec<RecordedEvent> = reader.map_while(Result::ok).collect();
            prop_assert_eq!(&whole[..read.len()], &read[..]);
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_without_panic(start in 0usize..19, mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let good = recorded(&[]);
        bytes.splice(0..0, good[..start].iter().copied());
        if let Ok(reader) = RecordingReader::new(&bytes[..]) {
            reader.for_each(drop);
        }
    }

    /// After any bit flip with a correct checksum the recording is within bounds, or rejected.
    #[test]
    fn what_was_edited_with_its_checksums_is_in_bounds_or_refused(
        entries in events(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8), 1..8),
    ) {
        let system = systems::periodic(4);
        let mut bytes = recorded(&entries);
        let header = frames(&bytes)[0];
        for (place, bit) in flips {
            if header.1 < bytes.len() {
                let place = header.1 + place.index(bytes.len() - header.1);
                bytes[place] ^= 1 << bit;
            }
        }
        for (from, to) in frames(&bytes) {
            let crc = crc32fast::hash(&bytes[from..to]);
            bytes[from - 4..from].copy_from_slice(&crc.to_le_bytes());
        }
        let (mut check, mut stats, mut splits) = (RangeCheck::new(&system), Stats::new(&system), Splits::new(2));
        for entry in RecordingReader::new(&bytes[..]).unwrap().map_while(Result::ok) {
            if check.check(&entry).is_err() {
                break;
            }
            splits.event(entry.processor, entry.now, &entry.event);
            if let TraceEvent::Decision(DispatchDecision::End(end)) = &entry.event {
                stats.record(end);
            }
        }
        stats.counts(None, |_| true);
        splits.until(Instant::from_nanos(1 << 40));
    }

    /// The checksum is right and the content arbitrary: a deliberate change.
    #[test]
    fn a_forged_block_is_read_without_panic(names in any::<bool>(), body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = recorded(&[]);
        bytes.extend_from_slice(if names { b"HNAM" } else { b"HBLK" });
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        RecordingReader::new(&bytes[..]).unwrap().for_each(drop);
    }
}

#[test]
fn other_files_are_refused_with_what_they_are() {
    let refused = |bytes: &[u8]| RecordingReader::new(bytes).map(drop).unwrap_err().to_string();
    assert!(refused(b"\x7fELF and so on and on").contains("not a recording"));
    let mut other = recorded(&[]);
    other[8] += 1;
    assert!(refused(&other).contains(&format!("format {}", other[8])));
    assert!(refused(&other).contains("newer"));
    other[8] = 5;
    let old = refused(&other);
    assert!(old.contains("format 5,") && old.contains("record again"), "{old}");
    let mut damaged = recorded(&[]);
    damaged[25] ^= 1;
    assert!(refused(&damaged).contains("header"));
}

#[test]
fn events_of_earlier_versions_keep_their_numbers() {
    let bytes = |event: TraceEvent| postcard::to_allocvec(&event).unwrap();
    let complete = Input::Complete { slot: Slot(1), consumed: Span::from_nanos(2), ticket: None };
    assert_eq!(bytes(TraceEvent::Input(complete)), [0, 3, 1, 2]);
    let suspend = Input::SuspendTriggers { operation: OperationId(4), on: true };
    assert_eq!(bytes(TraceEvent::Input(suspend)), [0, 15, 4, 1]);
    let (to, reason) = (OperationId(5), DiscardReason::QueueFull);
    let discard = DispatchDecision::Discard { to, position: 6, number: 7, reason };
    assert_eq!(bytes(TraceEvent::Decision(discard)), [1, 14, 5, 6, 7, 2]);
    let sample = Input::Sample { utilisation: None };
    assert_eq!(bytes(TraceEvent::Input(sample)), [0, 17, 0]);
    assert_eq!(bytes(TraceEvent::Input(Input::Leave { client: 3 })), [0, 19, 3]);
    // The end of a job has one byte for its level and whether it was demoted.
    for (level, demoted, byte) in [(0, false, 0), (0, true, 1), (3, true, 7)] {
        let end = JobEnd { service: JobService { level, demoted }, ..systems::job(2, 9, Instant::ZERO, Instant::ZERO) };
        let written = bytes(TraceEvent::Decision(DispatchDecision::End(end)));
        assert_eq!(written[..10], [1, 8, 2, 9, 0, 0, 1, 0, byte, 0]);
    }
    // A recording of an earlier version is read.
    let entry = RecordedEvent { processor: ProcessorId(0), now: Instant::ZERO, event: TraceEvent::Decision(discard) };
    let mut earlier = recorded(&[entry]);
    earlier[8] = 8;
    let mut reader = RecordingReader::new(&earlier[..]).unwrap();
    assert_eq!((reader.version(), reader.next().unwrap().unwrap()), (8, entry));
}

#[test]
fn a_length_that_lies_allocates_nothing() {
    let mut bytes = recorded(&[])[..10].to_vec();
    bytes.extend_from_slice(&(100u32 << 20).to_le_bytes());
    bytes.extend_from_slice(&[0; 40]);
    assert!(matches!(RecordingReader::new(&bytes[..]), Err(ReadError::CutOff { bytes: 54 })));
}

#[test]
fn lost_events_are_counted_for_their_processor() {
    let mut writer = RecordingWriter::new(Vec::new(), "memory", &header()).unwrap();
    let tick = TraceEvent::Input(Input::Tick);
    writer.event(ProcessorId(1), Instant::ZERO, &tick).unwrap();
    writer.lost(ProcessorId(1), 12).unwrap();
    writer.lost(ProcessorId(1), 30).unwrap();
    let bytes = writer.finish().unwrap().0;
    let mut reader = RecordingReader::new(&bytes[..]).unwrap();
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 1);
    assert_eq!(reader.lost(), [0, 42]);
}

#[test]
fn threads_of_others_have_names_before_the_events_that_use_them() {
    let mut writer = RecordingWriter::new(Vec::new(), "memory", &header()).unwrap();
    let seen = |to| TraceEvent::Cpu(CpuEvent::Switch { to, preempted: true });
    let first = writer.name("kworker/1:2");
    writer.event(ProcessorId(0), Instant::ZERO, &seen(first)).unwrap();
    writer.flush().unwrap();
    let second = writer.name(&"ö".repeat(40));
    writer.event(ProcessorId(0), Instant::ZERO, &seen(second)).unwrap();
    let bytes = writer.finish().unwrap().0;
    let mut reader = RecordingReader::new(&bytes[..]).unwrap();
    assert_eq!((first, reader.next().unwrap().unwrap().event), (CpuUser::Other(0), seen(first)));
    assert_eq!((reader.name(0), reader.name(1)), (Some("kworker/1:2"), None));
    assert_eq!(reader.next().unwrap().unwrap().event, seen(second));
    assert_eq!(reader.name(1), Some(&*"ö".repeat(32)));
    assert!(reader.next().is_none() && reader.torn().is_none());
}

/// Accepts so many bytes, then fails with a full disk.
struct Disk(usize);

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.0.min(bytes.len());
        self.0 -= room;
        if room == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(room) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file_and_what_is_written() {
    let empty = recorded(&[]).len();
    let mut writer = RecordingWriter::new(Disk(empty + 50), "/data/flight.rec", &header()).unwrap();
    let tick = TraceEvent::Input(Input::Tick);
    writer.event(ProcessorId(0), Instant::ZERO, &tick).unwrap();
    writer.flush().unwrap();
    let written = writer.written();
    assert_eq!(written, RecordingSize { bytes: empty as u64 + 39, events: 1 });
    writer.event(ProcessorId(0), Instant::ZERO, &tick).unwrap();
    let error = writer.flush().unwrap_err().to_string();
    assert!(
        error.contains("/data/flight.rec") && error.contains("1 events") && error.contains("free some space"),
        "{error}"
    );
    writer.event(ProcessorId(0), Instant::ZERO, &tick).unwrap();
    assert!(matches!(writer.flush(), Err(WriteError::Stopped { .. })));
}

#[test]
fn numbers_beyond_the_system_and_decreasing_times_are_range_errors() {
    let system = systems::periodic(4);
    let at = |micros| Instant::ZERO + Span::from_micros(micros);
    let entry = |processor, micros, event| RecordedEvent { processor: ProcessorId(processor), now: at(micros), event };
    let end = |operation| TraceEvent::Decision(DispatchDecision::End(systems::job(operation, 0, at(0), at(1))));
    let range_error = |entries: &[RecordedEvent]| {
        let mut check = RangeCheck::new(&system);
        entries.iter().find_map(|entry| check.check(entry).err())
    };
    let tick = TraceEvent::Input(Input::Tick);
    assert_eq!(range_error(&[entry(0, 5, tick), entry(0, 5, end(3))]), None);
    assert_eq!(range_error(&[entry(0, 5, tick), entry(0, 4, tick)]), Some(RangeError::Back { from: at(5), to: at(4) }));
    // Observations use another path.
    assert_eq!(range_error(&[entry(0, 5, tick), entry(0, 4, TraceEvent::Cpu(CpuEvent::Gap))]), None);
    let unknown = |what, number, of| Some(RangeError::Unknown { what, number, of, at: at(5) });
    assert_eq!(range_error(&[entry(0, 5, end(4))]), unknown("operation", 4, 4));
    assert_eq!(range_error(&[entry(9, 5, tick)]), unknown("processor", 9, system.processors.len()));
    let acquire = TraceEvent::Input(Input::Acquire { slot: Slot(0), resource: ResourceId(7) });
    assert_eq!(range_error(&[entry(0, 5, acquire)]), unknown("resource", 7, 0));
    let complete =
        TraceEvent::Input(Input::Complete { slot: Slot(0), consumed: Span::from_nanos(u64::MAX), ticket: None });
    assert_eq!(range_error(&[entry(0, 5, complete)]), Some(RangeError::Beyond { at: at(5) }));
    let clock = |host, offset| TraceEvent::Cpu(CpuEvent::Clock { host: HostId(host), offset, error: Span::ZERO });
    assert_eq!(range_error(&[entry(0, 5, clock(0, -5))]), None);
    assert_eq!(range_error(&[entry(0, 5, clock(1, -5))]), unknown("host", 1, 1));
    assert_eq!(range_error(&[entry(0, 5, clock(0, i64::MIN))]), Some(RangeError::Beyond { at: at(5) }));
    let levels = systems::with_levels();
    for (operation, level, of) in [(0, 1, 2), (0, 2, 2), (1, 0, 1), (1, 1, 1)] {
        let service = JobService { level, demoted: false };
        let end = DispatchDecision::End(JobEnd { service, ..systems::job(operation, 0, at(0), at(1)) });
        for decision in [end, DispatchDecision::Level { operation: OperationId(operation), level }] {
            let checked = RangeCheck::new(&levels).check(&entry(0, 5, TraceEvent::Decision(decision))).err();
            let expected = if usize::from(level) < of { None } else { unknown("service level", level.into(), of) };
            assert_eq!(checked, expected, "{decision:?}");
        }
    }
    let part = RangeCheck::new(&system).of_part(&[]).check(&entry(0, 5, tick));
    assert_eq!(part, Err(RangeError::NotContained { processor: ProcessorId(0), at: at(5) }));
    let range_error = range_error(&[entry(0, 5, end(77))]).unwrap().to_string();
    assert!(range_error.contains("operation 77, but its system has 4"), "{range_error}");
}
