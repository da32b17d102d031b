//! The legend below a chart, in columns. kuva's own puts its box over the axis label and shows no dashes.

use super::{DASHES, LINE_WIDTH, MARKER, Series, colour, marker};
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};

const TEXT: u32 = 14;
/// Mean width of a letter in units of the text size, a little above that of the usual sans serif fonts.
const LETTER: f64 = 0.6;
const ROW: f64 = 24.0;
const SWATCH: f64 = 36.0;
const GAP: f64 = 8.0;
const MARGIN: f64 = 24.0;

/// Adds an entry for each series below what the scene shows so far, and makes the scene taller.
pub(super) fn add(scene: &mut Scene, series: &[&Series]) {
    let longest = series.iter().map(|series| series.label.chars().count()).max().unwrap_or(0);
    let column = SWATCH + GAP + longest as f64 * LETTER * f64::from(TEXT) + MARGIN;
    let columns = (((scene.width - MARGIN) / column) as usize).clamp(1, series.len().max(1));
    let rows = series.len().div_ceil(columns);
    // Fewer columns if that takes no more rows: entries then stand below their like.
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
    scene.add(Primitive::Text {
        x: x + SWATCH + GAP,
        y: y + 0.35 * f64::from(TEXT),
        content: super::plain(&series.label),
        size: TEXT,
        anchor: TextAnchor::Start,
        rotate: None,
        bold: false,
        color: None,
    });
}
