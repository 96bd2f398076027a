//! Charts as SVG for the HTML pages. They are drawn in marker colours, which are then replaced by the page's colours
//! for light and dark.

use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::{Ranged, SegmentValue, ValueFormatter};
use plotters::prelude::*;

/// A colour of the page, by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Words, and everything that has no colour of its own.
    Ink,
    /// Lines behind the figures.
    Grid,
    /// Deadlines met.
    Made,
    /// Deadlines missed.
    Missed,
    /// Jobs cancelled.
    Cancelled,
    /// A fourth series.
    Other,
    /// The critical class.
    Critical,
    /// The other one.
    NonCritical,
    /// Axes.
    Line,
}

impl Colour {
    const ALL: [Colour; 9] = [
        Colour::Ink,
        Colour::Grid,
        Colour::Made,
        Colour::Missed,
        Colour::Cancelled,
        Colour::Other,
        Colour::Critical,
        Colour::NonCritical,
        Colour::Line,
    ];

    /// The variable of the page's style sheet, without its dashes.
    pub const fn variable(self) -> &'static str {
        match self {
            Colour::Ink => "soft",
            Colour::Grid => "grid",
            Colour::Made => "made",
            Colour::Missed => "missed",
            Colour::Cancelled => "cancelled",
            Colour::Other => "waited",
            Colour::Critical => "critical",
            Colour::NonCritical => "non-critical",
            Colour::Line => "line",
        }
    }

    /// What it is drawn in: no chart uses these colours otherwise.
    pub(crate) const fn marker(self) -> RGBColor {
        RGBColor(1, 2, self as u8 + 1)
    }
}

pub(crate) type DrawResult = Result<(), Box<dyn std::error::Error>>;
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What stands along the horizontal axis: one place for each name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisLabels {
    /// What all of them are, below the axis.
    pub title: String,
    /// Their names.
    pub names: Vec<String>,
}

/// One line of a chart, or one part of its bars: a value for each place, if there is one.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its colour.
    pub colour: Colour,
    /// Drawn with gaps, to differ from another of the same colour.
    pub dashed: bool,
    /// Its values.
    pub values: Vec<Option<f64>>,
}

/// Places that a chart has room to name.
const MOST_NAMES: usize = 16;

/// A bar at each place, made of the values of all series, one on top of the other.
pub fn stacked(label: &str, places: &AxisLabels, parts: &[Series], value: impl Fn(f64) -> String) -> String {
    let count = places.names.len();
    if count == 0 {
        return String::new();
    }
    let at = |place: usize| parts.iter().filter_map(move |part| part.values.get(place).copied().flatten());
    let most = (0..count).map(|place| at(place).sum::<f64>()).fold(1.0, f64::max) * 1.05;
    svg((540, 250), label, |area| {
        let mut chart = framed(area).build_cartesian_2d((0..count - 1).into_segmented(), 0.0..most)?;
        mesh(&mut chart, &Along::places(places), &|segment| name(places, segment), &value)?;
        let gap = (160 / count).clamp(0, 8) as u32;
        for place in 0..count {
            let mut base = 0.0;
            for part in parts {
                let height = part.values.get(place).copied().flatten().unwrap_or(0.0);
                if height > 0.0 {
                    let corners = [(SegmentValue::Exact(place), base), (right(place, count), base + height)];
                    let mut bar = Rectangle::new(corners, part.colour.marker().filled());
                    bar.set_margin(0, 0, gap, gap);
                    chart.draw_series([bar])?;
                    base += height;
                }
            }
        }
        Ok(())
    })
}

/// A line for each series, from place to place; with a gap where it has no value. The axis begins at `from`.
pub fn lines(label: &str, places: &AxisLabels, series: &[Series], from: f64, value: impl Fn(f64) -> String) -> String {
    lines_of((540, 250), label, (places, series), from, value)
}

/// The same at less height, for several charts together.
pub(crate) fn small_lines(
    label: &str,
    places: &AxisLabels,
    series: &[Series],
    from: f64,
    value: impl Fn(f64) -> String,
) -> String {
    lines_of((540, 150), label, (places, series), from, value)
}

fn lines_of(
    size: (u32, u32),
    label: &str,
    (places, series): (&AxisLabels, &[Series]),
    from: f64,
    value: impl Fn(f64) -> String,
) -> String {
    let count = places.names.len();
    if count == 0 {
        return String::new();
    }
    let most = series.iter().flat_map(|one| one.values.iter().flatten()).copied().fold(from, f64::max);
    let most = if most > from { from + (most - from) * 1.06 } else { from + 1.0 };
    svg(size, label, |area| {
        let mut chart = framed(area).build_cartesian_2d((0..count - 1).into_segmented(), from..most)?;
        mesh(&mut chart, &Along::places(places), &|segment| name(places, segment), &value)?;
        for one in series {
            let style = one.colour.marker().stroke_width(2);
            for points in stretches(&one.values) {
                let points = points.into_iter().map(|(place, value)| (SegmentValue::CenterOf(place), value));
                match (points.len(), one.dashed) {
                    (1, _) => {
                        chart.draw_series(points.map(|at| Circle::new(at, 2, style.filled())))?;
                    }
                    (_, true) => {
                        chart.draw_series(DashedLineSeries::new(points, 5, 5, style))?;
                    }
                    (_, false) => {
                        chart.draw_series(LineSeries::new(points, style))?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// The successive places that have values.
fn stretches(values: &[Option<f64>]) -> Vec<Vec<(usize, f64)>> {
    let places = values.iter().enumerate().map(|(place, value)| value.map(|value| (place, value)));
    let places: Vec<_> = places.collect();
    let known = places.split(Option::is_none).filter(|stretch| !stretch.is_empty());
    known.map(|stretch| stretch.iter().copied().flatten().collect()).collect()
}

/// Where the axes of every chart stand.
pub(crate) fn framed<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart.margin(6).margin_top(10).x_label_area_size(38).y_label_area_size(52);
    chart
}

/// What is written along the horizontal axis.
pub(crate) struct Along {
    /// How many names at most.
    pub names: usize,
    /// What they are.
    pub title: String,
}

impl Along {
    pub fn places(places: &AxisLabels) -> Along {
        Along { names: places.names.len().min(MOST_NAMES), title: places.title.clone() }
    }
}

/// Draws the lines behind the figures of a chart, and the names along its axes.
pub(crate) fn mesh<X, Y>(
    chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>,
    along: &Along,
    name: &dyn Fn(&X::ValueType) -> String,
    value: &dyn Fn(f64) -> String,
) -> DrawResult
where
    X: Ranged + ValueFormatter<<X as Ranged>::ValueType>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(Colour::Grid.marker())
        .axis_style(Colour::Line.marker())
        .label_style(("sans-serif", 12, &Colour::Ink.marker()))
        .x_labels(along.names)
        .x_desc(along.title.as_str())
        .y_labels(5)
        .x_label_formatter(&|at| name(at))
        .y_label_formatter(&|height| value(*height))
        .draw()?;
    Ok(())
}

pub(crate) fn name(places: &AxisLabels, segment: &SegmentValue<usize>) -> String {
    match segment {
        SegmentValue::CenterOf(index) => places.names.get(*index).cloned().unwrap_or_default(),
        _ => String::new(),
    }
}

/// The right edge of a place's bars.
pub(crate) fn right(place: usize, places: usize) -> SegmentValue<usize> {
    if place + 1 < places { SegmentValue::Exact(place + 1) } else { SegmentValue::Last }
}

/// Draws, and puts the page's colours in. A chart that cannot be drawn is left out: the tables have its figures.
pub(crate) fn svg(size: (u32, u32), label: &str, draw: impl FnOnce(&Area<'_>) -> DrawResult) -> String {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).and_then(|()| area.present().map_err(Into::into))
    };
    if drawn.is_err() {
        return String::new();
    }
    for colour in Colour::ALL {
        let RGBColor(red, green, blue) = colour.marker();
        text = text.replace(&format!("#{red:02X}{green:02X}{blue:02X}"), &format!("var(--{})", colour.variable()));
    }
    text.replacen("<svg ", &format!("<svg class=\"chart\" role=\"img\" aria-label=\"{label}\" "), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> AxisLabels {
        AxisLabels { title: "region".into(), names: ["0", "1", "2"].map(String::from).into() }
    }

    #[test]
    fn a_chart_has_the_colours_of_the_page_and_no_others() {
        let series = [
            Series { colour: Colour::Made, dashed: false, values: vec![Some(3.0), Some(4.0), None] },
            Series { colour: Colour::Missed, dashed: true, values: vec![Some(1.0), None, Some(2.0)] },
        ];
        let drawn = [
            stacked("bars", &places(), &series, |value| format!("{value:.0}")),
            lines("lines", &places(), &series, 0.0, |value| format!("{value:.0}")),
        ];
        for chart in drawn {
            assert!(chart.contains("var(--made)") && chart.contains("var(--missed)"), "{chart}");
            assert!(!chart.contains("#0102"), "{chart}");
        }
    }

    #[test]
    fn a_line_has_gaps_without_values_and_a_dot_for_a_single_one() {
        let values = vec![None, Some(1.0), Some(2.0), None, None, Some(3.0)];
        assert_eq!(stretches(&values), [vec![(1, 1.0), (2, 2.0)], vec![(5, 3.0)]]);
        assert_eq!(stretches(&[None]), Vec::<Vec<_>>::new());
        let places = AxisLabels { title: String::new(), names: vec!["-".into(); 6] };
        let series = [Series { colour: Colour::Made, dashed: false, values }];
        let chart = lines("gaps", &places, &series, 0.0, |value| value.to_string());
        assert_eq!((chart.matches("<circle").count(), chart.contains("var(--made)")), (1, true), "{chart}");
    }

    #[test]
    fn nothing_to_draw_is_no_chart_or_an_empty_one_but_no_panic() {
        let none = AxisLabels::default();
        assert_eq!(stacked("none", &none, &[], |_| String::new()), "");
        assert_eq!(lines("none", &none, &[], 0.0, |_| String::new()), "");
        let flat = [Series { colour: Colour::Made, dashed: false, values: vec![Some(0.0); 3] }];
        assert!(lines("flat", &places(), &flat, 0.0, |value| value.to_string()).contains("<svg"));
    }
}
