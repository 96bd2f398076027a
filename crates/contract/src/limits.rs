//! Settings in layers: the file, the epoch, contracts by precedence. Limits of rates may relax after their region.

use hyoshi_model::Span;

/// The range in which a setting may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SettingLimits {
    /// The least value.
    pub least: f64,
    /// The greatest value, at least the least one.
    pub most: f64,
}

impl SettingLimits {
    /// Every value.
    pub const NONE: SettingLimits = SettingLimits { least: f64::NEG_INFINITY, most: f64::INFINITY };

    /// These limits, as far as a layer of higher precedence permits them. If both contradict each other, the value of the
    /// higher layer that is nearest to these.
    ///
    /// Nothing is stored: if a layer no longer applies, combine the rest again.
    pub fn within(self, higher: SettingLimits) -> SettingLimits {
        let clamp = |value: f64| value.clamp(higher.least, higher.most);
        SettingLimits { least: clamp(self.least), most: clamp(self.most) }
    }
}

impl SettingLimits {
    /// These limits of a period, `since` the end of their region: within `ramp` they relax linearly in rate, to the
    /// bounds of the declared range.
    pub fn relaxed(self, declared: SettingLimits, since: Span, ramp: Span) -> SettingLimits {
        if since >= ramp {
            return SettingLimits::NONE;
        }
        let done = since.as_nanos() as f64 / ramp.as_nanos() as f64;
        let relax = |from: f64, to: f64| {
            let from = from.clamp(declared.least, declared.most);
            // Rounding must not leave the limit or the range.
            (1.0 / ((1.0 - done) / from + done / to)).clamp(from.min(to), from.max(to))
        };
        SettingLimits { least: relax(self.least, declared.least), most: relax(self.most, declared.most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_limits() -> impl Strategy<Value = SettingLimits> {
        let limits = |(least, width): (i32, i32)| SettingLimits { least: least.into(), most: (least + width).into() };
        (-10..10i32, 0..10i32).prop_map(limits)
    }

    proptest! {
        #[test]
        fn a_ramp_relaxes_limits_from_those_of_the_region_to_the_declared_range(
            mut periods in prop::array::uniform4(1_000..10_000_000_000u64), ramp in 1..10_000_000_000u64,
            mut at in prop::collection::vec(0..12_000_000_000u64, 2..20),
        ) {
            periods.sort_unstable();
            at.sort_unstable();
            let [fastest, least, most, slowest] = periods.map(|period| period as f64);
            let (limits, declared) = (SettingLimits { least, most }, SettingLimits { least: fastest, most: slowest });
            let after = |at: u64| limits.relaxed(declared, Span::from_nanos(at), Span::from_nanos(ramp));
            let begin = after(0);
            prop_assert!((begin.least - least).abs() < least * 1e-12 && (begin.most - most).abs() < most * 1e-12);
            prop_assert_eq!(after(ramp), SettingLimits::NONE);
            for pair in at.windows(2) {
                let [one, next] = [after(pair[0]), after(pair[1])];
                prop_assert!(next.least <= one.least && one.most <= next.most, "{:?} after {:?}", next, one);
                let in_range = |one: SettingLimits| {
                    one == SettingLimits::NONE
                        || fastest <= one.least && one.least <= least && most <= one.most && one.most <= slowest
                };
                prop_assert!(in_range(one) && in_range(next));
            }
            // Half of the ramp is half of the change of the rate.
            let half = after(ramp / 2);
            let rate = |x: f64| (1.0 - x) / least + x / fastest;
            let done = (ramp / 2) as f64 / ramp as f64;
            prop_assert!((1.0 / half.least - rate(done)).abs() < rate(1.0) * 1e-9);
        }

        #[test]
        fn a_layer_cannot_leave_the_limits_of_a_higher_one(high in any_limits(), low in any_limits()) {
            let both = low.within(high);
            prop_assert!(high.least <= both.least && both.least <= both.most && both.most <= high.most);
            if high.least <= low.least && low.most <= high.most {
                prop_assert_eq!(both, low);
            }
        }

        #[test]
        fn layers_combine_before_or_after_the_declared_range(
            declared in any_limits(), high in any_limits(), low in any_limits(),
        ) {
            let one_by_one = low.within(high.within(declared));
            prop_assert_eq!(low.within(high).within(declared), one_by_one);
        }

        #[test]
        fn layers_that_overlap_can_be_in_any_order(declared in any_limits(), a in any_limits(), b in any_limits()) {
            let least = declared.least.max(a.least).max(b.least);
            let most = declared.most.min(a.most).min(b.most);
            if least <= most {
                prop_assert_eq!(a.within(b).within(declared), SettingLimits { least, most });
                prop_assert_eq!(b.within(a).within(declared), SettingLimits { least, most });
            }
        }
    }
}
