//! The server of the bench.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyoshi_orb::{LaneOptions, Orb, Reference, SystemException, TlsServer};

use crate::Asked;
use crate::authority::Authority;
use crate::many::Wide;
use crate::order::{self, AtOnce};
use crate::tracking::*;

/// Does nothing, quickly; `locate` takes so many microseconds.
pub struct Silent;

/// Uses a CPU for so many microseconds.
pub fn spin(micros: u32) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_micros(micros.into()) {
        std::hint::spin_loop();
    }
}

impl Named for Silent {
    fn name(&self) -> Result<String, SystemException> {
        Ok(String::new())
    }
}

impl Tracker for Silent {
    fn locate(&self, micros: u32) -> Result<Position, LocateError> {
        spin(micros);
        Ok(Position::default())
    }
    fn hint(&self, _: &str, _: &[u8]) -> Result<(), SystemException> {
        Ok(())
    }
    fn echo(&self, raw: &[u8]) -> Result<Vec<u8>, SystemException> {
        Ok(raw.to_vec())
    }
    fn nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }
    fn swap(&self, _: &mut Position) -> Result<(i32, String), SystemException> {
        Ok((0, String::new()))
    }
    fn subscribe(&self, _: Option<&CallbackStub>) -> Result<(), SystemException> {
        Ok(())
    }
}

/// How many objects are active, under ids from 0 on.
pub const OBJECTS: u32 = 100_000;

pub fn serve(asked: &Asked) {
    let lane = LaneOptions { policy: asked.policy(), cpu: Some(0), ..LaneOptions::default() };
    let authority = Authority::new("orb_bench");
    let tls = TlsServer::new(authority.papers(&["127.0.0.1"]).identity()).expect("a good certificate");
    let build = |endpoint: &str| {
        let builder = Orb::builder().lane(lane.clone()).tls_server(tls.clone());
        builder.listen(endpoint).expect("an endpoint").build().expect("the server starts")
    };
    let (plain, secure) = (build("iiop://127.0.0.1:0"), build("ssliop://127.0.0.1:0"));
    for orb in [&plain, &secure] {
        let adapter = orb.adapter("bench").persistent().build().expect("a fresh name");
        let tracker = adapter.activate_as("0", Arc::new(Silent) as Arc<dyn Tracker>).expect("a fresh id");
        println!("{}", AsRef::<hyoshi_orb::Reference<dyn Tracker>>::as_ref(&tracker).ior());
        if std::ptr::eq(orb, &plain) {
            for id in 1..OBJECTS {
                adapter.activate_as(id.to_string(), Arc::new(Silent) as Arc<dyn Tracker>).expect("a fresh id");
            }
            adapter.activate_as::<dyn Wide>("wide", Arc::new(Silent)).expect("a fresh id");
        }
    }
    let variants = [(lane.threads, true), (0, false), (0, true)].map(|(threads, ordered)| {
        let lane = LaneOptions { threads, ..lane.clone() };
        let builder = Orb::builder().lane(lane).order(AtOnce, 16);
        let orb = builder.listen("iiop://127.0.0.1:0").expect("an endpoint").build().expect("the server starts");
        let adapter = orb.adapter("bench").build().expect("a fresh name");
        let tracker = match ordered {
            true => adapter.activate_ordered::<dyn Tracker>("0", Arc::new(Silent), 0),
            false => adapter.activate_as::<dyn Tracker>("0", Arc::new(Silent)),
        };
        println!("{}", AsRef::<Reference<dyn Tracker>>::as_ref(&tracker.expect("a fresh id")).ior());
        if let Some(lane) = orb.owned_lane("orb") {
            let spawn = hyoshi_os::Spawn::new("owner").policy(asked.policy()).cpu(0);
            spawn.spawn(move || order::serve(&lane)).expect("a thread");
        }
        orb
    });
    [&plain, &secure].into_iter().chain(&variants).for_each(Orb::ready);
    println!("{}", authority.pem.trim_end());
    // Until the client ends.
    let _ = std::io::stdin().read_line(&mut String::new());
}
