//! Several traces in one option, separated by commas.

use std::path::Path;

/// Cuts `a,b` into traces. Commas within a generated trace, such as `zipf:rows=9,s=1`, and within an existing file's name stay.
#[must_use]
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
    use super::split_list;

    #[test]
    fn commas_part_traces_but_not_keys() {
        assert_eq!(split_list("a,b.u32"), ["a", "b.u32"]);
        assert_eq!(split_list("zipf:rows=9,s=1,a"), ["zipf:rows=9,s=1", "a"]);
        assert_eq!(
            split_list("a,uniform:rows=9,zipf:rows=9,s=1,n=5,meta2021"),
            ["a", "uniform:rows=9", "zipf:rows=9,s=1,n=5", "meta2021"]
        );
    }
}
