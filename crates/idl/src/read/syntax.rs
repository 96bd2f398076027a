//! The syntax tree of a file, before names are resolved.

use super::preprocess::PreprocessorEvent;
use super::source::SourceSpan;
use crate::tree::{self, Annotation, Direction};

/// An identifier, without the underscore that escapes a keyword.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub text: String,
    pub at: SourceSpan,
}

/// `::A::B` or `A::B`.
#[derive(Clone, Debug)]
pub(crate) struct ScopedName {
    pub absolute: bool,
    pub parts: Vec<Name>,
    pub at: SourceSpan,
}

impl ScopedName {
    pub fn text(&self) -> String {
        let parts: Vec<&str> = self.parts.iter().map(|part| part.text.as_str()).collect();
        format!("{}{}", if self.absolute { "::" } else { "" }, parts.join("::"))
    }
}

/// The part before a declaration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Front {
    pub docs: Vec<String>,
    pub annotations: Vec<Annotation>,
}

/// The definitions in a file, a module or an interface.
#[derive(Debug)]
pub(crate) enum SyntaxItem {
    Event(PreprocessorEvent),
    Module {
        front: Front,
        name: Name,
        items: Vec<SyntaxItem>,
    },
    Constant {
        front: Front,
        name: Name,
        of: TypeSyntax,
        value: Expression,
    },
    Alias {
        front: Front,
        of: TypeSyntax,
        names: Vec<Declarator>,
    },
    Constructed(Constructed),
    Exception {
        front: Front,
        name: Name,
        members: Vec<MemberSyntax>,
    },
    Interface(InterfaceSyntax),
    /// `struct S;`
    ForwardStruct {
        name: Name,
    },
    /// `union U;`
    ForwardUnion {
        name: Name,
    },
    Operation(OperationSyntax),
    Attribute(AttributeSyntax),
    /// An unsupported declaration of an included file: an error only if it is used.
    Unsupported {
        name: Name,
        what: &'static str,
    },
    TypeId {
        name: ScopedName,
        id: String,
        at: SourceSpan,
    },
    TypePrefix {
        name: ScopedName,
        prefix: String,
    },
}

/// A type that is declared where it is used, or by itself.
#[derive(Debug)]
pub(crate) struct Constructed {
    pub front: Front,
    pub name: Name,
    pub what: Construction,
}

#[derive(Debug)]
pub(crate) enum Construction {
    Struct { base: Option<ScopedName>, members: Vec<MemberSyntax> },
    Union { switch: Box<TypeSyntax>, cases: Vec<CaseSyntax> },
    Enum { names: Vec<(Front, Name)> },
}

/// A type in use.
#[derive(Debug)]
pub(crate) struct TypeSyntax {
    pub at: SourceSpan,
    pub what: TypeForm,
}

#[derive(Debug)]
pub(crate) enum TypeForm {
    Basic(tree::Type),
    String {
        wide: bool,
        bound: Option<Expression>,
    },
    /// `fixed<digits, scale>`, or `fixed` alone in a constant.
    Fixed(Option<(Expression, Expression)>),
    Sequence(Box<TypeSyntax>, Option<Expression>),
    Named(ScopedName),
    Constructed(Box<Constructed>),
}

/// A name with its dimensions.
#[derive(Debug)]
pub(crate) struct Declarator {
    pub name: Name,
    pub dimensions: Vec<Expression>,
    /// The comment after it, on its line.
    pub after: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct MemberSyntax {
    pub front: Front,
    pub of: TypeSyntax,
    pub names: Vec<Declarator>,
}

#[derive(Debug)]
pub(crate) struct CaseSyntax {
    pub front: Front,
    pub labels: Vec<Label>,
    pub of: TypeSyntax,
    pub name: Declarator,
}

#[derive(Debug)]
pub(crate) enum Label {
    Value(Expression),
    Default(SourceSpan),
}

#[derive(Debug)]
pub(crate) struct InterfaceSyntax {
    pub front: Front,
    pub name: Name,
    pub local: bool,
    pub is_abstract: bool,
    pub bases: Vec<ScopedName>,
    /// `None` for a forward declaration.
    pub items: Option<Vec<SyntaxItem>>,
}

#[derive(Debug)]
pub(crate) struct OperationSyntax {
    pub front: Front,
    pub name: Name,
    pub oneway: Option<SourceSpan>,
    /// `None` for `void`.
    pub result: Option<TypeSyntax>,
    pub parameters: Vec<ParameterSyntax>,
    pub raises: Vec<ScopedName>,
}

#[derive(Debug)]
pub(crate) struct ParameterSyntax {
    pub front: Front,
    pub direction: Direction,
    pub direction_at: SourceSpan,
    pub of: TypeSyntax,
    pub name: Name,
}

#[derive(Debug)]
pub(crate) struct AttributeSyntax {
    pub front: Front,
    pub readonly: bool,
    pub of: TypeSyntax,
    pub names: Vec<Name>,
    pub get_raises: Vec<ScopedName>,
    pub set_raises: Vec<ScopedName>,
}

/// A constant expression in postfix order, so a long one needs no deep stack.
#[derive(Debug)]
pub(crate) struct Expression {
    pub steps: Vec<Step>,
    pub at: SourceSpan,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub what: StepKind,
    pub at: SourceSpan,
}

#[derive(Debug)]
pub(crate) enum StepKind {
    /// Text of a literal; adjacent strings are several.
    Literal(super::lexeme::Lexeme, Vec<SourceSpan>),
    Boolean(bool),
    Name(ScopedName),
    Unary(super::lexeme::Lexeme),
    Binary(super::lexeme::Lexeme),
}
