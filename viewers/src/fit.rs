//! Shows the fit of `examples/fit_image` while it learns, in a window.

#[path = "../../examples/fit_image/fit.rs"]
#[allow(dead_code, reason = "the window needs neither the image's own values nor its PSNR over all pixels")]
mod fit;

use std::sync::mpsc::{Receiver, Sender, channel};

use clap::Parser as _;
use eframe::egui;
use fit::{Failure, Settings, Training, psnr};

#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Steps from one picture to the next.
    #[arg(long, default_value_t = 10)]
    every: u32,
}

/// A picture of the fit: its sides, grey values, and a line about it; or why there is none.
type Shown = Result<([u32; 2], Vec<u8>, String), Failure>;

/// Most pixels of a side of a picture.
const MOST: u32 = 640;

fn main() -> eframe::Result {
    let args = Args::parse();
    let (to, from) = channel();
    let work = move |ctx: egui::Context| {
        std::thread::spawn(move || {
            if let Err(error) = learn(&args, &to, &ctx) {
                let _ = to.send(Err(error));
                ctx.request_repaint();
            }
        });
    };
    let options = eframe::NativeOptions::default();
    eframe::run_native(
        "hotrow fits an image",
        options,
        Box::new(move |creation| {
            work(creation.egui_ctx.clone());
            Ok(Box::new(App { from, texture: None, line: "reading the image".into() }))
        }),
    )
}

/// Learns, and sends pictures. Ends when the window is gone.
fn learn(args: &Args, to: &Sender<Shown>, ctx: &egui::Context) -> Result<(), Failure> {
    let (mut training, _) = Training::new(&args.settings)?;
    let [width, height] = training.image.sides;
    let most = width.max(height).max(1);
    let sides = [width, height].map(|side| if most > MOST { (side * MOST / most).max(1) } else { side });
    let pixels: Vec<_> = (0..sides[1]).flat_map(|y| (0..sides[0]).map(move |x| [x, y])).collect();
    let at = |[x, y]: [u32; 2]| [x * width / sides[0], y * height / sides[1]];
    let wanted: Vec<_> = pixels.iter().map(|&pixel| at(pixel)).map(|[x, y]| training.image.pixel(x, y)).collect();
    loop {
        let moved = training.step()?;
        if moved && training.steps % args.every.max(1) != 0 {
            continue;
        }
        let found = training.fit.predict(sides, &pixels)?;
        let line = format!("step {} of {}: PSNR {:.2} dB", training.steps, args.settings.steps, psnr(&found, &wanted));
        let grey = found.iter().map(|value| (value.clamp(0.0, 1.0) * 255.0).round() as u8).collect();
        if to.send(Ok((sides, grey, line))).is_err() || !moved {
            return Ok(());
        }
        ctx.request_repaint();
    }
}

struct App {
    from: Receiver<Shown>,
    texture: Option<egui::TextureHandle>,
    line: String,
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut egui::Ui, _: &mut eframe::Frame) {
        for shown in self.from.try_iter() {
            match shown {
                Ok((sides, grey, line)) => {
                    let picture = egui::ColorImage::from_gray(sides.map(|side| side as usize), &grey);
                    self.texture = Some(ui.ctx().load_texture("fit", picture, egui::TextureOptions::LINEAR));
                    self.line = line;
                }
                Err(error) => self.line = error.to_string(),
            }
        }
        egui::Panel::top("line").show(ui, |ui| ui.label(&self.line));
        if let Some(texture) = &self.texture {
            egui::CentralPanel::default().show(ui, |ui| ui.add(egui::Image::new(texture).shrink_to_fit()));
        }
    }
}
