//! The image of `examples/stream` in a panel of egui, on eframe's device: drag to pan, turn the wheel to zoom.

#[path = "../../examples/stream/tiles.rs"]
#[allow(dead_code, reason = "the viewer does not draw pictures on the CPU")]
mod tiles;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser as _;
use eframe::egui_wgpu::{self, CallbackResources, ScreenDescriptor, WgpuSetup, WgpuSetupCreateNew};
use eframe::{CreationContext, egui};
use hotrow::{Context, wgpu};
use tiles::{Image, Painter, Tiles, View};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(clap::Parser)]
struct Args {
    /// Side of the image in texels, a power of two.
    #[arg(long, default_value_t = 8192)]
    side: u32,
    /// Folder for the file of the image.
    #[arg(long, default_value = "target/stream")]
    out: PathBuf,
}

fn main() -> eframe::Result {
    let args = Args::parse();
    let mut setup = WgpuSetupCreateNew::without_display_handle();
    setup.device_descriptor = Arc::new(hotrow::requirements);
    let mut options = eframe::NativeOptions::default();
    options.wgpu_options.wgpu_setup = WgpuSetup::CreateNew(setup);
    eframe::run_native("hotrow in egui", options, Box::new(move |creation| Ok(Box::new(App::new(creation, &args)?))))
}

/// What the panel shows, and a camera that a mouse moves. eframe wants it to be shared, although one thread uses it.
struct Shown {
    tiles: Tiles,
    painter: Painter,
    image: Image,
    /// The middle of the view, in sides of the image.
    centre: [f64; 2],
    /// The width of the view, in sides of the image.
    share: f64,
    told: (Instant, [u64; 3]),
    emb: Option<wgpu::BindGroup>,
    failed: Option<Failure>,
}

impl Shown {
    /// Moves the image by `pixels` in a picture of `width` pixels.
    fn drag(&mut self, pixels: [f64; 2], width: u32) {
        for (centre, pixels) in self.centre.iter_mut().zip(pixels) {
            *centre = (*centre - pixels * self.share / f64::from(width)).rem_euclid(1.0);
        }
    }

    /// Makes the image `factor` times as large around a pixel, given from the picture's middle.
    fn zoom(&mut self, factor: f64, pixel: [f64; 2], width: u32) {
        // At most 16 pixels a texel.
        let closest = f64::from(width) / 16.0 / f64::from(8u32 << self.image.finest);
        let share = (self.share / factor).clamp(closest.min(1.0), 1.0);
        let shrunk = (self.share - share) / f64::from(width);
        self.share = share;
        for (centre, pixel) in self.centre.iter_mut().zip(pixel) {
            *centre = (*centre + pixel * shrunk).rem_euclid(1.0);
        }
    }

    /// Before egui's pass: moves in tiles and places the camera for a picture whose first pixel is `corner`. egui calls nothing behind its pass, so
    /// the tiles that the last frame wanted are asked for here.
    fn prepare(
        &mut self,
        queue: &wgpu::Queue,
        encoder: &mut wgpu::CommandEncoder,
        corner: [u32; 2],
        size: [u32; 2],
    ) -> Result<wgpu::BindGroup, Failure> {
        let mut view = View::around(self.centre, self.share, size, self.image);
        for (place, pixel) in view.corner.iter_mut().zip(corner) {
            *place = place.wrapping_sub(pixel.wrapping_mul(view.step));
        }
        self.painter.show(queue, view);
        let emb = self.tiles.begin()?;
        self.tiles.end(encoder)?;
        Ok(emb)
    }

    /// Once a second, a line about the tiles since the last line.
    fn tell(&mut self) -> Result<Option<String>, Failure> {
        if self.told.0.elapsed() < Duration::from_secs(1) {
            return Ok(None);
        }
        let moved = self.tiles.moved()?;
        let [missed, bytes, wanted] = [0, 1, 2].map(|i| moved[i] - self.told.1[i]);
        self.told = (Instant::now(), moved);
        Ok(Some(format!("{missed} of {wanted} wanted tiles missed, {bytes} bytes moved")))
    }
}

struct App {
    shown: Arc<Mutex<Shown>>,
    line: String,
}

impl App {
    fn new(creation: &CreationContext<'_>, args: &Args) -> Result<Self, Failure> {
        let state =
            creation.wgpu_render_state.as_ref().ok_or("wanted eframe to draw with wgpu, found that it does not")?;
        let image = Image::of_side(args.side)?;
        std::fs::create_dir_all(&args.out)?;
        let file = args.out.join(format!("tiles-{}.hotrow", args.side));
        // A window of 3840 x 2160 pixels shows as many tiles.
        let context = Context::new(&state.device, &state.queue)?;
        let tiles = Tiles::open(&context, image, &file, image.tiles().min(482 * 272))?;
        let painter = Painter::new(&state.device, &tiles.emb, state.target_format);
        let told = (Instant::now(), [0; 3]);
        let shown = Shown { tiles, painter, image, centre: [0.5; 2], share: 1.0, told, emb: None, failed: None };
        Ok(Self { shown: Arc::new(Mutex::new(shown)), line: String::new() })
    }
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match shown.tell() {
            Ok(line) => self.line = line.unwrap_or_else(|| std::mem::take(&mut self.line)),
            Err(error) => shown.failed = Some(error),
        }
        if let Some(error) = &shown.failed {
            self.line = error.to_string();
        }
        egui::Panel::top("line").show(ui, |ui| ui.label(&self.line));
        egui::CentralPanel::default().frame(egui::Frame::NONE).show(ui, |ui| {
            let (rect, response) = ui.allocate_exact_size(ui.available_size(), egui::Sense::drag());
            let pixels = f64::from(ui.ctx().pixels_per_point());
            let width = (f64::from(rect.width()) * pixels).max(1.0) as u32;
            let of = |way: egui::Vec2| [f64::from(way.x) * pixels, f64::from(way.y) * pixels];
            shown.drag(of(response.drag_delta()), width);
            if let Some(mouse) = response.hover_pos() {
                let points = ui.input(|input| input.smooth_scroll_delta().y);
                shown.zoom(1.004f64.powf(f64::from(points)), of(mouse - rect.center()), width);
            }
            let panel = Panel { shown: Arc::clone(&self.shown), rect };
            ui.painter().add(egui_wgpu::Callback::new_paint_callback(rect, panel));
        });
        ui.ctx().request_repaint();
    }
}

struct Panel {
    shown: Arc<Mutex<Shown>>,
    rect: egui::Rect,
}

impl egui_wgpu::CallbackTrait for Panel {
    fn prepare(
        &self,
        _: &wgpu::Device,
        queue: &wgpu::Queue,
        screen: &ScreenDescriptor,
        encoder: &mut wgpu::CommandEncoder,
        _: &mut CallbackResources,
    ) -> Vec<wgpu::CommandBuffer> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let place =
            egui::epaint::ViewportInPixels::from_points(&self.rect, screen.pixels_per_point, screen.size_in_pixels);
        let corner = [place.left_px, place.top_px].map(|at| at.max(0) as u32);
        let size = [place.width_px, place.height_px].map(|side| side.max(1) as u32);
        match shown.prepare(queue, encoder, corner, size) {
            Ok(emb) => shown.emb = Some(emb),
            Err(error) => (shown.emb, shown.failed) = (None, Some(error)),
        }
        Vec::new()
    }

    fn paint(&self, _: egui::PaintCallbackInfo, pass: &mut wgpu::RenderPass<'static>, _: &CallbackResources) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(emb) = &shown.emb {
            shown.painter.draw(pass, emb);
        }
    }
}
