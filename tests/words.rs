//! A word stands for one thing, as SPEC 1 says. Other words for these things do not come back.

use std::{fs, path::Path};

use hotrow_harness::modules::files;

/// Other words, each with the word of SPEC 1 in its place. Only files about ranks have shards.
const OTHER: [(&str, &str); 4] = [
    ("flight landing aside", "transfer"),
    ("fate teller", "swap"),
    ("record_forward record_backward record_prefetch record_feedback record_sort", "encode"),
    ("shard", "piece"),
];

fn found(file: &str, text: &str) -> Vec<String> {
    let text = format!("{file}\n{text}").to_lowercase().replace("in flight", "").replace("in_flight", "");
    let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let part = |word: &str, other: &str| word.split('_').any(|part| part.trim_end_matches('s') == other);
    let has =
        |other: &str| words.iter().any(|word| part(word, other) || other.contains('_') && word.starts_with(other));
    let ranks = ["rank", "reshard", "virtual", "dist"].into_iter().any(has);
    let wrong = OTHER.iter().filter(|(other, _)| other.split(' ').any(has) && !(ranks && *other == "shard"));
    wrong.map(|(other, word)| format!("{file}: wanted {word}, found {other}")).collect()
}

#[test]
fn each_thing_has_one_word() {
    let read = |file: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    for (other, word) in OTHER {
        assert!(read("docs/SPEC.md").contains(&format!("\n| {word}")), "SPEC 1 has no {word}");
        assert!(other.split(' ').all(|other| !found("src/a.rs", other).is_empty()), "{other} is not found");
    }
    for folder in "src shaders cli dist plan lab docs tests python burn fuzz examples".split(' ') {
        for path in files(Path::new(folder), &|path| path.ends_with("faults.md") || path.ends_with("words.rs")) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            assert!(found(path.to_str().unwrap(), &text).is_empty(), "{:?}", found(path.to_str().unwrap(), &text));
        }
    }
}
