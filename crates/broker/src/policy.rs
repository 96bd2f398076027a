//! Policies as users write them.

use std::sync::Arc;

use hyoshi_control::PolicySpec;
use hyoshi_control::policy::AnyPolicy;

use crate::component::ComponentSpec;
use crate::external::Externals;
use crate::library;
use crate::request_error::RequestError;
use crate::words;

/// Parses a policy of the broker: `fair`, `strict`, `weighted`, `partition(video 40% fair, rest 30% weighted)`.
///
/// # Errors
///
/// If the text is not such a policy.
pub fn named(text: &str) -> Result<AnyPolicy, RequestError> {
    let spec: PolicySpec = text.parse().map_err(|error: hyoshi_control::policy::PolicyError| {
        let remedy = error.remedy();
        RequestError::refused(error, remedy)
    })?;
    Ok(spec.build())
}

/// Parses any policy, also `external --object IOR:...` and `library --path /DIR/NAME.so`. With `--fallback POLICY` at
/// the end, that policy decides while the other one does not answer; the default is fair. Quotes keep blanks.
///
/// # Errors
///
/// If the text is not a policy, or the policy is not available.
pub fn read(text: &str, externals: &Arc<Externals>) -> Result<AnyPolicy, RequestError> {
    let Some((setting, fallback)) = split(text)? else { return named(text) };
    let fallback = fallback.map_or_else(|| Ok(PolicySpec::default().build()), |text| named(&text))?;
    match setting.kind.as_str() {
        "external" => externals.policy(&setting, fallback),
        _ => library::policy(&setting, fallback, externals.events()),
    }
}

/// The specification of a foreign policy without its fallback; `None` for the broker's own policies.
///
/// # Errors
///
/// If the text is not a policy.
pub fn from_elsewhere(text: &str) -> Result<Option<ComponentSpec>, RequestError> {
    Ok(split(text)?.map(|(setting, _)| setting))
}

/// The specification of a foreign policy, and its fallback.
fn split(text: &str) -> Result<Option<(ComponentSpec, Option<String>)>, RequestError> {
    if !matches!(text.split_whitespace().next(), Some("external" | "library")) {
        return Ok(None);
    }
    let words = words::split(text)?;
    let mut parts = words.splitn(2, |word| word == "--fallback");
    let setting = ComponentSpec::from_words(parts.next().unwrap_or_default())?;
    Ok(Some((setting, parts.next().map(|words| words.join(" ")))))
}
