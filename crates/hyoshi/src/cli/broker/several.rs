//! Calls several brokers, each in a thread of its own, so that a silent one does not delay the others.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_os::{Interrupt, Wake};
use hyoshi_report::terminal::TerminalStyle;
use serde_json::{Value as Json, json};

use super::look::{self, Watch, WatchedBroker};
use super::selection::{BrokerAddress, BrokerSelection};
use super::{Ended, Verb};
use crate::cli::answer::{VerbOutput, beside, with};
use crate::cli::{CliError, Format, VerbOutcome, head, streams};

/// Calls all brokers and prints first their answers, then their errors.
///
/// Exit code 2 if one could not be called, else 1 if one refused.
pub(super) fn ask(
    verb: &Verb,
    name: &str,
    selection: &BrokerSelection,
    brokers: &[BrokerAddress],
    format: Format,
) -> Result<VerbOutcome, CliError> {
    if let Verb::Watch(watch) = verb {
        return watch_all(watch, selection, brokers, format);
    }
    let answers = each(selection, brokers, |_, client| super::ask(verb, &client?))?;
    match format {
        Format::Text => {
            let (mut good, mut bad) = (Vec::new(), Vec::new());
            let mut held = Ok(VerbOutcome::Success);
            for (broker, answer) in brokers.iter().zip(answers) {
                match answer {
                    Ok(answer) => good.push((broker.name.as_str(), answer.text)),
                    Err(ended) => {
                        bad.push(error_text(&broker.name, &ended));
                        held = worse(held, &ended);
                    }
                }
            }
            streams::out(beside(good, TerminalStyle::of_stdout()))?;
            bad.iter().for_each(streams::err);
            held
        }
        Format::Json => {
            let mut held = Ok(VerbOutcome::Success);
            let object = |(broker, answer): (&BrokerAddress, Result<VerbOutput, Ended>)| match answer {
                Ok(answer) => with("host", broker.name.as_str(), answer.json),
                Err(ended) => {
                    held = worse(std::mem::replace(&mut held, Ok(VerbOutcome::Success)), &ended);
                    let errors = json!([{ "message": ended.message(), "help": ended.help() }]);
                    json!({ "host": broker.name, "errors": errors })
                }
            };
            let hosts: Vec<Json> = brokers.iter().zip(answers).map(object).collect();
            streams::out(format_args!("{:#}\n", json!({ "hyoshi": head(name), "hosts": hosts })))?;
            held
        }
    }
}

/// The results, in the order of the brokers.
fn each<R: Send>(
    selection: &BrokerSelection,
    brokers: &[BrokerAddress],
    ask: impl Fn(&BrokerAddress, Result<BrokerClient, Ended>) -> R + Sync,
) -> Result<Vec<R>, CliError> {
    // An invalid flag is invalid for all of them.
    let orbs = brokers.iter().map(|_| selection.orb()).collect::<Result<Vec<_>, _>>()?;
    let ask = &ask;
    Ok(thread::scope(|scope| {
        let with_orbs = brokers.iter().zip(orbs);
        let asked = with_orbs
            .map(|(broker, orb)| scope.spawn(move || ask(broker, selection.connect(orb, broker).map_err(Ended::from))));
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    }))
}

fn watch_all(
    watch: &Watch,
    selection: &BrokerSelection,
    brokers: &[BrokerAddress],
    format: Format,
) -> Result<VerbOutcome, CliError> {
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone())
        .map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let width = brokers.iter().map(|broker| broker.name.chars().count()).max().unwrap_or(0);
    let ends = each(selection, brokers, |broker, client| {
        let watched = WatchedBroker { host: Some((&broker.name, width)), interrupt: &interrupt, wake: &wake };
        let ended = client.and_then(|client| look::watch(&client, watch, &watched, format));
        // At once, because the other brokers are still watched.
        ended.inspect_err(|ended| streams::err(error_text(&broker.name, ended)))
    })?;
    ends.iter().filter_map(|end| end.as_ref().err()).fold(Ok(VerbOutcome::Success), worse)
}

fn error_text(host: &str, ended: &Ended) -> String {
    let help = ended.help().map_or(String::new(), |help| format!("help: {help}\n"));
    format!("error: {host}: {}\n{help}", ended.message())
}

fn worse(held: Result<VerbOutcome, CliError>, ended: &Ended) -> Result<VerbOutcome, CliError> {
    match ended {
        Ended::Broker(BrokerClientError::Request(_)) => held.map(|_| VerbOutcome::Negative),
        // Already printed.
        _ => Err(CliError::Reported),
    }
}
