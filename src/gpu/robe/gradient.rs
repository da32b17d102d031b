//! The gradient of the shared weights, for an optimiser of the caller's.

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind::{GradBuffer, names},
            call::{Call, Groups, Named},
            numbers::CONTINUED,
            readback::Tells,
        },
        robe::SharedGroup,
        stages::{
            ROBE_COVERED, ROBE_GRADIENT, ROBE_RUNS,
            robe::space::{GradientSums, RUNS_BLOCK, Runs},
            sort::radix::encode_scan,
        },
        upload::{UploadedGrads, floats},
    },
    robe::gradient::Gradient,
    scaler::GradSlice,
    table::{
        abi::{ScalerState, ScanInfo, count},
        batch,
    },
};

/// The caller's buffers for a gradient of the shared weights: whole buffers or parts of them, each with the usages `STORAGE` and
/// `COPY_DST`. None of these buffers may hold anything else of the call.
///
/// ```
/// use hotrow::wgpu::{self, BufferUsages, util::DeviceExt as _};
/// use hotrow::{GradBuffer, GradientBuffer, SharedGroup, adapter, prelude::*, robe};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// let Ok(context) = adapter::open_best(adapter::Wanted::Any) else { return Ok(()) };
/// let buffer = |values: &[f32]| {
///     context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
///         label: None,
///         contents: bytemuck::cast_slice(values),
///         usage: BufferUsages::STORAGE | BufferUsages::COPY_DST,
///     })
/// };
/// let mut table = SharedGroup::new(&context, robe::Config::new(&[1000], 4, 64, 4))?;
/// table.forward(&[7], &[0, 1], None)?;
/// let (grads, sums) = (buffer(&[1.0; 4]), buffer(&[0.0; 64]));
/// let mut encoder = context.device().create_command_encoder(&Default::default());
/// table.encode_gradient(&mut encoder, GradBuffer::F32(grads.slice(..)), GradientBuffer::Dense(sums.slice(..)))?;
/// context.queue().submit([encoder.finish()]); // `sums` is for an optimiser of yours
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum GradientBuffer<'a> {
    /// `[|M|]` floats, one for each weight, and 0 for a weight that no chunk of the batch covers.
    Dense(wgpu::BufferSlice<'a>),
    /// The weights that the batch's chunks cover. `locations` and `sums` need room for
    /// [`Config::most_covered`](crate::robe::config::Config::most_covered) entries for the batch's indices. Entries beyond `count` stay as
    /// they were.
    Sparse {
        /// The places of these weights in the array, strictly ascending (`u32`).
        locations: wgpu::BufferSlice<'a>,
        /// The gradient of each of these weights (`f32`).
        sums: wgpu::BufferSlice<'a>,
        /// The number of these weights: one `u32`.
        count: wgpu::BufferSlice<'a>,
    },
}

impl SharedGroup {
    /// Encodes the gradient of the last forward's loss with respect to the shared weights, from the gradients of its outputs. The stages
    /// and the order of the sums are those of [`encode_backward`](Self::encode_backward). No weight changes, and the forward still waits
    /// for its backward or for [`discard_pending`](crate::Lookup::discard_pending).
    ///
    /// # Errors
    /// As [`encode_backward`](Self::encode_backward); [`Error::Buffer`] for buffers that cannot be bound, are too short, lack a usage, or
    /// are used twice.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn encode_gradient(
        &mut self,
        encoder: &mut wgpu::CommandEncoder,
        grad_outputs: GradBuffer<'_>,
        into: GradientBuffer<'_>,
    ) -> Result<(), Error> {
        let context = self.context.clone();
        context.guarded(|| {
            let waiting = self.waiting_for("encode_gradient")?;
            into.check(grad_outputs.slice())?;
            let most = 4 * u64::from(self.kind.config.most_covered(waiting.indices));
            let space = self.kind.train.as_ref().filter(|_| waiting.chunks > 0);
            let step = space.map(|space| space.step.clone());
            if let Some(step) = &step {
                self.numbers.encode(&context, encoder, (step, CONTINUED), waiting.number);
            }
            match into {
                GradientBuffer::Dense(sums) => {
                    let bound = context.bind("gradient's sums", sums, 4 * u64::from(self.kind.config.weights))?;
                    let Some(space) = space else {
                        encoder.clear_buffer(
                            sums.buffer(),
                            sums.offset(),
                            Some(4 * u64::from(self.kind.config.weights)),
                        );
                        return Ok(());
                    };
                    let gradients = GradientSums::new(&context, &waiting, &mut self.kind.chunks, grad_outputs)?;
                    let call = &mut Call::begin(&context, encoder, "hotrow.robe.gradient");
                    gradients.sort(call, space, &context.uniform(&ScalerState::unscaled()));
                    call.run(
                        &ROBE_GRADIENT,
                        &[&gradients, &("sums", bound)],
                        &Groups::capped(gradients.robe.weights, 256),
                    );
                }
                GradientBuffer::Sparse { locations, sums, count: counted } => {
                    let [locations, sums] = [("gradient's locations", locations), ("gradient's sums", sums)]
                        .map(|(what, slice)| context.bind_or(what, Some(slice), most, &self.dummy.as_entire_binding()));
                    let (locations, sums) = (locations?, sums?);
                    let Some(space) = space else {
                        encoder.clear_buffer(counted.buffer(), counted.offset(), Some(4));
                        return Ok(());
                    };
                    let gradients = GradientSums::new(&context, &waiting, &mut self.kind.chunks, grad_outputs)?;
                    let runs = Runs::grown(&mut self.kind.runs, &context, gradients.starts())?;
                    let mut call = Call::begin(&context, encoder, "hotrow.robe.gradient");
                    gradients.sort(&mut call, space, &context.uniform(&ScalerState::unscaled()));
                    let from: &[&dyn Named] = &[&gradients, runs, &("locations", locations), &("sums", sums)];
                    call.run(&ROBE_RUNS, from, &Groups::capped(gradients.starts(), RUNS_BLOCK));
                    let info = ScanInfo {
                        count: count::UNIQUE as u32,
                        capacity: gradients.starts(),
                        per_block: RUNS_BLOCK,
                        rows: 1,
                        clears: 0,
                    };
                    encode_scan(&mut call, &info, &space.step, &runs.blocks, &runs.total, &self.dummy);
                    let covered = (gradients.starts() * gradients.robe.reach).min(gradients.robe.weights);
                    call.run(&ROBE_COVERED, from, &Groups::capped(covered, 256));
                    drop(call);
                    encoder.copy_buffer_to_buffer(&runs.total, 0, counted.buffer(), counted.offset(), 4);
                }
            }
            if let Some(step) = &step {
                self.reports.encode(&context, encoder, step, Tells::Continues("encode_gradient"));
            }
            Ok(())
        })
    }

    /// Returns the gradient of the last forward's loss with respect to the shared weights, from the gradients of its outputs, FP32 or FP16.
    /// [`Config::is_dense`](crate::robe::config::Config::is_dense) says whether it is dense or sparse. The stages and the order of the sums
    /// are those of [`backward`](crate::Lookup::backward). No weight changes, and the forward still waits for its backward.
    ///
    /// # Errors
    /// As [`backward`](crate::Lookup::backward).
    #[cfg(not(target_family = "wasm"))]
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn gradient(&mut self, grad_outputs: GradSlice<'_>) -> Result<Gradient, Error> {
        self.waiting(Some("gradient"), |this| {
            let waiting = this.waiting_for("gradient")?;
            batch::check_grads(&this.kind.rows, this.state.wants_forward("gradient")?, grad_outputs.len())?;
            let context = this.context.clone();
            let uploaded = UploadedGrads::new(&context, grad_outputs)?;
            let (mut encoder, grads) = (context.new_encoder(), uploaded.buffer());
            let make = |what, n: u32| context.buffer(what, 4 * u64::from(n), wgpu::BufferUsages::empty());
            if this.kind.config.is_dense(waiting.indices) {
                let sums = make("sums", this.kind.config.weights)?;
                this.encode_gradient(&mut encoder, grads, GradientBuffer::Dense(sums.slice(..)))?;
                let bytes = 4 * u64::from(this.kind.config.weights);
                return Ok(Gradient::Dense(floats(&context.download(encoder, &[(&sums, bytes)])?[0])));
            }
            let most = this.kind.config.most_covered(waiting.indices);
            let (locations, sums, count) = (make("locations", most)?, make("sums", most)?, make("count", 1)?);
            let into =
                GradientBuffer::Sparse { locations: locations.slice(..), sums: sums.slice(..), count: count.slice(..) };
            this.encode_gradient(&mut encoder, grads, into)?;
            let found = context.download(encoder, &[(&count, 4)])?[0][0];
            let bytes = 4 * u64::from(found.min(most));
            let words = context.download(context.new_encoder(), &[(&locations, bytes), (&sums, bytes)])?;
            Ok(Gradient::Sparse { sums: floats(&words[1]), locations: words.into_iter().next().unwrap_or_default() })
        })
    }
}

impl GradientBuffer<'_> {
    /// Checks that no buffer is used twice and that each can be copied to.
    fn check(&self, grad_outputs: wgpu::BufferSlice<'_>) -> Result<(), Error> {
        let own: &[_] = match self {
            Self::Dense(sums) => &[("gradient's sums", *sums)],
            Self::Sparse { locations, sums, count } => {
                &[("gradient's locations", *locations), ("gradient's sums", *sums), ("gradient's count", *count)]
            }
        };
        let mut others = vec![("grad_outputs", grad_outputs.buffer())];
        for &(what, slice) in own {
            let buffer = slice.buffer();
            if let Some((other, _)) = others.iter().find(|&&(_, other)| other == buffer) {
                let found = format!("that of the {other}");
                return Err(Error::Buffer { what, wanted: "a buffer of its own".into(), found });
            }
            if !buffer.usage().contains(wgpu::BufferUsages::COPY_DST) {
                let found = names(buffer.usage().iter_names());
                return Err(Error::Buffer { what, wanted: "usage COPY_DST".into(), found });
            }
            if slice.size() < 4 || slice.offset() % 4 != 0 {
                let found = format!("{} bytes from byte {} on", slice.size(), slice.offset());
                return Err(Error::Buffer { what, wanted: "whole 4-byte entries".into(), found });
            }
            others.push((what, buffer));
        }
        Ok(())
    }
}
