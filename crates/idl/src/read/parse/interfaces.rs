//! Interfaces: their header, operations and attributes.

use crate::read::diagnostic::IdlDiagnostic;
use crate::read::lexeme::Lexeme;
use crate::read::syntax::{
    AttributeSyntax, Front, InterfaceSyntax, OperationSyntax, ParameterSyntax, ScopedName, SyntaxItem,
};
use crate::tree::Direction;

use super::cursor::{Cursor, ParseFailure, ParseResult};

/// Words that can begin a member of an interface, for suggestions.
const EXPORTS: [&str; 9] =
    ["attribute", "const", "enum", "exception", "oneway", "readonly", "struct", "typedef", "union"];

impl Cursor<'_> {
    pub fn interface(&mut self, front: Front) -> ParseResult<SyntaxItem> {
        let (mut local, mut is_abstract) = (false, false);
        while !self.is("interface") {
            match self.text() {
                "local" if !local && !is_abstract => local = true,
                "abstract" if !local && !is_abstract => is_abstract = true,
                _ => return Err(self.unexpected("`interface`")),
            }
            self.bump();
        }
        self.bump();
        let name = self.name("the interface")?;
        let mut bases = Vec::new();
        if self.sign(Lexeme::Colon).is_some() {
            bases = self.names("an interface")?;
        } else if self.sign(Lexeme::Semicolon).is_some() {
            return Ok(SyntaxItem::Interface(InterfaceSyntax { front, name, local, is_abstract, bases, items: None }));
        }
        let open = self.expect(Lexeme::Open, "`{` and the contents of the interface")?;
        let mut items = Vec::new();
        loop {
            items.extend(self.events().into_iter().map(SyntaxItem::Event));
            if matches!(self.kind(), Lexeme::Close | Lexeme::End) {
                break;
            }
            let before = self.next;
            match self.export() {
                Ok(item) => items.push(item),
                Err(ParseFailure) => self.skip(),
            }
            if self.next == before {
                self.bump();
            }
        }
        self.closing(open, "interface", &name.text);
        self.semicolon()?;
        Ok(SyntaxItem::Interface(InterfaceSyntax { front, name, local, is_abstract, bases, items: Some(items) }))
    }

    /// Names between commas.
    fn names(&mut self, of: &str) -> ParseResult<Vec<ScopedName>> {
        let mut names = vec![self.scoped_name(of)?];
        while self.sign(Lexeme::Comma).is_some() {
            names.push(self.scoped_name(of)?);
        }
        Ok(names)
    }

    fn export(&mut self) -> ParseResult<SyntaxItem> {
        let front = self.front()?;
        match self.text() {
            "attribute" | "readonly" => self.attribute(front),
            "module" | "interface" => {
                let help = "close this one first";
                let message = format!("`{}` is not allowed in an interface", self.text());
                Err(self.refuse(self.at(), &message, help))
            }
            "oneway" | "void" => self.operation(front),
            // A result may be a type's name, not a definition such as `struct S f();`.
            _ => match self.shared_definition(front.clone())? {
                Some(item) => Ok(item),
                None => self.operation(front),
            },
        }
    }

    fn attribute(&mut self, front: Front) -> ParseResult<SyntaxItem> {
        let readonly = self.word("readonly").is_some();
        if self.word("attribute").is_none() {
            return Err(self.unexpected_among("`attribute`", &["attribute"]));
        }
        let of = self.a_type(false)?;
        let mut names = vec![self.name("the attribute")?];
        while self.sign(Lexeme::Comma).is_some() {
            names.push(self.name("the attribute")?);
        }
        let (mut get_raises, mut set_raises) = (Vec::new(), Vec::new());
        if readonly && self.word("raises").is_some() {
            get_raises = self.raised()?;
        }
        if !readonly && self.word("getraises").is_some() {
            get_raises = self.raised()?;
        }
        if !readonly && self.word("setraises").is_some() {
            set_raises = self.raised()?;
        }
        if matches!(self.text(), "raises" | "getraises" | "setraises") {
            let help = "`readonly` attributes have `raises`; other attributes have `getraises`, then `setraises`";
            let message = format!("`{}` is not allowed here", self.text());
            return Err(self.refuse(self.at(), &message, help));
        }
        if names.len() > 1 && !(get_raises.is_empty() && set_raises.is_empty()) {
            let error = IdlDiagnostic::at(names[1].at, "an attribute with exceptions is declared alone");
            self.findings.error(error.help("write one declaration for each"));
        }
        self.semicolon()?;
        let front = self.with_docs_after(front);
        Ok(SyntaxItem::Attribute(AttributeSyntax { front, readonly, of, names, get_raises, set_raises }))
    }

    fn operation(&mut self, front: Front) -> ParseResult<SyntaxItem> {
        let oneway = self.word("oneway");
        let result = match self.word("void") {
            Some(_) => None,
            None => {
                let before = self.next;
                let looks_like_export = self.kind() == Lexeme::Word && self.ahead(1).kind == Lexeme::Word;
                let near = crate::read::similar(self.text(), EXPORTS).filter(|_| looks_like_export);
                match (near, self.ahead(2).kind) {
                    // `atribute long x;`: a second name and no parenthesis.
                    (Some(_), kind) if kind != Lexeme::Left => {
                        return Err(self.unexpected_among("a declaration", &EXPORTS));
                    }
                    _ => {}
                }
                let of = self.a_type(false)?;
                if self.kind() == Lexeme::Left && self.next == before + 1 {
                    let help = "write the type of its result before the name, or `void`";
                    return Err(self.refuse(of.at, "this operation has no result type", help));
                }
                Some(of)
            }
        };
        let name = self.name("the operation")?;
        self.expect(Lexeme::Left, "`(` and the operation's parameters")?;
        let mut parameters = Vec::new();
        if self.kind() != Lexeme::Right {
            parameters.push(self.parameter()?);
            while self.sign(Lexeme::Comma).is_some() {
                parameters.push(self.parameter()?);
            }
        }
        self.expect(Lexeme::Right, "`,` or `)`")?;
        let raises = match self.word("raises") {
            Some(_) => self.raised()?,
            None => Vec::new(),
        };
        if self.word("context").is_some() {
            self.contexts()?;
        }
        self.semicolon()?;
        let front = self.with_docs_after(front);
        Ok(SyntaxItem::Operation(OperationSyntax { front, name, oneway, result, parameters, raises }))
    }

    fn parameter(&mut self) -> ParseResult<ParameterSyntax> {
        let front = self.front()?;
        let direction_at = self.at();
        let direction = match self.text() {
            "in" => Direction::In,
            "out" => Direction::Out,
            "inout" => Direction::InOut,
            "void" if self.ahead(1).kind == Lexeme::Right => {
                let help = "write `()`";
                return Err(self.refuse(self.at(), "an operation without parameters has empty parentheses", help));
            }
            _ => {
                let error = IdlDiagnostic::at(self.at(), "this parameter has no direction");
                let error = error.label("expected `in`, `out` or `inout`");
                self.findings.error(error.help("`in` is sent to the object, `out` is returned, `inout` both"));
                return Err(ParseFailure);
            }
        };
        self.bump();
        let of = self.a_type(false)?;
        let name = self.name("the parameter")?;
        if self.kind() == Lexeme::LeftSquare {
            let help = "name the array with `typedef`, and use that";
            return Err(self.refuse(self.at(), "a parameter cannot be declared as an array", help));
        }
        Ok(ParameterSyntax { front, direction, direction_at, of, name })
    }

    fn raised(&mut self) -> ParseResult<Vec<ScopedName>> {
        self.expect(Lexeme::Left, "`(` and the exceptions")?;
        let names = self.names("an exception")?;
        self.expect(Lexeme::Right, "`,` or `)`")?;
        Ok(names)
    }

    /// `context ("name", ...)`: read and omitted, because no ORB in use sends contexts.
    fn contexts(&mut self) -> ParseResult<()> {
        self.expect(Lexeme::Left, "`(` and the names of the context")?;
        loop {
            self.expect(Lexeme::Text, "a name in quotes")?;
            if self.sign(Lexeme::Comma).is_none() {
                break;
            }
        }
        self.expect(Lexeme::Right, "`,` or `)`")?;
        Ok(())
    }
}
