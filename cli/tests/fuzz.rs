//! The corpora of `fuzz/`, replayed without a fuzz engine.

use std::{fs, panic, path::Path};

use hotrow_fuzz::{MOST_BYTES, TARGETS, seeds, within_memory};

#[test]
fn every_target_accepts_its_seeds_and_survives_the_corpus() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let mut faults = Vec::new();
    for target in &TARGETS {
        let read = |data: &[u8]| panic::catch_unwind(|| target.run(data));
        let good = seeds(target.name);
        assert!(!good.is_empty(), "{}: no seed", target.name);
        for (number, seed) in good.iter().enumerate() {
            match read(seed) {
                Ok(true) => {}
                Ok(false) => faults.push(format!("{}: seed {number} was refused", target.name)),
                Err(_) => faults.push(format!("{}: a panic at seed {number}", target.name)),
            }
            // Cut off anywhere it is refused or read; no cut is a panic.
            for length in (0..seed.len()).step_by(seed.len() / 20 + 1) {
                if read(&seed[..length]).is_err() {
                    faults.push(format!("{}: a panic at {length} bytes of seed {number}", target.name));
                }
            }
        }
        for file in fs::read_dir(corpora.join(target.name)).into_iter().flatten() {
            let file = file.unwrap().path();
            if read(&fs::read(&file).unwrap()).is_err() {
                faults.push(format!("a panic at {}", file.display()));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_folder_of_the_corpus_has_a_target() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for folder in fs::read_dir(corpora).unwrap().map(|folder| folder.unwrap()) {
        assert!(TARGETS.iter().any(|target| target.name == folder.file_name()), "{:?}", folder.path());
    }
}

#[test]
fn too_much_memory_is_noticed() {
    let takes = |bytes: usize| {
        panic::catch_unwind(move || within_memory(MOST_BYTES, || !std::hint::black_box(vec![0_u8; bytes]).is_empty()))
    };
    assert!(takes(MOST_BYTES as usize - 4096).is_ok());
    assert!(takes(MOST_BYTES as usize + 4096).is_err());
}
