/// The gradient by the shared weights, in the loss's units: at each weight the sum of what the chunks that cover it are due (P4 sections
/// 2.4 and 3), and nothing of the optimiser, weight decay included. Not finite where a gradient of the outputs was not.
#[derive(Clone, Debug, PartialEq)]
pub enum Gradient {
    /// `[|M|]`: one a weight, 0 where no chunk of the batch lies.
    Dense(Vec<f32>),
    /// Of the weights that chunks of the batch cover, each once.
    Sparse {
        /// Their places in the array, strictly ascending.
        locations: Vec<u32>,
        /// The gradient by each.
        sums: Vec<f32>,
    },
}
