//! Events of one processor, instant by instant, for tests of the law of blame. Each operation has a lane of its own, and
//! its job is released at 0 and due at 20 ms.

use hyoshi_model::*;
use hyoshi_trace::blame::{Account, Blame, Culprit, Interest, Places};
use hyoshi_trace::{Decision, Event, Input, JobEnd, Outcome, Seen, Slot, Who};

const DEADLINE: u64 = 20_000;

pub fn at(micros: u64) -> Instant {
    Instant::ZERO + us(micros)
}

pub fn us(micros: u64) -> Span {
    Span::from_micros(micros)
}

pub fn job(operation: u32) -> JobId {
    JobId { operation: OperationId(operation), number: 0, leg: 0 }
}

pub fn culprit(operation: u32) -> Culprit {
    Culprit { operation: OperationId(operation), job: Some((0, 0)) }
}

/// As many lanes as there are operations; the first has the most urgent one.
pub fn places(operations: u8) -> Places {
    Places {
        preemption: Preemption::Levels,
        lanes: operations,
        critical: vec![false; operations.into()],
        levels: vec![(0..operations).map(|level| Some((level, level))).collect()],
        second: vec![],
        ceilings: vec![Some(0)],
    }
}

pub fn ready(job: JobId, lane: u8) -> Event {
    Event::Decision(Decision::Ready { job, release: at(0), deadline: at(DEADLINE), lane })
}

pub fn run(operation: u32) -> Event {
    Event::Decision(Decision::Run { job: job(operation), lane: operation as u8, slot: Slot(operation), resumed: false })
}

pub fn complete(operation: u32, consumed: u64) -> Event {
    Event::Input(Input::Complete { slot: Slot(operation), consumed: us(consumed) })
}

/// The job was queued at `ready`, began at `start`, ended at `end` and consumed so much.
pub fn ended(job: JobId, (ready, start): (u64, u64), end: u64, consumed: u64) -> JobEnd {
    JobEnd {
        job,
        outcome: if end > DEADLINE { Outcome::Missed } else { Outcome::Made },
        critical: false,
        overran: false,
        demoted: false,
        epoch: 0,
        origin: at(0),
        release: at(0),
        ready: at(ready),
        start: at(start),
        end: at(end),
        deadline: at(DEADLINE),
        consumed: us(consumed),
    }
}

pub fn end(operation: u32, times: (u64, u64), end: u64, consumed: u64) -> Event {
    Event::Decision(Decision::End(ended(job(operation), times, end, consumed)))
}

/// The thread that had the CPU gave it up.
pub fn switch(to: Who) -> Event {
    Event::Seen(Seen::Switch { to, preempted: false })
}

/// The accounts of all jobs that end. Their parts add up to their responses.
pub fn accounts(system: &System, events: &[(u64, Event)]) -> Vec<Account> {
    let mut law = Blame::new(system, places(system.operations.len() as u8), false, Interest::All);
    let accounts: Vec<Account> = events.iter().filter_map(|(now, event)| law.event(at(*now), event)).collect();
    for account in &accounts {
        assert_eq!(account.parts.iter().map(|(_, span)| *span).sum::<Span>(), account.response(), "{account:?}");
    }
    accounts
}
