//! Prints every shader in every variant as JSON, for compilers other than naga (`scripts/portability`).

use hotrow::internals::{
    self,
    shader::{self, Access},
};
use serde_json::{Map, json};

fn main() -> serde_json::Result<()> {
    let shaders: Vec<_> = internals::sources()
        .into_iter()
        // Only naga has atomic floats.
        .filter(|source| !source.float_atomics)
        .map(|source| {
            let constants: Map<_, _> =
                source.constants.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            let kernel = internals::kernels().iter().find(|kernel| kernel.name == source.name);
            let bindings = kernel.map_or_else(Vec::new, |kernel| shader::bindings(kernel, source.cut));
            let storage = bindings.iter().filter(|(access, _)| *access != Access::Uniform).count();
            json!({
                "name": source.name,
                "variant": source.variant,
                "wgsl": source.wgsl,
                "subgroups": source.subgroups,
                "storage_buffers": storage,
                "constants": constants,
            })
        })
        .chain(hotrow_cli::uvm::shaders().into_iter().chain([hotrow_cli::fill::SHADER]).map(
            |(name, wgsl)| json!({ "name": name, "variant": "", "wgsl": wgsl, "subgroups": false, "constants": {} }),
        ))
        .chain(shader::reader_modules().into_iter().map(|(variant, wgsl, text)| {
            let storage = text.bindings().iter().filter(|(access, _)| *access != Access::Uniform).count() + 1;
            json!({
                "name": "reader",
                "variant": variant,
                "wgsl": wgsl,
                "subgroups": false,
                "storage_buffers": storage,
                "constants": {},
            })
        }))
        .collect();
    serde_json::to_writer_pretty(std::io::stdout(), &shaders)
}
