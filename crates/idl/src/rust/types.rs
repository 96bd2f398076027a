//! Types in use: the Rust type, the way to pass a parameter, the derivable traits.

use std::collections::BTreeSet;

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::scope::Scope;
use crate::tree::{ConstantValue, DefinitionId, DefinitionKind, IdlInterface, Type};

/// A trait that a type may derive beyond `Clone` and `Debug`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Derive {
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
}

impl Scope<'_> {
    /// The type behind all typedefs.
    pub fn resolve<'t>(&'t self, of: &'t Type) -> &'t Type {
        match of {
            Type::Named(id) => match &self.get(*id).kind {
                DefinitionKind::Alias(inner) => self.resolve(inner),
                _ => of,
            },
            _ => of,
        }
    }

    /// The interface of a reference, if it has stubs.
    pub fn interface(&self, of: &Type) -> Option<(DefinitionId, &IdlInterface)> {
        match self.resolve(of) {
            Type::Named(id) => match &self.get(*id).kind {
                DefinitionKind::Interface(interface) if !interface.forward => Some((*id, interface)),
                _ => None,
            },
            _ => None,
        }
    }

    /// True for a reference to an object, of whatever interface.
    pub fn is_reference(&self, of: &Type) -> bool {
        match self.resolve(of) {
            Type::Object => true,
            Type::Named(id) => matches!(self.get(*id).kind, DefinitionKind::Interface(_)),
            _ => false,
        }
    }

    /// The type of a reference, without the `Option` that lets it be nil.
    fn stub(&self, of: &Type) -> TokenStream {
        match self.interface(of) {
            Some((id, _)) => self.at(id, &self.names.made(id).stub),
            None => self.orb("ObjectRef"),
        }
    }

    /// As a member, result or element.
    pub fn owned(&self, of: &Type) -> TokenStream {
        match of {
            Type::Short => quote!(i16),
            Type::UShort => quote!(u16),
            Type::Long => quote!(i32),
            Type::ULong => quote!(u32),
            Type::LongLong => quote!(i64),
            Type::ULongLong => quote!(u64),
            Type::Int8 => quote!(i8),
            Type::UInt8 | Type::Octet => quote!(u8),
            Type::Float => quote!(f32),
            Type::Double => quote!(f64),
            Type::LongDouble => self.orb("LongDouble"),
            Type::Boolean => quote!(bool),
            Type::Char => quote!(char),
            Type::WChar => self.orb("WChar"),
            Type::Any => self.orb("Any"),
            Type::TypeCode => self.orb("TypeCode"),
            Type::String(_) => self.prelude("String"),
            Type::WString(_) => self.orb("WString"),
            Type::Fixed { digits, scale } => {
                let (fixed, digits, scale) =
                    (self.orb("Fixed"), Literal::u16_unsuffixed(*digits), Literal::i16_unsuffixed(*scale));
                quote!(#fixed<#digits, #scale>)
            }
            Type::Sequence(of, _) => {
                let (vec, of) = (self.prelude("Vec"), self.owned(of));
                quote!(#vec<#of>)
            }
            Type::Array(of, dimensions) => {
                let of = self.owned(of);
                dimensions.iter().rev().fold(of, |of, length| {
                    let length = Literal::u32_unsuffixed(*length);
                    quote!([#of; #length])
                })
            }
            Type::Named(id) => match &self.get(*id).kind {
                DefinitionKind::Interface(_) => self.option(&self.stub(of)),
                _ => self.definition(*id),
            },
            Type::Object => self.option(&self.stub(of)),
        }
    }

    /// `Option<of>`.
    pub fn option(&self, of: &TokenStream) -> TokenStream {
        let option = self.prelude("Option");
        quote!(#option<#of>)
    }

    /// `Result<of, error>`.
    pub fn result(&self, of: &TokenStream, error: &TokenStream) -> TokenStream {
        let result = self.prelude("Result");
        quote!(#result<#of, #error>)
    }

    /// As the head of a path expression: `Vec::<u8>`, `<[u8; 4]>`, `Position`.
    pub fn head(&self, of: &Type) -> TokenStream {
        match of {
            Type::Sequence(inner, _) => {
                let (vec, inner) = (self.prelude("Vec"), self.owned(inner));
                quote!(#vec::<#inner>)
            }
            Type::Fixed { .. } | Type::Array(..) => {
                let of = self.owned(of);
                quote!(<#of>)
            }
            _ if matches!(of, Type::Object) || self.is_direct_reference(of) => {
                let (option, stub) = (self.prelude("Option"), self.stub(of));
                quote!(#option::<#stub>)
            }
            _ => self.owned(of),
        }
    }

    fn is_direct_reference(&self, of: &Type) -> bool {
        matches!(of, Type::Named(id) if matches!(self.get(*id).kind, DefinitionKind::Interface(_)))
    }

    /// True for types that parameters pass by value.
    pub fn is_by_value(&self, of: &Type) -> bool {
        match self.resolve(of) {
            Type::String(_) | Type::WString(_) | Type::Sequence(..) | Type::Array(..) => false,
            Type::Any | Type::TypeCode | Type::Object => false,
            Type::Named(id) => matches!(self.get(*id).kind, DefinitionKind::Enum(_)),
            _ => true,
        }
    }

    /// As a parameter towards the object.
    pub fn borrowed(&self, of: &Type) -> TokenStream {
        if self.is_by_value(of) {
            return self.owned(of);
        }
        match self.resolve(of) {
            Type::String(_) => quote!(&str),
            Type::Sequence(of, _) => {
                let of = self.owned(of);
                quote!(&[#of])
            }
            _ if self.is_reference(of) => {
                let stub = self.stub(of);
                self.option(&quote!(&#stub))
            }
            _ => {
                let of = self.owned(of);
                quote!(&#of)
            }
        }
    }

    /// Whether a type has a derivable trait. Recursion goes through sequences, which have the traits of their elements.
    pub fn has(&self, of: &Type, derive: Derive) -> bool {
        self.has_within(of, derive, &mut BTreeSet::new())
    }

    fn has_within(&self, of: &Type, derive: Derive, seen: &mut BTreeSet<DefinitionId>) -> bool {
        match of {
            Type::Float | Type::Double | Type::LongDouble => !matches!(derive, Derive::Eq | Derive::Hash),
            Type::Any => !matches!(derive, Derive::Copy | Derive::Hash),
            Type::TypeCode => matches!(derive, Derive::PartialEq | Derive::Eq),
            Type::Object => reference_has(derive),
            Type::String(_) | Type::WString(_) => derive != Derive::Copy,
            Type::Sequence(of, _) => match derive {
                Derive::Copy => false,
                Derive::Default => true,
                _ => self.has_within(of, derive, seen),
            },
            Type::Array(of, dimensions) => {
                // The standard library has `Default` for arrays of up to 32.
                (derive != Derive::Default || dimensions.iter().all(|length| *length <= 32))
                    && self.has_within(of, derive, seen)
            }
            Type::Named(id) => {
                if !seen.insert(*id) {
                    return true;
                }
                match &self.get(*id).kind {
                    DefinitionKind::Alias(of) => self.has_within(of, derive, seen),
                    DefinitionKind::Struct(members) | DefinitionKind::Exception(members) => {
                        members.iter().all(|member| self.has_within(&member.of, derive, seen))
                    }
                    DefinitionKind::Union(union) => {
                        derive != Derive::Default
                            && union.cases.iter().all(|case| self.has_within(&case.member.of, derive, seen))
                    }
                    DefinitionKind::Enum(_) => true,
                    DefinitionKind::Interface(_) => reference_has(derive),
                    DefinitionKind::Module(_) | DefinitionKind::Constant(..) => true,
                }
            }
            _ => true,
        }
    }

    /// `#[derive(..)]` with all traits that these types allow.
    pub fn derives<'t>(&self, of: impl Iterator<Item = &'t Type> + Clone, never: &[Derive]) -> TokenStream {
        let has = |derive| !never.contains(&derive) && of.clone().all(|of| self.has(of, derive));
        let mut all = vec![quote!(Clone)];
        for (derive, name) in [
            (Some(Derive::Copy), quote!(Copy)),
            (None, quote!(Debug)),
            (Some(Derive::Default), quote!(Default)),
            (Some(Derive::PartialEq), quote!(PartialEq)),
            (Some(Derive::Eq), quote!(Eq)),
            (Some(Derive::Hash), quote!(Hash)),
        ] {
            if derive.is_none_or(has) {
                all.push(name);
            }
        }
        quote!(#[derive(#(#all),*)])
    }

    /// The least octets of one value.
    pub fn least(&self, of: &Type) -> u64 {
        match of {
            Type::Boolean | Type::Char | Type::Octet | Type::UInt8 | Type::Int8 => 1,
            Type::Short | Type::UShort => 2,
            // One octet in GIOP 1.2's length, or two as a bare unit.
            Type::WChar => 1,
            Type::Long | Type::ULong | Type::Float => 4,
            Type::LongLong | Type::ULongLong | Type::Double => 8,
            Type::LongDouble => 16,
            Type::Fixed { digits, .. } => u64::from(*digits) / 2 + 1,
            Type::String(_) | Type::WString(_) | Type::Sequence(..) | Type::Any | Type::TypeCode => 4,
            Type::Object => 8,
            Type::Array(of, dimensions) => {
                dimensions.iter().fold(self.least(of), |least, length| least.saturating_mul(u64::from(*length)))
            }
            Type::Named(id) => match &self.get(*id).kind {
                DefinitionKind::Alias(of) => self.least(of),
                DefinitionKind::Struct(members) | DefinitionKind::Exception(members) => {
                    members.iter().map(|member| self.least(&member.of)).fold(0, u64::saturating_add).max(1)
                }
                DefinitionKind::Union(union) => self.least(&union.discriminator),
                DefinitionKind::Enum(_) => 4,
                _ => 8,
            },
        }
    }

    /// A constant's value.
    pub fn value(&self, value: &ConstantValue, of: &Type) -> TokenStream {
        match (value, self.resolve(of)) {
            (ConstantValue::Integer(value), _) => integer(*value),
            (ConstantValue::Floating(value), Type::LongDouble) => {
                let bits = format!("{:#034x}", quadruple(*value)).parse::<Literal>();
                let (long, bits) = (self.orb("LongDouble"), bits.unwrap_or_else(|_| Literal::u128_unsuffixed(0)));
                quote!(#long::from_bits(#bits))
            }
            (ConstantValue::Floating(value), of) => floating(*value, of),
            (ConstantValue::Boolean(value), _) => quote!(#value),
            (ConstantValue::Char(value), Type::WChar) => {
                let wide = self.orb("WChar");
                quote!(#wide(#value))
            }
            (ConstantValue::Char(value), _) => quote!(#value),
            (ConstantValue::String(value), _) => quote!(#value),
            (ConstantValue::Enumerator(id, at), _) => self.enumerator(*id, *at),
            (ConstantValue::Fixed { digits, .. }, _) => {
                let (of, digits) = (self.head(of), integer(*digits));
                quote!(#of::of_unscaled(#digits))
            }
        }
    }

    /// `Colour::Red`.
    pub fn enumerator(&self, id: DefinitionId, at: u32) -> TokenStream {
        let variant = match &self.get(id).kind {
            DefinitionKind::Enum(all) => {
                let names = super::names::distinct(all.iter().map(|one| one.name.as_str()), super::names::camel);
                names.get(at as usize).cloned().unwrap_or_default()
            }
            _ => String::new(),
        };
        let (name, variant) = (self.definition(id), super::names::ident(&variant));
        quote!(#name::#variant)
    }
}

/// References compare as data: addresses and a key.
fn reference_has(derive: Derive) -> bool {
    !matches!(derive, Derive::Copy)
}

/// A number in readable form: one token with its sign, digits in threes from five on.
pub(super) fn integer(value: i128) -> TokenStream {
    let digits = value.unsigned_abs().to_string();
    let mut text = if value < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.char_indices() {
        if at > 0 && digits.len() > 4 && (digits.len() - at).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    match text.parse::<Literal>() {
        Ok(literal) => quote!(#literal),
        Err(_) => {
            let literal = Literal::i128_unsuffixed(value);
            quote!(#literal)
        }
    }
}

/// A constant of `float` or `double`; the reader has rejected values that are not finite.
fn floating(value: f64, of: &Type) -> TokenStream {
    if !value.is_finite() {
        let name = if value.is_nan() { "NAN" } else { "INFINITY" };
        let (sign, name) = ((value == f64::NEG_INFINITY).then(|| quote!(-)), super::names::ident(name));
        return match of {
            Type::Float => quote!(#sign f32::#name),
            _ => quote!(#sign f64::#name),
        };
    }
    let literal = match of {
        Type::Float => Literal::f32_unsuffixed(value as f32),
        _ => Literal::f64_unsuffixed(value),
    };
    quote!(#literal)
}

/// The bits of the IEEE 754 binary128 with the value of a finite `f64`.
fn quadruple(value: f64) -> u128 {
    let bits = value.to_bits();
    let (sign, exponent, fraction) = (u128::from(bits >> 63) << 127, bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    let magnitude = match (exponent, fraction) {
        (0, 0) => 0,
        (0, subnormal) => {
            // Normal in the wider format: the leading one becomes part of the exponent.
            let shift = subnormal.leading_zeros() - 11;
            let exponent = u128::from(16383 - 1022 - shift);
            exponent << 112 | (u128::from(subnormal) << shift & ((1 << 52) - 1)) << 60
        }
        (exponent, fraction) => u128::from(exponent + 16383 - 1023) << 112 | u128::from(fraction) << 60,
    };
    sign | magnitude
}
