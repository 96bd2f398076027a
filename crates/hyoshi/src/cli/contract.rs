//! `hyoshi contract`: lists the contracts of a running system, and sets their conditions and regions.

use std::time::Duration;

use clap::{Args, Subcommand};
use hyoshi_model::{QosketParameter, Span, printable_lines, shipped_qoskets};
use hyoshi_node::NodeClient;
use hyoshi_node::idl::hyoshi_node::{
    ActionStanding, ConditionStanding, ContractRefused, ContractStanding, ContractTextError, ForceRegionError,
    SetConditionError,
};
use hyoshi_report::figures::{nanos, value};
use hyoshi_report::terminal::grid::{CellValue, Column, column};
use serde_json::{Value as Json, json};

use super::answer::{OutputTable, OutputText, VerbOutput};
use super::load::span;
use super::node::{NodeAddress, failed, find};
use super::{CliError, Format, VerbOutcome, streams};

#[derive(Debug, Args)]
#[command(after_help = "While a system with a [contract.NAME] runs, in another terminal:\n  \
                  hyoshi contract list\n  \
                  hyoshi contract show load\n  \
                  hyoshi contract set battery 15\n  \
                  hyoshi contract force load thin --for 30s\n  \
                  hyoshi contract release load")]
pub(super) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    node: NodeAddress,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the contracts of a node: active regions, and the values of conditions
    List,
    /// Print the values of a contract's conditions, its active regions, and its declaration
    Show {
        /// The contract
        contract: String,
    },
    /// Print the active regions whenever they change, until Ctrl-C
    Watch,
    /// Set a condition that the file declares as [condition.NAME]
    Set {
        /// The condition
        condition: String,
        /// Its value: a number from -1e9 to 1e9
        #[arg(allow_hyphen_values = true)]
        value: f64,
    },
    /// Set a region; conditions do not change it until its end
    Force {
        /// The contract
        contract: String,
        /// The region
        region: String,
        /// How long the region is set, such as 30s; default: until `release`
        #[arg(long = "for", value_name = "SPAN", value_parser = span)]
        lasting: Option<Span>,
    },
    /// List the shipped qoskets with their parameters, or print the file of one
    Qoskets {
        /// Print the file of this qosket
        name: Option<String>,
    },
    /// Let conditions decide again, and open the latches of active regions
    Release {
        /// The contract
        contract: String,
    },
}

impl Arguments {
    /// The name of the verb.
    pub fn name(&self) -> &'static str {
        match self.verb {
            Verb::List => "contract list",
            Verb::Show { .. } => "contract show",
            Verb::Watch => "contract watch",
            Verb::Set { .. } => "contract set",
            Verb::Force { .. } => "contract force",
            Verb::Qoskets { .. } => "contract qoskets",
            Verb::Release { .. } => "contract release",
        }
    }
}

const CONTRACTS: [Column; 6] = [
    column("contract"),
    column("region"),
    column("forced").if_any(),
    column("evaluated by").if_any(),
    column("conditions").spare(1),
    column("actions").if_any(),
];

/// Between two looks of `watch`.
const LOOK: Duration = Duration::from_millis(100);

pub(super) fn contract(arguments: &Arguments, format: Format) -> Result<VerbOutcome, CliError> {
    if let Verb::Qoskets { name } = &arguments.verb {
        return qoskets(name.as_deref())?.print(arguments.name(), format);
    }
    let (client, at) = find(&arguments.node)?;
    let lines = |text: String, json: Json| VerbOutput { text: OutputText::Lines(text), json };
    let output = match &arguments.verb {
        Verb::List => list(&states(&client, &at)?),
        Verb::Qoskets { name } => qoskets(name.as_deref())?,
        Verb::Show { contract } => show(&client, &at, contract)?,
        Verb::Watch => return watch(&client, &at, format),
        Verb::Set { condition, value } => {
            client.set_condition(condition, *value).map_err(|error| match error {
                SetConditionError::ContractRefused(why) => refused(&why),
                SetConditionError::System(raised) => failed(&at, raised),
            })?;
            lines(format!("{condition} is {value}\n"), json!({ "condition": condition, "value": value }))
        }
        Verb::Force { contract, region, lasting } => {
            force(&client, &at, contract, Some((region.as_str(), *lasting)))?;
            let end = match lasting {
                Some(lasting) => format!("for {lasting}, or "),
                None => String::new(),
            };
            let text = format!(
                "contract `{contract}` is set to region `{region}` {end}until `hyoshi contract release {contract}`\n"
            );
            let lasting = lasting.map(Span::as_nanos);
            lines(text, json!({ "contract": contract, "region": region, "lasting_ns": lasting }))
        }
        Verb::Release { contract } => {
            force(&client, &at, contract, None)?;
            let json = json!({ "contract": contract, "region": null });
            lines(format!("conditions decide on the regions of {contract}\n"), json)
        }
    };
    output.print(arguments.name(), format)
}

const QOSKETS: [Column; 4] =
    [column("qosket"), column("parameter"), column("default").if_any(), column("meaning").spare(1)];

/// The shipped qoskets, or the file of one.
fn qoskets(name: Option<&str>) -> Result<VerbOutput, CliError> {
    let shipped = shipped_qoskets();
    if let Some(name) = name {
        let found = shipped.iter().find(|one| one.name == name).ok_or_else(|| {
            let known: Vec<_> = shipped.iter().map(|one| one.name).collect();
            CliError::new(format!("unknown qosket `{name}`")).help(format!("known: {}", known.join(", ")))
        })?;
        let json = json!({ "qosket": found.name, "text": found.text });
        return Ok(VerbOutput { text: OutputText::Styled(found.text.to_owned()), json });
    }
    let mut rows = Vec::new();
    for one in &shipped {
        rows.push([one.name, "", "", &one.about].map(CellValue::words).into());
        for parameter in &one.parameters {
            let default = parameter.default.as_deref().unwrap_or("required");
            let meaning =
                if parameter.list { format!("{} (one or a list)", parameter.about) } else { parameter.about.clone() };
            rows.push(vec![
                CellValue::words(""),
                CellValue::words(&parameter.name),
                CellValue::words(default),
                CellValue::words(meaning),
            ]);
        }
    }
    let parameter = |one: &QosketParameter| json!({ "parameter": one.name, "about": one.about, "default": one.default, "list": one.list });
    let json = shipped.iter().map(|one| {
        let parameters: Vec<_> = one.parameters.iter().map(parameter).collect();
        json!({ "qosket": one.name, "about": one.about, "parameters": parameters })
    });
    let json: Vec<_> = json.collect();
    let table = OutputTable { columns: &QOSKETS, rows, empty: "" };
    Ok(VerbOutput { text: OutputText::Table(table), json: json!({ "qoskets": json }) })
}

fn states(client: &NodeClient, at: &str) -> Result<Vec<ContractStanding>, CliError> {
    client.contracts().map_err(|raised| failed(at, raised))
}

fn force(client: &NodeClient, at: &str, contract: &str, region: Option<(&str, Option<Span>)>) -> Result<(), CliError> {
    client.force_region(contract, region.map(|one| one.0), region.and_then(|one| one.1)).map_err(|error| match error {
        ForceRegionError::ContractRefused(why) => refused(&why),
        ForceRegionError::System(raised) => failed(at, raised),
    })
}

fn refused(refused: &ContractRefused) -> CliError {
    CliError::new(&refused.why).help(&refused.remedy)
}

fn list(states: &[ContractStanding]) -> VerbOutput {
    let row = |one: &ContractStanding| {
        vec![
            CellValue::words(&one.contract),
            CellValue::words(one.regions.join(", ")),
            CellValue::words(forced(one)),
            CellValue::words(&one.evaluated_by),
            CellValue::words(conditions(one)),
            CellValue::words(actions(one).collect::<Vec<_>>().join("; ")),
        ]
    };
    let rows = states.iter().map(row).collect();
    let empty = "no contracts; declare one as [contract.NAME] in the system file\n";
    let json = states.iter().map(contract_json).collect::<Vec<_>>();
    VerbOutput {
        text: OutputText::Table(OutputTable { columns: &CONTRACTS, rows, empty }),
        json: json!({ "contracts": json }),
    }
}

/// `thin, 12.3s left`.
fn forced(one: &ContractStanding) -> String {
    format!("{}{}", one.forced, left(one))
}

/// `, 12.3s left`.
fn left(one: &ContractStanding) -> String {
    let ends = one.forced_ends && !one.forced.is_empty();
    if ends { format!(", {} left", nanos(one.forced_left)) } else { String::new() }
}

/// One contract: its state, and its declaration.
fn show(client: &NodeClient, at: &str, contract: &str) -> Result<VerbOutput, CliError> {
    let declaration = client.contract_text(contract).map_err(|error| match error {
        ContractTextError::ContractRefused(why) => refused(&why),
        ContractTextError::System(raised) => failed(at, raised),
    })?;
    let states = states(client, at)?;
    let Some(state) = states.iter().find(|one| one.contract == contract) else {
        return Err(CliError::new(format!("the node at {at} does not use contract `{contract}`"))
            .help("ask the node of another host, with --at"));
    };
    let active = match (state.regions.is_empty(), state.forced.is_empty()) {
        (true, _) => "no region is active".to_owned(),
        (false, true) => format!("active: {}", state.regions.join(", ")),
        (false, false) => format!("active: {}, set by a command{}", state.regions.join(", "), left(state)),
    };
    let mut text = format!("{active}\n");
    let evaluated = (!state.evaluated_by.is_empty()).then(|| format!("evaluated by: host {}", state.evaluated_by));
    let values = (!state.conditions.is_empty()).then(|| format!("conditions: {}", conditions(state)));
    let actions = actions(state).map(|action| format!("action: {action}"));
    evaluated.into_iter().chain(values).chain(actions).for_each(|line| text += &(line + "\n"));
    let mut json = contract_json(state);
    json["declaration"] = declaration.clone().into();
    Ok(VerbOutput { text: OutputText::Lines(format!("{text}\n{declaration}")), json })
}

fn conditions(one: &ContractStanding) -> String {
    let state = |one: &ConditionStanding| match one.stale {
        true => format!("{} stale", one.name),
        false => format!("{} {}", one.name, value(one.value)),
    };
    one.conditions.iter().map(state).collect::<Vec<_>>().join(", ")
}

/// The results of actions outside of the dispatcher.
fn actions(one: &ContractStanding) -> impl Iterator<Item = String> {
    one.actions.iter().map(|one| match one.last.is_empty() {
        true => format!("{}: done", one.action),
        false => format!("{}: {}", one.action, one.last),
    })
}

fn contract_json(one: &ContractStanding) -> Json {
    let condition =
        |one: &ConditionStanding| json!({ "condition": one.name, "value": (!one.stale).then_some(one.value) });
    let action = |one: &ActionStanding| {
        json!({
            "region": one.region, "action": one.action, "done": one.done, "failed": one.failed,
            "last": (!one.last.is_empty()).then_some(&one.last),
        })
    };
    json!({
        "contract": one.contract, "regions": one.regions,
        "forced": (!one.forced.is_empty()).then_some(&one.forced),
        "forced_left_ns": one.forced_ends.then_some(one.forced_left),
        "evaluated_by": (!one.evaluated_by.is_empty()).then_some(&one.evaluated_by),
        "conditions": one.conditions.iter().map(condition).collect::<Vec<_>>(),
        "actions": one.actions.iter().map(action).collect::<Vec<_>>(),
    })
}

/// Prints each contract at first, after each change of its regions, and after each failed action. It ends with the
/// node.
fn watch(client: &NodeClient, at: &str, format: Format) -> Result<VerbOutcome, CliError> {
    let mut before: Vec<(Vec<String>, u64)> = Vec::new();
    loop {
        let states = states(client, at)?;
        let failed = |one: &ContractStanding| one.actions.iter().map(|action| action.failed).sum();
        let seen: Vec<_> = states.iter().map(|one| (one.regions.clone(), failed(one))).collect();
        for (place, one) in states.iter().enumerate() {
            if before.get(place) == seen.get(place) {
                continue;
            }
            match format {
                Format::Json => streams::out(format_args!("{}\n", contract_json(one)))?,
                Format::Text => {
                    let actions: String = actions(one).map(|action| format!("; {action}")).collect();
                    let by = if one.forced.is_empty() { "" } else { ", by command" };
                    let regions = one.regions.join(", ");
                    let line = format!("{}: {regions}{by} ({}){actions}\n", one.contract, conditions(one));
                    streams::out(printable_lines(&line))?;
                }
            }
        }
        before = seen;
        std::thread::sleep(LOOK);
    }
}
