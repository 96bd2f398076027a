//! Conditions and actions of contracts outside of the dispatcher.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use hyoshi::{Node, Plan, Strategies, read};
use serde_json::Value;

use crate::broker::as_nobody;
use crate::common::broker::{Broker, Program};
use crate::common::running::{Running, start, until};
use crate::common::{Ended, Place, alone};

/// A contract that `hyoshi contract set battery` moves between two regions.
fn file(actions: &str) -> String {
    format!(
        "name = 'outside'\nduration = '60s'\n[operation.track]\nevery = '20ms'\nwcet = '0.1ms'\n\
         [condition.battery]\nvalue = 80\n[contract.power]\nperiod = '20ms'\n\
         watch = {{ battery = {{ of = 'condition.battery' }} }}\n\
         [[contract.power.region]]\nname = 'saving'\nenter = 'battery < 20'\ndo = [{actions}]\n\
         [[contract.power.region]]\nname = 'normal'\n"
    )
}

fn contract(place: &Place, words: &str) -> Ended {
    place.hyoshi(&format!("contract {words} --at unix:{}/run.sock", place.path().display()))
}

/// The contract, once `holds` is true of it.
fn until_contract(place: &Place, run: &mut Running, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until(what, || {
        run.goes_on();
        let listed = contract(place, "list --format json");
        (listed.code == 0).then(|| listed.json()["contracts"][0].clone()).filter(|contract| holds(contract))
    })
}

fn begin(place: &Place, more: &str) -> Running {
    let control = format!("--control {}/run.sock", place.path().display());
    start(place, &format!("run system.toml {control} --record run.hyo --no-report --format json {more}"))
}

fn end(place: &Place, run: Running) -> Value {
    place.hyoshi(&format!("node stop --at unix:{}/run.sock", place.path().display())).exits(0);
    run.end("run").json()
}

fn notes(report: &Value) -> Vec<String> {
    let of = |note: &Value| note["text"].as_str().unwrap_or_default().to_owned();
    report["notes"].as_array().unwrap().iter().filter(|note| note["topic"] == "contracts").map(of).collect()
}

#[test]
fn a_command_runs_when_its_region_begins_and_only_with_permission() {
    let _alone = alone();
    let place = Place::new();
    let touched = place.path().join("saving");
    let touch = format!("echo $HYOSHI_CONTRACT.$HYOSHI_REGION >> {}", touched.display());
    place.write("system.toml", file(&format!("{{ run = ['sh', '-c', '{touch}'] }}, {{ run = ['false'] }}")));
    let refused = place.hyoshi("run system.toml --no-report").exits(2);
    assert!(refused.err.contains("region `power.saving` has the action `run sh -c"), "{}", refused.err);
    assert!(refused.err.contains("start the run with --commands"), "{}", refused.err);
    assert!(!touched.exists());

    let mut run = begin(&place, "--commands");
    let is_in = |region: &'static str| move |contract: &Value| contract["regions"][0] == region;
    until_contract(&place, &mut run, "normal", is_in("normal"));
    for (value, region) in [(10, "saving"), (80, "normal"), (10, "saving")] {
        contract(&place, &format!("set battery {value}")).exits(0);
        until_contract(&place, &mut run, region, is_in(region));
    }
    until("two commands", || {
        run.goes_on();
        let text = std::fs::read_to_string(&touched).unwrap_or_default();
        (text == "power.saving\npower.saving\n").then_some(())
    });
    let failed = |contract: &Value| contract["actions"][1]["failed"] == 2;
    let listed = until_contract(&place, &mut run, "two failures", failed);
    assert_eq!((&listed["actions"][0]["done"], &listed["actions"][0]["failed"]), (&2.into(), &0.into()), "{listed}");
    assert_eq!(listed["actions"][1]["last"], "it ended with exit status: 1");
    let report = end(&place, run);
    let notes = notes(&report);
    assert!(
        notes.iter().any(|note| note.contains("region `saving`: run sh") && note.ends_with("done 2 times")),
        "{notes:?}"
    );
    let failure = "region `saving`: run false: failed 2 times: it ended with exit status: 1";
    assert!(notes.iter().any(|note| note.contains(failure)), "{notes:?}");

    // Replays and simulations list the action, and do not execute it.
    std::fs::remove_file(&touched).unwrap();
    place.hyoshi("trace replay run.hyo").exits(0);
    let repeated = place.hyoshi("sim --from run.hyo --format json").json();
    let change = &repeated["contracts"][0]["changes"][1];
    assert_eq!((&change["to"], &change["reports"][1]), (&"saving".into(), &"run false".into()), "{repeated}");
    assert!(!touched.exists());
}

#[test]
fn a_callback_gets_each_change_in_order() {
    let _alone = alone();
    let text = file("{ call = 'regions' }").replace("name = 'normal'", "name = 'normal'\ndo = [{ call = 'regions' }]");
    let system = Arc::new(read(&text, "system.toml", None).unwrap().system);
    let plan = Arc::new(Plan::new(&system, &Strategies::built_in()).unwrap());
    let (sender, receiver) = channel();
    let node = Node::new(system.clone(), plan.clone()).on_region("regions", move |event| {
        let previous = event.previous.map(str::to_owned);
        let _ = sender.send((event.contract.to_owned(), previous, event.region.to_owned(), event.at));
    });
    let prepared = node.prepare().unwrap();
    let contracts = prepared.handles().contracts;
    let running = prepared.start();
    let next = || receiver.recv_timeout(Duration::from_secs(60)).unwrap();
    let mut last = next();
    assert_eq!((&last.0[..], &last.1, &last.2[..]), ("power", &None, "normal"));
    for _ in 0..10 {
        for (value, from, to) in [(10.0, "normal", "saving"), (80.0, "saving", "normal")] {
            contracts.set("battery", value).unwrap();
            let changed = next();
            assert_eq!((changed.1.as_deref(), &changed.2[..]), (Some(from), to));
            assert!(changed.3 > last.3, "{changed:?} {last:?}");
            last = changed;
        }
    }
    // The last one is counted after the callback has returned.
    until("21 calls", || {
        let counts: Vec<_> = contracts.actions().iter().map(|one| (one.done, one.failed)).collect();
        (counts == [(10, 0), (11, 0)]).then_some(())
    });
    running.stop(&mut |_, _, _| ());

    // Without the callback, or with one that no region calls, the run does not start.
    let missing = Node::new(system.clone(), plan.clone()).start().err().unwrap();
    assert_eq!(missing.to_string(), "region `power.saving` calls `regions`, but the program has no such callback");
    let uncalled = Node::new(system, plan).on_region("region", |_| ()).start().err().unwrap();
    assert_eq!(uncalled.to_string(), "a callback `region` is set, but no region calls it");
}

#[test]
fn a_region_changes_the_settings_of_a_program_at_the_broker_and_its_end_restores_them() {
    let _alone = alone();
    let place = Place::new();
    let _broker = Broker::start(&place, "--scheduler simulated");
    let socket = format!("--socket {}", place.path().join("run/broker.sock").display());
    let program = "[reservation.player]\nprogram = ['sleep', '600']\nperiod = '20ms'\nbudget = '5ms'\nleast = '1ms'\n\
                   advocate = [{ rate = '25%' }, { cap = '25%' }]\nimportance = 2\n";
    let settings = "{ set = 'reservation.player.importance', to = 9 }, { set = 'reservation.player.weight', to = 3 }, \
                    { set = 'reservation.player.least', to = '0.5ms' }, { set = 'reservation.player.cap', to = '10%' }";
    let text = file(settings);
    let text = text.replace(
        "battery = {",
        "asked = { of = 'host.station.broker.asked' }, granted = { of = 'reservation.player.granted' }, \
                                            used = { of = 'reservation.player.usage' }, battery = {",
    );
    let host = "[host.station]\n[processor.main]\nhost = 'station'\n";
    place.write("system.toml", format!("{text}{program}{host}"));
    let mut run = begin(&place, &socket);
    let until_importance = |run: &mut Running, importance: u64| {
        until(&format!("an importance of {importance}"), || {
            run.goes_on();
            let listed = place.hyoshi(&format!("broker list --format json {socket}")).exits(0).json();
            let task = listed["tasks"].as_array().unwrap().iter().find(|task| task["name"] == "player").cloned();
            // The settings are made in their order: the last one is the cap, of 20 ms.
            let (weight, cap) = if importance == 9 { (3, 2_000_000) } else { (1, 5_000_000) };
            task.filter(|task| {
                let asked = &task["requested"]["budget_ns"];
                (&task["importance"], &task["weight"], asked) == (&importance.into(), &weight.into(), &cap.into())
            })
        })
    };
    until_importance(&mut run, 2);
    // Operators can call later than the program starts.
    until_contract(&place, &mut run, "normal", |contract| contract["regions"][0] == "normal");
    contract(&place, "set battery 10").exits(0);
    until_importance(&mut run, 9);
    contract(&place, "set battery 80").exits(0);
    until_importance(&mut run, 2);
    let done = |contract: &Value| (0..4).all(|action| contract["actions"][action]["done"] == 1);
    until_contract(&place, &mut run, "four settings", done);
    // What cannot succeed is requested once.
    place.hyoshi(&format!("broker advocate remove player 1 {socket}")).exits(0);
    contract(&place, "set battery 10").exits(0);
    let refused = |contract: &Value| contract["actions"][0]["done"] == 2 && contract["actions"][3]["failed"] == 1;
    let listed = until_contract(&place, &mut run, "a refused cap", refused);
    assert!(listed["actions"][3]["last"].as_str().unwrap().contains("`player` has no advocate `cap`"), "{listed}");
    contract(&place, "set battery 80").exits(0);
    let restored = |contract: &Value| contract["regions"][0] == "normal";
    until_contract(&place, &mut run, "the end of the region", restored);
    place.hyoshi(&format!("broker {socket} advocate add player cap 25%")).exits(0);
    until_importance(&mut run, 2);
    let asked = |contract: &Value| contract["conditions"][0]["value"].as_f64().is_some_and(|asked| asked > 0.0);
    until_contract(&place, &mut run, "the load of the broker", asked);
    // At most 5 ms in 20 ms; `sleep` uses next to nothing.
    let part = |contract: &Value, place: usize| contract["conditions"][place]["value"].as_f64();
    let granted = |contract: &Value| part(contract, 1).is_some_and(|granted| granted > 0.0 && granted <= 0.25);
    until_contract(&place, &mut run, "the grant", granted);
    let used = |contract: &Value| part(contract, 2).is_some_and(|used| (0.0..0.1).contains(&used));
    until_contract(&place, &mut run, "the usage", used);
    // Without a task of that name the broker refuses.
    place.hyoshi(&format!("broker detach player {socket}")).exits(0);
    contract(&place, "set battery 10").exits(0);
    let failed = |contract: &Value| contract["actions"][0]["failed"] == 1;
    let listed = until_contract(&place, &mut run, "a refusal", failed);
    assert!(listed["actions"][0]["last"].as_str().unwrap().contains("player"), "{listed}");
    let report = end(&place, run);
    let notes = notes(&report);
    assert!(
        notes.iter().any(|note| note.contains("reservation.player.importance = 9: failed 1 of 3 times")),
        "{notes:?}"
    );
}

/// Root may set every task, but a contract names those of its own run.
#[test]
fn a_task_of_another_user_with_the_name_of_a_reservation_is_neither_watched_nor_set() {
    let _alone = alone();
    let place = Place::new();
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _broker = Broker::start(&place, "--scheduler simulated");
    let socket = format!("--socket {}", place.path().join("run/broker.sock").display());
    let program = "[reservation.player]\nprogram = ['sleep', '600']\nperiod = '20ms'\nbudget = '5ms'\n";
    let text = file("{ set = 'reservation.player.importance', to = 9 }");
    let text = text.replace(
        "battery = {",
        "granted = { of = 'reservation.player.granted', over = '3s', max_age = '3s' }, battery = {",
    );
    place.write("system.toml", format!("{text}{program}"));
    let mut run = begin(&place, &socket);
    let granted = |contract: &Value| contract["conditions"][0]["value"].is_number();
    until_contract(&place, &mut run, "the grant of the own task", granted);
    place.hyoshi(&format!("broker detach player {socket}")).exits(0);
    let words = format!("exec {socket} --name player --period 50ms -- sleep 600");
    let Some(mut other) = as_nobody(&place, &words) else { return };
    let _other = Program::start(&mut other);
    let task = || {
        let listed = place.hyoshi(&format!("broker list --format json {socket}")).exits(0).json();
        let all = listed["tasks"].as_array().unwrap();
        all.iter().find(|task| task["name"] == "player").cloned()
    };
    let importance = until("the task of another user", task)["importance"].clone();
    until_contract(&place, &mut run, "a stale grant", |contract| !granted(contract));
    contract(&place, "set battery 10").exits(0);
    let listed = until_contract(&place, &mut run, "a refusal", |contract| contract["actions"][0]["failed"] == 1);
    let last = listed["actions"][0]["last"].as_str().unwrap();
    assert!(last.contains("task `player` belongs to nobody") && last.contains("rename the reservation"), "{last}");
    assert_eq!(task().unwrap()["importance"], importance);
    until_contract(&place, &mut run, "a grant that is still stale", |contract| !granted(contract));
    end(&place, run);
}

#[test]
fn epochs_set_measured_conditions_in_a_simulation_and_operators_cannot() {
    let _alone = alone();
    let place = Place::new();
    let text = file("{ report = 'hot' }").replace("condition.battery' }", "host.local.cpu' }");
    let text = text.replace("battery < 20", "battery > 0.9").replace("[condition.battery]\nvalue = 80\n", "");
    let hosts = "[host.local]\n[processor.main]\nhost = 'local'\n";
    let epochs =
        "[[epoch]]\nat = '10s'\nset = { 'host.local.cpu' = 0.95 }\n[[epoch]]\nat = '20s'\nset.host.local.cpu = 0.5\n";
    place.write("simulated.toml", format!("{text}{hosts}{epochs}"));
    let simulated = place.hyoshi("sim simulated.toml --format json").json();
    let changes = simulated["contracts"][0]["changes"].as_array().unwrap().iter();
    let of =
        |change: &Value| (change["at_ns"].as_u64().unwrap() / 1_000_000, change["to"].as_str().unwrap().to_owned());
    let expected = [(0, "normal"), (10_000, "saving"), (20_000, "normal")].map(|(at, to)| (at, to.to_owned()));
    assert_eq!(changes.map(of).collect::<Vec<_>>(), expected);

    place.write("system.toml", format!("{text}{hosts}"));
    let mut run = begin(&place, "");
    let measured = |contract: &Value| contract["conditions"][0]["value"].is_number();
    until_contract(&place, &mut run, "a utilisation", measured);
    let refused = contract(&place, "set host.local.cpu 1").exits(2);
    assert!(refused.err.contains("cannot set condition `host.local.cpu`: it is measured"), "{}", refused.err);
    end(&place, run);
    place.hyoshi("trace replay run.hyo").exits(0);
}

/// `film` does not fit in the set point.
const LANDING: &str = "name = 'landing'\nduration = '60s'\n[processor.main]\nstrategy = ['RMS', 'RMS+MLF']\n\
    [feedback.main]\nalgorithm = 'FC-U'\nutilisation = '60%'\nperiod = '100ms'\nmeasure = 'lanes'\n\
    [operation.track]\nrate = ['5Hz', '50Hz']\nwcet = '0.1ms'\n\
    [operation.zoom]\nstandby = true\nrate = ['20Hz', '50Hz']\nwcet = '0.1ms'\n\
    [operation.film]\nstandby = true\nrate = ['40Hz', '50Hz']\nwcet = '20ms'\n\
    [condition.height]\nvalue = 90\n\
    [mode.landing]\ndo = [{ admit = 'zoom' }, { admit = 'film' }, { set = 'operation.zoom.importance', to = 3 },\n\
    { set = 'feedback.main.utilisation', to = '50%' }, { set = 'processor.main.strategy', to = 'RMS+MLF' }]\n\
    [contract.flight]\nperiod = '20ms'\nwatch = { height = { of = 'condition.height' } }\n\
    [[contract.flight.region]]\nname = 'landing'\nenter = 'height < 30'\ndo = [{ mode = 'landing' }]\n\
    [[contract.flight.region]]\nname = 'cruise'\ndo = [{ withdraw = 'zoom' }]\n";

#[test]
fn a_mode_admits_an_operation_with_a_listed_outcome_and_pins_a_strategy() {
    let _alone = alone();
    let place = Place::new();
    place.write("system.toml", LANDING);
    let refused = place.hyoshi("sim system.toml --strategy EDF").exits(2);
    assert!(refused.err.contains("contract `flight` needs two"), "{}", refused.err);
    let mut run = begin(&place, "");
    until_contract(&place, &mut run, "cruise", |contract| contract["regions"][0] == "cruise");
    contract(&place, "set height 10").exits(0);
    let action = |contract: &Value, name: &str| -> Value {
        let all = contract["actions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|action| action["action"] == name).unwrap_or_default()
    };
    let is_landing = |contract: &Value| action(contract, "admit film")["failed"] == 1;
    let listed = until_contract(&place, &mut run, "the refusal of `film`", is_landing);
    let (zoom, film) = (action(&listed, "admit zoom"), action(&listed, "admit film"));
    assert_eq!(
        (&zoom["region"], &zoom["done"], &zoom["last"]),
        (&"landing".into(), &1.into(), &Value::Null),
        "{listed}"
    );
    assert!(film["last"].as_str().unwrap().contains("above the loop's limit of 47"), "{film}");
    let text = contract(&place, "list").exits(0).out;
    assert!(text.contains("admit zoom: done"), "{text}");
    contract(&place, "set height 90").exits(0);
    // It had nothing to withdraw at the begin of the run.
    let is_cruise = |contract: &Value| action(contract, "withdraw zoom")["done"] == 2;
    until_contract(&place, &mut run, "the withdrawal of `zoom`", is_cruise);
    end(&place, run);

    place.hyoshi("trace replay run.hyo").exits(0);
    let repeated = place.hyoshi("sim --from run.hyo --format json").json();
    let change = &repeated["contracts"][0]["changes"][1];
    assert_eq!((&change["to"], &change["reports"][0]), (&"landing".into(), &"admit zoom".into()), "{repeated}");
    let summary = place.hyoshi("trace summary run.hyo --format json").json();
    let zoom = summary["operations"].as_array().unwrap().iter().find(|one| one["name"] == "zoom").unwrap();
    assert!(zoom["counts"]["released"].as_u64().is_some_and(|jobs| jobs > 0), "{zoom}");
}
