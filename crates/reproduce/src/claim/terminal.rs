//! Claims in a terminal: verdicts first, then the reasons.

use hyoshi_report::Look;
use hyoshi_report::terminal::grid::Tone;

use super::{Finding, Judgement, Verdict};

impl Verdict {
    fn tone(self) -> Tone {
        match self {
            Verdict::Reproduced => Tone::Good,
            Verdict::InPart => Tone::Worry,
            Verdict::NotReproduced => Tone::Bad,
            Verdict::NotMeasured => Tone::Plain,
        }
    }
}

/// The first screen: one line for each claim.
pub fn verdicts(claims: &[Judgement], look: Look) -> String {
    let mut text = String::new();
    for Judgement { claim, finding, on_kernel } in claims {
        let kernel = on_kernel.as_ref().map_or(String::new(), |found: &Finding| {
            if found.verdict == finding.verdict {
                String::new()
            } else {
                format!(" (kernel: {})", found.verdict.words())
            }
        });
        let word = look.in_tone(&format!("{:<15}", finding.verdict.words()), finding.verdict.tone());
        text.push_str(&format!("  {:<4}{word} {}{kernel}\n", claim.id, claim.says));
    }
    text
}

/// Why each verdict is what it is.
pub fn reasons(claims: &[Judgement], look: Look) -> String {
    let mut text = String::new();
    for Judgement { claim, finding, on_kernel } in claims {
        text.push_str(&wrapped(look, &format!("  {:<4}", claim.id), &finding.reason));
        if let Some(kernel) = on_kernel {
            let said = format!("on the kernel {}: {}", kernel.verdict.words(), kernel.reason);
            text.push_str(&wrapped(look, "      ", &said));
        }
    }
    text
}

/// Text under a heading, broken at spaces to the terminal's width.
pub fn wrapped(look: Look, head: &str, text: &str) -> String {
    let width = usize::from(look.width.unwrap_or(100)).clamp(40, 120);
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
