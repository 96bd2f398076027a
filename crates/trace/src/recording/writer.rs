//! Writes a recording, block by block.

use core::fmt;
use std::io::{self, Write};

use hyoshi_model::{Instant, ProcessorId};

use super::{BLOCK, LONGEST_BLOCK, LONGEST_HEADER, LONGEST_NAME, MAGIC, MOST_NAMES, NAMES, RecordingHeader, VERSION};
use crate::event::{CpuUser, TraceEvent};

/// A block is written when it reaches this size. SIGKILL loses at most one block per processor.
const FULL: usize = 64 << 10;

/// The length of a block's start: processor, lost events, first instant, number of events.
const BODY_START: usize = 4 + 8 + 8 + 4;

/// Writes a recording. Each block is one write, so do not buffer `to`.
#[derive(Debug)]
pub struct RecordingWriter<W> {
    to: W,
    name: String,
    blocks: Vec<BlockBuffer>,
    /// Names not written yet.
    new_names: Vec<String>,
    names: usize,
    written: RecordingSize,
    failed: bool,
}

/// The block of one processor that is being filled.
#[derive(Clone, Debug, Default)]
struct BlockBuffer {
    bytes: Vec<u8>,
    first: Instant,
    last: Instant,
    events: u32,
    lost: u64,
}

/// The content of a file up to its last complete block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingSize {
    /// Its bytes.
    pub bytes: u64,
    /// Its events.
    pub events: u64,
}

/// A recording could not be written, or not continued.
#[derive(Debug)]
pub enum WriteError {
    /// A write failed.
    Io {
        /// The file.
        name: String,
        /// The content of the file.
        written: RecordingSize,
        /// The cause.
        source: io::Error,
    },
    /// The header is too long.
    HeaderTooLong {
        /// The file.
        name: String,
        /// Length of the header.
        bytes: usize,
    },
    /// An earlier write failed, so later blocks would be unreadable.
    Stopped {
        /// The file.
        name: String,
        /// The content of the file.
        written: RecordingSize,
    },
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::Io { name, written, source } => {
                let RecordingSize { bytes, events } = written;
                write!(
                    f,
                    "cannot write the recording {name}: {source}; {events} events ({bytes} bytes) are saved and \
                     readable; "
                )?;
                f.write_str(match source.kind() {
                    io::ErrorKind::StorageFull => "free some space, or record to another disk",
                    io::ErrorKind::PermissionDenied => "record to a directory that you may write to",
                    _ => "record to another file",
                })
            }
            WriteError::HeaderTooLong { name, bytes } => {
                write!(
                    f,
                    "cannot write the recording {name}: its header has {bytes} bytes, more than the limit of \
                     {LONGEST_HEADER}; shorten the system file"
                )
            }
            WriteError::Stopped { name, written } => {
                write!(
                    f,
                    "the recording {name} ended at an earlier error; {} events are saved and readable",
                    written.events
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

impl<W: Write> RecordingWriter<W> {
    /// Begins a recording. Errors call the file `name`.
    pub fn new(to: W, name: impl Into<String>, header: &RecordingHeader) -> Result<Self, WriteError> {
        let mut writer = RecordingWriter {
            to,
            name: name.into(),
            blocks: Vec::new(),
            new_names: Vec::new(),
            names: 0,
            written: RecordingSize::default(),
            failed: false,
        };
        // It fails only without memory, which aborts elsewhere.
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

    /// Records an event. The events of one processor must be in order.
    pub fn event(&mut self, processor: ProcessorId, now: Instant, event: &TraceEvent) -> Result<(), WriteError> {
        let block = self.block(processor);
        if block.events == 0 {
            (block.first, block.last) = (now, now);
        }
        // Zigzag: a decreasing clock costs space, but does not break the recording.
        let delta = now.as_nanos().wrapping_sub(block.last.as_nanos()) as i64;
        block.last = now;
        block.events += 1;
        let bytes = core::mem::take(&mut block.bytes);
        let bytes = postcard::to_extend(&(delta, event), bytes).unwrap_or_default();
        block.bytes = bytes;
        // All blocks, so that a torn file ends at about the same time for all processors.
        if block.bytes.len() >= FULL { self.flush() } else { Ok(()) }
    }

    /// Names a thread outside the run. Use the returned value in later events. Beyond [`MOST_NAMES`] all threads are
    /// called "others".
    pub fn name(&mut self, name: &str) -> CpuUser {
        if self.names >= MOST_NAMES {
            return CpuUser::Other(MOST_NAMES as u32 - 1);
        }
        let name = if self.names == MOST_NAMES - 1 { "others" } else { name };
        let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
        self.new_names.push(name[..end].into());
        self.names += 1;
        CpuUser::Other(self.names as u32 - 1)
    }

    /// Records the loss of `events` events of a processor after those written.
    pub fn lost(&mut self, processor: ProcessorId, events: u64) -> Result<(), WriteError> {
        if events > 0 {
            self.block(processor);
            self.end_block(processor.index())?;
            self.block(processor).lost += events;
        }
        Ok(())
    }

    /// Writes the current blocks. Call it regularly, so that a crash loses little.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        (0..self.blocks.len()).try_for_each(|processor| self.end_block(processor))
    }

    /// Writes the current blocks, and a mark that they are complete until `now` for all processors.
    pub fn flush_until(&mut self, processors: usize, now: Instant) -> Result<(), WriteError> {
        if self.blocks.len() < processors {
            self.blocks.resize_with(processors, BlockBuffer::default);
        }
        self.flush()?;
        for processor in 0..self.blocks.len() {
            self.write_block(processor, &BlockBuffer { first: now, ..BlockBuffer::default() })?;
        }
        Ok(())
    }

    /// Writes the rest. Returns the file and its content.
    pub fn finish(mut self) -> Result<(W, RecordingSize), WriteError> {
        self.flush()?;
        self.to.flush().map_err(|source| self.error(source))?;
        Ok((self.to, self.written))
    }

    /// The content of the file up to its last complete block.
    pub fn written(&self) -> RecordingSize {
        self.written
    }

    fn block(&mut self, processor: ProcessorId) -> &mut BlockBuffer {
        let index = processor.index();
        if self.blocks.len() <= index {
            self.blocks.resize_with(index + 1, BlockBuffer::default);
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

    fn write_block(&mut self, processor: usize, block: &BlockBuffer) -> Result<(), WriteError> {
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
            return Err(WriteError::Stopped { name: self.name.clone(), written: self.written });
        }
        if let Err(source) = self.to.write_all(bytes) {
            // Part of it may be in the file: a reader could not find the next block.
            self.failed = true;
            return Err(self.error(source));
        }
        self.written.bytes += bytes.len() as u64;
        self.written.events += events;
        Ok(())
    }

    fn error(&self, source: io::Error) -> WriteError {
        WriteError::Io { name: self.name.clone(), written: self.written, source }
    }
}

/// Appends length, crc32 and content.
fn frame(bytes: &mut Vec<u8>, content: &[u8]) {
    bytes.extend_from_slice(&(content.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    bytes.extend_from_slice(content);
}
