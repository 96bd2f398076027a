//! Replies for requests with the same arguments, in bounded memory.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use hyoshi_model::{Instant, Span};

/// Bounds of a [`ReplyCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Replies; default 1,024.
    pub replies: usize,
    /// Octets of requests and replies together; default 4 MiB. A larger pair is not stored.
    pub octets: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        CacheLimits { replies: 1_024, octets: 4 << 20 }
    }
}

/// The last reply for each request. Requests are compared octet for octet, so a client cannot forge an equal one. When it
/// is full, the oldest replies are removed.
#[derive(Debug, Default)]
pub struct ReplyCache {
    limits: CacheLimits,
    replies: HashMap<Arc<[u8]>, CachedReply>,
    /// The requests in the order of storing. One that was stored again occurs again; only its last place counts.
    order: VecDeque<(Arc<[u8]>, u64)>,
    octets: usize,
    next: u64,
}

#[derive(Debug)]
struct CachedReply {
    reply: Arc<[u8]>,
    stored: Instant,
    number: u64,
}

impl ReplyCache {
    /// An empty one.
    pub fn new(limits: CacheLimits) -> Self {
        ReplyCache { limits, ..ReplyCache::default() }
    }

    /// The reply to an equal request, if it was stored at most `age` ago.
    pub fn get(&self, request: &[u8], now: Instant, age: Span) -> Option<Arc<[u8]>> {
        let cached = self.replies.get(request)?;
        (now.since(cached.stored) <= age).then(|| cached.reply.clone())
    }

    /// Stores a reply, in place of the last one.
    pub fn store(&mut self, request: &[u8], reply: &[u8], now: Instant) {
        self.remove(request);
        let octets = request.len() + reply.len();
        if octets > self.limits.octets || self.limits.replies == 0 {
            return;
        }
        while self.replies.len() >= self.limits.replies || self.octets + octets > self.limits.octets {
            let Some((oldest, number)) = self.order.pop_front() else { break };
            if self.replies.get(&oldest).is_some_and(|cached| cached.number == number) {
                self.remove(&oldest);
            }
        }
        // Places of replies that were stored again.
        if self.order.len() >= 2 * self.limits.replies {
            let replies = &self.replies;
            self.order.retain(|(request, number)| replies.get(request).is_some_and(|cached| cached.number == *number));
        }
        let (request, number): (Arc<[u8]>, _) = (request.into(), self.next);
        self.next += 1;
        self.octets += octets;
        self.order.push_back((request.clone(), number));
        self.replies.insert(request, CachedReply { reply: reply.into(), stored: now, number });
    }

    fn remove(&mut self, request: &[u8]) {
        if let Some(cached) = self.replies.remove(request) {
            self.octets -= request.len() + cached.reply.len();
        }
    }

    /// Octets of requests and replies.
    pub fn octets(&self) -> usize {
        self.octets
    }

    /// The number of replies.
    pub fn len(&self) -> usize {
        self.replies.len()
    }

    /// Whether it holds no reply.
    pub fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_returns_the_last_reply_unless_that_is_too_old_or_was_removed(
            steps in prop::collection::vec((any::<bool>(), 0..12u8, 0..40usize, 0..50u64), 1..200),
            age in 0..500u64,
        ) {
            let limits = CacheLimits { replies: 5, octets: 120 };
            let mut cache = ReplyCache::new(limits);
            let mut last: HashMap<u8, (Vec<u8>, u64)> = HashMap::new();
            let mut now = 0;
            for (stores, name, size, pause) in steps {
                now += pause;
                let at = Instant::from_nanos(now);
                if stores {
                    let reply = vec![name ^ now as u8; size];
                    cache.store(&[name; 3], &reply, at);
                    last.insert(name, (reply, now));
                } else if let Some(reply) = cache.get(&[name; 3], at, Span::from_nanos(age)) {
                    let (expected, stored) = &last[&name];
                    prop_assert_eq!(&*reply, &expected[..]);
                    prop_assert!(now - stored <= age);
                }
                prop_assert!(cache.len() <= limits.replies && cache.octets() <= limits.octets);
                prop_assert!(cache.order.len() <= 2 * limits.replies);
                let held = cache.replies.iter().map(|(request, cached)| request.len() + cached.reply.len());
                prop_assert_eq!(held.sum::<usize>(), cache.octets());
            }
        }
    }

    #[test]
    fn a_reply_is_found_while_there_is_room() {
        let mut cache = ReplyCache::new(CacheLimits { replies: 2, octets: 100 });
        let at = Instant::from_nanos;
        cache.store(b"a", b"1", at(0));
        cache.store(b"b", b"2", at(1));
        cache.store(b"a", b"3", at(2));
        cache.store(b"c", b"4", at(3));
        let get = |name: &[u8]| cache.get(name, at(3), Span::from_secs(1)).map(|reply| reply.to_vec());
        assert_eq!([get(b"a"), get(b"b"), get(b"c")], [Some(b"3".to_vec()), None, Some(b"4".to_vec())]);
        assert_eq!(cache.get(b"a", at(3), Span::from_nanos(0)), None, "it is older");
    }
}
