//! A second implementation of SPEC 1 to 8, with maps instead of buffers, FP64 instead of FP32, and neither shaders nor the codec. It uses only
//! the crate's public interface, so one run checks any [`Embedding`] on any backend.
//!
//! Floats are compared step by step. Before each call the model copies the implementation's weights, states and records from a
//! [`Snapshot`]. Then it makes the step itself, and the two results are compared:
//! - step number, tags, stamps, frequencies, flags and counters exactly (an empty way only has to be empty);
//! - computed floats within the radius that [`Approx`] carries along: 2^-24 of the result for each FP32 addition and
//!   product, 2^-21 for each division and 2^-20 for each root (WGSL promises 2.5 and 4.5 ULP), 2^-126 where a device flushes
//!   subnormals. A sum of m terms is thus within about `m * 2^-24 * sum |term|`, in any order of summation;
//! - a value that is only copied, bit by bit;
//! - a written record element by element: one of the two neighbours of the FP64 value, the nearer one if rounding is to
//!   nearest, the value itself if the format has it; an unwritten record bit by bit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::{Add, Div, Mul, Sub};
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::lockstep::{bits, is_padding, pad, random_padding, random_shares, random_state};
use hotrow::internals::Pieces as _;
use hotrow::{
    CounterBits, Counters, Embedding, Error, GroupConfig, Init, Mode, Optimizer, OptimizerKind, OutOfRange, Policy,
    Pooling, Precision, Rounding, StatePrecision, checkpoint,
    internals::Layout,
    state::{Part, Snapshot},
};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

const NONE: u32 = u32::MAX;
const RECENT: u32 = 8;
const TINY: f64 = f32::MIN_POSITIVE as f64;

// ---------------------------------------------------------------------------------------------------------------------
// Numbers

/// An FP64 value, and the largest distance that an FP32 result of the same formula may have from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Approx {
    pub value: f64,
    pub radius: f64,
}

impl Approx {
    pub fn exact(value: f32) -> Self {
        Self { value: f64::from(value), radius: 0.0 }
    }

    /// The result of a rounded operation. The radius grows by `ulps` units of 2^-24, and by the loss of a flushed subnormal.
    fn rounded(value: f64, radius: f64, ulps: f64) -> Self {
        // NaN is zero times an infinite radius, for example after a division by a root that may be zero.
        let radius = if radius.is_nan() { f64::INFINITY } else { radius };
        Self { value, radius: radius + (value.abs() + radius) * ulps * 2f64.powi(-24) + TINY }
    }

    fn sqrt(self) -> Self {
        let low = (self.value - self.radius).max(0.0).sqrt();
        let root = self.value.sqrt();
        let moved = if root + low > 0.0 { self.radius / (root + low) } else { self.radius.sqrt() };
        Self::rounded(root, moved, 16.0)
    }

    /// 1, 0 or -1; any of them where the sign is open.
    fn sign(self) -> Self {
        if self.value.abs() > self.radius {
            Self { value: self.value.signum(), radius: 0.0 }
        } else {
            Self { value: 0.0, radius: if self.radius > 0.0 { 1.0 } else { 0.0 } }
        }
    }

    fn admits(self, found: f32) -> bool {
        (f64::from(found) - self.value).abs() <= self.radius
    }

    /// Whether the value is finite in FP32.
    fn finite(self) -> bool {
        self.value.is_finite() && self.value.abs() <= f64::from(f32::MAX)
    }
}

impl Add for Approx {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::rounded(self.value + other.value, self.radius + other.radius, 1.0)
    }
}

impl Sub for Approx {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::rounded(self.value - other.value, self.radius + other.radius, 1.0)
    }
}

impl Mul for Approx {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        let cross = self.value.abs() * other.radius + other.value.abs() * self.radius + self.radius * other.radius;
        Self::rounded(self.value * other.value, cross, 1.0)
    }
}

impl Div for Approx {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        let value = self.value / other.value;
        let least = other.value.abs() - other.radius;
        let moved = if least > 0.0 { (self.radius + value.abs() * other.radius) / least } else { f64::INFINITY };
        Self::rounded(value, moved, 8.0)
    }
}

/// Every binary16 from +0 to 65504, ascending: element i has the bits i.
static HALVES: LazyLock<Vec<f64>> = LazyLock::new(|| (0..=0x7bff).map(half_value).collect());

/// The value of a binary16 bit pattern, by the definition of the format, without infinities and NaN, which no table holds.
pub fn half_value(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let size = if exponent == 0 { fraction * 2f64.powi(-24) } else { (1024.0 + fraction) * 2f64.powi(exponent - 25) };
    if bits >> 15 == 1 { -size } else { size }
}

/// The greatest binary16 not above `value`, at most 65504.
pub fn half_below(value: f64) -> f64 {
    if value < 0.0 {
        return -half_above(-value);
    }
    HALVES[HALVES.partition_point(|&half| half <= value) - 1]
}

/// The least binary16 not below `value`, at most 65504.
pub fn half_above(value: f64) -> f64 {
    if value < 0.0 {
        return -half_below(-value);
    }
    HALVES[HALVES.partition_point(|&half| half < value).min(HALVES.len() - 1)]
}

/// The nearest binary16, ties to even.
pub fn half_nearest(value: f64) -> f64 {
    let size = value.abs();
    let above = HALVES.partition_point(|&half| half < size).min(HALVES.len() - 1);
    let below = above.saturating_sub(1);
    let (up, down) = (HALVES[above] - size, size - HALVES[below]);
    let nearest = if up < down || (up == down && above % 2 == 0) || size >= HALVES[above] { above } else { below };
    HALVES[nearest].copysign(value)
}

/// The set of a row of a table of `rows` rows (SPEC 3).
pub fn set_of(rows: u32, sets: u32, ways: u32, row: u32) -> u32 {
    if u64::from(sets) * u64::from(ways) >= u64::from(rows) {
        return row / ways;
    }
    let bits = (1..=32).find(|&bits| rows as usize <= 1 << bits).expect("rows have 32 bits");
    let golden = 2f64.powi(bits) / ((1.0 + 5f64.sqrt()) / 2.0);
    // The nearest odd number, or with 22 bits the one two before it.
    let odd = 2 * ((golden - 1.0) / 2.0).round() as u64 + 1 - if bits == 22 { 4 } else { 0 };
    let folded = u64::from(row) ^ u64::from(row) >> ((bits + 1) / 2);
    let key = folded * odd % (1 << bits);
    (u128::from(key) * u128::from(sets) / (1 << bits)) as u32
}

// ---------------------------------------------------------------------------------------------------------------------
// Records

/// The layout of a record's fields, derived from the configuration alone.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub dim: usize,
    pub precision: Precision,
    /// Number of state values of a row.
    pub state: usize,
    /// Those that the row has as a whole: the last ones of a row, the first ones of a record.
    pub scalars: usize,
    /// Bits of a state value that belongs to one weight.
    pub state_width: usize,
    /// Of the first and of the second state of a weight: whether it may be negative, and whether it is a moment.
    pub kinds: [[bool; 2]; 2],
    /// Bits of scale and bias.
    pub head: usize,
    state_bits: usize,
}

impl Format {
    pub fn new(config: &GroupConfig) -> Self {
        let dim = config.dim as usize;
        let kind = config.optimizer.kind;
        let (each, scalars) = match kind {
            OptimizerKind::Sgd => (0, 0),
            OptimizerKind::Own => unreachable!("the model knows the library's rules"),
            OptimizerKind::AdaGrad | OptimizerKind::Momentum | OptimizerKind::Lion => (dim, 0),
            OptimizerKind::Ftrl => (2 * dim, 0),
            OptimizerKind::RowWiseAdaGrad => (0, 1),
            OptimizerKind::Adam => (2 * dim, usize::from(config.optimizer.own_count)),
            OptimizerKind::RowWiseAdam => (dim, 1 + usize::from(config.optimizer.own_count)),
        };
        let kinds = match kind {
            OptimizerKind::AdaGrad => [[false, false]; 2],
            OptimizerKind::Ftrl => [[false, false], [true, false]],
            _ => [[true, true], [false, true]],
        };
        let state_width = match (config.precision, config.state) {
            _ if each == 0 => 32,
            (Precision::Fp32, _) | (_, Some(StatePrecision::Fp32)) => 32,
            _ if kind == OptimizerKind::Ftrl => 32,
            (_, Some(StatePrecision::Int8)) => 8,
            _ => 16,
        };
        // Codes have a word of scales, and end at a multiple of 16 bits.
        let coded = if state_width == 8 { 32 } else { 0 };
        let head = if is_integer(config.precision) { 64 } else { 0 };
        Self {
            dim,
            precision: config.precision,
            state: each + scalars,
            scalars,
            state_width,
            kinds,
            head,
            state_bits: 32 * scalars + coded + (each * state_width).next_multiple_of(16),
        }
    }

    /// First bit of the payload.
    pub fn payload(&self) -> usize {
        self.head + self.state_bits
    }

    /// Words of a record.
    pub fn words(&self) -> usize {
        (self.payload() + self.dim * bits_of(self.precision)).div_ceil(32)
    }

    /// The values of a record: weights, then state.
    pub fn decode(&self, record: &[u32]) -> Vec<Approx> {
        let bits = bits_of(self.precision);
        let weight = |i: usize| {
            let field = take_bits(record, self.payload() + i * bits, bits);
            match self.precision {
                Precision::Fp32 => Approx::exact(f32::from_bits(field)),
                Precision::Fp16 => Approx { value: half_value(field as u16), radius: 0.0 },
                _ => Approx::exact(field as f32) * self.scale(record) + self.bias(record),
            }
        };
        (0..self.dim).map(weight).chain((0..self.state).map(|i| self.state(record, i))).collect()
    }

    fn scale(&self, record: &[u32]) -> Approx {
        Approx::exact(f32::from_bits(record[0]))
    }

    fn bias(&self, record: &[u32]) -> Approx {
        Approx::exact(f32::from_bits(record[1]))
    }

    fn state(&self, record: &[u32], i: usize) -> Approx {
        let float = |at: usize| Approx::exact(f32::from_bits(take_bits(record, at, 32)));
        let each = self.state - self.scalars;
        if i >= each {
            return float(self.head + 32 * (i - each));
        }
        let begin = self.head + 32 * self.scalars;
        if self.state_width == 32 {
            return float(begin + 32 * i);
        }
        if self.state_width == 8 {
            let code = take_bits(record, begin + 32 + 8 * i, 8);
            let (base, magnitude) = (self.base(record, i), if self.signed(i) { code % 128 } else { code });
            let value = if magnitude == 0 { 0.0 } else { grid(base + magnitude) };
            return Approx { value: if self.signed(i) && code >= 128 { -value } else { value }, radius: 0.0 };
        }
        let bits = take_bits(record, begin + 16 * i, 16);
        let value = if self.kind(i)[1] { self.moment_value(bits, i) } else { half_value(bits as u16) };
        Approx { value, radius: 0.0 }
    }

    fn kind(&self, i: usize) -> [bool; 2] {
        self.kinds[usize::from(i >= self.dim)]
    }

    /// Whether state `i` may be negative.
    pub fn signed(&self, i: usize) -> bool {
        self.kind(i)[0]
    }

    /// The base of the codes of states like `i`.
    fn base(&self, record: &[u32], i: usize) -> u32 {
        take_bits(record, self.head + 32 * self.scalars + if self.signed(i) { 16 } else { 0 }, 16)
    }

    /// Whether coding `wanted` at random as one of its neighbours, among `states`, may give `found`.
    fn code_ok(&self, record: &[u32], states: &[Approx], i: usize) -> bool {
        let (signed, base) = (self.signed(i), self.base(record, i));
        let like =
            states.iter().enumerate().filter(|(k, _)| self.signed(*k) == signed && *k < self.state - self.scalars);
        let sizes = like.map(|(_, x)| [x.value.abs() - x.radius, x.value.abs() + x.radius]);
        let [low, high] = sizes.fold([0.0f64; 2], |most, size| [most[0].max(size[0]), most[1].max(size[1])]);
        let near = |x: f64| {
            // Neighbours of a magnitude, and of those beside it that a code lacks.
            let (below, above) = (word_of(x, f64::floor), word_of(x, f64::ceil));
            let smallest = if signed || x == 0.0 { 0.0 } else { grid(base + 1) };
            [if below > base { grid(below) } else { smallest }, if x == 0.0 { 0.0 } else { grid(above.max(base + 1)) }]
        };
        let wanted = states[i];
        let ends = [wanted.value - wanted.radius, wanted.value + wanted.radius];
        let ends = if signed { ends } else { ends.map(|x| x.max(0.0)) };
        let [a, b] = ends.map(|x| near(x.abs()).map(|y| y.copysign(x)));
        let all = [a[0], a[1], b[0], b[1]];
        let range = all.iter().fold([f64::MAX, f64::MIN], |[low, high], x| [low.min(*x), high.max(*x)]);
        (base_of(low, signed)..=base_of(high, signed)).contains(&base)
            && (range[0]..=range[1]).contains(&self.state(record, i).value)
    }

    /// The fraction's bits of moment `i` in 16 bits, which has 8 bits of exponent and perhaps a sign.
    fn moment_fraction(&self, i: usize) -> i32 {
        if self.signed(i) { 7 } else { 8 }
    }

    fn moment_value(&self, bits: u32, i: usize) -> f64 {
        let width = self.moment_fraction(i);
        let (fraction, exponent) = (f64::from(bits & ((1 << width) - 1)), (bits >> width & 255) as i32);
        let whole = if exponent == 0 { fraction } else { fraction + f64::from(1 << width) };
        let size = whole * 2f64.powi(exponent.max(1) - 127 - width);
        if width == 7 && bits >> 15 == 1 { -size } else { size }
    }

    /// Whether rounding `wanted` at random to a neighbour may give the moment `found`.
    fn moment_ok(&self, found: f64, wanted: Approx, i: usize) -> bool {
        let unit = |x: f64| 2f64.powf(x.abs().max(TINY).log2().floor() - f64::from(self.moment_fraction(i)));
        let (low, high) = (wanted.value - wanted.radius, wanted.value + wanted.radius);
        ((low / unit(low)).floor() * unit(low)..=(high / unit(high)).ceil() * unit(high)).contains(&found)
    }

    /// Checks that writing `row` (weights, then state) may give `record`.
    pub fn check(&self, rounding: Rounding, record: &[u32], row: &[Approx]) -> Result<(), String> {
        let (weights, states) = row.split_at(self.dim);
        for (i, &wanted) in states.iter().enumerate() {
            let found = self.state(record, i);
            let ok = match (self.state_width, self.kind(i)[1]) {
                _ if i >= self.state - self.scalars => close(found.value, wanted),
                (32, _) => close(found.value, wanted),
                (8, _) => self.code_ok(record, states, i),
                (_, true) => self.moment_ok(found.value, wanted, i),
                (_, false) => half_ok(rounding, found.value, wanted),
            };
            if !ok {
                return Err(format!("state {i}: wanted {wanted:?}, found {}", found.value));
            }
        }
        if is_integer(self.precision) {
            return self.check_codes(rounding, record, weights);
        }
        for (i, (&wanted, found)) in weights.iter().zip(self.decode(record)).enumerate() {
            let half = self.precision == Precision::Fp16;
            let ok = if half { half_ok(rounding, found.value, wanted) } else { close(found.value, wanted) };
            if !ok {
                return Err(format!("element {i}: wanted {wanted:?}, found {}", found.value));
            }
        }
        Ok(())
    }

    fn check_codes(&self, rounding: Rounding, record: &[u32], weights: &[Approx]) -> Result<(), String> {
        let bits = bits_of(self.precision);
        let levels = 2f64.powi(bits as i32);
        let (low, high) = ends(weights);
        let wanted = (high - low) * Approx::exact((1.0 / (levels - 1.0)) as f32);
        let (scale, bias) = (self.scale(record).value, self.bias(record).value);
        if !close(bias, low) {
            return Err(format!("bias: wanted {low:?}, found {bias}"));
        }
        let constant = scale == 0.0;
        let right = if constant { wanted.value - wanted.radius < TINY } else { scale >= TINY && close(scale, wanted) };
        if !right {
            return Err(format!("scale: wanted {wanted:?}, found {scale}"));
        }
        for (i, x) in weights.iter().enumerate() {
            let code = f64::from(take_bits(record, self.payload() + i * bits, bits));
            if constant {
                if code != 0.0 {
                    return Err(format!("element {i}: code {code} under scale 0"));
                }
                continue;
            }
            let v = (x.value - bias) / scale;
            // The errors of an FP32 difference and quotient: at most 1 and 2.5 ULP of v.
            let ulp = 2f64.powf(v.abs().max(TINY).log2().floor() - 23.0);
            let slack = x.radius / scale + 3.5 * ulp;
            let clamp = |v: f64| v.clamp(0.0, levels - 1.0);
            let (least, most) = match rounding {
                Rounding::Nearest => (clamp(v - slack) - 0.5, clamp(v + slack) + 0.5),
                Rounding::Stochastic => (clamp((v - slack).floor()), clamp((v + slack).ceil())),
            };
            let nearest = v.round_ties_even();
            // A value that the format has must not move. At the edge of SPEC 2's tolerance both results are right.
            let away = (v - nearest).abs() + slack;
            let snaps = away < 0.5 && away <= 0.99 * (levels + bias.abs() / scale) * 2f64.powi(-21);
            if code < least || code > most || (snaps && code != clamp(nearest)) {
                return Err(format!("element {i}: {x:?} is {v} steps, found code {code} (scale {scale}, bias {bias})"));
            }
        }
        Ok(())
    }

    /// Whether the table accepts the weights: finite, and for integers a finite range too.
    fn takes(&self, weights: &[Approx]) -> bool {
        let (low, high) = ends(weights);
        weights.iter().all(|x| x.finite())
            && (!is_integer(self.precision) || ((high.value - low.value) as f32).is_finite())
    }
}

pub fn bits_of(precision: Precision) -> usize {
    match precision {
        Precision::Fp32 => 32,
        Precision::Fp16 => 16,
        Precision::Int8 => 8,
        Precision::Int4 => 4,
        Precision::Int2 => 2,
        Precision::Int4x32 => unreachable!("the model knows the formats that train"),
    }
}

pub fn is_integer(precision: Precision) -> bool {
    !matches!(precision, Precision::Fp32 | Precision::Fp16)
}

/// The bits `from .. from + count` as a number, low bits first.
fn take_bits(words: &[u32], from: usize, count: usize) -> u32 {
    (0..count).map(|i| (words[(from + i) / 32] >> ((from + i) % 32) & 1) << i).sum()
}

/// The float whose sign, exponent and first 3 bits of fraction are `word`.
pub fn grid(word: u32) -> f64 {
    (1.0 + f64::from(word % 8) / 8.0) * 2f64.powi((word / 8) as i32 - 127)
}

/// Exponent and 3 bits of fraction of a number that is not negative, rounded by `round`.
fn word_of(x: f64, round: fn(f64) -> f64) -> u32 {
    if x < f64::from(f32::MIN_POSITIVE) {
        return 0;
    }
    let exponent = x.log2().floor().min(127.0);
    ((exponent + 127.0) * 8.0 + round((x / exponent.exp2() - 1.0) * 8.0)).min(2039.0) as u32
}

/// The base of a row's codes, from its largest magnitude.
pub fn base_of(largest: f64, signed: bool) -> u32 {
    let top = word_of(largest, f64::ceil);
    match signed {
        true => (top.max(135) - 127 + 8) / 8 * 8 - 1,
        false => top.max(263) - 255,
    }
}

/// The least and the greatest value, each with the largest radius of all elements.
fn ends(weights: &[Approx]) -> (Approx, Approx) {
    let radius = weights.iter().map(|x| x.radius).fold(0.0, f64::max);
    let low = weights.iter().map(|x| x.value).fold(f64::INFINITY, f64::min);
    let high = weights.iter().map(|x| x.value).fold(f64::NEG_INFINITY, f64::max);
    (Approx { value: low, radius }, Approx { value: high, radius })
}

fn close(found: f64, wanted: Approx) -> bool {
    (found - wanted.value).abs() <= wanted.radius
}

fn half_ok(rounding: Rounding, found: f64, wanted: Approx) -> bool {
    let (low, high) = (wanted.value - wanted.radius, wanted.value + wanted.radius);
    match rounding {
        Rounding::Nearest => (half_nearest(low)..=half_nearest(high)).contains(&found),
        Rounding::Stochastic => (half_below(low)..=half_above(high)).contains(&found),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The model

/// The content of a way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    pub row: u32,
    pub stamp: u32,
    pub dirty: bool,
    /// Whether the row is pinned, so that it is never a victim.
    pub pinned: bool,
}

impl Way {
    /// The flags as a snapshot has them.
    pub fn flags(&self) -> u32 {
        u32::from(self.dirty) + 2 * u32::from(self.pinned)
    }
}

/// One valid index of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    position: usize,
    row: u32,
    weight: f32,
}

/// A batch whose indices are checked: the valid accesses of each bag.
#[derive(Clone, Debug, Default)]
pub struct Bags {
    bags: Vec<Vec<Access>>,
    indices: usize,
}

/// The first index outside its table.
#[derive(Clone, Debug, PartialEq)]
pub struct Offender {
    pub table: u32,
    pub rows: u32,
    pub position: u32,
    pub value: u32,
}

/// The floats that a call changes: weights, then state, before they are rounded to the record's format.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    pub slots: BTreeMap<u32, Vec<Approx>>,
    pub records: BTreeMap<u32, Vec<Approx>>,
    /// Whether the records are of weights that the caller gives.
    pub given: bool,
}

/// The rows of a table with a share of the cache, or all rows, and their sets.
#[derive(Clone, Copy, Debug)]
struct CachePart {
    first_row: u32,
    rows: u32,
    first_set: u32,
    sets: u32,
}

impl CachePart {
    /// Whether counters are halved under Window, and some ways are for recent rows: not where every row has a slot.
    fn ages(&self, ways: u32) -> bool {
        self.sets > 0 && self.sets * ways < self.rows
    }
}

/// The model: SPEC 1 to 8 in slow and obvious code.
#[derive(Clone, Debug)]
pub struct Naive {
    pub config: GroupConfig,
    pub format: Format,
    pub sets: u32,
    pub rows: u32,
    pub t: u32,
    /// The ways that hold a row, by set and way.
    pub ways: BTreeMap<(u32, u32), Way>,
    /// The counter of each row that was ever used (LFU and Window).
    pub freqs: BTreeMap<u32, u32>,
    /// The ways for recent rows, by set and way (Window).
    pub recent: BTreeSet<(u32, u32)>,
    /// The accesses since the counters were halved, for each share (Window).
    pub since: Vec<u64>,
    pub counters: Vec<Counters>,
    /// The floats of the rows that have a slot.
    pub slots: BTreeMap<u32, Vec<f32>>,
    /// All records, in the order of the rows.
    pub records: Vec<u32>,
}

impl Naive {
    pub fn new(config: &GroupConfig) -> Self {
        let format = Format::new(config);
        let rows: u32 = config.tables.iter().sum();
        let mut model = Self {
            config: config.clone(),
            format,
            sets: 0,
            rows,
            t: 0,
            ways: BTreeMap::new(),
            freqs: BTreeMap::new(),
            recent: BTreeSet::new(),
            since: Vec::new(),
            counters: vec![Counters::default(); config.tables.len()],
            slots: BTreeMap::new(),
            records: vec![0; rows as usize * format.words()],
        };
        model.cut_cache();
        model
    }

    /// Copies every float of the implementation, and no other state.
    pub fn take_floats(&mut self, snapshot: &Snapshot) {
        let width = self.format.dim + self.format.state;
        self.records.clone_from(&snapshot.records);
        self.slots.clear();
        for (&(set, way), held) in &self.ways {
            let at = (set * self.config.ways + way) as usize * width;
            self.slots.insert(held.row, snapshot.cache[at..at + width].to_vec());
        }
    }

    /// The table of a linear row.
    fn table_of(&self, row: u32) -> usize {
        let ends_behind = |&table: &usize| row < self.config.tables[..=table].iter().sum();
        (0..self.config.tables.len()).find(ends_behind).expect("a row is in a table")
    }

    fn count(&mut self, row: u32) -> &mut Counters {
        let table = self.table_of(row);
        &mut self.counters[table]
    }

    fn place(&self, row: u32) -> Option<(u32, u32)> {
        self.ways.iter().find(|(_, held)| held.row == row).map(|(&place, _)| place)
    }

    fn record(&self, row: u32) -> &[u32] {
        let words = self.format.words();
        &self.records[row as usize * words..(row as usize + 1) * words]
    }

    /// The newest value of a row: weights, then state.
    pub fn newest(&self, row: u32) -> Vec<Approx> {
        match self.slots.get(&row) {
            Some(slot) => slot.iter().map(|&x| Approx::exact(x)).collect(),
            None => self.format.decode(self.record(row)),
        }
    }

    /// Checks every index without counting. Also returns the numbers of bad indices and of padding of each table.
    pub fn resolve(
        &self,
        hotrow::Bags { indices, offsets, weights }: hotrow::Bags<'_>,
    ) -> (Result<Bags, Offender>, BTreeMap<u32, [u64; 2]>) {
        let config = &self.config;
        let features: Vec<u32> = if config.features.is_empty() {
            (0..config.tables.len() as u32).collect()
        } else {
            config.features.clone()
        };
        let bags = offsets.len() - 1;
        let mut first = None;
        let mut bad = BTreeMap::<u32, [u64; 2]>::new();
        let mut out = Bags { bags: vec![Vec::new(); bags], indices: indices.len() };
        for bag in 0..bags {
            let table = features[bag / (bags / features.len())];
            let rows = config.tables[table as usize];
            let base: u32 = config.tables[..table as usize].iter().sum();
            for position in offsets[bag] as usize..offsets[bag + 1] as usize {
                let value = indices[position];
                let mut index = value;
                if config.padding_of(table) == Some(value) {
                    bad.entry(table).or_default()[1] += 1;
                    continue;
                }
                if value >= rows {
                    bad.entry(table).or_default()[0] += 1;
                    first.get_or_insert(Offender { table, rows, position: position as u32, value });
                    match config.out_of_range {
                        OutOfRange::Clamp if config.padding_of(table) != Some(rows - 1) => index = rows - 1,
                        _ => continue,
                    }
                }
                let weight = weights.map_or(1.0, |weights| weights[position]);
                out.bags[bag].push(Access { position, row: base + index, weight });
            }
        }
        match first {
            Some(offender) if config.out_of_range == OutOfRange::Error => (Err(offender), bad),
            _ => (Ok(out), bad),
        }
    }

    /// Steps 1 to 5 of a forward: all but the outputs.
    pub fn forward(&mut self, bags: hotrow::Bags<'_>) -> Result<(Bags, Effect), Offender> {
        let (bags, bad) = self.resolve(bags);
        for (table, [outside, padding]) in bad {
            self.counters[table as usize].out_of_range += outside;
            self.counters[table as usize].padding += padding;
        }
        let bags = bags?;
        let mut effect = Effect::default();
        // An empty batch changes nothing. A batch whose indices are all skipped is empty too (SPEC 3, step 1).
        if bags.bags.iter().all(Vec::is_empty) {
            return Ok((bags, effect));
        }
        self.t += 1;
        self.age();
        let mut counts = BTreeMap::<u32, u32>::new();
        for access in bags.bags.iter().flatten() {
            let hit = self.slots.contains_key(&access.row);
            let counters = self.count(access.row);
            counters.accesses += 1;
            counters.hits += u64::from(hit);
            *counts.entry(access.row).or_insert(0) += 1;
        }
        let mut missing = BTreeMap::<u32, Vec<u32>>::new();
        for (&row, &count) in &counts {
            self.count(row).unique += 1;
            if self.counts_uses() {
                let most = if self.windowed() { 15 } else { self.config.counter_bits.most() };
                let freq = self.freqs.entry(row).or_insert(0);
                *freq = (u64::from(*freq) + u64::from(count)).min(u64::from(most)) as u32;
            }
            if let Some(place) = self.place(row) {
                self.ways.get_mut(&place).expect("the place was just found").stamp = self.t;
            } else {
                let counters = self.count(row);
                counters.unique_misses += 1;
                // Admission takes this conflict back.
                counters.conflicts += 1;
                if let Some(set) = self.set_of(row)
                    && self.config.policy != Policy::Static
                {
                    missing.entry(set).or_default().push(row);
                }
            }
        }
        for (set, rows) in missing {
            if self.windowed() {
                self.admit_windowed(set, rows, &counts, &mut effect);
            } else {
                self.admit(set, rows, &counts, &mut effect);
            }
        }
        for (&row, &count) in &counts {
            let part = if self.config.cache_shares.is_empty() { 0 } else { self.table_of(row) };
            self.since[part] +=
                if self.parts()[part].ages(self.config.ways) && self.windowed() { u64::from(count) } else { 0 };
        }
        let stride = 4 * self.format.words() as u64;
        for &row in counts.keys() {
            if !self.slots.contains_key(&row) {
                let counters = self.count(row);
                counters.bypass_reads += 1;
                counters.bytes_read += stride;
            }
        }
        Ok((bags, effect))
    }

    /// The parts of the cache: of all rows, or of each table.
    fn parts(&self) -> Vec<CachePart> {
        let (ways, shares) = (self.config.ways, &self.config.cache_shares);
        let all = self.config.cache_rows.min(self.rows).div_ceil(ways);
        if shares.is_empty() || all == 0 {
            return vec![CachePart { first_row: 0, rows: self.rows, first_set: 0, sets: all }];
        }
        let (mut first_row, mut first_set, mut parts) = (0, 0, Vec::new());
        for (table, &rows) in self.config.tables.iter().enumerate() {
            let share = shares.get(table).copied().unwrap_or(0.0);
            let wanted = ((share * all as f32).floor() as u32).max(1).min(rows.div_ceil(ways));
            let sets = if share == 0.0 { 0 } else { wanted };
            parts.push(CachePart { first_row, rows, first_set, sets });
            (first_row, first_set) = (first_row + rows, first_set + sets);
        }
        parts
    }

    /// Whether a cache of this size has a set for each share.
    fn has_sets_for(&self, cache_rows: u32) -> bool {
        let mut other = self.clone();
        other.config.cache_rows = cache_rows;
        let taken: u32 = other.parts().iter().map(|part| part.sets).sum();
        taken <= cache_rows.min(self.rows).div_ceil(self.config.ways)
    }

    /// The set of a row, if there is one for it.
    fn set_of(&self, row: u32) -> Option<u32> {
        let parts = self.parts();
        let part = parts.iter().find(|part| (part.first_row..part.first_row + part.rows).contains(&row))?;
        let set = || part.first_set + set_of(part.rows, part.sets, self.config.ways, row - part.first_row);
        (part.sets > 0).then(set)
    }

    /// Cuts an empty cache into sets and ways.
    fn cut_cache(&mut self) {
        let parts = self.parts();
        self.sets = parts.iter().map(|part| part.sets).sum();
        self.since.resize(if self.config.cache_shares.is_empty() { 1 } else { self.config.tables.len() }, 0);
        self.recent.clear();
        self.choose_recent();
    }

    fn admit(&mut self, set: u32, mut candidates: Vec<u32>, counts: &BTreeMap<u32, u32>, effect: &mut Effect) {
        let lfu = self.config.policy == Policy::Lfu;
        let freqs = self.freqs.clone();
        // A pinned row may have no frequency, because no batch has used it.
        let freq = |row: u32| freqs.get(&row).copied().unwrap_or(0);
        let key = |row: u32| if lfu { freq(row) } else { counts[&row] };
        candidates.sort_by_key(|&row| (Reverse(key(row)), row));
        for (row, (value, way)) in candidates.into_iter().zip(self.victims(set)) {
            if let Some(value) = value {
                if if lfu { value >= key(row) } else { value == self.t } {
                    break;
                }
                self.evict((set, way), effect);
            }
            self.load(row, (set, way), effect);
            self.count(row).conflicts -= 1;
        }
    }

    fn windowed(&self) -> bool {
        self.config.policy == Policy::Window
    }

    fn counts_uses(&self) -> bool {
        [Policy::Lfu, Policy::Window].contains(&self.config.policy)
    }

    /// Halves the counters of a part of the cache once for every 32 accesses a slot that have passed.
    fn age(&mut self) {
        let ways = self.config.ways;
        for (at, part) in self.parts().into_iter().enumerate().filter(|(_, part)| part.ages(ways)) {
            if !self.windowed() {
                return;
            }
            let every = 32 * u64::from(part.sets * ways);
            for _ in 0..(self.since[at] / every).min(4) {
                let mine = self.freqs.range_mut(part.first_row..part.first_row + part.rows);
                mine.for_each(|(_, freq)| *freq /= 2);
            }
            self.since[at] %= every;
        }
    }

    /// Chooses ways for recent rows until each set has as many as it can have beside its pinned ones: empty ones first, then those of the oldest rows.
    fn choose_recent(&mut self) {
        let (ways, parts) = (self.config.ways, self.parts());
        let ageing = parts.into_iter().filter(|part| part.ages(ways) && self.windowed());
        for set in ageing.flat_map(|part| part.first_set..part.first_set + part.sets).collect::<Vec<_>>() {
            let pinned = |model: &Self, way| model.ways.get(&(set, way)).is_some_and(|held| held.pinned);
            let free = (0..self.config.ways).filter(|&way| !pinned(self, way)).count();
            while self.recent.range((set, 0)..(set + 1, 0)).count() < free.min(self.config.window_ways as usize) {
                let free =
                    (0..self.config.ways).filter(|&way| !pinned(self, way) && !self.recent.contains(&(set, way)));
                let order = |way: &u32| self.ways.get(&(set, *way)).map(|held| (held.stamp, held.row));
                let way = free.min_by_key(order).expect("a way is free");
                self.recent.insert((set, way));
            }
        }
    }

    /// The rule of Window, as SPEC 3 states it.
    fn admit_windowed(&mut self, set: u32, mut rows: Vec<u32>, counts: &BTreeMap<u32, u32>, effect: &mut Effect) {
        let uses = |model: &Self, row: u32| model.freqs.get(&row).copied().unwrap_or(0);
        rows.sort_by_key(|&row| (Reverse(uses(self, row)), Reverse(counts[&row]), row));
        for row in rows.into_iter().take(self.config.ways as usize) {
            let ways = |model: &Self, recent: bool| {
                let ways = (0..model.config.ways).map(|way| (set, way));
                ways.filter(|place| model.recent.contains(place) == recent).collect::<Vec<_>>()
            };
            let empty =
                |model: &Self, recent| ways(model, recent).into_iter().find(|place| !model.ways.contains_key(place));
            let oldest = |model: &Self, recent: bool| {
                let held = ways(model, recent).into_iter().filter_map(|place| Some((place, *model.ways.get(&place)?)));
                let free = held.filter(|(_, held)| !held.pinned && held.stamp != model.t);
                free.min_by_key(|(_, held)| (if recent { 0 } else { uses(model, held.row) }, held.stamp, held.row))
            };
            let main = oldest(self, false);
            // The place of the least used row, if it is used less than this one.
            let below = |model: &Self, row: u32| {
                main.filter(|(_, held)| uses(model, row) > uses(model, held.row)).map(|(place, _)| place)
            };
            let free = empty(self, false).or_else(|| below(self, row)).or_else(|| empty(self, true));
            let place = match (free, oldest(self, true)) {
                (Some(place), _) => place,
                (None, None) => continue,
                (None, Some((window, old))) => {
                    let least = below(self, old.row);
                    if let Some(least) = least {
                        self.recent.remove(&window);
                        self.recent.insert(least);
                    }
                    least.unwrap_or(window)
                }
            };
            if self.ways.contains_key(&place) {
                self.evict(place, effect);
            }
            self.load(row, place, effect);
            self.count(row).conflicts -= 1;
        }
    }

    /// The ways of a set that are not pinned, in the order in which they become victims, each with the value that decides. An empty way has
    /// `None` and comes first.
    fn victims(&self, set: u32) -> Vec<(Option<u32>, u32)> {
        let value = |held: &Way| match self.config.policy {
            Policy::Lfu | Policy::Window => self.freqs.get(&held.row).copied().unwrap_or(0),
            Policy::Lru | Policy::Static => held.stamp,
        };
        let ways = (0..self.config.ways).map(|way| (self.ways.get(&(set, way)), way));
        let mut victims: Vec<(Option<u32>, u32)> = ways
            .filter(|(held, _)| held.is_none_or(|held| !held.pinned))
            .map(|(held, way)| (held.map(value), way))
            .collect();
        victims.sort_unstable();
        if self.windowed() {
            victims.sort_by_key(|&(uses, way)| {
                let (recent, held) = (self.recent.contains(&(set, way)), self.ways.get(&(set, way)));
                (recent, held.map(|held| (uses.filter(|_| !recent), held.stamp, held.row)))
            });
        }
        victims
    }

    /// Loads a row into an empty way.
    fn load(&mut self, row: u32, place: (u32, u32), effect: &mut Effect) {
        let stride = 4 * self.format.words() as u64;
        let loaded = self.format.decode(self.record(row));
        self.slots.insert(row, loaded.iter().map(|x| x.value as f32).collect());
        effect.slots.insert(row, loaded);
        self.ways.insert(place, Way { row, stamp: self.t, dirty: false, pinned: false });
        let counters = self.count(row);
        counters.admitted += 1;
        counters.bytes_read += stride;
    }

    /// The pinned rows in the order of sets and ways.
    pub fn pinned(&self) -> Vec<u32> {
        self.ways.values().filter(|held| held.pinned).map(|held| held.row).collect()
    }

    /// Whether a group must accept this call.
    pub fn can_pin(&self, rows: &[u32], ways: u32) -> bool {
        let pads = rows.iter().any(|&row| is_padding(&self.config, row));
        (1..=self.config.ways).contains(&ways) && (self.sets > 0 || rows.is_empty()) && !pads
    }

    /// Pins exactly `rows`, except those that it returns: `ways` other rows of their set come before them.
    pub fn pin(&mut self, rows: &[u32], ways: u32) -> (Vec<u32>, Effect) {
        let mut effect = self.flush();
        let (mut wanted, mut left_out) = (Vec::<u32>::new(), Vec::new());
        for &row in rows {
            let before = wanted.iter().filter(|&&other| self.set_of(other) == self.set_of(row)).count();
            if wanted.contains(&row) || left_out.contains(&row) {
                continue;
            }
            let fits = self.set_of(row).is_some() && before < ways as usize;
            if fits { wanted.push(row) } else { left_out.push(row) }
        }
        for (place, held) in self.ways.clone() {
            let stays = wanted.contains(&held.row);
            self.ways.get_mut(&place).expect("it is there").pinned = stays;
            if held.pinned && !stays && self.config.policy == Policy::Static {
                self.evict(place, &mut effect);
            }
        }
        for row in wanted {
            let set = self.set_of(row).expect("a wanted row has a set");
            let place = match self.place(row) {
                Some(place) => place,
                None => {
                    let (value, way) = self.victims(set)[0];
                    if value.is_some() {
                        self.evict((set, way), &mut effect);
                    }
                    self.load(row, (set, way), &mut effect);
                    let counters = self.count(row);
                    counters.unique += 1;
                    counters.unique_misses += 1;
                    (set, way)
                }
            };
            self.recent.remove(&place);
            self.ways.get_mut(&place).expect("it was just found").pinned = true;
        }
        self.choose_recent();
        (left_out, effect)
    }

    fn evict(&mut self, place: (u32, u32), effect: &mut Effect) {
        let held = self.ways.remove(&place).expect("a victim is resident");
        self.count(held.row).evictions += 1;
        if held.dirty {
            self.write_back(held.row, effect);
        }
        self.slots.remove(&held.row);
    }

    fn write_back(&mut self, row: u32, effect: &mut Effect) {
        let values = self.newest(row);
        let stride = 4 * self.format.words() as u64;
        let taken = self.format.takes(&values[..self.format.dim]);
        let counters = self.count(row);
        if taken {
            counters.write_backs += 1;
            counters.bytes_written += stride;
            effect.records.insert(row, values);
        } else {
            counters.skipped_rows += 1;
        }
    }

    /// Step 6 of a forward, or a whole frozen one: the outputs, from the floats that were last copied.
    pub fn gather(&self, bags: &Bags) -> Vec<Approx> {
        let dim = self.format.dim;
        let zero = Approx::exact(0.0);
        let mut out = Vec::new();
        if self.config.pooling == Pooling::None {
            out = vec![zero; bags.indices * dim];
            for access in bags.bags.iter().flatten() {
                let row = self.newest(access.row);
                for i in 0..dim {
                    out[access.position * dim + i] = Approx::exact(access.weight) * row[i];
                }
            }
            return out;
        }
        for bag in &bags.bags {
            let mut sum = vec![zero; dim];
            for access in bag {
                let row = self.newest(access.row);
                for i in 0..dim {
                    sum[i] = sum[i] + Approx::exact(access.weight) * row[i];
                }
            }
            if self.config.pooling == Pooling::Mean && !bag.is_empty() {
                sum.iter_mut().for_each(|x| *x = *x / Approx::exact(bag.len() as f32));
            }
            out.extend(sum);
        }
        out
    }

    /// The gradient of each index's weight, added in any order.
    pub fn weight_gradient(&self, bags: &Bags, grads: &[f32]) -> Vec<Approx> {
        let dim = self.format.dim;
        let mut out = vec![Approx::exact(0.0); bags.indices];
        for (bag, accesses) in bags.bags.iter().enumerate() {
            let n = if self.config.pooling == Pooling::Mean { accesses.len() as f64 } else { 1.0 };
            for access in accesses {
                let output = if self.config.pooling == Pooling::None { access.position } else { bag };
                let row = self.newest(access.row);
                let terms = row[..dim].iter().zip(&grads[output * dim..]);
                let (mut value, mut size, mut radius) = (0.0, 0.0, 0.0);
                for (x, g) in terms.map(|(x, g)| (x, f64::from(*g))) {
                    (value, size) = (value + x.value * g, size + (x.value * g).abs());
                    radius += x.radius * g.abs();
                }
                // Each term is rounded once for itself, and once in each sum that it is part of.
                radius += (size + radius) * (dim as f64 + 8.0) * 2f64.powi(-24) + TINY * dim as f64;
                out[access.position] = Approx { value: value / n, radius: radius / n + TINY };
            }
        }
        out
    }

    /// The merged gradient of each distinct row.
    pub fn merge(&self, bags: &Bags, grads: &[f32]) -> BTreeMap<u32, Vec<Approx>> {
        let dim = self.format.dim;
        let mut merged = BTreeMap::<u32, Vec<Approx>>::new();
        for (bag, accesses) in bags.bags.iter().enumerate() {
            for access in accesses {
                let output = if self.config.pooling == Pooling::None { access.position } else { bag };
                let sum = merged.entry(access.row).or_insert_with(|| vec![Approx::exact(0.0); dim]);
                for i in 0..dim {
                    let mut g = Approx::exact(grads[output * dim + i]) * Approx::exact(access.weight);
                    if self.config.pooling == Pooling::Mean {
                        g = g / Approx::exact(accesses.len() as f32);
                    }
                    sum[i] = sum[i] + g;
                }
            }
        }
        merged
    }

    pub fn backward(&mut self, bags: &Bags, grads: &[f32]) -> Effect {
        let mut effect = Effect::default();
        let stride = 4 * self.format.words() as u64;
        for (row, gradient) in self.merge(bags, grads) {
            let new = self.update(&self.newest(row), &gradient);
            if self.put(row, new, &mut effect) {
                let counters = self.count(row);
                counters.bypass_writes += 1;
                counters.bytes_written += stride;
            }
        }
        effect
    }

    /// Gives a row other values, in its slot or in the table, unless they cannot be there. Returns whether they are in the table.
    fn put(&mut self, row: u32, new: Vec<Approx>, effect: &mut Effect) -> bool {
        let place = self.place(row);
        if !new.iter().all(|x| x.finite()) || place.is_none() && !self.format.takes(&new[..self.format.dim]) {
            self.count(row).skipped_rows += 1;
            return false;
        }
        if let Some(place) = place {
            self.ways.get_mut(&place).expect("the place was just found").dirty = true;
        }
        let of = if place.is_some() { &mut effect.slots } else { &mut effect.records };
        of.insert(row, new);
        place.is_none()
    }

    fn update(&self, row: &[Approx], gradient: &[Approx]) -> Vec<Approx> {
        let Optimizer {
            kind, lr, eps, weight_decay, decoupled, beta1, beta2, own_count, clip_value, clip_norm, ..
        } = self.config.optimizer;
        let [lr, eps, weight_decay, beta1, beta2] = [lr, eps, weight_decay, beta1, beta2].map(Approx::exact);
        let one = Approx::exact(1.0);
        let (weights, states) = row.split_at(self.format.dim);
        let decays = weight_decay.value != 0.0;
        let n = Approx::exact(self.format.dim as f32);
        let mean = |squares: &mut dyn Iterator<Item = Approx>| squares.fold(Approx::exact(0.0), |a, b| a + b) / n;
        // A bound must not make a gradient finite that is not.
        if gradient.iter().any(|g| !g.finite()) {
            return vec![Approx { value: f64::NAN, radius: 0.0 }; row.len()];
        }
        let mut gradient = gradient.to_vec();
        if let Some(most) = clip_value.map(f64::from) {
            gradient.iter_mut().for_each(|g| g.value = g.value.clamp(-most, most));
        }
        if let Some(most) = clip_norm.map(Approx::exact) {
            let norm = (mean(&mut gradient.iter().map(|&g| g * g)) * n).sqrt();
            // A sum of squares beyond FP32 is refused, too.
            if !(norm * norm).finite() {
                return vec![Approx { value: f64::NAN, radius: 0.0 }; row.len()];
            }
            let beyond = norm.value + norm.radius - most.value;
            if norm.value > most.value {
                gradient.iter_mut().for_each(|g| *g = *g * (most / norm));
            } else if beyond > 0.0 {
                let near = Approx { value: 1.0, radius: beyond / most.value };
                gradient.iter_mut().for_each(|g| *g = *g * near);
            }
        }
        let l2 = decays && !decoupled;
        let g: Vec<Approx> =
            gradient.iter().zip(weights).map(|(&g, &w)| if l2 { g + weight_decay * w } else { g }).collect();
        let counts = own_count && matches!(kind, OptimizerKind::Adam | OptimizerKind::RowWiseAdam);
        let count = states.last().filter(|_| counts).map(|count| (count.value + 1.0).min(16_777_216.0));
        // 1 - beta^t, within the bound that the crate states.
        let fix = |beta: Approx| {
            let value = 1.0 - beta.value.powf(count.unwrap_or(f64::from(self.t)));
            Approx { value, radius: value * 2f64.powi(-20) }
        };
        let (fix1, fix2) = (fix(beta1), fix(beta2));
        let first = |i: usize| states[i] + (one - beta1) * (g[i] - states[i]);
        let second = |v: Approx, square: Approx| v + (one - beta2) * (square - v);
        if kind == OptimizerKind::Ftrl {
            let moved: Vec<[Approx; 3]> =
                (0..g.len()).map(|i| self.ftrl(g[i], weights[i], [states[i], states[g.len() + i]])).collect();
            return (0..3).flat_map(|k| moved.iter().map(move |element| element[k])).collect();
        }
        let squares = g.iter().map(|&g| g * g);
        let states: Vec<Approx> = match kind {
            OptimizerKind::Ftrl | OptimizerKind::Own => unreachable!("above"),
            OptimizerKind::Lion => (0..g.len()).map(|i| states[i] + (one - beta2) * (g[i] - states[i])).collect(),
            OptimizerKind::Sgd => Vec::new(),
            OptimizerKind::AdaGrad => states.iter().zip(squares).map(|(&state, square)| state + square).collect(),
            OptimizerKind::RowWiseAdaGrad => {
                let sum = squares.fold(Approx::exact(0.0), |a, b| a + b);
                vec![states[0] + sum / Approx::exact(self.format.dim as f32)]
            }
            OptimizerKind::Momentum => (0..g.len()).map(|i| beta1 * states[i] + g[i]).collect(),
            OptimizerKind::Adam | OptimizerKind::RowWiseAdam => {
                let v = &states[g.len()..states.len() - usize::from(counts)];
                let squares: Vec<Approx> =
                    if kind == OptimizerKind::Adam { squares.collect() } else { vec![mean(&mut { squares })] };
                let v = v.iter().zip(squares).map(|(&v, square)| second(v, square));
                let count = count.map(|value| Approx { value, radius: 0.0 });
                (0..g.len()).map(first).chain(v).chain(count).collect()
            }
        };
        let old = &row[self.format.dim..];
        let step = |i: usize| match kind {
            OptimizerKind::Ftrl | OptimizerKind::Own => unreachable!("above"),
            OptimizerKind::Lion => lr * (old[i] + (one - beta1) * (g[i] - old[i])).sign(),
            OptimizerKind::Momentum => lr * states[i],
            OptimizerKind::Adam | OptimizerKind::RowWiseAdam => {
                let v = states[g.len() + if kind == OptimizerKind::Adam { i } else { 0 }];
                lr * states[i] / (fix1 * ((v / fix2).sqrt() + eps))
            }
            OptimizerKind::Sgd => lr * g[i],
            OptimizerKind::AdaGrad => lr * g[i] / (states[i].sqrt() + eps),
            OptimizerKind::RowWiseAdaGrad => lr * g[i] / (states[0].sqrt() + eps),
        };
        let shrunk = |i: usize| if decays && decoupled { step(i) + lr * weight_decay * weights[i] } else { step(i) };
        (0..weights.len()).map(|i| weights[i] - shrunk(i)).chain(states.iter().copied()).collect()
    }

    /// FTRL's weight, n and y after a gradient.
    fn ftrl(&self, g: Approx, w: Approx, [n, y]: [Approx; 2]) -> [Approx; 3] {
        let Optimizer { lr, l1, l2, beta, .. } = self.config.optimizer;
        let [lr, l1, l2, beta] = [lr, l1, l2, beta].map(Approx::exact);
        let sum = n + g * g;
        let root = sum.sqrt();
        let next = y + (lr * g - (root - n.sqrt()) * w);
        let magnitude = Approx { value: next.value.abs(), ..next };
        let beyond = magnitude - lr * l1;
        let most = if beyond.value + beyond.radius > 0.0 { beyond.radius } else { 0.0 };
        let size = Approx { value: beyond.value.max(0.0), radius: most } / ((beta + root) + lr * l2);
        let mut moved = Approx { value: -size.value * next.value.signum(), ..size };
        // An element without a gradient rests.
        if g.value.abs() <= g.radius {
            if g.radius == 0.0 {
                return [w, n, y];
            }
            moved.radius += (moved.value - w.value).abs() + w.radius;
        }
        [moved, sum, next]
    }

    /// FTRL's y of a weight that is given: that of which it is the rule's own weight.
    fn begun(&self, w: Approx, n: Approx) -> Approx {
        let Optimizer { lr, l1, l2, beta, .. } = self.config.optimizer;
        let [lr, l1, l2, beta] = [lr, l1, l2, beta].map(Approx::exact);
        let y = w * ((beta + n.sqrt()) + lr * l2) + w.sign() * (lr * l1);
        Approx { value: -y.value, ..y }
    }

    pub fn flush(&mut self) -> Effect {
        let mut effect = Effect::default();
        let dirty: Vec<u32> = self.ways.values().filter(|held| held.dirty).map(|held| held.row).collect();
        for row in dirty {
            self.write_back(row, &mut effect);
        }
        self.ways.values_mut().for_each(|held| held.dirty = false);
        effect
    }

    pub fn reset(&mut self, discard: bool) -> Effect {
        let effect = if discard { Effect::default() } else { self.flush() };
        self.ways.clear();
        self.slots.clear();
        self.cut_cache();
        effect
    }

    /// Gives the cache another size and pins the pinned rows again. No row is dirty. Returns the rows that find no way.
    pub fn resize(&mut self, cache_rows: u32) -> (Vec<u32>, Effect) {
        let pinned = self.pinned();
        self.ways.clear();
        self.slots.clear();
        self.config.cache_rows = cache_rows;
        self.cut_cache();
        if self.sets == 0 { (pinned, Effect::default()) } else { self.pin(&pinned, self.config.ways) }
    }

    /// Writes rows: a resident row changes in its slot, as in an update; any other row changes in the table.
    pub fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Effect {
        let mut effect = Effect { given: true, ..Effect::default() };
        let last: BTreeMap<u32, &[f32]> = rows.iter().copied().zip(values.chunks(self.format.dim)).collect();
        for (row, weights) in last {
            let mut new: Vec<Approx> = weights.iter().map(|&x| Approx::exact(x)).collect();
            new.extend_from_slice(&self.newest(row)[self.format.dim..]);
            if self.config.optimizer.kind == OptimizerKind::Ftrl {
                let dim = self.format.dim;
                (0..dim).for_each(|i| new[2 * dim + i] = self.begun(new[i], new[dim + i]));
            }
            self.put(row, new, &mut effect);
        }
        effect
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Runs

impl BatchData {
    pub fn bags(&self) -> hotrow::Bags<'_> {
        hotrow::Bags::new(&self.indices, &self.offsets).with_weights(self.weights.as_deref())
    }
}

/// One step of a run, and the calls between its parts.
#[derive(Clone, Debug, Default)]
pub struct BatchData {
    pub indices: Vec<u32>,
    pub offsets: Vec<u32>,
    pub weights: Option<Vec<f32>>,
    /// The gradient of each output value; `None` abandons the backward.
    pub gradient: Option<Vec<f32>>,
    /// Calls between forward and backward.
    pub between: Vec<Call>,
    /// Calls after the step.
    pub after: Vec<Call>,
}

/// The calls other than forward and backward of a step.
#[derive(Clone, Debug)]
pub enum Call {
    Flush,
    Reset,
    ResetDiscarding,
    /// A frozen forward of the step's batch.
    Frozen,
    ReadRows(Vec<u32>),
    WriteRows(Vec<u32>, Vec<f32>),
    /// Rows to pin, and the most in a set.
    Pin(Vec<u32>, u32),
    /// The new number of rows in the cache.
    ResizeCache(u32),
    LearningRate(f32),
    /// The step's backward once more, though no forward waits for it.
    BackwardAgain,
    /// Saves a checkpoint, and keeps the state of the model.
    Save,
    /// Loads the last checkpoint: both have the state of that time.
    Load,
    /// Takes a snapshot, and keeps the state of the model.
    Snapshot,
    /// Restores the last snapshot.
    Restore,
    /// A call at fault, one of [`WRONG_CALLS`]. It must be refused and change nothing.
    Wrong(u8),
}

/// The number of calls at fault.
pub const WRONG_CALLS: u8 = 14;

/// Whether a forward waits for its backward, and so forbids some calls.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pending {
    No,
    Yes,
    /// After a refused or an empty forward SPEC 3 does not say whether a backward must follow.
    Unsaid,
}

struct Checker {
    subject: Box<dyn Embedding>,
    model: Naive,
    before: Snapshot,
    pending: Pending,
    /// The folder of the checkpoint.
    folder: Option<TempDir>,
    /// The model when the last checkpoint was saved, and when the last snapshot was taken.
    saved: Option<Naive>,
    taken: Option<(Snapshot, Naive)>,
}

/// Makes a group, plays the run on the group and on the model, and reports the first difference.
///
/// The group must give a snapshot between forward and backward too. The error names batch, call and place.
pub fn check_run(
    make: &mut dyn FnMut(GroupConfig) -> Box<dyn Embedding>,
    config: &GroupConfig,
    run: &[BatchData],
) -> Result<(), String> {
    let mut subject = make(config.clone());
    let model = Naive::new(config);
    check_layout(subject.layout(), &model, config)?;
    let before = subject.snapshot().map_err(|error| format!("first snapshot: {error}"))?;
    check_start(&before, &model, config)?;
    let mut checker = Checker { subject, model, before, pending: Pending::No, folder: None, saved: None, taken: None };
    checker.model.take_floats(&checker.before);
    checker.compare(&Effect::default()).map_err(|difference| format!("new group: {difference}"))?;
    for (step, batch) in run.iter().enumerate() {
        checker.step(batch).map_err(|difference| format!("batch {step}: {difference}"))?;
    }
    Ok(())
}

fn is_order(error: &Error) -> bool {
    matches!(error, Error::Order { .. })
}

fn equal<T: PartialEq + Debug + Copy>(what: &str, wanted: T, found: T) -> Result<(), String> {
    if wanted == found { Ok(()) } else { Err(format!("{what}: wanted {wanted:?}, found {found:?}")) }
}

fn check_layout(layout: &Layout, model: &Naive, config: &GroupConfig) -> Result<(), String> {
    let format = &model.format;
    equal("layout.row.dim", config.dim, layout.row.dim)?;
    equal("layout.row.precision", config.precision, layout.row.precision)?;
    equal("layout.row.state", format.state as u32, layout.row.state)?;
    equal("layout.row.state_bits", format.state_width as u32, layout.row.state_bits)?;
    equal("layout.row.state_word", format.head as u32 / 32, layout.row.state_word)?;
    equal("layout.row.payload_half", format.payload() as u32 / 16, layout.row.payload_half)?;
    equal("layout.row.record_words", format.words() as u32, layout.row.record_words)?;
    equal("layout.row.row_words", (format.dim + format.state) as u32, layout.row.row_words)?;
    equal("layout.sets", model.sets, layout.sets)?;
    equal("layout.ways", config.ways, layout.ways)?;
    equal("layout.total_rows", model.rows, layout.total_rows)?;
    let stride = 4 * format.words() as u64;
    if let Some(bytes) = config.piece_bytes()
        && u64::from(layout.rows_per_piece) * stride > bytes
    {
        return Err(format!("a piece of {} rows x {stride} exceeds {bytes} bytes", layout.rows_per_piece));
    }
    equal("layout.pieces", model.rows.div_ceil(layout.rows_per_piece), layout.pieces)
}

/// The distance of a weight to its neighbour in a record.
fn step_of(format: &Format, record: &[u32], w: f64) -> f64 {
    match format.precision {
        Precision::Fp32 => 0.0,
        Precision::Fp16 => w.abs() / 1024.0 + 2f64.powi(-24),
        _ => format.scale(record).value * 1.001,
    }
}

/// Checks a new table: states are 0, or follow from the weights, and weights are as configured, to within a step of the format.
fn check_start(start: &Snapshot, model: &Naive, config: &GroupConfig) -> Result<(), String> {
    let format = &model.format;
    equal("records", model.records.len(), start.records.len())?;
    let (low, high) = match config.init {
        Init::Constant(value) => (f64::from(value), f64::from(value)),
        Init::Uniform { low, high } => (f64::from(low), f64::from(high)),
        Init::Normal { mean, std } => (f64::from(mean) - 6.8 * f64::from(std), f64::from(mean) + 6.8 * f64::from(std)),
    };
    for (row, record) in start.records.chunks(format.words()).enumerate() {
        let values = format.decode(record);
        for (i, x) in values.iter().enumerate() {
            let (low, high) = if i >= 2 * format.dim && config.optimizer.kind == OptimizerKind::Ftrl {
                // y is of the weight before it was rounded.
                let w = values[i - 2 * format.dim];
                let most = step_of(format, record, w.value);
                let ends =
                    [-most, 0.0, most].map(|by| model.begun(Approx { value: w.value + by, ..w }, Approx::exact(0.0)));
                ends.iter().fold((f64::MAX, f64::MIN), |(low, high), y| {
                    (low.min(y.value - y.radius), high.max(y.value + y.radius))
                })
            } else if i >= format.dim {
                (0.0, 0.0)
            } else if config.precision == Precision::Fp16 {
                (half_below(low), half_above(high))
            } else {
                (low, high)
            };
            if x.value < low - x.radius || x.value > high + x.radius {
                return Err(format!("new row {row}, number {i}: wanted {low} to {high}, found {x:?}"));
            }
        }
    }
    Ok(())
}

impl Checker {
    fn step(&mut self, batch: &BatchData) -> Result<(), String> {
        if self.pending == Pending::Yes {
            let second = self.subject.forward(batch.bags(), Mode::Train);
            self.refused(second, "order of a second forward", |error| {
                matches!(error, Error::Order { call: "forward", .. })
            })?;
        }
        self.subject.discard_pending();
        let found = self.subject.forward(batch.bags(), Mode::Train);
        match (self.model.forward(batch.bags()), found) {
            (Ok((bags, effect)), Ok(found)) => {
                self.compare(&effect).map_err(|difference| format!("forward: {difference}"))?;
                self.outputs("forward", &bags, &found)?;
                self.pending = if bags.bags.iter().all(Vec::is_empty) { Pending::Unsaid } else { Pending::Yes };
                self.calls(batch, &batch.between)?;
                if let Some(gradient) = &batch.gradient {
                    self.weight_gradient(batch, &bags, gradient)?;
                    self.backward(&bags, gradient).map_err(|difference| format!("backward: {difference}"))?;
                }
            }
            (Err(wanted), Err(error)) => {
                offender(&wanted, &error)?;
                self.compare(&Effect::default()).map_err(|difference| format!("refused forward: {difference}"))?;
                // The backward of a refused forward has no effect. SPEC 3 does not say whether it returns an error.
                if let (Some(gradient), Pending::No) = (&batch.gradient, self.pending) {
                    let _either = self.subject.backward(gradient);
                    self.compare(&Effect::default())
                        .map_err(|difference| format!("backward of a refused forward: {difference}"))?;
                }
                self.pending = Pending::Unsaid;
            }
            (Ok(_), Err(error)) => return Err(format!("forward: wanted outputs, found the error: {error}")),
            (Err(wanted), Ok(_)) => return Err(format!("forward: wanted an error for {wanted:?}, found outputs")),
        }
        self.calls(batch, &batch.after)
    }

    fn backward(&mut self, bags: &Bags, gradient: &[f32]) -> Result<(), String> {
        self.subject.backward(gradient).map_err(|error| error.to_string())?;
        self.pending = Pending::No;
        let effect = self.model.backward(bags, gradient);
        self.compare(&effect)
    }

    fn weight_gradient(&mut self, batch: &BatchData, bags: &Bags, gradient: &[f32]) -> Result<(), String> {
        let found = self.subject.weight_gradient(batch.bags(), gradient);
        let found = found.map_err(|error| format!("weight gradient: {error}"))?;
        let wanted = self.model.weight_gradient(bags, gradient);
        equal("weight gradients", wanted.len(), found.len())?;
        for (i, (wanted, &found)) in wanted.iter().zip(&found).enumerate() {
            // A gradient that is not finite has a product that is not finite, or one beyond FP32.
            let any = !(wanted.value.is_finite() && wanted.value.abs() + wanted.radius < 1e37);
            if !any && !wanted.admits(found) {
                return Err(format!("weight gradient of index {i}: wanted {wanted:?}, found {found}"));
            }
        }
        self.compare(&Effect::default()).map_err(|difference| format!("weight gradient: {difference}"))
    }

    fn outputs(&self, call: &str, bags: &Bags, found: &[f32]) -> Result<(), String> {
        let wanted = self.model.gather(bags);
        equal(&format!("{call}: outputs"), wanted.len(), found.len())?;
        for (i, (wanted, &found)) in wanted.iter().zip(found).enumerate() {
            if !wanted.admits(found) {
                let (row, column) = (i / self.model.format.dim, i % self.model.format.dim);
                return Err(format!("{call}: output {row}, column {column}: wanted {wanted:?}, found {found}"));
            }
        }
        Ok(())
    }

    fn calls(&mut self, batch: &BatchData, calls: &[Call]) -> Result<(), String> {
        for call in calls {
            self.call(batch, call).map_err(|difference| format!("{call:.40?}: {difference}"))?;
        }
        Ok(())
    }

    fn call(&mut self, batch: &BatchData, call: &Call) -> Result<(), String> {
        let parts = matches!(
            call,
            Call::Reset | Call::ResetDiscarding | Call::WriteRows(..) | Call::Pin(..) | Call::ResizeCache(_)
        );
        if parts && self.pending == Pending::Unsaid {
            return Ok(());
        }
        if parts && self.pending == Pending::Yes {
            let found = self.act(call);
            return self.refused(found, "order between forward and backward", is_order);
        }
        let effect = match call {
            Call::Frozen => return self.frozen(batch),
            Call::ReadRows(rows) => return self.read(rows),
            Call::Pin(rows, ways) => return self.pin(rows, *ways),
            Call::ResizeCache(rows) => return self.resize_cache(*rows),
            Call::BackwardAgain => return self.backward_again(batch),
            Call::Save => return self.save(),
            Call::Load => return self.load(),
            Call::Snapshot => {
                self.taken = Some((self.before.clone(), self.model.clone()));
                return Ok(());
            }
            Call::Restore => return self.restore(),
            Call::Wrong(kind) => return self.wrong(batch, *kind),
            Call::Flush => self.model.flush(),
            Call::Reset => self.model.reset(false),
            Call::ResetDiscarding => self.model.reset(true),
            Call::WriteRows(rows, values) => self.model.write_rows(rows, values),
            Call::LearningRate(lr) => {
                self.model.config.optimizer.lr = *lr;
                Effect::default()
            }
        };
        self.act(call).map_err(|error| error.to_string())?;
        self.compare(&effect)
    }

    /// Wants a refused call, which changes nothing.
    fn refused<T: Debug>(&mut self, found: Result<T, Error>, what: &str, is: fn(&Error) -> bool) -> Result<(), String> {
        match found {
            Err(error) if is(&error) => self.compare(&Effect::default()),
            found => Err(format!("wanted an error of the {what}, found {found:.80?}")),
        }
    }

    fn act(&mut self, call: &Call) -> Result<(), Error> {
        match call {
            Call::Flush => self.subject.flush(),
            Call::Reset => self.subject.reset(),
            Call::ResetDiscarding => self.subject.reset_discarding(),
            Call::WriteRows(rows, values) => self.subject.write_rows(rows, values),
            Call::Pin(rows, ways) => self.subject.pin(rows, *ways).map(drop),
            Call::ResizeCache(rows) => self.subject.resize_cache(*rows).map(drop),
            Call::LearningRate(lr) => self.subject.set_learning_rate(*lr),
            _ => unreachable!("these have their own functions"),
        }
    }

    fn frozen(&mut self, batch: &BatchData) -> Result<(), String> {
        let found = self.subject.forward(batch.bags(), Mode::Frozen);
        match (self.model.resolve(batch.bags()).0, found) {
            (Ok(bags), Ok(found)) => self.outputs("frozen", &bags, &found)?,
            (Err(wanted), Err(error)) => offender(&wanted, &error)?,
            (wanted, found) => return Err(format!("wanted {wanted:.80?}, found {found:.80?}")),
        }
        self.compare(&Effect::default())
    }

    fn backward_again(&mut self, batch: &BatchData) -> Result<(), String> {
        let Some(gradient) = batch.gradient.as_ref().filter(|_| self.pending == Pending::No) else { return Ok(()) };
        let found = self.subject.backward(gradient);
        self.refused(found, "order", is_order)
    }

    fn checkpoint(&mut self) -> PathBuf {
        self.folder.get_or_insert_with(|| tempfile::tempdir().unwrap()).path().join("checkpoint")
    }

    fn save(&mut self) -> Result<(), String> {
        let path = self.checkpoint();
        match (checkpoint::save(&mut *self.subject, path), self.pending) {
            (Ok(()), Pending::No | Pending::Unsaid) => self.saved = Some(self.model.clone()),
            (Err(Error::Order { .. }), Pending::Yes | Pending::Unsaid) => {}
            (found, pending) => return Err(format!("{pending:?}: found {found:?}")),
        }
        self.compare(&Effect::default())
    }

    fn load(&mut self) -> Result<(), String> {
        let Some(saved) = self.saved.clone() else { return Ok(()) };
        let path = self.checkpoint();
        let found = checkpoint::load(&mut *self.subject, path);
        self.went_back("load", &saved, found)
    }

    fn restore(&mut self) -> Result<(), String> {
        let Some((snapshot, model)) = self.taken.clone() else { return Ok(()) };
        // Restoring between forward and backward is for the state of that very time.
        if self.pending != Pending::No {
            return Ok(());
        }
        let found = self.subject.restore(&snapshot);
        self.went_back("restore", &model, found)
    }

    /// Checks what loading or restoring the state of `then` gave.
    fn went_back(&mut self, call: &str, then: &Naive, found: Result<(), Error>) -> Result<(), String> {
        match (found, self.pending, then.sets == self.model.sets) {
            (Ok(()), Pending::No | Pending::Unsaid, true) => {
                self.pending = Pending::No;
                let config = self.model.config.clone();
                self.model = Naive { config, ..then.clone() };
                let after = self.subject.snapshot().map_err(|error| format!("snapshot: {error}"))?;
                self.before = after;
                if self.before.records != self.model.records {
                    return Err(format!("{call}: other records than those of that time"));
                }
                self.compare(&Effect::default())
            }
            (Err(Error::Order { .. }), Pending::Yes | Pending::Unsaid, _) | (Err(_), _, false) => {
                self.compare(&Effect::default())
            }
            (found, pending, same) => Err(format!("{call}, {pending:?}, sets the same: {same}: found {found:?}")),
        }
    }

    fn wrong(&mut self, batch: &BatchData, kind: u8) -> Result<(), String> {
        let (total, dim) = (self.model.rows, self.model.format.dim);
        let count = batch.indices.len();
        let subject = &mut self.subject;
        // Whether a call is in order, or its arguments are right, is asked in an order that SPEC leaves open.
        let pending = self.pending != Pending::No;
        let found = match kind {
            0 => subject.forward(hotrow::Bags::new(&[0], &[0]), Mode::Train).map(drop),
            1 => subject.forward(hotrow::Bags::new(&[0, 0], &[1, 0, 2]), Mode::Train).map(drop),
            2 => subject
                .forward(
                    hotrow::Bags::new(&batch.indices, &batch.offsets).with_weights(Some(&vec![1.0; count + 1])),
                    Mode::Train,
                )
                .map(drop),
            3 => subject.backward(&vec![0.5; (count + batch.offsets.len() + 1) * dim + 1]),
            4 => subject.read_rows(&[0, total]).map(drop),
            5 => subject.write_rows(&[0], &vec![1.0; dim + 1]),
            6 => subject.write_rows(&[total], &vec![1.0; dim]),
            7 => subject.pin(&[0, total], 1).map(drop),
            8 => subject.set_learning_rate(f32::NAN).map(drop),
            9 => subject.forward_prefetched().map(drop),
            10 => subject.read_part(Part::Records, u64::MAX - 1, &mut [0; 4]),
            11 => subject.write_part(Part::Records, self.before.records.len() as u64, &[7]),
            12 => subject.resize_cache(u32::MAX).map(drop),
            13 => {
                let cut = Snapshot { records: self.before.records[1..].to_vec(), ..self.before.clone() };
                subject.restore(&cut)
            }
            _ => return Ok(()),
        };
        let named = match &found {
            Ok(()) => false,
            Err(Error::Order { .. }) => pending || matches!(kind, 3 | 9),
            Err(Error::BadOffsets { .. } | Error::Bags { .. }) => kind < 2,
            Err(Error::Length { .. }) => matches!(kind, 2 | 3 | 5 | 10 | 11 | 13),
            Err(Error::RowOutOfRange { .. }) => matches!(kind, 4 | 6 | 7),
            Err(Error::Pins { .. }) => kind == 7,
            Err(Error::Config { .. }) => matches!(kind, 8 | 12),
            Err(_) => false,
        };
        if !named {
            return Err(format!("call {kind} at fault: found {found:?}"));
        }
        self.compare(&Effect::default())
    }

    fn pin(&mut self, rows: &[u32], ways: u32) -> Result<(), String> {
        let found = self.subject.pin(rows, ways);
        if !self.model.can_pin(rows, ways) {
            return self.refused(found, "pins", |error| matches!(error, Error::Pins { .. }));
        }
        let (left_out, effect) = self.model.pin(rows, ways);
        let found = found.map_err(|error| error.to_string())?;
        equal("left out", &left_out, &found)?;
        let (wanted, found) = (self.model.pinned(), self.subject.pinned().map_err(|error| error.to_string())?);
        equal("pinned", &wanted, &found)?;
        self.compare(&effect)
    }

    fn resize_cache(&mut self, rows: u32) -> Result<(), String> {
        // The flush is a call of its own, so that the rows which the resize loads have been compared before.
        self.subject.flush().map_err(|error| error.to_string())?;
        let effect = self.model.flush();
        self.compare(&effect)?;
        let found = self.subject.resize_cache(rows);
        if !self.model.has_sets_for(rows) {
            let of_size = |error: &Error| matches!(error, Error::Config { field: "cache_rows", .. });
            return self.refused(found, "configuration", of_size);
        }
        let (left_out, effect) = self.model.resize(rows);
        let found = found.map_err(|error| error.to_string())?;
        equal("left out", &left_out, &found)?;
        equal("config.cache_rows", rows, self.subject.config().cache_rows)?;
        check_layout(self.subject.layout(), &self.model, &self.model.config)?;
        self.compare(&effect)
    }

    fn read(&mut self, rows: &[u32]) -> Result<(), String> {
        let found = self.subject.read_rows(rows).map_err(|error| error.to_string())?;
        let dim = self.model.format.dim;
        equal("values", rows.len() * dim, found.len())?;
        for (&row, found) in rows.iter().zip(found.chunks(dim)) {
            within(&format!("row {row}"), &self.model.newest(row)[..dim], found)?;
        }
        self.compare(&Effect::default())
    }

    /// Compares all state of the implementation with the model, then copies its floats.
    fn compare(&mut self, effect: &Effect) -> Result<(), String> {
        let after = self.subject.snapshot().map_err(|error| format!("snapshot: {error}"))?;
        let counters = self.subject.counters().map_err(|error| format!("counters: {error}"))?;
        let model = &self.model;
        equal("t", model.t, after.t)?;
        let since = if model.windowed() { &model.since[..] } else { &[] };
        if since != after.since {
            return Err(format!("since: wanted {since:?}, found {:?}", after.since));
        }
        self.compare_ways(&after)?;
        let counted = if model.counts_uses() { model.rows } else { 0 };
        let freqs: Vec<u32> = (0..counted).map(|row| model.freqs.get(&row).copied().unwrap_or(0)).collect();
        equal("rows with a frequency", freqs.len(), after.freqs.len())?;
        for (row, (wanted, found)) in freqs.iter().zip(&after.freqs).enumerate() {
            equal(&format!("freq of row {row}"), wanted, found)?;
        }
        equal("tables with counters", model.counters.len(), after.counters.len())?;
        for (table, (wanted, found)) in model.counters.iter().zip(&after.counters).enumerate() {
            equal(&format!("counters of table {table}"), wanted, found)?;
        }
        equal("counters()", &after.counters, &counters)?;
        self.compare_floats(&after, effect)?;
        self.before = after;
        self.model.take_floats(&self.before);
        Ok(())
    }

    fn compare_ways(&self, after: &Snapshot) -> Result<(), String> {
        let (model, ways) = (&self.model, self.model.config.ways);
        equal("words of the ways", (model.sets * ways * 4) as usize, after.ways.len())?;
        let width = model.format.dim + model.format.state;
        equal("floats of the slots", (model.sets * ways) as usize * width, after.cache.len())?;
        for set in 0..model.sets {
            let fields = &after.ways[(set * 4 * ways) as usize..][..4 * ways as usize];
            for way in 0..ways {
                let field = |field: usize| fields[field * ways as usize + way as usize];
                let name = |field: &str| format!("{field} of set {set}, way {way}");
                let recent = if model.recent.contains(&(set, way)) { RECENT } else { 0 };
                let Some(held) = model.ways.get(&(set, way)) else {
                    equal(&name("tag"), NONE, field(0))?;
                    equal(&name("flags"), recent, field(3))?;
                    continue;
                };
                equal(&name("tag"), held.row, field(0))?;
                equal(&name("stamp"), held.stamp, field(1))?;
                if model.counts_uses() {
                    equal(&name("freq"), model.freqs.get(&held.row).copied().unwrap_or(0), field(2))?;
                }
                equal(&name("flags"), held.flags() | recent, field(3))?;
            }
        }
        Ok(())
    }

    fn compare_floats(&self, after: &Snapshot, effect: &Effect) -> Result<(), String> {
        let model = &self.model;
        let format = &model.format;
        let width = format.dim + format.state;
        for (&(set, way), held) in &model.ways {
            let at = (set * self.model.config.ways + way) as usize * width;
            let found = &after.cache[at..at + width];
            let name = format!("slot of row {} (set {set}, way {way})", held.row);
            match effect.slots.get(&held.row) {
                Some(wanted) => within(&name, wanted, found)?,
                None => {
                    let wanted = &model.slots[&held.row];
                    if bits(wanted) != bits(found) {
                        return Err(format!("{name} moved: was {wanted:?}, is {found:?}"));
                    }
                }
            }
        }
        let words = format.words();
        let rounding = if effect.given { model.config.write_rounding } else { model.config.rounding };
        equal("words of the records", self.before.records.len(), after.records.len())?;
        for (row, (was, is)) in self.before.records.chunks(words).zip(after.records.chunks(words)).enumerate() {
            match effect.records.get(&(row as u32)) {
                Some(wanted) => format
                    .check(rounding, is, wanted)
                    .map_err(|difference| format!("record of row {row}: {difference}"))?,
                None if was != is => return Err(format!("record of row {row} moved: was {was:x?}, is {is:x?}")),
                None => {}
            }
        }
        Ok(())
    }
}

fn within(name: &str, wanted: &[Approx], found: &[f32]) -> Result<(), String> {
    equal(&format!("{name}: numbers"), wanted.len(), found.len())?;
    match wanted.iter().zip(found).position(|(wanted, &found)| !wanted.admits(found)) {
        None => Ok(()),
        Some(i) => Err(format!("{name}, number {i}: wanted {:?}, found {}", wanted[i], found[i])),
    }
}

fn offender(wanted: &Offender, error: &Error) -> Result<(), String> {
    match *error {
        Error::IndexOutOfRange { table, rows, position, value } => {
            equal("first index out of range", wanted, &Offender { table, rows, position, value })
        }
        ref other => Err(format!("wanted an error for {wanted:?}, found: {other}")),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Random runs

/// The parts of a batch that proptest picks and shrinks. Indices, weights and gradients follow from the seed.
#[derive(Clone, Debug)]
struct Raw {
    bags_per_feature: usize,
    /// Sizes of the bags, repeated as often as needed.
    sizes: Vec<usize>,
    seed: u64,
    /// The range of the indices: 0 the first few rows, for duplicates; 1 the first 64, for hits and full sets; 2 the whole table.
    spread: u8,
    weighted: bool,
    /// 0: the batch has bad indices, always if the mode accepts them, else one time in three.
    bad: u8,
    /// The gradient: 0 none; 1 all zero; 2 with one value that is not finite.
    gradient: u8,
    between: Vec<u8>,
    after: Vec<u8>,
}

fn raw_batches() -> impl Strategy<Value = Vec<Raw>> {
    let size = prop_oneof![1 => Just(0usize), 2 => 1..4usize, 3 => 0..40usize];
    let shape = (prop_oneof![1 => Just(0usize), 9 => 1..5usize], prop::collection::vec(size, 1..12), any::<u64>());
    let flags = (0..3u8, any::<bool>(), 0..6u8, 0..10u8);
    let calls = || prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(0..11u8, 1..3)];
    let batch = (shape, flags, calls(), calls()).prop_map(
        |((bags_per_feature, sizes, seed), (spread, weighted, bad, gradient), between, after)| Raw {
            bags_per_feature,
            sizes,
            seed,
            spread,
            weighted,
            bad,
            gradient,
            between,
            after,
        },
    );
    prop::collection::vec(batch, 1..11)
}

/// Any configuration of 1 to 5 tables, in up to 20 pieces.
pub fn configs() -> impl Strategy<Value = GroupConfig> {
    let rows = prop_oneof![1 => 1..4u32, 1 => 1..40u32, 2 => 1..400u32];
    let sizes = (
        prop::collection::vec(rows, 1..6),
        prop_oneof![1..10u32, 1..301u32],
        prop::collection::vec(any::<u32>(), 1..7),
        any::<bool>(),
    );
    let stored = (
        prop::sample::select(Precision::ALL.to_vec()),
        prop::sample::select(vec![Rounding::Nearest, Rounding::Stochastic]),
        prop_oneof![2 => Just(Policy::Lru), 2 => Just(Policy::Lfu), 1 => Just(Policy::Static), 3 => Just(Policy::Window)],
        prop::sample::select(vec![Pooling::Sum, Pooling::Mean, Pooling::None]),
        prop::sample::select(vec![OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip]),
    );
    let rule = (
        prop::sample::select(vec![
            Optimizer::sgd(0.125),
            Optimizer::sgd(0.3),
            Optimizer::adagrad(0.1),
            Optimizer::row_wise_adagrad(0.1),
            Optimizer::momentum(0.1),
            Optimizer::adam(0.1).with_decoupled(true),
            Optimizer::adam(0.1).with_own_count(true).with_clip_value(Some(0.75)),
            Optimizer::row_wise_adam(0.1).with_clip_norm(Some(0.5)),
            Optimizer::row_wise_adam(0.1).with_own_count(true),
            Optimizer::ftrl(0.1).with_l2(0.01),
            Optimizer::ftrl(0.3).with_l1(0.5).with_beta(0.5).with_clip_value(Some(0.75)),
            Optimizer::lion(0.02),
            Optimizer::lion(0.02).with_decoupled(false).with_clip_norm(Some(0.5)),
        ]),
        prop_oneof![3 => Just(0.0f32), 1 => Just(0.01)],
        prop_oneof![
            3 => Just(Init::Uniform { low: -1.0, high: 1.0 }),
            1 => Just(Init::Normal { mean: 0.1, std: 0.3 }),
            1 => Just(Init::Constant(0.3)),
        ],
    );
    // Few numbers: a device compiles shaders for each number of pieces that it binds at once.
    let pieces = prop::sample::select(vec![1u32, 2, 7, 20]);
    (sizes, stored, rule, 0..6u8, any::<u32>(), pieces, any::<u32>()).prop_map(
        |((tables, dim, features, shared), stored, (rule, decay, init), cache, part, pieces, seed)| {
            let mut config = GroupConfig::new(&tables, dim);
            let rows: u32 = tables.iter().sum();
            (config.precision, config.rounding, config.policy, config.pooling, config.out_of_range) = stored;
            config.counter_bits = CounterBits::ALL[seed as usize % 3];
            config.window_ways = (seed / 3 % 5).min(config.ways - 1);
            config.write_rounding = Rounding::ALL[seed as usize / 15 % 2];
            config.cache_shares = random_shares(&config);
            config.optimizer = rule.with_weight_decay(decay);
            config.state = random_state(config.precision, rule.kind, seed);
            config.init = init;
            config.seed = seed;
            config.padding = random_padding(&tables, &mut rand_pcg::Pcg64::seed_from_u64(seed.into()));
            config.cache_rows = match cache {
                0 => 0,
                1 | 2 => 1 + part % rows.min(config.ways),
                3 | 4 => 1 + part % rows,
                _ => 2 * rows,
            };
            if shared {
                config.features = features.iter().map(|feature| feature % tables.len() as u32).collect();
            }
            let stride = 4 * Format::new(&config).words() as u64;
            config.set_piece_bytes(Some(stride * u64::from(rows.div_ceil(pieces.min(rows)))));
            config
        },
    )
}

/// A configuration, and a few batches for it with other calls in between.
pub fn runs() -> impl Strategy<Value = (GroupConfig, Vec<BatchData>)> {
    (configs(), raw_batches()).prop_map(|(config, raw)| {
        let batches = raw.iter().map(|raw| build(&config, raw)).collect();
        (config, batches)
    })
}

fn build(config: &GroupConfig, raw: &Raw) -> BatchData {
    let mut rng = rand_pcg::Pcg64::seed_from_u64(raw.seed);
    let features = config.feature_tables();
    let mut batch = BatchData { offsets: vec![0], ..BatchData::default() };
    for bag in 0..features.len() * raw.bags_per_feature {
        let rows = config.tables[features[bag / raw.bags_per_feature] as usize];
        for _ in 0..raw.sizes[bag % raw.sizes.len()] {
            let most = rows.min([3, 64, rows][usize::from(raw.spread)]);
            let index = rng.random_range(0..most);
            batch.indices.push(pad(index, config, features[bag / raw.bags_per_feature], &mut rng));
        }
        batch.offsets.push(batch.indices.len() as u32);
    }
    let count = batch.indices.len();
    if raw.bad == 0 && count > 0 && (config.out_of_range != OutOfRange::Error || rng.random_range(0..3) == 0) {
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..count);
            // Just above the largest table, or the largest index of all.
            let least = config.tables.iter().max().expect("a group has tables");
            batch.indices[at] = if rng.random() { *least } else { u32::MAX };
        }
    }
    if raw.weighted {
        batch.weights = Some((0..count).map(|_| rng.random_range(-2.0..2.0f32)).collect());
    }
    let outputs = if config.pooling == Pooling::None { count } else { batch.offsets.len() - 1 };
    let mut gradient: Vec<f32> = (0..outputs * config.dim as usize).map(|_| rng.random_range(-1.0..1.0f32)).collect();
    match raw.gradient {
        1 => gradient.fill(0.0),
        2 if !gradient.is_empty() => {
            let at = rng.random_range(0..gradient.len());
            gradient[at] = if rng.random() { f32::NAN } else { f32::NEG_INFINITY };
        }
        _ => {}
    }
    batch.gradient = (raw.gradient != 0).then_some(gradient);
    batch.between = raw.between.iter().map(|&call| any_call(config, call, &mut rng)).collect();
    batch.after = raw.after.iter().map(|&call| any_call(config, call, &mut rng)).collect();
    batch
}

fn any_call(config: &GroupConfig, call: u8, rng: &mut rand_pcg::Pcg64) -> Call {
    let total: u32 = config.tables.iter().sum();
    let count = rng.random_range(1..6);
    let rows: Vec<u32> = (0..count).map(|_| rng.random_range(0..total)).collect();
    match call {
        0 => Call::Flush,
        1 => Call::Reset,
        2 => Call::ResetDiscarding,
        3 => Call::Frozen,
        4 => Call::ReadRows(rows),
        5 => {
            let mut values: Vec<f32> =
                (0..rows.len() * config.dim as usize).map(|_| rng.random_range(-3.0..3.0f32)).collect();
            if rng.random_range(0..3) == 0 {
                values[0] = f32::NAN;
            }
            Call::WriteRows(rows, values)
        }
        6 => Call::BackwardAgain,
        7 | 8 => {
            // From no row to more than a set has ways. Sometimes the call asks for more ways than there are, or for none.
            let count = rng.random_range(0..=total.min(60));
            let rows = (0..count).map(|_| rng.random_range(0..total)).collect();
            let most = if rng.random_range(0..9) == 0 { config.ways + 1 } else { config.ways };
            Call::Pin(rows, if rng.random_range(0..12) == 0 { 0 } else { rng.random_range(1..=most) })
        }
        9 => Call::ResizeCache([0, 1, total / 3, total, total + 1][rng.random_range(0..5)]),
        _ => Call::LearningRate(0.05),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Fixed runs

/// Cases that random runs seldom produce.
pub fn edge_cases() -> Vec<(String, GroupConfig, Vec<BatchData>)> {
    let mut cases = Vec::new();
    let mut add = |name: &str, config: &GroupConfig, run: Vec<BatchData>| {
        cases.push((name.to_string(), config.clone(), run));
    };
    let optimizers = [
        Optimizer::sgd(0.1),
        Optimizer::adagrad(0.1),
        Optimizer::row_wise_adagrad(0.1),
        Optimizer::adam(0.1),
        Optimizer::row_wise_adam(0.1).with_own_count(true),
        Optimizer::ftrl(0.1).with_l1(0.5).with_l2(0.1),
        Optimizer::lion(0.1).with_weight_decay(0.01),
    ];
    for precision in Precision::ALL {
        for optimizer in optimizers {
            let base = |tables: &[u32], dim: u32, cache_rows: u32| {
                GroupConfig::new(tables, dim)
                    .with_precision(precision)
                    .with_optimizer(optimizer)
                    .with_cache_rows(cache_rows)
                    .with_init(Init::Uniform { low: -1.0, high: 1.0 })
                    .with_seed(7)
            };
            let name = |what: &str| format!("{what}, {precision:?}, {:?}", optimizer.kind);
            for cache_rows in [0, 1, 9] {
                let run = (0..4).map(|i| spread(9, 1, i)).collect();
                add(&name(&format!("dim 1, {cache_rows} cached")), &base(&[9], 1, cache_rows), run);
            }
            let mut ones = base(&[1, 1, 1], 5, 3);
            ones.set_piece_bytes(Some(4 * Format::new(&ones).words() as u64));
            let run = (0..4).map(|_| step(&[0, 0, 0, 0], &[0, 1, 1, 4], 5)).collect();
            add(&name("one-row tables, one to a piece"), &ones, run);
            let run = (0..5).map(|i| spread(200, 7, i)).collect();
            add(&name("whole table cached"), &base(&[200], 7, 200), run);
            for cache_rows in [0, 32] {
                let run = vec![step(&[3; 10_000], &[0, 10_000], 3), step(&[3; 10_000], &[0, 1, 10_000], 3)];
                add(&name(&format!("one index 10^4 times, {cache_rows} cached")), &base(&[40], 3, cache_rows), run);
            }
            let all: Vec<u32> = (0..100).collect();
            let lru = base(&[100], 2, 32);
            add(&name("100 misses in one set"), &lru, vec![step(&all, &[0, 100], 2), step(&all, &[0, 50, 100], 2)]);

            // Numbers of rows and sets about a power of two, where the sort key NONE might be confused with the key of the last row or set.
            for rows in [255, 256, 257] {
                let mut edge = base(&[rows], 1, 32);
                edge.out_of_range = OutOfRange::Skip;
                let batch = [rows - 1, rows, rows - 1, 0, rows + 5, rows - 2];
                add(&name(&format!("{rows} rows, some left out")), &edge, vec![step(&batch, &[0, 3, 6], 1); 3]);
                let sets = base(&[rows * 32], 1, rows * 32);
                let batch = |i: u32| (0..600).map(|k| (k * 11 + i * 301) % (rows * 32)).collect::<Vec<_>>();
                add(&name(&format!("{rows} sets")), &sets, (0..3).map(|i| step(&batch(i), &[0, 600], 1)).collect());
            }

            // Rows 0 to 31 fill the set. Then each is hit once more, and rows that occur ten times evict some of them.
            let lfu = lru.with_policy(Policy::Lfu);
            let mut evicting: Vec<u32> = (0..32).collect();
            evicting.extend([40, 41, 42].repeat(10));
            let run = vec![step(&all[..32], &[0, 32], 2), step(&evicting, &[0, 30, 62], 2), step(&all, &[0, 100], 2)];
            add(&name("a batch that evicts rows it hit"), &lfu, run.clone());
            add(&name("the same, to the nearest"), &lfu.clone().with_rounding(Rounding::Nearest), run);

            // Each of the 32 rows reaches the greatest frequency, so that a row with more uses does not get in.
            let full: Vec<u32> = (0..32).collect::<Vec<u32>>().repeat(260);
            let offsets = [0, 4, full.len() as u32];
            let run = vec![step(&full, &offsets, 2), step(&[40; 300], &[0, 300], 2), step(&all, &[0, 100], 2)];
            for bits in CounterBits::ALL.into_iter().filter(|_| optimizer.kind == OptimizerKind::Sgd) {
                let config = lfu.clone().with_counter_bits(bits);
                add(&name(&format!("counters of {bits} bits")), &config, run.clone());
            }

            // Three features that all read the second table, with bad indices in each mode.
            for out_of_range in [OutOfRange::Error, OutOfRange::Clamp, OutOfRange::Skip] {
                let mut shared = base(&[3, 8], 4, 8);
                shared.features = vec![1, 1, 1];
                shared.out_of_range = out_of_range;
                shared.pooling = Pooling::Mean;
                let run = vec![
                    step(&[0, 7, 3, 3], &[0, 2, 3, 4], 4),
                    step(&[0, 8, 3, u32::MAX], &[0, 2, 3, 4], 4),
                    step(&[u32::MAX, 9], &[0, 2, 2, 2], 4),
                    step(&[], &[0, 0, 0, 0], 4),
                    step(&[], &[0], 4),
                    step(&[7, 7, 7, 1], &[0, 0, 0, 4], 4),
                ];
                add(&name(&format!("shared table, {out_of_range:?}")), &shared, run);
            }

            // A row whose range overflows never enters an integer table: the row keeps its old value.
            let huge = base(&[4], 2, 0);
            let mut batch = step(&[], &[0, 0], 2);
            batch.gradient = None;
            let mut open = step(&[1], &[0, 1], 2);
            open.after = vec![
                Call::WriteRows(vec![1, 2, 3], vec![3e38, -3e38, f32::NAN, 0.0, 1.5, 1.5]),
                Call::ReadRows(vec![0, 1, 2, 3]),
            ];
            add(&name("a range that overflows"), &huge, vec![open, batch]);
        }
    }
    cases
}

/// A step whose gradients have a few values, zero among them, for sum or mean pooling.
fn step(indices: &[u32], offsets: &[u32], dim: usize) -> BatchData {
    let gradient = (0..(offsets.len() - 1) * dim).map(|i| [0.5, -0.25, 0.0, 1.0, -0.75][i % 5]).collect();
    BatchData {
        indices: indices.to_vec(),
        offsets: offsets.to_vec(),
        gradient: Some(gradient),
        after: vec![Call::ReadRows(vec![0])],
        ..BatchData::default()
    }
}

/// A step with bags of three indices into `rows` rows, shifted by `first`.
fn spread(rows: u32, dim: usize, first: u32) -> BatchData {
    let indices: Vec<u32> = (0..rows).map(|i| (first * 5 + i * i) % rows).collect();
    let mut offsets: Vec<u32> = (0..rows).step_by(3).collect();
    offsets.push(rows);
    step(&indices, &offsets, dim)
}
