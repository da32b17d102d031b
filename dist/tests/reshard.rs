//! `dist::reshard`: another number of virtual shards for a checkpoint.

use std::{fs, ops::Range, path::Path};

use hotrow::{Bags, CpuGroup, Embedding, Error, GroupConfig, Lookup, Mode, Policy, Precision};
use hotrow_dist::{Group, Threads, reshard};
use hotrow_harness::ranks::{self, Batch, PARTS, configuration};
use rand::{SeedableRng as _, rngs::StdRng};

fn group(config: &GroupConfig, shards: u32) -> Group<Threads, CpuGroup> {
    Group::new(Threads::alone(), config.clone(), shards, CpuGroup::new).unwrap()
}

fn loaded(config: &GroupConfig, shards: u32, folder: &Path) -> Group<Threads, CpuGroup> {
    let mut group = group(config, shards);
    group.load(folder).unwrap();
    group
}

fn train(group: &mut dyn Lookup, config: &GroupConfig, batches: &[Batch], steps: Range<usize>) {
    ranks::train(group, config, batches, steps, &(0..PARTS), false).unwrap();
}

/// What does not depend on the number of shards: for each linear row its record and its frequency; the steps; the counters.
#[derive(Debug, PartialEq)]
struct State {
    rows: Vec<(Vec<u32>, Option<u32>)>,
    values: Vec<u32>,
    steps: Vec<u32>,
    counters: Vec<hotrow::Counters>,
}

fn state(group: &mut Group<Threads, CpuGroup>) -> State {
    let (shards, rows) = (group.shard_count() as usize, group.config().total_rows() as usize);
    let all: Vec<u32> = (0..rows as u32).collect();
    let values = group.read_rows(&all).unwrap().iter().map(|x| x.to_bits()).collect();
    let counters = group.counters().unwrap();
    let mut state = State { rows: vec![(Vec::new(), None); rows], values, steps: Vec::new(), counters };
    for (number, shard) in group.shards() {
        let Some(shard) = shard else { continue };
        let words = shard.layout().row.record_words as usize;
        let found = Embedding::snapshot(shard).unwrap();
        state.steps.push(found.t);
        for (local, record) in found.records.chunks_exact(words).enumerate() {
            state.rows[local * shards + number as usize] = (record.to_vec(), found.freqs.get(local).copied());
        }
    }
    state.steps.dedup();
    state
}

fn random(seed: u64) -> (GroupConfig, Vec<Batch>) {
    let random = &mut StdRng::seed_from_u64(seed);
    let mut config = configuration(random);
    config.out_of_range = hotrow::OutOfRange::Skip;
    let batches = (0..4).map(|_| Batch::random(random, &config)).collect();
    (config, batches)
}

/// Rows, states, frequencies, steps and counters of a resharded checkpoint are those of the old one, flushed.
#[test]
fn every_row_and_its_state_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (mut written_back, mut unpinned, mut differ) = (0, 0, 0);
    // The first runs, which are fixed, meet what is counted below.
    for seed in (0..24).chain(hotrow_harness::seeds("resharded rows", 4)) {
        let (config, batches) = random(seed);
        let [from, back] = ["from", "back"].map(|name| folder.path().join(format!("{seed}-{name}")));
        let mut old = group(&config, 8);
        if config.policy == Policy::Static && config.cache_rows > 0 {
            for (_, shard) in old.shards() {
                shard.map_or(Ok(Vec::new()), |shard| shard.pin(&[0], 1)).unwrap();
            }
        }
        train(&mut old, &config, &batches, 0..4);
        old.save(&from).unwrap();
        old.flush().unwrap();
        let wanted = state(&mut old);
        // Each file is synced, so most seeds leave the many ones out.
        for shards in [1, 2, 8, 16, 512].into_iter().filter(|&shards| shards < 512 || seed % 8 == 0) {
            let to = folder.path().join(format!("{seed}-{shards}"));
            let done = reshard(&from, &to, shards).unwrap();
            assert_eq!((done.before, done.rows), (8, config.total_rows()));
            written_back += done.written_back;
            unpinned += done.unpinned;
            let found = state(&mut loaded(&config, shards, &to));
            assert!(found == wanted, "seed {seed}, {shards} shards, {config:?}");
            // And back: nothing is lost on the way.
            let _ = fs::remove_dir_all(&back);
            let again = reshard(&to, &back, 8).unwrap();
            assert_eq!((again.before, again.written_back, again.unpinned), (shards, 0, 0));
            assert!(
                state(&mut loaded(&config, 8, &back)) == wanted,
                "seed {seed}, {shards} shards and back, {config:?}"
            );
        }
        let mut other = loaded(&config, 8, &back);
        train(&mut other, &config, &batches, 0..4);
        other.flush().unwrap();
        let other = state(&mut other);
        differ += u32::from(other.rows != wanted.rows && other.values != wanted.values);
    }
    assert!(differ > 15, "the comparison can fail: {differ}");
    assert!(written_back > 1000 && unpinned > 10, "{written_back} rows written back, {unpinned} unpinned");
}

/// Without a cache a run goes on with the bits of one that had the new number of shards from its start.
#[test]
fn a_run_without_a_cache_goes_on_as_if_it_had_begun_so() {
    let folder = tempfile::tempdir().unwrap();
    for seed in hotrow_harness::seeds("resharded runs", 20) {
        let (mut config, batches) = random(seed);
        config.cache_rows = 0;
        let mut old = group(&config, 4);
        train(&mut old, &config, &batches, 0..2);
        let from = folder.path().join(format!("{seed}"));
        old.save(&from).unwrap();
        for shards in [1, 16] {
            let to = folder.path().join(format!("{seed}-{shards}"));
            reshard(&from, &to, shards).unwrap();
            let mut changed = loaded(&config, shards, &to);
            train(&mut changed, &config, &batches, 2..4);
            let mut straight = group(&config, shards);
            train(&mut straight, &config, &batches, 0..4);
            assert!(state(&mut changed) == state(&mut straight), "seed {seed}, {shards} shards, {config:?}");
        }
    }
}

/// One shard is an ordinary checkpoint of a plain group.
#[test]
fn one_shard_is_an_ordinary_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = GroupConfig::new(&[90, 7], 4).with_precision(Precision::Int8).with_cache_rows(33);
    let mut old = group(&config, 8);
    let outputs = old.forward(Bags::new(&[1, 2, 6], &[0, 2, 3]), Mode::Train).unwrap();
    old.backward(&outputs).unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    old.save(&from).unwrap();
    reshard(&from, &to, 1).unwrap();
    old.flush().unwrap();
    let mut plain = CpuGroup::new(config).unwrap();
    hotrow::checkpoint::load(&mut plain, to.join("save-1-shard-0.safetensors")).unwrap();
    let rows: Vec<u32> = (0..97).collect();
    assert_eq!(plain.read_rows(&rows).unwrap(), old.read_rows(&rows).unwrap());
}

#[test]
fn bad_input_is_named_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let config = GroupConfig::new(&[50], 4).with_cache_rows(32);
    group(&config, 4).save(at("from")).unwrap();
    let list = fs::read_to_string(at("from/shards.json")).unwrap();
    let refused = |from: &str, to: &str, shards: u32, wanted: &str| {
        let there = fs::read_dir(at(to)).map(Iterator::count).ok();
        let error = reshard(at(from), at(to), shards).unwrap_err().to_string();
        assert!(error.contains(wanted), "wanted '{wanted}', found '{error}'");
        assert_eq!(fs::read_dir(at(to)).map(Iterator::count).ok(), there, "{error}");
    };
    for shards in [0, 3, 1 << 17] {
        refused("from", "to", shards, "shards");
    }
    fs::create_dir(at("there")).unwrap();
    refused("from", "there", 2, "one that does not exist");
    refused("from", "from", 2, "one that does not exist");
    refused("from", "no/to", 2, "folder");
    refused("none", "to", 2, "a list of shards");
    for (old, new, wanted) in [
        ("hotrow shards 1", "hotrow shards 9", "hotrow shards 9"),
        ("\"shards\":4", "\"shards\":5", "shards"),
        ("\"shards\":4", "\"shards\":8", "shards: wanted 4"),
        ("\"shards\":4", "\"shards\":65536", "shards: wanted 4"),
        ("\"shards\":4", "\"shards\":-4", "shards"),
        ("\"tables\":[50]", "\"tables\":[49]", "tables"),
        // 17 GiB a shard; the files are compared before anything is allocated.
        (
            "\"tables\":[50]",
            "\"tables\":[4294967290]",
            "save-1-shard-0.safetensors, tables: wanted 1073741823 at entry 0",
        ),
        ("\"tables\":[50]", &format!("\"tables\":[50{}]", ",0".repeat(1 << 20)), "tables: wanted 1,"),
        ("\"tables\":[50]", "\"tables\":[\"x\"]", "tables"),
        ("\"tables\":[50]", "\"tables\":[]", "tables"),
        ("\"tables\":[50]", "\"tables\":[4000000000]", "tables"),
        ("\"tables\":[50]", "\"tables\":[50,1]", "tables"),
        ("\"cache_rows\":32", "\"cache_rows\":2147483649", "list"),
        ("\"save\":1", "\"save\":2", "save-2-shard-0"),
        ("{", "", "a list of shards"),
    ] {
        assert!(list.contains(old), "{list}");
        fs::write(at("from/shards.json"), list.replacen(old, new, 1)).unwrap();
        refused("from", "to", 2, wanted);
    }
    fs::write(at("from/shards.json"), &list).unwrap();
    // A damaged shard, and one too few.
    let shard = at("from/save-1-shard-2.safetensors");
    let mut bytes = fs::read(&shard).unwrap();
    let middle = bytes.len() - 100;
    bytes[middle] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    refused("from", "to", 2, "checksum");
    fs::remove_file(&shard).unwrap();
    refused("from", "to", 2, "save-1-shard-2");
    bytes[middle] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    reshard(at("from"), at("to"), 2).unwrap();
    // A shard of another moment.
    let mut later = group(&config, 4);
    later.load(at("from")).unwrap();
    let outputs = later.forward(Bags::new(&[1], &[0, 1]), Mode::Train).unwrap();
    later.backward(&outputs).unwrap();
    later.save(at("later")).unwrap();
    fs::copy(at("later/save-1-shard-2.safetensors"), &shard).unwrap();
    refused("from", "again", 2, "step");
    assert!(matches!(reshard(at("from"), at("again"), 0).unwrap_err(), Error::Config { field: "shards", .. }));
}
