//! Repository ids, `IDL:prefix/Module/Name:1.0`, and the pragmas that change them (OMG IDL 4.2, 7.4.6.4 and CORBA 3.3,
//! 14.7).
//!
//! A prefix that is set within a module also replaces that module's name: the definitions of an include within a module
//! have ids without the module.

use super::Resolver;
use super::scope::Entity;
use crate::read::diagnostic::IdlDiagnostic;
use crate::read::source::SourceSpan;
use crate::read::syntax::{Name, ScopedName};
use crate::tree::DefinitionId;

/// The settings of one definition's id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    /// The part before its name: the last prefix, and the enclosing scopes that began since.
    pub prefix: String,
    /// Of `#pragma version`.
    pub version: Option<(String, SourceSpan)>,
    /// All of it, of `#pragma ID` or `typeid`.
    pub whole: Option<(String, SourceSpan)>,
}

/// The longest repository id, in octets.
const LONGEST: usize = 1_000;

impl Resolver<'_> {
    /// Reports a name with a repository id that is too long to be useful, or to be stored for each of many names.
    pub fn measured_id(&mut self, name: &Name) {
        if self.prefix.len() + name.text.len() > LONGEST {
            let error =
                IdlDiagnostic::at(name.at, format!("the repository id of this has more than {LONGEST} characters"));
            self.findings.error(error.help("shorten the prefix, or the names of the scopes around"));
        }
    }

    /// The definition that a pragma or `typeid` names.
    fn identified(&mut self, name: &ScopedName) -> Option<DefinitionId> {
        let entity = self.scopes.look_up(self.here, name, self.findings)?;
        match entity {
            Entity::Definition(id) => Some(id),
            // A module has an id as well, in its first opening.
            Entity::Module(scope) => self.modules.get(&scope).copied(),
            _ => {
                let error = IdlDiagnostic::at(name.at, format!("`{}` has no repository id", name.text()));
                self.findings
                    .error(error.help("only only modules, interfaces, types, constants and exceptions have one"));
                None
            }
        }
    }

    fn name_of_pragma(&self, text: &str, at: SourceSpan) -> ScopedName {
        let plain = text.strip_prefix("::").unwrap_or(text);
        let part = |part: &str| Name { text: part.strip_prefix('_').unwrap_or(part).to_string(), at };
        ScopedName { absolute: plain.len() < text.len(), parts: plain.split("::").map(part).collect(), at }
    }

    pub fn pragma_id(&mut self, name: &str, id: String, at: SourceSpan) {
        let name = self.name_of_pragma(name, at);
        self.type_id(&name, id, at);
    }

    /// `typeid Name "id";` and `#pragma ID Name "id"`.
    pub fn type_id(&mut self, name: &ScopedName, id: String, at: SourceSpan) {
        let form = id.len() <= LONGEST
            && id.split_once(':').is_some_and(|(format, rest)| !format.is_empty() && !rest.is_empty());
        if !form || id.chars().any(|character| character.is_whitespace() || character.is_control()) {
            let error = IdlDiagnostic::at(at, format!("`{}` is not a repository id", id.escape_debug()));
            return self.findings.error(error.help("write it like `IDL:omg.org/CosNaming/NamingContext:1.0`"));
        }
        let Some(definition) = self.identified(name) else { return };
        let draft = &mut self.drafts[definition.0 as usize];
        match &draft.identity.whole {
            Some((old, other)) if *old != id => {
                let error = IdlDiagnostic::at(at, format!("`{}` already has another repository id", draft.name));
                self.findings.error(error.other(*other, "set here"));
            }
            _ => draft.identity.whole = Some((id, at)),
        }
    }

    pub fn pragma_version(&mut self, name: &str, version: String, at: SourceSpan) {
        let name = self.name_of_pragma(name, at);
        let Some(definition) = self.identified(&name) else { return };
        let draft = &mut self.drafts[definition.0 as usize];
        match &draft.identity.version {
            Some((old, other)) if *old != version => {
                let error = IdlDiagnostic::at(at, format!("`{}` already has version {old}", draft.name));
                self.findings.error(error.other(*other, "set here").help("keep one"));
            }
            _ if draft.identity.whole.as_ref().is_some_and(|(id, _)| !id.ends_with(&format!(":{version}"))) => {
                let other = draft.identity.whole.as_ref().map_or(at, |(_, other)| *other);
                let error = IdlDiagnostic::at(at, format!("the repository id of `{}` has another version", draft.name));
                self.findings
                    .error(error.other(other, "set here").help("the version is part of the id: keep one of them"));
            }
            _ => draft.identity.version = Some((version, at)),
        }
    }

    pub fn type_prefix(&mut self, name: &ScopedName, prefix: String) {
        let scope = match self.scopes.look_up(self.here, name, self.findings) {
            Some(Entity::Module(scope)) => Some(scope),
            Some(Entity::Definition(id)) => self.scopes.of(id),
            Some(_) => None,
            None => return,
        };
        match scope {
            Some(scope) => {
                self.type_prefixes.insert(scope, prefix);
            }
            None => {
                let error = IdlDiagnostic::at(name.at, format!("`{}` contains no definitions", name.text()));
                self.findings.error(error.help("`typeprefix` is for modules and interfaces"));
            }
        }
    }

    /// The id of each draft, in order.
    pub fn repository_ids(&self) -> Vec<String> {
        let id = |(index, draft): (usize, &super::Draft)| {
            if let Some((whole, _)) = &draft.identity.whole {
                return whole.clone();
            }
            // The innermost `typeprefix` around it, or its own.
            let own = self.scopes.of(DefinitionId(index as u32));
            let mut scopes =
                std::iter::successors(Some(own.unwrap_or(draft.scope)), |scope| self.scopes.parent(*scope));
            let mut body = match scopes.find_map(|scope| self.type_prefixes.get(&scope)) {
                Some(prefix) => {
                    let path = self.scopes.path(draft.scope);
                    path.iter().fold(prefix.clone(), |body, part| within(&body, part))
                }
                None => draft.identity.prefix.clone(),
            };
            body = within(&body, &draft.name);
            let version = draft.identity.version.as_ref().map_or("1.0", |(version, _)| version);
            format!("IDL:{body}:{version}")
        };
        self.drafts.iter().enumerate().map(id).collect()
    }

    /// The prefix of the definitions in a scope of that name.
    pub fn prefix_within(&self, name: &str) -> String {
        within(&self.prefix, name)
    }
}

/// A name after a prefix.
fn within(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") }
}
