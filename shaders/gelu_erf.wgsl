//! kernel gelu_erf
//! include element
//! include gelu_erf_tail
struct Sizes { count: u32 }
@group(0) @binding(0) var<storage, read> x: array<Stored>; // [N]
@group(0) @binding(1) var<storage, read_write> y: array<Stored>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn gelu_erf(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        let value = Element(x[i]);
        let t = abs(bounded(value));
        y[i] = Stored(value * share(value, tail(t, bell_of(t))));
    }
}

//! kernel gelu_erf_backward
//! include element
//! include gelu_erf_tail
struct Sizes { count: u32 }
@group(0) @binding(0) var<storage, read> dy: array<Stored>; // [N]
@group(0) @binding(1) var<storage, read> x: array<Stored>; // [N]
@group(0) @binding(2) var<storage, read_write> dx: array<Stored>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn gelu_erf_backward(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        let value = bounded(Element(x[i]));
        let t = abs(value);
        let bell = bell_of(t);
        dx[i] = Stored(Element(dy[i]) * (share(value, tail(t, bell)) + DENSITY * value * bell));
    }
}
