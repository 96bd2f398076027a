//! Conditions of contracts with values from outside: set by epochs, operators and programs, or measured by a
//! host or a delegate.

use alloc::string::String;

use crate::ids::HostId;
use crate::system::Contents;

/// A condition with values from outside of the dispatcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutsideCondition {
    /// Its name; `host.NAME.temperature`, `delegate.NAME.rate` and similar for a measured one. Names of others have no dots.
    pub name: String,
    /// What measures it; `None` if epochs, operators and programs set it.
    pub measure: Option<OutsideMeasure>,
}

/// What measures a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutsideMeasure {
    /// A host measures itself.
    Host(HostMeasure),
    /// A delegate measures the requests to its object.
    Delegate(DelegateMeasure),
}

impl OutsideMeasure {
    /// The host with the sensor or the servant.
    pub fn host(self, contents: &Contents) -> HostId {
        match self {
            OutsideMeasure::Host(HostMeasure { host, .. }) => host,
            OutsideMeasure::Delegate(DelegateMeasure { delegate, .. }) => {
                contents.processor(contents.delegates[usize::from(delegate)].processor(contents)).host
            }
        }
    }
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
