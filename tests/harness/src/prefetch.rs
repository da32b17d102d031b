//! Runs of steps that prefetch their next batch or do not.

use hotrow::{
    Bags, Embedding, Error, GroupConfig, Mode, Placement, checkpoint,
    state::{Part, Snapshot},
};
use rand::RngExt as _;
use rand_pcg::Pcg64;

use crate::lockstep::{Batch, random_batch, random_config, random_pins, random_shares};

/// When the next batch is prefetched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    Never,
    BeforeBackward,
    AfterBackward,
}

/// The batch of a step, and the calls after its forward.
#[derive(Debug)]
pub struct Plan {
    pub batch: Batch,
    pub backward: bool,
    pub when: When,
    pub flush: bool,
    /// Rows to pin after the flush, and the most rows in a set.
    pub pin: Option<(Vec<u32>, u32)>,
    /// The number of a call between the forward and its backward.
    pub between: u32,
    /// The numbers of calls while the next batch is prefetched. Each must be refused, and change nothing: [`refused`].
    pub ahead: Vec<u32>,
}

/// The calls that a group refuses between a prefetch and its forward.
pub const REFUSED: u32 = 17;

/// Makes the call of this number, which must be out of order: a batch is prefetched. `now` is a state of the group.
pub fn refused(group: &mut dyn Embedding, call: u32, batch: &Batch, now: &Snapshot) -> Result<(), String> {
    let Batch { indices, offsets, weights } = batch;
    let (weights, dim) = (weights.as_deref(), group.config().dim as usize);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("checkpoint");
    let found = match call {
        0 => group.prefetch(Bags::new(indices, offsets).with_weights(weights)),
        1 => group.forward(Bags::new(indices, offsets).with_weights(weights), Mode::Train).map(drop),
        2 => group.forward(Bags::new(indices, offsets).with_weights(weights), Mode::Frozen).map(drop),
        3 => group.flush(),
        4 => group.reset(),
        5 => group.reset_discarding(),
        6 => group.read_rows(&[0]).map(drop),
        7 => group.write_rows(&[0], &vec![0.5; dim]),
        8 => group.pin(&[0], 1).map(drop),
        9 => group.pinned().map(drop),
        10 => group.resize_cache(1).map(drop),
        11 => group.counters().map(drop),
        12 => group.snapshot().map(drop),
        13 => group.restore(now),
        14 => group.read_part(Part::Records, 0, &mut [0]),
        15 => group.write_part(Part::Records, 0, &[7]),
        16 => checkpoint::save(group, &file),
        _ => unreachable!("a call below REFUSED"),
    };
    if std::fs::read_dir(folder.path()).unwrap().next().is_some() {
        return Err(format!("call {call}: wanted no file, found one"));
    }
    match found {
        Err(Error::Order { .. }) => Ok(()),
        found => Err(format!("call {call} while a batch is prefetched: wanted an order error, found {found:?}")),
    }
}

pub fn random_plans(config: &GroupConfig, source: &mut Pcg64, steps: usize) -> Vec<Plan> {
    let whens = [When::Never, When::BeforeBackward, When::BeforeBackward, When::AfterBackward];
    (0..steps)
        .map(|_| {
            let batch = random_batch(config, source);
            let pin = source.random_bool(0.2).then(|| random_pins(config, source));
            Plan {
                batch,
                backward: source.random_bool(0.8),
                when: whens[source.random_range(0..4)],
                flush: pin.is_some() || source.random_bool(0.1),
                pin,
                between: source.random_range(0..12),
                ahead: (0..source.random_range(0..3)).map(|_| source.random_range(0..REFUSED)).collect(),
            }
        })
        .collect()
}

type Outcome = Result<Vec<f32>, Error>;

/// Runs all steps. Returns their outputs or errors, and the state at the end. Without `overlap` no batch is prefetched.
pub fn play(group: &mut dyn Embedding, plans: &[Plan], overlap: bool) -> (Vec<Outcome>, Snapshot) {
    let mut outcomes = Vec::new();
    let mut ahead = false;
    for (i, plan) in plans.iter().enumerate() {
        let Batch { indices, offsets, weights } = &plan.batch;
        let outputs = if std::mem::take(&mut ahead) {
            group.forward_prefetched()
        } else {
            group.forward(Bags::new(indices, offsets).with_weights(weights.as_deref()), Mode::Train)
        };
        if let Err(error) = &outputs {
            assert!(matches!(error, Error::IndexOutOfRange { .. }), "step {i}: {error}");
        }
        let total = group.config().total_rows() as u32;
        match plan.between {
            0 => {
                outcomes
                    .push(group.forward(Bags::new(indices, offsets).with_weights(weights.as_deref()), Mode::Frozen));
            }
            1 => outcomes.push(group.read_rows(&(0..total).step_by(3).collect::<Vec<_>>())),
            2 => group.flush().unwrap(),
            3 => {
                let now = group.snapshot().unwrap();
                group.restore(&now).unwrap();
            }
            4 => group.set_learning_rate(0.05 + 0.01 * i as f32).unwrap(),
            _ => {}
        }
        let mut prefetch = |group: &mut dyn Embedding, when| {
            let Some(next) = plans.get(i + 1) else { return };
            if overlap && plan.when == when && !plan.flush {
                let Batch { indices, offsets, weights } = &next.batch;
                let now = (!plan.ahead.is_empty()).then(|| group.snapshot().unwrap());
                group.prefetch(Bags::new(indices, offsets).with_weights(weights.as_deref())).unwrap();
                ahead = true;
                for &call in &plan.ahead {
                    let now = now.as_ref().expect("taken for these calls");
                    refused(group, call, &next.batch, now).unwrap_or_else(|found| panic!("step {i}: {found}"));
                }
            }
        };
        prefetch(group, When::BeforeBackward);
        if let (Ok(outputs), true) = (&outputs, plan.backward) {
            let grads: Vec<f32> = outputs.iter().map(|x| x * 0.1 + 0.01).collect();
            if plan.between % 4 == 1 {
                outcomes.push(group.weight_gradient(Bags::new(indices, offsets), &grads));
            }
            group.backward(&grads).unwrap();
        } else {
            group.discard_pending();
        }
        prefetch(group, When::AfterBackward);
        if plan.flush && !ahead {
            group.flush().unwrap();
            if let Some((rows, ways)) = &plan.pin {
                outcomes.push(match group.pin(rows, *ways) {
                    Ok(left_out) => Ok(left_out.iter().map(|&row| row as f32).collect()),
                    Err(error) => {
                        assert!(matches!(error, Error::Order { .. } | Error::Pins { .. }), "step {i}: {error}");
                        Err(error)
                    }
                });
            }
        }
        outcomes.push(outputs);
    }
    (outcomes, group.snapshot().unwrap())
}

/// A configuration with a small cache that evicts often.
pub fn busy_config(source: &mut Pcg64) -> GroupConfig {
    let mut config = random_config(source);
    config.dim = config.dim.min(65);
    config.placement = Placement::Device;
    if source.random_bool(0.5) {
        config.cache_rows = config.cache_rows.min(64);
    }
    config.cache_shares = random_shares(&config);
    config
}
