//! Types, and declarations of types: structs, unions, enumerations.

use crate::read::diagnostic::IdlDiagnostic;
use crate::read::lexeme::Lexeme;
use crate::read::syntax::{
    CaseSyntax, Constructed, Construction, Declarator, Front, Label, MemberSyntax, Name, TypeForm, TypeSyntax,
};
use crate::tree::Type;

use super::cursor::{Cursor, ParseFailure, ParseResult};

impl Cursor<'_> {
    /// A type, or the declaration of one if `declares` allows it.
    pub fn a_type(&mut self, declares: bool) -> ParseResult<TypeSyntax> {
        let start = self.at();
        let what = self.deeper(|cursor| cursor.type_what(declares))?;
        Ok(TypeSyntax { at: start.to(self.last()), what })
    }

    fn type_what(&mut self, declares: bool) -> ParseResult<TypeForm> {
        if self.kind() == Lexeme::Scope {
            return Ok(TypeForm::Named(self.scoped_name("a type")?));
        }
        if self.kind() != Lexeme::Word {
            return Err(self.unexpected("a type"));
        }
        let (at, text) = (self.at(), self.text());
        let basic = match text {
            "short" | "int16" => Type::Short,
            "int8" => Type::Int8,
            "uint8" => Type::UInt8,
            "uint16" => Type::UShort,
            "int32" => Type::Long,
            "uint32" => Type::ULong,
            "int64" => Type::LongLong,
            "uint64" => Type::ULongLong,
            "float" => Type::Float,
            "double" => Type::Double,
            "boolean" => Type::Boolean,
            "char" => Type::Char,
            "wchar" => Type::WChar,
            "octet" => Type::Octet,
            "any" => Type::Any,
            "Object" => Type::Object,
            "long" => {
                self.bump();
                let long = if self.word("long").is_some() {
                    Type::LongLong
                } else if self.word("double").is_some() {
                    Type::LongDouble
                } else {
                    Type::Long
                };
                return Ok(TypeForm::Basic(long));
            }
            "unsigned" => {
                self.bump();
                let unsigned = if self.word("short").is_some() {
                    Type::UShort
                } else if self.word("long").is_some() {
                    if self.word("long").is_some() { Type::ULongLong } else { Type::ULong }
                } else {
                    return Err(self.unexpected_among("`short` or `long`", &["short", "long"]));
                };
                return Ok(TypeForm::Basic(unsigned));
            }
            "string" | "wstring" => {
                self.bump();
                let bound = match self.sign(Lexeme::Less) {
                    Some(_) => Some(self.expression_in_angles()?),
                    None => None,
                };
                if bound.is_some() {
                    self.close_angle()?;
                }
                return Ok(TypeForm::String { wide: text == "wstring", bound });
            }
            "fixed" => {
                self.bump();
                if self.sign(Lexeme::Less).is_none() {
                    return Ok(TypeForm::Fixed(None));
                }
                let digits = self.expression_in_angles()?;
                self.expect(Lexeme::Comma, "`,` and the scale")?;
                let scale = self.expression_in_angles()?;
                self.close_angle()?;
                return Ok(TypeForm::Fixed(Some((digits, scale))));
            }
            "sequence" => {
                self.bump();
                self.expect(Lexeme::Less, "`<` and the type of the elements")?;
                let of = self.a_type(false)?;
                let bound = match self.sign(Lexeme::Comma) {
                    Some(_) => Some(self.expression_in_angles()?),
                    None => None,
                };
                self.close_angle()?;
                return Ok(TypeForm::Sequence(Box::new(of), bound));
            }
            "struct" | "union" | "enum" => {
                if !declares {
                    let help = "declare it before, with a name, and use the name here";
                    return Err(self.refuse(at, &format!("a {text} cannot be declared here"), help));
                }
                let constructed = self.constructed(Front::default())?;
                return Ok(TypeForm::Constructed(Box::new(constructed)));
            }
            "ValueBase" => return Err(self.refuse(at, "value types are not supported", VALUES)),
            "void" => {
                let help = "only an operation's result is `void`";
                return Err(self.refuse(at, "`void` is not a type", help));
            }
            "map" if self.ahead(1).kind == Lexeme::Less => {
                let help = "use a sequence of structs with a key and a value, which every CORBA program supports";
                return Err(self.refuse(at, "maps (IDL 4.2, extended data types) are not supported", help));
            }
            _ => return Ok(TypeForm::Named(self.scoped_name("a type")?)),
        };
        self.bump();
        Ok(TypeForm::Basic(basic))
    }

    /// `struct`, `union` or `enum` with its name and body.
    pub fn constructed(&mut self, front: Front) -> ParseResult<Constructed> {
        let keyword = self.bump();
        let word = self.sources.text(keyword.text);
        let name = self.name(&format!("the {word}"))?;
        let what = match word {
            "struct" => {
                let base = match self.sign(Lexeme::Colon) {
                    Some(_) => Some(self.scoped_name("the struct that it extends")?),
                    None => None,
                };
                let (next, after) = (self.kind(), self.ahead(1).kind);
                if base.is_none() && (next, after) == (Lexeme::Open, Lexeme::Close) {
                    let error = IdlDiagnostic::at(name.at, format!("the struct `{}` has no members", name.text));
                    self.findings.error(error.help("a struct has at least one member"));
                }
                Construction::Struct { base, members: self.members(word)? }
            }
            "union" => self.union()?,
            _ => self.enumeration()?,
        };
        Ok(Constructed { front, name, what })
    }

    /// Members in braces.
    pub fn members(&mut self, of: &str) -> ParseResult<Vec<MemberSyntax>> {
        self.expect(Lexeme::Open, &format!("`{{` and the members of the {of}"))?;
        let mut members = Vec::new();
        while !matches!(self.kind(), Lexeme::Close | Lexeme::End) {
            let before = self.next;
            match self.member() {
                Ok(member) => members.push(member),
                Err(ParseFailure) => self.skip(),
            }
            // A member that reads no token would loop for ever.
            if self.next == before {
                self.bump();
            }
        }
        self.expect(Lexeme::Close, "`}`")?;
        Ok(members)
    }

    fn member(&mut self) -> ParseResult<MemberSyntax> {
        let front = self.front()?;
        let of = self.a_type(true)?;
        let names = self.declarators("a member")?;
        Ok(MemberSyntax { front, of, names })
    }

    /// Names with their dimensions, up to and with the `;`.
    pub fn declarators(&mut self, of: &str) -> ParseResult<Vec<Declarator>> {
        let mut names = vec![self.declarator(of)?];
        while self.sign(Lexeme::Comma).is_some() {
            if let Some(last) = names.last_mut() {
                last.after = self.docs_after();
            }
            names.push(self.declarator(of)?);
        }
        self.semicolon()?;
        if let Some(last) = names.last_mut() {
            last.after = self.docs_after();
        }
        Ok(names)
    }

    fn declarator(&mut self, of: &str) -> ParseResult<Declarator> {
        self.annotations()?;
        let name = self.name(of)?;
        let mut dimensions = Vec::new();
        while self.sign(Lexeme::LeftSquare).is_some() {
            if self.kind() == Lexeme::RightSquare {
                let help = "add the number of elements, or use a sequence";
                return Err(self.refuse(self.at(), "an array needs its number of elements", help));
            }
            dimensions.push(self.expression()?);
            self.expect(Lexeme::RightSquare, "`]`")?;
        }
        Ok(Declarator { name, dimensions, after: Vec::new() })
    }

    fn union(&mut self) -> ParseResult<Construction> {
        if self.word("switch").is_none() {
            return Err(self.unexpected_among("`switch`", &["switch"]));
        }
        self.expect(Lexeme::Left, "`(` and the type of the discriminator")?;
        self.front()?;
        let switch = Box::new(self.a_type(true)?);
        self.expect(Lexeme::Right, "`)`")?;
        self.expect(Lexeme::Open, "`{` and the cases of the union")?;
        if self.kind() == Lexeme::Close {
            let error = IdlDiagnostic::at(self.at(), "this union has no members");
            self.findings.error(error.help("a union has at least one case"));
        }
        let mut cases = Vec::new();
        while !matches!(self.kind(), Lexeme::Close | Lexeme::End) {
            let before = self.next;
            match self.case() {
                Ok(case) => cases.push(case),
                Err(ParseFailure) => self.skip(),
            }
            if self.next == before {
                self.bump();
            }
        }
        self.expect(Lexeme::Close, "`}`")?;
        Ok(Construction::Union { switch, cases })
    }

    fn case(&mut self) -> ParseResult<CaseSyntax> {
        let mut front = self.front()?;
        let mut labels = Vec::new();
        loop {
            if self.word("case").is_some() {
                labels.push(Label::Value(self.expression()?));
            } else if let Some(at) = self.word("default") {
                labels.push(Label::Default(at));
            } else {
                break;
            }
            self.expect(Lexeme::Colon, "`:` after the label")?;
        }
        if labels.is_empty() {
            return Err(self.unexpected_among("`case` or `default`", &["case", "default"]));
        }
        // A comment can be before the label or before the member.
        let inner = self.front()?;
        front.annotations.extend(inner.annotations);
        if front.docs.is_empty() {
            front.docs = inner.docs;
        }
        let of = self.a_type(true)?;
        let mut name = self.declarator("the union's member")?;
        self.semicolon()?;
        name.after = self.docs_after();
        Ok(CaseSyntax { front, labels, of, name })
    }

    fn enumeration(&mut self) -> ParseResult<Construction> {
        self.expect(Lexeme::Open, "`{` and the names of the enumeration")?;
        match self.enumerators() {
            Ok(names) => Ok(Construction::Enum { names }),
            Err(ParseFailure) => {
                self.skip_body();
                Err(ParseFailure)
            }
        }
    }

    fn enumerators(&mut self) -> ParseResult<Vec<(Front, Name)>> {
        let mut names = Vec::new();
        loop {
            if self.kind() == Lexeme::Close && !names.is_empty() {
                let help = "remove the comma before it";
                self.refuse(self.last(), "a comma is before `}` in this enumeration", help);
                break;
            }
            let mut front = self.front()?;
            let name = self.name("an enumerator")?;
            if self.kind() == Lexeme::Equals {
                let help = "enumerators count from 0 in CORBA; use constants if other values matter";
                return Err(self.refuse(self.at(), "an enumerator cannot have a value", help));
            }
            let comma = self.sign(Lexeme::Comma).is_some();
            if front.docs.is_empty() {
                front.docs = self.docs_after();
            }
            names.push((front, name));
            if !comma {
                break;
            }
        }
        self.expect(Lexeme::Close, "`,` or `}`")?;
        Ok(names)
    }
}

/// The remedy for a value type.
pub(super) const VALUES: &str = "pass the state as a struct, or an object by an interface";
