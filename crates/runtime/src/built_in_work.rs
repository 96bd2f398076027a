//! Built-in work: a job that uses the CPU for the drawn execution time (`takes`), by its thread's clock, so that
//! preemption does not count. It first holds declared resources, one after the other, as in the simulator.

use std::hint::black_box;

use hyoshi_model::{ResourceId, Span};
use hyoshi_os::{Clock, MonotonicClock, own_cpu_time};

use crate::common::BodyOrder;
use crate::crew::JobStart;
use crate::processor::ProcessorState;
use crate::wakeups::PendingWakeups;

/// How built-in work left its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkEnd {
    /// Finished or stopped, with the thread's CPU clock at that time. The last reading of the clock after the end does
    /// not count: a job that uses its exact worst case does not overrun.
    Done { cpu: Span, consumed: Span },
    /// It continues below the lanes.
    Demoted { consumed: Span, left: Span },
}

pub(crate) fn run(processor: &ProcessorState, me: u16, begin: &JobStart, wakeups: &mut PendingWakeups) -> WorkEnd {
    let began = own_cpu_time();
    let system = &processor.common.system;
    let job = begin.now.job;
    let operation = job.operation;
    let total = system.execution_time(begin.epoch.into(), job, begin.now.service_level);
    let end = began + total;
    let clock = processor.common.clock();
    let mut cpu = began;
    for (resource, span) in &system.operation(operation).uses {
        if cpu >= end {
            break;
        }
        // It is not demoted within a section: the section ends first.
        let until = (cpu + *span).min(end);
        cpu = hold(processor, me, Some(begin.slot), *resource, wakeups, || {
            burn(clock, until, || processor.must_end(me)).0
        });
    }
    let control = &processor.control[usize::from(me)];
    let (cpu, _) = burn(clock, end, || control.ordered() > BodyOrder::GoOn || processor.must_end(me));
    match control.ordered() {
        BodyOrder::Demote if cpu < end => {
            WorkEnd::Demoted { consumed: cpu.saturating_sub(began), left: end.saturating_sub(cpu) }
        }
        _ => WorkEnd::Done { cpu, consumed: cpu.min(end).saturating_sub(began) },
    }
}

/// Holds a resource while `act` runs: on this CPU by its ceiling, against other CPUs by its lock. Without a job, whose
/// body was left over, only the lock.
pub(crate) fn hold<R>(
    processor: &ProcessorState,
    me: u16,
    slot: Option<hyoshi_trace::Slot>,
    resource: ResourceId,
    wakeups: &mut PendingWakeups,
    act: impl FnOnce() -> R,
) -> R {
    let Some(slot) = slot else {
        let _held = processor.common.resources[resource.index()].lock();
        return act();
    };
    let _held = ResourceGuard::take(processor, me, slot, resource, wakeups);
    act()
}

/// A resource that a job holds until this is dropped, also by a panic.
struct ResourceGuard<'a> {
    processor: &'a ProcessorState,
    lock: Option<hyoshi_os::PiGuard<'a, ()>>,
    me: u16,
    slot: hyoshi_trace::Slot,
    resource: ResourceId,
    wakeups: &'a mut PendingWakeups,
}

impl<'a> ResourceGuard<'a> {
    fn take(
        processor: &'a ProcessorState,
        me: u16,
        slot: hyoshi_trace::Slot,
        resource: ResourceId,
        wakeups: &'a mut PendingWakeups,
    ) -> Self {
        // First the ceiling, then the lock: a better job that needs the resource no longer starts, and no job in
        // between delays the holder.
        processor.section(|crew, now| crew.acquire(me, slot, resource, now));
        let mut held = ResourceGuard { processor, lock: None, me, slot, resource, wakeups };
        held.lock = Some(processor.common.resources[resource.index()].lock());
        crate::context::count_held(1);
        held
    }
}

impl Drop for ResourceGuard<'_> {
    fn drop(&mut self) {
        // First the lock, then the ceiling: a user on another CPU does not wait for jobs here.
        self.lock = None;
        crate::context::count_held(-1);
        let ResourceGuard { processor, me, slot, resource, wakeups, .. } = self;
        processor.section(|crew, now| crew.release(*me, *slot, *resource, now, wakeups));
        wakeups.deliver();
    }
}

/// Uses the CPU until this thread's clock reaches `until` or `stop` returns true. `stop` is called every few tens of
/// nanoseconds. Returns the last reading, and whether it reached `until`.
pub(crate) fn burn(clock: &MonotonicClock, until: Span, stop: impl Fn() -> bool) -> (Span, bool) {
    loop {
        let cpu = own_cpu_time();
        if cpu >= until {
            return (cpu, true);
        }
        if stop() {
            return (cpu, false);
        }
        // The thread's clock is not faster than wall time: until then no reading is needed, which is a system call.
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
    fn built_in_work_that_is_requested_to_stop_ends_at_once() {
        let clock = MonotonicClock::start();
        let until = own_cpu_time() + Span::from_secs(1000);
        assert!(!burn(&clock, until, || true).1);
    }
}
