//! Finds the files that a user names.

use super::error::TraceError;
use super::packed;
use std::path::{Path, PathBuf};

/// Endings that are tried for a bare name in the data folder, packed or not.
const ENDINGS: [&str; 9] = ["", ".u32", ".u64", ".oracleGeneral", ".oracleGeneral.bin", ".npy", ".txt", ".csv", ".tsv"];

/// Finds `text` as a path, or as a bare name in the data folder.
pub fn find(text: &str, data: Option<&Path>) -> Result<PathBuf, TraceError> {
    let path = Path::new(text);
    if path.is_file() {
        return Ok(path.to_owned());
    }
    let not_found = |looked: String| {
        Err(TraceError::Content(format!(
            "trace {text}: wanted a file or a name in the data folder, found neither ({looked}); give a path, --data DIR or a generated trace \
             such as zipf:rows=100000,s=1.05"
        )))
    };
    if path.is_dir() {
        return not_found(format!("{text} is a folder"));
    }
    if path.components().count() != 1 {
        return not_found("no such file".to_owned());
    }
    let Some(data) = data else {
        return not_found("no such file here and no data folder given".to_owned());
    };
    let found = ENDINGS.iter().find_map(|ending| packed::companion(data, &format!("{text}{ending}")));
    found.map_or_else(|| not_found(format!("no such file here or in {}", data.display())), Ok)
}

/// Cuts `a,b` into traces. Commas within a generated trace, such as `zipf:rows=9,s=1`, and within an existing file's name stay.
pub fn split_list(text: &str) -> Vec<String> {
    if Path::new(text).is_file() {
        return vec![text.to_owned()];
    }
    let mut traces: Vec<String> = Vec::new();
    for piece in text.split(',') {
        match traces.last_mut() {
            // `key=value` after a generated trace belongs to it.
            Some(last) if last.contains(':') && piece.contains('=') && !piece.contains(':') => {
                last.push(',');
                last.push_str(piece);
            }
            _ if piece.is_empty() => {}
            _ => traces.push(piece.to_owned()),
        }
    }
    traces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_traces_but_not_keys() {
        assert_eq!(split_list("a,b.u32"), ["a", "b.u32"]);
        assert_eq!(split_list("zipf:rows=9,s=1,a"), ["zipf:rows=9,s=1", "a"]);
        let text = "a,uniform:rows=9,zipf:rows=9,s=1,n=5,meta2021";
        assert_eq!(split_list(text), ["a", "uniform:rows=9", "zipf:rows=9,s=1,n=5", "meta2021"]);
    }
}
