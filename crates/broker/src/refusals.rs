//! Notices to the operator about refused clients, at the TLS port or above a limit, with a limited rate.

use hyoshi_model::{Instant, Span, printable};
use hyoshi_os::PiMutex;

/// The shortest time between notices.
const BETWEEN: Span = Span::from_secs(10);
/// Longest reason, in characters.
const LONGEST: usize = 200;

/// See the module.
#[derive(Debug)]
pub(crate) struct RefusalNotices(&'static str, PiMutex<RefusalCount>);

#[derive(Debug, Default)]
struct RefusalCount {
    /// Since the last notice.
    count: u32,
    last: String,
    /// The instant of the next notice.
    next: Instant,
}

impl RefusalNotices {
    /// `what` starts each notice.
    pub fn of(what: &'static str) -> RefusalNotices {
        RefusalNotices(what, PiMutex::default())
    }

    /// Counts a refused client. True if [`RefusalNotices::due`] has changed.
    pub fn note(&self, who: &str, reason: &str) -> bool {
        let words = printable(
            &format!("{who}: {reason}").chars().filter(|c| !c.is_control()).take(LONGEST).collect::<String>(),
        );
        let mut refused = self.1.lock();
        (refused.count, refused.last) = (refused.count.saturating_add(1), words);
        refused.count == 1
    }

    /// When the next notice is due.
    pub fn due(&self) -> Instant {
        let refused = self.1.lock();
        if refused.count == 0 { Instant::NEVER } else { refused.next }
    }

    /// The notice that is due.
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
    fn the_first_refusal_is_logged_at_once_and_the_following_ones_together() {
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
