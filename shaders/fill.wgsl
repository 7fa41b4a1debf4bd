//! kernel fill
//! include element
struct Sizes { count: u32, value: f32 }
@group(0) @binding(0) var<storage, read_write> x: array<Element>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn fill(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        x[i] = Element(sizes.value);
    }
}
