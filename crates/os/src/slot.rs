//! A place for one value that threads hand to each other without a lock.

use std::fmt;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Empty, or a boxed value. No thread waits for another one, whatever their priorities.
///
/// ```text
///            put
///   Empty ─────────► Full
///     ▲               │
///     └───────────────┘ take
/// ```
pub struct AtomicSlot<T> {
    value: AtomicPtr<T>,
    owned: PhantomData<Box<T>>,
}

// SAFETY: only owned values go in and out, each to one thread: sharing the slot sends them, and shares none.
unsafe impl<T: Send> Sync for AtomicSlot<T> {}

impl<T> AtomicSlot<T> {
    /// An empty one.
    pub const fn new() -> Self {
        AtomicSlot { value: AtomicPtr::new(ptr::null_mut()), owned: PhantomData }
    }

    /// Takes the value out, if there is one.
    #[inline]
    pub fn take(&self) -> Option<Box<T>> {
        // Looking does not take the cache line from other CPUs.
        if self.value.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let value = self.value.swap(ptr::null_mut(), Ordering::Acquire);
        // SAFETY: it came from `Box::into_raw`, and the swap gave it to this thread alone.
        (!value.is_null()).then(|| unsafe { Box::from_raw(value) })
    }

    /// Puts a value in.
    ///
    /// # Errors
    ///
    /// Returns the value if the slot is full.
    #[inline]
    pub fn put(&self, value: Box<T>) -> Result<(), Box<T>> {
        if !self.value.load(Ordering::Relaxed).is_null() {
            return Err(value);
        }
        let value = Box::into_raw(value);
        let put = self.value.compare_exchange(ptr::null_mut(), value, Ordering::Release, Ordering::Relaxed);
        // SAFETY: it came from the box above, and was not put in.
        put.map(drop).map_err(|_| unsafe { Box::from_raw(value) })
    }
}

impl<T> Drop for AtomicSlot<T> {
    fn drop(&mut self) {
        self.take();
    }
}

impl<T> Default for AtomicSlot<T> {
    fn default() -> Self {
        AtomicSlot::new()
    }
}

impl<T> fmt::Debug for AtomicSlot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicSlot").field("full", &!self.value.load(Ordering::Relaxed).is_null()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    #[test]
    fn a_value_has_one_owner_and_is_freed_once() {
        /// Counts the threads that own it.
        struct Token(AtomicUsize, Arc<AtomicUsize>);
        impl Drop for Token {
            fn drop(&mut self) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        let freed = Arc::new(AtomicUsize::new(0));
        let slots: Vec<_> = (0..3).map(|_| AtomicSlot::new()).collect();
        let token = || Box::new(Token(AtomicUsize::new(0), freed.clone()));
        assert!(slots[0].put(token()).is_ok());
        assert!(slots[0].put(token()).is_err(), "it is full");
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        assert!(slots[2].put(token()).is_ok());
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let Some(mut token) = slots.iter().find_map(AtomicSlot::take) else { continue };
                        assert_eq!(token.0.fetch_add(1, Ordering::Relaxed), 0, "another thread owns it too");
                        token.0.fetch_sub(1, Ordering::Relaxed);
                        let mut at = 0;
                        // Two values have room in three slots.
                        while let Err(back) = slots[at % slots.len()].put(token) {
                            (token, at) = (back, at + 1);
                        }
                    }
                });
            }
        });
        assert_eq!(freed.load(Ordering::Relaxed), 1);
        drop(slots);
        assert_eq!(freed.load(Ordering::Relaxed), 3);
    }
}
