//! Whether two type codes are the same (CORBA 3.3 part 1, 8.11.2).

use alloc::{vec, vec::Vec};

use super::{Case, TypeCode, TypeIndex, TypeNode, unaliased};

/// The relevant differences.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sameness {
    /// All of them.
    Equal,
    /// Not aliases, nor names; ids only if both sides have one.
    Equivalent,
}

/// Equal in everything: ids, names, aliases.
impl PartialEq for TypeCode {
    fn eq(&self, other: &Self) -> bool {
        same(self, other, Sameness::Equal)
    }
}

impl Eq for TypeCode {}

impl TypeCode {
    /// True if values of one are values of the other: aliases are resolved, names do not matter, and ids only if both
    /// have one.
    pub fn is_equivalent(&self, other: &TypeCode) -> bool {
        same(self, other, Sameness::Equivalent)
    }
}

/// Types can be recursive and occur in many places, so comparing them as trees might never end. As for automata
/// (Hopcroft and Karp 1971): two types that must be the same are put into one class, and pairs within a class are not
/// compared again, so there are fewer pairs than types.
fn same(left: &TypeCode, right: &TypeCode, how: Sameness) -> bool {
    let (l, r) = (left.nodes(), right.nodes());
    if core::ptr::eq(l, r) && left.root == right.root {
        return true;
    }
    let mut classes = Classes((0..l.len() + r.len()).collect());
    let mut open = vec![(left.root, right.root)];
    while let Some((mut a, mut b)) = open.pop() {
        if how == Sameness::Equivalent {
            (a, b) = (unaliased(l, a), unaliased(r, b));
        }
        let (Some(a), Some(b)) = (a.place(), b.place()) else {
            if a != b {
                return false;
            }
            continue;
        };
        if classes.join(a, l.len() + b) && !alike(&l[a], &r[b], how, &mut open) {
            return false;
        }
    }
    true
}

fn alike(a: &TypeNode, b: &TypeNode, how: Sameness, open: &mut Vec<(TypeIndex, TypeIndex)>) -> bool {
    let exact = how == Sameness::Equal;
    let ((id_a, name_a), (id_b, name_b)) = (a.title(), b.title());
    let same_title =
        if exact { (id_a, name_a) == (id_b, name_b) } else { id_a == id_b || id_a.is_empty() || id_b.is_empty() };
    if !same_title {
        return false;
    }
    match (a, b) {
        (TypeNode::String(a), TypeNode::String(b)) | (TypeNode::WString(a), TypeNode::WString(b)) => a == b,
        (TypeNode::Fixed { digits: a, scale: c }, TypeNode::Fixed { digits: b, scale: d }) => (a, c) == (b, d),
        (TypeNode::Sequence { of: a, most: c }, TypeNode::Sequence { of: b, most: d })
        | (TypeNode::Array { of: a, length: c }, TypeNode::Array { of: b, length: d }) => {
            open.push((*a, *b));
            c == d
        }
        (TypeNode::Alias { of: a, .. }, TypeNode::Alias { of: b, .. }) => {
            open.push((*a, *b));
            true
        }
        (TypeNode::Named { kind: a, .. }, TypeNode::Named { kind: b, .. }) => a == b,
        (TypeNode::Enum { names: a, .. }, TypeNode::Enum { names: b, .. }) => {
            if exact {
                a == b
            } else {
                a.len() == b.len()
            }
        }
        (TypeNode::Struct { exception: a, members: c, .. }, TypeNode::Struct { exception: b, members: d, .. }) => {
            open.extend(c.iter().zip(d).map(|(c, d)| (c.1, d.1)));
            a == b && c.len() == d.len() && (!exact || c.iter().zip(d).all(|(c, d)| c.0 == d.0))
        }
        (TypeNode::Union { discriminator: a, cases: c, .. }, TypeNode::Union { discriminator: b, cases: d, .. }) => {
            open.push((*a, *b));
            if exact || c.iter().zip(d).all(|(c, d)| c.0 == d.0) {
                open.extend(c.iter().zip(d).map(|(c, d)| (c.2, d.2)));
                return c.len() == d.len() && c.iter().zip(d).all(|(c, d)| c.0 == d.0 && (!exact || c.1 == d.1));
            }
            // JacORB reverses the labels of a case, which makes no difference to values.
            let by_label = |cases: &[Case]| {
                let mut sorted: Vec<(Option<i128>, TypeIndex)> = cases.iter().map(|case| (case.0, case.2)).collect();
                sorted.sort_unstable_by_key(|case| case.0);
                sorted
            };
            let (c, d) = (by_label(c), by_label(d));
            open.extend(c.iter().zip(&d).map(|(c, d)| (c.1, d.1)));
            c.len() == d.len() && c.iter().zip(&d).all(|(c, d)| c.0 == d.0)
        }
        _ => false,
    }
}

/// Disjoint sets with path halving (Tarjan 1975).
struct Classes(Vec<usize>);

impl Classes {
    fn find(&mut self, mut at: usize) -> usize {
        while self.0[at] != at {
            self.0[at] = self.0[self.0[at]];
            at = self.0[at];
        }
        at
    }

    /// False if they were in one class already.
    fn join(&mut self, a: usize, b: usize) -> bool {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a] = b;
        a != b
    }
}

#[cfg(test)]
mod tests {
    use super::TypeCode;
    use crate::typecode::{TypeKind, Typed};

    fn letters(first: i128, second: i128, of: TypeKind) -> TypeCode {
        TypeCode::build(|types| {
            types.union("IDL:Letters:1.0", "Letters", i32::describe, |types| {
                let of = types.simple(of);
                let other = types.simple(TypeKind::Octet);
                [(Some(first), "letters", of), (Some(second), "letters", of), (None, "other", other)]
            })
        })
    }

    #[test]
    fn labels_of_a_case_may_be_turned_around_but_not_mean_something_else() {
        let (one, other) = (letters(1, 2, TypeKind::Long), letters(2, 1, TypeKind::Long));
        assert!(one.is_equivalent(&other));
        assert_ne!(one, other);
        assert!(!one.is_equivalent(&letters(1, 3, TypeKind::Long)));
        assert!(!one.is_equivalent(&letters(2, 1, TypeKind::Short)));
    }
}
