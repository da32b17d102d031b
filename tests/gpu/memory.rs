//! The memory report against what wgpu's allocator handed out.

use hotrow::{
    Batch, Embedding as _, Group, GroupConfig, MemoryReport, Optimizer, Policy, Precision, adapter,
    wgpu::{self, util::DeviceExt as _},
};

use crate::device::{skipped, with_gpu};

/// Sizes and number of the allocations made for hotrow's buffers on `device`.
fn allocated(device: &wgpu::Device) -> Option<(u64, u64)> {
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let report = device.generate_allocator_report()?;
    let ours: Vec<_> = report.allocations.iter().filter(|a| a.name.starts_with("hotrow.")).map(|a| a.size).collect();
    Some((ours.iter().sum(), ours.len() as u64))
}

#[test]
fn every_byte_of_every_buffer() {
    // The shared device is in use by other tests; this one counts everything on its own.
    with_gpu(|_| {
        let context = adapter::open_best(adapter::Wanted::Any).unwrap();
        for (precision, policy, cache_rows, optimizer, shard_bytes) in [
            (Precision::Int4, Policy::Lfu, 320, Optimizer::adagrad(0.1), Some(40_000)),
            (Precision::Fp16, Policy::Lru, 64, Optimizer::row_wise_adagrad(0.1), None),
            (Precision::Fp32, Policy::Lfu, 0, Optimizer::sgd(0.1), None),
        ] {
            let mut config = GroupConfig::new(&[3000, 500], 9);
            (config.precision, config.policy, config.cache_rows) = (precision, policy, cache_rows);
            (config.optimizer, config.shard_bytes) = (optimizer, shard_bytes);
            let mut group = Group::new(&context, config.clone()).unwrap();
            assert_eq!(group.memory(), MemoryReport::of(&config, group.layout()), "before any step");
            compare(&context, &group);

            let buffer = |words: &[u32]| {
                context.device().create_buffer_init(&wgpu::util::BufferInitDescriptor {
                    label: Some("caller"),
                    contents: bytemuck::cast_slice(words),
                    usage: wgpu::BufferUsages::STORAGE,
                })
            };
            let (indices, offsets) = (buffer(&[7; 400]), buffer(&[0, 300, 400]));
            let outputs = buffer(&[0; 18]);
            let batch = Batch { indices: Some(indices.slice(..)), offsets: offsets.slice(..), weights: None };
            let mut encoder = context.device().create_command_encoder(&Default::default());
            group.record_forward(&mut encoder, &batch, outputs.slice(..)).unwrap();
            group.record_backward(&mut encoder, outputs.slice(..)).unwrap();
            group.record_forward_frozen(&mut encoder, &batch, outputs.slice(..)).unwrap();
            group.record_flush(&mut encoder).unwrap();
            context.queue().submit([encoder.finish()]);
            let report = group.memory();
            assert_eq!(report.kept(), MemoryReport::of(&config, group.layout()).total());
            assert!(report.scratch > 400 * 4 * 10, "{report}");
            compare(&context, &group);
        }
    });
}

fn compare(context: &hotrow::Context, group: &Group) {
    let total = group.memory().total();
    let Some((bytes, allocations)) = allocated(context.device()) else {
        skipped("memory against the driver: this backend reports no allocations");
        return;
    };
    eprintln!("{total} bytes reported, {bytes} allocated in {allocations}");
    // A driver may round each one up, never down.
    assert!(bytes >= total && bytes < total + 256 * allocations, "{total} reported, {bytes} in {allocations}");
}
