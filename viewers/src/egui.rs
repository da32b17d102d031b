//! The image of `examples/stream` in a panel of egui, on eframe's device: drag to pan, turn the wheel to zoom.

mod viewer;

use std::sync::{Arc, Mutex, PoisonError};

use clap::Parser as _;
use eframe::egui_wgpu::{self, CallbackResources, ScreenDescriptor, WgpuSetup, WgpuSetupCreateNew};
use eframe::{CreationContext, egui};
use hotrow::wgpu;
use viewer::{Args, Failure, Viewer};

fn main() -> eframe::Result {
    let args = Args::parse();
    let mut setup = WgpuSetupCreateNew::without_display_handle();
    setup.device_descriptor = Arc::new(|adapter| {
        let (required_features, required_limits) = hotrow::requirements(adapter);
        wgpu::DeviceDescriptor { required_features, required_limits, ..Default::default() }
    });
    let mut options = eframe::NativeOptions::default();
    options.wgpu_options.wgpu_setup = WgpuSetup::CreateNew(setup);
    eframe::run_native("hotrow in egui", options, Box::new(move |creation| Ok(Box::new(App::new(creation, &args)?))))
}

/// What the panel shows. eframe wants it to be shared, although one thread uses it.
struct Shown {
    viewer: Viewer,
    emb: Option<wgpu::BindGroup>,
    failed: Option<Failure>,
}

struct App {
    shown: Arc<Mutex<Shown>>,
    line: String,
}

impl App {
    fn new(creation: &CreationContext<'_>, args: &Args) -> Result<Self, Failure> {
        let state =
            creation.wgpu_render_state.as_ref().ok_or("wanted eframe to draw with wgpu, found that it does not")?;
        let viewer = Viewer::open(args, &state.device, &state.queue, state.target_format)?;
        let shown = Arc::new(Mutex::new(Shown { viewer, emb: None, failed: None }));
        Ok(Self { shown, line: String::new() })
    }
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        match shown.viewer.tell() {
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
            shown.viewer.drag(of(response.drag_delta()), width);
            if let Some(mouse) = response.hover_pos() {
                let points = ui.input(|input| input.smooth_scroll_delta().y);
                shown.viewer.zoom(1.004f64.powf(f64::from(points)), of(mouse - rect.center()), width);
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
        // egui calls this before its pass: the pass of the last frame is the one that ends here.
        let prepared = shown.viewer.begin(queue, corner, size).and_then(|emb| {
            shown.viewer.end(encoder)?;
            Ok(emb)
        });
        match prepared {
            Ok(emb) => shown.emb = Some(emb),
            Err(error) => (shown.emb, shown.failed) = (None, Some(error)),
        }
        Vec::new()
    }

    fn paint(&self, _: egui::PaintCallbackInfo, pass: &mut wgpu::RenderPass<'static>, _: &CallbackResources) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(emb) = &shown.emb {
            shown.viewer.draw(pass, emb);
        }
    }
}
