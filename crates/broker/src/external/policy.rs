//! A policy in another process.

use std::fmt;
use std::sync::Arc;

use hyoshi_control::Ask;
use hyoshi_control::policy::{AnyPolicy, ExternalPolicy};
use hyoshi_model::{Share, Span};
use hyoshi_os::PiMutex;

use super::pool::{After, Asked};
use super::{About, Bulletin, DEFAULT_TIMEOUT, Externals, Note, printable, reservation, why};
use crate::foreign::{Elsewhere, Source};
use crate::idl::cpu_broker as wire;
use crate::idl::cpu_broker::{Policy as _, PolicyStub};
use crate::setting::Setting;
use crate::trouble::Trouble;

/// Between two attempts, until the third has failed.
const BRIEF: Span = Span::from_millis(100);

impl Externals {
    /// The policy of a setting; `fallback` decides when it does not.
    ///
    /// # Errors
    ///
    /// Of settings that name no object, or cannot be read.
    pub(crate) fn policy(self: &Arc<Self>, setting: &Setting, fallback: AnyPolicy) -> Result<AnyPolicy, Trouble> {
        let (stub, timeout) = self.object::<dyn wire::Policy>(setting, DEFAULT_TIMEOUT)?;
        self.policies.start()?;
        let exchange =
            Exchange { stub: stub.within(timeout), timeout, bulletin: self.bulletin.clone(), talk: PiMutex::default() };
        let (externals, exchange) = (self.clone(), Arc::new(exchange));
        Ok(Box::new(Elsewhere::new(External { externals, exchange, last: None }, fallback)))
    }
}

/// What is asked at once: the asks, and how much there is.
type Question = (Vec<Ask>, Share);
/// What was asked and a budget for each, or why there is none.
type Outcome = Result<(Vec<Ask>, Vec<Span>), String>;

/// A policy in another process, between the broker and the thread that asks it.
struct Exchange {
    stub: PolicyStub,
    timeout: Span,
    bulletin: Arc<Bulletin>,
    talk: PiMutex<Talk>,
}

#[derive(Default)]
struct Talk {
    question: Option<Question>,
    /// Somebody has it in hand.
    busy: bool,
    /// What has come of the question before; taken by the broker.
    outcome: Option<Outcome>,
    /// What it says of itself.
    words: Option<String>,
    failed: bool,
    failures: u32,
    /// It is the policy no more.
    gone: bool,
}

impl Exchange {
    fn ask(&self, asks: &[Ask], cap: Share) -> Result<Vec<Span>, String> {
        let asks: Vec<wire::Ask> = asks.iter().map(|ask| to_wire(ask, self.bulletin.name_of(ask.task))).collect();
        let budgets = self.stub.arbitrate(cap.as_millionths(), &asks).map_err(|error| why(&error, self.timeout))?;
        match budgets.len() == asks.len() {
            true => Ok(budgets.into_iter().map(Span::from_nanos).collect()),
            false => Err(format!("it returned {} budgets for {} requests", budgets.len(), asks.len())),
        }
    }
}

impl Asked for Exchange {
    fn talk_once(&self) -> Option<About> {
        let (question, introduced) = {
            let mut talk = self.talk.lock();
            (talk.question.take()?, talk.words.is_some())
        };
        let answered = self.ask(&question.0, question.1);
        let words = match answered.is_ok() && !introduced {
            true => self.stub.describe().ok().map(|words| printable(&words)),
            false => None,
        };
        let mut talk = self.talk.lock();
        talk.words = words.or(talk.words.take());
        match answered {
            Ok(budgets) => {
                talk.failures = 0;
                talk.outcome = Some(Ok((question.0, budgets)));
                if std::mem::take(&mut talk.failed) {
                    self.bulletin.note(Note::of_policy(External::WHICH, None));
                }
            }
            Err(why) => {
                talk.failures += 1;
                if !std::mem::replace(&mut talk.failed, true) {
                    self.bulletin.note(Note::of_policy(External::WHICH, Some(&why)));
                }
                // Asked again when it has rested, unless something else is to be asked by then.
                talk.question.get_or_insert(question);
                talk.outcome = Some(Err(why));
            }
        }
        Some(About::Policy)
    }

    fn after(&self) -> After {
        let mut talk = self.talk.lock();
        talk.busy = talk.question.is_some() && !talk.gone;
        match (talk.busy, talk.failed) {
            (false, _) => After::Over,
            (true, false) => After::Again,
            (true, true) if talk.failures < 3 => After::Later(BRIEF),
            (true, true) => After::Later(Span::from_secs(1 << (talk.failures - 3).min(5))),
        }
    }

    fn give_up(&self) {
        self.talk.lock().busy = false;
    }
}

fn to_wire(ask: &Ask, name: String) -> wire::Ask {
    wire::Ask {
        number: ask.task.0,
        name,
        importance: ask.importance,
        weight: ask.weight,
        asked: reservation(ask.asked),
        least: ask.least.as_millionths(),
    }
}

/// What the arbiter has of it.
struct External {
    externals: Arc<Externals>,
    exchange: Arc<Exchange>,
    /// What was asked last.
    last: Option<Question>,
}

impl Source for External {
    const NAME: &'static str = "external";
    const WHICH: &'static str = "the external policy";

    fn hear(&mut self, foreign: &mut ExternalPolicy, _: &[Ask], _: Share) {
        match self.exchange.talk.lock().outcome.take() {
            None => (),
            Some(Ok((asks, budgets))) => {
                foreign.answered(&asks, &budgets);
            }
            Some(Err(why)) => foreign.failed(why),
        }
    }

    fn ask(&mut self, asks: &[Ask], cap: Share) {
        if self.last.as_ref().is_some_and(|(before, limit)| before == asks && *limit == cap) {
            return;
        }
        self.last = Some((asks.to_vec(), cap));
        let mut talk = self.exchange.talk.lock();
        talk.question = self.last.clone();
        if !std::mem::replace(&mut talk.busy, true) {
            drop(talk);
            if !self.externals.policies.ask(self.exchange.clone()) {
                self.exchange.give_up();
            }
        }
    }

    fn words(&self) -> Option<String> {
        self.exchange.talk.lock().words.clone()
    }

    fn bulletin(&self) -> &Bulletin {
        &self.exchange.bulletin
    }
}

impl Drop for External {
    fn drop(&mut self) {
        let mut talk = self.exchange.talk.lock();
        (talk.gone, talk.question) = (true, None);
    }
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").finish_non_exhaustive()
    }
}
