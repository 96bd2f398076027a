//! Arguments of a call: JSON, read by their types.

use hyoshi_orb::{Any, FixedDecimal, LongDouble, TypeCode, TypeKind, Value, WChar, WString};
use hyoshi_wire::any::ObjectValue;
use hyoshi_wire::ior::ObjectUrl;
use hyoshi_wire::typecode::TypeShape;
use serde_json::Value as Json;

use super::shown::label_json;

/// An error in an argument, with the place in it: `.position.x`, `[3]`.
#[derive(Debug)]
pub(super) struct Wrong {
    pub place: String,
    pub message: String,
}

impl Wrong {
    fn new(message: impl Into<String>) -> Wrong {
        Wrong { place: String::new(), message: message.into() }
    }

    fn within(self, outer: &str) -> Wrong {
        Wrong { place: format!("{outer}{}", self.place), ..self }
    }
}

/// Types that an `any` may name: by scoped name or as IDL writes basic types.
pub(super) type Named<'a> = &'a dyn Fn(&str) -> Option<TypeCode>;

/// An argument as it stands on the command line: JSON; texts and names of enumerators also without quotes.
pub(super) fn from_text(text: &str, code: &TypeCode, named: Named<'_>) -> Result<Value, Wrong> {
    let bare = matches!(
        code.unaliased().kind(),
        TypeKind::String
            | TypeKind::WString
            | TypeKind::Char
            | TypeKind::WChar
            | TypeKind::Enum
            | TypeKind::Object
            | TypeKind::Fixed
            | TypeKind::TypeCode
    );
    if text.starts_with("0x") || bare && !text.starts_with('"') && text != "null" {
        return from_json(&Json::String(text.to_owned()), code, named);
    }
    match serde_json::from_str(text) {
        Ok(json) => from_json(&json, code, named),
        Err(error) => Err(Wrong::new(format!("`{text}` is not JSON: {error}"))),
    }
}

pub(super) fn from_json(json: &Json, code: &TypeCode, named: Named<'_>) -> Result<Value, Wrong> {
    let code = code.unaliased();
    let other = |wanted: &str| Err(Wrong::new(format!("expected {wanted}, not {json}")));
    macro_rules! integer {
        ($variant:ident) => {
            match json.as_i64().map(i128::from).or(json.as_u64().map(i128::from)).map(TryFrom::try_from) {
                Some(Ok(value)) => Ok(Value::$variant(value)),
                Some(Err(_)) => Err(Wrong::new(format!("{json} does not fit into {code}"))),
                None => other(&format!("a number ({code})")),
            }
        };
    }
    let text = || json.as_str();
    match code.shape() {
        TypeShape::Simple(kind) => match kind {
            TypeKind::Short => integer!(Short),
            TypeKind::UShort => integer!(UShort),
            TypeKind::Long => integer!(Long),
            TypeKind::ULong => integer!(ULong),
            TypeKind::LongLong => integer!(LongLong),
            TypeKind::ULongLong => integer!(ULongLong),
            TypeKind::Octet => integer!(Octet),
            TypeKind::Float => match json.as_f64().map(|value| value as f32) {
                Some(value) if value.is_finite() => Ok(Value::Float(value)),
                Some(_) => Err(Wrong::new(format!("{json} does not fit into {code}"))),
                None => other("a number"),
            },
            TypeKind::Double => json.as_f64().map_or_else(|| other("a number"), |value| Ok(Value::Double(value))),
            TypeKind::LongDouble => json
                .as_f64()
                .map_or_else(|| other("a number"), |value| Ok(Value::LongDouble(Box::new(LongDouble::from(value))))),
            TypeKind::Boolean => {
                json.as_bool().map_or_else(|| other("true or false"), |value| Ok(Value::Boolean(value)))
            }
            TypeKind::Char | TypeKind::WChar => {
                let mut characters = text().unwrap_or_default().chars();
                match (characters.next(), characters.next()) {
                    (Some(one), None) if kind == TypeKind::Char => Ok(Value::Char(one)),
                    (Some(one), None) => Ok(Value::WChar(WChar(one))),
                    _ => other("a string of one character"),
                }
            }
            TypeKind::Any => any(json, named).map(|any| Value::Any(Box::new(any))),
            TypeKind::TypeCode => match text().and_then(named) {
                Some(code) => Ok(Value::TypeCode(code)),
                None => other("the name of a type"),
            },
            TypeKind::Null | TypeKind::Void if json.is_null() => Ok(Value::Null),
            _ => Err(Wrong::new(format!("a value of type {code} cannot be written on the command line"))),
        },
        TypeShape::String(_) => text().map_or_else(|| other("a string"), |text| Ok(Value::String(text.to_owned()))),
        TypeShape::WString(_) => {
            text().map_or_else(|| other("a string"), |text| Ok(Value::WString(WString::from(text))))
        }
        TypeShape::Fixed { digits, scale } => {
            let written = text().map_or_else(|| json.to_string(), str::to_owned);
            let read = written.parse::<FixedDecimal>().and_then(|value| value.rescaled(digits, scale));
            read.map(|value| Value::Fixed(Box::new(value))).map_err(|error| Wrong::new(format!("{json}: {error}")))
        }
        TypeShape::Enum(members) => {
            let names: Vec<_> = members.map(|(name, _)| name).collect();
            match text().and_then(|text| names.iter().position(|name| *name == text)) {
                Some(place) => Ok(Value::Enum(place as u32)),
                None => other(&format!("one of {}", names.join(", "))),
            }
        }
        TypeShape::Sequence { of, .. } if of.unaliased().kind() == TypeKind::Octet && json.is_string() => octets(json),
        TypeShape::Array { of, length } if of.unaliased().kind() == TypeKind::Octet && json.is_string() => {
            let octets = octets(json)?;
            match &octets {
                Value::Octets(all) if all.len() == length as usize => Ok(octets),
                _ => other(&format!("{length} octets")),
            }
        }
        TypeShape::Sequence { of, most } => match json.as_array() {
            Some(items) if most > 0 && items.len() > most as usize => {
                Err(Wrong::new(format!("{} elements, but {code} allows {most}", items.len())))
            }
            Some(items) => elements(items, &of, named),
            None => other("an array"),
        },
        TypeShape::Array { of, length } => match json.as_array() {
            Some(items) if items.len() == length as usize => elements(items, &of, named),
            _ => other(&format!("an array of {length}")),
        },
        TypeShape::Struct(members) | TypeShape::Exception(members) => {
            let members: Vec<_> = members.collect();
            let Some(object) = json.as_object() else {
                return other(&format!("an object with {}", listed(members.iter().map(|(name, _)| *name))));
            };
            if let Some(unknown) = object.keys().find(|key| members.iter().all(|(name, _)| name != key)) {
                let known = listed(members.iter().map(|(name, _)| *name));
                return Err(Wrong::new(format!("{} has no member `{unknown}`; it has {known}", code.name())));
            }
            let values = members.iter().map(|(name, of)| match object.get(*name) {
                Some(member) => from_json(member, of, named).map_err(|wrong| wrong.within(&format!(".{name}"))),
                None => Err(Wrong::new(format!("`{name}` ({of}) is missing"))),
            });
            values.collect::<Result<_, _>>().map(Value::Struct)
        }
        TypeShape::Union { discriminator, cases } => {
            union(json, &code, &discriminator, &cases.collect::<Vec<_>>(), named)
        }
        TypeShape::Named(TypeKind::Object) => reference(json).map(|object| Value::Object(Box::new(object))),
        _ => Err(Wrong::new(format!("a value of type {code} cannot be written on the command line"))),
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn elements(items: &[Json], of: &TypeCode, named: Named<'_>) -> Result<Value, Wrong> {
    let read = |(at, item)| from_json(item, of, named).map_err(|wrong| wrong.within(&format!("[{at}]")));
    items.iter().enumerate().map(read).collect::<Result<_, _>>().map(Value::Sequence)
}

/// `0x` and two digits for each octet.
fn octets(json: &Json) -> Result<Value, Wrong> {
    let digits = json.as_str().and_then(|text| text.strip_prefix("0x")).map(str::as_bytes);
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let read = digits.filter(|digits| digits.len() % 2 == 0).and_then(|digits| digits.chunks(2).map(pair).collect());
    read.map(Value::Octets).ok_or_else(|| Wrong::new(format!("expected octets, 0x1f2e or [31, 46], not {json}")))
}

/// `{"type": "long", "value": 7}`.
fn any(json: &Json, named: Named<'_>) -> Result<Any, Wrong> {
    let (Some(name), Some(value)) = (json.get("type").and_then(Json::as_str), json.get("value")) else {
        return Err(Wrong::new(format!("expected an any, {{\"type\": \"long\", \"value\": 7}}, not {json}")));
    };
    let code = named(name).ok_or_else(|| {
        let known = "basic types such as `unsigned long` and `string`, and types of the IDL file";
        Wrong::new(format!("unknown type `{name}`; known: {known}")).within(".type")
    })?;
    let value = from_json(value, &code, named).map_err(|wrong| wrong.within(".value"))?;
    Any::new(code, &value).map_err(|error| Wrong::new(error.to_string()).within(".value"))
}

type Case<'a> = (Option<i128>, &'a str, TypeCode);

/// `{"member": value}`, with `"_d": label` where the member has several labels.
fn union(json: &Json, code: &TypeCode, by: &TypeCode, cases: &[Case<'_>], named: Named<'_>) -> Result<Value, Wrong> {
    let wanted = || {
        // Several labels of one member stand side by side.
        let mut names: Vec<_> = cases.iter().map(|(_, name, _)| *name).collect();
        names.dedup();
        let names = listed(names.into_iter());
        Wrong::new(format!("expected {code}: {{\"MEMBER\": VALUE}} with one of {names}, and \"_d\": LABEL if needed"))
    };
    let object = json.as_object().ok_or_else(wanted)?;
    let label = match object.get("_d") {
        Some(label) => {
            let label = from_json(label, by, named).map_err(|wrong| wrong.within("._d"))?;
            Some(number(&label).ok_or_else(wanted)?)
        }
        None => None,
    };
    let mut members = object.iter().filter(|(name, _)| *name != "_d");
    let (label, value) = match (members.next(), members.next(), label) {
        (Some((name, value)), None, label) => {
            let mut mine = cases.iter().filter(|(_, own, _)| own == name);
            let (first, _, of) = mine.next().ok_or_else(wanted)?;
            let free = || (0..).find(|label| cases.iter().all(|(own, _, _)| *own != Some(*label))).unwrap_or(0);
            let label = label.or(*first).unwrap_or_else(free);
            let fits = cases.iter().find(|(own, _, _)| *own == Some(label));
            let fits = fits.or_else(|| cases.iter().find(|(own, _, _)| own.is_none()));
            if fits.is_none_or(|(_, own, _)| own != name) {
                return Err(Wrong::new(format!("{} is not a label of `{name}`", label_json(label, by))).within("._d"));
            }
            let value = from_json(value, of, named).map_err(|wrong| wrong.within(&format!(".{name}")))?;
            (label, Some(Box::new(value)))
        }
        (None, None, Some(label)) => (label, None),
        _ => return Err(wanted()),
    };
    Ok(Value::Union { label: Box::new(label), value })
}

/// A discriminator as type codes number labels.
fn number(value: &Value) -> Option<i128> {
    Some(match value {
        Value::Short(value) => i128::from(*value),
        Value::UShort(value) => i128::from(*value),
        Value::Long(value) => i128::from(*value),
        Value::ULong(value) => i128::from(*value),
        Value::LongLong(value) => i128::from(*value),
        Value::ULongLong(value) => i128::from(*value),
        Value::Octet(value) => i128::from(*value),
        Value::Boolean(value) => i128::from(*value),
        Value::Char(value) => i128::from(u32::from(*value)),
        Value::WChar(value) => i128::from(u32::from(value.0)),
        Value::Enum(place) => i128::from(*place),
        _ => return None,
    })
}

/// `IOR:...` or `corbaloc:...`; `null` and `nil` are the nil reference.
fn reference(json: &Json) -> Result<ObjectValue, Wrong> {
    let wrong = |why: String| Wrong::new(format!("expected a reference (IOR:, corbaloc: or null), not {json}{why}"));
    match json.as_str() {
        None if json.is_null() => Ok(ObjectValue::default()),
        Some("nil") => Ok(ObjectValue::default()),
        None => Err(wrong(String::new())),
        Some(text) => {
            let ior = match text.parse::<ObjectUrl>().map_err(|error| wrong(format!(": {error}")))? {
                ObjectUrl::Ior(ior) => ior,
                ObjectUrl::Corbaloc(address) => {
                    address.ior("").ok().flatten().ok_or_else(|| wrong(": it has no address".to_owned()))?
                }
                ObjectUrl::Corbaname(_) => {
                    return Err(wrong(": resolve the name first, with `hyoshi naming resolve`".to_owned()));
                }
            };
            let profiles = ior.profiles.iter().map(|profile| (profile.tag, profile.data.to_vec())).collect();
            Ok(ObjectValue { id: ior.type_id, profiles })
        }
    }
}
