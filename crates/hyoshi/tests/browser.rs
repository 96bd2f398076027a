//! Reports in Chromium: the pictures are drawn without errors or requests, light and dark, and fit a narrow screen.
//!
//! Without Chromium, which `.ci/run` installs, the tests are skipped.

use crate::common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Place, example};

/// `None` where there is no Chromium.
fn chromium(profile: &Path, arguments: &[&str]) -> Option<Output> {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("skipped: needs chromium: {error}");
            None
        }
    }
}

#[test]
fn the_timeline_draws_in_light_and_dark_and_on_a_narrow_screen_without_errors_or_requests() {
    let place = Place::new();
    place.hyoshi(&format!("sim {} --report report.html", example("flight-program.toml"))).exits(0);
    let report = place.read("report.html");
    assert!(report.len() < 1_500_000, "{} bytes", report.len());
    let page = format!("file://{}", place.path().join("report.html").display());
    let profile = place.path().join("profile");
    let looks: [&[&str]; 3] = [
        &["--window-size=1280,900"],
        &["--window-size=1280,900", "--blink-settings=preferredColorScheme=0"],
        &["--window-size=390,800"],
    ];
    for look in looks {
        let Some(output) = chromium(&profile, &[look, &["--dump-dom", page.as_str()]].concat()) else { return };
        let (dom, printed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{printed}");
        // What the console was told carries this word; so do violations of the page's policy, and requests that it stopped.
        assert!(!printed.contains("CONSOLE"), "{look:?}: {printed}");
        assert!(
            dom.contains("<html lang=\"en\" class=\"scripted-page\">"),
            "{look:?}: the script has not come to its end"
        );
        assert!(dom.matches("class=\"cell ").count() > 10, "{look:?}: cells are drawn in each row");
        assert_eq!(dom.matches("<svg class=\"system\"").count(), 2, "wide and narrow");
        assert_eq!(dom.matches("aria-pressed=\"true\">").count(), 1, "the whole run is chosen");
        assert!(dom.contains("Into region 11</button>") && dom.contains("Start</button>"));
    }
}

/// A script that uses the report, and sends what it finds to the page around it.
const USE: &str = r##"
setTimeout(() => {
  const jobs = () => document.querySelectorAll("[data-job]").length;
  const button = (text) => [...document.querySelectorAll("#timeline button")].find((one) => one.textContent === text);
  const found = { inner: innerWidth, page: document.documentElement.scrollWidth };
  button("Latest critical job").click();
  found.window = jobs();
  document.querySelector("button[data-job-name]").click();
  found.miss = document.querySelectorAll(".job.chosen .late").length;
  document.getElementById("timeline").querySelector(".frame").dispatchEvent(new KeyboardEvent("keydown", { key: "0" }));
  found.after = jobs();
  parent.postMessage(JSON.stringify(found), "*");
}, 100);
"##;

#[test]
fn zooming_shows_jobs_and_the_page_fits_a_phone() {
    let place = Place::new();
    let flight = example("flight-program.toml");
    place.hyoshi(&format!("sim {flight} --strategy RMS --cap 100% --hard-cap 100% --report report.html"));
    let report = place.read("report.html").replace("</body>", &format!("<script>{USE}</script></body>"));
    std::fs::write(place.path().join("used.html"), report).unwrap();
    for width in [390, 1280] {
        // In a frame: the browser's own window is never narrower than 500 pixels.
        let around = format!(
            "<!doctype html><title></title><iframe src=used.html style='width:{width}px;height:900px;border:0'></iframe>\
             <script>onmessage = (event) => document.title = event.data</script>"
        );
        std::fs::write(place.path().join("around.html"), around).unwrap();
        let page = format!("file://{}", place.path().join("around.html").display());
        let arguments = ["--window-size=1400,1000", "--virtual-time-budget=5000", "--dump-dom", page.as_str()];
        let Some(output) = chromium(&place.path().join("profile"), &arguments) else { return };
        let (dom, printed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && !printed.contains("CONSOLE"), "{printed}");
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap();
        let found: serde_json::Value = serde_json::from_str(title).unwrap_or_else(|_| panic!("{title}"));
        assert_eq!(found["inner"], width, "{found}");
        assert!(found["page"].as_u64().is_some_and(|page| page <= width), "{found}");
        assert!(found["window"].as_u64() > Some(20), "{width}: {found}");
        assert_eq!(found["miss"], 1, "{width}: {found}");
        assert!(found["after"].as_u64() < found["window"].as_u64(), "{width}: {found}");
    }
}

#[test]
fn the_second_strategy_is_a_band_of_the_timeline() {
    let place = Place::new();
    let flight = example("flight-program.toml");
    place.hyoshi(&format!("sim {flight} --strategy RMS,RMS+MLF --report report.html")).exits(0);
    let page = format!("file://{}", place.path().join("report.html").display());
    let Some(output) = chromium(&place.path().join("profile"), &["--dump-dom", page.as_str()]) else { return };
    let (dom, printed) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !printed.contains("CONSOLE"), "{printed}");
    assert!(dom.contains("RMS+MLF in force on mission"), "the legend");
    assert!(dom.contains("class=\"second\""), "the bands");
}
