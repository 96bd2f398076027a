//! Advocates and policies from shared libraries. They answer at once; what they answer is judged as that of another process.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hyoshi_control::policy::{AnyPolicy, ExternalPolicy};
use hyoshi_control::{Advice, Advocate, Ask, Grant, Status};
use hyoshi_model::{Reservation, Share, Span};
use hyoshi_os::plugin::{AdvocatePlugin, LoadError, NamedAsk, PolicyPlugin, abi};

use crate::external::{Bulletin, Note, advised};
use crate::foreign::{Elsewhere, Source};
use crate::idl::cpu_broker as wire;
use crate::setting::Setting;
use crate::trouble::Trouble;

impl From<LoadError> for Trouble {
    fn from(error: LoadError) -> Self {
        let remedy = error.remedy();
        Trouble::refused(error, remedy)
    }
}

/// The library's path, and the parameters that are its own.
fn path(setting: &Setting) -> Result<(PathBuf, Vec<(String, String)>), Trouble> {
    // The first parameter needs no name, unless another has it.
    let name = if setting.parameters.iter().any(|(name, _)| name == "path") { "path" } else { "" };
    let (paths, own): (Vec<_>, Vec<_>) = setting.parameters.iter().cloned().partition(|(given, _)| given == name);
    match paths.as_slice() {
        [(_, path)] => Ok((path.into(), own)),
        [] => Err(Trouble::refused("`library` needs its `path`", "give the library's whole path: --path /DIR/NAME.so")),
        _ => Err(Trouble::refused("`path` of `library` is repeated", "give one: --path /DIR/NAME.so")),
    }
}

/// An advocate of a task.
///
/// # Errors
///
/// Of settings that name no library, and of libraries that cannot be used.
pub(crate) fn advocate(setting: &Setting, name: &str, bulletin: &Arc<Bulletin>) -> Result<Box<dyn Advocate>, Trouble> {
    let (path, own) = path(setting)?;
    let plugin = AdvocatePlugin::load(&path, name, &own)?;
    Ok(Box::new(Plugin { plugin, task: name.to_owned(), bulletin: bulletin.clone(), failed: None }))
}

/// The policy of a setting; `fallback` decides when it does not.
///
/// # Errors
///
/// Of settings that name no library, and of libraries that cannot be used.
pub(crate) fn policy(setting: &Setting, fallback: AnyPolicy, bulletin: &Arc<Bulletin>) -> Result<AnyPolicy, Trouble> {
    let (path, own) = path(setting)?;
    let plugin = PolicyPlugin::load(&path, &own)?;
    Ok(Box::new(Elsewhere::new(Divider { plugin, bulletin: bulletin.clone() }, fallback)))
}

#[derive(Debug)]
struct Plugin {
    plugin: AdvocatePlugin,
    task: String,
    bulletin: Arc<Bulletin>,
    failed: Option<String>,
}

impl Advocate for Plugin {
    fn name(&self) -> &'static str {
        "library"
    }

    fn advise(&mut self, status: &Status, asked: Reservation) -> Advice {
        let answered = self.plugin.advise(&to_abi(status), &reservation(asked));
        let answered = answered.map_err(|number| format!("it failed with {number}")).and_then(|answer| {
            let abi::PluginReservation { budget, period, deadline } = answer;
            advised(&wire::Reservation { budget, period, deadline }, asked)
        });
        match answered {
            Ok(answer) => {
                if self.failed.take().is_some() {
                    self.bulletin.note(Note::of_advocate("library", &self.task, None));
                }
                answer.into()
            }
            Err(why) => {
                if self.failed.is_none() {
                    self.bulletin.note(Note::of_advocate("library", &self.task, Some(&why)));
                }
                self.failed = Some(why);
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
            Some(why) => write!(f, "passed over, {why}"),
            None => f.write_str(&self.plugin.words().unwrap_or_else(|| "it says nothing of itself".to_owned())),
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
struct Divider {
    plugin: PolicyPlugin,
    bulletin: Arc<Bulletin>,
}

impl Source for Divider {
    const NAME: &'static str = "library";
    const WHICH: &'static str = "the library's policy";

    fn hear(&mut self, foreign: &mut ExternalPolicy, asks: &[Ask], cap: Share) {
        let answered = {
            let names = self.bulletin.names();
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
                    self.bulletin.note(Note::of_policy(Self::WHICH, None));
                }
                foreign.answered(asks, &budgets);
            }
            Err(number) => {
                let why = format!("it failed with {number}");
                if foreign.why().is_none() {
                    self.bulletin.note(Note::of_policy(Self::WHICH, Some(&why)));
                }
                foreign.failed(why);
            }
        }
    }

    fn words(&self) -> Option<String> {
        self.plugin.words()
    }

    fn bulletin(&self) -> &Bulletin {
        &self.bulletin
    }
}
