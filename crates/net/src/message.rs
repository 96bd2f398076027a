//! Translates plans to messages of traffic control (`linux/pkt_sched.h`, `linux/pkt_cls.h`), and the kernel's answers
//! to classes.

use hyoshi_model::Dscp;
use rtnetlink::packet_core::{DefaultNla, NlasIterator};
use rtnetlink::packet_route::tc::{
    TcAttribute, TcFilterU32, TcFilterU32Option, TcHandle, TcMessage, TcOption, TcStats2, TcU32Key, TcU32Selector,
    TcU32SelectorFlags,
};

use crate::held::ClassCounts;
use crate::plan::{ALL, ClassPlan, HANDLE, PlannedClass, burst};

const TCA_OPTIONS: u16 = 2;
const TCA_HTB_PARMS: u16 = 1;
const TCA_HTB_INIT: u16 = 2;
const TCA_HTB_RATE64: u16 = 6;
const TCA_HTB_CEIL64: u16 = 7;
const HTB_VERSION: u32 = 3;
/// `TC_LINKLAYER_ETHERNET`: no table of transmission times is needed.
const ETHERNET: u8 = 1;
/// Nanoseconds of a tick of the scheduler (`PSCHED_SHIFT`).
const TICK: u64 = 64;
/// Octets that a class sends before the next one of the same priority. Each class has its own priority.
const QUANTUM: u32 = 1_600;

/// The name of the discipline with classes.
pub(crate) const HTB: &str = "htb";

/// Protocols of Ethernet (`linux/if_ether.h`).
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

const fn class(minor: u16) -> TcHandle {
    TcHandle { major: HANDLE, minor }
}

fn message(index: i32, handle: TcHandle, parent: TcHandle, kind: &str) -> TcMessage {
    let mut message = TcMessage::with_index(index);
    (message.header.handle, message.header.parent) = (handle, parent);
    message.attributes.push(TcAttribute::Kind(kind.to_owned()));
    message
}

fn option(kind: u16, value: Vec<u8>) -> TcOption {
    TcOption::Other(DefaultNla::new(kind, value))
}

/// The root discipline, without classes.
pub(crate) fn root(index: i32, plan: &ClassPlan) -> TcMessage {
    // struct tc_htb_glob
    let glob = [HTB_VERSION, 10, u32::from(plan.default_class()), 0, 0];
    let glob = glob.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut root = message(index, class(0), TcHandle::ROOT, HTB);
    root.attributes.push(TcAttribute::Options(vec![option(TCA_HTB_INIT, glob)]));
    root
}

/// The removal of the root discipline.
pub(crate) fn no_root(index: i32) -> TcMessage {
    let mut root = TcMessage::with_index(index);
    (root.header.handle, root.header.parent) = (class(0), TcHandle::ROOT);
    root
}

/// The parent class, then its child classes, the most urgent first.
pub(crate) fn classes(index: i32, plan: &ClassPlan) -> Vec<TcMessage> {
    let htb = |minor, parent, rate, ceiling, priority| {
        let mut message = message(index, class(minor), class(parent), HTB);
        message.attributes.push(TcAttribute::Options(htb_options(rate, ceiling, priority)));
        message
    };
    let leaf = |one: &PlannedClass| htb(one.minor, ALL, one.rate, one.ceiling, one.priority);
    [htb(ALL, 0, plan.rate, plan.rate, 0)].into_iter().chain(plan.classes.iter().map(leaf)).collect()
}

/// `struct tc_htb_opt`, and rates beyond 32 bits.
fn htb_options(rate: u64, ceiling: u64, priority: u32) -> Vec<TcOption> {
    let mut octets = Vec::with_capacity(44);
    for rate in [rate, ceiling] {
        // struct tc_ratespec: cell_log, linklayer, overhead, cell_align, mpu, rate
        octets.extend([0, ETHERNET, 0, 0, 0, 0, 0, 0]);
        octets.extend(u32::try_from(rate).unwrap_or(u32::MAX).to_ne_bytes());
    }
    for rate in [rate, ceiling] {
        let ticks = u128::from(burst(rate)) * 1_000_000_000 / u128::from(rate.max(1) * TICK);
        octets.extend(u32::try_from(ticks).unwrap_or(u32::MAX).to_ne_bytes());
    }
    for word in [QUANTUM, 0, priority] {
        octets.extend(word.to_ne_bytes());
    }
    let mut options = vec![option(TCA_HTB_PARMS, octets)];
    for (kind, rate) in [(TCA_HTB_RATE64, rate), (TCA_HTB_CEIL64, ceiling)] {
        if rate >= u64::from(u32::MAX) {
            options.push(option(kind, rate.to_ne_bytes().to_vec()));
        }
    }
    options
}

/// The queue of each class.
pub(crate) fn fifos(index: i32, plan: &ClassPlan) -> Vec<TcMessage> {
    let fifo = |one: &PlannedClass| {
        // The kernel chooses its number.
        let mut fifo = message(index, TcHandle::UNSPEC, class(one.minor), "pfifo");
        // struct tc_fifo_qopt
        let limit = one.fifo.to_ne_bytes().to_vec();
        fifo.attributes.push(TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, limit)));
        fifo
    };
    plan.classes.iter().map(fifo).collect()
}

/// The filters that find a packet's class. Address resolution (ARP, and neighbour discovery of IPv6) is in the most
/// urgent class: without it no packet leaves, and a saturated class would drop it.
pub(crate) fn filters(index: i32, plan: &ClassPlan) -> Vec<TcMessage> {
    let mut filters = vec![
        filter(index, 1, ARP, plan.first(), 0, 0, 0),
        // The hop limit of neighbour discovery is 255 (RFC 4861, section 4), its next header ICMPv6.
        filter(index, 2, IPV6, plan.first(), 58 << 8 | 255, 0xffff, 4),
    ];
    for one in &plan.classes {
        for dscp in one.dscp.iter().map(|dscp: &Dscp| u32::from(dscp.number())) {
            // The upper six bits of the second octet of IPv4, and of the traffic class of IPv6, at its bit 4.
            filters.push(filter(index, 3, IPV4, one.minor, dscp << 18, 0x3f << 18, 0));
            filters.push(filter(index, 2, IPV6, one.minor, dscp << 22, 0x3f << 22, 0));
        }
    }
    filters
}

/// Compares the word at an offset in the IP header. Filters of a priority have one protocol.
fn filter(index: i32, priority: u16, protocol: u16, to: u16, value: u32, mask: u32, offset: i32) -> TcMessage {
    let (mut key, mut selector) = (TcU32Key::default(), TcU32Selector::default());
    // In host order: rtnetlink converts them.
    (key.val, key.mask, key.off) = (value, mask, offset);
    (selector.nkeys, selector.flags, selector.keys) = (1, TcU32SelectorFlags::Terminal, vec![key]);
    let mut filter = message(index, TcHandle::UNSPEC, class(0), TcFilterU32::KIND);
    filter.header.info = u32::from(TcHandle { major: priority, minor: protocol.to_be() });
    let options = [TcFilterU32Option::ClassId(class(to)), TcFilterU32Option::Selector(selector)];
    filter.attributes.push(TcAttribute::Options(options.map(TcOption::U32).into()));
    filter
}

/// The name of a discipline.
pub(crate) fn kind(message: &TcMessage) -> &str {
    let kind = |attribute: &TcAttribute| matches!(attribute, TcAttribute::Kind(_));
    match message.attributes.iter().find(|attribute| kind(attribute)) {
        Some(TcAttribute::Kind(kind)) => kind,
        _ => "",
    }
}

/// A class in the kernel, if it is a child class of this crate.
pub(crate) fn read(message: &TcMessage) -> Option<(u16, ClassCounts)> {
    let TcHandle { major, minor } = message.header.handle;
    if major != HANDLE || minor == ALL {
        return None;
    }
    let mut counts = ClassCounts::default();
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Options(options) => options.iter().for_each(|option| read_rates(option, &mut counts)),
            TcAttribute::Stats2(stats) => stats.iter().for_each(|one| match one {
                TcStats2::Basic(basic) => (counts.octets, counts.packets) = (basic.bytes, basic.packets),
                TcStats2::Queue(queue) => (counts.dropped, counts.waiting) = (queue.drops, queue.qlen),
                _ => {}
            }),
            _ => {}
        }
    }
    Some((minor, counts))
}

/// Reads TCA_OPTIONS of a class.
fn read_rates(options: &TcOption, counts: &mut ClassCounts) {
    use rtnetlink::packet_core::Nla;
    let TcOption::Other(options) = options else { return };
    let mut octets = vec![0; options.value_len()];
    options.emit_value(&mut octets);
    let word = |value: &[u8], at: usize| value.get(at..at + 4).and_then(|octets| octets.try_into().ok());
    let long = |value: &[u8]| value.try_into().map(u64::from_ne_bytes);
    for nla in NlasIterator::new(octets.as_slice()).flatten() {
        let value = nla.value();
        match nla.kind() {
            TCA_HTB_PARMS => {
                let rate = |at| word(value, at).map_or(0, |octets| u64::from(u32::from_ne_bytes(octets)));
                (counts.rate, counts.ceiling) = (rate(8), rate(20));
            }
            TCA_HTB_RATE64 => counts.rate = long(value).unwrap_or(counts.rate),
            TCA_HTB_CEIL64 => counts.ceiling = long(value).unwrap_or(counts.ceiling),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use hyoshi_model::NetworkDevice;
    use rtnetlink::packet_core::Emitable;

    use super::*;

    /// The octets of a message's last attribute, without its header.
    fn last_attribute(message: &TcMessage) -> Vec<u8> {
        let attribute = message.attributes.last().unwrap();
        let mut octets = vec![0; attribute.buffer_len()];
        attribute.emit(&mut octets);
        octets.split_off(4)
    }

    #[test]
    fn a_class_read_back_has_the_rates_that_were_written() {
        // 9 Gbit/s fits in 32 bits of octets per second, 90 Gbit/s does not.
        for rate in [100_000_000, 9_000_000_000, 90_000_000_000] {
            let plan = ClassPlan::new(&NetworkDevice::new("eth0", rate));
            for (message, planned) in classes(7, &plan).iter().skip(1).zip(&plan.classes) {
                let mut answer = message.clone();
                let options = TcOption::Other(DefaultNla::new(TCA_OPTIONS, last_attribute(message)));
                *answer.attributes.last_mut().unwrap() = TcAttribute::Options(vec![options]);
                let (minor, counts) = read(&answer).unwrap();
                assert_eq!((minor, counts.rate, counts.ceiling), (planned.minor, planned.rate, planned.ceiling));
            }
            assert_eq!(read(&classes(7, &plan)[0]), None, "it contains the classes");
        }
    }

    #[test]
    fn filters_compare_the_dscp_in_the_order_of_the_network() {
        let plan = ClassPlan::new(&NetworkDevice::new("eth0", 1_000_000));
        let filters = filters(7, &plan);
        assert_eq!(filters.len(), 2 + 2 * 4);
        let key = |filter: &TcMessage| {
            let octets = last_attribute(filter);
            octets[octets.len() - 16..].to_vec()
        };
        // EF is 46: 0xb8 with the bits of ECN.
        assert_eq!(key(&filters[2]), [0, 0xfc, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(key(&filters[3]), [0x0f, 0xc0, 0, 0, 0x0b, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(filters[2].header.info, 3 << 16 | u32::from(0x0800u16.to_be()));
    }
}
