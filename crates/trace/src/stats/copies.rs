//! Which instances of a chain are lost, if another copy than the one on its path may lead on (`first`).

/// Instances that are kept: as many as numbers of which a copy may arrive late.
const KEPT: usize = hyoshi_model::COPIES_APART as usize;

/// The instances of a chain whose copy on the path was lost, and those that reached the operation after the copies.
#[derive(Clone, Debug)]
pub(super) struct CopiedInstances {
    /// The place in the path of its last operation after the first of several copies.
    place: usize,
    lost: RecentNumbers,
    arrived: RecentNumbers,
}

/// The latest numbers.
#[derive(Clone, Debug)]
struct RecentNumbers {
    numbers: Box<[u64; KEPT]>,
    next: usize,
}

impl RecentNumbers {
    fn new() -> RecentNumbers {
        RecentNumbers { numbers: Box::new([u64::MAX; KEPT]), next: 0 }
    }

    fn find(&mut self, number: u64) -> Option<&mut u64> {
        self.numbers.iter_mut().find(|one| **one == number)
    }

    /// False if it is there already.
    fn add(&mut self, number: u64) -> bool {
        let is_new = self.find(number).is_none();
        if is_new {
            self.numbers[self.next % KEPT] = number;
            self.next += 1;
        }
        is_new
    }
}

impl CopiedInstances {
    pub fn new(place: usize) -> CopiedInstances {
        CopiedInstances { place, lost: RecentNumbers::new(), arrived: RecentNumbers::new() }
    }

    /// A job of this release number, at this place of the path, has ended. Returns by how much the number of lost
    /// instances changes: a job before the copies' successor counts as lost until that successor has a job of the same
    /// number, which another copy then released.
    pub fn ended(&mut self, place: usize, number: u64, finished: bool) -> i64 {
        if place > self.place {
            return i64::from(!finished);
        }
        if place < self.place {
            return i64::from(!finished && self.arrived.find(number).is_none() && self.lost.add(number));
        }
        self.arrived.add(number);
        let rescued = self.lost.find(number).map(|lost| *lost = u64::MAX).is_some();
        i64::from(!finished) - i64::from(rescued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_lost_only_if_no_copy_leads_on() {
        let mut copies = CopiedInstances::new(2);
        // The copy on the path is lost before and after another one has led on, and once for good.
        let ended = [(1, 7, false, 1), (2, 7, true, -1), (2, 8, true, 0), (1, 8, false, 0), (1, 9, false, 1)];
        // The successor itself is lost, or an operation after it.
        let later = [(1, 10, true, 0), (2, 10, false, 1), (3, 8, false, 1), (1, 11, false, 1), (2, 11, false, 0)];
        for (place, number, finished, change) in ended.into_iter().chain(later) {
            assert_eq!(copies.ended(place, number, finished), change, "{place} {number}");
        }
    }
}
