//! Reads a recording up to its last complete block.

use core::fmt;
use std::io::{self, Read};

use hyoshi_model::{Instant, ProcessorId};

use super::{
    BLOCK, LONGEST_BLOCK, LONGEST_HEADER, LONGEST_NAME, MAGIC, MOST_NAMES, NAMES, OLDEST, RecordingHeader, VERSION,
};
use crate::event::{Input, TraceEvent};

/// An iterator over the events of a recording, block by block.
///
/// Blocks of different processors interleave; the events of one processor are in order. After an error the iteration
/// ends. Memory is bounded for damaged files, too: the header, one block, the names so far, and 8 MB of counts of lost
/// events.
#[derive(Debug)]
pub struct RecordingReader<R> {
    from: R,
    version: u16,
    header: RecordingHeader,
    position: u64,
    block: Block,
    lost: Vec<u64>,
    names: Vec<String>,
    complete_until: Vec<Instant>,
    only: Option<ProcessorId>,
    torn: Option<Torn>,
    over: bool,
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// The processor of the dispatcher.
    pub processor: ProcessorId,
    /// The time.
    pub now: Instant,
    /// The event.
    pub event: TraceEvent,
}

/// The file ends within a block: its writer was killed, or the disk was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Beginning of the torn block. Everything before it was read.
    pub at: u64,
    /// Bytes of the torn block in the file.
    pub bytes: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { at, bytes } = self;
        write!(
            f,
            "the recording ends within a block at byte {at} (after {bytes} bytes of it): its writer was killed, or \
             the disk was full; everything before it was read"
        )
    }
}

/// A recording cannot be read, or not completely.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be read.
    Io(io::Error),
    /// The file does not begin with the magic number.
    NotARecording,
    /// Its format is not supported.
    Version {
        /// Its version.
        found: u16,
    },
    /// It ends within its header.
    CutOff {
        /// Its length in bytes.
        bytes: u64,
    },
    /// The header does not match its checksum.
    CorruptHeader,
    /// A block is damaged.
    CorruptBlock {
        /// Its beginning; everything before it was read.
        at: u64,
        /// The defect.
        what: &'static str,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(source) => write!(f, "cannot read the recording: {source}"),
            ReadError::NotARecording => f.write_str(
                "not a recording of Hyoshi (they begin with HYOSHI); make one with `hyoshi run FILE --record NAME`",
            ),
            ReadError::Version { found } if *found > VERSION => write!(
                f,
                "the recording has format {found}, but this program reads format {VERSION}; read it with a newer \
                 version of Hyoshi"
            ),
            ReadError::Version { found } => write!(
                f,
                "the recording has format {found}, but this program reads format {VERSION}; read it with the version \
                 of Hyoshi that wrote it, or record again"
            ),
            ReadError::CutOff { bytes } => {
                write!(f, "the recording ends after {bytes} bytes, within its header: it has no events")
            }
            ReadError::CorruptHeader => {
                f.write_str("the recording's header does not match its checksum: the file was changed or damaged")
            }
            ReadError::CorruptBlock { at, what } => write!(
                f,
                "the recording's block at byte {at} is damaged ({what}); everything before it was read; do not trust \
                 what follows"
            ),
        }
    }
}

impl core::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            ReadError::Io(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(source: io::Error) -> Self {
        ReadError::Io(source)
    }
}

/// The current block.
#[derive(Debug, Default)]
struct Block {
    at: u64,
    body: Vec<u8>,
    used: usize,
    events: u32,
    processor: u32,
    now: u64,
}

impl<R: Read> RecordingReader<R> {
    /// Reads the header. `from` should be buffered.
    pub fn new(mut from: R) -> Result<Self, ReadError> {
        let mut start = Vec::new();
        arrive(&mut from, 18, &mut start)?;
        if start.is_empty() || !start.starts_with(&MAGIC[..start.len().min(MAGIC.len())]) {
            return Err(ReadError::NotARecording);
        }
        let cut_off = |bytes: usize| ReadError::CutOff { bytes: bytes as u64 };
        if start.len() >= 10 && !(OLDEST..=VERSION).contains(&u16_at(&start, 8)) {
            return Err(ReadError::Version { found: u16_at(&start, 8) });
        }
        if start.len() < 18 {
            return Err(cut_off(start.len()));
        }
        let (length, crc) = (u32_at(&start, 10), u32_at(&start, 14));
        if length > LONGEST_HEADER {
            return Err(ReadError::CorruptHeader);
        }
        let mut bytes = Vec::new();
        arrive(&mut from, length as usize, &mut bytes)?;
        if bytes.len() < length as usize {
            return Err(cut_off(18 + bytes.len()));
        }
        if crc32fast::hash(&bytes) != crc {
            return Err(ReadError::CorruptHeader);
        }
        let version = u16_at(&start, 8);
        let header = postcard::from_bytes(&bytes).map_err(|_| ReadError::CorruptHeader)?;
        let position = 18 + u64::from(length);
        let (block, lost, names, complete_until) = (Block::default(), Vec::new(), Vec::new(), Vec::new());
        Ok(RecordingReader {
            from,
            version,
            header,
            position,
            block,
            lost,
            names,
            complete_until,
            only: None,
            torn: None,
            over: false,
        })
    }

    /// Restricts the events to one processor.
    pub fn only(mut self, processor: ProcessorId) -> Self {
        self.only = Some(processor);
        self
    }

    /// The version of the file's format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// The recording's header.
    pub fn header(&self) -> &RecordingHeader {
        &self.header
    }

    /// Lost events of each processor so far.
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    /// The name of the thread [`CpuUser::Other`](crate::CpuUser::Other) with this number, if it was read.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }

    /// All names so far, by their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The time until which all events of a processor were read: its last event, or a later mark of the writer.
    /// [`Instant::NEVER`] after the end of the run.
    pub fn complete_until(&self, processor: ProcessorId) -> Instant {
        self.complete_until.get(processor.index()).copied().unwrap_or(Instant::ZERO)
    }

    /// Whether the file ends within a block; known after the iteration.
    pub fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// The next event, `None` at the end.
    fn read(&mut self) -> Result<Option<RecordedEvent>, ReadError> {
        while self.block.events == 0 {
            if self.block.used < self.block.body.len() {
                return Err(self.corrupt("more bytes than events"));
            }
            if !self.next_block()? {
                return Ok(None);
            }
        }
        let rest = &self.block.body[self.block.used..];
        let Ok(((delta, event), after)) = postcard::take_from_bytes::<(i64, TraceEvent)>(rest) else {
            return Err(self.corrupt("unknown event"));
        };
        let used = rest.len() - after.len();
        let block = &mut self.block;
        block.used += used;
        block.events -= 1;
        block.now = block.now.wrapping_add(delta as u64);
        let now = Instant::from_nanos(block.now);
        if let Some(until) = self.complete_until.get_mut(block.processor as usize) {
            *until = if event == TraceEvent::Input(Input::Close) { Instant::NEVER } else { now.max(*until) };
        }
        Ok(Some(RecordedEvent { processor: ProcessorId(block.processor), now, event }))
    }

    /// Reads the next block. False at the end of the file, complete or torn.
    fn next_block(&mut self) -> Result<bool, ReadError> {
        let at = self.position;
        self.block.at = at;
        let mut bytes = core::mem::take(&mut self.block.body);
        bytes.clear();
        self.block.used = 0;
        arrive(&mut self.from, 12, &mut bytes)?;
        if bytes.is_empty() {
            return Ok(false);
        }
        let tag = bytes.len().min(4);
        if !bytes.starts_with(&BLOCK[..tag]) && !bytes.starts_with(&NAMES[..tag]) {
            return Err(self.corrupt("it has no block tag"));
        }
        if bytes.len() < 12 {
            self.torn = Some(Torn { at, bytes: bytes.len() as u64 });
            return Ok(false);
        }
        let names = bytes.starts_with(&NAMES);
        let (length, crc) = (u32_at(&bytes, 4), u32_at(&bytes, 8));
        if !(if names { 1 } else { 24 }..=LONGEST_BLOCK).contains(&length) {
            return Err(self.corrupt("impossible length"));
        }
        bytes.clear();
        arrive(&mut self.from, length as usize, &mut bytes)?;
        if bytes.len() < length as usize {
            self.torn = Some(Torn { at, bytes: 12 + bytes.len() as u64 });
            return Ok(false);
        }
        if crc32fast::hash(&bytes) != crc {
            return Err(self.corrupt("wrong checksum"));
        }
        self.position = at + 12 + u64::from(length);
        if names {
            self.take_names(&bytes)?;
            bytes.clear();
            self.block.body = bytes;
            return Ok(true);
        }
        let processor = u32_at(&bytes, 0);
        if processor > MOST_PROCESSORS {
            return Err(self.corrupt("impossible processor number"));
        }
        if self.lost.len() <= processor as usize {
            self.lost.resize(processor as usize + 1, 0);
            self.complete_until.resize(processor as usize + 1, Instant::ZERO);
        }
        if u32_at(&bytes, 20) == 0 {
            let until = &mut self.complete_until[processor as usize];
            *until = Instant::from_nanos(u64_at(&bytes, 12)).max(*until);
        }
        let lost = &mut self.lost[processor as usize];
        *lost = lost.saturating_add(u64_at(&bytes, 4));
        if self.only.is_some_and(|only| only.0 != processor) {
            bytes.clear();
            self.block.body = bytes;
            return Ok(true);
        }
        self.block =
            Block { at, processor, now: u64_at(&bytes, 12), events: u32_at(&bytes, 20), used: 24, body: bytes };
        Ok(true)
    }

    fn take_names(&mut self, bytes: &[u8]) -> Result<(), ReadError> {
        // Borrowed: a false length allocates nothing.
        let mut rest = match postcard::take_from_bytes::<u32>(bytes) {
            Ok((_, rest)) => rest,
            Err(_) => return Err(self.corrupt("invalid names")),
        };
        while !rest.is_empty() {
            let Ok((name, after)) = postcard::take_from_bytes::<&str>(rest) else {
                return Err(self.corrupt("invalid names"));
            };
            if name.len() > LONGEST_NAME || self.names.len() >= MOST_NAMES {
                return Err(self.corrupt("too many or too long names"));
            }
            self.names.push(name.into());
            rest = after;
        }
        Ok(())
    }

    fn corrupt(&self, what: &'static str) -> ReadError {
        ReadError::CorruptBlock { at: self.block.at, what }
    }
}

/// More than a system file can have.
const MOST_PROCESSORS: u32 = 1 << 20;

impl<R: Read> Iterator for RecordingReader<R> {
    type Item = Result<RecordedEvent, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.read().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads up to `wanted` bytes. Memory grows with the bytes that arrive, not with `wanted`.
fn arrive(from: &mut impl Read, wanted: usize, bytes: &mut Vec<u8>) -> io::Result<()> {
    from.take(wanted as u64).read_to_end(bytes).map(|_| ())
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
