//! The way to a scheduler proxy in another process.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyoshi_control::TaskId;
use hyoshi_model::{Reservation, Span};
use hyoshi_os::PiMutex;

use super::pool::{After, Asked};
use super::scheduler::{Elsewhere, ExternalScheduler, Order, Report};
use super::{About, Bulletin, Externals, Note, printable, reservation, why};
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{ReserveError, SchedulerProxy as _, SchedulerProxyStub};
use crate::kernel::NotReserved;
use crate::proxy::SchedulerProxy;
use crate::setting::Setting;
use crate::trouble::Trouble;

/// Unless said otherwise: it changes other processes' scheduling, which takes its time.
const TIMEOUT: Span = Span::from_millis(50);

impl Externals {
    /// The scheduler proxy of a setting, `external --object REFERENCE --timeout 20ms`; `own` reserves when it does not.
    ///
    /// # Errors
    ///
    /// Of settings that name no object, or cannot be read.
    pub fn scheduler(
        self: &Arc<Self>,
        setting: &Setting,
        own: Box<dyn SchedulerProxy>,
    ) -> Result<Box<dyn SchedulerProxy>, Trouble> {
        let (stub, timeout) = self.object::<dyn wire::SchedulerProxy>(setting, TIMEOUT)?;
        self.schedulers.start()?;
        let exchange = Arc::new(Exchange {
            stub: stub.within(timeout),
            timeout,
            bulletin: self.bulletin.clone(),
            talk: PiMutex::default(),
        });
        Ok(Box::new(ExternalScheduler::new(own, External { externals: self.clone(), exchange })))
    }
}

/// The way to another process.
struct External {
    externals: Arc<Externals>,
    exchange: Arc<Exchange>,
}

impl Elsewhere for External {
    fn order(&mut self, task: TaskId, order: Order) {
        let mut talk = self.exchange.talk.lock();
        talk.orders.insert(task, order);
        if !std::mem::replace(&mut talk.busy, true) {
            drop(talk);
            // There is room: it alone is asked by that pool.
            self.externals.schedulers.ask(self.exchange.clone());
        }
    }

    fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.exchange.talk.lock().reports)
    }

    fn words(&self) -> Option<String> {
        self.exchange.talk.lock().words.clone()
    }
}

/// A scheduler in another process, between the broker and the thread that tells it.
struct Exchange {
    stub: SchedulerProxyStub,
    timeout: Span,
    bulletin: Arc<Bulletin>,
    talk: PiMutex<Talk>,
}

#[derive(Default)]
struct Talk {
    /// At most one for each task.
    orders: BTreeMap<TaskId, Order>,
    reports: Vec<Report>,
    busy: bool,
    words: Option<String>,
    /// In a row.
    failures: u32,
}

impl Exchange {
    /// It is asked what it is, until it answers.
    fn knock(&self) -> Option<About> {
        let answered = self.stub.describe();
        let mut talk = self.talk.lock();
        match answered {
            Ok(words) => {
                talk.failures = 0;
                talk.words = Some(printable(&words));
                talk.reports.push(Report::Again);
                let text = "the external scheduler answers again".to_owned();
                self.bulletin.note(Note { change: "scheduler-answers", task: None, why: String::new(), text });
                Some(About::Scheduler)
            }
            Err(_) => {
                talk.failures = talk.failures.saturating_add(1);
                None
            }
        }
    }

    fn tell(&self, task: TaskId, order: &Order) -> Result<Report, String> {
        let Some((what, processes)) = &order.what else {
            let released = self.stub.release(task.0);
            return released.map(|()| Report::Released(task, order.number)).map_err(|error| why(&error, self.timeout));
        };
        let name = self.bulletin.name_of(task);
        let done = match self.stub.reserve(task.0, &name, processes, &reservation(*what)) {
            Ok(()) => Ok(()),
            Err(ReserveError::NotReserved(refused)) => Err(not_reserved(&refused, *what)),
            Err(ReserveError::System(error)) => return Err(why(&error, self.timeout)),
        };
        Ok(Report::Done(task, *what, done))
    }
}

/// A refusal must leave less than was refused, or it would be told for ever.
fn not_reserved(refused: &wire::NotReserved, what: Reservation) -> NotReserved {
    let most = Span::from_nanos(refused.most.budget);
    let most = (most > Span::ZERO && most < what.budget()).then(|| what.with_budget(most));
    let why = printable(&refused.why);
    NotReserved { most, why: if why.is_empty() { "the external scheduler refuses".to_owned() } else { why } }
}

impl Asked for Exchange {
    fn talk_once(&self) -> Option<About> {
        let (order, introduced) = {
            let mut talk = self.talk.lock();
            if talk.failures > 0 {
                drop(talk);
                return self.knock();
            }
            (talk.orders.pop_first(), talk.words.is_some())
        };
        let (task, order) = order?;
        let told = self.tell(task, &order);
        let words = match told.is_ok() && !introduced {
            true => self.stub.describe().ok().map(|words| printable(&words)),
            false => None,
        };
        let mut talk = self.talk.lock();
        talk.words = words.or(talk.words.take());
        match told {
            Ok(report) => talk.reports.push(report),
            Err(why) => {
                talk.failures = 1;
                talk.orders.clear();
                let text = format!("the external scheduler is passed over: {why}");
                self.bulletin.note(Note { change: "scheduler-passed-over", task: None, why: why.clone(), text });
                talk.reports.push(Report::Failed(why));
            }
        }
        Some(About::Scheduler)
    }

    fn after(&self) -> After {
        let mut talk = self.talk.lock();
        if talk.failures > 0 {
            return After::Later(Span::from_secs(1 << (talk.failures - 1).min(5)));
        }
        talk.busy = !talk.orders.is_empty();
        if talk.busy { After::Again } else { After::Over }
    }

    fn give_up(&self) {
        self.talk.lock().busy = false;
    }
}
