//! kernel blend
//! include element
struct Sizes { count: u32 }
@group(0) @binding(0) var<storage, read> factor: array<Element>; // [N]
@group(0) @binding(1) var<storage, read> given: array<Element>; // [N]
@group(0) @binding(2) var<storage, read_write> y: array<Stored>; // [N]
@group(0) @binding(15) var<uniform> sizes: Sizes;

@compute @workgroup_size(256)
fn blend(@builtin(workgroup_id) group: vec3u, @builtin(num_workgroups) groups: vec3u, @builtin(local_invocation_index) lane: u32) {
    let i = flat_index(group, groups, lane);
    if (i < sizes.count) {
        let scaled = factor[i] * Element(y[i]) + given[i];
        y[i] = Stored(select(scaled, given[i], factor[i] == Element()));
    }
}
