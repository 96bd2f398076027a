//! Writes a system as the text of a file: the input of `sim` from `check`, and the output of a failing test.
//!
//! For every system that [`read`](crate::read) returns, reading the result of [`write()`] returns the same system. A
//! system that no file can express (a best case of zero, unusual names) is written as the nearest file.

use alloc::collections::BTreeSet;
use alloc::{format, string::String, string::ToString, vec, vec::Vec};
use core::fmt::Write;

use crate::checked::System;
use crate::contract::{
    Condition, ConditionSource, Contract, ContractAction, ContractRegion, ContractSetting, ExternalAction, JobScope,
    Stay, WindowSummary,
};
use crate::delegate::{DeclaredDelegate, DelegatePlace};
use crate::endpoint::Endpoint;
use crate::event::Event;
use crate::execution_time::ExecutionTime;
use crate::feedback::{FeedbackLoop, LatencyScope, LoadMeasure, RateDivision, ServiceLevel, StartRates};
use crate::gateway::Gateway;
use crate::hard_cap::OnOverload;
use crate::ids::{HostId, OperationId, ProcessorId, ResourceId};
use crate::network::{NetworkDevice, TrafficClass};
use crate::object::{ClientCeiling, ClientName, ClientRates, ServedObject};
use crate::outside::OutsideCondition;
use crate::program::{AdvocateWords, Broker};
use crate::standby::Admissions;
use crate::system::{
    ChainCarrier, ChosenHops, Deadline, Environment, Epoch, FlushPoint, Guard, Host, IdleStates, OnBusy, OnMiss,
    OnOverrun, Operation, Preemption, Processor, Replication, Setting, Trigger, WhenFull, tightest,
};
use crate::time::{Instant, Span};

/// The text of a `system.toml` that describes this system.
pub fn write(system: &System) -> String {
    let mut text = String::new();
    line(&mut text, "name", quoted(&system.name));
    line(&mut text, "seed", system.seed.to_string());
    let idle_states = match system.idle_states {
        IdleStates::Auto => "auto",
        IdleStates::Allow => "allow",
        IdleStates::Forbid => "forbid",
    };
    line(&mut text, "idle_states", quoted(idle_states));
    line(&mut text, "duration", time(system.duration));
    if system.hosts.len() > 1
        || system.hosts[0] != Host::named("local")
        || !system.epochs[0].environment.enables(HostId(0))
    {
        let hosts = (0u32..).map(HostId).zip(&system.hosts);
        hosts.for_each(|(id, host)| write_host(&mut text, host, system.epochs[0].environment.enables(id)));
    }
    for (host, broker) in system.hosts.iter().zip(&system.brokered.brokers) {
        // Under its host's name: each host has its own.
        let _ = writeln!(text, "\n[host.{}.broker]", key_of(&plain(&host.name)));
        write_broker(&mut text, broker);
    }
    for host in &system.hosts {
        host.gateway.iter().for_each(|gateway| write_gateway(&mut text, system, host, gateway));
    }
    system.processors.iter().for_each(|processor| write_processor(&mut text, system, processor));
    let mut templates = templates(system);
    mark_deadlines(system, &mut templates);
    for event in &system.events {
        header(&mut text, "event", &event.name);
        if event.payload > 0 {
            line(&mut text, "payload", format!("\"{}B\"", event.payload));
        }
        if event.keep > 0 {
            line(&mut text, "keep", event.keep.to_string());
        }
        write_endpoints(&mut text, &event.endpoints);
        if event.insecure {
            line(&mut text, "insecure", "true");
        }
    }
    let events = EventsOf::new(system);
    templates.iter().for_each(|template| template.write(&mut text, &templates, &events));
    system.resources.iter().for_each(|resource| header(&mut text, "resource", &resource.name));
    let names = |ids: &[OperationId]| names(&templates, ids);
    for chain in &system.chains {
        header(&mut text, "chain", &chain.name);
        line(&mut text, "path", names(&chain.path));
        let limits = [("deadline", chain.deadline), ("max_age", chain.max_age), ("max_reaction", chain.max_reaction)];
        limits
            .into_iter()
            .for_each(|(key, limit)| limit.into_iter().for_each(|limit| line(&mut text, key, time(limit))));
        if chain.carried_by == ChainCarrier::Thread {
            line(&mut text, "carried_by", quoted("thread"));
        }
    }
    system.objects.iter().for_each(|object| write_object(&mut text, object, &names));
    system.delegates.iter().for_each(|one| write_delegate(&mut text, system, one));
    for link in &system.links {
        text.push_str("\n[[link]]\n");
        let host = |id: crate::ids::HostId| quoted(&plain(&system.hosts[id.index()].name));
        line(&mut text, "between", format!("[{}, {}]", host(link.between.0), host(link.between.1)));
        line(&mut text, "delay", one_or_pair(link.delay));
        if link.loss_ppm > 0 {
            line(&mut text, "loss", percentage(link.loss_ppm));
        }
    }
    system.feedback.iter().for_each(|one| write_feedback(&mut text, system, one, &names));
    for (place, condition) in system.conditions.iter().enumerate().filter(|(_, one)| one.measure.is_none()) {
        header(&mut text, "condition", &condition.name);
        let value = system.epochs[0].environment.condition(place);
        value.into_iter().for_each(|value| line(&mut text, "value", number(value)));
    }
    system.contracts.iter().for_each(|one| write_contract(&mut text, system, one, &names));
    write_programs(&mut text, system);
    write_epochs(&mut text, system, &templates);
    text
}

fn line(text: &mut String, key: &str, value: impl AsRef<str>) {
    // Writing to a `String` does not fail.
    let _ = writeln!(text, "{key} = {}", value.as_ref());
}

fn header(text: &mut String, section: &str, name: &str) {
    let name = match section {
        "operation" => plain_operation(name),
        "event" => plain_event(name),
        _ => plain(name),
    };
    let _ = writeln!(text, "\n[{section}.{}]", key_of(&name));
}

/// A name as a key of TOML.
fn key_of(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { name.into() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// The name, if it is a valid one, or a similar valid one.
fn plain(name: &str) -> String {
    let known = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ' ');
    name.chars().map(|c| if known(c) { c } else { '-' }).collect()
}

/// Like [`plain()`]; parts of calls have their own names.
fn plain_operation(name: &str) -> String {
    let part = |part: &str| part.split('@').map(plain).collect::<Vec<_>>().join("@");
    name.split(':').map(part).collect::<Vec<_>>().join(":")
}

/// Like [`plain()`]; names of events have parts.
fn plain_event(name: &str) -> String {
    name.split('/').map(plain).collect::<Vec<_>>().join("/")
}

fn event_names<'a>(events: impl Iterator<Item = &'a Event>) -> String {
    format!("[{}]", events.map(|event| quoted(&plain_event(&event.name))).collect::<Vec<_>>().join(", "))
}

fn time(span: Span) -> String {
    quoted(&span.to_string())
}

fn one_or_pair((least, most): (Span, Span)) -> String {
    if least == most { time(least) } else { format!("[{}, {}]", time(least), time(most)) }
}

/// A share in parts per million.
fn percentage(ppm: u32) -> String {
    format!("\"{}.{:04}%\"", ppm / 10_000, ppm % 10_000)
}

fn write_host(text: &mut String, host: &Host, enabled: bool) {
    header(text, "host", &host.name);
    write_endpoints(text, &host.endpoints);
    if let Some(zenoh) = &host.zenoh {
        line(text, "zenoh", quoted(&zenoh.to_string()));
    }
    if let Some(router) = &host.router {
        line(text, "router", quoted(&router.to_string()));
    }
    if host.insecure {
        line(text, "insecure", "true");
    }
    if let Some(error) = host.clock_error {
        line(text, "clock_error", time(error));
    }
    if !host.network.is_empty() {
        let devices: Vec<String> = host.network.iter().map(network_device).collect();
        line(text, "network", format!("[{}]", devices.join(", ")));
    }
    if !enabled {
        line(text, "enabled", "false");
    }
}

fn write_gateway(text: &mut String, system: &System, host: &Host, gateway: &Gateway) {
    let _ = writeln!(text, "\n[host.{}.gateway]", key_of(&plain(&host.name)));
    line(text, "mode", quoted(gateway.mode.name()));
    for (key, endpoints) in [("listen", &gateway.listen), ("connect", &gateway.connect)] {
        let endpoints: Vec<String> = endpoints.iter().map(|endpoint| quoted(&endpoint.to_string())).collect();
        line(text, key, format!("[{}]", endpoints.join(", ")));
    }
    for (key, events) in [("events", &gateway.events), ("publish", &gateway.publish)] {
        line(text, key, event_names(events.iter().map(|event| &system.events[*event as usize])));
    }
    for (key, names) in [("readers", &gateway.readers), ("publishers", &gateway.publishers)] {
        if let Some(names) = names {
            let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
            line(text, key, format!("[{}]", names.join(", ")));
        }
    }
}

fn network_device(device: &NetworkDevice) -> String {
    let class = |class: &TrafficClass| {
        let dscp: Vec<String> = class.dscp.iter().map(|dscp| quoted(&dscp.to_string())).collect();
        let (dscp, share, ceiling) = (dscp.join(", "), percentage(class.share), percentage(class.ceiling));
        format!("{{ dscp = [{dscp}], share = {share}, ceiling = {ceiling} }}")
    };
    let classes: Vec<String> = device.classes.iter().map(class).collect();
    let (kbit, bit) = (device.rate / 1_000, device.rate % 1_000);
    let (name, classes) = (quoted(&device.name), classes.join(", "));
    format!("{{ device = {name}, rate = \"{kbit}.{bit:03}kbit/s\", classes = [{classes}] }}")
}

fn write_processor(text: &mut String, system: &System, processor: &Processor) {
    header(text, "processor", &processor.name);
    if system.hosts.len() > 1 {
        line(text, "host", quoted(&plain(&system.hosts[processor.host.index()].name)));
    }
    if let Some(cpu) = processor.cpu {
        line(text, "cpu", cpu.to_string());
    }
    match &processor.overload {
        None => line(text, "strategy", quoted(&processor.strategy)),
        Some(overload) => {
            line(text, "strategy", format!("[{}, {}]", quoted(&processor.strategy), quoted(&overload.strategy)));
            line(text, "switch", format!("{{ margin = {}, calm = {} }}", time(overload.margin), time(overload.calm)));
        }
    }
    let preemption = match processor.preemption {
        Preemption::None => "none",
        Preemption::Levels => "levels",
        Preemption::Full => "full",
    };
    line(text, "preemption", quoted(preemption));
    line(text, "cancel", processor.cancel.to_string());
    line(text, "cap", percentage(processor.cap_ppm));
    line(text, "cap_window", time(processor.cap_window));
    line(text, "hard_cap", percentage(processor.hard_cap.ppm));
    let on_overload = match processor.hard_cap.on_overload {
        OnOverload::Report => "report",
        OnOverload::Demote => "demote",
        OnOverload::Stop => "stop",
    };
    line(text, "on_hard_cap", quoted(on_overload));
    line(text, "pool", processor.pool.to_string());
    // Written even if all are zero: without them, the costs measured on the machine apply.
    let costs = processor.costs.named().into_iter().filter(|(_, span)| !span.is_zero());
    let costs: Vec<String> = costs.map(|(key, span)| format!("{key} = {}", time(span))).collect();
    line(text, "costs", if costs.is_empty() { "{}".into() } else { format!("{{ {} }}", costs.join(", ")) });
}

fn write_object(text: &mut String, object: &ServedObject, names: &impl Fn(&[OperationId]) -> String) {
    header(text, "object", &object.name);
    let name = |ids: &[OperationId]| match ids {
        [one] => self::name(names, *one),
        _ => names(ids),
    };
    line(text, "operation", name(&object.operations));
    if !object.methods.is_empty() {
        let methods = object.methods.iter().map(|(idl, operation)| format!("{} = {}", key_of(idl), name(operation)));
        line(text, "methods", format!("{{ {} }}", methods.collect::<Vec<_>>().join(", ")));
    }
    write_endpoints(text, &object.endpoints);
    if object.insecure {
        line(text, "insecure", "true");
    }
    line(text, "requests", object.requests.to_string());
    if !object.clients.is_empty() {
        let clients: Vec<String> = object.clients.iter().map(client).collect();
        line(text, "clients", format!("[{}]", clients.join(", ")));
    }
}

fn write_delegate(text: &mut String, system: &System, delegate: &DeclaredDelegate) {
    header(text, "delegate", &delegate.name);
    match &delegate.place {
        DelegatePlace::Servant(object) => {
            line(text, "object", quoted(&plain(&system.objects[usize::from(*object)].name)));
        }
        DelegatePlace::Proxy(proxy) => {
            let listen = Endpoint::Tcp(proxy.listen.clone());
            line(text, "to", quoted(&proxy.to));
            line(text, "host", quoted(&plain(&system.hosts[proxy.host.index()].name)));
            line(text, "listen", quoted(&listen.to_string()));
            if listen.is_exposed() {
                line(text, "insecure", "true");
            }
        }
    }
    let behaviours = delegate.behaviours.iter();
    let behaviours =
        behaviours.map(|(name, behaviour)| format!("{} = {}", key_of(name), quoted(&behaviour.to_string())));
    let behaviours: Vec<String> = behaviours.collect();
    if !behaviours.is_empty() {
        line(text, "behaviour", format!("{{ {} }}", behaviours.join(", ")));
    }
    if let Some(redirect) = &delegate.redirect {
        line(text, "redirect", quoted(redirect));
    }
}

fn client(ceiling: &ClientCeiling) -> String {
    let mut text = String::from("{ ");
    let _ = match &ceiling.client {
        ClientName::Certificate(name) => write!(text, "certificate = {}", quoted(name)),
        ClientName::User(name) => write!(text, "user = {}", quoted(name)),
        ClientName::Address(address, bits) => write!(text, "address = \"{address}/{bits}\""),
    };
    if let Some(importance) = ceiling.importance {
        let _ = write!(text, ", importance = {importance}");
    }
    if !ceiling.critical {
        text.push_str(", critical = false");
    }
    if let Some(interval) = ceiling.min_interval {
        let _ = write!(text, ", min_interval = {}", time(interval));
    }
    if ceiling.refuses {
        text.push_str(", excess = \"refuse\"");
    }
    text.push_str(" }");
    text
}

fn write_endpoints(text: &mut String, endpoints: &[Endpoint]) {
    if !endpoints.is_empty() {
        let endpoints: Vec<String> = endpoints.iter().map(|endpoint| quoted(&endpoint.to_string())).collect();
        line(text, "endpoints", format!("[{}]", endpoints.join(", ")));
    }
}

fn write_broker(text: &mut String, broker: &Broker) {
    line(text, "policy", quoted(&broker.policy));
    line(text, "cap", quoted(&broker.cap.to_string()));
    let cpus: Vec<String> = broker.cpus.iter().map(u32::to_string).collect();
    line(text, "cpus", format!("[{}]", cpus.join(", ")));
}

fn write_feedback(text: &mut String, system: &System, one: &FeedbackLoop, names: &dyn Fn(&[OperationId]) -> String) {
    header(text, "feedback", &system.processor(one.processor).name);
    line(text, "algorithm", quoted(one.algorithm.name()));
    if one.algorithm.uses_utilisation() {
        line(text, "utilisation", percentage(one.utilisation_ppm));
    }
    if one.algorithm.uses_miss_ratio() {
        line(text, "miss_ratio", percentage(one.miss_ratio_ppm));
    }
    if let Some(latency) = &one.latency {
        let of = match &latency.of {
            LatencyScope::Operations(operations) => names(operations),
            LatencyScope::Chain(place) => quoted(&plain(&system.chains[*place as usize].name)),
        };
        let (quantile, at) = (percentage(latency.quantile_ppm), time(latency.at));
        line(text, "latency", format!("{{ of = {of}, quantile = {quantile}, at = {at} }}"));
    }
    line(text, "period", time(one.period));
    if one.measure == LoadMeasure::Lanes {
        line(text, "measure", quoted("lanes"));
    }
    if !one.algorithm.is_of_group() {
        let gl = if one.algorithm.uses_latency() { format!(", gl = {:?}", one.gains.gl) } else { String::new() };
        line(text, "gains", format!("{{ ga = {:?}, gm = {:?}{gl} }}", one.gains.ga, one.gains.gm));
    }
    match &one.start {
        StartRates::Lowest => {}
        StartRates::Highest => line(text, "start", quoted("highest")),
        StartRates::Given(periods) => {
            let roots = system.adapted_on(one.processor).into_iter().map(|adapted| adapted.root);
            let starts = roots.zip(periods).filter(|(root, _)| !system.operation(*root).standby);
            let rates = starts.map(|(root, period)| format!("{} = {}", name(names, root), time(*period)));
            line(text, "start", format!("{{ {} }}", rates.collect::<Vec<_>>().join(", ")));
        }
    }
    if one.divide != RateDivision::Proportional {
        line(text, "divide", quoted(one.divide.name()));
    }
    if !one.anti_windup {
        line(text, "anti_windup", "false");
    }
    write_endpoints(text, &one.endpoints);
    if one.insecure {
        line(text, "insecure", "true");
    }
}

/// Millionths as a number.
fn number(millionths: i64) -> String {
    format!("{:?}", millionths as f64 / 1e6)
}

/// A contract in the file's syntax, with the defaults that are in force.
pub fn contract_text(system: &System, contract: &Contract) -> String {
    let templates = templates(system);
    let mut text = String::new();
    write_contract(&mut text, system, contract, &|ids| names(&templates, ids));
    text.trim_start().into()
}

fn write_contract(text: &mut String, system: &System, one: &Contract, names: &dyn Fn(&[OperationId]) -> String) {
    header(text, "contract", &one.name);
    line(text, "precedence", one.precedence.to_string());
    line(text, "period", time(one.period));
    line(text, "on", quoted(&plain(&system.processor(one.processor).name)));
    let conditions: Vec<String> = one.conditions.iter().map(|one| condition(system, one, names)).collect();
    line(text, "watch", format!("{{ {} }}", conditions.join(", ")));
    let keys = |region: &ContractRegion| region_keys(system, region, names);
    for (place, region) in (0..).zip(&one.regions).filter(|(_, region)| region.rules.parent.is_none()) {
        let _ = writeln!(text, "\n[[contract.{}.region]]", key_of(&plain(&one.name)));
        keys(region).into_iter().for_each(|(key, value)| line(text, key, value));
        let inner = one.regions.iter().filter(|inner| inner.rules.parent == Some(place));
        let inner: Vec<String> = inner.map(|inner| table(keys(inner))).collect();
        if !inner.is_empty() {
            line(text, "region", format!("[{}]", inner.join(", ")));
        }
    }
}

/// `condition.NAME`, or the name of a measured one, such as `host.NAME.QUANTITY`.
fn condition_address(condition: &OutsideCondition) -> String {
    match condition.measure {
        None => format!("condition.{}", plain(&condition.name)),
        Some(_) => condition.name.split('.').map(plain).collect::<Vec<_>>().join("."),
    }
}

/// `name = { of = "operation.track.latency", ... }`.
fn condition(system: &System, one: &Condition, names: &dyn Fn(&[OperationId]) -> String) -> String {
    let operation =
        |id: &OperationId, key: &str| quoted(&format!("operation.{}.{key}", name(names, *id).trim_matches('"')));
    let operations = |ids: &[OperationId], key: &str| {
        format!("[{}]", ids.iter().map(|id| operation(id, key)).collect::<Vec<_>>().join(", "))
    };
    let of = |scope: &LatencyScope, key: &str| match scope {
        LatencyScope::Operations(ids) => operations(ids, key),
        LatencyScope::Chain(place) => quoted(&format!("chain.{}.{key}", plain(&system.chains[*place as usize].name))),
    };
    let processor =
        |id: ProcessorId, key: &str| quoted(&format!("processor.{}.{key}", plain(&system.processor(id).name)));
    let jobs = |scope: &JobScope, key: &str| match scope {
        JobScope::Operations(ids) => operations(ids, key),
        JobScope::Processor { processor: id, critical: false } => processor(*id, key),
        JobScope::Processor { processor: id, critical: true } => processor(*id, &format!("critical_{key}")),
    };
    let of = match &one.of {
        ConditionSource::MissRatio(scope) => of(scope, "miss_ratio"),
        ConditionSource::Latency(scope) => of(scope, "latency"),
        ConditionSource::Lateness(scope) => of(scope, "lateness"),
        ConditionSource::Set(condition) => quoted(&condition_address(&system.conditions[usize::from(*condition)])),
        ConditionSource::Utilisation(id) => processor(*id, "utilisation"),
        ConditionSource::Demand(scope) => jobs(scope, "demand"),
        ConditionSource::Wasted(scope) => jobs(scope, "wasted"),
        ConditionSource::Usage(scope) => jobs(scope, "usage"),
        ConditionSource::Rate(scope) => jobs(scope, "rate"),
        ConditionSource::Queue(scope) => jobs(scope, "queue"),
        ConditionSource::Strategy(id) => processor(*id, "strategy"),
        ConditionSource::Endangered(id) => processor(*id, "endangered"),
    };
    let mut keys = alloc::vec![("of", of)];
    keys.extend(one.over.map(|over| ("over", time(over))));
    keys.extend(one.max_age.map(|age| ("max_age", time(age))));
    match one.summary {
        WindowSummary::Mean => {}
        WindowSummary::Least => keys.push(("as", quoted("least"))),
        WindowSummary::Greatest => keys.push(("as", quoted("greatest"))),
        WindowSummary::Spread => keys.push(("as", quoted("spread"))),
    }
    format!("{} = {}", one.name, table(keys))
}

fn region_keys(
    system: &System,
    region: &ContractRegion,
    names: &dyn Fn(&[OperationId]) -> String,
) -> Vec<(&'static str, String)> {
    let rules = &region.rules;
    let mut keys = alloc::vec![("name", quoted(&region.name))];
    keys.extend(rules.enter.as_ref().map(|enter| ("enter", quoted(enter.text()))));
    keys.extend(rules.leave.as_ref().map(|leave| ("leave", quoted(leave.text()))));
    if !rules.hold.is_zero() {
        keys.push(("for", time(rules.hold)));
    }
    let Stay { first, grow, most, .. } = rules.stay;
    if most > first {
        let stay = format!("{{ first = {}, grow = {grow}, most = {} }}", time(first), time(most));
        keys.push(("stay", stay));
    } else if !first.is_zero() {
        keys.push(("stay", time(first)));
    }
    if rules.latch {
        keys.push(("latch", "true".to_string()));
    }
    if !region.ramp.is_zero() {
        keys.push(("ramp", time(region.ramp)));
    }
    let set = |id: &OperationId, key| quoted(&format!("operation.{}.{key}", name(names, *id).trim_matches('"')));
    let set_processor = |section: &str, id: ProcessorId, key: &str, to: String| {
        let name = plain(&system.processor(id).name);
        table(alloc::vec![("set", quoted(&format!("{section}.{name}.{key}"))), ("to", to)])
    };
    let actions = region.actions.iter().map(|action| match action {
        ContractAction::LimitPeriod { operation, shortest, longest } => {
            let mut keys = alloc::vec![("set", set(operation, "rate"))];
            keys.extend((!shortest.is_zero()).then(|| ("most", time(*shortest))));
            keys.extend((longest.as_nanos() < u64::MAX).then(|| ("least", time(*longest))));
            table(keys)
        }
        ContractAction::LimitLegs { operation, most } => {
            table(alloc::vec![("set", set(operation, "repeat.legs")), ("most", most.to_string())])
        }
        ContractAction::LimitLevel { operation, most } => {
            let level = &system.operation(*operation).levels[usize::from(*most)];
            table(alloc::vec![("set", set(operation, "level")), ("most", quoted(&level.name))])
        }
        ContractAction::Disable { operation } => {
            table(alloc::vec![("set", set(operation, "enabled")), ("to", "false".to_string())])
        }
        ContractAction::Enable { operation } => {
            table(alloc::vec![("set", set(operation, "enabled")), ("to", "true".to_string())])
        }
        ContractAction::Set { setting, to } => match setting {
            ContractSetting::Importance(operation) => {
                table(alloc::vec![("set", set(operation, "importance")), ("to", to.to_string())])
            }
            ContractSetting::Utilisation(id) => set_processor("feedback", *id, "utilisation", percentage(*to)),
            ContractSetting::MissRatio(id) => set_processor("feedback", *id, "miss_ratio", percentage(*to)),
            ContractSetting::Strategy(id) => {
                set_processor("processor", *id, "strategy", quoted(&setting.text(system, *to)))
            }
        },
        ContractAction::Admission { operation, admit } => {
            let name = name(names, *operation);
            table(alloc::vec![(if *admit { "admit" } else { "withdraw" }, quoted(name.trim_matches('"')))])
        }
        ContractAction::Report { text } => table(alloc::vec![("report", quoted(text))]),
        ContractAction::External(action) => external_action(system, action),
    });
    let actions: Vec<String> = actions.collect();
    if !actions.is_empty() {
        keys.push(("do", format!("[{}]", actions.join(", "))));
    }
    keys
}

fn external_action(system: &System, action: &ExternalAction) -> String {
    table(match action {
        ExternalAction::Call { callback } => alloc::vec![("call", quoted(callback))],
        ExternalAction::Run { command } => {
            let words: Vec<String> = command.iter().map(|word| quoted(word)).collect();
            alloc::vec![("run", format!("[{}]", words.join(", ")))]
        }
        ExternalAction::Reserve { program, setting, to } => {
            let address = format!("reservation.{}.{}", system.program(*program).name, setting.key());
            let text = setting.text(*to);
            alloc::vec![("set", quoted(&address)), ("to", if setting.is_bounded() { quoted(&text) } else { text })]
        }
        ExternalAction::MarkLink { link, dscp } => {
            let (one, other) = system.links[usize::from(*link)].between;
            let [one, other] = [one, other].map(|host| plain(&system.hosts[host.index()].name));
            let address = format!("link.{one}-{other}.dscp");
            alloc::vec![("set", quoted(&address)), ("to", quoted(&dscp.to_string()))]
        }
        ExternalAction::Behave { delegate, operation, behaviour } => {
            let address = format!("delegate.{}.{operation}", plain(&system.delegates[usize::from(*delegate)].name));
            alloc::vec![("set", quoted(&address)), ("to", quoted(&behaviour.to_string()))]
        }
    })
}

fn table(keys: Vec<(&str, String)>) -> String {
    let keys: Vec<String> = keys.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("{{ {} }}", keys.join(", "))
}

fn write_programs(text: &mut String, system: &System) {
    for program in &system.brokered.programs {
        header(text, "reservation", &program.name);
        let words: Vec<String> = program.words.iter().map(|word| quoted(word)).collect();
        line(text, "program", format!("[{}]", words.join(", ")));
        if system.hosts.len() > 1 {
            line(text, "host", quoted(&plain(&system.hosts[program.host.index()].name)));
        }
        line(text, "period", time(program.period));
        let deadline = (program.deadline < program.period).then_some(program.deadline);
        let times = [("deadline", deadline), ("budget", program.budget), ("least", program.least)];
        times.into_iter().for_each(|(key, span)| span.into_iter().for_each(|span| line(text, key, time(span))));
        if !program.advocates.is_empty() {
            let advocates: Vec<String> = program.advocates.iter().map(advocate).collect();
            line(text, "advocate", format!("[{}]", advocates.join(", ")));
        }
        line(text, "importance", program.importance.to_string());
        line(text, "weight", program.weight.to_string());
        if !program.group.is_empty() {
            line(text, "group", quoted(&program.group));
        }
        if let Some((_, takes)) = program.execution_times.first().filter(|(from, _)| *from == Instant::ZERO) {
            line(text, "takes", self::takes(takes));
        }
    }
}

fn advocate(words: &AdvocateWords) -> String {
    let parameters = match words.parameters.as_slice() {
        [(name, value)] if name.is_empty() => quoted(value),
        parameters => {
            let each = parameters.iter().map(|(name, value)| format!("{} = {}", key_of(name), quoted(value)));
            format!("{{ {} }}", each.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{{ {} = {parameters} }}", key_of(&words.kind))
}

/// The events of each operation.
struct EventsOf<'a> {
    supplied: Vec<Vec<&'a Event>>,
    consumed: Vec<Vec<&'a Event>>,
}

impl<'a> EventsOf<'a> {
    fn new(system: &'a System) -> Self {
        let none = || vec![Vec::new(); system.operations.len()];
        let mut events = EventsOf { supplied: none(), consumed: none() };
        for event in &system.events {
            event.suppliers.iter().for_each(|id| events.supplied[id.index()].push(event));
            event.consumers.iter().for_each(|id| events.consumed[id.index()].push(event));
        }
        events
    }

    /// The value of `after`.
    fn after(&self, operation: usize, trigger: &Trigger, names: &dyn Fn(&[OperationId]) -> String) -> String {
        let (groups, within): (Vec<&[OperationId]>, _) = match trigger {
            Trigger::All(all) => (all.chunks(1).collect(), None),
            Trigger::Correlated(correlation) => (correlation.groups().collect(), correlation.within),
            Trigger::Any(ids) => {
                let (mut others, selection) = self.selection(operation, ids, names);
                let selected: Vec<_> = ids.iter().filter(|id| !others.contains(id)).collect();
                // The reader puts named operations first, then the suppliers in order. It reads a single supplier as
                // `all`.
                let read = others.iter().chain(&selected).copied().eq(ids) && selected.is_sorted();
                if !read || ids.len() == 1 {
                    others = ids.iter().collect();
                }
                return match selection {
                    Some(selection) if others.is_empty() => selection,
                    selection => format!("{{ any = {} }}", self.items(&others, selection, names)),
                };
            }
            Trigger::First(copies) => return format!("{{ first = {} }}", names(copies)),
            Trigger::Chosen(ChosenHops { predecessors, probability_ppm }) => {
                let probability = percentage(*probability_ppm);
                return format!("{{ chosen = {}, probability = {probability} }}", names(predecessors));
            }
            Trigger::Periodic => return String::new(),
        };
        let mut items = Vec::new();
        let mut tables = false;
        for group in &groups {
            let (others, selection) = self.selection(operation, group, names);
            items.push(match (selection, &others[..]) {
                (Some(selection), []) => selection,
                // The reader would put names after tables before them.
                (None, [one]) if !tables => name(names, **one),
                (selection, others) => format!("{{ any = {} }}", self.items(others, selection, names)),
            });
            tables |= items.last().is_some_and(|item| item.starts_with('{'));
        }
        match (&items[..], within) {
            ([selection], None) if tables => selection.clone(),
            (_, None) => format!("{{ all = [{}] }}", items.join(", ")),
            (_, Some(within)) => format!("{{ all = [{}], within = {} }}", items.join(", "), time(within)),
        }
    }

    /// A selection of events with suppliers among these operations, and the operations that supply none of them.
    fn selection<'i>(
        &self,
        operation: usize,
        ids: &'i [OperationId],
        names: &dyn Fn(&[OperationId]) -> String,
    ) -> (Vec<&'i OperationId>, Option<String>) {
        let members: BTreeSet<&OperationId> = ids.iter().collect();
        let follows = |event: &&&Event| event.suppliers.iter().any(|one| members.contains(one));
        let events = || self.consumed[operation].iter().filter(follows).copied();
        let suppliers: BTreeSet<OperationId> = events().flat_map(|event| &event.suppliers).copied().collect();
        let (selected, others): (Vec<&OperationId>, Vec<_>) = ids.iter().partition(|id| suppliers.contains(id));
        if selected.is_empty() {
            return (others, None);
        }
        let selected: BTreeSet<OperationId> = selected.into_iter().copied().collect();
        let from = match selected.len() < suppliers.len() {
            true => format!(", from = {}", names(&selected.into_iter().collect::<Vec<_>>())),
            false => String::new(),
        };
        (others, Some(format!("{{ event = {}{from} }}", event_names(events()))))
    }

    fn items(
        &self,
        named: &[&OperationId],
        selection: Option<String>,
        names: &dyn Fn(&[OperationId]) -> String,
    ) -> String {
        let items: Vec<String> = named.iter().map(|id| name(names, **id)).chain(selection).collect();
        format!("[{}]", items.join(", "))
    }
}

/// One name; `names` writes a list.
fn name(names: &dyn Fn(&[OperationId]) -> String, id: OperationId) -> String {
    names(&[id]).trim_matches(['[', ']']).to_string()
}

/// Operations that a file declares as one, or a single one.
struct Template<'a> {
    system: &'a System,
    name: String,
    first: usize,
    /// How many; `None` for an operation without a number.
    count: Option<usize>,
    /// Further processors of an operation.
    further: usize,
    /// Of a template: the period over which `stagger = "even"` spreads the phases, or the time between two.
    stagger: Stagger,
    /// Deadlines that count from the origin are written, too: roots and chains do not imply them.
    explicit_deadlines: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stagger {
    By(Span),
    /// Over a period that the first epoch may then change.
    Even(Span),
}

fn templates(system: &System) -> Vec<Template<'_>> {
    let mut templates = Vec::new();
    let mut first = 0;
    while first < system.operations.len() {
        let template = numbered(system, first).unwrap_or_else(|| Template {
            system,
            name: plain_operation(&system.operations[first].name),
            first,
            count: None,
            further: further(system, first),
            stagger: Stagger::By(Span::ZERO),
            explicit_deadlines: false,
        });
        first += template.len();
        templates.push(template);
    }
    templates
}

/// Marks operations with a deadline that counts from the origin and that a reader would not infer.
fn mark_deadlines(system: &System, templates: &mut [Template<'_>]) {
    let triggers: Vec<Trigger> = system.operations.iter().map(|operation| operation.trigger.clone()).collect();
    let chains = tightest(&system.chains, &triggers);
    for template in templates {
        template.explicit_deadlines = (template.first..template.first + template.len()).any(|id| {
            let mut had_its_own = false;
            system.epochs.iter().any(|epoch| match epoch.settings[id].deadline {
                Deadline::Own(_) => {
                    had_its_own = true;
                    false
                }
                Deadline::Origin(deadline) => {
                    let of_root = |root: &OperationId| epoch.settings[root.index()].deadline.span();
                    let of_roots = || system.operations[id].roots.iter().map(of_root).max();
                    // If an operation has had its own deadline, its roots no longer imply one.
                    had_its_own || Some(deadline) != chains[id].or_else(of_roots)
                }
            })
        });
    }
}

/// The instances `name.1`, `name.2`, ... from `first` on, if one template can mean them all.
fn numbered(system: &System, first: usize) -> Option<Template<'_>> {
    let (name, number) = system.operations[first].name.rsplit_once('.')?;
    if number != "1" || plain_operation(name) != name {
        return None;
    }
    let is = |(place, operation): (usize, &Operation)| operation.name == format!("{name}.{}", place + 1);
    let count = system.operations[first..].iter().enumerate().take_while(|(place, one)| is((*place, one))).count();
    let of = |place: usize| &system.operations[first + place];
    let alike = |place: usize| {
        let periodic = of(0).trigger == Trigger::Periodic;
        let one = Operation { name: of(0).name.clone(), roots: of(0).roots.clone(), ..of(place).clone() };
        let roots = periodic || of(place).roots == of(0).roots;
        let same = |ids: &Vec<OperationId>| {
            let has = |place: usize| ids.binary_search(&OperationId((first + place) as u32)).is_ok();
            has(place) == has(0)
        };
        let events = system.events.iter().all(|event| same(&event.suppliers) && same(&event.consumers));
        one == *of(0) && roots && events && setting(system, first + place).offset == setting(system, first).offset
    };
    if !(1..count).all(alike) {
        return None;
    }
    let phases: Vec<u64> = (0..count).map(|place| setting(system, first + place).phase.as_nanos()).collect();
    Some(Template {
        system,
        name: name.into(),
        first,
        count: Some(count),
        further: 0,
        stagger: stagger(&phases, setting(system, first).period)?,
        explicit_deadlines: false,
    })
}

fn stagger(phases: &[u64], period: Span) -> Option<Stagger> {
    let (start, count) = (phases[0], phases.len() as u64);
    let later: Vec<u64> = phases.iter().map(|phase| phase.checked_sub(start)).collect::<Option<_>>()?;
    let by = later.get(1).copied().unwrap_or(0);
    let is = |meant: &dyn Fn(u128) -> u128| (0..).zip(&later).all(|(place, one)| meant(place) == u128::from(*one));
    let even = |period: u128| is(&|place| period * place / u128::from(count));
    if by > 0 && even(u128::from(period.as_nanos())) {
        return Some(Stagger::Even(period));
    }
    if is(&|place| u128::from(by) * place) {
        return Some(Stagger::By(Span::from_nanos(by)));
    }
    // The shortest period p with floor(p k / n) = phase of the k-th of n, if there is one.
    let places = (0..).zip(&later).skip(1);
    let least = places.map(|(place, one): (u128, _)| (u128::from(*one) * u128::from(count)).div_ceil(place)).max()?;
    even(least).then_some(Stagger::Even(Span::from_nanos(u64::try_from(least).ok()?)))
}

/// The number of further processors of an operation.
fn further(system: &System, first: usize) -> usize {
    let home = Some(OperationId(first as u32));
    system.operations[first + 1..].iter().take_while(|one| one.home == home).count()
}

fn setting(system: &System, operation: usize) -> &Setting {
    &system.epochs[0].settings[operation]
}

fn names(templates: &[Template<'_>], ids: &[OperationId]) -> String {
    let name = |id: &OperationId| {
        let template = &templates[templates.partition_point(|one| one.first <= id.index()).saturating_sub(1)];
        match template.count {
            Some(_) => quoted(&format!("{}.{}", template.name, id.index() - template.first + 1)),
            None => quoted(&template.name),
        }
    };
    format!("[{}]", ids.iter().map(name).collect::<Vec<_>>().join(", "))
}

impl Template<'_> {
    fn len(&self) -> usize {
        self.count.unwrap_or(1 + self.further)
    }

    /// The table of all instances in the first epoch; later epochs contain the differences.
    fn base(&self) -> Setting {
        let mut base = setting(self.system, self.first).clone();
        // An operation cannot lose its own deadline again: the table has it only if all epochs have one.
        let instances = self.system.epochs[0].settings[self.first..self.first + self.len()].iter();
        let from_origin = instances.map(|one| one.deadline).find(|one| matches!(one, Deadline::Origin(_)));
        base.deadline = from_origin.filter(|_| !self.explicit_deadlines).unwrap_or(base.deadline);
        if let Stagger::Even(period) = self.stagger
            && period != base.period
        {
            (base.period, base.slowest) = (period, period);
            base.jitter = Span::ZERO;
        }
        base
    }

    fn write(&self, text: &mut String, templates: &[Template<'_>], events: &EventsOf<'_>) {
        let operation = &self.system.operations[self.first];
        let periodic = operation.trigger == Trigger::Periodic;
        let base = self.base();
        header(text, "operation", &self.name);
        if self.system.processors.len() > 1 {
            let places = &self.system.operations[self.first..=self.first + self.further];
            let name = |one: &Operation| quoted(&plain(&self.system.processors[one.on.index()].name));
            match places {
                [one] => line(text, "on", name(one)),
                several => line(text, "on", format!("[{}]", several.iter().map(name).collect::<Vec<_>>().join(", "))),
            }
        }
        let list = |ids: &[OperationId]| names(templates, ids);
        match &operation.trigger {
            Trigger::Periodic => line(text, "every", one_or_pair((base.period, base.slowest))),
            Trigger::Any(any) if any.is_empty() => line(text, "called", "true"),
            Trigger::Any(_) | Trigger::All(_) | Trigger::Correlated(_) | Trigger::First(_) | Trigger::Chosen(_) => {
                line(text, "after", events.after(self.first, &operation.trigger, &list));
            }
        }
        if !events.supplied[self.first].is_empty() {
            line(text, "supplies", event_names(events.supplied[self.first].iter().copied()));
        }
        if operation.calls_any {
            line(text, "calls", quoted("any"));
        }
        if let Some(interval) = operation.min_interval {
            line(text, "min_interval", time(interval));
        }
        if let Some(ClientRates { most, shortest, longest }) = operation.clients {
            let every = one_or_pair((shortest, longest));
            line(text, "clients", format!("{{ every = {every}, most = {most} }}"));
        }
        if !operation.levels.is_empty() {
            let level = |one: &ServiceLevel| {
                format!("{{ name = {}, wcet = {}, value = {} }}", quoted(&one.name), time(one.wcet), one.value)
            };
            line(text, "levels", format!("[{}]", operation.levels.iter().map(level).collect::<Vec<_>>().join(", ")));
        }
        if !operation.reads.is_empty() {
            line(text, "reads", list(&operation.reads));
        }
        let burst = self.count.filter(|_| periodic && !operation.phase_given);
        if let Some(jobs) = burst {
            line(text, "burst", format!("{{ jobs = {jobs}, within = {} }}", time(base.jitter)));
        } else if let Some(count) = self.count {
            line(text, "count", count.to_string());
            if periodic {
                match self.stagger {
                    Stagger::By(span) => line(text, "stagger", time(span)),
                    Stagger::Even(_) => line(text, "stagger", "\"even\""),
                }
            }
        }
        let phase_given = periodic && operation.phase_given && self.count.is_none();
        for (key, span, declared) in [("phase", base.phase, phase_given), ("offset", base.offset, false)] {
            if declared || !span.is_zero() {
                line(text, key, time(span));
            }
        }
        for (key, value) in changes(None, &base, operation, self.explicit_deadlines) {
            let within = key == "jitter" && burst.is_some();
            if !(within || self.plain() && follows(&base, key, periodic)) {
                line(text, key, value);
            }
        }
        if operation.standby {
            line(text, "standby", "true");
        }
        self.write_constants(text, operation);
    }

    /// True if no epoch differs from the table.
    fn plain(&self) -> bool {
        let base = self.base();
        let settings = &self.system.epochs[0].settings[self.first..self.first + self.len()];
        let but_phase = |one: &Setting| Setting { phase: base.phase, ..one.clone() } == base;
        self.system.epochs.len() == 1 && settings.iter().all(but_phase)
    }

    /// Writes the keys that no epoch changes.
    fn write_constants(&self, text: &mut String, operation: &Operation) {
        if operation.critical {
            line(text, "critical", "true");
        }
        if operation.importance > 0 {
            line(text, "importance", operation.importance.to_string());
        }
        if !operation.uses.is_empty() {
            let held = |(resource, span): &(ResourceId, Span)| {
                format!("{} = {}", key_of(&plain(&self.system.resources[resource.index()].name)), time(*span))
            };
            let uses: Vec<String> = operation.uses.iter().map(held).collect();
            line(text, "uses", format!("{{ {} }}", uses.join(", ")));
        }
        let when_full = match operation.queue.when_full {
            WhenFull::DropNewest => "drop-newest",
            WhenFull::DropOldest => "drop-oldest",
        };
        line(text, "queue", format!("{{ limit = {}, when_full = \"{when_full}\" }}", operation.queue.limit));
        match operation.on_overrun {
            OnOverrun::Report => {}
            OnOverrun::Demote => line(text, "on_overrun", "\"demote\""),
            OnOverrun::Stop => line(text, "on_overrun", "\"stop\""),
        }
        if operation.on_busy == OnBusy::Skip {
            line(text, "on_busy", "\"skip\"");
        }
        match operation.on_miss {
            OnMiss::Continue => {}
            OnMiss::Stop => line(text, "on_miss", "\"stop\""),
            OnMiss::SkipNext => line(text, "on_miss", "\"skip-next\""),
        }
        if !operation.trigger.predecessors().is_empty() {
            let guard = match operation.guard {
                Guard::Off => "off",
                Guard::On => "on",
                Guard::Idle => "idle",
            };
            line(text, "guard", quoted(guard));
        }
        for (key, span) in [("timeout", operation.timeout), ("lifespan", operation.lifespan)] {
            span.into_iter().for_each(|span| line(text, key, time(span)));
        }
        if operation.payload > 0 {
            line(text, "payload", format!("\"{}B\"", operation.payload));
        }
        if let Some(Replication { to, flush }) = &operation.replication {
            let hosts: Vec<String> = to.iter().map(|id| quoted(&plain(&self.system.hosts[id.index()].name))).collect();
            let flush = match flush {
                FlushPoint::Deadline => "deadline",
                FlushPoint::Completion => "completion",
            };
            line(text, "replicate", format!("{{ to = [{}], flush = \"{flush}\" }}", hosts.join(", ")));
        }
    }
}

/// True if the key may be omitted: its value follows from others.
fn follows(setting: &Setting, key: &str, periodic: bool) -> bool {
    match key {
        "takes" => setting.execution_time == ExecutionTime::Fixed(setting.wcet),
        "bcet" => setting.bcet == setting.execution_time.shortest().min(setting.wcet),
        "deadline" => periodic && setting.deadline == Deadline::Own(setting.period),
        _ => false,
    }
}

/// The keys in which a setting differs from the one before it, or from none.
fn changes(
    before: Option<&Setting>,
    now: &Setting,
    operation: &Operation,
    declared: bool,
) -> Vec<(&'static str, String)> {
    let periodic = operation.trigger == Trigger::Periodic;
    let mut changes = Vec::new();
    let differs = |same: &dyn Fn(&Setting) -> bool| before.is_none_or(|before| !same(before));
    if periodic && before.is_some_and(|before| (before.period, before.slowest) != (now.period, now.slowest)) {
        changes.push(("every", one_or_pair((now.period, now.slowest))));
    }
    if periodic && before.map_or(!now.jitter.is_zero(), |before| before.jitter != now.jitter) {
        changes.push(("jitter", time(now.jitter)));
    }
    if differs(&|before| before.wcet == now.wcet) {
        changes.push(("wcet", time(now.wcet)));
    }
    // With levels it follows from the lowest one.
    if !now.bcet.is_zero() && operation.levels.is_empty() && differs(&|before| before.bcet == now.bcet) {
        changes.push(("bcet", time(now.bcet)));
    }
    if differs(&|before| before.execution_time == now.execution_time) {
        changes.push(("takes", takes(&now.execution_time)));
    }
    // Deadlines counted from the origin mostly follow from chains and roots.
    let deadline = match now.deadline {
        Deadline::Own(deadline) => Some(time(deadline)),
        Deadline::Origin(deadline) => declared.then(|| format!("{{ end_to_end = {} }}", time(deadline))),
    };
    if let Some(deadline) = deadline.filter(|_| differs(&|before| before.deadline == now.deadline)) {
        changes.push(("deadline", deadline));
    }
    let (critical, legs) = (operation.critical, |setting: &Setting| (setting.legs, setting.critical_legs));
    if periodic && before.map_or((1, u16::from(critical)), legs) != legs(now) {
        let of_them = if critical { String::new() } else { format!(", critical = {}", now.critical_legs) };
        changes.push(("repeat", format!("{{ legs = {}{of_them} }}", now.legs)));
    }
    if before.map_or(!now.enabled, |before| before.enabled != now.enabled) {
        changes.push(("enabled", now.enabled.to_string()));
    }
    changes
}

fn takes(takes: &ExecutionTime) -> String {
    match takes {
        ExecutionTime::Fixed(span) => time(*span),
        ExecutionTime::Uniform(least, most) => format!("{{ uniform = [{}, {}] }}", time(*least), time(*most)),
        ExecutionTime::Normal { mean, deviation, least, most } => {
            let [mean, deviation, least, most] = [mean, deviation, least, most].map(|span| time(*span));
            format!("{{ normal = {{ mean = {mean}, deviation = {deviation}, least = {least}, most = {most} }} }}")
        }
        ExecutionTime::List(spans) => {
            let spans: Vec<String> = spans.iter().map(|span| time(*span)).collect();
            format!("{{ list = [{}] }}", spans.join(", "))
        }
    }
}

fn write_epochs(text: &mut String, system: &System, templates: &[Template<'_>]) {
    let mut before: Vec<Setting> = vec![];
    for template in templates {
        let base = template.base();
        before.extend((0..template.len()).map(|_| base.clone()));
    }
    for (index, epoch) in system.epochs.iter().enumerate() {
        let mut sets = epoch_sets(system, epoch, &before, templates);
        sets.extend(program_sets(system, epoch));
        sets.extend(environment_sets(system, index));
        before.clone_from_slice(&epoch.settings);
        let unsaid = index == 0 && sets.is_empty() && epoch.name == "0" && epoch.at == Instant::ZERO;
        if unsaid {
            continue;
        }
        text.push_str("\n[[epoch]]\n");
        line(text, "at", time(epoch.at.since(Instant::ZERO)));
        line(text, "name", quoted(&epoch.name));
        let Admissions { withdraw, admit } = &epoch.admissions;
        for (key, ids) in [("withdraw", withdraw), ("admit", admit)] {
            if !ids.is_empty() {
                line(text, key, names(templates, ids));
            }
        }
        if !sets.is_empty() {
            text.push_str("[epoch.set]\n");
            for set in &sets {
                let _ = writeln!(text, "{set}");
            }
        }
    }
}

/// An epoch's changes of links and hosts. Host tables already contain those that are off at the start.
fn environment_sets(system: &System, epoch: usize) -> Vec<String> {
    let now = &*system.epochs[epoch].environment;
    let declared = Environment { disabled: now.disabled.clone(), ..Environment::default() };
    let before = epoch.checked_sub(1).map_or(&declared, |before| &*system.epochs[before].environment);
    let host = |id: HostId| plain(&system.hosts[id.index()].name);
    let mut sets = Vec::new();
    for (position, link) in system.links.iter().enumerate() {
        let (before, now) = (before.link(position, link), now.link(position, link));
        let name = format!("link.{}-{}", host(link.between.0), host(link.between.1));
        if before.delay != now.delay {
            sets.push(format!("\"{name}.delay\" = {}", one_or_pair(now.delay)));
        }
        if before.loss_ppm != now.loss_ppm {
            sets.push(format!("\"{name}.loss\" = {}", percentage(now.loss_ppm)));
        }
    }
    for id in (0..system.hosts.len() as u32).map(HostId) {
        if before.enables(id) != now.enables(id) {
            sets.push(format!("\"host.{}.enabled\" = {}", host(id), now.enables(id)));
        }
    }
    for (place, condition) in system.conditions.iter().enumerate() {
        let (value, is_measured) = (now.condition(place), condition.measure.is_some());
        let differs = if epoch > 0 { value != before.condition(place) } else { is_measured };
        if let Some(value) = value.filter(|_| differs) {
            let key = if is_measured { "" } else { ".value" };
            let address = format!("{}{key}", condition_address(condition));
            sets.push(format!("\"{address}\" = {}", number(value)));
        }
    }
    sets
}

/// An epoch's changes of programs; their tables contain the values at the start.
fn program_sets(system: &System, epoch: &Epoch) -> Vec<String> {
    let changed = system.brokered.programs.iter().flat_map(|program| {
        let here = program.execution_times.iter().filter(|(from, _)| *from == epoch.at && *from > Instant::ZERO);
        here.map(|(_, takes)| format!("\"reservation.{}.takes\" = {}", program.name, self::takes(takes)))
    });
    changed.collect()
}

/// An epoch's changes, once for all instances of a template if they agree.
fn epoch_sets(system: &System, epoch: &Epoch, before: &[Setting], templates: &[Template<'_>]) -> Vec<String> {
    let mut sets = Vec::new();
    for template in templates {
        let of = |id: usize| {
            changes(
                before.get(id),
                &epoch.settings[id],
                &system.operations[template.first],
                template.explicit_deadlines,
            )
        };
        let all: Vec<_> = (template.first..template.first + template.len()).map(of).collect();
        let mut say = |name: &str, changes: &[(&str, String)]| {
            sets.extend(changes.iter().map(|(key, value)| format!("\"operation.{name}.{key}\" = {value}")));
        };
        match (template.count, all.windows(2).all(|pair| pair[0] == pair[1])) {
            (Some(_), false) => (1..).zip(&all).for_each(|(k, one)| say(&format!("{}.{k}", template.name), one)),
            _ => say(&template.name, &all[0]),
        }
    }
    sets
}
