//! Charts of named bars, one below the other.

use super::draw::{COLOURS, DASHES, plain, tick, write};
use anyhow::ensure;
use kuva::plot::BarPlot;
use kuva::plot::annotations::ReferenceLine;
use kuva::render::layout::{Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{Scene, render_multiple};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Height of a bar with its gap, and of the title and the axis.
const ROW: f64 = 22.0;
const AROUND: f64 = 150.0;
/// Width of the longest bar with its margins, and of a letter of the names.
const BARS: f64 = 540.0;
const LETTER: f64 = 7.5;
/// Letters of a title that fit above the bars.
const TITLE_LETTERS: usize = 50;

/// A chart of horizontal bars that begin at 0.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The title.
    pub title: String,
    /// The title of the axis with its unit.
    label: String,
    /// Names and lengths from top to bottom. Values that are not finite are left out.
    pub bars: Vec<(String, f64)>,
    /// The position of a dashed line. Bars that reach it have another colour.
    pub mark: Option<f64>,
}

impl Bars {
    /// An empty chart with this title of the axis.
    pub fn new(label: &str) -> Self {
        Self { title: String::new(), label: label.to_owned(), bars: Vec::new(), mark: None }
    }

    /// Adds a bar.
    pub fn push(&mut self, name: &str, length: f64) {
        if length.is_finite() {
            self.bars.push((name.to_owned(), length.max(0.0)));
        }
    }

    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        ensure!(!self.bars.is_empty(), "plot: wanted at least one bar to draw, found none");
        write(self.scene(), stem)
    }

    fn scene(&self) -> Scene {
        let mut bars = BarPlot::new().with_horizontal(true).with_width(0.65);
        // kuva draws from bottom to top.
        for (name, length) in self.bars.iter().rev() {
            let short = self.mark.is_some_and(|mark| *length < mark);
            bars = bars.with_colored_bar(
                plain(&format!("{name}   {}", number(*length))),
                *length,
                COLOURS[usize::from(short)],
            );
        }
        let letters = bars.groups.iter().map(|bar| bar.label.chars().count()).max().unwrap_or(0);
        let plots = vec![Plot::Bar(bars)];
        let mut layout = Layout::auto_from_plots(&plots)
            .with_width(BARS + letters as f64 * LETTER)
            .with_height(self.bars.len() as f64 * ROW + AROUND)
            .with_title(plain(&self.title))
            .with_title_size(17)
            .with_title_wrap(TITLE_LETTERS)
            .with_x_label(plain(&self.label))
            .with_label_size(15)
            .with_tick_size(13)
            .with_x_tick_format(TickFormat::Custom(Arc::new(tick)));
        if let Some(mark) = self.mark {
            layout =
                layout.with_reference_line(ReferenceLine::vertical(mark).with_color(COLOURS[6]).with_dasharray(DASHES));
        }
        render_multiple(plots, layout)
    }
}

/// A number with three digits, enough to compare bars.
fn number(value: f64) -> String {
    let digits = if value >= 100.0 || value.fract() == 0.0 { 0 } else { 1 };
    if value > 0.0 && value < 0.05 { "<0.1".to_owned() } else { format!("{value:.digits$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_drawn_and_none_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut bars = Bars::new("% of copy");
        bars.push("nothing", f64::NAN);
        assert!(bars.write(&folder.path().join("none")).is_err());
        bars.title = "a title of several words ".repeat(8);
        bars.push("a $ name", 12.0);
        bars.push("another", 180.0);
        bars.mark = Some(100.0);
        let [svg, png] = bars.write(&folder.path().join("some")).unwrap();
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.contains("a $ name") && svg.contains("another   180"), "{svg}");
        assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
    }
}
