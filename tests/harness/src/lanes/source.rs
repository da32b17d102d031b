//! The text of a kernel: its module, its code, and the file and line that a line of the composed text came from.

use std::{collections::HashMap, path::Path, sync::OnceLock};

use naga::{
    Module, ShaderStage,
    valid::{Capabilities, ModuleInfo, ValidationFlags, Validator},
};

/// A parsed text with its overrides replaced.
#[derive(Debug)]
pub struct Source {
    pub name: String,
    pub text: String,
    pub module: Module,
    pub info: ModuleInfo,
}

impl Source {
    /// Parses and validates `text`.
    pub fn new(name: &str, text: &str, constants: &[(&str, f64)]) -> Result<Self, String> {
        let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
        let capabilities =
            Capabilities::SUBGROUP | Capabilities::SHADER_FLOAT32_ATOMIC | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .validate(&module)
            .map_err(|error| error.emit_to_string(text))?;
        let constants = constants.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
        let entry = Some((ShaderStage::Compute, "main"));
        let (module, info) = naga::back::pipeline_constants::process_overrides(&module, &info, entry, &constants)
            .map_err(|error| format!("overrides: {error}"))?;
        let (module, info) = (module.into_owned(), info.into_owned());
        Ok(Self { name: name.to_owned(), text: text.to_owned(), module, info })
    }

    /// The code of the text as it is.
    pub fn program(&self) -> super::program::Program {
        super::compile::compile(&self.module, &self.info, &self.text, None)
    }

    /// `file:line` of a line of the text, as far as the files under `shaders/` tell.
    pub fn place(&self, line: u32) -> String {
        if line == 0 {
            return String::new();
        }
        place(&self.text, line).unwrap_or_else(|| format!("line {line}"))
    }
}

/// Where a line stands in the files.
type Places = HashMap<String, Vec<(usize, usize)>>;

struct Files {
    names: Vec<String>,
    lines: Vec<Vec<String>>,
    places: Places,
}

fn files() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shaders");
        let mut files = Files { names: Vec::new(), lines: Vec::new(), places: HashMap::new() };
        // Without the sources, as on a bare machine, places are lines of the composed text.
        let folders = std::fs::read_dir(&root).into_iter().flatten();
        let mut folders: Vec<_> = folders.map(|entry| entry.unwrap().path()).collect();
        folders.sort();
        for folder in folders.iter().filter(|folder| folder.is_dir()) {
            let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            for path in paths {
                let text = std::fs::read_to_string(&path).unwrap();
                let lines: Vec<String> = text.lines().map(str::to_owned).collect();
                for (at, line) in lines.iter().enumerate() {
                    let here = (files.names.len(), at);
                    files.places.entry(line.clone()).or_default().push(here);
                    let marked = |mark| line.trim_start().strip_prefix(mark);
                    let shard = marked("#shard ").and_then(|rest: &str| rest.split_once(": "));
                    if let Some(text) = marked("#window ").or(shard.map(|(_, text)| text)) {
                        for number in 0..32 {
                            let digits = if number == 0 { String::new() } else { number.to_string() };
                            let copy = format!("    {}", text.replace('$', &digits));
                            files.places.entry(copy).or_default().push(here);
                        }
                    }
                }
                files.names.push(path.strip_prefix(&root).unwrap().display().to_string());
                files.lines.push(lines);
            }
        }
        files
    })
}

/// The lines of a file under `shaders/`.
pub fn lines(name: &str) -> Option<&'static [String]> {
    let files = files();
    files.names.iter().position(|known| known == name).map(|at| &*files.lines[at])
}

/// The place whose neighbouring lines agree with those in the text for the longest.
fn place(text: &str, line: u32) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let at = line as usize - 1;
    let files = files();
    let agreeing = |&(file, line): &(usize, usize)| {
        let there = &files.lines[file];
        let before = (1..=line.min(at)).take_while(|&i| there[line - i] == lines[at - i]).count();
        let behind =
            (1..(there.len() - line).min(lines.len() - at)).take_while(|&i| there[line + i] == lines[at + i]).count();
        before + behind
    };
    let &(file, line) = files.places.get(*lines.get(at)?)?.iter().max_by_key(|place| agreeing(place))?;
    Some(format!("{}:{}", files.names[file], line + 1))
}
