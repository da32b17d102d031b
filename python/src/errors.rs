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
    // The names of Rust's types say nothing here.
    raise(class, error.to_string().replace("GroupConfig::", "").replace("checkpoint::", ""))
}
