//! Prints every shader in every variant as JSON, for compilers other than naga (`scripts/portability`). With the argument `dx12`, as DX12 has them.

use hotrow::internals::{
    self,
    shader::{self, Access, ReaderKind, ReaderText, Sizes, WantedList},
};
use serde_json::{Value, json};

fn module(name: &str, variant: &str, wgsl: &str, subgroups: bool, storage_buffers: usize) -> Value {
    json!({
        "name": name, "variant": variant, "wgsl": wgsl, "subgroups": subgroups, "storage_buffers": storage_buffers, "constants": {},
    })
}

/// Two readers, one with feedback, in a module with a shader of each stage.
fn two_readers() -> Value {
    let text = |prefix, group, feedback| ReaderText {
        prefix,
        group,
        sizes: Sizes { width: 4, ..Sizes::ONE },
        kind: ReaderKind::Rows { cache: true, shares: false, table: false },
        feedback,
        grid: None,
    };
    let list = WantedList { rows: 100, bits: 1 << 10, hashed: true };
    let entries = "
        @group(1) @binding(0) var<storage, read_write> sink: array<vec4<f32>>;
        fn find(row: u32) -> vec4<f32> { return emb_row4(row, 0u) + map_at(map_find(row), 1u); }
        @vertex fn vertex(@builtin(vertex_index) i: u32) -> @builtin(position) vec4<f32> { return find(i); }
        @fragment fn fragment(@builtin(position) at: vec4<f32>) -> @location(0) vec4<f32> {
            emb_want(u32(at.x));
            return find(u32(at.x));
        }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            emb_want(id.x);
            sink[id.x] = find(id.x);
        }
    ";
    let wgsl = text("emb", 0, Some(list)).compose() + &text("map", 2, None).compose() + entries;
    module("reader", "two readers", &wgsl, false, 6)
}

fn main() -> serde_json::Result<()> {
    let dx12 = std::env::args().nth(1).as_deref() == Some("dx12");
    let sources = if dx12 { internals::sources_of_dx12() } else { internals::sources() };
    let shaders: Vec<_> = sources
        .into_iter()
        // Only naga has atomic floats.
        .filter(|source| !source.float_atomics)
        .map(|source| {
            let kernel = internals::kernels().iter().find(|kernel| kernel.name == source.name);
            let bindings = kernel.map_or_else(Vec::new, |kernel| shader::bindings(kernel, source.sizes));
            let storage = bindings.iter().filter(|(access, _)| *access != Access::Uniform).count();
            module(source.name, source.variant, &source.wgsl, source.subgroups, storage)
        })
        .chain(shader::reader_modules().into_iter().map(|(variant, wgsl, text)| {
            let storage = text.bindings().iter().filter(|(access, _)| *access != Access::Uniform).count() + 1;
            module("reader", &variant, &wgsl, false, storage)
        }))
        .chain([two_readers()])
        .collect();
    serde_json::to_writer_pretty(std::io::stdout(), &shaders)
}
