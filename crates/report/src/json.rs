//! The JSON form of a report; `docs/json.md` describes every field.

use crate::summary::Summary;

impl Summary {
    /// The report as JSON, with a line end.
    pub fn json(&self) -> String {
        // Nothing in a summary can fail to be written: no maps with odd keys, no floats.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}
