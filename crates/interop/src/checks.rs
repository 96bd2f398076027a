//! The client of `peers.idl`: calls each operation with the samples and with extremes, and checks the answers.

use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use hyoshi_orb::{
    Any, Completed, ObjectRef, Orb, StubOperation, SystemException, SystemKind, TypeCode, Typed, WChar, WString,
};

use crate::peers::*;
use crate::samples;
use crate::servant::detailed;

/// The abilities of the server's ORB and of the protocol.
#[derive(Clone, Copy, Debug)]
pub struct Able {
    /// Wide characters: not in GIOP 1.0 and 1.1 with omniORB.
    pub wide: bool,
    /// JacORB 3.9 reads an inout bounded wide string as a narrow one, omits the leading zeros of a fixed, and writes 0
    /// for each discriminator without a label.
    pub jacorb: bool,
    /// `string` can have characters beyond ASCII but within Latin-1.
    pub latin1: bool,
    /// Calls us back.
    pub callbacks: bool,
}

impl Default for Able {
    fn default() -> Self {
        Able { wide: true, jacorb: false, latin1: true, callbacks: true }
    }
}

/// Names of types with wide characters.
const WIDE: &[&str] =
    &["wchar", "wstring", "widename", "mixed", "nested", "onlong", "onlonglong", "widechars", "widestrings"];

/// Our object for callbacks.
#[derive(Default)]
struct CallbackRecorder {
    myself: std::sync::OnceLock<CallbackStub>,
    numbers: Mutex<Vec<u32>>,
    changed: Condvar,
}

impl Callback for CallbackRecorder {
    fn call(&self, what: &str) -> Result<String, SystemException> {
        Ok(format!("[{what}]"))
    }

    fn descend(&self, peer: Option<&ObjectRef>, depth: u32) -> Result<u32, SystemException> {
        let Some(peer) = peer else { return Err(SystemKind::BadParam.not_done(0)) };
        let Some(there) = peer.as_ref().narrow::<dyn Peer>()? else { return Err(SystemKind::BadParam.not_done(0)) };
        Ok(there.descend(self.myself.get(), depth - 1)? + 1)
    }

    fn fail(&self, why: &str) -> Result<(), FailError> {
        Err(detailed(why, 17).into())
    }

    fn tell(&self, number: u32) -> Result<(), SystemException> {
        self.numbers.lock().unwrap().push(number);
        self.changed.notify_all();
        Ok(())
    }
}

/// The checks of one session, and the failures.
pub struct Checks<'a> {
    peer: &'a PeerStub,
    able: Able,
    passed: usize,
    failed: Vec<String>,
}

/// The error in an answer.
type Verdict = Result<(), String>;

fn wrong<T>(got: impl Debug, wanted: impl Debug) -> Result<T, String> {
    let mut text = format!("got {got:?}, wanted {wanted:?}");
    if text.len() > 700 {
        let mut cut = 700;
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        text.truncate(cut);
        text.push_str("...");
    }
    Err(text)
}

fn equal<T: PartialEq + Debug>(got: T, wanted: T) -> Verdict {
    if got == wanted { Ok(()) } else { wrong(got, wanted) }
}

fn raised<E: Debug>(error: E) -> String {
    format!("{error:?}")
}

/// As bits: a NaN equals itself, and zeros differ.
fn bits32(values: (f32, f32, f32)) -> [u32; 3] {
    [values.0.to_bits(), values.1.to_bits(), values.2.to_bits()]
}

fn bits64(values: (f64, f64, f64)) -> [u64; 3] {
    [values.0.to_bits(), values.1.to_bits(), values.2.to_bits()]
}

/// Runs all checks that the server can pass. Returns a line for each failed one.
pub fn check_all(orb: &Orb, peer: &PeerStub, able: Able) -> Vec<String> {
    let mut checks = Checks { peer, able, passed: 0, failed: Vec::new() };
    checks.samples();
    checks.extremes();
    checks.bounds();
    checks.texts();
    checks.anys();
    checks.objects();
    checks.exceptions();
    checks.large();
    checks.oneways();
    checks.concurrency();
    if able.callbacks {
        checks.callbacks(orb);
    }
    println!("{} checks, {} failed", checks.passed + checks.failed.len(), checks.failed.len());
    checks.failed
}

impl Checks<'_> {
    fn check(&mut self, name: &str, run: impl FnOnce(&PeerStub) -> Verdict) {
        match run(self.peer) {
            Ok(()) => self.passed += 1,
            Err(why) => self.failed.push(format!("{name}: {why}")),
        }
    }

    fn can(&self, name: &str) -> bool {
        (self.able.wide || !WIDE.contains(&name)) && !(self.able.jacorb && name == "widename")
    }

    /// Each echo with both samples, in both orders.
    fn samples(&mut self) {
        macro_rules! echo {
            ($($name:ident as $call:ident: |$a:ident| $in:expr;)*) => {
                $(
                    if self.can(stringify!($name)) {
                        self.check(stringify!($call), |peer| {
                            for turn in [false, true] {
                                let $a = samples::$name(turn);
                                let mut b = samples::$name(!turn);
                                let (result, c) = peer.$call($in, &mut b).map_err(raised)?;
                                equal(&result, &$a)?;
                                equal(&b, &$a)?;
                                equal(&c, &samples::$name(!turn))?;
                            }
                            Ok(())
                        });
                    }
                )*
            };
        }
        echo! {
            short as echo_short: |a| a;
            ushort as echo_ushort: |a| a;
            long as echo_long: |a| a;
            ulong as echo_ulong: |a| a;
            longlong as echo_longlong: |a| a;
            ulonglong as echo_ulonglong: |a| a;
            float as echo_float: |a| a;
            double as echo_double: |a| a;
            boolean as echo_boolean: |a| a;
            char as echo_char: |a| a;
            wchar as echo_wchar: |a| a;
            octet as echo_octet: |a| a;
            string as echo_string: |a| &a;
            wstring as echo_wstring: |a| &a;
            name as echo_name: |a| &a;
            widename as echo_widename: |a| &a;
            money as echo_money: |a| a;
            any as echo_any: |a| &a;
            typecode as echo_typecode: |a| &a;
            colour as echo_colour: |a| a;
            point as echo_point: |a| &a;
            mixed as echo_mixed: |a| &a;
            nested as echo_nested: |a| &a;
            tree as echo_tree: |a| &a;
            priced as echo_priced: |a| &a;
            empty as echo_empty: |a| &a;
            onboolean as echo_onboolean: |a| &a;
            onchar as echo_onchar: |a| &a;
            onshort as echo_onshort: |a| &a;
            onlong as echo_onlong: |a| &a;
            onulong as echo_onulong: |a| &a;
            onlonglong as echo_onlonglong: |a| &a;
            oncolour as echo_oncolour: |a| &a;
            expression as echo_expression: |a| &a;
            triple as echo_triple: |a| &a;
            grid as echo_grid: |a| &a;
            pair as echo_pair: |a| &a;
            octets as echo_octets: |a| &a;
            booleans as echo_booleans: |a| &a;
            chars as echo_chars: |a| &a;
            widechars as echo_widechars: |a| &a;
            shorts as echo_shorts: |a| &a;
            longs as echo_longs: |a| &a;
            longlongs as echo_longlongs: |a| &a;
            floats as echo_floats: |a| &a;
            doubles as echo_doubles: |a| &a;
            strings as echo_strings: |a| &a;
            widestrings as echo_widestrings: |a| &a;
            anys as echo_anys: |a| &a;
            colours as echo_colours: |a| &a;
            points as echo_points: |a| &a;
            grids as echo_grids: |a| &a;
            table as echo_table: |a| &a;
            few as echo_few: |a| &a;
            fewnames as echo_fewnames: |a| &a;
            choices as echo_choices: |a| &a;
        }
    }

    fn extremes(&mut self) {
        self.check("echo_float, extremes", |peer| {
            for a in [-0.0, f32::from_bits(1), f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, f32::MIN] {
                let mut b = 1.0;
                let (result, c) = peer.echo_float(a, &mut b).map_err(raised)?;
                equal(bits32((result, b, c)), bits32((a, a, 1.0)))?;
            }
            let mut b = 0.0;
            let (result, _) = peer.echo_float(f32::NAN, &mut b).map_err(raised)?;
            equal((result.is_nan(), b.is_nan()), (true, true))
        });
        self.check("echo_double, extremes", |peer| {
            for a in [-0.0, f64::from_bits(1), f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, f64::MAX] {
                let mut b = 1.0;
                let (result, c) = peer.echo_double(a, &mut b).map_err(raised)?;
                equal(bits64((result, b, c)), bits64((a, a, 1.0)))?;
            }
            let mut b = 0.0;
            let (result, _) = peer.echo_double(f64::NAN, &mut b).map_err(raised)?;
            equal((result.is_nan(), b.is_nan()), (true, true))
        });
        self.check("echo_long, byte by byte", |peer| {
            let mut b = 0x0506_0708;
            let (result, c) = peer.echo_long(0x0102_0304, &mut b).map_err(raised)?;
            equal((result, b, c), (0x0102_0304, 0x0102_0304, 0x0506_0708))
        });
        if self.able.jacorb {
            return;
        }
        self.check("echo_money, leading zeros", |peer| {
            for a in [-999_999_999, 999_999_999, 0, 1, -1, 10_000] {
                let a = samples::cents(a);
                let mut b = samples::cents(-1);
                let (result, c) = peer.echo_money(a, &mut b).map_err(raised)?;
                equal((result, b, c), (a, a, samples::cents(-1)))?;
            }
            Ok(())
        });
        self.check("discriminators that no label has", |peer| {
            let a = OnLongLong::Default(9_000_000_000_000_000_000);
            let mut b = OnLongLong::Default(-6);
            let (result, c) = peer.echo_onlonglong(&a, &mut b).map_err(raised)?;
            equal((result, b, c), (a.clone(), a, OnLongLong::Default(-6)))?;
            let a = OnULong::Other { label: 4_000_000_000, value: -3 };
            let mut b = OnULong::Other { label: 2_147_483_646, value: 4 };
            let was = b.clone();
            let (result, c) = peer.echo_onulong(&a, &mut b).map_err(raised)?;
            equal((result, b, c), (a.clone(), a, was))
        });
    }

    /// A value that is longer than its typedef allows is not sent.
    fn bounds(&mut self) {
        self.check("a name over its bound", |peer| match peer.echo_name("123456789", &mut String::new()) {
            Err(SystemException { completed: Completed::No, .. }) => Ok(()),
            other => wrong(other, "an exception before anything was sent"),
        });
        self.check("a sequence over its bound", |peer| match peer.echo_few(&[1, 2, 3, 4, 5], &mut Vec::new()) {
            Err(SystemException { completed: Completed::No, .. }) => Ok(()),
            other => wrong(other, "an exception before anything was sent"),
        });
    }

    fn texts(&mut self) {
        self.check("echo_string, long and odd", |peer| {
            let vast = "v".repeat(100_000);
            for a in [vast.as_str(), "a\"\\\u{1}\u{7f}"] {
                let mut b = "b".to_owned();
                let (result, c) = peer.echo_string(a, &mut b).map_err(raised)?;
                equal((result.as_str(), b.as_str(), c.as_str()), (a, a, "b"))?;
            }
            Ok(())
        });
        if self.able.latin1 {
            self.check("text has the code points it was given", |peer| {
                let points = vec![0x41, 0xe9, 0xff];
                let text = peer.text_of(&points).map_err(raised)?;
                equal(text.as_str(), "A\u{e9}\u{ff}")?;
                equal(peer.points_of(&text).map_err(raised)?, points)
            });
        }
        if !self.able.wide {
            return;
        }
        self.check("wide text has the code points it was given", |peer| {
            let points = vec![0x41, 0x3a9, 0x65e5, 0xffee];
            let text = peer.wide_text_of(&points).map_err(raised)?;
            equal(text.0.as_str(), "A\u{3a9}\u{65e5}\u{ffee}")?;
            equal(peer.wide_points_of(&text).map_err(raised)?, points)
        });
        self.check("wide text beyond the basic plane", |peer| {
            let a = WString::from("\u{1d11e} clef \u{10ffff}");
            let mut b = WString::from("");
            let (result, c) = peer.echo_wstring(&a, &mut b).map_err(raised)?;
            equal((result, b, c), (a.clone(), a, WString::from("")))
        });
        self.check("echo_wchar, far ends", |peer| {
            for a in ['\0', '\u{ff}', '\u{fffd}'] {
                let mut b = WChar('b');
                let (result, c) = peer.echo_wchar(WChar(a), &mut b).map_err(raised)?;
                equal((result, b, c), (WChar(a), WChar(a), WChar('b')))?;
            }
            Ok(())
        });
    }

    /// The peer creates an any of each sample, and recognises it in our any, and in its own any that we send back.
    fn anys(&mut self) {
        for name in samples::NAMES {
            if !self.able.wide && WIDE.contains(name) {
                continue;
            }
            self.check(&format!("any of {name}"), |peer| {
                let theirs = peer.sample(name).map_err(raised)?;
                if samples::is_sample(name, &theirs) != Some(true) {
                    return wrong(theirs, samples::sample(name));
                }
                let ours = samples::sample(name).ok_or("no sample")?;
                equal(peer.is_sample(name, &ours).map_err(raised)?, true)?;
                let mut b = samples::any_of(&42);
                let (result, c) = peer.echo_any(&theirs, &mut b).map_err(raised)?;
                equal(peer.is_sample(name, &result).map_err(raised)?, true)?;
                equal(peer.is_sample(name, &b).map_err(raised)?, true)?;
                equal(c.get::<i32>().map_err(raised)?, 42)
            });
        }
        self.check("an any of another type is not the sample", |peer| {
            equal(peer.is_sample("long", &samples::any_of(&1.0)).map_err(raised)?, false)
        });
        self.check("an empty any", |peer| {
            let (result, c) = peer.echo_any(&Any::default(), &mut Any::default()).map_err(raised)?;
            equal((result, c), (Any::default(), Any::default()))
        });
        self.check("type codes of recursive types", |peer| {
            let mut b = Expression::type_code();
            let (result, c) = peer.echo_typecode(&Tree::type_code(), &mut b).map_err(raised)?;
            let same = |one: &TypeCode, other: TypeCode| one.is_equivalent(&other);
            equal((same(&result, Tree::type_code()), same(&c, Expression::type_code())), (true, true))
        });
    }

    fn objects(&mut self) {
        let peer = self.peer.clone();
        let object = ObjectRef::from(peer.as_ref().widen());
        self.check("echo_object", |peer| {
            let mut b = None;
            let (result, c) = peer.echo_object(Some(&object), &mut b).map_err(raised)?;
            let (Some(result), Some(b)) = (result, b) else { return wrong("nil", "the object") };
            equal(c, None)?;
            let back = result.as_ref().narrow::<dyn Peer>().map_err(raised)?.ok_or("it does not know its interface")?;
            back.nothing().map_err(raised)?;
            equal(b.as_ref().non_existent().map_err(raised)?, false)
        });
        self.check("is_a", |peer| {
            for (id, wanted) in [
                ("IDL:hyoshi/Peers/Base:1.0", true),
                ("IDL:hyoshi/Peers/Peer:1.0", true),
                ("IDL:omg.org/CORBA/Object:1.0", true),
                ("IDL:hyoshi/Peers/Callback:1.0", false),
            ] {
                equal((id, peer.is_a(id).map_err(raised)?), (id, wanted))?;
            }
            equal(peer.non_existent().map_err(raised)?, false)
        });
        self.check("nil", |peer| equal(peer.nil().map_err(raised)?, None));
        self.check("the diamond", |peer| {
            let diamond = peer.as_diamond().map_err(raised)?.ok_or("nil")?;
            diamond.set_number(-5).map_err(raised)?;
            diamond.set_place(&samples::point(false)).map_err(raised)?;
            diamond.set_names(&samples::strings(false)).map_err(raised)?;
            equal(peer.number().map_err(raised)?, -5)?;
            equal(diamond.place().map_err(raised)?, samples::point(false))?;
            equal(diamond.names().map_err(raised)?, samples::strings(false))?;
            let said = [diamond.left_says(), diamond.right_says(), diamond.bottom_says()];
            equal(said, ["left", "right", "bottom"].map(|word| Ok(word.to_owned())))
        });
        self.check("a base narrows to what it is", |peer| {
            let base = peer.as_base().map_err(raised)?.ok_or("nil")?;
            equal(base.narrow::<dyn Peer>().map_err(raised)?.is_some(), true)?;
            equal(base.narrow::<dyn Callback>().map_err(raised)?.is_none(), true)?;
            equal(base.base_says("x").map_err(raised)?, "base x".to_owned())?;
            equal(base.kind().map_err(raised)?.is_empty(), false)
        });
        self.check("forwarded", |peer| {
            let forwarded = peer.forwarded().map_err(raised)?.ok_or("nil")?;
            let mut b = 2;
            equal(forwarded.echo_long(1, &mut b).map_err(raised)?, (1, 2))?;
            // A large body must be sent twice.
            let again = peer.forwarded().map_err(raised)?.ok_or("nil")?;
            let big: Vec<u8> = (0..300_000u32).map(|at| at as u8).collect();
            let (result, _) = again.echo_octets(&big, &mut Vec::new()).map_err(raised)?;
            equal(result == big, true)
        });
    }

    fn exceptions(&mut self) {
        self.check("raise_plain", |peer| equal(peer.raise_plain(), Err(Plain {}.into())));
        self.check("raise_detailed", |peer| {
            equal(peer.raise_detailed("because", -7), Err(detailed("because", -7).into()))
        });
        self.check("raise_any", |peer| match peer.raise_any(&samples::any_of("an any")) {
            Err(RaiseAnyError::WithAny(with)) => equal(with.what.get::<String>().map_err(raised)?, "an any".to_owned()),
            other => wrong(other, "WithAny"),
        });
        for kind in SystemKind::ALL {
            // The exceptions of Real-time CORBA and of the activity service are newer than the peers.
            if kind.name().contains("ACTIVITY") || *kind == SystemKind::ThreadCancelled {
                continue;
            }
            self.check(&format!("raise_system {}", kind.name()), |peer| {
                equal(peer.raise_system(kind.name(), 0x1234_5678, 2), Err(kind.maybe_done(0x1234_5678)))
            });
        }
        let is = |kind: SystemKind| {
            move |got: Result<(), SystemException>| match got {
                Err(exception) if exception.kind == kind => Ok(()),
                other => wrong(other, kind),
            }
        };
        self.check("raise_undeclared", |peer| is(SystemKind::Unknown)(peer.raise_undeclared()));
        self.check("an object that does not exist", |peer| {
            let missing = peer.missing().map_err(raised)?.ok_or("nil")?;
            is(SystemKind::ObjectNotExist)(missing.nothing())?;
            equal(missing.non_existent().map_err(raised)?, true)
        });
        self.check("an operation that does not exist", |peer| {
            is(SystemKind::BadOperation)(peer.call(&StubOperation::new("no_such_operation"), |_| Ok(()), |_| Ok(())))
        });
        self.check("arguments cut short", |peer| {
            let operation = StubOperation::new("echo_string");
            match peer.call::<(), SystemException>(&operation, |_| Ok(()), |_| Ok(())) {
                Err(_) => Ok(()),
                other => wrong(other, "an exception"),
            }
        });
        self.check("and after all that a call", |peer| equal(peer.nothing(), Ok(())));
    }

    fn large(&mut self) {
        for size in [1000, 8191, 8192, 65_536, 1 << 20, (1 << 20) + 1] {
            self.check(&format!("{size} octets"), |peer| {
                let a: Vec<u8> = (0..size as u32).map(|at| (at * 7 + at / 256) as u8).collect();
                let mut b = vec![9];
                let (result, c) = peer.echo_octets(&a, &mut b).map_err(raised)?;
                equal((result == a, b == a, c), (true, true, vec![9]))
            });
        }
        self.check("20000 texts", |peer| {
            let a: Vec<String> = (0..20_000).map(|at| "s".repeat(at % 40)).collect();
            let mut b = Vec::new();
            let (result, c) = peer.echo_strings(&a, &mut b).map_err(raised)?;
            equal((result == a, b == a, c), (true, true, Vec::new()))
        });
    }

    fn oneways(&mut self) {
        self.check("a burst of oneways", |peer| {
            peer.noted().map_err(raised)?;
            for number in 1..=1000u32 {
                peer.note(number, &vec![0; number as usize % 100]).map_err(raised)?;
            }
            let mut count = 0;
            for _ in 0..500 {
                count += peer.noted().map_err(raised)?.0;
                if count >= 1000 {
                    break;
                }
                // Another process counts them, without an answer.
                thread::sleep(Duration::from_millis(10));
            }
            equal(count, 1000)
        });
    }

    fn concurrency(&mut self) {
        self.check("eight threads", |peer| {
            let wrongs: Vec<String> = thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|base| {
                        scope.spawn(move || {
                            for i in 0..200 {
                                let mut b = i;
                                let a = base * 1000 + i;
                                match peer.echo_long(a, &mut b) {
                                    Ok(got) if got == (a, i) => {}
                                    other => return Some(format!("{other:?} instead of {a}, {i}")),
                                }
                            }
                            None
                        })
                    })
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            equal(wrongs, Vec::new())
        });
        self.check("asynchronous calls", |peer| {
            let pending: Vec<_> = (0..100).map(|a| (a, peer.echo_long_async(a, a + 1))).collect();
            for (a, answer) in pending {
                equal(answer.wait().map_err(raised)?, (a, a, a + 1))?;
            }
            Ok(())
        });
    }

    fn callbacks(&mut self, orb: &Orb) {
        let listener = Arc::new(CallbackRecorder::default());
        let adapter = orb.adapter("callbacks").build().expect("the name is free");
        let callback = adapter.activate::<dyn Callback>(listener.clone()).expect("the ORB lives");
        let _ = listener.myself.set(callback.clone());
        self.check("call_back", |peer| equal(peer.call_back(Some(&callback), "hi"), Ok("[hi]".to_owned())));
        self.check("call_back_failing", |peer| {
            equal(peer.call_back_failing(Some(&callback), "asked"), Err(detailed("asked", 17).into()))
        });
        self.check("descend", |peer| equal(peer.descend(Some(&callback), 3), Ok(6)));
        self.check("tell", |peer| {
            peer.tell(Some(&callback), 20).map_err(raised)?;
            let numbers = listener.numbers.lock().unwrap();
            let (mut numbers, _) = listener
                .changed
                .wait_timeout_while(numbers, Duration::from_secs(20), |numbers| numbers.len() < 20)
                .unwrap();
            numbers.sort_unstable();
            equal(numbers.clone(), (1..=20).collect())
        });
        self.check("echo_callback", |peer| {
            let mut b = Some(callback.clone());
            let (result, c) = peer.echo_callback(None, &mut b).map_err(raised)?;
            equal((result, b), (None, None))?;
            equal(c.ok_or("nil")?.call("back").map_err(raised)?, "[back]".to_owned())
        });
        self.check("echo_callbacks", |peer| {
            let mut b = Vec::new();
            let (result, c) = peer.echo_callbacks(&[Some(callback.clone()), None], &mut b).map_err(raised)?;
            let there = |all: &[Option<CallbackStub>]| all.iter().map(Option::is_some).collect::<Vec<_>>();
            equal((there(&result), there(&b), there(&c)), (vec![true, false], vec![true, false], Vec::new()))
        });
        adapter.destroy();
    }
}
