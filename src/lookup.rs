//! What every kind of table does, and all that a trainer needs of one.
//!
//! A trainer holds `Box<dyn Lookup>`; its methods need no import there. Every [`Embedding`] is a [`Lookup`] by itself, rather than by being
//! its supertrait: `use hotrow::Embedding` alone then goes on to bring all methods of a group of rows. A file that imports both traits names
//! one in a call on such a group.

use crate::{
    embedding::Embedding,
    error::Error,
    memory::MemoryReport,
    robe::{Snapshot, config::Config},
    scaler::GradSlice,
    table::{counters::Counters, layout::ScalerState},
};

/// Tables that are looked up and trained, whatever holds their weights: cached rows ([`Embedding`]; each is one of these) or one shared
/// array ([`robe`](crate::robe)). Each call waits for its result.
///
/// Indices count within their table. `offsets` has one entry per bag and one more; the bags come feature by feature, the same
/// number for each. Outputs and gradients are row-major: `[bags, dim]`, or `[indices, dim]` with pooling none.
pub trait Lookup {
    /// True between a forward and its backward.
    fn pending(&self) -> bool;

    /// One step forward. `weights`: one an index, or none.
    ///
    /// # Errors
    /// Bad offsets or indices ([`Error::BadOffsets`], [`Error::IndexOutOfRange`]) leave everything as it was.
    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error>;

    /// The same outputs, and nothing changes.
    ///
    /// # Errors
    /// As [`Lookup::forward`].
    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error>;

    /// Moves what the last forward has read by the gradients of its outputs: each weight once, by the sum of what it is due.
    ///
    /// # Errors
    /// [`Error::Order`] without a forward before it, [`Error::Length`] for the wrong number of gradients.
    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error>;

    /// As [`backward`](Self::backward), of gradients of a loss that was multiplied with a scale (SPEC 8), by what its scaler decided: if
    /// they overflowed, no weight and no state moves.
    ///
    /// # Errors
    /// As [`backward`](Self::backward); [`Error::Order`] for the state of a scaler that has decided nothing.
    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error>;

    /// The newest value of each linear row: `[rows, dim]`.
    ///
    /// # Errors
    /// [`Error::RowOutOfRange`] names the first row that does not exist.
    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error>;

    /// Sets the learning rate from the next backward on.
    ///
    /// # Errors
    /// [`Error::Config`] for one that is not finite; the old one stays.
    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error>;

    /// Counters of each table. Those of a shared array are `accesses`, `out_of_range`, the bytes, and `skipped_rows`, which are weights
    /// there, all of them counted as the first table's. Its bytes are those of dim weights an access, read in forward and written in
    /// backward; where rows repeat or chunks overlap, less is written.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn counters(&mut self) -> Result<Vec<Counters>, Error>;

    /// Every byte that is allocated for the group, by purpose. Of a group on the CPU: what one on a device has before its first batch, its
    /// report of 64 bytes included; scratch of a batch, which may stay until the next, is not counted.
    fn memory(&self) -> MemoryReport;

    /// Which kind of table it is: the way to what only one of them can do.
    fn kind(&mut self) -> LookupKind<'_>;
}

/// The kinds of tables.
#[non_exhaustive]
pub enum LookupKind<'a> {
    /// Rows of their own, cached or not.
    Rows(&'a mut dyn Embedding),
    /// A shared array.
    Shared(&'a mut dyn SharedArray),
}

/// A parameter-shared table ([`robe`](crate::robe)), on a GPU or on the CPU.
pub trait SharedArray: Lookup {
    /// The configuration.
    fn config(&self) -> &Config;

    /// Everything the array keeps between steps.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    fn snapshot(&mut self) -> Result<Snapshot, Error>;

    /// Takes over a snapshot.
    ///
    /// # Errors
    /// [`Error::Snapshot`] for one of another configuration; the array stays as it was.
    fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error>;
}

impl std::fmt::Debug for LookupKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rows(_) => "Rows",
            Self::Shared(_) => "Shared",
        })
    }
}

impl<E: Embedding> Lookup for E {
    fn pending(&self) -> bool {
        Embedding::pending(self)
    }

    fn forward(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        Embedding::forward(self, indices, offsets, weights)
    }

    fn forward_frozen(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<Vec<f32>, Error> {
        Embedding::forward_frozen(self, indices, offsets, weights)
    }

    fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
        Embedding::backward(self, grad_outputs)
    }

    fn backward_scaled(&mut self, grad_outputs: GradSlice<'_>, scaler: &ScalerState) -> Result<(), Error> {
        Embedding::backward_scaled(self, grad_outputs, scaler)
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        Embedding::read_rows(self, rows)
    }

    fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
        Embedding::set_learning_rate(self, lr)
    }

    fn counters(&mut self) -> Result<Vec<Counters>, Error> {
        Embedding::counters(self)
    }

    fn memory(&self) -> MemoryReport {
        Embedding::memory(self)
    }

    fn kind(&mut self) -> LookupKind<'_> {
        LookupKind::Rows(self)
    }
}
