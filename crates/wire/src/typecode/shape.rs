//! The structure of type codes.

use core::fmt;

use super::{TypeCode, TypeIndex, TypeNode};

macro_rules! kinds {
    ($($kind:ident $number:literal $name:literal;)*) => {
        /// The kinds of type codes, with the standard's numbers (part 1, 8.11.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum TypeKind { $(#[doc = concat!("`", $name, "`.")] $kind = $number,)* }

        impl TypeKind {
            /// The one with this number.
            pub const fn from_number(number: u32) -> Option<TypeKind> {
                match number { $($number => Some(TypeKind::$kind),)* _ => None }
            }

            /// Its name in IDL.
            pub const fn name(self) -> &'static str {
                match self { $(TypeKind::$kind => $name,)* }
            }
        }
    };
}

kinds! {
    Null 0 "null"; Void 1 "void"; Short 2 "short"; Long 3 "long"; UShort 4 "unsigned short"; ULong 5 "unsigned long";
    Float 6 "float"; Double 7 "double"; Boolean 8 "boolean"; Char 9 "char"; Octet 10 "octet"; Any 11 "any";
    TypeCode 12 "TypeCode"; Principal 13 "Principal"; Object 14 "interface"; Struct 15 "struct"; Union 16 "union";
    Enum 17 "enum"; String 18 "string"; Sequence 19 "sequence"; Array 20 "array"; Alias 21 "typedef";
    Exception 22 "exception"; LongLong 23 "long long"; ULongLong 24 "unsigned long long"; LongDouble 25 "long double";
    WChar 26 "wchar"; WString 27 "wstring"; Fixed 28 "fixed"; Value 29 "valuetype"; ValueBox 30 "boxed valuetype";
    Native 31 "native"; AbstractInterface 32 "abstract interface"; LocalInterface 33 "local interface";
    Component 34 "component"; Home 35 "home"; Event 36 "eventtype";
}

/// The structure of a type.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TypeShape<'a> {
    /// A kind without parameters.
    Simple(TypeKind),
    /// The most characters, 0 for no bound.
    String(u32),
    /// The most characters, 0 for no bound.
    WString(u32),
    /// `fixed<digits, scale>`.
    Fixed {
        /// All digits.
        digits: u16,
        /// Those after the point.
        scale: i16,
    },
    /// A sequence.
    Sequence {
        /// Of its elements.
        of: TypeCode,
        /// The most of them, 0 for no bound.
        most: u32,
    },
    /// One dimension of an array.
    Array {
        /// Of its elements.
        of: TypeCode,
        /// How many there are.
        length: u32,
    },
    /// A typedef of another type.
    Alias(TypeCode),
    /// An interface, or another type that is known only by its name.
    Named(TypeKind),
    /// An enumeration.
    Enum(Members<'a>),
    /// A struct.
    Struct(Members<'a>),
    /// An exception.
    Exception(Members<'a>),
    /// A union.
    Union {
        /// Of its discriminator.
        discriminator: TypeCode,
        /// Its cases.
        cases: Cases<'a>,
    },
}

/// Names in order, with their types; those of an enumeration have `unsigned long`.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    code: &'a TypeCode,
    next: usize,
}

/// Cases of a union in order: label (none for `default`), name, type.
#[derive(Clone, Debug)]
pub struct Cases<'a> {
    code: &'a TypeCode,
    next: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, TypeCode);

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next;
        self.next += 1;
        match self.code.node(self.code.root)? {
            TypeNode::Struct { members, .. } => members.get(next).map(|(name, of)| (&**name, self.code.at(*of))),
            TypeNode::Enum { names, .. } => {
                names.get(next).map(|name| (&**name, self.code.at(TypeIndex::of_simple(TypeKind::ULong))))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for Cases<'a> {
    type Item = (Option<i128>, &'a str, TypeCode);

    fn next(&mut self) -> Option<Self::Item> {
        let Some(TypeNode::Union { cases, .. }) = self.code.node(self.code.root) else { return None };
        let (label, name, of) = cases.get(self.next)?;
        self.next += 1;
        Some((*label, name, self.code.at(*of)))
    }
}

impl TypeCode {
    /// Its kind.
    pub fn kind(&self) -> TypeKind {
        match (self.root.simple(), self.node(self.root)) {
            (Some(kind), _) => kind,
            (None, Some(TypeNode::String(_))) => TypeKind::String,
            (None, Some(TypeNode::WString(_))) => TypeKind::WString,
            (None, Some(TypeNode::Fixed { .. })) => TypeKind::Fixed,
            (None, Some(TypeNode::Sequence { .. })) => TypeKind::Sequence,
            (None, Some(TypeNode::Array { .. })) => TypeKind::Array,
            (None, Some(TypeNode::Alias { .. })) => TypeKind::Alias,
            (None, Some(TypeNode::Named { kind, .. })) => *kind,
            (None, Some(TypeNode::Enum { .. })) => TypeKind::Enum,
            (None, Some(TypeNode::Struct { exception: false, .. })) => TypeKind::Struct,
            (None, Some(TypeNode::Struct { exception: true, .. })) => TypeKind::Exception,
            (None, Some(TypeNode::Union { .. })) => TypeKind::Union,
            (None, None) => TypeKind::Null,
        }
    }

    /// Its structure.
    pub fn shape(&self) -> TypeShape<'_> {
        match self.node(self.root) {
            None => TypeShape::Simple(self.kind()),
            Some(TypeNode::String(most)) => TypeShape::String(*most),
            Some(TypeNode::WString(most)) => TypeShape::WString(*most),
            Some(TypeNode::Fixed { digits, scale }) => TypeShape::Fixed { digits: *digits, scale: *scale },
            Some(TypeNode::Sequence { of, most }) => TypeShape::Sequence { of: self.at(*of), most: *most },
            Some(TypeNode::Array { of, length }) => TypeShape::Array { of: self.at(*of), length: *length },
            Some(TypeNode::Alias { of, .. }) => TypeShape::Alias(self.at(*of)),
            Some(TypeNode::Named { kind, .. }) => TypeShape::Named(*kind),
            Some(TypeNode::Enum { .. }) => TypeShape::Enum(Members { code: self, next: 0 }),
            Some(TypeNode::Struct { exception: false, .. }) => TypeShape::Struct(Members { code: self, next: 0 }),
            Some(TypeNode::Struct { exception: true, .. }) => TypeShape::Exception(Members { code: self, next: 0 }),
            Some(TypeNode::Union { discriminator, .. }) => {
                TypeShape::Union { discriminator: self.at(*discriminator), cases: Cases { code: self, next: 0 } }
            }
        }
    }

    /// Its repository id; empty if it has none, or a peer omitted it.
    pub fn id(&self) -> &str {
        self.node(self.root).map_or("", |node| node.title().0)
    }

    /// Its name; empty if it has none, or a peer omitted it.
    pub fn name(&self) -> &str {
        self.node(self.root).map_or("", |node| node.title().1)
    }

    /// The position of `default` among the cases of a union.
    pub fn default_index(&self) -> Option<usize> {
        match self.node(self.root)? {
            TypeNode::Union { cases, .. } => cases.iter().position(|(label, _, _)| label.is_none()),
            _ => None,
        }
    }
}

impl TypeNode {
    /// Id and name.
    pub(super) fn title(&self) -> (&str, &str) {
        match self {
            TypeNode::Alias { id, name, .. }
            | TypeNode::Named { id, name, .. }
            | TypeNode::Enum { id, name, .. }
            | TypeNode::Struct { id, name, .. }
            | TypeNode::Union { id, name, .. } => (id, name),
            TypeNode::String(_)
            | TypeNode::WString(_)
            | TypeNode::Fixed { .. }
            | TypeNode::Sequence { .. }
            | TypeNode::Array { .. } => ("", ""),
        }
    }
}

/// The type's name in IDL: `sequence<Position, 5>`.
impl fmt::Display for TypeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An anonymous type's name is bounded by its nesting, which the decoder bounds.
        match self.shape() {
            TypeShape::Simple(kind) => f.write_str(kind.name()),
            TypeShape::String(0) => f.write_str("string"),
            TypeShape::String(most) => write!(f, "string<{most}>"),
            TypeShape::WString(0) => f.write_str("wstring"),
            TypeShape::WString(most) => write!(f, "wstring<{most}>"),
            TypeShape::Fixed { digits, scale } => write!(f, "fixed<{digits}, {scale}>"),
            TypeShape::Sequence { of, most: 0 } => write!(f, "sequence<{of}>"),
            TypeShape::Sequence { of, most } => write!(f, "sequence<{of}, {most}>"),
            TypeShape::Array { of, length } => write!(f, "{of}[{length}]"),
            _ if !self.name().is_empty() => f.write_str(self.name()),
            _ if !self.id().is_empty() => f.write_str(self.id()),
            _ => write!(f, "{} without a name", self.kind().name()),
        }
    }
}

impl fmt::Debug for TypeCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TypeCode({} {self})", self.kind().name())
    }
}
