//! The delegates of a file in this process: around its servants, and in proxies.

use std::sync::Arc;

use hyoshi_model::{DeclaredBehaviour, DeclaredDelegate, DelegateTotals, HostId, System};
use hyoshi_orb::behaviour::OperationDelegate;
use hyoshi_runtime::DelegateAccess;

use crate::proxies::FileProxy;
use crate::servant_delegates::RequestDelegate;
use crate::servant_error::ServantError;

/// See the module. Clones share them; when the last one is dropped, the proxies end.
#[derive(Clone, Debug, Default)]
pub(crate) struct FileDelegates {
    servants: Arc<Vec<Arc<RequestDelegate>>>,
    proxies: Arc<Vec<FileProxy>>,
}

impl FileDelegates {
    /// Those of the objects with a servant (`interface` returns the operations of an object's interface), and the proxies
    /// of a host, or of all hosts.
    ///
    /// # Errors
    ///
    /// If a proxy cannot start.
    pub fn start(
        system: &System,
        host: Option<HostId>,
        interface: impl Fn(&str) -> Option<&'static [&'static str]>,
    ) -> Result<Self, ServantError> {
        let delegate = |(place, declared): (u16, &DeclaredDelegate)| {
            let operations = interface(&system.objects[usize::from(declared.object()?)].name)?;
            Some(Arc::new(RequestDelegate::new(place, declared, operations)))
        };
        let servants = (0..).zip(&system.delegates).filter_map(delegate).collect();
        let proxies = FileProxy::start_all(system, host)?;
        Ok(FileDelegates { servants: Arc::new(servants), proxies: Arc::new(proxies) })
    }

    /// The delegate of an object.
    pub fn of(&self, system: &System, object: &str) -> Option<Arc<RequestDelegate>> {
        let is_of = |one: &&Arc<RequestDelegate>| {
            one.object().is_some_and(|place| system.objects[usize::from(place)].name == object)
        };
        self.servants.iter().find(is_of).cloned()
    }

    /// What they have measured, by their names.
    pub fn measured(&self) -> Vec<(String, Vec<OperationDelegate>)> {
        let servants = self.servants.iter().map(|one| (one.name(), one.measured()));
        let proxies = self.proxies.iter().map(|one| (one.name(), one.measured()));
        servants.chain(proxies).map(|(name, measured)| (name.to_owned(), measured)).collect()
    }

    fn servant(&self, place: u16) -> Option<&RequestDelegate> {
        self.servants.iter().find(|one| one.place() == place).map(|one| &**one)
    }

    fn proxy(&self, place: u16) -> Option<&FileProxy> {
        self.proxies.iter().find(|one| one.place == place)
    }
}

impl DelegateAccess for FileDelegates {
    fn totals(&self, delegate: u16) -> Option<DelegateTotals> {
        let of_servant = self.servant(delegate).map(RequestDelegate::totals);
        of_servant.or_else(|| self.proxy(delegate).map(FileProxy::totals))
    }

    fn set_behaviour(&self, delegate: u16, operation: &str, behaviour: Option<DeclaredBehaviour>) -> bool {
        let of_servant = self.servant(delegate).map(|one| one.set(operation, behaviour)).is_some();
        of_servant || self.proxy(delegate).is_some_and(|one| one.set(operation, behaviour))
    }
}
