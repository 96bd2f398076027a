//! The HTML report: self-contained, escaped, and with the same figures as the other forms.

use crate::flight;

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
        let text = note.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        assert!(page.contains(&text), "{text}");
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
    flight.system = flight.system.with(|system| system.epochs.truncate(1));
    let account = flight.account();
    assert!(account.html().contains("No verdict: no critical job ended within "));
    assert!(
        account.summary().terminal(hyoshi_report::Look::PLAIN, hyoshi_report::Detail::Brief).contains("No verdict")
    );
}

#[test]
fn the_first_window_is_drawn_without_a_script_and_its_data_cannot_end_the_script() {
    let mut flight = flight();
    flight.system = flight.system.with(|system| system.operations[1].name = "</script><i>fuse".into());
    let page = flight.account().html();
    let picture = page.split("<svg class=\"timeline\"").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(picture.contains("run missed") && picture.contains("&lt;/script&gt;&lt;i&gt;fuse"), "{picture}");
    assert!(picture.contains("class=\"late\""));
    assert!(!page.contains("</script><i>"));
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let windows: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(windows[0]["title"], "Latest critical job");
    assert_eq!(windows[0]["jobs"][0][1], "</script><i>fuse#250");
    assert_eq!(windows[0]["chosen"], 0);
}

#[test]
fn late_jobs_are_laid_at_somebodys_door() {
    let page = flight().account().html();
    assert!(page.contains("Lateness by cause") && page.contains("waited for jobs of nav"));
}
