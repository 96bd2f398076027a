//! Policies as people write them.

use hyoshi_control::PolicySpec;
use hyoshi_control::policy::AnyPolicy;

use crate::trouble::Trouble;

/// The policy that a text means: `strict`, `weighted`, `partition(video 40% strict, rest 30% weighted)`.
///
/// # Errors
///
/// Of a text that is none.
pub fn named(text: &str) -> Result<AnyPolicy, Trouble> {
    let spec: PolicySpec = text.parse().map_err(|error: hyoshi_control::policy::PolicyError| {
        let remedy = error.remedy();
        Trouble::refused(error, remedy)
    })?;
    Ok(spec.build())
}
