//! Policies as people write them.

use std::sync::Arc;

use hyoshi_control::PolicySpec;
use hyoshi_control::policy::AnyPolicy;

use crate::component::ComponentSpec;
use crate::external::Externals;
use crate::library;
use crate::request_error::RequestError;
use crate::words;

/// The policy that a text names: `fair`, `strict`, `weighted`, `partition(video 40% fair, rest 30% weighted)`.
///
/// # Errors
///
/// Of a text that is none.
pub fn named(text: &str) -> Result<AnyPolicy, RequestError> {
    let spec: PolicySpec = text.parse().map_err(|error: hyoshi_control::policy::PolicyError| {
        let remedy = error.remedy();
        RequestError::refused(error, remedy)
    })?;
    Ok(spec.build())
}

/// The policy that a text means, also one from elsewhere: `external --object IOR:...`, `library --path /DIR/NAME.so`;
/// `--fallback POLICY` at its end, or fair, decides while the other policy does not. Words with blanks are quoted.
///
/// # Errors
///
/// Of a text that is none, and of what is not to be had.
pub fn read(text: &str, externals: &Arc<Externals>) -> Result<AnyPolicy, RequestError> {
    let Some((setting, fallback)) = split(text)? else { return named(text) };
    let fallback = fallback.map_or_else(|| Ok(PolicySpec::default().build()), |text| named(&text))?;
    match setting.kind.as_str() {
        "external" => externals.policy(&setting, fallback),
        _ => library::policy(&setting, fallback, externals.events()),
    }
}

/// The setting of a policy from elsewhere, without its fallback; `None` for the broker's own policies.
///
/// # Errors
///
/// If the text is not a policy.
pub fn from_elsewhere(text: &str) -> Result<Option<ComponentSpec>, RequestError> {
    Ok(split(text)?.map(|(setting, _)| setting))
}

/// The setting of a policy from elsewhere, and its fallback.
fn split(text: &str) -> Result<Option<(ComponentSpec, Option<String>)>, RequestError> {
    if !matches!(text.split_whitespace().next(), Some("external" | "library")) {
        return Ok(None);
    }
    let words = words::split(text)?;
    let mut parts = words.splitn(2, |word| word == "--fallback");
    let setting = ComponentSpec::from_words(parts.next().unwrap_or_default())?;
    Ok(Some((setting, parts.next().map(|words| words.join(" ")))))
}
