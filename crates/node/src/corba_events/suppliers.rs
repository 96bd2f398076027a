//! Push suppliers in CORBA programs: the node publishes the events that they push.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_events::PublishError;
use hyoshi_model::Span;
use hyoshi_orb::{Any, SystemException, SystemKind, minor};
use hyoshi_os::clock::monotonic;
use hyoshi_runtime::{ClientMeter, Rejected};

use super::payload::payload_of_any;
use super::proxies::{Proxy, ProxyLink};
use super::{OfferedEvent, gone};
use crate::idl::cos_event_channel_admin::{
    AlreadyConnected, ConnectPushSupplierError, ProxyPushConsumer as ProxyPushConsumerInterface,
};
use crate::idl::cos_event_comm::{Disconnected, PushConsumer as PushConsumerInterface, PushError, PushSupplierStub};
use crate::rates::beyond_rate;

/// The channel's side of a push supplier.
pub(super) struct ProxyPushConsumer {
    pub event: Arc<OfferedEvent>,
    pub proxy: Arc<Proxy>,
}

impl PushConsumerInterface for ProxyPushConsumer {
    fn push(&self, data: &Any) -> Result<(), PushError> {
        self.event.proxies.mark_used(&self.proxy);
        if !matches!(*self.proxy.link.lock(), ProxyLink::Supplier(_)) {
            return Err(Disconnected {}.into());
        }
        let published = self.event.publish(data, None);
        self.event.counts.refused.fetch_add(u64::from(published.is_err()), Ordering::Relaxed);
        Ok(published?)
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.event.proxies.end(&self.proxy);
        Ok(())
    }
}

impl ProxyPushConsumerInterface for ProxyPushConsumer {
    fn connect_push_supplier(&self, supplier: Option<&PushSupplierStub>) -> Result<(), ConnectPushSupplierError> {
        let supplier = supplier.map(|supplier| self.event.callable(Some(supplier.as_ref()))).transpose()?;
        let mut link = self.proxy.link.lock();
        match *link {
            ProxyLink::Obtained => *link = ProxyLink::Supplier(supplier),
            ProxyLink::Ended => return Err(gone().into()),
            ProxyLink::Consumer(_) | ProxyLink::Supplier(_) => return Err(AlreadyConnected {}.into()),
        }
        Ok(())
    }
}

/// The consumer for the pushes of one registered client: a feedback loop sets its rate.
pub(super) struct ClientPushConsumer {
    pub event: Arc<OfferedEvent>,
    pub meter: Arc<ClientMeter>,
}

impl PushConsumerInterface for ClientPushConsumer {
    fn push(&self, data: &Any) -> Result<(), PushError> {
        let admitted = self.meter.admit(monotonic().as_nanos()).map_err(beyond_rate);
        let published = admitted.and_then(|period| self.event.publish(data, Some(period)));
        self.event.counts.refused.fetch_add(u64::from(published.is_err()), Ordering::Relaxed);
        Ok(published?)
    }

    /// Further pushes are refused. The loop removes the client.
    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        self.meter.end();
        Ok(())
    }
}

impl OfferedEvent {
    /// Publishes a pushed event, for a registered client with this period if there is one.
    fn publish(&self, data: &Any, period: Option<Span>) -> Result<(), SystemException> {
        let payload = payload_of_any(data).map_err(|_| SystemKind::BadParam.not_done(minor::ENCODE))?;
        let published = match period {
            Some(period) => self.channel.publish_of_client(&self.name, &payload, period),
            None => self.channel.publish(&self.name, &payload),
        };
        published.map_err(|error| match error {
            PublishError::Rejected { because: Rejected::TooLong, .. } => {
                SystemKind::BadParam.not_done(minor::EVENT_TOO_LONG)
            }
            PublishError::Rejected { because: Rejected::Full | Rejected::TooSoon, .. } => {
                SystemKind::Transient.not_done(minor::EVENT_FULL)
            }
            PublishError::Rejected { because: Rejected::Idle, .. } => SystemKind::Transient.not_done(minor::NOT_RUN),
            PublishError::Rejected { because: Rejected::Unregistered, .. } => {
                SystemKind::NoPermission.not_done(minor::UNREGISTERED)
            }
            PublishError::NoInput { .. } => SystemKind::NoImplement.not_done(minor::EVENT_NO_SUPPLIER),
            _ => SystemKind::Internal.not_done(0),
        })
    }
}
