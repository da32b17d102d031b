// Admits missing rows, set by set (SPEC 3, step 4): the l-th candidate by (key descending, row ascending) takes the
// l-th victim by (value ascending, way ascending). An empty way comes before every other; pinned ways come last and are
// never taken. With RECENTS that holds for the ways by counters; candidates that are left over take the ways for recent
// rows.
//
// A workgroup searches eight of the missing rows, which lie set by set, for rows that begin a set; where the grid is too
// small for that, up to 32 times eight. It admits these sets, eight at a time, with 32 lanes each: one lane for each
// candidate and each way. A set of many candidates is first cut down to its best 32 by the whole workgroup.
#include "shared/common.wgsl"
#include "shared/meta.wgsl"
#include "shared/swap.wgsl"
#include "shared/freqs.wgsl"

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> step: Step;
@group(0) @binding(2) var<storage, read_write> swaps: array<Swap>; // the missing rows, set by set; `victim` has the key
@group(0) @binding(3) var<storage, read_write> ways: array<u32>;
@group(0) @binding(4) var<storage, read_write> tables: array<atomic<u32>>;
@group(0) @binding(5) var<storage, read> shares: array<Share>;

#include "shared/shares.wgsl"
#include "shared/tag.wgsl"
#include "shared/tables.wgsl"
#include "shared/tally.wgsl"

var<workgroup> misses: u32;
var<workgroup> begun: atomic<u32>;
var<workgroup> sets: u32;
var<workgroup> heads: array<vec2<u32>, 256>; // the rows that begin a set, and these sets
var<workgroup> filled: array<u32, 8>;       // the number of candidates, at most 32, of each of the eight sets
var<workgroup> turns: atomic<u32>;          // the most times 32 candidates that a set has beyond the first 32
var<workgroup> large: atomic<u32>;          // the large sets, a bit for each
var<workgroup> asked: vec2<u32>;            // both
var<workgroup> best_key: array<u32, 512>;   // for each set the best 32 candidates so far, then the next 32
var<workgroup> best_row: array<u32, 512>;
var<workgroup> best_at: array<u32, 512>;    // their positions in `swaps`; NONE where there is none
var<workgroup> more_key: array<u32, 256>;   // candidates of one large set that come before its 32nd best so far
var<workgroup> more_row: array<u32, 256>;
var<workgroup> more_at: array<u32, 256>;
var<workgroup> more: atomic<u32>;           // their number
var<workgroup> survivors: u32;
var<workgroup> way_value: array<u32, 256>;  // 0 for an empty way, NONE (which no value reaches) for a pinned way, else the value + 1
var<workgroup> way_by_rank: array<u32, 256>; // the victims in order
// Once large sets are cut down, `more_row` and `more_at` have the row and the stamp of each way (RECENTS; else 0), and
// `more_key` the candidates in order.
const FOR_RECENT: u32 = 0x80000000u; // the value of an empty way for recent rows; one with a row has 1 more

const LARGE: u32 = 256u; // candidates of a set beyond which the whole workgroup cuts them down

fn set_of(u: u32) -> u32 { return home_of(swaps[u].row); }

// The end of a large set that begins at `first`, among `n` rows: 256 rows a turn tell in which part of what is left it lies. The whole workgroup must
// call this.
fn end_of(first: u32, home: u32, n: u32, lane: u32) -> u32 {
    var low = first; // in the set
    var high = n;    // beyond it
    while (high - low > 1u) {
        let stride = (high - low + 255u) / 256u;
        if (lane == 0u) { atomicStore(&more, 0u); }
        workgroupBarrier();
        let at = low + (lane + 1u) * stride;
        if (at < high && set_of(min(at, n - 1u)) == home) { atomicAdd(&more, 1u); }
        workgroupBarrier();
        if (lane == 0u) { survivors = atomicLoad(&more); }
        low += workgroupUniformLoad(&survivors) * stride;
        high = min(high, low + stride);
    }
    return high;
}

fn before(a: u32, b: u32) -> bool {
    if (best_at[a] == NONE || best_at[b] == NONE) {
        if (best_at[a] == NONE && best_at[b] == NONE) { return a < b; }
        return best_at[b] == NONE;
    }
    if (best_key[a] != best_key[b]) { return best_key[a] > best_key[b]; }
    return best_row[a] < best_row[b];
}

// Counts how many of the `n` entries from `base` on come before `a`.
fn rank(a: u32, base: u32, n: u32) -> u32 {
    var r = 0u;
    for (var b = base; b < base + n; b++) {
        if (b != a && before(b, a)) { r++; }
    }
    return r;
}

fn candidate(to: u32, at: u32, is_one: bool) {
    best_at[to] = NONE;
    best_key[to] = 0u;
    best_row[to] = NONE;
    if (is_one) {
        best_at[to] = at;
        best_key[to] = swaps[at].victim;
        best_row[to] = swaps[at].row;
    }
}

// True if the candidate `one` comes before the candidate (key, row).
fn comes_before(one: Swap, key: u32, row: u32) -> bool {
    return one.victim > key || (one.victim == key && one.row < row);
}

// Puts the best 32 candidates of `span` into the entries from `base` on. The whole workgroup must call this. A turn
// takes 1,024 candidates and drops those that do not come before the 32nd best so far; mostly that is all of them.
fn cut_down(span: vec2<u32>, base: u32, lane: u32) {
    if (lane < 32u) { candidate(base + lane, span.x + lane, span.x + lane < span.y); }
    workgroupBarrier();
    if (lane < 32u) { // the 32 in order, so that the last is the worst
        let place = rank(base + lane, base, 32u);
        more_key[place] = best_key[base + lane];
        more_row[place] = best_row[base + lane];
        more_at[place] = best_at[base + lane];
    }
    workgroupBarrier();
    if (lane < 32u) {
        best_key[base + lane] = more_key[lane];
        best_row[base + lane] = more_row[lane];
        best_at[base + lane] = more_at[lane];
    }
    if (lane == 0u) { atomicStore(&more, 0u); }
    workgroupBarrier();
    for (var first = span.x + 32u; first < span.y; first += 1024u) {
        let last = span.y - 1u;
        let at = first + lane + vec4<u32>(0u, 256u, 512u, 768u);
        let a = swaps[min(at.x, last)];
        let b = swaps[min(at.y, last)];
        let c = swaps[min(at.z, last)];
        let d = swaps[min(at.w, last)];
        let key = best_key[base + 31u];
        let row = best_row[base + 31u];
        let better = (at < vec4<u32>(span.y)) & vec4<bool>(comes_before(a, key, row), comes_before(b, key, row),
                                                           comes_before(c, key, row), comes_before(d, key, row));
        if (any(better)) { atomicAdd(&more, 1u); }
        workgroupBarrier();
        if (lane == 0u) { survivors = atomicLoad(&more); }
        if (workgroupUniformLoad(&survivors) == 0u) { continue; }
        merge_more(a, at.x, span.y, base, lane);
        merge_more(b, at.y, span.y, base, lane);
        merge_more(c, at.z, span.y, base, lane);
        merge_more(d, at.w, span.y, base, lane);
        if (lane == 0u) { atomicStore(&more, 0u); }
        workgroupBarrier();
    }
}

// Merges up to 256 candidates, one an invocation, into the best 32 of a set, which lie in order from `base` on.
fn merge_more(one: Swap, at: u32, end: u32, base: u32, lane: u32) {
    if (lane == 0u) { atomicStore(&more, 0u); }
    workgroupBarrier();
    if (at < end && comes_before(one, best_key[base + 31u], best_row[base + 31u])) {
        let to = atomicAdd(&more, 1u);
        more_key[to] = one.victim;
        more_row[to] = one.row;
        more_at[to] = at;
    }
    workgroupBarrier();
    if (lane == 0u) { survivors = atomicLoad(&more); }
    let n = workgroupUniformLoad(&survivors);
    if (n == 0u) { return; }
    // The place of an entry among both lists: of the entries before it, those in its own list and those in the other.
    var kept = NONE;
    var moved = vec3<u32>(0u);
    if (lane < 32u) {
        kept = lane + before_in_more(best_key[base + lane], best_row[base + lane], n);
        moved = vec3<u32>(best_key[base + lane], best_row[base + lane], best_at[base + lane]);
    }
    var come = NONE;
    var coming = vec3<u32>(0u);
    if (lane < n) {
        coming = vec3<u32>(more_key[lane], more_row[lane], more_at[lane]);
        come = before_in_more(coming.x, coming.y, n);
        for (var i = base; i < base + 32u; i++) {
            if (best_key[i] > coming.x || (best_key[i] == coming.x && best_row[i] < coming.y)) { come++; }
        }
    }
    workgroupBarrier();
    if (kept < 32u) { best_key[base + kept] = moved.x; best_row[base + kept] = moved.y; best_at[base + kept] = moved.z; }
    if (come < 32u) { best_key[base + come] = coming.x; best_row[base + come] = coming.y; best_at[base + come] = coming.z; }
}

// How many of the `n` entries of the other list come before (key, row).
fn before_in_more(key: u32, row: u32, n: u32) -> u32 {
    var r = 0u;
    for (var i = 0u; i < n; i++) {
        if (more_key[i] > key || (more_key[i] == key && more_row[i] < row)) { r++; }
    }
    return r;
}

// A way as it was before the set's first admission.
struct Way { flags: u32, row: u32, stamp: u32, freq: u32 }

// Admits the sets that begin at heads[first..first + 8].
fn admit_eight(first: u32, n: u32, lane: u32) {
    let which = lane / 32u;
    let way = lane & 31u;
    let base = which * 64u;
    var head = vec2<u32>(n, NONE); // no set, so no candidate
    if (first + which < sets) { head = heads[first + which]; }
    let home = head.y;
    // These loads wait for no other. Lanes without a set read no way, and nobody the key of another set's row, because another workgroup may be
    // writing them.
    let near = swaps[min(head.x + way, n - 1u)].row;
    let reach = 32u * (min(way, LARGE / 32u - 1u) + 1u);
    let far = swaps[min(head.x + reach, n - 1u)].row;
    var old = Way(0u, NONE, 0u, 0u);
    if (home != NONE) {
        let slot = home * 32u + way;
        old = Way(ways[way_at(slot, FLAGS)], tag_of(slot), ways[way_at(slot, STAMP)], ways[way_at(slot, FREQ)]);
    }
    if (way < LARGE / 32u && head.x + reach < n && home_of(far) == home) {
        if (reach == LARGE) { atomicOr(&large, 1u << which); } else { atomicMax(&turns, reach / 32u); }
    }
    if (way == 0u) { filled[which] = 0u; }
    workgroupBarrier();
    if (lane == 0u) {
        asked = vec2<u32>(atomicLoad(&turns), atomicLoad(&large));
        atomicStore(&turns, 0u);
        atomicStore(&large, 0u);
    }
    let most = workgroupUniformLoad(&asked);
    // The best 32 candidates. The order is total, so it does not matter in which chunk a candidate comes.
    for (var k = 0u; k < 8u && most.y >> k != 0u; k++) {
        if (((most.y >> k) & 1u) == 0u) { continue; }
        let begin = workgroupUniformLoad(&heads[first + k]);
        cut_down(vec2<u32>(begin.x, end_of(begin.x, begin.y, n, lane)), k * 64u, lane);
    }
    let done = ((most.y >> which) & 1u) != 0u; // cut down already
    if (!done) { candidate(base + way, head.x + way, head.x + way < n && home_of(near) == home); }
    for (var turn = 1u; turn <= most.x; turn++) {
        let at = head.x + 32u * turn + way;
        if (!done) { candidate(base + 32u + way, at, at < n && set_of(min(at, n - 1u)) == home); }
        workgroupBarrier();
        var low = vec4<u32>(NONE);
        var high = vec4<u32>(NONE);
        if (head.x + 32u * turn < n && !done) {
            low = vec4<u32>(rank(base + way, base, 64u), best_key[base + way], best_row[base + way], best_at[base + way]);
            let other = base + 32u + way;
            high = vec4<u32>(rank(other, base, 64u), best_key[other], best_row[other], best_at[other]);
        }
        workgroupBarrier();
        if (low.x < 32u) { best_key[base + low.x] = low.y; best_row[base + low.x] = low.z; best_at[base + low.x] = low.w; }
        if (high.x < 32u) { best_key[base + high.x] = high.y; best_row[base + high.x] = high.z; best_at[base + high.x] = high.w; }
        workgroupBarrier();
    }

    // The victims, in the order before the set's first admission.
    more_row[lane] = 0u;
    more_at[lane] = 0u;
    way_value[lane] = NONE;
    if (home != NONE) { way_value[lane] = order_of(old, lane); }
    storageBarrier(); // all lanes have read the set's ways before `take` writes them
    workgroupBarrier();
    if (best_at[base + way] != NONE && (way == 31u || best_at[base + min(way + 1u, 31u)] == NONE)) { filled[which] = way + 1u; }
    var place = 0u;
    if (home != NONE) {
        for (var other = which * 32u; other < which * 32u + 32u; other++) {
            if (way_before(other, lane)) { place++; }
        }
        way_by_rank[which * 32u + place] = way;
    }
    workgroupBarrier();

    let candidates = filled[which];
    if (way < candidates) {
        let nth = rank(base + way, base, candidates);
        more_key[which * 32u + nth] = base + way;
        if (may_take(base + way, which * 32u, nth)) {
            let victim = way_by_rank[which * 32u + nth];
            take(base + way, home * 32u + victim, way_value[which * 32u + victim] != 0u, 0u);
        }
    }
    workgroupBarrier();
    if ((params.policy & RECENTS) != 0u && way == 0u && candidates > 0u) { take_recent(which * 32u, home, candidates); }
    workgroupBarrier();
}

// The first order of a way among the victims; the others are noted at `lane`.
fn order_of(way: Way, lane: u32) -> u32 {
    let recent = select(0u, FOR_RECENT, (way.flags & RECENT) != 0u);
    if (way.row == NONE) { return recent; }
    if ((way.flags & PINNED) != 0u) { return NONE; }
    if ((params.policy & RECENTS) == 0u) {
        return select(way.stamp, way.freq, (params.policy & COUNTS) != 0u) + 1u;
    }
    if (way.stamp == step.t) { return NONE; } // this batch uses the row
    more_row[lane] = way.row;
    more_at[lane] = way.stamp;
    return select(way.freq, recent, recent != 0u) + 1u;
}

// Whether way `a` comes before way `b` as a victim.
fn way_before(a: u32, b: u32) -> bool {
    if (way_value[a] != way_value[b]) { return way_value[a] < way_value[b]; }
    if (more_at[a] != more_at[b]) { return more_at[a] < more_at[b]; }
    if (more_row[a] != more_row[b]) { return more_row[a] < more_row[b]; }
    return a < b;
}

// Whether the policy gives the candidate at `best` the victim of the same rank. Candidates come with falling keys, and victims
// with rising values; so if it gives none, it gives none to those after it.
fn may_take(best: u32, first_way: u32, nth: u32) -> bool {
    let value = way_value[first_way + way_by_rank[first_way + nth]];
    if (value == 0u) { return true; }
    if (value == NONE) { return false; }
    if ((params.policy & COUNTS) != 0u) { return value - 1u < uses_of_key(best_key[best]); }
    return value - 1u != step.t;
}

// Gives the ways for recent rows, in order, to the candidates of a set that got no other (SPEC 3, Window). A row that leaves
// such a way takes the place of the least row that counters keep, if it was used more.
fn take_recent(first_way: u32, home: u32, candidates: u32) {
    var next = 0u; // the candidate, and the victim by counters
    while (next < candidates && may_take(more_key[first_way + next], first_way, next)) { next++; }
    var least = next;
    var recent = 0u;
    while (recent < 32u && way_value[first_way + way_by_rank[first_way + recent]] < FOR_RECENT) { recent++; }
    let counted = recent;
    var joined = 0u; // one bit for each way that was for recent rows and now is by counters
    for (; next < candidates && recent < 32u; recent++) {
        let way = way_by_rank[first_way + recent];
        if (way_value[first_way + way] == NONE) { return; }
        let slot = home * 32u + way;
        let held = way_value[first_way + way] != FOR_RECENT;
        let one = more_key[first_way + next];
        next++;
        var victim = NONE;
        if (least < counted) { victim = way_by_rank[first_way + least]; }
        for (var rest = joined; rest != 0u; rest &= rest - 1u) {
            let other = firstTrailingBit(rest);
            if (victim == NONE || way_before(first_way + other, first_way + min(victim, 31u))) { victim = other; }
        }
        let uses = ways[way_at(slot, FREQ)];
        if (!held || victim == NONE || uses < way_value[first_way + min(victim, 31u)]) {
            take(one, slot, held, RECENT);
            continue;
        }
        // The row by counters leaves; the recent one stays where it is.
        if (((joined >> victim) & 1u) != 0u) { joined &= ~(1u << victim); } else { least++; }
        joined |= 1u << way;
        way_value[first_way + way] = uses + 1u;
        ways[way_at(slot, FLAGS)] &= ~RECENT;
        take(one, home * 32u + victim, true, RECENT);
    }
}

// Gives the candidate at `best` a slot, whose row leaves, if it has one. With `recent` the slot is for recent rows from now on.
fn take(best: u32, slot: u32, held: bool, recent: u32) {
    let u = best_at[best];
    let row = best_row[best];
    let stamp = ways[way_at(slot, STAMP)];
    var leaving = Swap(slot, row, NONE, 0u);
    if (held) {
        leaving.victim = tag_of(slot);
        leaving.flags = WRITE;
        tally(counted_in(leaving.victim), EVICTIONS, 1u);
        if (stamp == step.t) { leaving.flags |= KEEP; } // OWN_LEAVE: this batch uses the victim, so its row is kept in scratch
    }
    tally(counted_in(row), ADMITTED, 1u);
    // The tag and the other flags stay those of the victim until exchange carries out the eviction: a backward may run before,
    // and readers may look. Till then the coming row stands in place of the stamp.
    ways[way_at(slot, STAMP)] = row;
    ways[way_at(slot, FREQ)] = uses_of_key(best_key[best]);
    ways[way_at(slot, FLAGS)] |= COMING | recent;
    // Not the row, which the workgroup of a neighbouring set may be reading.
    swaps[u].place = slot;
    swaps[u].victim = leaving.victim;
    swaps[u].flags = leaving.flags;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    if (lane == 0u) {
        misses = step.counts[COUNT_SWAPS];
        atomicStore(&turns, 0u);
        atomicStore(&large, 0u);
    }
    let n = workgroupUniformLoad(&misses);
    let all = 8u * groups.x * groups.y;
    for (var first = 8u * flat_group(group, groups); first < n; first += 32u * all) {
        let u = first + lane / 8u * all + (lane & 7u);
        if (lane == 0u) { atomicStore(&begun, 0u); }
        workgroupBarrier();
        if (u < n) {
            let row = swaps[u].row;
            let last = swaps[max(u, 1u) - 1u].row;
            let home = home_of(row);
            if (home != NONE && (u == 0u || home_of(last) != home)) { heads[atomicAdd(&begun, 1u)] = vec2<u32>(u, home); }
        }
        workgroupBarrier();
        if (lane == 0u) { sets = atomicLoad(&begun); }
        let found = workgroupUniformLoad(&sets);
        if (found == 0u) { continue; }
        tally_begin(lane, swaps[heads[0].x].row);
        for (var eight = 0u; eight < found; eight += 8u) { admit_eight(eight, n, lane); }
        tally_end(lane);
        workgroupBarrier();
    }
}
