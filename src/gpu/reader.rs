//! Readers: a caller's own shaders read rows. Readers of all groups have this in common: text, layout, bind group.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use crate::{
    error::Error,
    gpu::{
        counters_async::LatestCopy,
        engine::{bind::names, context::Context},
    },
    grid,
    host::locked,
    table::abi::feedback,
    wgsl::{
        Access, Sizes,
        reader::{ReaderKind, ReaderText, WantedList},
    },
};

/// A caller's wish to read rows in shaders of its own ([`Group::reader`](crate::Group::reader)).
///
/// Example: [`RowReader`].
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    /// The beginning of every name in the WGSL: an ASCII letter, then letters, digits and `_`. Two readers in one module need two prefixes.
    pub prefix: &'a str,
    /// The bind group, by its number. No other variable of the module may be in it.
    pub group: u32,
    /// The stages that read rows.
    pub stages: wgpu::ShaderStages,
    /// Reads the table alone, without a look-up in the cache: faster, and fewer bindings. It gives the newest rows only as long as the cache
    /// is clean, that is from a flush to the next backward or written row. Not for a staged table.
    pub flushed: bool,
    /// Also gives the shaders `P_want` (P is the reader's prefix), which asks the group for rows:
    /// [`Group::encode_feedback`](crate::Group::encode_feedback) then brings them into the cache. One more storage buffer, which fragment and compute stages write.
    pub feedback: Option<Feedback>,
    /// Also gives the shaders `P_grid`: the features of a point of this hash grid, whose levels are the tables of the group. In a staged group
    /// corners that are not in the cache count as 0.
    pub grid: Option<&'a grid::Config>,
}

/// The sizes of a list of rows that shaders want ([`Reader::feedback`]). The buffer has 32 bytes, 8 for each row of the list, and the filter.
///
/// Example: [`RowReader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback {
    /// Most rows that a frame asks for. Further ones are counted as lost, rows in the cache first; a frame that draws the same asks for
    /// them again. The step scratch of the group is made for as many.
    pub rows: u32,
    /// Most bits of the filter that keeps a row from being listed twice. A group of at most as many rows has a bit for each row. In a larger
    /// group rows share bits by a hash that is another one in each frame: of two rows that share a bit only one is listed.
    pub filter_bits: u32,
}

impl Default for Feedback {
    /// 4,096 rows, and a filter of at most 4 MiB.
    fn default() -> Self {
        Self { rows: 4096, filter_bits: 1 << 25 }
    }
}

/// Counts of a reader's feedback since it was made, modulo 2^32 ([`RowReader::try_feedback`]).
///
/// Example: [`RowReader`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeedbackCounts {
    /// Frames: calls of [`Group::encode_feedback`](crate::Group::encode_feedback) that encoded.
    pub frames: u32,
    /// Rows that the frames listed, each once a frame.
    pub wanted: u32,
    /// Rows for which a frame's list had no room.
    pub lost: u32,
    /// Calls of `P_want` with a row beyond the tables.
    pub beyond: u32,
}

impl FeedbackCounts {
    fn of(words: &[u32]) -> Self {
        Self {
            frames: words[feedback::FRAME],
            wanted: words[feedback::WANTED],
            lost: words[feedback::LOST],
            beyond: words[feedback::BEYOND],
        }
    }
}

impl Default for Reader<'_> {
    /// Prefix `rows`, group 0, fragment and compute stages, with the cache, without feedback and grid.
    fn default() -> Self {
        let stages = wgpu::ShaderStages::FRAGMENT | wgpu::ShaderStages::COMPUTE;
        Self { prefix: "rows", group: 0, stages, flushed: false, feedback: None, grid: None }
    }
}

/// Functions for a caller's own shaders that read the rows of a group, and the bindings that they need.
///
/// With prefix `emb` the [WGSL](Self::wgsl) has these functions, for every stage; `row` is a linear row.
///
/// | function | gives |
/// |---|---|
/// | `emb_find(row: u32) -> emb_Place` | where the row is: one look-up. A place is two `u32`, and holds until the next step |
/// | `emb_at(place: emb_Place, quad: u32) -> vec4<f32>` | its values 4 quad to 4 quad + 3 |
/// | `emb_row4(row: u32, quad: u32) -> vec4<f32>` | both at once |
/// | `emb_value(row: u32, i: u32) -> f32` | value i |
/// | `emb_contains(row: u32) -> bool` | whether the values can be read: the row is in the table; staged: in the cache |
/// | `emb_grid(x: vec2<f32>) -> array<f32, L * F>` | the features of a point, `[levels, features]`; `vec3<f32>` in 3D. Only with [`Reader::grid`] |
/// | `emb_want(row: u32)` | nothing; asks for a row. Only with [`Reader::feedback`], in fragment and compute stages |
///
/// The values have the bits of a frozen forward of that row alone. Values behind the last are 0; so are all values of a row beyond
/// the tables and of a staged row that is not in the cache.
///
/// ```
/// use hotrow::{Group, GroupConfig, Init, Reader, adapter, wgpu};
///
/// # fn main() -> Result<(), hotrow::Error> {
/// // A program that has a device and a queue calls `Context::new`.
/// let Ok(context) = adapter::open_best() else { return Ok(()) };
/// let group = Group::new(&context, GroupConfig::new(&[100], 8).with_init(Init::Constant(1.0)).with_cache_rows(32))?;
/// let mut emb = group.reader(Reader { prefix: "emb", group: 1, ..Reader::default() })?;
/// let mine = "@fragment fn main(@builtin(position) at: vec4f) -> @location(0) vec4f { return emb_row4(u32(at.x), 1u); }";
/// let module = context.device().create_shader_module(wgpu::ShaderModuleDescriptor {
///     label: None,
///     source: wgpu::ShaderSource::Wgsl((emb.wgsl().to_owned() + mine).into()),
/// });
/// // In the pipeline's layout, as group 1: emb.layout(). In the pass, in each frame:
/// // pass.set_bind_group(1, emb.bind_group()?, &[]);
/// # let (_, _) = (module, emb.bind_group()?);
/// # Ok(())
/// # }
/// ```
///
/// A bind group keeps the buffers of its group alive. Once the group is dropped, [`bind_group`](Self::bind_group) is an error.
#[derive(Debug)]
pub struct RowReader {
    context: Context,
    wgsl: String,
    bindings: Vec<Binding>,
    layout: wgpu::BindGroupLayout,
    shape: Shape,
    flushed: bool,
    readable: Readable,
    /// Among the readers of the group.
    number: u64,
    bound: Option<(u64, wgpu::BindGroup)>,
    wanted: Option<WantedRows>,
}

/// The list of rows that shaders want, on the device.
#[derive(Debug)]
pub(crate) struct WantedRows {
    pub(crate) list: WantedList,
    pub(crate) buffer: wgpu::Buffer,
    latest: LatestCopy,
}

/// Access, name and number of a binding, as [`ReaderText::buffers`] has them.
type Binding = (Access, &'static str, u32);

/// What a reader's text depends on, and its group may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) sizes: Sizes,
    pub(crate) kind: ReaderKind,
}

/// The buffers of a group that readers bind.
#[derive(Debug)]
pub struct ReadableBuffers {
    /// The shape of a reader that binds all of them.
    pub(crate) shape: Shape,
    /// By the names of [`ReaderText::buffers`].
    pub(crate) buffers: Vec<(&'static str, Vec<wgpu::Buffer>)>,
}

/// The buffers that readers of a group bind now, shared between the group and its readers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readable(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    generation: u64,
    /// `None` before the first reader, and after the group's end.
    buffers: Option<ReadableBuffers>,
    /// Number of readers made.
    readers: u64,
    turns: Turns,
}

/// The order in which readers of a staged group have their feedback taken: one at a time, the one first that has waited longest.
#[derive(Debug, Default)]
struct Turns {
    waiting: VecDeque<u64>,
    /// Readers that were passed over for the first one in line. If one comes again, the first in line has missed its turn.
    passed: BTreeSet<u64>,
}

impl Turns {
    /// Whether it is the turn of `reader`, which asks now; only if the group is `free`. If not, it waits in line.
    fn of(&mut self, reader: u64, free: bool) -> bool {
        if free && self.passed.contains(&reader) {
            self.waiting.pop_front();
            self.passed.clear();
        }
        let first = self.waiting.front().is_none_or(|&first| first == reader);
        if free && first {
            self.waiting.pop_front();
            self.passed.clear();
            return true;
        }
        if !self.waiting.contains(&reader) {
            self.waiting.push_back(reader);
        }
        if free {
            self.passed.insert(reader);
        }
        false
    }
}

impl Readable {
    fn lock(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }

    /// True if the group has readers.
    pub(crate) fn in_use(&self) -> bool {
        self.lock().buffers.is_some()
    }

    /// Puts other buffers in place. Every reader must bind anew.
    pub(crate) fn renew(&self, buffers: ReadableBuffers) {
        let state = &mut *self.lock();
        state.generation += 1;
        state.buffers = Some(buffers);
    }

    /// The group ends.
    pub(crate) fn close(&self) {
        self.lock().buffers = None;
    }
}

impl WantedRows {
    /// A list for a group of `rows` rows.
    fn new(context: &Context, wanted: Feedback, rows: u32) -> Result<Self, Error> {
        if wanted.rows == 0 || wanted.filter_bits == 0 {
            return Err(Error::Reader {
                what: "feedback",
                wanted: "a list of at least one row, and a filter of at least one bit".into(),
                found: format!("rows {}, filter_bits {}", wanted.rows, wanted.filter_bits),
                remedy: "take Feedback::default()",
            });
        }
        let hashed = rows > wanted.filter_bits;
        let bits = if hashed { 1 << wanted.filter_bits.ilog2() } else { rows };
        let list = WantedList { rows: wanted.rows, bits, hashed };
        // Zero from the start, as every buffer of wgpu.
        let buffer = context.buffer("feedback", list.words() * 4, wgpu::BufferUsages::empty());
        let buffer = buffer.map_err(|error| match error {
            Error::TooLarge { what, wanted, limit, .. } => {
                Error::TooLarge { what, wanted, limit, remedy: "make Feedback::rows or Feedback::filter_bits smaller" }
            }
            error => error,
        })?;
        Ok(Self { list, buffer, latest: LatestCopy::default() })
    }

    /// Encodes the end of a frame: an empty list, and a filter that no row has passed.
    pub(crate) fn clear(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.clear_buffer(&self.buffer, feedback::MISSING as u64 * 4, Some(8));
        let filter = self.list.filter() * 4;
        encoder.clear_buffer(&self.buffer, filter, Some(self.list.words() * 4 - filter));
    }
}

impl Shape {
    /// The shape of a reader of the same group that looks into no cache, if `flushed`.
    fn of(self, flushed: bool) -> Self {
        match self.kind {
            ReaderKind::Rows { table, .. } if flushed => {
                let kind = ReaderKind::Rows { cache: false, shares: false, table };
                Self { sizes: Sizes { windows: 1, ..self.sizes }, kind }
            }
            _ => self,
        }
    }

    fn has_cache(self) -> bool {
        matches!(self.kind, ReaderKind::Rows { cache: true, .. })
    }
}

impl RowReader {
    /// A reader of the group of these rows that shares `readable`.
    pub(crate) fn new(
        context: &Context,
        wanted: &Reader<'_>,
        readable: &Readable,
        (tables, dim): (&[u32], u32),
    ) -> Result<Self, Error> {
        check_prefix(wanted.prefix)?;
        if let Some(grid) = wanted.grid
            && (grid.tables()? != tables || grid.features != dim)
        {
            let rows = |tables: &[u32], dim| format!("tables of {tables:?} rows of {dim}");
            return Err(Error::Reader {
                what: "grid",
                wanted: rows(&grid.tables()?, grid.features),
                found: rows(tables, dim),
                remedy: "make the group from the same grid::Config",
            });
        }
        let rows: u32 = tables.iter().sum();
        let limits = context.device().limits();
        if wanted.group >= limits.max_bind_groups {
            return Err(Error::Reader {
                what: "group",
                wanted: format!("a number below the device's max_bind_groups, {}", limits.max_bind_groups),
                found: wanted.group.to_string(),
                remedy: "take a smaller number, or ask for the limit when the device is created",
            });
        }
        if !wgpu::ShaderStages::VERTEX_FRAGMENT.union(wgpu::ShaderStages::COMPUTE).contains(wanted.stages)
            || wanted.stages.is_empty()
        {
            return Err(Error::Reader {
                what: "stages",
                wanted: "some of VERTEX, FRAGMENT and COMPUTE".into(),
                found: names(wanted.stages.iter_names()),
                remedy: "name the stages whose shaders call the functions",
            });
        }
        let writers = wgpu::ShaderStages::FRAGMENT | wgpu::ShaderStages::COMPUTE;
        if wanted.feedback.is_some() && !wanted.stages.intersects(writers) {
            return Err(Error::Reader {
                what: "feedback",
                wanted: "FRAGMENT or COMPUTE among Reader::stages".into(),
                found: names(wanted.stages.iter_names()),
                remedy: "name the stage whose shader calls P_want, or leave Reader::feedback unset",
            });
        }
        let rows = wanted.feedback.map(|feedback| WantedRows::new(context, feedback, rows)).transpose()?;
        let (shape, number) = {
            let state = &mut *readable.lock();
            let Some(buffers) = &state.buffers else { return Err(gone()) };
            state.readers += 1;
            (buffers.shape.of(wanted.flushed), state.readers)
        };
        let Shape { sizes, kind } = shape;
        let text = ReaderText {
            prefix: wanted.prefix,
            group: wanted.group,
            sizes,
            kind,
            feedback: rows.as_ref().map(|rows| rows.list),
            grid: wanted.grid,
        };
        let bindings: Vec<_> = text.buffers().collect();
        check_limits(&bindings, kind, &limits)?;
        let layout = new_layout(context, &bindings, wanted.stages)?;
        let mut reader = Self {
            context: context.clone(),
            wgsl: text.compose(),
            bindings,
            layout,
            shape,
            flushed: wanted.flushed,
            readable: readable.clone(),
            number,
            bound: None,
            wanted: rows,
        };
        reader.bind_group()?;
        Ok(reader)
    }

    /// The functions and their bindings, to put beside your own WGSL. It has no directives.
    #[must_use]
    pub fn wgsl(&self) -> &str {
        &self.wgsl
    }

    /// The layout of the bind group, for your pipeline's layout.
    #[must_use]
    pub fn layout(&self) -> &wgpu::BindGroupLayout {
        &self.layout
    }

    /// Number of storage buffers that it binds: as many of the device's `max_storage_buffers_per_shader_stage`.
    #[must_use]
    pub fn storage_buffers(&self) -> u32 {
        storage_buffers(&self.bindings)
    }

    /// Whether the group has changed since the last [`bind_group`](Self::bind_group): its cache was resized, or its state restored or loaded.
    /// A bind group from before then shows the old cache.
    #[must_use]
    pub fn stale(&self) -> bool {
        self.bound.as_ref().is_none_or(|(generation, _)| *generation != self.readable.lock().generation)
    }

    /// The bind group, made anew if it is [`stale`](Self::stale).
    ///
    /// # Errors
    /// [`Error::Reader`] if the group was dropped, or if its cache now takes another number of bindings, so that the WGSL no longer fits;
    /// [`Error::Device`].
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn bind_group(&mut self) -> Result<&wgpu::BindGroup, Error> {
        let known = self.bound.take();
        let state = self.readable.lock();
        let Some(buffers) = &state.buffers else { return Err(gone()) };
        let bound = match known {
            Some((generation, group)) if generation == state.generation => (generation, group),
            _ => (state.generation, self.bind(buffers)?),
        };
        drop(state);
        Ok(&self.bound.insert(bound).1)
    }

    /// The counts of its feedback that arrived last, and requests newer ones; `None` before the first have arrived, and without feedback. It
    /// does not wait.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub fn try_feedback(&self) -> Result<Option<FeedbackCounts>, Error> {
        let Some(WantedRows { buffer, latest, .. }) = &self.wanted else { return Ok(None) };
        let words = latest.ask(&self.context, buffer, feedback::HEAD as u64 * 4)?;
        Ok(words.map(|words| FeedbackCounts::of(&words)))
    }

    /// The counts of its feedback after all that was submitted before, as a future; `None` without feedback.
    ///
    /// # Errors
    /// [`Error::Device`] if the device is lost.
    #[cfg_attr(feature = "tracing", tracing::instrument(level = "debug", skip_all))]
    pub async fn feedback_async(&self) -> Result<Option<FeedbackCounts>, Error> {
        let Some(WantedRows { buffer, .. }) = &self.wanted else { return Ok(None) };
        let words = self.context.download_part_async(buffer, 0..feedback::HEAD as u64 * 4);
        self.context.guard(words).await.map(|words| Some(FeedbackCounts::of(&words)))
    }

    /// Bytes of GPU memory that the reader holds for its feedback; 0 without. They are in no [`MemoryReport`](crate::MemoryReport).
    #[must_use]
    pub fn feedback_bytes(&self) -> u64 {
        self.wanted.as_ref().map_or(0, |wanted| wanted.buffer.size())
    }

    /// Whether the feedback of this reader is taken now, if the group is `free`. If not, it comes in turn.
    pub(crate) fn has_turn(&self, free: bool) -> bool {
        self.readable.lock().turns.of(self.number, free)
    }

    /// The list of wanted rows, for the group that shares `readable`.
    pub(crate) fn wanted_of(&self, readable: &Readable) -> Result<&WantedRows, Error> {
        let refused = |wanted: &str, found: &str, remedy| {
            Err(Error::Reader { what: "encode_feedback", wanted: wanted.into(), found: found.into(), remedy })
        };
        if !Arc::ptr_eq(&self.readable.0, &readable.0) {
            return refused("a reader of this group", "one of another", "pass the reader to the group that made it");
        }
        if self.stale() {
            let found = "one from before the cache was resized, restored or loaded";
            return refused(
                "a bind group of the present cache",
                found,
                "call bind_group in each frame, before the passes",
            );
        }
        match &self.wanted {
            Some(wanted) => Ok(wanted),
            None => refused("a reader with feedback", "one without", "set Reader::feedback"),
        }
    }

    fn bind(&self, now: &ReadableBuffers) -> Result<wgpu::BindGroup, Error> {
        let found = now.shape.of(self.flushed);
        if found != self.shape {
            let windows = |shape: Shape| match shape.has_cache() {
                true => format!("a cache in {} bindings", shape.sizes.windows),
                false => "no cache".into(),
            };
            return Err(Error::Reader {
                what: "WGSL",
                wanted: format!("{}, as it was made for", windows(self.shape)),
                found: windows(found),
                remedy: "after Group::resize_cache ask for a new reader, and build your pipelines anew with it",
            });
        }
        let buffer = |&(_, name, nth): &Binding| {
            if name == "feedback" {
                return self.wanted.as_ref().map(|wanted| &wanted.buffer);
            }
            now.buffers.iter().find(|(known, _)| *known == name).map(|(_, buffers)| &buffers[nth as usize])
        };
        let entries: Vec<_> = (0u32..)
            .zip(self.bindings.iter().filter_map(buffer))
            .map(|(binding, buffer)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        debug_assert_eq!(entries.len(), self.bindings.len());
        let label = Some("hotrow.reader");
        let descriptor = wgpu::BindGroupDescriptor { label, layout: &self.layout, entries: &entries };
        self.context.guarded(|| Ok(self.context.new_bind_group(&descriptor)))
    }
}

fn gone() -> Error {
    Error::Reader {
        what: "group",
        wanted: "one that lives".into(),
        found: "one that was dropped".into(),
        remedy: "keep the group as long as its readers",
    }
}

fn check_prefix(prefix: &str) -> Result<(), Error> {
    let letter = |c: char| c.is_ascii_alphabetic();
    if prefix.starts_with(letter) && prefix.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
        return Ok(());
    }
    Err(Error::Reader {
        what: "prefix",
        wanted: "an ASCII letter, then letters, digits and _".into(),
        found: format!("{prefix:?}"),
        remedy: "take a prefix that can begin a name in WGSL",
    })
}

fn storage_buffers(bindings: &[Binding]) -> u32 {
    bindings.iter().filter(|(access, ..)| *access != Access::Uniform).count() as u32
}

/// Checks that a stage can bind the reader's buffers.
macro_rules! device_limits {
    () => {
        "create the device with the limits of hotrow::requirements(&adapter): in wgpu DeviceDescriptor::required_limits, \
         in eframe WgpuSetupCreateNew::device_descriptor, in Bevy WgpuSettings::limits"
    };
}

fn check_limits(bindings: &[Binding], kind: ReaderKind, limits: &wgpu::Limits) -> Result<(), Error> {
    let wanted = [
        (
            "reader, max_storage_buffers_per_shader_stage",
            storage_buffers(bindings),
            limits.max_storage_buffers_per_shader_stage,
        ),
        (
            "reader, max_buffers_and_acceleration_structures_per_shader_stage",
            bindings.len() as u32,
            limits.max_buffers_and_acceleration_structures_per_shader_stage,
        ),
    ];
    for (what, wanted, found) in wanted {
        if wanted > found {
            return Err(Error::Unsupported {
                what,
                wanted: format!("at least {wanted}, and your own buffers"),
                found: found.to_string(),
                remedy: match kind {
                    ReaderKind::Rows { cache: true, table: true, .. } => {
                        concat!(device_limits!(), "; or make the cache smaller, or flush and take Reader::flushed")
                    }
                    ReaderKind::Rows { cache: true, .. } => concat!(device_limits!(), "; or make the cache smaller"),
                    _ => concat!(device_limits!(), "; or make the table smaller"),
                },
            });
        }
    }
    Ok(())
}

/// The layout of bindings that `stages` see.
fn new_layout(
    context: &Context,
    bindings: &[Binding],
    stages: wgpu::ShaderStages,
) -> Result<wgpu::BindGroupLayout, Error> {
    let writers = wgpu::ShaderStages::FRAGMENT | wgpu::ShaderStages::COMPUTE;
    let entries: Vec<_> = (0u32..)
        .zip(bindings)
        .map(|(binding, (access, ..))| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: if *access == Access::ReadWrite { stages & writers } else { stages },
            ty: wgpu::BindingType::Buffer {
                ty: match access {
                    Access::Uniform => wgpu::BufferBindingType::Uniform,
                    access => wgpu::BufferBindingType::Storage { read_only: *access == Access::Read },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let device = context.device();
    let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
    let label = Some("hotrow.reader");
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
    context.judge(scope, move |error| refused_layout(stages, error.to_string())).map(|()| layout)
}

/// The error of a layout that the device has refused with `found`.
fn refused_layout(stages: wgpu::ShaderStages, found: String) -> Error {
    if found.contains("FRAGMENT_WRITABLE_STORAGE") {
        return Error::Unsupported {
            what: "reader, feedback",
            wanted: "an adapter with DownlevelFlags::FRAGMENT_WRITABLE_STORAGE, since Reader::stages has FRAGMENT"
                .into(),
            found,
            remedy: "leave FRAGMENT out of Reader::stages and call P_want in a compute shader, or leave Reader::feedback unset",
        };
    }
    Error::Unsupported {
        what: "reader, stages",
        wanted: format!("storage buffers in {}", names(stages.iter_names())),
        found,
        remedy: "leave the stage out of Reader::stages",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames in each of which the group is free at first, and takes one reader's feedback.
    fn taken(asking: &[u64], frames: usize, turns: &mut Turns) -> Vec<u64> {
        let frame = |_| {
            let mut found = None;
            for &reader in asking {
                if turns.of(reader, found.is_none()) {
                    assert_eq!(found.replace(reader), None, "one at a time");
                }
            }
            found
        };
        (0..frames).filter_map(frame).collect()
    }

    #[test]
    fn readers_take_turns() {
        let turns = &mut Turns::default();
        assert_eq!(taken(&[1], 3, turns), [1, 1, 1]);
        assert_eq!(taken(&[1, 2], 5, turns), [1, 2, 1, 2, 1]);
        assert_eq!(taken(&[3, 1, 2], 6, turns), [2, 3, 1, 2, 3, 1]);
        assert_eq!(taken(&[1, 2], 5, turns), [2, 1, 2, 1], "a reader that stays away costs one frame");
        assert_eq!(taken(&[4], 3, turns), [4, 4]);
        // The first in line and one that was passed over for it both stay away.
        let turns = &mut Turns::default();
        assert_eq!([taken(&[1, 2], 1, turns), taken(&[1], 1, turns)], [vec![1], vec![]]);
        assert_eq!(taken(&[3], 6, turns), [3; 4], "each costs a frame");
    }

    /// wgpu 30 gives these messages for a layout that an adapter refuses.
    #[test]
    fn an_adapter_that_refuses_feedback_is_named() {
        let message = |flag: &str| {
            format!(
                "Validation Error\n\nCaused by:\n  In Device::create_bind_group_layout\n    Downlevel flags \
                 DownlevelFlags({flag}) are required but not supported on the device."
            )
        };
        let stages = wgpu::ShaderStages::VERTEX_FRAGMENT;
        let error = refused_layout(stages, message("FRAGMENT_WRITABLE_STORAGE"));
        assert!(matches!(&error, Error::Unsupported { what: "reader, feedback", .. }), "{error}");
        let error = refused_layout(stages, message("VERTEX_STORAGE"));
        assert!(matches!(&error, Error::Unsupported { what: "reader, stages", .. }), "{error}");
    }
}
