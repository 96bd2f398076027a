//! Reads a recording, whatever became of it: up to the last whole block.

use core::fmt;
use std::io::{self, Read};

use hyoshi_model::{Instant, ProcessorId};

use super::{BLOCK, Header, LONGEST_BLOCK, LONGEST_HEADER, LONGEST_NAME, MAGIC, MOST_NAMES, NAMES, OLDEST, VERSION};
use crate::event::{Event, Input};

/// Reads a recording from anything; an iterator over its events, block by block.
///
/// Blocks of different processors interleave; the events of one processor come in their order.
/// After an error the iteration is over. It keeps the header, one block and the names read so far,
/// allocates nothing for bytes that have not arrived, and a count of lost events for each processor
/// up to the highest that a block names: 8 MB at most, whatever a damaged block says.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    version: u16,
    header: Header,
    position: u64,
    block: Block,
    lost: Vec<u64>,
    names: Vec<String>,
    told_until: Vec<Instant>,
    only: Option<ProcessorId>,
    torn: Option<Torn>,
    over: bool,
}

/// One event of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose dispatcher.
    pub processor: ProcessorId,
    /// When.
    pub now: Instant,
    /// What.
    pub event: Event,
}

/// The file ends within a block: the program that wrote it was killed, or the disk was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Torn {
    /// Where the torn block begins; everything before it was read.
    pub at: u64,
    /// Bytes of it that are there.
    pub bytes: u64,
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Torn { at, bytes } = self;
        write!(
            f,
            "the recording ends within a block at byte {at} ({bytes} bytes of it are there): its writer was killed, or the disk was full; everything before it was read"
        )
    }
}

/// A recording cannot be read, or not on.
#[derive(Debug)]
pub enum ReadError {
    /// The file could not be read.
    Io(io::Error),
    /// The file does not begin like a recording.
    NotARecording,
    /// It was written by a program of another format.
    Version {
        /// The version it names.
        found: u16,
    },
    /// It ends before its header does.
    CutOff {
        /// Bytes that are there.
        bytes: u64,
    },
    /// Its header was changed or damaged.
    CorruptHeader,
    /// A block was changed or damaged.
    CorruptBlock {
        /// Where it begins; everything before it was read.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(source) => write!(f, "cannot read the recording: {source}"),
            ReadError::NotARecording => f.write_str(
                "this is not a recording of Hyoshi (they begin with HYOSHI); make one with `hyoshi run FILE --record NAME`",
            ),
            ReadError::Version { found } if *found > VERSION => write!(
                f,
                "the recording is of format {found}, this program reads format {VERSION}; read it with a newer version of Hyoshi, such as the one that wrote it"
            ),
            ReadError::Version { found } => write!(
                f,
                "the recording is of format {found}, this program reads format {VERSION}; read it with the version of Hyoshi that wrote it, or record again"
            ),
            ReadError::CutOff { bytes } => {
                write!(f, "the recording ends after {bytes} bytes, within its header: nothing was recorded yet")
            }
            ReadError::CorruptHeader => {
                f.write_str("the recording's header does not match its checksum: the file was changed or damaged")
            }
            ReadError::CorruptBlock { at, what } => write!(
                f,
                "the recording's block at byte {at} is damaged ({what}); everything before it was read, what follows is not to be trusted"
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

/// The block that events are taken from.
#[derive(Debug, Default)]
struct Block {
    at: u64,
    body: Vec<u8>,
    used: usize,
    events: u32,
    processor: u32,
    now: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the header. `from` is best buffered.
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
        let (block, lost, names, told_until) = (Block::default(), Vec::new(), Vec::new(), Vec::new());
        Ok(Reader {
            from,
            version,
            header,
            position,
            block,
            lost,
            names,
            told_until,
            only: None,
            torn: None,
            over: false,
        })
    }

    /// Reads the events of one processor only.
    pub fn only(mut self, processor: ProcessorId) -> Self {
        self.only = Some(processor);
        self
    }

    /// The version of its format.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// What the recording says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Events of each processor that were lost while recording, so far.
    pub fn lost(&self) -> &[u64] {
        &self.lost
    }

    /// The name of the thread that [`Who::Other`](crate::Who::Other) numbers, as far as it was read.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.names.get(number as usize).map(String::as_str)
    }

    /// All names so far, by their numbers.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Until when everything about a processor was read: its last event, or a mark of the writer
    /// after that; [`Instant::NEVER`] once it was told that the run is over.
    pub fn told_until(&self, processor: ProcessorId) -> Instant {
        self.told_until.get(processor.index()).copied().unwrap_or(Instant::ZERO)
    }

    /// Whether the file ended within a block; known when the iteration is over.
    pub fn torn(&self) -> Option<Torn> {
        self.torn
    }

    /// The next event, `None` at the end.
    fn read(&mut self) -> Result<Option<Entry>, ReadError> {
        while self.block.events == 0 {
            if self.block.used < self.block.body.len() {
                return Err(self.corrupt("more bytes than events"));
            }
            if !self.next_block()? {
                return Ok(None);
            }
        }
        let rest = &self.block.body[self.block.used..];
        let Ok(((delta, event), after)) = postcard::take_from_bytes::<(i64, Event)>(rest) else {
            return Err(self.corrupt("an unknown event"));
        };
        let used = rest.len() - after.len();
        let block = &mut self.block;
        block.used += used;
        block.events -= 1;
        block.now = block.now.wrapping_add(delta as u64);
        let now = Instant::from_nanos(block.now);
        if let Some(until) = self.told_until.get_mut(block.processor as usize) {
            *until = if event == Event::Input(Input::Close) { Instant::NEVER } else { now.max(*until) };
        }
        Ok(Some(Entry { processor: ProcessorId(block.processor), now, event }))
    }

    /// False at the end of the file, be it clean or torn.
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
            return Err(self.corrupt("it does not begin like a block"));
        }
        if bytes.len() < 12 {
            self.torn = Some(Torn { at, bytes: bytes.len() as u64 });
            return Ok(false);
        }
        let names = bytes.starts_with(&NAMES);
        let (length, crc) = (u32_at(&bytes, 4), u32_at(&bytes, 8));
        if !(if names { 1 } else { 24 }..=LONGEST_BLOCK).contains(&length) {
            return Err(self.corrupt("its length is impossible"));
        }
        bytes.clear();
        arrive(&mut self.from, length as usize, &mut bytes)?;
        if bytes.len() < length as usize {
            self.torn = Some(Torn { at, bytes: 12 + bytes.len() as u64 });
            return Ok(false);
        }
        if crc32fast::hash(&bytes) != crc {
            return Err(self.corrupt("its checksum differs"));
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
            return Err(self.corrupt("it names an impossible processor"));
        }
        if self.lost.len() <= processor as usize {
            self.lost.resize(processor as usize + 1, 0);
            self.told_until.resize(processor as usize + 1, Instant::ZERO);
        }
        if u32_at(&bytes, 20) == 0 {
            let until = &mut self.told_until[processor as usize];
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
        // Borrowed: a length that lies about strings that are not there allocates nothing.
        let mut rest = match postcard::take_from_bytes::<u32>(bytes) {
            Ok((_, rest)) => rest,
            Err(_) => return Err(self.corrupt("names that are none")),
        };
        while !rest.is_empty() {
            let Ok((name, after)) = postcard::take_from_bytes::<&str>(rest) else {
                return Err(self.corrupt("names that are none"));
            };
            if name.len() > LONGEST_NAME || self.names.len() >= MOST_NAMES {
                return Err(self.corrupt("too many names, or too long ones"));
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

/// More than any system file can name.
const MOST_PROCESSORS: u32 = 1 << 20;

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.read().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Reads up to `wanted` bytes; grows with what arrives, not with what was announced.
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
