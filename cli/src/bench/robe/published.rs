//! P4's own figures, in milliseconds: its appendix, tables 2 to 14 (tables 3, 5 and 6 are Figure 3 (a) to (c); 7, 9 and 10 are (d) to (f)).
//! Its backward is an operator's, which returns a gradient, dense or by places (COO); no optimiser is in it.
//! `PyTorch` on one GPU that it does not name; the card of its other experiments is a Quadro RTX 8000.
//!
//! 256 M rows at 10x are more weights than the hash reaches, for they are above its prime. P4 has figures for sparse gradients all the same,
//! and a blank for dense ones; here such an array is an error.

/// What P4 says of its machine.
pub(crate) const MACHINE: &str =
    "P4's: PyTorch, one GPU that P4 does not name (its other experiments: Quadro RTX 8000)";

/// What a table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pass {
    Forward,
    Backward,
}

/// What runs down and across.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Axes {
    /// Rows against compression, chunks of 32.
    RowsCompression,
    /// Rows against chunk, at 100x.
    RowsChunk,
    /// Chunk against compression, 64 M rows.
    ChunkCompression,
}

/// A table of the appendix.
pub(crate) struct Table {
    pub(crate) number: u32,
    /// Letter in Figure 3.
    pub(crate) panel: Option<&'static str>,
    pub(crate) pass: Pass,
    pub(crate) sparse: bool,
    pub(crate) axes: Axes,
    pub(crate) milliseconds: &'static [&'static [f64]],
}

const NONE: f64 = f64::NAN;

use Axes::{ChunkCompression, RowsChunk, RowsCompression};
use Pass::{Backward, Forward};

/// The original embedding, backward with sparse gradients and forward: the best that table 2 has.
pub(crate) const ORIGINAL: (f64, f64) = (0.35, 0.12);

pub(crate) const TABLES: [Table; 12] = [
    Table {
        number: 3,
        panel: Some("a"),
        pass: Forward,
        sparse: false,
        axes: RowsCompression,
        milliseconds: &[
            &[0.40, 0.31, 0.27, 0.27],
            &[0.36, 0.32, 0.29, 0.27],
            &[0.37, 0.31, 0.30, 0.27],
            &[0.37, 0.25, 0.31, 0.26],
            &[0.37, 0.37, 0.30, 0.28],
            &[0.37, 0.37, 0.32, 0.29],
            &[NONE, 0.36, 0.31, 0.30],
        ],
    },
    Table {
        number: 4,
        panel: None,
        pass: Forward,
        sparse: true,
        axes: RowsCompression,
        milliseconds: &[
            &[0.57, 0.54, 0.34, 0.33],
            &[0.51, 0.56, 0.34, 0.32],
            &[0.56, 0.56, 0.36, 0.34],
            &[0.55, 0.57, 0.36, 0.33],
            &[0.56, 0.57, 0.52, 0.35],
            &[0.52, 0.57, 0.57, 0.35],
            &[0.55, 0.53, 0.51, 0.36],
        ],
    },
    Table {
        number: 5,
        panel: Some("b"),
        pass: Backward,
        sparse: false,
        axes: RowsCompression,
        milliseconds: &[
            &[2.55, 0.59, 0.35, 0.35],
            &[4.81, 0.83, 0.37, 0.35],
            &[9.15, 1.27, 0.41, 0.34],
            &[17.81, 2.13, 0.54, 0.35],
            &[35.10, 3.85, 0.73, 0.36],
            &[69.73, 7.42, 1.08, 0.40],
            &[NONE, 14.34, 1.78, 0.47],
        ],
    },
    Table {
        number: 6,
        panel: Some("c"),
        pass: Backward,
        sparse: true,
        axes: RowsCompression,
        milliseconds: &[
            &[2.67, 2.48, 2.56, 2.52],
            &[2.53, 2.58, 2.48, 2.53],
            &[2.52, 2.68, 2.58, 2.45],
            &[2.51, 2.64, 2.56, 2.55],
            &[2.51, 2.66, 2.63, 2.60],
            &[2.52, 2.65, 2.65, 2.54],
            &[2.54, 2.52, 2.53, 2.62],
        ],
    },
    Table {
        number: 7,
        panel: Some("d"),
        pass: Forward,
        sparse: false,
        axes: RowsChunk,
        milliseconds: &[
            &[0.68, 0.58, 0.55, 0.32, 0.31, 0.31],
            &[0.75, 0.62, 0.54, 0.33, 0.31, 0.31],
            &[0.77, 0.65, 0.54, 0.54, 0.31, 0.31],
            &[0.80, 0.67, 0.54, 0.26, 0.24, 0.23],
            &[0.92, 0.79, 0.65, 0.39, 0.37, 0.37],
            &[0.88, 0.75, 0.65, 0.39, 0.37, 0.37],
            &[0.88, 0.75, 0.65, 0.40, 0.36, 0.36],
        ],
    },
    Table {
        number: 8,
        panel: None,
        pass: Forward,
        sparse: true,
        axes: RowsChunk,
        milliseconds: &[
            &[0.87, 0.62, 0.57, 0.57, 0.52, 0.37],
            &[0.91, 0.76, 0.70, 0.71, 0.57, 0.57],
            &[0.94, 0.80, 0.68, 0.70, 0.56, 0.56],
            &[0.92, 0.82, 0.68, 0.69, 0.57, 0.54],
            &[0.93, 0.80, 0.68, 0.67, 0.56, 0.57],
            &[0.93, 0.80, 0.68, 0.67, 0.56, 0.56],
            &[0.93, 0.80, 0.68, 0.67, 0.55, 0.37],
        ],
    },
    Table {
        number: 9,
        panel: Some("e"),
        pass: Backward,
        sparse: false,
        axes: RowsChunk,
        milliseconds: &[
            &[1.29, 1.10, 0.80, 0.64, 0.58, 0.57],
            &[1.56, 1.38, 1.07, 0.88, 0.82, 0.80],
            &[2.02, 1.87, 1.54, 1.33, 1.27, 1.27],
            &[2.96, 2.79, 2.40, 2.20, 2.12, 2.12],
            &[4.69, 4.54, 4.13, 3.98, 3.85, 3.85],
            &[8.15, 8.00, 7.70, 7.48, 7.43, 7.42],
            &[15.17, 15.01, 14.61, 14.40, 14.34, 14.34],
        ],
    },
    Table {
        number: 10,
        panel: Some("f"),
        pass: Backward,
        sparse: true,
        axes: RowsChunk,
        milliseconds: &[
            &[3.17, 3.04, 2.61, 2.54, 2.50, 2.48],
            &[3.41, 2.97, 2.64, 2.64, 2.66, 2.61],
            &[3.56, 3.07, 2.74, 2.58, 2.54, 2.62],
            &[3.68, 3.13, 2.73, 2.63, 2.53, 2.50],
            &[3.94, 3.36, 2.91, 2.64, 2.52, 2.64],
            &[3.98, 3.22, 2.77, 2.60, 2.51, 2.60],
            &[4.00, 3.27, 2.74, 2.61, 2.53, 2.50],
        ],
    },
    Table {
        number: 11,
        panel: None,
        pass: Forward,
        sparse: false,
        axes: ChunkCompression,
        milliseconds: &[
            &[0.89, 0.90, 0.73, 0.28],
            &[0.77, 0.80, 0.61, 0.27],
            &[0.65, 0.65, 0.54, 0.27],
            &[0.40, 0.39, 0.32, 0.28],
            &[0.37, 0.37, 0.30, 0.29],
            &[0.37, 0.37, 0.30, 0.30],
        ],
    },
    Table {
        number: 12,
        panel: None,
        pass: Forward,
        sparse: true,
        axes: ChunkCompression,
        milliseconds: &[
            &[0.93, 0.93, 0.87, 0.34],
            &[0.80, 0.80, 0.77, 0.32],
            &[0.69, 0.68, 0.71, 0.33],
            &[0.69, 0.67, 0.72, 0.34],
            &[0.56, 0.57, 0.49, 0.34],
            &[0.56, 0.55, 0.54, 0.36],
        ],
    },
    Table {
        number: 13,
        panel: None,
        pass: Backward,
        sparse: false,
        axes: ChunkCompression,
        milliseconds: &[
            &[35.94, 4.69, 1.44, 0.37],
            &[35.78, 4.53, 1.26, 0.37],
            &[35.38, 4.13, 0.96, 0.36],
            &[35.15, 3.91, 0.83, 0.36],
            &[35.10, 3.85, 0.72, 0.36],
            &[35.11, 3.86, 0.70, 0.37],
        ],
    },
    Table {
        number: 14,
        panel: None,
        pass: Backward,
        sparse: true,
        axes: ChunkCompression,
        milliseconds: &[
            &[4.08, 3.89, 2.77, 2.87],
            &[3.32, 3.20, 2.76, 2.88],
            &[2.78, 2.78, 2.61, 2.63],
            &[2.62, 2.60, 2.58, 2.58],
            &[2.51, 2.68, 2.63, 2.55],
            &[2.49, 2.50, 2.59, 2.57],
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::super::shape::{CHUNKS, COMPRESSIONS, MILLIONS};
    use super::*;

    #[test]
    fn tables_are_whole() {
        for (table, number) in TABLES.iter().zip(3..) {
            let (down, across) = match table.axes {
                RowsCompression => (MILLIONS.len(), COMPRESSIONS.len()),
                RowsChunk => (MILLIONS.len(), CHUNKS.len()),
                ChunkCompression => (CHUNKS.len(), COMPRESSIONS.len()),
            };
            assert_eq!((table.number, table.milliseconds.len()), (number, down));
            assert!(table.milliseconds.iter().all(|line| line.len() == across), "table {number}");
            // Dense gradients of 256 M rows at 10x are blank.
            let blanks = table.milliseconds.iter().flat_map(|line| line.iter()).filter(|ms| ms.is_nan()).count();
            assert_eq!(blanks, usize::from(table.axes == RowsCompression && !table.sparse), "table {number}");
        }
    }
}
