//! Resident memory: a page fault costs from a microsecond to a disk access, at an unpredictable time.

use std::hint::black_box;

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};

use crate::refusal::{KernelRequest, Privileges, Refused};

/// At most every page size of Linux: touching each of these touches each page.
const PAGE: usize = 4096;

/// Keeps every page of the process resident, present and future ones (mlockall(2)). Call it before threads are spawned
/// and rings are allocated: later mappings are faulted in at once.
///
/// `MCL_ONFAULT` is not used: with it a ring that was allocated at start would still fault on the hot path. The price
/// is that thread stacks are fully resident; ours are small.
///
/// Without CAP_IPC_LOCK and with a finite RLIMIT_MEMLOCK it refuses even if the kernel would agree: at the limit, later
/// allocations fail, and a run would abort.
pub fn lock_memory() -> Result<(), Refused> {
    let refused = |errno| Refused::new(KernelRequest::LockedMemory, errno);
    if !Privileges::of_this_process().may_lock_all_memory() {
        return Err(refused(Errno::PERM));
    }
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE).map_err(refused)
}

/// Touches every page of a buffer, so its first use causes no fault.
pub fn prefault(buffer: &mut [u8]) {
    for byte in buffer.iter_mut().step_by(PAGE) {
        *black_box(byte) = *byte;
    }
}

/// Touches all unused pages of this thread's stack, except for the last ones at its guard.
#[inline(never)]
pub(crate) fn prefault_stack() {
    #[inline(never)]
    fn touch(floor: usize) {
        let mut frame = [0u8; PAGE];
        if black_box(&mut frame).as_ptr() as usize > floor {
            touch(floor);
        }
        // After the call: keeps the frame alive, so that this is no tail call.
        black_box(&mut frame);
    }
    if let Some(floor) = stack_floor() {
        touch(floor + 4 * PAGE);
    }
}

/// The lowest address of this thread's stack that is surely above its guard pages, by the C library: requested size
/// less the library's own data, such as thread-local variables.
fn stack_floor() -> Option<usize> {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut size, mut guard) = (std::ptr::null_mut(), 0, 0);
    // SAFETY: the first call initialises the attributes or fails, and then nothing reads them; all
    // pointers are to locals that outlive the calls; they are destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let result = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size)
            | libc::pthread_attr_getguardsize(attributes.as_ptr(), &raw mut guard);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        // Libraries and their versions differ in whether the stack includes the guard.
        (result == 0).then(|| lowest as usize + guard)
    }
}
