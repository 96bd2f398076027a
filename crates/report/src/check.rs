//! What `check` proved, as tables and as JSON.
//!
//! Regions and changes between them are many and mostly alike, so the tables show each operation
//! and chain once, where it fares worst; JSON has every scene.

use std::collections::BTreeSet;

use crossterm::style::Color;
use hyoshi_model::System;
use hyoshi_sched::analysis::{
    ChainReport, Counted, OperationReport, Outcome, Report, Requirement, SceneReport, Verdict,
};
use serde::Serialize;

use crate::figures::{nanos, percent, printable, signed};
use crate::names::{label, template};
use crate::summary::{Head, SCHEMA};
use crate::terminal::grid::{Tone, Value, column, grid};
use crate::terminal::{Look, MOST_ROWS};

/// What was checked, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Checked<'a> {
    /// The command line.
    pub command: &'a str,
    /// The system.
    pub system: &'a System,
    /// What the analysis says of it.
    pub report: &'a Report,
}

/// The JSON form: the analysis's own report, with a head.
#[derive(Serialize)]
struct Json<'a> {
    hyoshi: Head,
    holds: bool,
    verdict: String,
    #[serde(flatten)]
    report: &'a Report,
}

/// Something that was judged, where it fares worst.
struct Worst<'a, T> {
    scene: &'a SceneReport,
    judged: &'a T,
    instances: BTreeSet<&'a str>,
}

/// What operations and chains have in common.
trait Judged {
    fn verdict(&self) -> &Verdict;
    fn slack_ns(&self) -> Option<i64>;

    /// Greater is worse: what fails, then what is not proved, then what has the least slack.
    fn badness(&self) -> (u8, i64) {
        let rank = match self.verdict() {
            Verdict::Fails { .. } => 2,
            Verdict::Unknown { .. } => 1,
            Verdict::Proved => 0,
        };
        (rank, self.slack_ns().map_or(i64::MAX, i64::saturating_neg))
    }
}

impl Judged for OperationReport {
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
    fn slack_ns(&self) -> Option<i64> {
        self.slack_ns
    }
}

impl Judged for ChainReport {
    fn verdict(&self) -> &Verdict {
        &self.verdict
    }
    fn slack_ns(&self) -> Option<i64> {
        self.slack_ns
    }
}

impl Checked<'_> {
    /// The check for other programs; `docs/json.md` tells every field.
    pub fn json(&self) -> String {
        let json = Json {
            hyoshi: Head {
                schema: SCHEMA,
                version: env!("CARGO_PKG_VERSION"),
                verb: "check".into(),
                command: self.command.into(),
                started_unix_ns: None,
            },
            holds: self.report.outcome == Outcome::Holds,
            verdict: self.sentence(),
            report: self.report,
        };
        // As of a run: nothing in it can fail to be written.
        let mut text = serde_json::to_string_pretty(&json).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The check for a terminal.
    pub fn terminal(&self, look: Look) -> String {
        let colour = match self.report.outcome {
            Outcome::Holds => Color::Green,
            Outcome::DoesNotHold => Color::Red,
            Outcome::Unknown => Color::Yellow,
        };
        let about = format!("check: {} operations", self.system.operations.len());
        let mut text = format!("{}  {}\n\n", look.bold(&printable(&self.report.system)), look.quiet(&about));
        text.push_str(&format!("  {}\n", look.toned(&printable(&self.sentence()), colour)));
        let mut section = |title: &str, body: Option<String>| {
            if let Some(body) = body {
                text.push_str(&format!("\n{}\n{body}", look.bold(title)));
            }
        };
        section("Operations, where they fare worst", Some(self.operation_table(look)));
        section("Chains, where they fare worst", self.chain_table(look));
        section("Processors", Some(self.processor_table(look)));
        section("This rests on", Some(self.assumptions()));
        section("Analyses", Some(self.methods()));
        text
    }

    /// The outcome, and the first thing that decided it.
    pub fn sentence(&self) -> String {
        let everything = self.report.counted == Counted::Everything;
        let what = if everything { "operation" } else { "critical operation and chain" };
        let (word, decides): (_, fn(&Verdict) -> bool) = match self.report.outcome {
            Outcome::Holds => {
                return format!("Holds: every {what} is proved, in every region and change between them.");
            }
            Outcome::DoesNotHold => ("Does not hold", Verdict::fails),
            Outcome::Unknown => ("Unknown", |verdict| !verdict.is_proved()),
        };
        let operations = self.report.operations().filter(|(_, _, operation)| everything || operation.critical);
        let operations = operations.map(|(scene, _, operation)| (scene, &operation.name, &operation.verdict));
        let chains = self.report.scenes.iter().flat_map(|scene| scene.chains.iter().map(move |chain| (scene, chain)));
        let chains = chains.map(|(scene, chain)| (scene, &chain.name, &chain.verdict));
        match operations.chain(chains).find(|(_, _, verdict)| decides(verdict)) {
            Some((scene, name, verdict)) => {
                let why = reason(verdict).unwrap_or_default();
                let place =
                    if self.report.scenes.len() > 1 { format!(" in {}", scene_name(scene)) } else { String::new() };
                format!("{word}: {name}{place}: {why}.")
            }
            None => format!("{word}."),
        }
    }

    fn operation_table(&self, look: Look) -> String {
        let columns = [
            column("operation"),
            column("class").spare(4),
            column("level").spare(8),
            column("worst case").spare(7),
            column("period").spare(6),
            column("deadline").spare(2),
            column("bound"),
            column("slack"),
            column("verdict"),
            column("region").if_any().spare(3),
            column("because").if_any(),
        ];
        let all = self.report.operations().map(|(scene, _, operation)| (scene, operation));
        let key = |operation: &OperationReport| (template(&operation.name).to_string(), operation.critical);
        let mut worst = worst(all, key, |operation| operation.name.as_str());
        if worst.len() > MOST_ROWS {
            worst.sort_by_key(|worst| core::cmp::Reverse(worst.judged.badness()));
        }
        let regions = self.report.scenes.len() > 1;
        let rows = worst.iter().map(|worst| {
            let operation = worst.judged;
            let name = if worst.instances.len() > 1 { template(&operation.name) } else { &operation.name };
            vec![
                Value::words(label(name, worst.instances.len())),
                Value::words(if operation.critical { "critical" } else { "" }),
                Value::figure(operation.level.to_string()),
                Value::figure(nanos(operation.wcet_ns)),
                Value::figure(nanos(operation.period_ns)),
                Value::figure(nanos(operation.deadline_ns)),
                Value::figure(operation.bound_ns.map_or(String::new(), nanos)),
                slack(operation.slack_ns, operation.critical),
                Value::words(operation.verdict.word()),
                Value::words(place(worst.scene, &operation.verdict, regions)),
                Value::words(reason(&operation.verdict).unwrap_or_default()),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn chain_table(&self, look: Look) -> Option<String> {
        let columns = [
            column("chain"),
            column("demand"),
            column("limit"),
            column("bound"),
            column("slack"),
            column("verdict"),
            column("region").if_any().spare(1),
            column("because").if_any(),
        ];
        let scenes = self.report.scenes.iter();
        let all = scenes.flat_map(|scene| scene.chains.iter().map(move |chain| (scene, chain)));
        let key = |chain: &ChainReport| (chain.name.clone(), demand(chain.requirement));
        let worst = worst(all, key, |chain| chain.name.as_str());
        let regions = self.report.scenes.len() > 1;
        let rows: Vec<_> = worst
            .iter()
            .map(|worst| {
                let chain = worst.judged;
                vec![
                    Value::words(&chain.name),
                    Value::words(demand(chain.requirement)),
                    Value::figure(nanos(chain.limit_ns)),
                    Value::figure(chain.bound_ns.map_or(String::new(), nanos)),
                    slack(chain.slack_ns, true),
                    Value::words(chain.verdict.word()),
                    Value::words(place(worst.scene, &chain.verdict, regions)),
                    Value::words(reason(&chain.verdict).unwrap_or_default()),
                ]
            })
            .collect();
        (!rows.is_empty()).then(|| grid(look, &columns, &rows, MOST_ROWS))
    }

    fn processor_table(&self, look: Look) -> String {
        let columns = [
            column("processor"),
            column("region").if_any(),
            column("strategy").spare(3),
            column("utilisation"),
            column("critical").spare(2),
            column("verdict"),
            column("first").if_any(),
            column("because").if_any().spare(1),
        ];
        let regions = self.report.scenes.len() > 1;
        let scenes = self.report.scenes.iter();
        let rows = scenes.flat_map(|scene| scene.processors.iter().map(move |processor| (scene, processor)));
        let rows = rows.map(|(scene, processor)| {
            let over = |ppm: u64| if ppm > 1_000_000 { Tone::Worry } else { Tone::Plain };
            let (all, critical) = (processor.utilisation_ppm, processor.critical_utilisation_ppm);
            vec![
                Value::words(&processor.name),
                Value::words(if regions { scene_name(scene) } else { String::new() }),
                Value::words(&processor.strategy),
                Value::Figure(percent(all), over(all)),
                Value::Figure(percent(critical), over(critical)),
                Value::words(processor.verdict.word()),
                Value::words(processor.first.as_deref().unwrap_or_default()),
                Value::words(reason(&processor.verdict).unwrap_or_default()),
            ]
        });
        grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS)
    }

    fn assumptions(&self) -> String {
        let all = self.report.scenes.iter().flat_map(|scene| &scene.processors);
        let all: BTreeSet<_> = all.flat_map(|processor| &processor.assumptions).collect();
        all.iter().map(|assumption| format!("  {assumption}\n")).collect()
    }

    fn methods(&self) -> String {
        let named = self.report.methods.iter().filter(|method| !method.source.is_empty());
        named.map(|method| format!("  {}\n    {}\n", method.name, method.source)).collect()
    }
}

/// Each group's worst member, in the order of first appearance.
fn worst<'a, T: Judged, K: Ord>(
    all: impl Iterator<Item = (&'a SceneReport, &'a T)>,
    key: impl Fn(&T) -> K,
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<Worst<'a, T>> {
    let mut groups: Vec<Worst<'a, T>> = Vec::new();
    let mut place = std::collections::BTreeMap::new();
    for (scene, judged) in all {
        let place = *place.entry(key(judged)).or_insert_with(|| {
            groups.push(Worst { scene, judged, instances: BTreeSet::new() });
            groups.len() - 1
        });
        let group = &mut groups[place];
        group.instances.insert(name(judged));
        if judged.badness() > group.judged.badness() {
            (group.scene, group.judged) = (scene, judged);
        }
    }
    groups
}

fn slack(slack_ns: Option<i64>, counts: bool) -> Value {
    let tone = match slack_ns {
        Some(..0) if counts => Tone::Bad,
        Some(..0) => Tone::Worry,
        _ => Tone::Plain,
    };
    Value::Figure(slack_ns.map_or(String::new(), signed), tone)
}

fn reason(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Proved => None,
        Verdict::Fails { why } => Some(why.to_string()),
        Verdict::Unknown { missing } => Some(missing.to_string()),
    }
}

fn scene_name(scene: &SceneReport) -> String {
    if scene.change { format!("{} ending", scene.name) } else { scene.name.clone() }
}

/// The region, where there is more than one and it matters.
fn place(scene: &SceneReport, verdict: &Verdict, regions: bool) -> String {
    if regions && !verdict.is_proved() { scene_name(scene) } else { String::new() }
}

fn demand(requirement: Requirement) -> &'static str {
    match requirement {
        Requirement::Deadline => "deadline",
        Requirement::MaxAge => "max_age",
        Requirement::MaxReaction => "max_reaction",
    }
}
