//! Line charts as SVG and PNG, large enough to read in a README.

use crate::output;
use anyhow::{anyhow, ensure};
use kuva::backend::svg::SvgBackend;
use kuva::plot::{LegendPosition, LinePlot, LineStyle, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Width of the drawing; READMEs are shown about as wide.
const WIDTH: f64 = 900.0;

/// Height of the drawing.
const HEIGHT: f64 = 540.0;

/// Pixels of the PNG per unit of the drawing.
const SCALE: f32 = 2.0;

/// Okabe and Ito's colours, which stay apart for colour-blind eyes, without the yellow that vanishes on white.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888"];

/// One line of a chart.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// What the legend says.
    pub(crate) label: String,
    /// (x, y), in drawing order. Points that are not finite, or not above 0 on a logarithmic axis, are left out.
    pub(crate) points: Vec<(f64, f64)>,
    /// Index of the colour; beyond the eighth they repeat.
    pub(crate) colour: usize,
    /// Dashed instead of solid.
    pub(crate) dashed: bool,
    /// A dot on each point.
    pub(crate) markers: bool,
}

/// A chart of lines over common axes.
#[derive(Clone, Debug)]
pub(crate) struct Chart {
    /// Stands above the chart.
    pub(crate) title: String,
    /// What runs to the right, with its unit.
    pub(crate) x_label: String,
    /// What runs up, with its unit.
    pub(crate) y_label: String,
    /// Powers of ten to the right.
    pub(crate) log_x: bool,
    /// Powers of ten upwards.
    pub(crate) log_y: bool,
    /// Ends of the x axis; `None` fits the points.
    pub(crate) x_range: Option<(f64, f64)>,
    /// Ends of the y axis; `None` fits the points.
    pub(crate) y_range: Option<(f64, f64)>,
    /// The lines.
    pub(crate) series: Vec<Series>,
}

impl Chart {
    /// An empty chart with linear axes fitted to the points.
    pub(crate) fn new(x_label: &str, y_label: &str) -> Self {
        Self {
            title: String::new(),
            x_label: x_label.to_owned(),
            y_label: y_label.to_owned(),
            log_x: false,
            log_y: false,
            x_range: None,
            y_range: None,
            series: Vec::new(),
        }
    }

    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub(crate) fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        let scene = self.scene()?;
        let files = ["svg", "png"].map(|ending| with_ending(stem, ending));
        output::write_file(&files[0], SvgBackend::new().render_scene(&scene).as_bytes())?;
        let png = kuva::RasterBackend::new().with_scale(SCALE).render_scene(&scene);
        output::write_file(&files[1], &png.map_err(|reason| anyhow!("{}: {reason}", files[1].display()))?)?;
        Ok(files)
    }

    fn scene(&self) -> anyhow::Result<Scene> {
        let mut plots = Vec::new();
        for series in &self.series {
            let points: Vec<(f64, f64)> = series.points.iter().copied().filter(|&point| self.can_draw(point)).collect();
            if points.is_empty() {
                continue;
            }
            let colour = COLOURS[series.colour % COLOURS.len()];
            if series.markers {
                plots.push(Plot::Scatter(
                    ScatterPlot::new().with_data(points.clone()).with_color(colour).with_size(4.0),
                ));
            }
            let style = if series.dashed { LineStyle::Dashed } else { LineStyle::Solid };
            let line = LinePlot::new().with_data(points).with_color(colour).with_stroke_width(2.5);
            plots.push(Plot::Line(line.with_line_style(style).with_legend(plain(&series.label))));
        }
        ensure!(!plots.is_empty(), "plot: wanted at least one point to draw, found none");
        let layout = self.layout(&plots);
        Ok(render_multiple(plots, layout))
    }

    fn can_draw(&self, (x, y): (f64, f64)) -> bool {
        x.is_finite() && y.is_finite() && (!self.log_x || x > 0.0) && (!self.log_y || y > 0.0)
    }

    fn layout(&self, plots: &[Plot]) -> Layout {
        let mut layout = Layout::auto_from_plots(plots)
            .with_width(WIDTH)
            .with_height(HEIGHT)
            .with_title(plain(&self.title))
            .with_x_label(plain(&self.x_label))
            .with_y_label(plain(&self.y_label))
            .with_title_size(18)
            .with_label_size(16)
            .with_tick_size(14)
            .with_body_size(14)
            .with_legend_position(LegendPosition::OutsideBottomColumns);
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
        layout
    }
}

/// Text that kuva shows as it is: a dollar sign would start a formula.
fn plain(text: &str) -> String {
    text.replace('$', "\\$")
}

/// Adds an ending; unlike `with_extension` it keeps the rest of a stem such as `run.1`.
fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(stem);
    name.push(".");
    name.push(ending);
    name.into()
}
