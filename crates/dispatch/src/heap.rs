//! A 4-ary heap in one vector: shallower than a binary one, and its four children share a cache line
//! or two. Unlike the standard library's it replaces its first entry in place and removes from the middle.

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

    /// The entries, in no order but that the least is first.
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

    /// Puts another entry in the place of the least; nothing happens to an empty heap.
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

    #[inline]
    fn sink(&mut self, mut position: usize) {
        let moving = self.entries[position];
        loop {
            let first = position * ARITY + 1;
            let children = self.entries.get(first..).unwrap_or_default();
            let Some((offset, least)) = children.iter().take(ARITY).enumerate().min_by_key(|(_, entry)| **entry) else {
                break;
            };
            if moving <= *least {
                break;
            }
            self.entries[position] = *least;
            position = first + offset;
        }
        self.entries[position] = moving;
    }
}
