//! Tables in models of burn, against burn's own embedding on its CPU backend, and against the same group by itself.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData, activation::relu};
use hotrow::{
    Bags, Group, GroupConfig, Init, Lookup, Mode, Optimizer, OutOfRange, Policy, Precision, SharedGroup, adapter,
    internals, robe, wgpu,
};
use hotrow_burn::{EmbeddingBag, Error, Shared, Tables, backward, forward};
use hotrow_harness::device::with_gpu;
use hotrow_harness::seed::seed_for;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The device of all tests, registered with burn once.
fn with_shared(test: impl FnOnce(&Shared)) {
    with_gpu(|_| test(&shared().0));
}

fn shared() -> &'static (Shared, wgpu::Adapter) {
    static SHARED: OnceLock<(Shared, wgpu::Adapter)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let adapter = adapter::adapters().remove(0);
        (Shared::open(&instance(), &adapter).unwrap(), adapter)
    })
}

fn instance() -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env())
}

fn random(source: &mut StdRng, values: usize) -> Vec<f32> {
    (0..values).map(|_| source.random_range(-1.0..1.0)).collect()
}

fn tensor(values: &[f32], shape: [usize; 2], device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn bits(rows: &[f32]) -> Vec<u32> {
    rows.iter().map(|value| value.to_bits()).collect()
}

/// Random bags of up to 5 indices.
fn bags(source: &mut StdRng, bags: usize, rows: u32) -> (Vec<u32>, Vec<u32>) {
    let (mut indices, mut offsets) = (Vec::new(), vec![0]);
    for _ in 0..bags {
        let each = source.random_range(0..=5);
        indices.extend((0..each).map(|_| source.random_range(0..rows)));
        offsets.push(indices.len() as u32);
    }
    (indices, offsets)
}

#[test]
fn a_model_trains_as_with_burns_own_embedding() {
    const ROWS: usize = 50;
    const DIM: usize = 12;
    with_shared(|shared| {
        let seed = seed_for("a_model_trains_as_with_burns_own_embedding");
        // The losses of 20 steps with burn's dense gradients on the CPU, and with hotrow's rows on the device, at these rates.
        let run = |rate: f64, own_rate: f32| {
            let mut source = StdRng::seed_from_u64(seed);
            let config = GroupConfig::new(&[ROWS as u32], DIM as u32)
                .with_precision(Precision::Fp32)
                .with_init(Init::Uniform { low: -1.0, high: 1.0 })
                .with_optimizer(Optimizer::sgd(own_rate));
            let mut group = Group::new(shared.context(), config).unwrap();
            let all: Vec<u32> = (0..ROWS as u32).collect();
            let first = group.read_rows(&all).unwrap();
            let bag = EmbeddingBag::new(shared, group).unwrap();
            let cpu = Device::flex().autodiff();
            let mut of_burn: Embedding = EmbeddingConfig::new(ROWS, DIM).init(&cpu);
            of_burn.weight = of_burn.weight.map(|_| tensor(&first, [ROWS, DIM], &cpu).require_grad());
            let mut optimizer = SgdConfig::new().init();
            let above = [(DIM, 7), (7, 1)].map(|(n, m)| ([n, m], random(&mut source, n * m)));
            let loss = |pooled: Tensor<2>, target: &[f32]| {
                let device = pooled.device();
                let [first, second] = [0, 1].map(|at: usize| tensor(&above[at].1, above[at].0, &device));
                let found = relu(pooled.matmul(first)).matmul(second);
                (found - tensor(target, [target.len(), 1], &device)).square().mean()
            };
            let mut losses = Vec::new();
            for _ in 0..20 {
                // Bags of three, which both have; some rows are in a batch several times.
                let indices: Vec<u32> = (0..8 * 3).map(|_| source.random_range(0..ROWS as u32)).collect();
                let (offsets, target) = ((0..=8).map(|bag| 3 * bag).collect::<Vec<u32>>(), random(&mut source, 8));
                let as_ints = TensorData::new(indices.iter().map(|&index| index as i32).collect(), [8, 3]);
                let pooled = of_burn.forward(Tensor::<2, Int>::from_data(as_ints, &cpu)).sum_dim(1).squeeze_dim(1);
                let on_cpu = loss(pooled, &target);
                let gradients = GradientsParams::from_grads(on_cpu.backward(), &of_burn);
                of_burn = optimizer.step(rate, of_burn, gradients);
                let on_device = loss(bag.forward(&indices, &offsets).unwrap(), &target);
                bag.backward(&mut on_device.backward()).unwrap();
                losses.push([on_cpu, on_device].map(|loss| values(loss)[0]));
            }
            let wanted = values(of_burn.weight.val());
            let found = bag.tables(|tables| tables.read(&all));
            let apart = wanted.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let losses = losses.iter().map(|[a, b]| (a - b).abs()).fold(0.0, f32::max);
            apart.max(losses)
        };
        let apart = run(0.1, 0.1);
        assert!(apart < 1e-5, "{apart}");
        let rejected = run(0.1, 0.101);
        assert!(rejected > 1e-4, "a rate 1 % off: {rejected}");
    });
}

/// Reads rows of a group that has been lent.
trait Read {
    fn read(&mut self, rows: &[u32]) -> Vec<f32>;
}

impl Read for dyn Tables + '_ {
    fn read(&mut self, rows: &[u32]) -> Vec<f32> {
        let offsets: Vec<u32> = (0..=rows.len() as u32).collect();
        self.forward(Bags::new(rows, &offsets), Mode::Frozen).unwrap()
    }
}

#[test]
fn a_step_is_the_group_s_bit_for_bit() {
    with_shared(|shared| {
        let mut source = StdRng::seed_from_u64(seed_for("a_step_is_the_group_s_bit_for_bit"));
        let context = shared.context();
        let cached = |dim| {
            let config = GroupConfig::new(&[400], dim).with_precision(Precision::Int4).with_cache_rows(64);
            config.with_policy(Policy::Lfu).with_optimizer(Optimizer::adagrad(0.1))
        };
        let array = || robe::Config::new(&[400], 16, 640, 8).with_optimizer(Optimizer::adagrad(0.1));
        let all: Vec<u32> = (0..400).collect();
        for (dim, both) in [
            (
                8,
                [
                    Box::new(Group::new(context, cached(8)).unwrap()) as Box<dyn Tables>,
                    Box::new(Group::new(context, cached(8)).unwrap()),
                ],
            ),
            (
                33,
                [
                    Box::new(Group::new(context, cached(33)).unwrap()),
                    Box::new(Group::new(context, cached(33)).unwrap()),
                ],
            ),
            (
                16,
                [
                    Box::new(SharedGroup::new(context, array()).unwrap()),
                    Box::new(SharedGroup::new(context, array()).unwrap()),
                ],
            ),
        ] {
            let [mut alone, mut with_burn] = both;
            let inner = shared.device().clone().inner();
            for step in 0..6 {
                let (indices, offsets) = bags(&mut source, [1, 7, 32][step % 3], 400);
                let wanted = alone.forward(Bags::new(&indices, &offsets), Mode::Train).unwrap();
                let found = forward(&mut *with_burn, shared, (&indices, &offsets), Mode::Train).unwrap();
                assert_eq!(bits(&values(found)), bits(&wanted), "outputs, dim {dim}");
                let gradient = random(&mut source, wanted.len());
                alone.backward(&gradient).unwrap();
                let rows = gradient.len() / dim;
                let gradient = if step % 2 == 0 {
                    tensor(&gradient, [rows, dim], &inner)
                } else {
                    // Column after column in memory
                    let of = |at: usize| gradient[at % rows * dim + at / rows];
                    tensor(&(0..gradient.len()).map(of).collect::<Vec<_>>(), [dim, rows], &inner).transpose()
                };
                // Operations that burn has not run yet; with `fusion` the tensor has no buffer before.
                backward(&mut *with_burn, shared, gradient * 2.0 * 0.5).unwrap();
            }
            let [wanted, found] = [alone.read(&all), with_burn.read(&all)];
            assert_eq!(bits(&wanted), bits(&found), "rows, dim {dim}");
            // A gradient of 1 instead of -1 is noticed.
            let offsets = [0, 1];
            for (tables, gradient) in [(&mut alone, 1.0), (&mut with_burn, -1.0)] {
                forward(&mut **tables, shared, (&[3], &offsets), Mode::Train).unwrap();
                backward(&mut **tables, shared, tensor(&vec![gradient; dim], [1, dim], &inner)).unwrap();
            }
            assert_ne!(bits(&alone.read(&all)), bits(&with_burn.read(&all)), "dim {dim}");
        }
    });
}

#[derive(Module, Debug)]
struct Clicks {
    words: EmbeddingBag,
    above: Linear,
}

impl Clicks {
    fn step(
        &self,
        (indices, offsets): (&[u32], &[u32]),
        target: &Tensor<2>,
    ) -> Result<(Tensor<1>, GradientsParams), Error> {
        let pooled = self.words.forward(indices, offsets)?;
        let loss = (self.above.forward(pooled) - target.clone()).square().mean();
        let mut gradients = loss.backward();
        self.words.backward(&mut gradients)?;
        Ok((loss, GradientsParams::from_grads(gradients, self)))
    }
}

fn clicks(shared: &Shared) -> Clicks {
    let config = GroupConfig::new(&[100], 8).with_precision(Precision::Int8).with_cache_rows(32);
    let group = Group::new(shared.context(), config.with_optimizer(Optimizer::row_wise_adagrad(0.3))).unwrap();
    let above = LinearConfig::new(8, 1).init(shared.device());
    Clicks { words: EmbeddingBag::new(shared, group).unwrap(), above }
}

#[test]
fn a_module_learns_and_no_step_waits_for_the_device() {
    with_gpu(|_| {
        // A device of its own, on which no other test waits.
        let shared = &Shared::open(&instance(), &shared().1).unwrap();
        let (mut model, mut optimizer) = (clicks(shared), SgdConfig::new().init());
        assert_eq!(model.num_params(), 8 + 1, "the rows are not burn's");
        let (indices, offsets) = ([1, 2, 3, 4, 5, 6], [0, 2, 4, 6]);
        let target = tensor(&[1.0, -1.0, 0.5], [3, 1], shared.device());
        let mut step = |model: Clicks| {
            let (loss, gradients) = model.step((&indices, &offsets), &target).unwrap();
            (loss, optimizer.step(0.05, model, gradients))
        };
        let mut losses = Vec::new();
        for _ in 0..40 {
            let loss;
            (loss, model) = step(model);
            losses.push(values(loss)[0]);
        }
        assert!(losses[39] < 0.1 * losses[0], "{losses:?}");
        // A long job, and steps behind it. If one of them read something back, the job would have ended.
        let (context, start) = (shared.context(), Instant::now());
        let mut flag = busy(context);
        context.queue().submit([]);
        let waits_by_itself = start.elapsed() > Duration::from_millis(50);
        if waits_by_itself {
            hotrow_harness::device::skipped("whether burn waits in a step: this driver waits in each submit");
        } else {
            flag = busy(context);
        }
        let has_ended = || {
            context.device().poll(wgpu::PollType::Poll).unwrap();
            flag.load(Ordering::Relaxed)
        };
        let [_, waits] = internals::moments(context);
        let mut last = None;
        for _ in 0..5 {
            let (loss, next) = step(model);
            (last, model) = (Some(loss), next);
        }
        assert_eq!(internals::moments(context)[1], waits, "hotrow waited");
        assert!(waits_by_itself || !has_ended(), "five steps waited for the device");
        assert!(values(last.unwrap())[0].is_finite() && has_ended(), "a loss that is read comes after the job");
    });
}

/// Submits a dispatch that takes tenths of a second. Its flag is set once it has ended and the device is polled.
fn busy(context: &hotrow::Context) -> Arc<AtomicBool> {
    let (device, queue) = (context.device(), context.queue());
    let text = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;
        @compute @workgroup_size(64) fn spin(@builtin(global_invocation_id) id: vec3<u32>) {
            var y = id.x;
            for (var i = 0u; i < 60000u; i++) { y = y * 1664525u + (y >> 7u) + i; }
            x[id.x % 64] = y;
        }";
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("spin"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let usage = wgpu::BufferUsages::STORAGE;
    let buffer =
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size: 256, usage, mapped_at_creation: false });
    let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: buffer.as_entire_binding() }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &bind_group, &[]);
    // llvmpipe ends a loop after 65,535 rounds.
    pass.dispatch_workgroups(if context.caps().device_type == wgpu::DeviceType::Cpu { 2000 } else { 65_535 }, 1, 1);
    drop(pass);
    queue.submit([encoder.finish()]);
    let ended = Arc::new(AtomicBool::new(false));
    let flag = ended.clone();
    queue.on_submitted_work_done(move || flag.store(true, Ordering::Relaxed));
    ended
}

#[test]
fn what_does_not_fit_is_refused() {
    with_shared(|shared| {
        let refused = |found: Result<(), Error>, wanted: &str| {
            let message = found.expect_err(wanted).to_string();
            assert!(message.contains(wanted), "{message}");
        };
        let adapter = &self::shared().1;
        let other = adapter::open(adapter).unwrap();
        if adapter.features().contains(wgpu::Features::SHADER_INT64) {
            refused(
                Shared::new(&other, &instance(), adapter).map(|_| ()),
                "left out; request hotrow_burn::requirements",
            );
        }
        let mut group = Group::new(&other, GroupConfig::new(&[9], 4)).unwrap();
        let elsewhere = "tables: wanted the device that burn shares, ";
        refused(forward(&mut group, shared, (&[1], &[0, 1]), Mode::Train).map(drop), elsewhere);
        refused(EmbeddingBag::new(shared, group).map(drop), elsewhere);
        let model = clicks(shared);
        let none = || tensor(&[1.0], [1, 1], shared.device()).require_grad().sum().backward();
        refused(model.words.backward(&mut none()), "found no forward before it; call forward first");
        model.words.forward(&[1], &[0, 1]).unwrap();
        refused(
            model.words.backward(&mut none()),
            "backward: wanted the gradient of the last forward's outputs, found none",
        );
        refused(clicks(shared).words.forward(&[1], &[]).map(|_| ()), "offsets");
        // A bag on this thread has its tables lent, once.
        let bag = &model.words;
        refused(bag.tables(|_| bag.forward(&[1], &[0, 1])).map(drop), "bag: wanted no call of it inside");
        let twice = catch_unwind(AssertUnwindSafe(|| bag.tables(|_| bag.tables(|_| ()))));
        assert!(twice.is_err() && bag.tables(|tables| tables.dim()) == 8);
        // Indices and offsets of the host, at once.
        let config = || GroupConfig::new(&[4, 100], 8).with_padding(vec![Some(9), None]);
        let found = |config, indices: &[u32], offsets: &[u32]| {
            let bag = EmbeddingBag::new(shared, Group::new(shared.context(), config).unwrap()).unwrap();
            bag.forward_frozen(indices, offsets)?;
            bag.forward(indices, offsets).map(drop)
        };
        found(config(), &[3, 9, 99], &[0, 2, 3]).unwrap();
        found(config().with_out_of_range(OutOfRange::Clamp), &[4, 100], &[0, 1, 2]).unwrap();
        for (indices, offsets, wanted) in [
            (&[3, 4, 99], &[0, 2, 3][..], "table 0: wanted an index below 4, found 4 at position 1"),
            (&[3, 9, 100], &[0, 2, 3], "table 1: wanted an index below 100, found 100 at position 2"),
            (&[0, 0, 0], &[0, 2, 1], "found 2 at position 1"),
            (&[0, 0, 0], &[1, 2, 3], "found 1 at position 0"),
            (&[0, 0, 0], &[0, 2, 2], "found 2 at position 2"),
        ] {
            refused(found(config(), indices, offsets), wanted);
        }
    });
}

#[test]
fn a_gradient_of_another_shape_type_or_device_changes_nothing() {
    with_shared(|shared| {
        let config = GroupConfig::new(&[9], 4).with_precision(Precision::Fp32).with_optimizer(Optimizer::sgd(1.0));
        let mut group = Group::new(shared.context(), config).unwrap();
        let before = group.read_rows(&[1, 2, 3]).unwrap();
        forward(&mut group, shared, (&[1, 2, 3], &[0, 1, 2, 3]), Mode::Train).unwrap();
        let sibling = Shared::open(&instance(), &self::shared().1).unwrap();
        let own = instance();
        let of_own = pollster::block_on(own.request_adapter(&Default::default())).unwrap();
        let stranger = Shared::open(&own, &of_own).unwrap();
        let here = shared.device().clone().inner();
        let ones = |shape: [usize; 2], device: &Device| Tensor::<2>::ones(shape, device);
        let another = "tensor: wanted the device that burn shares, found another device; make it on Shared::device";
        let shape = "gradient: wanted the shape of the last forward's outputs, [3, 4], found [";
        let shapes = [[4, 3], [1, 12], [4, 4], [100, 4], [2, 4]].map(|found| (ones(found, &here), shape));
        for (gradient, wanted) in shapes.into_iter().chain([
            (ones([3, 4], &here).cast(DType::F16), "tensor: wanted FP32, found F16; cast it"),
            (ones([3, 4], &sibling.device().clone().inner()), another),
            (ones([3, 4], stranger.device()), another),
            (ones([3, 4], &Device::flex()), another),
        ]) {
            let message = backward(&mut group, shared, gradient).unwrap_err().to_string();
            assert!(message.starts_with(wanted), "{message}");
        }
        // A part of a tensor whose rows are one in memory, with autodiff, is right; the group still waits for it.
        let part = Tensor::<2>::ones([1, 7], shared.device()).expand([9, 7]).slice([5..8, 2..6]);
        backward(&mut group, shared, part).unwrap();
        let wanted: Vec<f32> = before.iter().map(|value| value - 1.0).collect();
        assert_eq!(group.read_rows(&[1, 2, 3]).unwrap(), wanted);
    });
}

#[test]
fn a_bag_follows_its_device_and_its_model() {
    with_gpu(|_| {
        let shared = Shared::open(&instance(), &shared().1).unwrap().gradient_checkpointing();
        shared.device().clone().configure(FloatDType::F16).unwrap();
        let model = clicks(&shared);
        let shown = "EmbeddingBag {rows: 100, dim: 8, precision: int8}";
        assert!(format!("{model}").contains(shown) && format!("{model:?}").contains(shown), "{model}");
        let row = |model: &Clicks| model.words.tables(|tables| tables.read(&[1]));
        let moves = |model: &Clicks| {
            let before = row(model);
            let outputs = model.words.forward(&[1], &[0, 1]).unwrap();
            assert_eq!(outputs.dtype(), DType::F32);
            // burn refuses factors with another strategy.
            let weights = Tensor::<2>::ones([1, 8], (shared.device(), DType::F32)).require_grad();
            model.words.backward(&mut (outputs * weights).sum().backward()).unwrap();
            row(model) != before
        };
        assert!(moves(&model) && moves(&model.clone().no_grad()), "no_grad reaches parameters alone");
        assert!(!moves(&model.valid()) && !moves(&model.clone().freeze()));
        // A forward that waits when its bag is frozen is given up.
        let outputs = model.words.forward(&[1], &[0, 1]).unwrap();
        let loss = outputs * Tensor::<2>::ones([1, 8], (shared.device(), DType::F32)).require_grad();
        model.clone().freeze().words.backward(&mut loss.sum().backward()).unwrap();
        assert!(moves(&model.freeze().unfreeze()));
    });
}

/// Goes with the crate's paragraph on threads: burn alone, without hotrow.
#[test]
fn burn_reads_a_tensor_that_another_thread_changed_in_place() {
    with_shared(|shared| {
        let device = &shared.device().clone().inner();
        // Of 20 tensors that another thread doubles, those that are read as they were.
        let stale = |anew: bool, flush: bool| {
            let one = |_: &usize| {
                let tensor = Tensor::<2>::ones([8, 8], device);
                assert_eq!(values(tensor.clone())[0], 1.0);
                let _held = anew.then(|| tensor.clone());
                let twice = || (tensor * 2.0, flush.then(|| device.flush().unwrap())).0;
                values(std::thread::scope(|scope| scope.spawn(twice).join().unwrap()))[0] == 1.0
            };
            (0..20).filter(one).count()
        };
        let [in_place, flushed, anew] = [(false, false), (false, true), (true, false)].map(|(a, b)| stale(a, b));
        println!("stale of 20: {in_place} in place, {flushed} with a flush, {anew} made anew");
        assert_ne!(in_place, 0, "burn needs it no longer: remove the crate's paragraph on threads, and this test");
        assert_eq!((flushed, anew), (0, 0), "the crate's paragraph on threads is wrong: correct it");
    });
}
