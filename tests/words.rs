//! Words that once had a meaning that no reader outside the project knew, or several: none of them comes back. SPEC 1 has the words in their place.

use std::{fs, path::Path};

/// A word, whether it may stand in that file, and the word in its place.
type Old = (&'static str, fn(&str) -> bool, &'static str);

/// Files in which a shard is one of several ranks' or machines', which is the word's only meaning.
fn of_ranks(file: &str) -> bool {
    let ranks = ["dist", "rank", "shard", "comm.rs", "simulate", "scale-out", "lab/", "mpi", "fuzz/", "stripes.rs"];
    ranks.iter().any(|part| file.contains(part))
}

const NOWHERE: fn(&str) -> bool = |_| false;
const OLD: &[Old] = &[
    ("flight", NOWHERE, "transfer, for what comes and goes of a staged table"),
    ("landing", NOWHERE, "write-back"),
    ("teller", NOWHERE, "sender"),
    ("fate", NOWHERE, "outcome"),
    ("record_forward", NOWHERE, "encode_forward"),
    ("record_backward", NOWHERE, "encode_backward"),
    ("record_feedback", NOWHERE, "encode_feedback"),
    ("record_prefetch", NOWHERE, "encode_prefetch"),
    ("record_sort", NOWHERE, "encode_sort"),
    ("robe_due", NOWHERE, "robe_sums"),
    ("counters_seen", NOWHERE, "try_counters"),
    ("struct move {", NOWHERE, "swap"),
    ("front!", NOWHERE, "DeviceGroup"),
    ("shard_bytes", NOWHERE, "piece_bytes"),
    ("shard", of_ranks, "piece, unless it is one of several ranks'"),
];

/// The old words of a text, with their lines.
fn found(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // Loads in flight, forwards in flight: the field's own words. A line that names ranks, or their checkpoints, may name their shards.
        let line = line.to_lowercase().replace("in flight", "").replace("in_flight", "");
        let shards =
            ["virtual", "rank", "reshard", "--shards", "dist", "shards.json", "machine", "mod shard;", "stripe"];
        for (word, allowed, instead) in OLD.iter().filter(|(word, ..)| line.contains(word)) {
            let names_ranks = *word == "shard" && shards.iter().any(|part| line.contains(part));
            if !allowed(file) && !names_ranks {
                found.push(format!("{file}:{number}: wanted {instead}, found {word}"));
            }
        }
    }
    found
}

#[test]
fn no_old_word_comes_back() {
    fn walk(root: &Path, folder: &Path, files: &mut usize, all: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                walk(root, &path, files, all);
            } else if [".rs", ".wgsl", ".md"].iter().any(|end| file.ends_with(end)) && !file.ends_with("words.rs") {
                *files += 1;
                all.extend(found(&file, &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let (root, mut files, mut all) = (Path::new(env!("CARGO_MANIFEST_DIR")), 0, Vec::new());
    for folder in ["src", "shaders", "cli/src", "plan/src", "examples", "tests/gpu", "tests/harness/src"] {
        walk(root, &root.join(folder), &mut files, &mut all);
    }
    for page in
        ["README.md", "ARCHITECTURE.md", "docs/renderers.md", "docs/training.md", "docs/placements-and-staged.md"]
    {
        all.extend(found(page, &fs::read_to_string(root.join(page)).unwrap()));
    }
    assert!(files > 300, "{files} files");
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn an_old_word_is_found() {
    for (word, ..) in OLD {
        assert_eq!(
            found("src/gpu/any.rs", &format!("Fine.\n{word}")).len(),
            1 + usize::from(*word == "shard_bytes"),
            "{word}"
        );
    }
    assert_eq!(found("src/gpu/any.rs", "loads in flight; a virtual shard"), Vec::<String>::new());
    assert_eq!(found("dist/src/group.rs", "a shard"), Vec::<String>::new());
}
