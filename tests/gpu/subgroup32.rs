//! The bodies for subgroups of 32 and of 64 lanes, on the lane executor: whole sorts and dedups, while subgroups run in any order between two
//! barriers, and wrong bodies, which are noticed. Needs no GPU.

use std::sync::Arc;

use hotrow::{
    Context,
    internals::{
        RankBody, context_with_texts,
        shader::{self, Bodies},
    },
};
use hotrow_harness::lanes;
use rand::RngExt as _;
use wgsl_lanes::{Config, Findings, Options, Order, World, open};

use crate::dedup::{check, expected, rng};

/// A context with a subgroup body, changed by `spoil`, on a device whose subgroups have so many lanes and run in an order.
fn context(
    (rank, subgroup): (RankBody, u32),
    order: Order,
    seed: u64,
    spoil: impl Fn(String) -> String + Send + Sync + 'static,
) -> (Context, Arc<World>) {
    let options = Options { subgroup, order, seed, ..Options::default() };
    let (device, queue, world) = open(&Config { options, findings: Findings::Keep, ..lanes::config() });
    let text = move |kernel: &shader::Kernel, bodies: Bodies| spoil(shader::compose(kernel, Bodies { rank, ..bodies }));
    (context_with_texts(&device, &queue, 3, text).unwrap(), world)
}

#[test]
fn sorts_and_dedups() {
    const OF_32: (RankBody, u32) = (RankBody::Subgroup32, 32);
    const OF_64: (RankBody, u32) = (RankBody::Subgroup64, 64);
    for (body, order, seed) in [
        (OF_32, Order::Ascending, 1),
        (OF_32, Order::Descending, 1),
        (OF_32, Order::Random, 1),
        (OF_64, Order::Ascending, 1),
        (OF_64, Order::Random, 2),
        // A device that says 32 to 64 may run with 32.
        ((RankBody::Subgroup64, 32), Order::Random, 3),
    ] {
        let (context, world) = context(body, order, seed, |text| text);
        for n in [0, 1, 31, 33, 1000, 1025, 3072, 3073, 13 * 3072 + 5] {
            let mut source = rng(n as u64 + seed);
            for reach in [1, 3, 300, u32::MAX] {
                let keys: Vec<u32> = (0..n).map(|_| source.random_range(0..reach)).collect();
                check(&context, "subgroups", &keys, n, 32);
            }
        }
        assert_eq!(world.take_report().findings, [], "{body:?}, {order:?}");
    }
}

#[test]
fn wrong_bodies_are_noticed() {
    let mut source = rng(1);
    let keys: Vec<u32> = (0..5000).map(|_| source.random_range(0..600)).collect();
    let wanted = expected(&keys, keys.len());
    let (right, world) = context((RankBody::Subgroup32, 32), Order::Random, 1, |text| text);
    assert!(right.run_dedup(&keys, 5000, 16, true).unwrap() == wanted);
    assert_eq!(world.take_report().findings, []);
    for (from, to) in [
        // One ballot too few; a rank that counts its own lane; peers without the leader's sum; the keys of earlier subgroups ignored.
        ("others |= differing(digit, 6u);", ""),
        ("(1u << lane.invocation) - 1u", "(2u << lane.invocation) - 1u"),
        ("earlier = subgroupShuffle(earlier, leader);", ""),
        ("atomicStore(&block_words[at], sum);", "atomicStore(&block_words[at], 0u);"),
    ] {
        let (wrong, world) = context((RankBody::Subgroup32, 32), Order::Random, 1, move |text| {
            if text.contains("fn rank_base(") {
                assert!(text.contains(from), "{from}");
            }
            text.replace(from, to)
        });
        assert!(wrong.run_dedup(&keys, 5000, 16, true).unwrap() != wanted, "{from}");
        // Keys that lie where others lie are a race, too.
        assert!(!world.take_report().findings.is_empty(), "{from}");
    }
}
