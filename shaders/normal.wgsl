//! kernel normal
// splitmix64 on pairs of u32 (x low, y high): WGSL has no 64-bit integer.
struct Sizes { count: u32, deviation: f32, stream: u32, first: u32 } // elements from `first` on
@group(0) @binding(0) var<storage, read> seed: array<i32>; // [2]
@group(0) @binding(1) var<storage, read_write> x: array<f32>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;
const GOLDEN = vec2u(0x7F4A7C15u, 0x9E3779B9u);

fn multiply_wide(a: u32, b: u32) -> vec2u {
    let low = (a & 0xFFFFu) * (b & 0xFFFFu);
    let mid1 = (a >> 16u) * (b & 0xFFFFu) + (low >> 16u);
    let mid2 = (a & 0xFFFFu) * (b >> 16u) + (mid1 & 0xFFFFu);
    return vec2u((mid2 << 16u) | (low & 0xFFFFu), (a >> 16u) * (b >> 16u) + (mid1 >> 16u) + (mid2 >> 16u));
}

fn multiply64(a: vec2u, b: vec2u) -> vec2u {
    let wide = multiply_wide(a.x, b.x);
    return vec2u(wide.x, wide.y + a.x * b.y + a.y * b.x);
}

fn add64(a: vec2u, b: vec2u) -> vec2u {
    let low = a.x + b.x;
    return vec2u(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn xor_shifted(z: vec2u, by: u32) -> vec2u {
    return z ^ vec2u((z.x >> by) | (z.y << (32u - by)), z.y >> by);
}

fn mix(seeded: vec2u) -> vec2u {
    var z = multiply64(xor_shifted(seeded, 30u), vec2u(0x1CE4E5B9u, 0xBF58476Du));
    z = multiply64(xor_shifted(z, 27u), vec2u(0x133111EBu, 0x94D049BBu));
    return xor_shifted(z, 31u);
}

@compute @workgroup_size(256)
fn normal(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = (group.y * groups.x + group.x) * 256u + lane;
    if (i >= sizes.count) {
        return;
    }
    let seeded = vec2u(bitcast<u32>(seed[0]), bitcast<u32>(seed[1]));
    let key = mix(add64(seeded, multiply64(GOLDEN, vec2u(sizes.stream + 1u, 0u))));
    var counter = add64(multiply_wide(sizes.first + i, 3u), vec2u(1u, 0u));
    var total = 0u;
    for (var j = 0u; j < 3u; j++) {
        let word = mix(add64(key, multiply64(GOLDEN, counter)));
        total += (word.x & 0xFFFFu) + (word.x >> 16u) + (word.y & 0xFFFFu) + (word.y >> 16u);
        counter = add64(counter, vec2u(1u, 0u));
    }
    x[i] = sizes.deviation * (f32(i32(total) - 393210) * 0.0000152587890625);
}
