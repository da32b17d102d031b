//! The stages of a backward that sorts: it orders the chunks by where they begin, so that one invocation can sum the gradients of a weight.

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind::FloatBuffer,
            call::{Call, Groups, Named},
            context::Context,
        },
        robe::SharedGroup,
        stages::{
            ARRANGE, COMBINE, ROBE_KEYS, ROBE_MERGE,
            robe::space::{Chunks, GradientSums, Space, Uniforms},
            sort::{
                dedup,
                space::{DedupTo, SortJob},
            },
        },
    },
    table::{
        abi::{COMBINE_TILES, MERGE_CHUNK, Params, Robe, count},
        batch,
        params::Mode,
        rng::Purpose,
        step_state::Pending,
    },
};

/// A forward that waits for its backward, and the sizes and parameters of that backward.
pub(crate) struct Waiting {
    pub(crate) params: Params,
    pub(crate) robe: Robe,
    pub(crate) indices: u32,
    /// Number of gradients: one for each element of the outputs.
    gradients: u64,
    pub(crate) chunks: u32,
    /// The forward's number.
    pub(crate) number: u32,
}

impl Waiting {
    /// Binds the gradients, which must be as many as the outputs had elements.
    pub(crate) fn bind<'b>(
        &self,
        context: &Context,
        grad_outputs: FloatBuffer<'b>,
    ) -> Result<wgpu::BindingResource<'b>, Error> {
        let (slice, wanted) = grad_outputs.wanted(self.gradients);
        context.bind("grad_outputs", slice, wanted)
    }
}

impl<'a> GradientSums<'a> {
    pub(crate) fn new(
        context: &Context,
        waiting: &Waiting,
        scratch: &'a mut Option<Chunks>,
        grad_outputs: FloatBuffer<'a>,
    ) -> Result<Self, Error> {
        let &Waiting { params, robe, chunks, .. } = waiting;
        let bound = waiting.bind(context, grad_outputs)?;
        let params = Params { half_grads: u32::from(grad_outputs.is_half()), ..params };
        let scratch = Chunks::grown(scratch, context, &robe, chunks)?;
        let uniforms = Uniforms::new(context, &params, &robe);
        Ok(Self { uniforms, params, robe, scratch, chunks, grad_outputs: bound })
    }

    /// Encodes the stages of a backward, in order, up to the one that sums by weight.
    pub(crate) fn sort(&self, call: &mut Call<'_>, space: &Space, scaler: &wgpu::Buffer) {
        let (step, n) = (&space.step, self.chunks);
        call.run(&ROBE_KEYS, &[self, space], &Groups::of(n, 256));
        let Chunks { keys, access, segment, starts, sorted, sort, .. } = self.scratch;
        // Enough bits to order every start, with NONE behind them all.
        let key_bits = u32::BITS - self.robe.starts.leading_zeros();
        let job = SortJob {
            keys: keys.as_entire_binding(),
            values: None,
            capacity: n,
            count: count::CHUNKS,
            key_bits,
            counted: None,
        };
        let to = DedupTo { segment, starts, segments: count::UNIQUE, valid: count::VALID, base: None };
        let order = dedup::encode(call, step, &job, sorted, sort, &to).values;
        let from: &[&dyn Named] = &[
            &("step", step),
            &("order", order),
            &("keys", keys),
            &("places", keys),
            &("swaps", keys),
            &("access", access),
            &("scaler", scaler),
            self,
        ];
        call.run(&ARRANGE, from, &Groups::of(n, 256));
        // A batch of one chunk of sums has no partial rows.
        if n > MERGE_CHUNK {
            let tiles = n.div_ceil(MERGE_CHUNK);
            call.run(&ROBE_MERGE, &[self], &Groups::capped(2 * tiles, 256 / self.params.lanes));
            call.run(&COMBINE, &[self], &Groups::capped(tiles, COMBINE_TILES));
        }
    }
}

impl SharedGroup {
    /// Prepares the backward of the last forward for `call`; an error if no forward waits.
    pub(crate) fn waiting_for(&self, call: &'static str) -> Result<Waiting, Error> {
        let Pending { indices, bags, weighted, number, .. } = self.state.wants_forward(call)?;
        // A batch without an index has scratch, too.
        let chunks = self.kind.config.batch_chunks(indices, bags)?.max(1);
        let robe = Robe { dense_from: self.dense_from(), ..self.kind.array.robe };
        let gradients = u64::from(batch::output_rows(&self.kind.rows, indices, bags)) * u64::from(self.kind.config.dim);
        let params = Params::new(&self.kind.rows, &self.kind.layout, Mode::Train, Purpose::Update);
        let params = params.batch(indices, bags, weighted).chunk_sums(&robe);
        Ok(Waiting { params, robe, indices, gradients, chunks, number })
    }
}
