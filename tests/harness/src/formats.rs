//! Formats of packed rows by their rules in SPEC 2, one row at a time, and a backend beside them. It shares no code with the library.

use hotrow::{Bags, Error, GroupConfig, Mode, Precision, Rounding, Source, prelude::*};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::seed_for;

/// The record of a row, and its values; `None` for a row that is refused.
type Packs = fn(&[f32]) -> Option<(Vec<u8>, Vec<f32>)>;

/// Formats with dims and rules.
const FORMATS: [(Precision, [u32; 3], Packs); 3] = [
    (Precision::Int8, [1, 33, 64], |row| whole(row, 8)),
    (Precision::Int2, [3, 32, 70], |row| whole(row, 2)),
    (Precision::Int4x32, [32, 64, 160], int4x32),
];

/// The codes of weights under a head, side by side, and their values.
fn coded(weights: &[f32], [scale, bias]: [f32; 2], bits: u32) -> (Vec<u8>, Vec<f32>) {
    let top = ((1u32 << bits) - 1) as f32;
    let code = |x: &f32| if scale == 0.0 { 0.0 } else { ((x - bias) / scale).round_ties_even().clamp(0.0, top) };
    let codes: Vec<f32> = weights.iter().map(code).collect();
    let byte = |some: &[f32]| some.iter().rev().fold(0, |byte: u32, &code| byte << bits | code as u32) as u8;
    (codes.chunks(8 / bits as usize).map(byte).collect(), codes.iter().map(|code| code * scale + bias).collect())
}

fn ends(weights: &[f32]) -> [f32; 2] {
    [weights.iter().copied().fold(f32::INFINITY, f32::min), weights.iter().copied().fold(f32::NEG_INFINITY, f32::max)]
}

/// A row of integers under one head.
fn whole(row: &[f32], bits: u32) -> Option<(Vec<u8>, Vec<f32>)> {
    let [low, high] = ends(row);
    let scale = (high - low) * (1.0 / ((1u32 << bits) - 1) as f32);
    let head = [if scale < f32::MIN_POSITIVE { 0.0 } else { scale }, low + 0.0];
    let (codes, values) = coded(row, head, bits);
    let fits = row.iter().all(|x| x.is_finite()) && scale.is_finite();
    fits.then(|| ([head.map(f32::to_le_bytes).concat(), codes].concat(), values))
}

/// Every finite half but -0, from the lowest on, with its bits.
static HALVES: std::sync::LazyLock<Vec<(f64, u16)>> = std::sync::LazyLock::new(|| {
    let value = |h: u16| match (i32::from(h >> 10), f64::from(h & 1023)) {
        (0, m) => m * 2f64.powi(-24),
        (e, m) => (1024.0 + m) * 2f64.powi(e - 25),
    };
    let below = (1..0x7c00).rev().map(|h| (-value(h), h | 0x8000));
    below.chain((0..0x7c00).map(|h| (value(h), h))).collect()
});

fn int4x32(row: &[f32]) -> Option<(Vec<u8>, Vec<f32>)> {
    let (mut heads, mut codes, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for block in row.chunks(32) {
        let [low, high] = ends(block);
        let (bias, bias_bits) = HALVES[HALVES.partition_point(|&(half, _)| half <= low.into()).max(1) - 1];
        let range = f64::from(high - bias as f32);
        let (scale, scale_bits) = *HALVES.get(HALVES.partition_point(|&(half, _)| 15.0 * half < range))?;
        let (of_block, of_values) = coded(block, [scale as f32, bias as f32], 4);
        heads.extend([scale_bits, bias_bits].map(u16::to_le_bytes).concat());
        codes.extend(of_block);
        values.extend(of_values);
    }
    row.iter().all(|x| x.abs() <= 65504.0).then(|| ([heads, codes].concat(), values))
}

/// Rows of one format beside their records and their values.
#[derive(Clone)]
struct Rows {
    precision: Precision,
    dim: u32,
    given: Vec<f32>,
    records: Vec<u8>,
    values: Vec<f32>,
}

impl Rows {
    /// By the rule.
    fn new(precision: Precision, packs: Packs, dim: u32, given: Vec<f32>) -> Self {
        let packed = given.chunks(dim as usize).map(|row| packs(row).unwrap());
        let (records, values): (Vec<_>, Vec<_>) = packed.unzip();
        let words = |mut record: Vec<u8>| {
            record.resize(record.len().next_multiple_of(4), 0);
            record
        };
        let records = records.into_iter().flat_map(words).collect();
        Self { precision, dim, given, records, values: values.concat() }
    }

    /// Rows at random, and at the edges of the format. A device may divide by 2.5 ULP off, and take subnormal numbers for 0: so only formats that promise the
    /// same bits nevertheless get middles between two codes, and tiny values.
    fn edges(precision: Precision, packs: Packs, dim: u32) -> Self {
        let mut random = StdRng::seed_from_u64(seed_for("formats"));
        let exact = !precision.trains();
        let mut given = Vec::new();
        let constants = [0.0, -0.0, 0.1, 65504.0, -65504.0, 1e-40, -1e-40, 5.96e-8, 2f32.powi(-14) - 1e-9];
        constants[..if exact { 9 } else { 5 }].iter().for_each(|&x| given.extend(vec![x; dim as usize]));
        for k in 0..60 {
            let (mid, span) = (random.random_range(-100.0f32..100.0), 2f32.powi(random.random_range(-30..9)));
            given.extend((0..dim).map(|e| match k % if exact { 6 } else { 3 } {
                0 => span * random.random_range(-1.0f32..1.0),
                1 => mid + span * random.random::<f32>(),
                2 => [-65504.0, 65504.0, 0.0, -0.0, mid][random.random_range(0..5)],
                3 => random.random_range(-1.0f32..1.0) * 2f32.powi(random.random_range(-149..16)),
                4 => f32::from_bits((span * (e % 31) as f32 * 0.5).to_bits() + (e / 31) % 3), // a middle, or a unit beside it
                _ => f32::from_bits(random.random_range(0..1 << 23)),
            }));
        }
        Self::new(precision, packs, dim, given)
    }

    /// The first difference from what a backend makes of these rows.
    fn differs(&self, make: Make<'_, '_>) -> Option<String> {
        let rows = self.given.len() as u32 / self.dim;
        let (all, offsets): (Vec<u32>, Vec<u32>) = ((0..rows).collect(), (0..=rows).collect());
        // A format that does not train rounds to the nearest, whatever the settings.
        let rounding = if self.precision.trains() { Rounding::Nearest } else { Rounding::Stochastic };
        let config = GroupConfig::new(&[rows], self.dim).with_precision(self.precision).with_forward_only(true);
        let config = config.with_write_rounding(rounding).with_rounding(rounding);
        let made = |config, source| make(config, source).unwrap_or_else(|error| panic!("{error}"));
        let (mut filled, mut written) = (made(config.clone(), Some(&self.given)), made(config.clone(), None));
        written.write_rows(&all, &self.given).unwrap();
        let mut cached = made(config.with_cache_rows(rows), None);
        cached.forward(Bags::new(&all, &[0, rows]), Mode::Train).unwrap();
        cached.write_rows(&all, &self.given).unwrap();
        cached.reset().unwrap();
        let bits = |values: Vec<f32>| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let groups = [(&mut filled, "filled"), (&mut written, "written"), (&mut cached, "packed")];
        // The host fills tables.
        for (group, what) in groups.into_iter().take(if self.precision.trains() { 1 } else { 3 }) {
            let found: Vec<u8> = group.snapshot().unwrap().records.iter().flat_map(|word| word.to_le_bytes()).collect();
            let each = self.records.len() / rows as usize;
            if let Some(row) =
                (0..rows as usize).find(|&row| found[row * each..][..each] != self.records[row * each..][..each])
            {
                let given = &self.given[row * self.dim as usize..][..self.dim as usize];
                return Some(format!("{what}: record of row {row}: {given:?}"));
            }
            for mode in [Mode::Frozen, Mode::Train, Mode::Train] {
                // A sum begins with +0.
                let wanted = self.values.iter().map(|value| value + 0.0).collect();
                if bits(group.forward(Bags::new(&all, &offsets), mode).unwrap()) != bits(wanted) {
                    return Some(format!("{what}: outputs, {mode:?}"));
                }
            }
            if bits(group.read_rows(&all).unwrap()) != bits(self.values.clone()) {
                return Some(format!("{what}: rows read"));
            }
        }
        None
    }
}

/// Makes a group, filled with given rows or not.
pub type Make<'m, 'a> = &'m dyn Fn(GroupConfig, Option<&dyn Source>) -> Result<Box<dyn Embedding + 'a>, Error>;

/// Checks that a backend packs and reads rows as their rules say, and refuses those that they refuse.
pub fn check(make: Make<'_, '_>) {
    for (precision, dims, packs) in FORMATS {
        for dim in dims {
            let rows = Rows::edges(precision, packs, dim);
            assert_eq!(rows.differs(make), None, "{precision}, dim {dim}");
            // Wrong records and values are noticed.
            let (mut record, mut value) = (rows.clone(), rows);
            record.records[4] ^= 1;
            value.values[0] += 1.0;
            assert!(record.differs(make).is_some_and(|found| found.starts_with("filled: record of row 0")));
            assert_eq!(value.differs(make), Some("filled: outputs, Frozen".into()));
        }
        let refused = |x: f32| [vec![0.5; 31], vec![x]].concat();
        let wrong: Vec<_> = [f32::NAN, f32::INFINITY, 65520.0, -65504.01, f32::MAX]
            .map(refused)
            .into_iter()
            .filter(|row| packs(row).is_none())
            .collect();
        assert!(wrong.len() >= 2);
        let rows: Vec<u32> = (0..wrong.len() as u32).collect();
        let config = GroupConfig::new(&[rows.len() as u32], 32).with_precision(precision).with_forward_only(true);
        assert!(matches!(make(config.clone(), Some(&wrong.concat())), Err(Error::Source { row: 0, .. })));
        // In the table, and in a slot.
        for cache_rows in [0, 32] {
            let config = config.clone().with_cache_rows(cache_rows);
            let mut group = make(config, None).unwrap_or_else(|error| panic!("{error}"));
            group.forward(Bags::new(&rows, &[0, rows.len() as u32]), Mode::Train).unwrap();
            group.write_rows(&rows, &wrong.concat()).unwrap();
            assert_eq!(group.read_rows(&rows).unwrap(), vec![0.0; 32 * rows.len()]);
            assert_eq!(group.counters().unwrap()[0].skipped_rows, rows.len() as u64);
        }
    }
}

/// The rule agrees with rows, records and values of another program, in numpy, for dims 32 and 160; then come six rows that it refuses.
pub fn check_known() {
    let mut file: &[u8] = include_bytes!("../../data/int4x32.bin");
    let floats = |bytes: &[u8]| bytes.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect::<Vec<_>>();
    for dim in [32, 160] {
        let [given, records, values] = [128, 20, 128].map(|bytes| file.split_off(..20 * dim * bytes / 32).unwrap());
        let rows = Rows::new(Precision::Int4x32, int4x32, dim as u32, floats(given));
        assert!(rows.records == records && rows.values.iter().flat_map(|x| x.to_le_bytes()).eq(values.iter().copied()));
    }
    assert!(floats(&file[..6 * 128]).chunks(32).all(|row| int4x32(row).is_none()));
}
