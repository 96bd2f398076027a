//! The definitions of an IDL file, resolved: no name is unknown, no constant unevaluated, no bound negative.

use std::ops::Index;
use std::sync::Arc;

use crate::read::{Diagnostics, IdlDiagnostic, SourceSpan, Sources};

/// All definitions of one IDL file and its includes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Specification {
    /// In order of declaration, including members of modules and interfaces. A definition within a struct, union or
    /// exception precedes it in the enclosing module or interface, with a longer [`Definition::scope`].
    pub definitions: Vec<Definition>,
    /// Those of the outermost scope, in order. A module that is opened again occurs once for each opening.
    pub root: Vec<DefinitionId>,
    /// Probable mistakes, each with the line and a caret.
    pub warnings: Vec<String>,
    /// The files that were read: for a build to watch, and for later errors.
    pub sources: Arc<Sources>,
}

impl Specification {
    /// An error about a definition, for a generator: printed with its line and a caret.
    pub fn refuse(&self, id: DefinitionId, message: impl Into<String>, help: impl Into<String>) -> Diagnostics {
        Diagnostics::one(IdlDiagnostic::at(self[id].at, message).help(help), Arc::clone(&self.sources))
    }
}

/// The index of a definition in its [`Specification`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DefinitionId(pub u32);

impl Index<DefinitionId> for Specification {
    type Output = Definition;

    fn index(&self, id: DefinitionId) -> &Definition {
        &self.definitions[id.0 as usize]
    }
}

/// One declaration.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// As written, without the underscore that escapes a keyword.
    pub name: String,
    /// Enclosing modules and interfaces and, for a definition within a member, structs, unions and exceptions,
    /// outermost first.
    pub scope: Vec<String>,
    /// `IDL:Tracking/Tracker:1.0`, with `#pragma prefix`, `ID` and `version` applied.
    pub repository_id: String,
    /// The comment before it, a line each, without comment signs.
    pub docs: Vec<String>,
    /// In order.
    pub annotations: Vec<Annotation>,
    /// True if it is in an included file: known, but not generated.
    pub included: bool,
    /// The place of its name.
    pub at: SourceSpan,
    /// Its kind.
    pub kind: DefinitionKind,
}

/// The kind of a definition.
#[derive(Clone, Debug, PartialEq)]
pub enum DefinitionKind {
    /// One opening of a module.
    Module(Vec<DefinitionId>),
    /// `const`.
    Constant(Type, ConstantValue),
    /// `typedef`, one for each declarator.
    Alias(Type),
    /// `struct`; the members of its base are first.
    Struct(Vec<Member>),
    /// `exception`.
    Exception(Vec<Member>),
    /// `union`.
    Union(Union),
    /// `enum`: names, with their comments.
    Enum(Vec<Enumerator>),
    /// `interface`.
    Interface(IdlInterface),
}

/// A member of a struct or exception, or a parameter's type and name.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// As written.
    pub name: String,
    /// The comment before it.
    pub docs: Vec<String>,
    /// In order.
    pub annotations: Vec<Annotation>,
    /// Its type.
    pub of: Type,
}

/// A name of an enumeration; its value is its position.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumerator {
    /// As written.
    pub name: String,
    /// The comment before it.
    pub docs: Vec<String>,
}

/// `union NAME switch (TYPE)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Union {
    /// An integer type, `char`, `wchar`, `boolean`, `octet` or an enumeration.
    pub discriminator: Type,
    /// In order.
    pub cases: Vec<Case>,
}

/// One member of a union.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its labels; none for one that has only `default`.
    pub labels: Vec<ConstantValue>,
    /// True if `default` is among its labels.
    pub default: bool,
    /// Its member.
    pub member: Member,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdlInterface {
    /// `local interface`: never remote, rejected by generators of stubs.
    pub local: bool,
    /// `abstract interface`.
    pub is_abstract: bool,
    /// Declared forward, and not defined in the files that were read.
    pub forward: bool,
    /// Its bases, in order.
    pub bases: Vec<DefinitionId>,
    /// Types, constants and exceptions declared inside, in order.
    pub definitions: Vec<DefinitionId>,
    /// Its own operations, in order.
    pub operations: Vec<IdlOperation>,
    /// Its own attributes, in order.
    pub attributes: Vec<Attribute>,
}

/// An operation.
#[derive(Clone, Debug, PartialEq)]
pub struct IdlOperation {
    /// As written.
    pub name: String,
    /// The comment before it.
    pub docs: Vec<String>,
    /// In order.
    pub annotations: Vec<Annotation>,
    /// True if it has no reply.
    pub oneway: bool,
    /// `None` for `void`.
    pub result: Option<Type>,
    /// In order.
    pub parameters: Vec<Parameter>,
    /// The exceptions it may raise.
    pub raises: Vec<DefinitionId>,
}

/// The direction of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the object.
    In,
    /// From the object.
    Out,
    /// Both.
    InOut,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its direction.
    pub direction: Direction,
    /// Its name and type.
    pub member: Member,
}

/// An attribute; `_get_NAME` and `_set_NAME` on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its name and type.
    pub member: Member,
    /// True if it cannot be set.
    pub readonly: bool,
    /// The exceptions of reading it.
    pub get_raises: Vec<DefinitionId>,
    /// The exceptions of setting it.
    pub set_raises: Vec<DefinitionId>,
}

/// A type in use.
#[derive(Clone, Debug, PartialEq)]
pub enum Type {
    /// `short`, `int16`.
    Short,
    /// `unsigned short`, `uint16`.
    UShort,
    /// `long`, `int32`.
    Long,
    /// `unsigned long`, `uint32`.
    ULong,
    /// `long long`, `int64`.
    LongLong,
    /// `unsigned long long`, `uint64`.
    ULongLong,
    /// `int8`.
    Int8,
    /// `uint8`.
    UInt8,
    /// `float`.
    Float,
    /// `double`.
    Double,
    /// `long double`, sixteen octets.
    LongDouble,
    /// `boolean`.
    Boolean,
    /// `char`.
    Char,
    /// `wchar`.
    WChar,
    /// `octet`.
    Octet,
    /// `any`.
    Any,
    /// `Object`.
    Object,
    /// `CORBA::TypeCode`.
    TypeCode,
    /// `string`, with its bound if it has one.
    String(Option<u32>),
    /// `wstring`.
    WString(Option<u32>),
    /// `fixed<digits, scale>`.
    Fixed {
        /// All digits, at most 31.
        digits: u16,
        /// Those after the point.
        scale: i16,
    },
    /// `sequence<of>`, with its bound if it has one.
    Sequence(Box<Type>, Option<u32>),
    /// `of name[a][b]`: dimensions, outermost first.
    Array(Box<Type>, Vec<u32>),
    /// A struct, union, enumeration, interface or typedef.
    Named(DefinitionId),
}

/// A constant's value, or a union's label.
#[derive(Clone, Debug, PartialEq)]
pub enum ConstantValue {
    /// Of any integer type, and `octet`.
    Integer(i128),
    /// `float`, `double`, `long double`.
    Floating(f64),
    /// `fixed`: its digits and scale.
    Fixed {
        /// All digits, with the sign.
        digits: i128,
        /// How many of them are after the point.
        scale: i16,
    },
    /// `boolean`.
    Boolean(bool),
    /// `char`, `wchar`.
    Char(char),
    /// `string`, `wstring`.
    String(String),
    /// An enumeration and the position of the name in it.
    Enumerator(DefinitionId, u32),
}

/// `@name(argument, key = argument)`: kept for generators.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotation {
    /// Without the at sign.
    pub name: String,
    /// Key (empty for a sole argument) and value as written.
    pub arguments: Vec<(String, String)>,
}
