//! Claims on a page.

use maud::{Markup, html};

use super::{Finding, Judgement, Verdict};

fn variable(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "color:var(--good)",
        Verdict::InPart => "color:var(--warn)",
        Verdict::NotReproduced => "color:var(--bad)",
        Verdict::NotMeasured => "color:var(--soft)",
    }
}

fn badge(verdict: Verdict) -> Markup {
    html! { span class="badge" style=(variable(verdict)) { (verdict.words()) } }
}

/// How many claims came out how.
pub fn tiles(claims: &[Judgement]) -> Markup {
    let kinds = [Verdict::Reproduced, Verdict::InPart, Verdict::NotReproduced, Verdict::NotMeasured];
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

/// Every claim with its verdict; `judged` says by what.
pub fn verdicts(claims: &[Judgement], judged: &str) -> Markup {
    let on_kernel = |found: &Finding| {
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
