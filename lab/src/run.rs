//! A run: a task, a setup and a seed, trained and tested.
//!
//! All runs with one seed share sample order, random draws and initial weights, so that settings can be compared pairwise.

mod model;
mod order;
mod outcome;
mod state;
mod step;
#[cfg(test)]
mod tests;
mod train;

pub(crate) use model::{RunOptions, identity};
pub(crate) use outcome::Outcome;

use crate::checkpoints::{Keep, Unproved};
use crate::ranks::Ranks;
use crate::setting::Setting;
use crate::task::Task;
use anyhow::ensure;
use hotrow::Counters;
use model::Model;
use std::time::Instant;
use train::remedy;

/// Trains and tests, over ranks if there are any. `watch` is called after every step. The bits of the outcome do not depend on other load.
pub(crate) fn run(
    task: &dyn Task,
    choice: &[Setting],
    seed: u64,
    options: &RunOptions,
    keep: &Keep,
    watch: &dyn Fn(u64),
    ranks: Option<Ranks<'_>>,
) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let mut model = Model::new(task, choice, seed, options, ranks)?;
    let (trained, tested, unproved) = model.train(keep, watch)?;
    let score = tested.map_or_else(|| model.test(usize::MAX), Ok)?;
    ensure!(score.loss.is_finite(), "test: wanted a finite loss, found {}; {}", score.loss, remedy(keep)?);
    unproved.map_or(Ok(()), Unproved::prove)?;
    let overflows = model.scaler.as_ref().map(|scaler| u64::from(scaler.state().overflows));
    ensure!(
        overflows.is_none_or(|overflows| overflows < model.steps),
        "loss-scale {}: wanted a step that does not overflow, found none in {}; take a smaller scale",
        String::from(options.hyper.loss_scale),
        model.steps
    );
    let (counters, cached) = model.tables.counters()?;
    let hit_rate = (!cached.is_empty()).then(|| cached.values().copied().sum::<Counters>().hit_rate());
    let name = |(&table, counters): (&usize, &Counters)| (task.about().tables[table].name.clone(), counters.hit_rate());
    let lost = model.all_lost()?;
    let (memory_paper, memory_true, kept_bytes) = model.tables.memory()?;
    // Where pages move these alone are counted, and not the rows of tables that stay on the device.
    let bus_bytes = Some(model.tables.paged()).filter(|&pages| pages > 0).unwrap_or_else(|| counters.bus_bytes());
    let tables_seconds = match &options.device.shared {
        Some(shared) => model.time_tables(shared)?,
        None => trained.tables_seconds,
    };
    Ok(Outcome {
        loss: score.loss,
        accuracy: score.accuracy,
        auc: score.auc,
        base_rate: Some(score.base_rate),
        hit_rate,
        hit_rates: if cached.len() > 1 { cached.iter().map(name).collect() } else { Vec::new() },
        hot_samples: (model.hot[0] > 0).then(|| model.hot[1] as f64 / model.hot[0] as f64),
        memory_paper,
        memory_true,
        bus_bytes,
        skipped_rows: counters.skipped_rows,
        overflows,
        lost: (lost[0] > 0).then(|| lost[1] as f64 / lost[0] as f64),
        inferred_per_second: model.inferred.0 as f64 / model.inferred.1.as_secs_f64(),
        steps: model.steps,
        seconds: start.elapsed().as_secs_f64(),
        kept_bytes,
        tables_seconds,
        ..trained
    })
}
