//! Claims in a terminal: ratings first, then the reasons.

use hyoshi_report::TerminalStyle;
use hyoshi_report::terminal::grid::Tone;

use super::{ClaimFinding, ClaimVerdict, Judgement};

impl ClaimVerdict {
    fn tone(self) -> Tone {
        match self {
            ClaimVerdict::Reproduced => Tone::Good,
            ClaimVerdict::InPart => Tone::Worry,
            ClaimVerdict::NotReproduced => Tone::Bad,
            ClaimVerdict::NotMeasured => Tone::Plain,
        }
    }
}

/// The first screen: one line for each claim.
pub fn verdicts(claims: &[Judgement], style: TerminalStyle) -> String {
    let mut text = String::new();
    for Judgement { claim, finding, on_kernel } in claims {
        let kernel = on_kernel.as_ref().map_or(String::new(), |found: &ClaimFinding| {
            if found.verdict == finding.verdict {
                String::new()
            } else {
                format!(" (kernel: {})", found.verdict.words())
            }
        });
        let word = style.in_tone(&format!("{:<15}", finding.verdict.words()), finding.verdict.tone());
        text.push_str(&format!("  {:<4}{word} {}{kernel}\n", claim.id, claim.says));
    }
    text
}

/// The reason of each rating.
pub fn reasons(claims: &[Judgement], style: TerminalStyle) -> String {
    let mut text = String::new();
    for Judgement { claim, finding, on_kernel } in claims {
        text.push_str(&wrapped(style, &format!("  {:<4}", claim.id), &finding.reason));
        if let Some(kernel) = on_kernel {
            let text_of_kernel = format!("on the kernel {}: {}", kernel.verdict.words(), kernel.reason);
            text.push_str(&wrapped(style, "      ", &text_of_kernel));
        }
    }
    text
}

/// Text after a heading, wrapped to the terminal's width.
pub fn wrapped(style: TerminalStyle, head: &str, text: &str) -> String {
    let width = usize::from(style.width.unwrap_or(100)).clamp(40, 120);
    let indent = head.chars().count();
    let (mut out, mut line) = (String::new(), head.to_string());
    let mut used = indent;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used + length + 1 > width && used > indent {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            used = indent;
        }
        line.push_str(word);
        line.push(' ');
        used += length + 1;
    }
    out.push_str(line.trim_end());
    out.push('\n');
    out
}
