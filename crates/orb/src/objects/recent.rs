//! The active object that each thread served last, so that a request to the same one needs no look-up.
//!
//! No table has to invalidate it: an object that was deactivated, itself or with its adapter, is closed, and lets no
//! request in.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use super::servant::{ActiveObject, Entered};

struct Recent {
    /// The number of its tables.
    adapters: u64,
    key: Vec<u8>,
    /// Does not keep the servant.
    object: Weak<ActiveObject>,
}

thread_local! {
    static RECENT: RefCell<Recent> = const { RefCell::new(Recent { adapters: 0, key: Vec::new(), object: Weak::new() }) };
}

/// The object with this key, if this thread served it last and requests pass now.
#[inline]
pub(super) fn enter(adapters: u64, key: &[u8]) -> Option<Entered> {
    let object = RECENT.with_borrow(|recent| {
        let is_same = recent.adapters == adapters && recent.key == key;
        if is_same { recent.object.upgrade() } else { None }
    });
    let entered = Entered::if_passing(object?);
    if entered.is_none() {
        // A refused request counts for a moment. Many of them would delay the end of the object.
        RECENT.with_borrow_mut(|recent| recent.object = Weak::new());
    }
    entered
}

/// This thread serves the object.
pub(super) fn remember(adapters: u64, key: &[u8], object: &Arc<ActiveObject>) {
    RECENT.with_borrow_mut(|recent| {
        recent.key.clear();
        recent.key.extend_from_slice(key);
        (recent.adapters, recent.object) = (adapters, Arc::downgrade(object));
    });
}

#[cfg(test)]
mod tests {
    use std::any::{Any, TypeId};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;

    use hyoshi_wire::{SystemException, Version};

    use super::super::core::Core;
    use super::super::servant::{Facts, Servant, Skeleton};
    use super::super::{Adapters, Passage};
    use crate::call::Call;

    use super::*;

    struct Nothing;

    impl Skeleton for Nothing {
        fn dispatch(&self, _: usize, _: &mut Call<'_>) -> Result<(), SystemException> {
            unreachable!("it has no operations")
        }

        fn cast(&self, _: TypeId) -> Option<Box<dyn Any>> {
            None
        }
    }

    /// One with this number as its interface.
    fn servant(number: u64, skeleton: &Arc<Nothing>) -> Servant {
        let facts = Facts { id: number.to_string().leak(), bases: &[], operations: &[], oneways: &[] };
        Servant::of(Box::leak(Box::new(facts)), skeleton.clone())
    }

    /// Runs `with` on the number of the servant that a request finds.
    fn find<R>(adapters: &Adapters, key: &[u8], with: impl FnOnce(u64) -> R) -> Option<R> {
        adapters.find(key, "", Version::V1_2, |servant, _, _| with(servant.interface().parse().unwrap())).ok()
    }

    #[test]
    fn requests_find_the_servant_of_their_own_tables_while_it_is_active_and_its_adapter_lets_them_pass() {
        let (one, other) = (Adapters::new(7), Adapters::new(7));
        let nothing = Arc::new(Nothing);
        let cores = [&one, &other].map(|adapters| adapters.add(Core::new("a", 7)).unwrap());
        let key = cores[0].key(b"x");
        assert_eq!(key, cores[1].key(b"x"));
        cores[0].activate(b"x", servant(1, &nothing), None).unwrap();
        cores[1].activate(b"x", servant(2, &nothing), None).unwrap();
        let seen = |adapters| find(adapters, &key, |number| number);
        for _ in 0..2 {
            assert_eq!([seen(&one), seen(&one), seen(&other), seen(&other)], [Some(1), Some(1), Some(2), Some(2)]);
        }
        cores[1].gate.set(Passage::Discarding);
        assert_eq!(seen(&other), None);
        cores[1].gate.set(Passage::Active);
        assert_eq!(seen(&other), Some(2));
        cores[1].deactivate(b"x", None).unwrap();
        assert_eq!(seen(&other), None);
        drop(cores);
        one.end(None);
        assert_eq!(seen(&one), None);
        // Their tables keep what was removed for a while.
        drop((one, other));
        assert_eq!(Arc::strong_count(&nothing), 1, "a thread that served an object does not keep its servant");
    }

    #[test]
    fn a_servant_gets_no_request_after_its_object_or_adapter_has_ended() {
        let (adapters, nothing) = (Adapters::new(7), Arc::new(Nothing));
        let (ended, over, served) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
        let key = Core::new("a", 7).key(b"x");
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        let before = ended.load(Ordering::SeqCst);
                        find(&adapters, &key, |number| {
                            assert!(number > before, "servant {number} was ended before the request");
                            assert!(number > ended.load(Ordering::SeqCst), "servant {number} ended during the request");
                            served.store(number, Ordering::SeqCst);
                        });
                    }
                });
            }
            let mut core = adapters.add(Core::new("a", 7)).unwrap();
            for number in 1..=400 {
                core.activate(b"x", servant(number, &nothing), None).unwrap();
                while number % 8 == 0 && served.load(Ordering::SeqCst) < number {
                    thread::yield_now();
                }
                if number % 3 == 0 {
                    adapters.remove(&core);
                    core.end(None);
                    core = adapters.add(Core::new("a", 7)).unwrap();
                } else {
                    core.deactivate(b"x", None).unwrap();
                }
                ended.store(number, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
        });
    }
}
