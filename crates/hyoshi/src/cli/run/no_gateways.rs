//! A run without the feature `zenoh`: no gateways.

use hyoshi_events::EventChannel;
use hyoshi_model::HostId;
use hyoshi_report::ReportNote;

use super::hosts::JoinedHost;
use crate::cli::CliError;

/// None.
pub(super) struct NoGateways {}

impl NoGateways {
    /// Fails if this host, or any, has a gateway.
    pub fn open(channel: &EventChannel, host: Option<HostId>, _: Option<&JoinedHost>) -> Result<NoGateways, CliError> {
        let mut hosts = (0..).map(HostId).zip(&channel.system().hosts);
        let with_gateway = hosts.find(|(id, one)| one.gateway.is_some() && host.is_none_or(|host| host == *id));
        match with_gateway {
            None => Ok(NoGateways {}),
            Some((_, host)) => Err(CliError::new(format!(
                "host `{}` has a gateway, and this program was built without Zenoh",
                host.name
            ))
            .help(format!("build it with `--features zenoh`, or remove `gateway` from [host.{}]", host.name))),
        }
    }

    pub fn report(&mut self) {}

    pub fn end(self) -> Vec<ReportNote> {
        Vec::new()
    }
}
