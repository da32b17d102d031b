//! Steps over real traces: GPU against CPU.

use crate::common::trace;
use hotrow::internals::Pieces as _;
use hotrow::{Context, CpuGroup, Group, GroupConfig, Init, Optimizer, Policy, Pooling, Precision};
use hotrow_harness::{
    device::with_gpu,
    lockstep::{Batch, Codes, Pair},
};

/// The first steps of a real trace. Without the data, prints that the test did not run.
fn trace_steps(context: &Context, name: &str, config: &GroupConfig, bags_a_step: usize, steps: usize) {
    let Some(trace) = trace(name) else { return };
    let offsets = trace.offsets.clone().unwrap_or_else(|| (0..=trace.ids.len() as u32).step_by(20).collect());
    let config = config.clone().with_tables(vec![trace.distinct]).with_cache_rows(trace.distinct / 20);
    let mut gpu = Group::new(context, config.clone()).unwrap();
    let mut cpu = CpuGroup::new(config).unwrap();
    let mut pair = Pair { gpu: &mut gpu, cpu: &mut cpu, size: 64.0, codes: Codes::default() };
    for step in 0..steps {
        let bags = &offsets[step * bags_a_step..=(step + 1) * bags_a_step];
        let indices = trace.ids[bags[0] as usize..bags[bags_a_step] as usize].to_vec();
        let batch = Batch { indices, offsets: bags.iter().map(|&at| at - bags[0]).collect(), weights: None };
        if let Err(difference) = pair.step(&batch, |i| (i % 13) as f32 / 6.0 - 1.0) {
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
        config.set_piece_bytes(Some(1 << 20));
        trace_steps(context, "ebooks_words", &config, 32, 12);
        config.precision = Precision::Int8;
        config.optimizer = Optimizer::row_wise_adagrad(0.05);
        trace_steps(context, "wikitext2_words", &config, 100, 12);
    });
}
