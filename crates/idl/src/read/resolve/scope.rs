//! Scopes and the names in them (OMG IDL 4.2, 7.5): clashes in any case, introduction by use, inheritance, ambiguity.

use std::collections::{BTreeMap, HashMap};

use crate::read::diagnostic::{Findings, IdlDiagnostic};
use crate::read::similar;
use crate::read::source::SourceSpan;
use crate::read::syntax::{Name, ScopedName};
use crate::tree::DefinitionId;

/// A scope's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeId(usize);

/// The outermost.
pub(crate) const GLOBAL: ScopeId = ScopeId(0);

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entity {
    Module(ScopeId),
    Definition(DefinitionId),
    Enumerator(DefinitionId, u32),
    /// An unsupported declaration in an included file.
    Unsupported(&'static str),
    /// `CORBA::TypeCode`, which no file declares.
    TypeCode,
    Member,
    Parameter,
    Operation,
    Attribute,
}

/// A declared name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    /// `None` if no file declares it.
    pub at: Option<SourceSpan>,
    pub what: Entity,
}

#[derive(Debug, Default)]
struct NameScope {
    name: String,
    parent: Option<ScopeId>,
    /// By the name in lower case: names that differ only in case clash. In order, so reports are stable.
    names: BTreeMap<String, Entry>,
    /// True for the outermost scope and modules.
    module: bool,
    /// Names of outer scopes that were used here: they keep that meaning from then on.
    used: HashMap<String, (String, SourceSpan)>,
    /// Scopes of the interfaces that this one inherits.
    bases: Vec<ScopeId>,
}

/// All scopes.
#[derive(Debug)]
pub(crate) struct Scopes {
    scopes: Vec<NameScope>,
    of: HashMap<DefinitionId, ScopeId>,
}

impl Scopes {
    pub fn new() -> Self {
        let mut scopes =
            Scopes { scopes: vec![NameScope { module: true, ..NameScope::default() }], of: HashMap::new() };
        let corba = scopes.open_module(GLOBAL, "CORBA");
        let type_code = Entry { name: "TypeCode".into(), at: None, what: Entity::TypeCode };
        scopes.scopes[corba.0].names.insert("typecode".into(), type_code);
        let module = Entry { name: "CORBA".into(), at: None, what: Entity::Module(corba) };
        scopes.scopes[GLOBAL.0].names.insert("corba".into(), module);
        scopes
    }

    /// A new scope within another.
    pub fn open(&mut self, parent: ScopeId, name: &str) -> ScopeId {
        self.scopes.push(NameScope { name: name.to_string(), parent: Some(parent), ..NameScope::default() });
        ScopeId(self.scopes.len() - 1)
    }

    /// A new module within another.
    pub fn open_module(&mut self, parent: ScopeId, name: &str) -> ScopeId {
        let scope = self.open(parent, name);
        self.scopes[scope.0].module = true;
        scope
    }

    /// The scope of a definition.
    pub fn belongs(&mut self, scope: ScopeId, to: DefinitionId) {
        self.of.insert(to, scope);
    }

    pub fn of(&self, definition: DefinitionId) -> Option<ScopeId> {
        self.of.get(&definition).copied()
    }

    pub fn parent(&self, scope: ScopeId) -> Option<ScopeId> {
        self.scopes[scope.0].parent
    }

    pub fn inherit(&mut self, scope: ScopeId, base: ScopeId) {
        self.scopes[scope.0].bases.push(base);
    }

    /// Undoes that.
    pub fn disinherit(&mut self, scope: ScopeId) {
        self.scopes[scope.0].bases.clear();
    }

    /// Names of the scope and those around it, outermost first.
    pub fn path(&self, scope: ScopeId) -> Vec<String> {
        let mut path = Vec::new();
        let mut next = Some(scope).filter(|scope| *scope != GLOBAL);
        while let Some(scope) = next {
            path.push(self.scopes[scope.0].name.clone());
            next = self.parent(scope).filter(|scope| *scope != GLOBAL);
        }
        path.reverse();
        path
    }

    /// The declaration of a name in the scope itself, in any case.
    pub fn own(&self, scope: ScopeId, name: &str) -> Option<&Entry> {
        self.scopes[scope.0].names.get(&name.to_ascii_lowercase())
    }

    /// All that a scope declares, by name.
    pub fn entries(&self, scope: ScopeId) -> impl Iterator<Item = &Entry> {
        self.scopes[scope.0].names.values()
    }

    /// The scope and all that it inherits, each once.
    pub fn with_ancestors(&self, scope: ScopeId) -> Vec<ScopeId> {
        let (mut all, mut next) = (vec![scope], 0);
        while let Some(scope) = all.get(next) {
            for base in &self.scopes[scope.0].bases {
                if !all.contains(base) {
                    all.push(*base);
                }
            }
            next += 1;
        }
        all
    }

    /// Declares a name; false, with a report, if it clashes.
    pub fn declare(&mut self, scope: ScopeId, name: &Name, what: Entity, findings: &mut Findings) -> bool {
        let key = name.text.to_ascii_lowercase();
        let here = &self.scopes[scope.0];
        let text = &name.text;
        let first = |error: IdlDiagnostic, other: Option<SourceSpan>, words: &str| match other {
            Some(other) => error.other(other, words),
            None => error,
        };
        if let Some(entry) = here.names.get(&key) {
            // Declared forward, then defined.
            if entry.what == what && matches!(what, Entity::Unsupported(_)) {
                return true;
            }
            let error = if entry.name == *text {
                IdlDiagnostic::at(name.at, format!("`{text}` is declared twice")).label("again here")
            } else {
                let error = IdlDiagnostic::at(name.at, format!("`{text}` and `{}` differ only in case", entry.name));
                error.label("clashes").help("IDL names must differ in more than case: rename one of them")
            };
            findings.error(first(error, entry.at, "first here"));
            return false;
        }
        if here.name.eq_ignore_ascii_case(text)
            && matches!(
                what,
                Entity::Definition(_)
                    | Entity::Module(_)
                    | Entity::Enumerator(..)
                    | Entity::Member
                    | Entity::Operation
                    | Entity::Attribute
            )
        {
            let (what, help) = match here.name == *text {
                true => (format!("`{text}` has the name of its enclosing scope"), "rename one of them"),
                false => (
                    format!("`{text}` and `{}`, its enclosing scope, differ only in case", here.name),
                    "IDL names must differ in more than case: rename one of them",
                ),
            };
            findings.error(IdlDiagnostic::at(name.at, what).label("must differ in more than case").help(help));
            return false;
        }
        if let Some((used, at)) = here.used.get(&key) {
            let error = if used == text {
                IdlDiagnostic::at(name.at, format!("`{text}` was used before with another meaning in this scope"))
            } else {
                IdlDiagnostic::at(
                    name.at,
                    format!("`{text}` and `{used}`, which is used in this scope, differ only in case"),
                )
            };
            let error = error.label("declared here").other(*at, "used here, with the meaning of an outer scope");
            findings.error(error.help("rename this one, or qualify the use: `::Module::Name`"));
            return false;
        }
        let callable = |what: Entity| matches!(what, Entity::Operation | Entity::Attribute);
        for base in self.with_ancestors(scope).into_iter().skip(1) {
            let Some(entry) = self.scopes[base.0].names.get(&key) else { continue };
            if callable(entry.what) {
                let what = match entry.name == *text {
                    true => format!("`{text}` is inherited, and cannot be declared again"),
                    false => format!("`{text}` and `{}`, which is inherited, differ only in case", entry.name),
                };
                let error = IdlDiagnostic::at(name.at, what);
                let error = error.label("again here").help("rename it: an interface cannot redefine what it inherits");
                findings.error(first(error, entry.at, &format!("inherited from `{}`", self.scopes[base.0].name)));
                return false;
            }
        }
        self.insert(scope, Entry { name: text.clone(), at: Some(name.at), what });
        true
    }

    /// Enters a name into a scope without checking for clashes.
    pub fn insert(&mut self, scope: ScopeId, entry: Entry) {
        self.scopes[scope.0].names.insert(entry.name.to_ascii_lowercase(), entry);
    }

    /// The meaning of a name in a scope, from now on; `None`, with a report, if there is none or more than one.
    pub fn look_up(&mut self, from: ScopeId, name: &ScopedName, findings: &mut Findings) -> Option<Entity> {
        self.meaning(from, name, true, findings)
    }

    /// The same without introducing the name: `module B { interface X : X {}; };` extends an outer `X`.
    pub fn look_up_base(&mut self, from: ScopeId, name: &ScopedName, findings: &mut Findings) -> Option<Entity> {
        self.meaning(from, name, false, findings)
    }

    fn meaning(
        &mut self,
        from: ScopeId,
        name: &ScopedName,
        introduce: bool,
        findings: &mut Findings,
    ) -> Option<Entity> {
        let (first, rest) = name.parts.split_first()?;
        let mut scope = if name.absolute { GLOBAL } else { from };
        let mut entry = loop {
            match self.find(scope, first, findings) {
                NameLookup::One(entry) => break entry,
                NameLookup::Wrong => return None,
                NameLookup::Nothing => match self.parent(scope).filter(|_| !name.absolute) {
                    Some(parent) => scope = parent,
                    None => {
                        self.unknown(from, name, first, findings);
                        return None;
                    }
                },
            }
        };
        if introduce && !name.absolute {
            self.introduce(from, scope, first);
        }
        for part in rest {
            let inside = match entry.what {
                Entity::Module(scope) => Some(scope),
                Entity::Definition(id) => self.of(id),
                _ => None,
            };
            let Some(inside) = inside else {
                let error = IdlDiagnostic::at(part.at, format!("`{}` contains nothing", entry.name));
                findings.error(match entry.at {
                    Some(at) => error.other(at, "declared here"),
                    None => error,
                });
                return None;
            };
            entry = match self.find(inside, part, findings) {
                NameLookup::One(entry) => entry,
                NameLookup::Wrong => return None,
                NameLookup::Nothing => {
                    let error = IdlDiagnostic::at(part.at, format!("no `{}` in `{}`", part.text, entry.name));
                    let near = similar(&part.text, self.entries(inside).map(|entry| entry.name.as_str()));
                    let help = near.map(|near| format!("did you mean `{near}`?"));
                    findings.error(IdlDiagnostic { help, ..error.label("unknown name") });
                    return None;
                }
            };
        }
        Some(entry.what)
    }

    /// From then on the name has its meaning of `from` here and, if this is not a module, in the enclosing scopes that
    /// are not modules.
    fn introduce(&mut self, from: ScopeId, found: ScopeId, name: &Name) {
        let key = name.text.to_ascii_lowercase();
        let mut next = Some(from);
        while let Some(scope) = next {
            let last = scope == found;
            let here = &mut self.scopes[scope.0];
            // In its own scope it is declared, unless it is inherited.
            if !here.names.contains_key(&key) && scope != GLOBAL {
                here.used.entry(key.clone()).or_insert_with(|| (name.text.clone(), name.at));
            }
            let outer = here.parent.filter(|_| !last && !here.module);
            next = outer.filter(|outer| !self.scopes[outer.0].module);
        }
    }

    /// The declaration or inheritance of a name in a scope.
    fn find(&self, scope: ScopeId, name: &Name, findings: &mut Findings) -> NameLookup {
        let key = name.text.to_ascii_lowercase();
        let mut found: Vec<(ScopeId, &Entry)> = Vec::new();
        let (mut seen, mut next) = (vec![scope], vec![scope]);
        while let Some(scope) = next.pop() {
            match self.scopes[scope.0].names.get(&key) {
                // A declaration of an interface hides an inherited one.
                Some(entry) => found.push((scope, entry)),
                None => {
                    for base in &self.scopes[scope.0].bases {
                        if !seen.contains(base) {
                            seen.push(*base);
                            next.push(*base);
                        }
                    }
                }
            }
        }
        let Some((_, entry)) = found.first() else { return NameLookup::Nothing };
        if found.len() > 1 {
            let error = IdlDiagnostic::at(name.at, format!("`{}` is inherited from several interfaces", name.text));
            let error = found.iter().fold(error.label("ambiguous"), |error, (scope, entry)| match entry.at {
                Some(at) => error.other(at, format!("from `{}`", self.scopes[scope.0].name)),
                None => error,
            });
            findings.error(
                error.help(format!("write `{}::{}`, or another of them", self.scopes[found[0].0.0].name, name.text)),
            );
            return NameLookup::Wrong;
        }
        if entry.name != name.text {
            let error = IdlDiagnostic::at(name.at, format!("`{}` is declared as `{}`", name.text, entry.name));
            let error = error.label("differs in case").help(format!("write `{}`, in the same case", entry.name));
            findings.error(match entry.at {
                Some(at) => error.other(at, "declared here"),
                None => error,
            });
            return NameLookup::Wrong;
        }
        NameLookup::One((*entry).clone())
    }

    /// Reports a name that is not declared in any enclosing scope, with the nearest, or with another scope that has it.
    fn unknown(&self, from: ScopeId, name: &ScopedName, first: &Name, findings: &mut Findings) {
        // Comparing many names, for each of many errors, would be too slow.
        if findings.full() {
            return findings.error(IdlDiagnostic::at(first.at, "is not declared"));
        }
        let mut around = Vec::new();
        let mut next = Some(from).filter(|_| !name.absolute).or(Some(GLOBAL));
        while let Some(scope) = next {
            around.extend(self.with_ancestors(scope));
            next = self.parent(scope);
        }
        let visible = |entry: &Entry| {
            !matches!(entry.what, Entity::Member | Entity::Parameter | Entity::Operation | Entity::Attribute)
        };
        let key = first.text.to_ascii_lowercase();
        let elsewhere = self.scopes.iter().enumerate().skip(1).find_map(|(index, scope)| {
            let entry = scope.names.get(&key).filter(|entry| visible(entry))?;
            Some(format!("{}::{}", self.path(ScopeId(index)).join("::"), entry.name))
        });
        let entries = around.iter().flat_map(|scope| self.entries(*scope)).filter(|entry| visible(entry));
        let known = BASIC.iter().copied().chain(entries.map(|entry| entry.name.as_str())).take(MOST_COMPARED);
        let foreign = FOREIGN.iter().find(|(foreign, _)| *foreign == key).map(|(_, idl)| *idl);
        let near = foreign.map(str::to_string).or(elsewhere);
        let near = near.or_else(|| similar(&first.text, known).map(str::to_string));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare names before their use; `#include` the file that declares it".into(),
        };
        let error = IdlDiagnostic::at(first.at, format!("`{}` is not declared", first.text)).label("unknown name");
        findings.error(error.help(help));
    }
}

/// The most names that are compared with a misspelt one.
const MOST_COMPARED: usize = 20_000;
/// Types that may be meant by a misspelt name.
const BASIC: [&str; 11] =
    ["boolean", "long", "short", "string", "octet", "double", "float", "char", "any", "sequence", "wstring"];
/// Types of other languages, and their names in IDL.
const FOREIGN: [(&str, &str); 14] = [
    ("int", "long"),
    ("integer", "long"),
    ("bool", "boolean"),
    ("byte", "octet"),
    ("int8_t", "int8"),
    ("int16_t", "int16"),
    ("int32_t", "int32"),
    ("int64_t", "int64"),
    ("uint8_t", "uint8"),
    ("uint16_t", "uint16"),
    ("uint32_t", "uint32"),
    ("uint64_t", "uint64"),
    ("vector", "sequence"),
    ("wchar_t", "wchar"),
];

enum NameLookup {
    One(Entry),
    /// Reported.
    Wrong,
    Nothing,
}
