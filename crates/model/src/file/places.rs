//! Operations with several processors, between which feedback loops move them.

use super::expand::Operations;
use super::log::{AtPlace, Log};
use super::value::shortened;
use crate::feedback::FeedbackLoop;
use crate::ids::ProcessorId;
use crate::system::Contents;

/// False, logged, if an operation has several processors, but cannot move, or no loops move it.
pub(super) fn check(
    log: &mut Log,
    contents: &Contents,
    operations: &Operations<'_>,
    loops: &[(AtPlace<&str>, FeedbackLoop)],
) -> bool {
    let mut sound = true;
    let obstacles = contents.obstacles_to_moves();
    for places in contents.movable() {
        let (home, declared) = (places[0], operations.of(places[0]));
        let name = shortened(declared.name.value);
        let further = || declared.further.iter().map(|one| one.map(|(id, _)| id));
        let first = declared.further.first().map_or(declared.name.place, |one| one.place);
        if let Some(why) = obstacles[home.index()] {
            log.error(first, format!("`{name}` cannot move to another processor: {why}"))
                .help("name one processor in `on`; only an independent periodic operation can move");
            sound = false;
            continue;
        }
        for one in &declared.further {
            let reserved = format!("{}@{}", declared.name.value, one.value.1);
            if operations.has(&reserved) {
                log.error(one.place, format!("two operations are named `{}`", shortened(&reserved)))
                    .help(format!("`{name}` has this name on `{}`: rename yours", one.value.1));
                sound = false;
            }
        }
        let own = AtPlace::new(contents.operation(home).on, declared.name.place);
        let host = |id: ProcessorId| contents.processor(id).host;
        for one in std::iter::once(own).chain(further()) {
            let processor = &contents.processor(one.value).name;
            if host(one.value) != host(own.value) {
                let first = &contents.hosts[host(own.value).index()].name;
                log.error(one.place, format!("`{processor}` is not on host `{first}`, so `{name}` cannot move to it"))
                    .help("name processors of one host: the state of an operation stays in its process");
                sound = false;
                continue;
            }
            let found = loops.iter().find(|(_, other)| other.processor == one.value);
            let why = match found {
                None => format!("no feedback loop measures the load of `{processor}`"),
                Some((_, other)) if other.algorithm.is_of_group() || !other.algorithm.uses_utilisation() => {
                    format!("{} on `{processor}` cannot move operations", other.algorithm.name())
                }
                Some(_) => continue,
            };
            let verb = if found.is_none() { "add" } else { "use" };
            log.error(one.place, format!("`{name}` cannot move: {why}"))
                .help(format!("{verb} algorithm = \"FC-U\" in [feedback.{processor}], or name one processor in `on`"));
            sound = false;
        }
    }
    sound
}
