//! Prints every shader in every variant as JSON, for compilers other than naga (`scripts/portability`).

use serde_json::{Map, json};

fn main() -> serde_json::Result<()> {
    let shaders: Vec<_> = hotrow::shader::sources()
        .into_iter()
        .map(|source| {
            let constants: Map<_, _> =
                source.constants.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            json!({
                "name": source.name,
                "variant": source.variant,
                "wgsl": source.wgsl,
                "subgroups": source.subgroups,
                "constants": constants,
            })
        })
        .collect();
    serde_json::to_writer_pretty(std::io::stdout(), &shaders)
}
