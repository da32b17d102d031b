//! The calls of a group of shared tables that take host slices. Each uploads, submits and waits.

use crate::{
    error::Error,
    gpu::{
        counters_async::LatestCopy,
        robe::SharedGroup,
        upload::{UploadedGrads, floats},
    },
    host::alloc::zeroed,
    lookup::SharedArray,
    robe::{RobeSnapshot, check_gradient, check_weights, config::Config, counter_words, counters_of},
    scaler::GradSlice,
    table::{
        abi::{ScalerState, features, table_words},
        batch,
        layout::Layout,
        rng::Purpose,
    },
};

impl SharedGroup {
    /// Goes on with the same array under another configuration: other tables, features, chunk, pooling, learning rate or backward. Weights,
    /// states and step number stay. The counters stay if the tables are the same; else they start at zero.
    ///
    /// # Errors
    /// [`Error::Config`] for an illegal configuration, or one that needs another array; [`Error::Order`] between forward and backward;
    /// after these errors nothing has changed. [`Error::Device`] if the device is lost.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn reconfigure(&mut self, config: Config) -> Result<(), Error> {
        self.waiting(Some("reconfigure"), |this| {
            this.state.not_pending("reconfigure")?;
            config.check()?;
            let most = this.context.caps().choose_piece_bytes();
            this.kind.config.bound(most).same_array(&config.bound(most))?;
            let rows = config.rows();
            let layout = Layout::new(&rows, u64::MAX)?;
            let scattered = crate::gpu::stages::robe::space::Scattered::new(&this.context, &config)?;
            let features = this.context.upload("features", bytemuck::cast_slice(&features(&rows)))?;
            if config.tables != this.kind.config.tables {
                let mut words = table_words(&rows);
                words[0] = this.context.download_part(&this.kind.array.tables, 0..4)?[0];
                this.latest = LatestCopy::default();
                this.kind.array.tables = this.context.upload("tables", bytemuck::cast_slice(&words))?;
            }
            this.kind.array.features = features;
            this.kind.array.robe = config.bound(most).robe();
            (this.kind.config, this.kind.rows, this.kind.layout) = (config, rows, layout);
            // The size of the scratch depends on the chunk.
            (this.kind.train, this.kind.frozen, this.kind.chunks) = (None, None, None);
            this.kind.scattered = scattered;
            this.context.forget_bindings();
            this.renew_readers();
            Ok(())
        })
    }

    /// Replaces the shared weights, rounded to the array's precision by [`Config::write_rounding`]. The optimiser's state stays.
    ///
    /// # Errors
    /// [`Error::Length`] unless there are |M| weights; [`Error::Source`] for the first weight that is not finite, and for the first block
    /// whose range has no finite scale; [`Error::Order`] between forward and backward. After these errors nothing has changed.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn write_weights(&mut self, weights: &[f32]) -> Result<(), Error> {
        let begins = self.kind.config.optimizer.kind.facts().begins;
        let mut states = if begins { self.snapshot()?.state_words } else { Vec::new() };
        self.waiting(Some("write_weights"), |this| {
            this.state.not_pending("write_weights")?;
            check_weights(&this.kind.config, weights)?;
            let step = this.context.download_part(&this.kind.array.tables, 0..4)?[0];
            let storage = &this.kind.array.storage;
            let mut words = zeroed("weights", storage.all().memory)?;
            storage.pack(&this.kind.config.noise(step, Purpose::Write), 0, weights, &mut words)?;
            this.kind.array.write_memory(&this.context, 0, &words);
            this.kind.config.begin(weights, &mut states);
            this.kind.array.write_states(&this.context, &states);
            Ok(())
        })
    }
}

impl SharedArray for SharedGroup {
    fn config(&self) -> &Config {
        &self.kind.config
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn snapshot(&mut self) -> Result<RobeSnapshot, Error> {
        self.waiting(None, |this| {
            let array = &this.kind.array;
            let all = array.storage.all();
            let mut parts = vec![(&array.tables, array.tables.size())];
            let sizes = [all.memory, all.states].into_iter().zip(array.window);
            for (windows, (words, each)) in [&array.memory, &array.states].into_iter().zip(sizes) {
                let of = |k| 4 * words.saturating_sub(k * each).min(each) as u64;
                parts.extend(windows.iter().enumerate().map(|(k, window)| (window, of(k))));
            }
            let mut words = this.context.download(this.context.new_encoder(), &parts)?;
            let states = words.split_off(1 + array.memory.len());
            Ok(RobeSnapshot {
                t: words[0][0],
                weight_words: words[1..].concat(),
                state_words: states.concat(),
                counters: counters_of(&this.kind.config, &words[0]),
            })
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn restore(&mut self, snapshot: &RobeSnapshot) -> Result<(), Error> {
        self.waiting(Some("restore"), |this| {
            snapshot.check(&this.kind.config)?;
            this.state.end_forward();
            let (queue, array) = (this.context.queue(), &this.kind.array);
            let words = counter_words(&this.kind.config, snapshot.t, &snapshot.counters);
            queue.write_buffer(&array.tables, 0, bytemuck::cast_slice(&words));
            array.write_memory(&this.context, 0, &snapshot.weight_words);
            array.write_states(&this.context, &snapshot.state_words);
            this.context.check_lost("nothing written")?;
            this.renew_readers();
            Ok(())
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn gradient(&mut self, grad_outputs: GradSlice<'_>) -> Result<Vec<f32>, Error> {
        self.waiting(Some("gradient"), |this| {
            batch::check_grads(&this.kind.rows, this.state.wants_forward("gradient")?, grad_outputs.len())?;
            let context = this.context.clone();
            let uploaded = UploadedGrads::new(&context, grad_outputs)?;
            let bytes = 4 * u64::from(this.kind.config.weights);
            let sums = context.buffer("gradient", bytes, wgpu::BufferUsages::empty())?;
            let mut encoder = context.new_encoder();
            this.encode_gradient(&mut encoder, uploaded.buffer(), sums.slice(..))?;
            Ok(floats(&context.download(encoder, &[(&sums, bytes)])?[0]))
        })
    }

    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    fn step_scaled(&mut self, gradient: &[f32], scaler: &ScalerState) -> Result<(), Error> {
        scaler.decided()?;
        self.waiting(Some("step"), |this| {
            this.state.wants_forward("step")?;
            check_gradient(&this.kind.config, gradient)?;
            let context = this.context.clone();
            let uploaded = context.upload("gradient", bytemuck::cast_slice(gradient))?;
            let mut encoder = context.new_encoder();
            this.encode_given(&mut encoder, uploaded.slice(..), &context.uniform(&scaler.verdict()))?;
            context.download(encoder, &[]).map(drop)
        })
    }
}
