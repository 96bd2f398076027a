//! The HTML report: self-contained, escaped, and with the same figures as the other forms.

mod flight;

use flight::flight;

#[test]
fn it_fetches_nothing() {
    let page = flight().account().html();
    // The name of SVG's namespace is not an address that anything is fetched from.
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http:", "https:", "src=", "href=", "url(", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn what_comes_from_the_file_is_escaped_in_text_and_charts() {
    let page = flight().account().html();
    assert!(!page.contains("<b>busy") && !page.contains("<flight>"));
    assert!(page.contains("&lt;b&gt;busy&lt;/b&gt;") && page.contains("&lt;flight&gt; &amp;"));
    let charts = page.split("<svg class=\"chart\"").skip(1).map(|rest| rest.split("</svg>").next().unwrap());
    assert_eq!(charts.clone().filter(|chart| chart.contains("&lt;b&gt;busy")).count(), 3);
}

#[test]
fn charts_follow_the_page_from_light_to_dark() {
    let page = flight().account().html();
    assert!(page.contains("prefers-color-scheme: dark"));
    assert_eq!(page.matches("<svg class=\"chart\"").count(), 5);
    assert!(!page.contains("#0102"), "a marker colour was left over");
}

#[test]
fn it_tells_the_same_as_the_summary() {
    let flight = flight();
    let (page, summary) = (flight.account().html(), flight.account().summary());
    assert!(page.contains(&summary.verdict.sentence));
    for note in &summary.notes {
        assert!(page.contains(&note.text));
    }
    for miss in &summary.misses {
        assert!(page.contains(&miss.explanation));
    }
    for group in &summary.groups {
        assert!(page.contains(&format!("data-key=\"{}\"", group.counts.made)), "{}", group.name);
    }
}

#[test]
fn a_system_of_which_nothing_was_seen_has_a_report() {
    let mut flight = flight();
    flight.stats = hyoshi_trace::Stats::new(&flight.system);
    flight.system.epochs.truncate(1);
    let account = flight.account();
    assert!(account.html().contains("Holds, but no critical job ended in this time."));
    assert!(account.summary().terminal(hyoshi_report::Look::PLAIN).contains("Holds, but"));
}
