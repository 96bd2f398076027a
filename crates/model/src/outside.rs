//! Conditions of contracts with values from outside: set by epochs, operators and programs, or measured by a
//! host or a delegate.

use alloc::string::String;

use crate::ids::{HostId, ProgramId};
use crate::system::Contents;

/// A condition with values from outside of the dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideCondition {
    /// Its name; `host.NAME.temperature`, `delegate.NAME.rate` and similar for a measured one. Names of others have no dots.
    pub name: String,
    /// What is measured; `None` if epochs, operators and programs set it.
    pub measure: Option<OutsideMeasure>,
}

/// What a run measures outside of the dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideMeasure {
    /// A quantity of a host.
    Host(HostMeasure),
    /// A quantity of a link.
    Link(LinkMeasure),
    /// A quantity of a reservation.
    Reservation(ReservationMeasure),
    /// A quantity of the requests to an object.
    Delegate(DelegateMeasure),
}

impl OutsideMeasure {
    /// The host of the sensor, of the program or of the servant; of a link its first one with a processor.
    pub fn host(self, contents: &Contents) -> HostId {
        match self {
            OutsideMeasure::Host(HostMeasure { host, .. }) => host,
            OutsideMeasure::Link(LinkMeasure { link, .. }) => contents.first_end(link.into()),
            OutsideMeasure::Reservation(ReservationMeasure { program, .. }) => {
                contents.brokered.programs[program.index()].host
            }
            OutsideMeasure::Delegate(DelegateMeasure { delegate, .. }) => {
                contents.delegates[usize::from(delegate)].host(contents)
            }
        }
    }
}

impl OutsideMeasure {
    /// The least and the greatest value that it can have.
    pub fn domain(self) -> (f64, f64) {
        match self {
            OutsideMeasure::Host(HostMeasure { quantity, .. }) => match quantity {
                HostQuantity::Temperature => (-273.15, MOST),
                HostQuantity::Battery => (0.0, 100.0),
                HostQuantity::Cpu => (0.0, 1.0),
                HostQuantity::BrokerAsked | HostQuantity::BrokerGranted | HostQuantity::BrokerContention => (0.0, MOST),
            },
            OutsideMeasure::Link(LinkMeasure { quantity: LinkQuantity::Loss, .. })
            | OutsideMeasure::Delegate(DelegateMeasure { quantity: DelegateQuantity::FailureRatio, .. }) => (0.0, 1.0),
            OutsideMeasure::Link(_) | OutsideMeasure::Reservation(_) | OutsideMeasure::Delegate(_) => (0.0, MOST),
        }
    }
}

/// The greatest value of a condition from outside; the least one of `[condition.NAME]` is its negative.
pub const MOST: f64 = 1e9;

/// What the nodes of its hosts measure of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkMeasure {
    /// The position of the link in [`Contents::links`](crate::Contents::links).
    pub link: u16,
    /// The quantity.
    pub quantity: LinkQuantity,
}

/// What the CPU broker reports of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReservationMeasure {
    /// The program.
    pub program: ProgramId,
    /// The quantity.
    pub quantity: ReservationQuantity,
}

/// What a delegate measures, since the last sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegateMeasure {
    /// The delegate, by its position.
    pub delegate: u16,
    /// The quantity.
    pub quantity: DelegateQuantity,
}

/// A quantity of a delegate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DelegateQuantity {
    /// The mean time from the arrival of a request to its reply, in seconds.
    Latency,
    /// The share of passed requests that got a system exception or no reply.
    FailureRatio,
    /// Requests per second, also those that do not pass.
    Rate,
}

impl DelegateQuantity {
    /// All, with their names in files.
    pub const ALL: [(DelegateQuantity, &str); 3] = [
        (DelegateQuantity::Latency, "latency"),
        (DelegateQuantity::FailureRatio, "failure_ratio"),
        (DelegateQuantity::Rate, "rate"),
    ];

    /// The quantity of a name in files.
    pub fn of_name(name: &str) -> Option<DelegateQuantity> {
        DelegateQuantity::ALL.into_iter().find(|(_, known)| *known == name).map(|(quantity, _)| quantity)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        DelegateQuantity::ALL[self as usize].1
    }
}

/// What a host measures of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMeasure {
    /// The host.
    pub host: HostId,
    /// The quantity.
    pub quantity: HostQuantity,
}

/// A quantity of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HostQuantity {
    /// The hottest zone, in degrees Celsius.
    Temperature,
    /// The charge of its batteries, in percent.
    Battery,
    /// The utilisation of all CPUs, from 0 to 1.
    Cpu,
    /// What all tasks request from the CPU broker, as a part of its cap.
    BrokerAsked,
    /// What the CPU broker grants to them, as a part of its cap.
    BrokerGranted,
    /// What it does not grant, as a part of its cap.
    BrokerContention,
}

impl HostQuantity {
    /// All, with their names in files.
    pub const ALL: [(HostQuantity, &str); 6] = [
        (HostQuantity::Temperature, "temperature"),
        (HostQuantity::Battery, "battery"),
        (HostQuantity::Cpu, "cpu"),
        (HostQuantity::BrokerAsked, "broker.asked"),
        (HostQuantity::BrokerGranted, "broker.granted"),
        (HostQuantity::BrokerContention, "broker.contention"),
    ];

    /// The quantity of a name in files.
    pub fn of_name(name: &str) -> Option<HostQuantity> {
        HostQuantity::ALL.into_iter().find(|(_, known)| *known == name).map(|(quantity, _)| quantity)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        HostQuantity::ALL[self as usize].1
    }

    /// True if the CPU broker reports it.
    pub fn is_of_broker(self) -> bool {
        matches!(self, HostQuantity::BrokerAsked | HostQuantity::BrokerGranted | HostQuantity::BrokerContention)
    }
}

/// A quantity of a link, in both directions together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkQuantity {
    /// The share of messages that were lost, from 0 to 1.
    Loss,
    /// Transported data, in bit/s.
    Throughput,
    /// Half of a round trip, in seconds.
    Delay,
}

impl LinkQuantity {
    /// All, with their names in files.
    pub const ALL: [(LinkQuantity, &str); 3] =
        [(LinkQuantity::Loss, "loss"), (LinkQuantity::Throughput, "throughput"), (LinkQuantity::Delay, "delay")];

    /// The quantity of a name in files.
    pub fn of_name(name: &str) -> Option<LinkQuantity> {
        LinkQuantity::ALL.into_iter().find(|(_, known)| *known == name).map(|(quantity, _)| quantity)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        LinkQuantity::ALL[self as usize].1
    }
}

/// A quantity of a reservation, as a part of one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReservationQuantity {
    /// What the program requests.
    Asked,
    /// What the broker grants to it.
    Granted,
    /// What it uses.
    Usage,
}

impl ReservationQuantity {
    /// All, with their names in files.
    pub const ALL: [(ReservationQuantity, &str); 3] = [
        (ReservationQuantity::Asked, "asked"),
        (ReservationQuantity::Granted, "granted"),
        (ReservationQuantity::Usage, "usage"),
    ];

    /// The quantity of a name in files.
    pub fn of_name(name: &str) -> Option<ReservationQuantity> {
        ReservationQuantity::ALL.into_iter().find(|(_, known)| *known == name).map(|(quantity, _)| quantity)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        ReservationQuantity::ALL[self as usize].1
    }
}
