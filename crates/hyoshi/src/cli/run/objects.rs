//! The objects of the file that this program serves.

use std::sync::Arc;

use hyoshi_model::{HostId, System, printable};
use hyoshi_node::objects::RequestCounts;
use hyoshi_node::{InstalledObjects, Objects, ServingObjects, calls_of_jobs};
use hyoshi_orb::behaviour::OperationDelegate;
use hyoshi_report::{NoteLevel, ReportNote};
use hyoshi_runtime::{Node, Prepared};

use super::corba_events::OfferedEvents;
use super::hosts::{JoinedHost, RunControl, failed};
use crate::cli::CliError;
use crate::cli::notes::note;

/// The objects of a run.
pub(super) struct RunObjects(InstalledObjects);

/// Objects that clients can call.
pub(super) struct CallableObjects(ServingObjects);

impl RunObjects {
    /// Lets jobs serve requests to the program's servants.
    pub fn install(
        objects: Objects,
        system: &Arc<System>,
        host: Option<HostId>,
        node: Node,
    ) -> Result<(Node, RunObjects), CliError> {
        calls_of_jobs();
        let (node, installed) = objects.install(system, host, node).map_err(|error| CliError::new(&error))?;
        Ok((node, RunObjects(installed)))
    }

    /// Begins to serve; requests that arrive before the run wait.
    pub fn serve(
        self,
        node: &mut Prepared,
        joined: Option<&JoinedHost>,
        control: &RunControl,
        events: &OfferedEvents,
    ) -> Result<CallableObjects, CliError> {
        let tls = joined.and_then(|joined| joined.tls().zip(joined.tls_client()));
        let serving = self.0.publishers(events.served()).serve(node, tls).map_err(failed)?;
        match joined {
            Some(joined) => serving.join(joined.peers()),
            None => control.show(&serving),
        }
        Ok(CallableObjects(serving))
    }
}

impl CallableObjects {
    /// Ends the objects. Returns notes about them for the report.
    pub fn end(self) -> Vec<ReportNote> {
        let RequestCounts { clamped, refused, damaged, late } = self.0.counts();
        let mut notes = Vec::new();
        if let [first, rest @ ..] = self.0.unserved() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            let text = format!("no servant for object {first}{more}: clients cannot call it");
            let remedy = "add it to the program with `Bodies::object`".to_owned();
            notes.push(ReportNote { remedy: Some(remedy), ..note(NoteLevel::Info, "objects", text) });
        }
        let counts = [
            (clamped, "exceeded their client's limits and were clamped"),
            (refused, "exceeded their client's limits and were refused"),
            (damaged, "had a damaged timing, which was ignored"),
            (late, "arrived after the run"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            notes.push(note(NoteLevel::Info, "objects", format!("{count} requests {what}")));
        }
        for (delegate, operations) in self.0.delegates() {
            let requested = operations.iter().filter(|one| one.measured().requests > 0);
            notes.extend(
                requested.map(|one| {
                    note(NoteLevel::Info, "delegates", format!("{}: {}", printable(&delegate), measured(one)))
                }),
            );
        }
        let of_clients = self.0.client_reports().into_iter();
        notes.extend(of_clients.map(|report| note(NoteLevel::Degraded, "rates of clients", report)));
        notes
    }
}

/// `locate: 40 requests, 30 passed, 10 refused; median 1.2ms, longest 3ms`.
fn measured(delegate: &OperationDelegate) -> String {
    let counted = delegate.measured();
    let counts = [
        (counted.passed, "passed"),
        (counted.refused, "refused"),
        (counted.dropped, "dropped"),
        (counted.failed, "failed"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: String = counts.map(|(count, what)| format!(", {count} {what}")).collect();
    let latency = counted.latency.quantile(0.5).zip(counted.latency.extent().most());
    let latency = latency.map_or(String::new(), |(median, most)| format!("; median {median:.3}, longest {most:.3}"));
    format!("{}: {} requests{counts}{latency}", printable(delegate.name()), counted.requests)
}
