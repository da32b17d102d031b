//! What every kind of table does, and all that a trainer needs of one. [`Lookup`] has methods of [`Embedding`]'s names: a file that imports
//! both names the trait in a call.

use crate::{Embedding, Error, GradSlice, ScalerState};

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
}

impl<E: Embedding + ?Sized> Lookup for E {
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
}
