//! Limits of a file and of the system that it describes.

pub use crate::checked::{CHOSEN, EPOCHS, PREDECESSORS};
use crate::time::Span;

/// Bytes of the file; a system of 100,000 operations written one by one needs about ten million.
pub const FILE_BYTES: usize = 16 << 20;
/// In a file of at most this many bytes all syntax errors are reported; in a larger one only the first.
pub const RECOVERABLE_BYTES: usize = 1 << 20;
/// Bytes of all files of execution times together.
pub const TIMES_BYTES: usize = 64 << 20;
/// Operations, templates expanded.
pub const OPERATIONS: u64 = 100_000;
/// Pairs of an operation and one that triggers it or is read by it, templates expanded.
pub const EDGES: usize = 1_000_000;
/// Declared events. Patterns are compared with at most [`EDGES`] names of events in all.
pub const EVENTS: usize = 10_000;
/// Execution times in lists that are cut at calls.
pub const CUT_TIMES: usize = 10_000_000;
/// Pairs of an operation and a periodic one that its triggers lead back to.
pub const ROOTS: usize = 4_000_000;
/// Operations and edges times epochs in which something changes.
pub const SETTINGS: usize = 2_000_000;
/// Operations on the paths of all chains together.
pub const STEPS: usize = 100_000;
/// Characters of a name.
pub const NAME: usize = 64;
/// Bytes of a file of measured costs.
pub const COSTS_BYTES: usize = 64 << 10;
/// The largest accepted cost: on no working kernel does any of them last longer.
pub const COST: Span = Span::from_millis(100);
/// The least and the greatest rate of a network device, in bit/s.
pub const NETWORK_RATE: (u64, u64) = (100_000, 1_000_000_000_000);
/// Programs under one broker, and so in a file: the broker's limit.
pub const PROGRAMS: usize = 4_096;
/// Words of one program.
pub const WORDS: usize = 1_024;
/// Advocates of one program.
pub const ADVOCATES: usize = 16;

/// The most contracts of a system, conditions and regions of a contract, and actions of a region.
pub const CONTRACTS: usize = 64;
/// The most modes of a system.
pub const MODES: usize = 256;
/// The most conditions of a system that are set from outside.
pub const SET_CONDITIONS: usize = 1_024;
pub const CONDITIONS: usize = 32;
pub const REGIONS: usize = 64;
pub const ACTIONS: usize = 256;
/// The most delegates of a system, and operations of one with a behaviour.
pub const DELEGATES: usize = 256;
pub const BEHAVIOURS: usize = 64;
/// The longest reference, in bytes.
pub const REFERENCE: usize = 8192;
/// The shortest time between two evaluations of a contract.
pub const CONTRACT_PERIOD: Span = Span::from_millis(10);
/// Words and bytes of a command that a contract runs.
pub const COMMAND_WORDS: usize = 64;
pub const COMMAND_BYTES: usize = 4_096;
/// The most bytes of a text that a contract reports.
pub const REPORT: usize = 256;
/// Bytes of a qosket file, and of its contract with the values of its parameters.
pub const QOSKET_BYTES: usize = 64 << 10;
pub const QOSKET_EXPANDED: usize = 256 << 10;
/// The most parameters of a qosket, values of one that is a list, and bytes of a value.
pub const PARAMETERS: usize = 64;
pub const PARAMETER_ITEMS: usize = 64;
pub const PARAMETER_BYTES: usize = 256;
