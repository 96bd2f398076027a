//! The client: what it does when the server is slow, moves, closes, or answers nonsense.

use crate::peer;
use crate::tracking;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyoshi_model::Span;
use hyoshi_orb::{ClientLimits, Encode, Interface, Orb, SystemException, SystemKind, Timeouts, minor};
use hyoshi_wire::giop::{CodeSet, CodeSets, Offer, ReplyStatus, close_connection};
use hyoshi_wire::ior::{Component, Profile};
use hyoshi_wire::tagged::Tagged;
use peer::{answer_all, id, message, reference, reply};
use tracking::*;

/// A server that handles its connections one after the other, the nth as told.
fn server(mut each: impl FnMut(usize, TcpStream) + Send + 'static) -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || {
        for (at, stream) in accepting.incoming().enumerate() {
            each(at, stream.unwrap());
        }
    });
    listener
}

fn stub(client: &Orb, listener: &TcpListener) -> TrackerStub {
    client.stub::<dyn Tracker>(reference(listener, <dyn Tracker>::ID))
}

fn yard() -> (Orb, TrackerStub) {
    let orb = Orb::builder().listen("iiop://127.0.0.1:0").unwrap().build().unwrap();
    orb.ready();
    let tracker = orb.adapter("a").build().unwrap().activate::<dyn Tracker>(Arc::new(Yard::default())).unwrap();
    (orb, tracker)
}

#[test]
fn a_reply_that_is_late_is_a_timeout_is_cancelled_and_harms_no_later_call() {
    let (tell, told) = std::sync::mpsc::channel();
    let listener = server(move |at, mut stream| {
        let tell = tell.clone();
        thread::spawn(move || {
            if at > 0 {
                // The late reply may not have come before the next call: then that has a connection of its own.
                return answer_all(stream);
            }
            let request = message(&mut stream).unwrap();
            let cancel = message(&mut stream).unwrap();
            tell.send((cancel[7], id(&cancel) == id(&request))).unwrap();
            // It comes all the same.
            stream.write_all(&reply(id(&request), ReplyStatus::NoException, |_| Ok(()))).unwrap();
            answer_all(stream);
        });
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    let late = SystemKind::Timeout.maybe_done(minor::REPLY_TIMEOUT);
    assert_eq!(tracker.within(Span::from_millis(20)).nothing(), Err(late));
    assert_eq!(told.recv().unwrap(), (2, true), "a CancelRequest with the request's id");
    let reply = Timeouts { reply: Some(Span::from_secs(20)), ..Timeouts::default() };
    assert_eq!(tracker.timeouts(reply).nothing(), Ok(()));
    assert_eq!(tracker.nothing(), Ok(()));
}

#[test]
fn an_orb_has_timeouts_for_all_its_calls_asynchronous_ones_too() {
    let listener = server(|_, stream| {
        // Says nothing, for as long as the test runs.
        std::mem::forget(stream);
    });
    let timeouts = Timeouts { round_trip: Some(Span::from_millis(20)), ..Timeouts::default() };
    let client = Orb::builder().timeouts(timeouts).build().unwrap();
    let tracker = stub(&client, &listener);
    let late = SystemKind::Timeout.maybe_done(minor::REPLY_TIMEOUT);
    assert_eq!(tracker.nothing(), Err(late));
    assert_eq!(tracker.locate_async(1).wait(), Err(LocateError::System(late)));
}

#[test]
fn nobody_there_is_transient() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    drop(listener);
    assert_eq!(tracker.nothing(), Err(SystemKind::Transient.not_done(minor::REFUSED)));
    let nowhere = client.resolve::<dyn Tracker>("corbaloc:iiop:1.2@nowhere.invalid:1/x").unwrap_err();
    assert_eq!(nowhere, SystemKind::Transient.not_done(minor::HOST_UNKNOWN));
    let nonsense = client.resolve::<dyn Tracker>("nonsense").unwrap_err();
    assert_eq!(nonsense, SystemKind::InvObjref.not_done(minor::NOT_RESOLVED));
}

#[test]
fn a_server_whose_code_sets_are_unknown_is_told_apart_from_one_that_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let offer = |native| Offer { native: CodeSet(native), conversions: Vec::new() };
    // EBCDIC; and UTF-8 with wide characters of a set that nobody knows.
    for (narrow, wide) in [(0x1002_0025, 0x0001_0109), (0x0501_0001, 0x7777_7777)] {
        let sets = Component::CodeSets(CodeSets { narrow: offer(narrow), wide: offer(wide) });
        let data = sets.data().unwrap();
        let port = listener.local_addr().unwrap().port();
        let components = [Tagged { tag: sets.tag(), data: &data }];
        let profile = Profile::iiop(hyoshi_orb::Version::V1_2, "127.0.0.1", port, b"key", &components).unwrap();
        let ior = hyoshi_orb::Ior { type_id: <dyn Tracker>::ID.to_owned(), profiles: vec![profile] };
        let client = Orb::client().unwrap();
        let raised = client.stub::<dyn Tracker>(ior).nothing();
        assert_eq!(raised, Err(SystemKind::CodesetIncompatible.not_done(minor::CODE_SETS)));
    }
}

#[test]
fn a_request_is_sent_again_after_an_orderly_end_and_not_after_a_loss() {
    let listener = server(|at, mut stream| {
        let request = message(&mut stream);
        match at {
            // Orderly: it was not carried out.
            0 => stream.write_all(&close_connection(hyoshi_orb::Version::V1_2)).unwrap(),
            1 => {
                stream.write_all(&reply(id(&request.unwrap()), ReplyStatus::NoException, |_| Ok(()))).unwrap();
                message(&mut stream);
            }
            _ => {}
        }
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    assert_eq!(tracker.nothing(), Ok(()), "the second connection served it");
    assert_eq!(tracker.nothing(), Err(SystemKind::CommFailure.maybe_done(minor::LOST)));
}

#[test]
fn a_server_that_always_closes_is_asked_a_bounded_number_of_times() {
    let listener = server(|_, mut stream| {
        message(&mut stream);
        stream.write_all(&close_connection(hyoshi_orb::Version::V1_2)).unwrap();
    });
    let client = Orb::client().unwrap();
    assert_eq!(stub(&client, &listener).nothing(), Err(SystemKind::Transient.not_done(minor::CLOSED)));
}

#[test]
fn a_connection_that_the_server_closed_while_idle_is_replaced() {
    let listener = server(|_, mut stream| {
        let request = message(&mut stream).unwrap();
        stream.write_all(&reply(id(&request), ReplyStatus::NoException, |_| Ok(()))).unwrap();
        stream.write_all(&close_connection(hyoshi_orb::Version::V1_2)).unwrap();
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    for _ in 0..5 {
        assert_eq!(tracker.nothing(), Ok(()));
        thread::sleep(Duration::from_millis(5)); // whether the end has arrived or not: both are to work
    }
}

#[test]
fn requests_are_sent_on_remembered_and_brought_back_when_that_fails() {
    let (there, target) = yard();
    let forward = target.ior().clone();
    let listener = server(move |at, mut stream| {
        assert_eq!(at, 0);
        let request = message(&mut stream).unwrap();
        let on = reply(id(&request), ReplyStatus::LocationForward, |to| forward.encode(to));
        stream.write_all(&on).unwrap();
        answer_all(stream);
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    assert_eq!(tracker.locate(1).unwrap().x, 1.0);
    assert_eq!(tracker.locate(2).unwrap().x, 2.0, "there at once");
    there.shutdown();
    assert_eq!(tracker.nothing(), Ok(()), "where the reference says");
}

#[test]
fn requests_that_are_sent_in_circles_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = reference(&listener, <dyn Tracker>::ID);
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || {
        for stream in accepting.incoming() {
            let (mut stream, here) = (stream.unwrap(), here.clone());
            thread::spawn(move || {
                while let Some(request) = message(&mut stream) {
                    let on = reply(id(&request), ReplyStatus::LocationForward, |to| here.encode(to));
                    stream.write_all(&on).unwrap();
                }
            });
        }
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    assert_eq!(tracker.nothing(), Err(SystemKind::Transient.not_done(minor::FORWARD_LOOP)));
}

#[test]
fn nonsense_in_a_reply_is_marshal_and_the_next_call_has_a_new_connection() {
    let listener = server(|at, mut stream| match at {
        0 => {
            message(&mut stream);
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        }
        1 => {
            let request = message(&mut stream).unwrap();
            // A string that is longer than the reply.
            stream.write_all(&reply(id(&request), ReplyStatus::NoException, |to| to.length(1 << 30))).unwrap();
        }
        _ => answer_all(stream),
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    assert_eq!(tracker.nothing(), Err(SystemKind::Marshal.maybe_done(minor::BAD_REPLY)));
    assert_eq!(tracker.name(), Err(SystemKind::Marshal.done(minor::RESULTS)));
}

#[test]
fn as_many_requests_as_allowed_wait_and_no_more() {
    let listener = server(|_, stream| std::mem::forget(stream));
    let limits = ClientLimits { in_flight: 3, ..ClientLimits::default() };
    let client = Orb::builder().client_limits(limits).build().unwrap();
    let tracker = stub(&client, &listener);
    let waiting: Vec<_> = (0..3).map(|id| tracker.locate_async(id)).collect();
    let full = LocateError::System(SystemKind::Transient.not_done(minor::IN_FLIGHT));
    assert_eq!(tracker.locate_async(3).wait(), Err(full));
    drop(waiting);
    assert!(!tracker.locate_async(4).is_over(), "there is room again");
}

#[test]
fn connections_that_nobody_uses_are_closed() {
    let (tell, told) = std::sync::mpsc::channel();
    let listener = server(move |_, stream| {
        answer_all(stream);
        tell.send(()).unwrap();
    });
    let limits = ClientLimits { idle: Span::from_millis(100), ..ClientLimits::default() };
    let client = Orb::builder().client_limits(limits).build().unwrap();
    let tracker = stub(&client, &listener);
    tracker.nothing().unwrap();
    told.recv_timeout(Duration::from_secs(20)).expect("the server sees the end");
    tracker.nothing().unwrap();
}

#[test]
fn an_exception_that_is_not_declared_is_unknown() {
    let listener = server(|_, mut stream| {
        let request = message(&mut stream).unwrap();
        stream.write_all(&reply(id(&request), ReplyStatus::UserException, peer::text("IDL:Other:1.0"))).unwrap();
    });
    let client = Orb::client().unwrap();
    let tracker = stub(&client, &listener);
    assert_eq!(tracker.locate(1), Err(LocateError::System(SystemKind::Unknown.done(minor::UNDECLARED))));
}

#[test]
fn an_orb_that_is_shut_down_calls_nobody() {
    let (_server, tracker) = yard();
    let client = Orb::client().unwrap();
    let tracker = client.resolve::<dyn Tracker>(&tracker.ior().to_string()).unwrap();
    client.shutdown();
    let raised: Result<(), SystemException> = tracker.nothing();
    assert_eq!(raised, Err(SystemKind::BadInvOrder.not_done(minor::SHUT_DOWN)));
    drop(client);
    assert!(matches!(tracker.nothing(), Err(raised) if raised.kind == SystemKind::BadInvOrder));
}
