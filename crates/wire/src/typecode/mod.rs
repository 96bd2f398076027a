//! Type codes: types as values (CORBA 3.3 part 1, 8.11; encoded as in part 2, 9.3.5.1).

mod build;
mod codec;
mod compare;
mod shape;

pub(crate) use codec::{read_label, write_label};

pub use build::{TypeIndex, Typed, Types};
pub use shape::{Cases, Members, TypeKind, TypeShape};

use alloc::{boxed::Box, sync::Arc};

/// A type as a value: cheap to clone, compared by content.
///
/// A struct or union occurs once in it however often it is used, also as its own member (through a sequence, as in
/// IDL).
///
/// ```
/// use hyoshi_wire::typecode::{TypeShape, TypeCode, Typed};
/// assert_eq!(<Vec<f64>>::type_code(), TypeCode::build(|types| {
///     let double = f64::describe(types);
///     types.sequence(double, 0)
/// }));
/// assert_eq!(<Vec<f64>>::type_code().to_string(), "sequence<double>");
/// ```
#[derive(Clone)]
pub struct TypeCode {
    nodes: Option<Arc<[TypeNode]>>,
    pub(crate) root: TypeIndex,
}

/// A type with parameters in a [`TypeCode`].
#[derive(Clone, Debug)]
pub(crate) enum TypeNode {
    /// A bound, 0 for none.
    String(u32),
    WString(u32),
    Fixed {
        digits: u16,
        scale: i16,
    },
    Sequence {
        of: TypeIndex,
        most: u32,
    },
    Array {
        of: TypeIndex,
        length: u32,
    },
    Alias {
        id: Box<str>,
        name: Box<str>,
        of: TypeIndex,
    },
    /// `Object`, an interface, or another kind that has a name and nothing else.
    Named {
        kind: TypeKind,
        id: Box<str>,
        name: Box<str>,
    },
    Enum {
        id: Box<str>,
        name: Box<str>,
        names: Box<[Box<str>]>,
    },
    /// An exception too.
    Struct {
        exception: bool,
        id: Box<str>,
        name: Box<str>,
        members: Box<[(Box<str>, TypeIndex)]>,
    },
    Union {
        id: Box<str>,
        name: Box<str>,
        discriminator: TypeIndex,
        /// No label: default.
        cases: Box<[Case]>,
        /// The positions of the cases with labels, in the order of the labels: a union can have a hundred thousand.
        by_label: Box<[u32]>,
    },
}

type Case = (Option<i128>, Box<str>, TypeIndex);

impl TypeCode {
    /// Of a Rust type; [`Typed::type_code`] may cache it.
    pub fn of<T: Typed + ?Sized>() -> TypeCode {
        TypeCode::build(T::describe)
    }

    /// Of a type that is known only at run time.
    ///
    /// # Panics
    ///
    /// If a type contains itself other than through a sequence, or the returned index is of other [`Types`].
    pub fn build(describe: impl FnOnce(&mut Types) -> TypeIndex) -> TypeCode {
        let mut types = Types::default();
        let root = describe(&mut types);
        types.finish(root)
    }

    pub(crate) fn nodes(&self) -> &[TypeNode] {
        self.nodes.as_deref().unwrap_or_default()
    }

    pub(crate) fn at(&self, root: TypeIndex) -> TypeCode {
        match root.simple() {
            Some(_) => TypeCode { nodes: None, root },
            None => TypeCode { nodes: self.nodes.clone(), root },
        }
    }

    fn node(&self, of: TypeIndex) -> Option<&TypeNode> {
        of.place().map(|place| &self.nodes()[place])
    }

    /// The type with its aliases resolved.
    #[must_use]
    pub fn unaliased(&self) -> TypeCode {
        self.at(unaliased(self.nodes(), self.root))
    }
}

pub(crate) fn unaliased(nodes: &[TypeNode], mut at: TypeIndex) -> TypeIndex {
    while let Some(TypeNode::Alias { of, .. }) = at.place().map(|place| &nodes[place]) {
        at = *of;
    }
    at
}

/// True if every cycle of types contains a sequence; otherwise a value would be infinite.
fn is_finite(nodes: &[TypeNode]) -> bool {
    // Kahn 1962: remove types without references to them until none is left.
    let inside = |node: &TypeNode, found: &mut dyn FnMut(TypeIndex)| match node {
        TypeNode::Array { of, .. } | TypeNode::Alias { of, .. } => found(*of),
        TypeNode::Struct { members, .. } => members.iter().for_each(|(_, of)| found(*of)),
        TypeNode::Union { discriminator, cases, .. } => {
            found(*discriminator);
            cases.iter().for_each(|(_, _, of)| found(*of));
        }
        _ => {}
    };
    let mut holders = alloc::vec![0u32; nodes.len()];
    nodes.iter().for_each(|node| inside(node, &mut |of| of.place().into_iter().for_each(|place| holders[place] += 1)));
    let mut free: alloc::vec::Vec<usize> = (0..nodes.len()).filter(|place| holders[*place] == 0).collect();
    let mut taken = 0;
    while let Some(place) = free.pop() {
        taken += 1;
        inside(&nodes[place], &mut |of| {
            if let Some(place) = of.place() {
                holders[place] -= 1;
                if holders[place] == 0 {
                    free.push(place);
                }
            }
        });
    }
    taken == nodes.len()
}

/// The type of the case with this label, or of the default.
pub(crate) fn case(cases: &[Case], by_label: &[u32], label: i128) -> Option<TypeIndex> {
    let found = by_label.binary_search_by_key(&Some(label), |place| cases[*place as usize].0);
    match found {
        Ok(found) => Some(cases[by_label[found] as usize].2),
        Err(_) => cases.iter().find(|(label, _, _)| label.is_none()).map(|(_, _, of)| *of),
    }
}
