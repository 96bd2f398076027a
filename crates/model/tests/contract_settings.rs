//! Settings with one value that regions of contracts set.

use hyoshi_model::{ContractAction, ContractSetting, OperationId, ProcessorId, read};

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
