//! Push suppliers in CORBA programs: the node publishes the events that they push.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyoshi_events::PublishError;
use hyoshi_orb::{Any, SystemException, SystemKind, minor};
use hyoshi_runtime::Rejected;

use super::payload::payload_of_any;
use super::proxies::{Proxy, ProxyLink};
use super::{OfferedEvent, gone};
use crate::idl::cos_event_channel_admin::{
    AlreadyConnected, ConnectPushSupplierError, ProxyPushConsumer as ProxyPushConsumerInterface,
};
use crate::idl::cos_event_comm::{Disconnected, PushConsumer as PushConsumerInterface, PushError, PushSupplierStub};

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
        let published = self.publish(data);
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

impl ProxyPushConsumer {
    fn publish(&self, data: &Any) -> Result<(), SystemException> {
        let payload = payload_of_any(data).map_err(|_| SystemKind::BadParam.not_done(minor::ENCODE))?;
        self.event.channel.publish(&self.event.name, &payload).map_err(|error| match error {
            PublishError::Rejected { because: Rejected::TooLong, .. } => {
                SystemKind::BadParam.not_done(minor::EVENT_TOO_LONG)
            }
            PublishError::Rejected { because: Rejected::Full | Rejected::TooSoon, .. } => {
                SystemKind::Transient.not_done(minor::EVENT_FULL)
            }
            PublishError::Rejected { because: Rejected::Idle, .. } => SystemKind::Transient.not_done(minor::NOT_RUN),
            PublishError::NoInput { .. } => SystemKind::NoImplement.not_done(minor::EVENT_NO_SUPPLIER),
            _ => SystemKind::Internal.not_done(0),
        })
    }
}
