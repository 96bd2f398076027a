//! Every key of `system.toml`, once. The rejection of unknown keys, the suggestions, the defaults, the JSON schema for
//! editors and the test of `examples/reference.toml` use this table.

/// A kind of table in the file.
#[derive(Debug)]
pub struct Section {
    /// Its name. A section that is the value of a key is named after that key: `operation.queue`.
    pub path: &'static str,
    /// How it is written.
    pub shape: Shape,
    /// Its purpose, in one line.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// How a section is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The file itself.
    Top,
    /// `[section.NAME]`, any number of them.
    Named,
    /// `[[section]]`, any number of them.
    List,
    /// The value of a key.
    Inline,
}

/// One key.
#[derive(Debug)]
pub struct Key {
    /// The name as written.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// The meaning if it is omitted.
    pub default: DefaultValue,
    /// Whether an epoch can change it.
    pub settable: bool,
    /// Its purpose, in one line.
    pub doc: &'static str,
}

/// The meaning of an omitted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// An error.
    Required,
    /// The value, in the file's syntax.
    Value(&'static str),
    /// A description.
    Described(&'static str),
}

/// The types of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Free text.
    Text,
    /// One text, or two.
    TextOrPair,
    /// The name of something in the section.
    Name(&'static str),
    /// A list of such names.
    Names(&'static str),
    /// Two such names.
    Pair(&'static str),
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number above 0.
    Number,
    /// A number from -1,000,000,000 to 1,000,000,000.
    Real,
    /// `true` or `false`.
    Truth,
    /// The value of a setting: `true`, `false`, a whole number or a text.
    SettingValue,
    /// `"25ms"`.
    Time,
    /// `["25ms", "100ms"]`.
    TimePair,
    /// `"25ms"` or `["25ms", "100ms"]`.
    TimeOrPair,
    /// `["1ms", "2ms", ...]`.
    Times,
    /// `"40Hz"`.
    Rate,
    /// `"40Hz"`, a whole number from the first to the second, or the name of a service level.
    Limit(u64, u64),
    /// `"40Hz"` or `["10Hz", "40Hz"]`.
    RateOrPair,
    /// `"75%"`.
    Share,
    /// `"75%"` or this word.
    ShareOr(&'static str),
    /// `"1KiB"`.
    Size,
    /// `"100Mbit/s"`.
    Bandwidth,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `"even"` or a time.
    Stagger,
    /// A time, or a table of the section.
    TimeOr(&'static str),
    /// A list of texts.
    Texts,
    /// A list of whole numbers from the first to the second.
    Wholes(u64, u64),
    /// `[{ max_decay = { reports = 10 } }, { cap = "60%" }]`.
    Advocates,
    /// A table of the section.
    Table(&'static str),
    /// This word, or a table of the section.
    WordOr(&'static str, &'static str),
    /// One of these words, or a table of names of the section and rates or periods.
    WordsOrRates(&'static [&'static str], &'static str),
    /// A table of names of the section and times.
    TimeOf(&'static str),
    /// Such a name, or a list of them.
    NameOrNames(&'static str),
    /// A table of names in an interface and names of the section.
    NameOf(&'static str),
    /// A list of names of the first section and tables of the second.
    NamesOr(&'static str, &'static str),
    /// A table of names and tables of the section.
    NamedTables(&'static str),
    /// A list of tables of the section.
    Tables(&'static str),
    /// A table of operations of an interface and behaviours of a delegate.
    Behaviours,
    /// A table of names and texts, numbers, truths or lists of them.
    Values,
    /// Such a value.
    AnyValue,
    /// A table of `"operation.NAME.KEY"`, `"reservation.NAME.KEY"`, `"link.A-B.KEY"` or `"host.NAME.KEY"` and values of
    /// that key.
    Settings,
    /// Not supported yet: the remedy until then.
    Later(&'static str),
}

use DefaultValue::{Described, Required, Value};

const fn key(name: &'static str, kind: Kind, default: DefaultValue, doc: &'static str) -> Key {
    Key { name, kind, default, settable: false, doc }
}

/// A key that epochs can change.
const fn set(name: &'static str, kind: Kind, default: DefaultValue, doc: &'static str) -> Key {
    Key { name, kind, default, settable: true, doc }
}

const fn unsupported(name: &'static str, until_then: &'static str) -> Key {
    Key { name, kind: Kind::Later(until_then), default: Described("not supported yet"), settable: false, doc: "Later." }
}

/// All sections, in the order in which a file is best written.
pub const SECTIONS: &[Section] = &[
    Section { path: "", shape: Shape::Top, doc: "A system, for `hyoshi`.", keys: TOP },
    Section { path: "host", shape: Shape::Named, doc: "A machine. Default: one, `local`.", keys: HOST },
    Section {
        path: "host.network",
        shape: Shape::Inline,
        doc: "A network device that sends in classes by DSCP, so that bulk traffic does not delay critical work.",
        keys: NETWORK,
    },
    Section {
        path: "host.network.classes",
        shape: Shape::Inline,
        doc: "Packets with certain DSCPs.",
        keys: TRAFFIC_CLASS,
    },
    Section {
        path: "host.gateway",
        shape: Shape::Inline,
        doc: "A session of Zenoh, by which programs outside the system read and publish events.",
        keys: GATEWAY,
    },
    Section {
        path: "processor",
        shape: Shape::Named,
        doc: "A CPU that runs operations. Default: one, `main`.",
        keys: PROCESSOR,
    },
    Section { path: "processor.switch", shape: Shape::Inline, doc: "When the second strategy applies.", keys: SWITCH },
    Section {
        path: "costs",
        shape: Shape::Inline,
        doc: "The costs of scheduling; `hyoshi calibrate` measures them.",
        keys: COSTS,
    },
    Section {
        path: "event",
        shape: Shape::Named,
        doc: "A name for completions: operations supply it, and other operations run after it.",
        keys: EVENT,
    },
    Section { path: "operation", shape: Shape::Named, doc: "Work that is released repeatedly.", keys: OPERATION },
    Section {
        path: "operation.after",
        shape: Shape::Inline,
        doc: "What triggers it: `all`, `any`, `first`, `chosen` or `event`.",
        keys: AFTER,
    },
    Section {
        path: "operation.after.all",
        shape: Shape::Inline,
        doc: "A group: one completion of it is sufficient.",
        keys: ONE_OF_ALL,
    },
    Section { path: "operation.after.any", shape: Shape::Inline, doc: "Events.", keys: ONE_OF_ANY },
    Section { path: "operation.calls", shape: Shape::Inline, doc: "A call of another's method.", keys: CALLS },
    Section { path: "operation.deadline", shape: Shape::Inline, doc: "A deadline from the origin.", keys: DEADLINE },
    Section { path: "operation.takes", shape: Shape::Inline, doc: "One of the ways to draw times.", keys: TAKES },
    Section { path: "operation.takes.normal", shape: Shape::Inline, doc: "A normal distribution.", keys: NORMAL },
    Section { path: "operation.queue", shape: Shape::Inline, doc: "The bound of waiting jobs.", keys: QUEUE },
    Section {
        path: "operation.clients",
        shape: Shape::Inline,
        doc: "Registered clients: a feedback loop sets their rates.",
        keys: RATE_CLIENTS,
    },
    Section {
        path: "operation.levels",
        shape: Shape::Inline,
        doc: "A service level: one of several ways to do a job.",
        keys: LEVEL,
    },
    Section { path: "operation.burst", shape: Shape::Inline, doc: "Several jobs in a period.", keys: BURST },
    Section { path: "operation.repeat", shape: Shape::Inline, doc: "A load chain.", keys: REPEAT },
    Section {
        path: "operation.replicate",
        shape: Shape::Inline,
        doc: "Copies of its output on other hosts.",
        keys: REPLICATE,
    },
    Section { path: "resource", shape: Shape::Named, doc: "A resource that one job at a time may use.", keys: &[] },
    Section { path: "chain", shape: Shape::Named, doc: "An end-to-end requirement.", keys: CHAIN },
    Section {
        path: "object",
        shape: Shape::Named,
        doc: "An object of a program: requests to it are jobs.",
        keys: OBJECT,
    },
    Section {
        path: "delegate",
        shape: Shape::Named,
        doc: "A delegate: it passes, refuses or limits requests to an object of the file or of another program.",
        keys: DELEGATE,
    },
    Section { path: "object.clients", shape: Shape::Inline, doc: "What a client may ask for.", keys: CLIENT },
    Section {
        path: "feedback",
        shape: Shape::Named,
        doc: "A loop that adapts the rates of operations with a range of rates, under the name of a processor.",
        keys: FEEDBACK,
    },
    Section {
        path: "feedback.gains",
        shape: Shape::Inline,
        doc: "The gains for which a loop is designed.",
        keys: GAINS,
    },
    Section { path: "feedback.latency", shape: Shape::Inline, doc: "The latency that a loop holds.", keys: LATENCY },
    Section {
        path: "condition",
        shape: Shape::Named,
        doc: "A condition of contracts that operators and epochs set.",
        keys: CONDITION,
    },
    Section {
        path: "contract",
        shape: Shape::Named,
        doc: "Regions over measured conditions, and what to do in each.",
        keys: CONTRACT,
    },
    Section { path: "contract.watch", shape: Shape::Inline, doc: "A condition.", keys: WATCH },
    Section {
        path: "contract.region",
        shape: Shape::Inline,
        doc: "A region: the first one with a true `enter` is active.",
        keys: REGION,
    },
    Section {
        path: "contract.region.region",
        shape: Shape::Inline,
        doc: "A region within a region.",
        keys: INNER_REGION,
    },
    Section { path: "mode", shape: Shape::Named, doc: "Actions under a name, for regions of contracts.", keys: MODE },
    Section {
        path: "qosket",
        shape: Shape::Named,
        doc: "A contract from a file with parameters; `hyoshi contract qoskets` lists the shipped ones.",
        keys: QOSKET,
    },
    Section { path: "contract.region.stay", shape: Shape::Inline, doc: "A time that grows.", keys: STAY },
    Section { path: "contract.region.do", shape: Shape::Inline, doc: "An action.", keys: ACTION },
    Section {
        path: "broker",
        shape: Shape::Inline,
        doc: "How programs under the CPU broker share time.",
        keys: BROKER,
    },
    Section {
        path: "reservation",
        shape: Shape::Named,
        doc: "An unmodified program under the CPU broker.",
        keys: RESERVATION,
    },
    Section { path: "link", shape: Shape::List, doc: "The network between two hosts, both ways.", keys: LINK },
    Section {
        path: "epoch",
        shape: Shape::List,
        doc: "An operating region: from `at` on, these settings hold until an epoch changes them again.",
        keys: EPOCH,
    },
];

/// Words of other tools that users write: section, word, key.
pub const SYNONYMS: &[(&str, &str, &str)] = &[
    ("operation", "period", "every"),
    ("operation", "interval", "every"),
    ("operation", "frequency", "rate"),
    ("operation", "processor", "on"),
    ("operation", "trigger", "after"),
    ("operation", "triggers", "after"),
    ("operation", "depends", "after"),
    ("operation", "inputs", "reads"),
    ("operation", "replica", "replicate"),
    ("operation", "replicas", "replicate"),
    ("operation.replicate", "hosts", "to"),
    ("operation", "supply", "supplies"),
    ("operation", "publishes", "supplies"),
    ("operation.after", "events", "event"),
    ("operation.after", "window", "within"),
    ("operation.after", "not", "except"),
    ("operation", "priority", "importance"),
    ("operation", "execution_time", "takes"),
    ("operation", "duration", "takes"),
    ("operation", "budget", "wcet"),
    ("operation", "instances", "count"),
    ("operation", "criticality", "critical"),
    ("processor", "core", "cpu"),
    ("processor", "scheduler", "strategy"),
    ("processor", "policy", "strategy"),
    ("reservation", "command", "program"),
    ("reservation", "argv", "program"),
    ("reservation", "every", "period"),
    ("reservation", "first", "budget"),
    ("reservation", "wcet", "takes"),
    ("reservation", "priority", "importance"),
    ("reservation", "advocates", "advocate"),
    ("broker", "cpu", "cpus"),
    ("chain", "operations", "path"),
    ("object", "method", "methods"),
    ("object", "endpoint", "endpoints"),
    ("delegate", "behaviours", "behaviour"),
    ("host", "net", "network"),
    ("host.gateway", "endpoints", "listen"),
    ("host.gateway", "publishes", "publish"),
    ("host.network", "name", "device"),
    ("host.network", "interface", "device"),
    ("host.network", "bandwidth", "rate"),
    ("host.network.classes", "ceil", "ceiling"),
    ("host.network.classes", "guarantee", "share"),
    ("event", "endpoint", "endpoints"),
    ("link", "latency", "delay"),
    ("link", "hosts", "between"),
    ("epoch", "start", "at"),
];

const TOP: &[Key] = &[
    key("name", Kind::Text, Required, "What the system is called in reports."),
    key(
        "idle_states",
        Kind::Choice(&["auto", "allow", "forbid"]),
        Value("\"auto\""),
        "Whether CPUs may sleep deeply during a run, which delays wake-ups: auto forbids it where operations are critical.",
    ),
    key("seed", Kind::Whole(0, i64::MAX as u64), Value("1"), "The same seed results in the same execution times."),
    key("duration", Kind::Time, Value("\"10s\""), "The default length of a simulation or run."),
    key("costs", Kind::Table("costs"), Described("those of `hyoshi calibrate`, else none"), "The costs of scheduling."),
    key(
        "broker",
        Kind::Table("broker"),
        Described("the defaults of its keys"),
        "How programs under the CPU broker share time.",
    ),
    unsupported("flow", "declare the network's delay as a [[link]]"),
];

const HOST: &[Key] = &[
    key("broker", Kind::Table("broker"), Described("the file's"), "How programs share time on this host."),
    key(
        "endpoints",
        Kind::Texts,
        Described("no node of its own: all hosts run in one process"),
        "The endpoints of its node: \"tcp/ADDRESS:PORT\", \"tls/ADDRESS:PORT\" or \"unix/PATH\".",
    ),
    key(
        "insecure",
        Kind::Truth,
        Value("false"),
        "True: other machines may connect to its `tcp/` endpoints, without encryption or authentication.",
    ),
    key(
        "zenoh",
        Kind::Text,
        Described("over IIOP, at `endpoints`"),
        "Where its node receives completions of other hosts over Zenoh: \"tcp/ADDRESS:PORT\" or \"tls/ADDRESS:PORT\".",
    ),
    key(
        "router",
        Kind::Text,
        Described("hosts connect directly, to `zenoh` or `endpoints`"),
        "The Zenoh router from which its node receives completions of other hosts: \"tcp/ADDRESS:PORT\" or \"tls/ADDRESS:PORT\".",
    ),
    key(
        "gateway",
        Kind::Table("host.gateway"),
        Described("programs of Zenoh cannot connect"),
        "A session of Zenoh, by which programs outside the system read and publish events.",
    ),
    key(
        "clock_error",
        Kind::Time,
        Described("0s, in one process"),
        "The largest difference from other hosts' clocks: `check` adds it to bounds across hosts.",
    ),
    key(
        "network",
        Kind::Tables("host.network"),
        Described("the machine's own settings"),
        "Devices that send in classes by DSCP while `hyoshi run --host` runs.",
    ),
    set("enabled", Kind::Truth, Value("true"), "False: the host is off until an epoch enables it; for simulation."),
];

const GATEWAY: &[Key] = &[
    key(
        "mode",
        Kind::Choice(&["peer", "client", "router"]),
        Value("\"peer\""),
        "A client has one connection, to a router; a router also forwards between programs.",
    ),
    key(
        "listen",
        Kind::Texts,
        Value("[]"),
        "Where programs and routers connect to it: \"tcp/ADDRESS:PORT\" or \"tls/ADDRESS:PORT\".",
    ),
    key(
        "connect",
        Kind::Texts,
        Value("[]"),
        "Programs and routers to which it connects: \"tcp/ADDRESS:PORT\" or \"tls/ADDRESS:PORT\".",
    ),
    key("events", Kind::Names("event"), Value("[]"), "The events of this host that programs read; `*` and `**` match."),
    key(
        "publish",
        Kind::Names("event"),
        Value("[]"),
        "The events of this host that programs publish: a supplier has `called = true`.",
    ),
    key(
        "readers",
        Kind::Texts,
        Described("all that can connect"),
        "The common names of the certificates that may read, over TLS.",
    ),
    key(
        "publishers",
        Kind::Texts,
        Described("all that can connect"),
        "The common names of the certificates that may publish, over TLS.",
    ),
];

const NETWORK: &[Key] = &[
    key("device", Kind::Text, Required, "Its name in Linux, as `ip link` prints it."),
    key("rate", Kind::Bandwidth, Required, "The rate of its link; at most this leaves the device."),
    key(
        "classes",
        Kind::Tables("host.network.classes"),
        Described("EF with 30% and AF41, AF42, AF43 with 30%"),
        "The most urgent class first, at most 7. Other packets have the rest of the rate, and may use all of it.",
    ),
];

const TRAFFIC_CLASS: &[Key] = &[
    key("dscp", Kind::Texts, Required, "The DSCPs of its packets: names such as \"EF\", or numbers such as \"46\"."),
    key("share", Kind::Share, Required, "The guaranteed share of the rate; all classes together at most 99%."),
    key("ceiling", Kind::Share, Value("\"100%\""), "The share that it may use while other classes leave it."),
];

const BROKER: &[Key] = &[
    key(
        "policy",
        Kind::Text,
        Value("\"fair\""),
        "\"fair\", \"strict\", \"weighted\" or \"partition(video 40% fair, rest 30% weighted)\".",
    ),
    key(
        "cap",
        Kind::Share,
        Described("75% of each of its CPUs"),
        "The limit of all programs' reservations together; 100% \
        is one CPU.",
    ),
    key(
        "cpus",
        Kind::Wholes(0, 1023),
        Described("those that the host's processors name, else CPU 0"),
        "The Linux CPUs that it reserves time on.",
    ),
];

const RESERVATION: &[Key] = &[
    key("program", Kind::Texts, Required, "The program and its arguments; no shell interprets them."),
    key("host", Kind::Name("host"), Described("the only host"), "The machine it runs on."),
    key("period", Kind::Time, Required, "The period of its work."),
    key("deadline", Kind::Time, Described("the period"), "The deadline of its budget within each period."),
    key(
        "budget",
        Kind::Time,
        Described("almost nothing"),
        "CPU time that it requests in each period before it was measured.",
    ),
    key("least", Kind::Time, Described("any budget is useful"), "The least useful budget in each period."),
    key("advocate", Kind::Advocates, Described("max_decay"), "Its advocates in order: a list of tables of one key."),
    key("importance", Kind::Whole(0, u32::MAX as u64), Value("1"), "For policies fair and strict; higher is more."),
    key("weight", Kind::Whole(1, 1_000_000), Value("1"), "For policy weighted: a higher weight loses less."),
    key("group", Kind::Text, Described("the first"), "Its group, for policy partition."),
    set(
        "takes",
        Kind::TimeOr("operation.takes"),
        Described("unknown; none in simulation"),
        "Actual CPU time in each period: `check` and simulation use it.",
    ),
];

const PROCESSOR: &[Key] = &[
    key("host", Kind::Name("host"), Described("the only host"), "The machine it is part of."),
    key("cpu", Kind::Whole(0, 1023), Described("chosen at start"), "The Linux CPU number."),
    key(
        "strategy",
        Kind::TextOrPair,
        Value("\"RMS\""),
        "Its strategy (`hyoshi strategies` lists them); the second of a pair applies in overload.",
    ),
    key(
        "switch",
        Kind::Table("processor.switch"),
        Described("the defaults of its keys"),
        "When the second of two strategies \
        applies.",
    ),
    key("costs", Kind::Table("costs"), Described("the file's"), "The costs of scheduling on this processor."),
    key(
        "preemption",
        Kind::Choice(&["none", "levels", "full"]),
        Value("\"levels\""),
        "Which jobs may preempt other jobs: none, those of more urgent levels, within a level too.",
    ),
    key("cancel", Kind::Truth, Value("false"), "Cancel jobs that can no longer finish in time (never critical ones)."),
    key(
        "cap",
        Kind::Share,
        Value("\"94%\""),
        "The share of the CPU that all lanes may use together; 100% means no cap.",
    ),
    key("cap_window", Kind::Time, Value("\"100ms\""), "The window over which the cap is kept."),
    key(
        "hard_cap",
        Kind::Share,
        Value("\"94%\""),
        "The share of the CPU that lanes may use in any 100 ms, critical work included; 100% means no hard cap.",
    ),
    key(
        "on_hard_cap",
        Kind::Choice(&["report", "demote", "stop"]),
        Value("\"report\""),
        "When the hard cap pauses lanes repeatedly for 1 s: report it, make the least important critical operation \
            non-critical, or end the run.",
    ),
    key("pool", Kind::Whole(1, 16), Value("1"), "Threads per lane: more than one only for bodies that block."),
];

const SWITCH: &[Key] = &[
    key(
        "margin",
        Kind::Time,
        Value("\"0s\""),
        "Switch when a critical job's laxity is less than the work ahead of it plus this.",
    ),
    key("calm", Kind::Time, Value("\"1s\""), "Switch back after this time without such a job."),
];

const COSTS: &[Key] = &[
    key("timer", Kind::Time, Value("\"0s\""), "One expiry of the release timer, wake-up and return."),
    key("enqueue", Kind::Time, Value("\"0s\""), "A job enters its queue."),
    key("dequeue", Kind::Time, Value("\"0s\""), "A lane dequeues its next job."),
    key("cancel", Kind::Time, Value("\"0s\""), "Deciding whether a job can still finish in time."),
    key("switch", Kind::Time, Value("\"0s\""), "The CPU switches from one lane to another."),
    key("watchdog", Kind::Time, Value("\"0s\""), "One check by the watchdog, every 50 ms."),
];

const EVENT: &[Key] = &[
    key(
        "payload",
        Kind::Size,
        Value("\"0B\""),
        "Bytes that each supplier may pass with it, if its own `payload` is less; at most 64KiB.",
    ),
    key("keep", Kind::Whole(0, 256), Value("0"), "The latest events that a node keeps for late subscribers."),
    key(
        "endpoints",
        Kind::Texts,
        Described("no event channel for CORBA programs"),
        "Where CORBA programs receive and publish it: \"tcp/ADDRESS:PORT\", \"tls/ADDRESS:PORT\" or \"unix/PATH\".",
    ),
    key(
        "insecure",
        Kind::Truth,
        Value("false"),
        "True: other machines may do so at its `tcp/` endpoints, without encryption or authentication.",
    ),
];

const OPERATION: &[Key] = &[
    key(
        "on",
        Kind::NameOrNames("processor"),
        Described("the only processor"),
        "Its processor. If there are several, it starts on the first, and feedback loops may move it.",
    ),
    set(
        "rate",
        Kind::RateOrPair,
        Described("`every`, `after` or `called`"),
        "The release rate; a pair is the range for a feedback loop.",
    ),
    set(
        "every",
        Kind::TimeOrPair,
        Described("`rate`, `after` or `called`"),
        "Its period; a pair is the range for a feedback loop.",
    ),
    key(
        "after",
        Kind::Table("operation.after"),
        Described("`rate`, `every` or `called`"),
        "The operations that trigger it.",
    ),
    key(
        "called",
        Kind::Truth,
        Described("`rate`, `every` or `after`"),
        "True: released by calls of other operations, or by requests to an object if no operation calls it.",
    ),
    key(
        "supplies",
        Kind::Names("event"),
        Value("[]"),
        "The events that each of its completions pushes to the operations after them.",
    ),
    key(
        "min_interval",
        Kind::Time,
        Described("unknown: `check` proves nothing"),
        "The least time between two requests that `check` may assume.",
    ),
    key(
        "clients",
        Kind::Table("operation.clients"),
        Described("clients do not register"),
        "Clients register with the feedback loop of the processor, which sets their rates. Requests and publications of \
        other clients are rejected.",
    ),
    key(
        "calls",
        Kind::WordOr("any", "operation.calls"),
        Described("none"),
        "Its jobs call a method, waiting without the run token. Or \"any\": its body calls objects that the file does \
        not name.",
    ),
    key(
        "standby",
        Kind::Truth,
        Value("false"),
        "True: it releases no job until it is admitted, by an epoch or by `hyoshi node admit`; for adapted rates.",
    ),
    key("reads", Kind::Names("operation"), Value("[]"), "It reads their latest values; they do not trigger it."),
    key("phase", Kind::Time, Value("\"0s\""), "When the first period begins."),
    key(
        "offset",
        Kind::Time,
        Value("\"0s\""),
        "The delay of the release after the begin of each period, or after the \
        trigger.",
    ),
    set(
        "jitter",
        Kind::Time,
        Value("\"0s\""),
        "Releases are late by up to this, and keep their order; it may exceed the period.",
    ),
    set(
        "wcet",
        Kind::Time,
        Described("the largest of `levels`; without `levels` an error"),
        "Declared worst-case execution time: analysis and cancellation use it.",
    ),
    key(
        "levels",
        Kind::Tables("operation.levels"),
        Described("one way to do its jobs"),
        "Two to eight ways to do a job; the loop of its processor chooses among them by their values.",
    ),
    set("bcet", Kind::Time, Described("the shortest of `takes`"), "Declared best-case execution time."),
    set(
        "takes",
        Kind::TimeOr("operation.takes"),
        Described("always `wcet`"),
        "Actual execution times, for simulation and built-in work.",
    ),
    set(
        "deadline",
        Kind::TimeOr("operation.deadline"),
        Described("the period or `min_interval`; after a trigger, its chain's"),
        "By when a job must finish, from its release or end to end.",
    ),
    key("critical", Kind::Truth, Value("false"), "Every deadline matters: never cancelled, never shed."),
    key(
        "importance",
        Kind::Whole(0, 1_000_000),
        Value("0"),
        "Rank among operations that are not critical; higher is more.",
    ),
    key(
        "uses",
        Kind::TimeOf("resource"),
        Described("none"),
        "Resources held one after another from its start, and how long.",
    ),
    key("queue", Kind::Table("operation.queue"), Described("the defaults of its keys"), "The limit of waiting jobs."),
    key(
        "on_overrun",
        Kind::Choice(&["report", "demote", "stop"]),
        Value("\"report\""),
        "A job beyond its wcet is only reported, continues in idle time, or is stopped.",
    ),
    key(
        "on_busy",
        Kind::Choice(&["queue", "skip"]),
        Value("\"queue\""),
        "What happens to a release while the last job \
        is unfinished.",
    ),
    key(
        "on_miss",
        Kind::Choice(&["continue", "stop", "skip-next"]),
        Value("\"continue\""),
        "A job that misses its deadline continues, is stopped, or continues while the next release is dropped.",
    ),
    key(
        "guard",
        Kind::Choice(&["off", "on", "idle"]),
        Described("after another processor on, in calls idle; else off"),
        "Keeps triggered releases a period apart; idle: less strictly when the processor idles.",
    ),
    key(
        "timeout",
        Kind::Time,
        Described("it waits"),
        "Of a triggered operation: it is released when nothing has released it for this long.",
    ),
    key(
        "lifespan",
        Kind::Time,
        Described("no limit"),
        "Of a triggered operation: a job with an older origin when it would start is dropped.",
    ),
    key("payload", Kind::Size, Value("\"0B\""), "Bytes that a job may pass to the jobs it triggers; at most 64KiB."),
    key(
        "replicate",
        Kind::Table("operation.replicate"),
        Described("no replica"),
        "The other hosts that keep a copy of its latest output, for operations there that read it.",
    ),
    key(
        "count",
        Kind::Whole(1, super::limits::OPERATIONS),
        Described("one, not numbered"),
        "Makes this many instances: NAME.1, NAME.2, ...",
    ),
    key(
        "stagger",
        Kind::Stagger,
        Value("\"0s\""),
        "Phase between instances of a template; \"even\" spreads them over the period.",
    ),
    key(
        "burst",
        Kind::Table("operation.burst"),
        Described("one job a period"),
        "A sporadic burst: up to so many jobs in each period.",
    ),
    set("repeat", Kind::Table("operation.repeat"), Described("one job a period"), "A load chain: it triggers itself."),
    set("enabled", Kind::Truth, Value("true"), "False: nothing releases it, until an epoch sets true."),
];

const AFTER: &[Key] = &[
    key(
        "all",
        Kind::NamesOr("operation", "operation.after.all"),
        Described("`any`, `first`, `chosen` or `event`"),
        "Runs when all of these have completed.",
    ),
    key(
        "any",
        Kind::NamesOr("operation", "operation.after.any"),
        Described("`all`, `first`, `chosen` or `event`"),
        "Runs each time one of these has completed.",
    ),
    key(
        "first",
        Kind::Names("operation"),
        Described("`all`, `any`, `chosen` or `event`"),
        "Copies of one stage: runs once for each release, after the first of them; later copies are skipped.",
    ),
    key(
        "chosen",
        Kind::Names("operation"),
        Described("`all`, `any`, `first` or `event`"),
        "Runs each time one of these has completed and its body has chosen this operation.",
    ),
    key(
        "probability",
        Kind::Share,
        Value("\"50%\""),
        "For `chosen`: how often an operation without a body chooses it, by a seeded draw.",
    ),
    key(
        "event",
        Kind::NameOrNames("event"),
        Described("`all`, `any`, `first` or `chosen`"),
        "Runs each time a supplier of these has completed; `*` matches a part of a name, `**` any number of parts.",
    ),
    FROM,
    EXCEPT,
    key(
        "within",
        Kind::Time,
        Described("no limit"),
        "For `all`: how far apart the origins of joined completions may be; an older one is dropped.",
    ),
];

const FROM: Key =
    key("from", Kind::Names("operation"), Described("all suppliers"), "Only these suppliers of the events.");

const EXCEPT: Key =
    key("except", Kind::NameOrNames("event"), Described("none"), "Not these events, or not these suppliers.");

const ONE_OF_ALL: &[Key] = &[
    key("event", Kind::NameOrNames("event"), Described("`any`"), "One of these events is sufficient."),
    FROM,
    EXCEPT,
    key(
        "any",
        Kind::NamesOr("operation", "operation.after.any"),
        Described("`event`"),
        "One completion of these is sufficient.",
    ),
];

const ONE_OF_ANY: &[Key] =
    &[key("event", Kind::NameOrNames("event"), Required, "Each of these events releases it."), FROM, EXCEPT];

const CALLS: &[Key] = &[
    key("method", Kind::Name("operation"), Required, "The operation that is called: one with `called = true`."),
    key("after", Kind::Time, Required, "The caller's own work before the call, of every job; the rest follows."),
    key("oneway", Kind::Truth, Value("false"), "Continue without waiting for the method."),
    key(
        "divide",
        Kind::Truth,
        Value("false"),
        "Divide the caller's deadline among the parts and the network, in proportion to their worst cases.",
    ),
];

const DEADLINE: &[Key] =
    &[key("end_to_end", Kind::Time, Described("a plain time"), "From the release of the job that led to it.")];

const TAKES: &[Key] = &[
    key("uniform", Kind::TimePair, Described("another way"), "Uniform between the two."),
    key("normal", Kind::Table("operation.takes.normal"), Described("another way"), "Normally distributed."),
    key("list", Kind::Times, Described("another way"), "One for each job; the list repeats."),
    key("file", Kind::Text, Described("another way"), "The same from a file: a time in each line, # begins a comment."),
];

const NORMAL: &[Key] = &[
    key("mean", Kind::Time, Required, "Mean."),
    key("deviation", Kind::Time, Required, "Standard deviation."),
    key("least", Kind::Time, Described("mean - 3 deviations"), "The lower limit."),
    key("most", Kind::Time, Described("mean + 3 deviations"), "The upper limit."),
];

const QUEUE: &[Key] = &[
    key("limit", Kind::Whole(1, 1_000_000), Value("8"), "Jobs that may wait."),
    key(
        "when_full",
        Kind::Choice(&["drop-newest", "drop-oldest"]),
        Value("\"drop-newest\""),
        "Which job to drop when one more arrives.",
    ),
];

const BURST: &[Key] = &[
    key(
        "jobs",
        Kind::Whole(1, super::limits::OPERATIONS),
        Required,
        "The most jobs in a period, as instances NAME.1, NAME.2, ...",
    ),
    key("within", Kind::Time, Required, "The latest arrival of the last one, from the begin of the period."),
];

const REPEAT: &[Key] = &[
    set("legs", Kind::Whole(1, 65_535), Value("1"), "Jobs a period, each triggering the next."),
    set(
        "critical",
        Kind::Whole(0, 65_535),
        Value("0"),
        "How many of the first are critical; all of a critical operation.",
    ),
];

const REPLICATE: &[Key] = &[
    key("to", Kind::Names("host"), Required, "The hosts with a replica."),
    key(
        "flush",
        Kind::Choice(&["deadline", "completion"]),
        Value("\"deadline\""),
        "When an output is sent: at its job's deadline, unless the job is late; or when its job completes.",
    ),
];

const CHAIN: &[Key] = &[
    key("path", Kind::Names("operation"), Required, "Each triggers the next or is read by it."),
    key("deadline", Kind::Time, Described("none"), "From the release of the first to the finish of the last."),
    key("max_age", Kind::Time, Described("none"), "How old the input may be when the last one finishes."),
    key("max_reaction", Kind::Time, Described("none"), "From an input to the first finish that reflects it."),
    key(
        "carried_by",
        Kind::Choice(&["event", "thread"]),
        Value("\"event\""),
        "Each job's completion is an event; or a release of the first operation is a thread along the path.",
    ),
];

const RATE_CLIENTS: &[Key] = &[
    key("rate", Kind::RateOrPair, Described("`every`"), "The lowest and the highest rate of each client."),
    key("every", Kind::TimeOrPair, Described("`rate`"), "The shortest and the longest period of each client."),
    key("most", Kind::Whole(1, 256), Value("8"), "The largest number of registered clients."),
];

const LEVEL: &[Key] = &[
    key("name", Kind::Text, Required, "Its name, which the body of a job reads."),
    key("wcet", Kind::Time, Required, "Declared worst-case execution time of its jobs."),
    key(
        "value",
        Kind::Whole(0, 1_000_000),
        Required,
        "The worth of one job, compared with other levels and operations.",
    ),
];

const OBJECT: &[Key] = &[
    key(
        "operation",
        Kind::NameOrNames("operation"),
        Required,
        "The operation with `called = true` that serves its requests; a method serves those of its callers.",
    ),
    key(
        "methods",
        Kind::NameOf("operation"),
        Described("none"),
        "Operations of its interface that other operations of the file serve.",
    ),
    key(
        "endpoints",
        Kind::Texts,
        Required,
        "Where clients call it: \"tcp/ADDRESS:PORT\", \"tls/ADDRESS:PORT\" or \"unix/PATH\".",
    ),
    key(
        "insecure",
        Kind::Truth,
        Value("false"),
        "True: other machines may call it at its `tcp/` endpoints, without encryption or authentication.",
    ),
    key("requests", Kind::Whole(1, 4096), Value("64"), "The most requests that are read and not answered."),
    key(
        "clients",
        Kind::Tables("object.clients"),
        Described("the operations' own values are the limits"),
        "What clients may ask for; all other clients get importance 0 and are not critical.",
    ),
];

const DELEGATE: &[Key] = &[
    key("object", Kind::Name("object"), Described("none"), "The object of the file; or write `to`."),
    key(
        "to",
        Kind::Text,
        Described("none"),
        "The object of another program, \"IOR:...\" or \"corbaloc:...\": the run is its proxy.",
    ),
    key("host", Kind::Name("host"), Described("the only host"), "The machine of the proxy."),
    key("listen", Kind::Text, Described("none"), "Where clients connect to the proxy: \"tcp/ADDRESS:PORT\"."),
    key(
        "insecure",
        Kind::Truth,
        Value("false"),
        "True: other machines may connect to the proxy, without encryption or authentication.",
    ),
    key(
        "behaviour",
        Kind::Behaviours,
        Described("all requests pass"),
        "By operation of its interface, or \"*\" for all other operations: \"pass\", \"refuse\", \"refuse:NO_PERMISSION\", \"thin:1/4\", \"thin:10Hz\" or \"redirect\"; of a proxy also \"delay:5ms\", \"mark:AF41\" or \"cached:500ms\".",
    ),
    key(
        "redirect",
        Kind::Text,
        Described("none"),
        "The object for the behaviour \"redirect\": a reference, \"IOR:...\" or \"corbaloc:...\".",
    ),
];

const CLIENT: &[Key] = &[
    key("certificate", Kind::Text, Described("by user or address"), "A name in its certificate, over TLS."),
    key("user", Kind::Text, Described("by certificate or address"), "Its user, over a Unix socket."),
    key("address", Kind::Text, Described("by certificate or user"), "Its address, or a network: \"10.0.0.0/24\"."),
    key(
        "importance",
        Kind::Whole(0, u32::MAX as u64),
        Described("that of the operation"),
        "The highest importance of its requests.",
    ),
    key("critical", Kind::Truth, Value("true"), "Whether its requests may be critical."),
    key("min_interval", Kind::Time, Described("no limit"), "The minimum time between its requests, on average."),
    key(
        "excess",
        Kind::Choice(&["clamp", "refuse"]),
        Value("\"clamp\""),
        "Requests beyond these limits get what is allowed, or are refused.",
    ),
];

const FEEDBACK: &[Key] = &[
    key(
        "algorithm",
        Kind::Choice(&["FC-U", "FC-M", "FC-UM", "FC-UM-fast", "FC-UL", "EUCON", "DEUCON"]),
        Required,
        "FC-U holds the utilisation, FC-M the miss ratio, FC-UM both, FC-UL utilisation and latency. EUCON and DEUCON hold the utilisations of several processors.",
    ),
    key(
        "utilisation",
        Kind::ShareOr("analysis"),
        Described("an error unless FC-M"),
        "The set point, of the processor's hard cap. \"analysis\": the greatest one without misses, by analysis.",
    ),
    key(
        "margin",
        Kind::Share,
        Value("\"0%\""),
        "With utilisation = \"analysis\": how far the set point is below the greatest one, of the hard cap.",
    ),
    key(
        "miss_ratio",
        Kind::Share,
        Described("an error for FC-M, FC-UM and FC-UM-fast"),
        "The set point of the share of late jobs.",
    ),
    key(
        "latency",
        Kind::Table("feedback.latency"),
        Described("an error for FC-UL"),
        "The set point of a quantile of response times.",
    ),
    key("period", Kind::Time, Value("\"4s\""), "The sampling period."),
    key(
        "measure",
        Kind::Choice(&["cpu", "lanes"]),
        Value("\"cpu\""),
        "What counts as utilisation: all time in which the CPU is not idle, or that of the processor's own threads.",
    ),
    key(
        "gains",
        Kind::Table("feedback.gains"),
        Described("the defaults of its keys"),
        "The design of the controllers.",
    ),
    key(
        "start",
        Kind::WordsOrRates(&["lowest", "highest"], "operation"),
        Value("\"lowest\""),
        "The rates before the first sample. A table names operations with their rates; operations not in it start at their lowest.",
    ),
    key(
        "divide",
        Kind::Choice(&["proportional", "proportional-clipped", "value"]),
        Value("\"proportional\""),
        "How the total is divided: in proportion, with clipping as in the paper, or by importance per execution time.",
    ),
    key(
        "anti_windup",
        Kind::Truth,
        Value("true"),
        "False: the total may leave the limits of the rates, as in the paper.",
    ),
    key(
        "endpoints",
        Kind::Texts,
        Described("clients do not register"),
        "Where clients of objects register: \"tcp/ADDRESS:PORT\", \"tls/ADDRESS:PORT\" or \"unix/PATH\".",
    ),
    key(
        "insecure",
        Kind::Truth,
        Value("false"),
        "True: clients on other machines may register at `tcp/` endpoints, without encryption or authentication.",
    ),
];

const GAINS: &[Key] = &[
    key("ga", Kind::Number, Value("2"), "The greatest expected ratio of actual to worst-case execution times."),
    key("gm", Kind::Number, Value("0.447"), "The rise of the miss ratio for each unit of overload."),
    key(
        "gl",
        Kind::Number,
        Value("4"),
        "The rise of the latency for each unit of utilisation near the set point, as a part of the set point.",
    ),
];

const LATENCY: &[Key] = &[
    key(
        "of",
        Kind::NameOrNames("operation"),
        Required,
        "An operation of the loop's processor, or several of them; or a chain that ends there.",
    ),
    key("quantile", Kind::Share, Value("\"99%\""), "The share of jobs that may need at most `at`."),
    key("at", Kind::Time, Required, "The set point."),
];

const CONDITION: &[Key] = &[set("value", Kind::Real, Described("stale until it is set"), "Its value at the start.")];

const CONTRACT: &[Key] = &[
    key("watch", Kind::NamedTables("contract.watch"), Described("no conditions"), "Its conditions, by name."),
    key(
        "region",
        Kind::Tables("contract.region"),
        Required,
        "Its regions. The first one with a true `enter` is active; the last one has no `enter`.",
    ),
    key(
        "precedence",
        Kind::Whole(0, 1000),
        Value("0"),
        "Settings of a contract with a higher precedence restrict those of lower ones. Contracts that set the same need different ones.",
    ),
    key("period", Kind::Time, Value("\"100ms\""), "The time between two evaluations."),
    key(
        "on",
        Kind::Name("processor"),
        Described("the processor of its first condition or action"),
        "The processor that evaluates it.",
    ),
];

const WATCH: &[Key] = &[
    key(
        "of",
        Kind::NameOrNames("operation"),
        Required,
        "What it measures: \"operation.NAME.KEY\" (miss_ratio, latency, lateness, demand, wasted, usage, rate or queue), \"chain.NAME.KEY\" (miss_ratio, latency, lateness or rate), \"processor.NAME.KEY\" (utilisation, demand, critical_demand, wasted, usage, rate, queue, strategy or endangered), \"host.NAME.QUANTITY\", \"link.A-B.QUANTITY\", \"reservation.NAME.QUANTITY\", \"delegate.NAME.QUANTITY\" or \"condition.NAME\".",
    ),
    key("over", Kind::Time, Described("the latest sample counts"), "The length of its window."),
    key("max_age", Kind::Time, Described("never"), "A value without a newer sample is stale."),
    key(
        "as",
        Kind::Choice(&["mean", "least", "greatest", "spread"]),
        Value("\"mean\""),
        "How the samples of the window become one value.",
    ),
];

const REGION_NAME: Key = key("name", Kind::Text, Required, "Its name.");
const REGION_ENTER: Key = key(
    "enter",
    Kind::Text,
    Described("it is active if no earlier region is"),
    "When it begins: an expression over the conditions, such as \"late > 0.02 && !stale(load)\".",
);
const REGION_LEAVE: Key =
    key("leave", Kind::Text, Described("as soon as `enter` is false"), "When it may end: an expression.");
const REGION_FOR: Key = key("for", Kind::Time, Value("\"0s\""), "How long `enter` must hold without interruption.");
const REGION_STAY: Key = key(
    "stay",
    Kind::TimeOr("contract.region.stay"),
    Value("\"0s\""),
    "Its least time before a region below it begins. An earlier region begins at any time.",
);
const REGION_LATCH: Key = key("latch", Kind::Truth, Value("false"), "True: no expression ends it.");
const REGION_RAMP: Key =
    key("ramp", Kind::Time, Value("\"0s\""), "How long its limits of rates relax after its end, linearly in rate.");
const REGION_DO: Key =
    key("do", Kind::Tables("contract.region.do"), Described("nothing"), "What holds while it is active.");

const REGION: &[Key] = &[
    REGION_NAME,
    REGION_ENTER,
    REGION_LEAVE,
    REGION_FOR,
    REGION_STAY,
    REGION_LATCH,
    REGION_RAMP,
    REGION_DO,
    key("region", Kind::Tables("contract.region.region"), Described("none"), "Regions within it, while it is active."),
];

const INNER_REGION: &[Key] =
    &[REGION_NAME, REGION_ENTER, REGION_LEAVE, REGION_FOR, REGION_STAY, REGION_LATCH, REGION_RAMP, REGION_DO];

const STAY: &[Key] = &[
    key("first", Kind::Time, Required, "The time at first."),
    key("grow", Kind::Whole(1, 100), Value("2"), "The factor, if the region begins again within this time."),
    key("most", Kind::Time, Required, "The longest time."),
];

const MODE: &[Key] = &[key("do", Kind::Tables("contract.region.do"), Required, "Its actions.")];

const ACTION: &[Key] = &[
    key(
        "set",
        Kind::Text,
        Described("another action"),
        "The setting: \"operation.NAME.KEY\" (rate, repeat.legs, level, enabled or importance), \"feedback.NAME.KEY\" (utilisation or miss_ratio), \"processor.NAME.strategy\", \"reservation.NAME.KEY\" (importance, weight, least, rate, cap or floor), \"link.A-B.dscp\" or \"delegate.NAME.OPERATION\".",
    ),
    key("most", Kind::Limit(1, 65_535), Described("no limit"), "The greatest rate, number of legs or service level."),
    key("least", Kind::Rate, Described("no limit"), "The least rate."),
    key(
        "to",
        Kind::SettingValue,
        Described("an error without limits"),
        "The value: `false` disables the operation; a number is an importance or a weight; a text is a set point, a share or time of a reservation, a strategy, a DSCP or the behaviour of a delegate.",
    ),
    key(
        "call",
        Kind::Text,
        Described("nothing"),
        "The program's callback of this name is called when the region begins.",
    ),
    key(
        "run",
        Kind::Texts,
        Described("nothing"),
        "A command and its arguments, which runs when the region begins; it needs `hyoshi run --commands`.",
    ),
    key(
        "admit",
        Kind::Name("operation"),
        Described("nothing"),
        "The loop admits this operation on standby when the region begins, if it can.",
    ),
    key(
        "withdraw",
        Kind::Name("operation"),
        Described("nothing"),
        "The loop withdraws this operation on standby when the region begins.",
    ),
    key("mode", Kind::Name("mode"), Described("nothing"), "All actions of this mode."),
    key("report", Kind::Text, Described("nothing"), "A text for reports, when the region begins."),
];

const QOSKET: &[Key] = &[
    key("use", Kind::Text, Required, "A shipped qosket, such as \"degrade-rate\", or a file: \"mine.toml\"."),
    key("with", Kind::Values, Described("the defaults of the qosket"), "Values of its parameters, by name."),
];

const LINK: &[Key] = &[
    key("between", Kind::Pair("host"), Required, "The two hosts."),
    set("delay", Kind::TimeOrPair, Required, "The delay of an event; a pair: uniform between the two."),
    set("loss", Kind::Share, Value("\"0%\""), "The share of events that are lost, independently."),
    unsupported("bandwidth", "declare the delay that it causes"),
];

const EPOCH: &[Key] = &[
    key("at", Kind::Time, Required, "When it begins."),
    key("name", Kind::Text, Described("its number, from 0"), "Its name in reports."),
    key(
        "set",
        Kind::Settings,
        Described("nothing changes"),
        "New values: \"operation.NAME.KEY\", \"link.A-B.KEY\" or \"host.NAME.enabled\" = value.",
    ),
    key(
        "withdraw",
        Kind::Names("operation"),
        Value("[]"),
        "Operations with `standby` that release no more jobs, until they are admitted again.",
    ),
    key(
        "admit",
        Kind::Names("operation"),
        Value("[]"),
        "Operations with `standby` that begin, if the loop accepts them.",
    ),
];

/// The sections of a file of measured costs, which is not a system.
const CALIBRATION: &[Section] = &[
    Section {
        path: "calibration",
        shape: Shape::Top,
        doc: "What `hyoshi calibrate` measured.",
        keys: &[
            key("costs", Kind::Table("calibration.costs"), Required, "The costs of scheduling."),
            key("measured", Kind::Table("calibration.measured"), Described("unknown"), "How they were measured."),
        ],
    },
    Section { path: "calibration.costs", shape: Shape::Inline, doc: "All of them.", keys: CALIBRATED },
    Section {
        path: "calibration.measured",
        shape: Shape::Inline,
        doc: "When and where they were measured.",
        keys: &[
            key("date", Kind::Text, Described("unknown"), "When."),
            key("kernel", Kind::Text, Described("unknown"), "Under which kernel."),
            key("cpu", Kind::Text, Described("unknown"), "On which CPU."),
            key("how", Kind::Text, Described("unknown"), "How."),
            key("real_time", Kind::Truth, Described("unknown"), "Whether at real-time priorities."),
        ],
    },
];

/// Like [`COSTS`], but none may be missing: a truncated file must not describe a cheaper machine.
const CALIBRATED: &[Key] = &[
    key("timer", Kind::Time, Required, COSTS[0].doc),
    key("enqueue", Kind::Time, Required, COSTS[1].doc),
    key("dequeue", Kind::Time, Required, COSTS[2].doc),
    key("cancel", Kind::Time, Required, COSTS[3].doc),
    key("switch", Kind::Time, Required, COSTS[4].doc),
    key("watchdog", Kind::Time, Required, COSTS[5].doc),
];

/// The sections of a qosket file.
const QOSKET_FILE: &[Section] = &[
    Section {
        path: "qosket-file",
        shape: Shape::Top,
        doc: "A contract with parameters.",
        keys: &[
            key("qosket", Kind::Table("qosket-file.qosket"), Required, "Its name and purpose."),
            key("parameter", Kind::NamedTables("qosket-file.parameter"), Described("no parameters"), "By name."),
            key("contract", Kind::Table("contract"), Required, "The contract, with `${parameter}` in its texts."),
        ],
    },
    Section {
        path: "qosket-file.qosket",
        shape: Shape::Inline,
        doc: "What it is.",
        keys: &[key("name", Kind::Text, Required, "Its name."), key("about", Kind::Text, Required, "Its purpose.")],
    },
    Section {
        path: "qosket-file.parameter",
        shape: Shape::Named,
        doc: "A parameter.",
        keys: &[
            key("about", Kind::Text, Required, "Its meaning."),
            key("default", Kind::AnyValue, Described("`with` must have a value"), "Its default."),
            key("list", Kind::Truth, Value("false"), "Whether its value may be a list."),
        ],
    },
];

/// The section with the path.
pub fn section(path: &str) -> Option<&'static Section> {
    SECTIONS.iter().chain(CALIBRATION).chain(QOSKET_FILE).find(|section| section.path == path)
}

/// The sections with tables of their own, `[section.NAME]` or `[[section]]`.
pub fn with_headers() -> impl Iterator<Item = &'static Section> {
    SECTIONS.iter().filter(|section| matches!(section.shape, Shape::Named | Shape::List))
}

impl Section {
    /// The key with the name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}
