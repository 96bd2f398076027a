//! Proxies of a file (`[delegate.NAME]` with `to`), in front of objects of other programs: contracts set and watch them.

use hyoshi_model::{
    ALL_OPERATIONS, Contract, DeclaredBehaviour, DeclaredDelegate, DeclaredProxy, DelegatePlace, DelegateTotals,
    Endpoint, ExternalAction, HostId, System,
};
use hyoshi_orb::behaviour::{Behaviour, OperationDelegate};
use hyoshi_orb::proxy::{IiopProxy, ProxyError, ProxySettings};

use crate::servant_delegates::{behaviour_of, reference};
use crate::servant_error::ServantError;

/// A running proxy of the file.
#[derive(Debug)]
pub(crate) struct FileProxy {
    /// Its position in the system.
    pub place: u16,
    declared: DeclaredDelegate,
    proxy: IiopProxy,
}

impl FileProxy {
    /// Starts those of a host; without one, all.
    ///
    /// # Errors
    ///
    /// If a reference is wrong, or an endpoint cannot be used.
    pub fn start_all(system: &System, host: Option<HostId>) -> Result<Vec<FileProxy>, ServantError> {
        let start = |(place, declared): (u16, &DeclaredDelegate)| match &declared.place {
            DelegatePlace::Proxy(own) if host.is_none_or(|host| host == own.host) => {
                Some(FileProxy::start(system, place, (declared, own)))
            }
            _ => None,
        };
        (0..).zip(&system.delegates).filter_map(start).collect()
    }

    fn start(
        system: &System,
        place: u16,
        (declared, own): (&DeclaredDelegate, &DeclaredProxy),
    ) -> Result<FileProxy, ServantError> {
        let name = || declared.name.clone();
        let to = reference(&own.to).map_err(|why| ServantError::Reference { delegate: name(), key: "to", why })?;
        let redirect = declared.redirect.as_deref().map(|text| {
            let wrong = |why| ServantError::Reference { delegate: name(), key: "redirect", why };
            reference(text).map(|ior| (text.to_owned(), ior)).map_err(wrong)
        });
        let named = declared.behaviours.iter().filter(|(operation, _)| **operation != *ALL_OPERATIONS);
        let behaviour = |operation: &str| behaviour_of(declared, operation, None).unwrap_or_default();
        // Behaviours that regions set: clients cannot use up the places of these operations.
        let actions = system.contracts.iter().flat_map(Contract::external_actions);
        let settable = actions.filter_map(|(_, action)| match action {
            ExternalAction::Behave { delegate, operation, .. } if *delegate == place => Some(operation.to_string()),
            _ => None,
        });
        let settings = ProxySettings {
            listen: format!("iiop://{}", own.listen),
            behaviours: named.map(|(operation, _)| (operation.to_string(), behaviour(operation))).collect(),
            others: behaviour(ALL_OPERATIONS),
            redirections: redirect.transpose()?.into_iter().collect(),
            settable: settable.filter(|operation| operation != ALL_OPERATIONS).collect(),
            ..ProxySettings::default()
        };
        // Each connection has two sockets.
        hyoshi_os::raise_file_limit();
        let proxy = IiopProxy::start(&to, settings).map_err(|error| {
            let remedy = match error {
                ProxyError::Listen(_) => "set another `listen`: a program may use this one",
                ProxyError::Unreachable(_) => {
                    "its program must listen on plain TCP or on a Unix socket of this machine"
                }
                _ => "see the `listen` of the delegate",
            };
            let at = Endpoint::Tcp(own.listen.clone());
            ServantError::Proxy { delegate: name(), at: at.to_string(), why: format!("{error}; {remedy}") }
        })?;
        Ok(FileProxy { place, declared: declared.clone(), proxy })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.declared.name
    }

    /// What it has measured.
    pub fn measured(&self) -> Vec<OperationDelegate> {
        self.proxy.report().delegates
    }

    /// The counts of all operations.
    pub fn totals(&self) -> DelegateTotals {
        self.proxy.totals()
    }

    /// Sets a behaviour, or that of the file. False if it cannot.
    pub fn set(&self, operation: &str, behaviour: Option<DeclaredBehaviour>) -> bool {
        let behaviour = behaviour_of(&self.declared, operation, behaviour);
        match operation {
            ALL_OPERATIONS => self.proxy.set_others(behaviour.unwrap_or(Behaviour::Pass)),
            operation => self.proxy.set(operation, behaviour),
        }
    }
}
