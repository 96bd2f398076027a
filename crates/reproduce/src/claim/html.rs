//! Claims as HTML.

use maud::{Markup, html};

use super::{ClaimFinding, ClaimVerdict, Judgement};

fn variable(verdict: ClaimVerdict) -> &'static str {
    match verdict {
        ClaimVerdict::Reproduced => "color:var(--good)",
        ClaimVerdict::InPart => "color:var(--warn)",
        ClaimVerdict::NotReproduced => "color:var(--bad)",
        ClaimVerdict::NotMeasured => "color:var(--soft)",
    }
}

fn badge(verdict: ClaimVerdict) -> Markup {
    html! { span class="badge" style=(variable(verdict)) { (verdict.words()) } }
}

/// The number of claims by rating.
pub fn tiles(claims: &[Judgement]) -> Markup {
    let kinds =
        [ClaimVerdict::Reproduced, ClaimVerdict::InPart, ClaimVerdict::NotReproduced, ClaimVerdict::NotMeasured];
    html! {
        div class="tiles" {
            @for kind in kinds {
                @let which: Vec<&str> = claims.iter().filter(|one| one.finding.verdict == kind).map(|one| one.claim.id).collect();
                @if !which.is_empty() {
                    div class="tile" {
                        div class="name" { (kind.words()) }
                        div class="value" { (which.len()) }
                        div class="detail" { (which.join(", ")) }
                    }
                }
            }
        }
    }
}

/// The claims with their ratings; `judged` explains the rating.
pub fn verdicts(claims: &[Judgement], judged: &str) -> Markup {
    let on_kernel = |found: &ClaimFinding| {
        html! { div { "On the kernel " (badge(found.verdict)) " " (found.reason) } }
    };
    html! {
        section {
            h2 { "Claims" }
            p { (judged) }
            div class="wide" {
                table {
                    thead { tr { th { "claim" } th { "verdict" } th { "what is claimed" } th { "what was found" } } }
                    tbody {
                        @for Judgement { claim, finding, on_kernel: kernel } in claims {
                            tr {
                                td { b { (claim.id) } }
                                td { (badge(finding.verdict)) }
                                td class="words" { (claim.says) div class="remedy" style="color:var(--soft)" { (claim.paper) } }
                                td class="words" { (finding.reason) @if let Some(kernel) = kernel { (on_kernel(kernel)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
