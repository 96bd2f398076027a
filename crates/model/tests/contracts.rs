//! Contracts: what the file means, and that it is written back.

use hyoshi_model::{
    ConditionSource, ContractAction, ContractSetting, HostId, HostMeasure, HostQuantity, JobScope, LatencyScope,
    OperationId, OutsideMeasure, ReservationSetting, Span, Stay, WindowSummary, read,
};

const SYSTEM: &str = "name = 'contracts'
    [processor.main]
    strategy = ['RMS', 'RMS+MLF']
    [operation.track]
    rate = ['5Hz', '50Hz']
    wcet = '4ms'
    count = 2
    [operation.draw]
    after = { all = ['track.1'] }
    wcet = '1ms'
    [operation.log]
    every = '20ms'
    wcet = '2ms'
    [operation.route]
    every = '50ms'
    wcet = '1ms'
    repeat = { legs = 4 }
    [chain.see]
    path = ['track.1', 'draw']
    deadline = '50ms'
    [condition.battery]
    value = 80
    [condition.mode]
    [contract.load]
    precedence = 3
    period = '50ms'
    [contract.load.watch]
    late = { of = 'operation.track.miss_ratio', over = '2s' }
    slow = { of = 'chain.see.latency', over = '1s', as = 'greatest', max_age = '4s' }
    mode = { of = 'condition.mode' }
    asked = { of = ['operation.track.1.demand', 'operation.route.demand'], over = '1s' }
    vital = { of = 'processor.main.critical_demand', over = '1s' }
    wasted = { of = 'operation.route.wasted', over = '1s' }
    rate = { of = 'processor.main.rate', over = '1s' }
    queue = { of = 'operation.log.queue', as = 'spread', over = '1s' }
    second = { of = 'processor.main.strategy' }
    danger = { of = 'processor.main.endangered', as = 'greatest', over = '1s' }
    behind = { of = 'operation.log.lateness' }
    late_see = { of = 'chain.see.lateness', as = 'greatest', over = '1s' }
    used = { of = 'processor.main.usage', over = '1s' }
    seen = { of = 'chain.see.rate', over = '1s' }
    [[contract.load.region]]
    name = 'thin'
    enter = \"late > 0.02 || slow > duration('45ms')\"
    leave = 'late < 0.005'
    for = '200ms'
    stay = { first = '2s', grow = 3, most = '1min' }
    ramp = '4s'
    do = [{ set = 'operation.track.rate', most = '10Hz' }, { report = 'the display is late' }]
    [[contract.load.region.region]]
    name = 'mute'
    enter = 'stale(late)'
    latch = true
    do = [{ set = 'operation.log.enabled', to = false }, { set = 'operation.draw.enabled', to = true }]
    [[contract.load.region.region]]
    name = 'quiet'
    [[contract.load.region]]
    name = 'normal'
    do = [{ set = 'operation.track.2.rate', least = '100ms' }, { set = 'operation.route.repeat.legs', most = 2 },
    { set = 'operation.log.importance', to = 5 }]
    [[epoch]]
    at = '5s'
    set = { 'condition.battery.value' = -0.5, 'condition.mode.value' = 2 }
    [[epoch]]
    at = '6s'
    set = { 'condition.battery.value' = 7 }";

#[test]
fn a_contract_is_read_as_written_and_written_as_read() {
    let system = read(SYSTEM, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let one = &system.contracts[0];
    assert_eq!((one.precedence, one.period), (3, Span::from_millis(50)));
    let [late, slow, mode, asked, vital, wasted, rate, rest @ ..] = &one.conditions[..] else {
        panic!("seven conditions and more")
    };
    let rest: Vec<_> = rest.iter().map(|one| (one.of.clone(), one.summary)).collect();
    let ids = |ids: &[u32]| JobScope::Operations(ids.iter().map(|id| OperationId(*id)).collect());
    let all = |critical| JobScope::Processor { processor: one.processor, critical };
    let expected = [
        (ConditionSource::Queue(ids(&[3])), WindowSummary::Spread),
        (ConditionSource::Strategy(one.processor), WindowSummary::Mean),
        (ConditionSource::Endangered(one.processor), WindowSummary::Greatest),
        (ConditionSource::Lateness(LatencyScope::Operations(vec![OperationId(3)])), WindowSummary::Mean),
        (ConditionSource::Lateness(LatencyScope::Chain(0)), WindowSummary::Greatest),
        (ConditionSource::Usage(all(false)), WindowSummary::Mean),
        // An instance of a chain is complete if its last operation is.
        (ConditionSource::Rate(ids(&[2])), WindowSummary::Mean),
    ];
    assert_eq!(rest, expected);
    assert_eq!(asked.of, ConditionSource::Demand(ids(&[0, 4])));
    assert_eq!(vital.of, ConditionSource::Demand(all(true)));
    assert_eq!((&wasted.of, &rate.of), (&ConditionSource::Wasted(ids(&[4])), &ConditionSource::Rate(all(false))));
    assert_eq!(mode.of, ConditionSource::Set(1));
    let values: Vec<_> =
        system.epochs.iter().map(|epoch| [0, 1].map(|place| epoch.environment.condition(place))).collect();
    let million = |value: i64| Some(value * 1_000_000);
    assert_eq!(values, [[million(80), None], [Some(-500_000), million(2)], [million(7), million(2)]]);
    assert_eq!(late.of, ConditionSource::MissRatio(LatencyScope::Operations(vec![OperationId(0), OperationId(1)])));
    assert_eq!((late.over, late.max_age, late.summary), (Some(Span::from_secs(2)), None, WindowSummary::Mean));
    assert_eq!((&slow.of, slow.summary), (&ConditionSource::Latency(LatencyScope::Chain(0)), WindowSummary::Greatest));
    let names: Vec<_> = one.regions.iter().map(|region| (&*region.name, region.rules.parent)).collect();
    assert_eq!(names, [("thin", None), ("mute", Some(0)), ("quiet", Some(0)), ("normal", None)]);
    let thin = &one.regions[0];
    assert_eq!(thin.ramp, Span::from_secs(4));
    assert_eq!(
        thin.rules.stay,
        Stay { first: Span::from_secs(2), grow: 3, most: Span::from_secs(60), settling: Span::ZERO }
    );
    let limit = |id, shortest, longest| ContractAction::LimitPeriod { operation: OperationId(id), shortest, longest };
    let longest = Span::from_nanos(u64::MAX);
    let report = ContractAction::Report { text: "the display is late".into() };
    assert_eq!(
        thin.actions,
        [limit(0, Span::from_millis(100), longest), limit(1, Span::from_millis(100), longest), report]
    );
    let legs = ContractAction::LimitLegs { operation: OperationId(4), most: 2 };
    let importance = ContractAction::Set { setting: ContractSetting::Importance(OperationId(3)), to: 5 };
    assert_eq!(one.regions[3].actions, [limit(1, Span::ZERO, Span::from_millis(100)), legs, importance]);
    // `draw` follows `track.1`; `log` is disabled.
    assert_eq!(system.follow_contracts(), [true, true, true, true, true]);
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
}

#[test]
fn contracts_with_a_higher_precedence_come_first() {
    let more = "\n[contract.other]\nprecedence = 7\nwatch = {}\n[[contract.other.region]]\nname = 'only'
        [contract.third]\nprecedence = 3\n[[contract.third.region]]\nname = 'only'";
    let system = read(&format!("{SYSTEM}{more}"), "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert_eq!(system.contracts_on(system.contracts[0].processor), [1, 0, 2]);
}

#[test]
fn two_contracts_of_one_layer_cannot_set_the_same() {
    let with = |precedence: u32, action: &str| {
        let other = format!(
            "\n[contract.other]\nprecedence = {precedence}\n[[contract.other.region]]\nname = 'only'\ndo = [{action}]"
        );
        read(&format!("{SYSTEM}{other}"), "x.toml", None).map(drop).map_err(|errors| errors.to_string())
    };
    let rate = "{ set = 'operation.track.rate', least = '5Hz' }";
    let error = with(3, rate).unwrap_err();
    for part in [
        "two contracts with precedence 3 set `operation.track.1.rate`",
        "`load` sets it, too",
        "[contract.other]",
        "write a different `precedence` in one of them",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(error.matches("error: ").count(), 1, "one error for a contract: {error}");
    assert_eq!(with(2, rate), Ok(()));
    assert!(with(3, "{ set = 'operation.log.enabled', to = false }").unwrap_err().contains("operation.log.enabled"));
    // Reports are events, not settings.
    assert_eq!(with(3, "{ report = 'the display is late' }"), Ok(()));
}

const OUTSIDE: &str = "name = 'outside'
    [host.drone]
    [host.station]
    [host.ship]
    [processor.air]
    host = 'drone'
    [processor.ground]
    host = 'station'
    [operation.fly]
    on = 'air'
    every = '20ms'
    wcet = '1ms'
    [operation.see]
    on = 'ground'
    every = '20ms'
    wcet = '1ms'
    [reservation.player]
    program = ['player']
    host = 'station'
    period = '20ms'
    [condition.mode]
    value = 1
    [contract.heat]
    [contract.heat.watch]
    heat = { of = 'host.station.temperature', max_age = '5s' }
    asked = { of = 'host.station.broker.asked' }
    again = { of = 'host.station.temperature' }
    mode = { of = 'condition.mode' }
    [[contract.heat.region]]
    name = 'hot'
    enter = 'heat > 80 && asked > again * mode'
    do = [{ set = 'reservation.player.importance', to = 9 }, { call = 'cool' }, { run = ['fan', 'on'] }]
    [[contract.heat.region]]
    name = 'normal'
    [[epoch]]
    at = '0s'
    set = { 'host.station.temperature' = 90.5 }
    [[epoch]]
    at = '5s'
    set = { 'host.station.broker.asked' = 1.5, 'host.drone.enabled' = false, 'condition.mode.value' = 2 }
    [[epoch]]
    at = '6s'
    set.host.station.broker.asked = 0.5";

#[test]
fn measured_conditions_and_outside_actions_are_read_as_written_and_written_as_read() {
    let system = read(OUTSIDE, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let one = &system.contracts[0];
    // Its host has the second processor.
    assert_eq!(one.processor.index(), 1);
    let measured = |quantity| Some(OutsideMeasure::Host(HostMeasure { host: HostId(1), quantity }));
    let conditions: Vec<_> = system.conditions.iter().map(|one| (one.name.as_str(), one.measure)).collect();
    let temperature = ("host.station.temperature", measured(HostQuantity::Temperature));
    let asked = ("host.station.broker.asked", measured(HostQuantity::BrokerAsked));
    assert_eq!(conditions, [("mode", None), temperature, asked]);
    let sources: Vec<_> = one.conditions.iter().map(|one| one.of.clone()).collect();
    assert_eq!(sources, [1, 2, 1, 0].map(ConditionSource::Set));
    let of = |place| system.epochs.iter().map(move |epoch| epoch.environment.condition(place)).collect::<Vec<_>>();
    assert_eq!(of(1), [Some(90_500_000); 3]);
    assert_eq!(of(2), [None, Some(1_500_000), Some(500_000)]);
    let texts: Vec<_> = one.external_actions().map(|(region, action)| (region, action.text(&system))).collect();
    assert_eq!(texts, ["reservation.player.importance = 9", "call cool", "run fan on"].map(|text| (0, text.into())));
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
}

#[test]
fn outside_actions_and_measured_conditions_that_cannot_be_are_refused() {
    let action = "{ call = 'cool' }";
    let many: String = (0..65).map(|_| "'x', ").collect();
    let many = format!("{{ run = [{many}] }}");
    for (from, to, error) in [
        (action, "{ call = '' }", "`call` must have 1 to 64 bytes"),
        ("broker.asked = 0.5", "broker.asked = -0.5", "`host.station.broker.asked` cannot be -0.5"),
        (action, "{ call = 'cool', report = 'x' }", "`call` must be the only key of its action"),
        (action, "{ run = [] }", "`run` names no program"),
        (action, "{ run = ['./fan'] }", "`./fan` is a relative path"),
        (action, "{ run = [''] }", "`` is a relative path"),
        (action, "{ run = 'fan' }", "`run`"),
        (action, &many, "the command has 65 words"),
        (action, "{ set = 'reservation.video.importance', to = 9 }", "there is no reservation `video`"),
        (action, "{ set = 'reservation.player.importance', to = true }", "`to`"),
        (action, "{ set = 'reservation.player.importance' }", "has no `to`"),
        (action, "{ set = 'reservation.player.weight', to = 0 }", "`to`"),
        (
            action,
            "{ set = 'reservation.player.budget', to = '2ms' }",
            "a contract cannot set `reservation.player.budget`",
        ),
        (action, "{ set = 'reservation.player.least', to = '2ms' }", "`player` has no `least`"),
        (action, "{ set = 'reservation.player.cap', to = '20%' }", "`player` must have exactly one advocate `cap`"),
        (action, "{ set = 'reservation.player.cap', to = 20 }", "`to`"),
        (action, "{ set = 'reservation.player.cap', most = '20%' }", "a contract cannot set `reservation.player.cap`"),
        ("'host.station.temperature', max_age", "'host.ship.temperature', max_age", "host `ship` has no processor"),
        ("'host.station.temperature', max_age", "'host.stat.temperature', max_age", "there is no host `stat`"),
        ("'host.station.temperature', max_age", "'host.station.wind', max_age", "unknown quantity `wind` of a host"),
        (
            "'host.station.temperature' = 90.5",
            "'host.drone.temperature' = 1",
            "no contract watches `host.drone.temperature`",
        ),
        ("'host.station.temperature' = 90.5", "'host.station.temperature' = 'hot'", "value"),
    ] {
        let text = OUTSIDE.replacen(from, to, 1);
        let errors = read(&text, "x.toml", None).expect_err(to).to_string();
        assert!(errors.contains(error), "{to}: {errors}");
    }
}

const LINKS: &str = "name = 'links'\nduration = '9s'\n[host.sky]\n[host.drone]\n[host.station]\n\
    [processor.ground]\nhost = 'station'\n[processor.airframe]\nhost = 'drone'\n\
    [[link]]\nbetween = ['drone', 'station']\ndelay = '1ms'\n\
    [[link]]\nbetween = ['sky', 'drone']\ndelay = '1ms'\n\
    [operation.sense]\non = 'airframe'\nrate = ['5Hz', '50Hz']\nwcet = '1ms'\n\
    [reservation.player]\nprogram = ['player']\nhost = 'station'\nperiod = '40ms'\ntakes = '4ms'\n\
    [contract.link]\n[contract.link.watch]\nloss = { of = 'link.drone-station.loss', over = '1s', max_age = '3s' }\n\
    bits = { of = 'link.station-drone.throughput' }\nagain = { of = 'link.station-drone.loss' }\n\
    up = { of = 'link.sky-drone.delay' }\nasked = { of = 'reservation.player.asked', max_age = '5s' }\n\
    [[contract.link.region]]\nname = 'thin'\nenter = 'stale(loss) || loss > 0.02'\n\
    do = [{ set = 'operation.sense.rate', most = '10Hz' }, { set = 'link.station-drone.dscp', to = '34' }]\n\
    [[contract.link.region]]\nname = 'normal'\n\
    [[epoch]]\nat = '5s'\nset = { 'link.drone-station.loss' = '5%', 'reservation.player.asked' = 0.4 }\n";

#[test]
fn conditions_of_links_and_reservations_are_read_as_written_and_written_as_read() {
    let system = read(LINKS, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let names: Vec<_> = system.conditions.iter().map(|one| one.name.as_str()).collect();
    let expected = [
        "link.drone-station.loss",
        "link.drone-station.throughput",
        "link.sky-drone.delay",
        "reservation.player.asked",
    ];
    assert_eq!(names, expected);
    let one = &system.contracts[0];
    let sources: Vec<_> = one.conditions.iter().map(|one| one.of.clone()).collect();
    assert_eq!(sources, [0, 1, 0, 2, 3].map(ConditionSource::Set));
    // The first end of the first link; `sky` has no processor.
    let on: Vec<_> = sources.iter().map(|of| one.measured_on(&system, of).index()).collect();
    assert_eq!((one.processor.index(), &on[..]), (1, &[1, 1, 1, 1, 0][..]));
    let elsewhere = LINKS.replace("[contract.link]\n", "[contract.link]\non = 'ground'\n");
    let moved = read(&elsewhere, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let on: Vec<_> = sources.iter().map(|of| moved.contracts[0].measured_on(&moved, of).index()).collect();
    assert_eq!(on, [0, 0, 0, 1, 0]);
    assert_eq!(system.epochs[1].environment.condition(3), Some(400_000));
    let texts: Vec<_> = one.external_actions().map(|(_, action)| action.text(&system)).collect();
    assert_eq!(texts, ["link.drone-station.dscp = AF41"]);
    // The other host of the link also sets it.
    let routes: Vec<_> = system.contract_routes().iter().map(|one| (one.from.index(), one.to.index())).collect();
    assert_eq!(routes, [(0, 1), (1, 0)]);
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
}

#[test]
fn delegates_are_read_as_written_and_contracts_watch_and_set_them() {
    let text = "name = 'x'
        [host.drone]
        [host.station]
        [processor.main]
        host = 'drone'
        [processor.ground]
        host = 'station'
        [operation.query]
        on = 'ground'
        called = true
        deadline = '10ms'
        wcet = '1ms'
        [object.map]
        operation = 'query'
        endpoints = ['tcp/127.0.0.1:7473']
        [delegate.front]
        object = 'map'
        behaviour = { '*' = 'thin:1/4', zoom = 'thin:30Hz', reset = 'refuse:no_permission' }
        [delegate.camera]
        to = 'corbaloc::127.0.0.1:2809/Camera'
        host = 'drone'
        listen = 'tcp/127.0.0.1:2810'
        behaviour = { frame = 'cached:100ms', steer = 'mark:EF', '*' = 'delay:1ms' }
        [contract.door]
        on = 'main'
        watch = { slow = { of = 'delegate.front.latency' }, often = { of = 'delegate.front.rate', max_age = '2s' } }
        [[contract.door.region]]
        name = 'closed'
        enter = 'slow > often'
        do = [{ set = 'delegate.front.zoom', to = 'refuse' }, { set = 'delegate.front.*', to = 'pass' },
              { set = 'delegate.camera.frame', to = 'delay:5ms' }]
        [[contract.door.region]]
        name = 'open'
        [[epoch]]
        at = '5s'
        set = { 'delegate.front.latency' = 0.5 }";
    let system = read(text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let front = &system.delegates[0];
    let behaviours = ["zoom", "reset", "locate"].map(|operation| front.behaviour(operation).to_string());
    assert_eq!(behaviours, ["thin:33.333333ms", "refuse:NO_PERMISSION", "thin:1/4"]);
    let contract = &system.contracts[0];
    // Its host measures, and applies the behaviours.
    let on = contract.conditions.iter().map(|one| contract.measured_on(&system, &one.of).index());
    assert_eq!(on.collect::<Vec<_>>(), [1, 1]);
    assert_eq!(system.contract_routes().len(), 3);
    let texts: Vec<_> = contract.external_actions().map(|(_, action)| action.text(&system)).collect();
    let expected =
        ["delegate.front.zoom = refuse:TRANSIENT", "delegate.front.* = pass", "delegate.camera.frame = delay:5ms"];
    assert_eq!(texts, expected);
    let camera = &system.delegates[1];
    let behaviours = ["frame", "steer", "zoom"].map(|operation| camera.behaviour(operation).to_string());
    assert_eq!(behaviours, ["cached:100ms", "mark:EF", "delay:1ms"]);
    assert_eq!((camera.object(), camera.processor(&system).index()), (None, 0));
    let place = system.conditions.iter().position(|one| one.name == "delegate.front.latency").unwrap();
    assert_eq!(system.epochs[1].environment.condition(place), Some(500_000));
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
}

#[test]
fn mistakes_in_proxies_are_refused_with_a_remedy() {
    let text = |delegate: &str| {
        format!(
            "name = 'x'
            duration = '1s'
            [operation.query]
            called = true
            deadline = '10ms'
            wcet = '1ms'
            [object.map]
            operation = 'query'
            endpoints = ['tcp/127.0.0.1:7473']
            [delegate.front]
            {delegate}"
        )
    };
    let to = "to = 'corbaloc::127.0.0.1:2809/Camera'\n";
    for (delegate, error) in [
        ("behaviour = { zoom = 'pass' }", "`front` has no object"),
        ("to = 'corbaloc::h:1/K'\nobject = 'map'\nlisten = 'tcp/127.0.0.1:2810'", "has both `object` and `to`"),
        ("object = 'map'\nlisten = 'tcp/127.0.0.1:2810'", "`listen` is only for proxies"),
        ("object = 'map'\nbehaviour = { zoom = 'delay:5ms' }", "`delay:5ms` is only for proxies"),
        (to, "`front` has no `listen`"),
        (&format!("to = '{}'\nlisten = 'tcp/127.0.0.1:2810'", "x".repeat(9_000)), "the reference has 9000 bytes"),
        (&format!("{to}listen = 'tls/127.0.0.1:2810'"), "a proxy cannot listen at `tls/127.0.0.1:2810`"),
        (&format!("{to}listen = 'tcp/10.0.0.7:2810'"), "write `insecure = true` if the network is trusted"),
        (&format!("{to}listen = 'tcp/127.0.0.1:2810'\nhost = 'moon'"), "there is no host `moon`"),
        (&format!("{to}listen = 'tcp/127.0.0.1:2810'\nbehaviour = {{ a = 'delay:2min' }}"), "write 60s at most"),
        (&format!("{to}listen = 'tcp/127.0.0.1:2810'\nbehaviour = {{ a = 'redirect' }}"), "no reference to redirect"),
        (
            &format!("{to}listen = 'tcp/127.0.0.1:2810'\n[delegate.back]\n{to}listen = 'tcp/127.0.0.1:2810'"),
            "set another port for each proxy",
        ),
    ] {
        let errors = read(&text(delegate), "x.toml", None).unwrap_err().to_string();
        assert!(errors.contains(error) && errors.ends_with(" 1 error\n"), "{error}: {errors}");
    }
}

#[test]
fn conditions_of_unknown_links_and_reservations_are_refused() {
    for (from, to, error) in [
        ("'link.drone-station.loss', over", "'link.drone-station.noise', over", "unknown quantity `noise` of a link"),
        ("'link.drone-station.loss', over", "'link.drone.loss', over", "there is no link `drone`"),
        ("'link.drone-station.loss', over", "'link.loss', over", "unknown quantity `` of a link"),
        ("'reservation.player.asked', max", "'reservation.play.asked', max", "there is no reservation `play`"),
        (
            "'reservation.player.asked', max",
            "'reservation.player.takes', max",
            "unknown quantity `takes` of a reservation",
        ),
        ("'link.station-drone.dscp', to = '34'", "'link.station-drone.dscp', to = 'AF49'", "`AF49` is not a DSCP"),
        ("'link.station-drone.dscp', to = '34'", "'link.station-drone.dscp'", "has no `to`"),
        ("'link.station-drone.dscp', to", "'link.station.dscp', to", "there is no link `station`"),
        ("'link.station-drone.dscp', to", "'link.station-drone.loss', to", "a contract cannot set"),
        ("'reservation.player.asked' = 0.4", "'reservation.player.usage' = 0.4", "no contract watches"),
    ] {
        let mut text = LINKS.replacen(from, to, 1);
        assert_ne!(text, LINKS);
        // An epoch sets only watched conditions.
        if !text.contains("'reservation.player.asked', max") {
            text = text.replace(", 'reservation.player.asked' = 0.4", "");
        }
        let errors = read(&text, "x.toml", None).unwrap_err().to_string();
        assert!(errors.contains(error), "{error}: {errors}");
    }
}

#[test]
fn measured_conditions_are_sampled_often_enough_for_their_window_and_age() {
    let system = read(LINKS, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let every = |place: usize| system.contracts[0].conditions[place].sampled_every(Span::from_millis(100));
    assert_eq!([0, 1, 4].map(every), [250, 1000, 1000].map(Span::from_millis));
    let mut short = system.contracts[0].conditions[0].clone();
    short.max_age = Some(Span::from_millis(50));
    assert_eq!(short.sampled_every(Span::from_secs(7)), Span::from_millis(100));
}

#[test]
fn settings_of_a_reservation_are_at_most_those_of_its_table() {
    let table = "period = '20ms'\n    least = '4ms'\n    importance = 3\n    weight = 2\n    \
                 advocate = [{ max_decay = 3 }, { floor = '10%' }, { cap = { share = '50%' } }]";
    let text = |actions: &str| {
        let text = OUTSIDE.replace("period = '20ms'\n    [condition.mode]", &format!("{table}\n    [condition.mode]"));
        text.replace("{ set = 'reservation.player.importance', to = 9 }", actions)
    };
    let set = |key: &str, to: &str| format!("{{ set = 'reservation.player.{key}', to = {to} }}");
    let all = [("weight", "7"), ("least", "'2ms'"), ("floor", "'10%'"), ("cap", "'12.5%'")];
    let actions = text(&all.map(|(key, to)| set(key, to)).join(", "));
    let system = read(&actions, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let texts: Vec<_> = system.contracts[0].external_actions().map(|(_, action)| action.text(&system)).collect();
    let wanted =
        ["weight = 7", "least = 2ms", "floor = 10%", "cap = 12.5%"].map(|one| format!("reservation.player.{one}"));
    assert_eq!(texts[..4], wanted);
    let declared = ReservationSetting::ALL.map(|setting| setting.declared(&system.brokered.programs[0]));
    assert_eq!(declared, [Some(3), Some(2), Some(4_000_000), None, Some(500_000), Some(100_000)]);
    let written = hyoshi_model::write(&system);
    assert_eq!(
        read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system,
        system
    );

    for (key, to, error) in [
        ("least", "'5ms'", "`to` is above the `least` of `player`"),
        ("cap", "'50.1%'", "`to` is above the `cap` of `player`"),
        ("cap", "'0%'", "`to` is zero"),
        ("floor", "'11%'", "`to` is above the `floor` of `player`"),
        ("rate", "'11%'", "`player` must have exactly one advocate `rate`"),
    ] {
        let errors = read(&text(&set(key, to)), "x.toml", None).expect_err(key).to_string();
        assert!(errors.contains(error), "{key}: {errors}");
    }
    let twice = text(&format!("{}, {}", set("cap", "'20%'"), set("cap", "'30%'")));
    let errors = read(&twice, "x.toml", None).expect_err("twice").to_string();
    assert!(errors.contains("the region sets `cap` of this reservation twice"), "{errors}");
}
