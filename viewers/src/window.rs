//! The image of `examples/stream` in a window of its own: drag to pan, turn the wheel to zoom.

mod viewer;

use std::sync::Arc;

use clap::Parser as _;
use hotrow::wgpu;
use viewer::{Args, Failure, Viewer};
use winit::application::ApplicationHandler;
use winit::event::{ElementState, MouseScrollDelta, WindowEvent};
use winit::event_loop::{ActiveEventLoop, EventLoop, OwnedDisplayHandle};
use winit::window::{Window, WindowId};

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let events = EventLoop::new()?;
    let display = events.owned_display_handle();
    let mut app = App { args, display, screen: None, mouse: [0.0; 2], held: false, end: Ok(()) };
    events.run_app(&mut app)?;
    app.end
}

struct App {
    args: Args,
    display: OwnedDisplayHandle,
    screen: Option<Screen>,
    mouse: [f64; 2],
    held: bool,
    end: Result<(), Failure>,
}

impl ApplicationHandler for App {
    fn resumed(&mut self, events: &ActiveEventLoop) {
        match Screen::new(events, self.display.clone(), &self.args) {
            Ok(screen) => self.screen = Some(screen),
            Err(error) => self.fail(events, error),
        }
    }

    fn window_event(&mut self, events: &ActiveEventLoop, _: WindowId, event: WindowEvent) {
        let Some(screen) = &mut self.screen else { return };
        let size = [screen.config.width, screen.config.height];
        match event {
            WindowEvent::CloseRequested => events.exit(),
            WindowEvent::Resized(size) => screen.resize(size.width, size.height),
            WindowEvent::MouseInput { state, .. } => self.held = state == ElementState::Pressed,
            WindowEvent::CursorMoved { position, .. } => {
                let before = std::mem::replace(&mut self.mouse, position.into());
                if self.held {
                    screen.viewer.drag([0, 1].map(|i| self.mouse[i] - before[i]), size[0]);
                }
            }
            WindowEvent::MouseWheel { delta, .. } => {
                let lines = match delta {
                    MouseScrollDelta::LineDelta(_, lines) => f64::from(lines),
                    MouseScrollDelta::PixelDelta(pixels) => pixels.y / 50.0,
                };
                let pixel = [0, 1].map(|i| self.mouse[i] - f64::from(size[i]) / 2.0);
                screen.viewer.zoom(1.2f64.powf(lines), pixel, size[0]);
            }
            WindowEvent::RedrawRequested => match screen.frame() {
                Ok(()) => screen.window.request_redraw(),
                Err(error) => self.fail(events, error),
            },
            _ => {}
        }
    }
}

impl App {
    fn fail(&mut self, events: &ActiveEventLoop, error: Failure) {
        self.end = Err(error);
        events.exit();
    }
}

struct Screen {
    window: Arc<Window>,
    surface: wgpu::Surface<'static>,
    config: wgpu::SurfaceConfiguration,
    device: wgpu::Device,
    queue: wgpu::Queue,
    viewer: Viewer,
}

impl Screen {
    fn new(events: &ActiveEventLoop, display: OwnedDisplayHandle, args: &Args) -> Result<Self, Failure> {
        let window = Arc::new(events.create_window(Window::default_attributes().with_title("hotrow"))?);
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_with_display_handle(Box::new(display)));
        let surface = instance.create_surface(Arc::clone(&window))?;
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions {
            compatible_surface: Some(&surface),
            ..Default::default()
        }))?;
        let (required_features, required_limits) = hotrow::requirements(&adapter);
        let device = wgpu::DeviceDescriptor { required_features, required_limits, ..Default::default() };
        let (device, queue) = pollster::block_on(adapter.request_device(&device))?;
        let size = window.inner_size();
        let wanted = surface.get_default_config(&adapter, size.width.max(1), size.height.max(1));
        let mut config = wanted.ok_or("wanted an adapter that draws to this window, found none")?;
        // The shader's colours are those of the screen.
        config.format = config.format.remove_srgb_suffix();
        surface.configure(&device, &config);
        let viewer = Viewer::open(args, &device, &queue, config.format)?;
        window.request_redraw();
        Ok(Self { window, surface, config, device, queue, viewer })
    }

    fn resize(&mut self, width: u32, height: u32) {
        (self.config.width, self.config.height) = (width.max(1), height.max(1));
        self.surface.configure(&self.device, &self.config);
    }

    fn frame(&mut self) -> Result<(), Failure> {
        use wgpu::CurrentSurfaceTexture as Current;
        let shown = match self.surface.get_current_texture() {
            Current::Success(shown) => shown,
            Current::Suboptimal(shown) => {
                drop(shown); // a surface whose texture is held cannot be configured
                self.surface.configure(&self.device, &self.config);
                return Ok(());
            }
            Current::Outdated => {
                self.surface.configure(&self.device, &self.config);
                return Ok(());
            }
            Current::Timeout | Current::Occluded => return Ok(()),
            lost => return Err(format!("wanted a texture of the window, found {lost:?}").into()),
        };
        let emb = self.viewer.begin(&self.queue, [0, 0], [self.config.width, self.config.height])?;
        let view = shown.texture.create_view(&wgpu::TextureViewDescriptor::default());
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let ops = wgpu::Operations::default();
        let attachment = wgpu::RenderPassColorAttachment { view: &view, depth_slice: None, resolve_target: None, ops };
        let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
            color_attachments: &[Some(attachment)],
            ..Default::default()
        });
        self.viewer.draw(&mut pass, &emb);
        drop(pass);
        self.viewer.end(&mut encoder)?;
        self.queue.submit([encoder.finish()]);
        self.window.pre_present_notify();
        self.queue.present(shown);
        if let Some(line) = self.viewer.tell()? {
            self.window.set_title(&line);
        }
        Ok(())
    }
}
