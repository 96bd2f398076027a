//! What a thread waits for after it releases its CPU, from the kernel functions in the call chain of the switch, and
//! their addresses in /proc/kallsyms.
//!
//! The table contains only functions with one meaning. A thread in none of them may wait for anything.

use std::fs;
use std::ops::Range;
use std::sync::OnceLock;

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockedOn {
    /// A sleep.
    Sleep,
    /// A lock or another thread: a futex.
    Lock,
    /// A missing page of memory: a page fault.
    Page,
    /// Input or output of a disk.
    Io,
}

/// The meaning of a function in a call chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The thread waits for this, whatever called the function.
    Waits(BlockedOn),
    /// The thread waits for a disk; the functions around this one show the reason.
    Disk,
}

/// The names are those of kernels since 5.9, on every architecture.
fn meaning(function: &[u8]) -> Option<Meaning> {
    Some(match function {
        b"io_schedule" | b"io_schedule_timeout" => Meaning::Disk,
        b"handle_mm_fault" => Meaning::Waits(BlockedOn::Page),
        b"hrtimer_nanosleep" => Meaning::Waits(BlockedOn::Sleep),
        b"do_futex" | b"futex_wait" | b"__futex_wait" | b"futex_wait_multiple" => Meaning::Waits(BlockedOn::Lock),
        // Waiting for a journal's commit does not count as waiting for a disk.
        b"do_fsync" | b"vfs_fsync_range" | b"ksys_sync" | b"sync_filesystem" => Meaning::Waits(BlockedOn::Io),
        _ => return None,
    })
}

/// The addresses of these functions.
#[derive(Debug, Default)]
pub(crate) struct Functions(Vec<(Range<u64>, Meaning)>);

impl Functions {
    /// Of the running kernel; `None` if it does not show addresses (`kernel.kptr_restrict`).
    pub fn of_kernel() -> Option<&'static Functions> {
        static KNOWN: OnceLock<Option<Functions>> = OnceLock::new();
        let read = || Some(Functions::read(&fs::read("/proc/kallsyms").ok()?)).filter(|known| !known.0.is_empty());
        KNOWN.get_or_init(read).as_ref()
    }

    /// Lines of `address type name`, in any order; a function ends where the next symbol begins.
    fn read(symbols: &[u8]) -> Functions {
        let (mut all, mut known) = (Vec::new(), Vec::new());
        for line in symbols.split(|byte| *byte == b'\n') {
            let mut fields = line.split(|byte| byte.is_ascii_whitespace());
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
                continue;
            };
            let address = str::from_utf8(address).ok().and_then(|digits| u64::from_str_radix(digits, 16).ok());
            // Without privileges every address is 0.
            let Some(address) = address.filter(|address| *address > 0 && matches!(kind, b"t" | b"T")) else { continue };
            all.push(address);
            known.extend(meaning(name).map(|meaning| (address, meaning)));
        }
        all.sort_unstable();
        let end = |start: u64| all.get(all.partition_point(|other| *other <= start)).copied().unwrap_or(start);
        Functions(known.into_iter().map(|(start, meaning)| (start..end(start), meaning)).collect())
    }

    #[cfg(test)]
    pub fn first_of(&self, wait: BlockedOn) -> u64 {
        self.0.iter().find(|(_, meaning)| *meaning == Meaning::Waits(wait)).map_or(0, |(range, _)| range.start)
    }

    /// What a thread waits for, from the addresses in its call chain, the innermost first.
    pub fn wait(&self, chain: impl Iterator<Item = u64>) -> Option<BlockedOn> {
        let mut disk = false;
        for address in chain {
            match self.0.iter().find(|(range, _)| range.contains(&address)) {
                Some((_, Meaning::Waits(wait))) => return Some(*wait),
                Some((_, Meaning::Disk)) => disk = true,
                None => {}
            }
        }
        disk.then_some(BlockedOn::Io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYMBOLS: &[u8] =
        b"0000000000001000 T handle_mm_fault\n0000000000001100 t next\n0000000000000500 T io_schedule\n\
        0000000000000600 D data\n0000000000000580 t __pfx_schedule\n0000000000002000 T do_futex\n\
        0000000000002080 t helper\t[module]\n0000000000003000 T hrtimer_nanosleep\n0000000000003100 T end\n\
        0000000000004000 t do_fsync\n0000000000004100 t last\n";

    #[test]
    fn the_innermost_known_function_shows_the_cause_of_waiting() {
        let functions = Functions::read(SYMBOLS);
        let wait = |chain: &[u64]| functions.wait(chain.iter().copied());
        assert_eq!(wait(&[0x10, 0x3040, 0x9000]), Some(BlockedOn::Sleep));
        assert_eq!(wait(&[0x2010]), Some(BlockedOn::Lock));
        // A fault within a futex call, which waits for the disk.
        assert_eq!(wait(&[0x510, 0x1010, 0x2010]), Some(BlockedOn::Page));
        assert_eq!(wait(&[0x510, 0x9000]), Some(BlockedOn::Io));
        assert_eq!(wait(&[0x9000, 0x4010]), Some(BlockedOn::Io));
        // Past the end of each.
        assert_eq!(wait(&[0x590, 0x1100, 0x2080, 0x3100, 0x4100]), None);
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn addresses_that_are_kept_secret_mean_nothing() {
        let secret = b"0000000000000000 T handle_mm_fault\n0000000000000000 T do_futex\nnonsense\n\n";
        assert!(Functions::read(secret).0.is_empty());
    }
}
