//! The delegates of all operations.

use std::collections::HashMap;

use hyoshi_model::network::Dscp;
use hyoshi_model::{DelegateTotals, Instant, Span};
use hyoshi_wire::{SystemException, SystemKind, minor};

use super::{Behaviour, DelegateMeasurements, DelegateOutcome, Thinning};

/// Operations that are measured separately. Clients choose names: further ones share a delegate.
pub const MOST_OPERATIONS: usize = 128;

/// Operations of every object. They pass, unless they have a behaviour of their own.
pub(crate) const IMPLICIT_OPERATIONS: [&str; 6] =
    ["_is_a", "_non_existent", "_not_existent", "_repository_id", "_interface", "_component"];

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DelegateDecision {
    /// Pass it on.
    Pass,
    /// Raise this.
    Refuse(SystemException),
    /// Drop it: it is a oneway.
    Drop,
    /// Pass it to the object of the [`Behaviour::Redirect`].
    Redirect,
    /// Pass it on after this time.
    Delay(Span),
    /// Pass it on in packets of this class.
    Mark(Dscp),
    /// Answer it from a reply of at most this age, and call [`Delegates::answered`]. Without one, pass it on, call
    /// [`Delegates::missed`], and store the reply.
    Cached(Span),
}

/// One delegate.
///
/// ```text
///                  request: refused, dropped
///              ┌──────────────────────────────┐
///   request ───┤  pass, redirect, delay, mark ├──► passed ──► replied: answered, failed, cancelled
///              └──► cached ──┬── missed ──────┘
///                            └── answered
/// ```
#[derive(Clone, Debug)]
pub struct OperationDelegate {
    name: Box<str>,
    behaviour: Behaviour,
    /// The behaviour is its own, not that of all others.
    is_own: bool,
    /// Requests of [`Thinning::OneOf`] since the last that passed.
    since: u32,
    /// [`Thinning::Every`] passes the next request from then on.
    next: Instant,
    measured: DelegateMeasurements,
}

impl OperationDelegate {
    /// Of the operation with this name.
    pub fn new(name: &str, behaviour: Behaviour) -> Self {
        let (since, next) = (0, Instant::from_nanos(0));
        let measured = DelegateMeasurements::new();
        OperationDelegate { name: name.into(), behaviour, is_own: true, since, next, measured }
    }

    /// Has this behaviour from the next request on.
    fn set(&mut self, behaviour: Behaviour, is_own: bool) {
        self.is_own = is_own;
        if self.behaviour != behaviour {
            (self.behaviour, self.since, self.next) = (behaviour, 0, Instant::from_nanos(0));
        }
    }

    /// The operation.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its behaviour.
    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// What it has measured.
    pub fn measured(&self) -> &DelegateMeasurements {
        &self.measured
    }

    /// Decides about a request. Its `now` is not before that of earlier requests.
    pub fn request(&mut self, now: Instant, is_oneway: bool) -> DelegateDecision {
        self.measured.arrived(now);
        let decision = match &self.behaviour {
            Behaviour::Pass => DelegateDecision::Pass,
            Behaviour::Refuse(kind) => refusal(*kind, is_oneway),
            Behaviour::Redirect(_) => DelegateDecision::Redirect,
            Behaviour::Thin(thinning) => {
                let thinning = *thinning;
                if self.passes(thinning, now) {
                    DelegateDecision::Pass
                } else {
                    refusal(SystemKind::Transient, is_oneway)
                }
            }
            Behaviour::Delay(span) => DelegateDecision::Delay(*span),
            Behaviour::Mark(dscp) => DelegateDecision::Mark(*dscp),
            Behaviour::Cached(_) if is_oneway => DelegateDecision::Pass,
            Behaviour::Cached(age) => DelegateDecision::Cached(*age),
        };
        match decision {
            DelegateDecision::Refuse(_) => self.measured.refused += 1,
            DelegateDecision::Drop => self.measured.dropped += 1,
            DelegateDecision::Cached(_) => {}
            _ => self.measured.passed += 1,
        }
        decision
    }

    fn passes(&mut self, thinning: Thinning, now: Instant) -> bool {
        match thinning {
            Thinning::OneOf(count) => {
                let passes = self.since == 0;
                self.since = (self.since + 1) % count.get();
                passes
            }
            Thinning::Every(period) => {
                let passes = now >= self.next;
                if passes {
                    self.next = now.saturating_add(period);
                }
                passes
            }
        }
    }
}

fn refusal(kind: SystemKind, is_oneway: bool) -> DelegateDecision {
    match is_oneway {
        true => DelegateDecision::Drop,
        false => DelegateDecision::Refuse(kind.not_done(minor::DELEGATE)),
    }
}

/// The octets of the longest name of an operation that has a delegate of its own.
const LONGEST_NAME: usize = 256;

/// The delegate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegateId(usize);

/// The delegates of all operations, known or not.
#[derive(Debug)]
pub struct Delegates {
    /// That of operations beyond [`MOST_OPERATIONS`] first.
    delegates: Vec<OperationDelegate>,
    places: HashMap<Box<str>, usize, foldhash::quality::RandomState>,
    /// That of the last request: often the next one has the same operation.
    recent: usize,
    others: Behaviour,
    /// No operation gets a delegate of its own any more.
    is_complete: bool,
    totals: DelegateTotals,
}

impl Delegates {
    /// With behaviours of operations by name. `others` is that of all other operations.
    pub fn new<'a>(behaviours: impl IntoIterator<Item = (&'a str, Behaviour)>, others: Behaviour) -> Self {
        let further =
            OperationDelegate { is_own: false, ..OperationDelegate::new("(further operations)", others.clone()) };
        let (delegates, totals) = (vec![further], DelegateTotals::default());
        let places = HashMap::default();
        let mut all = Delegates { delegates, places, recent: 0, others, is_complete: false, totals };
        for (name, behaviour) in behaviours {
            all.add(name, behaviour, true);
        }
        all
    }

    /// The delegates of all operations of an interface; other names share one. A request allocates nothing.
    pub fn of_interface<'a>(operations: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Delegates::new([], Behaviour::Pass);
        operations.into_iter().for_each(|name| _ = all.add(name, Behaviour::Pass, false));
        Delegates { is_complete: true, ..all }
    }

    /// An operation has this behaviour from its next request on; without one, that of all others. False if it has no
    /// delegate.
    pub fn set(&mut self, operation: &str, behaviour: Option<Behaviour>) -> bool {
        let Some(at) = self.places.get(operation) else { return false };
        // Operations of every object pass, unless they have a behaviour of their own.
        let is_implicit = || IMPLICIT_OPERATIONS.contains(&operation);
        let is_own = behaviour.is_some() || is_implicit();
        let default = || if is_implicit() { Behaviour::Pass } else { self.others.clone() };
        self.delegates[*at].set(behaviour.unwrap_or_else(default), is_own);
        true
    }

    /// All operations without a behaviour of their own have this one from now on.
    pub fn set_others(&mut self, behaviour: Behaviour) {
        for delegate in self.delegates.iter_mut().filter(|one| !one.is_own) {
            delegate.set(behaviour.clone(), false);
        }
        self.others = behaviour;
    }

    /// The counts of all operations.
    pub fn totals(&self) -> DelegateTotals {
        self.totals
    }

    /// An operation has a delegate of its own from now on, even if clients call many others first.
    pub fn reserve(&mut self, operation: &str) {
        if !self.places.contains_key(operation) {
            self.add(operation, self.others.clone(), false);
            self.set(operation, None);
        }
    }

    fn add(&mut self, name: &str, behaviour: Behaviour, is_own: bool) -> usize {
        let at = self.delegates.len();
        self.delegates.push(OperationDelegate { is_own, ..OperationDelegate::new(name, behaviour) });
        self.places.insert(name.into(), at);
        at
    }

    /// Decides about a request.
    #[inline]
    pub fn request(&mut self, now: Instant, operation: &str, is_oneway: bool) -> (DelegateId, DelegateDecision) {
        self.totals.requests += 1;
        let is_recent = self.recent > 0 && self.delegates[self.recent].name() == operation;
        let found = if is_recent { Some(self.recent) } else { self.places.get(operation).copied() };
        let at = match found {
            Some(at) => at,
            None if self.is_complete => 0,
            None if operation.len() > LONGEST_NAME => 0,
            None if IMPLICIT_OPERATIONS.contains(&operation) => self.add(operation, Behaviour::Pass, true),
            None if self.delegates.len() <= MOST_OPERATIONS => self.add(operation, self.others.clone(), false),
            None => 0,
        };
        self.recent = at;
        (DelegateId(at), self.delegates[at].request(now, is_oneway))
    }

    /// A request was answered from the cache.
    pub fn answered(&mut self, id: DelegateId) {
        self.delegates[id.0].measured.cached += 1;
    }

    /// The cache has no reply for a request, which is passed on.
    pub fn missed(&mut self, id: DelegateId) {
        self.delegates[id.0].measured.passed += 1;
    }

    /// A request that was passed on at `began` has ended.
    #[inline]
    pub fn replied(&mut self, id: DelegateId, began: Instant, now: Instant, outcome: DelegateOutcome) {
        match outcome {
            DelegateOutcome::Answered => {
                self.totals.answered += 1;
                self.totals.waited += now.since(began);
            }
            DelegateOutcome::Failed => self.totals.failed += 1,
            DelegateOutcome::Cancelled => {}
        }
        self.delegates[id.0].measured.ended(began, now, outcome);
    }

    /// The delegate of a request.
    pub fn of(&self, id: DelegateId) -> &OperationDelegate {
        &self.delegates[id.0]
    }

    /// All that have received requests, or that have a behaviour of their own, by name.
    pub fn all(&self) -> Vec<&OperationDelegate> {
        let mut all: Vec<_> = self.delegates[1..].iter().collect();
        all.sort_by_key(|delegate| delegate.name());
        all.extend(self.delegates.first().filter(|delegate| delegate.measured.requests > 0));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::*;

    fn behaviour() -> impl Strategy<Value = Behaviour> {
        prop_oneof![
            Just(Behaviour::Pass),
            Just(Behaviour::Refuse(SystemKind::NoPermission)),
            Just(Behaviour::Redirect("corbaloc::h/K".into())),
            (1..9u32).prop_map(|n| Behaviour::Thin(Thinning::OneOf(NonZeroU32::new(n).unwrap()))),
            (1..90u64).prop_map(|nanos| Behaviour::Thin(Thinning::Every(Span::from_nanos(nanos)))),
            Just(Behaviour::Delay(Span::from_millis(1))),
            Just(Behaviour::Mark(Dscp::EF)),
            Just(Behaviour::Cached(Span::from_secs(1))),
        ]
    }

    fn passes(delegate: &mut OperationDelegate, pauses: &[u64]) -> Vec<u64> {
        let mut now = 0;
        let mut passed = Vec::new();
        for pause in pauses {
            now += pause;
            match delegate.request(Instant::from_nanos(now), false) {
                DelegateDecision::Pass => passed.push(now),
                decision => assert!(matches!(decision, DelegateDecision::Refuse(_))),
            }
        }
        passed
    }

    proptest! {
        #[test]
        fn one_of_n_requests_passes(count in 1..20u32, requests in 0..200usize) {
            let count = NonZeroU32::new(count).unwrap();
            let mut delegate = OperationDelegate::new("a", Behaviour::Thin(Thinning::OneOf(count)));
            let passed = passes(&mut delegate, &vec![1; requests]);
            prop_assert_eq!(passed.len(), requests.div_ceil(count.get() as usize));
        }

        #[test]
        fn requests_pass_at_most_at_the_rate_and_the_first_after_a_period_does(
            period in 1..100u64,
            pauses in prop::collection::vec(0..150u64, 1..200),
        ) {
            let mut delegate = OperationDelegate::new("a", Behaviour::Thin(Thinning::Every(Span::from_nanos(period))));
            let passed = passes(&mut delegate, &pauses);
            prop_assert!(passed.windows(2).all(|two| two[1] - two[0] >= period));
            let mut now = 0;
            let mut last: Option<u64> = None;
            for pause in pauses {
                now += pause;
                if last.is_none_or(|last| now - last >= period) {
                    prop_assert!(passed.contains(&now));
                    last = Some(now);
                }
            }
        }

        #[test]
        fn each_request_is_counted_once_and_a_oneway_gets_no_exception(
            behaviour in behaviour(),
            requests in prop::collection::vec((any::<bool>(), any::<bool>(), 0..50u64), 0..100),
        ) {
            let mut delegates = Delegates::new([("a", behaviour)], Behaviour::Pass);
            let mut now = Instant::from_nanos(0);
            for (is_oneway, is_cached, pause) in &requests {
                now = now.saturating_add(Span::from_nanos(*pause));
                let (id, decision) = delegates.request(now, "a", *is_oneway);
                match decision {
                    DelegateDecision::Cached(_) if *is_cached => delegates.answered(id),
                    DelegateDecision::Cached(_) => delegates.missed(id),
                    DelegateDecision::Refuse(_) => prop_assert!(!is_oneway),
                    DelegateDecision::Drop => prop_assert!(is_oneway),
                    _ => {}
                }
            }
            let measured = delegates.all()[0].measured();
            prop_assert_eq!(measured.requests, requests.len() as u64);
            let all = measured.passed + measured.refused + measured.dropped + measured.cached;
            prop_assert_eq!(all, measured.requests);
        }
    }

    #[test]
    fn names_that_clients_choose_take_bounded_memory() {
        let mut delegates = Delegates::new([("known", Behaviour::Refuse(SystemKind::Transient))], Behaviour::Pass);
        delegates.request(Instant::from_nanos(0), &"long".repeat(1_000), false);
        for number in 0..999 {
            delegates.request(Instant::from_nanos(number), &format!("op{number}"), false);
        }
        let (_, decision) = delegates.request(Instant::from_nanos(1_000), "known", false);
        assert!(matches!(decision, DelegateDecision::Refuse(_)), "its behaviour remains");
        let all = delegates.all();
        assert_eq!(all.len(), MOST_OPERATIONS + 1);
        assert!(all.iter().all(|delegate| delegate.name().len() <= LONGEST_NAME));
        assert_eq!(all.iter().map(|delegate| delegate.measured().requests).sum::<u64>(), 1_001);
    }

    #[test]
    fn operations_of_every_object_pass_unless_they_are_named() {
        let mut delegates = Delegates::new([("_non_existent", Behaviour::Delay(Span::from_millis(1)))], refusing());
        let mut decision = |operation| delegates.request(Instant::from_nanos(0), operation, false).1;
        assert_eq!(decision("_is_a"), DelegateDecision::Pass);
        assert_eq!(decision("_non_existent"), DelegateDecision::Delay(Span::from_millis(1)));
        assert!(matches!(decision("_get_name"), DelegateDecision::Refuse(_)));
    }

    #[test]
    fn requests_to_a_known_interface_allocate_nothing() {
        let mut delegates = Delegates::of_interface(["locate", "place"]);
        delegates.set("place", Some(Behaviour::Thin(Thinning::Every(Span::from_millis(1)))));
        let counted = allocation_counter::measure(|| {
            for operation in ["locate", "place", "unknown"].repeat(50) {
                let (id, decision) = delegates.request(Instant::from_nanos(9), operation, false);
                if decision == DelegateDecision::Pass {
                    delegates.replied(id, Instant::from_nanos(9), Instant::from_nanos(20), DelegateOutcome::Answered);
                }
            }
        });
        // `repeat` allocates its list.
        assert_eq!((counted.count_total, delegates.totals().answered), (1, 101));
    }

    #[test]
    fn behaviours_change_while_it_counts() {
        let mut delegates = Delegates::of_interface(["locate", "place"]);
        let decision =
            |delegates: &mut Delegates, operation| delegates.request(Instant::from_nanos(9), operation, false).1;
        assert!(delegates.set("place", Some(Behaviour::Delay(Span::from_millis(1)))));
        assert!(!delegates.set("unknown", None));
        delegates.set_others(refusing());
        assert!(matches!(decision(&mut delegates, "locate"), DelegateDecision::Refuse(_)));
        assert!(matches!(decision(&mut delegates, "unknown"), DelegateDecision::Refuse(_)));
        assert_eq!(decision(&mut delegates, "place"), DelegateDecision::Delay(Span::from_millis(1)));
        assert!(delegates.set("place", None));
        assert!(matches!(decision(&mut delegates, "place"), DelegateDecision::Refuse(_)), "that of all others");
        delegates.set_others(Behaviour::Pass);
        assert_eq!(decision(&mut delegates, "place"), DelegateDecision::Pass);
        let names: Vec<_> = delegates.all().iter().map(|one| one.name().to_owned()).collect();
        assert_eq!(names, ["locate", "place", "(further operations)"]);
        assert_eq!(delegates.totals().requests, 5);
    }

    fn refusing() -> Behaviour {
        Behaviour::Refuse(SystemKind::Transient)
    }

    #[test]
    fn latency_failures_and_rate_are_measured() {
        let mut delegates = Delegates::new([], Behaviour::Pass);
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        for number in 0..5 {
            let (id, _) = delegates.request(at(number * 10), "locate", false);
            let outcome = if number == 4 { DelegateOutcome::Failed } else { DelegateOutcome::Answered };
            delegates.replied(id, at(number * 10), at(number * 10 + 2), outcome);
        }
        let measured = delegates.all()[0].measured();
        assert_eq!((measured.requests, measured.passed, measured.failed), (5, 5, 1));
        assert_eq!(measured.latency.extent().most(), Some(Span::from_millis(2)));
        assert_eq!(measured.rate(), Some(100.0));
    }
}
