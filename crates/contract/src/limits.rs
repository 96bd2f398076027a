//! Settings in layers: the file, the epoch, contracts by precedence.

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
