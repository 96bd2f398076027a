//! Object keys, by which references find their objects in this run of the server or the next.
//!
//! ```text
//!   0    1 2   3      4          5...   8 octets, transient only   the rest
//!   C5   H y   kind   length n   name   incarnation                object id
//! ```

/// The first octets of every key; published keys may not have them.
pub(crate) const MAGIC: [u8; 3] = [0xc5, b'H', b'y'];
const TRANSIENT: u8 = 1;
const PERSISTENT: u8 = 2;

/// A decoded key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectKey<'a> {
    /// The adapter's name.
    pub(crate) adapter: &'a [u8],
    /// The run of the server that made it; `None` for persistent objects.
    pub(crate) incarnation: Option<u64>,
    pub(crate) id: &'a [u8],
}

impl<'a> ObjectKey<'a> {
    /// `None` if an adapter did not make it.
    #[inline]
    pub(crate) fn parse(key: &'a [u8]) -> Option<Self> {
        let [kind, length, rest @ ..] = key.strip_prefix(&MAGIC)? else { return None };
        let (adapter, rest) = rest.split_at_checked(usize::from(*length))?;
        match *kind {
            PERSISTENT => Some(ObjectKey { adapter, incarnation: None, id: rest }),
            TRANSIENT => {
                let (incarnation, id) = rest.split_first_chunk()?;
                Some(ObjectKey { adapter, incarnation: Some(u64::from_be_bytes(*incarnation)), id })
            }
            _ => None,
        }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        let mut key = MAGIC.to_vec();
        key.push(if self.incarnation.is_some() { TRANSIENT } else { PERSISTENT });
        // Adapters::add has checked the length.
        key.push(self.adapter.len() as u8);
        key.extend_from_slice(self.adapter);
        key.extend(self.incarnation.iter().flat_map(|incarnation| incarnation.to_be_bytes()));
        key.extend_from_slice(self.id);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_written() {
        for incarnation in [None, Some(7)] {
            let key = ObjectKey { adapter: b"trackers", incarnation, id: b"a\0b" };
            assert_eq!(ObjectKey::parse(&key.octets()), Some(key));
        }
    }

    #[test]
    fn no_octets_make_it_panic() {
        let key = ObjectKey { adapter: b"trackers", incarnation: Some(1), id: b"" }.octets();
        for length in 0..key.len() {
            assert_eq!(ObjectKey::parse(&key[..length]), None);
        }
        assert_eq!(ObjectKey::parse(b"NameService"), None);
    }
}
