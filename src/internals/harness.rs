//! Runs single stages on host data, which tests compare with plain functions. Not part of the public interface.

use crate::{
    error::Error,
    gpu::{
        engine::{
            bind_cache::passing,
            call::{Call, Groups},
            context::Context,
        },
        stages::sort::{
            dedup,
            space::{DedupTo, SortJob, SortScratch, SortSpace},
        },
    },
    table::{
        abi::{Params, Piece, Robe, Step, count},
        row::quad_width,
    },
    wgsl as shader,
    wgsl::{Access, Kernel, Sizes},
};

/// A sorted batch of keys and its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deduped {
    /// The keys, ascending.
    pub keys: Vec<u32>,
    /// The position that each key had.
    pub order: Vec<u32>,
    /// For each key, the number of its distinct key.
    pub segment: Vec<u32>,
    /// The position at which each distinct key begins.
    pub starts: Vec<u32>,
}

impl Context {
    fn words(&self, words: &[u32]) -> Result<wgpu::Buffer, Error> {
        let buffer = self.buffer("words", words.len() as u64 * 4, wgpu::BufferUsages::empty())?;
        self.queue().write_buffer(&buffer, 0, bytemuck::cast_slice(words));
        Ok(buffer)
    }

    /// Runs `kernel` once on `bindings` (in order, as words) and returns the bindings afterwards. The cache is one array here, and so are a
    /// shared array and the records; the device gets them in windows and pieces if `Params`, `Robe` or `Piece` say so.
    ///
    /// # Errors
    /// The errors of the allocations and downloads.
    #[doc(hidden)]
    pub fn run_stage(&self, kernel: &Kernel, bindings: &[Vec<u32>], groups: u32) -> Result<Vec<Vec<u32>>, Error> {
        let mut sizes = Sizes::ONE;
        let mut bindings = bindings.to_vec();
        let (cache, records) = (shader::window_binding(kernel), shader::piece_binding(kernel));
        if let Some(array) = cache.filter(|_| !shader::moves_rows(kernel)) {
            // The second binding describes a shared array.
            let robe: Robe = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&bindings[1]));
            sizes.windows = robe.weights.div_ceil(robe.window);
            for window in (1..sizes.windows).rev() {
                let words = bindings[array].split_off((window * robe.window_words) as usize);
                bindings.insert(kernel.bindings.len(), words);
            }
        }
        if shader::moves_rows(kernel) {
            // The first binding is the `Params`.
            let params: Params = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&bindings[0]));
            sizes.width = quad_width(params.dim);
            if let Some(cache) = cache
                && (1..params.slots).contains(&params.window_slots)
            {
                let each = (params.window_slots * params.row_quads * sizes.width) as usize;
                sizes.windows = params.slots.div_ceil(params.window_slots);
                // The last window also has the words that a test has put behind the slots.
                for window in (1..sizes.windows as usize).rev() {
                    let words = bindings[cache].split_off(window * each);
                    bindings.insert(kernel.bindings.len(), words);
                }
            }
            if let Some(records) = records {
                // The second binding is the `Piece`.
                let piece: Piece = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&bindings[1]));
                let floats = params.bits >= 16 && sizes.width == 4 && params.record_words.is_multiple_of(4);
                sizes.item = if floats && piece.swaps == 0 { 4 } else { 1 };
                sizes.pieces = piece.rows.div_ceil(piece.rows_each);
                let first = bindings.len();
                for bound in (1..sizes.pieces).rev() {
                    let words = bindings[records].split_off((bound * piece.rows_each * params.record_words) as usize);
                    bindings.insert(first, words);
                }
            }
        }
        let mut left = self.run_bound(kernel, sizes, &bindings, groups.into())?;
        let pieces = left.split_off(kernel.bindings.len() + sizes.windows as usize - 1);
        let windows = left.split_off(kernel.bindings.len());
        if let Some(cache) = cache {
            left[cache].extend(windows.concat());
        }
        if let Some(records) = records {
            left[records].extend(pieces.concat());
        }
        Ok(left)
    }

    /// Runs `text` in place of a kernel's own once on all its bindings for `sizes`, and returns them afterwards.
    ///
    /// # Errors
    /// As [`Self::run_stage`]; [`Error::Unsupported`] if the text does not compile.
    #[doc(hidden)]
    pub fn run_text(
        &self,
        text: String,
        (kernel, sizes): (&Kernel, Sizes),
        bindings: &[Vec<u32>],
        [x, y]: [u32; 2],
    ) -> Result<Vec<Vec<u32>>, Error> {
        let alone = Self::with_texts(self.device(), self.queue(), &[], x, move |_, _| text.clone())?;
        alone.guarded(|| alone.run_bound(kernel, sizes, bindings, u64::from(x) * u64::from(y)))
    }

    fn run_bound(
        &self,
        kernel: &Kernel,
        sizes: Sizes,
        bindings: &[Vec<u32>],
        groups: u64,
    ) -> Result<Vec<Vec<u32>>, Error> {
        use wgpu::util::DeviceExt as _;
        self.build(std::iter::once((kernel, sizes)))?;
        let mut buffers = Vec::new();
        for (words, (access, _)) in bindings.iter().zip(shader::bindings(kernel, sizes)) {
            buffers.push(if access == Access::Uniform {
                self.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
                    label: Some("hotrow.harness"),
                    contents: bytemuck::cast_slice(words),
                    usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_SRC,
                })
            } else {
                self.words(words)?
            });
        }
        let resources: Vec<_> = buffers.iter().map(passing).collect();
        let mut encoder = self.new_encoder();
        let groups = Groups::Direct(groups);
        Call::begin(self, &mut encoder, "hotrow.harness").launch(kernel, sizes, &resources, &groups);
        let sources = buffers.iter().zip(bindings).map(|(buffer, words)| (buffer, words.len() as u64 * 4));
        self.download(encoder, &sources.collect::<Vec<_>>())
    }

    /// Sorts and dedups the first `live` of `keys` by their low `key_bits` bits; with `large`, pass by pass even for few keys.
    ///
    /// # Errors
    /// The errors of the allocations and downloads.
    #[doc(hidden)]
    pub fn run_dedup(&self, keys: &[u32], live: u32, key_bits: u32, large: bool) -> Result<Deduped, Error> {
        let n = keys.len() as u32;
        let mut step = Step::default();
        step.counts[count::INDICES] = live;
        let step = self.words(bytemuck::cast_slice(&[step]))?;
        let space = SortSpace::new(self, n)?;
        let scratch = SortScratch::new(self, n)?;
        let (source, segment, starts) =
            (self.words(keys)?, self.words(&vec![0; n as usize])?, self.words(&vec![0; n as usize])?);
        let job = SortJob {
            keys: passing(&source),
            values: None,
            capacity: n,
            count: count::INDICES,
            key_bits,
            counted: None,
        };
        let to =
            DedupTo { segment: &segment, starts: &starts, segments: count::UNIQUE, valid: count::VALID, base: None };
        let mut encoder = self.new_encoder();
        let record = if large { dedup::encode_large } else { dedup::encode };
        let sorted = record(&mut Call::begin(self, &mut encoder, "hotrow.dedup"), &step, &job, &space, &scratch, &to);
        let bytes = u64::from(n) * 4;
        let sources = [
            (sorted.keys, bytes),
            (sorted.values, bytes),
            (&segment, bytes),
            (&starts, bytes),
            (&step, size_of::<Step>() as u64),
        ];
        let words = self.download(encoder, &sources)?;
        let [keys, order, segment, starts, step] = words.try_into().unwrap_or([const { Vec::new() }; 5]);
        let step: Step = bytemuck::pod_read_unaligned(bytemuck::cast_slice(&step));
        let shortened = |mut words: Vec<u32>, n: u32| {
            words.truncate(n as usize);
            words
        };
        Ok(Deduped {
            keys: shortened(keys, live),
            order: shortened(order, live),
            segment: shortened(segment, step.counts[count::VALID]),
            starts: shortened(starts, step.counts[count::UNIQUE]),
        })
    }
}
