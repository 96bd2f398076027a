//! Events by name: a file with them behaves as the file that names the suppliers.

use crate::common;

use hyoshi_model::{Instant, Span, System, read, write};

const FILE: &str = r#"
name = "events"
[event."sensor/gps/left"]
[event."sensor/gps/right"]
payload = "16B"
[event."sensor/imu"]
payload = "16B"
[event.alarm]
[host.drone]
[host.station]
[[link]]
between = ["drone", "station"]
delay   = ["1ms", "3ms"]
loss    = "10%"
[processor.air]
host     = "drone"
strategy = "RMS+MLF"
[processor.ground]
host = "station"
[operation.left]
on       = "air"
every    = "10ms"
wcet     = "1ms"
takes    = { uniform = ["0.2ms", "1ms"] }
supplies = ["sensor/gps/left"]
[operation.right]
on       = "air"
every    = "15ms"
wcet     = "1ms"
count    = 2
supplies = ["sensor/gps/right", "sensor/imu"]
[operation.watch]
on       = "ground"
after    = { event = "sensor/imu" }
wcet     = "1ms"
supplies = ["alarm"]
[operation.fuse]
on    = "ground"
after = { event = "sensor/gps/**" }
wcet  = "0.5ms"
[operation.one]
on    = "ground"
after = { event = "sensor/*/*", from = ["left"] }
wcet  = "0.5ms"
[operation.log]
on    = "air"
after = { event = ["**", "alarm"] }
wcet  = "0.1ms"
takes = { uniform = ["0.05ms", "0.1ms"] }
"#;

fn system(text: &str) -> System {
    read(text, "events.toml", None).unwrap_or_else(|errors| panic!("{errors}\n{text}")).system
}

#[test]
fn a_file_with_events_behaves_as_one_that_names_the_suppliers() {
    let mut plain = FILE.replace("supplies = [\"sensor/gps/right\", \"sensor/imu\"]", "payload = '16B'");
    for (event, names) in [
        ("event = \"sensor/imu\"", "any = ['right']"),
        ("event = \"sensor/gps/**\"", "any = ['left', 'right']"),
        ("event = \"sensor/*/*\", from = [\"left\"]", "all = ['left']"),
        ("event = [\"**\", \"alarm\"]", "any = ['left', 'right', 'watch']"),
    ] {
        plain = plain.replace(event, names);
    }
    let plain: Vec<_> =
        plain.lines().filter(|line| !line.starts_with("supplies") && !line.starts_with("[event")).collect();
    let plain = system(&plain.join("\n").replacen("payload = \"16B\"\n", "", 2));
    let with_events = system(FILE);
    assert!(plain.events.is_empty() && with_events.events.iter().all(|event| !event.suppliers.is_empty()));
    assert!(with_events.clone().with(|contents| contents.events.clear()) == plain);

    let until = Instant::ZERO + Span::from_secs(2);
    let events = common::events(&with_events, until);
    assert!(events.len() > 1_000);
    assert!(events == common::events(&plain, until));
    assert!(events == common::events(&system(&write(&with_events)), until));
}
