//! Periods that nobody told.

use super::*;

fn found(place: &Place, name: &str, period: u64) -> Value {
    let near = |found: u64| found.abs_diff(period) * 50 <= period;
    task(place, name, |task| {
        task["period_detection"]["confidence_percent"].as_u64() > Some(0)
            && task["period_ns"].as_u64().is_some_and(near)
    })
}

fn hourglass(command: &mut Command, period: &str) -> Program {
    // So little work that it is done before the next period also where others use the CPU: else it does not sleep.
    let command = command.args(["hourglass", "--period", period, "--work", "100us"]);
    Program::start(command.stdin(Stdio::null()).stdout(Stdio::null()))
}

#[test]
fn the_period_of_a_program_is_found_within_two_percent_and_told() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let _ten = hourglass(exec(&place, "--name ten --period auto").arg(env!("CARGO_BIN_EXE_hyoshi")), "10ms");
    let other = hourglass(&mut Command::new(env!("CARGO_BIN_EXE_hyoshi")), "33ms");
    ask(&place, &format!("attach {} --name other --period auto", other.0.id())).exits(0);
    found(&place, "ten", 10_000_000);
    let printed = found(&place, "other", 33_000_000);
    assert!(
        printed["period_detection"]["wakeups"].as_u64() >= Some(12)
            && printed["requested"]["period_ns"] == printed["period_ns"],
        "{printed}"
    );
    for verb in ["show", "explain"] {
        let said = ask(&place, &format!("broker {verb} other")).exits(0).out;
        assert!(said.contains(" % confidence from ") && said.contains("; unchanged for "), "{said}");
    }

    // Told, it is what it was told; not any more, it is found again.
    ask(&place, "broker set ten period 40ms").exits(0);
    let printed = task(&place, "ten", |_| true);
    assert_eq!((&printed["period_ns"], &printed["period_detection"]), (&40_000_000.into(), &Value::Null));
    ask(&place, "broker set ten period auto").exits(0);
    found(&place, "ten", 10_000_000);
}

#[test]
fn what_has_no_period_is_metered_in_a_provisional_one_and_that_is_said() {
    let place = Place::new();
    let _broker = Broker::start(&place, "");
    let sleeper = Program::start(Command::new("sleep").arg("1000"));
    let attach = format!("attach {} --name a --period auto", sleeper.0.id());
    for (more, what) in [("--deadline 5ms", "deadline"), ("--budget 5ms", "budget"), ("--least 5ms", "minimum budget")]
    {
        let refused = ask(&place, &format!("{attach} {more}")).exits(1).err;
        assert!(refused.contains(&format!("a {what} needs a known period")), "{refused}");
    }
    assert!(ask(&place, &attach.replace("auto", "0ms")).exits(1).err.contains("period must not be zero"));
    assert!(ask(&place, &attach.replace("auto", "always")).exits(2).err.contains("is not a time"));
    ask(&place, &attach).exits(0);
    let a = task(&place, "a", |task| reports(task) > 2);
    assert_eq!((&a["period_ns"], &a["period_detection"]["confidence_percent"]), (&100_000_000.into(), &0.into()));
    assert!(ask(&place, "broker show a").exits(0).out.contains("not detected in 0 wake-ups"));
}
