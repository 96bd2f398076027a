//! The kernel's traffic control, through netlink (rtnetlink(7)).

use std::io;

use futures_util::TryStreamExt;
use futures_util::stream::StreamExt;
use rtnetlink::packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcHandle, TcMessage};
use rtnetlink::{Error, Handle, new_connection};
use tokio::runtime::{Builder, Runtime};

use crate::error::NetworkError;
use crate::message;
use crate::plan::{ClassPlan, HANDLE};

/// A connection to the kernel for one device. Calls block.
#[derive(Debug)]
pub(crate) struct DeviceControl {
    name: String,
    index: i32,
    handle: Handle,
    runtime: Runtime,
}

/// The root discipline of a device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RootQueue {
    /// The kernel's default.
    Default,
    /// Classes of this crate.
    Ours,
    /// Set by a user or by another program.
    Foreign(String),
}

/// A step, and the kernel module that it needs.
type Step = (&'static str, &'static str);

const ROOT: Step = ("set the root discipline", "sch_htb");
const CLASSES: Step = ("add a class", "sch_htb");
const FIFOS: Step = ("add a queue", "sch_fifo");
const FILTERS: Step = ("add a filter", "cls_u32");
const REMOVE: Step = ("remove the classes", "sch_htb");
const LOOK: Step = ("read the disciplines", "sch_htb");

impl DeviceControl {
    pub fn open(device: &str) -> Result<DeviceControl, NetworkError> {
        let kernel = |error| NetworkError::Kernel { device: device.to_owned(), step: "use netlink", error };
        let runtime = Builder::new_current_thread().enable_io().build().map_err(kernel)?;
        let handle = {
            let _within = runtime.enter();
            let (connection, handle, _) = new_connection().map_err(kernel)?;
            runtime.spawn(connection);
            handle
        };
        let mut links = handle.link().get().match_name(device.to_owned()).execute();
        let index = match runtime.block_on(links.try_next()) {
            Ok(Some(link)) => link.header.index as i32,
            Ok(None) => return Err(NetworkError::NoDevice { device: device.to_owned() }),
            Err(error) => match io_error(error) {
                error if error.raw_os_error() == Some(ENODEV) => {
                    return Err(NetworkError::NoDevice { device: device.to_owned() });
                }
                error => return Err(kernel(error)),
            },
        };
        Ok(DeviceControl { name: device.to_owned(), index, handle, runtime })
    }

    /// The device's number, which a change of its name does not affect.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// The present root discipline.
    pub fn root(&self) -> Result<RootQueue, NetworkError> {
        let all = self.handle.qdisc().get().index(self.index).execute();
        let all: Vec<TcMessage> =
            self.runtime.block_on(all.try_collect()).map_err(|error| self.failed(LOOK, io_error(error)))?;
        let is_root = |one: &&TcMessage| one.header.index == self.index && one.header.parent == TcHandle::ROOT;
        let Some(root) = all.iter().find(is_root) else {
            // Each device has a root discipline. One of an unknown format is not the default.
            return Ok(RootQueue::Foreign("unknown".to_owned()));
        };
        let (kind, TcHandle { major, .. }) = (message::kind(root), root.header.handle);
        Ok(match major {
            // Only the kernel's default disciplines have no number.
            0 => RootQueue::Default,
            HANDLE if kind == message::HTB => RootQueue::Ours,
            _ => RootQueue::Foreign(format!("{kind} {major:x}:")),
        })
    }

    /// Installs a plan on a device that has the kernel's default discipline.
    pub fn install(&self, plan: &ClassPlan) -> Result<(), NetworkError> {
        let index = self.index;
        use RouteNetlinkMessage::{NewQueueDiscipline, NewTrafficClass, NewTrafficFilter};
        self.add(ROOT, NewQueueDiscipline(message::root(index, plan)))?;
        let classes = message::classes(index, plan).into_iter().map(|one| (CLASSES, NewTrafficClass(one)));
        let fifos = message::fifos(index, plan).into_iter().map(|one| (FIFOS, NewQueueDiscipline(one)));
        let filters = message::filters(index, plan).into_iter().map(|one| (FILTERS, NewTrafficFilter(one)));
        classes.chain(fifos).chain(filters).try_for_each(|(step, message)| self.add(step, message))
    }

    /// Removes the root discipline of this crate, with all classes and filters. The kernel's default returns.
    pub fn remove(&self) -> Result<(), NetworkError> {
        self.send(REMOVE, RouteNetlinkMessage::DelQueueDiscipline(message::no_root(self.index)), 0)
    }

    /// The classes of the device.
    pub fn classes(&self) -> Result<Vec<TcMessage>, NetworkError> {
        let all = self.handle.traffic_class(self.index).get().execute();
        self.runtime.block_on(all.try_collect()).map_err(|error| self.failed(LOOK, io_error(error)))
    }

    fn add(&self, step: Step, message: RouteNetlinkMessage) -> Result<(), NetworkError> {
        self.send(step, message, NLM_F_CREATE | NLM_F_EXCL)
    }

    fn send(&self, step: Step, message: RouteNetlinkMessage, flags: u16) -> Result<(), NetworkError> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut handle = self.handle.clone();
        let answer = self.runtime.block_on(async move {
            let mut answers = handle.request(request).map_err(io_error)?;
            while let Some(answer) = answers.next().await {
                if let NetlinkPayload::Error(error) = answer.payload
                    && error.code.is_some()
                {
                    return Err(error.to_io());
                }
            }
            Ok(())
        });
        answer.map_err(|error| self.failed(step, error))
    }

    fn failed(&self, (step, module): Step, error: io::Error) -> NetworkError {
        let device = self.name.clone();
        match error.raw_os_error() {
            Some(EPERM | EACCES) => NetworkError::NotPermitted { device },
            // A discipline or filter of unknown kind; a kernel without traffic control.
            Some(ENOENT | EOPNOTSUPP) if step != REMOVE.0 => NetworkError::Unsupported { device, module },
            Some(ENODEV) => NetworkError::NoDevice { device },
            _ => NetworkError::Kernel { device, step, error },
        }
    }
}

/// Error numbers of Linux.
const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

fn io_error(error: Error) -> io::Error {
    match error {
        Error::NetlinkError(error) => error.to_io(),
        error => io::Error::other(error),
    }
}

/// Whether this process may set classes in its network namespace. It asks the kernel to remove a discipline from a
/// device that does not exist: the error shows whether the permission is missing.
///
/// # Errors
///
/// The refusal.
pub fn probe() -> Result<(), NetworkError> {
    let device = "lo";
    let control = DeviceControl::open(device)?;
    let nothing = DeviceControl { index: i32::MAX, ..control };
    match nothing.remove() {
        Err(NetworkError::NoDevice { .. }) => Ok(()),
        other => other,
    }
}
