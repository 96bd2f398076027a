//! Resolves a parsed file: finds each name, evaluates each constant, checks each rule of the standard.

mod definitions;
mod identity;
mod interfaces;
mod scope;
mod types;
mod values;

use std::collections::{HashMap, HashSet};

use super::diagnostic::{Findings, IdlDiagnostic};
use super::preprocess::PreprocessorEvent;
use super::source::{SourceSpan, Sources};
use super::syntax::{Front, Name, SyntaxItem};
use crate::tree::{Definition, DefinitionId, DefinitionKind};
use identity::Identity;
use scope::{Entity, GLOBAL, ScopeId, Scopes};

/// The most definitions of a file and its includes.
const MOST_DEFINITIONS: usize = 100_000;

/// A declaration, with the data that the rest of the file needs.
pub(crate) struct Draft {
    pub name: String,
    pub at: SourceSpan,
    pub scope: ScopeId,
    pub front: Front,
    pub what: DefinitionSort,
    /// `None` until it is read to its end without an error.
    pub kind: Option<DefinitionKind>,
    /// True when it may be used as a whole.
    pub complete: bool,
    /// The nesting depth of its types.
    pub depth: u16,
    /// The fewest octets of its value on the wire.
    pub least: u64,
    /// It is a local interface, or contains one.
    pub local: bool,
    pub identity: Identity,
}

/// The kinds of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefinitionSort {
    Module,
    Constant,
    Alias,
    Struct,
    Union,
    Enum,
    Exception,
    Interface,
}

impl DefinitionSort {
    pub fn noun(self) -> &'static str {
        match self {
            DefinitionSort::Module => "a module",
            DefinitionSort::Constant => "a constant",
            DefinitionSort::Alias => "a type",
            DefinitionSort::Struct => "a struct",
            DefinitionSort::Union => "a union",
            DefinitionSort::Enum => "an enumeration",
            DefinitionSort::Exception => "an exception",
            DefinitionSort::Interface => "an interface",
        }
    }
}

pub(crate) struct Resolver<'a> {
    pub sources: &'a Sources,
    pub findings: &'a mut Findings,
    pub drafts: Vec<Draft>,
    pub scopes: Scopes,
    /// The scope in which names are declared now.
    pub here: ScopeId,
    /// The part before names in repository ids now: the prefix, and the scopes that were entered since it was set.
    pub prefix: String,
    /// Those of the enclosing files and scopes.
    pub prefixes: Vec<String>,
    /// `typeprefix`, by scope.
    pub type_prefixes: HashMap<ScopeId, String>,
    /// Structs, unions and enumerations that were declared within others since the last definition of the scope.
    pub inner: Vec<DefinitionId>,
    /// The first opening of each module.
    pub modules: HashMap<ScopeId, DefinitionId>,
    /// How many inherited operations were compared with others.
    pub compared: usize,
    /// The octets of all string constants.
    pub text: usize,
    /// Interfaces that are declared `abstract`.
    pub abstracts: HashSet<DefinitionId>,
}

/// Returns the definitions and those of the outermost scope, in order.
pub(crate) fn resolve(
    items: Vec<SyntaxItem>,
    sources: &Sources,
    findings: &mut Findings,
) -> (Vec<Definition>, Vec<DefinitionId>) {
    let (drafts, prefix, prefixes, type_prefixes, inner) = Default::default();
    let (scopes, abstracts) = (Scopes::new(), HashSet::new());
    let here = GLOBAL;
    let (modules, compared, text) = (HashMap::new(), 0, 0);
    let mut resolver = Resolver {
        sources,
        findings,
        drafts,
        scopes,
        here,
        prefix,
        prefixes,
        type_prefixes,
        inner,
        modules,
        compared,
        text,
        abstracts,
    };
    let root = resolver.items(items);
    resolver.unfinished();
    let ids = resolver.repository_ids();
    let scopes = &resolver.scopes;
    let complete = |(draft, repository_id): (Draft, String)| Definition {
        name: draft.name,
        scope: scopes.path(draft.scope),
        repository_id,
        docs: draft.front.docs,
        annotations: draft.front.annotations,
        included: draft.at.file != 0,
        at: draft.at,
        // Without errors each has its kind; with errors, nothing is returned.
        kind: draft.kind.unwrap_or(DefinitionKind::Module(Vec::new())),
    };
    (resolver.drafts.into_iter().zip(ids).map(complete).collect(), root)
}

impl Resolver<'_> {
    /// The definitions of a module or file.
    fn items(&mut self, items: Vec<SyntaxItem>) -> Vec<DefinitionId> {
        let mut ids = Vec::new();
        for item in items {
            if self.drafts.len() > MOST_DEFINITIONS {
                break;
            }
            let item = self.item(item);
            ids.append(&mut self.inner);
            ids.extend(item);
        }
        ids
    }

    fn item(&mut self, item: SyntaxItem) -> Vec<DefinitionId> {
        match item {
            SyntaxItem::Module { front, name, items } => vec![self.module(front, name, items)],
            SyntaxItem::Interface(interface) => self.interface(interface).into_iter().collect(),
            item => self.shared(item),
        }
    }

    /// Definitions that are allowed in a module and in an interface.
    pub fn shared(&mut self, item: SyntaxItem) -> Vec<DefinitionId> {
        match item {
            SyntaxItem::Event(event) => {
                self.event(event);
                Vec::new()
            }
            SyntaxItem::Constant { front, name, of, value } => vec![self.constant(front, name, of, value)],
            SyntaxItem::Alias { front, of, names } => self.aliases(front, of, names),
            SyntaxItem::Constructed(constructed) => self.constructed(constructed).into_iter().collect(),
            SyntaxItem::Exception { front, name, members } => vec![self.exception(front, name, members)],
            SyntaxItem::ForwardStruct { name } => {
                self.forward(name, DefinitionSort::Struct);
                Vec::new()
            }
            SyntaxItem::ForwardUnion { name } => {
                self.forward(name, DefinitionSort::Union);
                Vec::new()
            }
            SyntaxItem::Unsupported { name, what } => {
                self.scopes.declare(self.here, &name, Entity::Unsupported(what), self.findings);
                Vec::new()
            }
            SyntaxItem::TypeId { name, id, at } => {
                self.type_id(&name, id, at);
                Vec::new()
            }
            SyntaxItem::TypePrefix { name, prefix } => {
                self.type_prefix(&name, prefix);
                Vec::new()
            }
            // The grammar allows these only in interfaces, where they are read elsewhere.
            SyntaxItem::Module { .. }
            | SyntaxItem::Interface(_)
            | SyntaxItem::Operation(_)
            | SyntaxItem::Attribute(_) => Vec::new(),
        }
    }

    fn event(&mut self, event: PreprocessorEvent) {
        match event {
            PreprocessorEvent::Enter => self.prefixes.push(std::mem::take(&mut self.prefix)),
            PreprocessorEvent::Leave => self.prefix = self.prefixes.pop().unwrap_or_default(),
            PreprocessorEvent::Prefix(prefix) => self.prefix = prefix,
            PreprocessorEvent::Id { name, id, at } => self.pragma_id(&name, id, at),
            PreprocessorEvent::Version { name, version, at } => self.pragma_version(&name, version, at),
        }
    }

    fn module(&mut self, front: Front, name: Name, items: Vec<SyntaxItem>) -> DefinitionId {
        let scope = match self.scopes.own(self.here, &name.text) {
            Some(entry) if entry.name == name.text => match entry.what {
                Entity::Module(scope) => Some(scope),
                _ => None,
            },
            _ => None,
        };
        let scope = scope.unwrap_or_else(|| {
            let scope = self.scopes.open_module(self.here, &name.text);
            self.scopes.declare(self.here, &name, Entity::Module(scope), self.findings);
            scope
        });
        if let Some(first) = self.modules.get(&scope).map(|first| self.of(*first))
            && first.identity.prefix != self.prefix
        {
            let warning = IdlDiagnostic::at(name.at, format!("the module `{}` had another prefix before", name.text));
            let warning = warning.other(first.at, "first opened here");
            self.findings.warn(warning.help("use the same `#pragma prefix` each time a module is opened"));
        }
        let id = self.draft(&name, DefinitionSort::Module, front);
        let outside = (self.here, self.prefix.clone());
        self.here = scope;
        self.scopes.belongs(scope, id);
        self.modules.entry(scope).or_insert(id);
        self.prefix = self.prefix_within(&name.text);
        let inside = self.items(items);
        (self.here, self.prefix) = outside;
        let draft = &mut self.drafts[id.0 as usize];
        draft.kind = Some(DefinitionKind::Module(inside));
        draft.complete = true;
        id
    }

    /// Reserves a definition in the current scope.
    pub fn draft(&mut self, name: &Name, what: DefinitionSort, front: Front) -> DefinitionId {
        self.measured_id(name);
        let identity = Identity { prefix: self.prefix.clone(), ..Identity::default() };
        let (name, at) = (name.text.clone(), name.at);
        let (kind, complete, depth, least, local) = (None, false, 0, 0, false);
        let draft = Draft { name, at, scope: self.here, front, what, kind, complete, depth, least, local, identity };
        self.drafts.push(draft);
        if self.drafts.len() == MOST_DEFINITIONS + 1 {
            let error = IdlDiagnostic::at(at, format!("there are more than {MOST_DEFINITIONS} definitions"));
            self.findings.error(error.help("read the files one by one, each with its includes"));
        }
        DefinitionId(self.drafts.len() as u32 - 1)
    }

    /// Reserves a definition and declares its name.
    pub fn declare(&mut self, name: &Name, what: DefinitionSort, front: Front) -> DefinitionId {
        let id = self.draft(name, what, front);
        self.scopes.declare(self.here, name, Entity::Definition(id), self.findings);
        id
    }

    pub fn of(&self, id: DefinitionId) -> &Draft {
        &self.drafts[id.0 as usize]
    }

    /// Declared forward but never defined: an error for structs and unions, allowed for interfaces.
    fn unfinished(&mut self) {
        let sound = self.findings.errors.is_empty();
        for (index, draft) in self.drafts.iter_mut().enumerate() {
            let id = DefinitionId(index as u32);
            if draft.complete || draft.kind.is_some() {
                continue;
            }
            let (name, noun) = (&draft.name, draft.what.noun());
            let message = format!("`{name}` has a forward declaration but no definition");
            if draft.what == DefinitionSort::Interface {
                draft.kind = Some(DefinitionKind::Interface(crate::tree::IdlInterface {
                    forward: true,
                    local: draft.local,
                    is_abstract: self.abstracts.contains(&id),
                    ..Default::default()
                }));
                let warning = IdlDiagnostic::at(draft.at, message).label("never defined");
                self.findings.warn(warning.help("`#include` the file that defines it"));
            } else if sound {
                let error = IdlDiagnostic::at(draft.at, message).label(format!("{noun} without members"));
                self.findings.error(error.help("define it in this file or in one that it includes"));
            }
        }
    }
}
