//! Measures calls of Hyoshi's ORB in the same cases, and prints the same lines, as `others/bench` does for omniORB and
//! for bare sockets.
//!
//! `ping server ENDPOINT [PRIORITY]` prints "ready IOR:...". `ping client REFERENCE [SCALE [CASE]]` prints a line for
//! each case: its name, the 50th, 90th and 99th percentile of a call, and the time of the whole run for each call, in
//! nanoseconds. PRIORITY is the SCHED_FIFO priority of the server's lane; its threads inherit none. For TLS
//! (`ssliop://`), PING_TLS names the file of certificate and key. With PING_TIMED calls carry their timing, and with
//! PING_THREADS that of a distributable thread.

use std::error::Error;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyoshi_interop::bench::{Octets, Ping, PingStub};
use hyoshi_model::Span;
use hyoshi_orb::rt::{CallTiming, threads, with_timing};
use hyoshi_orb::{
    LaneOptions, Orb, SyncScope, SystemException, ThreadPolicy, TlsClient, TlsIdentity, TlsRoots, TlsServer,
};

/// Counts the oneways, and answers at once.
#[derive(Default)]
struct PingCounter(AtomicU32);

impl Ping for PingCounter {
    fn empty(&self) -> Result<(), SystemException> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> Result<Octets, SystemException> {
        Ok(data.to_vec())
    }

    fn put(&self, _: &[u8]) -> Result<(), SystemException> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn taken(&self) -> Result<u32, SystemException> {
        Ok(self.0.swap(0, Ordering::Relaxed))
    }
}

/// Name, octets, threads, calls of each: those of `report.h`.
const CASES: [(&str, usize, usize, usize); 4] =
    [("empty", 0, 1, 20_000), ("1KiB", 1024, 1, 20_000), ("64KiB", 65_536, 1, 4000), ("8threads", 0, 8, 4000)];
const ONEWAYS: usize = 40_000;
const TLS: &str = "PING_TLS";
const TIMED: &str = "PING_TIMED";
const THREADS: &str = "PING_THREADS";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", endpoint] => serve(endpoint, ThreadPolicy::Other),
        ["server", endpoint, priority] => serve(endpoint, ThreadPolicy::Fifo(priority.parse()?)),
        ["client", reference] => call(reference, 1, ""),
        ["client", reference, scale] => call(reference, scale.parse()?, ""),
        ["client", reference, scale, only] => call(reference, scale.parse()?, only),
        _ => Err("ping server ENDPOINT [PRIORITY] | ping client REFERENCE [SCALE [CASE]]".into()),
    }
}

fn serve(endpoint: &str, policy: ThreadPolicy) -> Result<(), Box<dyn Error>> {
    let mut builder = Orb::builder().lane(LaneOptions { policy, ..LaneOptions::default() });
    if let Some(own) = std::env::var_os(TLS) {
        builder = builder.tls_server(TlsServer::new(TlsIdentity::from_files(&own, &own)?)?);
    }
    let orb = builder.listen(endpoint)?.build()?;
    let ping = orb.adapter("bench").build()?.activate::<dyn Ping>(Arc::new(PingCounter::default()))?;
    orb.ready();
    println!("ready {}", ping.ior());
    std::io::stdout().flush()?;
    // Until the parent process has ended.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn call(reference: &str, scale: usize, only: &str) -> Result<(), Box<dyn Error>> {
    let mut builder = Orb::builder();
    if let Some(server) = std::env::var_os(TLS) {
        builder = builder.tls_client(TlsClient::new(&TlsRoots::from_file(server)?))?;
    }
    let orb = builder.build()?;
    let ping = orb.resolve::<dyn Ping>(reference)?;
    TIMED_CALLS.store(std::env::var_os(TIMED).is_some(), Ordering::Relaxed);
    THREAD_CALLS.store(std::env::var_os(THREADS).is_some(), Ordering::Relaxed);
    let wanted = |name: &str| only.is_empty() || only == name;
    for (name, octets, threads, count) in CASES.into_iter().filter(|case| wanted(case.0)) {
        measure(name, &ping, octets, threads, count / scale + 1);
    }
    let batched = ping.oneways(SyncScope::None);
    let scopes = [("oneway64", &ping), ("oneway64-batched", &batched)];
    for (name, stub) in scopes.into_iter().filter(|case| wanted(case.0)) {
        oneways(name, stub, &orb, ONEWAYS / scale + 1)?;
    }
    Ok(())
}

/// The calls of each thread, after a tenth as many for warming up.
fn measure(name: &str, ping: &PingStub, octets: usize, threads: usize, count: usize) {
    let mut times = Vec::new();
    let mut whole = Duration::ZERO;
    for calls in [count / 10 + 1, count] {
        let start = Instant::now();
        times = thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(|| calls_of(ping, octets, calls))).collect();
            running.into_iter().flat_map(|thread| thread.join().expect("no call fails")).collect()
        });
        whole = start.elapsed();
    }
    times.sort_unstable();
    report(name, &times, whole, times.len());
}

/// Whether calls carry their timing.
static TIMED_CALLS: AtomicBool = AtomicBool::new(false);
/// Whether they belong to a distributable thread.
static THREAD_CALLS: AtomicBool = AtomicBool::new(false);

fn calls_of(ping: &PingStub, octets: usize, calls: usize) -> Vec<Duration> {
    let timing = CallTiming { within: Some(Span::from_secs(60)), importance: 1, ..CallTiming::default() };
    let is_thread = THREAD_CALLS.load(Ordering::Relaxed);
    let _segment = is_thread.then(|| threads::segment("ping", Some(timing)).expect("the process has no other"));
    match TIMED_CALLS.load(Ordering::Relaxed) {
        true => with_timing(timing, || untimed_calls_of(ping, octets, calls)),
        false => untimed_calls_of(ping, octets, calls),
    }
}

fn untimed_calls_of(ping: &PingStub, octets: usize, calls: usize) -> Vec<Duration> {
    let data = vec![0; octets];
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let before = Instant::now();
        if octets == 0 {
            ping.empty().expect("the server answers");
        } else {
            ping.echo(&data).expect("the server answers");
        }
        times.push(before.elapsed());
    }
    times
}

/// The time of each oneway until the server has executed all of them.
fn oneways(name: &str, ping: &PingStub, orb: &Orb, count: usize) -> Result<(), SystemException> {
    let data = [0; 64];
    let mut whole = Duration::ZERO;
    for _ in 0..2 {
        ping.taken()?;
        let start = Instant::now();
        for _ in 0..count {
            ping.put(&data)?;
        }
        orb.flush();
        let mut taken = 0;
        while taken < count {
            taken += ping.taken()? as usize;
        }
        whole = start.elapsed();
    }
    report(name, &[], whole, count);
    Ok(())
}

fn report(name: &str, times: &[Duration], whole: Duration, calls: usize) {
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0, Duration::as_nanos);
    println!("{name} {} {} {} {}", at(50), at(90), at(99), whole.as_nanos() / calls.max(1) as u128);
}
