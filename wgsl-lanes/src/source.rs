//! The text of a kernel, parsed and validated.

use naga::{
    Module, ShaderStage,
    valid::{Capabilities, ModuleInfo, ValidationFlags, Validator},
};

/// A parsed text with one entry point and its overrides replaced.
#[derive(Debug)]
pub struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) module: Module,
    pub(crate) info: ModuleInfo,
}

impl Source {
    /// Parses and validates `text`. `name` is what findings call the kernel; `entry` its entry point, which may be left out if there is only one, as in
    /// wgpu; `constants` are the values of overrides.
    ///
    /// # Errors
    ///
    /// What naga says of the text, or that it has no such entry point.
    pub fn new(name: &str, entry: Option<&str>, text: &str, constants: &[(&str, f64)]) -> Result<Self, String> {
        let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
        let capabilities =
            Capabilities::SUBGROUP | Capabilities::SHADER_FLOAT32_ATOMIC | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .validate(&module)
            .map_err(|error| error.emit_to_string(text))?;
        let fits =
            |one: &&naga::EntryPoint| one.stage == ShaderStage::Compute && entry.is_none_or(|entry| entry == one.name);
        let mut fitting = module.entry_points.iter().filter(fits);
        let (Some(only), None) = (fitting.next(), fitting.next()) else {
            return Err(format!(
                "{name}: wanted one compute entry point {}, found none or several",
                entry.unwrap_or("")
            ));
        };
        let only = Some((ShaderStage::Compute, &*only.name));
        let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let (module, info) = naga::back::pipeline_constants::process_overrides(&module, &info, only, &constants)
            .map_err(|error| format!("overrides: {error}"))?;
        let (module, info) = (module.into_owned(), info.into_owned());
        Ok(Self { name: name.to_owned(), text: text.to_owned(), module, info })
    }
}
