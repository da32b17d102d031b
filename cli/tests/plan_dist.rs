//! `hotrow plan dist` from outside: bad input, schema, figures by hand, a second count of every byte, and expected against counted.

use crate::common::{command::keys, plan as common};
use common::{json, outcome, plan};
use hotrow_harness::data;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tempfile::TempDir;

const PHASES: [&str; 5] = ["counts", "requests", "sizes", "rows", "gradients"];

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A trace of text: a bag a line.
fn trace(folder: &TempDir, bags: &[Vec<u32>]) -> String {
    let line = |bag: &Vec<u32>| bag.iter().map(u32::to_string).collect::<Vec<_>>().join(" ") + "\n";
    write(folder, "bags.txt", &bags.iter().map(line).collect::<String>())
}

/// The bytes of each phase of a step.
fn phases(answer: &Value) -> [f64; 5] {
    let list = answer["phases"].as_array().unwrap();
    let names: Vec<&str> = list.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(names, PHASES);
    std::array::from_fn(|phase| list[phase]["bytes"].as_f64().unwrap())
}

#[test]
fn bad_input_is_told_by_name() {
    let folder = TempDir::new().unwrap();
    let bags = trace(&folder, &[vec![0, 1], vec![2], vec![5], vec![7]]);
    let small = ["dist", "--trace", &bags, "--ranks", "2", "--batch", "2"];
    let zipf = ["dist", "--distribution", "zipf:rows=1000,s=1"];
    let of =
        |first: &[&str], more: &[&str]| [first, more].concat().iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    for (arguments, named) in [
        (of(&["dist"], &["--ranks", "3"]), "--ranks"),
        (of(&["dist"], &["--ranks", "0"]), "--ranks"),
        (of(&["dist"], &["--ranks", "2048"]), "1024"),
        (of(&["dist"], &["--ranks", "-2"]), "--ranks"),
        (of(&["dist"], &["--shards", "12"]), "--shards"),
        (of(&["dist"], &["--shards", "4"]), "--ranks: wanted at most 4, the --shards, found 8"),
        (of(&["dist"], &["--ranks", "1,16", "--shards", "8"]), "found 16"),
        (of(&["dist"], &["--ranks", "1", "--plot", "plan"]), "--plot: wanted --ranks above 1"),
        (of(&["dist"], &["--batch", "0"]), "--batch"),
        (of(&["dist"], &["--batch", "7"]), "--batch: wanted at least 8"),
        (of(&["dist"], &["--batch", "4097", "--features", "2"]), "multiple of the 2 features"),
        (of(&["dist"], &["--batch", "30", "--features", "5"]), "--batch: wanted at least 40"),
        (of(&["dist"], &["--batch", "2097152", "--lookups", "1024"]), "1073741824"),
        (of(&["dist"], &["--features", "0"]), "--features"),
        (of(&["dist"], &["--lookups", "0"]), "--lookups"),
        (of(&["dist"], &["--lookups", "1.5"]), "--lookups"),
        (of(&["dist"], &["--steps", "0"]), "--steps"),
        (of(&["dist"], &["--dim", "0"]), "--dim"),
        (of(&["dist"], &["--precision", "int3"]), "--precision"),
        (of(&["dist"], &["--precision", "int4,int8"]), "--precision"),
        (of(&["dist"], &["--optimizer", "rmsprop"]), "--optimizer"),
        (of(&["dist"], &["--policy", "random"]), "--policy"),
        (of(&["dist"], &["--pooling", "max"]), "--pooling"),
        (of(&["dist"], &["--wire-rows", "int4"]), "--wire-rows"),
        (of(&["dist"], &["--wire-rows", "int8", "--dim", "3"]), "--wire-rows: wanted a form that is shorter than FP32"),
        (of(&["dist"], &["--wire-gradients", "fp16", "--dim", "1"]), "--wire-gradients"),
        (of(&["dist"], &["--cache-percent", "101"]), "--cache-percent"),
        (of(&["dist"], &["--cache-percent", "5", "--cache-rows", "5"]), "--cache-rows"),
        (of(&["dist"], &["--alpha", "0"]), "--alpha"),
        (of(&["dist"], &["--beta", "-1"]), "--beta"),
        (of(&["dist"], &["--gamma", "nan"]), "--gamma"),
        (of(&["dist"], &["--per-host", "3"]), "--per-host"),
        (of(&["dist"], &["--replicas", "0"]), "--replicas"),
        (of(&["dist"], &["--backend", "gpu"]), "--backend"),
        (of(&["dist"], &["--trace", "zipf:rows=10"]), "s"),
        (of(&["dist"], &["--distribution", "zipf:rows=10"]), "s=X"),
        (of(&["dist"], &["--distribution", "uniform:rows=1e10"]), "4294967294"),
        (of(&small, &["--lookups", "2"]), "bags of its own"),
        (of(&small[..5], &["--batch", "8"]), "--batch: wanted at most 4"),
        (of(&small, &["--rows", "7"]), "--rows: wanted more than 7"),
        (of(&small, &["--cache-rows", "9"]), "--cache-rows: wanted at most 8"),
        (of(&small[..3], &["--batch", "2", "--counted", "run.json", "--ranks", "1,2"]), "--counted"),
        (of(&small, &["--counted", "run.json", "--verify"]), "--verify"),
        (of(&zipf, &["--verify"]), "--verify"),
        (of(&zipf, &["--rows", "10"]), "--rows"),
        (of(&zipf, &["--shuffle"]), "--shuffle"),
        (of(&zipf, &["--data", "."]), "--data"),
        (of(&zipf, &["--steps", "1e9"]), "--steps"),
        (of(&zipf, &["--counted", "run.json", "--trace", "uniform:rows=9"]), "--counted"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (stdout, stderr) = outcome(&arguments, 2);
        assert!(stderr.contains(named) && stdout.is_empty(), "{arguments:?}: {stderr}");
        assert_eq!(stderr.matches("error:").count(), 1, "{arguments:?}: {stderr}");
    }
    // Legal arguments with input that cannot be used.
    for more in [
        &["--trace", "no/such/trace"][..],
        &["--counted", "no/such/file", "--trace", &bags, "--batch", "4", "--ranks", "2"],
    ] {
        let (_, stderr) = outcome(&[&["dist"], more].concat(), 1);
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[test]
fn alone_it_plans_for_generated_accesses_and_says_so() {
    let (stdout, stderr) = outcome(&["dist"], 0);
    assert!(stderr.contains("no --trace"), "{stderr}");
    for shown in [
        "counted",
        "gradients",
        "largest rank over the mean rank",
        "memory of a rank",
        "exchange share",
        "int8",
        "replicated",
    ] {
        assert!(stdout.contains(shown), "{shown}: {stdout}");
    }
}

#[test]
fn the_schema_is_stable() {
    let json = json(&["dist", "--dist", "zipf:rows=2000,s=1", "--ranks", "2,4", "--batch", "64", "--steps", "2"]);
    let wanted = "source name kind rows steps accesses_per_bag shuffled bags_left_out \
                  group dim precision optimizer policy cache_rows slots pooling weighted features wire_rows wire_gradients summed \
                  ranks shards batch total_bytes step accesses distinct_rows own_rows asked_rows dirty_rows far_accesses far_bags \
                  rows_with_requests_bytes phases phase bytes share messages mean_pair_bytes largest_pair_bytes seconds \
                  rank sent_bytes busiest_bytes pair mean_bytes largest_bytes from to largest_of_a_step_bytes \
                  imbalance bytes_ratio bytes_of_a_step_ratio accesses_ratio own_rows_accesses_ratio \
                  memory records_bytes cache_bytes kept_bytes messages_bytes \
                  time alpha_us beta_gbit gamma_gb per_host exchange_seconds own_seconds exchange_share \
                  precisions rows_bytes saved_percent replicas asked_bytes replicated_bytes more_bytes memory_bytes verify";
    assert_eq!(keys(&json), wanted.split_whitespace().collect::<Vec<_>>());
    let value: Value = serde_json::from_str(&json).unwrap();
    let ranks: Vec<u64> = value.as_array().unwrap().iter().map(|one| one["ranks"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [2, 4]);
    assert_eq!((&value[0]["shards"], &value[0]["source"]["kind"]), (&4.into(), &"distribution".into()));
}

#[test]
fn figures_are_those_worked_out_by_hand() {
    let folder = TempDir::new().unwrap();
    // Rank 0 has the first two bags and the even rows. It asks for row 1; rank 1 asks for row 0. Both steps are alike.
    let step = [vec![0, 1], vec![2], vec![1, 3, 3], vec![1, 0]];
    let bags = trace(&folder, &[&step[..], &step[..], &[vec![9]]].concat());
    let common = ["dist", "--trace", &bags, "--ranks", "2", "--batch", "4", "--dim", "4"];
    let of = |more: &[&str]| plan(&[&common[..], more].concat())[0].clone();
    let plain = of(&["--precision", "fp32"]);
    // 4 + 1 words; a row and its count; 4 floats; a number of bags, 4 floats and a place.
    assert_eq!(phases(&plain), [40.0, 16.0, 0.0, 32.0, 48.0]);
    assert_eq!((&plain["total_bytes"], &plain["source"]["bags_left_out"]), (&136.0.into(), &1.into()));
    assert_eq!(plain["pair"]["largest_bytes"], 68.0);
    let wanted = json!({"accesses": 8.0, "distinct_rows": 4.0, "own_rows": 4.0, "asked_rows": 2.0, "dirty_rows": 1.0,
        "far_accesses": 2.0, "far_bags": 2.0, "rows_with_requests_bytes": 48.0});
    assert_eq!(plain["step"], wanted);
    // INT8: 3 words and one of bits in the first step; in the second, both rows are dirty and go in FP32.
    assert_eq!(phases(&of(&["--precision", "int8"])), [40.0, 16.0, 8.0, (32.0 + 40.0) / 2.0, 48.0]);
    assert_eq!(phases(&of(&["--precision", "int8", "--cache-rows", "0"])), [40.0, 16.0, 8.0, 32.0, 48.0]);
    assert_eq!(phases(&of(&["--precision", "int8", "--steps", "1"])), [40.0, 16.0, 8.0, 32.0, 48.0]);
    let saved = plain["precisions"].as_array().unwrap();
    let int8 = saved.iter().find(|one| one["precision"] == "int8").unwrap();
    assert_eq!((&int8["rows_bytes"], &int8["saved_percent"]), (&44.0.into(), &(-37.5).into()));
    // A factor for each bag or access; without pooling each access is a bag. Two features of two bags, one bag of each for each rank.
    assert_eq!(phases(&of(&["--pooling", "mean"]))[4], 56.0);
    assert_eq!(phases(&of(&["--pooling", "none", "--weighted"]))[4], 56.0);
    // Rank 0 asks for row 1 in bag 0 and for 1, 3, 3 in bag 2: 2 + 2 * 4 floats + 2 words of places. Rank 1 asks for 2 and 0 in two bags.
    let features = phases(&of(&["--features", "2", "--precision", "fp32"]));
    assert_eq!(features, [40.0, 32.0, 0.0, 64.0, 4.0 * (2.0 + 8.0 + 2.0 + 2.0 + 8.0 + 1.0)]);
    // Hottest rows: 1 and 3 are used three and two times in each step, and both are rank 1's; replicas are pushed to one rank.
    let hot = of(&["--precision", "fp32", "--replicas", "1,2"])["replicas"].clone();
    assert_eq!((&hot[0]["asked_bytes"], &hot[0]["replicated_bytes"]), (&24.0.into(), &16.0.into()));
    assert_eq!(
        (&hot[1]["asked_rows"], &hot[1]["replicated_bytes"], &hot[1]["more_bytes"]),
        (&2.0.into(), &32.0.into(), &(-16.0).into())
    );
    // A second a message and a byte a second: a phase takes its message and the longer direction's bytes; each rank sends 68 bytes.
    let time = of(&["--precision", "fp32", "--alpha", "1e6", "--beta", "8e-9"])["time"].clone();
    common::near(&time["exchange_seconds"], 4.0 + 68.0, 1e-9);
    let near = of(&["--per-host", "2"])["time"]["exchange_seconds"].clone();
    assert_eq!(near, 0.0);
    // Rank 1: 2 output rows and 5 accesses; 2 and 5 in the backward, as row 1 is used three times and row 3 twice. Rows of 16 bytes.
    common::near(&time["own_seconds"], 16.0 * (7.0 + 2.0 * 7.0) / 1e11, 1e-9);
    // One rank exchanges nothing.
    assert_eq!(plan(&[&common[..], &["--ranks", "1"]].concat())[0]["total_bytes"], 0.0);
}

/// A second reading of SPEC 3 and 11: every byte of a trace, with maps and lists only. It shares no code with the command.
struct Naive {
    ranks: u32,
    shards: u32,
    features: usize,
    batch: usize,
    dim: u64,
    /// Bits of a weight.
    bits: u64,
    policy: &'static str,
    cache_rows: u32,
    pooling: &'static str,
    weighted: bool,
    /// Forms of rows and gradients, and whether gradients are summed.
    wire: (&'static str, &'static str, bool),
}

#[derive(Clone, Copy)]
struct Slot {
    row: u32,
    stamp: u64,
    dirty: bool,
    pinned: bool,
}

fn mix(mut h: u32) -> u32 {
    for (shift, factor) in [(16, 0x85eb_ca6b_u32), (13, 0xc2b2_ae35)] {
        h ^= h >> shift;
        h = h.wrapping_mul(factor);
    }
    h ^ h >> 16
}

impl Naive {
    fn sets(&self) -> u32 {
        self.shards * self.cache_rows.div_ceil(32 * self.shards)
    }

    fn set(&self, row: u32) -> usize {
        let each = self.sets() / self.shards;
        (each * (row % self.shards) + mix(row) % each) as usize
    }

    /// Bytes over all steps by phase, sender and receiver.
    fn count(&self, bags: &[Vec<u32>]) -> BTreeMap<(usize, u32, u32), u64> {
        let mut slots: Vec<[Option<Slot>; 32]> = vec![[None; 32]; self.sets() as usize];
        let (mut freq, mut bytes) = (BTreeMap::<u32, u64>::new(), BTreeMap::new());
        let steps = bags.len() / self.batch;
        if self.policy == "static" && self.cache_rows > 0 {
            let mut uses = BTreeMap::<u32, u64>::new();
            bags.iter().flatten().for_each(|&row| *uses.entry(row).or_default() += 1);
            let mut hottest: Vec<u32> = uses.keys().copied().collect();
            hottest.sort_by_key(|row| (std::cmp::Reverse(uses[row]), *row));
            for row in hottest.into_iter().take(32 * self.sets() as usize) {
                let set = &mut slots[self.set(row)];
                if let Some(empty) = set.iter_mut().find(|slot| slot.is_none()) {
                    *empty = Some(Slot { row, stamp: 0, dirty: false, pinned: true });
                }
            }
        }
        for step in 0..steps {
            let batch = &bags[step * self.batch..(step + 1) * self.batch];
            let find = |slots: &[[Option<Slot>; 32]], row: u32| -> Option<Slot> {
                if self.cache_rows == 0 {
                    return None;
                }
                slots[self.set(row)].iter().flatten().find(|slot| slot.row == row).copied()
            };
            let mut count = BTreeMap::<u32, u64>::new();
            batch.iter().flatten().for_each(|&row| *count.entry(row).or_default() += 1);
            count.iter().for_each(|(&row, n)| *freq.entry(row).or_default() += n);
            if self.cache_rows == 0 || count.is_empty() {
                self.exchange(batch, &|_| false, &mut bytes);
                continue;
            }
            let t = step as u64 + 1;
            let missing: Vec<u32> = count.keys().copied().filter(|&row| find(&slots, row).is_none()).collect();
            for slot in slots.iter_mut().flatten().flatten() {
                if count.contains_key(&slot.row) {
                    slot.stamp = t;
                }
            }
            let sets = slots.len();
            #[allow(clippy::needless_range_loop, reason = "rows are looked up in other sets meanwhile")]
            for set in 0..sets {
                let key = |row: u32| if self.policy == "lfu" { freq[&row] } else { count[&row] };
                let mut candidates: Vec<u32> = missing.iter().copied().filter(|&row| self.set(row) == set).collect();
                candidates.sort_by_key(|&row| (std::cmp::Reverse(key(row)), row));
                let value = |slot: &Slot| if self.policy == "lfu" { freq[&slot.row] } else { slot.stamp };
                let mut victims: Vec<(Option<u64>, usize)> = (0..32)
                    .filter(|&way| slots[set][way].is_none_or(|slot| !slot.pinned))
                    .map(|way| (slots[set][way].as_ref().map(value), way))
                    .collect();
                victims.sort_unstable();
                for (row, (value, way)) in candidates.into_iter().zip(victims) {
                    let stops = match self.policy {
                        "lru" => value == Some(t),
                        "lfu" => value.is_some_and(|value| value >= freq[&row]),
                        _ => true,
                    };
                    if stops {
                        break;
                    }
                    slots[set][way] = Some(Slot { row, stamp: t, dirty: false, pinned: false });
                }
            }
            // A row that its own batch has evicted goes as its record.
            let is_dirty = |row: u32| find(&slots, row).is_some_and(|slot| slot.dirty);
            self.exchange(batch, &is_dirty, &mut bytes);
            for slot in slots.iter_mut().flatten().flatten() {
                slot.dirty |= count.contains_key(&slot.row);
            }
        }
        bytes
    }

    /// Words of a vector in a form.
    fn vector(&self, form: &str) -> u64 {
        match form {
            "fp16" => self.dim.div_ceil(2),
            "int8" => self.dim.div_ceil(4) + 2,
            _ => self.dim,
        }
    }

    /// Pairs of a row and a slice of the batch that has it.
    fn sums(&self, batch: &[Vec<u32>], requester: u32, there: &dyn Fn(&u32) -> bool) -> u64 {
        let samples = self.batch / self.features;
        let mut sums = BTreeSet::new();
        let each = self.shards / self.ranks;
        for slice in requester * each..(requester + 1) * each {
            let [start, end] = [slice, slice + 1].map(|slice| samples * slice as usize / self.shards as usize);
            for feature in 0..self.features {
                let bags = &batch[feature * samples..][start..end];
                sums.extend(bags.iter().flatten().copied().filter(there).map(|row| (row, slice)));
            }
        }
        sums.len() as u64
    }

    fn exchange(
        &self,
        batch: &[Vec<u32>],
        is_dirty: &dyn Fn(u32) -> bool,
        bytes: &mut BTreeMap<(usize, u32, u32), u64>,
    ) {
        let samples = self.batch / self.features;
        let each = self.shards / self.ranks;
        let packed = (self.dim * self.bits).div_ceil(32) + if self.bits < 16 { 2 } else { 0 };
        for requester in 0..self.ranks {
            let part = |rank: u32| samples * rank as usize / self.ranks as usize;
            let mine: Vec<&Vec<u32>> = (0..self.features)
                .flat_map(|feature| &batch[feature * samples..][part(requester)..part(requester + 1)])
                .collect();
            for owner in (0..self.ranks).filter(|&owner| owner != requester) {
                let there = |row: &u32| row % self.shards / each == owner;
                let accesses: Vec<u32> =
                    mine.iter().flat_map(|bag| bag.iter()).copied().filter(|row| there(row)).collect();
                let rows: BTreeSet<u32> = accesses.iter().copied().collect();
                let (n, dirty) = (rows.len() as u64, rows.iter().filter(|&&row| is_dirty(row)).count() as u64);
                let all = accesses.len() as u64;
                let bags = match self.pooling {
                    "none" => all,
                    _ => mine.iter().filter(|bag| bag.iter().any(&there)).count() as u64,
                };
                let (mut answer, plain) = (0, self.vector(self.wire.0));
                if packed < plain {
                    for shard in owner * each..(owner + 1) * each {
                        answer += (rows.iter().filter(|&row| row % self.shards == shard).count() as u64).div_ceil(32);
                    }
                    answer += (n - dirty) * packed + dirty * plain;
                } else {
                    answer += n * plain;
                }
                let factors = match (self.weighted, self.pooling) {
                    (true, _) => all,
                    (false, "mean") => bags,
                    _ => 0,
                };
                let places = if bags > 65_536 { all } else { all.div_ceil(2) };
                let (vector, mut requests) = (self.vector(self.wire.1), 2 * n);
                let mut gradients = self.features as u64 + bags * vector + factors + places;
                if self.wire.2 {
                    gradients = self.sums(batch, requester, &there) * vector;
                    if each > 1 && n > 0 {
                        requests += 1;
                        gradients += n.div_ceil(2);
                    }
                }
                for (phase, from, to, words) in [
                    (0, requester, owner, 4 + u64::from(each)),
                    (1, requester, owner, requests),
                    (2, owner, requester, u64::from(packed < plain)),
                    (3, owner, requester, answer),
                    (4, requester, owner, gradients),
                ] {
                    *bytes.entry((phase, from, to)).or_default() += 4 * words;
                }
            }
        }
    }
}

/// Counted bytes as `--counted` takes them.
fn file(folder: &TempDir, steps: usize, bytes: &BTreeMap<(usize, u32, u32), u64>) -> String {
    let pair = |(&(phase, from, to), &bytes): (&(usize, u32, u32), &u64)| json!({"from": from, "to": to, PHASES[phase]: bytes});
    let pairs: Vec<Value> = bytes.iter().map(pair).collect();
    write(folder, "run.json", &json!({"steps": steps, "pairs": pairs}).to_string())
}

/// Each pair's bytes of each phase, in random shapes, against the second reading; and one wrong byte is refused.
#[test]
fn a_second_count_finds_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    let mut random = Pcg64::seed_from_u64(11);
    let mut differ = BTreeSet::new();
    for round in 0..24_usize {
        let ranks = 2 << random.random_range(0..3);
        let shards = ranks << random.random_range(0..3);
        let features = random.random_range(1..4);
        let batch = features * (ranks as usize + random.random_range(0..20));
        let rows = random.random_range(20..2500_u32);
        let precision = ["fp32", "fp16", "int8", "int4", "int2"][round % 5];
        let naive = Naive {
            ranks,
            shards,
            features,
            batch,
            dim: random.random_range(if round % 4 == 0 { 1..12 } else { 4..20 }),
            bits: [32, 16, 8, 4, 2][round % 5],
            policy: ["lru", "lfu", "static"][round % 3],
            cache_rows: if round % 8 == 7 { 0 } else { random.random_range(1..rows / 2) },
            pooling: ["sum", "mean", "none"][round / 3 % 3],
            weighted: random.random_range(0..3) == 0,
            wire: match round % 4 {
                0 => ("exact", "exact", round % 8 == 4),
                1 => ("fp16", "int8", false),
                2 => ("int8", "fp16", true),
                _ => ("exact", "int8", true),
            },
        };
        // Cubes make small rows frequent. Some bags are empty.
        let row = |random: &mut Pcg64| (f64::from(rows) * random.random::<f64>().powi(3)) as u32;
        let bags: Vec<Vec<u32>> =
            (0..batch * 9).map(|_| (0..random.random_range(0..25)).map(|_| row(&mut random)).collect()).collect();
        let counted = naive.count(&bags);
        let run = file(&folder, 9, &counted);
        let (trace, texts) = (
            trace(&folder, &bags),
            [ranks, shards, features as u32, batch as u32, naive.dim as u32, naive.cache_rows, rows]
                .map(|n| n.to_string()),
        );
        let mut arguments = vec![
            "dist",
            "--trace",
            &trace,
            "--precision",
            precision,
            "--policy",
            naive.policy,
            "--pooling",
            naive.pooling,
            "--wire-rows",
            naive.wire.0,
            "--wire-gradients",
            naive.wire.1,
        ];
        if naive.wire.2 {
            arguments.push("--summed");
        }
        for (option, text) in
            ["--ranks", "--shards", "--features", "--batch", "--dim", "--cache-rows", "--rows"].iter().zip(&texts)
        {
            arguments.extend([*option, text.as_str()]);
        }
        if naive.weighted {
            arguments.push("--weighted");
        }
        arguments.extend(["--counted", &run]);
        outcome(&arguments, 0);
        let step = plan(&arguments)[0]["step"].clone();
        if step["dirty_rows"] != 0.0 && step["dirty_rows"] != step["asked_rows"] {
            differ.insert(naive.policy);
        }
        // One byte more, from one rank to another in one phase, or to the wrong one.
        let phase = random.random_range(0..5);
        let mut wrong = counted.clone();
        let keys: Vec<_> = wrong.keys().copied().filter(|key| key.0 == phase).collect();
        *wrong.get_mut(&keys[random.random_range(0..keys.len())]).unwrap() += 1;
        file(&folder, 9, &wrong);
        let (stdout, stderr) = outcome(&arguments, 1);
        assert!(
            stderr.contains("wanted the bytes that were planned") && stdout.contains(" no |"),
            "{stdout}\n{stderr}"
        );
    }
    assert_eq!(
        differ.into_iter().collect::<Vec<_>>(),
        ["lfu", "lru", "static"],
        "clean and dirty rows under each policy"
    );
    // A run of another length is bad usage.
    let bags = trace(&folder, &vec![vec![1, 2]; 8]);
    let run = file(&folder, 3, &BTreeMap::new());
    let (_, stderr) = outcome(&["dist", "--trace", &bags, "--batch", "2", "--ranks", "2", "--counted", &run], 2);
    assert!(stderr.contains("wanted a run of 4 steps"), "{stderr}");
}

/// The largest relative difference of a phase's bytes.
fn off(expected: &Value, counted: &Value) -> f64 {
    let pairs = phases(expected).into_iter().zip(phases(counted));
    pairs.map(|(a, b)| if a == b { 0.0 } else { (a / b - 1.0).abs() }).fold(0.0, f64::max)
}

#[test]
fn expected_bytes_are_within_one_percent_of_a_generated_trace() {
    for (policy, cache, ranks, shards, s, pooling, wire) in [
        ("lru", "10", "8", "8", "1.05", "sum", &[][..]),
        ("lru", "2", "4", "64", "1.05", "mean", &["--summed"]),
        ("lfu", "10", "8", "16", "0.8", "sum", &["--wire-rows", "fp16", "--summed"]),
        ("static", "10", "8", "8", "1.05", "none", &["--wire-gradients", "int8"]),
        ("static", "1", "2", "2", "1.2", "sum", &["--summed"]),
        ("lru", "0", "64", "128", "1.05", "sum", &[]),
    ] {
        let common =
            ["--policy", policy, "--cache-percent", cache, "--ranks", ranks, "--shards", shards, "--pooling", pooling];
        let common =
            [&common[..], &["--batch", "512", "--lookups", "20", "--dim", "32", "--steps", "20"], wire].concat();
        let trace = format!("zipf:rows=20000,s={s},n=1024000");
        // The trace and the draws of the replay come from different seeds.
        let counted =
            plan(&[&["dist", "--trace", &trace, "--seed", "5", "--rows", "20000"], &common[..]].concat())[0].clone();
        let expected = |s: &str| {
            let from = format!("zipf:rows=20000,s={s}");
            plan(&[&["dist", "--distribution", &from], &common[..]].concat())[0].clone()
        };
        assert_eq!(counted["source"]["steps"], 20);
        let found = off(&expected(s), &counted);
        assert!(found < 0.01, "{policy} {cache} {ranks} {s}: {found}");
        let of = |what: &str, key: &str, share| {
            common::near(&expected(s)[what][key], counted[what][key].as_f64().unwrap(), share);
        };
        of("step", "distinct_rows", 0.01);
        of("step", "own_rows", 0.01);
        of("step", "dirty_rows", 0.02);
        of("imbalance", "bytes_ratio", 0.02);
        of("imbalance", "own_rows_accesses_ratio", 0.02);
        let messages = |answer: &Value| answer["phases"][1]["messages"].as_f64().unwrap();
        assert!((messages(&expected(s)) / messages(&counted) - 1.0).abs() < 0.01);
        let hot = |answer: &Value| answer["replicas"][2]["asked_bytes"].as_f64().unwrap();
        assert!((hot(&expected(s)) / hot(&counted) - 1.0).abs() < 0.02, "{} {}", hot(&expected(s)), hot(&counted));
        // A slightly different skew is found.
        let other = format!("{:.2}", s.parse::<f64>().unwrap() + 0.05);
        assert!(off(&expected(&other), &counted) > 0.01, "{policy} {cache} {ranks} {other}");
    }
}

/// The goals of the table in docs/scale-out.md.
#[test]
fn the_real_trace_stays_within_the_goals() {
    let Some(folder) = data::folder("the bytes between ranks of a real trace") else { return };
    let common =
        ["dist", "--trace", "ebooks_words", "--dim", "64", "--precision", "fp32", "--batch", "4096", "--shuffle"];
    let of = |more: &[&str]| plan(&[&common[..], &["--data", folder.to_str().unwrap()], more].concat())[0].clone();
    let mib = |value: &Value| value.as_f64().unwrap() / f64::from(1 << 20);
    let (plain, weighted) = (of(&[]), of(&["--weighted"]));
    let [pulled, sum, with_weights] =
        [&plain["step"]["rows_with_requests_bytes"], &plain["phases"][4]["bytes"], &weighted["phases"][4]["bytes"]]
            .map(mib);
    println!("rows with requests {pulled:.3} MiB, gradients {sum:.3} MiB, weighted {with_weights:.3} MiB");
    assert!(pulled < 12.8 && sum < 7.7 && with_weights < 8.9, "{pulled} {sum} {with_weights}");
    // A goal that is tighter by 5 % would be missed, so the bytes are there.
    assert!(pulled > 0.95 * 12.8 && sum > 6.0 && with_weights > 7.0, "{pulled} {sum} {with_weights}");
}

/// Groups over ranks send the bytes that are planned, whatever the policy, the precision and the pooling.
#[test]
fn real_runs_send_the_bytes_that_are_planned() {
    let folder = TempDir::new().unwrap();
    let mut random = Pcg64::seed_from_u64(12);
    for round in 0..9 {
        let row = |random: &mut Pcg64| (300.0 * random.random::<f64>().powi(3)) as u32;
        let bags: Vec<Vec<u32>> =
            (0..200).map(|_| (0..random.random_range(0..12)).map(|_| row(&mut random)).collect()).collect();
        let trace = trace(&folder, &bags);
        let precision = ["fp32", "fp16", "int8", "int4", "int2"][round % 5];
        let (policy, pooling) = (["lru", "lfu", "static"][round % 3], ["sum", "mean", "none"][round / 3]);
        let mut arguments =
            vec!["dist", "--verify", "--trace", &trace, "--rows", "300", "--ranks", "1,2,4", "--dim", "20"];
        arguments.extend(["--shards", "8", "--features", "2", "--batch", "40", "--cache-percent", "30"]);
        arguments.extend(["--precision", precision, "--policy", policy, "--pooling", pooling]);
        if round % 2 == 1 {
            arguments.push("--weighted");
        }
        arguments.extend(["--wire-rows", ["exact", "fp16", "int8"][round % 3]]);
        arguments.extend(["--wire-gradients", ["exact", "fp16", "int8"][round / 3]]);
        if round % 4 > 1 {
            arguments.push("--summed");
        }
        outcome(&arguments, 0);
        for answer in plan(&arguments).as_array().unwrap() {
            let lines = answer["verify"].as_array().unwrap();
            assert!(lines.len() == 5 && lines.iter().all(|line| line["within"] == true), "{answer}");
        }
    }
}
