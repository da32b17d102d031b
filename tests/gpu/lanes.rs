//! Every stage on the lane executor (`tests/harness/src/lanes`), with its tests' own inputs, against the CPU mirror; and mutants of every
//! kernel over the same inputs. Needs no GPU.

use std::time::Instant;

use hotrow_harness::{
    device::instead,
    lanes::{
        Options, Order,
        device::{Config, Findings, Recording},
        findings::Report,
        mutants::{Kind, Tally, hunt},
        runs,
    },
};

use crate::stages;

fn device(subgroups: bool, subgroup: u32, order: Order, seed: u64) -> Config {
    let options = Options { subgroup, order, seed, ..Options::default() };
    Config { options, subgroups, findings: Findings::Keep, ..Config::default() }
}

/// Runs every stage's tests, and whole runs with some seeds, on a device.
fn everything(config: &Config, seeds: std::ops::Range<u64>) -> (Report, Vec<Recording>) {
    let (context, world) = runs::context(config, None);
    instead(&context, || {
        for test in stages::ALL {
            test();
        }
        for seed in seeds {
            runs::all(&context, seed);
        }
    });
    (world.take_report(), world.take_recorded())
}

#[test]
fn try_out() {
    let mut all = Tally::default();
    for (subgroups, width) in [(true, 32), (false, 8)] {
        let start = Instant::now();
        let mut config = device(subgroups, width, Order::Random, 1);
        config.record = 12;
        let (report, recorded) = everything(&config, 0..3);
        eprintln!("ran {:?}, {} recorded", start.elapsed(), recorded.len());
        for finding in &report.findings {
            eprintln!("{finding}");
        }
        let ran: Vec<&String> = report.counts.keys().collect();
        eprintln!("{} kernels", ran.len());
        let start = Instant::now();
        let known = all.clone();
        all.merge(hunt(&recorded, &config.options, |mutant| !known.told.get(mutant).copied().unwrap_or(false)));
        eprintln!("hunted {:?}", start.elapsed());
        for kinds in [&Kind::STRICT, &Kind::LISTED] {
            eprintln!("{kinds:?}: {:?}", all.count(kinds));
            for survivor in all.survivors(kinds) {
                eprintln!("  {survivor}");
            }
        }
    }
}
