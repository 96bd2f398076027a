//! The contents of a file or a module.

use crate::read::diagnostic::IdlDiagnostic;
use crate::read::lexeme::Lexeme;
use crate::read::syntax::{Front, SyntaxItem};
use crate::tree::Annotation;

use super::cursor::{Cursor, ParseFailure, ParseResult};
use super::types::VALUES;

/// Words that can begin a definition, for suggestions.
const DEFINITIONS: [&str; 17] = [
    "abstract",
    "const",
    "enum",
    "exception",
    "import",
    "interface",
    "local",
    "module",
    "native",
    "struct",
    "typedef",
    "typeid",
    "typeprefix",
    "union",
    "valuetype",
    "bitset",
    "bitmask",
];

impl Cursor<'_> {
    pub fn specification(mut self) -> Vec<SyntaxItem> {
        let mut items = Vec::new();
        loop {
            self.definitions(&mut items);
            if self.kind() == Lexeme::End {
                return items;
            }
            // A brace too many: nothing is open here.
            let error = IdlDiagnostic::at(self.at(), "this `}` closes nothing");
            self.findings.error(error.help("remove it, or find a `}` too many before it"));
            self.bump();
            self.sign(Lexeme::Semicolon);
        }
    }

    /// Definitions up to `}` or the end.
    fn definitions(&mut self, items: &mut Vec<SyntaxItem>) {
        loop {
            items.extend(self.events().into_iter().map(SyntaxItem::Event));
            if matches!(self.kind(), Lexeme::Close | Lexeme::End) {
                return;
            }
            let before = self.next;
            match self.definition() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => {}
                Err(ParseFailure) => self.skip(),
            }
            if self.next == before {
                self.bump();
            }
        }
    }

    fn definition(&mut self) -> ParseResult<Option<SyntaxItem>> {
        if self.sign(Lexeme::Semicolon).is_some() {
            let help = "remove it: a definition ends with one `;`";
            self.refuse(self.last(), "this `;` ends nothing", help);
            return Ok(None);
        }
        let front = self.front()?;
        let at = self.at();
        match self.text() {
            "module" => self.deeper(|cursor| cursor.module(front)).map(Some),
            "interface" => self.deeper(|cursor| cursor.interface(front)).map(Some),
            "local" | "abstract" => {
                if self.sources.text(self.ahead(1).text) == "valuetype" {
                    return self.unsupported("a value type", "value types are not supported", VALUES).map(Some);
                }
                self.deeper(|cursor| cursor.interface(front)).map(Some)
            }
            _ if self.kind() != Lexeme::Word => Err(self.unexpected("a definition")),
            _ => match self.shared_definition(front)? {
                Some(item) => Ok(Some(item)),
                None => {
                    let text = self.text();
                    let member = matches!(text, "void" | "oneway" | "attribute" | "readonly");
                    if member || [1, 2].into_iter().any(|by| self.ahead(by).kind == Lexeme::Left) {
                        let help = "put it into an interface";
                        return Err(self.refuse(at, "operations and attributes belong into interfaces", help));
                    }
                    Err(self.unexpected_among("a definition", &DEFINITIONS))
                }
            },
        }
    }

    /// Definitions that are allowed in a module and in an interface; `None` if the next token begins none of them.
    pub fn shared_definition(&mut self, front: Front) -> ParseResult<Option<SyntaxItem>> {
        let at = self.at();
        let item = match self.text() {
            "const" => {
                self.bump();
                let of = self.a_type(false)?;
                let name = self.name("the constant")?;
                self.expect(Lexeme::Equals, "`=` and the constant's value")?;
                let value = self.expression()?;
                self.semicolon()?;
                let front = self.with_docs_after(front);
                SyntaxItem::Constant { front, name, of, value }
            }
            "typedef" => {
                self.bump();
                let of = self.a_type(true)?;
                let names = self.declarators("the type")?;
                SyntaxItem::Alias { front, of, names }
            }
            "struct" | "union" if self.ahead(2).kind == Lexeme::Semicolon => {
                let structure = self.bump();
                let name = self.name(self.sources.text(structure.text))?;
                self.semicolon()?;
                match self.sources.text(structure.text) {
                    "struct" => SyntaxItem::ForwardStruct { name },
                    _ => SyntaxItem::ForwardUnion { name },
                }
            }
            "struct" | "union" | "enum" => {
                let constructed = self.deeper(|cursor| cursor.constructed(front))?;
                self.semicolon()?;
                SyntaxItem::Constructed(constructed)
            }
            "exception" => {
                self.bump();
                let name = self.name("the exception")?;
                let members = self.deeper(|cursor| cursor.members("exception"))?;
                self.semicolon()?;
                SyntaxItem::Exception { front, name, members }
            }
            "typeid" => {
                self.bump();
                let name = self.scoped_name("the name of what gets the repository id")?;
                let (id, at) = self.plain_string("the repository id")?;
                self.semicolon()?;
                SyntaxItem::TypeId { name, id, at }
            }
            "typeprefix" => {
                self.bump();
                let name = self.scoped_name("the name of a module or interface")?;
                let (prefix, _) = self.plain_string("the prefix")?;
                self.semicolon()?;
                SyntaxItem::TypePrefix { name, prefix }
            }
            "import" => {
                let help = "use `#include` with the file that declares it";
                return Err(self.refuse(
                    at,
                    "`import` is not supported: it imports names from an interface repository",
                    help,
                ));
            }
            "native" => {
                let help = "declare a struct or an interface: a native type cannot be sent";
                self.unsupported("a native type", "native types are not supported", help)?
            }
            "valuetype" | "custom" => self.unsupported("a value type", "value types are not supported", VALUES)?,
            "eventtype" if self.ahead(1).kind == Lexeme::Word => {
                self.unsupported("an event type", "event types are not supported", VALUES)?
            }
            "component" | "home" | "porttype" | "connector" if self.ahead(1).kind == Lexeme::Word => {
                let help = "declare the interfaces that it provides";
                self.unsupported("a component", "components are not supported", help)?
            }
            "bitset" if self.ahead(1).kind == Lexeme::Word => {
                let help = "use a struct, or an integer with constants for its parts";
                let message = "bitsets (IDL 4.2, extended data types) are not supported";
                self.unsupported("a bitset", message, help)?
            }
            "bitmask" if self.ahead(1).kind == Lexeme::Word => {
                let help = "use an unsigned integer, and a constant `1 << n` for each bit";
                let message = "bitmasks (IDL 4.2, extended data types) are not supported";
                self.unsupported("a bitmask", message, help)?
            }
            _ => return Ok(None),
        };
        Ok(Some(item))
    }

    /// Unsupported parts of IDL: rejected at once in the file itself, and in an included file if they are used.
    fn unsupported(&mut self, what: &'static str, message: &str, help: &str) -> ParseResult<SyntaxItem> {
        let at = self.at();
        if at.file == 0 {
            return Err(self.refuse(at, message, help));
        }
        while matches!(self.text(), "abstract" | "custom") {
            self.bump();
        }
        self.bump();
        let name = self.name(what)?;
        self.skip();
        Ok(SyntaxItem::Unsupported { name, what })
    }

    fn module(&mut self, front: Front) -> ParseResult<SyntaxItem> {
        self.bump();
        let name = self.name("the module")?;
        if self.sign(Lexeme::Less).is_some() {
            let help = "write the module for each type that it is used with";
            return Err(self.refuse(self.last(), "template modules are not supported", help));
        }
        let open = self.expect(Lexeme::Open, "`{` and the module's definitions")?;
        if self.kind() == Lexeme::Close {
            let error = IdlDiagnostic::at(name.at, format!("the module `{}` is empty", name.text));
            self.findings.error(error.help("a module has at least one definition"));
        }
        let mut items = Vec::new();
        self.definitions(&mut items);
        self.closing(open, "module", &name.text);
        self.semicolon()?;
        Ok(SyntaxItem::Module { front, name, items })
    }

    /// The `}` of a large body: if the file ends first, the report names the open body.
    pub fn closing(&mut self, open: crate::read::source::SourceSpan, what: &str, name: &str) {
        if self.sign(Lexeme::Close).is_none() {
            self.ended = true;
            let error = IdlDiagnostic::at(self.at(), format!("expected `}}` of the {what} `{name}`, the file ends"));
            self.findings.error(error.label("not closed here").other(open, "opened here"));
        }
    }

    fn plain_string(&mut self, of: &str) -> ParseResult<(String, crate::read::source::SourceSpan)> {
        let at = self.at();
        let text = self.text();
        match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
            Some(inside) => {
                self.bump();
                Ok((inside.to_string(), at))
            }
            None => Err(self.unexpected(&format!("{of} in quotes"))),
        }
    }

    /// The comment and the annotations before a declaration.
    pub fn front(&mut self) -> ParseResult<Front> {
        let mut docs = self.docs_before(self.next);
        let annotations = self.annotations()?;
        if docs.is_empty() && !annotations.is_empty() {
            docs = self.docs_before(self.next);
        }
        Ok(Front { docs, annotations })
    }

    /// The comment after it, if there was none before it.
    pub fn with_docs_after(&self, mut front: Front) -> Front {
        if front.docs.is_empty() {
            front.docs = self.docs_after();
        }
        front
    }

    /// `@name`, `@name(value)`, `@name(key = value, ...)`, any number of them; `@annotation` declarations are rejected.
    pub fn annotations(&mut self) -> ParseResult<Vec<Annotation>> {
        let mut annotations = Vec::new();
        while self.kind() == Lexeme::At {
            let start = self.bump().at;
            if self.is("annotation") {
                let help = "remove it: annotations need no declaration";
                return Err(self.refuse(start, "annotations cannot be declared", help));
            }
            let name = self.annotation_name()?;
            let mut arguments = Vec::new();
            if self.sign(Lexeme::Left).is_some() {
                while self.kind() != Lexeme::Right {
                    let mut key = String::new();
                    if self.kind() == Lexeme::Word && self.ahead(1).kind == Lexeme::Equals {
                        key = self.sources.text(self.bump().text).to_string();
                        self.bump();
                    }
                    let value = self.expression()?;
                    arguments.push((key, self.sources.text(value.at).to_string()));
                    if self.sign(Lexeme::Comma).is_none() {
                        break;
                    }
                }
                self.expect(Lexeme::Right, "`,` or `)`")?;
            }
            annotations.push(Annotation { name, arguments });
        }
        Ok(annotations)
    }

    /// The name of an annotation: keywords (`@default`) are names here.
    fn annotation_name(&mut self) -> ParseResult<String> {
        let mut name = String::new();
        loop {
            if self.sign(Lexeme::Scope).is_some() {
                name += "::";
            }
            if self.kind() != Lexeme::Word {
                return Err(self.unexpected("the annotation's name"));
            }
            name += self.sources.text(self.bump().text);
            if self.kind() != Lexeme::Scope {
                return Ok(name);
            }
        }
    }
}
