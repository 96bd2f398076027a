//! The gateways of the file's hosts: programs of Zenoh read and publish events.

use std::time::{Duration, Instant as WallClock};

use hyoshi_events::EventChannel;
use hyoshi_model::HostId;
use hyoshi_node::NodeError;
use hyoshi_report::figures::count;
use hyoshi_report::{NoteLevel, ReportNote};
use hyoshi_zenoh::{GatewayStanding, PublicationCounts, ZenohGateway};

use super::hosts::{JoinedHost, failed};
use crate::cli::notes::note;
use crate::cli::{CliError, streams};

/// The connections are checked this often.
const LOOK: Duration = Duration::from_millis(500);

/// The gateways of this run.
pub(super) struct RunGateways {
    /// With the last reported state of the connection.
    gateways: Vec<(ZenohGateway, bool)>,
    looked: WallClock,
}

impl RunGateways {
    /// Opens the gateway of this host, or of all.
    pub fn open(
        channel: &EventChannel,
        host: Option<HostId>,
        joined: Option<&JoinedHost>,
    ) -> Result<RunGateways, CliError> {
        let of_run = (0..).map(HostId).zip(&channel.system().hosts);
        let of_run = of_run.filter(|(id, _)| host.is_none_or(|host| host == *id));
        let mut gateways = Vec::new();
        for (id, _) in of_run.filter(|(_, host)| host.gateway.is_some()) {
            let tls = joined.map(JoinedHost::zenoh_tls).transpose()?.flatten();
            let opened = ZenohGateway::open(channel, id, tls).map_err(|error| failed(NodeError::Carrier(error)))?;
            gateways.extend(opened.map(|gateway| (gateway, true)));
        }
        Ok(RunGateways { gateways, looked: WallClock::now() })
    }

    /// Prints changes of the connections.
    pub fn report(&mut self) {
        if self.gateways.is_empty() || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = WallClock::now();
        for (gateway, was_connected) in &mut self.gateways {
            let GatewayStanding { host, connected, .. } = gateway.standing();
            if connected != *was_connected {
                let state = if connected { "is connected" } else { "is not connected to a router or peer; it retries" };
                streams::err(format_args!("hyoshi run: the gateway of host {host} {state}\n"));
            }
            *was_connected = connected;
        }
    }

    /// Closes all connections. Returns notes about them for the report.
    pub fn end(self) -> Vec<ReportNote> {
        self.gateways.iter().flat_map(|(gateway, _)| summary(&gateway.end())).collect()
    }
}

/// Notes about one gateway.
fn summary(standing: &GatewayStanding) -> Vec<ReportNote> {
    let GatewayStanding { host, connected, published, lost, unanswered, publications, failed } = standing;
    let mut text = format!("the gateway of host {host}: {} events for programs of Zenoh", count(*published));
    for (number, what) in [(lost, "lost"), (unanswered, "queries not answered")] {
        if *number > 0 {
            text += &format!(", {} {what}", count(*number));
        }
    }
    if !connected {
        text += "; not connected to a router or peer at the end";
    }
    let level = if *lost > 0 || !connected { NoteLevel::Degraded } else { NoteLevel::Info };
    let mut notes = vec![note(level, TOPIC, text)];
    notes.extend(failed.iter().map(|error| ReportNote {
        remedy: Some(error.remedy.clone()),
        ..note(NoteLevel::Degraded, TOPIC, &error.message)
    }));
    notes.extend(publications.iter().filter_map(refused));
    notes
}

/// The topic of the notes.
const TOPIC: &str = "events";

/// The refused publications of an event; `None` if all were accepted.
fn refused(counts: &PublicationCounts) -> Option<ReportNote> {
    let PublicationCounts { event, accepted, malformed, too_long, too_fast, full, idle } = counts;
    let reasons = [
        (malformed, "deletions"),
        (too_long, "longer than `payload`"),
        (too_fast, "faster than `min_interval`"),
        (full, "with a full queue"),
        (idle, "outside the run"),
    ];
    let reasons = reasons.into_iter().filter(|(number, _)| **number > 0);
    let reasons: Vec<String> = reasons.map(|(number, why)| format!("{} {why}", count(*number))).collect();
    let (all, accepted) = (count(accepted + counts.refused()), count(*accepted));
    let text = format!(
        "event {event}: {accepted} of {all} publications by programs of Zenoh accepted, refused: {}",
        reasons.join(", ")
    );
    (!reasons.is_empty()).then(|| note(NoteLevel::Info, TOPIC, text))
}
