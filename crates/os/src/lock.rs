//! The lock for data that threads of different priorities share: its holder inherits the priority of the most urgent
//! waiting thread (futex(2), FUTEX_LOCK_PI).
//!
//! Without inheritance a middle thread that computes keeps the holder, and so the urgent waiter, off the CPU: 346 ms
//! measured for a section of 50 ms; with it, 49.5 ms.

use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// A mutual-exclusion lock with priority inheritance. Uncontended it stays in user space: 11 ns
/// to lock and unlock, where pthread's with inheritance takes 16 (`cargo bench -p hyoshi-os`).
///
/// ```text
///           lock: 0 -> tid                    lock by another: kernel boosts the holder
///   Free ────────────────────► Held by tid ────────────────────► Held, waited for
///    ▲                             │                                   │ unlock: the kernel hands it to
///    └─────────────────────────────┘ unlock: tid -> 0                  └► the most urgent waiter
/// ```
///
/// A panic while it is held unlocks it like any other end of scope: there is no poisoning. Keep
/// sections short and without panics, as on any real-time path.
pub struct PiMutex<T> {
    /// 0, or the holder's thread id; the kernel adds FUTEX_WAITERS while a thread sleeps on it.
    word: AtomicU32,
    value: UnsafeCell<T>,
}

/// Access to the value; dropped by the thread that locked it.
pub struct PiGuard<'a, T> {
    lock: &'a PiMutex<T>,
    // The kernel knows the holder by its thread: the guard must not move to another.
    stays_here: PhantomData<*const ()>,
}

// SAFETY: the lock hands out the value to one thread at a time, so sharing the lock needs no more
// than that the value may be sent.
unsafe impl<T: Send> Sync for PiMutex<T> {}
// SAFETY: a shared guard gives `&T` and nothing else.
unsafe impl<T: Sync> Sync for PiGuard<'_, T> {}

impl<T> PiMutex<T> {
    /// A free lock around `value`.
    pub const fn new(value: T) -> Self {
        PiMutex { word: AtomicU32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock.
    ///
    /// # Panics
    ///
    /// If this thread already holds it, or a thread ended while holding it (a leaked guard): both would otherwise wait
    /// for ever.
    #[inline]
    pub fn lock(&self) -> PiGuard<'_, T> {
        if self.word.compare_exchange(0, tid(), Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait_in_kernel(None);
        }
        PiGuard { lock: self, stays_here: PhantomData }
    }

    /// Waits for the lock, at most this long. The holder inherits the priority of the waiting thread meanwhile.
    ///
    /// # Panics
    ///
    /// As [`lock`](Self::lock).
    pub fn try_lock_for(&self, timeout: Duration) -> Option<PiGuard<'_, T>> {
        let free = self.word.compare_exchange(0, tid(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        (free || self.wait_in_kernel(Some(timeout))).then(|| PiGuard { lock: self, stays_here: PhantomData })
    }

    /// The lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<PiGuard<'_, T>> {
        let free = self.word.compare_exchange(0, tid(), Ordering::Acquire, Ordering::Relaxed).is_ok();
        // `then`, not `then_some`: an unused guard would unlock for the holder when dropped.
        free.then(|| PiGuard { lock: self, stays_here: PhantomData })
    }

    /// The value, if no other thread can hold the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Returns the value and destroys the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// False if the timeout ends before the thread has the lock.
    #[cold]
    fn wait_in_kernel(&self, timeout: Option<Duration>) -> bool {
        let until = |clock| timeout.map(|timeout| after_now(clock, timeout));
        let (steady, mut wall) = (until(ClockId::Monotonic), None);
        loop {
            let locked = match (&steady, &wall) {
                (_, Some(wall)) => futex::lock_pi(&self.word, Flags::PRIVATE, Some(wall)),
                (Some(steady), None) => futex::lock_pi2(&self.word, Flags::PRIVATE, Some(steady)),
                (None, None) => futex::lock_pi(&self.word, Flags::PRIVATE, None),
            };
            match locked {
                Ok(()) => break,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::TIMEDOUT) => return false,
                // Before Linux 5.14 the timeout can only be a time of CLOCK_REALTIME.
                Err(Errno::NOSYS) if wall.is_none() && timeout.is_some() => wall = until(ClockId::Realtime),
                Err(Errno::DEADLK) => {
                    panic!("a thread locked a PiMutex that it already holds: end the first guard's scope before")
                }
                Err(Errno::SRCH) => {
                    panic!("a thread ended while it held this PiMutex: its guard was leaked; drop it")
                }
                Err(errno) => unreachable!("futex lock on a word of our own: {errno}"),
            }
        }
        fence(Ordering::Acquire);
        true
    }

    #[cold]
    fn hand_over_in_kernel(&self) {
        fence(Ordering::Release);
        if let Err(errno) = futex::unlock_pi(&self.word, Flags::PRIVATE) {
            unreachable!("futex unlock by the holder: {errno}");
        }
    }
}

impl<T> Drop for PiGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.word.compare_exchange(tid(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.lock.hand_over_in_kernel();
        }
    }
}

impl<T> Deref for PiGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard is the one holder of the lock, so the value is not written meanwhile.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for PiGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the one holder of the lock, and it is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: Default> Default for PiMutex<T> {
    fn default() -> Self {
        PiMutex::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for PiMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Some(value) => f.debug_tuple("PiMutex").field(&*value).finish(),
            None => f.write_str("PiMutex(held)"),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PiGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

fn after_now(clock: ClockId, timeout: Duration) -> Timespec {
    let now = clock_gettime(clock);
    let nanoseconds = now.tv_nsec as u64 + u64::from(timeout.subsec_nanos());
    let seconds =
        i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX).saturating_add((nanoseconds / 1_000_000_000) as i64);
    Timespec { tv_sec: now.tv_sec.saturating_add(seconds), tv_nsec: (nanoseconds % 1_000_000_000) as _ }
}

/// This thread's id, cached: a system call costs more than the whole lock.
#[inline]
pub(crate) fn tid() -> u32 {
    thread_local! {
        static TID: Cell<u32> = const { Cell::new(0) };
    }
    TID.with(|known| match known.get() {
        0 => {
            let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
            known.set(tid);
            tid
        }
        tid => tid,
    })
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::sync::Arc;
    use std::thread;

    use super::*;

    const FUTEX_WAITERS: u32 = 0x8000_0000;

    #[test]
    fn increments_of_many_threads_add_up() {
        let sum = Arc::new(PiMutex::new(0u64));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let sum = sum.clone();
                thread::spawn(move || (0..50_000).for_each(|_| *sum.lock() += 1))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(Arc::into_inner(sum).unwrap().into_inner(), 200_000);
    }

    #[test]
    fn try_lock_fails_while_it_is_held_and_succeeds_after() {
        let lock = PiMutex::new(());
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_wait_ends_with_its_time_or_with_the_lock() {
        let lock = PiMutex::new(());
        let held = lock.lock();
        thread::scope(|scope| {
            let late = scope.spawn(|| lock.try_lock_for(Duration::from_millis(5)).is_none());
            assert!(late.join().unwrap());
            let waits = scope.spawn(|| lock.try_lock_for(Duration::from_secs(1 << 40)).is_some());
            while lock.word.load(Ordering::Relaxed) & FUTEX_WAITERS == 0 {
                thread::yield_now();
            }
            drop(held);
            assert!(waits.join().unwrap());
        });
        assert!(lock.try_lock_for(Duration::ZERO).is_some());
    }

    #[test]
    fn a_panic_in_the_section_unlocks() {
        let lock = PiMutex::new(1);
        let panicked = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _held = lock.lock();
            panic!("expected by the test");
        }));
        assert!(panicked.is_err());
        assert_eq!(*lock.lock(), 1);
    }

    #[test]
    #[should_panic(expected = "already holds")]
    fn locking_twice_panics_instead_of_waiting_for_ever() {
        let lock = PiMutex::new(());
        let _held = lock.lock();
        let _ = lock.lock();
    }
}
