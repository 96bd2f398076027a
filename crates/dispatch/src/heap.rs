//! A 4-ary heap in one vector: shallower than a binary one, and its four children share a cache line or two. Unlike the
//! standard library's, it replaces its first entry in place and removes from the middle.

use alloc::vec::Vec;

/// Entries, least first.
#[derive(Debug)]
pub(crate) struct Heap<T> {
    entries: Vec<T>,
}

const ARITY: usize = 4;

impl<T> Default for Heap<T> {
    fn default() -> Self {
        Heap { entries: Vec::new() }
    }
}

impl<T: Ord + Copy> Heap<T> {
    pub fn with_capacity(capacity: usize) -> Self {
        Heap { entries: Vec::with_capacity(capacity) }
    }

    /// The entries, in no order except that the least is first.
    pub fn entries(&self) -> &[T] {
        &self.entries
    }

    pub fn clear(&mut self) {
        self.entries.clear();
    }

    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.entries.first()
    }

    #[inline]
    pub fn push(&mut self, entry: T) {
        self.entries.push(entry);
        self.rise(self.entries.len() - 1);
    }

    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let last = self.entries.pop()?;
        let Some(first) = self.entries.first_mut() else { return Some(last) };
        let least = core::mem::replace(first, last);
        self.sink(0);
        Some(least)
    }

    /// Replaces the least entry; does nothing to an empty heap.
    #[inline]
    pub fn replace_first(&mut self, entry: T) {
        if let Some(first) = self.entries.first_mut() {
            *first = entry;
            self.sink(0);
        }
    }

    pub fn remove(&mut self, position: usize) {
        self.entries.swap_remove(position);
        if position < self.entries.len() {
            self.rise(position);
            self.sink(position);
        }
    }

    #[inline]
    fn rise(&mut self, mut position: usize) {
        let moving = self.entries[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.entries[parent] <= moving {
                break;
            }
            self.entries[position] = self.entries[parent];
            position = parent;
        }
        self.entries[position] = moving;
    }

    /// Moves the entry at `top` down to its position.
    ///
    /// A new first entry usually belongs far below: the least child moves up until there is none, and the entry rises
    /// from there (Wegener, Theoretical Computer Science 1993: fewer comparisons than on the way down).
    #[inline]
    fn sink(&mut self, top: usize) {
        let entries = &mut self.entries[..];
        let moving = entries[top];
        let mut hole = top;
        while let Some(least) = least_child(entries, hole) {
            entries[hole] = entries[least];
            hole = least;
        }
        while hole > top {
            let parent = (hole - 1) / ARITY;
            if entries[parent] <= moving {
                break;
            }
            entries[hole] = entries[parent];
            hole = parent;
        }
        entries[hole] = moving;
    }
}

/// The position of the least child of `parent`; `None` if it has none.
#[inline]
fn least_child<T: Ord>(entries: &[T], parent: usize) -> Option<usize> {
    let first = parent * ARITY + 1;
    if let Some([a, b, c, d]) = entries.get(first..first + ARITY) {
        let (left, one) = if b < a { (1, b) } else { (0, a) };
        let (right, other) = if d < c { (3, d) } else { (2, c) };
        return Some(first + if other < one { right } else { left });
    }
    let children = entries.get(first..).unwrap_or_default();
    children.iter().enumerate().min_by_key(|(_, child)| *child).map(|(offset, _)| first + offset)
}
