//! A group on a device as a virtual shard (SPEC 11). Its calls wait, as those of [`Embedding`] do.

use crate::{
    error::Error,
    gpu::{cached::group::Group, front::Kind as _},
    lookup::shard::{Shard, check_apply, check_fetch},
    record::wire::{Wire, WireForm},
    scaler::GradSlice,
    table::{layout::ScalerState, parts::Part, step_state::Pending},
};

impl Shard for Group {
    /// The batch has one bag for each table.
    fn fetch(&mut self, rows: &[u32], counts: &[u32]) -> Result<(), Error> {
        let accesses = check_fetch(self, rows, counts)?;
        if accesses == 0 {
            self.abandon_backward();
            let mut t = [0];
            self.read_part(Part::Clock, 0, &mut t)?;
            self.write_part(Part::Clock, 0, &[t[0].wrapping_add(1)])?;
            self.front_mut().state.forward(Pending { indices: 0, bags: 0, weighted: false, space: 0 });
            return Ok(());
        }
        let (mut indices, mut offsets) = (Vec::with_capacity(accesses as usize), vec![0]);
        let (mut base, mut rest) = (0, rows.iter().zip(counts).peekable());
        for &rows in &self.config.tables {
            while let Some((&row, &count)) = rest.next_if(|&(&row, _)| row - base < rows) {
                indices.extend(std::iter::repeat_n(row - base, count as usize));
            }
            base += rows;
            offsets.push(indices.len() as u32);
        }
        self.forward(&indices, &offsets, None).map(drop)
    }

    /// No row goes packed.
    fn send_rows(
        &mut self,
        rows: &[u32],
        form: WireForm,
        step: u32,
        message: &mut Vec<u32>,
    ) -> Result<Vec<bool>, Error> {
        let weights = self.read_rows(rows)?;
        let layout = &self.tables.layout.row;
        let (seed, stripe) = (self.config.seed, self.config.stripe);
        let wire = Wire::new(layout.dim, layout.precision, form, (seed, step), stripe);
        let mut list = wire.begin(rows.len(), message);
        for (&row, weights) in rows.iter().zip(weights.chunks_exact(layout.dim as usize)) {
            wire.push(&mut list, row, weights, message);
        }
        Ok(vec![false; rows.len()])
    }

    /// Puts the accesses in the place of those that linearize and gather have listed.
    fn apply(
        &mut self,
        accesses: &[[u32; 2]],
        factors: bool,
        gradients: &[f32],
        scaler: &ScalerState,
    ) -> Result<(), Error> {
        let pending = self.front.state.wants_forward("apply")?;
        let dim = self.tables.layout.row.dim;
        check_apply(pending.indices, dim, accesses, gradients.len())?;
        if let Some(space) = self.train[pending.space].as_ref().filter(|_| pending.indices > 0) {
            self.front.context.queue().write_buffer(&space.access, 0, bytemuck::cast_slice(accesses));
        }
        let bags = (gradients.len() / dim as usize) as u32;
        self.front.state.forward(Pending { bags, weighted: factors, ..pending });
        self.backward_scaled(GradSlice::F32(gradients), scaler)
    }

    fn give_up(&mut self) {
        self.abandon_backward();
    }
}
