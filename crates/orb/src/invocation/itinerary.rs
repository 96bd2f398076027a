//! The target of a request, and when it is sent again: GIOP's rules (CORBA 3.3 part 2, 9.5.1 and 9.6) without I/O.
//!
//! - A request is sent again only if it was not carried out: it could not be sent whole, or the server closed the
//!   connection in the orderly way. After a lost connection or a missing reply it is not.
//! - The addresses of a reference are tried in order until one can be connected to.
//! - A forwarded request goes to the new reference from then on, until that fails. Then it goes to the original one.
//!
//! ```text
//!   next ──► attempt ──► after ──► Done, Raise, Fail
//!    ▲                     │
//!    ├── Again: same address, 3 times; next address; first address of the original reference (not forwarded any more)
//!    └── Forward: first address of another reference
//! ```

use hyoshi_wire::ior::Ior;
use hyoshi_wire::{SystemException, SystemKind};

use crate::failure::CallFailure;
use crate::minor;

/// How often a request changes its reference at most.
const FORWARDS: u32 = 8;
/// How often it is sent again to the same address.
pub(super) const AGAIN: u32 = 3;

/// The content of a reply that is not the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReplyContent {
    Outcome,
    Raise(SystemException),
    Forward(Box<Ior>),
    NeedsKey,
}

/// The way of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A connection that the object's own ORB opened.
    Back,
    /// The reference's address with this index.
    Address(usize),
}

/// The next step after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The reply was accepted.
    Done,
    /// Try the next way, of the original reference if [`Itinerary::is_forwarded`] is false.
    Again,
    /// Try the ways of this reference.
    Forward(Box<Ior>),
    /// Give up: the server replied with an exception.
    Raise(SystemException),
    /// Give up: there is no reply.
    Fail(SystemException),
}

/// One request's way.
#[derive(Debug, Default)]
pub(super) struct Itinerary {
    /// Whether the next attempt is for a reference that the request was forwarded to.
    pub(super) is_forwarded: bool,
    address: usize,
    /// Addresses of the present reference.
    addresses: usize,
    over_way_back: bool,
    /// How often it changed its reference.
    forwards: u32,
    /// How often it was sent again to this address.
    repeats: u32,
    /// How often a way back failed.
    ways_back: u32,
}

impl Itinerary {
    /// Of a request to the original reference, or to where an earlier one was forwarded to.
    pub(super) fn new(is_forwarded: bool) -> Self {
        Itinerary { is_forwarded, ..Itinerary::default() }
    }

    /// The way of the next attempt. `None` if the present reference has no address.
    #[inline]
    pub(super) fn next(&mut self, addresses: usize, has_way_back: bool) -> Option<Way> {
        self.addresses = addresses;
        self.over_way_back = has_way_back && self.ways_back < AGAIN;
        match self.address < addresses {
            true if self.over_way_back => Some(Way::Back),
            true => Some(Way::Address(self.address)),
            false => None,
        }
    }

    /// The next step after an attempt with this end.
    #[inline]
    pub(super) fn after(&mut self, outcome: Result<ReplyContent, CallFailure>, time_is_left: bool) -> NextStep {
        match outcome {
            Ok(ReplyContent::Outcome) => NextStep::Done,
            // The object no longer exists at the forwarded address.
            Ok(ReplyContent::Raise(exception)) if self.is_forwarded && exception.kind == SystemKind::ObjectNotExist => {
                self.turn_back(NextStep::Raise(exception))
            }
            Ok(ReplyContent::Raise(exception)) => NextStep::Raise(exception),
            Ok(ReplyContent::NeedsKey) => NextStep::Raise(SystemKind::Transient.not_done(minor::ADDRESSING)),
            Ok(ReplyContent::Forward(ior)) => {
                let in_a_loop = NextStep::Raise(SystemKind::Transient.not_done(minor::FORWARD_LOOP));
                self.turn(true, NextStep::Forward(ior), in_a_loop)
            }
            Err(failure) => self.failed(&failure, time_is_left),
        }
    }

    #[cold]
    fn failed(&mut self, failure: &CallFailure, time_is_left: bool) -> NextStep {
        let give_up = NextStep::Fail(failure.exception());
        if !failure.may_go_elsewhere() {
            return give_up;
        }
        if !time_is_left {
            // The next call begins at the original reference.
            self.is_forwarded = false;
            return give_up;
        }
        if self.over_way_back {
            self.ways_back += 1;
            return NextStep::Again;
        }
        if failure.may_repeat() && self.repeats < AGAIN {
            self.repeats += 1;
            return NextStep::Again;
        }
        (self.repeats, self.address) = (0, self.address + 1);
        if self.address < self.addresses {
            NextStep::Again
        } else if self.is_forwarded {
            self.turn_back(give_up)
        } else {
            give_up
        }
    }

    /// To the original reference.
    #[cold]
    fn turn_back(&mut self, give_up: NextStep) -> NextStep {
        self.is_forwarded = false;
        self.turn(false, NextStep::Again, give_up)
    }

    /// To the first address of another reference, unless it has changed too often.
    #[cold]
    fn turn(&mut self, is_forwarded: bool, step: NextStep, give_up: NextStep) -> NextStep {
        self.forwards += 1;
        if self.forwards > FORWARDS {
            return give_up;
        }
        (self.is_forwarded, self.address) = (is_forwarded, 0);
        step
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_wire::{Completed, EncodeError};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::tls::Distrust;

    /// A server's handling of a request, and its client's view.
    fn outcome() -> impl Strategy<Value = Result<ReplyContent, CallFailure>> {
        let raised = SystemKind::Unknown.maybe_done(minor::UNDECLARED);
        let absent = SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT);
        let said = [
            ReplyContent::Outcome,
            ReplyContent::Raise(raised),
            ReplyContent::Raise(absent),
            ReplyContent::Forward(Box::default()),
            ReplyContent::Forward(Box::default()),
            ReplyContent::NeedsKey,
        ];
        let failed = [
            CallFailure::HostUnknown,
            CallFailure::Refused,
            CallFailure::NotConnected,
            CallFailure::ConnectTimedOut,
            CallFailure::NoWayBack,
            CallFailure::Forbidden,
            CallFailure::Unsent,
            CallFailure::Closed,
            CallFailure::Lost,
            CallFailure::SendTimedOut,
            CallFailure::TimedOut,
            CallFailure::Garbled,
            CallFailure::NotUnderstood,
            CallFailure::InFlight,
            CallFailure::Backlog,
            CallFailure::ShutDown,
            CallFailure::Tls(Distrust::Handshake),
            CallFailure::Encode(EncodeError::TooLong(1)),
            CallFailure::Raised(raised),
        ];
        let all: Vec<_> = said.into_iter().map(Ok).chain(failed.into_iter().map(Err)).collect();
        proptest::sample::select(all)
    }

    /// Whether the server may have called the servant. (OBJECT_NOT_EXIST means that there is none.)
    fn may_be_carried_out(outcome: &Result<ReplyContent, CallFailure>) -> bool {
        match outcome {
            Ok(ReplyContent::Outcome) => true,
            Ok(ReplyContent::Raise(exception)) => exception.kind != SystemKind::ObjectNotExist,
            Ok(ReplyContent::Forward(_) | ReplyContent::NeedsKey) => false,
            Err(failure) => failure.exception().completed != Completed::No,
        }
    }

    fn gives_up(step: &NextStep) -> bool {
        matches!(step, NextStep::Done | NextStep::Raise(_) | NextStep::Fail(_))
    }

    proptest! {
        #[test]
        fn a_request_is_sent_again_only_if_it_was_not_carried_out(
            forwarded: bool,
            attempts in vec((outcome(), 1_usize..4, any::<bool>(), any::<bool>()), 1..60),
        ) {
            let mut itinerary = Itinerary::new(forwarded);
            for (outcome, addresses, back, time_is_left) in attempts {
                let way = itinerary.next(addresses.max(itinerary.address + 1), back);
                prop_assert!(way.is_some());
                let step = itinerary.after(outcome.clone(), time_is_left);
                prop_assert!(gives_up(&step) || !may_be_carried_out(&outcome), "{outcome:?}: {step:?}");
                // The exception reports it.
                match (&step, &outcome) {
                    (NextStep::Done, _) => prop_assert_eq!(outcome, Ok(ReplyContent::Outcome)),
                    (NextStep::Fail(raised), Err(failure)) => {
                        prop_assert_eq!(*raised, failure.exception());
                        prop_assert_eq!(raised.completed == Completed::No, !may_be_carried_out(&outcome));
                    }
                    (NextStep::Raise(raised), Ok(ReplyContent::Raise(said))) => prop_assert_eq!(raised, said),
                    (NextStep::Raise(raised), Ok(_)) => prop_assert_eq!(raised.completed, Completed::No),
                    (NextStep::Again, Err(_)) => prop_assert!(time_is_left),
                    (NextStep::Again, Ok(_)) => prop_assert!(!itinerary.is_forwarded),
                    (step, _) => prop_assert!(matches!(step, NextStep::Forward(_)), "{step:?}"),
                }
                if gives_up(&step) {
                    return Ok(());
                }
            }
        }

        #[test]
        fn whatever_happens_it_ends(
            addresses in 1_usize..6,
            outcomes in vec(outcome().prop_filter("another attempt", |outcome| !may_be_carried_out(outcome)), 1..12),
            back: bool,
        ) {
            let most = (FORWARDS as usize + 1) * addresses * (AGAIN as usize + 1) + AGAIN as usize;
            let mut itinerary = Itinerary::new(false);
            let mut attempts = 0;
            for outcome in outcomes.into_iter().cycle() {
                attempts += 1;
                prop_assert!(attempts <= most);
                prop_assert!(itinerary.next(addresses, back).is_some());
                if gives_up(&itinerary.after(outcome, true)) {
                    return Ok(());
                }
            }
        }

        /// 9.5.1: the profiles in order. 9.6: a forwarded request goes to the new reference, and to the original one
        /// if that fails.
        #[test]
        fn forwards_are_followed_and_given_up_for_the_original_reference(first in 1_usize..5, other in 1_usize..5) {
            let mut itinerary = Itinerary::new(false);
            let unreached = |itinerary: &mut Itinerary, addresses| {
                (0..addresses).map(|at| {
                    assert_eq!(itinerary.next(addresses, false), Some(Way::Address(at)));
                    itinerary.after(Err(CallFailure::Refused), true)
                }).last()
            };
            for _ in 0..FORWARDS / 2 {
                prop_assert_eq!(itinerary.next(first, false), Some(Way::Address(0)));
                let step = itinerary.after(Ok(ReplyContent::Forward(Box::default())), true);
                prop_assert!(matches!(step, NextStep::Forward(_)) && itinerary.is_forwarded);
                prop_assert_eq!(unreached(&mut itinerary, other), Some(NextStep::Again));
                prop_assert!(!itinerary.is_forwarded);
            }
            prop_assert_eq!(itinerary.next(first, false), Some(Way::Address(0)));
            let step = itinerary.after(Ok(ReplyContent::Forward(Box::default())), true);
            prop_assert_eq!(step, NextStep::Raise(SystemKind::Transient.not_done(minor::FORWARD_LOOP)));
            let mut itinerary = Itinerary::new(false);
            prop_assert_eq!(unreached(&mut itinerary, first), Some(NextStep::Fail(CallFailure::Refused.exception())));
        }
    }

    #[test]
    fn a_connection_closed_in_the_orderly_way_is_opened_again_and_a_way_back_is_tried_first() {
        let mut itinerary = Itinerary::new(false);
        for _ in 0..AGAIN {
            assert_eq!(itinerary.next(2, true), Some(Way::Back));
            assert_eq!(itinerary.after(Err(CallFailure::Closed), true), NextStep::Again);
        }
        for address in [0, 0, 0, 0, 1] {
            assert_eq!(itinerary.next(2, true), Some(Way::Address(address)));
            assert_eq!(itinerary.after(Err(CallFailure::Closed), true), NextStep::Again);
        }
        assert_eq!(itinerary.next(0, true), None);
    }

    #[test]
    fn an_object_that_left_where_it_was_forwarded_to_is_asked_for_at_the_original_reference() {
        let absent = SystemKind::ObjectNotExist.not_done(minor::NO_OBJECT);
        let mut itinerary = Itinerary::new(true);
        assert_eq!(itinerary.next(1, false), Some(Way::Address(0)));
        assert_eq!(itinerary.after(Ok(ReplyContent::Raise(absent)), true), NextStep::Again);
        assert!(!itinerary.is_forwarded);
        assert_eq!(itinerary.next(1, false), Some(Way::Address(0)));
        assert_eq!(itinerary.after(Ok(ReplyContent::Raise(absent)), true), NextStep::Raise(absent));
    }
}
