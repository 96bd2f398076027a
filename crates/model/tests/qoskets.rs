//! Qoskets: contracts from files with parameters.

use proptest::prelude::*;

use hyoshi_model::{ContractAction, OperationId, ReadContext, Span, Stay, read, read_with, shipped_qoskets, write};

const SYSTEM: &str = "name = 'qoskets'
    [processor.main]
    [feedback.main]
    algorithm = 'FC-U'
    utilisation = '70%'
    [operation.track]
    rate = ['1Hz', '50Hz']
    wcet = '4ms'
    [operation.scan]
    rate = ['1Hz', '50Hz']
    wcet = '1ms'
    [operation.show]
    every = '50ms'
    wcet = '10ms'
    [operation.log]
    every = '50ms'
    wcet = '1ms'
    ";

fn system(rest: &str) -> hyoshi_model::System {
    read(&format!("{SYSTEM}{rest}"), "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system
}

#[test]
fn a_shipped_qosket_becomes_a_contract_under_its_name_in_the_system() {
    let used = system(
        "[qosket.slow_down]
        use = 'degrade-rate'
        with = { watched = 'operation.show', limited = ['track', 'scan'], most = '10Hz', stay = '3s', precedence = 4 }",
    );
    let one = &used.contracts[0];
    assert_eq!((one.name.as_str(), one.precedence), ("slow_down", 4));
    assert_eq!(
        one.regions[0].rules.stay,
        Stay { first: Span::from_secs(3), grow: 2, most: Span::from_secs(60), settling: Span::from_secs(200) }
    );
    let shortest = Span::from_millis(100);
    let longest = Span::from_nanos(u64::MAX);
    let limit = |operation| ContractAction::LimitPeriod { operation: OperationId(operation), shortest, longest };
    assert_eq!(one.regions[0].actions[..2], [limit(0), limit(1)]);
    let ContractAction::Report { text } = &one.regions[0].actions[2] else { panic!("a report") };
    assert_eq!(&**text, "deadlines are missed: rates are limited to 10Hz");
    // Written out, it is a plain contract.
    assert_eq!(read(&write(&used), "y.toml", None).unwrap().system, used);
}

/// With the values that have no default.
const ALL: &str = "
    [qosket.a]
    use = 'degrade-rate'
    with = { watched = ['operation.show', 'operation.log'], limited = 'track', most = '10Hz' }
    [qosket.b]
    use = 'protect-cpu'
    with = { watched = 'processor.main.utilisation', above = 0.9, below = 0.6, disabled = ['log'] }
    [qosket.c]
    use = 'shed-on-overload'
    with = { watched = 'operation.show', disabled = ['log', 'scan'], precedence = 1 }
    [qosket.d]
    use = 'steady-latency'
    with = { watched = 'operation.show', bound = '20ms', limited = ['track', 'scan'], first = '20Hz', second = '5Hz',
        precedence = 2 }";

#[test]
fn every_shipped_qosket_can_be_used_and_describes_all_its_parameters() {
    let used = system(ALL);
    assert_eq!(used.contracts.iter().map(|one| one.regions.len()).collect::<Vec<_>>(), [2, 2, 2, 3]);
    let shipped = shipped_qoskets();
    assert_eq!(shipped.len(), used.contracts.len());
    for one in shipped {
        assert!(one.text.contains(&format!("name  = \"{}\"", one.name)) && !one.about.is_empty());
        for parameter in &one.parameters {
            assert!(!parameter.about.is_empty(), "{}: {}", one.name, parameter.name);
            assert!(one.text.contains(&format!("${{{}}}", parameter.name)), "{}: {}", one.name, parameter.name);
        }
    }
}

/// Whatever the version of the shipped qosket, and without the file.
#[test]
fn a_recorded_text_replaces_the_qosket() {
    let text = format!("{SYSTEM}{ALL}");
    let loaded = read(&text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
    let names: Vec<_> = loaded.files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["degrade-rate", "protect-cpu", "shed-on-overload", "steady-latency"]);
    let files = loaded.files.into_iter().map(|(name, text)| (name, text.replace("grow = 2", "grow = 3"))).collect();
    let again = read_with(&text, "x.toml", None, &ReadContext { files, ..ReadContext::default() }).unwrap().system;
    assert!(again.contracts.iter().all(|one| one.regions[0].rules.stay.grow == 3));
    let own = format!("{SYSTEM}[qosket.mine]\nuse = 'mine.toml'");
    let files = vec![(
        "mine.toml".to_owned(),
        "qosket = { name = 'mine', about = 'x' }\n[[contract.region]]\nname = 'only'".to_owned(),
    )];
    let read =
        read_with(&own, "x.toml", None, &ReadContext { files: files.clone(), ..ReadContext::default() }).unwrap();
    assert_eq!((read.system.contracts[0].regions[0].name.as_str(), &read.files), ("only", &files));
}

#[test]
fn contracts_and_qoskets_keep_the_order_of_the_file() {
    let used = system(
        "[qosket.z]
        use = 'shed-on-overload'
        with = { watched = 'operation.show', disabled = 'log' }
        [contract.a]
        region = [{ name = 'only' }]",
    );
    assert_eq!(used.contracts.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["z", "a"]);
}

#[test]
fn what_a_qosket_expands_to_is_bounded() {
    let entries: String = (0..700).map(|_| "    { set = 'operation.${l}.enabled', to = false },\n").collect();
    let large = format!(
        "[qosket]\nname = 'large'\nabout = 'x'\n[parameter.l]\nabout = 'x'\nlist = true\n\
         [[contract.region]]\nname = 'only'\ndo = [\n{entries}]\n"
    );
    let values: Vec<String> = (0..64).map(|value| format!("'{value}{}'", "x".repeat(200))).collect();
    let text = format!("{SYSTEM}[qosket.q]\nuse = 'large.toml'\nwith = {{ l = [{}] }}", values.join(", "));
    let files = vec![("large.toml".to_owned(), large)];
    let errors = read_with(&text, "x.toml", None, &ReadContext { files, ..ReadContext::default() }).unwrap_err();
    assert!(errors.to_string().contains("the qosket is too large with these values"), "{errors}");
}

proptest! {
    /// Whatever a qosket file contains, the answer is a system or errors with places.
    #[test]
    fn any_change_of_a_qosket_is_answered(
        which in 0..4usize, from in 0..2_000usize, length in 0..40usize, put in "[\\PC\n${}\\[\\]\"=]{0,12}",
    ) {
        let shipped = shipped_qoskets();
        let one = &shipped[which];
        let edge = |at: usize| (0..=at.min(one.text.len())).rev().find(|at| one.text.is_char_boundary(*at)).unwrap_or(0);
        let changed = format!("{}{put}{}", &one.text[..edge(from)], &one.text[edge(from + length)..]);
        let files = vec![(one.name.to_owned(), changed)];
        let text = format!("{SYSTEM}{ALL}");
        if let Err(errors) = read_with(&text, "x.toml", None, &ReadContext { files, ..ReadContext::default() }) {
            prop_assert!(errors.errors.iter().all(|error| error.line > 0), "{errors}");
        }
    }

    /// A value is a value: it cannot add keys, regions or actions.
    #[test]
    fn a_value_changes_no_other_part_of_the_contract(value in "\\PC{0,40}") {
        let quoted: String = value.chars().map(|c| format!("\\U{:08X}", c as u32)).collect();
        let text = format!(
            "{SYSTEM}[qosket.q]\nuse = 'q.toml'\nwith = {{ v = \"{quoted}\" }}\n"
        );
        let own = "qosket = { name = 'q', about = 'x' }\nparameter.v.about = 'x'\n\
                   [[contract.region]]\nname = 'only'\ndo = [{ report = 'value ${v}' }]";
        let files = vec![("q.toml".to_owned(), own.to_owned())];
        match read_with(&text, "x.toml", None, &ReadContext { files, ..ReadContext::default() }) {
            Ok(read) => {
                let report = ContractAction::Report { text: format!("value {value}").into() };
                prop_assert_eq!(&read.system.contracts[0].regions[0].actions, &[report]);
            }
            Err(errors) => prop_assert!(value.contains("${"), "{errors}"),
        }
    }
}

#[test]
fn a_qosket_may_watch_what_a_host_measures() {
    let text = "name = 'hot'\n[host.drone]\n[processor.main]\nhost = 'drone'\n[operation.log]\nevery = '20ms'\nwcet = '1ms'\n\
        [qosket.cool]\nuse = 'protect-cpu'\n\
        with = { watched = 'host.drone.temperature', above = 80, below = 70, disabled = ['log'] }\n\
        [contract.listed]\nwatch = { heat = { of = ['host.drone.temperature'] } }\n\
        [[contract.listed.region]]\nname = 'any'\n";
    let system = read(text, "hot.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert_eq!(system.conditions.len(), 1, "{:?}", system.conditions);
    assert_eq!(system.contracts.len(), 2);
}
