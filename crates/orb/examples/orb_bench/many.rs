//! Whether the cost of a call grows with the number of objects or operations.

use std::any::{Any, TypeId};
use std::sync::Arc;

use hyoshi_orb::{Call, Interface, Ior, Orb, Reference, StubOperation, SystemException, Version};
use hyoshi_wire::ior::Profile;

use crate::serve::{OBJECTS, Silent};
use crate::tracking::{Tracker, TrackerStub};
use crate::{median, quantile, times};

/// A thousand operations.
pub trait Wide: Send + Sync {}
impl Wide for Silent {}

pub struct WideStub(Reference<dyn Wide>);

impl From<Reference<dyn Wide>> for WideStub {
    fn from(reference: Reference<dyn Wide>) -> Self {
        WideStub(reference)
    }
}

impl AsRef<Reference<dyn Wide>> for WideStub {
    fn as_ref(&self) -> &Reference<dyn Wide> {
        &self.0
    }
}

macro_rules! names {
    ($($digit:literal)*) => { names!(@ [$($digit)*] [$($digit)*]) };
    (@ [$($a:literal)*] $all:tt) => { [$(names!(@@ $a $all $all)),*] };
    (@@ $a:literal [$($b:literal)*] $all:tt) => { [$(names!(@@@ $a $b $all)),*] };
    (@@@ $a:literal $b:literal [$($c:literal)*]) => { [$(concat!("op", $a, $b, $c)),*] };
}

/// `op000` to `op999`.
const NAMES: [[[&str; 10]; 10]; 10] = names!(0 1 2 3 4 5 6 7 8 9);

impl Interface for dyn Wide {
    type Stub = WideStub;
    const ID: &'static str = "IDL:Bench/Wide:1.0";
    const BASES: &'static [&'static str] = &[];
    const OPERATIONS: &'static [&'static str] = NAMES.as_flattened().as_flattened();
    fn dispatch(&self, _: usize, call: &mut Call<'_>) -> Result<(), SystemException> {
        call.reply::<_, SystemException>(Ok(()), |(), _| Ok(()))
    }
    fn upcast(_: Arc<Self>, _: TypeId) -> Option<Box<dyn Any>> {
        None
    }
}

/// The same object again and again, beside all of them in an order that no cache foresees.
pub fn objects(client: &Orb, tracker: &TrackerStub) {
    let key = tracker.ior().iiop().next().expect("a profile").expect("a good one").key.to_vec();
    let stub = |id: u32| {
        let mut ior = tracker.ior().clone();
        let other = [&key[..key.len() - 1], id.to_string().as_bytes()].concat();
        let profile = ior.iiop().next().expect("a profile").expect("a good one");
        let components: Vec<_> = profile.components.clone().collect();
        let profile = Profile::iiop(Version::V1_2, profile.host, profile.port, &other, &components);
        ior.profiles = vec![profile.expect("it can be written")];
        client.stub::<dyn Tracker>(ior)
    };
    let all: Vec<_> = (0..2_000u32).map(|at| stub(at.wrapping_mul(48_271) % OBJECTS)).collect();
    let one = vec![stub(1); 2_000];
    let round = |stubs: &[TrackerStub]| {
        let mut at = 0;
        let mut call = times(20_000, || {
            stubs[at % stubs.len()].nothing().expect("it is served");
            at += 1;
        });
        quantile(&mut call, 50) as f64 / 1000.0
    };
    let rounds: Vec<_> = (0..5).map(|_| (round(&one), round(&all))).collect();
    let of = |part: fn(&(f64, f64)) -> f64| median(rounds.iter().map(part).collect());
    println!(
        "{:<28} one {:.2} us   among {OBJECTS} {:.2} us   ratio {:.3}",
        "objects",
        of(|round| round.0),
        of(|round| round.1),
        of(|round| round.1 / round.0)
    );
}

/// An interface of one thousand beside one of seven.
pub fn operations(client: &Orb, tracker: &TrackerStub) {
    let profile = tracker.ior().iiop().next().expect("a profile").expect("a good one");
    let other = [&profile.key[..profile.key.len() - 1], b"wide"].concat();
    let components: Vec<_> = profile.components.clone().collect();
    let profile = Profile::iiop(Version::V1_2, profile.host, profile.port, &other, &components);
    let ior = Ior { type_id: <dyn Wide>::ID.to_owned(), profiles: vec![profile.expect("it can be written")] };
    let wide = client.stub::<dyn Wide>(ior);
    let call = |name| wide.0.call::<(), SystemException>(&StubOperation::new(name), |_| Ok(()), |_| Ok(()));
    let rounds: Vec<_> = (0..5)
        .map(|_| {
            let mut few = times(20_000, || tracker.nothing().expect("it is served"));
            let mut at = 0;
            let mut many = times(20_000, || {
                call(<dyn Wide>::OPERATIONS[at * 577 % 1000]).expect("it is served");
                at += 1;
            });
            (quantile(&mut few, 50) as f64 / 1000.0, quantile(&mut many, 50) as f64 / 1000.0)
        })
        .collect();
    let of = |part: fn(&(f64, f64)) -> f64| median(rounds.iter().map(part).collect());
    println!(
        "{:<28} of 7 {:.2} us   of 1000 {:.2} us   ratio {:.3}",
        "operations",
        of(|round| round.0),
        of(|round| round.1),
        of(|round| round.1 / round.0)
    );
}
