//! Embedding rows in a wgpu program of your own, with your device and your encoder, and without waiting.
#![allow(clippy::print_stdout, reason = "an example shows its result")]

use hotrow::wgpu::{self, util::DeviceExt as _};
use hotrow::{Batch, Context, Group, GroupConfig, Mode, Optimizer, Precision, prelude::*};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Your program already has an adapter, and a device that requests what hotrow uses.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    let (device, queue) = pollster::block_on(adapter.request_device(&hotrow::requirements(&adapter)))?;

    // 100,000 rows of 64 in INT4, and a cache of the 5,000 hottest in FP32.
    let context = Context::new(&device, &queue)?;
    let config = GroupConfig::new(&[100_000], 64)
        .with_precision(Precision::Int4)
        .with_cache_rows(5_000)
        .with_optimizer(Optimizer::row_wise_adagrad(0.05));
    let mut table = Group::new(&context, config)?;

    // Two bags, {3, 14, 15} and {92, 65}, and room for their pooled rows; here the gradient is all ones.
    let upload = |contents: &[u8]| {
        let usage = wgpu::BufferUsages::STORAGE;
        device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents, usage })
    };
    let indices = upload(bytemuck::cast_slice(&[3u32, 14, 15, 92, 65]));
    let offsets = upload(bytemuck::cast_slice(&[0u32, 3, 5]));
    let pooled = upload(&[0; 2 * 64 * 4]);
    let grads = upload(bytemuck::cast_slice(&[1f32; 2 * 64]));

    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
    table.encode_forward(&mut encoder, &batch, pooled.slice(..), Mode::Train)?;
    // Your own passes that turn `pooled` into `grads` go here, into the same encoder.
    table.encode_backward(&mut encoder, grads.slice(..))?;
    queue.submit([encoder.finish()]);

    println!("on {}: row 3 begins with {}", context.caps().name, table.read_rows(&[3])?[0]);
    Ok(())
}
