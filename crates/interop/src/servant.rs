//! The servant of `peers.idl`: answers each operation as the interface file describes.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use hyoshi_orb::{Any, Completed, ObjectRef, Orb, SystemException, SystemKind, TypeCode, WChar, WString};

use crate::peers::*;
use crate::samples;

/// References that the server returns; set when they exist, which is after the servant.
#[derive(Default)]
pub struct ServerReferences {
    /// To the servant itself.
    pub myself: OnceLock<PeerStub>,
    /// To an object that forwards its requests to the servant.
    pub forwarded: OnceLock<PeerStub>,
    /// To an object that does not exist.
    pub missing: OnceLock<PeerStub>,
}

/// The object.
pub struct PeerServant {
    orb: Orb,
    known: Arc<ServerReferences>,
    diamond: Mutex<(i32, Point, Strings)>,
    notes: Mutex<Notes>,
}

/// Received oneways.
#[derive(Clone, Copy)]
struct Notes {
    count: u32,
    last: u32,
    rising: bool,
}

const NONE: Notes = Notes { count: 0, last: 0, rising: true };

impl PeerServant {
    /// A servant; its references are set later.
    pub fn new(orb: Orb, known: Arc<ServerReferences>) -> Self {
        PeerServant { orb, known, diamond: Mutex::new((0, Point::default(), Strings::new())), notes: Mutex::new(NONE) }
    }
}

fn bad_param<T>() -> Result<T, SystemException> {
    Err(SystemKind::BadParam.not_done(0))
}

impl Base for PeerServant {
    fn base_says(&self, what: &str) -> Result<String, SystemException> {
        Ok(format!("base {what}"))
    }

    fn kind(&self) -> Result<String, SystemException> {
        Ok("Hyoshi".into())
    }
}

impl Left for PeerServant {
    fn left_says(&self) -> Result<String, SystemException> {
        Ok("left".into())
    }

    fn number(&self) -> Result<i32, SystemException> {
        Ok(self.diamond.lock().unwrap().0)
    }

    fn set_number(&self, value: i32) -> Result<(), SystemException> {
        self.diamond.lock().unwrap().0 = value;
        Ok(())
    }
}

impl Right for PeerServant {
    fn right_says(&self) -> Result<String, SystemException> {
        Ok("right".into())
    }

    fn place(&self) -> Result<Point, SystemException> {
        Ok(self.diamond.lock().unwrap().1)
    }

    fn set_place(&self, value: &Point) -> Result<(), SystemException> {
        self.diamond.lock().unwrap().1 = *value;
        Ok(())
    }
}

impl Diamond for PeerServant {
    fn bottom_says(&self) -> Result<String, SystemException> {
        Ok("bottom".into())
    }

    fn names(&self) -> Result<Strings, SystemException> {
        Ok(self.diamond.lock().unwrap().2.clone())
    }

    fn set_names(&self, value: &[String]) -> Result<(), SystemException> {
        self.diamond.lock().unwrap().2 = value.to_vec();
        Ok(())
    }
}

/// Returns `a` as result and as `b`, and the former `b` as `c`.
macro_rules! echoes {
    ($($name:ident($in:ty) -> $out:ty;)*) => {
        $(
            fn $name(&self, a: $in, b: &mut $out) -> Result<($out, $out), SystemException> {
                #[allow(clippy::redundant_clone)]
                let given: $out = a.to_owned();
                Ok((given.clone(), std::mem::replace(b, given)))
            }
        )*
    };
}

impl Peer for PeerServant {
    echoes! {
        echo_short(i16) -> i16;
        echo_ushort(u16) -> u16;
        echo_long(i32) -> i32;
        echo_ulong(u32) -> u32;
        echo_longlong(i64) -> i64;
        echo_ulonglong(u64) -> u64;
        echo_float(f32) -> f32;
        echo_double(f64) -> f64;
        echo_boolean(bool) -> bool;
        echo_char(char) -> char;
        echo_wchar(WChar) -> WChar;
        echo_octet(u8) -> u8;
        echo_string(&str) -> String;
        echo_wstring(&WString) -> WString;
        echo_name(&str) -> Name;
        echo_widename(&WideName) -> WideName;
        echo_money(Money) -> Money;
        echo_any(&Any) -> Any;
        echo_typecode(&TypeCode) -> TypeCode;
        echo_colour(Colour) -> Colour;
        echo_point(&Point) -> Point;
        echo_mixed(&Mixed) -> Mixed;
        echo_nested(&Nested) -> Nested;
        echo_tree(&Tree) -> Tree;
        echo_priced(&Priced) -> Priced;
        echo_empty(&Empty) -> Empty;
        echo_onboolean(&OnBoolean) -> OnBoolean;
        echo_onchar(&OnChar) -> OnChar;
        echo_onshort(&OnShort) -> OnShort;
        echo_onlong(&OnLong) -> OnLong;
        echo_onulong(&OnULong) -> OnULong;
        echo_onlonglong(&OnLongLong) -> OnLongLong;
        echo_oncolour(&OnColour) -> OnColour;
        echo_expression(&Expression) -> Expression;
        echo_triple(&Triple) -> Triple;
        echo_grid(&Grid) -> Grid;
        echo_pair(&Pair) -> Pair;
        echo_octets(&[u8]) -> Octets;
        echo_booleans(&[bool]) -> Booleans;
        echo_chars(&[char]) -> Chars;
        echo_widechars(&[WChar]) -> WideChars;
        echo_shorts(&[i16]) -> Shorts;
        echo_longs(&[i32]) -> Longs;
        echo_longlongs(&[i64]) -> LongLongs;
        echo_floats(&[f32]) -> Floats;
        echo_doubles(&[f64]) -> Doubles;
        echo_strings(&[String]) -> Strings;
        echo_widestrings(&[WString]) -> WideStrings;
        echo_anys(&[Any]) -> Anys;
        echo_colours(&[Colour]) -> Colours;
        echo_points(&[Point]) -> Points;
        echo_grids(&[Grid]) -> Grids;
        echo_table(&[Longs]) -> Table;
        echo_few(&[i32]) -> Few;
        echo_fewnames(&[Name]) -> FewNames;
        echo_choices(&[OnColour]) -> Choices;
        echo_callbacks(&[Option<CallbackStub>]) -> Callbacks;
    }

    fn echo_object(
        &self,
        a: Option<&ObjectRef>,
        b: &mut Option<ObjectRef>,
    ) -> Result<(Option<ObjectRef>, Option<ObjectRef>), SystemException> {
        Ok((a.cloned(), std::mem::replace(b, a.cloned())))
    }

    fn echo_callback(
        &self,
        a: Option<&CallbackStub>,
        b: &mut Option<CallbackStub>,
    ) -> Result<(Option<CallbackStub>, Option<CallbackStub>), SystemException> {
        Ok((a.cloned(), std::mem::replace(b, a.cloned())))
    }

    fn points_of(&self, text: &str) -> Result<ULongs, SystemException> {
        Ok(text.chars().map(u32::from).collect())
    }

    fn wide_points_of(&self, text: &WString) -> Result<ULongs, SystemException> {
        Ok(text.chars().map(u32::from).collect())
    }

    fn text_of(&self, points: &[u32]) -> Result<String, SystemException> {
        points.iter().map(|point| char::from_u32(*point)).collect::<Option<String>>().map_or_else(bad_param, Ok)
    }

    fn wide_text_of(&self, points: &[u32]) -> Result<WString, SystemException> {
        Ok(WString(self.text_of(points)?))
    }

    fn sample(&self, name: &str) -> Result<Any, SystemException> {
        samples::sample(name).map_or_else(bad_param, Ok)
    }

    fn is_sample(&self, name: &str, value: &Any) -> Result<bool, SystemException> {
        samples::is_sample(name, value).map_or_else(bad_param, Ok)
    }

    fn nothing(&self) -> Result<(), SystemException> {
        Ok(())
    }

    fn raise_plain(&self) -> Result<(), RaisePlainError> {
        Err(Plain {}.into())
    }

    fn raise_detailed(&self, why: &str, code: i32) -> Result<(), RaiseDetailedError> {
        Err(detailed(why, code).into())
    }

    fn raise_any(&self, what: &Any) -> Result<(), RaiseAnyError> {
        Err(WithAny { what: what.clone() }.into())
    }

    fn raise_system(&self, name: &str, minor: u32, completed: u32) -> Result<(), SystemException> {
        let Some(kind) = SystemKind::ALL.iter().find(|kind| kind.name() == name) else { return bad_param() };
        let completed = match completed {
            0 => Completed::Yes,
            1 => Completed::No,
            _ => Completed::Maybe,
        };
        Err(SystemException { kind: *kind, minor, completed, peer: None })
    }

    fn raise_undeclared(&self) -> Result<(), SystemException> {
        // Rust cannot raise an undeclared exception; this is what the peers send for one.
        Err(SystemKind::Unknown.maybe_done(0))
    }

    fn sleep_ms(&self, duration: u32) -> Result<(), SystemException> {
        thread::sleep(Duration::from_millis(duration.into()));
        Ok(())
    }

    fn note(&self, number: u32, raw: &[u8]) -> Result<(), SystemException> {
        let mut notes = self.notes.lock().unwrap();
        notes.rising &= number > notes.last && raw.len() == number as usize % 100;
        notes.last = number;
        notes.count += 1;
        Ok(())
    }

    fn noted(&self) -> Result<(u32, bool), SystemException> {
        let notes = std::mem::replace(&mut *self.notes.lock().unwrap(), NONE);
        Ok((notes.count, notes.rising))
    }

    fn call_back(&self, who: Option<&CallbackStub>, what: &str) -> Result<String, SystemException> {
        who.map_or_else(bad_param, |who| who.call(what))
    }

    fn call_back_failing(&self, who: Option<&CallbackStub>, why: &str) -> Result<(), CallBackFailingError> {
        let Some(who) = who else { return Ok(bad_param()?) };
        who.fail(why).map_err(|raised| match raised {
            FailError::Detailed(detailed) => detailed.into(),
            FailError::System(system) => system.into(),
        })
    }

    fn descend(&self, who: Option<&CallbackStub>, depth: u32) -> Result<u32, SystemException> {
        match (depth, who) {
            (0, _) => Ok(0),
            (_, None) => bad_param(),
            (_, Some(who)) => {
                let myself = self.known.myself.get().map(|stub| ObjectRef::from(stub.as_ref().widen()));
                Ok(who.descend(myself.as_ref(), depth)? + 1)
            }
        }
    }

    fn tell(&self, who: Option<&CallbackStub>, count: u32) -> Result<(), SystemException> {
        let Some(who) = who else { return bad_param() };
        (1..=count).try_for_each(|number| who.tell(number))
    }

    fn forwarded(&self) -> Result<Option<PeerStub>, SystemException> {
        Ok(self.known.forwarded.get().cloned())
    }

    fn missing(&self) -> Result<Option<PeerStub>, SystemException> {
        Ok(self.known.missing.get().cloned())
    }

    fn nil(&self) -> Result<Option<PeerStub>, SystemException> {
        Ok(None)
    }

    fn as_diamond(&self) -> Result<Option<DiamondStub>, SystemException> {
        Ok(self.known.myself.get().cloned().map(Into::into))
    }

    fn as_base(&self) -> Result<Option<BaseStub>, SystemException> {
        Ok(self.known.myself.get().cloned().map(Into::into))
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        self.orb.shutdown();
        Ok(())
    }
}

/// The exception as every peer raises it.
pub fn detailed(why: &str, code: i32) -> Detailed {
    Detailed { why: why.into(), code, place: samples::point(false), notes: samples::strings(false) }
}
