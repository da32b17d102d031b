//! The rows, compressions and chunks of ROBE's figures, or a 250th of the rows.

use rand::RngExt as _;

use crate::bench::suite::{Size, shapes::random};
use crate::report;
use crate::report::units::{count, decimals};

/// The chunk of panels (a) to (c).
pub(super) const CHUNK: u32 = 32;
/// The compression of panels (d) to (f).
pub(super) const COMPRESSION: f64 = 100.0;
pub(super) const COMPRESSIONS: [f64; 4] = [10.0, 100.0, 1_000.0, 10_000.0];
pub(super) const CHUNKS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// ROBE's numbers of rows, in millions. The paper does not define the million; 10^6 is used here.
pub(super) const MILLIONS: [u32; 7] = [4, 8, 16, 32, 64, 128, 256];
/// The number of rows that the tables of chunk against compression are measured with.
pub(super) const MIDDLE: usize = 4;
/// Batches in turn, so that no batch finds its weights in a chip's caches.
const TURNS: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) rows: Vec<u32>,
    pub(super) dim: u32,
    /// Rows looked up in a batch, in bags of one without pooling.
    pub(super) batch: u32,
    /// Whether rows and batch are ROBE's, so that its figures can stand beside these.
    pub(super) published: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setting {
    pub(super) rows: u32,
    pub(super) compression: f64,
    pub(super) chunk: u32,
    /// |M|. It may exceed 32 bits; such a setting is left out with the reason.
    pub(super) weights: u64,
}

impl Shape {
    pub(super) fn new(size: Size, dim: Option<u32>, batch: Option<u32>) -> Self {
        let (whole, most) = if size.is_full() { (1_000_000, 10_240) } else { (4_000, 1_024) };
        let rows = MILLIONS.iter().map(|&millions| millions * whole).collect();
        let (dim, batch) = (dim.unwrap_or(128), batch.unwrap_or(most));
        Self { rows, dim, batch, published: size.is_full() && (dim, batch) == (128, 10_240) }
    }

    /// The most weights that the chunks of a batch can touch: chunks times the longest chunk. `Backward::Auto` compares |M| with it for a gradient.
    pub(super) fn touched(&self, chunk: u32) -> u64 {
        u64::from(self.batch) * u64::from(self.dim.div_ceil(chunk)) * u64::from(chunk.min(self.dim))
    }

    pub(super) fn setting(&self, rows: u32, compression: f64, chunk: u32) -> Setting {
        let weights = (f64::from(rows) * f64::from(self.dim) / compression).floor() as u64;
        Setting { rows, compression, chunk, weights }
    }

    /// The settings of all panels and of [`flat`](Self::flat), without repetition. Chunks of 32 come first, since Figure 3 (a) to (c), the
    /// crossover and the goals need them. Settings of one array stand together, small arrays first.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut all = Vec::new();
        for &rows in &self.rows {
            all.extend(COMPRESSIONS.map(|compression| self.setting(rows, compression, CHUNK)));
            all.extend(CHUNKS.map(|chunk| self.setting(rows, COMPRESSION, chunk)));
        }
        for compression in COMPRESSIONS {
            all.extend(CHUNKS.map(|chunk| self.setting(self.rows[MIDDLE], compression, chunk)));
        }
        // The panels' settings come first, because their compression is not rounded and the first of equal settings stays.
        all.extend(self.flat());
        let key = |one: &Setting| (one.chunk != CHUNK, one.weights, one.rows, one.chunk);
        all.sort_by_key(key);
        all.dedup_by_key(|one| key(one));
        all
    }

    /// Every number of rows in two arrays: those of the smallest table at 1,000x and at 100x.
    fn flat(&self) -> Vec<Setting> {
        let of = |compression: f64| {
            let weights = self.setting(self.rows[0], compression, CHUNK).weights;
            self.rows.iter().map(move |&rows| Setting {
                compression: f64::from(rows) * f64::from(self.dim) / weights.max(1) as f64,
                ..Setting { rows, compression, chunk: CHUNK, weights }
            })
        };
        [1_000.0, 100.0].into_iter().flat_map(of).collect()
    }

    /// Batches of uniformly random rows.
    pub(super) fn batches(&self, rows: u32, seed: u32) -> Vec<Vec<u32>> {
        let mut random = random(seed, u64::from(rows));
        (0..TURNS).map(|_| (0..self.batch).map(|_| random.random_range(0..rows)).collect()).collect()
    }
}

impl Setting {
    pub(super) fn name(&self) -> String {
        let (rows, compression) = (count(f64::from(self.rows)), decimals(self.compression));
        format!("{rows} rows at {compression}x in chunks of {}", self.chunk)
    }

    /// The setting of the records. Goals select cells by compression and by whether a batch touches the whole array.
    pub(super) fn place(&self, touched: u64) -> report::Setting {
        let Self { rows, compression, chunk, weights } = *self;
        let place = report::Setting::default().with("rows", rows).with("compression", compression);
        let place = place.with("chunk", chunk).with("weights", weights as f64);
        let place = if compression >= 1_000.0 { place.with("from 1000x", "yes") } else { place };
        if weights <= touched { place.with("all touched", "yes") } else { place }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_share_settings() {
        let shape = Shape::new(Size::Full, None, None);
        assert!(shape.published && shape.batch == 10_240 && shape.rows[6] == 256_000_000);
        let all = shape.settings();
        // 7 x 4 compressions, 7 x 5 other chunks at 100x, 3 x 5 other chunks at 64 M; and two arrays with every number of rows but the
        // smallest, which the panels have.
        assert_eq!(all.len(), 28 + 35 + 15 + 2 * 6);
        let (first, others): (Vec<&Setting>, Vec<&Setting>) = all.iter().partition(|one| one.chunk == CHUNK);
        assert!(all[first.len() - 1].chunk == CHUNK && first.len() == 28 + 12);
        assert!(first.is_sorted_by_key(|one| one.weights) && others.is_sorted_by_key(|one| one.weights));
        assert_eq!(first.last().map(|one| one.weights), Some(3_276_800_000), "beyond the prime");
        let flat = shape.flat();
        assert_eq!(flat.len(), 14);
        assert!(flat[..7].iter().all(|one| one.weights == 512_000) && flat[6].compression == 64_000.0);
        assert!(flat[7..].iter().all(|one| one.weights == 5_120_000));
    }

    #[test]
    fn small_is_not_published() {
        let shape = Shape::new(Size::Small, None, None);
        assert!(!shape.published && shape.batch == 1024);
        assert!(!Shape::new(Size::Full, Some(64), None).published);
        let batches = shape.batches(100, 7);
        assert!(
            batches.len() == 4 && batches.iter().all(|rows| rows.len() == 1024 && rows.iter().all(|&row| row < 100))
        );
        assert_ne!(batches, shape.batches(100, 8));
    }
}
