//! Memory that is there when it is touched: a page fault costs from a microsecond to a disk
//! access, at a time that nobody chose.

use std::hint::black_box;

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};

use crate::refusal::{Asked, Privileges, Refused};

/// Smaller than or equal to every page size of Linux: touching each of these touches each page.
const PAGE: usize = 4096;

/// Keeps every page of the process resident, present and future ones (mlockall(2)). Call it
/// before threads are spawned and rings made: what is mapped afterwards is faulted in at once.
///
/// `MCL_ONFAULT` is not used: with it a ring that was allocated at start would still take its
/// faults on the hot path. The price is that thread stacks are resident in full; ours are small.
///
/// Without CAP_IPC_LOCK and with a finite RLIMIT_MEMLOCK it refuses even where the kernel would
/// agree: once the limit is reached, later allocations fail, and a run would end in mid-air.
pub fn lock_memory() -> Result<(), Refused> {
    let refused = |errno| Refused::new(Asked::LockedMemory, errno);
    if !Privileges::of_this_process().may_lock_all_memory() {
        return Err(refused(Errno::PERM));
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(refused)
}

/// Touches every page of a buffer, so that its first use takes no fault.
pub fn prefault(buffer: &mut [u8]) {
    for byte in buffer.iter_mut().step_by(PAGE) {
        *black_box(byte) = *byte;
    }
}

/// Touches the next `bytes` of this thread's stack. Ends a little beyond; the caller leaves room.
pub(crate) fn prefault_stack(bytes: usize) {
    #[inline(never)]
    fn touch(top: usize, bytes: usize) {
        let mut frame = [0u8; PAGE];
        let here = black_box(&mut frame).as_ptr() as usize;
        if top.saturating_sub(here) < bytes {
            touch(top, bytes);
        }
        // After the call: keeps the frame alive, so that this is no tail call.
        black_box(&mut frame);
    }
    let top = 0u8;
    touch(black_box(&top) as *const u8 as usize, bytes);
}
