//! Line charts as SVG and PNG, large enough to read in a README.

use crate::output::{self, with_ending};
use crate::records::Measurement;
use anyhow::{anyhow, ensure};
use kuva::backend::svg::SvgBackend;
use kuva::plot::annotations::ShadedRegion;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{LinePlot, LineStyle, ScatterPlot};
use kuva::render::figure::Figure;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Okabe and Ito's colours, which colour-blind eyes can tell apart, without the yellow that vanishes on white.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888"];

/// Width of the drawing, about that of a README, and its height without its legend.
const SIZE: (f64, f64) = (900.0, 480.0);

/// A place of a line: x, y, and the lengths of its error bar, down and up.
pub type Point = (f64, f64, [f64; 2]);

#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Index of the colour; the eight colours repeat.
    pub colour: usize,
    /// Whether the line is dashed and its markers are squares; else it is solid with dots.
    pub dashed: bool,
    pub markers: bool,
}

#[derive(Clone, Debug)]
pub struct Series {
    pub label: String,
    /// In drawing order. Points that are not finite, or not above 0 on a logarithmic axis, are left out.
    pub points: Vec<Point>,
    pub style: Style,
}

/// A chart of lines over common axes.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    pub log_x: bool,
    pub log_y: bool,
    /// Names instead of the numbers 0, 1, 2 ... on the x axis.
    pub x_names: Vec<String>,
    /// If set, a grey band reaches from the negative of this value to the value.
    pub band: Option<f64>,
    /// Ends of the x axis; `None` fits the points.
    pub x_range: Option<(f64, f64)>,
    /// Ends of the y axis; `None` fits the points.
    pub y_range: Option<(f64, f64)>,
    pub series: Vec<Series>,
}

/// Charts beside one another, two in a row, with one legend for all of their lines.
#[derive(Clone, Debug)]
pub struct Panels {
    pub title: String,
    /// The charts, each with a title of its own.
    pub charts: Vec<Chart>,
}

impl Panels {
    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        let drawn = self.charts.iter().map(Chart::drawn).collect::<anyhow::Result<Vec<_>>>()?;
        let (plots, legends): (Vec<_>, Vec<_>) = drawn.into_iter().unzip();
        let layouts = self.charts.iter().zip(&plots).map(|(chart, plots)| chart.layout(plots).with_title_size(16));
        let (layouts, rows) = (layouts.collect(), plots.len().div_ceil(2));
        let mut legend: Vec<LegendEntry> = legends.concat();
        let mut known = BTreeSet::new();
        legend.retain(|entry| known.insert(entry.label.clone()));
        let figure = Figure::new(rows, 2).with_title(plain(&self.title)).with_title_size(18);
        let figure = figure.with_shared_legend_bottom().with_shared_legend_entries(legend);
        let figure = figure.with_cell_size(SIZE.0 / 2.0, 300.0).with_layouts(layouts).with_plots(plots);
        write(&figure.render(), stem)
    }
}

impl Chart {
    /// An empty chart with linear axes fitted to the points.
    pub fn new(x_label: &str, y_label: &str) -> Self {
        Self { x_label: x_label.to_owned(), y_label: y_label.to_owned(), ..Self::default() }
    }

    /// Adds a line without error bars.
    pub fn line(&mut self, label: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>, style: Style) {
        let points = points.into_iter().map(|(x, y)| (x, y, [0.0; 2])).collect();
        self.series.push(Series { label: label.into(), points, style });
    }

    /// Adds a line for each `label`. Its points ascend in `x` and have their intervals. The label of the y axis gets the unit.
    pub fn lines<'r>(
        &mut self,
        records: impl IntoIterator<Item = &'r Measurement>,
        label: impl Fn(&Measurement) -> String,
        x: impl Fn(&Measurement) -> Option<f64>,
        style: impl Fn(&Measurement) -> Style,
    ) {
        for record in records {
            let Some(x) = x(record) else { continue };
            let (label, (factor, unit)) = (label(record), record.unit.scale());
            if self.series.is_empty() {
                self.y_label = format!("{} ({unit})", self.y_label);
            }
            let at = self.series.iter().position(|series| series.label == label).unwrap_or_else(|| {
                self.line(label, [], style(record));
                self.series.len() - 1
            });
            let spread = record.spread.filter(|_| record.unit.has_interval());
            let bar = spread.map_or([0.0; 2], |of| [record.value - of.lowest, of.highest - record.value]);
            self.series[at].points.push((x, factor * record.value, bar));
        }
        self.series.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    }

    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        write(&self.scene()?, stem)
    }

    /// As [`write`](Self::write); no file without a line.
    pub fn write_any(&self, stem: &Path) -> anyhow::Result<Option<[PathBuf; 2]>> {
        (!self.series.is_empty()).then(|| self.write(stem)).transpose()
    }

    /// The lines of all series that have points, and their legend, dashes included.
    fn drawn(&self) -> anyhow::Result<(Vec<Plot>, Vec<LegendEntry>)> {
        let (mut plots, mut legend) = (Vec::new(), Vec::new());
        for series in &self.series {
            let (points, bars): (Vec<_>, Vec<_>) =
                self.placed(series).map(|(x, y, [down, up])| ((x, y), (down, up))).unzip();
            if points.is_empty() {
                continue;
            }
            let Style { colour, dashed, markers } = series.style;
            let colour = COLOURS[colour % COLOURS.len()];
            // Lengths of dash and gap. kuva's PNG has them half as long, and its round ends take a line's width of each gap.
            let (style, shape) = match dashed {
                true => (LineStyle::Custom("16 14".to_owned()), MarkerShape::Square),
                false => (LineStyle::Solid, MarkerShape::Circle),
            };
            let line = LinePlot::new().with_data(points.iter().copied()).with_color(colour).with_line_style(style);
            let mut line = line.with_stroke_width(2.5);
            if bars.iter().any(|&bar| bar != (0.0, 0.0)) {
                line = line.with_y_err_asymmetric(bars);
            }
            plots.push(Plot::Line(line));
            if markers {
                let dots = ScatterPlot::new().with_data(points).with_color(colour).with_size(4.5).with_marker(shape);
                plots.push(Plot::Scatter(dots));
            }
            let shape = if dashed || !markers { LegendShape::Line } else { LegendShape::Marker(MarkerShape::Circle) };
            // Lines of the legend have room for two short dashes.
            let dasharray = dashed.then(|| "3 7 3 1".to_owned());
            legend.push(LegendEntry { label: plain(&series.label), color: colour.to_owned(), shape, dasharray });
        }
        ensure!(!plots.is_empty(), "plot: wanted at least one point to draw, found none");
        Ok((plots, legend))
    }

    fn scene(&self) -> anyhow::Result<Scene> {
        let (plots, legend) = self.drawn()?;
        // Four entries of the legend lie in a line.
        let height = SIZE.1 + 4.5 * legend.len() as f64;
        let layout = self.layout(&plots).with_height(height).with_legend_entries(legend);
        let mut scene = render_multiple(plots, layout);
        // Space for the last number of a logarithmic x axis, which kuva forgets.
        scene.width += if self.log_x { 24.0 } else { 0.0 };
        Ok(scene)
    }

    /// The points of a series that can be drawn.
    fn placed(&self, series: &Series) -> impl Iterator<Item = Point> {
        let can_draw = |value: f64, log: bool| value.is_finite() && (!log || value > 0.0);
        let finite = |reach: f64| if reach.is_finite() { reach.max(0.0) } else { 0.0 };
        let points = series.points.iter().filter(move |(x, y, _)| can_draw(*x, self.log_x) && can_draw(*y, self.log_y));
        points.map(move |&(x, y, bar)| (x, y, bar.map(finite)))
    }

    fn layout(&self, plots: &[Plot]) -> Layout {
        let mut layout = Layout::auto_from_plots(plots)
            .with_width(SIZE.0)
            .with_title(plain(&self.title))
            .with_x_label(plain(&self.x_label))
            .with_y_label(plain(&self.y_label))
            .with_title_size(18)
            .with_label_size(16)
            .with_tick_size(14)
            .with_legend_position(LegendPosition::OutsideBottomColumns)
            .with_legend_box(false)
            .with_title_wrap(80)
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
        if let Some(band) = self.band {
            layout = layout.with_shaded_region(ShadedRegion::horizontal(-band, band).with_color(COLOURS[7]));
        }
        layout
    }
}

/// Writes `stem.svg` and `stem.png` and returns their names.
fn write(scene: &Scene, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let [svg, png] = [".svg", ".png"].map(|ending| with_ending(stem, ending));
    output::write_file(&svg, SvgBackend::new().render_scene(scene).as_bytes())?;
    let pixels = kuva::RasterBackend::new().with_scale(2.0).render_scene(scene);
    output::write_file(&png, &pixels.map_err(|reason| anyhow!("{}: {reason}", png.display()))?)?;
    Ok([svg, png])
}

/// A number on an axis: 0.1 and 20000, not 1e-1 and 2e4.
fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e7).contains(&value.abs()) {
        return format!("{value:e}");
    }
    // Six decimals hide rounding errors of the tick.
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes the dollar sign, which begins a formula in kuva.
fn plain(text: &str) -> String {
    text.replace('$', "\\$")
}

/// The name at a place of the x axis, if there is one.
fn name_at(names: &[String], place: f64) -> String {
    let whole = place.round();
    let name = if (place - whole).abs() < 0.01 && whole >= 0.0 { names.get(whole as usize) } else { None };
    name.cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kuva::render::render::Primitive;

    #[test]
    fn ticks_are_plain_numbers_or_names() {
        for (value, wanted) in
            [(0.0, "0"), (0.1, "0.1"), (0.30000000000000004, "0.3"), (20_000.0, "20000"), (1e9, "1e9"), (-5.0, "-5")]
        {
            assert_eq!(tick(value), wanted);
        }
        let names = ["none".to_owned(), "5".to_owned()];
        assert_eq!([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0].map(|place| name_at(&names, place)), ["", "", "none", "", "5", ""]);
    }

    #[test]
    fn points_that_cannot_be_drawn_are_left_out() {
        let mut chart = Chart::new("x", "y");
        let points = vec![(0.0, 0.1, [0.09, 0.9]), (1.0, f64::NAN, [1.0; 2]), (2.0, 1.0, [f64::INFINITY, 9.0])];
        let series = Series { label: "line".into(), points, style: Style::default() };
        let placed = |chart: &Chart| chart.placed(&series).collect::<Vec<_>>();
        assert_eq!(placed(&chart), [(0.0, 0.1, [0.09, 0.9]), (2.0, 1.0, [0.0, 9.0])]);
        chart.log_x = true;
        assert_eq!(placed(&chart), [(2.0, 1.0, [0.0, 9.0])]);
    }

    #[test]
    fn no_line_of_a_legend_is_cut_off() {
        let mut chart = Chart::new("x", "y");
        for n in 0..20 {
            chart.line(format!("line {n}"), [(0.0, 0.0), (1.0, f64::from(n))], Style::default());
        }
        let scene = chart.scene().unwrap();
        let lines = scene.elements.iter().filter_map(|element| match element {
            Primitive::Text { y, content, .. } if content.starts_with("line ") => Some(*y),
            _ => None,
        });
        let lowest = lines.clone().fold(0.0, f64::max);
        assert!(lines.count() == 20 && lowest > SIZE.1 && scene.height > lowest, "{lowest} {}", scene.height);
    }

    #[test]
    fn nothing_to_draw_is_an_error_and_a_dollar_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let mut chart = Chart::new("x $", "y");
        assert!(chart.write(&folder.path().join("none")).is_err());
        (chart.log_x, chart.log_y) = (true, true);
        let points = [(0.0, 1.0), (1.0, 10.0), (f64::NAN, 2.0), (5.0, 100.0), (7.0, f64::INFINITY)];
        chart.line("$line", points, Style { colour: 9, dashed: true, markers: true });
        chart.series[0].points[1].2 = [0.5, 1.0];
        let panels = Panels { title: "all".into(), charts: vec![chart.clone(); 3] };
        panels.write(&folder.path().join("panels")).unwrap();
        let panels = std::fs::read_to_string(folder.path().join("panels.svg")).unwrap();
        assert_eq!(panels.matches("$line").count(), 1, "one legend for three panels");
        let [svg, png] = chart.write(&folder.path().join("some")).unwrap();
        assert!(std::fs::read_to_string(svg).unwrap().contains("$line"));
        assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
    }
}
