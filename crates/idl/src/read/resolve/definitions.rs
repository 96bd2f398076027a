//! Typedefs, structs, exceptions, unions and enumerations.

use std::collections::HashMap;

use super::scope::{Entity, ScopeId};
use super::{DefinitionSort, Resolver};
use crate::read::diagnostic::IdlDiagnostic;
use crate::read::source::SourceSpan;
use crate::read::syntax::{
    CaseSyntax, Constructed, Construction, Declarator, Front, Label, MemberSyntax, Name, ScopedName, TypeForm,
    TypeSyntax,
};
use crate::tree::{Case, ConstantValue, DefinitionId, DefinitionKind, Enumerator, Member, Type, Union};

impl Resolver<'_> {
    pub fn aliases(&mut self, front: Front, of: TypeSyntax, names: Vec<Declarator>) -> Vec<DefinitionId> {
        let mut ids = Vec::new();
        let of = self.declared_type(of, "a typedef");
        ids.append(&mut self.inner);
        for (place, declarator) in names.into_iter().enumerate() {
            let whole = of.as_ref().and_then(|of| self.with_dimensions(of, &declarator));
            let measured = whole.and_then(|whole| {
                let (depth, least) = self.measured(&whole, declarator.name.at)?;
                let local = self.is_local(&whole);
                Some((whole, depth, least, local))
            });
            let id = self.declare(&declarator.name, DefinitionSort::Alias, documented(&front, &declarator, place));
            let draft = &mut self.drafts[id.0 as usize];
            draft.complete = true;
            if let Some((whole, depth, least, local)) = measured {
                (draft.kind, draft.depth, draft.least, draft.local) =
                    (Some(DefinitionKind::Alias(whole)), depth, least, local);
            }
            ids.push(id);
        }
        ids
    }

    /// A type where one may be declared as well.
    fn declared_type(&mut self, syntax: TypeSyntax, of: &str) -> Option<Type> {
        match syntax.what {
            TypeForm::Constructed(constructed) => {
                let id = self.constructed(*constructed)?;
                self.inner.push(id);
                Some(Type::Named(id))
            }
            _ => self.type_in_use(&syntax, of),
        }
    }

    /// `struct S;` or `union U;`.
    pub fn forward(&mut self, name: Name, what: DefinitionSort) {
        self.opened(&name, what, Front::default());
    }

    /// The draft of a struct or union: the one that was declared forward, or a new one; `None` after a clash.
    fn opened(&mut self, name: &Name, what: DefinitionSort, front: Front) -> Option<DefinitionId> {
        if let Some(entry) = self.scopes.own(self.here, &name.text).filter(|entry| entry.name == name.text)
            && let Entity::Definition(id) = entry.what
            && self.of(id).what == what
            && !self.of(id).complete
            && self.of(id).kind.is_none()
        {
            let prefix = self.prefix.clone();
            self.same_prefix(id, prefix, name);
            return Some(id);
        }
        let id = self.draft(name, what, front);
        if !self.scopes.declare(self.here, name, Entity::Definition(id), self.findings) {
            return None;
        }
        let scope = self.scopes.open(self.here, &name.text);
        self.scopes.belongs(scope, id);
        Some(id)
    }

    /// A forward declaration and the definition must have the same repository id.
    pub fn same_prefix(&mut self, id: DefinitionId, prefix: String, name: &Name) {
        let draft = self.of(id);
        if draft.identity.prefix != prefix {
            let (was, at) = (draft.identity.prefix.clone(), draft.at);
            let message =
                format!("`{}` has the prefix \"{prefix}\" here, and \"{was}\" in its forward declaration", name.text);
            let error = IdlDiagnostic::at(name.at, message).other(at, "declared here");
            self.findings.error(error.help("both must have one repository id: set the prefix before both"));
        }
    }

    pub fn constructed(&mut self, constructed: Constructed) -> Option<DefinitionId> {
        let Constructed { front, name, what } = constructed;
        match what {
            Construction::Struct { base, members } => self.structure(front, name, base, members),
            Construction::Union { switch, cases } => self.union(front, name, *switch, cases),
            Construction::Enum { names } => Some(self.enumeration(front, name, names)),
        }
    }

    fn structure(
        &mut self,
        front: Front,
        name: Name,
        base: Option<ScopedName>,
        syntax: Vec<MemberSyntax>,
    ) -> Option<DefinitionId> {
        let inherited = match base {
            Some(base) => self.base_members(&base),
            None => Some(Vec::new()),
        };
        let id = self.opened(&name, DefinitionSort::Struct, front.clone())?;
        let scope = self.enter(id, front, &name);
        let mut members = Vec::new();
        for (member, at) in inherited.iter().flatten() {
            let name = Name { text: member.name.clone(), at: *at };
            self.scopes.declare(self.here, &name, Entity::Member, self.findings);
            members.push(member.clone());
        }
        let sound = self.members(syntax, &mut members) && inherited.is_some();
        self.leave(scope, id, sound.then_some(DefinitionKind::Struct(members)), name.at);
        Some(id)
    }

    /// The members of the base struct, with the place of its name.
    fn base_members(&mut self, base: &ScopedName) -> Option<Vec<(Member, SourceSpan)>> {
        let Entity::Definition(id) = self.scopes.look_up(self.here, base, self.findings)? else {
            self.findings.error(IdlDiagnostic::at(base.at, format!("`{}` is not a struct", base.text())));
            return None;
        };
        match (&self.of(id).kind, self.of(id).what) {
            (Some(DefinitionKind::Struct(members)), _) => {
                Some(members.iter().map(|member| (member.clone(), base.at)).collect())
            }
            (None, DefinitionSort::Struct) if self.of(id).complete => None,
            (_, what) => {
                let found = if what == DefinitionSort::Struct { "not defined yet" } else { what.noun() };
                let error = IdlDiagnostic::at(
                    base.at,
                    format!("`{}` is {found}, not a struct that can be extended", base.text()),
                );
                let at = self.of(id).at;
                self.findings.error(error.other(at, "declared here"));
                None
            }
        }
    }

    pub fn exception(&mut self, front: Front, name: Name, syntax: Vec<MemberSyntax>) -> DefinitionId {
        let id = self.declare(&name, DefinitionSort::Exception, front.clone());
        let scope = self.scopes.open(self.here, &name.text);
        self.scopes.belongs(scope, id);
        let outside = self.enter(id, front, &name);
        let mut members = Vec::new();
        let sound = self.members(syntax, &mut members);
        self.leave(outside, id, sound.then_some(DefinitionKind::Exception(members)), name.at);
        id
    }

    /// Enters the scope of a definition; returns the outer one.
    fn enter(&mut self, id: DefinitionId, front: Front, name: &Name) -> ScopeId {
        let draft = &mut self.drafts[id.0 as usize];
        (draft.front, draft.at) = (front, name.at);
        let outside = self.here;
        self.here = self.scopes.of(id).unwrap_or(outside);
        self.prefixes.push(self.prefix.clone());
        self.prefix = self.prefix_within(&name.text);
        outside
    }

    /// Returns to the outer scope, and completes the definition.
    fn leave(&mut self, outside: ScopeId, id: DefinitionId, kind: Option<DefinitionKind>, at: SourceSpan) {
        self.here = outside;
        self.prefix = self.prefixes.pop().unwrap_or_default();
        let types: Vec<Type> = match &kind {
            Some(DefinitionKind::Struct(members) | DefinitionKind::Exception(members)) => {
                members.iter().map(|member| member.of.clone()).collect()
            }
            Some(DefinitionKind::Union(union)) => union.cases.iter().map(|case| case.member.of.clone()).collect(),
            _ => Vec::new(),
        };
        let union = matches!(kind, Some(DefinitionKind::Union(_)));
        let (mut depth, mut least, mut local, mut sound) = (0_u16, 0_u64, false, true);
        for of in &types {
            local |= self.is_local(of);
            match self.measured(of, at) {
                Some((inner, octets)) => {
                    depth = depth.max(inner);
                    least = if union { 1 } else { least.saturating_add(octets) };
                }
                None => sound = false,
            }
        }
        let draft = &mut self.drafts[id.0 as usize];
        (draft.depth, draft.least, draft.local, draft.complete) = (depth, least, local, true);
        draft.kind = kind.filter(|_| sound);
        if least >= 1 << 32 {
            self.measured(&Type::Named(id), at);
        }
    }

    /// Declares members in the current scope; false if one has an error.
    fn members(&mut self, syntax: Vec<MemberSyntax>, members: &mut Vec<Member>) -> bool {
        let mut sound = true;
        for MemberSyntax { front, of, names } in syntax {
            let of = self.declared_type(of, "a member");
            sound &= of.is_some();
            for (place, declarator) in names.into_iter().enumerate() {
                let whole = of.as_ref().and_then(|of| self.with_dimensions(of, &declarator));
                sound &= self.scopes.declare(self.here, &declarator.name, Entity::Member, self.findings);
                sound &= whole.is_some();
                let Some(of) = whole else { continue };
                let Front { docs, annotations } = documented(&front, &declarator, place);
                members.push(Member { name: declarator.name.text, docs, annotations, of });
            }
        }
        sound
    }

    fn enumeration(&mut self, front: Front, name: Name, names: Vec<(Front, Name)>) -> DefinitionId {
        let id = self.declare(&name, DefinitionSort::Enum, front);
        let mut enumerators = Vec::new();
        for (place, (front, name)) in names.into_iter().enumerate() {
            // In the enclosing scope: two enumerations of one scope cannot share a name.
            self.scopes.declare(self.here, &name, Entity::Enumerator(id, place as u32), self.findings);
            enumerators.push(Enumerator { name: name.text, docs: front.docs });
        }
        let draft = &mut self.drafts[id.0 as usize];
        (draft.kind, draft.complete) = (Some(DefinitionKind::Enum(enumerators)), true);
        id
    }

    fn union(&mut self, front: Front, name: Name, switch: TypeSyntax, syntax: Vec<CaseSyntax>) -> Option<DefinitionId> {
        let id = self.opened(&name, DefinitionSort::Union, front.clone())?;
        let outside = self.enter(id, front, &name);
        let switch_at = switch.at;
        let discriminator = self.declared_type(switch, "a union").and_then(|of| match self.plain(&of) {
            Type::Named(id) if self.of(id).what == DefinitionSort::Enum => Some(of),
            Type::Short
            | Type::UShort
            | Type::Long
            | Type::ULong
            | Type::LongLong
            | Type::ULongLong
            | Type::Int8
            | Type::UInt8
            | Type::Octet
            | Type::Char
            | Type::WChar
            | Type::Boolean => Some(of),
            _ => {
                let error = IdlDiagnostic::at(switch_at, "a union cannot be switched by this type");
                let help = "use an integer, `char`, `wchar`, `boolean`, `octet` or an enumeration";
                self.findings.error(error.help(help));
                None
            }
        });
        let cases = self.cases(syntax, discriminator.as_ref());
        let kind = discriminator
            .zip(cases)
            .map(|(discriminator, cases)| DefinitionKind::Union(Union { discriminator, cases }));
        self.leave(outside, id, kind, name.at);
        Some(id)
    }

    fn cases(&mut self, syntax: Vec<CaseSyntax>, discriminator: Option<&Type>) -> Option<Vec<Case>> {
        let mut cases = Vec::new();
        let mut sound = true;
        let mut seen: HashMap<i128, SourceSpan> = HashMap::new();
        let mut default: Option<SourceSpan> = None;
        let target = discriminator.and_then(|of| self.target(of));
        for CaseSyntax { front, labels: syntax, of, name } in syntax {
            let (mut labels, mut is_default) = (Vec::new(), false);
            for label in syntax {
                match label {
                    Label::Default(at) => {
                        if let Some(other) = default {
                            let error = IdlDiagnostic::at(at, "this union has two `default` labels");
                            self.findings.error(error.other(other, "the first is here"));
                        }
                        (default, is_default) = (Some(at), true);
                    }
                    Label::Value(expression) => {
                        let Some(target) = &target else { continue };
                        let Some(value) = self.value(&expression, target) else {
                            sound = false;
                            continue;
                        };
                        if let Some(other) = seen.insert(number(&value), expression.at) {
                            let error = IdlDiagnostic::at(expression.at, "this label occurs twice");
                            self.findings.error(error.label("again here").other(other, "first here"));
                        }
                        labels.push(value);
                    }
                }
            }
            let of = self.declared_type(of, "a member");
            let whole = of.as_ref().and_then(|of| self.with_dimensions(of, &name));
            sound &= self.scopes.declare(self.here, &name.name, Entity::Member, self.findings);
            sound &= whole.is_some();
            let Some(of) = whole else { continue };
            let Front { docs, annotations } = documented(&front, &name, 0);
            cases.push(Case {
                labels,
                default: is_default,
                member: Member { name: name.name.text, docs, annotations, of },
            });
        }
        let values = discriminator.and_then(|of| self.count_of_values(of));
        if let Some((at, count)) = default.zip(values).filter(|(_, count)| seen.len() as u64 >= *count) {
            let error = IdlDiagnostic::at(at, "this `default` is unreachable: each of the values has its case");
            self.findings.error(error.label(format!("all {count} have one")).help("remove it"));
        }
        sound.then_some(cases)
    }

    /// How many values a discriminator has, if a file could list them all.
    fn count_of_values(&self, of: &Type) -> Option<u64> {
        match self.plain(of) {
            Type::Boolean => Some(2),
            Type::Char | Type::Octet | Type::Int8 | Type::UInt8 => Some(256),
            Type::Short | Type::UShort => Some(65_536),
            Type::Named(id) => match &self.of(id).kind {
                Some(DefinitionKind::Enum(names)) => Some(names.len() as u64),
                _ => None,
            },
            _ => None,
        }
    }
}

/// A label as a number, to find equal ones.
fn number(label: &ConstantValue) -> i128 {
    match label {
        ConstantValue::Integer(value) => *value,
        ConstantValue::Boolean(value) => i128::from(*value),
        ConstantValue::Char(value) => i128::from(u32::from(*value)),
        ConstantValue::Enumerator(_, place) => i128::from(*place),
        ConstantValue::Floating(_) | ConstantValue::Fixed { .. } | ConstantValue::String(_) => 0,
    }
}

/// At most this many names of one declaration share the comment and the annotations before it.
const DOCUMENTED: usize = 16;

/// The comment before a declaration of several names, or the one after one of them.
fn documented(front: &Front, declarator: &Declarator, place: usize) -> Front {
    if place >= DOCUMENTED {
        return Front { docs: declarator.after.clone(), annotations: Vec::new() };
    }
    let docs = if front.docs.is_empty() { declarator.after.clone() } else { front.docs.clone() };
    Front { docs, annotations: front.annotations.clone() }
}
