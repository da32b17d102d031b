//! What is expected: findings, results that depend on the order of atomic operations, and mutants that no run notices. Each has its reason,
//! and the run of everything (`scripts/lanes`) fails at an entry that is no longer met.

use wgsl_lanes::{Finding, Known, Mutant, Ordered, Redundant};

use super::files::files;

/// Every expected finding: none.
pub static KNOWN: &[Known] = &[];

/// The entry for a finding, if it is expected.
pub fn known(finding: &Finding) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.is(finding))
}

/// Every binding whose words may depend on the order.
pub static ORDERED: &[Ordered] = &[
    Ordered { kernel: "probe", binding: "misses", reason: "misses are listed in any order; a sort follows" },
    Ordered { kernel: "probe", binding: "miss_digits", reason: "as misses, whose blocks they count" },
    Ordered { kernel: "collect", binding: "swaps", reason: "the swaps of a flush are independent of each other" },
    Ordered {
        kernel: "exchange",
        binding: "records",
        reason: "records that leave lie in any order; each is listed with its row and found by its swap",
    },
    Ordered { kernel: "update", binding: "records", reason: "as in exchange: both pack rows" },
    Ordered {
        kernel: "without a label",
        binding: "emb_feedback",
        reason: "wanted rows are listed in any order; a sort follows",
    },
    Ordered {
        kernel: "robe_scatter",
        binding: "sums",
        reason: "the atomic backward adds floats in any order (SPEC 7)",
    },
];

/// Why a scan's first barrier may be needed elsewhere.
const ONE_SCAN: &str =
    "the barrier waits for readers of the previous scan; here either there is none, or a barrier lies behind it";

/// Why the barriers around combine's search for heavy rows are not missed.
const EIGHT_LANES: &str = "needed where a subgroup has four lanes; on the devices whose dispatches are recorded the eight lanes that search are of one subgroup";

/// A barrier that brings the lanes of a subgroup together.
const TOGETHER: &str = "have left a loop of the caller";

/// Why the executor does not notice that a barrier before shuffles is missing.
const SHUFFLES: &str = "not redundant on hardware: it brings the lanes of a subgroup together before they exchange values, and the executor's \
     subgroups are together anyway; no memory lies between the calls";

/// Why the executor does not notice that a workgroup counts itself as done before its words are there.
const DONE: &str = "not redundant on hardware: it brings the workgroup's atomic operations before the one that counts it as done; the executor carries out \
     every atomic operation where it stands";

/// Every barrier whose removal no run notices: because the kernel does not need it, or because the executor's subgroups never diverge.
pub static REDUNDANT: &[Redundant] = &[
    Redundant {
        kernel: "admit",
        file: "cached/admit.wgsl",
        near: "if (high.x < 32u) {",
        proof: "the next round writes only the far half, which nobody reads before the round's first barrier; behind the loop, two barriers \
                come before the next read",
    },
    Redundant {
        kernel: "admit",
        file: "cached/admit.wgsl",
        near: "take_recent(which",
        proof: "the next eight sets write only `filled`, `turns` and `large` before their first barrier, which take_recent does not read; tally_end begins with a barrier",
    },
    Redundant {
        kernel: "admit",
        file: "cached/admit.wgsl",
        near: "let begin = workgroupUniformLoad",
        proof: "the heads stay as they are meanwhile; compilers that want a proof that all invocations go the same way need the uniform load",
    },
    Redundant {
        kernel: "admit",
        file: "cached/admit.wgsl",
        near: "tally_end(lane);",
        proof: "the next turn has barriers before it counts anything",
    },
    Redundant {
        kernel: "admit",
        file: "shared/tally.wgsl",
        near: "    }",
        proof: "admit_eight has barriers before it counts anything",
    },
    Redundant { kernel: "combine", file: "cached/combine.wgsl", near: "atomicStore(&begun, 0u)", proof: EIGHT_LANES },
    Redundant { kernel: "combine", file: "cached/combine.wgsl", near: "rows = atomicLoad(&begun)", proof: EIGHT_LANES },
    Redundant {
        kernel: "admit",
        file: "shared/tally.wgsl",
        near: "fn tally_end",
        proof: "admit_eight ends with a barrier (one of the two is needed)",
    },
    Redundant { kernel: "linearize", file: "shared/begin.wgsl", near: "storageBarrier()", proof: DONE },
    Redundant { kernel: "wanted", file: "shared/begin.wgsl", near: "storageBarrier()", proof: DONE },
    Redundant { kernel: "heads", file: "shared/lanes_portable.wgsl", near: "the previous scan", proof: ONE_SCAN },
    Redundant { kernel: "scan", file: "shared/lanes_portable.wgsl", near: "the previous scan", proof: ONE_SCAN },
    Redundant { kernel: "scatter", file: "shared/lanes_portable.wgsl", near: "the previous scan", proof: ONE_SCAN },
    Redundant { kernel: "segments", file: "shared/lanes_portable.wgsl", near: "the previous scan", proof: ONE_SCAN },
    Redundant { kernel: "sort_small", file: "shared/lanes_portable.wgsl", near: "the previous scan", proof: ONE_SCAN },
    Redundant {
        kernel: "scan",
        file: "shared/lanes_subgroups.wgsl",
        near: TOGETHER,
        proof: "of short rows, a barrier of its own stands between two scans; no recorded dispatch has longer ones",
    },
    Redundant { kernel: "scatter", file: "shared/lanes_subgroups.wgsl", near: TOGETHER, proof: ONE_SCAN },
    Redundant { kernel: "segments", file: "shared/lanes_subgroups.wgsl", near: TOGETHER, proof: ONE_SCAN },
    Redundant { kernel: "sort_small", file: "shared/lanes_subgroups.wgsl", near: TOGETHER, proof: ONE_SCAN },
    Redundant { kernel: "exchange", file: "shared/row_shuffled.wgsl", near: "let is_upper", proof: SHUFFLES },
    Redundant { kernel: "update", file: "shared/row_shuffled.wgsl", near: "let is_upper", proof: SHUFFLES },
    Redundant { kernel: "update", file: "shared/row_shuffled.wgsl", near: "var sum = squares;", proof: SHUFFLES },
    Redundant {
        kernel: "update",
        file: "shared/row_counts.wgsl",
        near: "first_rows[local] = table_base(table)",
        proof: "handle has barriers of its own before it counts a row",
    },
    Redundant {
        kernel: "update",
        file: "shared/piece_list.wgsl",
        near: "have read the list of the last block",
        proof: "handle has barriers of its own behind the last read of the list",
    },
    Redundant {
        kernel: "scatter",
        file: "sort/scatter.wgsl",
        near: "send_values(to_c,",
        proof: "until the next block's first barrier a lane clears only words that it alone reads here",
    },
    Redundant {
        kernel: "segments",
        file: "sort/segments.wgsl",
        near: "workgroupBarrier();",
        proof: "the next block's scan begins with barriers before it writes what this one reads",
    },
    Redundant {
        kernel: "robe_blocks",
        file: "robe/robe_blocks.wgsl",
        near: "before the next unit uses the arrays",
        proof: "the next unit writes behind barriers of its own",
    },
];

/// Every atomic operation that may be made plain, and every storageBarrier that may be made a workgroupBarrier, without any run noticing.
pub static UNNOTICED: &[Redundant] = &[
    Redundant {
        kernel: "",
        file: "shared/tables.wgsl",
        near: "+ 1u], 1u)",
        proof: "the carry into a counter's high word: it takes 2^32 counts to come to it, and twice that for two at once",
    },
    Redundant { kernel: "", file: "shared/begin.wgsl", near: "storageBarrier()", proof: DONE },
    Redundant {
        kernel: "",
        file: "shared/begin.wgsl",
        near: "atomicAdd(&tables[0], 1u)",
        proof: "one invocation of a dispatch comes here, and no other reads the clock",
    },
    Redundant {
        kernel: "linearize",
        file: "cached/linearize.wgsl",
        near: "atomicMax(&step.bad_offset",
        proof: "no recorded batch has two bad offsets in one dispatch; needed where one has",
    },
];

/// The entry for a mutant, if it is a barrier whose removal no run notices.
pub fn redundant(mutant: &Mutant) -> Option<&'static Redundant> {
    REDUNDANT.iter().find(|known| known.is(mutant, files()))
}
