//! CORBA priorities on the network: the class (DSCP) that routers and switches read in each packet (RFC 2474). The
//! default table's classes are those of RFC 4594; TAO's mapping has the same purpose.

use std::fmt;

use hyoshi_os::Dscp;

use super::Priority;

/// Maps CORBA priorities to classes of packets (TAO's `RTCORBA::NetworkPriorityMapping`).
pub trait NetworkPriorityMapping: fmt::Debug + Send + Sync {
    /// The class of packets of this priority.
    fn to_dscp(&self, priority: Priority) -> Dscp;
}

/// Classes by ranges of priorities. The default has eight ranges of 4,096 priorities each: 0 (best effort), 10 (AF11),
/// 18 (AF21), 26 (AF31), 32 (CS4), 34 (AF41), 40 (CS5) and 46 (EF).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DscpTable(Vec<(Priority, Dscp)>);

impl DscpTable {
    /// Each class begins at its priority, and ends before the next one. Priorities below the first have class 0. Of
    /// several classes for a priority the last counts.
    pub fn new(classes: &[(Priority, Dscp)]) -> DscpTable {
        let mut sorted = classes.to_vec();
        sorted.sort_by_key(|(from, _)| *from);
        DscpTable(sorted)
    }
}

impl Default for DscpTable {
    fn default() -> Self {
        let classes = [0u8, 10, 18, 26, 32, 34, 40, 46].into_iter().zip((0..).step_by(4096));
        let entry = |(class, from)| Some((Priority::new(from)?, Dscp::new(class)?));
        DscpTable(classes.filter_map(entry).collect())
    }
}

impl NetworkPriorityMapping for DscpTable {
    fn to_dscp(&self, priority: Priority) -> Dscp {
        let after = self.0.partition_point(|(from, _)| *from <= priority);
        after.checked_sub(1).map_or_else(Dscp::default, |at| self.0[at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_begins_at_its_priority() {
        let class = |table: &DscpTable, number| table.to_dscp(Priority::new(number).unwrap()).number();
        let default = DscpTable::default();
        let all = [0, 4095, 4096, 12288, 20480, 28671, 28672, 32767].map(|number| class(&default, number));
        assert_eq!(all, [0, 0, 10, 26, 34, 40, 46, 46]);
        let entry = |from, class| (Priority::new(from).unwrap(), Dscp::new(class).unwrap());
        let own = DscpTable::new(&[entry(20, 46), entry(5, 10), entry(5, 18)]);
        assert_eq!([4, 5, 19, 20, 21].map(|number| class(&own, number)), [0, 18, 18, 46, 46]);
        assert_eq!(class(&DscpTable::new(&[]), 9), 0);
    }
}
