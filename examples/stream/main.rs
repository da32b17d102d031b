//! An image far larger than the cache, streamed from a file to a fragment shader, which asks for the tiles that it misses. A camera pans and
//! zooms; each frame becomes a PNG. `cargo run --release --example stream --features file -- --side 32768`; the first run makes the file, of
//! 4.5 GB for this side.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

mod tiles;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Parser as _;
use hotrow::{Context, Counters, adapter, prelude::*, wgpu};
use tiles::{Image, Painter, Tiles, View};

type Failure = Box<dyn std::error::Error>;

#[derive(clap::Parser)]
struct Args {
    /// Side of the image in texels, a power of two.
    #[arg(long, default_value_t = 8192)]
    side: u32,
    /// Frames of the camera's path.
    #[arg(long, default_value_t = 240)]
    frames: u32,
    /// Size of the pictures.
    #[arg(long, default_value = "960x540", value_parser = size)]
    size: [u32; 2],
    /// Folder for the pictures and for the file of the image.
    #[arg(long, default_value = "target/stream")]
    out: PathBuf,
    /// Compare pictures with those that the CPU draws from the file, instead of writing them.
    #[arg(long)]
    check: bool,
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once('x').map(|(width, height)| [width, height].map(str::parse));
    match sides {
        Some([Ok(width @ 8..=8192), Ok(height @ 8..=8192)]) => Ok([width, height]),
        _ => Err(format!("wanted WIDTHxHEIGHT, each from 8 to 8192, found {text}")),
    }
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    let image = Image::of_side(args.side)?;
    let mut screen = Screen::new(&args, image)?;
    if args.check {
        return check(&mut screen, image);
    }
    let (mut since, mut before, mut drawn) = (Instant::now(), screen.tiles.moved()?, (0, Duration::ZERO));
    for frame in 0..args.frames {
        let start = Instant::now();
        let picture = screen.frame(camera(frame, args.frames, args.size, image))?;
        drawn = (drawn.0 + 1, drawn.1 + start.elapsed());
        save(&args.out.join(format!("frame-{frame:04}.png")), args.size, &picture)?;
        let mut now = screen.tiles.moved()?;
        if frame + 1 == args.frames {
            screen.settle()?;
            now = screen.tiles.moved()?;
        }
        if since.elapsed() >= Duration::from_secs(1) || frame + 1 == args.frames {
            let (time, missed, bytes) = (drawn.1 / drawn.0, now[0] - before[0], now[1] - before[1]);
            println!(
                "frame {frame}: {time:.1?} a frame, {missed} of {} wanted tiles missed, {bytes} bytes moved",
                now[2] - before[2]
            );
            (since, before, drawn) = (Instant::now(), now, (0, Duration::ZERO));
        }
    }
    Ok(())
}

/// The camera zooms in by the first third of the path and out by the last, and pans in circles.
fn camera(frame: u32, frames: u32, size: [u32; 2], image: Image) -> View {
    let t = f64::from(frame) / f64::from(frames);
    let zoom = (3.0 * (0.5 - (t - 0.5).abs())).min(1.0);
    let zoom = zoom * zoom * (3.0 - 2.0 * zoom);
    // At the end a texel is as large as two pixels.
    let share = (f64::from(size[0]) / 2.0 / f64::from(8u32 << image.finest)).min(1.0).powf(zoom);
    let (sin, cos) = (t * 18.0).sin_cos();
    let centre = [0.507 + share * (0.3 * zoom * sin - 0.007), 0.43 + share * (0.3 * zoom * cos + 0.07)];
    View::around(centre, share, size, image)
}

/// Compares pictures in which no tile is missing with those of the CPU; and shows that the comparison refuses others.
fn check(screen: &mut Screen, image: Image) -> Result<(), Failure> {
    for frame in [0, 2, 5, 8] {
        let view = camera(frame, 12, screen.size, image);
        let first = screen.frame(view)?;
        let mut picture = first.clone();
        for again in 0.. {
            let before = screen.settle()?;
            picture = screen.frame(view)?;
            if screen.settle()? == before {
                break;
            }
            if again == 10 {
                let slots = screen.tiles.group.cache_slots();
                return Err(format!(
                    "--check: wanted all tiles of a view after 10 frames, found some missing; the cache holds {slots}: \
                     take a smaller --size or a larger --side"
                )
                .into());
            }
        }
        let off = compare(&picture, &screen.reference(view, None)?)?;
        println!("depth {}: {off} of {} pixels are off by one", view.depth, picture.len() / 4);
        let middle = view.texel(screen.size.map(|side| side / 2)).0;
        for (wrong, reference) in [
            ("another tile in one place", compare(&picture, &screen.reference(view, Some(middle))?)),
            ("missing tiles", compare(&first, &screen.reference(view, None)?)),
        ] {
            // The coarsest tiles are never missing.
            if reference.is_ok() && !(wrong == "missing tiles" && first == picture) {
                return Err(format!("wanted a picture with {wrong} to be refused").into());
            }
        }
    }
    Ok(())
}

/// The number of pixels that are off by one. At most 1 in 10,000 may be, and none by more.
fn compare(found: &[u8], wanted: &[u8]) -> Result<usize, String> {
    let worst = |(found, wanted): (&[u8], &[u8])| found.iter().zip(wanted).map(|(a, b)| a.abs_diff(*b)).max();
    let worst: Vec<_> = found.chunks_exact(4).zip(wanted.chunks_exact(4)).filter_map(worst).collect();
    let [off, far] = [1, 2].map(|least| worst.iter().filter(|off| **off >= least).count());
    if far == 0 && off * 10_000 <= worst.len() {
        return Ok(off);
    }
    Err(format!("wanted at most 1 pixel in 10,000 off by one, found {off} of {}, {far} of them by more", worst.len()))
}

fn save(file: &Path, size: [u32; 2], rgba: &[u8]) -> Result<(), Failure> {
    let mut png = png::Encoder::new(std::io::BufWriter::new(std::fs::File::create(file)?), size[0], size[1]);
    png.set_color(png::ColorType::Rgba);
    png.set_compression(png::Compression::Fast);
    Ok(png.write_header()?.write_image_data(rgba)?)
}

/// Draws into a texture.
struct Screen {
    context: Context,
    size: [u32; 2],
    tiles: Tiles,
    painter: Painter,
    texture: wgpu::Texture,
    download: wgpu::Buffer,
}

impl Screen {
    fn new(args: &Args, image: Image) -> Result<Self, Failure> {
        let (context, [width, height]) = (adapter::open_best()?, args.size);
        let file = args.out.join(format!("tiles-{}.hotrow", args.side));
        let tiles = Tiles::open(&context, image, &file, (width / 8 + 2) * (height / 8 + 2))?;
        let format = wgpu::TextureFormat::Rgba8Unorm;
        let painter = Painter::new(context.device(), &tiles.emb, format);
        let texture = context.device().create_texture(&wgpu::TextureDescriptor {
            label: None,
            size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
            mip_level_count: 1,
            sample_count: 1,
            dimension: wgpu::TextureDimension::D2,
            format,
            usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
            view_formats: &[],
        });
        let download = context.device().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: u64::from((4 * width).next_multiple_of(256) * height),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        Ok(Self { context, size: args.size, tiles, painter, texture, download })
    }

    /// Draws a frame and waits for it, as for a display.
    fn frame(&mut self, view: View) -> Result<Vec<u8>, Failure> {
        let (device, queue) = (self.context.device(), self.context.queue());
        let emb = self.tiles.begin()?;
        self.painter.show(queue, view);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let target = self.texture.create_view(&wgpu::TextureViewDescriptor::default());
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(wgpu::RenderPassColorAttachment {
                view: &target,
                depth_slice: None,
                resolve_target: None,
                ops: wgpu::Operations::default(),
            })],
            ..Default::default()
        });
        self.painter.draw(&mut pass, &emb);
        drop(pass);
        self.tiles.end(&mut encoder)?;
        let pitch = (4 * self.size[0]).next_multiple_of(256);
        let layout = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(pitch), rows_per_image: None };
        let target = wgpu::TexelCopyBufferInfo { buffer: &self.download, layout };
        encoder.copy_texture_to_buffer(self.texture.as_image_copy(), target, self.texture.size());
        encoder.map_buffer_on_submit(&self.download, wgpu::MapMode::Read, .., |_| {});
        queue.submit([encoder.finish()]);
        device.poll(wgpu::PollType::wait_indefinitely())?;
        let mapped = self.download.get_mapped_range(..)?;
        let rows = mapped.chunks_exact(pitch as usize).flat_map(|row| &row[..4 * self.size[0] as usize]);
        let picture = rows.copied().collect();
        drop(mapped);
        self.download.unmap();
        Ok(picture)
    }

    /// Waits for the tiles that are on their way. Returns how many were missed so far.
    fn settle(&mut self) -> Result<u64, Failure> {
        match self.tiles.group.fetch(None) {
            Ok(()) => drop(self.tiles.group.pump()?),
            Err(hotrow::Error::Order { .. }) => {} // nothing is on its way
            Err(error) => return Err(error.into()),
        }
        let seen: Counters = self.tiles.group.counters()?.into_iter().sum();
        Ok(seen.accesses - seen.hits)
    }

    /// The picture of a view from the rows of the file. In the place of the tile `wrong` it has the tile before it.
    fn reference(&self, view: View, wrong: Option<u32>) -> Result<Vec<u8>, Failure> {
        let store = self.tiles.group.store().ok_or("wanted a staged table")?;
        let mut known = BTreeMap::new();
        let mut picture = Vec::new();
        for (y, x) in (0..self.size[1]).flat_map(|y| (0..self.size[0]).map(move |x| (y, x))) {
            let (row, first) = view.texel([x, y]);
            let values = match known.entry(row) {
                std::collections::btree_map::Entry::Occupied(values) => values.into_mut(),
                std::collections::btree_map::Entry::Vacant(place) => {
                    place.insert(store.read_rows(self.tiles.group.config(), &[row - u32::from(wrong == Some(row))])?)
                }
            };
            let rgb = [0, 4, 8].map(|channel| (values[first + channel].clamp(0.0, 1.0) * 255.0).round() as u8);
            picture.extend([rgb[0], rgb[1], rgb[2], 255]);
        }
        Ok(picture)
    }
}
