//! Steps over real traces: GPU against CPU, and staged tables against tables on the device.

use hotrow::internals::Pieces as _;
use hotrow::{Context, CpuGroup, Group, GroupConfig, Init, Optimizer, Placement, Policy, Pooling, Precision};
use hotrow_cli::trace;
use hotrow_harness::{
    data,
    device::with_gpu,
    lockstep::{Batch, Codes, Pair},
    prefetch::{Plan, When, play},
};

/// The rows of a real trace, and its first batches. Without the data, prints that the test did not run.
fn trace_batches(name: &str, bags_a_step: usize, steps: usize) -> Option<(u32, Vec<Batch>)> {
    let folder = data::folder(name)?;
    let trace = trace::load(name, &trace::Source { data: Some(&folder), seed: 0 }).unwrap();
    let offsets = trace.offsets.clone().unwrap_or_else(|| (0..=trace.ids.len() as u32).step_by(20).collect());
    let batch = |step: usize| {
        let bags = &offsets[step * bags_a_step..=(step + 1) * bags_a_step];
        let indices = trace.ids[bags[0] as usize..bags[bags_a_step] as usize].to_vec();
        Batch { indices, offsets: bags.iter().map(|&at| at - bags[0]).collect(), weights: None }
    };
    Some((trace.distinct, (0..steps).map(batch).collect()))
}

fn trace_steps(context: &Context, name: &str, config: &GroupConfig, bags_a_step: usize, steps: usize) {
    let Some((rows, batches)) = trace_batches(name, bags_a_step, steps) else { return };
    let config = config.clone().with_tables(vec![rows]).with_cache_rows(rows / 20);
    let mut gpu = Group::new(context, config.clone()).unwrap();
    let mut cpu = CpuGroup::new(config).unwrap();
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    for (step, batch) in batches.iter().enumerate() {
        if let Err(difference) = pair.step(batch, |i| (i % 13) as f32 / 6.0 - 1.0) {
            panic!("{name}, step {step}: {difference}");
        }
    }
    let Codes { written, different, .. } = pair.codes;
    assert!(different * 10_000 <= written, "{name}: {different} of {written} codes differ");
}

#[test]
fn real_traces() {
    with_gpu(|context| {
        let mut config = GroupConfig::new(&[1], 20);
        config.init = Init::Uniform { low: -0.1, high: 0.1 };
        config.precision = Precision::Int4;
        config.optimizer = Optimizer::adagrad(0.05);
        trace_steps(context, "online_retail_stock", &config, 64, 20);
        config.policy = Policy::Lfu;
        config.pooling = Pooling::Mean;
        config.precision = Precision::Fp16;
        config.set_shard_bytes(Some(1 << 20));
        trace_steps(context, "ebooks_words", &config, 32, 12);
        config.precision = Precision::Int8;
        config.optimizer = Optimizer::row_wise_adagrad(0.05);
        trace_steps(context, "wikitext2_words", &config, 100, 12);
    });
}

/// Staged tables against tables on the device, over real traces.
#[test]
fn staged_real_traces() {
    with_gpu(|context| {
        for (name, bags, policy) in [
            ("online_retail_stock", 64, Policy::Lru),
            ("ebooks_words", 32, Policy::Lfu),
            ("wikitext2_words", 100, Policy::Lfu),
        ] {
            let Some((rows, batches)) = trace_batches(name, bags, 10) else { continue };
            let mut config = GroupConfig::new(&[rows], 20);
            (config.policy, config.cache_rows) = (policy, rows / 20);
            config.init = Init::Uniform { low: -0.1, high: 0.1 };
            let plan = |batch| Plan {
                batch,
                backward: true,
                when: When::BeforeBackward,
                flush: false,
                pin: None,
                between: 9,
                ahead: Vec::new(),
            };
            let plans: Vec<Plan> = batches.into_iter().map(plan).collect();
            let wanted = play(&mut Group::new(context, config.clone()).unwrap(), &plans, false);
            config.placement = Placement::Staged;
            let mut group = Group::new(context, config).unwrap();
            assert_eq!(play(&mut group, &plans, true), wanted, "{name}");
            assert!(group.traffic().unwrap().forwarded > 0, "{name}");
        }
    });
}
