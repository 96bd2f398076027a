//! Checks the request of a client to join: data from a network is not trusted.

use hyoshi_model::time::LONGEST_SPAN;
use hyoshi_model::{OperationId, ProcessorId, Span, System};
use hyoshi_trace::{ClientLabel, RatedClient};

use crate::idl::hyoshi_rates as wire;

/// The reason for refusing a client, and a remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RateRefusal {
    pub why: String,
    pub remedy: String,
}

impl RateRefusal {
    pub fn new(why: &str, remedy: &str) -> RateRefusal {
        RateRefusal { why: why.to_owned(), remedy: remedy.to_owned() }
    }
}

impl From<RateRefusal> for wire::Refused {
    fn from(refusal: RateRefusal) -> Self {
        let short = |text: String| text.chars().take(512).collect();
        wire::Refused { why: short(refusal.why), remedy: short(refusal.remedy) }
    }
}

/// The rate of a period, in Hz.
pub(super) fn hertz_of(period: Span) -> f64 {
    1e9 / period.as_nanos().max(1) as f64
}

/// The period of a rate in Hz; `None` if the rate is not a number, not above 0, or out of range.
fn period_of(hertz: f64) -> Option<Span> {
    // A comparison with NaN is false.
    let nanos = (hertz > 0.0 && hertz.is_finite()).then(|| (1e9 / hertz).round())?;
    (nanos >= 1.0 && nanos <= LONGEST_SPAN.as_nanos() as f64).then(|| Span::from_nanos(nanos as u64))
}

/// The claim of a client for the loop of a processor.
///
/// # Errors
///
/// If the processor has no such operation with clients, or a rate is invalid.
pub(super) fn claim(
    system: &System,
    processor: ProcessorId,
    what: &wire::Task,
    label: &str,
) -> Result<RatedClient, RateRefusal> {
    let with_clients: Vec<OperationId> = system.with_clients_on(processor).collect();
    let Some(operation) = with_clients.iter().find(|id| system.operation(**id).name == what.operation) else {
        let known: Vec<&str> = with_clients.iter().map(|id| system.operation(*id).name.as_str()).collect();
        let on = &system.processor(processor).name;
        let why = format!("no operation `{}` on processor `{on}` has `clients`", what.operation.escape_debug());
        return Err(RateRefusal::new(&why, &format!("use one of these operations: {}", known.join(", "))));
    };
    let invalid = |key: &str, hertz: f64| {
        RateRefusal::new(&format!("`{key}` is {hertz} Hz"), "use a finite rate above 0 Hz, at most 1 GHz")
    };
    let longest = period_of(what.lowest).ok_or_else(|| invalid("lowest", what.lowest))?;
    let shortest = period_of(what.highest).ok_or_else(|| invalid("highest", what.highest))?;
    if shortest > longest {
        let why = format!("the range of rates is empty: from {} to {} Hz", what.lowest, what.highest);
        return Err(RateRefusal::new(&why, "swap `lowest` and `highest`"));
    }
    let declared = system.operation(*operation);
    Ok(RatedClient {
        operation: *operation,
        // 0: unknown. The loop uses the mean execution time, or the worst case.
        estimate: Span::from_nanos(what.estimate.max(1)),
        shortest,
        longest,
        value: what.value.min(declared.importance),
        label: ClientLabel::new(label),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name = 'map'\n[processor.map]\n[processor.other]\n\
        [operation.query]\non = 'map'\ncalled = true\nclients = { rate = ['1Hz', '20Hz'] }\nwcet = '5ms'\nimportance = 3\n\
        [object.map]\noperation = 'query'\nendpoints = ['tcp/127.0.0.1:7473']\n\
        [feedback.map]\nalgorithm = 'FC-U'\nutilisation = '70%'\nendpoints = ['tcp/127.0.0.1:7475']\n";

    fn asked(operation: &str, lowest: f64, highest: f64) -> Result<RatedClient, RateRefusal> {
        let system = hyoshi_model::read(TEXT, "map.toml", None).unwrap_or_else(|errors| panic!("{errors}")).system;
        let what = wire::Task { operation: operation.to_owned(), lowest, highest, estimate: 0, value: 9 };
        claim(&system, ProcessorId(0), &what, "pilot")
    }

    #[test]
    fn a_claim_has_the_periods_of_its_rates_and_at_most_the_importance_of_the_operation() {
        let claim = asked("query", 2.0, 20.0).unwrap();
        assert_eq!((claim.shortest, claim.longest), (Span::from_millis(50), Span::from_millis(500)));
        assert_eq!((claim.value, claim.label.as_str()), (3, "pilot"));
        assert!((hertz_of(claim.shortest) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn rates_that_are_no_positive_numbers_are_refused_with_the_value() {
        let refused = |lowest, highest| asked("query", lowest, highest).unwrap_err().why;
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0, 1e-300, 5e9, f64::MAX] {
            assert_eq!(refused(bad, 20.0), format!("`lowest` is {bad} Hz"));
            assert_eq!(refused(1.0, bad), format!("`highest` is {bad} Hz"));
        }
        assert_eq!(refused(3.0, 2.0), "the range of rates is empty: from 3 to 2 Hz");
    }

    #[test]
    fn an_operation_without_clients_is_refused_with_those_that_have_some() {
        let refusal = asked("locate", 1.0, 2.0).unwrap_err();
        assert_eq!(refusal.why, "no operation `locate` on processor `map` has `clients`");
        assert_eq!(refusal.remedy, "use one of these operations: query");
    }
}
