//! `calls` and `called`: turns the call of another operation's method into a chain of triggered operations, which every
//! later crate understands.
//!
//! ```text
//!     plan, 3 ms, calls `locate` after 1 ms:     plan:call ──► locate@plan ──► plan
//!                                                  1 ms          4 ms          2 ms
//!     the same, oneway:                          plan:call ─┬► locate@plan
//!                                                           └► plan
//! ```
//!
//! A job that waits for an answer holds no run token: between its two parts it does not exist. The part that finishes
//! the job keeps the name, so chains, triggers and epochs mean the whole. Each caller has its own instance of the
//! method, which has the caller's importance, as in a distributable thread (Real-Time CORBA 2.0, section 2.4: the
//! segments are one schedulable entity).

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::declared::{After, AfterKind, CallPhase, DeclaredOperation, DeclaredStagger, Drawn, Written};
use super::expand::Operations;
use super::limits;
use super::log::{AtPlace, Log, Place};
use super::names::Names;
use crate::execution_time::ExecutionTime;
use crate::ids::{OperationId, ProcessorId};
use crate::system::Deadline;
use crate::time::Span;

/// One operation of the chain that replaces a call.
pub(super) struct CallPart {
    of: usize,
    pub name: String,
    part: CallPhase,
    /// The part that triggers it, if the file names no trigger.
    trigger: Option<usize>,
    /// The periodic operation to which it belongs: that operation's deadline ends everything.
    within: Option<usize>,
    critical: bool,
    importance: u32,
}

/// The declared operations, as parts. `None` if there are no calls, or if they are wrong, which is logged.
pub(super) fn call_parts(log: &mut Log, declared: &[DeclaredOperation<'_>]) -> Option<Vec<CallPart>> {
    if declared.iter().all(|one| one.calls.is_none()) {
        return None;
    }
    let names = Names::new("operation", declared.iter().map(|one| one.name.value));
    let methods: Vec<Option<usize>> = declared.iter().map(|one| method(log, declared, &names, one)).collect();
    let mut sound = declared.iter().zip(&methods).all(|(one, method)| one.calls.is_none() || method.is_some());
    let called: HashSet<usize> = methods.iter().flatten().copied().collect();
    sound &= acyclic(log, declared, &methods);
    if !sound {
        return None;
    }
    let mut call_parts = CallParts { declared, methods, call_parts: Vec::new() };
    // If no operation calls a method, only requests from outside release it.
    let stands_alone = |(position, one): &(usize, &DeclaredOperation<'_>)| !one.called || !called.contains(position);
    for (position, one) in declared.iter().enumerate().filter(stands_alone) {
        call_parts.add(position, one.name.value.to_string(), None, position)?;
        if call_parts.call_parts.len() as u64 > limits::OPERATIONS {
            log.error(one.name.place, "too many operations").label("with the operations that it calls").help(format!(
                "a system has at most {} operations; each caller has its own copy of a method",
                limits::OPERATIONS
            ));
            return None;
        }
    }
    Some(call_parts.call_parts)
}

/// Rejects keys that contradict the release by requests or calls.
pub(super) fn check_requests(log: &mut Log, declared: &[DeclaredOperation<'_>]) {
    for one in declared.iter().filter(|one| one.called && !one.misread) {
        let places = [one.min_interval.map(|one| one.place), one.clients.map(|one| one.place)];
        if !one.requested() {
            for (key, place) in ["min_interval", "clients"].into_iter().zip(places) {
                if let Some(place) = place {
                    log.error(place, format!("`{key}` limits requests of clients, but operations call this one"))
                        .help(format!("remove `{key}`: the rates of the callers limit the calls"));
                }
            }
            continue;
        }
        if let [Some(interval), Some(clients)] = places {
            log.error(interval, "`min_interval` and `clients` exclude each other")
                .also(clients, "the rates of its clients")
                .help("remove `min_interval`: a feedback loop sets the rate of each client");
        }
        if let Some(call) = one.calls {
            let whole = one.name.value.trim_end_matches(":call");
            log.error(call.method.place, format!("`{whole}` calls a method, but requests release it"))
                .help("let it trigger an operation with `after` instead of calling the method");
        }
        if let Some(guard) = one.guard {
            log.error(guard.place, "`guard` is for triggered operations")
                .help("remove it: requests release the operation, not an earlier job");
        }
        if one.min_interval.is_none() && one.clients.is_none() && one.written.deadline.is_none() {
            log.error(one.name.place, format!("`{}` has no deadline", one.name.value))
                .label("`deadline` is missing")
                .help(
                    "add `deadline = \"10ms\"`, counted from the request, or `min_interval`, which is also the \
                    deadline",
                );
        }
    }
}

/// The method that an operation calls, if it may.
fn method(
    log: &mut Log,
    declared: &[DeclaredOperation<'_>],
    names: &Names<'_>,
    one: &DeclaredOperation<'_>,
) -> Option<usize> {
    let call = one.calls?;
    let position = names.find(log, call.method)? as usize;
    let method = &declared[position];
    if !method.called {
        let finding = log.error(call.method.place, format!("`{}` is not a method", method.name.value));
        finding
            .also(method.name.place, "something else releases it")
            .help("only calls release a method: write `called = true` in place of `rate`, `every` or `after`");
        return None;
    }
    Some(position)
}

/// Rejects methods that call themselves, directly or through others, and calls that are nested too deep.
fn acyclic(log: &mut Log, declared: &[DeclaredOperation<'_>], methods: &[Option<usize>]) -> bool {
    let mut walk_of = vec![usize::MAX; declared.len()];
    let mut sound = true;
    for start in 0..declared.len() {
        let (mut path, mut here) = (vec![], Some(start));
        while let Some(one) = here.filter(|one| walk_of[*one] == usize::MAX) {
            walk_of[one] = start;
            path.push(one);
            here = methods[one];
        }
        let Some(begin) = here.and_then(|here| path.iter().position(|one| *one == here)) else { continue };
        let name = |one: &usize| declared[*one].name.value;
        let mut circle: Vec<_> = path[begin..].iter().take(8).map(name).collect();
        circle.extend((path.len() - begin > 8).then_some("..."));
        circle.push(name(&path[begin]));
        let place = declared[path[begin]].calls.map_or(declared[path[begin]].name.place, |call| call.method.place);
        log.error(place, format!("methods call each other in a cycle: {}", circle.join(" -> ")))
            .label("part of the cycle")
            .help("such a call would never end: remove one of the calls");
        sound = false;
    }
    let calls = |start: &usize| std::iter::successors(Some(*start), |one| methods[*one]).take(DEEPEST + 2).count() - 1;
    let too_deep = |start: &usize| sound && calls(start) > DEEPEST;
    // Only from methods that no method calls: every other path is part of one of these.
    if let Some(start) = (0..declared.len()).filter(|one| !declared[*one].called).find(too_deep) {
        let place = declared[start].calls.map_or(declared[start].name.place, |call| call.method.place);
        log.error(place, format!("calls are nested more than {DEEPEST} deep from here"))
            .help("let one of them trigger an operation instead, with `after`");
        sound = false;
    }
    sound
}

/// The deepest nesting of calls.
const DEEPEST: usize = 16;

struct CallParts<'d, 'a> {
    declared: &'d [DeclaredOperation<'a>],
    methods: Vec<Option<usize>>,
    call_parts: Vec<CallPart>,
}

impl CallParts<'_, '_> {
    /// Adds the declaration at `of`, under the name, for `caller`. Returns the position of its last part.
    fn add(&mut self, of: usize, name: String, trigger: Option<usize>, caller: usize) -> Option<usize> {
        let (one, caller_) = (&self.declared[of], &self.declared[caller]);
        let within = (of != caller && caller_.periodic()).then_some(caller);
        let critical = one.critical || caller_.critical;
        let importance = one.importance.max(caller_.importance);
        let piece = |name, part, trigger| CallPart { of, name, part, trigger, within, critical, importance };
        let (Some(call), Some(method)) = (one.calls, self.methods[of]) else {
            self.call_parts.push(piece(name, CallPhase::Whole, trigger));
            return Some(self.call_parts.len() - 1);
        };
        let before = self.call_parts.len();
        let periodic = one.periodic();
        self.call_parts.push(piece(format!("{name}:call"), CallPhase::Whole, trigger));
        let instance = format!("{}@{name}", self.declared[method].name.value);
        let answer = self.add(method, instance, Some(before), caller)?;
        let released_by = if call.oneway { before } else { answer };
        let rest = self.call_parts.len();
        self.call_parts.push(piece(name, CallPhase::Rest { before, periodic }, Some(released_by)));
        self.call_parts[before].part = CallPhase::Before { rest, after: call.after };
        Some(rest)
    }
}

/// The operations that the parts become.
pub(super) fn declare<'a>(
    declared: Vec<DeclaredOperation<'a>>,
    call_parts: &'a [CallPart],
) -> Vec<DeclaredOperation<'a>> {
    // The position of the last part of each operation that no operation calls: for deadlines.
    let mut end_of = vec![None; declared.len()];
    for (position, piece) in call_parts.iter().enumerate() {
        if !declared[piece.of].called && !matches!(piece.part, CallPhase::Before { .. }) {
            end_of[piece.of] = Some(position);
        }
    }
    let declare = |piece: &'a CallPart| {
        let of = &declared[piece.of];
        let mut one = of.clone();
        one.name = AtPlace::new(piece.name.as_str(), of.name.place);
        (one.part, one.critical, one.importance) = (piece.part, piece.critical, piece.importance);
        one.within = piece.within.and_then(|within| end_of[within]);
        let method = of.called && piece.trigger.is_some() && !matches!(piece.part, CallPhase::Before { .. });
        one.method = method.then_some(of.name.value);
        if let Some(trigger) = piece.trigger {
            let place = of.calls.map_or(of.name.place, |call| call.method.place);
            let names = AtPlace::new(vec![AtPlace::new(call_parts[trigger].name.as_str(), place)], place);
            one.after = Some(After::operations(AfterKind::All, names));
        }
        match piece.part {
            CallPhase::Whole => {}
            CallPhase::Before { .. } => {
                one.guard = one.guard.filter(|_| one.after.is_some());
                // The last part has the output of the operation.
                one.replicate = None;
            }
            CallPhase::Rest { .. } => {
                (one.phase, one.offset) = (Span::ZERO, Span::ZERO);
                one.stagger = DeclaredStagger::By(AtPlace::new(Span::ZERO, of.name.place));
                one.uses = Vec::new();
                one.reads.value = Vec::new();
            }
        }
        one
    };
    call_parts.iter().map(declare).collect()
}

/// Whether the deadline can be divided: all parts must run in sequence.
fn divides(log: &mut Log, declared: &[DeclaredOperation<'_>], place: Place, parts: RangeInclusive<usize>) -> bool {
    let is_oneway = |one: &&DeclaredOperation<'_>| {
        matches!(one.part, CallPhase::Before { .. }) && one.calls.is_some_and(|call| call.oneway)
    };
    let Some(oneway) = declared[parts].iter().find(is_oneway) else { return true };
    log.error(place, "`divide` requires calls that wait for replies")
        .also(oneway.calls.map_or(place, |call| call.method.place), "this call is oneway")
        .help("remove it, or set a `deadline` on the method");
    false
}

/// Gives each part a share of the deadline, proportional to the worst-case time up to its end, with the longest delays
/// between hosts (equal flexibility, Kao and Garcia-Molina 1997, computed once from the worst cases). Methods with a
/// deadline of their own keep it.
fn divide(
    declared: &[DeclaredOperation<'_>],
    by_file: &[bool],
    parts: RangeInclusive<usize>,
    delay: &dyn Fn(ProcessorId, ProcessorId) -> Span,
    now: &mut [Arc<Written>],
    at: impl Fn(usize) -> usize,
) {
    let (begin, end) = (*parts.start(), *parts.end());
    let Some(whole) = now[at(end)].deadline else { return };
    let mut ends = Vec::new();
    let mut elapsed = 0u128;
    for position in parts.clone() {
        let Some(wcet) = now[at(position)].wcet else { return };
        let way = if position == begin { Span::ZERO } else { delay(declared[position - 1].on, declared[position].on) };
        elapsed += u128::from(way.as_nanos()) + u128::from(wcet.value.as_nanos());
        ends.push(elapsed);
    }
    for (position, end) in parts.zip(ends) {
        // The file's deadline of a method is stored under its last part.
        let last = match declared[position].part {
            CallPhase::Before { rest, .. } => rest,
            _ => position,
        };
        if position != begin && by_file[last] && declared[last].method.is_some() {
            continue;
        }
        let share = u128::from(whole.value.span().as_nanos()) * end / elapsed;
        let share = Span::from_nanos(share as u64);
        let deadline = if position == begin { Deadline::Own(share) } else { Deadline::Origin(share) };
        Arc::make_mut(&mut now[at(position)]).deadline = Some(whole.map(|_| deadline));
    }
}

/// Lists of execution times that were cut at a call: operations may share long ones.
#[derive(Default)]
pub(super) struct Cuts {
    lists: HashMap<(*const Span, Span), [Arc<[Span]>; 2]>,
    times: usize,
}

impl Cuts {
    /// The settings of the parts, computed from the settings of the whole operations, which are stored under the last
    /// parts.
    pub fn cut(
        &mut self,
        log: &mut Log,
        declared: &[DeclaredOperation<'_>],
        first: &[u32],
        delay: &dyn Fn(ProcessorId, ProcessorId) -> Span,
        now: &mut [Arc<Written>],
    ) {
        let at = |position: usize| first[position] as usize;
        let by_file: Vec<bool> = (0..declared.len()).map(|position| now[at(position)].deadline.is_some()).collect();
        // A method shares its caller's deadline: use the whole operations, before these are cut.
        let limit = |written: &Written| {
            let own = written.deadline.map(|deadline| deadline.map(|deadline| Deadline::Origin(deadline.span())));
            own.or(written.period.map(|period| period.map(|(period, _)| Deadline::Origin(period))))
        };
        for (position, one) in declared.iter().enumerate() {
            let Some(end) = one.within else { continue };
            if now[at(position)].deadline.is_none() {
                let deadline = limit(&now[at(end)]);
                Arc::make_mut(&mut now[at(position)]).deadline = deadline;
            }
        }
        for (position, one) in declared.iter().enumerate() {
            let CallPhase::Before { rest, after } = one.part else { continue };
            let whole = now[at(rest)].clone();
            let Some((mut first_part, mut rest_part)) = self.parts(log, one, &whole, after) else { continue };
            if one.after.is_none() {
                rest_part.deadline = limit(&whole);
                (rest_part.period, rest_part.jitter) = (None, None);
            } else {
                first_part.deadline = whole.deadline;
            }
            (now[at(position)], now[at(rest)]) = (Arc::new(first_part), Arc::new(rest_part));
        }
        for (begin, one) in declared.iter().enumerate() {
            let (CallPhase::Before { rest, .. }, Some(place)) = (one.part, one.calls.and_then(|call| call.divide))
            else {
                continue;
            };
            if one.periodic() && divides(log, declared, place, begin..=rest) {
                divide(declared, &by_file, begin..=rest, delay, now, at);
            }
        }
    }

    /// The work before the call, always the same, and the rest of each job.
    fn parts(
        &mut self,
        log: &mut Log,
        one: &DeclaredOperation<'_>,
        whole: &Written,
        after: AtPlace<Span>,
    ) -> Option<(Written, Written)> {
        let wcet = whole.wcet?;
        if after.value >= wcet.value {
            log.error(
                after.place,
                format!("no execution time is left after the call: the worst case is {}", wcet.value),
            )
            .also(wcet.place, "the worst case")
            .help("a job must run after the call to receive the answer: shorten `after` or raise `wcet`");
            return None;
        }
        let shortest = whole.execution_time.as_ref().map(|takes| AtPlace::new(takes.value.shortest, takes.place));
        for (least, what) in [(whole.bcet, "the best case is"), (shortest, "the shortest execution time is")] {
            let Some(least) = least.filter(|least| least.value <= after.value) else { continue };
            log.error(least.place, format!("{what} {}, not longer than the work before the call", least.value))
                .also(after.place, format!("the work before the call needs {}", after.value))
                .help("every job must run after its call: shorten `after` or raise the times");
            return None;
        }
        let held: Span = one.uses.iter().fold(Span::ZERO, |sum, (_, span)| sum.checked_add(*span).unwrap_or(sum));
        if held > after.value {
            log.error(one.uses_place, format!("resources are held for {held}, longer than until the call"))
                .also(after.place, format!("the work before the call needs {}", after.value))
                .help("a job must not hold resources during a call: hold them shorter, or call later");
            return None;
        }
        let fixed = |span: Span, place| Some(AtPlace::new(span, place));
        let mut first =
            Written { wcet: fixed(after.value, wcet.place), bcet: None, execution_time: None, ..whole.clone() };
        first.deadline = whole.deadline;
        let left = |span: AtPlace<Span>| span.map(|span| span.saturating_sub(after.value));
        let takes = match &whole.execution_time {
            None => None,
            Some(takes) => Some(AtPlace::new(
                Drawn::from(self.remaining_times(log, &takes.value.execution_time, after)?),
                takes.place,
            )),
        };
        Some((
            first,
            Written { wcet: Some(left(wcet)), bcet: whole.bcet.map(left), execution_time: takes, ..whole.clone() },
        ))
    }

    /// The execution times that remain after the first part of each job.
    fn remaining_times(&mut self, log: &mut Log, takes: &ExecutionTime, after: AtPlace<Span>) -> Option<ExecutionTime> {
        let left = |span: &Span| span.saturating_sub(after.value);
        Some(match takes {
            ExecutionTime::Fixed(span) => ExecutionTime::Fixed(left(span)),
            ExecutionTime::Uniform(least, most) => ExecutionTime::Uniform(left(least), left(most)),
            ExecutionTime::Normal { mean, deviation, least, most } => {
                ExecutionTime::Normal { mean: left(mean), deviation: *deviation, least: left(least), most: left(most) }
            }
            ExecutionTime::List(whole) => {
                let key = (whole.as_ptr(), after.value);
                if let Some([_, cut]) = self.lists.get(&key) {
                    return Some(ExecutionTime::List(cut.clone()));
                }
                self.times += whole.len();
                if self.times > limits::CUT_TIMES {
                    log.error(after.place, "too many execution times in lists of operations that call")
                        .help(format!("at most {} in all", limits::CUT_TIMES));
                    return None;
                }
                let cut: Arc<[Span]> = whole.iter().map(left).collect();
                // Keep the whole, too: otherwise another list could reuse its address.
                self.lists.insert(key, [whole.clone(), cut.clone()]);
                ExecutionTime::List(cut)
            }
        })
    }
}

/// The path of a job through the parts of an operation: a single step, or the parts of a call with the method between
/// them.
pub(super) fn path_of(operations: &Operations<'_>, end: OperationId, steps: &mut Vec<OperationId>) {
    if let Some(before) = operations.before(end) {
        steps.push(before);
        let waits = operations.of(end).calls.is_some_and(|call| !call.oneway);
        // The last part of a call's method is right before the rest of the caller.
        let answer = waits.then(|| operations.position(end).checked_sub(1)).flatten();
        if let Some(answer) = answer {
            path_of(operations, OperationId(operations.first()[answer]), steps);
        }
    }
    steps.push(end);
}
