//! Pipelines of a group's own: how many there are, when they are made, and who shares them.

use hotrow::{
    Bags, Context, ContextOptions, Embedding as _, Error, GradSlice, Group, GroupConfig, Lookup as _, Mode, Optimizer,
    Pooling, Precision, ScalerState,
    internals::{context_with_texts, pipeline_cache, pipelines_built, shader::compose},
    wgpu,
};
use wgsl_lanes::{Config, open};

use hotrow_harness::{
    device::{again, options, skipped},
    gpu_test, lanes,
};

/// The most pipelines that a group has beside those that all groups of a context share.
const MOST: usize = 12;

fn own_pipelines() -> Context {
    again(&options().shared_pipelines(false))
}

fn config(precision: Precision, optimizer: Optimizer) -> GroupConfig {
    let mut config = GroupConfig::new(&[300], 8);
    (config.precision, config.optimizer, config.cache_rows) = (precision, optimizer, 64);
    config
}

/// Every kind of call, plain and not.
fn calls(group: &mut Group) {
    let (indices, offsets) = ([3, 5, 3, 299], [0, 1, 2, 4]);
    for weights in [None, Some(&[1.0, 0.5, 2.0, 0.25][..])] {
        let outputs = group.forward(Bags::new(&indices, &offsets).with_weights(weights), Mode::Train).unwrap();
        if weights.is_some() {
            group.weight_gradient(Bags::new(&indices, &offsets), &outputs).unwrap();
        }
        group.backward(&outputs).unwrap();
        let outputs = group.forward(Bags::new(&indices, &offsets).with_weights(weights), Mode::Train).unwrap();
        let ones = vec![half::f16::ONE; outputs.len()];
        group.backward_scaled(GradSlice::F16(&ones), &ScalerState::unscaled_decision()).unwrap();
        group.forward(Bags::new(&indices, &offsets).with_weights(weights), Mode::Frozen).unwrap();
    }
    let row = group.read_rows(&[3]).unwrap();
    group.write_rows(&[4], &row).unwrap();
    group.flush().unwrap();
}

#[gpu_test]
fn they_are_made_with_the_group_and_shared_by_equal_groups(_: &Context) {
    let context = own_pipelines();
    let first = config(Precision::Int8, Optimizer::adagrad(0.1));
    let before = pipelines_built(&context);
    let mut group = Group::new(&context, first.clone()).unwrap();
    let with_group = pipelines_built(&context);
    assert!((1..=MOST).contains(&(with_group - before)), "{}", with_group - before);
    calls(&mut group);
    group.resize_cache(128).unwrap();
    calls(&mut group);
    let mut equal = first.clone();
    (equal.tables, equal.optimizer, equal.cache_rows) = (vec![1000], Optimizer::adagrad(0.5), 320);
    calls(&mut Group::new(&context, equal).unwrap());
    assert_eq!(pipelines_built(&context), with_group, "made while encoding, or for an equal group");

    let (mut mean, mut wide) = (first.clone(), first);
    (mean.pooling, wide.dim) = (Pooling::Mean, 16);
    // Groups of another kind have their own, except of stages that do not depend on what differs.
    let others: Vec<_> =
        [config(Precision::Int4, Optimizer::adagrad(0.1)), config(Precision::Int8, Optimizer::sgd(0.1)), mean, wide]
            .into_iter()
            .map(|config| {
                let before = pipelines_built(&context);
                calls(&mut Group::new(&context, config).unwrap());
                pipelines_built(&context) - before
            })
            .collect();
    assert!(others.iter().all(|count| (1..=8).contains(count)), "{others:?}");
    println!("pipelines of a first group {}, of others {others:?}", with_group - before);
}

#[gpu_test]
fn groups_of_every_kind_share_where_asked(_: &Context) {
    let context = again(&options().shared_pipelines(true));
    calls(&mut Group::new(&context, config(Precision::Int8, Optimizer::adagrad(0.1))).unwrap());
    let before = pipelines_built(&context);
    calls(&mut Group::new(&context, config(Precision::Int2, Optimizer::row_wise_adagrad(0.1))).unwrap());
    assert_eq!(pipelines_built(&context), before);
}

/// The caller's cache reaches every pipeline: that of another device is refused. A second start, with what the first has saved, adds nothing.
#[gpu_test]
fn pipelines_are_made_with_the_callers_cache(_: &Context) {
    let adapter = &hotrow::adapter::adapters()[0];
    if !adapter.features().contains(wgpu::Features::PIPELINE_CACHE) {
        return skipped("a cache of pipelines: the device has none");
    }
    let [(device, queue), (other, _)] = [(); 2].map(|()| {
        let required_features = wgpu::Features::PIPELINE_CACHE;
        let descriptor = wgpu::DeviceDescriptor { required_features, ..Default::default() };
        pollster::block_on(adapter.request_device(&descriptor)).unwrap()
    });
    let context = |cache: &wgpu::PipelineCache| {
        Context::with_options(&device, &queue, &ContextOptions::default().pipeline_cache(cache))
    };
    let refused = context(&pipeline_cache(&other, None)).err();
    let named = matches!(refused, Some(Error::Unsupported { what: "ContextOptions::pipeline_cache", .. }));
    assert!(named, "{refused:?}");

    let start = |cache: &wgpu::PipelineCache| {
        let bytes = || cache.get_data().expect("a Vulkan driver gives its cache").len();
        let before = bytes();
        calls(&mut Group::new(&context(cache).unwrap(), config(Precision::Fp16, Optimizer::sgd(0.1))).unwrap());
        bytes() - before
    };
    let cache = pipeline_cache(&device, None);
    if start(&cache) == 0 {
        return skipped("a second start with a cache of pipelines: the driver keeps nothing in it");
    }
    assert_eq!(start(&pipeline_cache(&device, Some(&cache))), 0, "the second start compiled what the first had saved");
}

/// Whether naga, wgpu or the driver's compiler refuses a kernel: the error names it, and the caller's handler of errors sees none.
#[gpu_test]
fn a_kernel_that_does_not_compile_is_named(context: &Context) {
    let with = |device: &wgpu::Device, queue: &wgpu::Queue, from: &'static str, to: &'static str| {
        let made = context_with_texts(device, queue, 65_535, move |kernel, bodies| {
            let text = compose(kernel, bodies);
            if kernel.name == "histogram" { text.replace(from, to) } else { text }
        });
        let error = made.unwrap_err();
        assert!(matches!(error, Error::Unsupported { what: "histogram", .. }), "{error}");
        error.to_string()
    };
    let text = with(context.device(), context.queue(), "fn main(", "fn main((");
    assert!(text.contains("expected identifier"), "{text}");
    let text = with(context.device(), context.queue(), "@binding(1)", "@binding(17)");
    assert!(text.contains("binding: 17"), "{text}");
    // llvmpipe compiles whatever wgpu takes, so the lane executor stands for a driver that does not.
    let (device, queue, _) = open(&Config { stumbles: Some("// planted"), ..lanes::config() });
    let text = with(&device, &queue, "fn main(", "// planted\nfn main(");
    assert_eq!(
        text,
        "histogram: wanted a driver that compiles this kernel, the device has one that says: histogram: the compiler stumbles; update the driver \
         (on Windows, put dxcompiler.dll beside the program), or take another adapter; `hotrow info` lists them"
    );
    // A group's own pipelines are compiled with the group.
    let context = Context::with_options(&device, &queue, &ContextOptions::default()).unwrap();
    Group::new(&context, config(Precision::Int8, Optimizer::adagrad(0.1))).unwrap();
    let (device, queue, _) = open(&Config { stumbles: Some("fn belongs("), ..lanes::config() });
    let context = Context::with_options(&device, &queue, &ContextOptions::default()).unwrap();
    let error = Group::new(&context, config(Precision::Int8, Optimizer::adagrad(0.1))).unwrap_err();
    assert!(error.to_string().contains("the compiler stumbles"), "{error}");
}
