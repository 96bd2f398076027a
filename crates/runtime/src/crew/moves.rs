//! Operations that leave this processor, and those that arrive, each with its body.

use hyoshi_control::feedback::MoveOrder;
use hyoshi_dispatch::DepartedOperation;
use hyoshi_model::Instant;
use hyoshi_os::Scheduled;
use hyoshi_trace::Input;

use super::Crew;
use crate::moves::ArrivingOperation;
use crate::wakeups::PendingWakeups;

impl<S: Scheduled> Crew<S> {
    /// The processor has sampled. If it is saturated, an operation leaves it.
    pub fn move_operations(&mut self, now: Instant, wakeups: &mut PendingWakeups) {
        let Some(moves) = &self.common.moves else { return };
        let (load, expected) = (self.dispatcher.load(), |id| self.dispatcher.expected_utilisation(id));
        let order = moves.law.lock().sample(self.processor, load, expected);
        let input = order.map(|order| match order {
            MoveOrder::Depart(moved) => Input::Depart { operation: moved.from },
            MoveOrder::Stay(operation) => Input::Stay { operation },
        });
        let Some(input) = input.filter(|input| self.dispatcher.accepts(&self.common.system, now, input)) else {
            return;
        };
        self.handle(now, input);
        self.handle(now, Input::Tick);
        self.settle(now, wakeups);
    }

    /// Passes each operation that has left this processor to its next one.
    #[cold]
    pub fn hand_over(&mut self, wakeups: &mut PendingWakeups) {
        let (common, operations) = (&self.common, &mut self.operations);
        let Some(moves) = &common.moves else { return };
        self.effects.departed.retain(|departure| {
            let own = operations.iter_mut().find(|one| one.id == departure.operation);
            let Some(own) = own else { return false };
            if own.has_body && own.cell.is_none() {
                // The thread of its last job has not returned the body yet.
                return true;
            }
            // Otherwise it comes back.
            let to = moves.law.lock().departed(departure.operation).unwrap_or(departure.operation);
            let processor = common.system.operation(to).on;
            moves.pass(processor, ArrivingOperation { to, departure: *departure, cell: own.cell.take() });
            wakeups.wake_release(processor);
            false
        });
    }

    /// Operations arrive here. True if there were some.
    pub fn take_arrivals(&mut self, now: Instant) -> bool {
        // Shared with `handle`, which needs the crew.
        let common = self.common.clone();
        let Some(moves) = &common.moves else { return false };
        if !moves.has_arrivals(self.processor) {
            return false;
        }
        while let Some(ArrivingOperation { to: operation, departure, cell }) = moves.take(self.processor) {
            let DepartedOperation { operation: from, nominal, number } = departure;
            if let Some(own) = self.operations.iter_mut().find(|one| one.id == operation) {
                own.cell = cell;
            }
            self.handle(now, Input::Arrive { operation, from, nominal, number });
            moves.law.lock().arrived(operation);
        }
        true
    }
}
