//! This node's view of another host: its state, its clock offset, and counts of exchanged completions.
//!
//! ```text
//!              introduced, answers                     no answer, or it leaves
//!   Waiting ───────────────────────► Joined ───────────────────────────────────► Lost
//!      │  ▲                            ▲  │                                        │
//!      │  └─ it refuses for another    │  └─ refuses ─► Refused                    │
//!      │     reason                    └───────────────────────────────────────────┘
//!      └──► Refused: another version, file, host name or run                  introduced again
//! ```

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use hyoshi_model::{HostId, Instant, Span};
use hyoshi_os::{PiMutex, TcpCounts};
use hyoshi_runtime::{IncomingCompletions, LinkReading};

use crate::agreement::{NodeProgress, Present};
use crate::departures::Departing;
use crate::idl::hyoshi_node as wire;
use crate::offset::{ClockOffset, Estimate, Impossible, RoundTrip};

/// Round trips before instant 0 is converted from another clock.
pub(crate) const COMPARED: usize = 8;

/// The state of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerLink {
    /// It has never joined.
    Waiting,
    /// It answers.
    Joined,
    /// It had joined, and no longer answers.
    Lost,
    /// One of the two nodes rejects the other.
    Refused,
}

impl PeerLink {
    /// As `hyoshi node show` prints it.
    pub fn word(self) -> &'static str {
        match self {
            PeerLink::Waiting => "waiting",
            PeerLink::Joined => "joined",
            PeerLink::Lost => "lost",
            PeerLink::Refused => "refused",
        }
    }
}

/// One other host.
#[derive(Debug)]
pub(crate) struct OtherHost {
    pub host: HostId,
    pub name: String,
    pub known: PiMutex<PeerState>,
    /// The session of sent completions; 0 while none can be sent.
    pub sends_as: AtomicU64,
    /// The endpoint of that session.
    pub sends_at: AtomicUsize,
    /// The session assigned to it; 0 for none.
    pub session: AtomicU64,
    /// Its clock since instant 0 minus the own one, in ns.
    pub ahead: AtomicI64,
    pub sent: AtomicU64,
    pub unsent: AtomicU64,
    pub unconfirmed: AtomicU64,
    pub received: AtomicU64,
    pub rejected: AtomicU64,
    /// Rejected completions that came faster than their adapted rates.
    pub too_fast: AtomicU64,
    pub outputs: OutputCounts,
    pub inbox: PiMutex<Inbox>,
    pub link: PiMutex<LinkTraffic>,
}

/// The counts of the link to a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LinkTraffic {
    /// Of the connections from here.
    own: wire::LinkCounts,
    /// The last exchange: when, half of its round trip, and the counts of the peer.
    exchanged: Option<(u64, Span, wire::LinkCounts)>,
}

impl LinkTraffic {
    /// At `at`, the peer has answered with its counts.
    pub fn exchange(&mut self, own: wire::LinkCounts, (at, delay): (u64, Span), its: wire::LinkCounts) {
        self.own = own;
        self.exchanged = Some((at, delay, its));
    }

    /// Of the connections from here.
    pub fn own(&self) -> wire::LinkCounts {
        self.own
    }

    /// Both directions together, at the last exchange.
    pub fn counts(&self) -> Option<LinkReading> {
        let (at, delay, its) = self.exchanged?;
        let own = self.own;
        Some(LinkReading {
            at,
            sent: own.sent.saturating_add(its.sent),
            lost: own.lost.saturating_add(its.lost),
            octets: own.octets.saturating_add(its.octets),
            delay,
        })
    }
}

/// Counts of outputs for replicas.
#[derive(Debug, Default)]
pub(crate) struct OutputCounts {
    pub flushed: AtomicU64,
    pub unsent: AtomicU64,
    pub late: AtomicU64,
    /// The times from the flush point to the sending, in ns: the longest, and the sum.
    pub latest: AtomicU64,
    pub lateness: AtomicU64,
    pub received: AtomicU64,
}

impl OutputCounts {
    /// Counts an output that was sent this late, or that could not be sent.
    pub fn count(&self, lateness: Option<Span>) {
        let Some(lateness) = lateness.map(Span::as_nanos) else {
            self.unsent.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.flushed.fetch_add(1, Ordering::Relaxed);
        self.latest.fetch_max(lateness, Ordering::Relaxed);
        self.lateness.fetch_add(lateness, Ordering::Relaxed);
    }
}

/// The known state of a peer.
#[derive(Debug)]
pub(crate) struct PeerState {
    pub link: PeerLink,
    pub because: String,
    /// The start of that state, on the own clock.
    pub since: u64,
    pub progress: Option<NodeProgress>,
    /// The number of this start of its node; 0 if it never joined.
    pub incarnation: u64,
    /// The same, from its last answer to an introduction: `clock` is of that start.
    pub answered_as: u64,
    /// The time of the last call with its session, on the own clock.
    pub heard: u64,
    pub clock: ClockOffset,
    /// Its machine's clock, as its requests name it.
    pub clock_number: u64,
    /// Completions sent in earlier sessions, and those confirmed in the present one.
    pub sent_before: u64,
    pub confirmed: u64,
    /// Completions of the present session at the last exchange, and those of the one before it that have not arrived.
    pub at_exchange: u64,
    pub overdue: u64,
    pub joined: u32,
}

/// Completions from a peer, and their rate limit.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub arrivals: Option<IncomingCompletions>,
    /// Of this session.
    pub arrived: u64,
    /// The completions of this session that arrived over another transport than IIOP, and their largest sequence
    /// number.
    pub carried: u64,
    pub sequence: u64,
    /// When the first of them arrived, in ns; 0 if none has.
    pub carried_since: u64,
    /// Those of earlier sessions that arrived so.
    pub carried_before: u64,
    /// Completions of earlier sessions that did not arrive, by their sequence numbers.
    pub missing_before: u64,
    /// Connections of this session that strangers do not displace.
    pub protected: u32,
    /// Twice the file's rate.
    pub allowance: Allowance,
    /// How often it may compare clocks.
    pub exchanges: Allowance,
    /// How often it may ask for threads, or cancel some.
    pub of_threads: Allowance,
    /// How often it may send rates and samples: the loops of its host sample less often.
    pub of_feedback: Allowance,
}

/// A rate limit (a token bucket).
#[derive(Debug, Default)]
pub(crate) struct Allowance {
    /// A second.
    rate: u64,
    /// At once.
    burst: u64,
    tokens: u64,
    at: u64,
}

/// Exchanges a second: peers make 40 at most.
const EXCHANGES: u64 = 100;

/// Calls about threads a second: a quarter of the cancellations that a processor remembers.
const OF_THREADS: u64 = 256;

/// Completions that a peer may send at once.
const BURST: u64 = 1024;

impl Inbox {
    /// Completions that did not arrive, by their sequence numbers. A completion on its way counts if a later one has
    /// arrived.
    pub fn missing(&self) -> u64 {
        self.missing_before.saturating_add(self.sequence.saturating_sub(self.carried))
    }

    /// A completion with this sequence number has arrived. A number counts at most up to those that the peer may have
    /// sent by now: otherwise one number could raise the loss of the link for ever.
    pub fn carry(&mut self, now: u64, sequence: u64) {
        self.carried += 1;
        if self.carried_since == 0 {
            self.carried_since = now;
        }
        let most = self.allowance.most_after(now.saturating_sub(self.carried_since));
        self.sequence = self.sequence.max(sequence.min(most));
    }

    pub fn begin_session(&mut self) {
        self.missing_before = self.missing();
        self.carried_before = self.carried_before.saturating_add(self.carried);
        (self.arrived, self.carried, self.sequence, self.carried_since, self.protected) = (0, 0, 0, 0, 0);
    }
}

impl Allowance {
    pub fn new(rate: u64, burst: u64) -> Self {
        Allowance { rate, burst, ..Allowance::default() }
    }

    /// The most that may arrive within a time in ns, and a second before.
    fn most_after(&self, nanos: u64) -> u64 {
        let rate = u128::from(self.rate) * (u128::from(nanos) + 1_000_000_000) / 1_000_000_000;
        self.burst.saturating_add(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Whether one more may arrive at `now`, in ns.
    pub fn take(&mut self, now: u64) -> bool {
        let since = now.saturating_sub(self.at);
        let more = u128::from(since) * u128::from(self.rate) / 1_000_000_000;
        if more > 0 || self.at == 0 {
            let full = if self.at == 0 { self.burst } else { self.tokens.saturating_add(more as u64).min(self.burst) };
            (self.tokens, self.at) = (full, now);
        }
        let some = self.tokens > 0;
        self.tokens -= u64::from(some);
        some
    }

    /// Restores one unit that was not used.
    pub fn give_back(&mut self) {
        self.tokens = self.tokens.saturating_add(1).min(self.burst);
    }
}

impl OtherHost {
    /// Counts a departing completion or output as sent, or as dropped.
    pub fn count_sent(&self, departing: &Departing, sent: bool) {
        match departing {
            Departing::Completion(_) => {
                _ = if sent { &self.sent } else { &self.unsent }.fetch_add(1, Ordering::Relaxed)
            }
            Departing::Output(_, lateness) => self.outputs.count(sent.then_some(*lateness)),
        }
    }

    /// `rate` is that of its messages, and `samples` that of its loops' samples, both a second.
    pub fn new(host: HostId, name: String, (rate, samples): (u64, u64), now: u64) -> Self {
        let known = PeerState {
            link: PeerLink::Waiting,
            because: String::new(),
            since: now,
            progress: None,
            incarnation: 0,
            answered_as: 0,
            heard: 0,
            clock: ClockOffset::new(),
            clock_number: 0,
            sent_before: 0,
            confirmed: 0,
            at_exchange: 0,
            overdue: 0,
            joined: 0,
        };
        let of = |rate| Allowance::new(rate, BURST);
        let inbox = Inbox {
            allowance: of(rate),
            exchanges: of(EXCHANGES),
            of_threads: of(OF_THREADS),
            of_feedback: Allowance::new(2 * samples + 10, 2 * samples + 10),
            ..Inbox::default()
        };
        let none = || AtomicU64::new(0);
        OtherHost {
            host,
            name,
            known: PiMutex::new(known),
            sends_as: none(),
            sends_at: AtomicUsize::new(0),
            session: none(),
            ahead: AtomicI64::new(0),
            sent: none(),
            unsent: none(),
            unconfirmed: none(),
            received: none(),
            rejected: none(),
            too_fast: none(),
            outputs: OutputCounts::default(),
            inbox: PiMutex::new(inbox),
            link: PiMutex::default(),
        }
    }

    /// What the connections to it have counted. `tcp` is of all TCP connections that were opened to it.
    pub fn link_counts(&self, tcp: TcpCounts) -> wire::LinkCounts {
        let (carried, missing) = {
            let inbox = self.inbox.lock();
            (inbox.carried_before.saturating_add(inbox.carried), inbox.missing())
        };
        let unsent = self.unsent.load(Ordering::Relaxed);
        let sum = |counts: &[u64]| counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        wire::LinkCounts {
            sent: sum(&[tcp.segments, unsent, carried, missing]),
            lost: sum(&[tcp.repeated, unsent, missing]),
            octets: tcp.octets,
        }
    }

    /// Its view for the agreement on instant 0, if it is present.
    pub fn present(&self) -> Option<Present> {
        let known = self.known.lock();
        let progress = known.progress.filter(|_| known.link == PeerLink::Joined)?;
        Some(Present { host: self.host, progress, compared: known.clock.samples() >= COMPARED })
    }

    /// Converts an instant of its clock to the own clock.
    pub fn to_own(&self, at: u64) -> Instant {
        let ahead = self.ahead.load(Ordering::Relaxed);
        Instant::from_nanos(if ahead < 0 {
            at.saturating_add(ahead.unsigned_abs())
        } else {
            at.saturating_sub(ahead as u64)
        })
    }

    /// Counts of the completions of this peer's session and of earlier ones.
    pub fn session_over(&self, known: &mut PeerState) {
        self.sends_as.store(0, Ordering::Release);
        let sent = self.sent.load(Ordering::Relaxed);
        let open = sent.saturating_sub(known.sent_before).saturating_sub(known.confirmed);
        self.unconfirmed.fetch_add(open, Ordering::Relaxed);
        (known.sent_before, known.confirmed) = (sent, 0);
        (known.at_exchange, known.overdue) = (0, 0);
    }
}

impl PeerState {
    /// Its clock compared to the own one: both since instant 0, if both are in a run.
    pub fn ahead(&self, now: u64, own: Option<&NodeProgress>) -> Option<Estimate> {
        let Estimate { offset, error } = self.clock.estimate(now)?;
        let (Some(NodeProgress::Running(own)), Some(NodeProgress::Running(its))) = (own, &self.progress) else {
            return None;
        };
        // (its clock - its origin) - (own clock - own origin)
        let ahead = i128::from(offset) - i128::from(its.origin) + i128::from(own.origin);
        Some(Estimate { offset: i64::try_from(ahead).ok()?, error })
    }

    /// Whether it called or answered within a span.
    pub fn is_alive(&self, now: u64, within: Span) -> bool {
        self.incarnation != 0 && self.heard != 0 && now.saturating_sub(self.heard) < within.as_nanos()
    }

    /// Notes which start of its node answers. A restarted node's clock is measured again: its machine may have
    /// rebooted, and CLOCK_MONOTONIC begins with the machine.
    pub fn answers_as(&mut self, incarnation: u64, clock: u64) {
        if self.answered_as != incarnation {
            (self.answered_as, self.clock) = (incarnation, ClockOffset::new());
        }
        self.clock_number = clock;
    }

    /// `arrived` of the session's completions have arrived at the peer. `sent` were sent before it was asked, of all
    /// sessions. Those sent before the previous exchange had enough time.
    pub fn confirm(&mut self, sent: u64, arrived: u64) {
        self.confirmed = self.confirmed.max(arrived);
        self.overdue = self.at_exchange.saturating_sub(self.confirmed);
        self.at_exchange = sent.saturating_sub(self.sent_before);
    }

    /// True if the clock has jumped.
    pub fn measure(&mut self, trip: RoundTrip) -> Result<bool, Impossible> {
        self.clock.measure(trip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_send_a_burst_and_then_its_rate() {
        let mut allowance = Allowance::new(1_000, BURST);
        let start = 5_000_000_000;
        assert_eq!((0..3 * BURST).filter(|_| allowance.take(start)).count() as u64, BURST);
        let taken = (1..=1_000_000u64).filter(|step| allowance.take(start + step * 1_000)).count();
        assert!((990..=1_000).contains(&taken), "{taken} within a second");
        assert!((0..BURST).all(|_| allowance.take(start + 100_000_000_000)), "it has rested");
    }

    #[test]
    fn instants_of_another_clock_are_shifted_and_stay_within_time() {
        let peer = OtherHost::new(HostId(1), "b".into(), (1, 0), 0);
        peer.ahead.store(30, Ordering::Relaxed);
        assert_eq!((peer.to_own(100), peer.to_own(10)), (Instant::from_nanos(70), Instant::ZERO));
        peer.ahead.store(i64::MIN, Ordering::Relaxed);
        assert_eq!(peer.to_own(u64::MAX), Instant::from_nanos(u64::MAX));
    }

    #[test]
    fn what_was_sent_and_not_confirmed_is_counted_when_a_session_ends() {
        let peer = OtherHost::new(HostId(1), "b".into(), (1, 0), 0);
        peer.sent.store(10, Ordering::Relaxed);
        peer.known.lock().confirmed = 7;
        peer.session_over(&mut peer.known.lock());
        assert_eq!(peer.unconfirmed.load(Ordering::Relaxed), 3);
        peer.sent.store(15, Ordering::Relaxed);
        peer.session_over(&mut peer.known.lock());
        assert_eq!(peer.unconfirmed.load(Ordering::Relaxed), 8);
    }

    #[test]
    fn gaps_between_sequence_numbers_are_counted_over_all_sessions() {
        let mut inbox = Inbox { allowance: Allowance::new(100, 10), ..Inbox::default() };
        let arrive = |inbox: &mut Inbox, sequence: u64| inbox.carry(1, sequence);
        [1, 2, 5, 4].into_iter().for_each(|sequence| arrive(&mut inbox, sequence));
        assert_eq!(inbox.missing(), 1, "order does not matter");
        inbox.begin_session();
        assert_eq!(inbox.missing(), 1);
        [3, 1, 2].into_iter().for_each(|sequence| arrive(&mut inbox, sequence));
        assert_eq!(inbox.missing(), 1);
        // A peer cannot have sent more than 110 completions by now; half a second later, 50 more.
        arrive(&mut inbox, u64::MAX);
        assert_eq!(inbox.missing(), 1 + 110 - 4);
        inbox.carry(500_000_001, u64::MAX);
        inbox.begin_session();
        assert_eq!(inbox.missing(), 1 + 160 - 5);
    }

    #[test]
    fn completions_that_have_not_arrived_an_exchange_later_are_overdue() {
        let peer = OtherHost::new(HostId(1), "b".into(), (1, 0), 0);
        let known = &mut *peer.known.lock();
        known.sent_before = 100;
        known.confirm(110, 4);
        assert_eq!(known.overdue, 0, "they may be on their way");
        known.confirm(120, 7);
        assert_eq!(known.overdue, 3);
        known.confirm(120, 18);
        assert_eq!(known.overdue, 2);
        known.confirm(120, 20);
        assert_eq!(known.overdue, 0, "they were late");
    }
}
