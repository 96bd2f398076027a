//! Push consumers in CORBA programs. Each has a queue and a thread, so a slow consumer delays no other consumer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_events::{SubscribeError, Subscriber, Subscription};
use hyoshi_model::Span;
use hyoshi_orb::{SystemException, SystemKind, Timeouts, minor};
use hyoshi_os::Spawn;

use super::payload::any_of_payload;
use super::proxies::{Proxy, ProxyLink};
use super::{EventCounts, OfferedEvent, gone};
use crate::idl::cos_event_channel_admin::{
    AlreadyConnected, ConnectPushConsumerError, ProxyPushSupplier as ProxyPushSupplierInterface,
};
use crate::idl::cos_event_comm::{
    PushConsumer as _, PushConsumerStub, PushError, PushSupplier as PushSupplierInterface,
};

/// The time limit of a call to a consumer, and of the last call.
const CALL: Span = Span::from_secs(1);
const LAST_CALL: Span = Span::from_millis(500);
/// The time between a failed call and the next one.
const PAUSE: Span = Span::from_secs(1);
/// A consumer is disconnected after this many failed calls in sequence.
const FAILURES: u32 = 5;
/// If no event occurs for this long, the channel asks whether the consumer exists.
const CHECK: Span = Span::from_secs(10);

/// The channel's side of a push consumer.
pub(super) struct ProxyPushSupplier {
    pub event: Arc<OfferedEvent>,
    pub proxy: Arc<Proxy>,
}

impl PushSupplierInterface for ProxyPushSupplier {
    fn disconnect_push_supplier(&self) -> Result<(), SystemException> {
        self.event.proxies.end(&self.proxy);
        Ok(())
    }
}

impl ProxyPushSupplierInterface for ProxyPushSupplier {
    fn connect_push_consumer(&self, consumer: Option<&PushConsumerStub>) -> Result<(), ConnectPushConsumerError> {
        let event = &self.event;
        let consumer = event.callable(consumer.map(AsRef::as_ref))?;
        let timeouts = Timeouts { connect: CALL, round_trip: Some(CALL), reply: None };
        let consumer = consumer.as_ref().timeouts(timeouts);
        let mut link = self.proxy.link.lock();
        match *link {
            ProxyLink::Obtained => {}
            ProxyLink::Ended => return Err(gone().into()),
            ProxyLink::Consumer(_) | ProxyLink::Supplier(_) => return Err(AlreadyConnected {}.into()),
        }
        let subscriber = event.channel.subscribe(&[&event.name], Subscription::default());
        let subscriber = Arc::new(subscriber.map_err(|error| match error {
            SubscribeError::TooMany => SystemKind::ImpLimit.not_done(minor::EVENT_LIMIT),
            _ => SystemKind::Internal.not_done(0),
        })?);
        let thread = {
            let (event, proxy, subscriber) = (event.clone(), self.proxy.clone(), subscriber.clone());
            Spawn::new("to-consumer").spawn(move || serve(&event, &proxy, &subscriber, &consumer))
        };
        event.proxies.add_thread(thread.map_err(|_| SystemKind::NoResources.not_done(0))?);
        *link = ProxyLink::Consumer(subscriber);
        Ok(())
    }
}

/// The thread of a consumer.
fn serve(event: &OfferedEvent, proxy: &Proxy, subscriber: &Subscriber, consumer: &PushConsumerStub) {
    let is_gone = push_all(&event.counts, subscriber, consumer);
    event.counts.lost.fetch_add(subscriber.counts().lost, Ordering::Relaxed);
    event.counts.disconnected.fetch_add(u64::from(is_gone), Ordering::Relaxed);
    if !is_gone && event.proxies.is_over() {
        // The consumer may have ended before.
        let _ = consumer.as_ref().within(LAST_CALL).disconnect_push_consumer();
    }
    event.proxies.end(proxy);
    event.proxies.forget(proxy);
}

/// Pushes events until the subscription ends. True if the consumer no longer answers or exists.
fn push_all(counts: &EventCounts, subscriber: &Subscriber, consumer: &PushConsumerStub) -> bool {
    let mut failures = 0;
    while !subscriber.ends_within(Span::ZERO) {
        let outcome = match subscriber.receive(CHECK) {
            Some(event) => consumer.push(&any_of_payload(&event.payload)),
            None if subscriber.ends_within(Span::ZERO) => return false,
            None => match consumer.as_ref().non_existent() {
                Ok(true) => return true,
                asked => asked.map(drop).map_err(PushError::System),
            },
        };
        match outcome {
            Ok(()) => failures = 0,
            Err(PushError::Disconnected(_)) => return true,
            Err(PushError::System(raised)) if raised.kind == SystemKind::ObjectNotExist => return true,
            Err(PushError::System(_)) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                failures += 1;
                if failures == FAILURES {
                    return true;
                }
                subscriber.ends_within(PAUSE);
            }
        }
    }
    false
}
