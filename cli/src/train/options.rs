//! The options of `hotrow train`.

use super::cells::Lists;
use super::grid::options::GridArgs;
use super::mixed::{self, TableSetting};
use super::scaling::{self, Scaling};
use super::setting::{Kind, Setting, WAYS};
use super::tasks::{Cardinalities, TaskName};
use super::until::options::UntilArgs;
use crate::names::{OptimizerName, PolicyName, PrecisionName, RoundingName};
use std::path::PathBuf;

/// Test loss against precision, rounding, policy and cache size
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to learn [default: author with a data folder, else dlrm on generated data]
    #[arg(long, value_enum)]
    pub(super) task: Option<TaskName>,
    /// Author: sentences instead of paragraphs
    #[arg(long)]
    pub(super) sentences: bool,
    /// Dlrm: Criteo's click log (label, 13 counts, 26 categories, tab separated), plain, .gz or .zst; its last seventh is the
    /// test set [default: generated clicks]
    #[arg(long, value_name = "FILE")]
    pub(super) criteo: Option<PathBuf>,
    /// Dlrm: rows of the 26 tables: a cap or a scale (1/100) for P1's Table 1, or 26 numbers [default: 1/100]
    #[arg(long, value_name = "N|1/N|N,N,..")]
    pub(super) cardinalities: Option<Cardinalities>,
    /// A setting to compare with the others and with FP32, of KIND cached (precision, rounding, cache-percent, policy, ways) or
    /// robe (compression or weights of the array that the tables share; chunk, precision, rounding); or with NAME= one of its own for a table, beside each
    /// of the others. May be given several times
    #[arg(long, value_name = mixed::FORM)]
    pub(super) table: Vec<TableSetting>,
    /// Passes over the training set [default: the task's own]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) epochs: Option<u32>,
    /// Samples in a batch; several are compared with each other (P3 Table VII) [default: the task's own]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(super) batch: Vec<u32>,
    /// With several batch sizes: train each run for so long, instead of so many epochs
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(super) seconds: Option<f64>,
    /// Floats in a row [default: the task's own]
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(super) dim: Option<u32>,
    /// Update rule of the tables [default: the task's own]
    #[arg(long, value_enum)]
    pub(super) optimizer: Option<OptimizerName>,
    /// Learning rate of the tables [default: the task's own]
    #[arg(long, value_name = "X", value_parser = rate)]
    pub(super) lr: Option<f32>,
    /// Learning rate of the dense part, which AdaGrad updates [default: the task's own]
    #[arg(long, value_name = "X", value_parser = rate)]
    pub(super) dense_lr: Option<f32>,
    /// Whether both rates go down to 0 in even steps [default: the task's own]
    #[arg(long, value_name = "BOOL")]
    pub(super) decay: Option<bool>,
    /// Train on the first N samples; more clicks are generated where N is more
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) limit: Option<u32>,
    /// Scale of the loss, with the gradients of the tables in FP16: none, static:S, backoff, log-normal, log-normal-original
    #[arg(long, value_name = "SCALE", default_value = "none", value_parser = scaling::parse)]
    pub(super) loss_scale: Scaling,
    /// Precisions of the tables
    #[arg(long, value_enum, value_delimiter = ',')]
    precision: Vec<PrecisionName>,
    /// How they round [default: stochastic]
    #[arg(long, value_enum, value_delimiter = ',')]
    rounding: Vec<RoundingName>,
    /// Replacement policies of the caches [default: lfu]
    #[arg(long, value_enum, value_delimiter = ',')]
    policy: Vec<PolicyName>,
    /// Rows of the caches in percent of the tables' [default: 0]
    #[arg(long, value_name = "P[,P]", value_delimiter = ',', allow_negative_numbers = true, value_parser = percent)]
    cache_percent: Vec<f64>,
    /// Ways of a set of the caches [default: 32]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    ways: Vec<u32>,
    /// Runs of each setting, each with a seed of its own
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) seeds: u32,
    /// Keep a checkpoint of each run in --out every N steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["grid", "profile"])]
    pub(super) checkpoint_every: Option<u64>,
    /// Go on from the checkpoints in DIR, the --out of before; runs without one begin anew
    #[arg(long, value_name = "DIR", conflicts_with_all = ["grid", "profile", "out"])]
    pub(super) resume: Option<PathBuf>,
    #[command(flatten)]
    pub(super) until: UntilArgs,
    #[command(flatten)]
    pub(super) grid: GridArgs,
}

pub(super) fn rate(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f32>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("wanted a finite number above 0".to_owned()),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err("wanted a number above 0, at most 1000000".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("wanted a number from 0 to 100".to_owned()),
    }
}

impl Args {
    /// What was asked for, list by list.
    pub(super) fn lists(&self) -> Lists {
        fn given<T: Copy>(list: &[T]) -> Option<Vec<T>> {
            (!list.is_empty()).then(|| list.to_vec())
        }
        Lists {
            precisions: given(&self.precision),
            roundings: given(&self.rounding),
            policies: given(&self.policy),
            percents: given(&self.cache_percent),
            ways: given(&self.ways),
        }
    }

    /// The seeds of the runs.
    pub(super) fn seeds(&self, first: u64) -> Vec<u64> {
        (0..u64::from(self.seeds)).map(|k| first.wrapping_add(k)).collect()
    }

    /// Settings of single tables; and all to compare with each other, FP32 first, none if there are none.
    pub(super) fn kinds(&self) -> (Vec<&TableSetting>, Vec<Kind>) {
        let (named, asked): (Vec<&TableSetting>, Vec<&TableSetting>) =
            self.table.iter().partition(|setting| setting.is_named());
        let mut kinds: Vec<Kind> = self.settings().into_iter().map(Kind::from).collect();
        for &TableSetting { kind, .. } in asked {
            if kinds.is_empty() {
                kinds.push(Kind::FP32);
            }
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        (named, kinds)
    }

    /// Every combination that was asked for, FP32 first; none if nothing was.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let asked = !(self.precision.is_empty()
            && self.rounding.is_empty()
            && self.policy.is_empty()
            && self.cache_percent.is_empty()
            && self.ways.is_empty());
        if !asked {
            return Vec::new();
        }
        fn or<T: Copy>(given: &[T], default: &[T]) -> Vec<T> {
            if given.is_empty() { default.to_vec() } else { given.to_vec() }
        }
        let mut settings = vec![Setting::FP32];
        for precision in or(&self.precision, &[PrecisionName::Int8]) {
            for rounding in or(&self.rounding, &[RoundingName::Stochastic]) {
                for policy in or(&self.policy, &[PolicyName::Lfu]) {
                    for &cache_percent in &or(&self.cache_percent, &[0.0]) {
                        for ways in or(&self.ways, &[WAYS]) {
                            let setting = Setting { precision, rounding, policy, cache_percent, ways }.plain();
                            if !settings.contains(&setting) {
                                settings.push(setting);
                            }
                        }
                    }
                }
            }
        }
        settings
    }
}
