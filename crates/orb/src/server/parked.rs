//! Octets that were read from a connection and whose requests no thread runs yet.

use std::sync::Arc;

/// See the module. The rest of it shares its octets: one copy for each read, however many requests it holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parked {
    octets: Option<Arc<[u8]>>,
    /// How many of them are used.
    done: usize,
}

impl Parked {
    /// A copy.
    pub(crate) fn copy(octets: &[u8]) -> Parked {
        Parked { octets: (!octets.is_empty()).then(|| octets.into()), done: 0 }
    }

    /// The last `left` octets.
    pub(crate) fn last(&self, left: usize) -> Parked {
        match &self.octets {
            Some(octets) if left > 0 => Parked { octets: Some(octets.clone()), done: octets.len() - left },
            _ => Parked::default(),
        }
    }

    pub(crate) fn octets(&self) -> &[u8] {
        self.octets.as_ref().map_or(&[], |octets| &octets[self.done..])
    }

    pub(crate) fn len(&self) -> usize {
        self.octets().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.octets().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_not_copied_for_each_request_that_is_taken_of_it() {
        let all = Parked::copy(&[1, 2, 3, 4, 5]);
        let rest = all.last(3);
        assert_eq!(rest.octets(), [3, 4, 5]);
        assert_eq!(rest.last(1).octets(), [5]);
        assert_eq!(rest.octets().as_ptr(), &raw const all.octets()[2]);
        assert!(rest.last(0).is_empty() && Parked::copy(&[]).is_empty());
        assert_eq!((rest.len(), Parked::default().last(0).len()), (3, 0));
    }
}
