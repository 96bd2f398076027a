//! Hosts, the network between them, processors and shared resources.

use core::net::SocketAddr;
use std::collections::HashMap;

use super::ReadContext;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use super::network;
use super::table::Table;
use super::value::{Complaint, InputValue, Read, complain, shortened};
use crate::costs::Costs;
use crate::endpoint::{Address, ENDPOINTS, Endpoint};
use crate::hard_cap::{HardCap, OnOverload};
use crate::ids::HostId;
use crate::system::{Host, Link, Overload, Preemption, Processor, Resource};
use crate::time::Span;

/// The hosts, without their gateways, and the tables of the gateways by the positions of their hosts.
pub(super) fn hosts<'a>(log: &mut Log, top: &Table<'a>) -> (Vec<Host>, Vec<(HostId, Table<'a>)>) {
    let mut taken = HashMap::new();
    let (mut hosts, mut gateways) = (Vec::new(), Vec::new());
    for (name, table) in top.named(log, "host") {
        let insecure = table.read(log, "insecure", InputValue::truth).is_some_and(|insecure| insecure.value);
        let clock_error = table.given(log, "clock_error", InputValue::time).map(|error| error.value);
        let trusted = format!("`insecure = true` in [host.{}] if the network is trusted", shortened(name.value));
        let encrypted = |endpoint: &Endpoint| endpoint.to_string().replacen("tcp/", "tls/", 1);
        let mut taken = |endpoint: &AtPlace<Endpoint>, log: &mut Log| {
            if let Some((first, host)) = taken.insert(endpoint.value.clone(), (endpoint.place, name.value)) {
                let message = if host == name.value {
                    format!("`{host}` has the endpoint `{}` twice", endpoint.value)
                } else {
                    format!("`{}` and `{host}` both have the endpoint `{}`", name.value, endpoint.value)
                };
                log.error(endpoint.place, message)
                    .label("taken")
                    .also(first, "first here")
                    .help("one node listens at each endpoint: set a different endpoint for each host");
            }
        };
        let secured = |endpoint: AtPlace<Endpoint>, log: &mut Log| {
            if endpoint.value.is_exposed() && !insecure {
                log.error(endpoint.place, format!("`{}` is not encrypted and not on loopback", endpoint.value))
                    .label("other machines can read and forge its messages")
                    .help(format!("write \"{}\", or {trusted}", encrypted(&endpoint.value)));
            }
            endpoint.value
        };
        let mut own = |endpoint: AtPlace<Endpoint>, log: &mut Log| {
            taken(&endpoint, log);
            secured(endpoint, log)
        };
        let endpoints = self::endpoints(log, &table, "endpoints");
        let endpoints = endpoints.into_iter().map(|endpoint| own(endpoint, log)).collect();
        let zenoh = zenoh_endpoint(log, &table, "zenoh");
        let router = zenoh_endpoint(log, &table, "router");
        if let (Some(_), Some(router)) = (&zenoh, &router) {
            log.error(router.place, format!("`{}` has both `zenoh` and `router`", name.value))
                .help("remove one of them: with `router`, its node does not listen for Zenoh");
        }
        let zenoh = zenoh.map(|endpoint| own(endpoint, log));
        let router = router.map(|endpoint| secured(endpoint, log));
        let network = network::devices(log, &table);
        let id = HostId(hosts.len() as u32);
        gateways.extend(table.inner(log, "gateway").map(|table| (id, table)));
        let name = name.value.to_string();
        hosts.push(Host { name, endpoints, zenoh, router, gateway: None, insecure, clock_error, network });
    }
    if hosts.is_empty() {
        hosts.push(Host::named("local"));
    }
    (hosts, gateways)
}

/// The endpoint of a key for Zenoh; a wrong one is logged and omitted.
fn zenoh_endpoint(log: &mut Log, table: &Table<'_>, key: &str) -> Option<AtPlace<Endpoint>> {
    let written = table.given(log, key, InputValue::text)?;
    let endpoint = parsed(log, written)?;
    is_for_zenoh(log, key, &endpoint, "; without it, completions use `endpoints`").then_some(endpoint)
}

/// Whether Zenoh can use an endpoint; if not, it is logged.
pub(super) fn is_for_zenoh(log: &mut Log, key: &str, endpoint: &AtPlace<Endpoint>, otherwise: &str) -> bool {
    let help = match &endpoint.value {
        // Zenoh 1.10 cannot connect to it.
        Endpoint::Tls(Address::Ip(SocketAddr::V6(_))) => {
            "over TLS, write an IPv4 address or the machine's name".to_owned()
        }
        Endpoint::Tcp(_) | Endpoint::Tls(_) => return true,
        Endpoint::Unix(_) => format!("write \"tcp/ADDRESS:PORT\" or \"tls/ADDRESS:PORT\"{otherwise}"),
    };
    log.error(endpoint.place, format!("`{key}` cannot use the endpoint `{}`", endpoint.value)).help(help);
    false
}

/// The endpoints of a key; wrong ones are logged and omitted.
pub(super) fn endpoints(log: &mut Log, table: &Table<'_>, key: &str) -> Vec<AtPlace<Endpoint>> {
    let Some(written) = table.given(log, key, InputValue::texts) else { return Vec::new() };
    if written.value.len() > ENDPOINTS {
        log.error(written.place, format!("`{key}` has {} endpoints", written.value.len()))
            .help(format!("at most {ENDPOINTS} are allowed"));
        return Vec::new();
    }
    written.value.into_iter().filter_map(|text| parsed(log, text)).collect()
}

pub(super) fn parsed(log: &mut Log, text: AtPlace<&str>) -> Option<AtPlace<Endpoint>> {
    match text.value.parse::<Endpoint>() {
        Ok(endpoint) => Some(AtPlace::new(endpoint, text.place)),
        Err(error) => {
            let written = shortened(text.value);
            log.error(text.place, format!("endpoint `{written}` {error}")).help(error.remedy());
            None
        }
    }
}

pub(super) fn resources(log: &mut Log, top: &Table<'_>) -> Vec<Resource> {
    top.named(log, "resource").iter().map(|(name, _)| Resource { name: name.value.to_string() }).collect()
}

pub(super) fn processors(
    log: &mut Log,
    top: &Table<'_>,
    hosts: &[Host],
    costs: Costs,
    known: &ReadContext<'_>,
) -> Vec<Processor> {
    let hosts = Names::new("host", hosts.iter().map(|host| host.name.as_str()));
    let mut processors = Vec::new();
    let mut cpus: HashMap<(HostId, u64), Place> = HashMap::new();
    for (name, table) in top.named(log, "processor") {
        let host = table.given(log, "host", InputValue::text);
        let host = HostId(hosts.find_or_only(log, host, name).unwrap_or(0));
        let cpu = table.whole(log, "cpu");
        if let Some(cpu) = cpu
            && let Some(first) = cpus.insert((host, cpu.value), cpu.place)
        {
            log.error(cpu.place, format!("CPU {} belongs to another processor of the same host", cpu.value))
                .label("taken")
                .also(first, "by this one")
                .help("a processor is one CPU: set another CPU, or move its operations to the first processor");
        }
        let processor = processor(log, &table, name, (host, cpu), costs);
        strategy_is_known(log, &table, known);
        processors.push(processor);
    }
    if processors.is_empty() {
        // The table of keys contains the defaults: read them from an empty table.
        let empty = toml::de::DeTable::new();
        let table = Table::open(log, "processor", "main", Place::default(), &empty);
        let name = AtPlace::new("main", Place::default());
        processors.extend(table.map(|table| processor(log, &table, name, (HostId(0), None), costs)));
    }
    processors
}

fn processor(
    log: &mut Log,
    table: &Table<'_>,
    name: AtPlace<&str>,
    (host, cpu): (HostId, Option<AtPlace<u64>>),
    costs: Costs,
) -> Processor {
    let strategies = table.read(log, "strategy", strategies);
    let [strategy, overload] = strategies.map_or([None, None], |named| named.value);
    let pointless = strategy.is_some() && overload.is_none() && table.get("switch").is_some();
    if pointless {
        log.error(table.place_of("switch"), "`switch` without a second strategy")
            .help("name two, strategy = [\"RMS\", \"RMS+MLF\"], or remove `switch`");
    }
    let overload = overload.and_then(|overload| switching(log, table, overload.value));
    let costs = self::costs(log, table).unwrap_or(costs);
    let preemption = table.choice(log, "preemption");
    let cancel = table.read(log, "cancel", InputValue::truth);
    let cap = table.read(log, "cap", |given| match given.share_ppm()? {
        0 => complain("is zero: nothing would ever run", "write a percentage up to \"100%\" (no cap)"),
        ppm => Ok(ppm),
    });
    let window = table.read(log, "cap_window", InputValue::positive_time);
    let hard_cap = table.read(log, "hard_cap", |given| match given.share_ppm()? {
        ppm if ppm < 10_000 => complain("is below 1%", "write a percentage from \"1%\" to \"100%\" (no hard cap)"),
        ppm => Ok(ppm),
    });
    let on_overload = table.choice(log, "on_hard_cap");
    let on_overload =
        [OnOverload::Report, OnOverload::Demote, OnOverload::Stop][on_overload.map_or(0, |one| one.value)];
    let pool = table.whole(log, "pool");
    // A missing name was logged: the file is rejected, whatever value replaces it.
    Processor {
        name: name.value.to_string(),
        host,
        cpu: cpu.map(|cpu| cpu.value as u32),
        strategy: strategy.map_or("", |strategy| strategy.value).to_string(),
        overload,
        preemption: [Preemption::None, Preemption::Levels, Preemption::Full][preemption.map_or(0, |one| one.value)],
        cancel: cancel.is_some_and(|cancel| cancel.value),
        cap_ppm: cap.map_or(0, |cap| cap.value),
        cap_window: window.map_or(Span::ZERO, |window| window.value),
        hard_cap: HardCap { ppm: hard_cap.map_or(HardCap::OFF.ppm, |cap| cap.value), on_overload },
        pool: pool.map_or(1, |pool| pool.value as u16),
        costs,
    }
}

/// One strategy, or two to switch between.
fn strategies<'a>(given: InputValue<'a>) -> Read<[Option<AtPlace<&'a str>>; 2]> {
    let InputValue::List(_) = given else { return Ok([Some(AtPlace::new(given.text()?, Place::default())), None]) };
    match given.texts()?[..] {
        [one] => Ok([Some(one), None]),
        [one, other] if !one.value.eq_ignore_ascii_case(other.value) => Ok([Some(one), Some(other)]),
        [_, other] => Err(Complaint {
            message: "names one strategy twice".to_string(),
            help: "name two, [\"RMS\", \"RMS+MLF\"]: the second applies in overload".to_string(),
            place: Some(other.place),
        }),
        _ => complain("must be one or two strategies", "write [\"RMS\", \"RMS+MLF\"]: the second applies in overload"),
    }
}

/// When the second strategy applies.
fn switching(log: &mut Log, table: &Table<'_>, strategy: &str) -> Option<Overload> {
    let empty = toml::de::DeTable::new();
    let given = table.inner(log, "switch");
    let switch = given.or_else(|| Table::open(log, "processor.switch", "", Place::default(), &empty))?;
    let margin = switch.read(log, "margin", InputValue::time);
    let calm = switch.read(log, "calm", InputValue::positive_time);
    Some(Overload { strategy: strategy.to_string(), margin: margin?.value, calm: calm?.value })
}

/// The costs of scheduling, if a table sets them.
pub(super) fn costs(log: &mut Log, table: &Table<'_>) -> Option<Costs> {
    let costs = table.inner(log, "costs")?;
    let believable = |given: InputValue<'_>| match given.time()? {
        time if time > limits::COST => complain(
            format!("is above {}, the largest plausible cost", limits::COST),
            "write the cost of one, such as \"10us\"; `hyoshi calibrate` measures it",
        ),
        time => Ok(time),
    };
    let mut cost = |key| costs.read(log, key, believable).map(|time| time.value);
    let named = ["timer", "enqueue", "dequeue", "cancel", "switch", "watchdog"].map(&mut cost);
    let [timer, enqueue, dequeue, cancel, switch, watchdog] = named.map(|cost| cost.unwrap_or(Span::ZERO));
    Some(Costs { timer, enqueue, dequeue, cancel, switch, watchdog })
}

/// Whether the file sets the costs of scheduling for every processor.
pub(super) fn costs_declared(top: &toml::de::DeTable<'_>) -> bool {
    let processors = top.get("processor").and_then(|value| value.get_ref().as_table());
    let each = |processors: &toml::de::DeTable<'_>| {
        processors.values().all(|value| value.get_ref().as_table().is_some_and(|table| table.contains_key("costs")))
    };
    top.contains_key("costs") || processors.is_some_and(each)
}

/// Reports an unknown name at its place in the file.
fn strategy_is_known(log: &mut Log, table: &Table<'_>, known: &ReadContext<'_>) {
    let (Some(given), Some(known)) = (table.get("strategy"), &known.strategies) else { return };
    let whole = Place::from(given.span());
    let Ok(named) = strategies(InputValue::of(given.get_ref())) else { return };
    for named in named.into_iter().flatten() {
        if known.iter().any(|name| name.eq_ignore_ascii_case(named.value)) {
            continue;
        }
        let place = if given.get_ref().is_array() { named.place } else { whole };
        let meant = log.nearest(named.value, known.iter().map(String::as_str));
        let meant = meant.map_or(String::new(), |meant| format!("did you mean \"{meant}\"? "));
        log.error(place, format!("unknown strategy `{}`", shortened(named.value)))
            .label("unknown")
            .help(format!("{meant}known: {}", known.join(", ")));
    }
}

pub(super) fn links(log: &mut Log, top: &Table<'_>, hosts: &[Host]) -> Vec<Link> {
    let names = Names::new("host", hosts.iter().map(|host| host.name.as_str()));
    let mut links = Vec::new();
    let mut first_of = HashMap::new();
    for table in top.list(log, "link") {
        let between = table.read(log, "between", InputValue::texts);
        let delay: Option<AtPlace<(Span, Span)>> = table.read(log, "delay", link_delay);
        let loss = table.read(log, "loss", InputValue::share_ppm).map_or(0, |loss| loss.value);
        let Some(between) = between else { continue };
        let [one, other] = between.value[..] else {
            log.error(between.place, "`between` does not name two hosts").help("write between = [\"a\", \"b\"]");
            continue;
        };
        let (Some(from), Some(to)) = (names.find(log, one), names.find(log, other)) else { continue };
        if from == to {
            log.error(between.place, "a link between a host and itself")
                .help("name two hosts; within a host there is no delay");
            continue;
        }
        if let Some(first) = first_of.insert((from.min(to), from.max(to)), between.place) {
            log.error(between.place, "these two hosts have a link already")
                .also(first, "here")
                .help("a link holds for both directions: keep one");
        }
        let between = (HostId(from), HostId(to));
        let delay = delay.map_or((Span::ZERO, Span::ZERO), |delay| delay.value);
        links.push(Link { between, delay, loss_ppm: loss });
    }
    links
}

/// The delay of a link: one for all events, or the least and the greatest.
pub(super) fn link_delay(given: InputValue<'_>) -> Read<(Span, Span)> {
    given.one_or_pair("times", InputValue::time)
}
