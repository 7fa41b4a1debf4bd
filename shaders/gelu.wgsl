//! kernel gelu
//! include element
//! include gelu_tanh
struct Sizes { count: u32 }
@group(0) @binding(0) var<storage, read> x: array<Stored>; // [N]
@group(0) @binding(1) var<storage, read_write> y: array<Stored>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn gelu(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        let value = Element(x[i]);
        y[i] = Stored(0.5 * value * (1.0 + inner_tanh(value)));
    }
}

//! kernel gelu_backward
//! include element
//! include gelu_tanh
struct Sizes { count: u32 }
@group(0) @binding(0) var<storage, read> dy: array<Stored>; // [N]
@group(0) @binding(1) var<storage, read> x: array<Stored>; // [N]
@group(0) @binding(2) var<storage, read_write> dx: array<Stored>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn gelu_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        let value = Element(x[i]);
        let t = inner_tanh(value);
        // 1 - t² is exactly 0 where |x| is large, so the bound only keeps x³ finite.
        let bounded = clamp(value, Element(-1e6), Element(1e6));
        let slope = ROOT * (1.0 + 3.0 * CUBIC * bounded * bounded);
        dx[i] = Stored(Element(dy[i]) * (0.5 * (1.0 + t) + 0.5 * bounded * (1.0 - t * t) * slope));
    }
}
