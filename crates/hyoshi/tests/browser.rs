//! Reports in a real browser: the timeline draws, nothing is fetched and nothing goes wrong, light and dark.
//!
//! Needs Chromium, as `.ci/run` installs it; without it there is nothing to look with, and the test says so.

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
            "--enable-logging=stderr",
            "--v=0",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            eprintln!("not looked at in a browser: chromium: {error}");
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
        let (dom, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{told}");
        // What the console was told carries this word; so do violations of the page's policy, and requests that it stopped.
        assert!(!told.contains("CONSOLE"), "{look:?}: {told}");
        assert!(
            dom.contains("<html lang=\"en\" class=\"scripted-page\">"),
            "{look:?}: the script has not come to its end"
        );
        assert!(dom.matches("data-job=").count() > 20, "{look:?}: jobs are drawn");
        assert_eq!(dom.matches("aria-pressed=\"true\">").count(), 1, "one window is chosen");
        assert!(dom.contains("Into region 11</button>") && dom.contains("Start</button>"));
    }
}

#[test]
fn the_strategy_in_force_is_a_band_in_both_pictures() {
    let place = Place::new();
    let flight = example("flight-program.toml");
    place.hyoshi(&format!("sim {flight} --strategy RMS,RMS+MLF --report report.html")).exits(0);
    let page = format!("file://{}", place.path().join("report.html").display());
    let Some(output) = chromium(&place.path().join("profile"), &["--dump-dom", page.as_str()]) else { return };
    let (dom, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !told.contains("CONSOLE"), "{told}");
    assert!(dom.contains("RMS+MLF in force on mission"), "the legend of deadlines over time");
    assert!(dom.contains("class=\"second edge\""), "the timeline");
}
