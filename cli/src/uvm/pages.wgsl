// Rows in frames of pages: read into bags, and written by backward. A word of a row lies in the frame of its page.

struct Info {
    // log2 of a page's words
    shift: u32,
    dim: u32,
    groups: u32,
    // 0: gather; 1: update
    update: u32,
    lr: f32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

// Where a row begins: its first page's entry in `frames`, and the word within that page.
struct Place {
    first: u32,
    word: u32,
}

@group(0) @binding(0) var<uniform> info: Info;
// Frames of the pages of each row, page by page.
@group(0) @binding(1) var<storage, read> frames: array<u32>;
// Gather: a bag (x) and its entries (z to w). Update: a row's place (x, y) and its entries.
@group(0) @binding(2) var<storage, read> groups: array<vec4<u32>>;
// Gather: places. Update: bags (x).
@group(0) @binding(3) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> pool: array<f32>;
// Gather: outputs, added to. Update: their gradients.
@group(0) @binding(5) var<storage, read_write> bags: array<f32>;

const LANES: u32 = 32u;

fn at(place: Place, k: u32) -> u32 {
    let word = place.word + k;
    let frame = frames[place.first + (word >> info.shift)];
    return (frame << info.shift) + (word & ((1u << info.shift) - 1u));
}

fn gather(group_: vec4<u32>, k: u32) {
    let to = group_.x * info.dim + k;
    var sum = bags[to];
    for (var e = group_.z; e < group_.w; e++) {
        sum += pool[at(Place(entries[e].x, entries[e].y), k)];
    }
    bags[to] = sum;
}

fn update(group_: vec4<u32>, k: u32) {
    var sum = 0.0;
    for (var e = group_.z; e < group_.w; e++) {
        sum += bags[entries[e].x * info.dim + k];
    }
    pool[at(Place(group_.x, group_.y), k)] -= info.lr * sum;
}

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) size: vec3<u32>) {
    for (var g = id.x / LANES; g < info.groups; g += size.x * (256u / LANES)) {
        for (var k = id.x % LANES; k < info.dim; k += LANES) {
            if info.update == 1u {
                update(groups[g], k);
            } else {
                gather(groups[g], k);
            }
        }
    }
}
