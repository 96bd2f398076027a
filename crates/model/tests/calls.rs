//! A call becomes a chain of triggered operations with the times and deadlines of the caller.

use hyoshi_model::{Deadline, ExecutionTime, Guard, OperationId, Setting, Span, System, Trigger, read, write};

fn system(text: &str) -> System {
    read(text, "calls.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

fn id(system: &System, name: &str) -> OperationId {
    let known: Vec<_> = system.operations.iter().map(|operation| operation.name.as_str()).collect();
    let found = known.iter().position(|known| *known == name);
    OperationId(found.unwrap_or_else(|| panic!("no {name} in {known:?}")) as u32)
}

fn setting<'a>(system: &'a System, epoch: usize, name: &str) -> &'a Setting {
    system.setting(epoch, id(system, name))
}

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

#[test]
fn a_deadline_is_divided_in_proportion_where_the_file_says_so() {
    let divided = TWO.replace(
        r#"calls    = { method = "locate", after = "1ms" }"#,
        r#"calls    = { method = "locate", after = "1ms", divide = true }"#,
    );
    assert_ne!(divided, TWO);
    let (whole, system) = (system(TWO), system(&divided));
    let before = setting(&whole, 0, "plan");
    let [first, method, rest] = ["plan:call", "locate@plan", "plan"].map(|name| setting(&system, 0, name));
    let to_host = ms(2);
    let all = [first.wcet, to_host, method.wcet, to_host, rest.wcet].into_iter().fold(Span::ZERO, |sum, one| sum + one);
    let share = |parts: Span| {
        Span::from_nanos(
            (u128::from(before.deadline.span().as_nanos()) * u128::from(parts.as_nanos()) / u128::from(all.as_nanos()))
                as u64,
        )
    };
    assert_eq!(first.deadline, Deadline::Own(share(first.wcet)));
    assert_eq!(method.deadline, Deadline::Origin(share(first.wcet + to_host + method.wcet)));
    assert_eq!(rest.deadline, before.deadline, "the whole is due when it was");
    // By the file.
    let by_file = divided.replace("called = true", "called = true\n    deadline = \"9ms\"");
    let system = self::system(&by_file);
    assert_eq!(setting(&system, 0, "locate@plan").deadline.span(), ms(9));
    assert_eq!(setting(&system, 0, "plan:call").deadline, first.deadline);
    // Also of a method that calls.
    let own = "deadline = { end_to_end = \"9ms\" }\n calls = { method = \"look\", after = \"1ms\" }";
    let look = "[operation.look]\n on = \"ground\"\n called = true\n wcet = \"1ms\"\n [operation.locate]";
    let nested = by_file.replace("deadline = \"9ms\"", own).replace("[operation.locate]", look);
    let system = self::system(&nested);
    let of = |name: &str| setting(&system, 0, name).deadline.span();
    assert_eq!([of("locate@plan:call"), of("locate@plan")], [ms(9); 2]);
    assert!(of("plan:call") < of("look@locate@plan") && of("look@locate@plan") < of("plan"), "{system:?}");
    let again = self::system(&write(&system_of(&divided)));
    assert_eq!(setting(&again, 0, "plan:call").deadline, first.deadline, "written and read again");
}

fn system_of(text: &str) -> System {
    system(text)
}

const TWO: &str = r#"
    name = "two"
    [host.drone]
    [host.station]
    [processor.airframe]
    host = "drone"
    [processor.ground]
    host = "station"
    [[link]]
    between = ["drone", "station"]
    delay   = ["1ms", "2ms"]

    [operation.sense]
    on    = "airframe"
    every = "50ms"
    wcet  = "1ms"

    [operation.plan]
    on       = "airframe"
    every    = "50ms"
    phase    = "7ms"
    jitter   = "1ms"
    deadline = "40ms"
    wcet     = "3ms"
    takes    = { uniform = ["2ms", "3ms"] }
    reads    = ["sense"]
    critical = true
    calls    = { method = "locate", after = "1ms" }

    [operation.note]
    on         = "airframe"
    after      = { all = ["sense"] }
    wcet       = "3ms"
    bcet       = "2ms"
    importance = 3
    calls      = { method = "locate", after = "1ms", oneway = true }

    [operation.steer]
    on    = "airframe"
    after = { all = ["plan"] }
    wcet  = "1ms"

    [operation.locate]
    on     = "ground"
    called = true
    wcet   = "4ms"

    [chain.act]
    path     = ["sense", "plan", "steer"]
    deadline = "200ms"
    [chain.reach]
    path     = ["plan", "locate"]
    deadline = "30ms"

    [[epoch]]
    at  = "1s"
    set = { "operation.plan.wcet" = "5ms", "operation.plan.takes" = "4ms", "operation.plan.rate" = "10Hz" }
    [[epoch]]
    at  = "2s"
    set = { "operation.plan.deadline" = "90ms", "operation.locate.wcet" = "6ms", "operation.locate@note.wcet" = "5ms" }
"#;

#[test]
fn a_call_is_a_chain_through_the_method_and_back() {
    let system = system(TWO);
    let names: Vec<_> = system.operations.iter().map(|operation| operation.name.as_str()).collect();
    let expected = ["sense", "plan:call", "locate@plan", "plan", "note:call", "locate@note", "note", "steer"];
    assert_eq!(names, expected);
    let trigger = |name: &str| system.operation(id(&system, name)).trigger.clone();
    let after = |name: &str| Trigger::All(vec![id(&system, name)]);
    assert_eq!(trigger("plan:call"), Trigger::Periodic);
    assert_eq!(trigger("locate@plan"), after("plan:call"));
    assert_eq!(trigger("plan"), after("locate@plan"));
    assert_eq!(trigger("steer"), after("plan"));
    assert_eq!((trigger("locate@note"), trigger("note")), (after("note:call"), after("note:call")));
    let of = |name: &str| system.operation(id(&system, name));
    assert_eq!(
        (of("plan:call").guard, of("locate@plan").guard, of("plan").guard),
        (Guard::Off, Guard::Idle, Guard::Idle)
    );
    assert!(of("locate@plan").critical && !of("locate@note").critical);
    assert_eq!((of("locate@plan").importance, of("locate@note").importance), (0, 3));
    assert_eq!((of("plan:call").reads.len(), of("plan").reads.len()), (1, 0));
    let path = |chain: usize| system.chains[chain].path.iter().map(|id| names[id.index()]).collect::<Vec<_>>();
    assert_eq!(path(0), ["sense", "plan:call", "locate@plan", "plan", "steer"]);
    assert_eq!(path(1), ["plan:call", "locate@plan"]);
}

#[test]
fn the_times_of_the_parts_are_those_of_the_whole_in_every_epoch() {
    let system = system(TWO);
    let times = |epoch, name| {
        let one = setting(&system, epoch, name);
        (one.wcet, one.bcet, one.execution_time.clone())
    };
    assert_eq!(times(0, "plan:call"), (ms(1), ms(1), ExecutionTime::Fixed(ms(1))));
    assert_eq!(times(0, "plan"), (ms(2), ms(1), ExecutionTime::Uniform(ms(1), ms(2))));
    assert_eq!(times(0, "note"), (ms(2), ms(1), ExecutionTime::Fixed(ms(2))));
    assert_eq!(times(1, "plan:call"), (ms(1), ms(1), ExecutionTime::Fixed(ms(1))));
    assert_eq!(times(1, "plan"), (ms(4), ms(3), ExecutionTime::Fixed(ms(3))));
    let periods = |name| [0, 1].map(|epoch| setting(&system, epoch, name).period);
    for name in ["plan:call", "locate@plan", "plan", "steer"] {
        assert_eq!(periods(name), [ms(50), ms(100)], "{name}");
    }
    let release = |name| (setting(&system, 0, name).phase, setting(&system, 0, name).jitter);
    assert_eq!((release("plan:call"), release("plan")), ((ms(7), ms(1)), (Span::ZERO, Span::ZERO)));
    let method = |name| [0, 1, 2].map(|epoch| setting(&system, epoch, name).wcet);
    assert_eq!((method("locate@plan"), method("locate@note")), ([ms(4), ms(4), ms(6)], [ms(4), ms(4), ms(5)]));
}

#[test]
fn the_callers_deadline_holds_for_its_end_and_for_the_method() {
    let system = system(TWO);
    let deadlines = |name| [0, 1, 2].map(|epoch| setting(&system, epoch, name).deadline);
    let from_origin = [40, 40, 90].map(|millis| Deadline::Origin(ms(millis)));
    assert_eq!(deadlines("plan:call"), [40, 40, 90].map(|millis| Deadline::Own(ms(millis))));
    assert_eq!((deadlines("locate@plan"), deadlines("plan")), (from_origin, from_origin));
    assert_eq!(deadlines("note"), [50; 3].map(|millis| Deadline::Origin(ms(millis))));
    // Operations that only follow the caller have the deadline of its chain or root: this file sets no chain of
    // triggers.
    assert_eq!(deadlines("steer"), from_origin);
}

#[test]
fn a_method_may_call_another_and_share_a_processor() {
    let system = system(
        "name = 'deep'\n[operation.plan]\nevery = '50ms'\nwcet = '3ms'\ncalls = { method = 'ask', after = '1ms' }\n\
         [operation.ask]\ncalled = true\nwcet = '2ms'\ncalls = { method = 'look', after = '0.5ms' }\n\
         [operation.look]\ncalled = true\nwcet = '4ms'\n[operation.act]\nafter = { all = ['look'] }\nwcet = '1ms'\n\
         [chain.all]\npath = ['plan', 'ask', 'look', 'act']\ndeadline = '45ms'\n\
         [chain.back]\npath = ['ask', 'plan']\nmax_age = '45ms'",
    );
    let names: Vec<_> = system.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["plan:call", "ask@plan:call", "look@ask@plan", "ask@plan", "plan", "act"]);
    let path = |chain: usize| system.chains[chain].path.iter().map(|id| names[id.index()]).collect::<Vec<_>>();
    assert_eq!(path(0), ["plan:call", "ask@plan:call", "look@ask@plan", "act"]);
    assert_eq!(path(1), ["ask@plan:call", "look@ask@plan", "ask@plan", "plan"]);
    for name in &names[1..5] {
        assert_eq!(setting(&system, 0, name).deadline, Deadline::Origin(ms(50)), "{name}");
    }
}

#[test]
fn the_chain_that_a_call_is_can_be_written_and_read_again() {
    let first = system(TWO);
    let written = write(&first);
    assert!(written.contains("deadline = { end_to_end = \"40ms\" }"), "{written}");
    assert_eq!(system(&written), first, "{written}");
}

#[test]
fn an_object_serves_the_instances_of_a_method_and_its_system_survives_writing() {
    let text = "name = 'x'
        [processor.a]
        [processor.b]
        [processor.c]
        [operation.plan]
        on = 'a'
        every = '50ms'
        wcet = '3ms'
        calls = { method = 'locate', after = '1ms' }
        [operation.steer]
        on = 'c'
        every = '20ms'
        wcet = '3ms'
        calls = { method = 'locate', after = '1ms' }
        [operation.locate]
        on = 'b'
        called = true
        wcet = '2ms'
        calls = { method = 'look', after = '1ms' }
        [operation.look]
        on = 'c'
        called = true
        wcet = '1ms'
        [operation.reset]
        on = 'b'
        called = true
        wcet = '1ms'
        deadline = '10ms'
        [object.map]
        operation = 'reset'
        methods = { locate = 'locate' }
        endpoints = ['tcp/127.0.0.1:7001']";
    let system = read(text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let id = |name: &str| system.operation_ids().find(|id| system.operation(*id).name == name).unwrap();
    let [map] = &system.objects[..] else { panic!("{:?}", system.objects) };
    assert_eq!(map.serving("locate"), [id("locate@plan"), id("locate@steer")]);
    assert_eq!(map.serving("other"), [id("reset")]);
    let call = |name| system.call_after(id(name)).map(|parts| (parts.method, parts.rest));
    assert_eq!(call("plan:call"), Some((id("locate@plan:call"), id("plan"))));
    assert_eq!(call("locate@plan:call"), Some((id("look@locate@plan"), id("locate@plan"))));
    assert_eq!(call("plan"), None);
    let again = read(&hyoshi_model::write(&system), "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert_eq!(again.objects, system.objects);
    let here = text.replace("[operation.look]\n        on = 'c'", "[operation.look]\n        on = 'b'");
    let here = format!("{here}\n[object.eye]\noperation = 'look'\nendpoints = ['tcp/127.0.0.1:7002']");
    let errors = read(&here, "x.toml", None).unwrap_err().to_string();
    assert!(errors.contains("its caller is on the same processor"), "{errors}");
}
