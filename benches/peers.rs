//! The CPU backend's side of `benches/peers.py`, which starts this program and talks to it in lines:
//!
//! ```text
//! group  NAME key=value...     makes a group; keys: rows, dim, precision, optimizer, cache (rows), policy, threads
//! batch  NAME FILE             gives it a batch: words of 4 bytes, the number of bags, the offsets, the indices
//! run    NAME frozen|forward|step ROUNDS    runs all batches ROUNDS times; answers with nanoseconds a look-up
//! rows   NAME FILE OUT         reads the rows that FILE lists, and writes their floats to OUT
//! memory NAME                  answers with the bytes of its memory report
//! drop   NAME
//! ```
//!
//! Each line is answered by one line. Without input, as `cargo bench -- --test` runs it, it makes one group and one step.
#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]
#![allow(clippy::print_stdout, reason = "the answers")]

use std::{
    collections::HashMap,
    io::{BufRead as _, Write as _},
    time::Instant,
};

use hotrow::{Bags, CpuGroup, GroupConfig, Init, Mode, Optimizer, OutputSlice, Policy, prelude::*};

struct Batch {
    offsets: Vec<u32>,
    indices: Vec<u32>,
    outputs: Vec<f32>,
    grads: Vec<f32>,
}

struct Table {
    group: CpuGroup,
    batches: Vec<Batch>,
    pool: rayon::ThreadPool,
}

fn words(path: &str) -> Vec<u32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect()
}

fn table(keys: &[&str]) -> Table {
    let keys: HashMap<&str, &str> = keys.iter().filter_map(|key| key.split_once('=')).collect();
    let number = |key: &str| keys.get(key).map_or(0, |value| value.parse().unwrap());
    let mut config = GroupConfig::new(&[number("rows")], number("dim")).with_cache_rows(number("cache"));
    config.precision = keys["precision"].parse().unwrap();
    config.optimizer = match keys["optimizer"] {
        "sgd" => Optimizer::sgd(0.05),
        "adagrad" => Optimizer::adagrad(0.05),
        "rowwise" => Optimizer::row_wise_adagrad(0.05),
        other => panic!("optimizer: wanted sgd, adagrad or rowwise, found {other}"),
    };
    config.policy = keys.get("policy").map_or(Policy::Lru, |name| name.parse().unwrap());
    config.init = Init::Uniform { low: -0.1, high: 0.1 };
    // Each thread has its core. Otherwise Linux leaves two of them on one core for many calls: a thread of rayon that waits for work yields
    // instead of sleeping, and a thread that ran within the last half millisecond is not moved to another core.
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(number("threads") as usize)
        .start_handler(move |thread| {
            if let Some(&core) = cores.get(thread) {
                core_affinity::set_for_current(core);
            }
        })
        .build()
        .unwrap();
    Table { group: CpuGroup::new(config).unwrap(), batches: Vec::new(), pool }
}

impl Table {
    fn add(&mut self, words: &[u32]) {
        let bags = words[0] as usize;
        let (offsets, indices) = words[1..].split_at(bags + 1);
        let outputs = vec![0.0; self.group.output_len(indices.len(), bags)];
        let grads = (0..outputs.len()).map(|i| (i * 37 % 101) as f32 / 64.0 - 0.75).collect();
        self.batches.push(Batch { offsets: offsets.to_vec(), indices: indices.to_vec(), outputs, grads });
    }

    /// Nanoseconds a look-up.
    fn run(&mut self, what: &str, rounds: usize) -> f64 {
        let Self { group, batches, pool } = self;
        pool.install(|| {
            let mut nanoseconds = 0;
            for _ in 0..rounds {
                for Batch { offsets, indices, outputs, grads } in &mut *batches {
                    let start = Instant::now();
                    if what == "frozen" {
                        group
                            .forward_into(Bags::new(indices, offsets), Mode::Frozen, OutputSlice::F32(outputs))
                            .unwrap();
                    } else {
                        group
                            .forward_into(Bags::new(indices, offsets), Mode::Train, OutputSlice::F32(outputs))
                            .unwrap();
                    }
                    if what == "step" {
                        group.backward(grads).unwrap();
                    }
                    nanoseconds += start.elapsed().as_nanos();
                    if what == "forward" {
                        group.backward(grads).unwrap();
                    }
                }
            }
            let lookups: usize = batches.iter().map(|batch| batch.indices.len()).sum();
            nanoseconds as f64 / (rounds * lookups) as f64
        })
    }
}

fn main() {
    let mut tables: HashMap<String, Table> = HashMap::new();
    if std::env::args()
        .any(|argument| argument == "--test" || argument == "--bench" && std::env::var_os("PEERS").is_none())
    {
        let mut table = table(&["rows=100", "dim=8", "precision=fp16", "optimizer=rowwise", "threads=1"]);
        table.add(&[2, 0, 2, 3, 7, 7, 9]);
        println!("one step: {:.0} ns a look-up. benches/peers.py compares with other libraries.", table.run("step", 1));
        return;
    }
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let words_of: Vec<&str> = line.split_whitespace().collect();
        let [command, name, rest @ ..] = &words_of[..] else { panic!("wanted a command and a name, found {line:?}") };
        let mut answer = "ok".to_owned();
        match (*command, rest) {
            ("group", keys) => drop(tables.insert((*name).to_owned(), table(keys))),
            ("batch", [file]) => tables.get_mut(*name).unwrap().add(&words(file)),
            ("run", [what, rounds]) => {
                answer = tables.get_mut(*name).unwrap().run(what, rounds.parse().unwrap()).to_string();
            }
            ("rows", [file, out]) => {
                let rows = tables.get_mut(*name).unwrap().group.read_rows(&words(file)).unwrap();
                std::fs::write(out, rows.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
            }
            ("memory", []) => answer = tables[*name].group.memory().total().to_string(),
            ("drop", []) => drop(tables.remove(*name)),
            _ => panic!("unknown command: {line:?}"),
        }
        println!("{answer}");
        std::io::stdout().flush().unwrap();
    }
}
