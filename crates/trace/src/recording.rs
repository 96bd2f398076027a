//! Recordings: the inputs and decisions of dispatchers, in a file that is readable after a crash.
//!
//! ```text
//! file    = magic "HYOSHI\r\n", version u16, length u32, crc32 u32, header (postcard), (block | names)*
//! block   = "HBLK", length u32, crc32 u32, body
//! body    = processor u32, lost u64, first instant u64, events u32, (time delta zigzag, event)*
//! names   = "HNAM", length u32, crc32 u32, string* (postcard): the next numbers of `CpuUser::Other`
//! ```
//!
//! Integers outside postcard are little-endian. A length counts the bytes after its crc, which the crc covers. The
//! operating system receives each block in one write: after SIGKILL the file ends with a complete or a torn block, and
//! the reader returns everything before it.

pub mod range_check;
pub mod reader;
mod time_order;
pub mod writer;

use hyoshi_model::ProcessorId;
use serde::{Deserialize, Serialize};

pub use range_check::{RangeCheck, RangeError};
pub use reader::{ReadError, RecordedEvent, RecordingReader, Torn};
pub use time_order::InTimeOrder;
pub use writer::{RecordingSize, RecordingWriter, WriteError};

/// The first bytes of every recording. The line end detects transfers that change line ends.
pub const MAGIC: [u8; 8] = *b"HYOSHI\r\n";

/// The version of the format that this code writes.
pub const VERSION: u16 = 13;

/// The oldest version that this code reads. Before version 7, requests had no time of sending. Before version 8, no
/// completion was discarded, no job expired or was skipped, and timeouts did not exist. Before version 9, no job chose a
/// hop, and no completion was a later copy. Before version 10, no loop sampled. Before version 11, loops had
/// no clients, and lanes were ranked for each adapted rate. Before version 12, no loop chose service
/// levels, held a latency, or moved or admitted operations. Before version 13, dropped hops of cancelled threads were
/// not recorded.
pub const OLDEST: u16 = 7;

/// The longest header: more than the largest system file.
pub const LONGEST_HEADER: u32 = 128 << 20;

/// The longest block.
pub const LONGEST_BLOCK: u32 = 1 << 20;

/// The most thread names in a recording; further threads share the last name.
pub const MOST_NAMES: usize = 1 << 16;

/// The longest name of a thread, in bytes. The kernel's names have at most 15.
pub const LONGEST_NAME: usize = 64;

const BLOCK: [u8; 4] = *b"HBLK";
const NAMES: [u8; 4] = *b"HNAM";

/// The header of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHeader {
    /// The text of the system's file.
    pub system: String,
    /// The files that it includes, with their texts: the recording is self-contained.
    pub files: Vec<(String, String)>,
    /// The verb: `run` or `sim`.
    pub verb: String,
    /// The program and its version.
    pub program: String,
    /// The start by the wall clock, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The seed in force.
    pub seed: u64,
    /// Changes of the system by the command line, such as `--strategy=MUF`.
    pub changes: Vec<String>,
    /// Its processors, as sorted indices in the system: all, or those of the recording hosts.
    pub processors: Vec<u32>,
    /// Identifies the run: 16 random bytes, equal in all its recordings. For a simulation: its seed, then zeros.
    pub run: [u8; 16],
    /// Notes about the machine that matter for the figures.
    pub facts: Vec<Fact>,
}

impl RecordingHeader {
    /// Whether it contains a processor.
    pub fn contains(&self, processor: ProcessorId) -> bool {
        self.processors.binary_search(&processor.0).is_ok()
    }

    /// The identification of a simulation with this seed.
    pub fn run_of_seed(seed: u64) -> [u8; 16] {
        u128::from(seed).to_le_bytes()
    }
}

/// A note of a run about the machine. Reports of the recording print it as the run did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Its topic, such as `real-time priority`.
    pub what: String,
    /// Its level in reports.
    pub level: FactLevel,
    /// Its text.
    pub detail: String,
}

/// The level of a [`Fact`] in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FactLevel {
    /// Worth knowing.
    Info,
    /// It makes the figures worse or less complete.
    Degraded,
    /// The kernel refused it.
    Refused,
}
