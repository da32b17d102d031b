//! The methods of the traits as a group's own.

/// Gives a type the methods of [`Lookup`] as its own, so that calls need no import.
macro_rules! own_lookup {
    ($group:ty) => {
        impl $group {
            /// True between a forward and its backward.
            #[must_use]
            pub fn pending(&self) -> bool {
                $crate::lookup::Lookup::pending(self)
            }

            /// Floats that a forward of so many indices in so many bags writes.
            #[must_use]
            pub fn output_len(&self, indices: usize, bags: usize) -> usize {
                $crate::lookup::Lookup::output_len(self, indices, bags)
            }

            /// One step forward: [`Lookup::forward`](crate::Lookup::forward).
            ///
            /// # Errors
            /// As [`Lookup::forward`](crate::Lookup::forward).
            pub fn forward(
                &mut self,
                indices: &[u32],
                offsets: &[u32],
                weights: Option<&[f32]>,
            ) -> Result<Vec<f32>, Error> {
                $crate::lookup::Lookup::forward(self, indices, offsets, weights)
            }

            /// One step forward into a slice: [`Lookup::forward_into`](crate::Lookup::forward_into).
            ///
            /// # Errors
            /// As [`Lookup::forward_into`](crate::Lookup::forward_into).
            pub fn forward_into(
                &mut self,
                indices: &[u32],
                offsets: &[u32],
                weights: Option<&[f32]>,
                outputs: &mut [f32],
            ) -> Result<(), Error> {
                $crate::lookup::Lookup::forward_into(self, indices, offsets, weights, outputs)
            }

            /// A forward that changes nothing: [`Lookup::forward_frozen`](crate::Lookup::forward_frozen).
            ///
            /// # Errors
            /// As [`Lookup::forward_frozen`](crate::Lookup::forward_frozen).
            pub fn forward_frozen(
                &mut self,
                indices: &[u32],
                offsets: &[u32],
                weights: Option<&[f32]>,
            ) -> Result<Vec<f32>, Error> {
                $crate::lookup::Lookup::forward_frozen(self, indices, offsets, weights)
            }

            /// A forward into a slice that changes nothing: [`Lookup::forward_frozen_into`](crate::Lookup::forward_frozen_into).
            ///
            /// # Errors
            /// As [`Lookup::forward_frozen_into`](crate::Lookup::forward_frozen_into).
            pub fn forward_frozen_into(
                &mut self,
                indices: &[u32],
                offsets: &[u32],
                weights: Option<&[f32]>,
                outputs: &mut [f32],
            ) -> Result<(), Error> {
                $crate::lookup::Lookup::forward_frozen_into(self, indices, offsets, weights, outputs)
            }

            /// The update by the gradients of the last forward's outputs: [`Lookup::backward`](crate::Lookup::backward).
            ///
            /// # Errors
            /// As [`Lookup::backward`](crate::Lookup::backward).
            pub fn backward(&mut self, grad_outputs: &[f32]) -> Result<(), Error> {
                $crate::lookup::Lookup::backward(self, grad_outputs)
            }

            /// The update by scaled gradients: [`Lookup::backward_scaled`](crate::Lookup::backward_scaled).
            ///
            /// # Errors
            /// As [`Lookup::backward_scaled`](crate::Lookup::backward_scaled).
            pub fn backward_scaled(
                &mut self,
                grad_outputs: $crate::scaler::GradSlice<'_>,
                scaler: &$crate::table::layout::ScalerState,
            ) -> Result<(), Error> {
                $crate::lookup::Lookup::backward_scaled(self, grad_outputs, scaler)
            }

            /// The newest value of each linear row, `[rows, dim]`: [`Lookup::read_rows`](crate::Lookup::read_rows).
            ///
            /// # Errors
            /// As [`Lookup::read_rows`](crate::Lookup::read_rows).
            pub fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<f32>, Error> {
                $crate::lookup::Lookup::read_rows(self, rows)
            }

            /// Counters of each table, without waiting: [`Lookup::counters_seen`](crate::Lookup::counters_seen).
            ///
            /// # Errors
            /// As [`Lookup::counters_seen`](crate::Lookup::counters_seen).
            pub fn counters_seen(&mut self) -> Result<Option<Vec<$crate::table::counters::Counters>>, Error> {
                $crate::lookup::Lookup::counters_seen(self)
            }

            /// Sets the learning rate from the next backward on.
            ///
            /// # Errors
            /// As [`Lookup::set_learning_rate`](crate::Lookup::set_learning_rate).
            pub fn set_learning_rate(&mut self, lr: f32) -> Result<(), Error> {
                $crate::lookup::Lookup::set_learning_rate(self, lr)
            }
        }
    };
}
pub(crate) use own_lookup;

/// Gives a type the methods of [`Embedding`] as its own, so that calls need no import.
macro_rules! own_embedding {
    ($group:ty) => {
        impl $group {
            /// Counters of each table: [`Lookup::counters`](crate::Lookup::counters).
            ///
            /// # Errors
            /// As [`Lookup::counters`](crate::Lookup::counters).
            pub fn counters(&mut self) -> Result<Vec<$crate::table::counters::Counters>, Error> {
                $crate::lookup::Lookup::counters(self)
            }

            /// The sizes that follow from the configuration: [`Embedding::layout`](crate::Embedding::layout).
            #[must_use]
            pub fn layout(&self) -> &Layout {
                $crate::lookup::Embedding::layout(self)
            }

            /// Decides the next step while the last one may still wait for its backward: [`Embedding::prefetch`](crate::Embedding::prefetch).
            ///
            /// # Errors
            /// As [`Embedding::prefetch`](crate::Embedding::prefetch).
            pub fn prefetch(&mut self, indices: &[u32], offsets: &[u32], weights: Option<&[f32]>) -> Result<(), Error> {
                $crate::lookup::Embedding::prefetch(self, indices, offsets, weights)
            }

            /// The forward of the prefetched batch: [`Embedding::forward_prefetched`](crate::Embedding::forward_prefetched).
            ///
            /// # Errors
            /// As [`Embedding::forward_prefetched`](crate::Embedding::forward_prefetched).
            pub fn forward_prefetched(&mut self) -> Result<Vec<f32>, Error> {
                $crate::lookup::Embedding::forward_prefetched(self)
            }

            /// Writes every dirty row to the table and marks it clean: [`Embedding::flush`](crate::Embedding::flush).
            ///
            /// # Errors
            /// As [`Embedding::flush`](crate::Embedding::flush).
            pub fn flush(&mut self) -> Result<(), Error> {
                $crate::lookup::Embedding::flush(self)
            }

            /// Flushes, then empties the cache: [`Embedding::reset`](crate::Embedding::reset).
            ///
            /// # Errors
            /// As [`Embedding::reset`](crate::Embedding::reset).
            pub fn reset(&mut self) -> Result<(), Error> {
                $crate::lookup::Embedding::reset(self)
            }

            /// Empties the cache and discards what was not flushed: [`Embedding::reset_discarding`](crate::Embedding::reset_discarding).
            ///
            /// # Errors
            /// As [`Embedding::reset_discarding`](crate::Embedding::reset_discarding).
            pub fn reset_discarding(&mut self) -> Result<(), Error> {
                $crate::lookup::Embedding::reset_discarding(self)
            }

            /// Replaces the weights of linear rows; the optimiser state stays: [`Embedding::write_rows`](crate::Embedding::write_rows).
            ///
            /// # Errors
            /// As [`Embedding::write_rows`](crate::Embedding::write_rows).
            pub fn write_rows(&mut self, rows: &[u32], values: &[f32]) -> Result<(), Error> {
                $crate::lookup::Embedding::write_rows(self, rows, values)
            }

            /// Pins exactly these rows and returns those that found no place: [`Embedding::pin`](crate::Embedding::pin).
            ///
            /// # Errors
            /// As [`Embedding::pin`](crate::Embedding::pin).
            pub fn pin(&mut self, rows: &[u32], ways: u32) -> Result<Vec<u32>, Error> {
                $crate::lookup::Embedding::pin(self, rows, ways)
            }

            /// The pinned rows, in slot order: [`Embedding::pinned`](crate::Embedding::pinned).
            ///
            /// # Errors
            /// As [`Embedding::pinned`](crate::Embedding::pinned).
            pub fn pinned(&mut self) -> Result<Vec<u32>, Error> {
                $crate::lookup::Embedding::pinned(self)
            }

            /// Gives the cache another size: [`Embedding::resize_cache`](crate::Embedding::resize_cache).
            ///
            /// # Errors
            /// As [`Embedding::resize_cache`](crate::Embedding::resize_cache).
            pub fn resize_cache(&mut self, cache_rows: u32) -> Result<Vec<u32>, Error> {
                $crate::lookup::Embedding::resize_cache(self, cache_rows)
            }

            /// Reads `out.len()` words of a part, from `first_word` on: [`Embedding::read_part`](crate::Embedding::read_part).
            ///
            /// # Errors
            /// As [`Embedding::read_part`](crate::Embedding::read_part).
            pub fn read_part(
                &mut self,
                part: $crate::table::parts::Part,
                first_word: u64,
                out: &mut [u32],
            ) -> Result<(), Error> {
                $crate::lookup::Embedding::read_part(self, part, first_word, out)
            }

            /// Replaces words of a part, from `first_word` on: [`Embedding::write_part`](crate::Embedding::write_part).
            ///
            /// # Errors
            /// As [`Embedding::write_part`](crate::Embedding::write_part).
            pub fn write_part(
                &mut self,
                part: $crate::table::parts::Part,
                first_word: u64,
                words: &[u32],
            ) -> Result<(), Error> {
                $crate::lookup::Embedding::write_part(self, part, first_word, words)
            }

            /// Everything kept between steps, as one copy in memory: [`Embedding::snapshot`](crate::Embedding::snapshot).
            ///
            /// # Errors
            /// As [`Embedding::snapshot`](crate::Embedding::snapshot).
            pub fn snapshot(&mut self) -> Result<$crate::table::snapshot::Snapshot, Error> {
                $crate::lookup::Embedding::snapshot(self)
            }

            /// Takes over a snapshot of a group of the same configuration: [`Embedding::restore`](crate::Embedding::restore).
            ///
            /// # Errors
            /// As [`Embedding::restore`](crate::Embedding::restore).
            pub fn restore(&mut self, snapshot: &$crate::table::snapshot::Snapshot) -> Result<(), Error> {
                $crate::lookup::Embedding::restore(self, snapshot)
            }
        }
    };
}
pub(crate) use own_embedding;
