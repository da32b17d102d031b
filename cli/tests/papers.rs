//! docs/papers.md against the tree: the tests, experiments, commands, keys and paths that its rows name are there, and each row that says *yes* has a
//! fault in tests/papers.csv that its test must notice. `scripts/nightly papers` plants the faults.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_default()
}

fn lines(text: &str) -> Vec<Vec<String>> {
    csv::Reader::from_reader(text.as_bytes())
        .into_records()
        .map(|line| line.unwrap().iter().map(str::to_owned).collect())
        .collect()
}

/// The tests of a package: functions with the attribute `test` or `gpu_test`, and those that a macro declares for shared arrays.
fn tests(package: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for folder in if package.is_empty() { ["src", "tests"] } else { ["/src", "/tests"] } {
        for path in hotrow_harness::modules::files(&root().join(format!("{package}{folder}")), &|_| false) {
            let text = fs::read_to_string(path).unwrap_or_default();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                let name = line.split_once("fn ").and_then(|(_, rest)| rest.split(['(', '<']).next());
                match name {
                    Some(name) if is_test && !line.starts_with("//") => drop(found.insert(name.to_owned())),
                    _ => {}
                }
                is_test = line.ends_with("test]") || is_test && line.starts_with(['#', '/']);
            }
            let declared = text.split("$runs; ").skip(1).filter_map(|rest| rest.split(')').next());
            found.extend(declared.flat_map(|names| names.split(',')).map(|name| name.trim().to_owned()));
        }
    }
    found
}

/// A row: the paper's name with the row's first number, its cells, and the texts between backticks behind the word before each.
struct Row<'a> {
    name: String,
    is_yes: bool,
    marked: Vec<(&'a str, &'a str)>,
}

fn rows(page: &str) -> Vec<Row<'_>> {
    let (mut paper, mut rows) = ("", Vec::new());
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            paper = title.split([' ', ':']).next().unwrap();
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let number = cells[0].trim_start_matches("| ").split([',', ' ']).next().unwrap();
        if number.parse::<u32>().is_ok() {
            let parts: Vec<&str> = line.split('`').collect();
            let marked = parts.chunks_exact(2).map(|pair| (pair[0].split(' ').rev().nth(1).unwrap_or(""), pair[1]));
            rows.push(Row {
                name: format!("{paper} {number}"),
                is_yes: cells[2].starts_with("yes"),
                marked: marked.collect(),
            });
        }
    }
    rows
}

/// Each sentence says which row names what is not there.
fn wrong(page: &str, faults: &str, words: &str) -> Vec<String> {
    let packages = ["", "plan", "cli", "lab", "dist"].map(|package| (package, tests(package)));
    let keys = read("lab/data/keys.csv");
    let keys: BTreeSet<&str> = keys.lines().filter_map(|line| line.split(',').nth(1)).collect();
    let (faults, words, manifest) = (lines(faults), lines(words), read("Cargo.toml"));
    let mut wrong = Vec::new();
    let all = rows(page);
    for Row { name, is_yes, marked } in &all {
        let mut say = |wanted: &str, found: &str| wrong.push(format!("{name}: wanted {wanted}, found {found}"));
        let mut own = Vec::new();
        for &(before, text) in marked {
            let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
            match kind {
                "t" => {
                    let (package, known) = packages.iter().find(|one| one.0 == before).unwrap_or(&packages[0]);
                    if !known.contains(rest) {
                        say(&format!("a test of hotrow{}{package}", if package.is_empty() { "" } else { "-" }), rest);
                    }
                    own.push(rest);
                }
                "lab" => {
                    let (file, parts) = rest.split_once(' ').unwrap_or((rest, ""));
                    let file = read(&format!("lab/experiments/{file}.toml"));
                    let known = |part: &str| file.lines().any(|line| line == format!("[part.{part}]"));
                    if file.is_empty() || parts.split(',').any(|part| !part.is_empty() && !known(part)) {
                        say("parts of a file in lab/experiments", text);
                    }
                }
                "hotrow" | "hotrow-lab" | "cargo" => {
                    let parses = match (kind, rest.split_once(' ').unwrap_or((rest, ""))) {
                        ("hotrow", _) => hotrow_cli::internals::options(text.split(' ').map(Into::into)),
                        ("hotrow-lab", ("train", pairs))
                            if pairs.split(' ').all(|pair| {
                                let key = pair.split('=').next().unwrap_or_default();
                                pair.contains('=')
                                    && (key == "task" || keys.contains(key.rsplit('.').next().unwrap_or_default()))
                            }) =>
                        {
                            Ok(())
                        }
                        ("cargo", ("bench", more))
                            if more
                                .split(' ')
                                .nth(1)
                                .is_some_and(|bench| manifest.contains(&format!("[[bench]]\nname = \"{bench}\""))) =>
                        {
                            Ok(())
                        }
                        _ => Err("another command".to_owned()),
                    };
                    if let Err(error) = parses {
                        say("a command that is understood", &format!("{text}: {}", error.lines().next().unwrap()));
                    }
                    if !words.iter().any(|line| line[0] == text && (line[1].is_empty() != line[2].is_empty())) {
                        say("its words, or why it is not run, in tests/papers-words.csv", text);
                    }
                }
                _ if rest.starts_with("= ") && !keys.contains(kind) => say("a key of lab/data/keys.csv", text),
                _ if text.contains('/') && !root().join(text).exists() => say("a path", text),
                _ => {}
            }
        }
        let notices = |fault: &Vec<String>| fault[4].rsplit(' ').next().is_some_and(|test| own.contains(&test));
        if *is_yes && !faults.iter().any(|fault| fault[0] == *name && notices(fault)) {
            say("a fault in tests/papers.csv that one of its tests notices", "none");
        }
    }
    for fault in &faults {
        let (found, row) = (read(&fault[1]).matches(&fault[2]).count(), all.iter().find(|row| row.name == fault[0]));
        if found != 1 || fault[2] == fault[3] || row.is_none_or(|row| !row.is_yes) {
            let text = "wanted a row that says yes and another text in place of one that is in the file once";
            wrong.push(format!(
                "tests/papers.csv, {}: {text}, found {:?} {found} times in {}",
                fault[0], fault[2], fault[1]
            ));
        }
    }
    let astray = |line: &&Vec<String>| !all.iter().any(|row| row.marked.iter().any(|one| one.1 == line[0]));
    wrong.extend(words.iter().filter(astray).map(|line| format!("{}: wanted it in docs/papers.md", line[0])));
    wrong
}

#[test]
fn every_row_names_what_is_there() {
    let [page, faults, words] = ["docs/papers.md", "tests/papers.csv", "tests/papers-words.csv"].map(read);
    let found = wrong(&page, &faults, &words);
    assert!(found.is_empty(), "docs/papers.md:\n{}", found.join("\n"));
    assert!(rows(&page).iter().filter(|row| row.is_yes).count() > 30 && rows(&page).len() > 90);
    // Companions: one name, package, part, command, key, path, verdict or fault is another.
    for (from, to, wanted) in [
        ("`t published_vectors`", "`t published_vector`", "ROBE 11: wanted a test of hotrow, found published_vector"),
        ("dist `t ranks", "plan `t ranks", "Yang 36: wanted a test of hotrow-plan, found ranks_change_no_bit"),
        (
            "`lab scars growth`",
            "`lab scars grown`",
            "SCARS 12: wanted parts of a file in lab/experiments, found lab scars grown",
        ),
        (
            "`lab scars growth`",
            "`lab scar growth`",
            "SCARS 12: wanted parts of a file in lab/experiments, found lab scar growth",
        ),
        (
            "--only low-precision",
            "--just low-precision",
            "Zhang 10: wanted a command that is understood, found hotrow bench suite --just",
        ),
        ("C3.cache-percent=10", "C3.cache=10", "Yang 33: wanted a command that is understood, found hotrow-lab train"),
        (
            "cargo bench --bench step",
            "cargo bench --bench steps",
            "Zhang 7: wanted a command that is understood, found cargo bench",
        ),
        (
            "small-table = 1000000",
            "small-tables = 1000000",
            "Zhang 16: wanted a key of lab/data/keys.csv, found small-tables",
        ),
        ("`src/host/trusted.rs`", "`src/host/trust.rs`", "Zhang 12: wanted a path, found src/host/trust.rs"),
        (
            "| no | not public |",
            "| yes | not public |",
            "Zhang 21: wanted a fault in tests/papers.csv that one of its tests notices",
        ),
        ("| hashing trick | yes |", "| hashing trick | half |", "tests/papers.csv, ROBE 9: wanted a row that says yes"),
    ] {
        let found = wrong(&page.replacen(from, to, 1), &faults, &words);
        assert!(page.contains(from) && found.iter().any(|line| line.starts_with(wanted)), "{to}: {found:#?}");
    }
    for (from, to, wanted) in [
        (
            "u32 = 871_205_356",
            "u32 = 871_205",
            "tests/papers.csv, ROBE 11: wanted a row that says yes and another text in place of one",
        ),
        (
            "--lib published_vectors",
            "--lib extremes",
            "ROBE 11: wanted a fault in tests/papers.csv that one of its tests notices",
        ),
    ] {
        let found = wrong(&page, &faults.replacen(from, to, 1), &words);
        assert!(faults.contains(from) && found.iter().any(|line| line.starts_with(wanted)), "{to}: {found:#?}");
    }
    let found = wrong(&page, &faults, &(words + "hotrow info,adapter,\n"));
    assert_eq!(found, ["hotrow info: wanted it in docs/papers.md"]);
}
