//! Interfaces: their bases, operations and attributes.

use std::collections::HashMap;

use super::scope::Entity;
use super::{DefinitionSort, Resolver};
use crate::read::diagnostic::IdlDiagnostic;
use crate::read::source::SourceSpan;
use crate::read::syntax::{
    AttributeSyntax, Front, InterfaceSyntax, Name, OperationSyntax, ScopedName, SyntaxItem, TypeForm, TypeSyntax,
};
use crate::tree::{
    Attribute, DefinitionId, DefinitionKind, Direction, IdlInterface, IdlOperation, Member, Parameter, Type,
};

/// The most interfaces that one inherits, directly and through others.
const MOST_ANCESTORS: usize = 100;
/// The most operations and attributes that all interfaces inherit from two sides, together: bounds the comparisons.
const MOST_COMPARED: usize = 1_000_000;

impl Resolver<'_> {
    /// A definition, or the forward declaration of one that this scope has not seen; `None` if it adds nothing.
    pub fn interface(&mut self, syntax: InterfaceSyntax) -> Option<DefinitionId> {
        let InterfaceSyntax { front, name, local, is_abstract, bases, items } = syntax;
        // Before its own name hides an outer one.
        let bases = self.bases(&bases, local, is_abstract);
        let known = self.scopes.own(self.here, &name.text).filter(|entry| entry.name == name.text);
        let known = known.and_then(|entry| match entry.what {
            Entity::Definition(id) if self.of(id).what == DefinitionSort::Interface => Some(id),
            _ => None,
        });
        let id = match known {
            Some(id) if items.is_none() || !self.of(id).complete => {
                let prefix = self.prefix.clone();
                self.same_prefix(id, prefix, &name);
                self.same_sort(id, local, is_abstract, &name);
                id
            }
            _ => {
                let id = self.draft(&name, DefinitionSort::Interface, Front::default());
                if !self.scopes.declare(self.here, &name, Entity::Definition(id), self.findings) {
                    return None;
                }
                let scope = self.scopes.open(self.here, &name.text);
                self.scopes.belongs(scope, id);
                let draft = &mut self.drafts[id.0 as usize];
                draft.local = local;
                if is_abstract {
                    self.abstracts.insert(id);
                }
                id
            }
        };
        let Some(items) = items else {
            // It is ordered by its first declaration, unless it is defined later.
            return known.is_none().then_some(id);
        };
        let draft = &mut self.drafts[id.0 as usize];
        (draft.front, draft.at) = (front, name.at);
        let mut interface = IdlInterface { local, is_abstract, bases, ..IdlInterface::default() };
        let scope = self.scopes.of(id).unwrap_or(self.here);
        for base in &interface.bases {
            if let Some(base) = self.scopes.of(*base) {
                self.scopes.inherit(scope, base);
            }
        }
        if self.scopes.with_ancestors(scope).len() > MOST_ANCESTORS {
            let error =
                IdlDiagnostic::at(name.at, format!("`{}` inherits more than {MOST_ANCESTORS} interfaces", name.text));
            self.findings.error(error);
            self.scopes.disinherit(scope);
            interface.bases.clear();
        }
        self.clashing_bases(&interface.bases, &name);
        let outside = (self.here, self.prefix.clone());
        self.here = scope;
        self.prefix = self.prefix_within(&name.text);
        for item in items {
            if self.drafts.len() > super::MOST_DEFINITIONS {
                break;
            }
            match item {
                SyntaxItem::Operation(operation) => {
                    let operation = self.operation(operation, local);
                    interface.operations.extend(operation);
                }
                SyntaxItem::Attribute(attribute) => self.attributes(attribute, local, &mut interface.attributes),
                item => {
                    let ids = self.shared(item);
                    interface.definitions.append(&mut self.inner);
                    interface.definitions.extend(ids);
                }
            }
        }
        (self.here, self.prefix) = outside;
        let draft = &mut self.drafts[id.0 as usize];
        (draft.kind, draft.complete) = (Some(DefinitionKind::Interface(interface)), true);
        // Its forward declaration has already entered it into the scope.
        known.is_none().then_some(id)
    }

    /// A forward declaration and the definition must agree on `local` and `abstract`.
    fn same_sort(&mut self, id: DefinitionId, local: bool, is_abstract: bool, name: &Name) {
        let (was_local, was_abstract) = (self.of(id).local, self.abstracts.contains(&id));
        if (was_local, was_abstract) != (local, is_abstract) {
            let error = IdlDiagnostic::at(
                name.at,
                format!("`{}` is `local` or `abstract` in only one of its declarations", name.text),
            );
            let at = self.of(id).at;
            self.findings.error(error.other(at, "declared here").help("write it in both, or in none"));
        }
    }

    fn bases(&mut self, names: &[ScopedName], local: bool, is_abstract: bool) -> Vec<DefinitionId> {
        let mut bases: Vec<DefinitionId> = Vec::new();
        let mut places: HashMap<DefinitionId, SourceSpan> = HashMap::new();
        for name in names {
            let Some(entity) = self.scopes.look_up_base(self.here, name, self.findings) else { continue };
            let id = match entity {
                Entity::Definition(id) => match self.plain(&Type::Named(id)) {
                    Type::Named(plain) if self.of(plain).what == DefinitionSort::Interface => plain,
                    _ => {
                        let (noun, at) = (self.of(id).what.noun(), self.of(id).at);
                        let error =
                            IdlDiagnostic::at(name.at, format!("`{}` is {noun}, not an interface", name.text()));
                        self.findings.error(error.other(at, "declared here"));
                        continue;
                    }
                },
                _ => {
                    self.findings.error(IdlDiagnostic::at(name.at, format!("`{}` is not an interface", name.text())));
                    continue;
                }
            };
            let (base_at, base_local, complete) = (self.of(id).at, self.of(id).local, self.of(id).complete);
            let wrong = if !complete {
                let error = IdlDiagnostic::at(name.at, format!("`{}` is declared, but not defined yet", name.text()));
                Some(error.other(base_at, "declared here").help("define it before interfaces that inherit it"))
            } else if let Some(other) = places.get(&id) {
                let error = IdlDiagnostic::at(name.at, format!("`{}` is inherited twice", name.text()));
                Some(error.other(*other, "first here").help("remove one of them"))
            } else if base_local && !local {
                let error =
                    IdlDiagnostic::at(name.at, format!("`{}` is local, and this interface is not", name.text()));
                Some(error.other(base_at, "declared here").help("write `local` before this one too"))
            } else if is_abstract && !self.abstracts.contains(&id) {
                let error =
                    IdlDiagnostic::at(name.at, format!("`{}` is not abstract, and this interface is", name.text()));
                Some(error.other(base_at, "declared here").help("an abstract interface inherits abstract ones only"))
            } else {
                None
            };
            match wrong {
                Some(error) => self.findings.error(error),
                None if bases.len() > MOST_ANCESTORS => break,
                None => {
                    places.insert(id, name.at);
                    bases.push(id);
                }
            }
        }
        bases
    }

    /// Two ancestors may not have different operations or attributes of one name.
    fn clashing_bases(&mut self, bases: &[DefinitionId], name: &Name) {
        // The members inherited by one base were compared there.
        if bases.len() < 2 {
            return;
        }
        let mut seen: HashMap<String, (String, Option<SourceSpan>, String)> = HashMap::new();
        let mut visited = Vec::new();
        for base in bases {
            let Some(scope) = self.scopes.of(*base) else { continue };
            for ancestor in self.scopes.with_ancestors(scope) {
                if visited.contains(&ancestor) {
                    continue;
                }
                visited.push(ancestor);
                let of = self.scopes.path(ancestor).join("::");
                for entry in self.scopes.entries(ancestor) {
                    if !matches!(entry.what, Entity::Operation | Entity::Attribute) {
                        continue;
                    }
                    self.compared += 1;
                    if self.compared > MOST_COMPARED {
                        let error =
                            IdlDiagnostic::at(name.at, "these interfaces inherit more operations than can be compared");
                        return self.findings.error(error.help("inherit fewer of them, or declare fewer"));
                    }
                    let found = (entry.name.clone(), entry.at, of.clone());
                    let Some((other, at, from)) = seen.insert(entry.name.to_ascii_lowercase(), found) else { continue };
                    let message =
                        format!("`{}` inherits `{}` from `{of}` and `{other}` from `{from}`", name.text, entry.name);
                    let mut error = IdlDiagnostic::at(name.at, message).label("would have both");
                    for (at, of) in [(at, &from), (entry.at, &of)] {
                        if let Some(at) = at {
                            error = error.other(at, format!("from `{of}`"));
                        }
                    }
                    self.findings
                        .error(error.help("declare it once, in an interface that both inherit, or rename one"));
                }
            }
        }
    }

    /// A type of a parameter or result of this interface.
    fn passed(&mut self, syntax: &TypeSyntax, of: &str, local: bool) -> Option<Type> {
        let anonymous = match &syntax.what {
            TypeForm::Sequence(..) => Some("a sequence"),
            TypeForm::Fixed(..) => Some("a fixed-point type"),
            _ => None,
        };
        if let Some(anonymous) = anonymous {
            let error = IdlDiagnostic::at(syntax.at, format!("{anonymous} needs a name to be {of}"));
            self.findings.error(error.label("has no name").help("declare it with `typedef`, and use that name here"));
            return None;
        }
        let found = self.whole_type(syntax, of)?;
        if self.is_local(&found) && !local {
            let error = IdlDiagnostic::at(syntax.at, "a local interface cannot be passed by one that is not local");
            self.findings
                .error(error.help("local objects never leave their process: write `local` before this interface too"));
            return None;
        }
        Some(found)
    }

    fn operation(&mut self, syntax: OperationSyntax, local: bool) -> Option<IdlOperation> {
        let OperationSyntax { front, name, oneway, result, parameters, raises } = syntax;
        let result_at = result.as_ref().map(|result| result.at);
        let returned = result.as_ref().map(|result| self.passed(result, "a result", local));
        self.scopes.declare(self.here, &name, Entity::Operation, self.findings);
        let outside = self.here;
        self.here = self.scopes.open(outside, "");
        let mut passed = Vec::new();
        let mut sound = !matches!(returned, Some(None));
        for parameter in parameters {
            let of = self.passed(&parameter.of, "a parameter", local);
            sound &= of.is_some();
            sound &= self.scopes.declare(self.here, &parameter.name, Entity::Parameter, self.findings);
            if oneway.is_some() && parameter.direction != Direction::In {
                let error = IdlDiagnostic::at(parameter.direction_at, "a `oneway` operation has `in` parameters only");
                let error = error.label("it has no reply");
                self.findings.error(error.help("write `in`, or remove `oneway`"));
            }
            let Some(of) = of else { continue };
            let Front { docs, annotations } = parameter.front;
            let member = Member { name: parameter.name.text, docs, annotations, of };
            passed.push(Parameter { direction: parameter.direction, member });
        }
        self.here = outside;
        let exceptions = self.raised(&raises, local);
        if let Some(oneway) = oneway {
            if let Some(at) = result_at {
                let error =
                    IdlDiagnostic::at(at, "a `oneway` operation has no result").other(oneway, "declared `oneway`");
                self.findings.error(error.help("write `void`, or remove `oneway`"));
            }
            if let Some(first) = raises.first() {
                let error = IdlDiagnostic::at(first.at, "a `oneway` operation raises nothing")
                    .other(oneway, "declared `oneway`");
                self.findings.error(error.help("remove `raises` or `oneway`"));
            }
        }
        let Front { docs, annotations } = front;
        let (oneway, result) = (oneway.is_some(), returned.flatten());
        sound.then_some(IdlOperation {
            name: name.text,
            docs,
            annotations,
            oneway,
            result,
            parameters: passed,
            raises: exceptions,
        })
    }

    fn attributes(&mut self, syntax: AttributeSyntax, local: bool, attributes: &mut Vec<Attribute>) {
        let AttributeSyntax { front, readonly, of, names, get_raises, set_raises } = syntax;
        let of = self.passed(&of, "an attribute", local);
        let (get_raises, set_raises) = (self.raised(&get_raises, local), self.raised(&set_raises, local));
        let many = names.len() > 16;
        for name in names {
            self.scopes.declare(self.here, &name, Entity::Attribute, self.findings);
            let Some(of) = of.clone() else { continue };
            // In a declaration of very many names none gets the comment: each would hold a copy.
            let Front { docs, annotations } = if many { Front::default() } else { front.clone() };
            let member = Member { name: name.text, docs, annotations, of };
            let (get_raises, set_raises) = (get_raises.clone(), set_raises.clone());
            attributes.push(Attribute { member, readonly, get_raises, set_raises });
        }
    }

    /// Exceptions by their names, each once.
    fn raised(&mut self, names: &[ScopedName], local: bool) -> Vec<DefinitionId> {
        let mut ids = Vec::new();
        let mut places: HashMap<DefinitionId, SourceSpan> = HashMap::new();
        for name in names {
            let Some(entity) = self.scopes.look_up(self.here, name, self.findings) else { continue };
            match entity {
                Entity::Definition(id) if self.of(id).what == DefinitionSort::Exception => {
                    if let Some(other) = places.insert(id, name.at) {
                        let warning = IdlDiagnostic::at(name.at, format!("`{}` is raised twice", name.text()));
                        self.findings.warn(warning.other(other, "first here").help("remove one of them"));
                        continue;
                    }
                    if self.of(id).local && !local {
                        let error = IdlDiagnostic::at(name.at, format!("`{}` contains a local interface", name.text()));
                        let error = error.label("cannot be raised by an interface that is not local");
                        let at = self.of(id).at;
                        self.findings
                            .error(error.other(at, "declared here").help("write `local` before this interface"));
                    }
                    ids.push(id);
                }
                Entity::Definition(id) => {
                    let (noun, at) = (self.of(id).what.noun(), self.of(id).at);
                    let error = IdlDiagnostic::at(name.at, format!("`{}` is {noun}, not an exception", name.text()));
                    self.findings.error(error.label("cannot be raised").other(at, "declared here"));
                }
                _ => {
                    let error = IdlDiagnostic::at(name.at, format!("`{}` is not an exception", name.text()));
                    self.findings.error(error.label("cannot be raised"));
                }
            }
        }
        ids
    }
}
