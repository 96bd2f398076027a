//! Settings with one value that regions of contracts set.

use hyoshi_model::{ContractAction, ContractSetting, OperationId, ProcessorId, ReadContext, read, read_with};

const SYSTEM: &str = "name = 'settings'
    [processor.main]
    strategy = ['RMS', 'RMS+MLF']
    [processor.second]
    [processor.third]
    [processor.fourth]
    [feedback.main]
    algorithm = 'FC-UM'
    utilisation = '70%'
    miss_ratio = '2%'
    [feedback.second]
    algorithm = 'FC-U'
    utilisation = '70%'
    [feedback.third]
    algorithm = 'DEUCON'
    utilisation = '70%'
    [operation.track]
    on = 'main'
    rate = ['5Hz', '50Hz']
    wcet = '4ms'
    [operation.draw]
    on = 'second'
    rate = ['5Hz', '50Hz']
    wcet = '4ms'
    [operation.plot]
    on = 'third'
    rate = ['5Hz', '50Hz']
    wcet = '4ms'
    [condition.mode]
    [contract.mode]
    watch = { mode = { of = 'condition.mode' } }
    [[contract.mode.region]]
    name = 'on'
    enter = 'mode > 1'
    do = [{ set = 'feedback.main.utilisation', to = '60.5%' }, { set = 'feedback.main.miss_ratio', to = '1%' },
          { set = 'processor.main.strategy', to = 'rms+mlf' }, { set = 'operation.draw.importance', to = 5 }]
    [[contract.mode.region]]
    name = 'off'";

#[test]
fn settings_are_read_as_written_and_written_as_read() {
    let system = read(SYSTEM, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let main = ProcessorId(0);
    let expected = [
        (ContractSetting::Utilisation(main), 605_000, "feedback.main.utilisation = 60.5%"),
        (ContractSetting::MissRatio(main), 10_000, "feedback.main.miss_ratio = 1%"),
        (ContractSetting::Strategy(main), 1, "processor.main.strategy = RMS+MLF"),
        (ContractSetting::Importance(OperationId(1)), 5, "operation.draw.importance = 5"),
    ];
    let one = &system.contracts[0];
    assert_eq!(one.regions[0].actions, expected.map(|(setting, to, _)| ContractAction::Set { setting, to }));
    for (setting, to, text) in expected {
        assert_eq!(format!("{} = {}", setting.address(&system), setting.text(&system, to)), text);
    }
    // The processor of its first action evaluates it, and sends its regions to the other one.
    assert_eq!(one.processor, main);
    let to: Vec<_> = system.contract_routes().iter().map(|route| route.to).collect();
    assert_eq!(to, [ProcessorId(1)]);
    assert_eq!(system.contracts_on(ProcessorId(1)), [0]);
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let set_point = "'feedback.main.utilisation', to = '60.5%'";
    let strategy = "'processor.main.strategy', to = 'rms+mlf'";
    for (from, to, error) in [
        (set_point, "'feedback.main.utilisation', to = '0%'", "`utilisation` must be above 0% and at most 100%"),
        (set_point, "'feedback.main.utilisation', to = 5", "`to`"),
        (set_point, "'feedback.main.utilisation', most = '60%'", "`most` cannot limit this setting"),
        (set_point, "'feedback.main.period', to = '1s'", "a contract cannot set `feedback.main.period`"),
        (set_point, "'feedback.fourth.utilisation', to = '50%'", "there is no feedback `fourth`"),
        (set_point, "'feedback.second.miss_ratio', to = '5%'", "FC-U does not control `miss_ratio`"),
        (set_point, "'feedback.third.utilisation', to = '5%'", "`third` is in a group, which has its set points"),
        (set_point, "'feedback.main.miss_ratio', to = '5%'", "the region sets `miss_ratio` of this loop twice"),
        (strategy, "'processor.main.strategy', to = 'EDF'", "`EDF` is not a strategy of `main`"),
        (strategy, "'processor.main.strategy', to = 1", "`to`"),
        (strategy, "'processor.second.strategy', to = 'RMS'", "`second` has one strategy"),
        (strategy, "'processor.many.strategy', to = 'RMS'", "there is no processor `many`"),
        (strategy, "'operation.draw.importance', to = 6", "the region sets `importance` of this operation twice"),
        (strategy, "'operation.track.importance', to = -1", "`to`"),
        (strategy, "'operation.track.importance'", "has no `to`"),
    ] {
        let errors = read(&SYSTEM.replacen(from, to, 1), "x.toml", None).expect_err(to).to_string();
        assert!(errors.contains(error), "{to}: {errors}");
    }
}

const MODES: &str = "name = 'modes'
    [processor.main]
    [operation.track]
    rate = ['5Hz', '50Hz']
    wcet = '4ms'
    [operation.log]
    every = '20ms'
    wcet = '2ms'
    [condition.battery]
    [mode.frugal]
    do = [{ set = 'operation.track.rate', most = '10Hz' }, { set = 'operation.log.enabled', to = false }]
    [contract.power]
    watch = { battery = { of = 'condition.battery' } }
    [[contract.power.region]]
    name = 'low'
    enter = 'battery < 20'
    do = [{ report = 'low' }, { mode = 'frugal' }]
    [[contract.power.region]]
    name = 'normal'
    [contract.other]
    precedence = 1
    [[contract.other.region]]
    name = 'only'
    do = [{ mode = 'frugal' }]";

#[test]
fn a_mode_stands_for_all_of_its_actions() {
    let system = read(MODES, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let actions = "{ set = 'operation.track.rate', most = '10Hz' }, { set = 'operation.log.enabled', to = false }";
    let (before, after) = MODES.split_once("[contract.power]").unwrap();
    let (before, _) = before.split_once("[mode.frugal]").unwrap();
    let written_out = format!("{before}[contract.power]{}", after.replace("{ mode = 'frugal' }", actions));
    let expected = read(&written_out, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert_eq!(system, expected);
    assert_eq!(system.contracts[0].regions[0].actions.len(), 3);
}

#[test]
fn a_mode_that_no_region_uses_is_reported() {
    let unused = MODES.replace("{ mode = 'frugal' }", "{ report = 'x' }");
    let read = read(&unused, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}"));
    let warnings: Vec<_> = read.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|text| text.contains("no region uses mode `frugal`")), "{warnings:?}");
}

#[test]
fn modes_that_cannot_be_are_refused_once_where_they_are_declared() {
    let limit = "{ set = 'operation.track.rate', most = '10Hz' }";
    let used = "{ report = 'low' }, { mode = 'frugal' }";
    let many = format!("[{}]", "{ report = 'x' }, ".repeat(300));
    for (from, to, error) in [
        (limit, "{ set = 'operation.trak.rate', most = '10Hz' }", "there is no operation `trak`"),
        (limit, "{ mode = 'frugal' }", "a mode cannot use another one"),
        (limit, "{ set = 'operation.log.enabled', to = false }", "the region sets `enabled` of this operation twice"),
        (used, "{ mode = 'frugl' }", "there is no mode `frugl`"),
        (used, "{ mode = 'frugal', report = 'x' }", "`mode` must be the only key of its action"),
        (used, "{ mode = 5 }", "`mode`"),
        (
            used,
            "{ set = 'operation.log.enabled', to = false }, { mode = 'frugal' }",
            "`enabled` of this operation twice",
        ),
        ("[{ report = 'low' }, { mode = 'frugal' }]", &many, "`do` has more than 256 actions"),
        ("do = [{ set = 'operation.track.rate'", "# do = [{", "mode `frugal` has no action"),
    ] {
        let errors = read(&MODES.replacen(from, to, 1), "x.toml", None).expect_err(to).to_string();
        assert!(errors.contains(error), "{to}: {errors}");
        assert_eq!(errors.matches("error:").count(), 1, "{to}: {errors}");
    }
}

#[test]
fn a_qosket_uses_a_mode_of_the_system() {
    let (text, _) = MODES.split_once("[contract.other]").unwrap();
    let text = format!("{text}\n    [qosket.mine]\n    use = 'mine.toml'\n    with = {{ mode = 'frugal' }}");
    let qosket = "qosket = { name = 'mine', about = 'x' }\n[parameter.mode]\nabout = 'x'\n\
                  [contract]\nprecedence = 1\n[[contract.region]]\nname = 'only'\ndo = [{ mode = '${mode}' }]";
    let context = || ReadContext { files: vec![("mine.toml".into(), qosket.into())], ..ReadContext::default() };
    let system = read_with(&text, "x.toml", None, &context()).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert_eq!(system.contracts[1].regions[0].actions, system.contracts[0].regions[0].actions[1..]);
    let errors = read_with(&text.replace("mode = 'frugal' }", "mode = 'x' }"), "x.toml", None, &context());
    assert!(errors.unwrap_err().to_string().contains("there is no mode `x`"));
}

#[test]
fn only_operations_on_standby_are_admitted() {
    let text = SYSTEM
        .replace("[operation.draw]", "[operation.draw]\n    standby = true")
        .replace("{ set = 'operation.draw.importance', to = 5 }]", "{ admit = 'draw' }]");
    let text = text.replace("name = 'off'", "name = 'off'\n    do = [{ withdraw = 'draw' }]");
    let system = read(&text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let admission = |admit| ContractAction::Admission { operation: OperationId(1), admit };
    let one = &system.contracts[0];
    assert_eq!((&one.regions[0].actions[3], &one.regions[1].actions[0]), (&admission(true), &admission(false)));
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
    for (to, error) in [
        ("{ admit = 'track' }", "`track` is not on standby"),
        ("{ admit = 'drew' }", "there is no operation `drew`"),
        ("{ admit = 'draw' }, { withdraw = 'draw' }", "the region sets the admission of this operation twice"),
        ("{ admit = 'draw', to = false }", "`admit` must be the only key of its action"),
    ] {
        let errors = read(&text.replacen("{ admit = 'draw' }", to, 1), "x.toml", None).expect_err(to).to_string();
        assert!(errors.contains(error), "{to}: {errors}");
    }
}

#[test]
fn a_greatest_service_level_is_one_of_the_operation() {
    let levels = "levels = [{ name = 'coarse', wcet = '2ms', value = 3 }, { name = 'half', wcet = '6ms', value = 7 },
        { name = 'full', wcet = '12ms', value = 10 }]";
    let text = SYSTEM
        .replace(
            "[operation.draw]\n    on = 'second'\n    rate = ['5Hz', '50Hz']\n    wcet = '4ms'",
            &format!("[operation.draw]\n    on = 'second'\n    rate = ['5Hz', '50Hz']\n    {levels}"),
        )
        .replace("[feedback.second]", "[feedback.second]\n    divide = 'value'")
        .replace("{ set = 'operation.draw.importance', to = 5 }", "{ set = 'operation.draw.level', most = 'half' }");
    let system = read(&text, "x.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let limit = ContractAction::LimitLevel { operation: OperationId(1), most: 1 };
    assert_eq!(system.contracts[0].regions[0].actions[3], limit);
    let written = hyoshi_model::write(&system);
    let again = read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{written}")).system;
    assert_eq!(again, system);
    for (to, error) in [
        ("'operation.draw.level', most = 'full'", "`full` is the greatest level of `draw`"),
        ("'operation.draw.level', most = 'fine'", "`draw` has no level `fine`"),
        ("'operation.draw.level', most = 2", "`most`"),
        ("'operation.draw.level', least = 'half'", "`least` cannot limit a level"),
        ("'operation.track.level', most = 'half'", "`track` has no service levels"),
    ] {
        let text = text.replacen("'operation.draw.level', most = 'half'", to, 1);
        let errors = read(&text, "x.toml", None).expect_err(to).to_string();
        assert!(errors.contains(error), "{to}: {errors}");
    }
}
