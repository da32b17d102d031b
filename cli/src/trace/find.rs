//! Finds the file that a user names.

use super::error::TraceError;
use std::path::{Path, PathBuf};

/// Endings that are tried for a bare name in the data folder.
const ENDINGS: [&str; 5] = ["", ".u32.zst", ".u32", ".npy", ".txt"];

/// Finds `text` as a path, or as a bare name in the data folder.
pub fn find(text: &str, data: Option<&Path>) -> Result<PathBuf, TraceError> {
    let path = Path::new(text);
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let not_found = |looked: String| Err(TraceError::NotFound { trace: text.to_owned(), looked });
    if path.is_dir() {
        return not_found(format!("{text} is a folder"));
    }
    if path.components().count() != 1 {
        return not_found("no such file".to_owned());
    }
    let Some(data) = data else {
        return not_found("no such file here and no data folder given".to_owned());
    };
    let candidates = ENDINGS.iter().map(|ending| data.join(format!("{text}{ending}")));
    match candidates.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => not_found(format!("no such file here or in {}", data.display())),
    }
}

/// The file's name without its endings.
pub(super) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    match name.rsplit_once('.') {
        Some((stem, _)) if !stem.is_empty() => stem.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems() {
        for (path, wanted) in
            [("a/x.u32.zst", "x"), ("x.u32", "x"), ("x.y.npy", "x.y"), ("plain", "plain"), (".hidden", ".hidden")]
        {
            assert_eq!(stem(Path::new(path)), wanted);
        }
    }
}
