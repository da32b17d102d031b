//! How a program starts.

use std::{env, ffi::OsString, path::Path};

/// What each program sets `XDG_RUNTIME_DIR` to, before it starts a thread: its own value, or without one `/dev/null`, since Wayland's library, which graphics
/// drivers load, would complain on stderr.
#[must_use]
pub fn runtime_folder() -> OsString {
    let given = env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_absolute());
    given.unwrap_or_else(|| "/dev/null".into())
}
