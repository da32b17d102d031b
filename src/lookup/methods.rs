//! The methods of the traits as a group's own, so that calls need no import.

/// Gives a type the methods of a trait as its own. Each is declared by a short description and its signature; the trait's has the details.
macro_rules! own {
    ($group:ty, $trait:ident: $(
        $(#[$attribute:meta])*
        fn $name:ident($self:ident: $receiver:ty $(, $argument:ident: $type:ty)*) -> $result:ty;
    )*) => {
        impl $group {
            $(
                $(#[$attribute])*
                #[doc = concat!(
                    "\nMore, and its errors: [`", stringify!($trait), "::", stringify!($name), "`](crate::", stringify!($trait), "::",
                    stringify!($name), ").",
                )]
                pub fn $name($self: $receiver $(, $argument: $type)*) -> $result {
                    $crate::lookup::$trait::$name($self $(, $argument)*)
                }
            )*
        }
    };
}
pub(crate) use own;

/// Gives a type the methods of [`Lookup`](crate::Lookup) as its own.
macro_rules! own_lookup {
    ($group:ty) => {
        $crate::lookup::methods::own! { $group, Lookup:
            /// Whether a forward waits for its backward.
            #[must_use]
            fn pending(self: &Self) -> bool;

            /// Number of floats that a forward of `indices` indices in `bags` bags writes.
            #[must_use]
            fn output_len(self: &Self, indices: usize, bags: usize) -> usize;

            /// Runs one step forward.
            fn forward(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>
            ) -> Result<Vec<f32>, $crate::error::Error>;

            /// Runs one step forward and writes its outputs to a slice.
            fn forward_into(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>, outputs: &mut [f32]
            ) -> Result<(), $crate::error::Error>;

            /// Runs a forward that changes nothing.
            fn forward_frozen(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>
            ) -> Result<Vec<f32>, $crate::error::Error>;

            /// Runs a forward that changes nothing, and writes its outputs to a slice.
            fn forward_frozen_into(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>, outputs: &mut [f32]
            ) -> Result<(), $crate::error::Error>;

            /// Runs one step forward, with FP16 outputs.
            fn forward_half(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>
            ) -> Result<Vec<u16>, $crate::error::Error>;

            /// Runs a forward that changes nothing, with FP16 outputs.
            fn forward_frozen_half(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>
            ) -> Result<Vec<u16>, $crate::error::Error>;

            /// Updates the rows of the last forward with the gradients of its outputs.
            fn backward(self: &mut Self, grad_outputs: &[f32]) -> Result<(), $crate::error::Error>;

            /// Updates the rows of the last forward with FP16 gradients of its outputs.
            fn backward_half(self: &mut Self, grad_outputs: &[u16]) -> Result<(), $crate::error::Error>;

            /// Updates the rows of the last forward with the gradients of a scaled loss.
            fn backward_scaled(
                self: &mut Self, grad_outputs: $crate::scaler::GradSlice<'_>, scaler: &$crate::table::layout::ScalerState
            ) -> Result<(), $crate::error::Error>;

            /// The gradient of the last forward's loss with respect to each index's weight.
            fn weight_gradient(
                self: &mut Self, indices: &[u32], offsets: &[u32], grad_outputs: &[f32]
            ) -> Result<Vec<f32>, $crate::error::Error>;

            /// Reads the newest weights of linear rows, `[rows, dim]`.
            fn read_rows(self: &mut Self, rows: &[u32]) -> Result<Vec<f32>, $crate::error::Error>;

            /// The counters of each table.
            fn counters(self: &mut Self) -> Result<Vec<$crate::table::counters::Counters>, $crate::error::Error>;

            /// The counters of each table, without waiting.
            fn counters_seen(self: &mut Self) -> Result<Option<Vec<$crate::table::counters::Counters>>, $crate::error::Error>;

            /// Sets the learning rate from the next backward on.
            fn set_learning_rate(self: &mut Self, lr: f32) -> Result<(), $crate::error::Error>;
        }
    };
}
pub(crate) use own_lookup;

/// Gives a type the methods of [`Embedding`](crate::Embedding) as its own.
macro_rules! own_embedding {
    ($group:ty) => {
        $crate::lookup::methods::own! { $group, Embedding:
            /// The sizes that follow from the configuration.
            #[must_use]
            fn layout(self: &Self) -> &$crate::table::layout::Layout;

            /// Decides the next step while the last one may still wait for its backward.
            fn prefetch(
                self: &mut Self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>
            ) -> Result<(), $crate::error::Error>;

            /// Runs the forward of the prefetched batch.
            fn forward_prefetched(self: &mut Self) -> Result<Vec<f32>, $crate::error::Error>;

            /// Writes every dirty row to the table and marks it clean.
            fn flush(self: &mut Self) -> Result<(), $crate::error::Error>;

            /// Flushes, then empties the cache.
            fn reset(self: &mut Self) -> Result<(), $crate::error::Error>;

            /// Empties the cache without a flush. Changes that were not written back are lost.
            fn reset_discarding(self: &mut Self) -> Result<(), $crate::error::Error>;

            /// Replaces the weights of linear rows; the optimiser state stays.
            fn write_rows(self: &mut Self, rows: &[u32], values: &[f32]) -> Result<(), $crate::error::Error>;

            /// Pins exactly these rows, and returns those that find no way.
            fn pin(self: &mut Self, rows: &[u32], ways: u32) -> Result<Vec<u32>, $crate::error::Error>;

            /// The pinned rows, in slot order.
            fn pinned(self: &mut Self) -> Result<Vec<u32>, $crate::error::Error>;

            /// Gives the cache another size.
            fn resize_cache(self: &mut Self, cache_rows: u32) -> Result<Vec<u32>, $crate::error::Error>;

            /// Reads `out.len()` words of a part, from `first_word` on.
            fn read_part(
                self: &mut Self, part: $crate::table::parts::Part, first_word: u64, out: &mut [u32]
            ) -> Result<(), $crate::error::Error>;

            /// Replaces words of a part, from `first_word` on.
            fn write_part(
                self: &mut Self, part: $crate::table::parts::Part, first_word: u64, words: &[u32]
            ) -> Result<(), $crate::error::Error>;

            /// Copies the state that the group keeps between steps into memory.
            fn snapshot(self: &mut Self) -> Result<$crate::table::snapshot::Snapshot, $crate::error::Error>;

            /// Restores a snapshot of a group of the same configuration.
            fn restore(self: &mut Self, snapshot: &$crate::table::snapshot::Snapshot) -> Result<(), $crate::error::Error>;
        }
    };
}
pub(crate) use own_embedding;
