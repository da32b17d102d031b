//! The kind of device that the executor stands for, and how it runs.

use crate::lanes::schedule::{Options, Order};

/// A device to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub options: Options,
    /// Whether the device has subgroup operations; without them hotrow takes its portable bodies.
    pub subgroups: bool,
    /// Whether the device adds to floats atomically.
    pub float_atomics: bool,
    /// The most storage buffers of a stage: those of WebGPU's default limits are 8.
    pub storage_buffers: u32,
    /// Whether it says that it is a card, which gets more workgroups and more shards at once than a driver that runs on a CPU.
    pub card: bool,
    /// Whether each dispatch runs a second time in another order, and the results are compared.
    pub twice: bool,
    /// The most dispatches of each text that are recorded, beside those whose barriers come in an order not met before; 0: none at all.
    pub record: usize,
    /// What a submission with findings does.
    pub findings: Findings,
}

/// What a submission with findings does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Findings {
    /// It panics, so that the test that submitted it fails.
    Fail,
    /// It prints them and goes on.
    Print,
    /// It only adds them to the report.
    Keep,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            options: Options::default(),
            subgroups: true,
            float_atomics: false,
            // Three windows of a cache, or three shards at once.
            storage_buffers: 10,
            card: false,
            twice: false,
            record: 0,
            findings: Findings::Fail,
        }
    }
}

impl Config {
    /// Reads the form of `HOTROW_TEST_LANES`, such as `subgroup=32,order=random,seed=7`.
    pub fn parse(text: &str) -> Self {
        let mut config = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let number = || {
                value
                    .parse::<u64>()
                    .unwrap_or_else(|_| panic!("HOTROW_TEST_LANES: wanted {name}=<number>, found {part}"))
            };
            let flag = || match value {
                "on" => true,
                "off" => false,
                _ => panic!("HOTROW_TEST_LANES: wanted {name}=on or {name}=off, found {part}"),
            };
            match name {
                "subgroup" => config.options.subgroup = number() as u32,
                "order" => {
                    config.options.order = match value {
                        "ascending" => Order::Ascending,
                        "descending" => Order::Descending,
                        "random" => Order::Random,
                        _ => panic!("HOTROW_TEST_LANES: wanted order=ascending, descending or random, found {part}"),
                    }
                }
                "seed" => config.options.seed = number(),
                "spurious" => config.options.spurious = number() as u32,
                "budget" => config.options.budget = number(),
                "subgroups" => config.subgroups = flag(),
                "float-atomics" => config.float_atomics = flag(),
                "twice" => config.twice = flag(),
                "findings" => {
                    config.findings = match value {
                        "fail" => Findings::Fail,
                        "print" => Findings::Print,
                        _ => panic!("HOTROW_TEST_LANES: wanted findings=fail or print, found {part}"),
                    }
                }
                "counting" => config.options.counting = flag(),
                _ => panic!(
                    "HOTROW_TEST_LANES: wanted subgroup, order, seed, spurious, budget, subgroups, float-atomics, twice, \
                     counting or findings, found {part}"
                ),
            }
        }
        config
    }
}
