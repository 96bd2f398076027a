//! The CPU broker for contracts of a run: they watch its load, and change settings of programs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hyoshi_broker::RequestError;
use hyoshi_broker::client::{BrokerClient, BrokerClientError};
use hyoshi_broker::component::ComponentSpec;
use hyoshi_broker::idl::cpu_broker::{Broker, Reservation};
use hyoshi_model::{ReservationSetting, Span};
use hyoshi_os::file::own_user;
use hyoshi_os::users;
use hyoshi_runtime::{BrokerAccess, BrokerLoad, ProgramLoad, SettingRefusal};

/// A connection to the broker, made at the first use. Tasks of other users with the same names do not count.
pub(in crate::cli) struct SharedBroker {
    socket: Option<PathBuf>,
    client: Mutex<Option<BrokerClient>>,
}

impl SharedBroker {
    pub fn new(socket: Option<&Path>) -> Self {
        let socket = socket.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        SharedBroker { socket, client: Mutex::new(None) }
    }

    fn ask<T>(
        &self,
        question: impl FnOnce(&BrokerClient) -> Result<T, BrokerClientError>,
    ) -> Result<T, BrokerClientError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let connected = match client.take() {
            Some(connected) => connected,
            None => BrokerClient::connect(self.socket.as_deref())?,
        };
        let answer = question(&connected);
        // After other errors the next question connects again.
        if !matches!(answer, Err(BrokerClientError::System(_))) {
            *client = Some(connected);
        }
        answer
    }
}

impl BrokerAccess for SharedBroker {
    fn load(&self) -> Option<BrokerLoad> {
        let (status, tasks) = self.ask(|client| Ok((client.broker().status()?, client.tasks()?))).ok()?;
        let cap = status.cap as f64 / 1e6;
        let part = |of: &Reservation| if of.period == 0 { 0.0 } else { of.budget as f64 / of.period as f64 };
        let (asked, granted) = tasks.iter().fold((0.0, 0.0), |(asked, granted), task| {
            (asked + part(&task.granted.requested), granted + part(&task.granted.reserved))
        });
        let own = own_user();
        let programs = tasks.iter().filter(|task| task.owner == own).map(|task| {
            let load = ProgramLoad {
                asked: part(&task.granted.requested),
                granted: part(&task.granted.reserved),
                used: Span::from_nanos(task.total),
                reports: task.reports,
            };
            (task.name.clone(), load)
        });
        (cap > 0.0).then(|| BrokerLoad { asked: asked / cap, granted: granted / cap, programs: programs.collect() })
    }

    fn set(&self, program: &str, setting: ReservationSetting, to: u64) -> Result<(), SettingRefusal> {
        let set = |client: &BrokerClient| {
            let broker = client.broker();
            let tasks = client.tasks()?;
            if let Some(task) = tasks.iter().find(|task| task.name == program && task.owner != own_user()) {
                let owner = users::name_of(task.owner);
                let message = format!("task `{program}` belongs to {owner}, not to the user of this run");
                let remedy = "rename the reservation, or detach that task".to_owned();
                return Err(BrokerClientError::Request(RequestError::NotAllowed { message, remedy }));
            }
            match setting {
                ReservationSetting::Importance => broker.set_importance(program, to as u32)?,
                ReservationSetting::Weight => broker.set_weight(program, to as u32)?,
                ReservationSetting::Least => broker.set_least(program, to)?,
                ReservationSetting::Rate | ReservationSetting::Cap | ReservationSetting::Floor => {
                    let mut advocate = ComponentSpec::of(setting.key());
                    advocate.parameters.push((String::new(), setting.text(to)));
                    broker.set_advocate(program, &advocate.to_wire())?;
                }
            }
            Ok(())
        };
        self.ask(set).map_err(|error| {
            let reason = format!("{error}; {}", error.remedy());
            // The task may join later, and another broker may answer.
            match error {
                BrokerClientError::Request(RequestError::Refused { .. } | RequestError::NotAllowed { .. }) => {
                    SettingRefusal::last(reason)
                }
                _ => SettingRefusal::for_now(reason),
            }
        })
    }
}
