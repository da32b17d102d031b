//! Results that must be equal bit for bit (SPEC 3, What must hold).

use hotrow::internals::{Pieces as _, rows::correction};
use hotrow::{Context, Group, GroupConfig, Init, Optimizer, Precision, prelude::*, wgpu};
use rand::{RngExt, SeedableRng};

use crate::caller::{self, Shader, UNIFORM, WRITE, download, storage};
use hotrow_harness::device::{share, with_gpu};

fn config(precision: Precision, cache_rows: u32) -> GroupConfig {
    let mut config = GroupConfig::new(&[400, 200], 33);
    config.precision = precision;
    config.cache_rows = cache_rows;
    config.optimizer = Optimizer::adagrad(0.1);
    config.init = Init::Uniform { low: -1.0, high: 1.0 };
    config.set_shard_bytes(Some(60_000));
    config
}

/// Runs ten skewed steps. Returns the bits of all outputs, and of all rows after the last step.
fn run(context: &Context, config: GroupConfig) -> Vec<u32> {
    let mut source = rand_pcg::Pcg64::seed_from_u64(hotrow_harness::seed_for("exact"));
    let mut group = Group::new(context, config).unwrap();
    let mut seen = Vec::new();
    for _ in 0..10 {
        let indices: Vec<u32> = (0..600).map(|_| source.random_range(0..200u32) * source.random_range(0..2)).collect();
        let offsets: Vec<u32> = (0..=60).map(|bag| bag * 10).collect();
        let outputs = group.forward(&indices, &offsets, None).unwrap();
        let grads: Vec<f32> = outputs.iter().map(|x| x * 0.1 + 0.01).collect();
        group.backward(&grads).unwrap();
        seen.extend(outputs.iter().map(|x| x.to_bits()));
    }
    let rows: Vec<u32> = (0..600).collect();
    seen.extend(group.read_rows(&rows).unwrap().iter().map(|x| x.to_bits()));
    group.flush().unwrap();
    seen.extend(group.read_rows(&rows).unwrap().iter().map(|x| x.to_bits()));
    seen
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_does_not() {
    with_gpu(|context| {
        for precision in share([Precision::Int4, Precision::Fp16]) {
            let once = run(context, config(precision, 64));
            assert!(run(context, config(precision, 64)) == once);
            let mut other = config(precision, 64);
            other.seed = 1;
            other.init = Init::Constant(0.3);
            let mut same_start = config(precision, 64);
            same_start.init = Init::Constant(0.3);
            assert!(run(context, other) != run(context, same_start));
        }
    });
}

/// The corrections of Adam on the GPU, by a shader with this text of `correction`.
fn corrections(context: &Context, text: &str, cases: &[(f32, u32)]) -> Vec<u32> {
    let n = cases.len();
    let text = format!(
        "struct Params {{ zero: u32 }}
        @group(0) @binding(0) var<uniform> params: Params;
        @group(0) @binding(1) var<storage, read_write> cases: array<vec2<u32>>;
        {text}
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            if (id.x >= {n}u) {{ return; }}
            cases[id.x].x = bitcast<u32>(correction(bitcast<f32>(cases[id.x].x), cases[id.x].y));
        }}"
    );
    let shader = Shader::new(context, text, &[UNIFORM, WRITE], None);
    let words: Vec<u32> = cases.iter().flat_map(|(beta, t)| [beta.to_bits(), *t]).collect();
    let params = caller::buffer(context, 16, wgpu::BufferUsages::UNIFORM);
    let cases = storage(context, &words);
    let mut encoder = caller::encoder(context);
    shader.dispatch(&mut encoder, &[&params, &cases], None, n.div_ceil(64) as u32);
    download(context, encoder, &cases).chunks(2).map(|case| case[0]).collect()
}

#[test]
fn adam_is_corrected_by_the_same_bits() {
    let steps = (0..1000).chain((10..32).flat_map(|k| [(1 << k) - 1, 1 << k, (1 << k) + 1])).chain([u32::MAX]);
    let betas = [0.0f32, 0.3, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.999_99];
    let cases: Vec<(f32, u32)> = steps.flat_map(|t| betas.map(|beta| (beta, t))).collect();
    let wanted: Vec<u32> = cases.iter().map(|&(beta, t)| correction(beta, t).to_bits()).collect();
    let text = include_str!("../../shaders/shared/correction.wgsl");
    with_gpu(|context| {
        assert!(corrections(context, text, &cases) == wanted);
        // Another order of the operations gives other bits.
        let other = text.replace("q * alone(2.0 - q)", "q + alone(q - q * q)");
        assert!(other != text && corrections(context, &other, &cases) != wanted);
    });
}
