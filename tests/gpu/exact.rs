//! The corrections of Adam, which must be equal bit for bit (SPEC 3, What must hold).

use hotrow::{Context, internals::correction, wgpu};

use crate::caller::{self, Shader, UNIFORM, WRITE, download, storage};
use hotrow_harness::device::with_gpu;

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
