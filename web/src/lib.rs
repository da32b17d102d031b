//! The part of the page that runs in wasm: it opens the device, tests it against the CPU backend, and measures. The page itself, `page/`,
//! shows what it returns.
#![cfg(target_family = "wasm")]

mod check;
mod measure;

use std::sync::{Arc, Mutex, PoisonError};

use hotrow::{Context, Error, Group, GroupConfig, Placement, Sorter, adapter, requirements, wgpu};
use serde_json::json;
use wasm_bindgen::prelude::*;

/// The first fault that the device has told of outside a call.
type Faults = Arc<Mutex<Option<String>>>;

/// An open device.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Page {
    context: Context,
    faults: Faults,
}

fn message(error: impl std::fmt::Display) -> JsError {
    JsError::new(&error.to_string())
}

#[wasm_bindgen]
impl Page {
    /// Opens the browser's device: with all that hotrow can use, or, if `plain`, with WebGPU's default limits and no feature.
    pub async fn open(plain: bool) -> Result<Page, JsError> {
        let found = adapter::adapters_async().await;
        let Some(adapter) = found.first() else {
            return Err(adapter::open_best_async().await.err().map_or_else(|| message("no adapter"), message));
        };
        let descriptor = if plain { wgpu::DeviceDescriptor::default() } else { requirements(adapter) };
        let (device, queue) = adapter.request_device(&descriptor).await.map_err(message)?;
        let faults = Faults::default();
        let note = |what: String, faults: &Faults| {
            faults.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(what);
        };
        let (lost, uncaptured) = (faults.clone(), faults.clone());
        device.set_device_lost_callback(move |_, reason| note(format!("the device was lost: {reason}"), &lost));
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(error.to_string(), &uncaptured)));
        let context = Context::new_async(&device, &queue).await.map_err(message)?;
        Ok(Self { context, faults })
    }

    /// What the device was opened with, as JSON.
    pub fn device(&self) -> String {
        let caps = self.context.caps();
        let (rank, lookup) = (caps.choose_rank(), caps.choose_lookup());
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "commit": option_env!("HOTROW_COMMIT").unwrap_or("unknown commit"),
            "shapes": { "small": measure::shape(true), "full": measure::shape(false) },
            "backend": "WebGPU",
            "subgroups": caps.subgroup.is_some(),
            "subgroup_sizes": caps.subgroup.map(|(least, most)| [least, most]),
            "timestamps": caps.timestamps,
            "software": !caps.is_hardware(),
            "rank_body": format!("{rank:?}"),
            "lookup_body": format!("{lookup:?}"),
            "limits": {
                "storage_buffers_per_stage": caps.storage_buffers,
                "binding_bytes": caps.binding_bytes,
                "buffer_bytes": caps.buffer_bytes,
            },
        })
        .to_string()
    }

    /// The first fault that the device has told of, if any. After one, no figure counts.
    pub fn fault(&self) -> Option<String> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loses the device on purpose, for the test of this page.
    pub fn lose(&self) {
        self.context.device().destroy();
    }

    /// Runs a random small configuration on the device and on the CPU. Returns its name, a colon and the first difference, or only its name.
    /// `spoil` changes one expected value, so that the test of this page can see a difference.
    pub async fn check(&self, seed: u32, spoil: bool) -> String {
        check::run(&self.context, seed, spoil).await
    }

    /// For the test of this page: makes two calls that must fail, and returns the messages. A browser refuses mapped tables at once. It tells
    /// only later that it has refused a command; the context keeps that, and reports it once.
    pub async fn refusals(&self) -> Vec<String> {
        let told = |error: Option<Error>| error.map_or_else(|| "no error".into(), |error| error.to_string());
        let mapped = GroupConfig::new(&[10], 4).with_placement(Placement::Mapped);
        let mapped = Group::new_async(&self.context, mapped).await.err();
        let at_once = self.sort_nothing().await.err();
        let later = self.context.check_async().await.err();
        let again = self.context.check_async().await.err();
        [mapped, at_once, later, again].map(told).into()
    }

    /// The figures that the page measures, as JSON.
    pub fn plan(&self, small: bool) -> String {
        serde_json::Value::from_iter(measure::plan(small).iter().map(measure::Figure::json)).to_string()
    }

    /// Measures a figure of the plan. Returns records of the file, as JSON, and `what` and `why` of what could not be measured.
    pub async fn measure(&self, small: bool, index: usize) -> Result<String, JsError> {
        let plan = measure::plan(small);
        let figure = plan.get(index).ok_or_else(|| message("no such figure"))?;
        let found = measure::run(&self.context, figure, small).await;
        self.judge(found).map(|records| serde_json::Value::from(records).to_string())
    }
}

impl Page {
    /// Encodes a sort of a buffer that the device has refused to create.
    async fn sort_nothing(&self) -> Result<(), Error> {
        let device = self.context.device();
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::STORAGE;
        let keys =
            device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 64, usage, mapped_at_creation: false });
        drop(scope.pop().await);
        let sorter = Sorter::new(&self.context, 16)?;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        sorter.encode_sort(&mut encoder, keys.slice(..), None, None, 32).map(drop)
    }

    /// The result, unless the device has told of a fault.
    fn judge<T>(&self, found: Result<T, Error>) -> Result<T, JsError> {
        match self.fault() {
            Some(fault) => Err(message(fault)),
            None => found.map_err(message),
        }
    }
}
