//! `hyoshi events publish --rate`: publishes repeatedly, at the rate that a feedback loop sets.

use std::sync::Arc;

use hyoshi_model::{Instant, Span, quantity};
use hyoshi_node::NodeClient;
use hyoshi_node::idl::hyoshi_node::{PublishAtRateError, RegisterPublisherError};
use hyoshi_orb::SystemKind;
use hyoshi_os::{Clock, Interrupt, MonotonicClock, Wake};
use hyoshi_report::figures::{counted, hertz};
use serde_json::json;

use super::refused;
use crate::cli::node::failed;
use crate::cli::{CliError, Format, VerbOutcome, head, streams};

/// The periods of the highest and the lowest rate of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RateRange {
    shortest: Span,
    longest: Span,
}

/// Reads `1Hz..20Hz`.
pub(super) fn rates(text: &str) -> Result<RateRange, String> {
    let (lowest, highest) = text.split_once("..").ok_or("write the lowest and the highest rate, such as 1Hz..20Hz")?;
    let period =
        |text: &str| quantity::period(text).map_err(|error| format!("{text:?} {error}; {}", error.remedy(text)));
    let (longest, shortest) = (period(lowest)?, period(highest)?);
    if shortest > longest {
        return Err(format!("the lowest rate is above the highest; write {highest}..{lowest}"));
    }
    Ok(RateRange { shortest, longest })
}

/// The publications of this command.
#[derive(Debug, Default)]
struct Publications {
    accepted: u64,
    rejected: u64,
    /// The reason that was printed last.
    why: String,
    /// The period that was printed last.
    period: Span,
}

/// Publishes until Ctrl-C, the end of the run, or `count` publications.
pub(super) fn publish_at_rate(
    (client, at): (&NodeClient, &str),
    (event, payload): (&str, &[u8]),
    (range, count): (RateRange, u64),
    format: Format,
) -> Result<VerbOutcome, CliError> {
    let wake = Arc::new(Wake::new());
    let interrupt = Interrupt::on_signals(wake.clone())
        .map_err(|error| CliError::new(format_args!("cannot listen for signals: {error}")))?;
    let registered = client.register_publisher(event, (range.shortest, range.longest));
    let ticket = match registered {
        Ok(registered) => registered.ticket,
        Err(RegisterPublisherError::EventRefused(why)) => return Err(refused(&why)),
        Err(RegisterPublisherError::System(raised)) => return Err(failed(at, raised)),
    };
    let mut so_far = Publications::default();
    let published = so_far.publish_all((client, at, ticket), (event, payload, count), (&wake, &interrupt), format);
    // If the run has ended, there is nothing to remove.
    let _ = client.remove_publisher(ticket);
    published?;
    so_far.end(event, format)
}

/// Waits until `next`, or for Ctrl-C.
fn pause(clock: &MonotonicClock, wake: &Wake, interrupt: &Interrupt, next: Instant) {
    while clock.now() < next && !interrupt.requested() {
        wake.wait_until(clock, next);
    }
}

impl Publications {
    fn publish_all(
        &mut self,
        (client, at, ticket): (&NodeClient, &str, u64),
        (event, payload, count): (&str, &[u8], u64),
        (wake, interrupt): (&Wake, &Interrupt),
        format: Format,
    ) -> Result<(), CliError> {
        let clock = MonotonicClock::start();
        let mut next = clock.now();
        while self.accepted + self.rejected < count && !interrupt.requested() {
            let answer = match client.publish_at_rate(ticket, payload) {
                Ok(answer) => answer,
                Err(PublishAtRateError::EventRefused(why)) => return Err(refused(&why)),
                // The node answered before, so the run has ended.
                Err(PublishAtRateError::System(raised))
                    if [SystemKind::Transient, SystemKind::CommFailure].contains(&raised.kind) =>
                {
                    streams::err("the run has ended\n");
                    return Ok(());
                }
                Err(PublishAtRateError::System(raised)) => return Err(failed(at, raised)),
            };
            let period = Span::from_nanos(answer.period);
            self.count(&answer.rejected);
            self.show(event, period, format)?;
            next = next.saturating_add(period).max(clock.now());
            pause(&clock, wake, interrupt, next);
        }
        Ok(())
    }

    /// Counts a publication, which was rejected unless `why` is empty.
    fn count(&mut self, why: &str) {
        self.accepted += u64::from(why.is_empty());
        self.rejected += u64::from(!why.is_empty());
        if !why.is_empty() && self.why != why {
            why.clone_into(&mut self.why);
            streams::err(format_args!("{why}\n"));
        }
    }

    /// Prints a new rate.
    fn show(&mut self, event: &str, period: Span, format: Format) -> Result<(), CliError> {
        if self.period == period {
            return Ok(());
        }
        self.period = period;
        match format {
            Format::Json => self.line(event),
            _ => streams::out(format_args!("{event} at {}\n", hertz(period.as_nanos()))),
        }
    }

    fn line(&self, event: &str) -> Result<(), CliError> {
        let line = json!({
            "hyoshi": head("events publish"),
            "event": event,
            "period_ns": self.period.as_nanos(),
            "accepted": self.accepted,
            "rejected": self.rejected,
        });
        streams::out(format_args!("{line}\n"))
    }

    fn end(&self, event: &str, format: Format) -> Result<VerbOutcome, CliError> {
        match format {
            Format::Json => self.line(event)?,
            _ => streams::out(format_args!(
                "{event}: {} accepted, {} rejected\n",
                counted(self.accepted, "publication", "publications"),
                self.rejected
            ))?,
        }
        Ok(VerbOutcome::Success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_rates_is_that_of_their_periods() {
        let range = rates("2Hz..20Hz").unwrap();
        assert_eq!((range.shortest, range.longest), (Span::from_millis(50), Span::from_millis(500)));
        assert_eq!(rates("20Hz..2Hz").unwrap_err(), "the lowest rate is above the highest; write 2Hz..20Hz");
        assert!(rates("20Hz").unwrap_err().contains("such as 1Hz..20Hz"));
        assert!(rates("1..20Hz").is_err() && rates("0Hz..20Hz").is_err() && rates("1Hz..NaN").is_err());
    }
}
