//! The contexts of a naming service, as a pure structure. A change is decided first, stored next, and applied last. If
//! it cannot be stored, it is not applied.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Unbounded};
use std::slice;

use hyoshi_wire::SystemException;
use hyoshi_wire::ior::Ior;

use crate::naming_context::{AlreadyBound, InvalidName, NotEmpty, NotFound, NotFoundReason};
use crate::{Name, NameComponent};

/// A context of this service, as in the keys of references.
pub(crate) type ContextId = u64;

/// The context `NameService`, which always exists.
pub(crate) const ROOT: ContextId = 0;

/// The object or context of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Referent {
    /// An object. Names do not lead through it, even if it is a context.
    Object(Ior),
    /// A context of this service.
    Here(ContextId),
    /// A context of another.
    Elsewhere(Ior),
}

impl Referent {
    pub(crate) fn is_context(&self) -> bool {
        !matches!(self, Referent::Object(_))
    }

    fn octets(&self) -> usize {
        match self {
            Referent::Object(ior) | Referent::Elsewhere(ior) => {
                ior.profiles.iter().map(|profile| 8 + profile.data.len()).sum::<usize>() + ior.type_id.len()
            }
            Referent::Here(_) => 8,
        }
    }
}

impl NameComponent {
    fn octets(&self) -> usize {
        self.id.len() + self.kind.len()
    }
}

/// A change of the tree, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeChange {
    /// Replaces an earlier binding, if any.
    Bind(ContextId, NameComponent, Referent),
    Unbind(ContextId, NameComponent),
    Make(ContextId),
    Destroy(ContextId),
}

impl TreeChange {
    pub(crate) fn context(&self) -> ContextId {
        let (TreeChange::Bind(id, ..) | TreeChange::Unbind(id, _) | TreeChange::Make(id) | TreeChange::Destroy(id)) =
            self;
        *id
    }
}

impl AsRef<[TreeChange]> for TreeChange {
    fn as_ref(&self) -> &[TreeChange] {
        slice::from_ref(self)
    }
}

/// The reason why an operation fails, or belongs to another service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NamingRefusal {
    NotFound(NotFound),
    /// The name leads into another service, which has to resolve the rest.
    Elsewhere(Ior, Name),
    /// The name is empty.
    InvalidName(InvalidName),
    AlreadyBound(AlreadyBound),
    NotEmpty(NotEmpty),
    /// The root cannot be destroyed.
    Root,
    /// The context was destroyed.
    Gone,
    /// A field of [`NamingLimits`].
    Limit(&'static str),
    /// It cannot be stored.
    Unstored(SystemException),
}

/// Limits on the memory that clients can use in a naming service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamingLimits {
    /// Components of a name; default 64.
    pub depth: usize,
    /// Octets of a component, id and kind together; default 1,024.
    pub component: usize,
    /// Octets of a reference that is bound; default 16 KiB.
    pub reference: usize,
    /// Bindings in all contexts together; default 100,000.
    pub bindings: usize,
    /// Octets of all bindings together, names and references; default 64 MiB.
    pub octets: usize,
    /// Contexts; default 10,000.
    pub contexts: usize,
    /// Iterators over listings; default 256. Above that, the least recently used one ends.
    pub iterators: usize,
    /// The lifetime of an unused iterator; default 5 min.
    pub idle_iterators: hyoshi_model::Span,
    /// The time limit for calls to another naming service that a name leads into; default 10 s.
    pub elsewhere: hyoshi_model::Span,
}

impl Default for NamingLimits {
    fn default() -> Self {
        NamingLimits {
            depth: 64,
            component: 1024,
            reference: 16 << 10,
            bindings: 100_000,
            octets: 64 << 20,
            contexts: 10_000,
            iterators: 256,
            idle_iterators: hyoshi_model::Span::from_secs(300),
            elsewhere: hyoshi_model::Span::from_secs(10),
        }
    }
}

/// The contexts with their bindings.
#[derive(Debug)]
pub(crate) struct NamingTree {
    limits: NamingLimits,
    contexts: HashMap<ContextId, BTreeMap<NameComponent, Referent>>,
    bindings: usize,
    /// Of all bindings; see [`NamingLimits::octets`].
    octets: usize,
    /// Above all used ids, as references to destroyed contexts must never refer to another one.
    next: ContextId,
}

impl NamingTree {
    pub(crate) fn new(limits: NamingLimits) -> NamingTree {
        NamingTree {
            limits,
            contexts: HashMap::from([(ROOT, BTreeMap::new())]),
            bindings: 0,
            octets: 0,
            next: ROOT + 1,
        }
    }

    /// Applies a change that was decided here, or stored by an earlier run. False if it does not fit this tree.
    pub(crate) fn apply(&mut self, change: TreeChange) -> bool {
        match change {
            TreeChange::Bind(context, name, to) => {
                let Some(bindings) = self.contexts.get_mut(&context) else { return false };
                let id = name.octets();
                self.octets += id + to.octets();
                match bindings.insert(name, to) {
                    Some(before) => self.octets -= id + before.octets(),
                    None => self.bindings += 1,
                }
            }
            TreeChange::Unbind(context, name) => {
                let bindings = self.contexts.get_mut(&context);
                let Some(before) = bindings.and_then(|bindings| bindings.remove(&name)) else { return false };
                self.bindings -= 1;
                self.octets -= name.octets() + before.octets();
            }
            TreeChange::Make(context) => {
                let Some(next) = context.checked_add(1).filter(|_| !self.has(context)) else { return false };
                self.contexts.insert(context, BTreeMap::new());
                self.next = self.next.max(next);
            }
            TreeChange::Destroy(context) => {
                // A snapshot destroys a context that does not exist, to record the highest used id.
                let Some(next) = context.checked_add(1).filter(|_| context != ROOT) else { return false };
                self.next = self.next.max(next);
                if let Some(bindings) = self.contexts.remove(&context) {
                    self.bindings -= bindings.len();
                    self.octets -= bindings.iter().map(|(name, to)| name.octets() + to.octets()).sum::<usize>();
                }
            }
        }
        true
    }

    /// The changes from an empty tree to this one.
    pub(crate) fn snapshot(&self) -> impl Iterator<Item = TreeChange> {
        let used_up = TreeChange::Destroy(self.next - 1);
        let used_up = (self.next - 1 != ROOT && !self.has(self.next - 1)).then_some(used_up);
        let make = self.contexts.keys().filter(|context| **context != ROOT);
        let make = make.map(|context| TreeChange::Make(*context));
        let all = self.contexts.iter().flat_map(|(context, bindings)| bindings.iter().map(move |one| (*context, one)));
        let bind = all.map(|(context, (name, to))| TreeChange::Bind(context, name.clone(), to.clone()));
        used_up.into_iter().chain(make).chain(bind)
    }

    pub(crate) fn has(&self, context: ContextId) -> bool {
        self.contexts.contains_key(&context)
    }

    /// The numbers of bindings and contexts.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.bindings, self.contexts.len())
    }

    pub(crate) fn resolve(&self, from: ContextId, name: &[NameComponent]) -> Result<Referent, NamingRefusal> {
        let (context, last) = self.walk(from, name)?;
        self.bound(context, last).cloned().ok_or_else(|| missing(last))
    }

    pub(crate) fn bind(
        &self,
        from: ContextId,
        name: &[NameComponent],
        to: Referent,
    ) -> Result<TreeChange, NamingRefusal> {
        let (context, last) = self.walk(from, name)?;
        if self.bound(context, last).is_some() {
            return Err(NamingRefusal::AlreadyBound(AlreadyBound));
        }
        self.place(context, last, to)
    }

    /// A context replaces only a context, and an object only an object.
    pub(crate) fn rebind(
        &self,
        from: ContextId,
        name: &[NameComponent],
        to: Referent,
    ) -> Result<TreeChange, NamingRefusal> {
        let (context, last) = self.walk(from, name)?;
        match self.bound(context, last) {
            Some(bound) if bound.is_context() != to.is_context() => {
                let why = if to.is_context() { NotFoundReason::NotContext } else { NotFoundReason::NotObject };
                Err(not_found(why, slice::from_ref(last)))
            }
            _ => self.place(context, last, to),
        }
    }

    pub(crate) fn unbind(&self, from: ContextId, name: &[NameComponent]) -> Result<TreeChange, NamingRefusal> {
        let (context, last) = self.walk(from, name)?;
        match self.bound(context, last) {
            Some(_) => Ok(TreeChange::Unbind(context, last.clone())),
            None => Err(missing(last)),
        }
    }

    pub(crate) fn make(&self) -> Result<TreeChange, NamingRefusal> {
        if self.contexts.len() >= self.limits.contexts || self.next == ContextId::MAX {
            return Err(NamingRefusal::Limit("contexts"));
        }
        Ok(TreeChange::Make(self.next))
    }

    /// The new context, and its binding.
    pub(crate) fn bind_new(&self, from: ContextId, name: &[NameComponent]) -> Result<[TreeChange; 2], NamingRefusal> {
        let bind = self.bind(from, name, Referent::Here(self.next))?;
        Ok([self.make()?, bind])
    }

    pub(crate) fn destroy(&self, context: ContextId) -> Result<TreeChange, NamingRefusal> {
        match self.contexts.get(&context) {
            None => Err(NamingRefusal::Gone),
            Some(bindings) if !bindings.is_empty() => Err(NamingRefusal::NotEmpty(NotEmpty)),
            Some(_) if context == ROOT => Err(NamingRefusal::Root),
            Some(_) => Ok(TreeChange::Destroy(context)),
        }
    }

    /// Bindings after `last`, in the order of their names; whether each is a context.
    pub(crate) fn list(
        &self,
        context: ContextId,
        last: Option<&NameComponent>,
    ) -> impl Iterator<Item = (&NameComponent, bool)> {
        let from = last.map_or(Unbounded, Excluded);
        let found = self.contexts.get(&context).map(|bindings| bindings.range((from, Unbounded)));
        found.into_iter().flatten().map(|(name, bound)| (name, bound.is_context()))
    }

    fn bound(&self, context: ContextId, name: &NameComponent) -> Option<&Referent> {
        self.contexts.get(&context)?.get(name)
    }

    /// Follows a name to the context of its last component.
    fn walk<'a>(
        &self,
        from: ContextId,
        name: &'a [NameComponent],
    ) -> Result<(ContextId, &'a NameComponent), NamingRefusal> {
        let [way @ .., last] = name else { return Err(NamingRefusal::InvalidName(InvalidName)) };
        if name.len() > self.limits.depth {
            return Err(NamingRefusal::Limit("depth"));
        }
        if name.iter().any(|step| step.octets() > self.limits.component) {
            return Err(NamingRefusal::Limit("component"));
        }
        if !self.has(from) {
            return Err(NamingRefusal::Gone);
        }
        let mut context = from;
        for (at, step) in way.iter().enumerate() {
            context = match self.bound(context, step) {
                None => return Err(not_found(NotFoundReason::MissingNode, &name[at..])),
                // If not, the context was destroyed while it was bound.
                Some(Referent::Here(context)) if self.has(*context) => *context,
                Some(Referent::Here(_) | Referent::Object(_)) => {
                    return Err(not_found(NotFoundReason::NotContext, &name[at..]));
                }
                Some(Referent::Elsewhere(ior)) => {
                    return Err(NamingRefusal::Elsewhere(ior.clone(), name[at + 1..].to_vec()));
                }
            };
        }
        Ok((context, last))
    }

    fn place(&self, context: ContextId, name: &NameComponent, to: Referent) -> Result<TreeChange, NamingRefusal> {
        if to.octets() > self.limits.reference {
            return Err(NamingRefusal::Limit("reference"));
        }
        let freed = self.bound(context, name).map_or(0, |before| name.octets() + before.octets());
        if self.octets - freed + name.octets() + to.octets() > self.limits.octets {
            return Err(NamingRefusal::Limit("octets"));
        }
        if self.bindings >= self.limits.bindings && self.bound(context, name).is_none() {
            return Err(NamingRefusal::Limit("bindings"));
        }
        Ok(TreeChange::Bind(context, name.clone(), to))
    }
}

fn missing(last: &NameComponent) -> NamingRefusal {
    not_found(NotFoundReason::MissingNode, slice::from_ref(last))
}

fn not_found(why: NotFoundReason, rest: &[NameComponent]) -> NamingRefusal {
    NamingRefusal::NotFound(NotFound { why, rest_of_name: rest.to_vec() })
}

#[cfg(test)]
mod tests {
    use hyoshi_wire::ior::Profile;

    use super::*;

    fn name(text: &str) -> Vec<NameComponent> {
        crate::name::parse(text).unwrap()
    }

    fn object(id: &str) -> Referent {
        Referent::Object(ior(id))
    }

    fn ior(id: &str) -> Ior {
        Ior { type_id: id.to_owned(), profiles: vec![Profile { tag: 7, data: vec![1, 2] }] }
    }

    /// `a` and `a/b` are contexts, `a/b/o.kind` an object, `far` a context elsewhere.
    fn tree() -> NamingTree {
        let mut tree = NamingTree::new(NamingLimits::default());
        for context in ["a", "a/b"] {
            for change in tree.bind_new(ROOT, &name(context)).unwrap() {
                assert!(tree.apply(change));
            }
        }
        for (at, bound) in [("a/b/o.kind", object("o")), ("far", Referent::Elsewhere(ior("far")))] {
            assert!(tree.apply(tree.bind(ROOT, &name(at), bound).unwrap()));
        }
        tree
    }

    fn not_found(why: NotFoundReason, rest: &str) -> NamingRefusal {
        super::not_found(why, &name(rest))
    }

    #[test]
    fn names_lead_through_contexts() {
        let tree = tree();
        assert_eq!(tree.resolve(ROOT, &name("a/b/o.kind")), Ok(object("o")));
        assert_eq!(tree.resolve(1, &name("b/o.kind")), Ok(object("o")));
        assert_eq!(tree.resolve(ROOT, &name("a/b")), Ok(Referent::Here(2)));
        assert_eq!(tree.size(), (4, 3));
    }

    #[test]
    fn not_found_has_the_rest_of_the_name() {
        let tree = tree();
        let resolve = |text| tree.resolve(ROOT, &name(text)).unwrap_err();
        assert_eq!(resolve("a/b/o"), not_found(NotFoundReason::MissingNode, "o"));
        assert_eq!(resolve("a/x/y"), not_found(NotFoundReason::MissingNode, "x/y"));
        assert_eq!(resolve("a/b/o.kind/y"), not_found(NotFoundReason::NotContext, "o.kind/y"));
        assert_eq!(tree.resolve(ROOT, &[]), Err(NamingRefusal::InvalidName(InvalidName)));
        assert_eq!(tree.unbind(ROOT, &name("a/x")), Err(not_found(NotFoundReason::MissingNode, "x")));
        let rest = name("x/y");
        assert_eq!(resolve("far/x/y"), NamingRefusal::Elsewhere(ior("far"), rest));
    }

    #[test]
    fn a_binding_is_replaced_only_by_one_of_its_type() {
        let mut tree = tree();
        assert_eq!(tree.bind(ROOT, &name("a"), object("p")), Err(NamingRefusal::AlreadyBound(AlreadyBound)));
        assert_eq!(tree.rebind(ROOT, &name("a"), object("p")), Err(not_found(NotFoundReason::NotObject, "a")));
        let context = tree.rebind(ROOT, &name("a/b/o.kind"), Referent::Here(1));
        assert_eq!(context, Err(not_found(NotFoundReason::NotContext, "o.kind")));
        assert!(tree.apply(tree.rebind(ROOT, &name("a/b/o.kind"), object("p")).unwrap()));
        assert_eq!(tree.resolve(ROOT, &name("a/b/o.kind")), Ok(object("p")));
        assert_eq!(tree.size().0, 4);
        assert!(tree.apply(tree.rebind(ROOT, &name("new"), object("n")).unwrap()));
        assert_eq!(tree.size().0, 5);
    }

    #[test]
    fn only_empty_contexts_end_and_their_ids_are_never_used_again() {
        let mut tree = tree();
        assert_eq!(tree.destroy(2), Err(NamingRefusal::NotEmpty(NotEmpty)));
        assert!(tree.apply(tree.unbind(2, &name("o.kind")).unwrap()));
        assert!(tree.apply(tree.destroy(2).unwrap()));
        assert_eq!(tree.resolve(2, &name("x")), Err(NamingRefusal::Gone));
        assert_eq!(tree.destroy(2), Err(NamingRefusal::Gone));
        assert_eq!(tree.resolve(ROOT, &name("a/b/x")), Err(not_found(NotFoundReason::NotContext, "b/x")));
        let mut again = NamingTree::new(NamingLimits::default());
        assert!(tree.snapshot().all(|change| again.apply(change)));
        assert_eq!(again.make(), Ok(TreeChange::Make(3)));
        assert_eq!(NamingTree::new(NamingLimits::default()).destroy(ROOT), Err(NamingRefusal::Root));
    }

    #[test]
    fn a_snapshot_makes_the_same_tree() {
        let tree = tree();
        let mut again = NamingTree::new(NamingLimits::default());
        assert!(tree.snapshot().all(|change| again.apply(change)));
        assert_eq!((&again.contexts, again.size(), again.next), (&tree.contexts, tree.size(), tree.next));
    }

    #[test]
    fn listings_continue_after_a_name_that_was_unbound() {
        let mut tree = tree();
        let listed: Vec<_> = tree.list(ROOT, None).map(|(name, context)| (name.id.clone(), context)).collect();
        assert_eq!(listed, [("a".to_owned(), true), ("far".to_owned(), true)]);
        assert!(tree.apply(tree.unbind(ROOT, &name("a")).unwrap()));
        assert_eq!(tree.list(ROOT, Some(&name("a")[0])).count(), 1);
        assert_eq!(tree.list(77, None).count(), 0);
    }

    #[test]
    fn octets_of_all_bindings_are_bounded_and_counted() {
        let mut tree = NamingTree::new(NamingLimits { octets: 30, ..NamingLimits::default() });
        // A name of one octet, and 8 + 2 + 1 of its reference.
        let bind = |tree: &mut NamingTree, at: &str, id: &str| {
            let change = tree.rebind(ROOT, &name(at), object(id))?;
            assert!(tree.apply(change));
            Ok::<_, NamingRefusal>(tree.octets)
        };
        assert_eq!(bind(&mut tree, "a", "o"), Ok(12));
        assert_eq!(bind(&mut tree, "b", "o"), Ok(24));
        assert_eq!(bind(&mut tree, "c", "o"), Err(NamingRefusal::Limit("octets")));
        assert_eq!(bind(&mut tree, "a", "longer"), Ok(29), "in place of what was there");
        assert_eq!(bind(&mut tree, "a", "o"), Ok(24));
        assert!(tree.apply(tree.unbind(ROOT, &name("b")).unwrap()));
        assert_eq!(tree.octets, 12);
        let [make, here] = tree.bind_new(ROOT, &name("d")).unwrap();
        assert!(tree.apply(make) && tree.apply(here));
        assert_eq!(tree.octets, 21);
        assert!(tree.apply(TreeChange::Destroy(ROOT + 1)));
        assert_eq!(tree.octets, 21, "what it is bound to is still counted");
    }

    #[test]
    fn limits_hold() {
        let limits =
            NamingLimits { depth: 2, component: 3, bindings: 1, contexts: 2, reference: 20, ..NamingLimits::default() };
        let mut tree = NamingTree::new(limits);
        let limit = |limit| NamingRefusal::Limit(limit);
        assert_eq!(tree.resolve(ROOT, &name("a/b/c")), Err(limit("depth")));
        assert_eq!(tree.resolve(ROOT, &name("ab.cd")), Err(limit("component")));
        assert_eq!(tree.bind(ROOT, &name("a"), object("a long repository id")), Err(limit("reference")));
        assert!(tree.apply(tree.bind(ROOT, &name("a"), object("a")).unwrap()));
        assert_eq!(tree.bind(ROOT, &name("b"), object("b")), Err(limit("bindings")));
        assert!(tree.rebind(ROOT, &name("a"), object("b")).is_ok());
        assert!(tree.apply(tree.make().unwrap()));
        assert_eq!(tree.make(), Err(limit("contexts")));
    }
}
