//! Iterators over listings, bounded in number and lifetime. The caller passes the time.

use std::collections::HashMap;

use hyoshi_model::{Instant, Span};

use crate::NameComponent;
use crate::tree::ContextId;

/// Where a listing continues. It has no copy of the bindings, so it lists changes behind its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListPosition {
    pub(crate) context: ContextId,
    /// The last listed name.
    pub(crate) last: Option<NameComponent>,
}

/// All open iterators.
#[derive(Debug)]
pub(crate) struct Iterators {
    most: usize,
    idle: Span,
    next: u64,
    open: HashMap<u64, (ListPosition, Instant)>,
}

impl Iterators {
    pub(crate) fn new(most: usize, idle: Span) -> Iterators {
        Iterators { most, idle, next: 0, open: HashMap::new() }
    }

    /// Opens one. Ends expired iterators and, if there are too many, the least recently used one. `None` if none are
    /// allowed.
    pub(crate) fn open(&mut self, cursor: ListPosition, now: Instant) -> Option<u64> {
        self.expire(now);
        if self.open.len() >= self.most {
            let oldest = self.open.iter().min_by_key(|(id, (_, used))| (*used, **id)).map(|(id, _)| *id)?;
            self.open.remove(&oldest);
        }
        self.next += 1;
        self.open.insert(self.next, (cursor, now));
        Some(self.next)
    }

    /// The position of an iterator that is used now.
    pub(crate) fn used(&mut self, id: u64, now: Instant) -> Option<&mut ListPosition> {
        self.expire(now);
        let (cursor, used) = self.open.get_mut(&id)?;
        *used = now;
        Some(cursor)
    }

    /// False if there is none.
    pub(crate) fn close(&mut self, id: u64) -> bool {
        self.open.remove(&id).is_some()
    }

    fn expire(&mut self, now: Instant) {
        let idle = self.idle;
        self.open.retain(|_, (_, used)| now < *used + idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn iterators_end_when_unused_and_when_there_are_too_many() {
        let mut all = Iterators::new(2, Span::from_millis(10));
        let cursor = || ListPosition { context: 0, last: None };
        let first = all.open(cursor(), at(0)).unwrap();
        let second = all.open(cursor(), at(1)).unwrap();
        assert!(all.used(first, at(2)).is_some());
        let third = all.open(cursor(), at(3)).unwrap();
        assert!(all.used(second, at(3)).is_none(), "it was used longest ago");
        assert!(all.used(first, at(11)).is_some());
        assert!(all.used(third, at(13)).is_none(), "it was not used for 10 ms");
        assert!(all.close(first) && !all.close(first));
        assert_eq!(Iterators::new(0, Span::from_millis(1)).open(cursor(), at(0)), None);
    }
}
