//! Settings in layers: the file, the epoch, contracts by precedence, the operator.

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

    /// One value.
    pub const fn exactly(value: f64) -> SettingLimits {
        SettingLimits { least: value, most: value }
    }

    /// These limits, and those of a layer of lower precedence. Where both contradict each other, these hold, and the
    /// result is the value nearest to the lower layer's.
    pub fn with_lower(self, layer: SettingLimits) -> SettingLimits {
        SettingLimits { least: layer.least.clamp(self.least, self.most), most: layer.most.clamp(self.least, self.most) }
    }

    /// The limits that all layers leave, from the highest precedence to the lowest. The declared range precedes all.
    ///
    /// Nothing is stored: if a layer no longer applies, the next call returns the limits without it.
    pub fn of_layers(declared: SettingLimits, layers: impl IntoIterator<Item = SettingLimits>) -> SettingLimits {
        layers.into_iter().fold(declared, SettingLimits::with_lower)
    }

    /// The limits on their way back to the declared range: `part` is 0 when the return begins, and 1 at its end.
    pub fn returning(self, declared: SettingLimits, part: f64) -> SettingLimits {
        let part = part.clamp(0.0, 1.0);
        let between = |from: f64, to: f64| if from == to || part == 1.0 { to } else { from + (to - from) * part };
        SettingLimits { least: between(self.least, declared.least), most: between(self.most, declared.most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_limits() -> impl Strategy<Value = SettingLimits> {
        (-10..10i32, 0..10i32)
            .prop_map(|(least, width)| SettingLimits { least: least.into(), most: (least + width).into() })
    }

    proptest! {
        #[test]
        fn the_result_is_a_range_within_the_declared_one(
            declared in any_limits(), layers in prop::collection::vec(any_limits(), 0..5),
        ) {
            let all = SettingLimits::of_layers(declared, layers);
            prop_assert!(declared.least <= all.least && all.least <= all.most && all.most <= declared.most);
        }

        #[test]
        fn a_layer_cannot_leave_the_limits_of_a_higher_one(
            declared in any_limits(), high in any_limits(), low in any_limits(),
        ) {
            let alone = SettingLimits::of_layers(declared, [high]);
            let both = SettingLimits::of_layers(declared, [high, low]);
            prop_assert!(alone.least <= both.least && both.most <= alone.most);
            // A layer that contradicts none has its way.
            if alone.least <= low.least && low.most <= alone.most {
                prop_assert_eq!(both, low);
            }
        }

        #[test]
        fn layers_that_overlap_can_be_in_any_order(declared in any_limits(), a in any_limits(), b in any_limits()) {
            let least = declared.least.max(a.least).max(b.least);
            let most = declared.most.min(a.most).min(b.most);
            if least <= most {
                prop_assert_eq!(SettingLimits::of_layers(declared, [a, b]), SettingLimits { least, most });
                prop_assert_eq!(SettingLimits::of_layers(declared, [b, a]), SettingLimits { least, most });
            }
        }

        #[test]
        fn a_return_is_monotone_and_ends_at_the_declared_range(
            declared in any_limits(), layer in any_limits(), parts in prop::array::uniform2(0.0..=1.0f64),
        ) {
            let from = SettingLimits::of_layers(declared, [layer]);
            let [early, late] = [parts[0].min(parts[1]), parts[0].max(parts[1])].map(|part| from.returning(declared, part));
            prop_assert!(early.least >= late.least && early.most <= late.most);
            prop_assert_eq!(from.returning(declared, 0.0), from);
            prop_assert_eq!(from.returning(declared, 1.0), declared);
        }
    }
}
