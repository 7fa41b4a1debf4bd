//! kernel adamw_8bit
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
// Sixteen threads have a block of 64 elements: a word of its scale, then sixteen of codes.
const SMALLEST = 1.17549435e-38;
var<workgroup> largest: array<vec2f, 256>;

// scale·c·|c|/127²
fn decoded_m(word: i32, scale: i32) -> vec4f {
    let codes = (vec4i(word) << vec4u(24u, 16u, 8u, 0u)) >> vec4u(24u);
    let part = vec4f(codes) * (1.0 / 127.0);
    return part * abs(part) * bitcast<f32>(scale);
}

// scale·(c/255)⁴
fn decoded_v(word: i32, scale: i32) -> vec4f {
    let codes = (bitcast<vec4u>(vec4i(word)) >> vec4u(0u, 8u, 16u, 24u)) & vec4u(255u);
    let part = vec4f(codes) * (1.0 / 255.0);
    return (part * part) * (part * part) * bitcast<f32>(scale);
}

fn word_of(codes: vec4u) -> i32 {
    let placed = (codes & vec4u(255u)) << vec4u(0u, 8u, 16u, 24u);
    return bitcast<i32>(placed.x | placed.y | placed.z | placed.w);
}

fn most_of(x: vec4f) -> f32 {
    return max(max(x.x, x.y), max(x.z, x.w));
}

@compute @workgroup_size(256)
fn adamw_8bit(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    let at = 4u * i;
    let block = i / 16u;
    let go = 64u * block < sizes.count && goes();
    let m_at = sizes.m_first + 17u * block;
    let v_at = sizes.v_first + 17u * block;
    let word = 1u + i % 16u;
    var new_m = vec4f();
    var new_v = vec4f();
    if (go && at < sizes.count) {
        let g = gradient(at);
        new_m = select(vec4f(), recipe[1] * decoded_m(m[m_at + word], m[m_at]) + (1.0 - recipe[1]) * g, inside(at));
        new_v = select(vec4f(), recipe[2] * decoded_v(v[v_at + word], v[v_at]) + (1.0 - recipe[2]) * g * g, inside(at));
        step_weights(at, new_m, new_v);
    }
    var most = vec2f(most_of(abs(new_m)), most_of(new_v));
    largest[lane] = most;
    storageBarrier(); // the scales are read; one thread of each block will write them
    for (var apart = 8u; apart > 0u; apart /= 2u) {
        workgroupBarrier();
        most = max(most, largest[lane ^ apart]);
        workgroupBarrier();
        largest[lane] = most;
    }
    if (go) {
        let scale = select(most, vec2f(), most < vec2f(SMALLEST));
        let some = scale > vec2f();
        let inverse = select(vec2f(), 1.0 / select(vec2f(1.0), scale, some), some);
        let drawn = chances(at);
        let up_m = vec4f(drawn & vec4u(0xffffu)) * 0.0000152587890625;
        let up_v = vec4f(drawn >> vec4u(16u)) * 0.0000152587890625;
        let size_m = vec4u(min(sqrt(abs(new_m) * inverse.x) * 127.0 + up_m, vec4f(127.0)));
        var code_v = vec4u(min(sqrt(sqrt(new_v * inverse.y)) * 255.0 + up_v, vec4f(255.0)));
        code_v = select(code_v, max(code_v, vec4u(1u)), (new_v > vec4f()) & vec4<bool>(some.y)); // never 0 where v is not
        m[m_at + word] = word_of(select(size_m, ~size_m + 1u, new_m < vec4f()));
        v[v_at + word] = word_of(code_v);
        if (word == 1u) {
            m[m_at] = bitcast<i32>(scale.x);
            v[v_at] = bitcast<i32>(scale.y);
        }
    }
}
