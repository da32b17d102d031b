//! Drawing of all charts: colours, numbers, lines of text, and files.

use crate::output::{self, with_ending};
use anyhow::anyhow;
use kuva::backend::svg::SvgBackend;
use kuva::render::color::Color;
use kuva::render::render::{Primitive, Scene, TextAnchor};
use std::path::{Path, PathBuf};

/// Width of the drawing, about that of a README.
pub(super) const WIDTH: f64 = 900.0;

/// Pixels of the PNG per unit of the drawing.
const SCALE: f32 = 2.0;

/// Number of letters that fit on a line of the title.
pub(super) const TITLE_LETTERS: usize = 80;

/// Okabe and Ito's colours, which colour-blind eyes can tell apart, without the yellow that vanishes on white.
pub(super) const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#888888"];

/// Writes `stem.svg` and `stem.png` and returns their names.
pub(super) fn write(scene: &Scene, stem: &Path) -> anyhow::Result<[PathBuf; 2]> {
    let [svg, png] = [".svg", ".png"].map(|ending| with_ending(stem, ending));
    output::write_file(&svg, SvgBackend::new().render_scene(scene).as_bytes())?;
    let pixels = kuva::RasterBackend::new().with_scale(SCALE).render_scene(scene);
    output::write_file(&png, &pixels.map_err(|reason| anyhow!("{}: {reason}", png.display()))?)?;
    Ok([svg, png])
}

/// A number on an axis: 0.1 and 20000, not 1e-1 and 2e4.
pub(super) fn tick(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e7).contains(&value.abs()) {
        return format!("{value:e}");
    }
    // Six decimals hide rounding errors of the tick.
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Escapes the dollar sign, which begins a formula in kuva.
pub(super) fn plain(text: &str) -> String {
    text.replace('$', "\\$")
}

pub(super) fn text(scene: &mut Scene, (x, y): (f64, f64), content: &str, size: u32, anchor: TextAnchor) {
    let content = plain(content);
    scene.add(Primitive::Text { x, y, content, size, anchor, rotate: None, bold: false, color: None });
}

pub(super) fn rect(scene: &mut Scene, (x, y, width, height): (f64, f64, f64, f64), paint: &str) {
    let fill = Color::from(paint);
    scene.add(Primitive::Rect { x, y, width, height, fill, stroke: None, stroke_width: None, opacity: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_plain_numbers() {
        for (value, wanted) in
            [(0.0, "0"), (0.1, "0.1"), (0.30000000000000004, "0.3"), (20_000.0, "20000"), (1e9, "1e9"), (-5.0, "-5")]
        {
            assert_eq!(tick(value), wanted);
        }
    }
}
