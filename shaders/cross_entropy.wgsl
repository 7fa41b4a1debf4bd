//! kernel cross_entropy
//! include reduce
// LANES threads a row; then one workgroup adds up the rows.
struct Sizes { R: u32, V: u32 }
@group(0) @binding(0) var<storage, read> logits: array<f32>; // [R,V]
@group(0) @binding(1) var<storage, read> targets: array<i32>; // [R]
@group(0) @binding(2) var<storage, read_write> losses: array<f32>; // [R]
@group(0) @binding(3) var<storage, read_write> lse: array<f32>; // [R]
@group(0) @binding(4) var<storage, read_write> loss: array<f32>; // [2]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(THREADS)
fn cross_entropy(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let row = (group.y * groups.x + group.x) * (THREADS / LANES) + lane / LANES;
    let inside = row < sizes.R;
    let start = row * sizes.V;
    let stop = select(0u, sizes.V, inside);
    var top = -3.4e38;
    for (var v = lane % LANES; v < stop; v += LANES) {
        top = max(top, logits[start + v]);
    }
    let row_top = reduce_max(top, lane);
    var sum = 0.0;
    for (var v = lane % LANES; v < stop; v += LANES) {
        sum += exp(logits[start + v] - row_top);
    }
    let row_sum = reduce_sum(sum, lane);
    if (inside && lane % LANES == 0u) {
        let row_lse = row_top + log(row_sum);
        let wanted = targets[row];
        lse[row] = row_lse;
        if (wanted >= 0) {
            losses[row] = (row_top - logits[start + u32(wanted)]) + log(row_sum);
        } else {
            losses[row] = 0.0;
        }
    }
}

@compute @workgroup_size(THREADS)
fn cross_entropy_mean(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    var counted = 0.0;
    for (var row = lane; row < sizes.R; row += THREADS) {
        sum += losses[row];
        counted += select(0.0, 1.0, targets[row] >= 0);
    }
    let total = reduce_sum(sum, lane);
    let count = reduce_sum(counted, lane);
    if (lane == 0u) {
        loss[0] = total / max(1.0, count);
        loss[1] = count;
    }
}

//! kernel cross_entropy_backward
const HALF = false;
//! if HALF
alias Stored = f16;
@group(0) @binding(9) var<storage, read> state: array<f32>; // the loss scale first
//! else
alias Stored = f32;
//! end
struct Sizes { R: u32, V: u32 }
@group(0) @binding(0) var<storage, read> logits: array<f32>; // [R,V]
@group(0) @binding(1) var<storage, read> targets: array<i32>; // [R]
@group(0) @binding(2) var<storage, read> lse: array<f32>; // [R]
@group(0) @binding(3) var<storage, read> loss: array<f32>; // [2]
@group(0) @binding(4) var<storage, read> dloss: array<f32>; // [1]
@group(0) @binding(5) var<storage, read_write> dlogits: array<Stored>; // [R,V]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn cross_entropy_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.R * sizes.V) {
        let row = i / sizes.V;
        let wanted = targets[row];
        var change = 0.0;
        if (wanted >= 0) {
            let onehot = select(0.0, 1.0, u32(wanted) == i % sizes.V);
            change = (exp(logits[i] - lse[row]) - onehot) * (dloss[0] / max(1.0, loss[1]));
        }
//! if HALF
        dlogits[i] = Stored(change * state[0]);
//! else
        dlogits[i] = change;
//! end
    }
}

//! kernel cross_entropy_backward_rows
const HALF = false;
//! if HALF
alias Stored = f16;
@group(0) @binding(9) var<storage, read> state: array<f32>; // the loss scale first
//! else
alias Stored = f32;
//! end
struct Sizes { R: u32, V: u32 }
@group(0) @binding(0) var<storage, read> logits: array<f32>; // [R,V]
@group(0) @binding(1) var<storage, read> targets: array<i32>; // [R]
@group(0) @binding(2) var<storage, read> lse: array<f32>; // [R]
@group(0) @binding(3) var<storage, read> dlosses: array<f32>; // [R]
@group(0) @binding(4) var<storage, read_write> dlogits: array<Stored>; // [R,V]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn cross_entropy_backward_rows(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i < sizes.R * sizes.V) {
        let row = i / sizes.V;
        let wanted = targets[row];
        var change = 0.0;
        if (wanted >= 0) {
            let onehot = select(0.0, 1.0, u32(wanted) == i % sizes.V);
            change = (exp(logits[i] - lse[row]) - onehot) * dlosses[row];
        }
//! if HALF
        dlogits[i] = Stored(change * state[0]);
//! else
        dlogits[i] = change;
//! end
    }
}
