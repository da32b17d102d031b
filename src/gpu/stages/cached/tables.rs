//! The buffers that a cached group keeps between steps: records and frequencies by piece, the cache, the counters.

use crate::{
    config::{GroupConfig, Placement},
    error::Error,
    gpu::{
        engine::{
            call::{Call, Groups, Named, bind, named},
            caps::Caps,
            context::Context,
        },
        stages::{ASSIGN, COMBINE, EXCHANGE, GATHER, MERGE, SEND, UPDATE, WEIGHT_GRADIENT, cached::windows::Windows},
    },
    record::init::Filler,
    source::Source,
    store::SharedStore,
    table::{
        abi::{NONE, Params, Piece, Share, features, table_words},
        layout::Layout,
        params::Mode,
        rng::Purpose,
    },
    wgsl::{self, Constants, Kernel, Sizes},
};

/// The frequencies of neighbouring rows, and the uniform that says of which rows.
#[derive(Debug)]
pub(crate) struct Freqs {
    pub(crate) rows: u32,
    pub(crate) piece: wgpu::Buffer,
    pub(crate) counters: wgpu::Buffer,
}

/// Neighbouring pieces of a table that one dispatch binds.
#[derive(Clone, Copy)]
pub(crate) struct BoundPieces<'a> {
    /// The number of the first.
    first: u32,
    /// Their records.
    buffers: &'a [wgpu::Buffer],
}

/// The records that a dispatch binds.
#[derive(Clone, Copy)]
pub(crate) enum RecordBuffers<'a> {
    Pieces(BoundPieces<'a>),
    /// A staged table's transfer.
    Transfer(&'a wgpu::Buffer),
}

#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) layout: Layout,
    /// Step number, then for each table its base, its rows and its counters.
    pub(crate) tables: wgpu::Buffer,
    /// The table of each feature, with its base and rows.
    pub(crate) features: wgpu::Buffer,
    /// The share of each table; without shares only a binding.
    pub(crate) shares: wgpu::Buffer,
    /// Tags, stamps, freqs and flags, set by set.
    pub(crate) ways: wgpu::Buffer,
    /// Slots: dim weights and the state, FP32.
    pub(crate) cache: Windows,
    /// The packed table, one buffer for each piece.
    pub(crate) records: Vec<wgpu::Buffer>,
    /// The counter of every row (LFU, Window), in as few buffers as can hold them. Other policies have one buffer that no stage reads.
    pub(crate) freqs: Vec<Freqs>,
}

named!(Freqs: piece, counters as "freqs");
named!(Tables: tables, features, shares, ways, cache);

impl Tables {
    /// The records that each dispatch over the table binds.
    pub(crate) fn bound(&self, caps: &Caps) -> impl Iterator<Item = BoundPieces<'_>> {
        let at_once = caps.choose_pieces(&self.layout) as usize;
        let bound = self.records.chunks(at_once).enumerate();
        bound.map(move |(i, buffers)| BoundPieces { first: (i * at_once) as u32, buffers })
    }

    /// Builds the pipelines of the stages that work on rows of `layout`, unless they exist.
    pub(crate) fn prepare(context: &Context, config: &GroupConfig, layout: &Layout) -> Result<(), Error> {
        if let Some(rule) = config.own() {
            context.keep_rule(layout.own_rule, wgsl::check_rule(rule)?.wgsl());
        }
        let at_once = context.caps().choose_pieces(layout);
        let (sizes, item) = match (config.placement, layout.pieces % at_once) {
            (Placement::Staged, _) => (vec![1], 1),
            (_, 0) => (vec![at_once], layout.row.item()),
            (_, rest) => (vec![at_once, rest], layout.row.item()),
        };
        let (width, windows) = (layout.width(), layout.windows());
        let texts = Constants::texts(&Params::new(config, layout, Mode::Train, Purpose::WriteBack));
        let all_sizes = texts.into_iter().flat_map(|constants| {
            sizes.iter().map(move |&pieces| Sizes {
                width,
                windows,
                pieces,
                item,
                format: layout.row.precision.format().shader,
                constants,
                own_rule: layout.own_rule,
            })
        });
        let stages = [&EXCHANGE, &GATHER, &WEIGHT_GRADIENT, &MERGE, &COMBINE, &UPDATE, &ASSIGN, &SEND];
        context.prepare(&stages, &all_sizes.collect::<Vec<_>>())
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
        let shares = new_shares(context, &layout)?;
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
            let records = if store.is_some() { 0 } else { layout.table_bytes() };
            host_can_hold(records + layout.freq_bytes(layout.total_rows))?;
        }
        let mut records = Vec::new();
        let mut freqs = Vec::new();
        // A staged table has its records in the store.
        let pieces = if store.is_some() { 0 } else { layout.pieces };
        for index in 0..pieces {
            let rows = layout.piece_rows(index);
            records.push(context.buffer("records", u64::from(rows) * layout.stride(), usage)?);
        }
        for piece in layout.freq_pieces() {
            let counters = context.buffer("freqs", layout.freq_bytes(piece.rows), none)?;
            freqs.push(Freqs { rows: piece.rows, piece: context.uniform(&piece), counters });
        }
        // The table is filled last, so that one that does not fit is refused before any row is packed.
        for (index, buffer) in (0..pieces).zip(&records) {
            fill(context, &filler, &layout, buffer, index * layout.rows_per_piece, layout.piece_rows(index))?;
        }
        Ok(Self { layout, tables, features, shares, ways, cache, records, freqs })
    }
}

/// Uploads the share of each table.
pub(crate) fn new_shares(context: &Context, layout: &Layout) -> Result<wgpu::Buffer, Error> {
    let share = |share: &Share| Share { sets: share.spread(layout.ways).parts(), ..*share };
    let shares =
        if layout.shares.is_empty() { vec![Share::default()] } else { layout.shares.iter().map(share).collect() };
    context.upload("shares", bytemuck::cast_slice(&shares))
}

/// Allocates the metadata of empty ways, and their slots.
pub(crate) fn new_cache(context: &Context, layout: &Layout) -> Result<(wgpu::Buffer, Windows), Error> {
    let ways = context.buffer("ways", (u64::from(layout.slots()) * 16).max(512), wgpu::BufferUsages::empty())?;
    let cache = Windows::new(context, layout)?;
    let word = |set, word| match word {
        0..32 => NONE,
        96.. => layout.empty_flags(set, word - 96),
        _ => 0,
    };
    let sets = layout.sets as usize;
    for first in (0..sets).step_by(4096) {
        let some = first as u32..sets.min(first + 4096) as u32;
        let words: Vec<u32> = some.flat_map(|set| (0..128).map(move |at| word(set, at))).collect();
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

/// Writes the first records of a piece. The device clears a table of zeros by itself.
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
        context.submit(encoder);
        return Ok(());
    }
    filler.chunks(first_row..first_row + rows, |row, words| {
        let at = u64::from(row - first_row) * layout.stride();
        context.queue().write_buffer(buffer, at, bytemuck::cast_slice(words));
        // Submits the staged bytes, so that a large table does not collect on the host.
        context.submit(None);
        Ok(())
    })
}

impl<'b> RecordBuffers<'b> {
    /// The binding of the first buffer.
    pub(crate) fn as_entire_binding(self) -> wgpu::BindingResource<'b> {
        match self {
            Self::Pieces(bound) => bound.buffers[0].as_entire_binding(),
            Self::Transfer(transfer) => transfer.as_entire_binding(),
        }
    }

    /// The buffers after the first.
    fn others(self) -> &'b [wgpu::Buffer] {
        match self {
            Self::Pieces(bound) => &bound.buffers[1..],
            Self::Transfer(_) => &[],
        }
    }

    /// Entries of a list of rows that a workgroup takes at once: as many as it moves in a turn, or those from which it picks the rows of the
    /// bound pieces (`LISTED` in `shaders/shared/piece_list.wgsl`).
    pub(crate) fn block(self, layout: &Layout) -> u32 {
        match self {
            Self::Pieces(bound) if bound.buffers.len() < layout.pieces as usize => 2048,
            _ => layout.at_once(),
        }
    }
}

impl BoundPieces<'_> {
    /// The uniform that names the pieces.
    pub(crate) fn uniform(self, layout: &Layout, phases: u32) -> Piece {
        layout.neighbours(self.first, self.buffers.len() as u32, phases)
    }
}

impl Call<'_> {
    /// As `run`, for a stage that moves rows of `tables` in a call with `params`. `from` has the first window of the cache; this function adds
    /// the others.
    pub(crate) fn run_rows(
        &mut self,
        kernel: &Kernel,
        from: &[&dyn Named],
        (tables, params): (&Tables, &Params),
        groups: &Groups,
    ) {
        let (width, windows) = (tables.layout.width(), tables.cache.count());
        let own_rule = tables.layout.own_rule;
        let sizes = Sizes { width, windows, constants: Constants::of(params), own_rule, ..Sizes::ONE };
        self.run_sized(kernel, from, tables, sizes, &[], groups);
    }

    /// As `run_rows`, for a stage that reads or writes `records`.
    pub(crate) fn run_records(
        &mut self,
        kernel: &Kernel,
        from: &[&dyn Named],
        (tables, params): (&Tables, &Params),
        records: RecordBuffers<'_>,
        groups: &Groups,
    ) {
        let item = match records {
            RecordBuffers::Pieces(_) => tables.layout.row.item(),
            RecordBuffers::Transfer(_) => 1,
        };
        let others = records.others();
        let (width, windows) = (tables.layout.width(), tables.cache.count());
        let (pieces, constants, own_rule) = (others.len() as u32 + 1, Constants::of(params), tables.layout.own_rule);
        let format = tables.layout.row.precision.format().shader;
        let sizes = Sizes { width, windows, pieces, item, format, constants, own_rule };
        self.run_sized(kernel, &[&("records", records.as_entire_binding()), &from], tables, sizes, others, groups);
    }

    fn run_sized(
        &mut self,
        kernel: &Kernel,
        from: &[&dyn Named],
        tables: &Tables,
        sizes: Sizes,
        pieces: &[wgpu::Buffer],
        groups: &Groups,
    ) {
        let mut all = bind(kernel, from);
        if wgsl::has_windows(kernel) {
            all.extend(tables.cache.others());
        }
        all.extend(pieces.iter().map(wgpu::Buffer::as_entire_binding));
        self.launch(kernel, sizes, &all, groups);
    }
}
