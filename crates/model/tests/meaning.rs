//! The meaning of files: defaults, inheritance along triggers, templates, epochs.

use hyoshi_model::*;

fn load(text: &str) -> Loaded {
    let text = format!("name = \"test\"\n{text}");
    read(&text, "test.toml", None).unwrap_or_else(|errors| panic!("{errors}"))
}

fn system(text: &str) -> System {
    load(text).system
}

fn id(system: &System, name: &str) -> OperationId {
    let position = system.operations.iter().position(|operation| operation.name == name);
    OperationId(position.unwrap_or_else(|| panic!("no operation {name}")) as u32)
}

fn setting<'a>(system: &'a System, epoch: usize, name: &str) -> &'a Setting {
    system.setting(epoch, id(system, name))
}

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

#[test]
fn a_change_that_breaks_a_rule_makes_no_system() {
    const NOWHERE: OperationId = OperationId(1);
    type Change = (&'static str, fn(&mut Contents));
    let whole = system("[operation.a]\nevery = \"10ms\"\nwcet = \"2ms\"");
    let changes: [Change; 21] = [
        ("needs a host", |system| system.hosts.clear()),
        ("needs a processor", |system| system.processors.clear()),
        ("needs an epoch at 0", |system| system.epochs.clear()),
        ("needs an epoch at 0", |system| system.epochs[0].at = Instant::from_nanos(1)),
        ("in order of time", |system| {
            let at = |nanos| Epoch { at: Instant::from_nanos(nanos), ..system.epochs[0].clone() };
            system.epochs = vec![at(0), at(2), at(1)];
        }),
        ("one setting for each operation", |system| system.epochs[0].settings = [].into()),
        ("on a host", |system| system.processors[0].host = HostId(1)),
        ("on a processor", |system| system.operations[0].on = ProcessorId(1)),
        ("follow and read", |system| system.operations[0].trigger = Trigger::Any(vec![NOWHERE])),
        ("follow and read", |system| system.operations[0].reads = vec![NOWHERE]),
        ("follow and read", |system| system.operations[0].roots = vec![NOWHERE]),
        ("copies with the release numbers of one root", |system| {
            let copy = |trigger| Operation { trigger, ..system.operations[0].clone() };
            let copies = (0..2).map(OperationId).collect();
            system.operations = vec![copy(Trigger::Periodic), copy(Trigger::Periodic), copy(Trigger::First(copies))];
            system.operations[1].roots = vec![NOWHERE];
            system.epochs[0].settings = vec![system.epochs[0].settings[0].clone(); 3].into();
        }),
        ("choose among at most 64", |system| {
            let chosen = ChosenHops { predecessors: vec![OperationId(0)], probability_ppm: 0 };
            let next = Operation { trigger: Trigger::Chosen(chosen), ..system.operations[0].clone() };
            system.operations.extend(vec![next; 65]);
            system.epochs[0].settings = vec![system.epochs[0].settings[0].clone(); 66].into();
        }),
        ("replicas on other hosts", |system| replicate(system, &[0])),
        ("replicas on other hosts", |system| replicate(system, &[2])),
        ("replicas on other hosts", |system| replicate(system, &[1, 1])),
        ("use resources", |system| system.operations[0].uses = vec![(ResourceId(0), ms(1))]),
        ("lead along operations", |system| {
            let (path, deadline) = (vec![OperationId(0), NOWHERE], Some(ms(1)));
            system.chains = vec![Chain {
                name: "c".into(),
                path,
                deadline,
                max_age: None,
                max_reaction: None,
                carried_by: Default::default(),
            }];
        }),
        ("suppliers and consumers of the system", |system| {
            let event = Event { name: "e".into(), suppliers: vec![NOWHERE], consumers: vec![], ..Event::default() };
            system.events = vec![event];
        }),
        ("suppliers and consumers once each", |system| {
            let twice = vec![OperationId(0); 2];
            system.events = vec![Event { name: "e".into(), suppliers: vec![], consumers: twice, ..Event::default() }];
        }),
        ("between hosts", |system| {
            system.links = vec![Link::new((HostId(0), HostId(1)), (ms(1), ms(1)))];
        }),
    ];
    for (rule, change) in changes {
        let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| whole.clone().with(change)));
        let refused = made.expect_err(rule);
        let message = refused.downcast_ref::<String>().map(String::as_str);
        let message = message.or(refused.downcast_ref::<&str>().copied()).unwrap_or_default();
        assert!(message.contains(rule), "{message}, not {rule}");
    }
}

/// Adds a second host, and replicas of the first operation.
fn replicate(system: &mut Contents, to: &[u32]) {
    system.hosts.push(Host::named("second"));
    let to = to.iter().copied().map(HostId).collect();
    system.operations[0].replication = Some(Replication { to, flush: FlushPoint::Deadline });
}

/// Two hosts and an operation on the first, which has replicas.
fn replicated(keys: &str) -> System {
    system(&format!(
        "[host.a]\n[host.b]\n[host.c]\n[processor.p]\nhost = \"a\"\n[processor.q]\nhost = \"b\"\n[operation.x]\n\
         on = \"p\"\nevery = \"10ms\"\nwcet = \"2ms\"\n{keys}\n[operation.y]\non = \"q\"\nevery = \"10ms\"\n\
         wcet = \"1ms\"\nreads = [\"x\"]"
    ))
}

#[test]
fn an_output_has_replicas_on_hosts_and_is_flushed_at_the_deadline() {
    let system = replicated("payload = \"8B\"\nreplicate = { to = [\"c\", \"b\"] }");
    let replication = Replication { to: vec![HostId(1), HostId(2)], flush: FlushPoint::Deadline };
    assert_eq!(system.operations[0].replication, Some(replication));
    assert_eq!(system.replica_on(OperationId(0), HostId(2)), Some(FlushPoint::Deadline));
    assert_eq!(
        (system.replica_on(OperationId(0), HostId(0)), system.replica_on(OperationId(1), HostId(2))),
        (None, None)
    );
    let system = replicated("payload = \"8B\"\nreplicate = { to = [\"b\"], flush = \"completion\" }");
    assert_eq!(system.replica_on(OperationId(0), HostId(1)), Some(FlushPoint::Completion));
}

#[test]
fn a_late_output_has_no_flush_point_at_the_deadline() {
    let at = Instant::from_nanos;
    assert_eq!(FlushPoint::Deadline.of_job(at(3), at(9)), Some(at(9)));
    assert_eq!(FlushPoint::Deadline.of_job(at(9), at(9)), Some(at(9)), "in time");
    assert_eq!(FlushPoint::Deadline.of_job(at(10), at(9)), None);
    assert_eq!(FlushPoint::Completion.of_job(at(10), at(9)), Some(at(10)));
}

#[test]
fn the_last_part_of_an_operation_that_calls_has_its_replicas() {
    let system = system(
        "[host.a]\n[host.b]\n[processor.p]\nhost = \"a\"\n[processor.q]\nhost = \"b\"\n[operation.plan]\non = \"p\"\n\
         every = \"10ms\"\nwcet = \"2ms\"\npayload = \"8B\"\nreplicate = { to = [\"b\"] }\n\
         calls = { method = \"locate\", after = \"1ms\" }\n[operation.locate]\non = \"p\"\ncalled = true\n\
         wcet = \"1ms\"\n[operation.y]\non = \"q\"\nevery = \"10ms\"\nwcet = \"1ms\"\nreads = [\"plan\"]",
    );
    let replicated = system.operations.iter().filter(|one| one.replication.is_some()).map(|one| one.name.as_str());
    assert_eq!(replicated.collect::<Vec<_>>(), ["plan"]);
}

#[test]
fn a_system_of_one_operation_needs_four_lines() {
    let system = system("[operation.a]\nevery = \"10ms\"\nwcet = \"2ms\"");
    assert_eq!((system.seed, system.duration), (1, Span::from_secs(10)));
    assert_eq!(system.hosts, [Host::named("local")]);
    let processor = Processor {
        name: "main".to_string(),
        host: HostId(0),
        cpu: None,
        strategy: "RMS".to_string(),
        overload: None,
        preemption: Preemption::Levels,
        cancel: false,
        cap_ppm: 940_000,
        cap_window: ms(100),
        hard_cap: hyoshi_model::HardCap { ppm: 940_000, on_overload: hyoshi_model::OnOverload::Report },
        pool: 1,
        costs: hyoshi_model::Costs::NONE,
    };
    assert_eq!(system.processors, [processor]);
    let operation = Operation {
        name: "a".to_string(),
        on: ProcessorId(0),
        trigger: Trigger::Periodic,
        min_interval: None,
        clients: None,
        levels: vec![],
        calls_any: false,
        reads: vec![],
        critical: false,
        importance: 0,
        roots: vec![OperationId(0)],
        phase_given: false,
        uses: vec![],
        queue: QueueLimit { limit: 8, when_full: WhenFull::DropNewest },
        on_overrun: OnOverrun::Report,
        on_busy: OnBusy::Queue,
        on_miss: OnMiss::Continue,
        guard: Guard::Off,
        timeout: None,
        lifespan: None,
        payload: 0,
        replication: None,
        home: None,
        standby: false,
    };
    assert_eq!(system.operations, [operation]);
    let setting = Setting {
        enabled: true,
        period: ms(10),
        slowest: ms(10),
        phase: Span::ZERO,
        offset: Span::ZERO,
        jitter: Span::ZERO,
        wcet: ms(2),
        bcet: ms(2),
        execution_time: ExecutionTime::Fixed(ms(2)),
        deadline: Deadline::Own(ms(10)),
        legs: 1,
        critical_legs: 0,
    };
    assert_eq!(system.epochs.len(), 1);
    assert_eq!((system.epochs[0].name.as_str(), system.epochs[0].at), ("0", Instant::ZERO));
    assert_eq!(*system.epochs[0].settings, [setting]);
}

#[test]
fn a_range_of_rates_sets_the_shortest_and_the_longest_period() {
    let system = system(
        "[operation.a]\nrate = [\"10Hz\", \"40Hz\"]\nwcet = \"2ms\"\n[operation.b]\nevery = [\"5ms\", \"8ms\"]\nwcet = \"1ms\"",
    );
    assert_eq!((setting(&system, 0, "a").period, setting(&system, 0, "a").slowest), (ms(25), ms(100)));
    assert_eq!((setting(&system, 0, "b").period, setting(&system, 0, "b").slowest), (ms(5), ms(8)));
    assert_eq!(setting(&system, 0, "a").deadline, Deadline::Own(ms(25)));
}

#[test]
fn a_triggered_operation_inherits_period_and_deadline_from_its_roots() {
    let system = system(
        r#"
        operation.fast = { every = "10ms", wcet = "1ms", deadline = "8ms" }
        operation.slow = { every = "40ms", wcet = "1ms" }
        operation.join = { after = { all = ["slow", "fast"] }, wcet = "1ms" }
        operation.merge = { after = { any = ["slow", "fast"] }, wcet = "1ms" }
        operation.last = { after = { all = ["fast"] }, wcet = "1ms" }
        operation.own = { after = { all = ["last"] }, wcet = "1ms", deadline = "3ms" }
        "#,
    );
    let roots = |name| system.operation(id(&system, name)).roots.clone();
    assert_eq!(roots("join"), [OperationId(0), OperationId(1)]);
    assert_eq!(roots("own"), [OperationId(0)]);
    assert_eq!(setting(&system, 0, "join").period, ms(40));
    assert_eq!(setting(&system, 0, "merge").period, ms(10));
    assert_eq!(setting(&system, 0, "join").deadline, Deadline::Origin(ms(40)));
    assert_eq!(setting(&system, 0, "last").deadline, Deadline::Origin(ms(8)));
    assert_eq!(setting(&system, 0, "own").deadline, Deadline::Own(ms(3)));
    // Written order: a join may need its inputs in it.
    let join = Trigger::All(vec![OperationId(1), OperationId(0)]);
    assert_eq!(system.operation(id(&system, "join")).trigger, join);
}

#[test]
fn the_tightest_chain_from_a_periodic_operation_sets_the_deadline() {
    let system = system(
        r#"
        operation.a = { every = "10ms", wcet = "1ms" }
        operation.b = { after = { all = ["a"] }, wcet = "1ms" }
        operation.c = { after = { all = ["b"] }, wcet = "1ms" }
        operation.d = { after = { all = ["c"] }, reads = ["a"], wcet = "1ms" }
        [chain.long]
        path = ["a", "b", "c"]
        deadline = "30ms"
        [chain.tight]
        path = ["a", "b"]
        deadline = "20ms"
        [chain.inner]
        path = ["b", "c", "d"]
        deadline = "5ms"
        [chain.read]
        path = ["a", "d"]
        deadline = "6ms"
        "#,
    );
    assert_eq!(setting(&system, 0, "a").deadline, Deadline::Own(ms(10)));
    assert_eq!(setting(&system, 0, "b").deadline, Deadline::Origin(ms(20)));
    assert_eq!(setting(&system, 0, "c").deadline, Deadline::Origin(ms(30)));
    // Its own chains count from the release of `b`, and of the `a` that it reads: not from its root's.
    assert_eq!(setting(&system, 0, "d").deadline, Deadline::Origin(ms(10)));
}

#[test]
fn a_template_expands_and_its_name_means_all_of_it() {
    let system = system(
        r#"
        operation.work = { every = "90ms", phase = "1ms", wcet = "1ms", count = 3, stagger = "even" }
        operation.slots = { every = "90ms", wcet = "1ms", count = 3, stagger = "2ms" }
        operation.all = { after = { all = ["work"] }, reads = ["slots.2", "slots"], wcet = "1ms" }
        operation.second = { after = { any = ["work.2"] }, wcet = "1ms", count = 1 }
        "#,
    );
    let names: Vec<_> = system.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["work.1", "work.2", "work.3", "slots.1", "slots.2", "slots.3", "all", "second.1"]);
    let phases: Vec<_> = system.epochs[0].settings[..6].iter().map(|setting| setting.phase).collect();
    assert_eq!(phases, [ms(1), ms(31), ms(61), ms(0), ms(2), ms(4)]);
    let ids = |range: &[u32]| range.iter().copied().map(OperationId).collect::<Vec<_>>();
    assert_eq!(system.operations[6].trigger, Trigger::All(ids(&[0, 1, 2])));
    assert_eq!(system.operations[6].reads, ids(&[4, 3, 5]));
    assert_eq!(system.operations[7].trigger, Trigger::Any(ids(&[1])));
}

#[test]
fn epochs_add_up_and_what_is_inherited_follows() {
    let system = system(
        r#"
        operation.a = { every = "10ms", wcet = "2ms", count = 2 }
        operation.b = { after = { all = ["a.1"] }, wcet = "1ms" }
        [[epoch]]
        at = "1s"
        name = "slow"
        set = { "operation.a.rate" = "50Hz", "operation.a.2.wcet" = "3ms" }
        [[epoch]]
        at = "2s"
        [[epoch]]
        at = "3s"
        set = { "operation.a.wcet" = "1ms", "operation.b.deadline" = "4ms", "operation.a.repeat" = { legs = 3 }, "operation.b.enabled" = false }
        [[epoch]]
        at = "4s"
        [epoch.set]
        operation.a.repeat.critical = 2
        operation.a.2.repeat.legs = 4
        "#,
    );
    let names: Vec<_> = system.epochs.iter().map(|epoch| epoch.name.as_str()).collect();
    assert_eq!(names, ["0", "slow", "2", "3", "4"]);
    assert_eq!(system.epoch_at(Instant::from_nanos(999_999_999)), 0);
    assert_eq!(system.epoch_at(Instant::from_nanos(1_000_000_000)), 1);
    let b = setting(&system, 1, "b");
    assert_eq!((b.period, b.deadline), (ms(20), Deadline::Origin(ms(20))));
    let wcets = |epoch| ["a.1", "a.2"].map(|name| setting(&system, epoch, name).wcet);
    assert_eq!((wcets(0), wcets(1), wcets(3)), ([ms(2), ms(2)], [ms(2), ms(3)], [ms(1), ms(1)]));
    // Without `takes` and `bcet`, the worst case applies.
    assert_eq!(setting(&system, 3, "a.1").execution_time, ExecutionTime::Fixed(ms(1)));
    assert_eq!(setting(&system, 3, "a.1").bcet, ms(1));
    assert!(std::sync::Arc::ptr_eq(&system.epochs[1].settings, &system.epochs[2].settings));
    assert_eq!((setting(&system, 3, "b").deadline, setting(&system, 3, "b").enabled), (Deadline::Own(ms(4)), false));
    let legs = |epoch, name| (setting(&system, epoch, name).legs, setting(&system, epoch, name).critical_legs);
    assert_eq!((legs(0, "a.1"), legs(3, "a.1"), legs(4, "a.1"), legs(4, "a.2")), ((1, 0), (3, 0), (3, 2), (4, 2)));
}

#[test]
fn a_guard_is_on_by_default_after_another_processor_only() {
    let system = system(
        r#"
        [processor.x]
        [processor.y]
        [operation]
        a = { on = "x", every = "10ms", wcet = "1ms" }
        near = { on = "x", after = { all = ["a"] }, wcet = "1ms" }
        far = { on = "y", after = { all = ["near"] }, wcet = "1ms" }
        off = { on = "y", after = { all = ["near"] }, wcet = "1ms", guard = "off" }
        idle = { on = "x", after = { all = ["a"] }, wcet = "1ms", guard = "idle" }
        merge = { on = "y", after = { any = ["a", "near"] }, wcet = "1ms" }
        one = { on = "y", after = { any = ["a"] }, wcet = "1ms" }
        "#,
    );
    let guards: Vec<_> = system.operations.iter().map(|operation| operation.guard).collect();
    assert_eq!(guards, [Guard::Off, Guard::Off, Guard::On, Guard::Off, Guard::Idle, Guard::Off, Guard::On]);
}

#[test]
fn times_are_taken_in_every_form() {
    let system = system(
        r#"
        [operation]
        a = { every = "10ms", wcet = "4ms", takes = "1ms" }
        b = { every = "10ms", wcet = "4ms", takes = { uniform = ["1ms", "2ms"] } }
        c = { every = "10ms", wcet = "4ms", takes = { normal = { mean = "2ms", deviation = "1ms" } } }
        d = { every = "10ms", wcet = "4ms", takes = { list = ["3ms", "2ms"] }, bcet = "1ms" }
        e = { every = "10ms", wcet = "4ms", critical = true, repeat = { legs = 2 }, takes = "5ms" }
        "#,
    );
    let takes = |name| setting(&system, 0, name).execution_time.clone();
    assert_eq!(takes("a"), ExecutionTime::Fixed(ms(1)));
    assert_eq!(takes("b"), ExecutionTime::Uniform(ms(1), ms(2)));
    let (mean, deviation) = (ms(2), ms(1));
    assert_eq!(takes("c"), ExecutionTime::Normal { mean, deviation, least: Span::from_nanos(1), most: ms(5) });
    assert_eq!(takes("d"), ExecutionTime::List([ms(3), ms(2)].into()));
    let bcets = ["a", "b", "c", "d", "e"].map(|name| setting(&system, 0, name).bcet);
    assert_eq!(bcets, [ms(1), ms(1), Span::from_nanos(1), ms(1), ms(4)]);
    assert_eq!(setting(&system, 0, "e").critical_legs, 2);
}

#[test]
fn machines_links_and_resources_are_found_by_name() {
    let system = system(
        r#"
        [host.b]
        [host.a]
        [processor.p]
        host = "a"
        cpu = 3
        strategy = "MUF"
        preemption = "full"
        cancel = true
        cap = "100%"
        pool = 2
        [resource.m]
        [resource.l]
        [operation.x]
        every = "10ms"
        wcet = "2ms"
        uses = { l = "1ms", m = "0.5ms" }
        payload = "1KiB"
        queue = { when_full = "drop-oldest" }
        [[link]]
        between = ["a", "b"]
        delay = "1ms"
        "#,
    );
    let processor = &system.processors[0];
    assert_eq!((processor.host, processor.cpu, processor.cap_ppm, processor.pool), (HostId(1), Some(3), 1_000_000, 2));
    assert_eq!((processor.strategy.as_str(), processor.preemption), ("MUF", Preemption::Full));
    let operation = &system.operations[0];
    assert_eq!(operation.uses, [(ResourceId(1), ms(1)), (ResourceId(0), Span::from_micros(500))]);
    assert_eq!((operation.payload, operation.queue.limit), (1_024, 8));
    assert_eq!(operation.queue.when_full, WhenFull::DropOldest);
    assert_eq!(system.delay(HostId(0), HostId(1)), (ms(1), ms(1)));
}

#[test]
fn errors_are_given_as_data_too() {
    let text = "name = \"x\"\n\n[operation.\"ä\"]\nevery = \"1s\"\nqueue = { when_full = \"drop-oldest\", \"lümit\" = 4 }\nwcet = \"1ms\"\n";
    let errors = read(text, "dir/x.toml", None).unwrap_err();
    assert_eq!((errors.errors.len(), errors.more), (1, 0));
    let error = &errors.errors[0];
    assert_eq!((error.file.as_str(), error.line, error.column), ("dir/x.toml", 5, 38));
    assert_eq!(error.message, "unknown key `lümit` in `queue`");
    assert_eq!(error.help.as_deref(), Some("did you mean `limit`?"));
    assert_eq!(error.severity, Severity::Error);
    assert!(error.render(true).contains("\u{1b}["));
}

#[test]
fn a_burst_is_so_many_instances_that_come_within_its_time_in_any_order() {
    let text = "name = \"b\"\n[operation.event]\nevery = \"100ms\"\nburst = { jobs = 3, within = \"10ms\" }\nwcet = \"1ms\"\n\
                [operation.sum]\nafter = { any = [\"event\"] }\nwcet = \"1ms\"";
    let system = read(text, "b.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let names: Vec<_> = system.operations.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["event.1", "event.2", "event.3", "sum"]);
    for one in system.operation_ids().take(3) {
        let setting = system.setting(0, one);
        assert_eq!(
            (setting.period, setting.phase, setting.jitter),
            (Span::from_millis(100), Span::ZERO, Span::from_millis(10))
        );
        assert!(!system.operation(one).phase_given);
    }
    assert_eq!(system.operation(OperationId(3)).trigger.predecessors().len(), 3);
    // 30 jobs a second of 1 ms each, and as many of the sum.
    assert_eq!(system.utilisation_ppm(0, ProcessorId(0)), 60_000);
}

const GATEWAYS: &str = r#"
    [host.air]
    gateway = { listen = ["tcp/127.0.0.1:7460"], connect = ["tcp/localhost:7447"], events = ["**"], publish = ["**"] }
    [host.ground.gateway]
    mode = "client"
    connect = ["tls/10.0.0.1:7447"]
    events = ["map", "status/*"]
    readers = ["display", "log"]
    [processor.air]
    host = "air"
    [processor.ground]
    host = "ground"
    [event.map]
    [event."status/air"]
    [event."status/all"]
    [event.goto]
    [operation.fly]
    on = "air"
    every = "10ms"
    wcet = "1ms"
    supplies = ["status/air", "status/all"]
    [operation.command]
    on = "air"
    called = true
    min_interval = "10ms"
    wcet = "1ms"
    supplies = ["goto"]
    [operation.draw]
    on = "ground"
    every = "10ms"
    wcet = "1ms"
    supplies = ["map", "status/all"]
"#;

#[test]
fn a_gateway_has_the_events_of_its_host_that_match() {
    let system = system(GATEWAYS);
    let gateways: Vec<&Gateway> = system.hosts.iter().filter_map(|host| host.gateway.as_ref()).collect();
    assert_eq!((gateways[0].mode, gateways[1].mode), (GatewayMode::Peer, GatewayMode::Client));
    assert_eq!(gateways[0].listen, ["tcp/127.0.0.1:7460".parse().unwrap()]);
    assert_eq!(gateways[1].connect, ["tls/10.0.0.1:7447".parse().unwrap()]);
    assert_eq!(gateways[1].readers, Some(vec!["display".to_owned(), "log".to_owned()]));
    assert_eq!((&gateways[1].publishers, gateways[0].uses_tls(), gateways[1].uses_tls()), (&None, false, true));
    let names = |events: &[u32]| -> Vec<&str> {
        events.iter().map(|event| system.events[*event as usize].name.as_str()).collect()
    };
    assert_eq!(names(&gateways[0].events), ["status/air", "status/all", "goto"]);
    assert_eq!(names(&gateways[0].publish), ["goto"]);
    assert_eq!((names(&gateways[1].events), names(&gateways[1].publish)), (vec!["map", "status/all"], vec![]));
}

#[test]
fn a_host_has_endpoints_and_epochs_change_links_and_hosts() {
    let system = system(
        r#"
        [host.a]
        endpoints = ["tls/10.0.0.2:7447", "unix//run/a"]
        zenoh = "tls/10.0.0.2:7450"
        clock_error = "1ms"
        [host.b]
        insecure = true
        endpoints = ["tcp/b.example.org:7447"]
        zenoh = "tcp/[fd00::3]:7450"
        enabled = false
        [host.c]
        router = "tcp/127.0.0.1:7460"
        [host.d]
        router = "tcp/127.0.0.1:7460"
        [processor.p]
        host = "a"
        [operation.x]
        every = "10ms"
        wcet = "1ms"
        [[link]]
        between = ["a", "b"]
        delay = "1ms"
        loss = "1%"
        [[epoch]]
        at = "1s"
        set = { "link.b-a.delay" = ["2ms", "3ms"], "host.b.enabled" = true, "host.a.enabled" = false }
        [[epoch]]
        at = "2s"
        [[epoch]]
        at = "3s"
        set = { "link.a-b" = { loss = "50%", delay = "1ms" } }
        [[epoch]]
        at = "4s"
        set = { "link.a-b.loss" = "1%" }
        "#,
    );
    let (a, b) = (HostId(0), HostId(1));
    let endpoints: Vec<String> = system.hosts[0].endpoints.iter().map(|endpoint| endpoint.to_string()).collect();
    assert_eq!(endpoints, ["tls/10.0.0.2:7447", "unix//run/a"]);
    let zenoh = system.hosts.iter().map(|host| host.over_zenoh().map(|endpoint| endpoint.to_string()));
    assert_eq!(
        zenoh.collect::<Vec<_>>(),
        ["tls/10.0.0.2:7450", "tcp/[fd00::3]:7450", "tcp/127.0.0.1:7460", "tcp/127.0.0.1:7460"]
            .map(|text| Some(text.to_string()))
    );
    assert_eq!((system.hosts[0].clock_error, system.clock_error(b, a)), (Some(ms(1)), ms(1)));
    assert_eq!(system.clock_error(a, a), Span::ZERO);
    let link = |epoch| system.link_setting(epoch, b, a);
    let of = |least, most, loss_ppm| LinkSetting { delay: (ms(least), ms(most)), loss_ppm };
    assert_eq!(
        [0, 1, 2, 3, 4].map(link),
        [of(1, 1, 10_000), of(2, 3, 10_000), of(2, 3, 10_000), of(1, 1, 500_000), of(1, 1, 10_000)]
    );
    let off: Vec<_> = system.epochs.iter().map(|epoch| epoch.environment.disabled.clone()).collect();
    assert_eq!(off, [vec![b], vec![a], vec![a], vec![a], vec![a]]);
    assert!(std::sync::Arc::ptr_eq(&system.epochs[1].environment, &system.epochs[2].environment));
    // A value that is set again as declared is not a difference.
    assert!(system.epochs[4].environment.links.is_empty());
}

#[test]
fn requests_release_a_method_that_nothing_calls() {
    let system = system(
        r#"
        [operation.serve]
        called = true
        min_interval = "20ms"
        wcet = "1ms"
        [operation.ask]
        called = true
        deadline = "7ms"
        wcet = "1ms"
        [operation.log]
        after = { all = ["serve"] }
        wcet = "1ms"
        "#,
    );
    let serve = system.operation(id(&system, "serve"));
    assert!(serve.is_requested() && serve.roots == [id(&system, "serve")]);
    assert_eq!(serve.min_interval, Some(ms(20)));
    let of = |name| (setting(&system, 0, name).period, setting(&system, 0, name).deadline);
    assert_eq!(of("serve"), (ms(20), Deadline::Own(ms(20))));
    assert_eq!(of("ask"), (ms(7), Deadline::Own(ms(7))));
    assert_eq!(of("log"), (ms(20), Deadline::Origin(ms(20))));
    let per_second = |rates: Vec<u64>| rates.iter().map(|rate| rate / 1_000_000_000).collect::<Vec<_>>();
    assert_eq!(per_second(system.release_rates(0)), [50, 0, 50]);
}

#[test]
fn an_operation_after_events_is_triggered_by_their_suppliers() {
    let system = system(
        r#"
        event."sensor/gps" = { payload = "1KiB" }
        event."sensor/imu" = { payload = "8B" }
        event.alarm = {}
        event.silent = {}
        [operation]
        log = { after = { event = ["sensor/**", "alarm"] }, wcet = "0.1ms" }
        fuse = { after = { event = "sensor/imu" }, wcet = "1ms" }
        gps-right = { every = "10ms", wcet = "1ms", supplies = ["sensor/gps", "sensor/imu"] }
        gps-left = { every = "10ms", wcet = "1ms", count = 2, supplies = ["sensor/gps"], payload = "2KiB" }
        watch = { every = "20ms", wcet = "1ms", supplies = ["silent", "alarm"] }
        left = { after = { event = ["sensor/gps", "sensor/imu"], from = ["gps-left"] }, wcet = "0.1ms" }
        second = { after = { event = "sensor/*", from = ["gps-left.2"] }, wcet = "0.1ms" }
        "#,
    );
    let ids = |names: &[&str]| names.iter().map(|name| id(&system, name)).collect::<Vec<_>>();
    let trigger = |name| system.operation(id(&system, name)).trigger.clone();
    let (right, left) = ("gps-right", ["gps-left.1", "gps-left.2"]);
    assert_eq!(trigger("log"), Trigger::Any(ids(&[right, left[0], left[1], "watch"])));
    assert_eq!(trigger("fuse"), Trigger::All(ids(&[right])));
    assert_eq!(trigger("left"), Trigger::Any(ids(&left)));
    assert_eq!(trigger("second"), Trigger::All(ids(&left[1..])));
    let event = |name: &str, suppliers: &[&str], consumers: &[&str], payload| Event {
        name: name.to_string(),
        suppliers: ids(suppliers),
        consumers: ids(consumers),
        payload,
        ..Event::default()
    };
    let gps = event("sensor/gps", &[right, left[0], left[1]], &["log", "left", "second"], 1_024);
    // The left one supplies no `sensor/imu`: an operation after it alone does not consume that.
    let imu = event("sensor/imu", &[right], &["log", "fuse"], 8);
    let [alarm, silent] = [("alarm", &["log"][..]), ("silent", &[])].map(|(name, all)| event(name, &["watch"], all, 0));
    assert_eq!(system.events, [gps, imu, alarm, silent]);
    let payload = |name| system.operation(id(&system, name)).payload;
    assert_eq!([right, left[0], "watch"].map(payload), [1_024, 2_048, 0]);
}

#[test]
fn the_end_of_a_call_supplies_the_events_of_the_caller_and_its_begin_follows_events() {
    let system = system(
        r#"
        event.asked = {}
        event.done = {}
        event.located = {}
        [operation]
        ask = { every = "50ms", wcet = "1ms", supplies = ["asked"] }
        plan = { after = { event = "asked" }, wcet = "3ms", calls = { method = "locate", after = "1ms" }, supplies = ["done"] }
        steer = { every = "50ms", wcet = "3ms", calls = { method = "locate", after = "1ms" } }
        locate = { called = true, wcet = "4ms", supplies = ["located"] }
        log = { after = { event = "**" }, wcet = "0.1ms" }
        one = { after = { event = "located", from = ["locate@steer"] }, wcet = "0.1ms" }
        "#,
    );
    let event = |name: &str| {
        let event = system.events.iter().find(|event| event.name == name).unwrap();
        let names = |ids: &[OperationId]| ids.iter().map(|id| system.operation(*id).name.clone()).collect::<Vec<_>>();
        (names(&event.suppliers), names(&event.consumers))
    };
    let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    assert_eq!(event("asked"), (owned(&["ask"]), owned(&["plan:call", "log"])));
    assert_eq!(event("done"), (owned(&["plan"]), owned(&["log"])));
    assert_eq!(event("located"), (owned(&["locate@plan", "locate@steer"]), owned(&["log", "one"])));
    let log = ["ask", "locate@plan", "plan", "locate@steer"].map(|name| id(&system, name));
    assert_eq!(system.operation(id(&system, "log")).trigger, Trigger::Any(log.to_vec()));
    let read_again = read(&write(&system), "written.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert!(read_again == system, "{}", write(&system));
}

#[test]
fn a_distributable_thread_continues_on_all_paths_from_its_first_operation() {
    let system = system(
        r#"
        [operation]
        client    = { every = "200ms", wcet = "1ms" }
        primary   = { after = { all = ["client"] }, wcet = "1ms" }
        secondary = { after = { chosen = ["client"] }, wcet = "1ms" }
        server    = { after = { first = ["primary", "secondary"] }, wcet = "1ms" }
        beside    = { after = { all = ["client"] }, wcet = "1ms" }
        [chain]
        one = { path = ["client", "primary"], deadline = "100ms", carried_by = "thread" }
        two = { path = ["client", "secondary", "server"], deadline = "100ms", carried_by = "thread" }
        three = { path = ["client", "primary", "server"], deadline = "100ms", carried_by = "thread" }
        four = { path = ["client", "beside"], deadline = "100ms" }
        "#,
    );
    let graphs = system.thread_graphs();
    let [graph] = &graphs[..] else { panic!("{graphs:?}") };
    assert_eq!((graph.root, graph.chain.name.as_str()), (id(&system, "client"), "two"));
    let place = |name: &str| graph.operations.iter().position(|one| *one == id(&system, name));
    assert_eq!(
        (graph.operations.len(), place("client"), place("server"), place("beside")),
        (4, Some(0), Some(3), None)
    );
}
