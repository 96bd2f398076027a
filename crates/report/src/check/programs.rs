//! The admission of programs under the CPU broker, with reasons for refusals.

use hyoshi_control::file::{AdmissionVerdict, Admitted, HostAdmission, has_external_advocate};
use hyoshi_control::{Limit, Reason};
use hyoshi_model::{Share, Span, System};
use serde::Serialize;

use crate::figures::printable;
use crate::programs::host_name;
use crate::terminal::grid::{CellValue, Tone, column, grid};
use crate::terminal::{MOST_ROWS, TerminalStyle};

/// One host's reservations, for programs.
#[derive(Debug, Serialize)]
pub(super) struct HostJson {
    host: String,
    policy: String,
    cap_ppm: u64,
    reserved_ppm: u64,
    cpus: Vec<CpuJson>,
    programs: Vec<ProgramJson>,
}

#[derive(Debug, Serialize)]
struct CpuJson {
    cpu: u32,
    lanes_ppm: u64,
}

#[derive(Debug, Serialize)]
struct ProgramJson {
    name: String,
    period_ns: u64,
    deadline_ns: u64,
    asked_ns: u64,
    known: bool,
    held_ns: u64,
    least_ns: Option<u64>,
    cpu: Option<u32>,
    level: Option<u8>,
    bound_ns: Option<u64>,
    verdict: &'static str,
    reason: Option<String>,
    because: Vec<HolderJson>,
}

#[derive(Debug, Serialize)]
struct HolderJson {
    name: String,
    share_ppm: u64,
}

pub(super) fn json(system: &System, admissions: &[HostAdmission]) -> Vec<HostJson> {
    let host = |admission: &HostAdmission| HostJson {
        host: host_name(system, admission.host),
        policy: admission.policy.clone(),
        cap_ppm: admission.cap.as_millionths(),
        reserved_ppm: admission.reserved.as_millionths(),
        cpus: admission
            .lanes
            .iter()
            .map(|(cpu, lanes)| CpuJson { cpu: *cpu, lanes_ppm: lanes.as_millionths() })
            .collect(),
        programs: admission.programs.iter().map(|one| program(system, admission, one)).collect(),
    };
    admissions.iter().map(host).collect()
}

fn program(system: &System, admission: &HostAdmission, one: &Admitted) -> ProgramJson {
    let holder = |(id, share): &(hyoshi_model::ProgramId, Share)| HolderJson {
        name: system.program(*id).name.clone(),
        share_ppm: share.as_millionths(),
    };
    ProgramJson {
        name: system.program(one.program).name.clone(),
        period_ns: one.asked.period().as_nanos(),
        deadline_ns: one.asked.deadline().as_nanos(),
        asked_ns: one.asked.budget().as_nanos(),
        known: one.known,
        held_ns: one.held.map_or(0, |held| held.budget().as_nanos()),
        least_ns: one.least.map(Span::as_nanos),
        cpu: one.seat.map(|seat| seat.cpu),
        level: one.seat.map(|seat| seat.level),
        bound_ns: one.response.map(Span::as_nanos),
        verdict: word(one.verdict()),
        reason: reason(system, admission, one),
        because: one.because.iter().map(holder).collect(),
    }
}

fn word(verdict: AdmissionVerdict) -> &'static str {
    match verdict {
        AdmissionVerdict::Admitted => "admitted",
        AdmissionVerdict::Cut => "cut",
        AdmissionVerdict::Refused => "refused",
    }
}

/// The first refused program, and why.
pub(super) fn refused(system: &System, admissions: &[HostAdmission]) -> Option<String> {
    admissions.iter().find_map(|admission| {
        let one = admission.programs.iter().find(|one| one.verdict() == AdmissionVerdict::Refused)?;
        let why = reason(system, admission, one).unwrap_or_default();
        Some(format!("reservation {}: {why}", system.program(one.program).name))
    })
}

/// Holders that are named one by one.
const NAMED: usize = 3;

/// Why it holds less than it may ask.
fn reason(system: &System, admission: &HostAdmission, one: &Admitted) -> Option<String> {
    if one.verdict() == AdmissionVerdict::Admitted {
        return None;
    }
    let asked = one.asked;
    let most = match one.held {
        Some(held) => format!("may request {asked}; only {} fits", held.budget()),
        None => format!("may request {asked}; nothing fits"),
    };
    let limit = |limit: Limit| match limit {
        Limit::Cap(cap) => format!("the cap of {cap}"),
        Limit::Group(_, share) => format!("its group's {share}"),
        Limit::Account(_, share) => format!("its user's {share}"),
    };
    let why = match one.reason {
        Reason::Granted | Reason::Scheduler => {
            let lanes = admission.lanes.iter().filter(|(_, lanes)| !lanes.is_zero());
            let lanes = lanes.map(|(cpu, lanes)| format!("lanes use {} of CPU {cpu}", about(*lanes)));
            let lanes: Vec<String> = lanes.take(NAMED).collect();
            let beside = if lanes.is_empty() { String::new() } else { format!("; {}", lanes.join(", ")) };
            format!("by response time on its CPU{beside}")
        }
        Reason::Cut(of) | Reason::NothingLeft(of) => format!("within {}", limit(of)),
        Reason::BelowLeast(of, left) => {
            format!("{} leaves {}, less than its least useful budget", limit(of), about(left))
        }
        Reason::NoGroup(_) => "its group has no share of the CPU".to_string(),
        Reason::Policy => "the policy granted no more".to_string(),
        Reason::Unanswered => "the policy did not answer".to_string(),
    };
    let named = one.because.iter().take(NAMED);
    let mut holders: Vec<String> =
        named.map(|(id, share)| format!("{} has {}", system.program(*id).name, about(*share))).collect();
    if let Some(more) = one.because.len().checked_sub(NAMED).filter(|more| *more > 0) {
        holders.push(format!("{more} more"));
    }
    let holders = if holders.is_empty() { String::new() } else { format!("; {}", holders.join(", ")) };
    let unknown = match one.known || has_external_advocate(system.program(one.program)) {
        true => "",
        false => "; without `takes` its demand is unlimited: set `takes` or `cap`",
    };
    Some(format!("{most}, {why}{holders}{unknown}"))
}

/// To the tenth of a percent.
fn about(share: Share) -> Share {
    Share::from_millionths((share.as_millionths() + 500) / 1_000 * 1_000)
}

/// The table, and a line on each host's broker; nothing without programs.
pub(super) fn table(system: &System, admissions: &[HostAdmission], look: TerminalStyle) -> Option<String> {
    let columns = [
        column("program"),
        column("importance").spare(3),
        column("period").spare(2),
        column("may request"),
        column("reserved"),
        column("CPU").if_any(),
        column("response"),
        column("deadline").spare(1),
        column("verdict"),
    ];
    let line = |text: &str| look.wrap(&format!("{}\n", printable(text)));
    let mut text = String::new();
    for admission in admissions {
        let rows = admission.programs.iter().map(|one| {
            let tone = match one.verdict() {
                AdmissionVerdict::Admitted => Tone::Plain,
                AdmissionVerdict::Cut => Tone::Worry,
                AdmissionVerdict::Refused => Tone::Bad,
            };
            let program = system.program(one.program);
            vec![
                CellValue::words(&program.name),
                CellValue::Count(program.importance.into(), Tone::Plain),
                CellValue::time(one.asked.period().as_nanos()),
                CellValue::time(one.asked.budget().as_nanos()),
                one.held
                    .map_or(CellValue::figure("nothing"), |held| CellValue::time(held.budget().as_nanos()))
                    .in_tone(tone),
                CellValue::figure(one.seat.map_or(String::new(), |seat| seat.cpu.to_string())),
                CellValue::time_if_known(one.response.map(Span::as_nanos)),
                CellValue::time(one.asked.deadline().as_nanos()),
                CellValue::words(word(one.verdict())),
            ]
        });
        text.push_str(&grid(look, &columns, &rows.collect::<Vec<_>>(), MOST_ROWS));
        // Below the table: in a column of it they would make every line as long.
        for one in admission.programs.iter().take(MOST_ROWS) {
            let Some(reason) = reason(system, admission, one) else { continue };
            text.push_str(&line(&format!("  {}: {reason}", system.program(one.program).name)));
        }
        let HostAdmission { policy, cap, reserved, .. } = admission;
        let host = host_name(system, admission.host);
        let reserved = about(*reserved);
        text.push_str(&line(&format!("  {host}: policy {policy}, {reserved} reserved of a cap of {cap}")));
        let programs = admission.programs.iter().map(|one| system.program(one.program));
        for program in programs.filter(|program| has_external_advocate(program)) {
            let counts = match program.least {
                Some(least) => format!("its `least` of {least} is used"),
                None => "its declaration is used; set `least` to what it needs".to_owned(),
            };
            let name = &program.name;
            text.push_str(&line(&format!(
                "  {name}: requests of advocates in other processes and libraries are unknown; {counts}"
            )));
        }
    }
    (!admissions.is_empty()).then_some(text)
}
