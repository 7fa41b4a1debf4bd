//! kernel adamw
//! include element
const SCALED = false; // gradients carry the loss scale: state[3] is 1/scale
const GUARD = false; // a step before had no finite norm where state[2] is not 0
struct Sizes { count: u32, decayed: u32 }
@group(0) @binding(0) var<storage, read> grad: array<Element>; // [N]
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [1]
@group(0) @binding(2) var<storage, read> recipe: array<f32>; // [8]
@group(0) @binding(3) var<storage, read_write> param: array<Element>; // [N]
@group(0) @binding(4) var<storage, read_write> m: array<Element>; // [N]
@group(0) @binding(5) var<storage, read_write> v: array<Element>; // [N]
//! if SCALED || GUARD
@group(0) @binding(9) var<storage, read> state: array<f32>; // [5], see guard.wgsl
//! end
//! if HALF
@group(0) @binding(10) var<storage, read_write> halves: array<Stored>; // [N]
//! end
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn adamw(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    // By its bits: a compiler may take `norm == norm` for true.
    let finite = (bitcast<u32>(norm[0]) & 0x7f800000u) != 0x7f800000u;
//! if GUARD
    let go = finite && state[2] == 0.0;
//! else
    let go = finite;
//! end
    if (i < sizes.count && go) {
        let lr = recipe[0];
        let beta1 = recipe[1];
        let beta2 = recipe[2];
        let clip = recipe[5];
//! if SCALED
        let scale = state[3] * select(1.0, clip / norm[0], clip > 0.0 && norm[0] > clip);
//! else
        let scale = select(1.0, clip / norm[0], clip > 0.0 && norm[0] > clip);
//! end
        let g = grad[i] * scale;
        let new_m = beta1 * m[i] + (1.0 - beta1) * g;
        let new_v = beta2 * v[i] + (1.0 - beta2) * g * g;
        m[i] = new_m;
        v[i] = new_v;
        let kept = param[i] * (1.0 - lr * recipe[4] * f32(sizes.decayed));
        let new_param = kept - lr * (new_m * recipe[6]) / (sqrt(new_v * recipe[7]) + recipe[3]);
        param[i] = new_param;
//! if HALF
        halves[i] = Stored(new_param);
//! end
    }
}
