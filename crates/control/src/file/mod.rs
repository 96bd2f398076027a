//! A file's programs under the laws: their advocates, their requests, and the reservations that a host's CPUs admit.

mod admit;
mod promises;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use hyoshi_model::{AdvocateWords, Broker, HostId, Instant, Program, ProgramId, Reservation, Span, System};

use crate::Admission;
use crate::advocate::{AdvocateChain, Spec, SpecError};
use crate::arbiter::Joining;
use crate::policy::PolicySpec;
use crate::task::{Grant, GroupId, Reason, Status, TaskId};
use crate::window::placement::{Cpu, CpuPromise, WindowPlacement};

pub use admit::{AdmissionVerdict, Admitted, HostAdmission, admit};
pub use promises::{cpus, promises, promises_of_run};

/// External advocates, which only a running broker can use: each with its parameters. The first one is required.
const EXTERNAL_ADVOCATES: [(&str, &[&str], &str); 2] = [
    (
        "external",
        &["object", "timeout"],
        "the object's reference: \"file:adviser.ior\", \"corbaloc:...\" or \"IOR:...\"",
    ),
    ("library", &["path"], "the library's absolute path: \"/DIR/NAME.so\""),
];

/// Whether words of a file mean an external advocate: in another process, or from a shared library.
pub fn is_external(words: &AdvocateWords) -> bool {
    EXTERNAL_ADVOCATES.iter().any(|(kind, ..)| words.kind == *kind)
}

/// Whether only external advocates determine a program's request.
pub fn has_external_advocate(program: &Program) -> bool {
    program.advocates.iter().any(is_external)
}

/// Whether words of a file mean an advocate.
///
/// # Errors
///
/// For words that are not an advocate: the error, and the remedy.
pub fn advocate(words: &AdvocateWords) -> Result<(), (String, String)> {
    let Some((kind, known, give)) = EXTERNAL_ADVOCATES.iter().find(|(kind, ..)| words.kind == *kind) else {
        return spec(words).map(drop);
    };
    let first = known.first().copied().unwrap_or_default();
    let mut given: Vec<&str> =
        words.parameters.iter().map(|(name, _)| if name.is_empty() { first } else { name }).collect();
    if !given.contains(&first) {
        return Err((format!("`{kind}` needs its `{first}`"), format!("add {give}")));
    }
    // Further parameters of a library are its own.
    let stray = given.iter().find(|name| *kind == "external" && !known.contains(name));
    if let Some(name) = stray {
        let known = known.join(", ");
        return Err((
            format!("`{kind}` has no parameter `{}`", name.escape_debug()),
            format!("its parameters are {known}"),
        ));
    }
    given.sort_unstable();
    match given.windows(2).find(|two| two[0] == two[1]) {
        Some(two) => Err((format!("`{}` of `{kind}` is repeated", two[0]), "remove one of them".into())),
        None => Ok(()),
    }
}

/// The advocate that words of a file mean, if it is not external.
///
/// # Errors
///
/// For words that are not such an advocate: the error, and the remedy.
pub fn spec(words: &AdvocateWords) -> Result<Spec, (String, String)> {
    if words.kind == "conditions" {
        let help = "remove it: contracts watch `reservation.NAME.asked` without an advocate";
        return Err(("`conditions` cannot be used in a file".into(), help.into()));
    }
    let parameters = words.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    Spec::new(&words.kind, parameters).map_err(|error| {
        let such_as = match &error {
            SpecError::Kind(_) => ", external, library; such as { max_decay = { reports = 10 } }",
            _ => "",
        };
        (error.to_string(), format!("{}{such_as}", error.remedy()))
    })
}

/// The policy that a file's text means.
///
/// # Errors
///
/// For words that are not a policy: the error, and the remedy.
pub fn policy(text: &str) -> Result<PolicySpec, (String, String)> {
    text.parse::<PolicySpec>().map_err(|error| (error.to_string(), error.remedy().into()))
}

/// The names of a policy's groups, in the order of their numbers.
pub fn groups(policy: &PolicySpec) -> Vec<String> {
    let built = policy.build();
    (0..built.group_count()).filter_map(|group| built.group_name(GroupId(group)).map(String::from)).collect()
}

/// The number of a program as a task.
pub fn task(program: ProgramId) -> TaskId {
    TaskId(program.0)
}

/// A program's advocates; if it names none, those of the broker. External ones are omitted: as while they do not
/// answer, each passes on the request of the one before it.
pub fn chain(program: &Program) -> AdvocateChain {
    let mut chain = AdvocateChain::default();
    let named = program.advocates.iter().filter_map(|words| spec(words).ok());
    let default = || Spec::new("max-decay", []).ok();
    let specs: Vec<Spec> = if program.advocates.is_empty() { default().into_iter().collect() } else { named.collect() };
    for spec in specs {
        // A file has at most as many as a chain allows.
        let _ = chain.insert(spec.build(), None);
    }
    chain
}

/// The data with which a program joins, under a policy with these groups; `None` for an impossible reservation, which a
/// file that was read never has.
pub fn joining(program: &Program, groups: &[String], chain: AdvocateChain) -> Option<Joining> {
    let group = groups.iter().position(|group| *group == program.group).unwrap_or(0);
    Some(Joining {
        importance: program.importance,
        weight: program.weight,
        group: GroupId(group as u32),
        least: program.least_share(),
        ..Joining::new(&program.name, program.declared()?, chain)
    })
}

/// Reports after which a chain's advice counts as settled.
const SETTLED: u64 = 256;

/// The largest request of a program: its first request, or that of its advocates if each cycle needs the longest of
/// `takes` (all of the period if the file has none). Requests of external advocates are unknown: then the least useful
/// budget counts, or the first request if that is more.
pub fn most(program: &Program) -> Option<Reservation> {
    let declared = program.declared()?;
    if has_external_advocate(program) {
        let least = program.least.map_or(Span::ZERO, |least| least.min(declared.deadline()));
        return Some(declared.with_budget(declared.budget().max(least)));
    }
    let demand = program.longest().unwrap_or(program.period).min(program.period);
    let mut chain = chain(program);
    let mut most = declared;
    let mut held = None;
    for report in 0..SETTLED {
        let at = Instant::from_nanos(program.period.as_nanos().saturating_mul(report));
        let first = Status::overdue(at, Span::ZERO);
        let status = Status { held, ..if report == 0 { first } else { Status::of_cycle(at, demand) } };
        let asked = chain.advise(&status, declared, |_| ());
        chain.granted(&Grant { task: TaskId(0), asked, reservation: Some(asked), reason: Reason::Granted });
        held = Some(asked);
        if asked.budget() > most.budget() {
            most = asked;
        }
    }
    Some(most)
}

/// The broker of a host, and its policy, which a file that was read always has.
fn policy_of(system: &System, host: HostId) -> Option<(&Broker, PolicySpec)> {
    let broker = system.brokered.brokers.get(host.index())?;
    Some((broker, policy(&broker.policy).ok()?))
}

/// A broker as in the file, and its policy's groups: beside the lanes of a run, or before any run.
pub fn open(system: &System, host: HostId, runs: bool) -> Option<(Admission, Vec<String>)> {
    let (broker, spec) = policy_of(system, host)?;
    let lanes = |number| if runs { promises(system, host, number) } else { Vec::new() };
    let cpus = broker.cpus.iter().map(|number| cpu(*number, lanes(*number)));
    Some((Admission::new(spec.build(), broker.cap, cpus), groups(&spec)))
}

fn cpu(number: u32, promises: Vec<CpuPromise>) -> Cpu {
    Cpu { number, promises, cap: WindowPlacement::KERNELS_LIMIT }
}

/// The programs of a host in the order in which they join: the more important first, else in the file's order.
pub fn order(system: &System, host: HostId) -> Vec<ProgramId> {
    let mut programs: Vec<ProgramId> = system.programs_on(host).collect();
    programs.sort_by_key(|id| core::cmp::Reverse(system.program(*id).importance));
    programs
}
