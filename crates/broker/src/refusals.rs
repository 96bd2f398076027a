//! Clients that were refused, at the TLS port or for too many requests: a notice to the operator now and then.

use hyoshi_model::{Instant, Span, printable};
use hyoshi_os::PiMutex;

/// From one notice to the next.
const BETWEEN: Span = Span::from_secs(10);
/// Characters of a notice's reason.
const LONGEST: usize = 200;

/// See the module.
#[derive(Debug)]
pub(crate) struct RefusalNotices(&'static str, PiMutex<RefusalCount>);

#[derive(Debug, Default)]
struct RefusalCount {
    /// Since the last notice.
    count: u32,
    last: String,
    /// When the next notice may be.
    next: Instant,
}

impl RefusalNotices {
    /// `what` begins each notice.
    pub fn of(what: &'static str) -> RefusalNotices {
        RefusalNotices(what, PiMutex::default())
    }

    /// A client at that address was refused. True if [`RefusalNotices::due`] has become another: those that follow it wake
    /// nobody.
    pub fn note(&self, who: &str, reason: &str) -> bool {
        let words = printable(
            &format!("{who}: {reason}").chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>(),
        );
        let mut refused = self.1.lock();
        (refused.count, refused.last) = (refused.count.saturating_add(1), words);
        refused.count == 1
    }

    /// When there is something to tell.
    pub fn due(&self) -> Instant {
        let refused = self.1.lock();
        if refused.count == 0 { Instant::NEVER } else { refused.next }
    }

    /// What there is to tell now.
    pub fn take(&self, now: Instant) -> Option<String> {
        let mut refused = self.1.lock();
        if refused.count == 0 || now < refused.next {
            return None;
        }
        refused.next = now + BETWEEN;
        let count = std::mem::take(&mut refused.count);
        let others = if count > 1 { format!(" and {} more", count - 1) } else { String::new() };
        Some(format!("{}: {}{others}", self.0, std::mem::take(&mut refused.last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_turned_away_is_told_at_once_and_the_many_that_follow_together() {
        let refusals = RefusalNotices::of("refused over TLS");
        let at = |seconds| Instant::ZERO + Span::from_secs(seconds);
        assert_eq!((refusals.take(at(0)), refusals.due()), (None, Instant::NEVER));
        assert!(refusals.note("10.0.0.7:4711", "no certificate\n"));
        assert!(refusals.due() <= at(1));
        assert_eq!(refusals.take(at(1)).unwrap(), "refused over TLS: 10.0.0.7:4711: no certificate");
        let woken = (0..1000).filter(|port| refusals.note(&format!("10.0.0.7:{port}"), "no"));
        assert_eq!((woken.count(), refusals.due()), (1, at(11)));
        assert_eq!(refusals.take(at(10)), None);
        assert_eq!(refusals.take(at(11)).unwrap(), "refused over TLS: 10.0.0.7:999: no and 999 more");
        assert_eq!(refusals.take(at(30)), None);
    }
}
