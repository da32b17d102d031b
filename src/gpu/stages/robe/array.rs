//! The buffers that a parameter-shared table keeps between steps.

use crate::{
    error::Error,
    gpu::{
        engine::{
            call::{Call, Groups, Named, bind},
            context::Context,
        },
        stages::{ROBE_DECODE, ROBE_GATHER, ROBE_WEIGHT_GRADIENT, cached::tables::host_can_hold},
    },
    robe::{config::Config, storage::Storage},
    table::abi::{Robe, features, table_words},
    wgsl::{Kernel, Sizes},
};

#[derive(Debug)]
pub(crate) struct Array {
    /// Step number, then for each table its base, its rows and its counters.
    pub(crate) tables: wgpu::Buffer,
    /// The table of each feature.
    pub(crate) features: wgpu::Buffer,
    /// The shared weights, one buffer for each window.
    pub(crate) memory: Vec<wgpu::Buffer>,
    /// The states of the weights, if the optimiser has any, in the same windows.
    pub(crate) states: Vec<wgpu::Buffer>,
    pub(crate) storage: Storage,
    /// The uniform, with windows that the device can bind.
    pub(crate) robe: Robe,
    /// Words of each window, of weights and of states; the last window may have fewer.
    pub(crate) window: [usize; 2],
}

/// `window` is the first window of the weights.
impl Named for Array {
    fn named(&self, name: &str) -> Option<wgpu::BindingResource<'_>> {
        let buffer = match name {
            "tables" => &self.tables,
            "features" => &self.features,
            "window" => &self.memory[0],
            _ => return None,
        };
        Some(buffer.as_entire_binding())
    }
}

impl Call<'_> {
    /// As `run`, for a stage that reads all windows of `array`.
    pub(crate) fn run_windows(&mut self, kernel: &Kernel, from: &[&dyn Named], array: &Array, groups: &Groups) {
        let mut all = bind(kernel, from);
        all.extend(array.memory[1..].iter().map(wgpu::Buffer::as_entire_binding));
        self.launch(kernel, Sizes { windows: array.memory.len() as u32, ..Sizes::ONE }, &all, groups);
    }
}

impl Array {
    pub(crate) fn new(context: &Context, config: &Config) -> Result<Self, Error> {
        let none = wgpu::BufferUsages::empty();
        let rows = config.rows();
        let config = &config.bound(context.caps().choose_piece_bytes());
        let (storage, robe) = (config.storage(), config.robe());
        let (windows, most) = (config.windows(), context.caps().choose_windows());
        if windows > most {
            let limit = u64::from(most) * config.window_bytes.unwrap_or(u64::MAX);
            let remedy =
                "compress more: the shared weights are cut into as many windows as a stage has storage buffers for";
            return Err(Error::TooLarge { what: "weights", wanted: config.table_bytes(), limit, remedy });
        }
        if context.caps().device_type == wgpu::DeviceType::Cpu {
            host_can_hold(config.table_bytes())?;
        }
        context.prepare(&[&ROBE_GATHER, &ROBE_DECODE, &ROBE_WEIGHT_GRADIENT], &[Sizes { windows, ..Sizes::ONE }])?;
        let each = storage.words_of(robe.window);
        let words = config.window_words(&storage);
        let of = |what, words: usize| context.buffer(what, 4 * words as u64, none);
        let this = Self {
            memory: words.iter().map(|window| of("weights", window.memory)).collect::<Result<_, _>>()?,
            states: words.iter().map(|window| of("states", window.states)).collect::<Result<_, _>>()?,
            tables: context.upload("tables", bytemuck::cast_slice(&table_words(&rows)))?,
            features: context.upload("features", bytemuck::cast_slice(&features(&rows)))?,
            storage,
            robe,
            window: [each.memory, each.states],
        };
        config.initial(&this.storage, |at, [words, begun]| {
            this.write_memory(context, at[0], words);
            write(context, &this.states, this.window[1], at[1], begun);
            // Submits the staged bytes, so that a large array does not collect on the host.
            context.submit(None);
            Ok(())
        })?;
        Ok(this)
    }

    /// Writes words of the array from word `at` on.
    pub(crate) fn write_memory(&self, context: &Context, at: usize, words: &[u32]) {
        write(context, &self.memory, self.window[0], at, words);
    }

    /// Writes all states.
    pub(crate) fn write_states(&self, context: &Context, words: &[u32]) {
        write(context, &self.states, self.window[1], 0, words);
    }
}

fn write(context: &Context, windows: &[wgpu::Buffer], each: usize, at: usize, words: &[u32]) {
    let (mut at, mut words) = (at, words);
    while !words.is_empty() {
        let (window, first) = (at / each, at % each);
        let (now, later) = words.split_at(words.len().min(each - first));
        context.queue().write_buffer(&windows[window], 4 * first as u64, bytemuck::cast_slice(now));
        (at, words) = (at + now.len(), later);
    }
}
