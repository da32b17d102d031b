// Ends the first stage of a step (SPEC 3, step 1). The workgroup that ends last knows what all have found, and decides
// whether the step takes place; no workgroup waits for another. Needs `params`, `step`, `tables`, shared/sets.wgsl and
// shared/halvings.wgsl.
//
// WGSL orders the atomic operations of a workgroup among its own invocations only. That others see them in the same order is
// the device's promise: the barrier has device scope in SPIR-V and HLSL, and all these words lie in the first 64 bytes of `step`.

var<workgroup> ends_last: u32;

// True for one invocation of the dispatch, once every workgroup has come here. The whole workgroup must call this; what it
// has found is in atomic words of `step`.
fn is_last(groups: vec3<u32>, lane: u32) -> bool {
    storageBarrier(); // the workgroup's words come before it counts as done
    if (lane == 0u) { ends_last = select(0u, 1u, atomicAdd(&step.done, 1u) + 1u == groups.x * groups.y); }
    return workgroupUniformLoad(&ends_last) == 1u && lane == 0u;
}

// Takes the step, if it has an access, and advances the clock. A refused step does not come here.
fn begin() {
    if (atomicLoad(&step.accesses) == 0u) { return; }
    step.counts[COUNT_INDICES] = params.indices;
    if (params.mode == MODE_TRAIN) {
        atomicAdd(&tables[0], 1u);
        if ((params.policy & AGES) != 0u && params.shares == 0u && ages(whole())) {
            step.counts[COUNT_HALVINGS] = halvings_of(0u, params.slots, atomicLoad(&step.accesses));
        }
    }
}
