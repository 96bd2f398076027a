//! A value that core dumps omit, and that is overwritten when it is dropped.

use std::fmt;
use std::hint::black_box;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// A value in separate pages: core dumps omit them (madvise(2), MADV_DONTDUMP), and they are overwritten before they
/// return to the kernel. Memory that the value itself has on the heap is not in them.
pub struct Secret<T> {
    at: NonNull<T>,
    octets: usize,
}

// SAFETY: it owns the value, as a box does: it may go to another thread if the value may, and be shared if the value
// may.
unsafe impl<T: Send> Send for Secret<T> {}
// SAFETY: see above; only shared references to the value are given out.
unsafe impl<T: Sync> Sync for Secret<T> {}

impl<T> Secret<T> {
    /// Moves a value there. [`scrub_stack`] removes the copies that the move left on the stack.
    ///
    /// # Errors
    ///
    /// If the kernel has no memory for it.
    pub fn new(value: T) -> io::Result<Secret<T>> {
        const { assert!(align_of::<T>() <= 4096, "pages are aligned to no more") };
        let octets = size_of::<T>().max(1);
        // SAFETY: an anonymous mapping at an address that the kernel chooses touches nothing that is there.
        let at = unsafe {
            mmap_anonymous(std::ptr::null_mut(), octets, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        }?;
        // SAFETY: the mapping was just made, and is not shared. If the kernel has no such advice the value is dumped:
        // this is not an error.
        let _ = unsafe { madvise(at, octets, Advice::LinuxDontDump) };
        let at = NonNull::new(at.cast::<T>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: it is mapped, writable, aligned to a page and large enough.
        unsafe { at.write(value) };
        Ok(Secret { at, octets })
    }
}

impl<T> Deref for Secret<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `new` wrote a value there, which is dropped with `self` only.
        unsafe { self.at.as_ref() }
    }
}

impl<T> Drop for Secret<T> {
    fn drop(&mut self) {
        let octets = self.at.cast::<u8>();
        // SAFETY: the value is there and unused, and it is dropped once; then its pages are plain octets,
        // which stay mapped until the last call.
        unsafe {
            self.at.drop_in_place();
            for at in 0..self.octets {
                octets.add(at).write_volatile(0);
            }
            let _ = munmap(octets.as_ptr().cast(), self.octets);
        }
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Overwrites 64 KiB of stack below the caller: the data that returned functions left there.
#[inline(never)]
pub fn scrub_stack() {
    let mut unused = [0u8; 64 << 10];
    black_box(&mut unused);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_lies_in_pages_that_core_dumps_leave_out() {
        let secret = Secret::new([7u8; 100]).unwrap();
        assert_eq!(secret[99], 7);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        let at = secret.as_ptr() as usize;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut within = false;
        let flags = maps.lines().find_map(|line| {
            if let Some((from, to)) = line.split_whitespace().next().and_then(|range| range.split_once('-'))
                && let (Ok(from), Ok(to)) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16))
            {
                within = (from..to).contains(&at);
            }
            line.strip_prefix("VmFlags:").filter(|_| within)
        });
        assert!(flags.unwrap().split_whitespace().any(|flag| flag == "dd"), "{flags:?}");
    }

    #[test]
    fn its_value_is_dropped_once() {
        let value = std::sync::Arc::new(());
        let secret = Secret::new(value.clone()).unwrap();
        assert_eq!(std::sync::Arc::strong_count(&value), 2);
        drop(secret);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}
