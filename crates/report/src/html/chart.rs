//! The charts of the report of a run or simulation.

use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use crate::chart::{Along, AxisLabels, Colour, framed, mesh, name, right, svg};
use crate::figures::nanos;
use crate::summary::{Bar, ClassSummary, EpochSummary};

/// Declared and used load of one processor, region by region, in percent.
pub(super) fn load(epochs: &[EpochSummary], processor: usize) -> String {
    let (title, names) = short_names(epochs);
    let places = AxisLabels { title, names };
    let percent = |ppm: u64| ppm as f64 / 10_000.0;
    let loads: Vec<(f64, Option<f64>)> = epochs
        .iter()
        .filter_map(|epoch| {
            let load = epoch.processors.get(processor)?;
            Some((percent(load.declared_ppm), (epoch.until_ns > epoch.at_ns).then(|| percent(load.used_ppm))))
        })
        .collect();
    let most = loads.iter().map(|(declared, used)| declared.max(used.unwrap_or(0.0))).fold(100.0, f64::max) * 1.08;
    svg((540, 220), "load by region", |area| {
        let mut chart = framed(area).build_cartesian_2d((0..epochs.len() - 1).into_segmented(), 0.0..most)?;
        let percent = |percent| format!("{percent:.0} %");
        mesh(&mut chart, &Along::places(&places), &|segment| name(&places, segment), &percent)?;
        let whole = [(SegmentValue::Exact(0), 100.0), (SegmentValue::Last, 100.0)];
        chart.draw_series(DashedLineSeries::new(whole, 4, 4, Colour::Ink.marker().stroke_width(1)))?;
        let gap = (160 / epochs.len().max(1)).clamp(0, 8) as u32;
        for (index, (declared, used)) in loads.iter().enumerate() {
            let ends = |value| [(SegmentValue::Exact(index), 0.0), (right(index, epochs.len()), value)];
            let mut outline = Rectangle::new(ends(*declared), Colour::Ink.marker().stroke_width(1));
            outline.set_margin(0, 0, gap, gap);
            chart.draw_series([outline])?;
            let mut bar = Rectangle::new(ends(used.unwrap_or(0.0)), Colour::Ink.marker().filled());
            bar.set_margin(0, 0, gap + 4, gap + 4);
            chart.draw_series([bar])?;
        }
        Ok(())
    })
}

/// How response times of one class are distributed, over a logarithmic axis.
pub(super) fn responses(class: &ClassSummary, range: (f64, f64)) -> String {
    let all = class.response_bars.iter().map(|bar| bar.count).sum::<u64>().max(1) as f64;
    let share = |bar: &Bar| bar.count as f64 * 100.0 / all;
    let most = class.response_bars.iter().map(share).fold(0.0, f64::max).max(0.1) * 1.08;
    let colour = if class.critical { Colour::Critical.marker() } else { Colour::NonCritical.marker() };
    svg((540, 220), "response times", |area| {
        let mut chart = framed(area)
            .margin_right(22)
            .x_label_area_size(28)
            .build_cartesian_2d((range.0..range.1).log_scale(), 0.0..most)?;
        let along = Along { names: 6, title: String::new() };
        mesh(&mut chart, &along, &|at: &f64| nanos(at.round() as u64), &|percent| format!("{percent:.0} %"))?;
        let rectangles = class.response_bars.iter().map(|bar| {
            let corners = [(lower(bar), 0.0), (bar.up_to_ns as f64, share(bar))];
            let mut rectangle = Rectangle::new(corners, colour.filled());
            rectangle.set_margin(0, 0, 0, 1);
            rectangle
        });
        chart.draw_series(rectangles)?;
        Ok(())
    })
}

/// The axis that the response times of all classes share.
pub(super) fn response_range(classes: &[ClassSummary]) -> Option<(f64, f64)> {
    let bars = || classes.iter().flat_map(|class| &class.response_bars);
    let least = bars().map(lower).min_by(f64::total_cmp)?;
    let most = bars().map(|bar| bar.up_to_ns as f64).max_by(f64::total_cmp)?;
    // Whole decades, for round labels.
    Some((10f64.powf(least.max(1.0).log10().floor()), 10f64.powf(most.log10().ceil())))
}

/// Where a bar begins: bars stand four to an octave.
pub(super) fn lower(bar: &Bar) -> f64 {
    let octave = (bar.up_to_ns - 1).max(4).ilog2();
    (bar.up_to_ns - (1 << (octave - 2))) as f64
}

/// What all names begin with up to a space, and the rest of each, cut to fit.
pub(super) fn short_names(epochs: &[EpochSummary]) -> (String, Vec<String>) {
    let first = epochs.first().map_or("", |epoch| epoch.name.as_str());
    let shared = first.rfind(' ').map_or("", |end| &first[..=end]);
    let shared =
        if epochs.len() > 1 && epochs.iter().all(|epoch| epoch.name.starts_with(shared)) { shared } else { "" };
    let most = if epochs.len() > 8 { 6 } else { 12 };
    let short = |epoch: &EpochSummary| {
        let rest = &epoch.name[shared.len()..];
        match rest.chars().count() > most {
            true => rest.chars().take(most - 1).chain(['…']).collect(),
            false => rest.to_string(),
        }
    };
    (shared.trim_end().to_string(), epochs.iter().map(short).collect())
}
