//! How soon a service level may rise again.

/// Keeps levels from rising for a time that doubles if they fall soon after a rise.
///
/// Each rise of a level is a test: only afterwards it is known how long its jobs run, and how they affect other
/// deadlines. [`Feedback`](super::Feedback) expects that tasks have one ratio of actual to estimated times. If the
/// raised task has a greater one, or if misses limit the total, the level would rise and fall forever.
///
/// If a level falls within [`SOON`](Self::SOON) samples of the last rise, no level rises for [`FIRST`](Self::FIRST)
/// samples. Each further such fall doubles this time, up to [`MOST`](Self::MOST). A fall after a longer time shows that
/// the load has changed, and resets it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LevelHold {
    /// The sample of the last rise.
    rose: Option<u64>,
    /// The first sample in which levels may rise.
    until: u64,
    /// The length of the last hold, in samples.
    length: u64,
}

impl LevelHold {
    /// The samples after a rise in which a fall shows that the rise was an error.
    pub const SOON: u64 = 128;
    /// The samples of the first hold.
    pub const FIRST: u64 = 8;
    /// The most samples of a hold.
    pub const MOST: u64 = 256;

    /// Whether levels may rise in this sample.
    pub const fn allows(&self, sample: u64) -> bool {
        sample >= self.until
    }

    /// Records whether a level rose or fell in a sample.
    pub fn note(&mut self, sample: u64, rose: bool, fell: bool) {
        // Further falls within a hold are of the same error.
        if fell && self.allows(sample) {
            let soon = self.rose.is_some_and(|rose| sample - rose <= Self::SOON);
            self.length = if soon { (2 * self.length).clamp(Self::FIRST, Self::MOST) } else { 0 };
            self.until = sample + 1 + self.length;
        }
        if rose {
            self.rose = Some(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn holds_double_while_levels_fall_soon_after_their_rise() {
        let (mut hold, mut sample, mut rises) = (LevelHold::default(), 0, Vec::new());
        while rises.len() < 9 {
            sample += 1;
            let rose = hold.allows(sample);
            hold.note(sample, rose, false);
            if rose {
                rises.push(sample);
                sample += 3;
                hold.note(sample, false, true);
            }
        }
        let between: Vec<u64> = rises.windows(2).map(|pair| pair[1] - pair[0] - 4).collect();
        assert_eq!(between, [8, 16, 32, 64, 128, 256, 256, 256]);
    }

    #[test]
    fn falls_within_a_hold_or_long_after_a_rise_do_not_lengthen_it() {
        let mut hold = LevelHold::default();
        hold.note(1, true, false);
        hold.note(2, false, true);
        hold.note(3, false, true);
        assert!(!hold.allows(10) && hold.allows(11));
        hold.note(11, true, false);
        hold.note(11 + LevelHold::SOON + 1, false, true);
        assert!(hold.allows(11 + LevelHold::SOON + 2));
        // A level that never rose may fall, for example after a start at the highest ones.
        let mut hold = LevelHold::default();
        hold.note(5, false, true);
        assert!(hold.allows(6));
    }
}
