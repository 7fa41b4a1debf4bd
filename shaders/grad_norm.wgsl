//! kernel grad_norm
//! include element
//! include reduce
const SCALED = false; // the gradients carry the loss scale: state[3] is 1/scale
const PARTIAL = 16384u; // elements of one partial sum
//! if VECTORS
const PARTIAL_STEPS = 16u;
fn squares(value: Element) -> f32 { return dot(value, value); }
//! else
const PARTIAL_STEPS = 64u;
fn squares(value: Element) -> f32 { return value * value; }
//! end
struct Sizes { count: u32, partial_count: u32, first: u32 } // partial sums from `first` on
@group(0) @binding(0) var<storage, read> grad: array<Element>; // [N]
@group(0) @binding(1) var<storage, read_write> partials: array<f32>; // [G]
@group(0) @binding(2) var<storage, read_write> norm: array<f32>; // [1]
//! if SCALED
@group(0) @binding(9) var<storage, read> state: array<f32>; // [5], see guard.wgsl
//! end
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn grad_norm(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let g = group.y * groups.x + group.x;
    var sum = 0.0;
    for (var step = 0u; step < PARTIAL_STEPS; step++) {
        let i = (g * PARTIAL_STEPS + step) * 256u + lane;
        if (i < sizes.count) {
            sum += squares(grad[i]);
        }
    }
    let total = reduce_sum(sum, lane);
    if (lane == 0u && g < sizes.partial_count) {
        partials[sizes.first + g] = total;
    }
}

@compute @workgroup_size(256)
fn grad_norm_total(@builtin(local_invocation_index) lane: u32) {
    var sum = 0.0;
    for (var g = lane; g < sizes.partial_count; g += 256u) {
        sum += partials[g];
    }
    let total = reduce_sum(sum, lane);
    if (lane == 0u) {
//! if SCALED
        norm[0] = sqrt(total) * state[3];
//! else
        norm[0] = sqrt(total);
//! end
    }
}
