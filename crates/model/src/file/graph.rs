//! The order of triggers: causes first, or the cycles that make it impossible.

use super::limits;
use crate::ids::OperationId;
use crate::system::Trigger;

/// The operations, each after those that trigger it (Kahn 1962); or the cycles among them, each in the order of
/// triggering.
pub(super) fn order(triggers: &[Trigger]) -> Result<Vec<OperationId>, Vec<Vec<OperationId>>> {
    let mut followers = vec![Vec::new(); triggers.len()];
    let mut waiting_for: Vec<usize> = Vec::with_capacity(triggers.len());
    for (operation, trigger) in triggers.iter().enumerate() {
        waiting_for.push(trigger.predecessors().len());
        for predecessor in trigger.predecessors() {
            followers[predecessor.index()].push(OperationId(operation as u32));
        }
    }
    let free = |operation: &OperationId| triggers[operation.index()].predecessors().is_empty();
    let mut order: Vec<_> = (0..triggers.len() as u32).map(OperationId).filter(free).collect();
    let mut next = 0;
    while let Some(operation) = order.get(next).copied() {
        next += 1;
        for follower in &followers[operation.index()] {
            waiting_for[follower.index()] -= 1;
            if waiting_for[follower.index()] == 0 {
                order.push(*follower);
            }
        }
    }
    if order.len() == triggers.len() { Ok(order) } else { Err(cycles(triggers, &waiting_for)) }
}

/// Cycles among the operations that still wait: from each one back along waiting triggers, until a walk meets itself.
fn cycles(triggers: &[Trigger], waiting_for: &[usize]) -> Vec<Vec<OperationId>> {
    let mut walk_of = vec![usize::MAX; triggers.len()];
    let mut cycles = Vec::new();
    for start in (0..triggers.len()).filter(|operation| waiting_for[*operation] > 0) {
        let (mut path, mut here) = (Vec::new(), start);
        while walk_of[here] == usize::MAX {
            walk_of[here] = start;
            path.push(OperationId(here as u32));
            let waits = |predecessor: &&OperationId| waiting_for[predecessor.index()] > 0;
            match triggers[here].predecessors().iter().find(waits) {
                Some(predecessor) => here = predecessor.index(),
                None => break,
            }
        }
        // A walk that ends in an earlier one ends in a known cycle.
        if walk_of[here] == start
            && let Some(begin) = path.iter().position(|operation| operation.index() == here)
        {
            let mut cycle = path.split_off(begin);
            cycle.reverse();
            cycles.push(cycle);
        }
    }
    cycles
}

/// The periodic operations to which each operation's triggers lead back, sorted; `None` if there are more than a system
/// may have.
pub(super) fn roots(triggers: &[Trigger], order: &[OperationId]) -> Option<Vec<Vec<OperationId>>> {
    let mut roots: Vec<Vec<OperationId>> = vec![Vec::new(); triggers.len()];
    // Bound both the result and the work of merging it.
    let (mut kept, mut merged) = (0, 0);
    for operation in order {
        let mine = match triggers[operation.index()].predecessors() {
            [] => vec![*operation],
            [one] => roots[one.index()].clone(),
            several => {
                merged += several.iter().map(|one| roots[one.index()].len()).sum::<usize>();
                if merged > 4 * limits::ROOTS {
                    return None;
                }
                let mut mine: Vec<_> = several.iter().flat_map(|one| &roots[one.index()]).copied().collect();
                mine.sort_unstable();
                mine.dedup();
                mine
            }
        };
        kept += mine.len();
        if kept > limits::ROOTS {
            return None;
        }
        roots[operation.index()] = mine;
    }
    Some(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(operations: &[u32]) -> Trigger {
        Trigger::All(operations.iter().copied().map(OperationId).collect())
    }

    fn ids(operations: &[u32]) -> Vec<OperationId> {
        operations.iter().copied().map(OperationId).collect()
    }

    #[test]
    fn causes_precede_their_effects() {
        let triggers = [all(&[2, 1]), all(&[2]), Trigger::Periodic];
        assert_eq!(order(&triggers), Ok(ids(&[2, 1, 0])));
    }

    #[test]
    fn roots_are_found_through_any_number_of_triggers() {
        let triggers = [Trigger::Periodic, all(&[0]), Trigger::Periodic, all(&[2, 1]), all(&[3, 0])];
        let order = order(&triggers).unwrap();
        assert_eq!(roots(&triggers, &order).unwrap()[3..], [ids(&[0, 2]), ids(&[0, 2])]);
    }

    #[test]
    fn each_cycle_is_found_once_and_in_the_order_of_triggering() {
        // 0 -> 1 -> 2 -> 0; 0 also triggers 3; 4 triggers itself.
        let triggers = [all(&[2]), all(&[0]), all(&[1]), all(&[1]), all(&[4])];
        let cycles = order(&triggers).unwrap_err();
        assert_eq!(cycles.len(), 2, "{cycles:?}");
        assert_eq!(cycles[0], ids(&[1, 2, 0]));
        assert_eq!(cycles[1], ids(&[4]));
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_needs_no_stack() {
        let triggers: Vec<_> =
            (0..100_000).map(|n: u32| if n == 0 { Trigger::Periodic } else { all(&[n - 1]) }).collect();
        assert_eq!(order(&triggers).unwrap().len(), 100_000);
    }
}
