//! Charts as SVG. They are drawn in marker colours, which are then replaced by the page's own, so
//! that a chart follows the page from light to dark.

use plotters::coord::Shift;
use plotters::coord::ranged1d::SegmentValue;
use plotters::prelude::*;

use crate::figures::{count, nanos};
use crate::summary::{Bar, ClassSummary, CountsSummary, EpochSummary};

/// Marker colours and what they become.
const PALETTE: [(RGBColor, &str); 9] = [
    (INK, "var(--soft)"),
    (GRID, "var(--grid)"),
    (MADE, "var(--made)"),
    (MISSED, "var(--missed)"),
    (CANCELLED, "var(--cancelled)"),
    (OTHER, "var(--other)"),
    (CRITICAL, "var(--critical)"),
    (NON_CRITICAL, "var(--non-critical)"),
    (LINE, "var(--line)"),
];
const INK: RGBColor = RGBColor(1, 2, 1);
const GRID: RGBColor = RGBColor(1, 2, 2);
const MADE: RGBColor = RGBColor(1, 2, 3);
const MISSED: RGBColor = RGBColor(1, 2, 4);
const CANCELLED: RGBColor = RGBColor(1, 2, 5);
const OTHER: RGBColor = RGBColor(1, 2, 6);
const CRITICAL: RGBColor = RGBColor(1, 2, 7);
const NON_CRITICAL: RGBColor = RGBColor(1, 2, 8);
const LINE: RGBColor = RGBColor(1, 2, 9);

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Regions that a chart has room to name.
const MOST_NAMES: usize = 16;

/// What became of the jobs of one class, region by region.
pub(super) fn deadlines(epochs: &[EpochSummary], of: impl Fn(&EpochSummary) -> CountsSummary) -> String {
    let counts: Vec<CountsSummary> = epochs.iter().map(of).collect();
    let most = counts.iter().map(|counts| counts.released).max().unwrap_or(0).max(1);
    let (prefix, names) = short_names(epochs);
    svg((540, 250), "deadlines by region", |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_top(10)
            .x_label_area_size(38)
            .y_label_area_size(52)
            .build_cartesian_2d((0..epochs.len() - 1).into_segmented(), 0..most + most / 20)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(LINE)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(epochs.len().min(MOST_NAMES))
            .x_desc(prefix)
            .y_labels(5)
            .x_label_formatter(&|segment| match segment {
                SegmentValue::CenterOf(index) => names.get(*index).cloned().unwrap_or_default(),
                _ => String::new(),
            })
            .y_label_formatter(&|number| count(*number))
            .draw()?;
        let gap = (160 / epochs.len().max(1)).clamp(0, 8) as u32;
        for (index, counts) in counts.iter().enumerate() {
            let rest = counts.stopped + counts.dropped();
            let mut base = 0;
            for (part, colour) in
                [(counts.made, MADE), (counts.missed, MISSED), (counts.cancelled, CANCELLED), (rest, OTHER)]
            {
                if part > 0 {
                    let corners = [(SegmentValue::Exact(index), base), (right(index, epochs), base + part)];
                    let mut bar = Rectangle::new(corners, colour.filled());
                    bar.set_margin(0, 0, gap, gap);
                    chart.draw_series([bar])?;
                    base += part;
                }
            }
        }
        Ok(())
    })
}

/// Declared and used load of one processor, region by region, in percent.
pub(super) fn load(epochs: &[EpochSummary], processor: usize) -> String {
    let (prefix, names) = short_names(epochs);
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
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_top(10)
            .x_label_area_size(38)
            .y_label_area_size(52)
            .build_cartesian_2d((0..epochs.len() - 1).into_segmented(), 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(LINE)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(epochs.len().min(MOST_NAMES))
            .x_desc(prefix)
            .y_labels(5)
            .x_label_formatter(&|segment| match segment {
                SegmentValue::CenterOf(index) => names.get(*index).cloned().unwrap_or_default(),
                _ => String::new(),
            })
            .y_label_formatter(&|percent| format!("{percent:.0} %"))
            .draw()?;
        let whole = [(SegmentValue::Exact(0), 100.0), (SegmentValue::Last, 100.0)];
        chart.draw_series(DashedLineSeries::new(whole, 4, 4, MISSED.stroke_width(1)))?;
        let gap = (160 / epochs.len().max(1)).clamp(0, 8) as u32;
        for (index, (declared, used)) in loads.iter().enumerate() {
            let ends = |value| [(SegmentValue::Exact(index), 0.0), (right(index, epochs), value)];
            let mut outline = Rectangle::new(ends(*declared), NON_CRITICAL.filled());
            outline.set_margin(0, 0, gap, gap);
            chart.draw_series([outline])?;
            let mut bar = Rectangle::new(ends(used.unwrap_or(0.0)), CRITICAL.filled());
            bar.set_margin(0, 0, gap + 4, gap + 4);
            chart.draw_series([bar])?;
        }
        Ok(())
    })
}

/// The right edge of a region's bars.
fn right(index: usize, epochs: &[EpochSummary]) -> SegmentValue<usize> {
    if index + 1 < epochs.len() { SegmentValue::Exact(index + 1) } else { SegmentValue::Last }
}

/// How response times of one class are distributed, over a logarithmic axis.
pub(super) fn responses(class: &ClassSummary, range: (f64, f64)) -> String {
    let all = class.response_bars.iter().map(|bar| bar.count).sum::<u64>().max(1) as f64;
    let share = |bar: &Bar| bar.count as f64 * 100.0 / all;
    let most = class.response_bars.iter().map(share).fold(0.0, f64::max).max(0.1) * 1.08;
    let colour = if class.critical { CRITICAL } else { NON_CRITICAL };
    svg((540, 220), "response times", |area| {
        let mut chart = ChartBuilder::on(area)
            .margin(6)
            .margin_top(10)
            .margin_right(22)
            .x_label_area_size(28)
            .y_label_area_size(52)
            .build_cartesian_2d((range.0..range.1).log_scale(), 0.0..most)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(LINE)
            .label_style(("sans-serif", 12, &INK))
            .x_labels(6)
            .y_labels(5)
            .x_label_formatter(&|at| nanos(at.round() as u64))
            .y_label_formatter(&|percent| format!("{percent:.0} %"))
            .draw()?;
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
fn lower(bar: &Bar) -> f64 {
    let octave = (bar.up_to_ns - 1).max(4).ilog2();
    (bar.up_to_ns - (1 << (octave - 2))) as f64
}

/// What all names begin with up to a space, and the rest of each, cut to fit.
fn short_names(epochs: &[EpochSummary]) -> (String, Vec<String>) {
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

/// Draws, and puts the page's colours in. A chart that cannot be drawn is left out: the tables have its figures.
fn svg(size: (u32, u32), label: &str, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).and_then(|()| area.present().map_err(Into::into))
    };
    if drawn.is_err() {
        return String::new();
    }
    for (RGBColor(red, green, blue), name) in PALETTE {
        text = text.replace(&format!("#{red:02X}{green:02X}{blue:02X}"), name);
    }
    text.replacen("<svg ", &format!("<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" "), 1)
}
