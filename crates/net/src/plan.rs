//! The classes of a device, from its declaration.

use hyoshi_model::{Dscp, NetworkDevice};

/// The major number of the root discipline and of its classes: `4859:`, "HY" in ASCII. The kernel chooses numbers from
/// 8000 on, and users usually small ones.
pub const HANDLE: u16 = 0x4859;

/// The minor number of the parent class, which has the device's rate.
pub(crate) const ALL: u16 = 1;

/// The minor number of the first class.
const FIRST: u16 = 0x10;

/// Octets of a full Ethernet frame, as HTB counts them.
const FRAME: u64 = 1_514;

/// How long packets may wait in a class that sends at its ceiling. Beyond that they are dropped, and TCP slows down.
const FIFO_MS: u64 = 20;

/// The minimum and maximum length of a FIFO, in packets. The kernel's default is 1,000.
const FIFO_PACKETS: (u64, u64) = (16, 1_000);

/// The classes of a device. See the [crate](crate).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassPlan {
    /// The device's name.
    pub device: String,
    /// Its rate, in octets per second.
    pub rate: u64,
    /// The most urgent class first. The last one has all packets that are in no other class.
    pub classes: Vec<PlannedClass>,
}

/// One class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedClass {
    /// Its minor number.
    pub minor: u16,
    /// The DSCPs of its packets; empty for the last class.
    pub dscp: Vec<Dscp>,
    /// The order in which classes use the spare rate; 0 is first.
    pub priority: u32,
    /// The guaranteed rate, in octets per second.
    pub rate: u64,
    /// The rate that it may reach with spare rate, in octets per second.
    pub ceiling: u64,
    /// The maximum number of packets that wait.
    pub fifo: u32,
}

impl ClassPlan {
    /// The classes of a device.
    pub fn new(device: &NetworkDevice) -> ClassPlan {
        let rate = device.rate / 8;
        // Rounded down: all guarantees together are at most the rate.
        let part = |ppm: u32| (u128::from(rate) * u128::from(ppm) / 1_000_000) as u64;
        let declared = device.classes.iter().map(|class| (class.dscp.clone(), class.share, class.ceiling));
        let rest = (Vec::new(), device.rest(), 1_000_000);
        let class = |(number, (dscp, share, ceiling)): (u16, (Vec<Dscp>, u32, u32))| {
            let ceiling = part(ceiling);
            let fifo = (ceiling * FIFO_MS / 1_000 / FRAME).clamp(FIFO_PACKETS.0, FIFO_PACKETS.1) as u32;
            let (minor, priority) = (FIRST + number, u32::from(number));
            PlannedClass { minor, dscp, priority, rate: part(share), ceiling, fifo }
        };
        let classes = (0..).zip(declared.chain([rest])).map(class).collect();
        ClassPlan { device: device.name.clone(), rate, classes }
    }

    /// The class of the most urgent packets. It also has the packets of address resolution.
    pub(crate) fn first(&self) -> u16 {
        FIRST
    }

    /// The class of packets that match no filter.
    pub(crate) fn default_class(&self) -> u16 {
        self.classes.last().map_or(FIRST, |class| class.minor)
    }
}

/// The octets that a class may send at once after a pause: its rate for a millisecond, and a frame.
pub(crate) fn burst(rate: u64) -> u64 {
    rate / 1_000 + FRAME
}

#[cfg(test)]
mod tests {
    use hyoshi_model::TrafficClass;
    use proptest::prelude::*;

    use super::*;

    fn device(rate: u64, shares: &[(u32, u32)]) -> NetworkDevice {
        let class = |(number, (share, more)): (u8, &(u32, u32))| TrafficClass {
            dscp: vec![Dscp::new(10 + number).unwrap()],
            share: *share,
            ceiling: (share + more).min(1_000_000),
        };
        let classes = (0..).zip(shares).map(class).collect();
        NetworkDevice { classes, ..NetworkDevice::new("eth0", rate) }
    }

    #[test]
    fn the_default_classes_of_a_fast_ethernet_link() {
        let plan = ClassPlan::new(&NetworkDevice::new("eth0", 100_000_000));
        let figures: Vec<_> = plan.classes.iter().map(|one| (one.minor, one.rate, one.ceiling, one.fifo)).collect();
        let all = 12_500_000;
        assert_eq!(figures, [(0x10, 3_750_000, all, 165), (0x11, 3_750_000, all, 165), (0x12, 5_000_000, all, 165)]);
        assert_eq!((plan.rate, plan.default_class(), plan.first()), (all, 0x12, 0x10));
        assert!(plan.classes[2].dscp.is_empty() && plan.classes[0].dscp == [Dscp::EF]);
    }

    proptest! {
        #[test]
        fn guarantees_fit_in_the_rate_and_every_class_may_borrow_up_to_its_ceiling(
            rate in 100_000u64..1_000_000_000_000,
            shares in proptest::collection::vec((10_000u32..=140_000, 0u32..=1_000_000), 1..=7),
        ) {
            let device = device(rate, &shares);
            let plan = ClassPlan::new(&device);
            prop_assert_eq!(plan.classes.len(), shares.len() + 1);
            prop_assert!(plan.classes.iter().map(|class| class.rate).sum::<u64>() <= plan.rate);
            for (number, class) in plan.classes.iter().enumerate() {
                prop_assert!(0 < class.rate && class.rate <= class.ceiling && class.ceiling <= plan.rate);
                prop_assert_eq!(class.priority as usize, number);
                prop_assert!((16..=1_000).contains(&class.fifo));
                // HTB has eight priorities (TC_HTB_NUMPRIO).
                prop_assert!(class.priority < 8);
            }
            prop_assert_eq!(plan.classes.last().map(|rest| (rest.dscp.is_empty(), rest.ceiling)), Some((true, plan.rate)));
        }
    }
}
