//! The errors of the library as exceptions of `hotrow.errors`, with the library's message.

use hotrow::Error;
use pyo3::{
    exceptions::{PyException, PyMemoryError},
    prelude::*,
    sync::PyOnceLock,
    types::PyModule,
};

/// An exception of `hotrow.errors`.
pub(crate) fn raise(class: &str, message: String) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Python::attach(|py| {
        let module = MODULE.get_or_try_init(py, || py.import("hotrow.errors").map(Bound::unbind));
        match module.and_then(|module| module.bind(py).getattr(class)?.call1((message,))) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    })
}

/// The error of a conversion by numpy or Python. An interrupt stays one.
pub(crate) fn unfit(py: Python<'_>, what: &str, wanted: &str, error: PyErr, remedy: &str) -> PyErr {
    if error.is_instance_of::<PyMemoryError>(py) {
        return raise("OutOfMemory", format!("{what}: wanted memory, found {error}; make the batch smaller"));
    }
    if error.is_instance_of::<PyException>(py) { refused(what, wanted, error, remedy) } else { error }
}

/// An argument that cannot be used.
pub(crate) fn refused(what: &str, wanted: &str, found: impl std::fmt::Display, remedy: &str) -> PyErr {
    raise("InvalidValue", format!("{what}: wanted {wanted}, found {found}; {remedy}"))
}

pub(crate) fn of(error: &Error) -> PyErr {
    let class = match error {
        Error::IndexOutOfRange { .. } | Error::RowOutOfRange { .. } => "RowIndexError",
        Error::OutOfMemory { .. } | Error::TooLarge { .. } => "OutOfMemory",
        Error::Order { .. } => "OrderError",
        Error::Device { .. } | Error::Unsupported { .. } => "DeviceError",
        Error::Store { .. } | Error::Source { .. } | Error::Checkpoint { .. } => "FileError",
        _ => "InvalidValue",
    };
    let text = match error {
        // The words of a parser.
        Error::Checkpoint { found, .. } if found.contains('`') || found.contains(" at line ") => {
            error.to_string().replace(found, "a damaged header")
        }
        _ => error.to_string(),
    };
    // A path is the caller's own.
    let path = match error {
        Error::Checkpoint { path, .. } => path,
        Error::Store { store, .. } => store,
        _ => "",
    };
    let (before, after) = text.split_once(path).unwrap_or_default();
    raise(class, format!("{}{path}{}", in_python(before), in_python(after)))
}

/// What the library's messages call otherwise than Python does.
const WORDS: [(&str, &str); 12] = [
    ("that checkpoint::contents gives", "that hotrow.Group.open(path) has"),
    ("checkpoint::save_lookup", "save"),
    ("checkpoint::load_lookup", "load"),
    ("take the CPU backend, hotrow::CpuGroup", "pass device=\"cpu\""),
    ("request it, or take", "take"),
    ("Backward::Sparse: Backward::Atomic's", "backward=\"sparse\": the other's"),
    (", or create the device with more storage buffers a stage (hotrow::requirements() asks for them)", ""),
    ("pass a slice of", "pass an array of"),
    ("change the group's configuration", "change this setting"),
    ("grad_outputs: ", "grad: "),
    ("source: ", "values, the source of all rows: "),
    ("source, row", "values, row"),
];

/// A message of the library in Python's words: no path of Rust is left in it.
pub(crate) fn in_python(message: &str) -> String {
    let known = WORDS.iter().fold(message.to_owned(), |message, (rust, python)| message.replace(rust, python));
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut parts: Vec<&str> = known.split("::").collect();
    let last = parts.pop().unwrap_or_default();
    parts.iter().map(|part| part.trim_end_matches(is_name)).chain([last]).collect()
}

/// The wanted part of serde's `error` of a setting, in Python's words.
pub(crate) fn wanted(error: &str) -> String {
    let wanted = error.rsplit_once("expected ").map_or(error, |(_, wanted)| wanted);
    let known = match wanted {
        "u32" => "a whole number from 0 to 4294967295",
        "f32" => "a number",
        "a boolean" => "True or False",
        "a sequence" => "a list",
        "struct variant" | "map with a single key" => "a number, hotrow.Uniform or hotrow.Normal",
        _ => wanted,
    };
    known.replace("missing field", "one with").replace('`', "\"")
}
