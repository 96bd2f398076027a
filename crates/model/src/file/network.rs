//! The network devices of a host.

use std::collections::HashMap;

use toml::Spanned;
use toml::de::DeValue;

use super::limits;
use super::log::{AtPlace, Log, Place};
use super::table::{Table, log_complaint};
use super::value::{Complaint, InputValue, Read, complain, shortened};
use crate::network::{CLASSES, DEVICE_NAME, Dscp, LEAST_SHARE, NetworkDevice, TrafficClass};

pub(super) fn devices(log: &mut Log, host: &Table<'_>) -> Vec<NetworkDevice> {
    let given = host.given(log, "network", InputValue::list);
    let (mut devices, mut first_of) = (Vec::new(), HashMap::new());
    for item in given.map_or(&[][..], |given| given.value) {
        let Some((device, place)) = device(log, item) else { continue };
        if let Some(first) = first_of.insert(device.name.clone(), place) {
            log.error(place, format!("device `{}` has an entry already", device.name))
                .also(first, "here")
                .help("keep one");
        }
        devices.push(device);
    }
    devices
}

fn device(log: &mut Log, item: &Spanned<DeValue<'_>>) -> Option<(NetworkDevice, Place)> {
    let (place, example) = (Place::from(item.span()), "network = [{ device = \"eth0\", rate = \"100Mbit/s\" }]");
    let table = open(log, "host.network", "network", item, example)?;
    let name = table.read(log, "device", |given| match given.text()? {
        text if NetworkDevice::is_name(text) => Ok(text.to_owned()),
        text => complain(
            format!("cannot be `{}`", shortened(text)),
            format!("write a name that `ip link` prints, of at most {DEVICE_NAME} characters"),
        ),
    });
    let (least, most) = limits::NETWORK_RATE;
    let rate = table.read(log, "rate", |given| match given.bandwidth()? {
        rate if (least..=most).contains(&rate) => Ok(rate),
        _ => complain("is outside 100kbit/s to 1000Gbit/s", "write the rate of the link, such as \"100Mbit/s\""),
    });
    let classes = match table.get("classes") {
        None => NetworkDevice::default_classes(),
        Some(_) => classes(log, &table)?,
    };
    Some((NetworkDevice { name: name?.value, rate: rate?.value, classes }, place))
}

/// `None`, logged, if one is wrong.
fn classes(log: &mut Log, device: &Table<'_>) -> Option<Vec<TrafficClass>> {
    let given = device.given(log, "classes", InputValue::list)?;
    if given.value.is_empty() || given.value.len() > CLASSES {
        log.error(given.place, format!("`classes` has {} classes", given.value.len()))
            .help(format!("write 1 to {CLASSES}, or leave `classes` out"));
        return None;
    }
    let (mut classes, mut first_of) = (Vec::new(), HashMap::new());
    for item in given.value {
        let (class, places) = class(log, item)?;
        for (dscp, place) in class.dscp.iter().zip(places) {
            if let Some(first) = first_of.insert(*dscp, place) {
                log.error(place, format!("{dscp} is in a class already")).also(first, "here").help("keep one");
            }
        }
        classes.push(class);
    }
    let shares: u64 = classes.iter().map(|class| u64::from(class.share)).sum();
    if shares > u64::from(1_000_000 - LEAST_SHARE) {
        log.error(given.place, format!("the shares are {}% in total", shares.div_ceil(10_000)))
            .label("at most 99%")
            .help("reduce one: other packets have what the classes leave, at least 1%");
        return None;
    }
    Some(classes)
}

fn class(log: &mut Log, item: &Spanned<DeValue<'_>>) -> Option<(TrafficClass, Vec<Place>)> {
    let example = "classes = [{ dscp = [\"EF\"], share = \"30%\" }]";
    let table = open(log, "host.network.classes", "classes", item, example)?;
    let dscp = table.read(log, "dscp", dscps);
    let share = table.read(log, "share", |given| match given.share_ppm()? {
        share if share < LEAST_SHARE => complain("is below 1%", "write a percentage from \"1%\" to \"99%\""),
        share => Ok(share),
    });
    let ceiling = table.read(log, "ceiling", InputValue::share_ppm);
    let (dscp, share, ceiling) = (dscp?, share?.value, ceiling?);
    if ceiling.value < share {
        log.error(ceiling.place, "`ceiling` is below `share`")
            .label("less than is guaranteed")
            .help("write at least `share`, or leave it out (100%)");
        return None;
    }
    let (dscp, places) = dscp.value.into_iter().map(|one| (one.value, one.place)).unzip();
    Some((TrafficClass { dscp, share, ceiling: ceiling.value }, places))
}

fn dscps(given: InputValue<'_>) -> Read<Vec<AtPlace<Dscp>>> {
    let texts = given.texts()?;
    if texts.is_empty() {
        return complain("is empty", "write names of RFC 4594, such as \"EF\", or numbers, such as \"46\"");
    }
    let read = |text: AtPlace<&str>| match text.value.parse() {
        Ok(dscp) => Ok(AtPlace::new(dscp, text.place)),
        Err(error) => Err(Complaint {
            message: format!("has `{}`, which {error}", shortened(text.value)),
            help: "write names of RFC 4594, such as \"EF\", or numbers, such as \"46\"".to_owned(),
            place: Some(text.place),
        }),
    };
    texts.into_iter().map(read).collect()
}

/// A table in a list.
fn open<'a>(
    log: &mut Log,
    section: &'static str,
    key: &str,
    item: &'a Spanned<DeValue<'a>>,
    example: &str,
) -> Option<Table<'a>> {
    let place = Place::from(item.span());
    match InputValue::of(item.get_ref()).table(example) {
        Ok(table) => Table::open(log, section, "", place, table),
        Err(complaint) => {
            log_complaint(log, key, place, complaint);
            None
        }
    }
}
