//! A picture that has detail at every scale: an archipelago from above, by noise with as many octaves as the resolution shows.

/// The colour, 0 to 1, at a place given in 2^-32 of the picture's side. Each octave doubles the detail.
pub(crate) fn colour(x: u32, y: u32, octaves: u32) -> [f32; 3] {
    let [u, v] = [x, y].map(|z| z as f32 / 4_294_967_296.0);
    let (height, slope) = height(f64::from(x) / 4_294_967_296.0, f64::from(y) / 4_294_967_296.0, octaves);
    // The sea is deep at the edges, so that the picture goes on at the other side.
    let edge = [u, 1.0 - u, v, 1.0 - v].into_iter().fold(1.0, f32::min);
    let height = height - 0.55 * (1.0 - edge / 0.16).clamp(0.0, 1.0).powi(2);
    let steep = (slope[0] * slope[0] + slope[1] * slope[1]).sqrt();
    let light = (1.0 - 0.55 * slope[0] - 0.75 * slope[1]) / (1.0 + steep * steep).sqrt();
    if height < 0.0 {
        let deep = (-height * 7.0).min(1.0);
        let sea = mix([0.20, 0.55, 0.62], [0.03, 0.13, 0.30], deep.sqrt());
        return sea.map(|c| (c * (0.92 + 0.08 * light * (1.0 - deep))).clamp(0.0, 1.0));
    }
    let ground = [(0.0, [0.80, 0.73, 0.52]), (0.012, [0.36, 0.50, 0.20]), (0.12, [0.16, 0.34, 0.14])];
    let ground =
        ground.into_iter().chain([(0.24, [0.46, 0.40, 0.30]), (0.36, [0.55, 0.52, 0.49]), (0.42, [0.95, 0.96, 0.98])]);
    let mut land = [0.0; 3];
    let mut from = f32::NEG_INFINITY;
    for (at, next) in ground {
        land = mix(land, next, ((height - from) / (at - from)).clamp(0.0, 1.0));
        from = at;
    }
    let rock = mix(land, [0.42, 0.37, 0.33], (1.2 * steep - 0.9).clamp(0.0, 0.8));
    rock.map(|c| (c * (0.35 + 0.75 * light)).clamp(0.0, 1.0))
}

fn mix(a: [f32; 3], b: [f32; 3], share: f32) -> [f32; 3] {
    let share = if share.is_nan() { 1.0 } else { share };
    [0, 1, 2].map(|c| a[c] + (b[c] - a[c]) * share)
}

/// The height above the sea and the slope of the ground. Steep ground gets less of the finer octaves, as if water had smoothed it.
fn height(x: f64, y: f64, octaves: u32) -> (f32, [f32; 2]) {
    let (mut sum, mut slope, mut gain, mut cells) = (-0.40, [0.0f32; 2], 0.5f32, 4.0);
    for octave in 0..octaves {
        // Each octave is turned, so that no grid shows.
        let (sin, cos) = (0.7 + 1.2 * f64::from(octave)).sin_cos();
        let (value, [dx, dy]) = noise((x * cos - y * sin) * cells, (x * sin + y * cos) * cells, octave);
        let (sin, cos) = (sin as f32, cos as f32);
        slope = [slope[0] + dx * cos + dy * sin, slope[1] - dx * sin + dy * cos];
        sum += gain * value / (1.0 + 0.35 * (slope[0] * slope[0] + slope[1] * slope[1]));
        (gain, cells) = (gain * 0.5, cells * 2.0);
    }
    (sum, slope.map(|s| 0.45 * s))
}

/// Smooth noise from 0 to 1, and its slope.
fn noise(x: f64, y: f64, seed: u32) -> (f32, [f32; 2]) {
    let (cell_x, cell_y) = (x.floor(), y.floor());
    let [(u, du), (v, dv)] = [x - cell_x, y - cell_y].map(|f| {
        let f = f as f32;
        (f * f * f * (f * (f * 6.0 - 15.0) + 10.0), 30.0 * f * f * (f * (f - 2.0) + 1.0))
    });
    let at = |i: i32, j: i32| {
        let mut h =
            (cell_x as i32 + i) as u32 ^ ((cell_y as i32 + j) as u32).rotate_left(16) ^ seed.wrapping_mul(0x9e37_79b9);
        h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
        h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
        (h >> 8) as f32 / 16_777_216.0
    };
    let (a, b, c, d) = (at(0, 0), at(1, 0), at(0, 1), at(1, 1));
    let twist = a - b - c + d;
    (a + (b - a) * u + (c - a) * v + twist * u * v, [du * (b - a + twist * v), dv * (c - a + twist * u)])
}
