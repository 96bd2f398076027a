//! The cost of one dispatch request in the lane queue alone: enqueue plus dequeue, with 10 and
//! with 10,000 jobs waiting. `cargo bench -p hyoshi-dispatch`

use divan::{Bencher, black_box};
use hyoshi_dispatch::queue::{LaneQueue, QueueRank, key};
use hyoshi_model::{Instant, Span};
use hyoshi_sched::Discipline;
use hyoshi_trace::Slot;

const WAITING: [u32; 2] = [10, 10_000];

/// Deadlines in random order, so entries move through the heap.
fn deadline(number: u64) -> Instant {
    Instant::from_nanos(number * 1_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 10_000_000)
}

fn enqueue_dequeue(bencher: Bencher, waiting: u32, discipline: Discipline) {
    let rank =
        |number: u64| QueueRank::new(0, key(discipline, deadline(number), Span::from_micros(number % 500)), 0, number);
    let mut queue = LaneQueue::with_capacity(waiting as usize + 1);
    let mut number = 0;
    for _ in 0..waiting {
        queue.enqueue(rank(number), Slot(number as u32));
        number += 1;
    }
    bencher.bench_local(|| {
        queue.enqueue(rank(black_box(number)), Slot(number as u32));
        number += 1;
        black_box(queue.dequeue())
    });
}

#[divan::bench(args = WAITING)]
fn fifo(bencher: Bencher, waiting: u32) {
    enqueue_dequeue(bencher, waiting, Discipline::Fifo);
}

#[divan::bench(args = WAITING)]
fn deadline_order(bencher: Bencher, waiting: u32) {
    enqueue_dequeue(bencher, waiting, Discipline::Deadline);
}

#[divan::bench(args = WAITING)]
fn laxity(bencher: Bencher, waiting: u32) {
    enqueue_dequeue(bencher, waiting, Discipline::Laxity);
}

fn main() {
    divan::main();
}
