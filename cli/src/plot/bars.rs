//! Named bars, one below the other: as many as there are, with names as long as they are. kuva's own stand side by side, where
//! long names overlap.

use super::{COLOURS, DASHES, TITLE_LETTERS, WIDTH, plain, tick, write};
use anyhow::ensure;
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};
use std::path::{Path, PathBuf};

const TEXT: u32 = 13;
/// Mean width of a letter in units of the text size, as in the legend.
const LETTER: f64 = 0.56;
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
const MARGIN: f64 = 16.0;
/// Room for a bar's number behind it.
const NUMBER: f64 = 60.0;
/// Height of the title's line and of the axis.
const LINE: f64 = 26.0;

/// A chart of horizontal bars that begin at 0.
#[derive(Clone, Debug)]
pub(crate) struct Bars {
    /// Stands above the chart.
    pub(crate) title: String,
    /// What runs to the right, with its unit.
    label: String,
    /// Names and lengths, from above. What is not finite is left out.
    pub(crate) bars: Vec<(String, f64)>,
    /// Where a dashed line stands; bars that reach it have another colour.
    pub(crate) mark: Option<f64>,
}

impl Bars {
    pub(crate) fn new(label: &str) -> Self {
        Self { title: String::new(), label: label.to_owned(), bars: Vec::new(), mark: None }
    }

    pub(crate) fn push(&mut self, name: &str, length: f64) {
        if length.is_finite() {
            self.bars.push((name.to_owned(), length.max(0.0)));
        }
    }

    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub(crate) fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        ensure!(!self.bars.is_empty(), "plot: wanted at least one bar to draw, found none");
        write(self.scene(), stem)
    }

    fn scene(&self) -> Scene {
        let letters = self.bars.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let left = (MARGIN + letters as f64 * LETTER * f64::from(TEXT)).min(WIDTH * 0.6);
        let right = WIDTH - MARGIN - NUMBER;
        let title = wrapped(&self.title, TITLE_LETTERS);
        let top = MARGIN + title.len() as f64 * LINE;
        let bottom = top + self.bars.len() as f64 * ROW;
        let mut scene = Scene::new(WIDTH, bottom + 2.0 * LINE + MARGIN);
        for (i, line) in title.iter().enumerate() {
            text(&mut scene, WIDTH / 2.0, MARGIN + (i as f64 + 0.6) * LINE, line, 17, TextAnchor::Middle);
        }
        let longest = self.bars.iter().map(|&(_, length)| length).chain(self.mark).fold(0.0, f64::max);
        let step = round_step(longest / 6.0);
        let most = (longest / step).ceil().max(1.0) * step;
        let x = |value: f64| left + (right - left) * value / most;
        let mut value = 0.0;
        while value <= most * 1.001 {
            line(&mut scene, x(value), top, bottom, "#dddddd", None);
            text(&mut scene, x(value), bottom + 0.7 * LINE, &tick(value), TEXT, TextAnchor::Middle);
            value += step;
        }
        for (i, (name, length)) in self.bars.iter().enumerate() {
            let middle = top + (i as f64 + 0.5) * ROW;
            let reached = self.mark.is_some_and(|mark| *length >= mark);
            let fill = Color::from(if self.mark.is_none() || reached { COLOURS[0] } else { COLOURS[1] });
            scene.add(Primitive::Rect {
                x: left,
                y: middle - BAR / 2.0,
                width: (x(*length) - left).max(1.0),
                height: BAR,
                fill,
                stroke: None,
                stroke_width: None,
                opacity: None,
            });
            let baseline = middle + 0.35 * f64::from(TEXT);
            text(&mut scene, left - 6.0, baseline, name, TEXT, TextAnchor::End);
            text(&mut scene, x(*length) + 5.0, baseline, &number(*length), TEXT, TextAnchor::Start);
        }
        if let Some(mark) = self.mark {
            line(&mut scene, x(mark), top, bottom, COLOURS[6], Some(DASHES));
        }
        text(&mut scene, (left + right) / 2.0, bottom + 1.6 * LINE, &self.label, 15, TextAnchor::Middle);
        scene
    }
}

/// Three digits are enough to compare bars.
fn number(value: f64) -> String {
    let digits = if value >= 100.0 || value.fract() == 0.0 { 0 } else { 1 };
    if value > 0.0 && value < 0.05 { "<0.1".to_owned() } else { format!("{value:.digits$}") }
}

/// The next of 1, 2, 5 times a power of ten at or above `least`.
fn round_step(least: f64) -> f64 {
    let least = if least > 0.0 { least } else { 1.0 };
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|times| times * power).find(|&step| step >= least * 0.999).unwrap_or(10.0 * power)
}

pub(super) fn wrapped(words: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].chars().count() + 1 + word.chars().count() > letters {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines
}

fn line(scene: &mut Scene, x: f64, top: f64, bottom: f64, colour: &str, dashes: Option<&str>) {
    scene.add(Primitive::PolyLine {
        points: vec![(x, top), (x, bottom)],
        stroke: Color::from(colour),
        stroke_width: if dashes.is_some() { 2.0 } else { 1.0 },
        stroke_dasharray: dashes.map(str::to_owned),
    });
}

pub(super) fn text(scene: &mut Scene, x: f64, y: f64, content: &str, size: u32, anchor: TextAnchor) {
    let content = plain(content);
    scene.add(Primitive::Text { x, y, content, size, anchor, rotate: None, bold: false, color: None });
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
        assert!(svg.contains("a $ name") && svg.contains(">180<"), "{svg}");
        assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
    }

    #[test]
    fn steps_are_round() {
        for (least, wanted) in [(0.3, 0.5), (1.0, 1.0), (16.7, 20.0), (70.0, 100.0), (0.0, 1.0)] {
            assert!((round_step(least) - wanted).abs() < 1e-9, "{least}: {}", round_step(least));
        }
    }
}
