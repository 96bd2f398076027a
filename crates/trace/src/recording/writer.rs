//! Writes a recording, block by block.

use core::fmt;
use std::io::{self, Write};

use hyoshi_model::{Instant, ProcessorId};

use super::{BLOCK, Header, LONGEST_BLOCK, LONGEST_HEADER, LONGEST_NAME, MAGIC, MOST_NAMES, NAMES, VERSION};
use crate::event::{Event, Who};

/// A block is written once it has grown to this; what is lost by SIGKILL is at most one a processor.
const FULL: usize = 64 << 10;

/// Processor, events lost, first instant, number of events.
const BODY_START: usize = 4 + 8 + 8 + 4;

/// Writes a recording. Each block is one write: put no buffer between.
#[derive(Debug)]
pub struct Writer<W> {
    to: W,
    name: String,
    blocks: Vec<Block>,
    /// Names that no file holds yet.
    new_names: Vec<String>,
    names: usize,
    kept: Kept,
    failed: bool,
}

/// The block of one processor that is being filled.
#[derive(Clone, Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    first: Instant,
    last: Instant,
    events: u32,
    lost: u64,
}

/// What a file holds for certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Bytes, up to the end of the last whole block.
    pub bytes: u64,
    /// Events.
    pub events: u64,
}

/// A recording could not be written, or not go on.
#[derive(Debug)]
pub enum WriteError {
    /// The file took no more.
    Io {
        /// The file.
        name: String,
        /// What it holds.
        kept: Kept,
        /// Why.
        source: io::Error,
    },
    /// The system's text is longer than a header may be.
    HeaderTooLong {
        /// The file.
        name: String,
        /// Bytes of the header.
        bytes: usize,
    },
    /// An earlier write failed: what came after it would not be readable.
    Stopped {
        /// The file.
        name: String,
        /// What it holds.
        kept: Kept,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Io { name, kept, source } => {
                let Kept { bytes, events } = kept;
                write!(
                    f,
                    "cannot write the recording {name}: {source}; {events} events ({bytes} bytes) are kept and readable; "
                )?;
                f.write_str(match source.kind() {
                    io::ErrorKind::StorageFull => "free some space, or record to another disk",
                    io::ErrorKind::PermissionDenied => "record to a directory that you may write to",
                    _ => "record to another place",
                })
            }
            WriteError::HeaderTooLong { name, bytes } => {
                write!(
                    f,
                    "cannot write the recording {name}: the system's text makes a header of {bytes} bytes, at most {LONGEST_HEADER} are possible"
                )
            }
            WriteError::Stopped { name, kept } => {
                write!(
                    f,
                    "the recording {name} ended at an earlier error; {} events are kept and readable",
                    kept.events
                )
            }
        }
    }
}

impl core::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            WriteError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl<W: Write> Writer<W> {
    /// Begins a recording; `name` is what errors call the file.
    pub fn new(to: W, name: impl Into<String>, header: &Header) -> Result<Self, WriteError> {
        let mut writer = Writer {
            to,
            name: name.into(),
            blocks: Vec::new(),
            new_names: Vec::new(),
            names: 0,
            kept: Kept::default(),
            failed: false,
        };
        // Only a full memory makes this fail, and that aborts elsewhere.
        let header = postcard::to_allocvec(header).unwrap_or_default();
        if header.len() > LONGEST_HEADER as usize {
            return Err(WriteError::HeaderTooLong { name: writer.name, bytes: header.len() });
        }
        let mut bytes = Vec::with_capacity(header.len() + 18);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        frame(&mut bytes, &header);
        writer.write(&bytes, 0)?;
        Ok(writer)
    }

    /// `event` happened on `processor` at `now`. Events of one processor come in their order.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &Event) -> Result<(), WriteError> {
        let block = self.block(processor);
        if block.events == 0 {
            (block.first, block.last) = (now, now);
        }
        // Zigzag: a clock that steps back, as it must not, costs space and not the recording.
        let delta = now.as_nanos().wrapping_sub(block.last.as_nanos()) as i64;
        block.last = now;
        block.events += 1;
        let bytes = core::mem::take(&mut block.bytes);
        let bytes = postcard::to_extend(&(delta, event), bytes).unwrap_or_default();
        block.bytes = bytes;
        // All of them, so that a file that is cut off tells of every processor until about the same time.
        if block.bytes.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Names a thread that is none of ours; use what comes back in the events that follow. Beyond
    /// [`MOST_NAMES`] all are called "others".
    pub fn name(&mut self, name: &str) -> Who {
        if self.names >= MOST_NAMES {
            return Who::Other(MOST_NAMES as u32 - 1);
        }
        let name = if self.names == MOST_NAMES - 1 { "others" } else { name };
        let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        self.new_names.push(name[..end].into());
        self.names += 1;
        Who::Other(self.names as u32 - 1)
    }

    /// `events` of a processor were lost after what has been written of it.
    pub fn lost(&mut self, processor: ProcessorId, events: u64) -> Result<(), WriteError> {
        if events > 0 {
            self.block(processor);
            self.end_block(processor.index())?;
            self.block(processor).lost += events;
        }
        Ok(())
    }

    /// Writes what is there; call it now and then, so that a crash costs little.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        (0..self.blocks.len()).try_for_each(|processor| self.end_block(processor))
    }

    /// Writes what is there and that this is everything until `now`: of processors that had nothing
    /// to tell, too.
    pub fn flush_until(&mut self, processors: usize, now: Instant) -> Result<(), WriteError> {
        if self.blocks.len() < processors {
            self.blocks.resize_with(processors, Block::default);
        }
        self.flush()?;
        for processor in 0..self.blocks.len() {
            self.write_block(processor, &Block { first: now, ..Block::default() })?;
        }
        Ok(())
    }

    /// Writes the rest and gives the file back, with what it holds.
    pub fn finish(mut self) -> Result<(W, Kept), WriteError> {
        self.flush()?;
        self.to.flush().map_err(|source| self.error(source))?;
        Ok((self.to, self.kept))
    }

    /// What the file holds for certain.
    pub fn kept(&self) -> Kept {
        self.kept
    }

    fn block(&mut self, processor: ProcessorId) -> &mut Block {
        let index = processor.index();
        if self.blocks.len() <= index {
            self.blocks.resize_with(index + 1, Block::default);
        }
        &mut self.blocks[index]
    }

    fn end_block(&mut self, processor: usize) -> Result<(), WriteError> {
        let block = core::mem::take(&mut self.blocks[processor]);
        if block.events == 0 && block.lost == 0 {
            return Ok(());
        }
        self.write_names()?;
        self.write_block(processor, &block)
    }

    fn write_block(&mut self, processor: usize, block: &Block) -> Result<(), WriteError> {
        debug_assert!(block.bytes.len() + BODY_START <= LONGEST_BLOCK as usize);
        let mut body = Vec::with_capacity(BODY_START + block.bytes.len());
        body.extend_from_slice(&(processor as u32).to_le_bytes());
        body.extend_from_slice(&block.lost.to_le_bytes());
        body.extend_from_slice(&block.first.as_nanos().to_le_bytes());
        body.extend_from_slice(&block.events.to_le_bytes());
        body.extend_from_slice(&block.bytes);
        let mut bytes = BLOCK.to_vec();
        frame(&mut bytes, &body);
        self.write(&bytes, u64::from(block.events))
    }

    /// Before the first block that may use them.
    fn write_names(&mut self) -> Result<(), WriteError> {
        let names = core::mem::take(&mut self.new_names);
        for some in names.chunks(LONGEST_BLOCK as usize / (2 * LONGEST_NAME)) {
            let body = postcard::to_allocvec(&some).unwrap_or_default();
            let mut bytes = NAMES.to_vec();
            frame(&mut bytes, &body);
            self.write(&bytes, 0)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], events: u64) -> Result<(), WriteError> {
        if self.failed {
            return Err(WriteError::Stopped { name: self.name.clone(), kept: self.kept });
        }
        if let Err(source) = self.to.write_all(bytes) {
            // Part of it may have been written: a block after it could not be found.
            self.failed = true;
            return Err(self.error(source));
        }
        self.kept.bytes += bytes.len() as u64;
        self.kept.events += events;
        Ok(())
    }

    fn error(&self, source: io::Error) -> WriteError {
        WriteError::Io { name: self.name.clone(), kept: self.kept, source }
    }
}

/// Length, crc32 and content.
fn frame(bytes: &mut Vec<u8>, content: &[u8]) {
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    bytes.extend_from_slice(content);
}
