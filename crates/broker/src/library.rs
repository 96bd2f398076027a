//! Advocates and policies from shared libraries. They answer at once; their answers undergo the same checks as those of
//! other processes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyoshi_control::policy::{AnyPolicy, ExternalPolicy};
use hyoshi_control::{Advice, Advocate, Ask, Grant, Status};
use hyoshi_model::{Reservation, Share, Span};
use hyoshi_os::plugin::{AdvocatePlugin, LoadError, NamedAsk, PolicyPlugin, abi};

use crate::component::ComponentSpec;
use crate::external::{ExternalEvents, OperatorNotice, advised};
use crate::foreign_policy::{ForeignPolicy, PolicySource};
use crate::idl::cpu_broker as wire;
use crate::request_error::RequestError;

impl From<LoadError> for RequestError {
    fn from(error: LoadError) -> Self {
        let remedy = error.remedy();
        RequestError::refused(error, remedy)
    }
}

/// The path of the library and its own parameters.
fn path(setting: &ComponentSpec) -> Result<(PathBuf, Vec<(String, String)>), RequestError> {
    // The path may be unnamed, unless a parameter is named `path`.
    let name = if setting.parameters.iter().any(|(name, _)| name == "path") { "path" } else { "" };
    let (paths, own): (Vec<_>, Vec<_>) = setting.parameters.iter().cloned().partition(|(given, _)| given == name);
    match paths.as_slice() {
        [(_, path)] => Ok((path.into(), own)),
        [] => Err(RequestError::refused("missing `path` of `library`", "use --path /DIR/NAME.so")),
        _ => Err(RequestError::refused("duplicate `path` of `library`", "use --path /DIR/NAME.so once")),
    }
}

/// An advocate of a task.
///
/// # Errors
///
/// If the specification names no library, or the library cannot be used.
pub(crate) fn advocate(
    setting: &ComponentSpec,
    name: &str,
    events: &Arc<ExternalEvents>,
) -> Result<Box<dyn Advocate>, RequestError> {
    let (path, own) = path(setting)?;
    let plugin = AdvocatePlugin::load(&path, name, &own)?;
    Ok(Box::new(AdvocateLibrary { plugin, task: name.to_owned(), events: events.clone(), failed: None }))
}

/// The policy of a specification; `fallback` decides while it fails.
///
/// # Errors
///
/// If the specification names no library, or the library cannot be used.
pub(crate) fn policy(
    setting: &ComponentSpec,
    fallback: AnyPolicy,
    events: &Arc<ExternalEvents>,
) -> Result<AnyPolicy, RequestError> {
    let (path, own) = path(setting)?;
    let plugin = PolicyPlugin::load(&path, &own)?;
    Ok(Box::new(ForeignPolicy::new(PolicyLibrary { plugin, events: events.clone() }, fallback)))
}

#[derive(Debug)]
struct AdvocateLibrary {
    plugin: AdvocatePlugin,
    task: String,
    events: Arc<ExternalEvents>,
    failed: Option<String>,
}

impl Advocate for AdvocateLibrary {
    fn name(&self) -> &'static str {
        "library"
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        let answered = self.plugin.advise(&to_abi(status), &reservation(asked));
        let answered = answered.map_err(|number| format!("it returned error {number}")).and_then(|answer| {
            let abi::PluginReservation { budget, period, deadline } = answer;
            advised(&wire::Reservation { budget, period, deadline }, asked)
        });
        match answered {
            Ok(answer) => {
                if self.failed.take().is_some() {
                    self.events.add_notice(OperatorNotice::of_advocate("library", &self.task, None));
                }
                answer.into()
            }
            Err(reason) => {
                if self.failed.is_none() {
                    self.events.add_notice(OperatorNotice::of_advocate("library", &self.task, Some(&reason)));
                }
                self.failed = Some(reason);
                asked.into()
            }
        }
    }

    fn granted(&mut self, grant: &Grant) {
        let held = grant.reservation.unwrap_or(grant.asked.with_budget(Span::ZERO));
        let budget = grant.reservation.map_or(0, |held| held.budget().as_nanos());
        self.plugin.granted(&reservation(grant.asked), &abi::PluginReservation { budget, ..reservation(held) });
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failed {
            Some(reason) => write!(f, "bypassed: {reason}"),
            None => f.write_str(&self.plugin.words().unwrap_or_else(|| "no description".to_owned())),
        }
    }
}

fn reservation(one: Reservation) -> abi::PluginReservation {
    let nanos = Span::as_nanos;
    abi::PluginReservation { budget: nanos(one.budget()), period: nanos(one.period()), deadline: nanos(one.deadline()) }
}

fn to_abi(status: &Status) -> abi::PluginStatus {
    let values = status.values.as_slice();
    let mut numbers = [0; 8];
    numbers[..values.len()].copy_from_slice(values);
    abi::PluginStatus {
        at: status.at.as_nanos(),
        consumed: status.consumed.as_nanos(),
        held: status.held.map_or(abi::PluginReservation::default(), reservation),
        mode: status.mode.map_or(-1, i64::from),
        cycles: status.cycles,
        count: values.len() as u32,
        numbers,
    }
}

#[derive(Debug)]
struct PolicyLibrary {
    plugin: PolicyPlugin,
    events: Arc<ExternalEvents>,
}

impl PolicySource for PolicyLibrary {
    const NAME: &'static str = "library";
    const LABEL: &'static str = "the library's policy";

    fn fetch(&mut self, foreign: &mut ExternalPolicy, asks: &[Ask], cap: Share) {
        let answered = {
            let names = self.events.names();
            let named = |ask: &Ask| NamedAsk {
                name: names.get(&ask.task).map_or(c"", |name| name.as_c_str()),
                asked: reservation(ask.asked),
                least: ask.least.as_millionths(),
                task: ask.task.0,
                importance: ask.importance,
                weight: ask.weight,
            };
            let named: Vec<NamedAsk<'_>> = asks.iter().map(named).collect();
            self.plugin.arbitrate(cap.as_millionths(), &named)
        };
        match answered {
            Ok(budgets) => {
                let budgets: Vec<Span> = budgets.into_iter().map(Span::from_nanos).collect();
                if foreign.why().is_some() {
                    self.events.add_notice(OperatorNotice::of_policy(Self::LABEL, None));
                }
                foreign.answered(asks, &budgets);
            }
            Err(number) => {
                let reason = format!("it returned error {number}");
                if foreign.why().is_none() {
                    self.events.add_notice(OperatorNotice::of_policy(Self::LABEL, Some(&reason)));
                }
                foreign.failed(reason);
            }
        }
    }

    fn description(&self) -> Option<String> {
        self.plugin.words()
    }

    fn events(&self) -> &ExternalEvents {
        &self.events
    }
}
