//! The buffers that a cached group keeps between steps: records and frequencies by shard, the cache, the counters.

use crate::{
    config::{GroupConfig, Placement, Policy},
    error::Error,
    gpu::{
        engine::{
            call::{Call, Groups, StageBindings},
            context::Context,
        },
        stages::cached::windows::Windows,
    },
    record::init::Filler,
    source::Source,
    store::SharedStore,
    table::layout::{Layout, NONE, Shard, features, table_words},
    wgsl,
};

/// The frequencies of neighbouring rows, and the uniform that says of which rows.
#[derive(Debug)]
pub(crate) struct Freqs {
    pub(crate) rows: u32,
    pub(crate) shard: wgpu::Buffer,
    pub(crate) counters: wgpu::Buffer,
}

/// The buffers with the bases of the tables and with their counters.
#[derive(Clone, Copy)]
pub(crate) struct Numbering<'a> {
    /// Step number, then for each table its base, its rows and its counters.
    pub(crate) tables: &'a wgpu::Buffer,
    /// The table of each feature, with its base and rows.
    pub(crate) features: &'a wgpu::Buffer,
}

#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) layout: Layout,
    /// Step number, then for each table its base, its rows and its counters.
    pub(crate) tables: wgpu::Buffer,
    /// The table of each feature, with its base and rows.
    pub(crate) features: wgpu::Buffer,
    /// Tags, stamps, freqs and flags, set by set.
    pub(crate) ways: wgpu::Buffer,
    /// Slots: dim weights and the state, FP32.
    pub(crate) cache: Windows,
    /// The packed table, one buffer for each shard.
    pub(crate) records: Vec<wgpu::Buffer>,
    /// LFU's counter of every row, in as few buffers as can hold them. LRU has one buffer that no stage reads.
    pub(crate) freqs: Vec<Freqs>,
    /// A uniform for each shard, for the phase that packs, or for both phases if there is one shard.
    pub(crate) packs: Vec<wgpu::Buffer>,
    /// A uniform for each shard, for the phase that unpacks.
    pub(crate) unpacks: Vec<wgpu::Buffer>,
}

impl Tables {
    pub(crate) fn numbering(&self) -> Numbering<'_> {
        Numbering { tables: &self.tables, features: &self.features }
    }

    /// Entries of a list of rows that a workgroup takes at once: as many as it moves in a turn, or those from which it picks the rows of one
    /// of several shards (`LISTED` in `shaders/shared/shard_list.wgsl`).
    pub(crate) fn block(&self) -> u32 {
        if self.records.len() > 1 { 2048 } else { self.layout.at_once() }
    }

    pub(crate) fn new(
        context: &Context,
        config: &GroupConfig,
        layout: Layout,
        source: Option<&dyn Source>,
        store: Option<&SharedStore>,
    ) -> Result<Self, Error> {
        let filler = Filler::new(config, &layout, source)?;
        let none = wgpu::BufferUsages::empty();
        let (ways, cache) = new_cache(context, &layout)?;
        let tables = context.buffer("tables", 4 * table_words(config).len() as u64, none)?;
        let features = context.upload("features", bytemuck::cast_slice(&features(config)))?;
        let queue = context.queue();
        let mut words = table_words(config);
        words[0] = store.map_or(0, |store| store.read().step());
        queue.write_buffer(&tables, 0, bytemuck::cast_slice(&words));

        let usage = match config.placement {
            // MAP_READ without MAP_WRITE gives host-cached memory instead of the window into video memory.
            Placement::Mapped => wgpu::BufferUsages::MAP_READ,
            _ => none,
        };
        if config.placement == Placement::Mapped || context.caps().device_type == wgpu::DeviceType::Cpu {
            let freqs = if config.policy == Policy::Lfu { 4 * u64::from(layout.total_rows) } else { 0 };
            host_can_hold(if store.is_some() { 0 } else { layout.table_bytes() } + freqs)?;
        }
        let mut records = Vec::new();
        let mut freqs = Vec::new();
        // A staged table has its records in the store.
        let shards = if store.is_some() { 0 } else { layout.shards };
        for index in 0..shards {
            let rows = layout.shard_rows(index);
            records.push(context.buffer("records", u64::from(rows) * layout.stride(), usage)?);
        }
        for shard in layout.freq_shards(config.policy) {
            let bytes = if config.policy == Policy::Lfu { u64::from(shard.rows) * 4 } else { 0 };
            let counters = context.buffer("freqs", bytes, none)?;
            freqs.push(Freqs { rows: shard.rows, shard: context.uniform(&shard), counters });
        }
        // The table is filled last, so that one that does not fit is refused before any row is packed.
        for (index, buffer) in (0..shards).zip(&records) {
            fill(context, &filler, &layout, buffer, index * layout.rows_per_shard, layout.shard_rows(index))?;
        }
        let uniforms =
            |phases| (0..shards).map(|shard| context.uniform(&layout.shard(shard, phases))).collect::<Vec<_>>();
        let packs = uniforms(if layout.shards == 1 { Shard::PACK | Shard::UNPACK } else { Shard::PACK });
        let unpacks = uniforms(Shard::UNPACK);
        Ok(Self { layout, tables, features, ways, cache, records, freqs, packs, unpacks })
    }
}

/// Allocates the metadata of empty ways, and their slots.
pub(crate) fn new_cache(context: &Context, layout: &Layout) -> Result<(wgpu::Buffer, Windows), Error> {
    let ways = context.buffer("ways", (u64::from(layout.slots()) * 16).max(512), wgpu::BufferUsages::empty())?;
    let cache = Windows::new(context, layout)?;
    let empty: Vec<u32> = (0..128).map(|word| if word < 32 { NONE } else { 0 }).collect();
    let sets = layout.sets as usize;
    for first in (0..sets).step_by(4096) {
        let words = empty.repeat((sets - first).min(4096));
        context.queue().write_buffer(&ways, first as u64 * 512, bytemuck::cast_slice(&words));
    }
    Ok((ways, cache))
}

/// Checks that the host has the memory, by reserving it in one piece. Drivers hand it out page by page, and a process that uses more than
/// there is dies.
pub(crate) fn host_can_hold(bytes: u64) -> Result<(), Error> {
    let mut whole = Vec::<u8>::new();
    let reserved = usize::try_from(bytes).is_ok_and(|bytes| whole.try_reserve_exact(bytes).is_ok());
    if reserved { Ok(()) } else { Err(Error::OutOfMemory { what: "records", bytes }) }
}

/// Writes the first records of a shard. The device clears a table of zeros by itself.
fn fill(
    context: &Context,
    filler: &Filler<'_>,
    layout: &Layout,
    buffer: &wgpu::Buffer,
    first_row: u32,
    rows: u32,
) -> Result<(), Error> {
    if filler.zeros() {
        let mut encoder = context.new_encoder();
        encoder.clear_buffer(buffer, 0, None);
        context.queue().submit([encoder.finish()]);
        return Ok(());
    }
    filler.chunks(first_row..first_row + rows, |row, words| {
        let at = u64::from(row - first_row) * layout.stride();
        context.queue().write_buffer(buffer, at, bytemuck::cast_slice(words));
        // Submits the staged bytes, so that a large table does not collect on the host.
        context.queue().submit([]);
        Ok(())
    })
}

impl Call<'_> {
    /// As `dispatch`, for a stage that moves rows of `tables`. `bindings` has the first window of the cache; this function adds the others.
    pub(crate) fn dispatch_rows<'b, B: StageBindings<'b>>(&mut self, bindings: B, tables: &'b Tables, groups: &Groups) {
        let cut = (tables.layout.width(), tables.cache.count());
        let bindings = bindings.list();
        if cut.1 == 1 || !wgsl::has_windows(B::KERNEL) {
            return self.launch(B::KERNEL, cut, bindings.as_ref(), groups);
        }
        let all: Vec<_> = bindings.as_ref().iter().cloned().chain(tables.cache.others()).collect();
        self.launch(B::KERNEL, cut, &all, groups);
    }
}
