//! `[reservation.NAME]` and `[broker]`: programs under the CPU broker.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::epochs;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::table::{Table, in_order, log_complaint};
use super::times::{TimesFiles, takes};
use super::value::{InputValue, Read, complain, shortened};
use crate::ids::HostId;
use crate::program::{AdvocateWords, Broker, Brokered, Program};
use crate::reservation::{Reservation, ReservationError, Share};
use crate::system::{Host, Processor};
use crate::time::{Instant, Span};

/// A law's result for words: their meaning, or the error and its remedy.
pub type LawResult<T> = Result<T, (String, String)>;

/// The laws of the CPU broker that a file must follow.
#[derive(Clone, Copy, Debug)]
pub struct Laws {
    /// Checks an advocate.
    pub advocate: fn(&AdvocateWords) -> LawResult<()>,
    /// Checks a policy, and returns its groups.
    pub policy: fn(&str) -> LawResult<Vec<String>>,
}

impl PartialEq for Laws {
    fn eq(&self, other: &Laws) -> bool {
        std::ptr::fn_addr_eq(self.advocate, other.advocate) && std::ptr::fn_addr_eq(self.policy, other.policy)
    }
}

impl Eq for Laws {}

/// A broker as written, and the groups of its policy if they are known.
struct DeclaredPrograms {
    broker: Broker,
    groups: Option<Vec<String>>,
}

pub(super) fn read(
    log: &mut Log,
    top: &Table<'_>,
    hosts: &[Host],
    processors: &[Processor],
    laws: Option<Laws>,
    files: &mut TimesFiles<'_>,
) -> Brokered {
    let own: Vec<_> = top.named(&mut Log::default(), "host");
    let of_file = top.inner(log, "broker");
    let declared = (0..hosts.len()).map(|host| {
        let table = own.get(host).and_then(|(_, table)| table.inner(log, "broker"));
        broker(log, table.as_ref().or(of_file.as_ref()), HostId(host as u32), processors, laws)
    });
    let declared: Vec<DeclaredPrograms> = declared.collect();
    let names = Names::new("host", hosts.iter().map(|host| host.name.as_str()));
    let mut programs = Vec::new();
    for (count, (name, table)) in top.named(log, "reservation").iter().enumerate() {
        if count == limits::PROGRAMS {
            log.error(name.place, format!("more than {} reservations", limits::PROGRAMS))
                .help("this is a broker's limit: combine programs");
            break;
        }
        let host = table.given(log, "host", InputValue::text);
        let host = HostId(names.find_or_only(log, host, *name).unwrap_or(0));
        programs.extend(program(log, *name, table, host, &declared[host.index()], laws, files));
    }
    let brokers = if programs.is_empty() { Vec::new() } else { declared.into_iter().map(|one| one.broker).collect() };
    Brokered { brokers, programs }
}

fn broker(
    log: &mut Log,
    table: Option<&Table<'_>>,
    host: HostId,
    processors: &[Processor],
    laws: Option<Laws>,
) -> DeclaredPrograms {
    // Without the key, an empty table supplies the defaults of its keys.
    let empty = DeTable::new();
    let default = Table::open(log, "broker", "", Place::default(), &empty);
    let table = table.or(default.as_ref());
    let policy = table.and_then(|table| table.read(log, "policy", InputValue::text));
    let groups = policy.zip(laws).and_then(|(policy, laws)| match (laws.policy)(policy.value) {
        Ok(groups) => Some(groups),
        Err((what, help)) => {
            log.error(policy.place, what).help(help);
            None
        }
    });
    let cpus = table.and_then(|table| table.given(log, "cpus", numbers));
    let cpus = cpus.map_or_else(|| cpus_of(host, processors), |cpus| cpus.value);
    let cap = table.and_then(|table| table.given(log, "cap", share_of_cpus));
    let cap = cap.map_or(Share::from_percent(75 * cpus.len() as u64), |cap| cap.value);
    let policy = policy.map_or(String::new(), |policy| policy.value.to_string());
    DeclaredPrograms { broker: Broker { policy, cap, cpus }, groups }
}

/// The CPUs that the host's processors name, else the first.
fn cpus_of(host: HostId, processors: &[Processor]) -> Vec<u32> {
    let mut cpus: Vec<u32> = processors.iter().filter(|one| one.host == host).filter_map(|one| one.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn numbers(given: InputValue<'_>) -> Read<Vec<u32>> {
    let mut cpus = Vec::new();
    for item in given.list()? {
        let cpu =
            InputValue::of(item.get_ref()).whole(0, 1023).map_err(|complaint| complaint.within(item.span().into()))?;
        cpus.push(cpu as u32);
    }
    cpus.sort_unstable();
    let named = cpus.len();
    cpus.dedup();
    match cpus.len() {
        0 => complain("names no CPU", "name at least one, [0], or remove it"),
        different if different < named => complain("names a CPU twice", "name each CPU once"),
        _ => Ok(cpus),
    }
}

fn share_of_cpus(given: InputValue<'_>) -> Read<Share> {
    // A wrong share is reported like any other share.
    let share = match given {
        InputValue::Text(text) => {
            text.parse().or_else(|_| given.share_ppm().map(|ppm| Share::from_millionths(ppm.into())))
        }
        other => other.share_ppm().map(|ppm| Share::from_millionths(ppm.into())),
    };
    match share? {
        Share::ZERO => {
            complain("is zero: nothing could be reserved", "write a percentage of one CPU: \"75%\", \"150%\"")
        }
        share => Ok(share),
    }
}

fn program(
    log: &mut Log,
    name: AtPlace<&str>,
    table: &Table<'_>,
    host: HostId,
    broker: &DeclaredPrograms,
    laws: Option<Laws>,
    files: &mut TimesFiles<'_>,
) -> Option<Program> {
    if let Some(odd) = name.value.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))) {
        log.error(name.place, format!("a reservation's name cannot have `{}`", odd.escape_debug()))
            .help("use letters, digits, `-` and `_`");
    }
    let words = table.read(log, "program", words);
    let time = |log: &mut Log, key| table.given(log, key, InputValue::positive_time);
    let period = table.read(log, "period", InputValue::positive_time);
    let (deadline, budget, least) = (time(log, "deadline"), time(log, "budget"), time(log, "least"));
    let group = table.given(log, "group", InputValue::text);
    if let (Some(group), Some(groups)) = (group, &broker.groups)
        && !group.value.is_empty()
        && !groups.iter().any(|known| known == group.value)
    {
        let help = match groups.as_slice() {
            [] => format!("the policy \"{}\" has no groups: remove it", broker.broker.policy),
            groups => format!("the policy's groups are {}", groups.join(", ")),
        };
        log.error(group.place, format!("there is no group `{}`", shortened(group.value))).help(help);
    }
    let advocates = advocates(log, table, laws);
    let takes = takes(log, table, files).map(|takes| (Instant::ZERO, takes.value.execution_time));
    let (words, period) = (words?, period?);
    let program = Program {
        name: name.value.to_string(),
        host,
        words: words.value,
        period: period.value,
        deadline: deadline.map_or(period.value, |deadline| deadline.value),
        budget: budget.map(|budget| budget.value),
        least: least.map(|least| least.value),
        importance: table.whole(log, "importance").map_or(1, |importance| importance.value as u32),
        weight: table.whole(log, "weight").map_or(1, |weight| weight.value as u32),
        group: group.map_or(String::new(), |group| group.value.to_string()),
        advocates,
        execution_times: takes.into_iter().collect(),
    };
    let places = ProgramPlaces { period: period.place, deadline, budget, least };
    places.check(log, &program);
    Some(program)
}

/// The places of a program's times.
struct ProgramPlaces {
    period: Place,
    deadline: Option<AtPlace<Span>>,
    budget: Option<AtPlace<Span>>,
    least: Option<AtPlace<Span>>,
}

impl ProgramPlaces {
    /// Rejects an impossible reservation at the key that causes it.
    fn check(&self, log: &mut Log, program: &Program) {
        let next_to_nothing = Span::from_nanos((program.period.as_nanos() / 1_000).max(1));
        for (budget, at) in [(program.budget, self.budget), (program.least, self.least)] {
            let given = budget.unwrap_or(next_to_nothing);
            let made = Reservation::new(given, program.period).and_then(|made| made.within(program.deadline));
            let Err(error) = made else { continue };
            let place = match error {
                ReservationError::TooShort(_) | ReservationError::TooLong(_) => self.period,
                ReservationError::DeadlineAbovePeriod { .. } => self.deadline.map_or(self.period, |at| at.place),
                _ => at.or(self.deadline).map_or(self.period, |at| at.place),
            };
            // `least` is a budget, too: its name in the file makes the message clear.
            let least = at.is_some() && at == self.least && budget == program.least && self.budget != self.least;
            let message = error.to_string();
            let message = if least { message.replace("the budget", "the least") } else { message };
            log.error(place, message).help(error.remedy());
        }
    }
}

fn words(given: InputValue<'_>) -> Read<Vec<String>> {
    if let InputValue::Text(text) = given {
        let words: Vec<_> = text.split_whitespace().map(|word| format!("{word:?}")).collect();
        return complain("is one text, but no shell splits it", format!("write [{}]", words.join(", ")));
    }
    let words = given.texts()?;
    match words.first() {
        None => complain("names no program", "write [\"./recogniser\", \"--model\", \"edges\"]"),
        Some(first) if first.value.trim().is_empty() => complain("has an empty first word", "name the program first"),
        Some(_) if words.len() > limits::WORDS => {
            complain(format!("has more than {} words", limits::WORDS), "pass the words in a file")
        }
        Some(_) => match words.iter().find(|word| word.value.contains('\0')) {
            Some(word) => complain("has a word with a zero character", "remove the zero character")
                .map_err(|complaint| complaint.within(word.place)),
            None => Ok(words.into_iter().map(|word| word.value.to_string()).collect()),
        },
    }
}

/// The syntax of advocates.
const ADVOCATE_EXAMPLE: &str = "[{ max_decay = { reports = 10 } }, { cap = \"60%\" }]";

fn advocates(log: &mut Log, table: &Table<'_>, laws: Option<Laws>) -> Vec<AdvocateWords> {
    let list = table.given(log, "advocate", |given| match given {
        InputValue::List(list) => Ok(list),
        _ => complain("is not a list", format!("write advocate = {ADVOCATE_EXAMPLE}")),
    });
    let Some(list) = list else { return Vec::new() };
    if list.value.len() > limits::ADVOCATES {
        log.error(list.place, format!("a chain of {} advocates", list.value.len()))
            .help(format!("at most {} are allowed", limits::ADVOCATES));
        return Vec::new();
    }
    let mut advocates = Vec::new();
    for item in list.value {
        let place = Place::from(item.span());
        match advocate(item) {
            Err(complaint) => log_complaint(log, "advocate", place, complaint),
            Ok(advocate) => {
                if let Some(Err((what, help))) = laws.map(|laws| (laws.advocate)(&advocate)) {
                    log.error(place, what).help(help);
                }
                advocates.push(advocate);
            }
        }
    }
    advocates
}

fn advocate(item: &Spanned<DeValue<'_>>) -> Read<AdvocateWords> {
    let such_as = format!("advocate = {ADVOCATE_EXAMPLE}");
    let entries = in_order(InputValue::of(item.get_ref()).table(&such_as)?);
    let [(kind, value)] = entries[..] else {
        return complain("is not a table of one key", format!("write {such_as}"));
    };
    let parameters = match value.get_ref() {
        DeValue::Table(table) => {
            let read = |(name, value): (&Spanned<toml::de::DeString<'_>>, &Spanned<DeValue<'_>>)| {
                Ok((dashed(name.get_ref()), parameter(value)?))
            };
            in_order(table).into_iter().map(read).collect::<Read<_>>()?
        }
        _ => vec![(String::new(), parameter(value)?)],
    };
    Ok(AdvocateWords { kind: dashed(kind.get_ref()), parameters })
}

/// A parameter in the syntax of a command line.
fn parameter(value: &Spanned<DeValue<'_>>) -> Read<String> {
    match InputValue::of(value.get_ref()) {
        InputValue::Text(text) => Ok(text.to_string()),
        InputValue::Whole(Some(whole)) => Ok(whole.to_string()),
        _ => complain("has a parameter that is neither a text nor a whole number", "write 10, \"60%\" or \"5ms\"")
            .map_err(|complaint| complaint.within(value.span().into())),
    }
}

fn dashed(name: &str) -> String {
    name.replace('_', "-")
}

/// The epochs' changes of programs.
pub(super) fn change(
    log: &mut Log,
    epochs: &[epochs::DeclaredEpoch<'_>],
    programs: &mut [Program],
    files: &mut TimesFiles<'_>,
) {
    let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    let names = Names::new("reservation", names.iter().map(String::as_str));
    for epoch in epochs {
        let (at, changes) = epoch.of_programs();
        for change in changes {
            let name = AtPlace::new(change.name.value.as_str(), change.name.place);
            let Some(program) = names.find(log, name) else { continue };
            // The value is stored under its path: read it as if it were stored under its key.
            let mut entries = DeTable::new();
            entries.insert(Spanned::new(change.value.span(), change.key.into()), change.value.clone());
            let Some(table) = Table::open(log, "reservation", "", name.place, &entries) else { continue };
            let Some(drawn) = takes(log, &table, files) else { continue };
            let program = &mut programs[program as usize];
            program.execution_times.retain(|(from, _)| *from < at);
            program.execution_times.push((at, drawn.value.execution_time));
        }
    }
}
