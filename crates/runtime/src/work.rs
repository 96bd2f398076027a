//! Built-in work: a job that uses the CPU for as long as its operation's `takes` says, by the
//! clock of its own thread, so that preemption does not count. It holds declared resources first,
//! one after the other, as the simulator does.

use std::hint::black_box;

use hyoshi_model::{ResourceId, Span};
use hyoshi_os::{Clock, MonotonicClock, own_cpu_time};

use crate::common::Order;
use crate::crew::Begin;
use crate::posts::Posts;
use crate::processor::Processor;

/// How built-in work left its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worked {
    /// Done, or stopped; the thread's CPU clock at that moment. What the last look at the clock
    /// took beyond the end is not the work's: a job that takes its worst case does not overrun.
    Done { cpu: Span, consumed: Span },
    /// To go on below the lanes.
    Demoted { consumed: Span, left: Span },
}

pub(crate) fn run(processor: &Processor, me: u16, begin: &Begin, posts: &mut Posts) -> Worked {
    let began = own_cpu_time();
    let system = &processor.common.system;
    let operation = begin.job.operation;
    let total = system.setting(usize::from(begin.epoch), operation).execution_time.draw(system.seed, begin.job);
    let end = began + total;
    let clock = processor.common.clock();
    let mut cpu = began;
    for (resource, span) in &system.operation(operation).uses {
        if cpu >= end {
            break;
        }
        // Within a section it is not demoted: the section ends first.
        let until = (cpu + *span).min(end);
        cpu = hold(processor, me, begin, *resource, posts, || burn(clock, until, || processor.must_end(me)).0);
    }
    let signs = &processor.signs[usize::from(me)];
    let (cpu, _) = burn(clock, end, || signs.ordered() > Order::GoOn || processor.must_end(me));
    match signs.ordered() {
        Order::Demote if cpu < end => {
            Worked::Demoted { consumed: cpu.saturating_sub(began), left: end.saturating_sub(cpu) }
        }
        _ => Worked::Done { cpu, consumed: cpu.min(end).saturating_sub(began) },
    }
}

/// Holds a resource while `act` runs: on this CPU by its ceiling, against other CPUs by its lock.
pub(crate) fn hold<R>(
    processor: &Processor,
    me: u16,
    begin: &Begin,
    resource: ResourceId,
    posts: &mut Posts,
    act: impl FnOnce() -> R,
) -> R {
    let _held = Held::take(processor, me, begin.slot, resource, posts);
    act()
}

/// A resource that a job holds, until dropped, also by a panic.
struct Held<'a> {
    processor: &'a Processor,
    lock: Option<hyoshi_os::PiGuard<'a, ()>>,
    me: u16,
    slot: hyoshi_trace::Slot,
    resource: ResourceId,
    posts: &'a mut Posts,
}

impl<'a> Held<'a> {
    fn take(
        processor: &'a Processor,
        me: u16,
        slot: hyoshi_trace::Slot,
        resource: ResourceId,
        posts: &'a mut Posts,
    ) -> Self {
        // First the ceiling, then the lock: a better job that needs the resource no longer starts, and none between
        // them delays who holds it.
        processor.section(|crew, now| crew.acquire(me, slot, resource, now));
        let mut held = Held { processor, lock: None, me, slot, resource, posts };
        held.lock = Some(processor.common.resources[resource.index()].lock());
        held
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // First the lock, then the ceiling: who waits on another CPU waits for no one here.
        self.lock = None;
        let Held { processor, me, slot, resource, posts, .. } = self;
        processor.section(|crew, now| crew.release(*me, *slot, *resource, now, posts));
        posts.deliver();
    }
}

/// Uses the CPU until this thread's clock reads `until`, or `stop` says so, which it is asked
/// every few tens of nanoseconds. Returns the last reading, and whether it got there.
pub(crate) fn burn(clock: &MonotonicClock, until: Span, stop: impl Fn() -> bool) -> (Span, bool) {
    loop {
        let cpu = own_cpu_time();
        if cpu >= until {
            return (cpu, true);
        }
        if stop() {
            return (cpu, false);
        }
        // The thread's clock runs no faster than the wall's: before then it need not be asked,
        // which is a system call.
        let earliest = clock.now() + until.saturating_sub(cpu);
        while clock.now() < earliest && !stop() {
            black_box(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burnt_time_is_the_thread_s_own_and_exact_to_a_few_microseconds() {
        let clock = MonotonicClock::start();
        let mut over: Vec<Span> = (0..20)
            .map(|_| {
                let until = own_cpu_time() + Span::from_micros(500);
                burn(&clock, until, || false).0.saturating_sub(until)
            })
            .collect();
        over.sort();
        assert!(over[10] < Span::from_micros(5), "{over:?}");
    }

    #[test]
    fn what_is_told_to_stop_stops_at_once() {
        let clock = MonotonicClock::start();
        let until = own_cpu_time() + Span::from_secs(1000);
        assert!(!burn(&clock, until, || true).1);
    }
}
