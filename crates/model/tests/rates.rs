//! Rates of releases, and the load that they cause on a processor.

use hyoshi_model::{DesignGains, ProcessorId, read};

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
