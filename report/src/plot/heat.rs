//! Heat maps side by side on one logarithmic colour scale. Cells show numbers; a cell without a figure is grey.

use super::draw::{TITLE_LETTERS, WIDTH, rect, text, write};
use crate::units::short;
use anyhow::ensure;
use kuva::plot::ColorMap;
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};
use kuva::render::render_utils::wrap_text;
use std::path::{Path, PathBuf};

const TEXT: u32 = 12;
const CELL: f64 = 30.0;
const MARGIN: f64 = 16.0;
/// Width of the names of a panel's rows.
const NAMES: f64 = 52.0;
/// Height of a line of text.
const LINE: f64 = 24.0;
/// Number of panels beside each other.
const ACROSS: usize = 3;
/// The colour of the lowest value; white would look like paper.
const PALE: f64 = 0.08;

/// A heat map among others on one colour scale.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The title of the columns.
    pub label: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The names of the rows.
    pub lines: Vec<String>,
    /// The values row by row; `None` without a figure.
    pub values: Vec<Vec<Option<f64>>>,
}

/// Heat maps side by side.
#[derive(Clone, Debug)]
pub struct Heat {
    /// The title.
    pub title: String,
    /// The heat maps.
    pub panels: Vec<Panel>,
}

impl Heat {
    /// Writes `stem.svg` and `stem.png` and returns their names.
    pub fn write(&self, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
        ensure!(self.ends().is_some(), "plot: wanted at least one number above 0 to draw, found none");
        write(&self.scene(), stem)
    }

    /// The least and the largest value of all panels.
    fn ends(&self) -> Option<(f64, f64)> {
        let values = self.panels.iter().flat_map(|panel| panel.values.iter().flatten().flatten().copied());
        let values: Vec<f64> = values.filter(|value| value.is_finite() && *value > 0.0).collect();
        let least = values.iter().copied().min_by(f64::total_cmp)?;
        Some((least, values.iter().copied().max_by(f64::total_cmp)?))
    }

    fn scene(&self) -> Scene {
        let ends = self.ends().unwrap_or((1.0, 1.0));
        let title = wrap_text(&self.title, TITLE_LETTERS);
        let top = MARGIN + title.len() as f64 * LINE;
        let tallest = |panels: &[Panel]| panels.iter().map(|panel| panel.lines.len()).max().unwrap_or(0) as f64;
        // The height of title, column names and label of a panel.
        let height = |panels: &[Panel]| tallest(panels) * CELL + 3.0 * LINE + MARGIN;
        let all: f64 = self.panels.chunks(ACROSS).map(height).sum();
        let mut scene = Scene::new(WIDTH, top + all);
        for (i, line) in title.iter().enumerate() {
            text(&mut scene, (WIDTH / 2.0, MARGIN + (i as f64 + 0.6) * LINE), line, 17, TextAnchor::Middle);
        }
        let width = (WIDTH - 2.0 * MARGIN) / ACROSS as f64;
        let mut y = top;
        for row in self.panels.chunks(ACROSS) {
            for (i, panel) in row.iter().enumerate() {
                draw(&mut scene, panel, (MARGIN + i as f64 * width, y, width), ends);
            }
            y += height(row);
        }
        scene
    }
}

fn draw(scene: &mut Scene, panel: &Panel, (left, top, width): (f64, f64, f64), (least, most): (f64, f64)) {
    let x = left + NAMES;
    let cell = (width - NAMES - MARGIN) / panel.columns.len().max(1) as f64;
    let middle = |i: usize| x + (i as f64 + 0.5) * cell;
    let under = 0.35 * f64::from(TEXT);
    let center = left + (width + NAMES - MARGIN) / 2.0;
    text(scene, (center, top + 0.7 * LINE), &panel.title, 14, TextAnchor::Middle);
    let first = top + 1.1 * LINE;
    for (i, (name, values)) in panel.lines.iter().zip(&panel.values).enumerate() {
        let y = first + i as f64 * CELL;
        text(scene, (x - 5.0, y + CELL / 2.0 + under), name, TEXT, TextAnchor::End);
        for (j, value) in values.iter().enumerate() {
            let place = (x + j as f64 * cell, y, cell - 1.0, CELL - 1.0);
            match value.filter(|value| value.is_finite() && *value > 0.0) {
                Some(value) => {
                    let share = if most > least { (value / least).ln() / (most / least).ln() } else { 0.0 };
                    rect(scene, place, &colour(share));
                    let paint = if share > 0.6 { "#ffffff" } else { "#000000" };
                    let (x, y, content) = (middle(j), y + CELL / 2.0 + under, short(value));
                    let (size, anchor, color) = (TEXT - 1, TextAnchor::Middle, Some(Color::from(paint)));
                    scene.add(Primitive::Text { x, y, content, size, anchor, rotate: None, bold: false, color });
                }
                None => rect(scene, place, "#eeeeee"),
            }
        }
    }
    let below = first + panel.lines.len() as f64 * CELL;
    for (i, name) in panel.columns.iter().enumerate() {
        text(scene, (middle(i), below + 0.65 * LINE), name, TEXT, TextAnchor::Middle);
    }
    text(scene, (center, below + 1.4 * LINE), &panel.label, TEXT, TextAnchor::Middle);
}

/// The colour of a share: pale for 0, dark for 1.
fn colour(share: f64) -> String {
    ColorMap::YellowOrangeRed.map(PALE + (1.0 - PALE) * share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heat() -> Heat {
        let panel = Panel {
            title: "(a) forward".into(),
            label: "compression".into(),
            columns: vec!["10x".into(), "100x".into()],
            lines: vec!["4 M".into(), "8 M".into()],
            values: vec![vec![Some(0.5), Some(12.0)], vec![None, Some(f64::NAN)]],
        };
        Heat { title: "a title".into(), panels: vec![panel; 4] }
    }

    #[test]
    fn cells_have_numbers_or_are_grey() {
        let folder = tempfile::tempdir().unwrap();
        let [svg, png] = heat().write(&folder.path().join("heat")).unwrap();
        let svg = std::fs::read_to_string(svg).unwrap();
        assert!(svg.contains(">0.50<") && svg.contains(">12.0<") && svg.contains("8 M"), "{svg}");
        assert_eq!(svg.matches("#eeeeee").count(), 4 * 2, "a grey cell without a number");
        assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
        let mut none = heat();
        none.panels.iter_mut().for_each(|panel| panel.values = vec![vec![None]]);
        assert!(none.write(&folder.path().join("none")).is_err());
    }
}
