//! Dashes for the PNG.
//!
//! kuva's rasteriser ignores the scale for the lengths of dashes, begins the pattern anew at each point, and rounds the ends of thick
//! dashes until the gaps close. So dashed lines are cut into solid pieces first.

use kuva::render::render::{Primitive, Scene};

type Point = (f64, f64);

/// Replaces every dashed line of the scene by its dashes.
pub(super) fn cut(scene: &mut Scene) {
    for element in std::mem::take(&mut scene.elements) {
        let Primitive::PolyLine { points, stroke, stroke_width, stroke_dasharray: Some(pattern) } = element else {
            scene.elements.push(element);
            continue;
        };
        let lengths: Vec<f64> = pattern.split([' ', ',']).filter_map(|length| length.parse().ok()).collect();
        let (on, off) = (lengths.first().map_or(0.0, |on| *on), lengths.get(1).map_or(0.0, |off| *off));
        // Round ends extend each dash by half a width.
        let overhang = stroke_width.min(on / 2.0);
        let dash =
            |points| Primitive::PolyLine { points, stroke: stroke.clone(), stroke_width, stroke_dasharray: None };
        scene.elements.extend(pieces(&points, on - overhang, off + overhang).into_iter().map(dash));
    }
}

/// The pieces of a line through `points` that a pattern of `on` drawn and `off` left out draws.
fn pieces(points: &[Point], on: f64, off: f64) -> Vec<Vec<Point>> {
    if on <= 0.0 || off <= 0.0 {
        return vec![points.to_vec()];
    }
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    let (mut drawing, mut left) = (true, on);
    let mut piece: Vec<Point> = points.first().copied().into_iter().collect();
    for pair in points.windows(2) {
        let [(x, y), to] = [pair[0], pair[1]];
        let (dx, dy) = (to.0 - x, to.1 - y);
        let (length, mut at) = (dx.hypot(dy), 0.0);
        while length - at > left {
            at += left;
            piece.push((x + dx * at / length, y + dy * at / length));
            if drawing {
                pieces.push(std::mem::take(&mut piece));
            }
            drawing = !drawing;
            left = if drawing { on } else { off };
        }
        left -= length - at;
        if drawing {
            piece.push(to);
        }
    }
    pieces.extend(Some(piece).filter(|piece| piece.len() > 1));
    pieces
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn the_pattern_runs_on_across_points() {
        let found = pieces(&[(0.0, 0.0), (5.0, 0.0), (12.0, 0.0)], 4.0, 2.0);
        let wanted = [vec![(0.0, 0.0), (4.0, 0.0)], vec![(6.0, 0.0), (10.0, 0.0)]];
        assert_eq!(found, wanted);
        let bent = pieces(&[(0.0, 0.0), (3.0, 0.0), (3.0, 9.0)], 4.0, 2.0);
        assert_eq!(bent[0], [(0.0, 0.0), (3.0, 0.0), (3.0, 1.0)]);
        assert_eq!(bent.len(), 2);
    }

    #[test]
    fn odd_lines_are_no_trouble() {
        assert!(pieces(&[], 4.0, 2.0).is_empty());
        assert!(pieces(&[(1.0, 1.0)], 4.0, 2.0).is_empty());
        assert_eq!(pieces(&[(0.0, 0.0), (1.0, 0.0)], 0.0, 2.0).len(), 1);
        assert!(!pieces(&[(0.0, 0.0), (0.0, 0.0), (1.0, 0.0)], 4.0, 2.0).is_empty());
    }
}
