//! The HTML report: self-contained, escaped, and with the same figures as the other forms.

use crate::flight;

use flight::flight;

#[test]
fn it_fetches_nothing() {
    let page = flight().account().html();
    // The name of SVG's namespace is no address to load from.
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
    assert_eq!(charts.clone().filter(|chart| chart.contains("&lt;b&gt;busy")).count(), 1);
}

#[test]
fn charts_follow_the_page_from_light_to_dark() {
    let page = flight().account().html();
    assert!(page.contains("prefers-color-scheme: dark"));
    assert_eq!(page.matches("<svg class=\"chart\"").count(), 3);
    assert!(!page.contains("#0102"), "a marker colour was left over");
}

#[test]
fn it_shows_the_same_as_the_summary() {
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
        account
            .summary()
            .terminal(hyoshi_report::TerminalStyle::PLAIN, hyoshi_report::Detail::Brief)
            .contains("No verdict")
    );
}

/// The pictures of a class, without the rest of the page.
fn pictures<'a>(page: &'a str, class: &str) -> Vec<&'a str> {
    let begin = format!("<svg class=\"{class}");
    page.split(begin.as_str()).skip(1).map(|rest| rest.split("</svg>").next().unwrap()).collect()
}

#[test]
fn the_whole_run_is_drawn_without_a_script_and_hostile_names_end_neither_a_picture_nor_the_script() {
    let mut flight = flight();
    flight.system = flight.system.with(|system| {
        system.operations[1].name = "</script><i>fuse".into();
        system.processors[0].name = "\"><img>".into();
        system.chains[0].name = "<svg onload=x>".into();
    });
    let page = flight.account().html();
    let picture = pictures(&page, "timeline")[0];
    assert!(picture.contains("cell missed") && picture.contains("&lt;/script&gt;&lt;i&gt;fuse"), "{picture}");
    for hostile in ["</script><i>", "<img>", "<svg onload"] {
        assert!(!page.contains(hostile), "{hostile}");
    }
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let window = &data["windows"][0];
    assert_eq!((&window["title"], &window["chosen"]), (&"Latest critical job".into(), &0.into()));
    assert_eq!(window["jobs"][0][1], "</script><i>fuse#250");
}

#[test]
fn cells_count_every_job_end_once() {
    let flight = flight();
    let page = flight.account().html();
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let sum =
        |cells: &serde_json::Value| -> u64 { cells.as_array().unwrap().iter().filter_map(|one| one.as_u64()).sum() };
    let counts = flight.stats.counts(None, |_| true);
    assert_eq!(sum(&data["all"]), counts.released());
    let rows = data["rows"].as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| !row[3].is_null()).map(|row| sum(&row[3])).sum::<u64>(), counts.released());
    let late = |cells: &serde_json::Value| -> u64 {
        cells.as_array().unwrap().iter().skip(2).step_by(3).filter_map(|one| one.as_u64()).sum()
    };
    assert_eq!(late(&data["all"]), counts.missed());
}

#[test]
fn the_system_is_a_picture_with_the_worst_of_each_operation_and_chain() {
    let page = flight().account().html();
    let pictures = pictures(&page, "system");
    assert_eq!(pictures.len(), 2, "wide and narrow");
    for picture in pictures {
        assert_eq!(picture.matches("<g class=\"part").count(), 4, "{picture}");
        assert!(picture.contains("part missed critical") && picture.contains("map (3)"), "{picture}");
        assert_eq!(picture.matches("<g class=\"arrow").count(), 1);
        assert!(picture.contains("chain see"), "{picture}");
    }
}

#[test]
fn causes_of_late_jobs_are_listed() {
    let page = flight().account().html();
    assert!(page.contains("Lateness by cause") && page.contains("waited for jobs of nav"));
}
