//! A workload measured: a group of tables, brought into a known state, then forward and backward over batches in turn.

use hotrow::wgpu;
use hotrow::{Batch as Recorded, Counters, Group, GroupConfig, Layout};

use super::bytes::{Facts, kernel};
use super::lab::{Lab, Measured};
use super::report::{Case, Kernel};
use super::shapes::Batch;

/// What is measured, and why so.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) shape: String,
    /// Why this size is there.
    pub(crate) why: &'static str,
    /// What was run before, and so what the cache holds.
    pub(crate) warm_state: String,
    /// What differs from the shape it is named after.
    pub(crate) scale: Option<String>,
    pub(crate) config: GroupConfig,
    /// Forward only, before anything is measured.
    pub(crate) warm: Vec<Batch>,
    /// In turn.
    pub(crate) batches: Vec<Batch>,
    pub(crate) backward: bool,
}

/// A batch on the device.
struct Uploaded {
    indices: wgpu::Buffer,
    offsets: wgpu::Buffer,
}

/// What a row with more accesses than this is to the kernels: summed in chunks of as many.
const HEAVY: u32 = 128;

impl Workload {
    pub(crate) fn run(&self, lab: &Lab) -> anyhow::Result<Case> {
        self.run_on(lab, &mut Group::new(&lab.timed, self.config.clone())?)
    }

    /// On a group of this configuration.
    pub(crate) fn run_on(&self, lab: &Lab, group: &mut Group) -> anyhow::Result<Case> {
        let upload =
            |batch: &Batch| Uploaded { indices: lab.storage(&batch.indices()), offsets: lab.storage(&batch.offsets()) };
        let most = |size: &dyn Fn(&Batch) -> usize| self.warm.iter().chain(&self.batches).map(size).max().unwrap_or(0);
        let outputs_of = |batch: &Batch| batch.offsets().len() - 1;
        let bytes = most(&outputs_of) as u64 * u64::from(self.config.dim) * 4;
        let outputs = lab.room(bytes, wgpu::BufferUsages::empty());
        let grads = lab.storage(&vec![1e-3f32.to_bits(); (bytes / 4) as usize]);
        lab.timeline.listen(false);
        let forward = |group: &mut Group, encoder: &mut wgpu::CommandEncoder, one: &Uploaded| {
            let batch =
                Recorded { indices: Some(one.indices.slice(..)), offsets: one.offsets.slice(..), weights: None };
            group.record_forward(encoder, &batch, outputs.slice(..))
        };
        for batch in &self.warm {
            let mut encoder = lab.encoder();
            forward(group, &mut encoder, &upload(batch))?;
            group.abandon_backward();
            lab.submit(encoder)?;
        }
        let uploaded: Vec<Uploaded> = self.batches.iter().map(upload).collect();
        // A whole step that is not counted: what the kernels allocate and compile is there afterwards.
        let mut encoder = lab.encoder();
        forward(group, &mut encoder, &uploaded[0])?;
        if self.backward {
            group.record_backward(&mut encoder, grads.slice(..))?;
        }
        lab.submit(encoder)?;
        group.check()?;
        let before = total(group)?;
        let mut turn = uploaded.iter().cycle().skip(1);
        let phases = if self.backward { &["forward", "backward"][..] } else { &["forward"] };
        let measured = lab.measure(phases, |phase, encoder| {
            if phase == 0 {
                group.abandon_backward();
                if let Some(batch) = turn.next() {
                    forward(group, encoder, batch)?;
                }
            } else {
                group.record_backward(encoder, grads.slice(..))?;
            }
            Ok(())
        })?;
        group.check()?;
        let seen = total(group)? - before;
        Ok(self.case(lab, &measured, seen))
    }

    fn case(&self, lab: &Lab, measured: &Measured, seen: Counters) -> Case {
        // What the layout is does not depend on the shards' size.
        let layout = Layout::new(&self.config, lab.binding()).ok();
        let facts = self.facts(layout.as_ref(), seen, measured.rounds as f64);
        let mut case = Case {
            name: self.name.clone(),
            shape: self.shape.clone(),
            why: self.why,
            warm_state: self.warm_state.clone(),
            scale: self.scale.clone(),
            precision: format!("{:?}", self.config.precision).to_uppercase(),
            placement: format!("{:?}", self.config.placement).to_lowercase(),
            optimizer: format!("{:?}", self.config.optimizer.kind),
            hit_rate: if facts.accesses > 0.0 { facts.hits / facts.accesses } else { 0.0 },
            facts,
            forward: measured.phase("forward"),
            backward: measured.phase("backward"),
            forward_logical_bytes_per_second: measured
                .phase("forward")
                .map(|times| facts.logical(false) / times.median),
            backward_logical_bytes_per_second: measured
                .phase("backward")
                .map(|times| facts.logical(true) / times.median),
            forward_table_bytes: facts.table_bytes(false),
            backward_table_bytes: facts.table_bytes(true),
            on_the_hosts_clock: measured.wall,
            dispatches: measured.dispatches(),
            kernels: Vec::new(),
        };
        for stage in &measured.stages {
            let (name, backward) = (kernel(stage.stage), stage.phase == "backward");
            let at = case.kernels.iter().position(|known| known.kernel == name && known.phase == stage.phase);
            let at = at.unwrap_or_else(|| {
                case.kernels.push(Kernel::new(name, stage.phase, facts.bytes(name, backward)));
                case.kernels.len() - 1
            });
            case.kernels[at].add(stage);
        }
        case
    }

    fn facts(&self, layout: Option<&Layout>, seen: Counters, steps: f64) -> Facts {
        let mean = |all: u64| all as f64 / steps.max(1.0);
        let heavy =
            |batch: &Batch| batch.repeats().iter().filter(|&&n| n > HEAVY).map(|&n| u64::from(n)).sum::<u64>() as f64;
        let batches = self.batches.len() as f64;
        let layout = layout.cloned();
        let of = |field: fn(&Layout) -> f64| layout.as_ref().map_or(0.0, field);
        Facts {
            accesses: mean(seen.accesses),
            hits: mean(seen.hits),
            distinct: mean(seen.unique),
            missing: mean(seen.unique_misses),
            admitted: mean(seen.admitted),
            write_backs: mean(seen.write_backs),
            bypassed: mean(seen.bypass_reads),
            outputs: self.batches.iter().map(|batch| batch.offsets().len() as f64 - 1.0).sum::<f64>() / batches,
            heavy_accesses: self.batches.iter().map(heavy).fold(0.0, |a, b| a + b) / batches,
            sets: of(|layout| f64::from(layout.sets)),
            row: of(|layout| 4.0 * f64::from(layout.dim)),
            state: of(|layout| 4.0 * f64::from(layout.state)),
            record: of(|layout| layout.stride() as f64),
            passes: layout.as_ref().map_or([0.0; 2], |layout| passes(layout, mean(seen.accesses) as u32)),
        }
    }
}

/// 8-bit passes of forward's sort of the misses and of backward's sort of `accesses`: by rows or by places, whichever takes fewer.
fn passes(layout: &Layout, accesses: u32) -> [f64; 2] {
    let backward = layout.row_bits().min(layout.place_bits(accesses));
    // A batch of at most 1,024 is sorted in shared memory: read once, written once, as one pass.
    let passes = |bits: u32| f64::from(if accesses <= 1024 { 1 } else { bits.div_ceil(8) });
    [layout.miss_key_bits(), backward].map(passes)
}

fn total(group: &mut Group) -> anyhow::Result<Counters> {
    Ok(group.counters()?.into_iter().sum())
}
