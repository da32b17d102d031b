// Whole pages between the host's memory and frames, as many at once as the bus takes.

struct Info {
    // log2 of a page's 16-byte words
    shift: u32,
    transfers: u32,
    // 1: from frames to pages
    leaving: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> info: Info;
// Page, counted within `host`, and frame.
@group(0) @binding(1) var<storage, read> transfers: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> host: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> pool: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let n = info.transfers << info.shift;
    for (var i = id.x; i < n; i += groups.x * 256u) {
        let transfer = transfers[i >> info.shift];
        let within = i & ((1u << info.shift) - 1u);
        let page = (transfer.x << info.shift) + within;
        let frame = (transfer.y << info.shift) + within;
        if info.leaving == 1u {
            host[page] = pool[frame];
        } else {
            pool[frame] = host[page];
        }
    }
}
