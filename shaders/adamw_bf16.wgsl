//! kernel adamw_bf16
//! include element
const SCALED = false; // gradients carry the loss scale: state[3] is 1/scale
const GUARD = false; // a step before had no finite norm where state[2] is not 0
struct Sizes { count: u32, decayed: u32, first: u32, m_first: u32, v_first: u32 }
@group(0) @binding(0) var<storage, read> grad: array<Element>; // [N]
@group(0) @binding(1) var<storage, read> norm: array<f32>; // [1]
@group(0) @binding(2) var<storage, read> recipe: array<f32>; // [8]
@group(0) @binding(3) var<storage, read_write> param: array<Element>; // [N]
@group(0) @binding(4) var<storage, read_write> m: array<i32>; // [W]
@group(0) @binding(5) var<storage, read_write> v: array<i32>; // [W]
//! if SCALED || GUARD
@group(0) @binding(9) var<storage, read> state: array<f32>; // [5], see guard.wgsl
//! end
//! if HALF
@group(0) @binding(10) var<storage, read_write> halves: array<Stored>; // [N]
//! end
@group(0) @binding(15) var<uniform> sizes: Sizes;
//! include moments

// Two bfloat16 in a word, the first in its lower half.
fn unpacked(word: i32) -> vec2f {
    let bits = bitcast<u32>(word);
    return bitcast<vec2f>(vec2u(bits << 16u, bits & 0xffff0000u));
}

fn packed(x: vec2f, chance: vec2u) -> i32 {
    let bits = bitcast<vec2u>(x) + chance;
    return bitcast<i32>((bits.x >> 16u) | (bits.y & 0xffff0000u));
}

@compute @workgroup_size(256)
fn adamw_bf16(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    let at = 4u * i;
    if (at < sizes.count && goes()) {
        let m_at = sizes.m_first + 2u * i;
        let v_at = sizes.v_first + 2u * i;
        let two = at + 2u < sizes.count;
        var old_m = vec4f(unpacked(m[m_at]), vec2f());
        var old_v = vec4f(unpacked(v[v_at]), vec2f());
        if (two) {
            old_m = vec4f(old_m.xy, unpacked(m[m_at + 1u]));
            old_v = vec4f(old_v.xy, unpacked(v[v_at + 1u]));
        }
        let g = gradient(at);
        let new_m = select(vec4f(), recipe[1] * old_m + (1.0 - recipe[1]) * g, inside(at));
        let new_v = select(vec4f(), recipe[2] * old_v + (1.0 - recipe[2]) * g * g, inside(at));
        step_weights(at, new_m, new_v);
        let drawn = chances(at);
        let chance_m = drawn & vec4u(0xffffu);
        let chance_v = drawn >> vec4u(16u);
        m[m_at] = packed(new_m.xy, chance_m.xy);
        v[v_at] = packed(new_v.xy, chance_v.xy);
        if (two) {
            m[m_at + 1u] = packed(new_m.zw, chance_m.zw);
            v[v_at + 1u] = packed(new_v.zw, chance_v.zw);
        }
    }
}
