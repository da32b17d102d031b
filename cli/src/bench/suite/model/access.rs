//! Patterns of access: the sectors and lines that subgroups of 32 lanes ask for.

use std::ops::{Add, Mul};

/// Lanes of a subgroup.
pub(super) const LANES: f64 = 32.0;

const SECTOR: f64 = 32.0;
const LINE: f64 = 128.0;

/// Sectors and lines of some accesses, each access counted by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Touched {
    pub(super) sectors: f64,
    pub(super) lines: f64,
}

impl Add for Touched {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { sectors: self.sectors + other.sectors, lines: self.lines + other.lines }
    }
}

impl Mul<f64> for Touched {
    type Output = Self;

    fn mul(self, times: f64) -> Self {
        Self { sectors: self.sectors * times, lines: self.lines * times }
    }
}

impl Touched {
    /// The smaller numbers of both.
    pub(super) fn min(self, other: Self) -> Self {
        Self { sectors: self.sectors.min(other.sectors), lines: self.lines.min(other.lines) }
    }
}

/// Number of subgroups whose lanes hold `n` items, one each.
pub(super) fn subgroups(n: f64) -> f64 {
    (n / LANES).ceil()
}

/// `n` accesses to one word each, by one lane or by all lanes together.
pub(super) fn one(n: f64) -> Touched {
    Touched { sectors: n, lines: n }
}

/// `n` items of `bytes` bytes in a row, an item a lane, from the beginning of a line on.
pub(super) fn stream(n: f64, bytes: f64) -> Touched {
    let whole = (n / LANES).floor();
    span(LANES * bytes, LINE) * whole + span((n - whole * LANES) * bytes, LINE)
}

/// One access to `bytes` bytes in a row that begin at any multiple of `stride` bytes: the mean over the places in a line.
pub(super) fn span(bytes: f64, stride: f64) -> Touched {
    if bytes <= 0.0 {
        return Touched::default();
    }
    // The greatest power of two that divides the stride.
    let stride = stride.round().max(4.0) as u64;
    let aligned = f64::from(1 << stride.trailing_zeros().min(7));
    let parts = |unit: f64| {
        if aligned >= unit { (bytes / unit).ceil() } else { (bytes - aligned).max(0.0) / unit + 1.0 }
    };
    Touched { sectors: parts(SECTOR), lines: parts(LINE) }
}

/// `n` accesses to `words` words in a row each, from any word on.
pub(super) fn run(n: f64, words: f64) -> Touched {
    span(4.0 * words, 4.0) * n
}

/// `n` items, an item a lane, whose first words are `apart` bytes apart.
pub(super) fn strided(n: f64, apart: f64) -> Touched {
    let whole = (n / LANES).floor();
    let part = |lanes: f64| {
        let parts = |unit: f64| if lanes > 0.0 { (lanes * apart / unit).ceil().clamp(1.0, lanes) } else { 0.0 };
        Touched { sectors: parts(SECTOR), lines: parts(LINE) }
    };
    part(LANES) * whole + part((n - whole * LANES).ceil())
}

/// `n` items of `bytes` bytes, an item a lane, at random places of a list of `items`.
pub(super) fn scattered(n: f64, items: f64, bytes: f64) -> Touched {
    let whole = (n / LANES).floor();
    let part = |lanes: f64| {
        let parts = |unit: f64| if lanes > 0.0 { distinct((items * bytes / unit).max(1.0), lanes) } else { 0.0 };
        Touched { sectors: parts(SECTOR), lines: parts(LINE) }
    };
    part(LANES) * whole + part(n - whole * LANES)
}

/// The expected number of different ones among `draws` even draws from `all`.
pub(super) fn distinct(all: f64, draws: f64) -> f64 {
    if draws <= 0.0 {
        return 0.0;
    }
    // 1 - (1 - 1 / all)^draws without loss for large `all`.
    -all * (draws * (-1.0 / all).ln_1p()).exp_m1()
}
