//! The tiles, the pipeline that draws them, and a camera that a mouse moves.

#[path = "../../examples/stream/tiles.rs"]
#[allow(dead_code, reason = "the viewers do not draw pictures on the CPU")]
mod tiles;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hotrow::{Context, wgpu};
use tiles::{Image, Painter, Tiles, View};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(clap::Parser)]
pub(crate) struct Args {
    /// Side of the image in texels, a power of two.
    #[arg(long, default_value_t = 8192)]
    side: u32,
    /// Folder for the file of the image.
    #[arg(long, default_value = "target/stream")]
    out: PathBuf,
}

pub(crate) struct Viewer {
    tiles: Tiles,
    painter: Painter,
    image: Image,
    /// The middle of the view, in sides of the image.
    centre: [f64; 2],
    /// The width of the view, in sides of the image.
    share: f64,
    told: (Instant, [u64; 3]),
}

impl Viewer {
    /// Opens the image that the arguments name, or makes it, and draws into textures of `format`.
    pub(crate) fn open(
        args: &Args,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        format: wgpu::TextureFormat,
    ) -> Result<Self, Failure> {
        let image = Image::of_side(args.side)?;
        std::fs::create_dir_all(&args.out)?;
        let file = args.out.join(format!("tiles-{}.hotrow", args.side));
        // A window of 3840 x 2160 pixels shows as many tiles.
        let tiles = Tiles::open(&Context::new(device, queue)?, image, &file, image.tiles().min(482 * 272))?;
        let painter = Painter::new(device, &tiles.emb, format);
        Ok(Self { tiles, painter, image, centre: [0.5, 0.5], share: 1.0, told: (Instant::now(), [0; 3]) })
    }

    /// Moves the image by `pixels` in a picture of `width` pixels.
    pub(crate) fn drag(&mut self, pixels: [f64; 2], width: u32) {
        for (centre, pixels) in self.centre.iter_mut().zip(pixels) {
            *centre = (*centre - pixels * self.share / f64::from(width)).rem_euclid(1.0);
        }
    }

    /// Makes the image `factor` times as large around a pixel, given from the picture's middle.
    pub(crate) fn zoom(&mut self, factor: f64, pixel: [f64; 2], width: u32) {
        // At most 16 pixels a texel.
        let closest = f64::from(width) / 16.0 / f64::from(8u32 << self.image.finest);
        let share = (self.share / factor).clamp(closest.min(1.0), 1.0);
        let shrunk = (self.share - share) / f64::from(width);
        self.share = share;
        for (centre, pixel) in self.centre.iter_mut().zip(pixel) {
            *centre = (*centre + pixel * shrunk).rem_euclid(1.0);
        }
    }

    /// Before the passes of a frame: moves in tiles and places the camera for a picture whose first pixel is `corner`. Gives the tiles to bind.
    pub(crate) fn begin(
        &mut self,
        queue: &wgpu::Queue,
        corner: [u32; 2],
        size: [u32; 2],
    ) -> Result<wgpu::BindGroup, Failure> {
        let mut view = View::around(self.centre, self.share, size, self.image);
        for (place, pixel) in view.corner.iter_mut().zip(corner) {
            *place = place.wrapping_sub(pixel.wrapping_mul(view.step));
        }
        self.painter.show(queue, view);
        Ok(self.tiles.begin()?)
    }

    pub(crate) fn draw(&self, pass: &mut wgpu::RenderPass<'_>, emb: &wgpu::BindGroup) {
        self.painter.draw(pass, emb);
    }

    /// Behind the passes of a frame.
    pub(crate) fn end(&mut self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Failure> {
        self.tiles.end(encoder)?;
        Ok(())
    }

    /// Once a second, a line about the tiles since the last line.
    pub(crate) fn tell(&mut self) -> Result<Option<String>, Failure> {
        if self.told.0.elapsed() < Duration::from_secs(1) {
            return Ok(None);
        }
        let moved = self.tiles.moved()?;
        let [missed, bytes, wanted] = [0, 1, 2].map(|i| moved[i] - self.told.1[i]);
        self.told = (Instant::now(), moved);
        Ok(Some(format!("{missed} of {wanted} wanted tiles missed, {bytes} bytes moved")))
    }
}
