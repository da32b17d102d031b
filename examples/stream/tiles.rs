//! An image in tiles, a pyramid of ever finer ones, and its way to the screen.

#[path = "terrain.rs"]
mod terrain;

use std::path::Path;

use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{
    Context, Counters, Error, Feedback, FileStore, Group, GroupConfig, Placement, Precision, Reader, RowReader,
    SharedStore, Source, Store as _, prelude::*, store,
};

/// A square image as rows of tiles: at depth d there are 2^d x 2^d tiles of 8 x 8 texels, and the coarsest come first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// The depth at which the image has all its texels.
    pub(crate) finest: u32,
}

impl Image {
    pub(crate) fn of_side(side: u32) -> Result<Self, String> {
        if !side.is_power_of_two() || !(256..=65_536).contains(&side) {
            return Err(format!("--side: wanted a power of two from 256 to 65536, found {side}"));
        }
        Ok(Self { finest: side.ilog2() - 3 })
    }

    /// Tiles of all depths above `depth`: the first row of that depth.
    pub(crate) fn first(depth: u32) -> u32 {
        ((1 << (2 * depth)) - 1) / 3
    }

    pub(crate) fn tiles(self) -> u32 {
        Self::first(self.finest + 1)
    }
}

impl Source for Image {
    /// Twelve floats for four texels: their red, their green, their blue.
    fn rows(&self, first_row: u32, dim: usize, out: &mut [f32]) -> Result<(), Error> {
        for (row, values) in (first_row..).zip(out.chunks_exact_mut(dim)) {
            let depth = (3 * row + 1).ilog2() / 2;
            let tile = row - Self::first(depth);
            let corner = [tile & ((1 << depth) - 1), tile >> depth];
            for i in 0..64 {
                // The middle of the texel.
                let [x, y] = [8 * corner[0] + i % 8, 8 * corner[1] + i / 8].map(|z| (2 * z + 1) << (28 - depth));
                for (channel, value) in terrain::colour(x, y, depth + 1).into_iter().enumerate() {
                    values[12 * (i as usize / 4) + 4 * channel + i as usize % 4] = value;
                }
            }
        }
        Ok(())
    }
}

/// The part of the image that a picture shows, as the shader has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub(crate) struct View {
    /// The place of the first pixel, in 2^-32 of the image's side. Beyond the edge the image begins anew.
    pub(crate) corner: [u32; 2],
    /// The way from pixel to pixel, in the same unit.
    pub(crate) step: u32,
    /// The depth of the wanted tiles: a texel there is as large as a pixel or larger, up to twice as large.
    pub(crate) depth: u32,
}

impl View {
    /// A view around `centre`, in sides of the image. The picture is `share` of a side wide.
    pub(crate) fn around(centre: [f64; 2], share: f64, size: [u32; 2], image: Image) -> Self {
        let step = (share / f64::from(size[0]) * 4_294_967_296.0).clamp(2.0, f64::from(1 << 28)) as u32;
        let depth = (28 - (step - 1).ilog2()).min(image.finest);
        let corner =
            [0, 1].map(|i| ((centre[i] * 4_294_967_296.0) as i64 - i64::from(step) * i64::from(size[i] / 2)) as u32);
        Self { corner, step, depth }
    }

    /// The row of the tile that a pixel wants, and the first of its three values, four apart: the shader's arithmetic.
    pub(crate) fn texel(&self, pixel: [u32; 2]) -> (u32, usize) {
        let [x, y] = [0, 1].map(|i| self.corner[i].wrapping_add(pixel[i].wrapping_mul(self.step)) >> (29 - self.depth));
        let row = Image::first(self.depth) + ((y >> 3) << self.depth) + (x >> 3);
        (row, (24 * (y & 7) + 12 * ((x & 7) >> 2) + (x & 3)) as usize)
    }
}

// hotrow begins
/// The tiles of an image, in a file; 2 % of them are in GPU memory.
pub(crate) struct Tiles {
    pub(crate) group: Group,
    pub(crate) emb: RowReader,
}
impl Tiles {
    /// Opens the file, or makes it. A picture shows at most `visible` tiles.
    pub(crate) fn open(context: &Context, image: Image, file: &Path, visible: u32) -> Result<Self, Error> {
        let config = GroupConfig::new(&[image.tiles()], 192).with_precision(Precision::Int8);
        let config = config.with_placement(Placement::Staged).with_cache_rows(image.tiles() / 50);
        let store = if file.exists() { FileStore::open(file, &config)? } else { make(file, &config, image)? };
        let mut group = Group::with_store(context, config, SharedStore::new(store))?;
        // The coarsest tiles stay, in a twentieth of the cache: they are shown where finer ones are missing.
        group.pin(&Vec::from_iter(0..Image::first(image.finest - 4)), 16)?;
        let feedback = Some(Feedback { rows: visible, ..Feedback::default() });
        let emb = group.reader(Reader { prefix: "emb", group: 1, feedback, ..Reader::default() })?;
        Ok(Self { group, emb })
    }

    /// Before the passes of a frame: moves in the tiles that an earlier frame wanted, if they are ready.
    pub(crate) fn begin(&mut self) -> Result<wgpu::BindGroup, Error> {
        self.group.pump()?;
        Ok(self.emb.bind_group()?.clone())
    }

    /// Behind the passes: asks for the tiles that this frame wants.
    pub(crate) fn end(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<bool, Error> {
        self.group.encode_feedback(encoder, &self.emb)
    }
}
// hotrow ends

impl Tiles {
    /// Tiles missed, bytes moved and tiles wanted, as far as the counts have arrived.
    pub(crate) fn moved(&mut self) -> Result<[u64; 3], Error> {
        let seen: Counters = self.group.try_counters()?.unwrap_or_default().into_iter().sum();
        let bytes = self.group.traffic().map_or(0, |traffic| traffic.bytes());
        Ok([seen.accesses - seen.hits, bytes, seen.accesses])
    }
}

/// Makes the file of an image.
fn make(file: &Path, config: &GroupConfig, image: Image) -> Result<FileStore, Error> {
    let mut store = FileStore::create(file, config)?;
    eprintln!(
        "making {}: {} tiles, {} MB",
        file.display(),
        config.total_rows(),
        (u64::from(store.rows()) * store.stride()) >> 20
    );
    store::fill(&mut store, config, Some(&image))?;
    Ok(store)
}

/// The pipeline that draws the tiles, and the view that it draws.
pub(crate) struct Painter {
    pipeline: wgpu::RenderPipeline,
    uniform: wgpu::Buffer,
    bound: wgpu::BindGroup,
}

impl Painter {
    pub(crate) fn new(device: &wgpu::Device, emb: &RowReader, format: wgpu::TextureFormat) -> Self {
        let source = wgpu::ShaderSource::Wgsl((emb.wgsl().to_owned() + include_str!("stream.wgsl")).into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: None,
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::FRAGMENT,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            }],
        });
        let uniform = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
            label: None,
            contents: &[0; size_of::<View>()],
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
        });
        let bound = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() }],
        });
        let layouts = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout), Some(emb.layout())],
            immediate_size: 0,
        });
        let target = Some(wgpu::ColorTargetState { format, blend: None, write_mask: wgpu::ColorWrites::ALL });
        let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
            label: None,
            layout: Some(&layouts),
            vertex: wgpu::VertexState {
                module: &module,
                entry_point: Some("corners"),
                compilation_options: Default::default(),
                buffers: &[],
            },
            fragment: Some(wgpu::FragmentState {
                module: &module,
                entry_point: Some("colour"),
                compilation_options: Default::default(),
                targets: &[target],
            }),
            primitive: wgpu::PrimitiveState::default(),
            depth_stencil: None,
            multisample: wgpu::MultisampleState::default(),
            multiview_mask: None,
            cache: None,
        });
        Self { pipeline, uniform, bound }
    }

    pub(crate) fn show(&self, queue: &wgpu::Queue, view: View) {
        queue.write_buffer(&self.uniform, 0, bytemuck::bytes_of(&view));
    }

    pub(crate) fn draw(&self, pass: &mut wgpu::RenderPass<'_>, emb: &wgpu::BindGroup) {
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bound, &[]);
        pass.set_bind_group(1, emb, &[]);
        pass.draw(0..3, 0..1);
    }
}
