//! Charts of lines over common axes.

use super::draw::{COLOURS, DASHES, TITLE_LETTERS, WIDTH, plain, text, tick, write};
use super::symmetric;
use anyhow::ensure;
use kuva::plot::annotations::ShadedRegion;
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LinePlot, LineStyle, ScatterPlot};
use kuva::render::color::Color;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, Scene, TextAnchor, render_multiple};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Height of the drawing without its legend.
const HEIGHT: f64 = 480.0;

const LINE_WIDTH: f64 = 2.5;

const MARKER: f64 = 4.5;

/// Text size of the numbers on the axes and of the legend.
const TICK: u32 = 14;

/// Width of a digit in units of the text size, an upper bound for usual sans serif fonts.
const DIGIT: f64 = 0.64;

/// Margin to the right of the last number of the x axis.
const EDGE: f64 = 4.0;

const BAND: &str = "#888888";

/// Mean width of a letter in units of the text size, slightly more than in usual sans serif fonts.
const LETTER: f64 = 0.6;
/// Legend: entry height, line length, gap behind an entry, margin between columns.
const ROW: f64 = 24.0;
const SWATCH: f64 = 36.0;
const GAP: f64 = 8.0;
const MARGIN: f64 = 24.0;

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Series {
    /// The legend's text.
    pub label: String,
    /// (x, y) in drawing order. Points that are not finite, or not above 0 on a logarithmic axis, are left out.
    pub points: Vec<(f64, f64)>,
    /// Index of the colour; the eight colours repeat.
    pub colour: usize,
    /// Whether the line is dashed and its markers are squares; else it is solid with dots.
    pub dashed: bool,
    /// Whether each point has a marker.
    pub markers: bool,
    /// Lengths of each point's error bar, down and up; empty for none.
    pub spread: Vec<(f64, f64)>,
}

/// A chart of lines over common axes.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The x axis's title with its unit.
    pub x_label: String,
    /// The y axis's title with its unit.
    pub y_label: String,
    /// Whether the x axis is logarithmic.
    pub log_x: bool,
    /// Whether the y axis is logarithmic.
    pub log_y: bool,
    /// Names instead of the numbers 0, 1, 2 ... on the x axis.
    pub x_names: Vec<String>,
    /// If set, the y axis is logarithmic above this number and below its negative, and linear between: for values around 0.
    pub symmetric_y: Option<f64>,
    /// If set, a grey band reaches from the negative of this value to the value.
    pub band: Option<f64>,
    /// Ends of the x axis; `None` fits the points.
    pub x_range: Option<(f64, f64)>,
    /// Ends of the y axis; `None` fits the points.
    pub y_range: Option<(f64, f64)>,
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart {
    /// An empty chart with linear axes fitted to the points.
    pub fn new(x_label: &str, y_label: &str) -> Self {
        Self {
            title: String::new(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            log_x: false,
            log_y: false,
            x_names: Vec::new(),
            symmetric_y: None,
            band: None,
            x_range: None,
            y_range: None,
            series: Vec::new(),
        }
    }

    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        write(self.scene()?, stem)
    }

    fn scene(&self) -> anyhow::Result<Scene> {
        let mut plots = Vec::new();
        let mut drawn = Vec::new();
        let mut ends = (f64::INFINITY, f64::NEG_INFINITY);
        for series in &self.series {
            let (points, spread): (Vec<_>, Vec<_>) = self.placed(series).unzip();
            if points.is_empty() {
                continue;
            }
            for ((_, y), (down, up)) in points.iter().zip(&spread) {
                ends = (ends.0.min(y - down), ends.1.max(y + up));
            }
            drawn.push(series);
            let style = if series.dashed { LineStyle::Custom(DASHES.to_owned()) } else { LineStyle::Solid };
            let mut line = LinePlot::new().with_data(points.iter().copied()).with_color(colour(series));
            if !series.spread.is_empty() {
                line = line.with_y_err_asymmetric(spread);
            }
            plots.push(Plot::Line(line.with_stroke_width(LINE_WIDTH).with_line_style(style)));
            if series.markers {
                let shape = if series.dashed { MarkerShape::Square } else { MarkerShape::Circle };
                let dots = ScatterPlot::new().with_data(points).with_color(colour(series));
                plots.push(Plot::Scatter(dots.with_size(MARKER).with_marker(shape)));
            }
        }
        ensure!(!plots.is_empty(), "plot: wanted at least one point to draw, found none");
        let layout = self.layout(&plots, ends);
        let mut scene = render_multiple(plots, layout);
        widen(&mut scene);
        legend(&mut scene, &drawn);
        Ok(scene)
    }

    fn can_draw(&self, (x, y): (f64, f64)) -> bool {
        x.is_finite() && y.is_finite() && (!self.log_x || x > 0.0) && (!self.log_y || y > 0.0)
    }

    /// The points of a series that can be drawn: their places on the axes, and the lengths of their error bars there.
    fn placed<'a>(&'a self, series: &'a Series) -> impl Iterator<Item = ((f64, f64), (f64, f64))> + 'a {
        let finite = |reach: f64| if reach.is_finite() { reach.max(0.0) } else { 0.0 };
        let place = |y: f64| self.symmetric_y.map_or(y, |linear| symmetric::place(y, linear));
        let points = series.points.iter().enumerate();
        points.filter(|&(_, &point)| self.can_draw(point)).map(move |(i, &(x, y))| {
            let (down, up) = series.spread.get(i).map_or((0.0, 0.0), |&(down, up)| (finite(down), finite(up)));
            let at = place(y);
            ((x, at), (at - place(y - down), place(y + up) - at))
        })
    }

    fn layout(&self, plots: &[Plot], ends: (f64, f64)) -> Layout {
        let mut layout = Layout::auto_from_plots(plots)
            .with_width(WIDTH)
            .with_height(HEIGHT)
            .with_title(plain(&self.title))
            .with_x_label(plain(&self.x_label))
            .with_y_label(plain(&self.y_label))
            .with_title_size(18)
            .with_label_size(16)
            .with_tick_size(TICK)
            .with_title_wrap(TITLE_LETTERS)
            .with_tick_format(TickFormat::Custom(Arc::new(tick)));
        if let Some((from, to)) = self.x_range {
            layout = layout.with_x_axis_min(from).with_x_axis_max(to);
        }
        if let Some((from, to)) = self.y_range {
            layout = layout.with_y_axis_min(from).with_y_axis_max(to);
        }
        if self.log_x {
            layout = layout.with_log_x();
        }
        if self.log_y {
            layout = layout.with_log_y();
        }
        if !self.x_names.is_empty() {
            // Half a place stays free at both ends.
            let (names, last) = (self.x_names.clone(), self.x_names.len() as f64 - 0.5);
            let name = move |place: f64| name_at(&names, place);
            layout = layout.with_x_axis_min(-0.5).with_x_axis_max(last).with_x_tick_step(1.0);
            layout = layout.with_x_tick_format(TickFormat::Custom(Arc::new(name)));
        }
        if let Some(linear) = self.symmetric_y {
            layout = layout.with_y_axis_min(ends.0.floor()).with_y_axis_max(ends.1.ceil()).with_y_tick_step(1.0);
            let name = move |place: f64| tick(symmetric::value(place.round(), linear));
            layout = layout.with_y_tick_format(TickFormat::Custom(Arc::new(name)));
        }
        if let Some(band) = self.band {
            let reach = self.symmetric_y.map_or(band, |linear| symmetric::place(band, linear));
            layout = layout.with_shaded_region(ShadedRegion::horizontal(-reach, reach).with_color(BAND));
        }
        layout
    }
}

fn colour(series: &Series) -> &'static str {
    COLOURS[series.colour % COLOURS.len()]
}

/// The marker of a point, for kuva.
fn marker(series: &Series, x: f64, y: f64, radius: f64) -> Primitive {
    let fill = Color::from(colour(series));
    if series.dashed {
        let (x, y, width, height) = (x - radius, y - radius, 2.0 * radius, 2.0 * radius);
        Primitive::Rect { x, y, width, height, fill, stroke: None, stroke_width: None, opacity: None }
    } else {
        let (cx, cy, r) = (x, y, radius);
        Primitive::Circle { cx, cy, r, fill, fill_opacity: None, stroke: None, stroke_width: None }
    }
}

/// Adds space on the right for the last number of the x axis, which kuva forgets on logarithmic axes.
fn widen(scene: &mut Scene) {
    let end = scene.elements.iter().filter_map(tick_end).fold(0.0, f64::max);
    scene.width = scene.width.max((end + EDGE).ceil());
}

/// The approximate right end of a number on an axis.
fn tick_end(element: &Primitive) -> Option<f64> {
    let Primitive::Text { x, content, size: size @ TICK, anchor, .. } = element else { return None };
    let beyond = match anchor {
        TextAnchor::Start => 1.0,
        TextAnchor::Middle => 0.5,
        TextAnchor::End => 0.0,
    };
    Some(x + beyond * content.chars().count() as f64 * DIGIT * f64::from(*size))
}

/// The name at a place of the x axis, if there is one.
fn name_at(names: &[String], place: f64) -> String {
    let whole = place.round();
    let name = if (place - whole).abs() < 0.01 && whole >= 0.0 { names.get(whole as usize) } else { None };
    name.cloned().unwrap_or_default()
}

/// Adds a legend of several columns below the chart and makes the scene taller. kuva's own legend shows no dashes on its short lines, and
/// no line behind a marker.
fn legend(scene: &mut Scene, series: &[&Series]) {
    let longest = series.iter().map(|series| series.label.chars().count()).max().unwrap_or(0);
    let column = SWATCH + GAP + longest as f64 * LETTER * f64::from(TICK) + MARGIN;
    let columns = (((scene.width - MARGIN) / column) as usize).clamp(1, series.len().max(1));
    let rows = series.len().div_ceil(columns);
    // If the number of rows allows, there are fewer columns, so that similar entries stand below each other.
    let columns = series.len().div_ceil(rows.max(1)).max(1);
    let left = ((scene.width - columns as f64 * column) / 2.0).max(MARGIN);
    let top = scene.height;
    for (i, series) in series.iter().enumerate() {
        let x = left + (i / rows) as f64 * column;
        let y = top + ((i % rows) as f64 + 0.5) * ROW;
        entry(scene, series, x, y);
    }
    scene.height = top + rows as f64 * ROW + MARGIN / 2.0;
}

fn entry(scene: &mut Scene, series: &Series, x: f64, y: f64) {
    scene.add(Primitive::PolyLine {
        points: vec![(x, y), (x + SWATCH, y)],
        stroke: Color::from(colour(series)),
        stroke_width: LINE_WIDTH,
        stroke_dasharray: series.dashed.then(|| DASHES.to_owned()),
    });
    if series.markers {
        scene.add(marker(series, x + SWATCH / 2.0, y, MARKER));
    }
    let at = (x + SWATCH + GAP, y + 0.35 * f64::from(TICK));
    text(scene, at, &series.label, TICK, TextAnchor::Start);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_at_whole_places() {
        let names = ["none".to_owned(), "5".to_owned()];
        assert_eq!([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0].map(|place| name_at(&names, place)), ["", "", "none", "", "5", ""]);
    }

    #[test]
    fn error_bars_reach_as_far_on_any_scale() {
        let mut chart = Chart::new("x", "y");
        let points = vec![(0.0, 0.1), (1.0, f64::NAN), (2.0, 1.0)];
        let spread = vec![(0.09, 0.9), (1.0, 1.0), (f64::INFINITY, 9.0)];
        let series = Series { label: "line".into(), points, colour: 0, dashed: false, markers: false, spread };
        type Placed = ((f64, f64), (f64, f64));
        let close = |found: &[Placed], wanted: &[Placed]| {
            let flat = |&((a, b), (c, d)): &Placed| [a, b, c, d];
            let both = found.iter().flat_map(flat).zip(wanted.iter().flat_map(flat));
            found.len() == wanted.len() && both.into_iter().all(|(a, b)| (a - b).abs() < 1e-12)
        };
        let linear: Vec<_> = chart.placed(&series).collect();
        assert!(close(&linear, &[((0.0, 0.1), (0.09, 0.9)), ((2.0, 1.0), (0.0, 9.0))]), "{linear:?}");
        chart.symmetric_y = Some(0.01);
        let symmetric: Vec<_> = chart.placed(&series).collect();
        assert!(close(&symmetric, &[((0.0, 2.0), (1.0, 1.0)), ((2.0, 3.0), (0.0, 1.0))]), "{symmetric:?}");
    }

    fn line(points: Vec<(f64, f64)>) -> Series {
        Series { label: "line".into(), points, colour: 0, dashed: false, markers: true, spread: Vec::new() }
    }

    #[test]
    fn the_last_number_of_an_axis_is_all_there() {
        for (log_x, last, shown, wider) in [
            (true, 1e3, "1000", true),
            (true, 2e9, "1e10", true),
            (true, 9e5, "1000000", true),
            (false, 97_000.0, "100000", false),
            (false, 10.0, "10", false),
        ] {
            let mut chart = Chart::new("x", "y");
            chart.log_x = log_x;
            chart.series.push(line(vec![(1.0, 1.0), (last, 2.0)]));
            let scene = chart.scene().unwrap();
            let ticks = || scene.elements.iter().filter_map(|element| Some((element, tick_end(element)?)));
            let (_, end) = ticks()
                .find(|(element, _)| matches!(element, Primitive::Text { content, anchor: TextAnchor::Middle, .. } if content == shown))
                .unwrap_or_else(|| panic!("{last}: no {shown}"));
            assert!(end > WIDTH - 80.0, "{shown} stands near the end of the axis: {end}");
            assert!(ticks().all(|(_, end)| end + EDGE <= scene.width), "{last}: {}", scene.width);
            assert_eq!(scene.width > WIDTH, wider, "{last}: {}", scene.width);
        }
    }

    #[test]
    fn both_files_are_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut chart = Chart::new("x $", "y");
        assert!(chart.write(&folder.path().join("none")).is_err(), "nothing to draw");
        for log in [false, true] {
            (chart.log_x, chart.log_y) = (log, log);
            let points = vec![(0.0, 1.0), (1.0, 10.0), (f64::NAN, 2.0), (5.0, 100.0), (7.0, f64::INFINITY)];
            let dashed = log;
            let spread = vec![(0.5, 1.0); 2];
            chart.series.push(Series { label: "$line".into(), points, colour: 9, dashed, markers: true, spread });
            let [svg, png] = chart.write(&folder.path().join("some")).unwrap();
            assert!(std::fs::read_to_string(svg).unwrap().contains("$line"));
            assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
        }
    }
}
