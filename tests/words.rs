//! Words that once had a meaning that no reader outside the project knew, or several: none of them comes back. SPEC 1 has the words in their place.

use std::{fs, path::Path};

use hotrow_harness::modules::files;

/// Old words, each with the word in its place. A word that ends in `_` is the beginning of a name.
const OLD: &[(&str, &str)] = &[
    ("flight", "transfer, for what comes and goes of a staged table"),
    ("landing", "write-back"),
    ("teller", "sender"),
    ("fate", "outcome"),
    ("aside", "side transfer"),
    ("record_forward_", "encode_forward"),
    ("record_forward", "encode_forward"),
    ("record_backward_", "encode_backward"),
    ("record_backward", "encode_backward"),
    ("record_feedback", "encode_feedback"),
    ("record_prefetch", "encode_prefetch"),
    ("record_sort", "encode_sort"),
    ("robe_due", "robe_weight_sums"),
    ("counters_seen", "try_counters"),
    ("timelinerecord", "Timings"),
    ("robegroup", "SharedGroup"),
    ("cpurobegroup", "CpuSharedGroup"),
    ("cpupath", "CpuGroup, which has one way to compute"),
    ("first_move", "first_swap"),
    ("shard_bytes", "piece_bytes"),
    ("shard", "piece, unless it is one of several ranks'"),
    ("shards", "pieces, unless they are those of several ranks"),
];

/// Whether a file is about ranks, whose shards keep their name.
fn of_ranks(file: &str) -> bool {
    ["dist", "rank", "shard", "comm.rs", "simulate", "scale-out", "lab/", "stripes", "faults", "SPEC", "fuzz"]
        .iter()
        .any(|part| file.contains(part))
}

/// The old words of a text, or of a path, with their lines.
fn found(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in (0..).zip([file].into_iter().chain(text.lines())) {
        // Loads in flight, forwards in flight: the field's own words. The module `shard` is about ranks.
        let line = line.to_lowercase().replace("in flight", "").replace("in_flight", "").replace("mod shard;", "");
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        // A line that names ranks, or their checkpoints, may name their shards.
        let ranks = ["virtual", "rank", "ranks", "reshard", "dist", "hotrow_dist", "machine", "stripe"];
        let ranks = of_ranks(file) || words.iter().any(|word| ranks.contains(word));
        for (old, instead) in OLD {
            let is = |word: &&str| match old.ends_with('_') {
                true => word.starts_with(old),
                // A part of a name counts, too: `flight_pool`.
                false => word == old || word.split('_').any(|part| part == *old || part.strip_suffix('s') == Some(old)),
            };
            if words.iter().any(is) && !(ranks && old.starts_with("shard") && *old != "shard_bytes") {
                found.push(format!("{file}:{number}: wanted {instead}, found {old}"));
            }
        }
    }
    found
}

#[test]
fn no_old_word_comes_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let name = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    // Built, or of a time when these were the words.
    let old = ["target", ".git", "benches/results", "CHANGELOG.md", "docs/faults.md", "tests/words.rs"];
    let mut files = files(root, &|path| old.contains(&&*name(path)));
    files.retain(|path| [".rs", ".wgsl", ".md"].iter().any(|end| name(path).ends_with(end)));
    assert!(files.len() > 600, "{} files", files.len());
    let all: Vec<_> = files.iter().flat_map(|path| found(&name(path), &fs::read_to_string(path).unwrap())).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
}

#[test]
fn an_old_word_is_found() {
    for (word, _) in OLD {
        assert!(!found("src/gpu/any.rs", &format!("Fine.\n// the {word} of it")).is_empty(), "{word}");
    }
    assert_eq!(found("src/gpu/flight.rs", "").len(), 1, "a path");
    assert_eq!(found("src/gpu/any.rs", "loads in flight; a virtual shard"), Vec::<String>::new());
    assert_eq!(found("dist/src/group.rs", "a shard"), Vec::<String>::new());
    assert_eq!(found("src/gpu/any.rs", "a shard of distinct rows").len(), 1, "`distinct` names no ranks");
}
