//! Each detector on a small shader with a fault and on its sound neighbour.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::{Arc, LazyLock};

use wgsl_lanes::{
    Bound, Config, Counts, Fault, Files, Findings, Kind, Known, Mutant, Options, Order, Ordered, Outcome, Project,
    Redundant, Source, dispatch, hunt, open,
};

/// Runs `groups` workgroups of a shader whose storage buffers are `buffers`, one behind another.
fn run(text: &str, buffers: &mut [Vec<u32>], groups: u32, options: &Options) -> Outcome {
    let source = Source::new("test", None, text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let bindings: Vec<Bound> = (0..)
        .zip(buffers.iter())
        .map(|(binding, words)| Bound { binding, buffer: binding as usize, first: 0, words: words.len() })
        .collect();
    on(&source, buffers, &bindings, groups, options)
}

/// Runs a shader on buffers with these bindings.
fn on(source: &Source, buffers: &mut [Vec<u32>], bindings: &[Bound], groups: u32, options: &Options) -> Outcome {
    let mut shared: Vec<Arc<Vec<u32>>> = buffers.iter().map(|words| Arc::new(words.clone())).collect();
    let outcome = dispatch(&source.program(), &mut shared, bindings, [groups, 1, 1], options);
    for (words, shared) in buffers.iter_mut().zip(shared) {
        *words = shared.to_vec();
    }
    outcome
}

/// The faults of a shader in every order and for every size of subgroups, on `words` zeros.
fn faults(text: &str, words: usize, groups: u32) -> Vec<Fault> {
    let mut all = Vec::new();
    for subgroup in [4, 8, 16, 32, 64] {
        for order in [Order::Ascending, Order::Descending, Order::Random] {
            let options = Options { subgroup, order, budget: 100_000, ..Options::default() };
            all.extend(run(text, &mut [vec![0; words]], groups, &options).found.into_iter().map(|raw| raw.fault));
        }
    }
    all.sort();
    all.dedup();
    all
}

/// A shader with a buffer `out`, 64 invocations and this body, behind these declarations.
fn shader(declarations: &str, body: &str) -> String {
    format!(
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
{declarations}
@compute @workgroup_size(64)
fn main(
    @builtin(local_invocation_index) me: u32,
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
) {{
{body}
}}
"
    )
}

#[test]
fn control_flow_and_arithmetic() {
    let text = shader(
        "
struct Pair { a: u32, b: vec2<f32> }
var<private> turns: u32;
fn first_even(start: u32) -> u32 {
    var i = start;
    loop {
        turns++;
        if (i % 2u == 0u) { return i; }
        continuing { i++; }
    }
    return 7u;
}
fn pair(x: u32) -> Pair {
    var p = Pair(x, vec2<f32>(f32(x), 0.5));
    p.b.y *= 3.0;
    return p;
}
",
        "
    var sum = 0u;
    for (var i = 0u; i < me; i++) {
        if (i == 3u) { continue; }
        if (i == 10u) { break; }
        sum += i;
    }
    var kept = array<u32, 4>(9u, 8u, 7u, 6u);
    kept[me % 4u] += 1u;
    let v = vec4<u32>(1u, 2u, 3u, 4u);
    var chosen: u32;
    switch me % 5u {
        case 0u, 3u: { chosen = 100u; }
        case 1u: { chosen = 200u; if (me == 1u) { break; } chosen++; }
        default: { chosen = 300u; }
    }
    let p = pair(me);
    let even = first_even(me);
    out[me] = sum;
    out[64u + me] = kept[0] * 1000u + kept[3] + v[me % 4u];
    out[128u + me] = chosen;
    out[192u + me] = even * 100u + turns;
    out[256u + me] = u32(p.b.x * p.b.y) + select(0u, 1u, p.a > 2u && p.a < 5u);
    out[320u + me] = firstLeadingBit(me) + countOneBits(me) * 100u + u32(round(f32(me) / 2.0)) * 10000u;
",
    );
    for subgroup in [4, 8, 16, 32, 64] {
        let mut buffers = [vec![0; 384]];
        let outcome = run(&text, &mut buffers, 1, &Options { subgroup, ..Options::default() });
        assert_eq!(outcome.found, []);
        for me in 0..64u32 {
            let found = |part: usize| buffers[0][part * 64 + me as usize];
            assert_eq!(found(0), (0..me.min(10)).filter(|&i| i != 3).sum::<u32>());
            let kept = |i: u32| 9 - i + u32::from(me % 4 == i);
            assert_eq!(found(1), kept(0) * 1000 + kept(3) + me % 4 + 1);
            let chosen = match me % 5 {
                0 | 3 => 100,
                1 => 200 + u32::from(me != 1),
                _ => 300,
            };
            assert_eq!(found(2), chosen);
            assert_eq!(found(3), (me + me % 2) * 100 + 1 + me % 2);
            assert_eq!(found(4), (me as f32 * 1.5) as u32 + u32::from(me == 3 || me == 4));
            let leading = if me == 0 { u32::MAX } else { me.ilog2() };
            let wanted = leading
                .wrapping_add(me.count_ones() * 100)
                .wrapping_add((me as f32 / 2.0).round_ties_even() as u32 * 10000);
            assert_eq!(found(5), wanted);
        }
    }
}

#[test]
fn operations_of_subgroups() {
    let text = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) me: u32, @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_size) size: u32, @builtin(subgroup_id) subgroup: u32) {
    out[me] = subgroupExclusiveAdd(me);
    out[64u + me] = subgroupBallot((me & 1u) == 1u).x;
    out[128u + me] = subgroupShuffle(me, size - 1u - lane);
    out[192u + me] = subgroupMax(me) + subgroup * 1000u;
}
";
    for subgroup in [4u32, 8, 16, 32, 64] {
        let mut buffers = [vec![0; 256]];
        let outcome = run(text, &mut buffers, 1, &Options { subgroup, ..Options::default() });
        assert_eq!(outcome.found, []);
        for me in 0..64 {
            let first = me / subgroup * subgroup;
            let found = |part: usize| buffers[0][part * 64 + me as usize];
            assert_eq!(found(0), (first..me).sum::<u32>());
            assert_eq!(found(1), if subgroup < 32 { 0xaaaa_aaaa & ((1 << subgroup) - 1) } else { 0xaaaa_aaaa });
            assert_eq!(found(2), first + subgroup - 1 - (me - first));
            assert_eq!(found(3), first + subgroup - 1 + me / subgroup * 1000);
        }
    }
}

#[test]
fn races_inside_a_workgroup() {
    let shared = "var<workgroup> shared_words: array<u32, 64>;";
    let exchange =
        |barrier: &str| shader(shared, &format!("shared_words[me] = me; {barrier} out[me] = shared_words[63u - me];"));
    assert_eq!(faults(&exchange("workgroupBarrier();"), 64, 1), []);
    // Where the other half has not run, the word is unwritten, too.
    assert!(faults(&exchange(""), 64, 1).contains(&Fault::Race));
    assert_eq!(faults(&shader("", "out[me] = me;"), 64, 1), []);
    assert_eq!(faults(&shader("", "out[me / 2u] = me;"), 64, 1), [Fault::Race], "two writes");
    assert_eq!(faults(&shader("", "out[0] = 1u;"), 64, 1), [Fault::Race], "two writes of one value");
    assert_eq!(faults(&shader("", "out[me] = me; out[me] += 1u;"), 64, 1), [], "one invocation is in order");
}

#[test]
fn a_plain_write_races_with_an_atomic_access() {
    let count = "var<workgroup> count: atomic<u32>;";
    let text = |after: &str| {
        shader(
            count,
            &format!(
                "if (me == 0u) {{ atomicStore(&count, 0u); }} {after} atomicAdd(&count, 1u); workgroupBarrier(); out[me] = atomicLoad(&count);"
            ),
        )
    };
    assert_eq!(faults(&text("workgroupBarrier();"), 64, 1), []);
    let cleared = "struct Words { word: atomic<u32>, }";
    let text = format!(
        "{cleared}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read_write> words: Words;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) me: u32) {{
    atomicAdd(&words.word, 1u);
    if (me == 3u) {{ out[0] = 1u; }}
}}"
    );
    let source = Source::new("test", None, &text, &[]).unwrap();
    // Both bindings are one buffer; then each has its own.
    for (buffer, races) in [(0, true), (1, false)] {
        let bindings =
            [Bound { binding: 0, buffer: 0, first: 0, words: 4 }, Bound { binding: 1, buffer, first: 0, words: 4 }];
        let mut buffers = [vec![0; 4], vec![0; 4]];
        let outcome = on(&source, &mut buffers, &bindings, 1, &Options::default());
        assert_eq!(!outcome.found.is_empty(), races);
        assert!(outcome.found.iter().all(|raw| raw.fault == Fault::Race));
    }
}

#[test]
fn races_between_workgroups() {
    assert_eq!(faults(&shader("", "out[group.x * 64u + me] = me;"), 192, 3), []);
    assert_eq!(faults(&shader("", "out[group.x * 32u + me] = me;"), 192, 3), [Fault::Race]);
    // The neighbour's word is read; no barrier orders two workgroups.
    let read = "out[group.x * 64u + me] = 1u; storageBarrier(); workgroupBarrier();
        if (me == 0u) { out[groups.x * 64u + group.x] = out[((group.x + 1u) % groups.x) * 64u]; }";
    assert_eq!(faults(&shader("", read), 256, 3), [Fault::Race]);
    assert_eq!(faults(&shader("", &read.replace("group.x + 1u", "group.x")), 256, 3), []);
}

#[test]
fn each_barrier_orders_its_own_memory() {
    let text = |barrier: &str| shader("", &format!("out[me] = me; {barrier} out[64u + me] = out[63u - me];"));
    assert_eq!(faults(&text("storageBarrier();"), 128, 1), []);
    assert_eq!(faults(&text("workgroupBarrier();"), 128, 1), [Fault::Race]);
    let shared = "var<workgroup> words: array<u32, 64>;";
    let text = |barrier: &str| shader(shared, &format!("words[me] = me; {barrier} out[me] = words[63u - me];"));
    assert!(faults(&text("storageBarrier();"), 128, 1).contains(&Fault::Race));
    // A read before a write, too.
    let text = |barrier: &str| shader("", &format!("let x = out[63u - me]; {barrier} out[me] = x;"));
    assert_eq!(faults(&text("storageBarrier();"), 128, 1), []);
    assert_eq!(faults(&text("workgroupBarrier();"), 128, 1), [Fault::Race]);
}

#[test]
fn a_uniform_load_is_a_barrier_on_both_sides() {
    let shared = "var<workgroup> word: u32;";
    let text = |load: &str| {
        shader(
            shared,
            &format!(
                "for (var turn = 0u; turn < 3u; turn++) {{
                    if (me == turn) {{ word = turn + 1u; }}
                    let x = {load};
                    out[turn * 64u + me] = x;
                }}"
            ),
        )
    };
    assert_eq!(faults(&text("workgroupUniformLoad(&word)"), 192, 1), []);
    assert!(faults(&text("word"), 192, 1).contains(&Fault::Race));
}

#[test]
fn barriers_in_non_uniform_flow() {
    // naga's validator refuses the plain cases, so the condition comes from memory.
    for (condition, wanted) in [("out[0] == 0u", vec![]), ("out[me] == me", vec![Fault::NonUniform])] {
        let text = shader("", &format!("if ({condition}) {{ workgroupBarrier(); }} out[64u + me] = 1u;"));
        if let Ok(source) = Source::new("test", None, &text, &[]) {
            let bindings = [Bound { binding: 0, buffer: 0, first: 0, words: 128 }];
            for subgroup in [4, 64] {
                let options = Options { subgroup, ..Options::default() };
                let outcome = on(&source, &mut [vec![0; 128]], &bindings, 1, &options);
                assert_eq!(outcome.found.iter().map(|raw| raw.fault).collect::<Vec<_>>(), wanted);
            }
        }
    }
    // Whole subgroups part: one ends while the others wait, or they wait at different barriers.
    for body in [
        "if (me >= 32u + out[0]) { return; } workgroupBarrier();",
        "if (me >= 32u + out[0]) { workgroupBarrier(); } else { storageBarrier(); }",
    ] {
        let text = shader("", body);
        if let Ok(source) = Source::new("test", None, &text, &[]) {
            let bindings = [Bound { binding: 0, buffer: 0, first: 0, words: 128 }];
            let outcome = on(&source, &mut [vec![0; 128]], &bindings, 1, &Options::default());
            assert_eq!(outcome.found.len(), 1, "{body}");
            assert_eq!(outcome.found[0].fault, Fault::NonUniform, "{body}");
        } else {
            panic!("{body}");
        }
    }
}

#[test]
fn unwritten_memory_of_a_workgroup() {
    let shared = "var<workgroup> words: array<u32, 64>; var<workgroup> count: atomic<u32>;";
    let text = |body: &str| shader(shared, body);
    assert_eq!(faults(&text("words[me] = 1u; out[me] = words[me];"), 64, 1), []);
    assert_eq!(faults(&text("if (me != 5u) { words[me] = 1u; } out[me] = words[me];"), 64, 1), [Fault::Poison]);
    assert_eq!(faults(&text("atomicAdd(&count, 1u);"), 64, 1), [Fault::Poison]);
    // A later workgroup finds what an earlier one has left, which is as bad.
    let text = text("if (group.x == 0u) { words[me] = 1u; } out[group.x * 64u + me] = words[me];");
    assert_eq!(faults(&text, 128, 2), [Fault::Poison]);
}

#[test]
fn words_out_of_bounds() {
    let text = |body: &str| shader("", body);
    assert_eq!(faults(&text("out[me] = 1u;"), 64, 1), []);
    assert_eq!(faults(&text("out[me] = 1u;"), 63, 1), [Fault::OutOfBounds]);
    assert_eq!(faults(&text("out[me] = out[min(me, 63u)];"), 64, 1), []);
    assert_eq!(faults(&text("var x: array<u32, 4>; x[me] = 1u; out[me] = x[0];"), 64, 1), [Fault::OutOfBounds]);
    assert_eq!(faults(&text("let v = vec4<u32>(me); out[me] = v[me];"), 64, 1), [Fault::OutOfBounds]);
    // Only the bound range counts, not the buffer.
    let source = Source::new("test", None, &text("out[me] = 1u;"), &[]).unwrap();
    let bindings = [Bound { binding: 0, buffer: 0, first: 8, words: 63 }];
    let mut buffers = [vec![0; 100]];
    let outcome = on(&source, &mut buffers, &bindings, 1, &Options::default());
    assert_eq!(outcome.found.len(), 1);
    assert_eq!((outcome.found[0].fault, outcome.found[0].lane), (Fault::OutOfBounds, 63));
    assert_eq!(buffers[0].iter().sum::<u32>(), 63);
    assert_eq!((buffers[0][7], buffers[0][8], buffers[0][70], buffers[0][71]), (0, 1, 1, 0));
}

#[test]
fn results_by_order() {
    let text = |body: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> next: atomic<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {{ {body} }}"
        )
    };
    let results = |body: &str| {
        let mut all = Vec::new();
        for (order, seed) in [(Order::Ascending, 1), (Order::Descending, 1), (Order::Random, 1), (Order::Random, 2)] {
            let mut buffers = [vec![0; 4], vec![0; 256]];
            let options = Options { order, seed, ..Options::default() };
            assert_eq!(run(&text(body), &mut buffers, 4, &options).found, []);
            all.push(buffers);
        }
        all.dedup();
        all.len()
    };
    assert_eq!(results("out[id.x] = id.x; atomicAdd(&next, id.x);"), 1);
    assert_eq!(results("out[atomicAdd(&next, 1u)] = id.x;"), 4);
    let used = |body: &str| Source::new("test", None, &text(body), &[]).unwrap().program().used_results.len();
    assert_eq!((used("atomicAdd(&next, 1u);"), used("out[id.x] = atomicAdd(&next, 1u);")), (0, 1));
}

#[test]
fn loops_without_an_end() {
    let text =
        |end: &str| shader("", &format!("var i = 0u; loop {{ i++; if (i == {end}) {{ break; }} out[me] = i; }}"));
    assert_eq!(faults(&text("100u"), 64, 1), []);
    assert_eq!(faults(&text("0u"), 64, 1), [Fault::Endless]);
}

#[test]
fn weak_exchanges_fail_without_a_reason() {
    let text = "@group(0) @binding(0) var<storage, read_write> sum: atomic<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) me: u32) {
    var before = atomicLoad(&sum);
    loop {
        out[me] += 1u;
        let exchange = atomicCompareExchangeWeak(&sum, before, before + me);
        if (exchange.exchanged) { break; }
        before = exchange.old_value;
    }
}";
    let tries = |spurious| {
        let mut buffers = [vec![0; 4], vec![0; 64]];
        let options = Options { subgroup: 4, spurious, order: Order::Ascending, ..Options::default() };
        assert_eq!(run(text, &mut buffers, 1, &options).found, []);
        assert_eq!(buffers[0][0], (0..64).sum::<u32>());
        buffers[1].iter().sum::<u32>()
    };
    assert!(tries(3) > tries(0));
}

#[test]
fn sectors_lines_atomics_and_barriers_are_counted() {
    let text = shader(
        "var<workgroup> word: u32;",
        "out[me * 2u] = 1u; workgroupBarrier(); storageBarrier(); out[128u + me % 8u] = out[me];",
    );
    let counts = |subgroup| {
        let mut buffers = [vec![0; 256]];
        let options = Options { subgroup, counting: true, order: Order::Ascending, ..Options::default() };
        run(&text, &mut buffers, 1, &options).counts
    };
    let found = counts(32);
    // 32 lanes touch 64, 8 and 32 words: 8, 1 and 4 sectors, 2, 1 and 1 lines.
    assert_eq!((found.accesses, found.sectors, found.lines, found.barriers), (6, 26, 8, 2));
    let text = "@group(0) @binding(0) var<storage, read_write> sums: array<atomic<u32>>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) me: u32) { atomicAdd(&sums[me / 48u], 1u); }";
    let options = Options { counting: true, ..Options::default() };
    let found = run(text, &mut [vec![0; 4]], 3, &options).counts;
    assert_eq!((found.atomics, found.hottest, found.workgroups), (192, 144, 3));
}

/// Issues, issues of the longest workgroup, most waits of a subgroup and of a turn of its loop, most barriers, and workgroups with work of bodies on zeros
/// and one subgroup. Each has a neighbour with other counts.
#[test]
fn work_and_span_are_those_counted_by_hand() {
    let counts = |body: &str, groups: u32, order: Order| {
        let group = if groups > 1 { ", @builtin(workgroup_id) group: vec3<u32>" } else { "" };
        let text = format!(
            "struct Number {{ n: u32 }}
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<storage, read_write> sums: array<atomic<u32>>;
@group(0) @binding(2) var<uniform> number: Number;
var<workgroup> words: array<u32, 32>;
@compute @workgroup_size(32)
fn main(@builtin(local_invocation_index) me: u32{group}) {{ {body} }}"
        );
        let options = Options { counting: true, order, ..Options::default() };
        let Counts { issues, longest, waits, turn, passed, working, .. } =
            run(&text, &mut [vec![0; 64], vec![0; 64], vec![0]], groups, &options).counts;
        [issues, longest, waits, turn, passed, working]
    };
    // `me` is an issue of each, a store or a load another.
    for (body, wanted) in [
        ("out[me] = me;", [2, 2, 0, 0, 0, 1]),
        ("let a = out[me]; let b = out[me + 1u];", [4, 4, 0, 0, 0, 0]), // no value is used
        ("out[me] = out[me + 32u];", [4, 4, 1, 1, 0, 1]),
        ("out[me] = out[me + 1u] + out[me + 2u];", [7, 7, 1, 1, 0, 1]), // both loads arrive at once
        ("out[me] = out[out[me]] + out[1];", [6, 6, 2, 2, 0, 1]),       // an address waits, and the sum
        ("if (bool(out[me])) { out[me] = 1u; }", [3, 3, 1, 1, 0, 0]),
        ("switch out[me] { case 1u: { out[me] = 1u; } default: {} }", [2, 2, 1, 1, 0, 0]),
        ("out[subgroupMax(me)] = subgroupAdd(out[me]);", [5, 5, 1, 1, 0, 1]),
        ("out[me] = number.n + 1u;", [4, 4, 0, 0, 0, 1]), // a uniform is no load of storage
        // Copies, composing and bitcasts pass the load on, and are no issues.
        ("var x = bitcast<f32>(out[me]); let y = vec2(x, 1.0); x = y.yx.y;", [2, 2, 0, 0, 0, 0]),
        ("var x = bitcast<f32>(out[me]); let y = vec2(x, 1.0); out[me] = bitcast<u32>(y.yx.y);", [3, 3, 1, 1, 0, 1]),
        ("var x: array<u32, 32>; x[me] = out[me]; let y = x[me];", [2, 2, 0, 0, 0, 0]),
        ("var x: array<u32, 32>; x[me] = out[me]; out[me] = x[me];", [3, 3, 1, 1, 0, 1]),
        ("var x = 1u; if (me < 9u) { x = out[me]; } else { x = me; } out[me] = x;", [4, 4, 1, 1, 0, 1]),
        ("var x = out[me]; x = me; out[me] = x;", [3, 3, 0, 0, 0, 1]),
        ("words[me] = out[me]; workgroupBarrier(); out[me] = words[31u - me];", [6, 6, 1, 1, 1, 1]),
        ("words[me] = me; let x = workgroupUniformLoad(&words[3]);", [3, 3, 0, 0, 2, 0]),
        ("atomicAdd(&sums[me], 1u);", [2, 2, 0, 0, 0, 1]),
        ("out[me] = atomicAdd(&sums[me], 1u);", [3, 3, 1, 1, 0, 1]),
        // Each turn: the comparison, two loads, two additions; the comparison that ends it.
        ("var x = 0u; for (var i = 0u; i < 3u; i++) { x += out[out[i]]; }", [17, 17, 6, 2, 0, 0]),
    ] {
        let found = counts(body, 1, Order::Ascending);
        assert_eq!(found, wanted, "{body}");
        assert_eq!(counts(body, 1, Order::Random), found, "{body}");
    }
    // Of three workgroups only the second has work; `group` is three issues, and the comparison another.
    assert_eq!(counts("if (group.x == 1u) { out[me] = out[me + 1u]; }", 3, Order::Ascending), [18, 8, 1, 1, 0, 1]);
    let mut sum = Counts { issues: 9, longest: 9, waits: 1, passed: 2, working: 1, ..Counts::default() };
    sum.add(&Counts { issues: 3, longest: 3, waits: 4, passed: 1, working: 2, turn: 1, ..Counts::default() });
    let wanted = Counts { issues: 12, longest: 9, waits: 4, passed: 2, working: 3, turn: 1, ..Counts::default() };
    assert_eq!(sum, wanted);
}

/// Runs a shader through wgpu's own interface. Returns the words of `out`.
fn through_wgpu(device: &wgpu::Device, queue: &wgpu::Queue, text: &str) -> Vec<u32> {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("test"),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let buffer = |usage| {
        let descriptor = wgpu::BufferDescriptor { label: None, size: 512, usage, mapped_at_creation: false };
        device.create_buffer(&descriptor)
    };
    let out = buffer(wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST);
    let read = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
    queue.write_buffer(&out, 252, &7u32.to_le_bytes());
    let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &out,
                offset: 0,
                size: std::num::NonZero::new(256),
            }),
        }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &bind_group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
    }
    encoder.clear_buffer(&out, 0, Some(4));
    encoder.copy_buffer_to_buffer(&out, 0, &read, 0, 512);
    queue.submit([encoder.finish()]);
    read.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let words = bytemuck::pod_collect_to_vec(&read.get_mapped_range(..).unwrap());
    read.unmap();
    words
}

#[test]
fn a_device_of_wgpu() {
    let config = Config { options: Options { counting: true, ..Options::default() }, ..Config::default() };
    let (device, queue, world) = open(&config);
    let words = through_wgpu(&device, &queue, &shader("", "if (me < 63u) { out[me] = me + 1u; }"));
    let wanted = (0..128).map(|i| match i {
        1..63 => i + 1,
        63 => 7,
        _ => 0,
    });
    assert!(words.iter().copied().eq(wanted), "{words:?}");
    let report = world.take_report();
    assert_eq!(report.findings, []);
    assert_eq!((report.counts["test"].dispatches, report.counts["test"].accesses), (1, 2));
    assert_eq!(report.dispatches, [("test".to_owned(), report.counts["test"].clone())]);
    // A submission with a fault fails, unless the findings are only kept.
    let text = shader("", "out[me / 2u] = me;");
    let failed = panic_of(|| through_wgpu(&device, &queue, &text));
    assert!(failed.contains("test: Race at line 9 with line 9"), "{failed}");
    let (device, queue, world) = open(&Config { findings: Findings::Keep, ..Config::default() });
    through_wgpu(&device, &queue, &text);
    let findings = world.take_report().findings;
    assert_eq!(findings.len(), 1);
    assert_eq!((findings[0].fault, &*findings[0].kernel), (Fault::Race, "test"));
    assert!(findings[0].detail.contains("out[me / 2u]"), "{}", findings[0]);
    assert!(world.take_report().findings.is_empty());
}

/// The message with which `f` panics.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).map(drop).unwrap_err();
    failed.downcast_ref::<String>().unwrap().clone()
}

/// A project that calls the kernel of label `test` by another name, knows one finding, lets `out` vary, and has one file with each line once.
#[derive(Debug)]
struct Small;

impl Project for Small {
    fn kernel<'a>(&self, label: &'a str) -> &'a str {
        label.trim_start_matches("te")
    }

    fn own(&self, _: &str, text: &str) -> bool {
        !text.contains("spoiled")
    }

    fn files(&self) -> &Files {
        static FILES: LazyLock<Files> = LazyLock::new(|| {
            let text = "// A file.\nout[$] = me;\nout[me / 2u] = me;".to_owned();
            Files::new([("race.wgsl".to_owned(), text)], |line| vec![line.replace('$', "0")])
        });
        &FILES
    }

    fn known(&self) -> &[Known] {
        &[Known { fault: Fault::Race, kernel: "st", text: "out[me / 2u]", reason: "a test" }]
    }

    fn ordered(&self) -> &[Ordered] {
        &[Ordered { kernel: "st", binding: "out", reason: "a test" }]
    }
}

#[test]
fn a_project_says_what_is_expected() {
    let ran = |body: &str| {
        let (device, queue, world) = open(&Config { project: &Small, twice: true, record: 1, ..Config::default() });
        through_wgpu(&device, &queue, &shader("var<workgroup> next: atomic<u32>;", body));
        (world.take_report().findings, world.take_recorded())
    };
    // Expected; in a text that is not the project's own; not expected.
    let (known, _) = ran("\nout[me / 2u] = me;");
    assert!(known.len() == 1 && known[0].place == "race.wgsl:3" && known[0].kernel == "st", "{known:?}");
    assert_eq!(ran("\nout[0] = me; // spoiled").0[0].place, "line 10");
    assert!(panic_of(|| ran("\nout[0] = me;")).contains("st: Race at race.wgsl:2 with race.wgsl:2"));
    let begin = "if (me == 0u) { atomicStore(&next, 0u); }\nworkgroupBarrier();\n";
    let (varies, recorded) = ran(&format!("{begin}out[atomicAdd(&next, 1u)] = me;\nworkgroupBarrier();"));
    assert_eq!(varies, []);
    let tally = hunt(&recorded, &Options::default(), None, 0, |_| true);
    let [mutant] = tally.survivors(&Kind::STRICT)[..] else { panic!("{tally:?}") };
    let entry = |near| Redundant { kernel: "", file: "race.wgsl", near, proof: "a test" };
    assert!(!entry("out").is(mutant, Small.files()), "its line is in no file");
    let there = Mutant { place: "race.wgsl:1".into(), ..mutant.clone() };
    assert!(entry("out[$]").is(&there, Small.files()) && !entry("/ 2u").is(&there, Small.files()));
}

#[test]
fn an_entry_point_is_chosen_by_name() {
    let text = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@compute @workgroup_size(1) fn one() { out[0] = 1u; }
@compute @workgroup_size(1) fn two() { out[0] = 2u; }";
    assert!(Source::new("test", None, text, &[]).unwrap_err().contains("wanted one compute entry point"));
    for (entry, wanted) in [("one", 1), ("two", 2)] {
        let source = Source::new("test", Some(entry), text, &[]).unwrap();
        let mut buffers = [vec![0]];
        on(&source, &mut buffers, &[Bound { binding: 0, buffer: 0, first: 0, words: 1 }], 1, &Options::default());
        assert_eq!(buffers[0], [wanted]);
    }
}

#[test]
fn a_device_in_words() {
    let config = Config::default().with("subgroup=8,order=ascending,twice=on,findings=print").unwrap();
    assert_eq!((config.options.subgroup, config.options.order), (8, Order::Ascending));
    assert_eq!((config.twice, config.findings), (true, Findings::Print));
    for (wrong, wanted) in [("subgroup=x", "=<number>"), ("twice", "twice=on or twice=off"), ("size=8", "subgroup,")] {
        let error = Config::default().with(wrong).unwrap_err();
        assert!(error.contains(wanted) && error.ends_with(&format!("found {wrong}")), "{error}");
    }
}

#[test]
fn both_orders_are_compared() {
    let found = |twice, body: &str| {
        let (device, queue, world) = open(&Config { twice, findings: Findings::Keep, ..Config::default() });
        let text = shader("var<workgroup> next: atomic<u32>;", "")
            .replace("\n}", &format!("if (me == 0u) {{ atomicStore(&next, 0u); }} workgroupBarrier(); {body} }}"));
        through_wgpu(&device, &queue, &text);
        world.take_report().findings.into_iter().map(|finding| finding.fault).collect::<Vec<_>>()
    };
    assert_eq!(found(true, "out[atomicAdd(&next, 1u)] = me;"), [Fault::Order]);
    assert_eq!(found(false, "out[atomicAdd(&next, 1u)] = me;"), []);
    assert_eq!(found(true, "atomicAdd(&next, me); workgroupBarrier(); out[me] = atomicLoad(&next);"), []);
}

#[test]
fn mutants_are_told() {
    let body = "words[me] = me; workgroupBarrier(); out[me] = words[63u - me]; workgroupBarrier();";
    let (device, queue, world) = open(&Config { record: 3, ..Config::default() });
    through_wgpu(&device, &queue, &shader("var<workgroup> words: array<u32, 64>;", body));
    let recorded = world.take_recorded();
    assert_eq!(recorded.len(), 1);
    let tally = hunt(&recorded, &Options::default(), None, 0, |_| true);
    assert_eq!(tally.told.values().copied().collect::<Vec<_>>(), [true], "one line, so one mutant");
    let body = body.replace("; workgroupBarrier(); out", ";\n workgroupBarrier();\n out");
    through_wgpu(&device, &queue, &shader("var<workgroup> words: array<u32, 64>;", &body));
    let tally = hunt(&world.take_recorded(), &Options::default(), None, 0, |_| true);
    assert_eq!(tally.count(&Kind::STRICT), (1, 2), "nothing needs the second barrier");
    assert_eq!(tally.survivors(&Kind::STRICT).len(), 1);
}
