//! Rates of releases, and the load that they cause on a processor.

use hyoshi_model::{DesignGains, OperationId, ProcessorId, Span, at_level, read};

#[test]
fn a_merge_is_released_as_often_as_all_its_triggers_together_and_a_join_as_the_slowest() {
    let text = "name = 'rates'
        [operation.a]
        rate = '100Hz'
        wcet = '1ms'
        [operation.b]
        rate = '50Hz'
        wcet = '1ms'
        [operation.merge]
        after = { any = ['a', 'b'] }
        wcet = '2ms'
        [operation.join]
        after = { all = ['a', 'b'] }
        wcet = '2ms'
        [operation.behind]
        after = { all = ['merge'] }
        wcet = '1ms'
        [operation.off]
        rate = '1kHz'
        wcet = '1ms'
        enabled = false
        [operation.after-off]
        after = { all = ['off'] }
        wcet = '1ms'";
    let system = read(text, "rates.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let rates: Vec<u64> = system.release_rates(0).into_iter().map(|rate| rate / 1_000_000_000).collect();
    assert_eq!(rates, [100, 50, 150, 50, 150, 0, 0]);
    // 100 + 50 + 300 + 100 + 150 ms a second.
    assert_eq!(system.utilisation_ppm(0, ProcessorId(0)), 700_000);
}

#[test]
fn a_loop_with_one_design_gain_has_the_default_of_the_other() {
    let loop_with = |gains: &str| {
        let text = format!(
            "name = 'gains'\n[processor.p]\n[operation.a]\nrate = ['1Hz', '10Hz']\nwcet = '10ms'\n\
             [feedback.p]\nalgorithm = 'FC-U'\nutilisation = '50%'\n{gains}"
        );
        let system = read(&text, "gains.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        system.feedback[0].gains
    };
    let default = loop_with("");
    assert_eq!(loop_with("gains = { ga = 1.2 }"), DesignGains { ga: 1.2, ..default });
    assert_eq!(loop_with("gains = { gm = 0.2 }"), DesignGains { gm: 0.2, ..default });
}

#[test]
fn the_least_load_is_that_of_the_lowest_levels_and_rates() {
    let text = "name = 'levels'
        [feedback.main]
        algorithm = 'FC-U'
        utilisation = '70%'
        divide = 'value'
        [processor.main]
        [operation.a]
        rate = '10Hz'
        levels = [{ name = 'b', wcet = '40ms', value = 2 }, { name = 'a', wcet = '10ms', value = 1 }]
        takes = { uniform = ['20ms', '40ms'] }
        [operation.b]
        rate = ['5Hz', '10Hz']
        levels = [{ name = 'a', wcet = '20ms', value = 1 }, { name = 'b', wcet = '30ms', value = 1 }]
        wcet = '30ms'
        [operation.c]
        after = { all = ['b'] }
        wcet = '10ms'";
    let system = read(text, "levels.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    assert_eq!(system.utilisation_ppm(0, ProcessorId(0)), 800_000);
    // 10 x 10 ms, 5 x 20 ms, 5 x 10 ms.
    assert_eq!(system.least_load_ppm(0, ProcessorId(0)), 250_000);
    let first = &system.operations[0];
    assert_eq!(first.levels.iter().map(|level| &*level.name).collect::<Vec<_>>(), ["a", "b"]);
    // The largest level has the declared worst case, and the lowest the best case of the drawn times.
    let setting = &system.epochs[0].settings[0];
    assert_eq!([setting.wcet, setting.bcet], [Span::from_millis(40), Span::from_millis(5)]);
    assert_eq!(at_level(&first.levels, 0, Span::from_millis(20)), Span::from_millis(5));
    // It is written with its levels.
    let written = hyoshi_model::write(&system);
    assert_eq!(read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system, system);
}

#[test]
fn an_operation_with_several_processors_has_one_operation_on_each() {
    let text = "name = 'moves'
        [processor.front]
        [processor.rear]
        [feedback.front]
        algorithm = 'FC-U'
        utilisation = '70%'
        start = 'highest'
        [feedback.rear]
        algorithm = 'FC-U'
        utilisation = '70%'
        start = 'highest'
        [operation.track]
        on = ['front', 'rear']
        rate = ['1Hz', '10Hz']
        wcet = '10ms'
        phase = '3ms'
        [operation.plan]
        on = 'rear'
        rate = ['1Hz', '10Hz']
        wcet = '10ms'
        [[epoch]]
        at = '1s'
        set = { 'operation.track.wcet' = '20ms' }";
    let system = read(text, "moves.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
    let names: Vec<_> = system.operations.iter().map(|one| (&*one.name, one.on.0, one.home)).collect();
    let home = OperationId(0);
    assert_eq!(names, [("track", 0, None), ("track@rear", 1, Some(home)), ("plan", 1, None)]);
    assert_eq!(system.movable(), [[home, OperationId(1)]]);
    // The settings are the same in each epoch. The least load includes the operation only where it starts.
    for epoch in &system.epochs {
        assert_eq!(epoch.settings[0], epoch.settings[1]);
    }
    assert_eq!(
        [0, 1].map(|epoch| [0, 1].map(|at| system.least_load_ppm(epoch, ProcessorId(at)))),
        [[10_000; 2], [20_000, 10_000]]
    );
    // It will begin at the lowest rate there.
    let start = |id| system.feedback[1].start_of(&system, OperationId(id));
    assert_eq!([1, 2].map(start), [Span::from_secs(1), Span::from_millis(100)]);
    let written = hyoshi_model::write(&system);
    assert!(written.contains("on = [\"front\", \"rear\"]"), "{written}");
    assert_eq!(read(&written, "written.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system, system);
}
