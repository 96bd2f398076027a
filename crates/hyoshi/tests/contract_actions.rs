//! Conditions and actions of contracts outside of the dispatcher.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use hyoshi::{Node, Plan, Strategies, read};
use serde_json::Value;

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
    let failure = "region `saving`: run false: failed 2 of 2 times: it ended with exit status: 1";
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
    let outcomes = contracts.actions();
    assert_eq!(outcomes.iter().map(|one| (one.done, one.failed)).collect::<Vec<_>>(), [(10, 0), (11, 0)]);
    running.stop(&mut |_, _, _| ());

    // Without the callback, or with one that no region calls, the run does not start.
    let missing = Node::new(system.clone(), plan.clone()).start().err().unwrap();
    assert_eq!(missing.to_string(), "region `power.saving` calls `regions`, but the program has no such callback");
    let uncalled = Node::new(system, plan).on_region("region", |_| ()).start().err().unwrap();
    assert_eq!(uncalled.to_string(), "a callback `region` is set, but no region calls it");
}
