//! The subgroup-32 bodies on any device. They are the shaders' own text, with the subgroup built-ins replaced by functions through shared
//! memory, and run whole sorts and dedups. (These functions have more barriers, so they cannot show a missing barrier between subgroups.
//! `tests/rank.rs` lets subgroups run in any order.)

use hotrow::internals::context_with_texts;
use hotrow::{
    Context, RankBody,
    internals::shader::{self, Bodies, Kernel},
};
use rand::RngExt as _;

use crate::{
    dedup::{check, rng},
    stages::scatter,
};
use hotrow_harness::device::with_gpu;

/// Replacements of the built-ins. Every call is in uniform control flow, so barriers are allowed.
const STANDINS: &str = "
var<private> emulated_lane: u32;
var<workgroup> emulated_votes: array<atomic<u32>, 8>;
var<workgroup> emulated_words: array<u32, 256>;

fn emulated_ballot(vote: bool) -> vec4<u32> {
    let row = emulated_lane / 32u;
    workgroupBarrier();
    atomicStore(&emulated_votes[row], 0u);
    workgroupBarrier();
    if (vote) { atomicOr(&emulated_votes[row], 1u << (emulated_lane & 31u)); }
    workgroupBarrier();
    return vec4<u32>(atomicLoad(&emulated_votes[row]), 0u, 0u, 0u);
}

fn emulated_shuffle(value: u32, lane: u32) -> u32 {
    workgroupBarrier();
    emulated_words[emulated_lane] = value;
    workgroupBarrier();
    return emulated_words[(emulated_lane & 0xe0u) + lane];
}

fn emulated_exclusive_add(value: u32) -> u32 {
    workgroupBarrier();
    emulated_words[emulated_lane] = value;
    workgroupBarrier();
    var sum = 0u;
    for (var i = emulated_lane & 0xe0u; i < emulated_lane; i++) { sum += emulated_words[i]; }
    return sum;
}
";

/// The text of the subgroup-32 variant, with the built-ins replaced.
fn emulated(kernel: &Kernel, bodies: Bodies) -> String {
    let text_of = |rank| shader::compose(kernel, Bodies { rank, ..bodies });
    let text = text_of(RankBody::Subgroup32);
    if text == text_of(RankBody::Portable) || !text.contains("fn lane_index(") {
        return text_of(RankBody::Portable);
    }
    let replaced = [
        ("    @builtin(subgroup_id) subgroup: u32,\n", "    @builtin(local_invocation_index) index: u32,\n"),
        ("    @builtin(subgroup_invocation_id) invocation: u32,\n", ""),
        ("let me = lane_index(lane);", "emulated_lane = lane.index;\n    let me = lane_index(lane);"),
        ("lane.subgroup", "(lane.index / 32u)"),
        ("lane.invocation", "(lane.index & 31u)"),
        ("subgroupBallot(", "emulated_ballot("),
        ("subgroupShuffle(", "emulated_shuffle("),
        ("subgroupExclusiveAdd(", "emulated_exclusive_add("),
    ];
    let text = replaced.iter().fold(text, |text, (from, to)| text.replace(from, to));
    let code = text.lines().map(|line| line.split("//").next().unwrap()).collect::<Vec<_>>().join("\n");
    assert!(code.contains("emulated_lane = lane.index"), "{}: no place to learn the lane", kernel.name);
    // Declarations and built-ins both begin with "subgroup". None may be left.
    let left: Vec<_> = code.match_indices("subgroup").map(|(at, _)| &code[at..code.len().min(at + 24)]).collect();
    assert!(left.iter().all(|name| name.starts_with("subgroup_sums")), "{}: {left:?}", kernel.name);
    text + STANDINS
}

fn emulating(context: &Context, spoil: impl Fn(String) -> String + Send + Sync + 'static) -> Context {
    context_with_texts(context.device(), context.queue(), 3, move |kernel, bodies| spoil(emulated(kernel, bodies)))
        .unwrap()
}

#[test]
fn sorts_and_dedups() {
    with_gpu(|context| {
        let context = emulating(context, |text| text);
        scatter::all(&context);
        for n in [0, 1, 31, 33, 1000, 1025, 3072, 3073, 13 * 3072 + 5] {
            let mut source = rng(n as u64);
            for reach in [1, 3, 300, u32::MAX] {
                let keys: Vec<u32> = (0..n).map(|_| source.random_range(0..reach)).collect();
                check(&context, "emulated", &keys, n, 32);
            }
        }
    });
}

#[test]
fn wrong_bodies_are_noticed() {
    with_gpu(|context| {
        let mut source = rng(1);
        let keys: Vec<u32> = (0..5000).map(|_| source.random_range(0..600)).collect();
        let wanted = crate::dedup::expected(&keys, keys.len());
        let right = emulating(context, |text| text);
        assert!(right.run_dedup(&keys, 5000, 16, true).unwrap() == wanted);
        for (from, to) in [
            // One ballot too few; a rank that counts its own lane; peers without the leader's sum; the keys of earlier subgroups ignored.
            ("peers &= agreeing((digit & 64u) != 0u);", ""),
            ("(1u << (lane.index & 31u)) - 1u", "(2u << (lane.index & 31u)) - 1u"),
            ("earlier = emulated_shuffle(earlier, leader);", ""),
            ("atomicStore(&block_words[at], sum);", "atomicStore(&block_words[at], 0u);"),
        ] {
            let wrong = emulating(context, move |text| {
                if text.contains("fn rank_base(") {
                    assert!(text.contains(from), "{from}");
                }
                text.replace(from, to)
            });
            assert!(wrong.run_dedup(&keys, 5000, 16, true).unwrap() != wanted, "{from}");
        }
    });
}
