//! Recordings: what dispatchers were told and decided, in a file that can be read after a crash.
//!
//! ```text
//! file    = magic "HYOSHI\r\n", version u16, length u32, crc32 u32, header (postcard), (block | names)*
//! block   = "HBLK", length u32, crc32 u32, body
//! body    = processor u32, lost u64, first instant u64, events u32, (time delta zigzag, event)*
//! names   = "HNAM", length u32, crc32 u32, string* (postcard): the next numbers of `Who::Other`
//! ```
//!
//! Integers outside postcard are little-endian; a length counts what follows its crc, which the
//! crc covers. A block is handed to the operating system whole: after SIGKILL the file ends with a
//! whole block or with a torn one, and the reader gives everything before it.

pub mod fits;
pub mod reader;
pub mod writer;

use hyoshi_model::ProcessorId;
use serde::{Deserialize, Serialize};

pub use fits::{Fits, Misfit};
pub use reader::{Entry, ReadError, Reader, Torn};
pub use writer::{Kept, WriteError, Writer};

/// The first bytes of every recording. The line end shows transfers that change line ends.
pub const MAGIC: [u8; 8] = *b"HYOSHI\r\n";

/// The version of the format that this code writes.
pub const VERSION: u16 = 5;

/// The oldest version that this code reads. Before version 5 a header named no processors and no run.
pub const OLDEST: u16 = 5;

/// The longest header: a system file of its greatest size and then some.
pub const LONGEST_HEADER: u32 = 128 << 20;

/// The longest block.
pub const LONGEST_BLOCK: u32 = 1 << 20;

/// The most threads of others that a recording names; the rest share the last name.
pub const MOST_NAMES: usize = 1 << 16;

/// The longest name of a thread, in bytes: the kernel's are 15.
pub const LONGEST_NAME: usize = 64;

const BLOCK: [u8; 4] = *b"HBLK";
const NAMES: [u8; 4] = *b"HNAM";

/// What a recording says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The text of the system's file, as it was read.
    pub system: String,
    /// The files that it names, with their texts: a recording is whole wherever it is taken.
    pub files: Vec<(String, String)>,
    /// What was done with it: `run` or `sim`.
    pub verb: String,
    /// The program that recorded, with its version.
    pub program: String,
    /// When it started by the wall clock, in nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The seed in force, which the command line may have changed.
    pub seed: u64,
    /// What else the command line changed of the file, such as `--strategy=MUF`.
    pub changes: Vec<String>,
    /// Its processors, by their indices in the system, sorted: all, or those of the recording hosts.
    pub processors: Vec<u32>,
    /// The same in all recordings of one run, and in no other: 16 random bytes. A simulation's begins with its seed and ends
    /// with zeros.
    pub run: [u8; 16],
    /// What the machine granted and refused, and whatever else matters for judging the figures.
    pub facts: Vec<Fact>,
}

impl Header {
    /// Whether it contains a processor.
    pub fn contains(&self, processor: ProcessorId) -> bool {
        self.processors.binary_search(&processor.0).is_ok()
    }

    /// The identification of a simulation.
    pub fn run_of_seed(seed: u64) -> [u8; 16] {
        u128::from(seed).to_le_bytes()
    }
}

/// Something that was asked of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// What, such as `real-time priority`.
    pub what: String,
    /// Whether it was granted.
    pub granted: bool,
    /// What came of it, in words.
    pub detail: String,
}
