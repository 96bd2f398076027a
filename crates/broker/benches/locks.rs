//! How long one user's request delays all others: one lock protects the broker's state. `cargo bench -p hyoshi-broker
//! --bench locks`, with 1,000 tasks; `-- --test` for a short run. The figures are in docs/benchmarks.md.

use std::hint::black_box;
use std::process::{Child, Command};
use std::sync::Arc;

use hyoshi_broker::access::{Access, Caller};
use hyoshi_broker::audit::Audit;
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::limits::{LimitScope, Rules, UserLimits};
use hyoshi_broker::machine::Machine;
use hyoshi_broker::task_store::TaskStore;
use hyoshi_broker::{BrokerState, ReportedCycle, TaskSpec, policy};
use hyoshi_control::Arbiter;
use hyoshi_model::{Instant, Share, Span};
use hyoshi_os::{Clock, Credentials, MonotonicClock};

const TASKS: usize = 1_000;

/// Programs that do nothing.
struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn main() {
    let rounds = if std::env::args().any(|word| word == "--test") { 200 } else { 10_000 };
    let place = std::env::temp_dir().join(format!("hyoshi-locks-{}", std::process::id()));
    let (machine, _) = Machine::open(&place, Some("simulated")).unwrap();
    let arbiter = Arbiter::new(policy::named("strict").unwrap(), Share::from_percent(150));
    let audit = Audit::to(&place.join("audit")).unwrap();
    let access = Access { broker: u32::MAX, group: None };
    let mut state = BrokerState::new(arbiter, Box::new(machine), access, audit);
    let limits = UserLimits {
        tasks: TASKS as u32,
        settings: 8 << 20,
        importance: 10,
        threads: 100_000,
        ..UserLimits::of(LimitScope::Default)
    };
    state.set_rules(Arc::new(Rules::new([limits], "limits.toml")));
    state.store_tasks_in(TaskStore::open(&place).unwrap().0);

    let sleepers = Sleepers((0..TASKS).map(|_| Command::new("sleep").arg("1000").spawn().unwrap()).collect());
    let user = Caller::Known(Credentials { pid: std::process::id(), uid: 1_000, gid: 1_000, groups: vec![] });
    let (root, clock) = (Caller::Broker, MonotonicClock::start());
    let setting = ComponentSpec {
        kind: "max-decay".into(),
        parameters: vec![("reports".into(), format!("{}5", "0".repeat(4_000)))],
    };
    let joining = |number: usize| TaskSpec {
        advocates: vec![setting.clone()],
        ..TaskSpec::new(&format!("task-{number:04}"), Span::from_millis(33))
    };
    let ids: Vec<_> = (0..TASKS)
        .map(|number| {
            let id = state.join(&user, &joining(number), clock.now()).unwrap();
            state.add_process(&root, id, sleepers.0[number].id(), 0, clock.now()).unwrap();
            id
        })
        .collect();

    println!("{:<52} {:>9} {:>9} {:>9}", "us, one request of a user, 1,000 tasks of 4 KiB", "median", "p99", "longest");
    let mut measure = |name: &str, act: &mut dyn FnMut(&mut BrokerState, usize, Instant)| {
        let mut all: Vec<Span> = (0..rounds)
            .map(|round| {
                let began = clock.now();
                act(&mut state, round, began);
                clock.now().since(began)
            })
            .collect();
        all.sort_unstable();
        let of = |at: usize| all[at].as_nanos() as f64 / 1e3;
        println!("{name:<52} {:>9.1} {:>9.1} {:>9.1}", of(all.len() / 2), of(all.len() * 99 / 100), of(all.len() - 1));
    };
    measure("a page of tasks", &mut |state, round, _| {
        drop(black_box(state.page(&format!("task-{:04}", round % TASKS))));
    });
    measure("a task more, refused", &mut |state, _, now| drop(state.join(&user, &joining(TASKS), now).unwrap_err()));
    measure("a change, noted for the next broker", &mut |state, round, now| {
        let name = format!("task-{:04}", round % TASKS);
        state.set_weight(&user, &name, 1 + round as u32, now).unwrap();
    });
    measure("other advocates", &mut |state, round, now| {
        let name = format!("task-{:04}", round % TASKS);
        state.set_chain(&user, &name, vec![setting.clone()], now).unwrap();
    });
    measure("a report", &mut |state, round, now| {
        let cycle = ReportedCycle {
            consumed: Span::from_micros(100 + round as u64 % 7),
            cycles: 1,
            ..ReportedCycle::default()
        };
        state.report_cycle(&user, ids[round % TASKS], cycle, now).unwrap();
    });
    measure("an explanation", &mut |state, round, now| {
        drop(black_box(state.explain(&format!("task-{:04}", round % TASKS), now).unwrap()));
    });
    drop(state);
    drop(sleepers);
    let _ = std::fs::remove_dir_all(&place);
}
