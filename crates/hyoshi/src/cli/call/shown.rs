//! Values of a reply as JSON, with members in the order of the IDL.

use hyoshi_orb::{Ior, TypeCode, TypeKind, Value};
use hyoshi_wire::any::ObjectValue;
use hyoshi_wire::ior::Profile;
use hyoshi_wire::typecode::TypeShape;
use serde::ser::{Serialize, Serializer};
use serde_json::{Value as Json, json};

/// JSON that keeps the order of members; `serde_json`'s own sorts them by name.
#[derive(Debug)]
pub(super) enum OrderedJson {
    Plain(Json),
    List(Vec<OrderedJson>),
    Members(Vec<(String, OrderedJson)>),
}

impl Serialize for OrderedJson {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            OrderedJson::Plain(json) => json.serialize(to),
            OrderedJson::List(items) => to.collect_seq(items),
            OrderedJson::Members(members) => to.collect_map(members.iter().map(|(name, value)| (name, value))),
        }
    }
}

impl From<Json> for OrderedJson {
    fn from(json: Json) -> Self {
        OrderedJson::Plain(json)
    }
}

impl OrderedJson {
    /// On one line.
    pub fn line(&self) -> String {
        // Cannot fail: names are texts.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// On several lines.
    pub fn lines(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// A value, by its type.
pub(super) fn shown(value: &Value, code: &TypeCode) -> OrderedJson {
    let code = code.unaliased();
    OrderedJson::Plain(match (value, code.shape()) {
        (Value::Short(value), _) => json!(value),
        (Value::UShort(value), _) => json!(value),
        (Value::Long(value), _) => json!(value),
        (Value::ULong(value), _) => json!(value),
        (Value::LongLong(value), _) => json!(value),
        (Value::ULongLong(value), _) => json!(value),
        (Value::Octet(value), _) => json!(value),
        // JSON has no infinity: a string instead.
        (Value::Float(value), _) if value.is_finite() => {
            value.to_string().parse::<f64>().map_or(json!(value), |value| json!(value))
        }
        (Value::Float(value), _) => json!(value.to_string()),
        (Value::Double(value), _) if value.is_finite() => json!(value),
        (Value::Double(value), _) => json!(value.to_string()),
        (Value::LongDouble(value), _) => json!(value.to_f64()),
        (Value::Boolean(value), _) => json!(value),
        (Value::Char(value), _) => json!(value),
        (Value::WChar(value), _) => json!(value.0),
        (Value::String(value), _) => json!(value),
        (Value::WString(value), _) => json!(&**value),
        (Value::Fixed(value), _) => json!(value.to_string()),
        (Value::Enum(place), TypeShape::Enum(mut members)) => {
            members.nth(*place as usize).map_or(json!(place), |(name, _)| json!(name))
        }
        (Value::Struct(values), TypeShape::Struct(members) | TypeShape::Exception(members)) => {
            let all = members.zip(values).map(|((name, of), value)| (name.to_owned(), shown(value, &of)));
            return OrderedJson::Members(all.collect());
        }
        (Value::Sequence(items), TypeShape::Sequence { of, .. } | TypeShape::Array { of, .. }) => {
            return OrderedJson::List(items.iter().map(|item| shown(item, &of)).collect());
        }
        (Value::Octets(octets), _) => {
            json!(octets.iter().fold("0x".to_owned(), |text, octet| format!("{text}{octet:02x}")))
        }
        (Value::Union { label, value }, TypeShape::Union { discriminator, cases }) => {
            let cases: Vec<_> = cases.collect();
            let found = cases.iter().find(|(own, _, _)| *own == Some(**label));
            let found = found.or_else(|| cases.iter().find(|(own, _, _)| own.is_none()));
            let mut members = vec![("_d".to_owned(), OrderedJson::Plain(label_json(**label, &discriminator)))];
            if let (Some((_, name, of)), Some(value)) = (found, value) {
                members.push(((*name).to_owned(), shown(value, of)));
            }
            return OrderedJson::Members(members);
        }
        (Value::Any(any), _) => match any.value() {
            Ok(value) => {
                let (of, value) = (json!(any.type_code().to_string()), shown(&value, any.type_code()));
                return OrderedJson::Members(vec![("type".to_owned(), of.into()), ("value".to_owned(), value)]);
            }
            Err(error) => json!({ "type": any.type_code().to_string(), "broken": error.to_string() }),
        },
        (Value::Object(object), _) if object.profiles.is_empty() => Json::Null,
        (Value::Object(object), _) => json!(stringified(object)),
        (Value::TypeCode(code), _) => json!(code.to_string()),
        _ => Json::Null,
    })
}

/// A discriminator, by its type.
pub(super) fn label_json(label: i128, of: &TypeCode) -> Json {
    match of.unaliased().shape() {
        TypeShape::Enum(mut members) => {
            let named = usize::try_from(label).ok().and_then(|place| members.nth(place));
            named.map_or(json!(label as i64), |(name, _)| json!(name))
        }
        TypeShape::Simple(TypeKind::Boolean) => json!(label != 0),
        TypeShape::Simple(TypeKind::Char | TypeKind::WChar) => {
            u32::try_from(label).ok().and_then(char::from_u32).map_or(Json::Null, |one| json!(one))
        }
        TypeShape::Simple(TypeKind::ULongLong) => json!(label as u64),
        _ => json!(label as i64),
    }
}

fn stringified(object: &ObjectValue) -> String {
    let profiles = object.profiles.iter().map(|(tag, data)| Profile { tag: *tag, data: data.clone() });
    Ior { type_id: object.id.clone(), profiles: profiles.collect() }.to_string()
}
