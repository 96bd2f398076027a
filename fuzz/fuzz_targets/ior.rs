//! Any octets as a reference, a profile or a component: it is read, or refused; never a panic. A reference that
//! was read comes back octet for octet.

#![no_main]

use hyoshi_wire::ior::{Component, IiopProfile, Ior, ObjectUrl, Profile, multiple_components};
use hyoshi_wire::tagged::Tagged;
use hyoshi_wire::{Decode, Decoder};
use libfuzzer_sys::fuzz_target;

const TAGS: [u32; 9] = [0, 1, 2, 3, 20, 0x4154_5401, 0x4154_5402, 0x5441_4f02, 77];

fuzz_target!(|octets: &[u8]| {
    let Some((first, data)) = octets.split_first() else { return };
    component(Tagged { tag: TAGS[usize::from(*first) % TAGS.len()], data });
    profile(&Profile { tag: u32::from(first & 1), data: data.to_vec() });
    let Ok(mut from) = Decoder::encapsulated(data) else { return };
    let Ok(ior) = Ior::decode(&mut from) else { return };
    ior.profiles.iter().for_each(profile);
    let text = ior.to_string();
    assert_eq!(text.parse(), Ok(ObjectUrl::Ior(ior)));
});

fn profile(profile: &Profile) {
    if let Ok(iiop) = IiopProfile::decode(profile) {
        iiop.endpoints();
        iiop.components.clone().for_each(component);
    }
    if let Ok(components) = multiple_components(profile) {
        components.for_each(component);
    }
}

fn component(tagged: Tagged<'_>) {
    let Ok(component) = Component::decode(tagged) else { return };
    let data = component.data().expect("what was read can be written");
    let again = Component::decode(Tagged { tag: tagged.tag, data: &data }).expect("what was written can be read");
    // Lists are read in place: byte order and padding may differ, what they say may not.
    assert_eq!(again, component);
}
