//! Builds type codes, also those of Rust's own types.

use alloc::{borrow::Cow, boxed::Box, collections::BTreeMap, string::String, vec::Vec};

use super::{Case, TypeCode, TypeKind, TypeNode, is_finite, unaliased};
use crate::types::{Fixed, LongDouble, WChar, WString};

/// A type with a type code. Code generated from IDL implements it; a manual implementation:
///
/// ```
/// use hyoshi_wire::typecode::{TypeIndex, Typed, Types};
///
/// struct Tree { label: String, branches: Vec<Tree> }
///
/// impl Typed for Tree {
///     fn describe(types: &mut Types) -> TypeIndex {
///         types.structure("IDL:Forest/Tree:1.0", "Tree", |types| {
///             [("label", String::describe(types)), ("branches", <Vec<Tree>>::describe(types))]
///         })
///     }
/// }
/// assert_eq!(Tree::type_code().id(), "IDL:Forest/Tree:1.0");
/// ```
pub trait Typed {
    /// Describes the type. A recursive one needs no care: its inner occurrence is found by its id.
    fn describe(types: &mut Types) -> TypeIndex;

    /// Its type code. It is built at each call; generated code caches it.
    fn type_code() -> TypeCode {
        TypeCode::of::<Self>()
    }
}

/// A type among [`Types`], valid only there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeIndex(u32);

impl TypeIndex {
    /// Numbers below belong to kinds without parameters.
    const SIMPLE: u32 = 64;

    pub(super) const fn of_simple(kind: TypeKind) -> Self {
        TypeIndex(kind as u32)
    }

    pub(super) fn of_place(place: usize) -> Self {
        // Each node has at least four octets of a message, so there are fewer than 2^30.
        TypeIndex(place as u32 + Self::SIMPLE)
    }

    pub(crate) fn simple(self) -> Option<TypeKind> {
        if self.0 < Self::SIMPLE { TypeKind::from_number(self.0) } else { None }
    }

    pub(crate) fn place(self) -> Option<usize> {
        self.0.checked_sub(Self::SIMPLE).map(|place| place as usize)
    }
}

/// The types of a type code under construction.
///
/// A struct, union, exception, enumeration, alias or interface is identified by its repository id: describing it again,
/// also inside itself, finds the first.
#[derive(Debug, Default)]
pub struct Types {
    nodes: Vec<TypeNode>,
    known: BTreeMap<Box<str>, TypeIndex>,
}

impl Types {
    fn push(&mut self, node: TypeNode) -> TypeIndex {
        self.nodes.push(node);
        TypeIndex::of_place(self.nodes.len() - 1)
    }

    /// The type with this id, or a new one: its index is known before its content.
    fn named(&mut self, id: &str, content: impl FnOnce(&mut Types) -> TypeNode) -> TypeIndex {
        if let Some(known) = self.known.get(id) {
            return *known;
        }
        let at = self.push(TypeNode::String(0));
        if !id.is_empty() {
            self.known.insert(id.into(), at);
        }
        let node = content(self);
        self.nodes[at.place().unwrap_or_default()] = node;
        at
    }

    /// A kind without parameters: a number, `any`, `TypeCode`, `void`, a string without bound.
    pub fn simple(&mut self, kind: TypeKind) -> TypeIndex {
        match kind {
            TypeKind::String => self.push(TypeNode::String(0)),
            TypeKind::WString => self.push(TypeNode::WString(0)),
            _ => TypeIndex::of_simple(kind),
        }
    }

    /// `string<most>`; 0 for no bound.
    pub fn string(&mut self, most: u32) -> TypeIndex {
        self.push(TypeNode::String(most))
    }

    /// `wstring<most>`; 0 for no bound.
    pub fn wstring(&mut self, most: u32) -> TypeIndex {
        self.push(TypeNode::WString(most))
    }

    /// `fixed<digits, scale>`.
    pub fn fixed(&mut self, digits: u16, scale: i16) -> TypeIndex {
        self.push(TypeNode::Fixed { digits, scale })
    }

    /// `sequence<of, most>`; 0 for no bound.
    pub fn sequence(&mut self, of: TypeIndex, most: u32) -> TypeIndex {
        self.push(TypeNode::Sequence { of, most })
    }

    /// `of name[length]`; several dimensions are arrays of arrays.
    pub fn array(&mut self, of: TypeIndex, length: u32) -> TypeIndex {
        self.push(TypeNode::Array { of, length })
    }

    /// `typedef of name`.
    pub fn alias(&mut self, id: &str, name: &str, of: impl FnOnce(&mut Types) -> TypeIndex) -> TypeIndex {
        self.named(id, |types| TypeNode::Alias { id: id.into(), name: name.into(), of: of(types) })
    }

    /// An interface; `Object` itself is `IDL:omg.org/CORBA/Object:1.0`.
    pub fn interface(&mut self, id: &str, name: &str) -> TypeIndex {
        self.named(id, |_| TypeNode::Named { kind: TypeKind::Object, id: id.into(), name: name.into() })
    }

    /// `enum name { names }`.
    pub fn enumeration(&mut self, id: &str, name: &str, names: &[&str]) -> TypeIndex {
        let names = names.iter().map(|name| Box::from(*name)).collect();
        self.named(id, |_| TypeNode::Enum { id: id.into(), name: name.into(), names })
    }

    /// `struct name { members }`.
    pub fn structure<'n, M>(&mut self, id: &str, name: &str, members: impl FnOnce(&mut Types) -> M) -> TypeIndex
    where
        M: IntoIterator<Item = (&'n str, TypeIndex)>,
    {
        self.record(false, id, name, members)
    }

    /// `exception name { members }`.
    pub fn exception<'n, M>(&mut self, id: &str, name: &str, members: impl FnOnce(&mut Types) -> M) -> TypeIndex
    where
        M: IntoIterator<Item = (&'n str, TypeIndex)>,
    {
        self.record(true, id, name, members)
    }

    fn record<'n, M>(
        &mut self,
        exception: bool,
        id: &str,
        name: &str,
        members: impl FnOnce(&mut Types) -> M,
    ) -> TypeIndex
    where
        M: IntoIterator<Item = (&'n str, TypeIndex)>,
    {
        self.named(id, |types| {
            let members = members(types).into_iter().map(|(name, of)| (name.into(), of)).collect();
            TypeNode::Struct { exception, id: id.into(), name: name.into(), members }
        })
    }

    /// `union name switch (discriminator) { cases }`: label, name and type of each; a member with several labels occurs
    /// once for each, and without label for `default`. A label is the integer, 0 or 1 for a boolean, the code point of
    /// a character, the position of an enumerator.
    pub fn union<'n, C>(
        &mut self,
        id: &str,
        name: &str,
        discriminator: impl FnOnce(&mut Types) -> TypeIndex,
        cases: impl FnOnce(&mut Types) -> C,
    ) -> TypeIndex
    where
        C: IntoIterator<Item = (Option<i128>, &'n str, TypeIndex)>,
    {
        self.named(id, |types| {
            let discriminator = discriminator(types);
            // An `int8` is an octet here, and so are its labels.
            let octet = unaliased(&types.nodes, discriminator) == TypeIndex::of_simple(TypeKind::Octet);
            let label = |label: i128| if octet { label & 0xff } else { label };
            let cases = cases(types).into_iter().map(|(of, name, case)| (of.map(label), name.into(), case));
            let cases: Box<[_]> = cases.collect();
            let by_label = index_labels(&cases);
            TypeNode::Union { id: id.into(), name: name.into(), discriminator, cases, by_label }
        })
    }

    /// A type that is already a type code.
    pub fn embed(&mut self, code: &TypeCode) -> TypeIndex {
        let first = self.nodes.len();
        let moved = |of: TypeIndex| of.place().map_or(of, |place| TypeIndex::of_place(first + place));
        for mut node in code.nodes().iter().cloned() {
            match &mut node {
                TypeNode::Sequence { of, .. } | TypeNode::Array { of, .. } | TypeNode::Alias { of, .. } => {
                    *of = moved(*of)
                }
                TypeNode::Struct { members, .. } => members.iter_mut().for_each(|(_, of)| *of = moved(*of)),
                TypeNode::Union { discriminator, cases, .. } => {
                    *discriminator = moved(*discriminator);
                    cases.iter_mut().for_each(|(_, _, of)| *of = moved(*of));
                }
                TypeNode::String(_)
                | TypeNode::WString(_)
                | TypeNode::Fixed { .. }
                | TypeNode::Named { .. }
                | TypeNode::Enum { .. } => {}
            }
            self.nodes.push(node);
        }
        moved(code.root)
    }

    pub(super) fn finish(self, root: TypeIndex) -> TypeCode {
        assert!(is_finite(&self.nodes), "a type that contains itself other than through a sequence");
        let nodes = root.place().map(|place| {
            assert!(place < self.nodes.len(), "a type of other types");
            self.nodes.into()
        });
        TypeCode { nodes, root }
    }
}

/// The positions of the cases with labels, in the order of the labels.
pub(super) fn index_labels(cases: &[Case]) -> Box<[u32]> {
    let mut places: Vec<u32> = (0..cases.len() as u32).filter(|place| cases[*place as usize].0.is_some()).collect();
    places.sort_by_key(|place| cases[*place as usize].0);
    places.into()
}

macro_rules! simple {
    ($($type:ty: $kind:ident)*) => { $(
        impl Typed for $type {
            fn describe(types: &mut Types) -> TypeIndex {
                types.simple(TypeKind::$kind)
            }
        }
    )* };
}

simple! {
    (): Void bool: Boolean u8: Octet char: Char WChar: WChar
    i16: Short u16: UShort i32: Long u32: ULong i64: LongLong u64: ULongLong
    f32: Float f64: Double LongDouble: LongDouble
    str: String String: String WString: WString TypeCode: TypeCode
}

/// `int8` is sent as an octet: CORBA 3.3 has no type code for it.
impl Typed for i8 {
    fn describe(types: &mut Types) -> TypeIndex {
        types.simple(TypeKind::Octet)
    }
}

impl<const D: u16, const S: i16> Typed for Fixed<D, S> {
    fn describe(types: &mut Types) -> TypeIndex {
        types.fixed(D, S)
    }
}

impl<T: Typed> Typed for [T] {
    fn describe(types: &mut Types) -> TypeIndex {
        let of = T::describe(types);
        types.sequence(of, 0)
    }
}

impl<T: Typed> Typed for Vec<T> {
    fn describe(types: &mut Types) -> TypeIndex {
        <[T]>::describe(types)
    }
}

/// # Panics
///
/// If it has more than 2^32 elements, which IDL does not allow.
impl<T: Typed, const N: usize> Typed for [T; N] {
    fn describe(types: &mut Types) -> TypeIndex {
        let of = T::describe(types);
        types.array(
            of,
            const {
                assert!(N <= u32::MAX as usize);
                N as u32
            },
        )
    }
}

impl Typed for Cow<'_, str> {
    fn describe(types: &mut Types) -> TypeIndex {
        str::describe(types)
    }
}

impl<T: Typed + ?Sized> Typed for &T {
    fn describe(types: &mut Types) -> TypeIndex {
        T::describe(types)
    }
}

impl<T: Typed> Typed for Box<T> {
    fn describe(types: &mut Types) -> TypeIndex {
        T::describe(types)
    }
}
