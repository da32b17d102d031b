//! The gradient by the shared weights, dense or sparse.

/// The gradient of the loss with respect to the shared weights (ROBE, sections 2.4 and 3): for each weight, the sum over all chunks that
/// cover it. It includes neither the optimiser's rule nor weight decay. It is not finite where a gradient of the outputs was not finite.
///
/// Example: [`CpuSharedGroup`](crate::CpuSharedGroup).
#[derive(Clone, Debug, PartialEq)]
pub enum Gradient {
    /// `[|M|]`: one value for each weight, 0 where no chunk of the batch lies.
    Dense(Vec<f32>),
    /// Only the weights that chunks of the batch cover, each once.
    Sparse {
        /// The places of these weights in the array, strictly ascending.
        locations: Vec<u32>,
        /// The gradient at each place.
        sums: Vec<f32>,
    },
}
